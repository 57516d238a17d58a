//! Gives the library its soname and the versions of its symbols.

use std::env;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=librpma.map");
    let is_supported = env::var("CARGO_CFG_TARGET_ARCH").is_ok_and(|name| name == "x86_64")
        && env::var("CARGO_CFG_TARGET_OS").is_ok_and(|name| name == "linux");
    if !is_supported {
        return;
    }
    let directory = env::var("CARGO_MANIFEST_DIR").expect("cargo sets it");
    println!("cargo:rustc-cdylib-link-arg=-Wl,--version-script={directory}/librpma.map");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,librpma.so.0");
    // A program that unloads the library may still have its threads, and thread-local destructors that
    // point into it.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
