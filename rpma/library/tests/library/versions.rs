//! Programs that were linked with earlier versions of librpma.
//!
//! Such a program is linked with a library that has the functions of its version, and nothing in them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::compiler::{Compiler, Header};
use crate::exports::{functions_of_librpma, versions};
use crate::programs::run_program;

/// Makes a library to link with, whose functions have a version and do nothing. Returns its path.
fn make_library(directory: &Path, version: &str) -> PathBuf {
    let directory = directory.join(version);
    let (source, script) = (directory.join("functions.c"), directory.join("functions.map"));
    let library = directory.join("librpma.so.0");
    fs::create_dir(&directory).expect("a temporary directory");
    let functions = functions_of_librpma(version);
    let definitions = functions.iter().map(|name| format!("void {name}(void) {{}}\n"));
    fs::write(&source, definitions.collect::<String>()).expect("a temporary directory");
    fs::write(&script, format!("{version} {{ global: rpma_*; local: *; }};\n"))
        .expect("a temporary directory");
    let linked = Command::new("cc")
        .args(["-shared", "-fPIC", "-Wl,-soname,librpma.so.0"])
        .arg(format!("-Wl,--version-script={}", script.display()))
        .arg("-o")
        .args([&library, &source])
        .status();
    assert!(linked.expect("a C compiler").success(), "{version}");
    library
}

#[test]
fn program_of_0_10_reads_every_field_of_its_completions() {
    for header in [Header::OwnOf010, Header::OwnOf010WithoutVerbs] {
        let Some(compiler) = Compiler::new(header) else { continue };
        let of_0_10 = make_library(compiler.directory(), "LIBRPMA_0.10");
        for library in [of_0_10, compiler.directory().join("librpma.so.0")] {
            let program = compiler.compile("completions_of_0_10.c", &library);
            run_program(&program, compiler.directory());
        }
    }
}

/// The event for it arrived in 0.14.
#[test]
fn unanswered_request_is_an_unknown_event_before_0_14() {
    let compiler = Compiler::new(Header::OwnWithoutVerbs).expect("it needs no package");
    for version in versions() {
        let program = compiler.compile("unanswered.c", &make_library(compiler.directory(), version));
        let knows_event = matches!(version, "LIBRPMA_0.14" | "LIBRPMA_1.0");
        let status = Command::new(program)
            .arg(if knows_event { "event" } else { "failure" })
            .env("LD_LIBRARY_PATH", compiler.directory())
            .status();
        assert!(status.expect("the program is there").success(), "{version}");
    }
}
