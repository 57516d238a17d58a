//! The effects of an initiator.

use crate::completion::{EndedOperation, FailedOperation, WorkEnd};
use crate::flags::CounterEvents;

/// The effects beyond an initiator's own state, which its caller carries out.
///
/// No effect calls the initiator again before the call that caused it has returned.
pub(crate) trait InitiatorEffects {
    /// Reports an operation that has succeeded.
    ///
    /// # Errors
    ///
    /// Hands it back if there is no room.
    fn complete(&mut self, completion: EndedOperation) -> Result<(), EndedOperation>;

    /// Reports an operation that has failed.
    ///
    /// # Errors
    ///
    /// Hands it back if there is no room.
    fn fail(&mut self, failure: FailedOperation) -> Result<(), FailedOperation>;

    /// Whether operations are counted at all.
    fn has_counters(&self) -> bool;

    /// Counts an operation that has succeeded.
    fn count(&mut self, events: CounterEvents);

    /// Counts an operation that has failed.
    fn count_error(&mut self, events: CounterEvents);

    /// Records the end of an operation that was deferred work. Returns what else to report of it.
    fn deferred_work_ended(&mut self, number: u64, has_succeeded: bool) -> WorkEnd;
}
