//! The sender's side of a rendezvous. Payload stays in the sender's memory until the peer pulls it
//! or asks for it. The stages of a rendezvous are in `link/tx/requests.rs`.

use super::Engine;
use crate::completion::Sink;
use crate::link::{FrameKind, SendEnd, SendProtocol, op_number_of};
use crate::operation::SendId;
use crate::protocol_violation::ProtocolViolation;
use crate::transport::{LinkCaps, LinkId, RemotePayload, Sent, Transport};
use crate::wire::{Header, Outcome};

/// The result of offering a message to a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OfferOutcome {
    /// The link has taken the offer.
    Sent,
    /// The link has no room for the offer.
    Full,
    /// The memory cannot be exposed to the peer. The message may travel eagerly.
    SendEagerly,
    /// The send or the link has ended.
    Gone,
}

impl Engine {
    /// Offers the peer the send that is first in its queue. The peer then pulls the payload, or
    /// asks for it.
    pub(super) fn transmit_offer(
        &mut self,
        id: LinkId,
        send_id: SendId,
        protocol: SendProtocol,
        caps: &LinkCaps,
        transport: &mut impl Transport,
    ) -> OfferOutcome {
        let (Some(send), Some(link)) = (self.initiator.get(send_id), self.links.get_mut(id)) else {
            return OfferOutcome::Gone;
        };
        let exposed = match (link.tx.take_exposed_description(send_id), protocol) {
            (Some(remote), _) => Some(remote),
            (None, SendProtocol::Pulled) => transport.expose(id, &send.source.slices(0)),
            (None, _) => None,
        };
        let remote = match exposed.filter(|remote| remote.as_bytes().len() <= caps.inline_max_bytes) {
            Some(remote) => remote,
            None if link.tx.choose_protocol_without_pull(&send.message, self.config.eager_max_bytes)
                == SendProtocol::Eager =>
            {
                return OfferOutcome::SendEagerly;
            }
            None => RemotePayload::default(),
        };
        let bytes = remote.as_bytes();
        let Ok(remote_bytes) = u8::try_from(bytes.len()) else { return OfferOutcome::SendEagerly };
        let header = Header::Request { message: send.message, op: op_number_of(send_id), remote_bytes };
        if transport.send_inline(id, &header, bytes).is_err() {
            link.tx.keep_exposed_description(send_id, remote);
            return OfferOutcome::Full;
        }
        link.tx.record_offer_sent(send_id, !bytes.is_empty());
        OfferOutcome::Sent
    }

    /// Handles the peer's request for payload.
    pub(super) fn clear_arrived(&mut self, id: LinkId, op: u64, cannot_pull: bool, sink: &mut impl Sink) {
        let Some(link) = self.links.get_mut(id) else { return };
        if let Err(ProtocolViolation(reason)) = link.tx.record_clear(op, cannot_pull) {
            return self.abort_breached_link(id, reason, sink);
        }
        let peer = link.peer();
        self.initiator.activate(peer);
    }

    /// Handles the peer's report that it has the payload of a message. With `fault`, the peer could
    /// not read the payload.
    pub(super) fn done_arrived(&mut self, id: LinkId, op: u64, fault: bool, sink: &mut impl Sink) {
        let Some(link) = self.links.get_mut(id) else { return };
        let is_message = |send| self.initiator.is_message(send);
        let send = match link.tx.take_done_send(op, fault, is_message) {
            Ok(send) => send,
            Err(ProtocolViolation(reason)) => return self.abort_breached_link(id, reason, sink),
        };
        let outcome = if fault { Outcome::Fault } else { Outcome::Done };
        self.end_with_answer(id, send, outcome, sink);
    }

    /// Sends payloads that the peer has asked for. Returns whether the link has taken all of them.
    pub(super) fn try_send_cleared(
        &mut self,
        id: LinkId,
        transport: &mut impl Transport,
        sink: &mut impl Sink,
    ) -> bool {
        while let Some(link) = self.links.get_mut(id)
            && let Some(send_id) = link.tx.next_cleared()
        {
            let Some(send) = self.initiator.get(send_id) else {
                link.tx.pop_cleared();
                continue;
            };
            let header = Header::Data { op: op_number_of(send_id), len_bytes: send.message.len_bytes };
            let sent = transport.send(id, &header, &send.source.slices(0));
            if sent == Sent::Full {
                return false;
            }
            link.tx.pop_cleared();
            if let Sent::Partial(taken_bytes) = sent {
                link.tx.record_partial_frame(FrameKind::Data, send_id, taken_bytes);
                return false;
            }
            self.record_requested_payload_sent(id, send_id, sink);
        }
        true
    }

    /// Records that the link has taken all of a payload that the peer asked for. Ends the send,
    /// unless the send needs the peer's answer.
    pub(super) fn record_requested_payload_sent(
        &mut self,
        id: LinkId,
        send_id: SendId,
        sink: &mut impl Sink,
    ) {
        let Some(link) = self.links.get_mut(id) else { return };
        let awaits_answer = self.initiator.needs_answer(send_id);
        if link.tx.record_payload_sent(send_id, awaits_answer) == SendEnd::Now {
            self.end_with_success(send_id, sink);
        }
    }
}
