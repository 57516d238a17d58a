//! Our own MPI programs, and the output of a successful run.

use std::collections::HashMap;
use std::env;
use std::path::{Path, PathBuf};
use std::process::{self, Command};
use std::sync::{LazyLock, Mutex, PoisonError};

use crate::DOMAINS;
use crate::launch::{Launch, Outcome};
use crate::mpi::Mpi;

/// An MPI program.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Program {
    /// The name of the program's source file, without the extension.
    name: &'static str,
    /// The beginning of the line that the program prints on success.
    verdict: &'static str,
}

/// Sends messages of every kind and size.
pub(crate) const EVERY_BYTE: Program = Program { name: "every_byte", verdict: "every byte checked" };

/// Puts, gets and accumulates, with every kind of synchronisation.
pub(crate) const ONE_SIDED: Program = Program { name: "one_sided", verdict: "every access checked" };

/// The path of each compiled program, by program and MPI. `None` if the MPI is not installed.
type Compiled = HashMap<(&'static str, Mpi), Option<PathBuf>>;

impl Program {
    /// The path of the program. The program is compiled once for each MPI. `None` if the MPI is not
    /// installed.
    pub(crate) fn compile_once(self, mpi: Mpi) -> Option<PathBuf> {
        static PROGRAMS: LazyLock<Mutex<Compiled>> = LazyLock::new(Mutex::default);
        let mut programs = PROGRAMS.lock().unwrap_or_else(PoisonError::into_inner);
        programs.entry((self.name, mpi)).or_insert_with(|| self.compile(mpi)).clone()
    }

    fn compile(self, mpi: Mpi) -> Option<PathBuf> {
        mpi.find_launcher()?;
        let compiler = mpi.find_command("mpicc")?;
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mpi");
        let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{}-{mpi:?}", self.name));
        // Compile to a new file, because another run of the tests may be using the old file.
        let new = program.with_extension(process::id().to_string());
        let mut command = Command::new(compiler);
        command.args(["-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-o"]).arg(&new);
        command.arg(sources.join(self.name).with_extension("c")).envs(mpi.environment());
        let output = command.output().expect("the compiler starts");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        std::fs::rename(new, &program).expect("both are in one directory");
        Some(program)
    }

    /// Runs the program over each domain with these arguments and `mpirun` options. Checks the output.
    #[track_caller]
    pub(crate) fn run_and_check(self, mpi: Mpi, ranks: usize, options: &[&str], arguments: &[&str]) {
        let Some(program) = self.compile_once(mpi) else { return };
        for domain in DOMAINS {
            let options = options.iter().map(ToString::to_string).collect();
            let launch = Launch { domain: Some(domain), options, ..Launch::new(mpi, ranks) };
            let outcome = launch.run(&program, arguments);
            outcome.assert_success_over(mpi, domain, ranks);
            self.assert_success(&outcome, ranks);
        }
    }

    /// Fails the test unless the run succeeded and the program printed its line of success.
    #[track_caller]
    pub(crate) fn assert_success(self, outcome: &Outcome, ranks: usize) {
        assert!(outcome.status.is_some_and(|status| status.success()), "{outcome}");
        assert!(outcome.find_line(&format!("{}: {ranks} ranks, ", self.verdict)).is_some(), "{outcome}");
    }

    /// Fails the test if the run succeeded or the program printed its line of success.
    #[track_caller]
    pub(crate) fn assert_failure(self, outcome: &Outcome) {
        assert!(!outcome.status.is_some_and(|status| status.success()), "{outcome}");
        assert!(outcome.find_line(self.verdict).is_none(), "{outcome}");
    }
}
