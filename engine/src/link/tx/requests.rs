//! The sender's side of a rendezvous. Payload stays in the sender's memory until the peer pulls it
//! or asks for it.
//!
//! A message is offered in three cases: the transport prefers that the peer pulls it, it is too long
//! to travel eagerly, or there is too little credit for its payload. If the peer cannot pull, it asks for the
//! payload.
//!
//! ```text
//!  queued --Request--> Offered --Done--> ended
//!                         |
//!                         +--Clear--> Cleared --Data--> Sent --Done--> ended
//!                                                 |
//!                                                 +--(INJECT_COMPLETE)--> ended
//! ```

use std::collections::VecDeque;

use slotmap::Key;

use super::LinkTx;
use crate::limits::MESSAGE_COST_BYTES;
use crate::operation::{Send, SendId};
use crate::protocol_violation::ProtocolViolation;
use crate::transport::{LinkCaps, RemotePayload};
use crate::wire::Message;

/// The offers and accesses that this side has begun on a link and the peer has not answered.
#[derive(Debug, Default)]
pub(super) struct Requests {
    /// The offers and accesses in the order in which they began. They end in about the same order,
    /// so a search from the front is short.
    begun: VecDeque<Request>,
    /// Sends whose payload the peer has asked for, in the order of asking. The link has not begun
    /// to take these payloads.
    cleared: VecDeque<SendId>,
    /// The send that is first in the peer's queue, and the description of its exposed memory. Kept
    /// only if the link had no room for the send's offer.
    next: Option<(SendId, RemotePayload)>,
    /// Whether the peer has said that it cannot pull. If so, this side exposes nothing more to it.
    peer_cannot_pull: bool,
}

#[derive(Debug)]
struct Request {
    send: SendId,
    stage: RequestStage,
    /// Whether the offer describes memory that the peer's transport can read.
    is_remote: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestStage {
    /// The link has taken the offer. If the offer describes exposed memory, the peer may be reading
    /// this memory.
    Offered,
    /// This side has requested data from the peer's memory.
    Requested,
    /// The peer has asked for the payload, or the link has begun to take it.
    Cleared,
    /// The link has taken all of the payload.
    Sent,
}

impl Requests {
    pub(super) fn is_empty(&self) -> bool {
        self.begun.is_empty()
    }

    /// Adds an access to the peer's memory.
    pub(super) fn add_access(&mut self, send: SendId, stage: RequestStage) {
        self.begun.push_back(Request { send, stage, is_remote: stage == RequestStage::Offered });
    }

    /// Removes an access to the peer's memory that has ended.
    pub(super) fn remove_access(&mut self, send: SendId) {
        if let Some(place) = self.position_of(send) {
            self.begun.remove(place);
        }
    }

    /// Returns the unfinished sends of an ended link.
    pub(super) fn into_sends(self) -> Vec<SendId> {
        self.begun.into_iter().map(|request| request.send).collect()
    }

    /// Returns the operation with this number, and its position in the list. The number comes from
    /// the peer, so it may be a number that this side never sent.
    fn find(&self, op: u64) -> Option<(usize, &Request)> {
        self.begun.iter().enumerate().find(|(_, request)| op_number_of(request.send) == op)
    }

    fn position_of(&self, send: SendId) -> Option<usize> {
        self.begun.iter().position(|request| request.send == send)
    }
}

/// Returns the number under which the peer knows a send.
pub(crate) fn op_number_of(send: SendId) -> u64 {
    send.data().as_ffi()
}

/// When a send ends after the link has taken its payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SendEnd {
    Now,
    /// The peer's answer ends the send, or has ended it already.
    WithAnswer,
}

/// The protocol by which a message is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SendProtocol {
    /// The message travels with its payload.
    Eager,
    /// The message is offered, and the peer pulls it if this side's transport can expose its
    /// memory.
    Pulled,
    /// The message is offered, and the peer requests its payload.
    Requested,
    /// The message waits for credit.
    Waiting,
}

impl LinkTx {
    /// Chooses the protocol of a message on this link.
    #[inline(always)]
    pub(crate) fn choose_protocol(
        &self,
        send: &Send,
        caps: &LinkCaps,
        eager_max_bytes: usize,
    ) -> SendProtocol {
        let Message { len_bytes, .. } = send.message;
        let left_bytes = self.credit_bytes();
        let is_pulled = len_bytes >= caps.pull_min_bytes as u64 && send.may_be_fetched && len_bytes > 0;
        if left_bytes < MESSAGE_COST_BYTES {
            SendProtocol::Waiting
        } else if is_pulled && !self.requests.peer_cannot_pull {
            SendProtocol::Pulled
        } else {
            self.choose_protocol_without_pull(&send.message, eager_max_bytes)
        }
    }

    /// Chooses the protocol of a message that the peer does not pull. There must be credit for an
    /// offer.
    #[inline(always)]
    pub(crate) fn choose_protocol_without_pull(
        &self,
        message: &Message,
        eager_max_bytes: usize,
    ) -> SendProtocol {
        let is_small = message.len_bytes <= eager_max_bytes as u64;
        if is_small && message.eager_cost_bytes() <= self.credit_bytes() {
            SendProtocol::Eager
        } else {
            SendProtocol::Requested
        }
    }

    /// Whether this side may expose payload to the peer: the peer has not said that it cannot pull.
    pub(crate) fn may_expose(&self) -> bool {
        !self.requests.peer_cannot_pull
    }

    /// Removes the description that [`keep_exposed_description`](Self::keep_exposed_description)
    /// has kept. Returns it if it belongs to this send.
    pub(crate) fn take_exposed_description(&mut self, send: SendId) -> Option<RemotePayload> {
        self.requests.next.take().filter(|(exposed, _)| *exposed == send).map(|(_, remote)| remote)
    }

    /// Keeps the description of a send's exposed memory, since the link had no room for the offer.
    pub(crate) fn keep_exposed_description(&mut self, send: SendId, remote: RemotePayload) {
        self.requests.next = Some((send, remote));
    }

    /// Whether the peer has yet to get offered payload.
    pub(crate) fn has_unfetched_payload(&self) -> bool {
        let is_needed = |stage| matches!(stage, RequestStage::Offered | RequestStage::Cleared);
        self.requests.begun.iter().any(|request| is_needed(request.stage))
    }

    /// Whether the peer may be reading exposed payload.
    pub(crate) fn has_exposed_payload(&self) -> bool {
        self.requests.begun.iter().any(|request| request.stage == RequestStage::Offered && request.is_remote)
    }

    /// Returns the operation with the number that the peer names, and its stage.
    pub(crate) fn send_and_stage_of(&self, op: u64) -> Option<(SendId, RequestStage)> {
        self.requests.find(op).map(|(_, request)| (request.send, request.stage))
    }

    /// Records that the link took the offer of a message. If `is_remote`, the offer describes
    /// exposed memory.
    pub(crate) fn record_offer_sent(&mut self, send: SendId, is_remote: bool) {
        self.credit.spend(MESSAGE_COST_BYTES);
        self.taken_frames += 1;
        self.requests.begun.push_back(Request { send, stage: RequestStage::Offered, is_remote });
    }

    /// Records that the peer asks for the payload of an offer. With `cannot_pull`, also records
    /// that the peer cannot pull.
    ///
    /// # Errors
    ///
    /// A [`ProtocolViolation`] if the payload was not offered.
    pub(crate) fn record_clear(&mut self, op: u64, cannot_pull: bool) -> Result<(), ProtocolViolation> {
        let offered = self.requests.find(op).filter(|(_, request)| request.stage == RequestStage::Offered);
        let (place, _) = offered.ok_or(ProtocolViolation("asks for what was not offered"))?;
        let request = &mut self.requests.begun[place];
        request.stage = RequestStage::Cleared;
        self.requests.cleared.push_back(request.send);
        if cannot_pull {
            self.requests.peer_cannot_pull = true;
            self.requests.next = None;
        }
        Ok(())
    }

    /// Returns the next send whose payload the peer has asked for.
    pub(crate) fn next_cleared(&self) -> Option<SendId> {
        self.requests.cleared.front().copied()
    }

    /// Removes the first cleared send. The link has begun to take its payload, or the send has
    /// ended.
    pub(crate) fn pop_cleared(&mut self) {
        self.requests.cleared.pop_front();
    }

    /// Records that the link took all of a requested payload. Returns when the send ends: now, or
    /// with the peer's answer if `awaits_answer` is true.
    pub(crate) fn record_payload_sent(&mut self, send: SendId, awaits_answer: bool) -> SendEnd {
        let Some(place) = self.requests.position_of(send) else { return SendEnd::WithAnswer };
        if awaits_answer {
            self.requests.begun[place].stage = RequestStage::Sent;
            return SendEnd::WithAnswer;
        }
        self.requests.begun.remove(place);
        self.unanswered_payloads += 1;
        SendEnd::Now
    }

    /// Records that the peer has the payload of a message. With `fault`, the peer could not read
    /// the payload. Returns the send of the message, which has now ended.
    ///
    /// # Errors
    ///
    /// A [`ProtocolViolation`] if no message with this number waits for the answer `Done`, or if
    /// `fault` is set although the link has carried the payload. `is_message` tells messages from
    /// accesses, which `Done` does not answer.
    pub(crate) fn take_done_send(
        &mut self,
        op: u64,
        fault: bool,
        is_message: impl FnOnce(SendId) -> bool,
    ) -> Result<SendId, ProtocolViolation> {
        let place = self.requests.find(op).and_then(|(place, request)| match request.stage {
            RequestStage::Offered => Some((place, request.send)),
            // The link has carried this payload, so the peer cannot have failed to read it from
            // memory.
            RequestStage::Sent if !fault => Some((place, request.send)),
            RequestStage::Sent | RequestStage::Cleared | RequestStage::Requested => None,
        });
        let (place, send) = place
            .filter(|(_, send)| is_message(*send))
            .ok_or(ProtocolViolation("is done with what was not offered"))?;
        self.requests.begun.remove(place);
        Ok(send)
    }
}
