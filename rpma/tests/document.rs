//! Checks that the tests named in `docs/rpma.md` exist, and that they run where the document says.

use homespun_suite::statement_table::{
    Statement, check_named_tests_exist, check_places, check_statements_have_tests, parse_statements,
    read_below,
};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// Where tests are that the document names without a directory.
const DIRECTORY: &str = "tests/facade/";

fn statements() -> Vec<Statement> {
    parse_statements(&read_below(ROOT, "../docs/rpma.md"))
}

/// Returns the place where a test runs, as the document calls it.
fn classify_test_place(file: &str, function: &str, list: &str) -> &'static str {
    if file.starts_with("src/") {
        return "unit";
    }
    if file == "tests/processes.rs" {
        return "processes";
    }
    let module = file.trim_start_matches("tests/facade/").trim_end_matches(".rs");
    let of_module = list.split_once(&format!("\n    {module}:\n")).map(|(_, behind)| behind);
    let listed = of_module.and_then(|behind| behind.split_once(';')).map_or("", |(listed, _)| listed);
    assert!(listed.split_whitespace().any(|name| name == function), "{file}::{function} is on no list");
    "every"
}

#[test]
fn named_tests_exist() {
    let statements = statements();
    assert!(statements.len() > 50, "only {} statements were found", statements.len());
    check_named_tests_exist(&statements, ROOT, DIRECTORY);
}

#[test]
fn statements_have_a_test_or_a_reason() {
    check_statements_have_tests(&statements(), &["definition", "application", "types"]);
}

#[test]
fn where_column_agrees_with_the_test_lists() {
    let list = read_below(ROOT, "tests/facade/main.rs");
    check_places(&statements(), DIRECTORY, |file, function| classify_test_place(file, function, &list));
}
