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

/// What is kept of one peer.
#[derive(Debug)]
pub(crate) struct Peer {
    address: Address,
    /// The number in the peer's hello, while any link to it is up, and the moment when it was met,
    /// as links count it.
    pub(crate) instance: Option<(u64, u64)>,
    /// The link that messages to the peer travel on. Only ever one at a time, for their order.
    pub(crate) transmit: Option<LinkId>,
    /// All links that are up or being made.
    pub(crate) links: SmallVec<[LinkId; 2]>,
    /// How many attempts to connect were cut short in a row.
    pub(crate) connect_retries: u32,
}

impl Peers {
    /// The peer at `address`; it gets a number when it is named first.
    pub(crate) fn intern(&mut self, address: Address) -> PeerId {
        *self.by_address.entry(address).or_insert_with(|| {
            self.known.push(Peer {
                address,
                instance: None,
                transmit: None,
                links: SmallVec::new(),
                connect_retries: 0,
            });
            PeerId(u32::try_from(self.known.len() - 1).expect("fewer than 2^32 peers fit into memory"))
        })
    }

    /// The address of a peer.
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

    /// How many peers are known.
    pub fn len(&self) -> usize {
        self.known.len()
    }

    /// Whether no peer is known.
    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }
}
