//! When an operation completes, and where it reports its success.

use crate::wire::AwaitedReply;

/// The earliest point at which a send completes: `fi_cq(3)`, "Completion event semantics". The
/// weakest level comes first. For a message, [`Commit`](Self::Commit) means the same as
/// [`Delivery`](Self::Delivery).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Level {
    /// The engine will not read the source buffer again (`FI_INJECT_COMPLETE`). The default.
    #[default]
    Inject,
    /// The peer's endpoint holds the whole message (`FI_TRANSMIT_COMPLETE`).
    Transmit,
    /// The message is in the peer's posted buffer, or the peer's endpoint has buffered all of it
    /// (`FI_DELIVERY_COMPLETE`).
    ///
    /// A receiver always acknowledges a message only once the message's last byte is placed or
    /// buffered. So a message reaches this level at the same moment as [`Level::Transmit`].
    Delivery,
    /// A receive of the peer has matched the message. The message is in the buffer of the receive,
    /// or was discarded (`FI_MATCH_COMPLETE`).
    Match,
    /// The bytes written to persistent memory are durable (`FI_COMMIT_COMPLETE`). For all
    /// operations but writes this level means [`Level::Delivery`].
    Commit,
}

impl Level {
    /// Returns the reply that the sender of a message must await for this level.
    pub(crate) fn awaited_reply(self) -> AwaitedReply {
        match self {
            Level::Inject => AwaitedReply::Nothing,
            Level::Transmit | Level::Delivery | Level::Commit => AwaitedReply::Arrival,
            Level::Match => AwaitedReply::Match,
        }
    }

    /// Whether this level requires that all processors of the host see a write to mapped memory.
    #[inline]
    pub(crate) fn needs_visibility(self) -> bool {
        match self {
            Level::Inject | Level::Transmit => false,
            Level::Delivery | Level::Match | Level::Commit => true,
        }
    }
}

/// Whether an operation reports its success, and where.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signalled {
    /// On the counters only.
    No,
    /// On the counters and the completion queue.
    Yes,
    /// On the queue of deferred work (`fi_trigger(3)`). The engine calls
    /// [`Sink::record_deferred_work_end`](crate::completion::Sink::record_deferred_work_end) for success
    /// and for failure. The result of this call says what else to report. The context of the
    /// operation is the number of the work.
    Deferred,
}
