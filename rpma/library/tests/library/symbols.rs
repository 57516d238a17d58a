//! The symbols of the library, as `objdump -T` lists them: those that programs of librpma ask for.

use std::path::Path;

use homespun_suite::prerequisites::Prerequisite;

use crate::exports::{
    all_functions, functions, functions_of_every_version, functions_of_librpma, library, names, objdump,
    versions,
};

/// The library of the package librpma0.
const PACKAGED: &str = "/usr/lib/x86_64-linux-gnu/librpma.so.0";

/// A program that is linked now gets the functions of 1.0, except one of 0.10: that of 1.0 is the one of 0.9,
/// with which no program is linked any more.
#[test]
fn library_has_the_functions_of_each_version() {
    let only_of_0_10 = names("rpma_conn_completion_get");
    assert_eq!(all_functions(&library(), "LIBRPMA_1.0"), functions_of_every_version());
    assert_eq!(functions(&library(), "(LIBRPMA_1.0)"), only_of_0_10);
    for version in versions().filter(|&version| version != "LIBRPMA_1.0") {
        assert_eq!(all_functions(&library(), version), functions_of_librpma(version), "{version}");
        let of_new_programs = if version == "LIBRPMA_0.10" { only_of_0_10.clone() } else { names("") };
        assert_eq!(functions(&library(), version), of_new_programs, "{version}");
    }
}

#[test]
fn library_exports_nothing_else_but_the_text_of_a_status() {
    assert_eq!(functions(&library(), "Base"), names("ibv_wc_status_str"));
}

#[test]
fn packaged_library_has_the_same_functions_and_versions() {
    if !Path::new(PACKAGED).exists() {
        Prerequisite::LIBRPMA.report_skipped(PACKAGED);
        return;
    }
    let packaged = functions(Path::new(PACKAGED), "LIBRPMA_1.0");
    assert_eq!(packaged, functions_of_librpma("LIBRPMA_1.0"));
}

#[test]
fn library_has_the_soname_of_librpma() {
    assert!(
        objdump(&library(), "-p")
            .lines()
            .any(|line| line.trim_start().starts_with("SONAME") && line.ends_with("librpma.so.0"))
    );
}
