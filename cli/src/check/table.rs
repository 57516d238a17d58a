//! The table of outcomes, topic by topic.

use std::collections::BTreeMap;

use homespun_suite::Outcome;

use super::Finding;
use crate::plain_table::{new_table, render_table};

/// How the tests of one topic have ended.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Tally {
    passed: usize,
    not_offered: usize,
    failed: usize,
    crashed: usize,
}

impl Tally {
    fn count(&mut self, outcome: &Outcome) {
        match outcome {
            Outcome::Passed => self.passed += 1,
            Outcome::NotOffered(_) => self.not_offered += 1,
            Outcome::Failed(_) => self.failed += 1,
            Outcome::Crashed(_) => self.crashed += 1,
        }
    }

    fn cells(&self, name: &str) -> [String; 5] {
        let number = |count: usize| if count == 0 { "-".to_owned() } else { count.to_string() };
        [
            name.to_owned(),
            number(self.passed),
            number(self.not_offered),
            number(self.failed),
            number(self.crashed),
        ]
    }
}

/// Counts the outcomes of each topic.
pub(super) fn by_topic(findings: &[Finding]) -> BTreeMap<&'static str, Tally> {
    let mut tallies: BTreeMap<&'static str, Tally> = BTreeMap::new();
    for finding in findings {
        tallies.entry(finding.subject.topic().trim_end_matches(':')).or_default().count(&finding.outcome);
    }
    tallies
}

/// The table, with the sums below.
pub(super) fn render(tallies: &BTreeMap<&'static str, Tally>) -> String {
    let mut table = new_table(["topic", "passed", "not offered", "failed", "crashed"], 1);
    let mut all = Tally::default();
    for (topic, tally) in tallies {
        table.add_row(tally.cells(topic));
        all.passed += tally.passed;
        all.not_offered += tally.not_offered;
        all.failed += tally.failed;
        all.crashed += tally.crashed;
    }
    table.add_row(all.cells("all"));
    render_table(&table)
}
