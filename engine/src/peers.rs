//! The peers of an endpoint.

mod marks;
mod peer;
#[cfg(test)]
mod tests;

use std::collections::HashMap;

pub(crate) use self::marks::PeerMarks;
pub(crate) use self::peer::{Peer, PeerLinkEnd, PeerLinkUp};
use crate::address::Address;
use crate::limits::PEER_SWEEP_MIN_PEERS;
use crate::peer_id::PeerId;
use crate::visits::record_visit;

/// The peers of an endpoint, by id and by address.
///
/// A peer that the application has *named* stays for the life of the engine. Any other peer was *introduced*
/// by a link or by a report of a shared receive context. Once two sweeps in a row have found an introduced
/// peer unused, the table forgets the peer, and may give its id to a new peer. See
/// `docs/decisions/peer-table.md`.
#[derive(Debug)]
pub struct Peers {
    /// The peers by id. Those whose ids are in `free` are forgotten.
    slots: Vec<Peer>,
    by_address: HashMap<Address, PeerId>,
    free: Vec<PeerId>,
    /// How many peers were introduced since the last sweep.
    introduced_since_sweep: usize,
    /// How many introductions make the next sweep due.
    sweep_after_introductions: usize,
    /// The least value of `sweep_after_introductions`.
    sweep_min_peers: usize,
}

impl Default for Peers {
    fn default() -> Peers {
        Peers::with_sweep_min(PEER_SWEEP_MIN_PEERS)
    }
}

impl Peers {
    /// Creates an empty table. A sweep is due once enough peers were introduced since the last sweep: as
    /// many as were then in use, and at least `sweep_min_peers`.
    pub(crate) fn with_sweep_min(sweep_min_peers: usize) -> Peers {
        Peers {
            slots: Vec::new(),
            by_address: HashMap::new(),
            free: Vec::new(),
            introduced_since_sweep: 0,
            sweep_after_introductions: sweep_min_peers,
            sweep_min_peers,
        }
    }

    /// Returns the peer at an address that the application names. The table never forgets this peer.
    pub(crate) fn intern_named(&mut self, address: Address) -> PeerId {
        let id = self.find(address).unwrap_or_else(|| self.add(address));
        self.peer_mut(id).mark_named();
        id
    }

    /// Returns the peer at an address that a link or a report of a shared receive context introduces.
    pub(crate) fn intern_introduced(&mut self, address: Address) -> PeerId {
        self.find(address).unwrap_or_else(|| {
            self.introduced_since_sweep += 1;
            self.add(address)
        })
    }

    /// Adds a peer, with the id of a forgotten peer if there is one.
    fn add(&mut self, address: Address) -> PeerId {
        let id = self.free.pop().unwrap_or_else(|| {
            PeerId(u32::try_from(self.slots.len()).expect("fewer than 2^32 peers fit into memory"))
        });
        match self.slots.get_mut(id.index()) {
            Some(slot) => *slot = Peer::at(address),
            None => self.slots.push(Peer::at(address)),
        }
        self.by_address.insert(address, id);
        id
    }

    /// Whether enough peers were introduced that a sweep is worth its cost.
    #[inline]
    pub(crate) fn is_sweep_due(&self) -> bool {
        self.introduced_since_sweep >= self.sweep_after_introductions
    }

    /// Returns empty marks for the peers that are known now.
    pub(crate) fn new_marks(&self) -> PeerMarks {
        PeerMarks::for_ids_below(self.slots.len())
    }

    /// Forgets the peers that were unused at the last sweep and are still unused. A peer is in use if the
    /// application has named it, if a link leads to it or has begun since the last sweep, or if it is among
    /// the `marks`. Returns whether the table has forgotten any peer.
    pub(crate) fn sweep(&mut self, marks: &PeerMarks) -> bool {
        let Peers { slots, by_address, free, .. } = self;
        let free_before = free.len();
        let mut in_use = 0;
        by_address.retain(|_, id| {
            record_visit();
            let peer = &mut slots[id.index()];
            let is_used = peer.is_named() || !peer.links().is_empty() || marks.contains(*id);
            in_use += usize::from(is_used);
            let is_kept = peer.note_sweep(is_used);
            if !is_kept {
                free.push(*id);
            }
            is_kept
        });
        // A hash table does not shrink by itself.
        by_address.shrink_to(2 * by_address.len());
        self.introduced_since_sweep = 0;
        self.sweep_after_introductions = self.sweep_min_peers.max(in_use);
        self.free.len() > free_before
    }

    /// Returns the peer at `address`, if it is known.
    pub(crate) fn find(&self, address: Address) -> Option<PeerId> {
        self.by_address.get(&address).copied()
    }

    /// Returns the address of a peer.
    pub fn address_of(&self, peer: PeerId) -> Address {
        self.peer(peer).address()
    }

    #[inline]
    pub(crate) fn peer(&self, peer: PeerId) -> &Peer {
        record_visit();
        &self.slots[peer.index()]
    }

    #[inline]
    pub(crate) fn peer_mut(&mut self, peer: PeerId) -> &mut Peer {
        record_visit();
        &mut self.slots[peer.index()]
    }

    /// Returns the number of known peers.
    pub fn len(&self) -> usize {
        self.by_address.len()
    }

    /// Whether no peer is known.
    pub fn is_empty(&self) -> bool {
        self.by_address.is_empty()
    }
}
