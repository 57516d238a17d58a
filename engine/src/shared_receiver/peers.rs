//! Ids of peers that are the same for all members.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap, HashSet};

use crate::address::Address;
use crate::error::OperationError;
use crate::peer_id::PeerId;

/// With fewer peers than this, none is forgotten.
const FORGET_MIN_PEERS: usize = 64;

/// The peers that are in use: a member has a link to the peer, a receive names it, or a message of
/// it waits.
#[derive(Debug, Default)]
pub(super) struct SharedPeers {
    known: HashMap<PeerId, SharedPeer>,
    by_address: HashMap<Address, PeerId>,
    /// The peers whose `ending` is set.
    ending: BTreeSet<PeerId>,
    next: u32,
    /// How many peers were kept when others were last forgotten.
    kept: usize,
}

#[derive(Debug)]
struct SharedPeer {
    address: Address,
    /// Set if the peer was lost. When the peer's last link has ended, the receives that accept only
    /// this peer's messages fail with this error.
    ending: Option<OperationError>,
}

impl SharedPeers {
    /// Returns the id of the peer at an address, if it has one.
    pub(super) fn get(&self, address: Address) -> Option<PeerId> {
        self.by_address.get(&address).copied()
    }

    /// Returns the id of the peer at an address. A new address gets a new id.
    pub(super) fn intern(&mut self, address: Address) -> PeerId {
        if let Some(peer) = self.get(address) {
            return peer;
        }
        loop {
            let peer = PeerId(self.next);
            // Ids wrap around. An id that is in use is skipped.
            self.next = self.next.wrapping_add(1);
            if let Entry::Vacant(vacant) = self.known.entry(peer) {
                vacant.insert(SharedPeer { address, ending: None });
                self.by_address.insert(address, peer);
                return peer;
            }
        }
    }

    /// Returns the address of a peer, if it is known.
    pub(super) fn address_of(&self, peer: PeerId) -> Option<Address> {
        self.known.get(&peer).map(|known| known.address)
    }

    /// Returns the number of known peers.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.known.len()
    }

    /// Whether enough peers were added since the last sweep to make another sweep worthwhile.
    pub(super) fn is_sweep_due(&self) -> bool {
        self.known.len() >= FORGET_MIN_PEERS.max(2 * self.kept)
    }

    /// Forgets all peers except `wanted`.
    pub(super) fn retain_only(&mut self, wanted: &HashSet<PeerId>) {
        self.known.retain(|peer, _| wanted.contains(peer));
        self.by_address.retain(|_, peer| wanted.contains(peer));
        self.ending.retain(|peer| wanted.contains(peer));
        self.kept = self.known.len();
        // A table does not shrink by itself.
        self.known.shrink_to(2 * self.kept);
        self.by_address.shrink_to(2 * self.kept);
    }

    /// Marks a peer as lost. When its last link has ended, the receives that accept only this
    /// peer's messages fail.
    pub(super) fn mark_lost(&mut self, address: Address, error: OperationError) {
        let Some(peer) = self.get(address) else { return };
        if let Some(known) = self.known.get_mut(&peer) {
            known.ending = Some(error);
            self.ending.insert(peer);
        }
    }

    /// Unmarks and returns the peers that are [marked as lost](Self::mark_lost) and have no link
    /// left. The error is for the receives that accept only the peer's messages.
    pub(super) fn take_lost_without_links(
        &mut self,
        has_no_link: impl Fn(PeerId) -> bool,
    ) -> Vec<(PeerId, OperationError)> {
        let ended: Vec<PeerId> = self.ending.iter().copied().filter(|peer| has_no_link(*peer)).collect();
        let why = ended.into_iter().filter_map(|peer| {
            self.ending.remove(&peer);
            self.known.get_mut(&peer)?.ending.take().map(|error| (peer, error))
        });
        why.collect()
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;

    fn loopback_address(port: u16) -> Address {
        SocketAddr::from(([127, 0, 0, 1], port)).into()
    }

    #[test]
    fn peer_id_in_use_is_given_to_no_other_peer() {
        let mut peers = SharedPeers { next: u32::MAX, ..SharedPeers::default() };
        let last = peers.intern(loopback_address(1));
        let first = peers.intern(loopback_address(2));
        assert_eq!((last, first), (PeerId(u32::MAX), PeerId(0)));
        peers.next = u32::MAX;
        assert_eq!(peers.intern(loopback_address(3)), PeerId(1));
    }
}
