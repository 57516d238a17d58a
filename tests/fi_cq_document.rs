//! Checks that the tests named in `docs/fi_cq.md` exist, and that they run where the document says.

use homespun_suite::statement_table::{
    Statement, check_named_tests_exist, check_places, check_statements_have_tests, parse_statements,
    read_below,
};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// Where tests are that the document names without a directory.
const DIRECTORY: &str = "suite/src/semantics/";

fn statements() -> Vec<Statement> {
    parse_statements(&read_below(ROOT, "docs/fi_cq.md"))
}

/// Returns the place where a test runs, as the document calls it.
fn classify_test_place(file: &str, function: &str) -> &'static str {
    if file.starts_with("libfabric/tests/") {
        "plugin"
    } else if ["tests/process_exits.rs", "tests/durability_after_kill.rs"].contains(&file) {
        "processes"
    } else if file.starts_with("suite/src/semantics/") {
        let text = read_below(ROOT, file);
        let at = text.find(&format!("fn {function}(")).expect("a test that exists");
        let (_, over) = text[..at].rsplit_once("#[over(").expect("a test says over which networks it runs");
        let (words, between) = over.split_once(")]").expect("an attribute");
        assert!(between.trim().is_empty(), "{file}::{function} has no attribute of its own");
        let is_everywhere = words.split(", ").any(|word| ["all", "driven"].contains(&word));
        if is_everywhere { "every" } else { "one process" }
    } else if file.starts_with("tests/") {
        "one process"
    } else {
        "unit"
    }
}

#[test]
fn named_tests_exist() {
    let statements = statements();
    assert!(statements.len() > 150, "only {} statements were found", statements.len());
    check_named_tests_exist(&statements, ROOT, DIRECTORY);
}

#[test]
fn statements_have_a_test_or_a_reason() {
    let statements = statements();
    check_statements_have_tests(&statements, &["definition", "application"]);
    for Statement { line, shown_by, .. } in statements {
        if shown_by.contains("not offered") {
            let tells_errno = shown_by.split(|c: char| !c.is_ascii_alphabetic()).any(|word| {
                word.len() > 4 && word.starts_with('E') && word.chars().all(|c| c.is_ascii_uppercase())
            });
            let is_mode = shown_by.contains("no answer has the mode");
            assert!(tells_errno || is_mode, "line {line}: which error does the caller get?");
        }
    }
}

#[test]
fn where_column_agrees_with_the_networks_of_the_tests() {
    check_places(&statements(), DIRECTORY, classify_test_place);
}
