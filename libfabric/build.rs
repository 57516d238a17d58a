//! Links the plugin so that it is never unmapped.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // A host that unloads libfabric unloads its providers with it, while thread-local destructors and the
    // registered callsites of `tracing` still point into this library.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
