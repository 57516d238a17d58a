//! The checks at the end of every program of works. The test has already checked the counters.

use homespun::OperationError;

use super::fixture::{CONSTANT, CONSTANT_AT, SUM_AT, own_number_offset};
use super::operations::number_written_by;
use super::program::{Action, WorkEffect};
use super::reference::Reference;
use super::run::{Observed, Runner};

pub(super) fn check_works(runner: &Runner<'_>) {
    let (reference, seen) = (&runner.reference, &runner.seen);
    let is_done = reference.upper_bound().is_done;
    for (number, work) in reference.works.iter().enumerate() {
        let WorkEffect::Post { action, is_reported, .. } = work.effect else { continue };
        check_report(number, action, is_done[number] && is_reported, is_done[number], seen);
    }
    check_memory(reference, &is_done, seen);
    assert_each_message_arrives_once(reference, &is_done, seen);
    assert_works_of_a_counter_are_done_in_order(reference, seen);
}

fn check_report(number: usize, action: Action, is_reported: bool, is_done: bool, seen: &Observed) {
    let report = &seen.reports[number];
    match (report, action) {
        (Some(Err(OperationError::Cancelled)), _) => {
            assert!(seen.cancelled.contains(&number), "work {number} was not cancelled");
        }
        (Some(Err(_)), Action::WriteInVain) => assert!(is_done, "work {number} was done"),
        (Some(Ok(_)), Action::WriteInVain) | (Some(Err(_)), _) => panic!("work {number}: {report:?}"),
        (Some(Ok(found)), _) => {
            assert!(is_reported, "work {number} was reported");
            match action {
                Action::Read => assert_eq!(*found, CONSTANT, "work {number}"),
                Action::CompareSwap => assert_eq!(*found, 0, "work {number} was done twice"),
                _ => {}
            }
        }
        (None, _) => {
            let must_report = is_reported || is_done && action == Action::WriteInVain;
            assert!(!must_report, "work {number} was not reported");
        }
    }
}

fn check_memory(reference: &Reference, is_done: &[bool], seen: &Observed) {
    let word = |at: usize| u64::from_le_bytes(seen.region[at..at + 8].try_into().expect("a word"));
    assert_eq!(word(CONSTANT_AT), CONSTANT);
    let mut additions = 0;
    for (number, work) in reference.works.iter().enumerate() {
        let WorkEffect::Post { action, .. } = work.effect else { continue };
        let expected = match action {
            Action::Write | Action::CompareSwap if is_done[number] => number_written_by(number),
            _ => 0,
        };
        assert_eq!(word(own_number_offset(number)), expected, "the place of work {number}");
        let adds = matches!(action, Action::Add | Action::FetchAdd);
        additions += u64::from(adds && is_done[number]);
    }
    assert_eq!(word(SUM_AT), additions, "the additions that were done");
}

fn assert_each_message_arrives_once(reference: &Reference, is_done: &[bool], seen: &Observed) {
    for is_tagged in [false, true] {
        let is_sent = |number: &usize| {
            let is_send = matches!(reference.works[*number].effect,
                WorkEffect::Post { action: Action::Send { is_tagged: posted }, .. } if posted == is_tagged);
            is_send && is_done[*number]
        };
        let expected: Vec<usize> = (0..reference.works.len()).filter(is_sent).collect();
        let mut arrived = seen.sent[usize::from(is_tagged)].clone();
        arrived.sort_unstable();
        assert_eq!(arrived, expected, "the works whose messages have arrived");
    }
}

/// Checks the order of works that wait for one counter and post the same kind of operation. Their receives
/// match, their messages arrive, and their accesses change the element in the order in which the works
/// became due.
fn assert_works_of_a_counter_are_done_in_order(reference: &Reference, seen: &Observed) {
    for (one, first) in reference.works.iter().enumerate() {
        for (other, second) in reference.works.iter().enumerate() {
            let (WorkEffect::Post { action, .. }, WorkEffect::Post { action: same, .. }) =
                (first.effect, second.effect)
            else {
                continue;
            };
            if action != same || one == other || !reference.is_done_before(one, other) {
                continue;
            }
            let turns = match action {
                Action::Send { is_tagged } => {
                    let sent = &seen.sent[usize::from(is_tagged)];
                    [one, other].map(|work| sent.iter().position(|sent| *sent == work).map(|at| at as u64))
                }
                Action::Receive { .. } | Action::FetchAdd => [one, other]
                    .map(|work| seen.reports[work].as_ref().and_then(|report| report.as_ref().ok().copied())),
                _ => continue,
            };
            if let [Some(first), Some(second)] = turns {
                assert!(first < second, "work {other} was done before work {one}");
            }
        }
    }
}
