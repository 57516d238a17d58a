//! A program of our own with messages of every kind and size.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{self, Command};
use std::sync::OnceLock;

use crate::DOMAINS;
use crate::launch::{Launch, installed};

/// The program, compiled once; `None` if that cannot be done here.
pub(crate) fn program() -> Option<&'static Path> {
    static PROGRAM: OnceLock<Option<PathBuf>> = OnceLock::new();
    PROGRAM.get_or_init(compile).as_deref()
}

fn compile() -> Option<PathBuf> {
    installed("mpirun", "openmpi-bin")?;
    let compiler = installed("mpicc", "libopenmpi-dev")?;
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mpi/every_byte.c");
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("every_byte");
    // Another run of the tests may be using it.
    let new = program.with_extension(process::id().to_string());
    let mut command = Command::new(compiler);
    command.args(["-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-o"]).arg(&new).arg(source);
    let output = command.output().expect("the compiler starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    std::fs::rename(new, &program).expect("both are in one directory");
    Some(program)
}

fn check(domain: &'static str, ranks: usize) {
    let Some(program) = program() else { return };
    let outcome = Launch::over(domain, ranks).run(program, &[]);
    outcome.require_over(domain, ranks);
    let checked = format!("every byte checked: {ranks} ranks, ");
    assert!(outcome.stdout.starts_with(&checked), "{outcome}");
}

#[test]
fn two_ranks() {
    for domain in DOMAINS {
        check(domain, 2);
    }
}

#[test]
fn four_ranks() {
    for domain in DOMAINS {
        check(domain, 4);
    }
}
