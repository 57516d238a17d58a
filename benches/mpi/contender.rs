//! The contenders: what carries the messages of an MPI program.

use std::process::Command;

use crate::installed::Installed;

/// An implementation of MPI.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mpi {
    Open,
    Mpich,
}

impl Mpi {
    pub(crate) const ALL: [Mpi; 2] = [Mpi::Open, Mpi::Mpich];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Mpi::Open => "Open MPI",
            Mpi::Mpich => "MPICH",
        }
    }

    pub(crate) fn argument(self) -> &'static str {
        match self {
            Mpi::Open => "openmpi",
            Mpi::Mpich => "mpich",
        }
    }
}

/// What carries the messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Contender {
    /// homespun with this domain.
    Homespun(&'static str),
    /// Open MPI without libfabric, by this component (a BTL).
    OpenMpi(&'static str),
    /// libfabric's provider of this name.
    Libfabric(&'static str),
}

impl Contender {
    /// The contenders for an MPI. Open MPI 4.1 cannot use libfabric's `shm`: it asks for peers on other
    /// hosts, too. Over `sockets` one step takes 10 ms.
    pub(crate) fn all(mpi: Mpi) -> Vec<Contender> {
        use Contender::{Homespun, Libfabric, OpenMpi};
        let homespun = [Homespun("shm"), Homespun("auto"), Homespun("tcp")];
        let others = match mpi {
            Mpi::Open => vec![OpenMpi("vader"), OpenMpi("tcp"), Libfabric("tcp"), Libfabric("tcp;ofi_rxm")],
            Mpi::Mpich => vec![Libfabric("shm"), Libfabric("tcp")],
        };
        homespun.into_iter().chain(others).collect()
    }

    pub(crate) fn name(self) -> String {
        match self {
            Contender::Homespun(domain) => format!("homespun {domain}"),
            Contender::OpenMpi(component) => format!("Open MPI {component}"),
            Contender::Libfabric(provider) => format!("libfabric {provider}"),
        }
    }

    fn is_over_tcp(self) -> bool {
        match self {
            Contender::Homespun(name) | Contender::OpenMpi(name) | Contender::Libfabric(name) => {
                name.starts_with("tcp")
            }
        }
    }

    /// Whether homespun, as this contender, is compared with another: it is over the same medium.
    pub(crate) fn is_compared_with(self, other: Contender) -> bool {
        matches!(self, Contender::Homespun(_))
            && !matches!(other, Contender::Homespun(_))
            && self.is_over_tcp() == other.is_over_tcp()
    }

    /// The command that starts `ranks` ranks of what is appended to it.
    pub(crate) fn launcher(self, mpi: Mpi, installed: &Installed, ranks: usize) -> Command {
        let launcher = installed.launcher(mpi);
        let mut command = match self {
            Contender::Homespun(domain) => {
                let mut command = Command::new(installed.homespun());
                command.args(["run", "--domain", domain]).arg(launcher);
                command
            }
            Contender::OpenMpi(_) | Contender::Libfabric(_) => Command::new(launcher),
        };
        let ranks = ranks.to_string();
        match mpi {
            // As root, Open MPI starts nothing without the variables.
            Mpi::Open => command
                .args(["--oversubscribe", "-np", &ranks])
                .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
                .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"),
            Mpi::Mpich => command.args(["-launcher", "fork", "-n", &ranks]),
        };
        match (self, mpi) {
            (Contender::Homespun(_), _) => {}
            (Contender::OpenMpi(component), _) => {
                command.args(["--mca", "pml", "ob1", "--mca", "btl"]).arg(format!("self,{component}"));
            }
            (Contender::Libfabric(provider), Mpi::Open) => {
                command.args(["--mca", "pml", "cm", "--mca", "mtl", "ofi", "--mca", "btl", "self"]);
                command.args(["--mca", "mtl_ofi_provider_include", provider]);
            }
            (Contender::Libfabric(provider), Mpi::Mpich) => {
                command.env("FI_PROVIDER", provider);
                command.envs([("MPIR_CVAR_CH4_NETMOD", "ofi"), ("MPIR_CVAR_NOLOCAL", "1")]);
            }
        }
        if let Some(library) = installed.libfabric() {
            command.env("LD_LIBRARY_PATH", library);
            if mpi == Mpi::Mpich {
                // The MPICH of the Python package index finds its own libfabric first.
                command.env("LD_PRELOAD", library.join("libfabric.so.1"));
            }
        }
        command
    }
}
