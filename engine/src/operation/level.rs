//! When an operation completes, and what is reported then.

use crate::wire::AwaitedReply;

/// The soonest that a send completes: `fi_cq(3)`, "Completion event semantics". The weakest comes
/// first; of a message [`Commit`](Self::Commit) asks no more than [`Delivery`](Self::Delivery).
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
    /// A message is acknowledged once its last byte was placed or buffered, however it travels, so
    /// this level and [`Level::Transmit`] are reached at the same moment.
    Delivery,
    /// The peer's application has matched the message, and it is in its buffer, or has thrown it away
    /// (`FI_MATCH_COMPLETE`).
    Match,
    /// What was written to persistent memory is durable (`FI_COMMIT_COMPLETE`). For anything but a
    /// write it is [`Level::Delivery`].
    Commit,
}

impl Level {
    /// What the sender has to hear of a message before this level is reached.
    pub(crate) fn awaited_reply(self) -> AwaitedReply {
        match self {
            Level::Inject => AwaitedReply::Nothing,
            Level::Transmit | Level::Delivery | Level::Commit => AwaitedReply::Arrival,
            Level::Match => AwaitedReply::Match,
        }
    }

    /// Whether what was written to a peer's memory is to be seen by all processors of the host before.
    #[inline]
    pub(crate) fn needs_visibility(self) -> bool {
        match self {
            Level::Inject | Level::Transmit => false,
            Level::Delivery | Level::Match | Level::Commit => true,
        }
    }
}

/// Whether an operation's success is reported, and where.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signalled {
    /// The counters alone.
    No,
    /// The counters, and the completion queue.
    Yes,
    /// The queue of deferred work (`fi_trigger(3)`), by
    /// [`Sink::deferred_work_ended`](crate::completion::Sink::deferred_work_ended), and as that returns. Failures are
    /// reported there, too. The operation's context is its number there.
    Deferred,
}
