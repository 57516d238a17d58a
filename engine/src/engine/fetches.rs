//! The receiver's side of a rendezvous: messages that are fetched from where they are, or asked for.
//!
//! ```text
//!  Request --> Waiting (neither a receive nor room for it)
//!     |           |
//!     +--> Pulling --> all there: owes Done
//!             |
//!             +--> cannot pull: owes Clear --> Cleared --Data--> all there: owes Done, if the sender waits for it
//!             |
//!             +--> Fault: owes Done(fault), and the receive fails
//!             |
//!             +--> Gone: left to the end of the link
//! ```
//!
//! A request that nobody has asked for is fetched all the same if the budget for unexpected messages has room for its
//! payload, so that its sender need not wait for the receiver; but not if the sender waits for the match in any case.
//!
//! What follows from a frame is done later, where the transport can be called: at the next
//! [`transmit`](Engine::transmit), before anything is sent.

use std::io::IoSliceMut;
use std::mem;

use super::Engine;
use super::arrival::clamp;
use super::incoming::{Filling, Place};
use crate::completion::Sink;
use crate::error::OperationError;
use crate::limits::{DEFERRED_STEP_MAX_FETCHES, MESSAGE_COST_BYTES, PULL_PASS_MAX_BYTES};
use crate::operation::FetchId;
use crate::transport::{LinkId, Pull, Remote, Transport};
use crate::wire::{Awaits, Header, Message};

/// A message that its sender has offered to have fetched.
#[derive(Debug)]
pub(super) struct Fetch {
    pub(super) filling: Filling,
    pub(super) link: LinkId,
    /// The sender's number for it.
    op: u64,
    stage: Stage,
    /// The credit that it holds because it was thrown away while its sender is asked for it: else a peer that never sends
    /// it could offer more without end.
    pub(super) held_bytes: u64,
}

#[derive(Debug)]
enum Stage {
    /// Nobody has asked for it, and there is no room for it, or its sender waits for the match in any case.
    Waiting(Remote),
    /// It is pulled step by step.
    Pulling(Remote),
    /// Its sender was asked for it.
    Cleared,
    /// Its sender is gone, and the link is about to end.
    Gone,
}

impl Engine {
    /// A request has arrived.
    pub(super) fn requested(
        &mut self,
        id: LinkId,
        message: &Message,
        op: u64,
        remote: &[u8],
        sink: &mut impl Sink,
    ) {
        let Some(link) = self.links.of(id) else { return };
        let source = link.peer;
        if link.fetches.contains_key(&op) {
            return self.condemn(id, "offers two messages under one number", sink);
        }
        let Some(remote) = Remote::new(remote) else {
            return self.condemn(id, "describes its payload at too great a length", sink);
        };
        if !self.admit(id, MESSAGE_COST_BYTES, sink) {
            return;
        }
        let (place, stage) = match self.matched(source, message, sink) {
            Some(receive) => {
                self.pass(id, MESSAGE_COST_BYTES);
                (Place::Posted(receive), Stage::Pulling(remote))
            }
            None => match self.keep_request(id, message) {
                Some(unexpected) => (Place::Unexpected(unexpected), Stage::Waiting(remote)),
                None => return,
            },
        };
        let filling = Filling { message: *message, arrived_bytes: 0, place };
        let fetch = self.fetches.insert(Box::new(Fetch { filling, link: id, op, stage, held_bytes: 0 }));
        if let Some(link) = self.links.of(id) {
            link.fetches.insert(op, fetch);
        }
        let Place::Unexpected(unexpected) = place else { return self.pulling.push_back(fetch) };
        if let Some(unexpected) = self.unexpected.get_mut(unexpected) {
            unexpected.fetch = Some(fetch);
        }
        if message.awaits != Awaits::Match && self.budget.could_hold(message.len_bytes) {
            // What was matched meanwhile stays in the list until it is its turn, but not for ever.
            if self.deferred.len() > 2 * self.fetches.len() {
                let fetches = &self.fetches;
                self.deferred.retain(|fetch| fetches.contains_key(*fetch));
            }
            self.deferred.push_back(fetch);
            self.fetch_deferred();
        }
    }

    /// Begins to fetch what has its place already.
    pub(super) fn begin_fetch_of(&mut self, link: LinkId, op: u64, filling: Filling, remote: Remote) {
        let stage = Stage::Pulling(remote);
        let fetch = self.fetches.insert(Box::new(Fetch { filling, link, op, stage, held_bytes: 0 }));
        if let Some(link) = self.links.of(link) {
            link.fetches.insert(op, fetch);
        }
        self.pulling.push_back(fetch);
    }

    /// Begins to fetch what nobody has asked for, as far as there is room for it. What is too large now lets others pass:
    /// it is left to its turn, or to the receive that matches it.
    pub(super) fn fetch_deferred(&mut self) {
        for _ in 0..self.deferred.len().min(DEFERRED_STEP_MAX_FETCHES) {
            let Some(id) = self.deferred.pop_front() else { return };
            if let Some(fetch) = self.fetches.get(id)
                && let Place::Unexpected(unexpected) = fetch.filling.place
                && !self.make_room_for(unexpected)
            {
                self.deferred.push_back(id);
                continue;
            }
            self.begin_fetch(id);
        }
    }

    /// Whether there is room for any of what nobody has asked for.
    pub(super) fn may_fetch_deferred(&self) -> bool {
        self.deferred.iter().filter_map(|id| self.fetches.get(*id)).any(|fetch| {
            matches!(fetch.stage, Stage::Waiting(_)) && self.budget.has_room(fetch.filling.message.len_bytes)
        })
    }

    /// A message that is fetched, or waits for it, goes to another place.
    pub(super) fn place_fetch(&mut self, id: FetchId, place: Place) {
        if let Some(fetch) = self.fetches.get_mut(id) {
            fetch.filling.place = place;
            self.begin_fetch(id);
        }
    }

    /// Lets a message that was thrown away hold its credit, if its sender was asked for it. Returns whether it does.
    pub(super) fn hold_until_fetched(&mut self, id: FetchId, cost_bytes: u64) -> bool {
        let asked_for = self.fetches.get_mut(id).filter(|fetch| matches!(fetch.stage, Stage::Cleared));
        let Some(fetch) = asked_for else { return false };
        fetch.held_bytes = cost_bytes;
        true
    }

    fn begin_fetch(&mut self, id: FetchId) {
        if let Some(fetch) = self.fetches.get_mut(id)
            && let Stage::Waiting(remote) = &mut fetch.stage
        {
            fetch.stage = Stage::Pulling(mem::take(remote));
            self.pulling.push_back(id);
        }
    }

    /// Goes a step further with everything that is to be pulled, as far as one pass goes.
    pub(super) fn pull(&mut self, transport: &mut impl Transport, sink: &mut impl Sink) {
        let mut pulled_bytes = 0;
        for _ in 0..self.pulling.len() {
            if pulled_bytes >= PULL_PASS_MAX_BYTES {
                return;
            }
            let Some(id) = self.pulling.pop_front() else { return };
            pulled_bytes += self.pull_step(id, transport, sink);
        }
    }

    /// Pulls the next bytes of a message. Returns how many.
    fn pull_step(&mut self, id: FetchId, transport: &mut impl Transport, sink: &mut impl Sink) -> usize {
        let Some(fetch) = self.fetches.get_mut(id) else { return 0 };
        let Stage::Pulling(remote) = &fetch.stage else { return 0 };
        let Filling { message, arrived_bytes, place } = fetch.filling;
        let wanted_bytes = match place {
            Place::Posted(receive) => {
                let room = self.receives.get(receive).map_or(0, |receive| receive.destination.len_bytes());
                message.len_bytes.min(room as u64)
            }
            Place::Unexpected(_) => message.len_bytes,
            Place::Inbound(inbound) => {
                let is_wanted = self.inbounds.get_mut(inbound).is_some_and(|inbound| inbound.is_wanted());
                if is_wanted { message.len_bytes } else { 0 }
            }
            Place::Read(_) | Place::Nowhere => 0,
        };
        if arrived_bytes >= wanted_bytes {
            self.fetched(id, sink);
            return 0;
        }
        if remote.as_bytes().is_empty() {
            self.ask_for(id, false);
            return 0;
        }
        if self.links.of(fetch.link).is_none_or(|link| link.cannot_pull) {
            self.ask_for(id, true);
            return 0;
        }
        let step_bytes = clamp(wanted_bytes - arrived_bytes).min(self.pull_step_max_bytes);
        let pulled = match place {
            Place::Posted(receive) => self.receives.get_mut(receive).map_or(Pull::Gone, |receive| {
                let mut space = receive.destination.space(clamp(arrived_bytes), step_bytes);
                transport.pull(fetch.link, remote, arrived_bytes, &mut space)
            }),
            Place::Unexpected(unexpected) => {
                self.unexpected.get_mut(unexpected).map_or(Pull::Gone, |unexpected| {
                    let before_bytes = unexpected.bytes.len();
                    unexpected.bytes.resize(before_bytes + step_bytes, 0);
                    let mut space = [IoSliceMut::new(&mut unexpected.bytes[before_bytes..])];
                    let pulled = transport.pull(fetch.link, remote, arrived_bytes, &mut space);
                    if pulled != Pull::Done {
                        unexpected.bytes.truncate(before_bytes);
                    }
                    pulled
                })
            }
            Place::Inbound(inbound) => self.inbounds.get_mut(inbound).map_or(Pull::Gone, |inbound| {
                inbound.pull(fetch.link, remote, arrived_bytes, step_bytes, transport)
            }),
            Place::Read(_) | Place::Nowhere => return 0,
        };
        match pulled {
            Pull::Done => {
                fetch.filling.arrived_bytes += step_bytes as u64;
                if fetch.filling.arrived_bytes < wanted_bytes {
                    self.pulling.push_back(id);
                } else {
                    self.fetched(id, sink);
                }
                return step_bytes;
            }
            Pull::Refused => {
                if let Some(link) = self.links.of(fetch.link) {
                    link.cannot_pull = true;
                }
                self.ask_for(id, true);
            }
            Pull::Fault => self.fetch_faulted(id, sink),
            Pull::Gone => fetch.stage = Stage::Gone,
        }
        0
    }

    /// Has the sender send it, all of it: what was pulled before is not believed.
    fn ask_for(&mut self, id: FetchId, cannot_pull: bool) {
        let Some(fetch) = self.fetches.get_mut(id) else { return };
        fetch.stage = Stage::Cleared;
        fetch.filling.arrived_bytes = 0;
        if let Place::Unexpected(unexpected) = fetch.filling.place
            && let Some(unexpected) = self.unexpected.get_mut(unexpected)
        {
            unexpected.bytes.clear();
        }
        let (link, op) = (fetch.link, fetch.op);
        self.owe(link, Header::Clear { op, cannot_pull });
    }

    /// The start of a payload that the peer says it was asked for: whose it is, if it was.
    pub(super) fn asked_for(&mut self, id: LinkId, op: u64, len_bytes: u64) -> Option<FetchId> {
        let fetch_id = *self.links.of(id)?.fetches.get(&op)?;
        let fetch = self.fetches.get(fetch_id)?;
        let is_asked_for =
            matches!(fetch.stage, Stage::Cleared) && fetch.filling.message.len_bytes == len_bytes;
        is_asked_for.then_some(fetch_id)
    }

    /// A payload that was asked for is all there.
    pub(super) fn data_arrived(&mut self, id: FetchId, sink: &mut impl Sink) {
        if let Some(fetch) = self.take_fetch(id) {
            if matches!(fetch.filling.place, Place::Inbound(_)) {
                return self.inbound_ended(fetch.link, &fetch.filling, false, sink);
            }
            if fetch.filling.message.awaits != Awaits::Nothing {
                self.owe(fetch.link, Header::Done { op: fetch.op, fault: false });
            }
            self.filled(fetch.link, &fetch.filling, sink);
        }
    }

    /// As much as is wanted of a message has been pulled.
    fn fetched(&mut self, id: FetchId, sink: &mut impl Sink) {
        if let Some(fetch) = self.take_fetch(id) {
            if matches!(fetch.filling.place, Place::Inbound(_)) {
                return self.inbound_ended(fetch.link, &fetch.filling, false, sink);
            }
            self.owe(fetch.link, Header::Done { op: fetch.op, fault: false });
            self.filled(fetch.link, &fetch.filling, sink);
        }
    }

    fn fetch_faulted(&mut self, id: FetchId, sink: &mut impl Sink) {
        if let Some(fetch) = self.take_fetch(id) {
            if matches!(fetch.filling.place, Place::Inbound(_)) {
                return self.inbound_ended(fetch.link, &fetch.filling, true, sink);
            }
            self.owe(fetch.link, Header::Done { op: fetch.op, fault: true });
            if let Some(source) = self.links.of(fetch.link).map(|link| link.peer) {
                self.abandon(source, &fetch.filling, &OperationError::Fault, sink);
            }
        }
    }

    fn take_fetch(&mut self, id: FetchId) -> Option<Box<Fetch>> {
        let fetch = self.fetches.remove(id)?;
        if let Some(link) = self.links.of(fetch.link) {
            link.fetches.remove(&fetch.op);
            if fetch.held_bytes > 0 {
                link.grant.free(fetch.held_bytes, &mut self.budget);
                self.renew_credit(fetch.link);
            }
        }
        Some(fetch)
    }
}
