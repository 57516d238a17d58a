//! The environment in which libfabric, Open MPI, MPICH and Intel MPI use homespun.

use std::env;
use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::Command;

use homespun::info::PROVIDER_NAME;
use homespun::params::{self, OfferedName};

/// Lists the directories, separated by colons, in which libfabric searches for external providers.
pub(crate) const FI_PROVIDER_PATH: &str = "FI_PROVIDER_PATH";

/// Names the only provider that libfabric may use (`fi_getinfo(3)`).
const FI_PROVIDER: &str = "FI_PROVIDER";

/// Sends Open MPI's messages through libfabric to homespun. The variables name each component, so there
/// is no fallback: if homespun cannot be used, `MPI_Init` fails. It also fails if homespun is offered
/// under another name.
const OPEN_MPI: [(&str, &str); 5] = [
    ("OMPI_MCA_pml", "cm"),
    ("OMPI_MCA_mtl", "ofi"),
    ("OMPI_MCA_mtl_ofi_provider_include", PROVIDER_NAME),
    ("OMPI_MCA_btl", "self"),
    // One-sided communication uses messages. If the ranks share the memory, it uses loads and stores.
    ("OMPI_MCA_osc", "pt2pt,sm"),
];

/// Sends MPICH's messages through libfabric. MPICH then does not use its UCX network, and treats ranks
/// on one host like ranks on several hosts. There is no fallback, because `FI_PROVIDER` leaves libfabric
/// no other provider.
const MPICH: [(&str, &str); 2] = [("MPIR_CVAR_CH4_NETMOD", "ofi"), ("MPIR_CVAR_NOLOCAL", "1")];

/// Names the provider for Intel MPI. If that provider cannot be used, `MPI_Init` fails.
const I_MPI_OFI_PROVIDER: &str = "I_MPI_OFI_PROVIDER";

/// Sends Intel MPI's messages through libfabric.
const INTEL_MPI: [(&str, &str); 3] = [
    ("I_MPI_FABRICS", "ofi"),
    // By default small collective operations between ranks on one host, such as barriers, bypass
    // libfabric.
    ("I_MPI_COLL_INTRANODE", "pt2pt"),
    // Intel MPI's `mpirun` reads `vars.sh`. Without this variable, `vars.sh` replaces
    // `FI_PROVIDER_PATH`.
    ("I_MPI_OFI_LIBRARY_INTERNAL", "0"),
];

/// Variables that conflict with [`OPEN_MPI`], and so are removed: lists of excluded providers, and
/// another name for the list of included providers.
const CONFLICTING: [&str; 3] = [
    "OMPI_MCA_mtl_ofi_provider_exclude",
    "OMPI_MCA_opal_common_ofi_provider_exclude",
    "OMPI_MCA_opal_common_ofi_provider_include",
];

/// Variables that are set only if the user has not set them.
const DEFAULTS: [(&str, &str); 2] = [
    // Lets Open MPI's `mpirun` start more ranks than there are cores.
    ("OMPI_MCA_rmaps_base_oversubscribe", "1"),
    // Without this variable Intel MPI 2021.19 warns on standard output that I_MPI_OFI_LIBRARY_INTERNAL
    // was removed.
    ("I_MPI_REMOVED_VAR_WARNING", "0"),
];

/// The variables to set in the environment of a command.
#[derive(Debug)]
pub(super) struct Environment {
    set: Vec<(String, OsString)>,
}

impl Environment {
    /// The environment for the plugin in directory `plugin`, offered under `name`. Without `domain`, the
    /// domain is that of the user's `FI_HOMESPUN_DOMAIN`, or else `auto`.
    pub(super) fn new(plugin: &Path, domain: Option<&str>, name: OfferedName) -> Environment {
        Environment::with_lookup(plugin, domain, name, |variable| env::var_os(variable).is_some())
    }

    fn with_lookup(
        plugin: &Path,
        domain: Option<&str>,
        name: OfferedName,
        is_set: impl Fn(&OsStr) -> bool,
    ) -> Environment {
        let mut set = vec![
            (FI_PROVIDER_PATH.to_owned(), plugin.as_os_str().to_owned()),
            (FI_PROVIDER.to_owned(), name.as_str().into()),
            (I_MPI_OFI_PROVIDER.to_owned(), name.as_str().into()),
        ];
        let variable = params::DOMAIN.env_variable();
        // Open MPI and Intel MPI spread ranks over domains with equal attributes, as over several
        // network adapters. So offer the command a single domain, even if none is requested.
        let default = (!is_set(variable.as_ref())).then_some("auto");
        set.extend(domain.or(default).map(|domain| (variable, domain.into())));
        let is_named = name != OfferedName::Homespun || is_set(params::AS.env_variable().as_ref());
        set.extend(is_named.then(|| (params::AS.env_variable(), name.as_str().into())));
        let defaults = DEFAULTS.into_iter().filter(|(name, _)| !is_set(name.as_ref()));
        let mpi = OPEN_MPI.into_iter().chain(MPICH).chain(INTEL_MPI).chain(defaults);
        set.extend(mpi.map(|(name, value)| (name.to_owned(), value.into())));
        Environment { set }
    }

    /// Sets the variables for this command, and removes conflicting ones.
    pub(super) fn set_environment(self, command: &mut Command) {
        for name in CONFLICTING {
            command.env_remove(name);
        }
        command.envs(self.set);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find_value<'a>(environment: &'a Environment, name: &str) -> Option<&'a OsStr> {
        environment.set.iter().find(|(set, _)| set == name).map(|(_, value)| value.as_os_str())
    }

    #[test]
    fn requested_domain_replaces_the_users_and_the_default_is_auto() {
        let name = OfferedName::Homespun;
        let of = |domain, is_set| Environment::with_lookup(Path::new("/here"), domain, name, move |_| is_set);
        for (domain, is_set, expected) in [
            (Some("shm"), false, Some("shm")),
            (Some("shm"), true, Some("shm")),
            (None, true, None),
            (None, false, Some("auto")),
        ] {
            let found = find_value(&of(domain, is_set), "FI_HOMESPUN_DOMAIN").map(OsStr::to_owned);
            assert_eq!(found, expected.map(OsString::from), "{domain:?}, set before: {is_set}");
        }
        assert_eq!(find_value(&of(None, false), "FI_PROVIDER_PATH"), Some("/here".as_ref()));
    }

    #[test]
    fn offered_name_is_set_for_libfabric_and_intel_mpi() {
        let of = |name| Environment::with_lookup(Path::new("/here"), None, name, |_| false);
        for (name, variable) in [(OfferedName::Sockets, Some("sockets")), (OfferedName::Homespun, None)] {
            assert_eq!(find_value(&of(name), "FI_HOMESPUN_AS"), variable.map(OsStr::new));
            assert_eq!(find_value(&of(name), "FI_PROVIDER"), Some(name.as_str().as_ref()));
            assert_eq!(find_value(&of(name), "I_MPI_OFI_PROVIDER"), Some(name.as_str().as_ref()));
        }
    }

    #[test]
    fn user_variables_replace_only_the_defaults() {
        let of = |is_set: bool| {
            Environment::with_lookup(Path::new("/here"), None, OfferedName::Homespun, move |_| is_set)
        };
        for (name, default) in DEFAULTS {
            assert_eq!(find_value(&of(true), name), None);
            assert_eq!(find_value(&of(false), name), Some(default.as_ref()));
        }
        assert_eq!(find_value(&of(true), "OMPI_MCA_pml"), Some("cm".as_ref()));
        assert_eq!(find_value(&of(true), "MPIR_CVAR_NOLOCAL"), Some("1".as_ref()));
        assert_eq!(find_value(&of(true), "I_MPI_FABRICS"), Some("ofi".as_ref()));
    }
}
