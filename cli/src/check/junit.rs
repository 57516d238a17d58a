//! The outcomes as a report in JUnit's XML, which CI services show.

use std::fs::File;
use std::io;

use homespun_suite::Outcome;
use quick_junit::{NonSuccessKind, Report, TestCase, TestCaseStatus, TestSuite};

use super::Finding;

/// Writes a report with a suite for each topic.
///
/// # Errors
///
/// Errors of writing the file.
pub(super) fn write_report(file: File, checked: &str, findings: &[Finding]) -> io::Result<()> {
    let mut report = Report::new(format!("homespun check {checked}"));
    let mut by_topic: Vec<&Finding> = findings.iter().collect();
    by_topic.sort_by_key(|finding| finding.subject.topic());
    for findings in by_topic.chunk_by(|left, right| left.subject.topic() == right.subject.topic()) {
        let mut suite = TestSuite::new(findings[0].subject.topic().trim_end_matches(':'));
        suite.add_test_cases(findings.iter().map(|finding| describe(finding)));
        report.add_test_suite(suite);
    }
    report.serialize(file).map_err(io::Error::other)
}

fn describe(finding: &Finding) -> TestCase {
    let failure = |kind, text: &str| {
        let mut status = TestCaseStatus::non_success(kind);
        status.set_message(finding.place.as_deref().unwrap_or_default()).set_description(text);
        status
    };
    let status = match &finding.outcome {
        Outcome::Passed => TestCaseStatus::success(),
        Outcome::NotOffered(what) => {
            let mut status = TestCaseStatus::skipped();
            status.set_message(format!("not offered: {what}"));
            status
        }
        Outcome::Failed(text) => failure(NonSuccessKind::Failure, text),
        // JUnit's word for a test that could not come to an end.
        Outcome::Crashed(call) => failure(NonSuccessKind::Error, call),
    };
    let mut case = TestCase::new(finding.subject.to_string(), status);
    case.set_time(finding.took);
    case
}
