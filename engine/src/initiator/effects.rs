//! The effects that an initiator asks its caller for.

use crate::completion::{EndedOperation, FailedOperation, WorkEnd};
use crate::flags::CounterEvents;

/// What an initiator asks of its caller: effects outside its own state.
///
/// The caller must not call the initiator from an effect.
pub(crate) trait InitiatorEffects {
    /// Reports an operation that has succeeded.
    ///
    /// # Errors
    ///
    /// Hands the completion back if there is no room.
    fn complete(&mut self, completion: EndedOperation) -> Result<(), EndedOperation>;

    /// Reports an operation that has failed.
    ///
    /// # Errors
    ///
    /// Hands the failure back if there is no room.
    fn fail(&mut self, failure: FailedOperation) -> Result<(), FailedOperation>;

    /// Whether the endpoint has counters.
    fn has_counters(&self) -> bool;

    /// Counts an operation that has succeeded.
    fn count(&mut self, events: CounterEvents);

    /// Counts an operation that has failed.
    fn count_error(&mut self, events: CounterEvents);

    /// Records the end of deferred work. Returns whether and how to report the operation.
    fn record_deferred_work_end(&mut self, number: u64, has_succeeded: bool) -> WorkEnd;
}
