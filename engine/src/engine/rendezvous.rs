//! The sender's side of a rendezvous: payload stays in the sender's memory until the peer has
//! pulled it, or asks for it. The stages of a rendezvous are in `link/tx/requests.rs`.

use super::Engine;
use crate::completion::Sink;
use crate::link::{Frame, SendProtocol, op_number_of};
use crate::operation::SendId;
use crate::protocol_violation::ProtocolViolation;
use crate::transport::{Full, LinkCaps, LinkId, RemotePayload, Sent, Transport};
use crate::wire::{Header, Outcome};

impl Engine {
    /// Offers the peer its first queued send. The peer then pulls the payload, or asks for it.
    /// Returns `None` if the peer was to pull, but the memory cannot be exposed and the message may
    /// travel eagerly.
    pub(super) fn transmit_offer(
        &mut self,
        id: LinkId,
        send_id: SendId,
        protocol: SendProtocol,
        caps: &LinkCaps,
        transport: &mut impl Transport,
    ) -> Option<Result<(), Full>> {
        let send = self.initiator.get(send_id)?;
        let link = self.links.get_mut(id)?;
        let exposed = match (link.tx.take_exposed(send_id), protocol) {
            (Some(remote), _) => Some(remote),
            (None, SendProtocol::Pulled) => transport.expose(id, &send.source.slices(0)),
            (None, _) => None,
        };
        let remote = match exposed.filter(|remote| remote.as_bytes().len() <= caps.inline_max_bytes) {
            Some(remote) => remote,
            None if link.tx.choose_protocol_without_pull(&send.message, self.config.eager_max_bytes)
                == SendProtocol::Eager =>
            {
                return None;
            }
            None => RemotePayload::default(),
        };
        let bytes = remote.as_bytes();
        let remote_bytes = u8::try_from(bytes.len()).ok()?;
        let header = Header::Request { message: send.message, op: op_number_of(send_id), remote_bytes };
        let sent = transport.send_inline(id, &header, bytes);
        match sent {
            Ok(()) => link.tx.offer_sent(send_id, !bytes.is_empty()),
            Err(Full) => link.tx.keep_exposed(send_id, remote),
        }
        Some(sent)
    }

    /// Handles the peer's request for payload.
    pub(super) fn offer_cleared(&mut self, id: LinkId, op: u64, cannot_pull: bool, sink: &mut impl Sink) {
        let Some(link) = self.links.get_mut(id) else { return };
        if let Err(ProtocolViolation(reason)) = link.tx.clear_received(op, cannot_pull) {
            return self.abort_breached_link(id, reason, sink);
        }
        let peer = link.peer();
        self.initiator.activate(peer);
    }

    /// Handles the peer's report that it has the payload of a message, or with `fault` that it
    /// could not read it.
    pub(super) fn offer_done(&mut self, id: LinkId, op: u64, fault: bool, sink: &mut impl Sink) {
        let Some(link) = self.links.get_mut(id) else { return };
        let is_message = |send| self.initiator.is_message(send);
        let send = match link.tx.offer_done(op, fault, is_message) {
            Ok(send) => send,
            Err(ProtocolViolation(reason)) => return self.abort_breached_link(id, reason, sink),
        };
        let outcome = if fault { Outcome::Fault } else { Outcome::Done };
        self.answered(id, send, outcome, sink);
    }

    /// Sends payload that the peer has asked for. Returns whether the link can take messages.
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
                link.tx.record_partial_frame(Frame::Data, send_id, taken_bytes);
                return false;
            }
            self.requested_payload_taken(id, send_id, sink);
        }
        true
    }

    /// Records that the link has taken all of a payload that the peer has asked for.
    pub(super) fn requested_payload_taken(&mut self, id: LinkId, send_id: SendId, sink: &mut impl Sink) {
        let Some(link) = self.links.get_mut(id) else { return };
        let awaits_answer = self.initiator.needs_answer(send_id);
        if link.tx.payload_taken_ends_send(send_id, awaits_answer) {
            self.completed(send_id, sink);
        }
    }
}
