//! Tables of the statements of a document: each row names the tests that show its statement, and where they
//! run.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// A row of a table: a statement, the tests that show it, and the places where these tests run.
#[derive(Debug)]
pub struct Statement {
    /// The number of the line in the document.
    pub line: usize,
    /// The statement.
    pub text: String,
    /// The tests, or the reason why there is none.
    pub shown_by: String,
    places: String,
}

impl Statement {
    /// Returns the file and the function of each test that the row names. A file without a directory is in
    /// `directory`.
    pub fn named_tests(&self, directory: &str) -> Vec<(String, String)> {
        let named = self.shown_by.split('`').filter_map(|name| name.split_once(".rs::"));
        named
            .map(|(file, function)| {
                let directory = if file.contains('/') { "" } else { directory };
                (format!("{directory}{file}.rs"), function.to_owned())
            })
            .collect()
    }

    /// Returns the places where the tests run, according to the row.
    pub fn places(&self) -> BTreeSet<&str> {
        self.places.split(", ").filter(|place| !place.is_empty()).collect()
    }
}

/// Reads a file below a directory.
///
/// # Panics
///
/// If there is no such file.
pub fn read_below(root: &str, path: &str) -> String {
    let path = Path::new(root).join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Returns the rows of the tables of statements of a document.
///
/// # Panics
///
/// If a row has not three cells.
pub fn parse_statements(document: &str) -> Vec<Statement> {
    let mut statements = Vec::new();
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
            [text, shown_by, places] => statements.push(Statement {
                line,
                text: text.to_owned(),
                shown_by: shown_by.to_owned(),
                places: places.to_owned(),
            }),
            _ => panic!("line {line} has not three cells: {text}"),
        }
    }
    statements
}

/// Checks that the named tests exist below a directory.
///
/// # Panics
///
/// If one does not.
pub fn check_named_tests_exist(statements: &[Statement], root: &str, directory: &str) {
    for statement in statements {
        for (file, function) in statement.named_tests(directory) {
            let source = read_below(root, &file);
            let line = statement.line;
            assert!(source.contains(&format!("fn {function}(")), "line {line}: {file}::{function}");
        }
    }
}

/// Checks that each statement is a sentence, and has a test or begins its cell with one of the reasons for
/// none.
///
/// # Panics
///
/// If one is not, or has neither.
pub fn check_statements_have_tests(statements: &[Statement], reasons: &[&str]) {
    for Statement { line, text, shown_by, .. } in statements {
        assert!(text.ends_with(['.', ':']), "line {line}: {text}");
        let has_reason = reasons.iter().any(|reason| shown_by.starts_with(reason));
        assert!(has_reason || shown_by.contains(".rs::"), "line {line}: {text}");
    }
}

/// Checks that the tests run where the rows say. `classify` returns where a test of a file runs.
///
/// # Panics
///
/// If one runs elsewhere.
pub fn check_places(
    statements: &[Statement],
    directory: &str,
    classify: impl Fn(&str, &str) -> &'static str,
) {
    for statement in statements {
        let tests = statement.named_tests(directory);
        let found: BTreeSet<&str> = tests.iter().map(|(file, function)| classify(file, function)).collect();
        assert_eq!(statement.places(), found, "line {}: {}", statement.line, statement.text);
    }
}
