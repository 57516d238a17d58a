//! Two network namespaces of this host, used as two hosts. Each has its own host name. A pair of virtual
//! interfaces connects them.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use homespun_suite::prerequisites::Prerequisite;

use crate::mpi::{Mpi, search_path};

/// The host names, and the addresses of the hosts' interfaces.
const NAMES: [&str; 2] = ["left", "right"];
pub(crate) const ADDRESSES: [&str; 2] = ["10.7.0.1", "10.7.0.2"];

/// The interface of each host.
const INTERFACE: &str = "eth0";

/// The time limit for an interface to come up, and the interval between the checks.
const UP_MAX: Duration = Duration::from_secs(60);
const INTERVAL: Duration = Duration::from_millis(5);

/// The options of unshare(1) for making network namespaces. The superuser needs no options. Other users
/// make a user namespace as well.
const RIGHTS: [&[&str]; 2] = [&[], &["--user", "--map-root-user"]];

/// How unshare(1)'s messages begin if the system refuses the namespaces. Any other message means a
/// mistake in the call.
const UNSHARE_REFUSALS: [&str; 3] =
    ["unshare: unshare failed: ", "unshare: cannot open /proc/self/", "unshare: write failed /proc/self/"];

/// The message of ip(8) if the system refuses an interface.
const IP_REFUSAL: &str = "Operation not permitted";

/// A shell script that prepares a host. Then it writes an empty line, and waits for the end of standard
/// input.
const HOLD: &str = "ip link set lo up && hostname \"$0\" && echo && exec cat";

/// Two hosts. They exist as long as this value, or any process on them, exists.
#[derive(Debug)]
pub(crate) struct Hosts {
    holders: [Holder; 2],
    is_in_user_namespace: bool,
}

impl Hosts {
    /// Makes two hosts. If this process may not make them, reports the test as skipped and returns
    /// `None`. Any other failure fails the test.
    pub(crate) fn make_or_skip() -> Option<Hosts> {
        Prerequisite::IP.report_skipped_if_none(search_path("ip"), "it is not in PATH")?;
        let mut refusals = Vec::new();
        for rights in RIGHTS {
            match Hosts::make(rights) {
                Ok(hosts) => return Some(hosts),
                Err(refusal) => refusals.push(refusal),
            }
        }
        Prerequisite::NETWORK_NAMESPACES.report_skipped(refusals.join("; "));
        None
    }

    /// Makes two hosts. If the system refuses the namespaces or the interfaces, returns the system's
    /// message.
    fn make(rights: &[&str]) -> Result<Hosts, String> {
        let is_in_user_namespace = !rights.is_empty();
        let mut left = Command::new("unshare");
        left.args(rights).args(["--net", "--uts", "sh", "-c", HOLD, NAMES[0]]);
        let left = Holder::start(&mut left)?;
        // The superuser of the user namespace may make a second network namespace there, and enter both.
        let mut right = command_beside(&left, is_in_user_namespace);
        right.args(["unshare", "--net", "--uts", "sh", "-c", HOLD, NAMES[1]]);
        let right = Holder::start(&mut right)?;
        let peer = right.child.id().to_string();
        let hosts = Hosts { holders: [left, right], is_in_user_namespace };
        let pair = ["link", "add", INTERFACE, "type", "veth", "peer", "name", INTERFACE, "netns", &peer];
        match hosts.try_ip(0, &pair) {
            Err(failure) if failure.contains(IP_REFUSAL) => return Err(failure),
            made => made.expect("ip(8) makes a pair of interfaces"),
        };
        for (host, address) in ADDRESSES.iter().enumerate() {
            hosts.ip(host, &["address", "add", &format!("{address}/24"), "dev", INTERFACE]);
            hosts.ip(host, &["link", "set", INTERFACE, "up"]);
        }
        for host in 0..ADDRESSES.len() {
            hosts.wait_until_up(host);
        }
        Ok(hosts)
    }

    /// Waits until the interface is up. This takes up to a second. Before that, endpoints use the
    /// loopback interface.
    fn wait_until_up(&self, host: usize) {
        let deadline = Instant::now() + UP_MAX;
        while !self.ip(host, &["-oneline", "link", "show", INTERFACE]).contains(" state UP ") {
            assert!(Instant::now() < deadline, "the interface of {} is not up", NAMES[host]);
            thread::sleep(INTERVAL);
        }
    }

    /// Executes ip(8) on a host, and returns what it prints.
    fn ip(&self, host: usize, arguments: &[&str]) -> String {
        self.try_ip(host, arguments).expect("ip(8) configures the interface")
    }

    /// As [`ip`](Self::ip), but returns the message of a failure.
    fn try_ip(&self, host: usize, arguments: &[&str]) -> Result<String, String> {
        let mut command = command_beside(&self.holders[host], self.is_in_user_namespace);
        let output = command.arg("ip").args(arguments).output().expect("nsenter(1) starts");
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        Err(format!("ip {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr).trim()))
    }

    /// A command that executes its arguments on the first host.
    pub(crate) fn command_on_first(&self) -> Command {
        let mut command = command_beside(&self.holders[0], self.is_in_user_namespace);
        let pids = ADDRESSES.iter().zip(&self.holders).map(|(address, holder)| {
            format!("{address}={}", holder.child.id()) // as_rsh.sh reads this
        });
        command.env("HOMESPUN_TEST_HOSTS", pids.collect::<Vec<_>>().join(" "));
        command
    }

    /// The options with which `mpirun` places this many ranks on each host. `mpirun` runs on the first
    /// host.
    pub(crate) fn options(mpi: Mpi, ranks: usize) -> Vec<String> {
        let rsh = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mpi/as_rsh.sh");
        let rsh = rsh.to_str().expect("cargo's paths are text");
        let places = ADDRESSES.map(|address| format!("{address}:{ranks}")).join(",");
        let options: &[&str] = match mpi {
            Mpi::Open => &[
                ["--mca", "plm_rsh_agent", rsh, "--host", &places].as_slice(),
                // Open MPI passes a variable of libfabric to other hosts only if `-x` names it.
                &["-x", "FI_PROVIDER_PATH", "-x", "FI_PROVIDER", "-x", "FI_HOMESPUN_DOMAIN"],
                &["-x", "FI_LOG_LEVEL", "-x", "FI_LOG_PROV"],
            ]
            .concat(),
            Mpi::Mpich => &["-launcher", "rsh", "-launcher-exec", rsh, "-hosts", &places],
            // With `-iface`, Intel MPI tells other hosts an address instead of the host's name.
            Mpi::Intel => {
                &["-launcher", "rsh", "-launcher-exec", rsh, "-hosts", &places, "-iface", INTERFACE]
            }
        };
        options.iter().map(|&option| option.to_owned()).collect()
    }
}

/// A process in the namespaces of a host, which keeps them alive.
#[derive(Debug)]
struct Holder {
    child: Child,
}

impl Holder {
    /// Starts a holder, and waits until it has prepared its host. If the system refuses the namespaces,
    /// returns unshare(1)'s message.
    fn start(command: &mut Command) -> Result<Holder, String> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).env("LC_ALL", "C");
        let child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let mut holder = Holder { child };
        let mut line = String::new();
        let stdout = holder.child.stdout.as_mut().expect("a pipe");
        BufReader::new(stdout).read_line(&mut line).expect("a pipe can be read");
        if !line.is_empty() {
            return Ok(holder);
        }
        let mut refusal = String::new();
        let stderr = holder.child.stderr.as_mut().expect("a pipe");
        stderr.read_to_string(&mut refusal).expect("a pipe can be read");
        let is_refusal = UNSHARE_REFUSALS.iter().any(|beginning| refusal.starts_with(beginning));
        assert!(is_refusal, "{command:?} prepares no host: {refusal}");
        Err(refusal.trim().to_owned())
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        // This call fails for a holder that has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A command that executes its arguments in the namespaces of a holder.
fn command_beside(holder: &Holder, is_in_user_namespace: bool) -> Command {
    let mut command = Command::new("nsenter");
    command.args(["--net", "--uts", "--target", &holder.child.id().to_string()]);
    if is_in_user_namespace {
        command.args(["--user", "--preserve-credentials"]);
    }
    command
}
