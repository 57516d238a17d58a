//! The endpoints that an endpoint knows.

use std::collections::HashMap;

use smallvec::SmallVec;

use crate::address::Address;
use crate::peer_id::PeerId;
use crate::transport::LinkId;

/// Every peer that the application has named or that has connected.
#[derive(Debug, Default)]
pub struct Peers {
    known: Vec<Peer>,
    by_address: HashMap<Address, PeerId>,
}

/// The state of one peer.
#[derive(Debug)]
pub(crate) struct Peer {
    address: Address,
    /// The instance number in the peer's hello, while any link to it is up, and how many links
    /// had been created when it first arrived.
    pub(crate) instance: Option<(u64, u64)>,
    /// The link that carries messages to the peer: one at a time, to keep their order.
    pub(crate) transmit: Option<LinkId>,
    /// All links that are up or connecting.
    pub(crate) links: SmallVec<[LinkId; 2]>,
    /// How many attempts to connect were cut short in a row.
    pub(crate) connect_retries: u32,
    /// Whether the last link has ended, or could not be made, and none was up since.
    pub(crate) is_lost: bool,
}

impl Peers {
    /// Returns the peer at `address`. A new address gets the next number.
    pub(crate) fn intern(&mut self, address: Address) -> PeerId {
        *self.by_address.entry(address).or_insert_with(|| {
            self.known.push(Peer {
                address,
                instance: None,
                transmit: None,
                links: SmallVec::new(),
                connect_retries: 0,
                is_lost: false,
            });
            PeerId(u32::try_from(self.known.len() - 1).expect("fewer than 2^32 peers fit into memory"))
        })
    }

    /// Returns the peer at `address`, if it is known.
    pub(crate) fn find(&self, address: Address) -> Option<PeerId> {
        self.by_address.get(&address).copied()
    }

    /// Returns the address of a peer.
    pub fn address_of(&self, peer: PeerId) -> Address {
        self.peer(peer).address
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
