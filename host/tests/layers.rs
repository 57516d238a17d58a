//! A layer over the plugin in the installed libfabric: `ofi_rxm` builds unconnected endpoints from homespun's
//! connected endpoints. `./test` sends messages through it with `fi_pingpong`. Debian's `libfabric-bin` has
//! the library. `LD_LIBRARY_PATH` selects another libfabric.

use std::env;
use std::ffi::CStr;
use std::os::unix::fs::symlink;
use std::sync::OnceLock;

use homespun::Errno;
use homespun_host::Libfabric;

/// Loads the installed libfabric, whose `FI_PROVIDER_PATH` contains only the plugin.
fn load_libfabric() -> Libfabric {
    static LIBFABRIC: OnceLock<Libfabric> = OnceLock::new();
    *LIBFABRIC.get_or_init(|| {
        let directory = tempfile::tempdir().expect("a temporary directory").keep();
        // Cargo builds the plugin before its tests, and puts both into one directory.
        let plugin = env::current_exe().expect("this test's path").with_file_name("libhomespun_fi.so");
        symlink(plugin, directory.join("libhomespun_fi.so")).expect("a temporary directory");
        // SAFETY: the other tests wait for this initialisation, and the test harness does not access the
        // environment meanwhile.
        unsafe { env::set_var("FI_PROVIDER_PATH", &directory) };
        let libfabric = Libfabric::load("libfabric.so.1").expect("libfabric (Debian: libfabric-bin)");
        // libfabric searches for its providers only once. Make it search now, because the directory is
        // removed next.
        libfabric.getinfo(None, None, 0, None).expect("a provider");
        std::fs::remove_dir_all(directory).expect("a temporary directory");
        libfabric
    })
}

/// The names of the matching providers, in order.
fn provider_names(name: Option<&CStr>) -> Vec<String> {
    let mut hints = load_libfabric().empty_hints();
    if let Some(name) = name {
        hints.set_provider_name(name);
    }
    match load_libfabric().getinfo(None, None, 0, Some(&hints)) {
        Ok(infos) => infos
            .iter()
            .map(|info| {
                // SAFETY: every info of an answer has fabric attributes with a provider's name.
                let name = unsafe { CStr::from_ptr((*info.fabric_attr).prov_name) };
                name.to_str().expect("a name").to_owned()
            })
            .collect(),
        Err(errno) => {
            assert_eq!(errno, Errno::ENODATA);
            Vec::new()
        }
    }
}

#[test]
fn getinfo_of_homespun_excludes_layers() {
    let names = provider_names(Some(c"homespun"));
    assert!(!names.is_empty() && names.iter().all(|name| name == "homespun"), "{names:?}");
}

#[test]
fn getinfo_without_homespun_excludes_layers_over_it() {
    for name in [None, Some(c"ofi_rxm")] {
        let names = provider_names(name);
        assert!(!names.is_empty(), "the installed libfabric has other providers");
        assert!(!names.iter().any(|name| name.starts_with("homespun;")), "{names:?}");
    }
}

#[test]
fn getinfo_of_a_layer_over_homespun_returns_only_it() {
    for name in [c"homespun;ofi_rxm", c"ofi_rxm;homespun"] {
        let names = provider_names(Some(name));
        assert!(!names.is_empty() && names.iter().all(|name| name == "homespun;ofi_rxm"), "{names:?}");
    }
}
