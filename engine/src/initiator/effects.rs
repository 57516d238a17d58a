//! What an initiator asks for.

use crate::completion::{EndedOperation, FailedOperation, WorkEnd};
use crate::flags::CounterEvents;

/// What an initiator has done beside its own state: its caller carries it out.
///
/// None of it comes back to the initiator before the call that caused it has returned.
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

    /// An operation that was deferred work has ended. Returns what else to report of it.
    fn deferred_work_ended(&mut self, number: u64, has_succeeded: bool) -> WorkEnd;
}
