//! The engine's state of each link: the frame that this side is writing, the frame that it is
//! reading, and what the peer has yet to answer.
//!
//! ```text
//!  record_message_begun, record_access_begun,         begin_collecting, collect_bytes ...
//!  record_offer_sent, record_clear, ...                  |
//!     |                                                  |
//!     v                                                  v
//!  +-- LinkTx ---------------------------------+      +-- LinkRx ------------------------+
//!  | the frame that the link has taken in part |      | the frame that has arrived in    |
//!  | credit, levels, fences, order             |      | part, where neither receiver nor |
//!  | accesses and offers without an answer     |      | target takes it piece by piece   |
//!  | PendingReplies: replies for the peer      |      |                                  |
//!  +-------------------------------------------+      +----------------------------------+
//! ```
//!
//! The engine tells `LinkTx` and `LinkRx` what happens on the link. They return the ids of the
//! operations that have ended. They hold no operation, no transport and no completion queue.

mod links;
mod pending_replies;
mod rx;
#[cfg(test)]
mod tests;
mod tx;

pub(crate) use self::links::{Link, Links, Standing};
pub(crate) use self::pending_replies::PendingReplies;
pub(crate) use self::rx::{Collected, CollectedHeader, LinkRx};
pub(crate) use self::tx::{
    BegunAccess, FrameKind, LinkAccess, LinkTx, MappedRegion, PartialFrame, PendingSends, RequestStage,
    SendEnd, SendProtocol, op_number_of,
};
