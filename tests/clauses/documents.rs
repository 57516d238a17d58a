//! The tables of clauses in documents. A table stands between `<!-- clauses: PAGE -->` and
//! `<!-- end of clauses -->`.

use std::collections::BTreeSet;
use std::env;
use std::fmt::Write;
use std::fs;
use std::path::Path;

use homespun_suite::clauses::{self, Clause, Kind, Page};

use crate::citations::Citation;

const BEGIN: &str = "<!-- clauses: ";
const BEGIN_END: &str = " -->\n";
const END: &str = "<!-- end of clauses -->";

/// The directories of the tests that a document names by their files alone.
const SHORT: [&str; 2] = ["suite/src/semantics/", "rpma/tests/facade/"];

/// Checks the tables of a document, or writes them if the environment variable `HOMESPUN_WRITE` is set.
///
/// # Panics
///
/// If a table differs, or there is none.
pub(crate) fn check_or_write(path: &str, citations: &[Citation]) {
    let full = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    let document = fs::read_to_string(&full).unwrap();
    let mut expected = String::new();
    let mut rest = document.as_str();
    while let Some((before, behind)) = rest.split_once(BEGIN) {
        let (name, table) = behind.split_once(BEGIN_END).expect("the end of a comment");
        let page = clauses::pages().iter().find(|page| page.name == name);
        let page = page.unwrap_or_else(|| panic!("{path}: there are no clauses of {name}"));
        rest = table.split_once(END).unwrap_or_else(|| panic!("{path}: the table of {name} has no end")).1;
        let rows = render(page, citations);
        write!(expected, "{before}{BEGIN}{name}{BEGIN_END}\n{rows}\n{END}").unwrap();
    }
    assert!(!expected.is_empty(), "{path} has no table");
    expected.push_str(rest);
    if env::var_os("HOMESPUN_WRITE").is_some() {
        fs::write(&full, expected).unwrap();
    } else if let Some((is, should)) =
        document.lines().zip(expected.lines()).find(|(is, should)| is != should)
    {
        panic!("{path} has\n{is}\nand not\n{should}\nHOMESPUN_WRITE=1 writes it");
    } else {
        assert_eq!(document.len(), expected.len(), "{path}: HOMESPUN_WRITE=1 writes it");
    }
}

fn render(page: &Page, citations: &[Citation]) -> String {
    let mut table = "| statement | shown by | where |\n| --- | --- | --- |\n".to_owned();
    for section in &page.sections {
        writeln!(table, "| **{}** | | |", section.title).unwrap();
        for clause in &section.clauses {
            let name = format!("{}/{}", page.name, clause.id);
            let tests: Vec<&Citation> = citations.iter().filter(|cited| cited.clause == name).collect();
            let places: BTreeSet<&str> = tests.iter().map(|test| place(test)).collect();
            let places = places.into_iter().collect::<Vec<_>>().join("; ");
            writeln!(table, "| {} | {} | {places} |", clause.says, render_shown_by(clause, &tests)).unwrap();
        }
    }
    table
}

fn render_shown_by(clause: &Clause, tests: &[&Citation]) -> String {
    let kind = match clause.kind {
        Kind::Promise => None,
        Kind::Definition => Some("definition"),
        Kind::Application => Some("application"),
        Kind::NotOffered => Some("not offered"),
    };
    let reason: Vec<&str> = kind.into_iter().chain(clause.note.as_deref()).collect();
    let names: Vec<String> =
        tests.iter().map(|test| format!("`{}::{}`", short_file(test), test.function)).collect();
    let parts = [reason.join(": "), names.join(", ")];
    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("; ")
}

fn short_file(test: &Citation) -> &str {
    SHORT.into_iter().find_map(|directory| test.file.strip_prefix(directory)).unwrap_or(&test.file)
}

/// Returns where a test runs, as the documents' legends explain it.
fn place(test: &Citation) -> &str {
    let is_below = |directory: &str| test.file.starts_with(directory);
    match &test.over {
        Some(words) => words,
        None if is_below("libfabric/tests/plugin/") => "plugin",
        None if is_below("rpma/tests/facade/") => "every transport",
        None if is_below("src/") || test.file.contains("/src/") => "unit",
        None => "its own",
    }
}
