//! The peers of an endpoint.

mod peer;

use std::collections::HashMap;

pub(crate) use self::peer::{Peer, PeerLinkEnd, PeerLinkUp};
use crate::address::Address;
use crate::peer_id::PeerId;

/// All peers that the application has named, or that have connected.
#[derive(Debug, Default)]
pub struct Peers {
    known: Vec<Peer>,
    by_address: HashMap<Address, PeerId>,
}

impl Peers {
    /// Returns the peer at `address`. A new address gets the next id.
    pub(crate) fn intern(&mut self, address: Address) -> PeerId {
        *self.by_address.entry(address).or_insert_with(|| {
            self.known.push(Peer::at(address));
            PeerId(u32::try_from(self.known.len() - 1).expect("fewer than 2^32 peers fit into memory"))
        })
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
        &self.known[peer.index()]
    }

    #[inline]
    pub(crate) fn peer_mut(&mut self, peer: PeerId) -> &mut Peer {
        &mut self.known[peer.index()]
    }

    /// Returns the number of known peers.
    pub fn len(&self) -> usize {
        self.known.len()
    }

    /// Whether no peer is known.
    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }
}
