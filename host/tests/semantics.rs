//! The tests of what applications may rely on (`suite/src/semantics/`), over the plugin: each party loads the
//! installed libfabric, and opens its endpoint as a C application does.

use std::env;
use std::os::unix::fs::symlink;
use std::process::ExitCode;

use homespun_suite::{
    Provider, TestedNetwork, TransportKind, Turns, run_tests_over, serve_party_if_started_by_test,
};

/// What the plugin does not offer, or the kit does not ask for behind the C interface.
const MAY_LACK: [&str; 5] = [
    "regions of files and of shareable memory",
    "flushes: the kit does not ask for it",
    // Setups that leave these out.
    "Caps(ATOMIC)",
    "Caps(RMA)",
    "Caps(TAGGED)",
];

fn main() -> ExitCode {
    if serve_party_if_started_by_test() {
        return ExitCode::SUCCESS;
    }
    let directory = tempfile::tempdir().expect("a temporary directory");
    // Cargo builds the plugin before its tests, and puts both into one directory.
    let plugin = env::current_exe().expect("this test's path").with_file_name("libhomespun_fi.so");
    symlink(plugin, directory.path().join("libhomespun_fi.so")).expect("a temporary directory");
    // SAFETY: this program has no other thread yet. The parties inherit the environment.
    unsafe { env::set_var("FI_PROVIDER_PATH", directory.path()) };
    // The C interface is the same over every transport, and each process takes long to load libfabric.
    let plugin = TransportKind::Provider(Provider {
        libfabric: "libfabric.so.1".to_owned(),
        name: "homespun".to_owned(),
        domain: Some("shm".to_owned()),
    });
    let networks = TestedNetwork::driven_by("plugin_shm", &plugin, &[Turns::Alternate, Turns::Processes]);
    let networks = networks.into_iter().map(|network| TestedNetwork { may_lack: &MAY_LACK, ..network });
    run_tests_over(&networks.collect::<Vec<_>>())
}
