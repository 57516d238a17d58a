//! Fences: `FI_FENCE`, `fi_endpoint(3)`.
//!
//! A fenced send waits at the head of its peer's queue, and so does everything behind it, until all
//! sends before it have completed and have reached its level. The sender asks the peer for what it
//! does not know itself, such as whether messages without acknowledgement have arrived:
//!
//! ```text
//!  sender                           receiver
//!    Message, Message, ...  ----->
//!    Fence(matched?)        ----->    waits until all of them are matched, if that is asked for
//!                          <-----   Fenced
//!    the fenced message     ----->
//! ```
//!
//! Messages follow a fence before its answer only if the fenced send was cancelled. The answer does
//! not cover them, so both sides remember what came before the fence. A link has one fence at a
//! time.

use super::Engine;
use crate::completion::Sink;
use crate::link::Links;
use crate::operation::Send;
use crate::protocol_violation::ProtocolViolation;
use crate::transport::{LinkId, Transport};
use crate::wire::Header;

/// Asks the peer of a link for what must be known before its next send, a fenced one, may go.
/// Returns whether it may go. Sends to a former instance, on another of the peer's links, must have
/// completed too.
#[cold]
pub(super) fn advance_fence(
    links: &mut Links,
    id: LinkId,
    of_peer: &[LinkId],
    send: &Send,
    transport: &mut impl Transport,
) -> bool {
    let awaits = send.message.awaits;
    if of_peer.iter().any(|other| links.get(*other).is_some_and(|link| !link.tx.has_all_completed())) {
        return false;
    }
    let Some(link) = links.get_mut(id) else { return true };
    if link.tx.is_known_to_reach(awaits) {
        return true;
    }
    if !link.tx.is_fence_unanswered() {
        let matched = awaits.wants_match();
        if transport.send_inline(id, &Header::Fence { matched }, &[]).is_ok() {
            link.tx.fence_sent(matched);
        }
    }
    false
}

impl Engine {
    /// Handles the peer's question whether all its messages have arrived, which they have, and with
    /// `matched` whether they were matched.
    pub(super) fn fence_asked(&mut self, id: LinkId, matched: bool, sink: &mut impl Sink) {
        let is_fenced = |header: &Header| *header == Header::Fenced;
        let is_unanswered = self.links.get(id).is_some_and(|link| link.tx.debts().has_header(is_fenced));
        if is_unanswered {
            return self.condemn(id, "sends a fence before the last one was answered", sink);
        }
        let (receiver, mut effects) = self.receive_side_and_effects(sink);
        let outcome = receiver.fence_asked(id, matched, &mut effects);
        self.abort_on_breach(id, outcome, sink);
    }

    /// Handles the peer's answer to a fence.
    pub(super) fn fence_answered(&mut self, id: LinkId, sink: &mut impl Sink) {
        let Some(link) = self.links.get_mut(id) else { return };
        if let Err(ProtocolViolation(reason)) = link.tx.fence_answered() {
            return self.condemn(id, reason, sink);
        }
        let peer = link.peer();
        self.initiator.activate(peer);
    }
}
