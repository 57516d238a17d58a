//! What the benchmark needs: MPIs, NetPIPE, and homespun itself.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::contender::Mpi;
use crate::{Case, Program, Result};

pub(crate) struct Installed {
    /// The command `homespun`, with the plugin beside it.
    homespun: PathBuf,
    mpich: Option<PathBuf>,
    libfabric: Option<PathBuf>,
    /// Where programs are compiled.
    directory: PathBuf,
}

impl Installed {
    /// Finds everything.
    ///
    /// # Errors
    ///
    /// The first thing that is missing, and the package that has it.
    pub(crate) fn find() -> Result<Installed> {
        // This program is in target/release/deps.
        let program = env::current_exe()?;
        let build = program.parent().and_then(Path::parent).ok_or("no directory of cargo")?;
        for name in ["homespun", "libhomespun_fi.so"] {
            if !build.join(name).exists() {
                return Err(format!("{name} is not in {}: cargo build --release", build.display()).into());
            }
        }
        for (command, package) in
            [("mpicc", "libopenmpi-dev"), ("mpirun", "openmpi-bin"), ("NPopenmpi", "netpipe-openmpi")]
        {
            if find_on_path(command).is_none() {
                return Err(format!("there is no {command}: install {package} (its name in Debian)").into());
            }
        }
        let version = Command::new("mpirun").arg("--version").output()?.stdout;
        if !String::from_utf8_lossy(&version).contains("Open MPI") {
            return Err(
                "mpirun is not that of Open MPI: install openmpi-bin, and put it first on PATH".into()
            );
        }
        let libfabric = env::var_os("LIBFABRIC").map(|prefix| Path::new(&prefix).join("lib"));
        if let Some(library) = &libfabric
            && !library.join("libfabric.so.1").exists()
        {
            return Err(format!("LIBFABRIC: {} has no libfabric.so.1", library.display()).into());
        }
        let mpich = env::var_os("MPICH").map(PathBuf::from);
        if let Some(prefix) = &mpich
            && !(prefix.join("bin/mpicc").exists() && prefix.join("bin/mpiexec").exists())
        {
            return Err(format!("MPICH: {} has no bin/mpicc and bin/mpiexec", prefix.display()).into());
        }
        let directory = build.join("mpi-programs");
        std::fs::create_dir_all(&directory)?;
        Ok(Installed { homespun: build.join("homespun"), mpich, libfabric, directory })
    }

    pub(crate) fn homespun(&self) -> &Path {
        &self.homespun
    }

    pub(crate) fn mpich(&self) -> Option<&Path> {
        self.mpich.as_deref()
    }

    /// The directory of the libfabric to use, if it is not the system's.
    pub(crate) fn libfabric(&self) -> Option<&Path> {
        self.libfabric.as_deref()
    }

    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    pub(crate) fn has(&self, mpi: Mpi) -> bool {
        mpi == Mpi::Open || self.mpich.is_some()
    }

    pub(crate) fn launcher(&self, mpi: Mpi) -> PathBuf {
        self.command(mpi, "mpirun", "mpiexec")
    }

    fn command(&self, mpi: Mpi, of_open_mpi: &str, of_mpich: &str) -> PathBuf {
        match (mpi, &self.mpich) {
            (Mpi::Mpich, Some(prefix)) => prefix.join("bin").join(of_mpich),
            _ => of_open_mpi.into(),
        }
    }

    /// Compiles the program of a case. Returns its path.
    pub(crate) fn compile(&self, case: Case) -> Result<PathBuf> {
        let name = case.program.name();
        if case.program == Program::NetPipe {
            return Ok("NPopenmpi".into());
        }
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/mpi/programs").join(name);
        let program = self.directory.join(format!("{name}-{}", case.mpi.argument()));
        let mut compiler = Command::new(self.command(case.mpi, "mpicc", "mpicc"));
        compiler.args(["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-o"]);
        compiler.arg(&program).arg(source.with_extension("c"));
        if !compiler.status()?.success() {
            return Err(format!("{name}.c does not compile").into());
        }
        Ok(program)
    }
}

fn find_on_path(command: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    env::split_paths(&path).map(|directory| directory.join(command)).find(|found| found.exists())
}
