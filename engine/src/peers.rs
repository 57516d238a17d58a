//! The peers of an endpoint.

use std::collections::HashMap;

use smallvec::SmallVec;

use crate::address::Address;
use crate::peer_id::PeerId;
use crate::transport::LinkId;

/// All peers that the application has named, or that have connected.
#[derive(Debug, Default)]
pub struct Peers {
    known: Vec<Peer>,
    by_address: HashMap<Address, PeerId>,
}

/// The state of one peer.
#[derive(Debug)]
pub(crate) struct Peer {
    address: Address,
    /// The instance number that the peer's hello carried, while any link to the peer is up. With
    /// it, how many links had been created when this instance first connected.
    pub(crate) instance: Option<(u64, u64)>,
    /// The link on which this side sends to the peer. There is only one at a time, to keep the
    /// order of messages.
    pub(crate) transmit: Option<LinkId>,
    /// All links to the peer that are up or connecting.
    pub(crate) links: SmallVec<[LinkId; 2]>,
    /// How many attempts in a row to connect to the peer were cut short.
    pub(crate) connect_retries: u32,
    /// Whether the last link to the peer has ended or could not be made, and no link has come up
    /// since.
    pub(crate) is_lost: bool,
}

impl Peers {
    /// Returns the peer at `address`. A new address gets the next id.
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
