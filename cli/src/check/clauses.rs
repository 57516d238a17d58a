//! What the outcomes say of the clauses of the manual pages.

use std::collections::BTreeMap;

use homespun_suite::Outcome;
use homespun_suite::clauses::{self, Kind};
use homespun_suite::model::violated_clause;

use super::{Finding, Subject};
use crate::plain_table::{new_table, render_table};

/// How the tests of a clause have ended.
#[derive(Debug, Default, Clone, Copy)]
struct Shown {
    passed: bool,
    failed: bool,
    not_offered: bool,
}

/// A table of the pages: how many promises each has, how many of them the tests of this run have shown, how
/// many belong to what is not offered, and how many a failed test or program shows. These are named below it.
pub(super) fn render(findings: &[Finding]) -> String {
    let mut shown: BTreeMap<&str, Shown> = BTreeMap::new();
    for finding in findings {
        let of_program = match &finding.outcome {
            Outcome::Failed(text) => violated_clause(text),
            _ => None,
        };
        let clauses = match &finding.subject {
            Subject::Test(test) => test.clauses,
            Subject::Program(_) | Subject::Replayed(_) => of_program.as_slice(),
        };
        for &clause in clauses {
            let shown = shown.entry(clause).or_default();
            match finding.outcome {
                Outcome::Passed => shown.passed = true,
                Outcome::NotOffered(_) => shown.not_offered = true,
                Outcome::Failed(_) | Outcome::Crashed(_) => shown.failed = true,
            }
        }
    }
    let mut table = new_table(["page", "promises", "shown", "not offered", "failed"], 1);
    let mut failed = String::new();
    for page in clauses::pages() {
        let (mut promises, mut counts) = (0, [0; 3]);
        for clause in page.clauses().filter(|clause| clause.kind == Kind::Promise) {
            promises += 1;
            let name = format!("{}/{}", page.name, clause.id);
            match shown.get(name.as_str()) {
                Some(Shown { failed: true, .. }) => {
                    counts[2] += 1;
                    failed.push_str(&format!("failed: {name}: {}\n", clause.says));
                }
                Some(Shown { passed: true, .. }) => counts[0] += 1,
                Some(Shown { not_offered: true, .. }) => counts[1] += 1,
                Some(_) | None => {}
            }
        }
        if counts != [0; 3] {
            let number = |count: usize| if count == 0 { "-".to_owned() } else { count.to_string() };
            let [shown, not_offered, failed] = counts.map(number);
            table.add_row([page.name.to_owned(), promises.to_string(), shown, not_offered, failed]);
        }
    }
    format!("{}\n{failed}", render_table(&table))
}
