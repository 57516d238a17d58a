//! The sender's side of a rendezvous: payload that stays where it is until the peer has fetched it,
//! or asks for it.
//!
//! A message travels so if the peer can pull it and that pays, if it is too long to travel eagerly,
//! or if the peer has not given enough credit for it. Where nothing can be pulled, the peer asks.
//!
//! ```text
//!  queued --Request--> Exposed --Done--> ended
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

/// The rendezvous that this side has begun on a link.
#[derive(Debug, Default)]
pub(super) struct Requests {
    /// In the order of their posting, which is about the order in which they end.
    begun: VecDeque<Request>,
    /// Those that are cleared and not begun to be sent, in the order of clearing.
    cleared: VecDeque<SendId>,
    /// Where the peer's first queued send is, if it was exposed already and the link had no room to say so.
    next: Option<(SendId, RemotePayload)>,
    /// The peer has said so: nothing is exposed to it any more.
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
    /// The peer has the description of the exposed memory.
    Exposed,
    /// The peer was asked for what is in its memory.
    Requested,
    /// The peer asked for it, or the link has begun to take it.
    Cleared,
    /// The link has all of it.
    Sent,
}

impl Requests {
    pub(super) fn is_empty(&self) -> bool {
        self.begun.is_empty()
    }

    /// An access to the peer's memory has begun.
    pub(super) fn begin(&mut self, send: SendId, stage: RequestStage) {
        self.begun.push_back(Request { send, stage, is_remote: stage == RequestStage::Exposed });
    }

    /// An access to the peer's memory has ended.
    pub(super) fn end(&mut self, send: SendId) {
        if let Some(place) = self.position_of(send) {
            self.begun.remove(place);
        }
    }

    /// The sends that have not ended, of a link that has.
    pub(super) fn into_sends(self) -> Vec<SendId> {
        self.begun.into_iter().map(|request| request.send).collect()
    }

    /// The operation with this number, and its place. The number comes from the peer, so it may be
    /// one that was never sent to it.
    fn find(&mut self, op: u64) -> Option<(usize, &mut Request)> {
        self.begun.iter_mut().enumerate().find(|(_, request)| op_number_of(request.send) == op)
    }

    fn position_of(&self, send: SendId) -> Option<usize> {
        self.begun.iter().position(|request| request.send == send)
    }
}

/// The number under which the peer knows a send.
pub(crate) fn op_number_of(send: SendId) -> u64 {
    send.data().as_ffi()
}

/// The protocol by which a message is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SendProtocol {
    /// With its payload.
    Eager,
    /// The message is offered, and the peer pulls it if the transport can expose its memory.
    Pulled,
    /// The message is offered, and the peer requests its payload.
    AskedFor,
    /// Not now: there is no credit for it.
    Waiting,
}

impl LinkTx {
    /// Chooses the protocol of a message on this link.
    #[inline(always)]
    pub(crate) fn protocol_of(&self, send: &Send, caps: &LinkCaps, eager_max_bytes: usize) -> SendProtocol {
        let Message { len_bytes, .. } = send.message;
        let left_bytes = self.credit_bytes();
        let is_pulled = len_bytes >= caps.pull_min_bytes as u64 && send.may_be_fetched && len_bytes > 0;
        if left_bytes < MESSAGE_COST_BYTES {
            SendProtocol::Waiting
        } else if is_pulled && !self.requests.peer_cannot_pull {
            SendProtocol::Pulled
        } else {
            self.protocol_without_pull(&send.message, eager_max_bytes)
        }
    }

    /// How a message is to travel that the peer does not pull, and for which there is some credit.
    #[inline(always)]
    pub(crate) fn protocol_without_pull(&self, message: &Message, eager_max_bytes: usize) -> SendProtocol {
        let is_small = message.len_bytes <= eager_max_bytes as u64;
        if is_small && message.eager_cost_bytes() <= self.credit_bytes() {
            SendProtocol::Eager
        } else {
            SendProtocol::AskedFor
        }
    }

    /// Whether payload may be exposed to the peer: it has not said that it cannot pull.
    pub(crate) fn may_expose(&self) -> bool {
        !self.requests.peer_cannot_pull
    }

    /// Where a send is, if it was exposed already.
    pub(crate) fn take_exposed(&mut self, send: SendId) -> Option<RemotePayload> {
        self.requests.next.take().filter(|(exposed, _)| *exposed == send).map(|(_, remote)| remote)
    }

    /// A send was exposed, and the link had no room to say so.
    pub(crate) fn keep_exposed(&mut self, send: SendId, remote: RemotePayload) {
        self.requests.next = Some((send, remote));
    }

    /// Whether payload is still needed where it is.
    pub(crate) fn has_unfetched(&self) -> bool {
        let is_needed = |stage| matches!(stage, RequestStage::Exposed | RequestStage::Cleared);
        self.requests.begun.iter().any(|request| is_needed(request.stage))
    }

    /// Whether the peer may be reading payload where it is.
    pub(crate) fn has_exposed(&self) -> bool {
        self.requests.begun.iter().any(|request| request.stage == RequestStage::Exposed && request.is_remote)
    }

    /// The operation that the peer means, and how far it is.
    pub(crate) fn send_and_stage_of(&mut self, op: u64) -> Option<(SendId, RequestStage)> {
        self.requests.find(op).map(|(_, request)| (request.send, request.stage))
    }

    /// The link has taken a request for a message, which says where its payload is if it `is_remote`.
    pub(crate) fn request_sent(&mut self, send: SendId, is_remote: bool) {
        self.allowance.spend(MESSAGE_COST_BYTES);
        self.taken_frames += 1;
        self.requests.begun.push_back(Request { send, stage: RequestStage::Exposed, is_remote });
    }

    /// The peer asks for payload, and may say that it cannot pull any.
    ///
    /// # Errors
    ///
    /// A [`ProtocolViolation`] if that was not offered.
    pub(crate) fn clear_received(&mut self, op: u64, cannot_pull: bool) -> Result<(), ProtocolViolation> {
        let offered = self.requests.find(op).filter(|(_, request)| request.stage == RequestStage::Exposed);
        let (_, request) = offered.ok_or(ProtocolViolation("asks for what was not offered"))?;
        request.stage = RequestStage::Cleared;
        let send = request.send;
        self.requests.cleared.push_back(send);
        if cannot_pull {
            self.requests.peer_cannot_pull = true;
            self.requests.next = None;
        }
        Ok(())
    }

    /// The send whose payload is the next that the peer has asked for.
    pub(crate) fn next_cleared(&self) -> Option<SendId> {
        self.requests.cleared.front().copied()
    }

    /// The payload that was the next is being written, or is not to be.
    pub(crate) fn pop_cleared(&mut self) {
        self.requests.cleared.pop_front();
    }

    /// The link has all of a payload that the peer has asked for, which it `is_answered` or not.
    /// Returns whether its send ends with that.
    pub(crate) fn payload_taken(&mut self, send: SendId, is_answered: bool) -> bool {
        let Some(place) = self.requests.position_of(send) else { return false };
        if is_answered {
            self.requests.begun[place].stage = RequestStage::Sent;
            return false;
        }
        self.requests.begun.remove(place);
        self.unanswered_payloads += 1;
        true
    }

    /// The peer has the payload of a message, or could not read it (`fault`). Returns the send that
    /// ends with that.
    ///
    /// # Errors
    ///
    /// A [`ProtocolViolation`] if that was not offered, or is no message, by `is_message`: what is none has an
    /// answer of its own.
    pub(crate) fn request_done(
        &mut self,
        op: u64,
        fault: bool,
        is_message: impl FnOnce(SendId) -> bool,
    ) -> Result<SendId, ProtocolViolation> {
        let place = self.requests.find(op).and_then(|(place, request)| match request.stage {
            RequestStage::Exposed => Some((place, request.send)),
            // What was sent does not have to be read.
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
