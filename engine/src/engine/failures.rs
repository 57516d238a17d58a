//! Connections that end with the first operation that fails: see docs/decisions/failed-connections.md.

use super::Engine;
use crate::completion::{EndedOperation, FailedOperation, Sink};
use crate::connecting::Connection;
use crate::error::{Error, OperationError};
use crate::failure_watch::FailureWatch;
use crate::operation::TransmitRequest;
use crate::transport::Close;

impl Engine {
    /// Makes the connection of this endpoint end with the first operation that fails. Call this before the
    /// endpoint posts any operation.
    ///
    /// When an operation has ended with an error, the link of the connection ends, and all other operations
    /// end with [`OperationError::Flushed`], posted receives in the order of posting. Messages that no
    /// receive has taken are dropped. [`ConnectionReport::Shutdown`] follows, with
    /// [`ConnectionEnd::OperationFailed`]. A cancelled operation and a peek that finds nothing do not count
    /// as failed. An operation that fails before the connection is up fails alone.
    ///
    /// Operations that are posted later end as flushed, too, until this side [shuts the connection
    /// down](Self::shutdown): see [`flush_late_post`](Self::flush_late_post).
    ///
    /// [`ConnectionReport::Shutdown`]: crate::connection::ConnectionReport::Shutdown
    /// [`ConnectionEnd::OperationFailed`]: crate::connection::ConnectionEnd::OperationFailed
    pub fn end_connection_on_failure(&mut self) {
        self.ends_on_failure = true;
        self.set_failure_watch(FailureWatch::On);
    }

    /// Ends the connection if it must end with the first failure. The caller has just reported an operation
    /// that has failed.
    #[cold]
    pub(super) fn end_connection_after_failure(&mut self, sink: &mut impl Sink) {
        if !self.ends_on_failure {
            return;
        }
        match self.connection.connection_to_shut_down() {
            Ok(Some(established)) => {
                let (link, error) = (established.link, OperationError::Flushed);
                // Nothing can follow a frame that is cut off.
                let is_between_frames = self.links.get(link).is_some_and(|link| link.tx.is_between_frames());
                let tells_peer = is_between_frames && self.receive_side.has_watched_failure();
                let farewell = tells_peer.then(|| Connection::receive_failed_header(established));
                self.late_posts_to = Some(established.peer);
                // Operations that must not end before the link does are flushed later.
                self.initiator.set_failure_watch(FailureWatch::Ended);
                self.drop_all_messages(sink);
                // What the link has taken still reaches the peer: sends that have completed are not lost.
                self.end_link_and_close_later(link, Close::Drain, error, sink);
                if let Some(closing) = self.condemned.back_mut() {
                    closing.farewell = farewell;
                }
                self.receive_side.set_failure_watch(FailureWatch::Ended);
            }
            // The connection has ended by itself, or none was made. If a receive has failed by its message,
            // later receives must not succeed. Otherwise they may take messages that had arrived.
            Ok(None) => {
                self.initiator.set_failure_watch(FailureWatch::Ended);
                if self.receive_side.has_watched_failure() {
                    self.drop_all_messages(sink);
                    self.receive_side.set_failure_watch(FailureWatch::Off);
                }
            }
            // No connection is up yet: the operation has failed alone.
            Err(_) => self.set_failure_watch(FailureWatch::On),
        }
    }

    /// Accepts an operation that could not be posted, since a failure has ended the connection, and ends it
    /// as flushed. Whether the application posts before the engine finds the failure or after, the operation
    /// has the same end.
    ///
    /// # Errors
    ///
    /// `refusal` if the connection has not ended in this way, or this side has shut it down since.
    /// [`Again::QueueFull`](crate::error::Again::QueueFull).
    #[cold]
    pub fn flush_late_post(
        &mut self,
        request: &mut TransmitRequest,
        refusal: Error,
        sink: &mut impl Sink,
    ) -> Result<(), Error> {
        let Some(to) = self.late_posts_to else { return Err(refusal) };
        self.check_length_and_depth(0)?;
        let TransmitRequest { op, options, context } = request;
        let (flags, signalled) = (op.completion_flags(), options.signalled);
        let completion = EndedOperation::of_transmit(*context, flags, op.take_buffer());
        let failure = FailedOperation { completion, error: OperationError::Flushed, target: Some(to) };
        let (initiator, mut effects) = self.initiator_and_effects(sink);
        initiator.report_immediate_failure(to, failure, signalled, &mut effects);
        Ok(())
    }

    /// Refuses later posts again, since this side shuts the connection down.
    pub(super) fn refuse_late_posts(&mut self) {
        if self.late_posts_to.take().is_some() {
            self.receive_side.set_failure_watch(FailureWatch::Off);
        }
    }

    fn drop_all_messages(&mut self, sink: &mut impl Sink) {
        let (receiver, mut effects) = self.receive_side_and_effects(sink);
        receiver.drop_all_messages(&OperationError::Flushed, &mut effects);
    }

    /// Ends the connection if an operation has failed and the connection must end with it. A call that posts
    /// a receive calls this before, so that the receive takes no later message, and after, as the receive
    /// may have failed.
    #[cold]
    pub(super) fn end_connection_if_failed(&mut self, sink: &mut impl Sink) {
        if self.has_watched_failure() {
            self.end_connection_after_failure(sink);
        }
    }

    /// Whether the connection must end, since an operation has failed.
    pub(super) fn has_watched_failure(&self) -> bool {
        self.receive_side.has_watched_failure() || self.initiator.has_watched_failure()
    }

    fn set_failure_watch(&mut self, failure_watch: FailureWatch) {
        self.receive_side.set_failure_watch(failure_watch);
        self.initiator.set_failure_watch(failure_watch);
    }
}
