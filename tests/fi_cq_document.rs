//! Checks that the tests named in `docs/fi_cq.md` exist, and that they run where the document says.

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
    /// Returns the file and the function of each test that the row names. If the row gives a file without a
    /// directory, the file is in `tests/semantics`.
    fn named_tests(&self) -> Vec<(String, String)> {
        let named = self.shown_by.split('`').skip(1).step_by(2).filter_map(|name| name.split_once("::"));
        named
            .map(|(file, function)| {
                let directory = if file.contains('/') { "" } else { "tests/semantics/" };
                (format!("{directory}{file}"), function.to_owned())
            })
            .collect()
    }
}

fn read_file(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Returns the rows of the tables of statements.
fn parse_rows() -> Vec<Row> {
    let document = read_file("docs/fi_cq.md");
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

/// The lists of tests in `tests/semantics/lists/`.
struct SemanticLists {
    /// Tests that run over every transport, with peers in other processes, too.
    every: TestList,
    /// Tests whose parties are all in one process.
    one_process: TestList,
}

/// The text of one or more lists.
struct TestList(String);

impl SemanticLists {
    fn read() -> SemanticLists {
        let read = |lists: &[&str]| {
            let texts = lists.iter().map(|list| read_file(&format!("tests/semantics/lists/{list}.rs")));
            TestList(texts.collect())
        };
        SemanticLists {
            every: read(&["parties", "sleepers"]),
            one_process: read(&["objects", "shared_contexts", "connections"]),
        }
    }
}

impl TestList {
    fn contains(&self, module: &str, function: &str) -> bool {
        let mut words = self.0.split_whitespace().skip_while(|&word| word != format!("{module}:"));
        // A module may be listed more than once, between others.
        words.any(|word| word.trim_end_matches(';') == function)
    }
}

/// Returns the place where a test runs, as the document calls it.
fn classify_test_place(file: &str, function: &str, lists: &SemanticLists) -> &'static str {
    if file.starts_with("libfabric/tests/") {
        "plugin"
    } else if ["tests/process_exits.rs", "tests/durability_after_kill.rs"].contains(&file) {
        "processes"
    } else if file.starts_with("tests/semantics/") {
        let module = file.trim_start_matches("tests/semantics/").trim_end_matches(".rs");
        match (lists.every.contains(module, function), lists.one_process.contains(module, function)) {
            (true, _) => "every",
            (false, true) => "one process",
            (false, false) => panic!("{file}::{function} is on neither list of tests"),
        }
    } else if file.starts_with("tests/") {
        "one process"
    } else {
        "unit"
    }
}

#[test]
fn named_tests_exist() {
    let rows = parse_rows();
    assert!(rows.len() > 150, "only {} statements were found", rows.len());
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
        let needs_none = ["definition", "application"].iter().any(|word| row.shown_by.starts_with(word));
        assert!(needs_none || !row.named_tests().is_empty(), "line {}: {}", row.line, row.statement);
        if row.shown_by.contains("not offered") {
            let tells_errno = row.shown_by.split(|c: char| !c.is_ascii_alphabetic()).any(|word| {
                word.len() > 4 && word.starts_with('E') && word.chars().all(|c| c.is_ascii_uppercase())
            });
            let is_mode = row.shown_by.contains("no answer has the mode");
            assert!(tells_errno || is_mode, "line {}: which error does the caller get?", row.line);
        }
    }
}

#[test]
fn where_column_agrees_with_the_test_lists() {
    let lists = SemanticLists::read();
    for row in parse_rows() {
        let said: BTreeSet<&str> = row.places.split(", ").filter(|place| !place.is_empty()).collect();
        let tests = row.named_tests();
        let found: BTreeSet<&str> =
            tests.iter().map(|(file, function)| classify_test_place(file, function, &lists)).collect();
        assert_eq!(said, found, "line {}: {}", row.line, row.statement);
    }
}
