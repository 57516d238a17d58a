//! For each peer, the queue of operations that wait for the link, in the order of posting.

use std::collections::VecDeque;

use crate::operation::SendId;
use crate::peer_id::PeerId;
use crate::visits::record_visit;

/// The queues of all peers, and the list of peers with work.
#[derive(Debug, Default)]
pub(super) struct PeerQueues {
    by_peer: Vec<PeerQueue>,
    /// Peers with queued operations, with payload to send that the peer has asked for, or with a
    /// partly written frame. Each peer is in at most one of the two lists.
    active: VecDeque<PeerId>,
    /// Peers whose work waits for an event of one of their links. No pass visits them.
    blocked: Vec<PeerId>,
}

#[derive(Debug, Default)]
struct PeerQueue {
    sends: VecDeque<SendId>,
    listing: Listing,
}

/// The list in which a peer is.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Listing {
    /// None: the peer has no work.
    #[default]
    Unlisted,
    /// The active peers. Also while the present pass is working on the peer.
    Active,
    /// The blocked peers, at this index.
    Blocked(usize),
}

impl PeerQueues {
    #[inline(always)]
    pub(super) fn is_empty(&self, peer: PeerId) -> bool {
        self.by_peer.get(peer.index()).is_none_or(|queue| queue.sends.is_empty())
    }

    pub(super) fn len(&self, peer: PeerId) -> usize {
        self.by_peer.get(peer.index()).map_or(0, |queue| queue.sends.len())
    }

    #[inline]
    pub(super) fn first(&self, peer: PeerId) -> Option<SendId> {
        record_visit();
        self.by_peer.get(peer.index())?.sends.front().copied()
    }

    #[inline(always)]
    pub(super) fn push(&mut self, peer: PeerId, send: SendId) {
        self.queue_mut(peer).sends.push_back(send);
        self.unblock(peer);
    }

    #[inline]
    pub(super) fn pop(&mut self, peer: PeerId) {
        if let Some(queue) = self.by_peer.get_mut(peer.index()) {
            queue.sends.pop_front();
        }
    }

    /// Removes and returns a peer's whole queue. Leaves no memory behind, since the peer may never
    /// be used again.
    pub(super) fn take_all(&mut self, peer: PeerId) -> VecDeque<SendId> {
        self.unblock(peer);
        self.by_peer
            .get_mut(peer.index())
            .map_or_else(VecDeque::new, |queue| std::mem::take(&mut queue.sends))
    }

    /// Returns the peers that have queued operations or are listed.
    pub(super) fn peers(&self) -> impl Iterator<Item = PeerId> {
        let queues = (0_u32..).zip(&self.by_peer).inspect(|_| record_visit());
        let in_use =
            queues.filter(|(_, queue)| queue.listing != Listing::Unlisted || !queue.sends.is_empty());
        in_use.map(|(number, _)| PeerId(number))
    }

    /// Removes the first queued operation that `matches`. Returns its peer and its id.
    pub(super) fn remove_first(&mut self, matches: impl Fn(SendId) -> bool) -> Option<(PeerId, SendId)> {
        let PeerQueues { by_peer, active, blocked } = self;
        let (peer, send) = active.iter().chain(blocked.iter()).find_map(|peer| {
            let sends = &mut by_peer.get_mut(peer.index())?.sends;
            let place = sends.iter().position(|send| matches(*send))?;
            Some((*peer, sends.remove(place)?))
        })?;
        // The next operation may not have to wait.
        self.unblock(peer);
        Some((peer, send))
    }

    #[inline]
    pub(super) fn active_len(&self) -> usize {
        self.active.len()
    }

    #[inline]
    pub(super) fn has_blocked(&self) -> bool {
        !self.blocked.is_empty()
    }

    pub(super) fn activate(&mut self, peer: PeerId) {
        self.unblock(peer);
        let queue = self.queue_mut(peer);
        if queue.listing == Listing::Unlisted {
            queue.listing = Listing::Active;
            self.active.push_back(peer);
        }
    }

    /// Lists a peer as active if it is blocked.
    #[inline(always)]
    pub(super) fn unblock(&mut self, peer: PeerId) {
        if self.has_blocked() {
            self.unblock_if_blocked(peer);
        }
    }

    #[cold]
    fn unblock_if_blocked(&mut self, peer: PeerId) {
        let queue = self.queue_mut(peer);
        let Listing::Blocked(place) = queue.listing else { return };
        queue.listing = Listing::Active;
        self.active.push_back(peer);
        self.blocked.swap_remove(place);
        if let Some(moved) = self.blocked.get(place).copied() {
            self.queue_mut(moved).listing = Listing::Blocked(place);
        }
    }

    #[inline]
    pub(super) fn pop_active(&mut self) -> Option<PeerId> {
        self.active.pop_front()
    }

    pub(super) fn requeue(&mut self, peer: PeerId) {
        self.active.push_back(peer);
    }

    pub(super) fn deactivate(&mut self, peer: PeerId) {
        self.queue_mut(peer).listing = Listing::Unlisted;
    }

    pub(super) fn block(&mut self, peer: PeerId) {
        let place = self.blocked.len();
        self.queue_mut(peer).listing = Listing::Blocked(place);
        self.blocked.push(peer);
    }

    #[inline]
    fn queue_mut(&mut self, peer: PeerId) -> &mut PeerQueue {
        record_visit();
        let place = peer.index();
        if self.by_peer.len() <= place {
            self.make_room_for(place);
        }
        &mut self.by_peer[place]
    }

    #[cold]
    fn make_room_for(&mut self, place: usize) {
        self.by_peer.resize_with(place + 1, PeerQueue::default);
    }
}
