//! C programs that use the plugin in the installed libfabric. Each program runs as several processes,
//! the *ranks*, which exchange their addresses.
//!
//! The tests need a C compiler and libfabric's headers (Debian: `libfabric-dev`). Without the headers
//! they are skipped with a message; under `./test` they fail.

mod offered_names;
mod rank;
mod symmetric_memory;
mod triggers;

use std::env;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use homespun_suite::prerequisites::Prerequisite;
use tempfile::TempDir;

/// A compiled program, in a directory of providers that has only the plugin.
pub(crate) struct Program {
    directory: TempDir,
}

impl Program {
    /// Compiles the C file `name` in this directory. Returns `None` without libfabric's headers.
    pub(crate) fn compile(name: &str) -> Option<Program> {
        let directory = tempfile::tempdir().expect("a temporary directory");
        // Cargo builds the plugin before its tests, and puts both into one directory.
        let plugin = env::current_exe().expect("this test's path").with_file_name("libhomespun_fi.so");
        symlink(plugin, directory.path().join("libhomespun_fi.so")).expect("a temporary directory");
        let program = Program { directory };
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(name);
        let mut compiler = Command::new("cc");
        compiler.args(["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-o"]);
        compiler.arg(program.path()).arg(source.with_extension("c")).arg("-lfabric");
        if Path::new("/usr/include/rdma/fabric.h").exists() {
            let compiled = compiler.status().expect("a C compiler");
            assert!(compiled.success(), "the program does not compile");
            return Some(program);
        }
        Prerequisite::LIBFABRIC_HEADERS.report_skipped("/usr/include/rdma/fabric.h");
        None
    }

    /// Returns the command that runs the program with these arguments. `offered` is the name under
    /// which the plugin is offered; without a name, the plugin is not loaded.
    pub(crate) fn command(&self, arguments: &[&str], offered: Option<&str>) -> Command {
        let mut command = Command::new(self.path());
        command.args(arguments).env_remove("FI_PROVIDER_PATH").env_remove("FI_PROVIDER");
        if let Some(name) = offered {
            command.env("FI_PROVIDER_PATH", self.directory.path());
            command.env("FI_HOMESPUN_AS", name).env("FI_PROVIDER", name).env("FI_LOG_LEVEL", "warn");
        }
        command
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("program")
    }

    /// Runs `ranks` processes until each has printed `done` and exited. `arguments` returns the
    /// arguments of a rank.
    pub(crate) fn run_ranks(&self, ranks: usize, arguments: impl Fn(usize) -> Vec<String>) {
        rank::run_ranks(&self.path(), self.directory.path(), (0..ranks).map(arguments));
    }
}
