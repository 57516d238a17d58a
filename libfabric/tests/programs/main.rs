//! C programs that use the plugin in the installed libfabric.
//!
//! The tests need a C compiler and libfabric's headers (Debian: `libfabric-dev`). Without the headers
//! they are skipped with a message; under `./test` they fail.

mod offered_names;
mod replayed;

use std::env;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use homespun_suite::prerequisites::Prerequisite;

/// A compiled program, and a directory of providers that has only the plugin.
pub(crate) struct Program {
    path: PathBuf,
    providers: PathBuf,
}

impl Program {
    /// Compiles the program `name` of the C files `sources` in this directory. Returns `None` without
    /// libfabric's headers.
    pub(crate) fn compile(name: &str, sources: &[&str]) -> Option<Program> {
        static COMPILED: AtomicUsize = AtomicUsize::new(0);
        if !Path::new("/usr/include/rdma/fabric.h").exists() {
            Prerequisite::LIBFABRIC_HEADERS.report_skipped("/usr/include/rdma/fabric.h");
            return None;
        }
        // Cargo builds the plugin before its tests, and puts both into one directory.
        let test = env::current_exe().expect("this test's path");
        let providers = test.with_extension("providers");
        fs::create_dir_all(&providers).expect("a writable directory");
        let linked = symlink(test.with_file_name("libhomespun_fi.so"), providers.join("libhomespun_fi.so"));
        assert!(linked.is_ok() || linked.is_err_and(|error| error.kind() == ErrorKind::AlreadyExists));
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs");
        let path = test.with_extension(name);
        // Other tests may run the program.
        let count = COMPILED.fetch_add(1, Ordering::Relaxed);
        let new_path = path.with_extension(format!("{}-{count}", std::process::id()));
        let mut compiler = Command::new("cc");
        compiler.args(["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-pthread", "-o"]).arg(&new_path);
        compiler.args(sources.iter().map(|source| directory.join(source).with_extension("c")));
        let compiled = compiler.arg("-lfabric").status().expect("a C compiler");
        assert!(compiled.success(), "the program does not compile");
        fs::rename(new_path, &path).expect("a writable directory");
        Some(Program { path, providers })
    }

    /// Returns the command that runs the program with these arguments, and may load the plugin.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.path);
        command.args(arguments).env_remove("FI_PROVIDER").env_remove("FI_HOMESPUN_AS");
        command.env("FI_PROVIDER_PATH", &self.providers).env("FI_LOG_LEVEL", "warn");
        command
    }
}
