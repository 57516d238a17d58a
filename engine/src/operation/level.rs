//! When an operation completes, and what it reports then.

use crate::wire::AwaitedReply;

/// The earliest point at which a send completes: `fi_cq(3)`, "Completion event semantics". Weakest
/// first. For a message, [`Commit`](Self::Commit) means the same as [`Delivery`](Self::Delivery).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Level {
    /// The source buffer will not be read again (`FI_INJECT_COMPLETE`). The default.
    #[default]
    Inject,
    /// The peer's endpoint holds the whole message (`FI_TRANSMIT_COMPLETE`).
    Transmit,
    /// The message was placed in the peer's posted buffer, or is wholly buffered there
    /// (`FI_DELIVERY_COMPLETE`).
    ///
    /// The receiver acknowledges a message once its last byte is placed or buffered, on every path,
    /// so this level and [`Level::Transmit`] are reached at the same moment.
    Delivery,
    /// The peer's application has matched the message, and it is in its buffer or was discarded
    /// (`FI_MATCH_COMPLETE`).
    Match,
    /// The bytes written to persistent memory are durable (`FI_COMMIT_COMPLETE`). For any operation
    /// but a write this is [`Level::Delivery`].
    Commit,
}

impl Level {
    /// The reply to a message that the sender awaits before this level is reached.
    pub(crate) fn awaited_reply(self) -> AwaitedReply {
        match self {
            Level::Inject => AwaitedReply::Nothing,
            Level::Transmit | Level::Delivery | Level::Commit => AwaitedReply::Arrival,
            Level::Match => AwaitedReply::Match,
        }
    }

    /// Whether this level requires that all processors of the host see a write to a peer's memory.
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
    /// On the queue of deferred work (`fi_trigger(3)`), through
    /// [`Sink::deferred_work_ended`](crate::completion::Sink::deferred_work_ended), and as that
    /// returns. Failures, too, are reported there. The operation's context is its number there.
    Deferred,
}
