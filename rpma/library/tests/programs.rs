//! C programs of librpma, which run over the library. They are compiled against the installed header.
//!
//! The tests need a C compiler and the headers of librpma and libibverbs (Debian: `librpma-dev`,
//! `libibverbs-dev`). Without the headers they are skipped with a message; under `./test` they fail.

#![cfg(all(target_arch = "x86_64", target_os = "linux"))]

use std::env;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use homespun_suite::prerequisites::Prerequisite;
use tempfile::TempDir;

/// The domains over which each program runs.
const DOMAINS: [&str; 3] = ["shm", "tcp", "auto"];

/// Compiles a program of `tests/c` into a directory that has the library, too. Returns `None` without the
/// header.
fn compile(name: &str) -> Option<TempDir> {
    for header in ["/usr/include/librpma.h", "/usr/include/infiniband/verbs.h"] {
        if !Path::new(header).exists() {
            Prerequisite::LIBRPMA_HEADERS.report_skipped(header);
            return None;
        }
    }
    let directory = tempfile::tempdir().expect("a temporary directory");
    // Cargo builds the library before its tests, and puts both into one directory.
    let library = env::current_exe().expect("this test's path").with_file_name("librpma.so");
    symlink(library, directory.path().join("librpma.so.0")).expect("a temporary directory");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c").join(name).with_extension("c");
    let compiled = Command::new("cc")
        .args(["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-pthread", "-o"])
        .arg(directory.path().join("program"))
        .arg(source)
        .arg("-L")
        .arg(directory.path())
        .arg("-l:librpma.so.0")
        .status();
    assert!(compiled.expect("a C compiler").success(), "the program does not compile");
    Some(directory)
}

/// Runs a program over each domain.
fn run(name: &str) {
    let Some(directory) = compile(name) else { return };
    for domain in DOMAINS {
        let status = Command::new(directory.path().join("program"))
            .arg(directory.path())
            .env("LD_LIBRARY_PATH", directory.path())
            .env("FI_HOMESPUN_DOMAIN", domain)
            .status();
        let status = status.expect("the program is there");
        assert!(status.success(), "{name} over {domain}: {status}");
    }
}

#[test]
fn arguments_are_checked_and_objects_have_their_values() {
    run("arguments");
}

#[test]
fn operations_complete_with_every_field() {
    run("operations");
}

#[test]
fn connections_report_events_and_failures() {
    run("connections");
}

#[test]
fn killed_peer_ends_operations_once_and_keeps_flushed_memory() {
    run("crashes");
}
