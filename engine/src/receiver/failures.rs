//! Receives that fail by their message, on an endpoint whose connection ends with the first failure.
//!
//! Such a receive was too short, or its payload could not be read. From then on no receive takes a message,
//! until the caller has [ended](super::Receiver::fail_all_and_close) the connection.

use super::{MemberId, Receiver, ReceiverEffects};
use crate::error::OperationError;
use crate::failure_watch::FailureWatch;
use crate::operation::UnexpectedId;

impl Receiver {
    /// Watches for receives that fail by their message, or ends the watch.
    pub(crate) fn set_failure_watch(&mut self, failure_watch: FailureWatch) {
        self.failure_watch = failure_watch;
        self.update_special_cases();
    }

    /// Whether a receive has failed, so that the caller must end the connection.
    #[inline(always)]
    pub(crate) fn has_watched_failure(&self) -> bool {
        self.failure_watch.asks_for_end()
    }

    /// Whether a receive that is posted now fails at once: a failure has ended the connection, and this side
    /// has not shut it down.
    pub(super) fn flushes_posts(&self) -> bool {
        self.failure_watch == FailureWatch::Ended
    }

    /// Records that a receive has failed by its message.
    pub(super) fn record_failure_if_watched(&mut self) {
        if self.failure_watch.record_failure() {
            self.update_special_cases();
        }
    }

    /// Drops the messages that no receive has taken, and fails the receives that wait for their turn. The
    /// caller ends the connection next.
    pub(crate) fn drop_all_messages(&mut self, error: &OperationError, effects: &mut impl ReceiverEffects) {
        self.drop_messages_of_member(MemberId::ONLY, error, effects);
    }

    /// If a receive has failed, drops a message that a search has taken. Otherwise returns the message.
    pub(super) fn drop_found_after_failure(
        &mut self,
        found: Option<UnexpectedId>,
        effects: &mut impl ReceiverEffects,
    ) -> Option<UnexpectedId> {
        let id = found?;
        if !self.has_watched_failure() {
            return Some(id);
        }
        self.remove_unexpected_and_return_credit(id, effects);
        None
    }
}
