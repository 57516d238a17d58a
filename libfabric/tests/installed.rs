//! Runs the plugin in the installed libfabric, with its programs `fi_info` and `fi_pingpong` (Debian:
//! `libfabric-bin`).
//!
//! The tests need these programs. Without them they are skipped with a message; under `./test` they fail.
//! `PATH` and `LD_LIBRARY_PATH` choose another libfabric.

use std::env;
use std::fs::{self, File};
use std::io;
use std::net::TcpListener;
use std::os::unix::fs::symlink;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use homespun_suite::prerequisites::Prerequisite;
use tempfile::TempDir;

/// A directory of providers that has only the plugin.
fn plugin_directory() -> TempDir {
    let directory = tempfile::tempdir().expect("a temporary directory");
    // Cargo builds the plugin before its tests, and puts both into one directory.
    let plugin = env::current_exe().expect("this test's path").with_file_name("libhomespun_fi.so");
    symlink(plugin, directory.path().join("libhomespun_fi.so")).expect("a temporary directory");
    directory
}

/// Runs `fi_info` with only the plugin in its provider path. Returns stdout and stderr, or `None` if
/// the program is missing.
fn run_fi_info(arguments: &[&str], variables: &[(&str, &str)]) -> Option<String> {
    let directory = plugin_directory();
    let mut command = Command::new("fi_info");
    command.args(arguments).env("FI_PROVIDER_PATH", directory.path()).envs(variables.iter().copied());
    let output = match command.output() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Prerequisite::FI_INFO.report_skipped(error);
            return None;
        }
        run => run.expect("a program that is installed can be started"),
    };
    let text = [output.stdout, output.stderr].concat();
    Some(String::from_utf8_lossy(&text).into_owned())
}

/// The values of the lines with this key.
fn values<'a>(text: &'a str, key: &str) -> Vec<&'a str> {
    text.lines().filter_map(|line| line.trim().strip_prefix(key)).collect()
}

#[test]
fn fi_info_lists_a_domain_that_hints_name_in_any_case() {
    let Some(text) = run_fi_info(&["-p", "homespun", "-d", "SHM"], &[]) else { return };
    for line in
        ["provider: homespun", "fabric: homespun", "domain: shm", "type: FI_EP_RDM", "type: FI_EP_MSG"]
    {
        assert!(text.contains(line), "no {line:?} in:\n{text}");
    }
}

#[test]
fn diagnostics_go_to_the_log_of_libfabric() {
    let arguments = ["-p", "homespun", "-t", "FI_EP_DGRAM"];
    let Some(text) = run_fi_info(&arguments, &[("FI_LOG_LEVEL", "debug")]) else { return };
    // The host's log line of the plugin's message.
    let is_ours = |line: &str| line.contains(":homespun:core:homespun_fi::") && line.contains("FI_EP_DGRAM");
    assert!(text.lines().any(is_ours), "no line of ours in:\n{text}");
    let Some(text) = run_fi_info(&arguments, &[("FI_LOG_LEVEL", "warn")]) else { return };
    assert_eq!(text.lines().filter(|line| is_ours(line)).count(), 1, "one warning:\n{text}");
}

#[test]
fn warning_names_the_unmet_hint_if_nothing_meets_hints_for_homespun() {
    let count_warnings = |arguments: &[&str]| {
        let text = run_fi_info(arguments, &[("FI_LOG_LEVEL", "warn")])?;
        let is_ours = |line: &&str| line.contains("nothing is offered") && line.contains(":homespun:");
        let lines: Vec<String> = text.lines().filter(is_ours).map(str::to_owned).collect();
        Some(lines)
    };
    let Some(lines) = count_warnings(&["-p", "homespun", "-c", "FI_HMEM"]) else { return };
    assert!(matches!(&lines[..], [line] if line.contains("the capability FI_HMEM")), "{lines:?}");
    let Some(lines) = count_warnings(&["-p", "homespun", "-d", "token-ring"]) else { return };
    assert!(matches!(&lines[..], [line] if line.contains("no domain token-ring, only auto")), "{lines:?}");
    for not_for_homespun in [&["-p", "verbs"][..], &["-d", "mlx5_0"], &["-p", "homespun", "-c", "FI_SOURCE"]]
    {
        assert_eq!(count_warnings(not_for_homespun), Some(Vec::new()), "{not_for_homespun:?}");
    }
}

#[test]
fn unknown_and_malformed_variables_are_warned_of_once() {
    let variables = [
        ("FI_LOG_LEVEL", "warn"),
        ("FI_HOMESPUN_TX_SIZES", "7"),
        ("FI_HOMESPUN_TX_SIZE", "many"),
        ("FI_HOMESPUN_PORTS", "7099-7000"),
    ];
    let Some(text) = run_fi_info(&["-p", "homespun"], &variables) else { return };
    for warning in [
        "FI_HOMESPUN_TX_SIZES is ignored: homespun has no such parameter",
        "FI_HOMESPUN_TX_SIZE=many is ignored: it should be a number",
        "FI_HOMESPUN_PORTS=7099-7000 is ignored: it should be a range of ports",
    ] {
        assert_eq!(text.matches(warning).count(), 1, "{warning:?} in:\n{text}");
    }
}

#[test]
fn missing_allowed_interface_is_logged_with_the_available_ones() {
    let variables = [("FI_LOG_LEVEL", "warn"), ("FI_HOMESPUN_IFACE", "no-such-interface")];
    let Some(text) = run_fi_info(&["-p", "homespun"], &variables) else { return };
    assert!(!text.contains("domain: "), "{text}");
    assert!(text.contains("FI_HOMESPUN_IFACE=no-such-interface matches no interface"), "{text}");
    assert!(text.contains("lo (127.0.0.1"), "{text}");
    assert!(text.contains("fi_getinfo: -61"), "ENODATA in:\n{text}");
}

#[test]
fn fi_info_lists_the_parameters() {
    let Some(text) = run_fi_info(&["-e"], &[("FI_HOMESPUN_CLOSE_LINGER_MS", "7")]) else { return };
    for param in homespun::params::PARAMS {
        assert!(text.contains(&param.env_variable()), "no {} in:\n{text}", param.env_variable());
        assert!(text.contains(param.help), "no {:?} in:\n{text}", param.help);
    }
    // The host prints the type of the value, too.
    let is_value = |line: &str| line.starts_with("FI_HOMESPUN_CLOSE_LINGER_MS=") && line.contains('7');
    assert!(text.lines().any(is_value), "the value is missing in:\n{text}");
}

#[test]
fn domain_parameter_restricts_the_domains() {
    for domain in ["auto", "shm", "tcp"] {
        let Some(text) = run_fi_info(&["-p", "homespun"], &[("FI_HOMESPUN_DOMAIN", domain)]) else { return };
        let found = values(&text, "domain: ");
        assert!(!found.is_empty() && found.iter().all(|name| *name == domain), "{text}");
    }
    let variables = [("FI_HOMESPUN_DOMAIN", "token-ring"), ("FI_LOG_LEVEL", "warn")];
    let Some(text) = run_fi_info(&["-p", "homespun"], &variables) else { return };
    assert!(values(&text, "domain: ").is_empty(), "{text}");
    let warning = "there is no domain token-ring (FI_HOMESPUN_DOMAIN), only auto, tcp, shm";
    assert!(text.contains(warning), "{text}");
}

#[test]
fn provider_offered_under_another_name_replaces_that_of_libfabric() {
    for name in ["tcp", "Sockets"] {
        let known = name.to_lowercase();
        let Some(text) = run_fi_info(&["-p", &known], &[("FI_HOMESPUN_AS", name)]) else { return };
        let values = |key| values(&text, key);
        let versions = values("version: ");
        assert!(!versions.is_empty() && versions.iter().all(|version| *version == "1000.0"), "{text}");
        assert!(values("provider: ").iter().all(|provider| *provider == known), "{text}");
        assert!(values("domain: ").contains(&"lo") && values("fabric: ").contains(&"127.0.0.1/32"), "{text}");
        assert!(!values("domain: ").contains(&known.as_str()), "{text}");
    }
    let Some(text) = run_fi_info(&["-p", "homespun"], &[("FI_HOMESPUN_AS", "tcp")]) else { return };
    assert!(text.contains("fi_getinfo: -61"), "only one of the names is offered:\n{text}");
}

#[test]
fn interface_and_network_restrict_the_infos_under_another_name() {
    let variables = [("FI_HOMESPUN_AS", "tcp"), ("FI_PROVIDER", "tcp")];
    for arguments in [["-d", "lo"], ["-f", "127.0.0.1/32"]] {
        let Some(text) = run_fi_info(&[&["-p", "tcp"], &arguments[..]].concat(), &variables) else { return };
        let domains = values(&text, "domain: ");
        assert!(!domains.is_empty() && domains.iter().all(|domain| *domain == "lo"), "{text}");
    }
    let variables = [&variables[..], &[("FI_LOG_LEVEL", "debug")]].concat();
    let Some(text) = run_fi_info(&["-p", "tcp", "-d", "eth9"], &variables) else { return };
    assert!(text.contains("fi_getinfo: -61"), "{text}");
    // Log messages keep homespun's name.
    let is_reason = |line: &str| line.contains(":homespun:core:") && line.contains("a domain of that name");
    assert!(text.lines().any(is_reason), "{text}");
}

#[test]
fn parameters_keep_their_variable_names_under_another_provider_name() {
    let variables = [("FI_HOMESPUN_AS", "tcp"), ("FI_HOMESPUN_TX_SIZE", "777")];
    let Some(text) = run_fi_info(&["-p", "tcp", "-v"], &variables) else { return };
    let sizes = text.lines().filter(|line| line.trim() == "size: 777").count();
    assert_eq!(sizes, text.matches("fi_tx_attr:").count(), "{text}");
    assert!(sizes > 0, "{text}");
}

/// A process, which is killed when this value is dropped.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        // Both fail if the process has ended.
        let _ = (self.0.kill(), self.0.wait());
    }
}

/// Runs two processes of `fi_pingpong` over a provider named tcp, one of which is libfabric's own and the
/// other homespun, until homespun warns of the other. The client is started again if it has ended.
fn await_warning_of_peer(ep_type: &str, homespun_listens: bool, warning: &str) {
    if run_fi_info(&["--version"], &[]).is_none() {
        return;
    }
    let directory = plugin_directory();
    let port =
        TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).expect("a port").port();
    let log = directory.path().join("log");
    let start = |arguments: &[&str], is_homespun| {
        let log = File::options().create(true).append(true).open(&log).expect("a temporary file");
        let mut command = Command::new("fi_pingpong");
        command.args(["-p", "tcp", "-e", ep_type]).args(arguments).stdout(Stdio::null()).stderr(log);
        command.env_remove("FI_PROVIDER_PATH").env("FI_LOG_LEVEL", "warn").env("FI_PROVIDER", "tcp");
        if is_homespun {
            command.env("FI_PROVIDER_PATH", directory.path()).env("FI_HOMESPUN_AS", "tcp");
        }
        Killed(command.spawn().expect("fi_pingpong"))
    };
    let port = port.to_string();
    let mut server = start(&["-B", &port], homespun_listens);
    let mut client = start(&["-P", &port, "127.0.0.1"], !homespun_listens);
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let text = fs::read_to_string(&log).expect("a temporary file");
        if text.contains(warning) {
            return;
        }
        assert!(Instant::now() < deadline, "no warning in:\n{text}");
        if client.0.try_wait().expect("a child").is_some() {
            client = start(&["-P", &port, "127.0.0.1"], !homespun_listens);
        }
        if server.0.try_wait().expect("a child").is_some() {
            server = start(&["-B", &port], homespun_listens);
        }
        thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn connection_of_libfabrics_tcp_is_refused_with_a_warning() {
    await_warning_of_peer("msg", true, "does not speak homespun's protocol");
}

#[test]
fn message_to_libfabrics_tcp_fails_with_a_warning() {
    await_warning_of_peer("rdm", false, "it may not speak homespun's protocol");
}
