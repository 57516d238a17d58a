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
//! Messages follow a fence before its answer only if the fenced one was cancelled. The answer says nothing of them, so both
//! sides remember what came before the fence. There is one at a time.

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
    /// The peer was asked when the link had taken so much.
    Asked { matched: bool, taken_frames: u64 },
    /// When the link had taken so much, all of it had arrived; or also been matched.
    Met { matched: bool, taken_frames: u64 },
}

impl Link {
    /// Whether everything that the link has taken has completed.
    fn has_all_completed(&self) -> bool {
        self.writing.is_none()
            && self.requests.is_empty()
            && self.awaiting_ack.is_empty()
            && self.awaiting_match.is_empty()
    }

    /// Whether everything that the link has taken has reached the level of a fenced send, as far as this side knows.
    fn is_known_to_reach(&self, awaits: Awaits) -> bool {
        match (awaits, self.fence) {
            (Awaits::Nothing, _) => true,
            (_, Fence::Met { matched, taken_frames }) => {
                taken_frames == self.taken_frames && (matched || awaits == Awaits::Arrival)
            }
            _ => self.taken_frames == 0,
        }
    }
}

impl Links {
    /// Whether a send that is the next for its peer has to wait. Asks the peer for what has to be known. What went to a
    /// former instance, on another of the peer's links, has to have completed too.
    pub(super) fn is_held_by_fence(
        &mut self,
        id: LinkId,
        of_peer: &[LinkId],
        send: &Send,
        transport: &mut impl Transport,
    ) -> bool {
        if !send.fence {
            return false;
        }
        let awaits = send.message.awaits;
        if of_peer.iter().any(|other| self.get(*other).is_some_and(|link| !link.has_all_completed())) {
            return true;
        }
        let Some(link) = self.of(id) else { return false };
        if link.is_known_to_reach(awaits) {
            return false;
        }
        if !matches!(link.fence, Fence::Asked { .. }) {
            let matched = awaits == Awaits::Match;
            if transport.send_inline(id, &Header::Fence { matched }, &[]).is_ok() {
                link.fence = Fence::Asked { matched, taken_frames: link.taken_frames };
            }
        }
        true
    }
}

impl Engine {
    /// The peer asks whether all that it has sent has arrived, which it has, and perhaps whether it was matched.
    pub(super) fn fence_asked(&mut self, id: LinkId, matched: bool, sink: &mut impl Sink) {
        let is_unanswered = self.links.get(id).is_some_and(|link| link.owed.contains(&Header::Fenced));
        if is_unanswered {
            return self.condemn(id, "sends a fence before the last one was answered", sink);
        }
        let (receiver, mut effects) = self.receiving(sink);
        let outcome = receiver.fence_asked(id, matched, &mut effects);
        self.enforce(id, outcome, sink);
    }

    /// The peer answers.
    pub(super) fn fence_answered(&mut self, id: LinkId, sink: &mut impl Sink) {
        let Some(link) = self.links.of(id) else { return };
        let Fence::Asked { matched, taken_frames } = link.fence else {
            return self.condemn(id, "answers a fence that was not sent", sink);
        };
        link.fence = Fence::Met { matched, taken_frames };
        let peer = link.peer;
        self.activate(peer);
    }
}
