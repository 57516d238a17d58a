//! The environment in which libfabric, Open MPI, MPICH and Intel MPI use homespun.

use std::env;
use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::Command;

use homespun::info::PROVIDER_NAME;
use homespun::params;

/// The directories in which libfabric looks for providers that it does not contain, separated by colons.
pub(crate) const FI_PROVIDER_PATH: &str = "FI_PROVIDER_PATH";

/// The only provider that libfabric uses: `fi_getinfo(3)`.
const FI_PROVIDER: &str = "FI_PROVIDER";

/// What sends Open MPI's messages through libfabric to homespun. With each of these named there is nothing that it
/// could fall back to: where homespun cannot be used, `MPI_Init` fails.
const OPEN_MPI: [(&str, &str); 5] = [
    ("OMPI_MCA_pml", "cm"),
    ("OMPI_MCA_mtl", "ofi"),
    ("OMPI_MCA_mtl_ofi_provider_include", PROVIDER_NAME),
    ("OMPI_MCA_btl", "self"),
    // One-sided communication: made of messages; but where the ranks share the memory itself nothing is sent.
    ("OMPI_MCA_osc", "pt2pt,sm"),
];

/// What sends MPICH's messages through libfabric: its other network stays unused, and ranks of one host are treated as
/// if they were on several. Where libfabric has no other provider there is nothing to fall back to here either.
const MPICH: [(&str, &str); 2] = [("MPIR_CVAR_CH4_NETMOD", "ofi"), ("MPIR_CVAR_NOLOCAL", "1")];

/// Sends Intel MPI's messages through libfabric to homespun. Without this provider `MPI_Init` fails.
const INTEL_MPI: [(&str, &str); 4] = [
    ("I_MPI_FABRICS", "ofi"),
    ("I_MPI_OFI_PROVIDER", PROVIDER_NAME),
    // By default barriers and other small collective operations of ranks on one host bypass the fabric.
    ("I_MPI_COLL_INTRANODE", "pt2pt"),
    // Otherwise `vars.sh`, which its `mpirun` reads, replaces `FI_PROVIDER_PATH`.
    ("I_MPI_OFI_LIBRARY_INTERNAL", "0"),
];

/// What would contradict it: lists of what to leave out, and other names of the same lists.
const CONTRADICTIONS: [&str; 3] = [
    "OMPI_MCA_mtl_ofi_provider_exclude",
    "OMPI_MCA_opal_common_ofi_provider_exclude",
    "OMPI_MCA_opal_common_ofi_provider_include",
];

/// Set only where the user has not decided.
const WISHES: [(&str, &str); 2] = [
    // Lets Open MPI's `mpirun` start more ranks than there are cores.
    ("OMPI_MCA_rmaps_base_oversubscribe", "1"),
    // Intel MPI 2021.19 writes to standard output that it knows I_MPI_OFI_LIBRARY_INTERNAL no more.
    ("I_MPI_REMOVED_VAR_WARNING", "0"),
];

/// What is changed in the environment of a command.
#[derive(Debug)]
pub(super) struct Environment {
    set: Vec<(String, OsString)>,
}

impl Environment {
    /// For a plugin in this directory, and for this domain or for all.
    pub(super) fn new(plugin: &Path, domain: Option<&str>) -> Environment {
        Environment::beside(plugin, domain, |name| env::var_os(name).is_some())
    }

    fn beside(plugin: &Path, domain: Option<&str>, is_set: impl Fn(&OsStr) -> bool) -> Environment {
        let mut set = vec![
            (FI_PROVIDER_PATH.to_owned(), plugin.as_os_str().to_owned()),
            (FI_PROVIDER.to_owned(), PROVIDER_NAME.into()),
        ];
        set.extend(domain.map(|domain| (params::DOMAIN.variable(), domain.into())));
        let wishes = WISHES.into_iter().filter(|(name, _)| !is_set(name.as_ref()));
        let mpi = OPEN_MPI.into_iter().chain(MPICH).chain(INTEL_MPI).chain(wishes);
        set.extend(mpi.map(|(name, value)| (name.to_owned(), value.into())));
        Environment { set }
    }

    /// Changes the environment of this command.
    pub(super) fn give_to(self, command: &mut Command) {
        for name in CONTRADICTIONS {
            command.env_remove(name);
        }
        command.envs(self.set);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value<'a>(environment: &'a Environment, name: &str) -> Option<&'a OsStr> {
        environment.set.iter().find(|(set, _)| set == name).map(|(_, value)| value.as_os_str())
    }

    #[test]
    fn a_domain_is_named_only_if_one_is_asked_for() {
        let of = |domain| Environment::beside(Path::new("/here"), domain, |_| false);
        assert_eq!(value(&of(Some("shm")), "FI_HOMESPUN_DOMAIN"), Some("shm".as_ref()));
        assert_eq!(value(&of(None), "FI_HOMESPUN_DOMAIN"), None);
        assert_eq!(value(&of(None), "FI_PROVIDER_PATH"), Some("/here".as_ref()));
    }

    #[test]
    fn variables_of_the_user_replace_wishes_alone() {
        let of = |is_set: bool| Environment::beside(Path::new("/here"), None, move |_| is_set);
        for (name, wish) in WISHES {
            assert_eq!(value(&of(true), name), None);
            assert_eq!(value(&of(false), name), Some(wish.as_ref()));
        }
        assert_eq!(value(&of(true), "OMPI_MCA_pml"), Some("cm".as_ref()));
        assert_eq!(value(&of(true), "MPIR_CVAR_NOLOCAL"), Some("1".as_ref()));
        assert_eq!(value(&of(true), "I_MPI_FABRICS"), Some("ofi".as_ref()));
    }
}
