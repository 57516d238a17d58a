//! Reports of ended operations that wait for room in the application's queue.

use std::collections::VecDeque;

use crate::completion::{EndedOperation, FailedOperation};
use crate::peer_id::PeerId;

/// The report of an ended operation: its completion or its failure.
pub(crate) type ReportOutcome = Result<EndedOperation, Box<FailedOperation>>;

/// Reports that found no room in the queue, in order. An operation counts as outstanding while its
/// report waits.
#[derive(Debug, Default)]
pub(crate) struct HeldReports {
    outcomes: VecDeque<ReportOutcome>,
}

impl HeldReports {
    pub(crate) fn len(&self) -> usize {
        self.outcomes.len()
    }

    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.outcomes.is_empty()
    }

    /// Returns the sources and targets of the operations.
    pub(crate) fn peers(&self) -> impl Iterator<Item = PeerId> {
        self.outcomes
            .iter()
            .flat_map(|outcome| match outcome {
                Ok(completion) => [completion.source, None],
                Err(failure) => [failure.completion.source, failure.target],
            })
            .flatten()
    }

    /// Reports a success with `complete`, unless earlier reports wait. If earlier reports wait or
    /// `complete` hands the completion back, keeps the completion in order.
    #[inline(always)]
    pub(crate) fn complete_or_hold(
        &mut self,
        completion: EndedOperation,
        complete: impl FnOnce(EndedOperation) -> Result<(), EndedOperation>,
    ) {
        if self.outcomes.is_empty() {
            if let Err(refused) = complete(completion) {
                self.outcomes.push_back(Ok(refused));
            }
        } else {
            self.outcomes.push_back(Ok(completion));
        }
    }

    /// Keeps a report behind those that already wait.
    pub(crate) fn hold(&mut self, outcome: ReportOutcome) {
        self.outcomes.push_back(outcome);
    }

    /// As [`complete_or_hold`](Self::complete_or_hold), for a failure.
    pub(crate) fn fail_or_hold(
        &mut self,
        failure: FailedOperation,
        fail: impl FnOnce(FailedOperation) -> Result<(), FailedOperation>,
    ) {
        if self.outcomes.is_empty() {
            if let Err(refused) = fail(failure) {
                self.outcomes.push_back(Err(Box::new(refused)));
            }
        } else {
            self.outcomes.push_back(Err(Box::new(failure)));
        }
    }

    /// Passes the waiting reports to `report` in order, until `report` hands a report back for lack
    /// of room.
    pub(crate) fn deliver(&mut self, mut report: impl FnMut(ReportOutcome) -> Result<(), ReportOutcome>) {
        while let Some(outcome) = self.outcomes.pop_front() {
            if let Err(refused) = report(outcome) {
                self.outcomes.push_front(refused);
                return;
            }
        }
    }
}
