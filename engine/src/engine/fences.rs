//! Fences: `FI_FENCE`, `fi_endpoint(3)`.
//!
//! A fenced send waits at the head of its peer's queue, and so does everything behind it, until all sends before it have
//! completed and have reached its level. What the sender does not know by itself, such as whether messages have arrived
//! of which it did not ask to hear, it asks for:
//!
//! ```text
//!  sender                           receiver
//!    Message, Message, ...  ----->
//!    Fence(matched?)        ----->    waits until all of them are matched, if that is asked for
//!                          <-----   Fenced
//!    the fenced message     ----->
//! ```
//!
//! Nothing follows a fence before its answer, so the receiver has nothing to count: what it keeps unmatched of a link was
//! there before the fence.

use super::Engine;
use super::links::{Link, Links};
use crate::completion::Sink;
use crate::operation::Send;
use crate::transport::{LinkId, Transport};
use crate::wire::{Awaits, Header};

/// What the sender knows of the messages before a fence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fence {
    /// Nothing was asked for.
    Open,
    /// The peer was asked.
    Asked { matched: bool },
    /// When the link had taken so much, all of it had arrived; or also been matched.
    Met { matched: bool, taken_frames: u64 },
}

impl Link {
    /// Whether everything that the link has taken has completed, and reached the level of a fenced send.
    fn is_fence_met(&self, awaits: Awaits) -> bool {
        let all_completed = self.writing.is_none()
            && self.requests.is_empty()
            && self.awaiting_ack.is_empty()
            && self.awaiting_match.is_empty();
        let is_known = match (awaits, self.fence) {
            (Awaits::Nothing, _) => true,
            (_, Fence::Met { matched, taken_frames }) => {
                taken_frames == self.taken_frames && (matched || awaits == Awaits::Arrival)
            }
            _ => self.taken_frames == 0,
        };
        all_completed && is_known
    }
}

impl Links {
    /// Whether a send that is the next for its peer has to wait. Asks the peer for what has to be known.
    pub(super) fn is_held_by_fence(
        &mut self,
        id: LinkId,
        send: &Send,
        transport: &mut impl Transport,
    ) -> bool {
        if !send.fence {
            return false;
        }
        let awaits = send.message.awaits;
        let Some(link) = self.of(id) else { return false };
        if link.is_fence_met(awaits) {
            return false;
        }
        let has_all_completed = link.is_fence_met(Awaits::Nothing);
        let is_asked = matches!(link.fence, Fence::Asked { .. });
        if has_all_completed && !is_asked {
            let matched = awaits == Awaits::Match;
            if transport.send_inline(id, &Header::Fence { matched }, &[]).is_ok() {
                link.fence = Fence::Asked { matched };
            }
        }
        true
    }
}

impl Engine {
    /// The peer asks whether all that it has sent has arrived, which it has, and perhaps whether it was matched.
    pub(super) fn fence_asked(&mut self, id: LinkId, matched: bool, sink: &mut impl Sink) {
        let Some(link) = self.links.of(id) else { return };
        if link.fence_is_pending {
            return self.condemn(id, "sends a fence behind a fence", sink);
        }
        if matched && link.unmatched_messages > 0 {
            link.fence_is_pending = true;
        } else {
            self.owe(id, Header::Fenced);
        }
    }

    /// The peer answers.
    pub(super) fn fence_answered(&mut self, id: LinkId, sink: &mut impl Sink) {
        let Some(link) = self.links.of(id) else { return };
        let Fence::Asked { matched } = link.fence else {
            return self.condemn(id, "answers a fence that was not sent", sink);
        };
        link.fence = Fence::Met { matched, taken_frames: link.taken_frames };
        let peer = link.peer;
        self.activate(peer);
    }
}
