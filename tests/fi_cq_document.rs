//! Checks that the tests named in `docs/fi_cq.md` exist, and that they run where the document says.

use homespun_suite::statement_table::{
    Statement, check_named_tests_exist, check_places, check_statements_have_tests, parse_statements,
    read_below,
};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// Where tests are that the document names without a directory.
const DIRECTORY: &str = "tests/semantics/";

fn statements() -> Vec<Statement> {
    parse_statements(&read_below(ROOT, "docs/fi_cq.md"))
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
            let texts =
                lists.iter().map(|list| read_below(ROOT, &format!("tests/semantics/lists/{list}.rs")));
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
fn where_column_agrees_with_the_test_lists() {
    let lists = SemanticLists::read();
    check_places(&statements(), DIRECTORY, |file, function| classify_test_place(file, function, &lists));
}
