//! Checks the clauses of the manual pages ([`homespun_suite::clauses`]) against the tests that show them,
//! against the installed pages, and against the documents that list both.

mod citations;
mod documents;
#[path = "../mutants/faults.rs"]
mod faults;
mod man_pages;

use std::collections::BTreeSet;

use homespun_suite::clauses::{self, Kind};
use homespun_suite::prerequisites::Prerequisite;

#[test]
fn every_promise_has_a_test() {
    let cited: BTreeSet<String> = citations::read_all().into_iter().map(|citation| citation.clause).collect();
    let promises = clauses::all().filter(|(_, clause)| clause.kind == Kind::Promise);
    let names = promises.map(|(page, clause)| format!("{}/{}", page.name, clause.id));
    let unshown: Vec<String> = names.filter(|name| !cited.contains(name)).collect();
    assert!(unshown.is_empty(), "no test shows {unshown:#?}");
}

#[test]
fn every_promise_has_a_fault_or_a_reason() {
    let planted: BTreeSet<String> = faults::read_planted().unwrap().into_iter().collect();
    let cited: BTreeSet<String> = citations::read_all().into_iter().map(|citation| citation.clause).collect();
    let unshown: Vec<&String> = planted.difference(&cited).collect();
    assert!(unshown.is_empty(), "no test shows what these faults break: {unshown:#?}");
    for (page, clause) in clauses::all() {
        let name = format!("{}/{}", page.name, clause.id);
        let is_due = clause.kind == Kind::Promise && clause.unbroken.is_none();
        assert!(!is_due || planted.contains(&name), "no fault breaks {name}, and no reason says why");
        assert!(clause.unbroken.is_none() || !planted.contains(&name), "a fault breaks {name}");
    }
    let unknown: Vec<&String> = planted.iter().filter(|name| clauses::find(name).is_none()).collect();
    assert!(unknown.is_empty(), "there are no such clauses: {unknown:#?}");
}

#[test]
fn citations_name_clauses() {
    let citations = citations::read_all();
    assert!(citations.len() > 500, "only {} citations were found", citations.len());
    let unknown: Vec<_> = citations.iter().filter(|cited| clauses::find(&cited.clause).is_none()).collect();
    assert!(unknown.is_empty(), "there are no such clauses: {unknown:#?}");
}

#[test]
fn pages_of_libfabric_say_what_the_clauses_say() {
    check_package("libfabric-dev");
}

/// Debian has librpma for few processors.
#[cfg(target_arch = "x86_64")]
#[test]
fn pages_of_librpma_say_what_the_clauses_say() {
    check_package("librpma-dev");
}

fn check_package(package: &str) {
    let mut differences = Vec::new();
    for page in clauses::pages().iter().filter(|page| page.package.as_deref() == Some(package)) {
        let source = man_pages::read(&page.page);
        let Some(source) = Prerequisite::MANUAL_PAGES.report_skipped_if_none(source, &page.page) else {
            continue;
        };
        let found = man_pages::compare(page, &source);
        if man_pages::is_of_another_date(page, &source) {
            Prerequisite::DOCUMENTED_MANUAL_PAGES.report_skipped(format!("{}: {found:#?}", page.page));
        } else {
            differences.extend(found);
        }
    }
    assert!(differences.is_empty(), "{differences:#?}");
}

/// With the environment variable `HOMESPUN_WRITE`, writes the tables instead.
#[test]
fn documents_have_every_clause_and_citation() {
    let citations = citations::read_all();
    for path in ["docs/fi_cq.md", "docs/rpma.md"] {
        documents::check_or_write(path, &citations);
    }
}
