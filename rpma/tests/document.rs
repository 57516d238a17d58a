//! Checks that the tests named in `docs/rpma.md` exist, and that they run where the document says.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// A row of a table: a statement, the tests that show it, and the places where these tests run.
#[derive(Debug)]
struct Row {
    line: usize,
    statement: String,
    shown_by: String,
    places: String,
}

impl Row {
    /// Returns the file and the function of each test that the row names. A file without a directory is one
    /// of `tests/facade`.
    fn named_tests(&self) -> Vec<(String, String)> {
        let named = self.shown_by.split('`').skip(1).step_by(2).filter_map(|name| name.split_once(".rs::"));
        named
            .map(|(file, function)| {
                let directory = if file.contains('/') { "" } else { "tests/facade/" };
                (format!("{directory}{file}.rs"), function.to_owned())
            })
            .collect()
    }
}

/// Reads a file of this crate.
fn read_file(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Returns the rows of the tables of statements.
fn parse_rows() -> Vec<Row> {
    let document = read_file("../docs/rpma.md");
    let mut rows = Vec::new();
    let mut is_table = false;
    for (line, text) in (1..).zip(document.lines()) {
        let Some(cells) = text.strip_prefix("| ").and_then(|text| text.trim_end().strip_suffix('|')) else {
            is_table = false;
            continue;
        };
        let cells: Vec<&str> = cells.split(" |").map(str::trim).collect();
        match cells[..] {
            ["statement", "shown by", "where"] => is_table = true,
            _ if !is_table => {}
            ["---", "---", "---"] => {}
            // The heading of a section.
            [heading, "", ""] if heading.starts_with("**") => {}
            [statement, shown_by, places] => rows.push(Row {
                line,
                statement: statement.to_owned(),
                shown_by: shown_by.to_owned(),
                places: places.to_owned(),
            }),
            _ => panic!("line {line} has not three cells: {text}"),
        }
    }
    rows
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
    let rows = parse_rows();
    assert!(rows.len() > 50, "only {} statements were found", rows.len());
    for row in &rows {
        for (file, function) in row.named_tests() {
            let source = read_file(&file);
            assert!(source.contains(&format!("fn {function}(")), "line {}: {file}::{function}", row.line);
        }
    }
}

#[test]
fn statements_have_a_test_or_a_reason() {
    for row in parse_rows() {
        assert!(row.statement.ends_with(['.', ':']), "line {}: {}", row.line, row.statement);
        let reasons = ["definition", "application", "types"];
        let has_reason = reasons.iter().any(|word| row.shown_by.starts_with(word));
        assert!(has_reason || !row.named_tests().is_empty(), "line {}: {}", row.line, row.statement);
    }
}

#[test]
fn where_column_agrees_with_the_test_lists() {
    let list = read_file("tests/facade/main.rs");
    for row in parse_rows() {
        let said: BTreeSet<&str> = row.places.split(", ").filter(|place| !place.is_empty()).collect();
        let tests = row.named_tests();
        let found: BTreeSet<&str> =
            tests.iter().map(|(file, function)| classify_test_place(file, function, &list)).collect();
        assert_eq!(said, found, "line {}: {}", row.line, row.statement);
    }
}
