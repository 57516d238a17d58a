//! Checks `docs/librpma-functions.md`: each function of the library has a row, and the functions of the C
//! programs that a row names call it.

use std::collections::BTreeSet;
use std::fs;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// What a row says instead of tests of errors.
const CANNOT_FAIL: &str = "cannot fail";

/// The macros that call a function well, and with wrong arguments.
const MACROS: [&str; 3] = ["SIZE_FIELD(", "GETTER(", "DELETE_TWICE("];

/// A row of the table.
struct Row {
    function: String,
    /// The functions of the C programs: a file, and a name.
    success: Vec<(String, String)>,
    /// `None` if the function cannot fail.
    errors: Option<Vec<(String, String)>>,
}

/// How a C program calls a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Expected {
    Success,
    Error,
    /// A macro checks both.
    Both,
}

fn read_file(path: &str) -> String {
    fs::read_to_string(format!("{ROOT}/{path}")).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn rows() -> Vec<Row> {
    let page = read_file("../../docs/librpma-functions.md");
    let lines = page.lines().filter(|line| line.starts_with("| `rpma_"));
    let rows = lines.map(|line| {
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        let [function, here, success, errors] = cells[..] else { panic!("not four cells: {line}") };
        assert!(!here.is_empty(), "{line}");
        Row {
            function: function.trim_matches('`').to_owned(),
            success: named_tests(success),
            errors: (errors != CANNOT_FAIL).then(|| named_tests(errors)),
        }
    });
    rows.collect()
}

fn named_tests(cell: &str) -> Vec<(String, String)> {
    let name = |name: &str| {
        let (file, function) = name.trim_matches('`').split_once("::").unwrap_or_else(|| panic!("{name}"));
        (file.to_owned(), function.to_owned())
    };
    cell.split(", ").map(name).collect()
}

/// Returns the calls of `function` in a function of a C program.
fn calls(function: &str, (file, name): &(String, String)) -> Vec<Expected> {
    let program = without_comments(&read_file(&format!("tests/c/{file}")));
    let body = function_body(&program, name).unwrap_or_else(|| panic!("{file} has no {name}"));
    let calls = body.match_indices(function).filter_map(|(index, _)| {
        let (before, behind) = (&body[..index], &body[index + function.len()..]);
        if before.ends_with(|last: char| last.is_alphanumeric() || last == '_') {
            return None;
        }
        let before = before.trim_end();
        let statement = before.rsplit([';', '{', '}']).next().unwrap_or_default().trim_start();
        match behind.chars().next() {
            Some('(') if before.ends_with("INVALID(") => Some(Expected::Error),
            // `RETURNS(RPMA_E_INVAL, `
            Some('(') if statement.starts_with("RETURNS(RPMA_E_") && before.ends_with(',') => {
                Some(Expected::Error)
            }
            Some('(') => Some(Expected::Success),
            Some(',') if MACROS.iter().any(|name| statement.starts_with(name)) => Some(Expected::Both),
            _ => None,
        }
    });
    calls.collect()
}

fn without_comments(program: &str) -> String {
    let mut parts = program.split("/*");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| text + part.split_once("*/").map_or("", |(_, behind)| behind))
}

/// Returns the lines between the first line of a function and its closing brace.
fn function_body<'a>(program: &'a str, name: &str) -> Option<&'a str> {
    let (_, behind) = program.split_once(&format!(" {name}("))?;
    let (head, body) = behind.split_once("{\n")?;
    (!head.contains(';')).then_some(())?;
    body.split_once("\n}\n").map(|(body, _)| body)
}

#[test]
fn each_function_of_the_library_has_one_row() {
    let map = read_file("librpma.map");
    let names = map.lines().filter_map(|line| line.trim().strip_suffix(';'));
    let exported: BTreeSet<&str> = names.filter(|name| name.starts_with("rpma_")).collect();
    let rows = rows();
    let listed: Vec<&str> = rows.iter().map(|row| &*row.function).collect();
    assert!(listed.is_sorted(), "the rows are in the order of the alphabet");
    assert_eq!(listed, exported.into_iter().collect::<Vec<_>>());
}

#[test]
fn named_functions_of_programs_call_the_function_of_the_row() {
    for Row { function, success, errors } in rows() {
        for test in success.iter().chain(errors.iter().flatten()) {
            assert!(!calls(&function, test).is_empty(), "{test:?} does not call {function}");
        }
        let has_success =
            success.iter().any(|test| calls(&function, test).iter().any(|call| *call != Expected::Error));
        assert!(has_success, "{function}: {success:?}");
        if let Some(errors) = errors {
            let has_error = errors
                .iter()
                .any(|test| calls(&function, test).iter().any(|call| *call != Expected::Success));
            assert!(has_error, "{function}: {errors:?}");
        }
    }
}
