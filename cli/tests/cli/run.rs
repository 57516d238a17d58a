//! `homespun run`.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;

use crate::command::{Outcome, run, run_with_environment, start};

/// The value of a variable in the output of `env`.
fn find_printed_variable<'a>(outcome: &'a Outcome, name: &str) -> Option<&'a str> {
    outcome.stdout.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='))
}

/// The lines on standard error. Leaves out the warning that the host has no libfabric.
fn filter_stderr_lines(outcome: &Outcome) -> Vec<&str> {
    outcome.stderr.lines().filter(|line| !line.contains("the system has no libfabric.so.1")).collect()
}

#[test]
fn command_gets_the_environment_for_libfabric_and_mpi() {
    let outcome = run(&["run", "--domain", "shm", "--", "env"]);
    assert!(outcome.status.success(), "{outcome:?}");
    assert!(filter_stderr_lines(&outcome).is_empty(), "{outcome:?}");
    let path = Path::new(find_printed_variable(&outcome, "FI_PROVIDER_PATH").expect("a directory"));
    assert!(path.is_absolute() && path.join("libhomespun_fi.so").is_file(), "{outcome:?}");
    for (name, value) in [
        ("FI_PROVIDER", "homespun"),
        ("FI_HOMESPUN_DOMAIN", "shm"),
        ("OMPI_MCA_pml", "cm"),
        ("OMPI_MCA_mtl", "ofi"),
        ("OMPI_MCA_mtl_ofi_provider_include", "homespun"),
        ("OMPI_MCA_btl", "self"),
        ("OMPI_MCA_osc", "pt2pt,sm"),
        ("OMPI_MCA_rmaps_base_oversubscribe", "1"),
        ("MPIR_CVAR_CH4_NETMOD", "ofi"),
        ("MPIR_CVAR_NOLOCAL", "1"),
        ("I_MPI_FABRICS", "ofi"),
        ("I_MPI_OFI_PROVIDER", "homespun"),
        ("I_MPI_COLL_INTRANODE", "pt2pt"),
        ("I_MPI_OFI_LIBRARY_INTERNAL", "0"),
        ("I_MPI_REMOVED_VAR_WARNING", "0"),
    ] {
        assert_eq!(find_printed_variable(&outcome, name), Some(value), "{name}: {outcome:?}");
    }
}

#[test]
fn offered_name_may_have_any_case_and_goes_to_libfabric_and_mpi() {
    let outcomes = [
        run(&["run", "--as", "TCP", "--", "env"]),
        run_with_environment(&[("FI_HOMESPUN_AS", "tcp")], &["run", "--", "env"]),
    ];
    for outcome in outcomes {
        for variable in ["FI_HOMESPUN_AS", "FI_PROVIDER", "I_MPI_OFI_PROVIDER"] {
            assert_eq!(find_printed_variable(&outcome, variable), Some("tcp"), "{variable}: {outcome:?}");
        }
    }
    let outcome =
        run_with_environment(&[("FI_HOMESPUN_AS", "tcp")], &["run", "--as", "homespun", "--", "env"]);
    assert_eq!(find_printed_variable(&outcome, "FI_PROVIDER"), Some("homespun"), "{outcome:?}");
    assert_eq!(find_printed_variable(&outcome, "FI_HOMESPUN_AS"), Some("homespun"), "{outcome:?}");
}

#[test]
fn name_that_homespun_cannot_take_is_refused_with_the_reason() {
    for (name, reason) in [
        ("shm", "homespun, tcp or sockets; the addresses of shm are texts"),
        ("verbs", "homespun, tcp or sockets"),
    ] {
        let outcome = run(&["run", "--as", name, "--", "env"]);
        assert_eq!(outcome.status.code(), Some(2), "{outcome:?}");
        assert!(outcome.stderr.contains(reason) && outcome.stdout.is_empty(), "{outcome:?}");
    }
}

#[test]
fn user_variables_are_kept_unless_they_conflict() {
    let has = [
        ("FI_PROVIDER", "tcp"),
        ("FI_HOMESPUN_DOMAIN", "tcp"),
        ("FI_HOMESPUN_CLOSE_LINGER_MS", "7"),
        ("OMPI_MCA_pml", "ob1"),
        ("OMPI_MCA_mtl_ofi_provider_exclude", "homespun"),
        ("OMPI_MCA_rmaps_base_oversubscribe", "0"),
        ("I_MPI_FABRICS", "shm:ofi"),
        ("I_MPI_OFI_LIBRARY", "/of/the/user/libfabric.so"),
        ("I_MPI_REMOVED_VAR_WARNING", "1"),
    ];
    let outcome = run_with_environment(&has, &["run", "--", "env"]);
    for (name, value) in [
        ("FI_PROVIDER", Some("homespun")),
        ("FI_HOMESPUN_DOMAIN", Some("tcp")),
        ("FI_HOMESPUN_CLOSE_LINGER_MS", Some("7")),
        ("OMPI_MCA_pml", Some("cm")),
        ("OMPI_MCA_mtl_ofi_provider_exclude", None),
        ("OMPI_MCA_rmaps_base_oversubscribe", Some("0")),
        ("I_MPI_FABRICS", Some("ofi")),
        ("I_MPI_OFI_LIBRARY", Some("/of/the/user/libfabric.so")),
        ("I_MPI_REMOVED_VAR_WARNING", Some("1")),
    ] {
        assert_eq!(find_printed_variable(&outcome, name), value, "{name}: {outcome:?}");
    }
    let outcome = run_with_environment(&has, &["run", "--domain", "shm", "--", "env"]);
    assert_eq!(find_printed_variable(&outcome, "FI_HOMESPUN_DOMAIN"), Some("shm"), "{outcome:?}");
}

#[test]
fn command_is_executed_in_place_of_homespun() {
    let mut running = start(&["run", "--", "sh", "-c", "echo $$; exit 42"]);
    let pid = running.await_line_rest("");
    assert_eq!(pid, running.child.id().to_string());
    let outcome = running.wait_with_output();
    assert_eq!(outcome.status.code(), Some(42), "{outcome:?}");
    let outcome = run(&["run", "--", "sh", "-c", "kill -TERM $$"]);
    assert_eq!(outcome.status.signal(), Some(libc::SIGTERM), "{outcome:?}");
    // SIGPIPE ends a program that writes to a closed pipe. homespun ignores the signal, like all Rust
    // programs, but the command must not ignore it.
    let outcome = run(&["run", "--", "sh", "-c", "kill -PIPE $$"]);
    assert_eq!(outcome.status.signal(), Some(libc::SIGPIPE), "{outcome:?}");
}

#[test]
fn arguments_behind_the_command_go_to_it() {
    for arguments in [
        ["run", "--", "printf", "%s,", "--domain", "--", "-np", "a b", "-v"].as_slice(),
        &["run", "--domain", "SHM", "printf", "%s,", "--domain", "--", "-np", "a b", "-v"],
    ] {
        assert_eq!(run(arguments).stdout, "--domain,--,-np,a b,-v,", "{arguments:?}");
    }
    let outcome = run(&["run", "-d", "SHM", "env"]);
    assert_eq!(find_printed_variable(&outcome, "FI_HOMESPUN_DOMAIN"), Some("shm"), "{outcome:?}");
    for arguments in
        [["run"].as_slice(), &["run", "--"], &["run", "--no-such-option", "env"], &["run", "-np", "2", "env"]]
    {
        let outcome = run(arguments);
        assert_eq!(outcome.status.code(), Some(2), "{arguments:?}: {outcome:?}");
        assert_eq!(outcome.stdout, "", "{arguments:?}");
    }
}

#[test]
fn bad_parameters_are_warned_of_before_the_command() {
    let variables = [("FI_HOMESPUN_TX_SIZE", "many"), ("FI_HOMESPUN_TX_SIZES", "7")];
    let outcome = run_with_environment(&variables, &["run", "echo", "done"]);
    assert_eq!(outcome.stdout, "done\n", "{outcome:?}");
    assert_eq!(
        filter_stderr_lines(&outcome),
        [
            "homespun: warning: FI_HOMESPUN_TX_SIZE=many is ignored: it should be a number",
            "homespun: warning: FI_HOMESPUN_TX_SIZES is ignored: homespun has no such parameter",
        ]
    );
}

#[test]
fn domain_variable_that_names_no_domain_is_refused() {
    let variables = [("FI_HOMESPUN_DOMAIN", "token-ring")];
    let outcome = run_with_environment(&variables, &["run", "env"]);
    assert_eq!(outcome.status.code(), Some(1), "{outcome:?}");
    assert!(outcome.stderr.contains("there is no domain token-ring, only auto, shm, tcp"), "{outcome:?}");
    let outcome = run_with_environment(&variables, &["run", "--domain", "tcp", "env"]);
    assert_eq!(find_printed_variable(&outcome, "FI_HOMESPUN_DOMAIN"), Some("tcp"), "{outcome:?}");
}

/// A launcher of an MPI. With `--version` it prints this text, otherwise `started`.
struct Launcher {
    /// The directory of the launcher.
    _directory: tempfile::TempDir,
    path: String,
}

impl Launcher {
    fn new(version: &str) -> Launcher {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("mpirun");
        let script =
            format!("#!/bin/sh\ncase \"$1\" in --version) echo '{version}';; *) echo started;; esac\n");
        fs::write(&path, script).expect("a temporary file");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("a temporary file");
        Launcher { _directory: directory, path: path.to_str().expect("a name in UTF-8").to_owned() }
    }
}

#[test]
fn launcher_of_open_mpi_is_refused_under_another_name() {
    for (version, refused) in [("mpirun (Open MPI) 4.1.4", true), ("HYDRA build details:", false)] {
        let launcher = Launcher::new(version);
        let outcome = run(&["run", "--as", "tcp", "--", &launcher.path]);
        assert_eq!(outcome.status.code(), Some(if refused { 2 } else { 0 }), "{outcome:?}");
        let complaint = "belongs to Open MPI, which leaves out every provider named tcp";
        assert_eq!(outcome.stderr.contains(complaint), refused, "{outcome:?}");
        assert!(run(&["run", "--", &launcher.path]).status.success(), "under its own name");
    }
}

#[test]
fn root_is_told_the_variables_that_open_mpi_needs() {
    let is_root = rustix::process::geteuid().is_root();
    let [none, both] = [["0", ""], ["1", "1"]].map(|[first, second]| {
        [("OMPI_ALLOW_RUN_AS_ROOT", first), ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", second)]
    });
    for (mpi, consent, warns) in
        [("Open MPI", none, is_root), ("Open MPI", both, false), ("Another MPI", none, false)]
    {
        let launcher = Launcher::new(&format!("mpirun ({mpi}) 4.1"));
        let outcome = run_with_environment(&consent, &["run", &launcher.path, "-np", "2", "app"]);
        assert_eq!(outcome.stdout, "started\n", "{outcome:?}");
        let warning = format!(
            "homespun: as root, {} of Open MPI starts nothing unless the environment has \
             OMPI_ALLOW_RUN_AS_ROOT=1 and OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1",
            launcher.path
        );
        let expected: &[&str] = if warns { &[&warning] } else { &[] };
        assert_eq!(filter_stderr_lines(&outcome), expected);
    }
}

#[test]
fn command_that_cannot_be_run_is_reported_with_its_own_exit_status() {
    let nowhere = tempfile::tempdir().expect("a temporary directory");
    let path = [("PATH", nowhere.path().to_str().expect("a name in UTF-8"))];
    let open_mpi = "Open MPI (openmpi-bin in Debian and Ubuntu, openmpi in Fedora)";
    for (launcher, mpi) in [
        ("mpirun", open_mpi),
        ("mpiexec", open_mpi),
        ("orterun", open_mpi),
        ("mpiexec.hydra", "MPICH or Intel MPI (mpich and impi-rt in the Python package index)"),
    ] {
        let outcome = run_with_environment(&path, &["run", "--", launcher, "-np", "2", "app"]);
        assert_eq!(outcome.status.code(), Some(127), "{outcome:?}");
        let complaint = format!("homespun: there is no command {launcher}: install {mpi}");
        assert_eq!(filter_stderr_lines(&outcome), [complaint]);
    }
    let outcome = run(&["run", "--", "no-such-command"]);
    assert_eq!(outcome.status.code(), Some(127), "{outcome:?}");
    assert_eq!(filter_stderr_lines(&outcome), ["homespun: there is no command no-such-command"]);

    let file = nowhere.path().join("data");
    File::create(&file).expect("a temporary file");
    let outcome = run(&["run", "--", file.to_str().expect("a name in UTF-8")]);
    assert_eq!(outcome.status.code(), Some(126), "{outcome:?}");
    assert_eq!(
        filter_stderr_lines(&outcome),
        [format!("homespun: cannot run {}: Permission denied (os error 13)", file.display())]
    );
}

#[test]
fn missing_plugin_is_reported_with_its_directory() {
    let nowhere = tempfile::tempdir().expect("a temporary directory");
    let directory = nowhere.path().to_str().expect("a name in UTF-8");
    let outcome = run(&["run", "--provider-dir", directory, "--", "env"]);
    assert_eq!(outcome.status.code(), Some(1), "{outcome:?}");
    assert_eq!(outcome.stdout, "");
    let complaint = format!(
        "homespun: there is no libhomespun_fi.so in {directory}: build it with `cargo build --release -p \
         homespun-libfabric` (without --release if this program was built without it), or name its directory \
         with --provider-dir\n"
    );
    assert_eq!(outcome.stderr, complaint);

    File::create(nowhere.path().join("libhomespun_fi.so")).expect("a temporary file");
    let outcome = run(&["run", "--provider-dir", directory, "--", "env"]);
    assert_eq!(find_printed_variable(&outcome, "FI_PROVIDER_PATH"), Some(directory), "{outcome:?}");
}

#[test]
fn missing_libfabric_is_a_warning_and_the_command_runs() {
    // The loader searches LD_LIBRARY_PATH first. It fails if the file there is not a library.
    let directory = tempfile::tempdir().expect("a temporary directory");
    fs::write(directory.path().join("libfabric.so.1"), "").expect("a temporary file");
    let variables = [("LD_LIBRARY_PATH", directory.path().to_str().expect("a name in UTF-8"))];
    let outcome = run_with_environment(&variables, &["run", "--", "echo", "done"]);
    assert!(outcome.status.success(), "{outcome:?}");
    assert_eq!(outcome.stdout, "done\n");
    assert!(outcome.stderr.starts_with("homespun: the system has no libfabric.so.1, "), "{outcome:?}");
    assert!(outcome.stderr.contains("libfabric1 in Debian"), "{outcome:?}");
}

#[test]
fn command_with_rpma_gets_the_library_alone() {
    let outcome = run(&["run", "--rpma", "--domain", "tcp", "--", "env"]);
    assert!(outcome.status.success() && outcome.stderr.is_empty(), "{outcome:?}");
    let preloaded = find_printed_variable(&outcome, "LD_PRELOAD").expect("a library");
    let library = Path::new(preloaded.split(':').next().expect("a first path"));
    assert!(library.is_absolute() && library.ends_with("librpma.so") && library.is_file(), "{outcome:?}");
    assert_eq!(find_printed_variable(&outcome, "FI_HOMESPUN_DOMAIN"), Some("tcp"), "{outcome:?}");
    assert_eq!(find_printed_variable(&outcome, "FI_PROVIDER"), None, "{outcome:?}");
}

#[test]
fn rpma_excludes_the_options_of_the_plugin() {
    let outcome = run(&["run", "--rpma", "--as", "tcp", "--", "env"]);
    assert_eq!(outcome.status.code(), Some(2), "{outcome:?}");
}
