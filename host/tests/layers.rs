//! A layer over the plugin in the installed libfabric: `ofi_rxm` builds unconnected endpoints from homespun's
//! connected endpoints. `./test` sends messages through it with `fi_pingpong`. Debian's `libfabric-bin` has
//! the library. `LD_LIBRARY_PATH` selects another libfabric.

use std::env;
use std::ffi::CStr;
use std::os::unix::fs::symlink;

use homespun_host::Libfabric;

/// Whether an answer may have a provider of this name.
type IsExpected = fn(&str) -> bool;

#[test]
fn getinfo_answers_with_a_layer_over_homespun_only_if_hints_name_it() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    // Cargo builds the plugin before its tests, and puts both into one directory.
    let plugin = env::current_exe().expect("this test's path").with_file_name("libhomespun_fi.so");
    symlink(plugin, directory.path().join("libhomespun_fi.so")).expect("a temporary directory");
    // SAFETY: this program has no other test, and the test harness does not access the environment meanwhile.
    unsafe { env::set_var("FI_PROVIDER_PATH", directory.path()) };
    let libfabric = Libfabric::load("libfabric.so.1").expect("libfabric (Debian: libfabric-bin)");
    let is_no_layer: IsExpected = |name| !name.starts_with("homespun;");
    let is_layer: IsExpected = |name| name == "homespun;ofi_rxm";
    let cases: [(Option<&CStr>, IsExpected); 5] = [
        (Some(c"homespun"), |name| name == "homespun"),
        (None, is_no_layer),
        (Some(c"ofi_rxm"), is_no_layer),
        (Some(c"homespun;ofi_rxm"), is_layer),
        (Some(c"ofi_rxm;homespun"), is_layer),
    ];
    for (asked, is_expected) in cases {
        let mut hints = libfabric.empty_hints();
        if let Some(name) = asked {
            hints.set_provider_name(name);
        }
        for info in libfabric.getinfo(None, None, 0, Some(&hints)).expect("a provider").iter() {
            // SAFETY: every info of an answer has fabric attributes with a provider's name.
            let found = unsafe { CStr::from_ptr((*info.fabric_attr).prov_name) }.to_str().expect("a name");
            assert!(is_expected(found), "{found} for {asked:?}");
        }
    }
}
