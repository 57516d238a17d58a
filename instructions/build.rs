//! Passes the version of the compiler, the target and the flags to the benchmark: they affect instruction
//! counts.

use std::env;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let rustc = env::var_os("RUSTC").expect("Cargo names the compiler");
    let output = Command::new(rustc).arg("--version").output().expect("the compiler that Cargo uses");
    let version = String::from_utf8(output.stdout).expect("a version is text");
    println!("cargo::rustc-env=HOMESPUN_RUSTC={}", version.trim());
    println!("cargo::rustc-env=HOMESPUN_TARGET={}", env::var("TARGET").expect("Cargo names the target"));
    // Cargo separates the flags by this character.
    let flags = env::var("CARGO_ENCODED_RUSTFLAGS").unwrap_or_default().replace('\u{1f}', " ");
    println!("cargo::rustc-env=HOMESPUN_RUSTFLAGS={flags}");
}
