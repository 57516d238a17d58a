//! Fences: `FI_FENCE`, `fi_endpoint(3)`.
//!
//! A fenced send or access waits at the head of its peer's queue. It goes when all earlier
//! operations on the peer have completed and have reached the level of the fenced operation. The
//! sender does not know everything itself, for example whether unacknowledged messages have
//! arrived. So it asks the peer:
//!
//! ```text
//!  sender                           receiver
//!    Message, Message, ...  ----->
//!    Fence(matched?)        ----->    waits until all of them are matched, if that is asked for
//!                          <-----   Fenced
//!    the fenced message     ----->
//! ```
//!
//! If the fenced send is cancelled, the sender may send more messages before the peer has answered
//! the fence. The answer does not cover these messages. So both sides remember which messages came
//! before the fence. A link has at most one unanswered fence.

use super::Engine;
use crate::completion::Sink;
use crate::link::Links;
use crate::mutated;
use crate::operation::Send;
use crate::protocol_violation::ProtocolViolation;
use crate::transport::{LinkId, Transport};
use crate::wire::Header;

/// Returns whether a fenced operation, which is the first in its peer's queue, may go now. All
/// operations on all links of the peer must have completed, also on links to a former instance. The
/// operations on the link `id` must have reached the level of the fenced operation. If this side
/// does not know this, it asks the peer by a `Fence` frame.
#[cold]
pub(super) fn try_pass_fence(
    links: &mut Links,
    id: LinkId,
    links_of_peer: &[LinkId],
    send: &Send,
    transport: &mut impl Transport,
) -> bool {
    if mutated!("fi_cq/fence-delays") {
        return true;
    }
    let awaits = send.message.awaits;
    if links_of_peer
        .iter()
        .any(|other| links.get(*other).is_some_and(|link| !link.tx.all_operations_have_completed()))
    {
        return false;
    }
    let Some(link) = links.get_mut(id) else { return true };
    if link.tx.all_operations_have_reached_level(awaits) || mutated!("fi_cq/fence-completion-covers-earlier")
    {
        return true;
    }
    if !link.tx.is_fence_unanswered() {
        let matched = awaits.wants_match();
        if transport.send_inline(id, &Header::Fence { matched }, &[]).is_ok() {
            link.tx.record_fence_sent(matched);
        }
    }
    false
}

impl Engine {
    /// Handles a fence of the peer. A fence asks whether the peer's earlier messages have arrived.
    /// They have, since a link keeps the order. With `asks_match`, the answer waits until receives
    /// have matched these messages.
    pub(super) fn fence_arrived(&mut self, id: LinkId, asks_match: bool, sink: &mut impl Sink) {
        let is_fenced = |header: &Header| *header == Header::Fenced;
        let is_unanswered =
            self.links.get(id).is_some_and(|link| link.tx.pending_replies().has_header(is_fenced));
        if is_unanswered {
            return self.abort_breached_link(id, "sends a fence before the last one was answered", sink);
        }
        let (receiver, mut effects) = self.receive_side_and_effects(sink);
        let outcome = receiver.fence_asked(id, asks_match, &mut effects);
        self.abort_link_on_fault(id, outcome, sink);
    }

    /// Handles the peer's answer to a fence.
    pub(super) fn fence_answer_arrived(&mut self, id: LinkId, sink: &mut impl Sink) {
        let Some(link) = self.links.get_mut(id) else { return };
        if let Err(ProtocolViolation(reason)) = link.tx.record_fence_answer() {
            return self.abort_breached_link(id, reason, sink);
        }
        let peer = link.peer();
        self.initiator.activate(peer);
    }
}
