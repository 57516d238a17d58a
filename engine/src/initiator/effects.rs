//! What an initiator asks for.

use crate::completion::{Completion, Failure, WorkEnd};
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
    fn complete(&mut self, completion: Completion) -> Result<(), Completion>;

    /// Reports an operation that has failed.
    ///
    /// # Errors
    ///
    /// Hands it back if there is no room.
    fn fail(&mut self, failure: Failure) -> Result<(), Failure>;

    /// Whether operations are counted at all.
    fn counts(&self) -> bool;

    /// Counts an operation that has succeeded.
    fn count(&mut self, events: CounterEvents);

    /// Counts an operation that has failed.
    fn count_error(&mut self, events: CounterEvents);

    /// An operation that was deferred work has ended. Returns what else to report of it.
    fn work_ended(&mut self, number: u64, has_succeeded: bool) -> WorkEnd;
}
