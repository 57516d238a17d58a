//! Checks limits of the code: files are short, and no large group of files imports each other. Checks that
//! the documentation names only paths and names that exist.
//!
//! `cargo test --test walls -- --nocapture` prints the cycles of imports and the longest files.

#![expect(clippy::print_stdout, reason = "shows with --nocapture where the walls stand")]

mod files;
mod imports;
mod modules;
mod pages;
mod rustdoc;

use crate::modules::{Crate, Module};

/// The directories of this project's crates, which have their sources in `src`.
const CRATES: [&str; 11] = [
    "",
    "engine",
    "provider-shm",
    "provider-tcp",
    "libfabric",
    "conformance",
    "host",
    "cli",
    "instructions",
    "suite",
    "rpma",
];

/// The largest number of files that may import each other, directly or indirectly.
const CYCLE_FILES_MAX: usize = 6;

/// The most lines of code in a file. Tests, comments and blank lines do not count.
const CODE_LINES_MAX: usize = 600;

/// The most characters of a source line. Rustfmt does not wrap macros, texts and comments; the limit covers
/// these, too.
const LINE_CHARACTERS_MAX: usize = 110;

/// The most lines of ARCHITECTURE.md, and the most characters of a line outside of tables.
const ARCHITECTURE_LINES_MAX: usize = 250;
const ARCHITECTURE_LINE_CHARACTERS_MAX: usize = 120;

fn read_all_crates() -> impl Iterator<Item = Crate> {
    CRATES.into_iter().map(|directory| Crate::read(directory).unwrap())
}

#[test]
fn import_cycles_stay_small() {
    let mut too_large = Vec::new();
    for of_crate in read_all_crates() {
        for cycle in imports::import_cycles(&of_crate) {
            println!("{:>3} files of {}: {}", cycle.len(), of_crate.name(), cycle.join(" "));
            if cycle.len() > CYCLE_FILES_MAX {
                too_large.push(cycle);
            }
        }
    }
    assert!(too_large.is_empty(), "more than {CYCLE_FILES_MAX} files import each other: {too_large:#?}");
}

#[test]
fn files_stay_short() {
    let mut lengths: Vec<(usize, String)> = Vec::new();
    for of_crate in read_all_crates() {
        let longest = |module: &Module| (module.count_code_lines(), format!("{}/{module}", of_crate.name()));
        lengths.extend(of_crate.modules().map(longest));
    }
    lengths.sort_unstable();
    for (lines, file) in lengths.iter().rev().take(5) {
        println!("{lines:>5} lines of code in {file}");
    }
    let too_long: Vec<_> = lengths.iter().filter(|(lines, _)| *lines > CODE_LINES_MAX).collect();
    assert!(too_long.is_empty(), "more than {CODE_LINES_MAX} lines of code: {too_long:#?}");
}

#[test]
fn lines_stay_narrow() {
    let sources = files::read_below("", "rs").unwrap();
    assert!(sources.len() > 500, "only {} sources were found", sources.len());
    let too_wide: Vec<String> =
        sources.iter().flat_map(|file| file.lines_wider_than(LINE_CHARACTERS_MAX)).collect();
    assert!(too_wide.is_empty(), "more than {LINE_CHARACTERS_MAX} characters: {too_wide:#?}");
}

#[test]
fn architecture_page_stays_short() {
    let page = files::read_below("ARCHITECTURE.md", "md").unwrap().pop().unwrap();
    let count = page.text.lines().count();
    assert!(count <= ARCHITECTURE_LINES_MAX, "{count} lines");
    // A line is reported with its place in front.
    let is_in_table = |line: &String| line.split_once(": ").is_some_and(|(_, text)| text.starts_with('|'));
    let mut too_wide = page.lines_wider_than(ARCHITECTURE_LINE_CHARACTERS_MAX);
    too_wide.retain(|line| !is_in_table(line));
    assert!(too_wide.is_empty(), "more than {ARCHITECTURE_LINE_CHARACTERS_MAX} characters: {too_wide:#?}");
}

#[test]
fn rustdoc_of_homespun_does_not_show_the_engine() {
    let foreign = rustdoc::foreign_paths();
    assert!(foreign.is_empty(), "an application's author sees the crate of the engine: {foreign:#?}");
}

#[test]
fn pages_name_only_paths_and_names_that_exist() {
    let (pages, paths, sources) = (pages::read_all(), pages::Paths::list(), pages::Sources::read());
    let stale = [pages::stale_paths(&pages, &paths), pages::stale_names(&pages, &sources)].concat();
    assert!(stale.is_empty(), "pages are behind the sources: {stale:#?}");
}

#[test]
fn links_of_pages_lead_to_files_and_headings_that_exist() {
    let broken = pages::broken_links(&pages::read_all(), &pages::Paths::list());
    assert!(broken.is_empty(), "broken links: {broken:#?}");
}
