//! The symbols of the library, as `objdump -T` lists them: those that programs of librpma ask for.

use std::path::Path;

use homespun_suite::prerequisites::Prerequisite;

use crate::exports::{
    all_functions, functions, functions_of_every_version, functions_of_librpma, library, names, objdump,
    versions,
};

/// The library of the package librpma0.
const PACKAGED: &str = "/usr/lib/x86_64-linux-gnu/librpma.so.0";

#[test]
fn library_has_the_functions_of_each_version_before_1_0() {
    let counts = [71, 69, 68, 69, 68];
    for (version, count) in versions().filter(|&version| version != "LIBRPMA_1.0").zip(counts) {
        let found = all_functions(&library(), version);
        assert_eq!(found, functions_of_librpma(version), "{version}");
        assert_eq!(found.len(), count, "{version}");
    }
}

#[test]
fn library_has_the_functions_of_every_version_in_1_0() {
    let found = all_functions(&library(), "LIBRPMA_1.0");
    assert_eq!(found, functions_of_every_version());
    assert_eq!(found.len(), 89);
    assert_eq!(functions_of_librpma("LIBRPMA_1.0").len(), 84);
}

/// The function of 1.0 is that of 0.9, which no program is linked with any more.
#[test]
fn linked_program_gets_one_function_of_0_10_and_the_others_of_1_0() {
    let only_of_0_10 = names("rpma_conn_completion_get");
    assert_eq!(functions(&library(), "(LIBRPMA_1.0)"), only_of_0_10);
    for version in versions().filter(|&version| version != "LIBRPMA_1.0") {
        let expected = if version == "LIBRPMA_0.10" { only_of_0_10.clone() } else { names("") };
        assert_eq!(functions(&library(), version), expected, "{version}");
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
