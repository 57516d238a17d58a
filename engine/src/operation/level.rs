//! When an operation completes, and where it reports its success.

use crate::mutated;
use crate::wire::AwaitedReply;

/// The earliest point at which a send completes: `fi_cq(3)`, "Completion event semantics". The weakest level
/// comes first.
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
    /// A receiver acknowledges a message only when the last byte is placed or buffered. So a message reaches
    /// this level together with [`Level::Transmit`].
    Delivery,
    /// A receive of the peer has taken the message, or the peer has discarded the message
    /// (`FI_MATCH_COMPLETE`). A message that a receive has taken is in the receive's buffer.
    Match,
    /// The bytes written to persistent memory are durable (`FI_COMMIT_COMPLETE`). Only writes have this
    /// level. For a message it would mean no more than [`Level::Delivery`].
    Commit,
}

impl Level {
    /// Returns the reply that the sender of a message must await for this level.
    pub(crate) fn awaited_reply(self) -> AwaitedReply {
        match self {
            Level::Inject => AwaitedReply::Nothing,
            Level::Transmit | Level::Delivery if mutated!("fi_cq/level-is-a-minimum") => {
                AwaitedReply::Nothing
            }
            Level::Match if mutated!("fi_cq/match-depends-on-receiver") => AwaitedReply::Arrival,
            Level::Transmit | Level::Delivery | Level::Commit => AwaitedReply::Arrival,
            Level::Match if mutated!("fi_tagged/tagged-match-or-discard") => AwaitedReply::Arrival,
            Level::Match => AwaitedReply::Match,
        }
    }

    /// Whether a write to mapped memory must be visible to all processors before it completes at this level.
    #[inline]
    pub(crate) fn needs_visibility(self) -> bool {
        match self {
            Level::Inject | Level::Transmit => false,
            Level::Delivery | Level::Match | Level::Commit => true,
        }
    }
}

/// What a flush makes sure of when it completes. In both cases, all earlier writes and atomic operations of
/// the endpoint on the peer have been carried out, and are visible to the peer's processors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum FlushKind {
    /// Nothing else.
    #[default]
    Visibility,
    /// The range is durable, too, including the bytes that others have written to it. The region must be of
    /// persistent memory.
    Persistent,
}

/// Whether an operation reports its success, and where.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signalled {
    /// On the counters only.
    No,
    /// On the counters and the completion queue.
    Yes,
    /// As deferred work (`fi_trigger(3)`). The engine calls
    /// [`Sink::record_deferred_work_end`](crate::completion::Sink::record_deferred_work_end) for success and
    /// for failure. The result of this call says what else to report. The operation's context is the number
    /// of the work.
    Deferred,
}
