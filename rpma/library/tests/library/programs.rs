//! C programs of librpma, which run over the library. They are compiled against the header of librpma 1.2 and
//! against homespun's.
//!
//! The tests need a C compiler, and some the headers of librpma and libibverbs (Debian: `librpma-dev`,
//! `libibverbs-dev`). Without the headers those are skipped with a message; under `./test` they fail.

use std::path::Path;
use std::process::Command;

use crate::compiler::{Compiler, Header};

/// The domains over which each program runs.
const DOMAINS: [&str; 3] = ["shm", "tcp", "auto"];

/// Compiles a program with each header, and runs it over each domain.
fn run(file: &str) {
    for header in [Header::Packaged, Header::Own, Header::OwnWithoutVerbs] {
        let Some(compiler) = Compiler::new(header) else { continue };
        let program = compiler.compile(file, &compiler.directory().join("librpma.so.0"));
        run_program(&program, compiler.directory());
    }
}

/// Runs a program over all domains at once, with a directory that has the library.
pub(crate) fn run_program(program: &Path, directory: &Path) {
    let running = DOMAINS.map(|domain| {
        let child =
            Command::new(program).env("LD_LIBRARY_PATH", directory).env("FI_HOMESPUN_DOMAIN", domain).spawn();
        (domain, child.expect("the program is there"))
    });
    let ended = running.map(|(domain, mut child)| (domain, child.wait().expect("the program has started")));
    for (domain, status) in ended {
        assert!(status.success(), "{} over {domain}: {status}", program.display());
    }
}

#[test]
fn arguments_are_checked_and_objects_have_their_values() {
    run("arguments.c");
}

#[test]
fn operations_complete_with_every_field() {
    run("operations.c");
}

#[test]
fn connections_report_events_and_failures() {
    run("connections.c");
}

#[test]
fn signal_handler_without_sa_restart_ends_a_wait_and_others_do_not() {
    run("signals.c");
}
