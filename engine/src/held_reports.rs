//! Ends of operations that wait for room in the application's queue.

use std::collections::VecDeque;

use crate::completion::{EndedOperation, FailedOperation};

/// The end of an operation, as it is reported.
pub(crate) type ReportOutcome = Result<EndedOperation, Box<FailedOperation>>;

/// Keeps what the queue had no room for, in order, so that nothing is lost and no link has to wait. What
/// waits here still counts as outstanding.
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

    /// Reports what has succeeded, or keeps it behind what waits already.
    #[inline(always)]
    pub(crate) fn report(
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

    /// Keeps the end of an operation behind what waits already.
    pub(crate) fn keep(&mut self, outcome: ReportOutcome) {
        self.outcomes.push_back(outcome);
    }

    /// As [`report`](Self::report), of a failure.
    pub(crate) fn report_failure(
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

    /// Reports what waits, as far as there is room now: `report` hands back what it has no room for.
    pub(crate) fn deliver(&mut self, mut report: impl FnMut(ReportOutcome) -> Result<(), ReportOutcome>) {
        while let Some(outcome) = self.outcomes.pop_front() {
            if let Err(refused) = report(outcome) {
                self.outcomes.push_front(refused);
                return;
            }
        }
    }
}
