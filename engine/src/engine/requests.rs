//! The sender's side of a rendezvous: payload that stays where it is until the peer has fetched it, or asks for it.
//!
//! A message travels so if the peer can pull it and that pays, if it is too long to travel eagerly, or if the peer has not
//! given enough credit for it. Where nothing can be pulled, the peer asks.
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

use super::Engine;
use super::links::{Frame, Link, Writing};
use crate::completion::Sink;
use crate::error::OperationError;
use crate::limits::MESSAGE_COST_BYTES;
use crate::operation::{Send, SendId};
use crate::receiver::eager_cost_bytes;
use crate::transport::{Full, LinkCaps, LinkId, Remote, Sent, Transport};
use crate::wire::{Awaits, Header, Message};

/// The rendezvous that this side has begun on a link.
#[derive(Debug, Default)]
pub(super) struct Requests {
    /// In the order of their posting, which is about the order in which they end.
    begun: VecDeque<Request>,
    /// Those that are cleared and not begun to be sent, in the order of clearing.
    cleared: VecDeque<SendId>,
    /// Where the peer's first queued send is, if it was exposed already and the link had no room to say so.
    next: Option<(SendId, Remote)>,
    /// The peer has said so: nothing is exposed to it any more.
    peer_cannot_pull: bool,
}

#[derive(Debug)]
struct Request {
    send: SendId,
    stage: Stage,
    /// Whether the peer was told of a place that its transport can read, and not just that there is a message.
    is_remote: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// The peer was told where it is.
    Exposed,
    /// The peer was asked for what is in its memory.
    Asked,
    /// The peer asked for it, or the link has begun to take it.
    Cleared,
    /// The link has all of it.
    Sent,
}

impl Requests {
    pub(super) fn is_empty(&self) -> bool {
        self.begun.is_empty()
    }

    /// Whether payload is still needed where it is.
    pub(super) fn have_unfetched(&self) -> bool {
        self.begun.iter().any(|request| matches!(request.stage, Stage::Exposed | Stage::Cleared))
    }

    /// Whether the peer may be reading payload where it is.
    pub(super) fn have_exposed(&self) -> bool {
        self.begun.iter().any(|request| request.stage == Stage::Exposed && request.is_remote)
    }

    /// Whether payload may be exposed to the peer: it has not said that it cannot pull.
    pub(super) fn may_expose(&self) -> bool {
        !self.peer_cannot_pull
    }

    /// Where a send is, if it was exposed already.
    pub(super) fn take_exposed(&mut self, send: SendId) -> Option<Remote> {
        self.next.take().filter(|(exposed, _)| *exposed == send).map(|(_, remote)| remote)
    }

    /// A send was exposed, and the link had no room to say so.
    pub(super) fn keep_exposed(&mut self, send: SendId, remote: Remote) {
        self.next = Some((send, remote));
    }

    /// An access to the peer's memory has begun.
    pub(super) fn begin(&mut self, send: SendId, stage: Stage) {
        self.begun.push_back(Request { send, stage, is_remote: stage == Stage::Exposed });
    }

    /// The operation that the peer means, and how far it is.
    pub(super) fn stage_of(&mut self, op: u64) -> Option<(SendId, Stage)> {
        self.find(op).map(|(_, request)| (request.send, request.stage))
    }

    /// An access to the peer's memory has ended.
    pub(super) fn end(&mut self, send: SendId) {
        if let Some(place) = self.place_of(send) {
            self.begun.remove(place);
        }
    }

    /// The sends that have not ended, of a link that has.
    pub(super) fn into_sends(self) -> Vec<SendId> {
        self.begun.into_iter().map(|request| request.send).collect()
    }

    /// The operation that the peer means, and its place. What a peer says is a number, and no number but those that it
    /// was told is one of these.
    fn find(&mut self, op: u64) -> Option<(usize, &mut Request)> {
        self.begun.iter_mut().enumerate().find(|(_, request)| op_of(request.send) == op)
    }

    fn place_of(&self, send: SendId) -> Option<usize> {
        self.begun.iter().position(|request| request.send == send)
    }
}

/// The number under which the peer knows a send.
pub(super) fn op_of(send: SendId) -> u64 {
    send.data().as_ffi()
}

/// How a message is to travel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// With its payload.
    Eager,
    /// The peer is told of it, and pulls it if the transport can let it in.
    Pulled,
    /// The peer is told of it, and asks for it.
    AskedFor,
    /// Not now: there is no credit for it.
    Waiting,
}

impl Link {
    /// How a message is to travel on this link.
    #[inline(always)]
    pub(super) fn way_of(&self, send: &Send, caps: &LinkCaps, eager_max_bytes: usize) -> Way {
        let Message { len_bytes, .. } = send.message;
        let left_bytes = self.allowance.left_bytes();
        let is_pulled = len_bytes >= caps.pull_min_bytes as u64 && send.may_be_fetched && len_bytes > 0;
        if left_bytes < MESSAGE_COST_BYTES {
            Way::Waiting
        } else if is_pulled && !self.requests.peer_cannot_pull {
            Way::Pulled
        } else {
            self.way_unpulled(&send.message, eager_max_bytes)
        }
    }

    /// How a message is to travel that the peer does not pull, and for which there is some credit.
    #[inline(always)]
    fn way_unpulled(&self, message: &Message, eager_max_bytes: usize) -> Way {
        let is_small = message.len_bytes <= eager_max_bytes as u64;
        if is_small && eager_cost_bytes(message) <= self.allowance.left_bytes() {
            Way::Eager
        } else {
            Way::AskedFor
        }
    }
}

impl Engine {
    /// Tells the peer of its first queued send, for it to be pulled or asked for. `None` if it was to be pulled, the peer
    /// cannot be let in, and it may travel eagerly instead.
    pub(super) fn request(
        &mut self,
        id: LinkId,
        send_id: SendId,
        way: Way,
        caps: &LinkCaps,
        transport: &mut impl Transport,
    ) -> Option<Result<(), Full>> {
        let send = self.sends.get(send_id)?;
        let link = self.links.of(id)?;
        let exposed = match (link.requests.take_exposed(send_id), way) {
            (Some(remote), _) => Some(remote),
            (None, Way::Pulled) => transport.expose(id, &send.source.slices(0)),
            (None, _) => None,
        };
        let remote = match exposed.filter(|remote| remote.as_bytes().len() <= caps.inline_max_bytes) {
            Some(remote) => remote,
            None if link.way_unpulled(&send.message, self.config.eager_max_bytes) == Way::Eager => {
                return None;
            }
            None => Remote::default(),
        };
        let bytes = remote.as_bytes();
        let remote_bytes = u8::try_from(bytes.len()).ok()?;
        let header = Header::Request { message: send.message, op: op_of(send_id), remote_bytes };
        let sent = transport.send_inline(id, &header, bytes);
        match sent {
            Ok(()) => {
                link.allowance.spend(MESSAGE_COST_BYTES);
                link.taken_frames += 1;
                let is_remote = !bytes.is_empty();
                link.requests.begun.push_back(Request { send: send_id, stage: Stage::Exposed, is_remote });
            }
            Err(Full) => link.requests.keep_exposed(send_id, remote),
        }
        Some(sent)
    }

    /// The peer asks for payload.
    pub(super) fn request_cleared(&mut self, id: LinkId, op: u64, cannot_pull: bool, sink: &mut impl Sink) {
        let Some(link) = self.links.of(id) else { return };
        let Some((_, request)) = link.requests.find(op).filter(|(_, r)| r.stage == Stage::Exposed) else {
            return self.condemn(id, "asks for what was not offered", sink);
        };
        request.stage = Stage::Cleared;
        let send = request.send;
        link.requests.cleared.push_back(send);
        if cannot_pull {
            link.requests.peer_cannot_pull = true;
            link.requests.next = None;
        }
        let peer = link.peer;
        self.activate(peer);
    }

    /// The peer has the payload, or could not read it.
    pub(super) fn request_done(&mut self, id: LinkId, op: u64, fault: bool, sink: &mut impl Sink) {
        let Some(link) = self.links.of(id) else { return };
        let place = link.requests.find(op).and_then(|(place, request)| match request.stage {
            Stage::Exposed => Some(place),
            // What was sent does not have to be read.
            Stage::Sent if !fault => Some(place),
            Stage::Sent | Stage::Cleared | Stage::Asked => None,
        });
        // What is no message has an answer of its own.
        let is_message = |place: &usize| {
            let send = link.requests.begun.get(*place).and_then(|request| self.sends.get(request.send));
            send.is_some_and(|send| send.one_sided.is_none())
        };
        let place = place.filter(is_message);
        let Some(request) = place.and_then(|place| link.requests.begun.remove(place)) else {
            return self.condemn(id, "is done with what was not offered", sink);
        };
        let Some(send) = self.sends.remove(request.send) else { return };
        if fault {
            self.reports.send_failed(send, OperationError::Fault, &self.peers, sink);
        } else {
            self.reports.send_completed(send, &self.peers, sink);
        }
    }

    /// Sends the payload that the peer has asked for. Returns whether the link is free for messages.
    pub(super) fn send_cleared(
        &mut self,
        id: LinkId,
        transport: &mut impl Transport,
        sink: &mut impl Sink,
    ) -> bool {
        while let Some(link) = self.links.of(id)
            && let Some(send_id) = link.requests.cleared.front().copied()
        {
            let Some(send) = self.sends.get(send_id) else {
                link.requests.cleared.pop_front();
                continue;
            };
            let header = Header::Data { op: op_of(send_id), len_bytes: send.message.len_bytes };
            let sent = transport.send(id, &header, &send.source.slices(0));
            if sent == Sent::Full {
                return false;
            }
            link.requests.cleared.pop_front();
            if let Sent::Partial(taken_bytes) = sent {
                link.writing = Some(Writing { frame: Frame::Data, send: send_id, taken_bytes });
                return false;
            }
            self.data_taken(id, send_id, sink);
        }
        true
    }

    /// The link has all of a payload that the peer has asked for.
    pub(super) fn data_taken(&mut self, id: LinkId, send_id: SendId, sink: &mut impl Sink) {
        let Some(link) = self.links.of(id) else { return };
        let Some(place) = link.requests.place_of(send_id) else { return };
        let is_answered = |send: &Send| send.one_sided.is_some() || send.message.awaits != Awaits::Nothing;
        if self.sends.get(send_id).is_some_and(is_answered) {
            link.requests.begun[place].stage = Stage::Sent;
            return;
        }
        link.requests.begun.remove(place);
        link.unanswered_payloads += 1;
        if let Some(send) = self.sends.remove(send_id) {
            self.reports.send_completed(send, &self.peers, sink);
        }
    }
}
