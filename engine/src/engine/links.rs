//! The links of an endpoint: coming up, going down, and what hangs on each.
//!
//! Messages to a peer travel on one link only, for their order: one that the peer opened if there is one, else one that
//! is opened for the purpose. When two endpoints connect to each other at the same moment both links stay, each side
//! sending on its own; so there is no tie to break. What a link has taken lives and dies with that link.

use std::collections::{BTreeMap, VecDeque};
use std::mem;

use tracing::debug;

use super::Engine;
use super::allowance::Allowance;
use super::direct::Direct;
use super::fences::Fence;
use super::handshakes::Standing;
use super::incoming::Incoming;
use super::ordering::{Deferred, Told};
use super::requests::Requests;
use super::rma::Accesses;
use crate::address::Address;
use crate::completion::Sink;
use crate::errno::Errno;
use crate::error::OperationError;
use crate::limits::CONNECT_RETRIES_MAX;
use crate::operation::SendId;
use crate::peer_id::PeerId;
use crate::receiver::Receiver;
use crate::target::Target;
use crate::transport::{Close, LinkError, LinkId, Transport};
use crate::wire::Header;

/// What the engine keeps of one link.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) peer: PeerId,
    pub(super) is_up: bool,
    /// Whether the endpoint that it leads to was replaced.
    pub(super) is_former: bool,
    /// The moment when the engine got to know the link, by the count of such moments. Unlike its number, no later link
    /// has it.
    pub(super) begun_at: u64,
    /// The frame that the link has taken in part.
    pub(super) writing: Option<Writing>,
    /// How many eager messages were begun on this link.
    pub(super) sent_messages: u64,
    /// Sends whose level needs the peer's acknowledgement, with the count that includes them.
    pub(super) awaiting_ack: VecDeque<(u64, SendId)>,
    /// Sends whose level needs the peer's application to match them, by their number among the eager messages.
    pub(super) awaiting_match: BTreeMap<u64, SendId>,
    /// The largest count that the peer has acknowledged.
    pub(super) acked_messages: u64,
    /// How many payloads that the peer has asked for the link has taken, and nobody answers.
    pub(super) unanswered_payloads: u64,
    /// What of messages the peer has told to have by answering what came after.
    pub(super) told: Told,
    /// What this side may send.
    pub(super) allowance: Allowance,
    /// How many messages were begun or offered on this link.
    pub(super) taken_frames: u64,
    /// What this side knows of all of them.
    pub(super) fence: Fence,
    /// What this side has offered to have fetched.
    pub(super) requests: Requests,
    /// What this side accesses of the peer's memory.
    pub(super) accesses: Accesses,
    /// What there is of access without frames.
    pub(super) direct: Direct,
    /// What holds up operations that must not overtake it.
    pub(super) deferred: Deferred,
    /// The frame that has arrived in part.
    pub(super) incoming: Option<Incoming>,
    /// Whether the peer waits to hear how many eager messages have arrived.
    pub(super) owes_ack: bool,
    /// Whether the peer was granted credit that it does not know of.
    pub(super) owes_credit: bool,
    /// Whether the peer waits for what it reads.
    pub(super) owes_reads: bool,
    /// Whether more of that could have been sent, but it was the turn of others.
    pub(super) has_paused: bool,
    /// What else the peer waits to hear, in order.
    pub(super) owed: VecDeque<Header>,
}

/// A frame that a link has taken in part.
#[derive(Debug)]
pub(super) struct Writing {
    pub(super) frame: Frame,
    pub(super) send: SendId,
    pub(super) taken_bytes: usize,
}

/// What a frame with a send's payload is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Frame {
    /// The message, eagerly.
    Message,
    /// What the peer has asked for, or what is written to its memory.
    Data,
    /// What the peer reads of this side's memory. It belongs to no send.
    ReadData,
}

/// A link that the engine has ended and the transport does not know of yet.
#[derive(Debug)]
pub(super) struct Condemned {
    pub(super) link: LinkId,
    pub(super) how: Close,
    error: OperationError,
    /// Sends that the peer can still read from their memory, so they must not end before the link does.
    exposed: Vec<SendId>,
}

impl Condemned {
    /// A link that nothing hangs on.
    pub(super) fn idle(link: LinkId, how: Close) -> Condemned {
        let error = OperationError::Link(LinkError::Closed);
        Condemned { link, how, error, exposed: Vec::new() }
    }
}

impl Link {
    /// Whether the peer waits to hear something.
    pub(super) fn is_owing(&self) -> bool {
        self.owes_ack || self.owes_credit || !self.owed.is_empty() || self.owes_reads
    }

    /// Whether another attempt to connect may go better: this one was cut short, as by an endpoint that closed while the
    /// connection waited to be accepted, and had taken nothing.
    fn is_to_be_retried(&self, error: &OperationError) -> bool {
        let is_cut_short =
            matches!(error, OperationError::Link(LinkError::Closed | LinkError::System(Errno::ECONNRESET)));
        is_cut_short && !self.is_up && self.taken_frames == 0
    }

    /// How many eager messages the link has taken whole.
    pub(super) fn taken_messages(&self) -> u64 {
        let is_mid_message = self.writing.as_ref().is_some_and(|writing| writing.frame == Frame::Message);
        self.sent_messages - u64::from(is_mid_message)
    }
}

/// All links, by the numbers that the transport gives them, which are small.
#[derive(Debug, Default)]
pub(super) struct Links {
    by_id: Vec<Option<Link>>,
    /// Links whose peer waits to hear something. Each is listed once.
    owing: Vec<LinkId>,
    /// How many links there have been: what serves as time here.
    count: u64,
}

impl Links {
    #[inline]
    pub(super) fn of(&mut self, id: LinkId) -> Option<&mut Link> {
        self.by_id.get_mut(id.0 as usize)?.as_mut()
    }

    #[inline]
    pub(super) fn get(&self, id: LinkId) -> Option<&Link> {
        self.by_id.get(id.0 as usize)?.as_ref()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Link> {
        self.by_id.iter_mut().flatten()
    }

    pub(super) fn ids(&self) -> Vec<LinkId> {
        let present = self.by_id.iter().enumerate().filter(|(_, link)| link.is_some());
        present.map(|(id, _)| LinkId(id as u32)).collect()
    }

    /// Whether a peer still needs a send where it is.
    pub(super) fn have_unfetched(&self) -> bool {
        self.by_id.iter().flatten().any(|link| !link.is_former && link.requests.have_unfetched())
    }

    pub(super) fn insert(&mut self, id: LinkId, peer: PeerId) -> &mut Link {
        let place = id.0 as usize;
        if self.by_id.len() <= place {
            self.by_id.resize_with(place + 1, || None);
        }
        self.count += 1;
        self.by_id[place].insert(Link {
            peer,
            is_up: false,
            is_former: false,
            begun_at: self.count,
            writing: None,
            sent_messages: 0,
            awaiting_ack: VecDeque::new(),
            awaiting_match: BTreeMap::new(),
            acked_messages: 0,
            unanswered_payloads: 0,
            told: Told::default(),
            allowance: Allowance::initial(),
            taken_frames: 0,
            fence: Fence::Open,
            requests: Requests::default(),
            accesses: Accesses::default(),
            direct: Direct::default(),
            deferred: Deferred::default(),
            incoming: None,
            owes_ack: false,
            owes_credit: false,
            owes_reads: false,
            has_paused: false,
            owed: VecDeque::new(),
        })
    }

    pub(super) fn remove(&mut self, id: LinkId) -> Option<Link> {
        let link = self.by_id.get_mut(id.0 as usize)?.take()?;
        if link.is_owing() {
            self.owing.retain(|other| *other != id);
        }
        Some(link)
    }

    /// The peer is to hear this.
    pub(super) fn owe(&mut self, id: LinkId, header: Header) {
        self.add_debt(id, |link| link.owed.push_back(header));
    }

    /// The peer is to hear how many eager messages have arrived.
    pub(super) fn owe_ack(&mut self, id: LinkId) {
        self.add_debt(id, |link| link.owes_ack = true);
    }

    /// The peer is to hear how much credit it was granted.
    pub(super) fn owe_credit(&mut self, id: LinkId) {
        self.add_debt(id, |link| link.owes_credit = true);
    }

    /// The peer is to be sent what it reads.
    pub(super) fn owe_read(&mut self, id: LinkId) {
        self.add_debt(id, |link| link.owes_reads = true);
    }

    /// Lists a link that owes its peer something from now on.
    #[inline(always)]
    fn add_debt(&mut self, id: LinkId, owe: impl FnOnce(&mut Link)) {
        let Some(Some(link)) = self.by_id.get_mut(id.0 as usize) else { return };
        if !link.is_owing() {
            self.owing.push(id);
        }
        owe(link);
    }

    pub(super) fn are_owing(&self) -> bool {
        !self.owing.is_empty()
    }

    /// Whether a link could send more of what its peer reads.
    pub(super) fn have_paused(&self) -> bool {
        self.owing.iter().any(|id| self.get(*id).is_some_and(|link| link.has_paused))
    }

    /// Tells the peers what they wait to hear, as far as the links take it.
    pub(super) fn pay_debts(
        &mut self,
        receiver: &mut Receiver,
        target: &mut Target,
        transport: &mut impl Transport,
        sink: &mut impl Sink,
    ) {
        let Links { by_id, owing, .. } = self;
        owing.retain(|id| {
            let link = by_id.get_mut(id.0 as usize).and_then(Option::as_mut);
            link.is_some_and(|link| !link.pay_debts(*id, receiver, target, transport, sink))
        });
    }

    /// As [`pay_debts`](Self::pay_debts), on one link. Returns whether it is free for the next frame.
    pub(super) fn pay_debts_of(
        &mut self,
        id: LinkId,
        receiver: &mut Receiver,
        target: &mut Target,
        transport: &mut impl Transport,
        sink: &mut impl Sink,
    ) -> bool {
        let Some(link) = self.of(id).filter(|link| link.is_owing()) else { return true };
        let is_paid = link.pay_debts(id, receiver, target, transport, sink);
        // What the peer reads lets others have their turn.
        let is_free = is_paid || link.owes_only_reads() && link.writing.is_none();
        if is_paid {
            self.owing.retain(|other| *other != id);
        }
        is_free
    }
}

impl Engine {
    /// The link that messages to `peer` travel on; one is opened if there is none.
    pub(super) fn transmit_link(&mut self, peer: PeerId, transport: &mut impl Transport) -> LinkId {
        if let Some(link) = self.peers.of(peer).transmit {
            return link;
        }
        let is_present = |id: &LinkId| self.links.get(*id).is_some_and(|link| !link.is_former);
        let existing = self.peers.of(peer).links.iter().copied().find(is_present);
        let link = existing.unwrap_or_else(|| {
            let link = transport.connect(self.peers.address(peer));
            self.add_link(link, peer);
            self.peers.of_mut(peer).links.push(link);
            link
        });
        self.peers.of_mut(peer).transmit = Some(link);
        link
    }

    /// A link to a peer begins, for the receiver and the target too.
    pub(super) fn add_link(&mut self, id: LinkId, peer: PeerId) {
        self.links.insert(id, peer);
        self.receiver.link_added(id, peer);
        self.target.link_added(id, peer);
    }

    pub(super) fn link_up(&mut self, id: LinkId, address: Address, instance: u64, sink: &mut impl Sink) {
        if self.receiver.is_overdrawn() {
            debug!(%address, "refusing a link: links that have ended left too much behind");
            return self.abort(id, &LinkError::System(Errno::ENOBUFS), sink);
        }
        let peer = match self.links.of(id) {
            Some(link) => link.peer,
            None => {
                let peer = self.peers.intern(address);
                self.add_link(id, peer);
                self.peers.of_mut(peer).links.push(id);
                peer
            }
        };
        let now = self.links.count;
        self.peers.of_mut(peer).connect_retries = 0;
        let Some(link) = self.links.of(id) else { return };
        link.is_up = true;
        match self.peers.of(peer).instance {
            Some((known, since)) if known != instance && link.begun_at < since => {
                // This link was begun before the present instance was met, so it leads to the one before that.
                self.abort(id, &LinkError::System(Errno::ECONNRESET), sink);
                return;
            }
            Some((known, _)) if known != instance => {
                debug!(address = %self.peers.address(peer), "the peer was replaced by a new instance");
                self.retire_links_to_former_instance(peer, id, sink);
                self.peers.of_mut(peer).instance = Some((instance, now));
            }
            Some(_) => {}
            None => self.peers.of_mut(peer).instance = Some((instance, now)),
        }
        // A link that is still being made may take long, or never be made; this one is there.
        let untouched = |link: &mut Link| !link.is_up && link.taken_frames == 0;
        let current = self.peers.of(peer).transmit;
        if current.and_then(|current| self.links.of(current)).is_none_or(untouched) {
            self.peers.of_mut(peer).transmit = Some(id);
        }
    }

    /// A link has ended by itself. If that was not in order, a second link to the peer ends with it: what the first one
    /// still carried is lost, and later messages must not arrive as if it had not been.
    pub(super) fn link_lost(&mut self, id: LinkId, error: &LinkError, sink: &mut impl Sink) {
        // The number is free now; closing it later would hit another link.
        if let Some(place) = self.condemned.iter().position(|condemned| condemned.link == id) {
            let Condemned { error, exposed, .. } = self.condemned.swap_remove(place);
            self.fail_sends(exposed, &error, sink);
            return self.tell_lost(sink);
        }
        let peer = self.links.of(id).filter(|link| link.is_up && !link.is_former).map(|link| link.peer);
        let operation_error = OperationError::Link(error.clone());
        let exposed = self.end(id, &operation_error, sink);
        self.fail_sends(exposed, &operation_error, sink);
        self.tell_lost(sink);
        if let Some(peer) = peer.filter(|_| *error != LinkError::Closed) {
            for other in self.peers.of(peer).links.clone() {
                if self.links.of(other).is_some_and(|link| link.is_up && !link.is_former) {
                    self.abort(other, error, sink);
                }
            }
        }
    }

    /// Ends everything that hangs on a link, except what the peer can still read: these sends are returned, to be ended
    /// when it no longer can.
    pub(super) fn end(&mut self, id: LinkId, error: &OperationError, sink: &mut impl Sink) -> Vec<SendId> {
        let Some(link) = self.links.remove(id) else { return Vec::new() };
        let may_be_retried = link.is_to_be_retried(error);
        let Link { peer, writing, awaiting_ack, awaiting_match, requests, .. } = link;
        let state = self.peers.of_mut(peer);
        state.links.retain(|other| *other != id);
        // Another link of it may have been up when this one never was.
        let was_last_of_known = state.links.is_empty() && state.instance.is_some();
        if state.links.is_empty() {
            state.instance = None;
        }
        let mut ended: Vec<SendId> = awaiting_ack.into_iter().map(|(_, send)| send).collect();
        ended.extend(awaiting_match.into_values());
        // Payload that the peer has asked for belongs to a request.
        let mid_message = writing.filter(|writing| writing.frame == Frame::Message);
        ended.extend(mid_message.map(|writing| writing.send));
        self.fail_sends(ended, error, sink);
        let state = self.peers.of_mut(peer);
        if state.transmit == Some(id) {
            if may_be_retried && state.connect_retries < CONNECT_RETRIES_MAX {
                state.connect_retries += 1;
                state.transmit = None;
            } else {
                self.stop_sending_on(peer, error, sink);
            }
        }
        self.target.link_ended(id);
        let is_connection = match &mut self.standing {
            Standing::Connected(connected) => connected.ends_with(id),
            _ => false,
        };
        let (receiver, mut effects) = self.receiving(sink);
        receiver.link_ended(id, error, &mut effects);
        if was_last_of_known {
            receiver.peer_ended(peer, error, &mut effects);
        }
        if is_connection {
            receiver.end_all(Some(peer), error, &mut effects);
        }
        requests.into_sends()
    }

    /// The link that a peer's sends travel on can no longer be used. Those that wait for it fail.
    pub(super) fn stop_sending_on(&mut self, peer: PeerId, error: &OperationError, sink: &mut impl Sink) {
        let state = self.peers.of_mut(peer);
        state.transmit = None;
        state.connect_retries = 0;
        // With its memory: the peer stays known, and may never be heard of again.
        let queue = mem::take(&mut state.queue);
        self.fail_sends(queue, error, sink);
    }

    pub(super) fn fail_sends(
        &mut self,
        sends: impl IntoIterator<Item = SendId>,
        error: &OperationError,
        sink: &mut impl Sink,
    ) {
        for send in sends {
            if let Some(send) = self.sends.remove(send) {
                self.reports.send_failed(send, error.clone(), &self.peers, sink);
            }
        }
    }

    /// Ends a link whose peer broke the protocol.
    #[cold]
    pub(super) fn condemn(&mut self, id: LinkId, reason: &'static str, sink: &mut impl Sink) {
        debug!(?id, reason, "ending a link");
        self.abort(id, &LinkError::Protocol(reason), sink);
    }

    /// Ends a link that has not ended by itself. The transport is told at the next [`transmit`](Engine::transmit); until
    /// then what it still reports of the link is ignored.
    pub(super) fn abort(&mut self, id: LinkId, error: &LinkError, sink: &mut impl Sink) {
        let error = OperationError::Link(error.clone());
        let exposed = self.end(id, &error, sink);
        self.condemned.push(Condemned { link: id, how: Close::Abort, error, exposed });
    }

    pub(super) fn close_condemned(&mut self, transport: &mut impl Transport, sink: &mut impl Sink) {
        for Condemned { link, how, error, exposed } in mem::take(&mut self.condemned) {
            transport.close(link, how);
            self.fail_sends(exposed, &error, sink);
        }
        self.tell_lost(sink);
    }
}
