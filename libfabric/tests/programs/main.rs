//! Programs of others, replayed over the plugin in the installed libfabric: how each asks for an interface.
//! `driver.c` runs them, with a row for each.
//!
//! The tests need a C compiler and libfabric's headers (Debian: `libfabric-dev`). Without the headers
//! they are skipped with a message; under `./test` they fail.

use std::env;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use homespun_suite::prerequisites::Prerequisite;

const SOURCES: [&str; 2] = ["driver.c", "hinted.c"];

/// The compiled driver, and a directory of providers that has only the plugin.
struct Driver {
    path: PathBuf,
    providers: PathBuf,
}

impl Driver {
    /// The driver, compiled once. `None` without libfabric's headers.
    fn get() -> Option<&'static Driver> {
        static DRIVER: OnceLock<Option<Driver>> = OnceLock::new();
        DRIVER.get_or_init(Driver::compile).as_ref()
    }

    fn compile() -> Option<Driver> {
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
        let path = test.with_extension("driver");
        // Another process may run the program.
        let new_path = path.with_extension(std::process::id().to_string());
        let mut compiler = Command::new("cc");
        compiler.args(["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-o"]).arg(&new_path);
        compiler.args(SOURCES.map(|source| directory.join(source)));
        let compiled = compiler.arg("-lfabric").status().expect("a C compiler");
        assert!(compiled.success(), "the driver does not compile");
        fs::rename(new_path, &path).expect("a writable directory");
        Some(Driver { path, providers })
    }

    /// Returns the command that runs the driver with these arguments, and may load the plugin.
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.path);
        command.args(arguments).env_remove("FI_PROVIDER").env_remove("FI_HOMESPUN_AS");
        command.env("FI_PROVIDER_PATH", &self.providers).env("FI_LOG_LEVEL", "warn");
        command
    }
}

/// Runs each program over this domain.
fn run_programs(domain: &str) {
    let Some(driver) = Driver::get() else { return };
    let list = driver.command(&["list"]).output().expect("the compiled driver").stdout;
    let list = String::from_utf8(list).expect("text");
    assert!(list.lines().count() > 10, "the programs are missing");
    for program in list.lines() {
        let output = driver.command(&[program, domain]).output().expect("the compiled driver");
        assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn programs_over_shared_memory_end_well() {
    run_programs("shm");
}

#[test]
fn programs_over_tcp_end_well() {
    run_programs("tcp");
}

#[test]
fn programs_over_auto_end_well() {
    run_programs("auto");
}

#[test]
fn program_that_knows_its_provider_fails_without_the_offered_name() {
    let Some(driver) = Driver::get() else { return };
    let mut command = driver.command(&["mercury", "tcp"]);
    let output = command.env("FI_HOMESPUN_AS", "homespun").env("FI_PROVIDER", "homespun").output();
    assert!(!output.expect("the compiled driver").status.success());
}
