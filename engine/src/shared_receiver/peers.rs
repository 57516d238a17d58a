//! Names of peers that mean the same for all members.

use std::collections::{BTreeSet, HashMap};

use crate::address::Address;
use crate::error::OperationError;
use crate::peer_id::PeerId;

/// The peers that any member has met, or that a receive names.
#[derive(Debug, Default)]
pub(super) struct SharedPeers {
    known: Vec<SharedPeer>,
    by_address: HashMap<Address, PeerId>,
    /// Those with an ending.
    ending: BTreeSet<PeerId>,
}

#[derive(Debug)]
struct SharedPeer {
    address: Address,
    /// Why receives that it alone can match are to end, once its last link has.
    ending: Option<OperationError>,
}

impl SharedPeers {
    pub(super) fn intern(&mut self, address: Address) -> PeerId {
        *self.by_address.entry(address).or_insert_with(|| {
            self.known.push(SharedPeer { address, ending: None });
            PeerId(u32::try_from(self.known.len() - 1).expect("fewer than 2^32 peers fit into memory"))
        })
    }

    pub(super) fn address(&self, peer: PeerId) -> Address {
        self.known[peer.index()].address
    }

    /// Receives that a peer alone can match are to end once its last link has.
    pub(super) fn set_ending(&mut self, address: Address, error: OperationError) {
        let peer = self.intern(address);
        self.known[peer.index()].ending = Some(error);
        self.ending.insert(peer);
    }

    /// The peers of which receives are to end now, and why.
    pub(super) fn take_ended(&mut self, is_silent: impl Fn(PeerId) -> bool) -> Vec<(PeerId, OperationError)> {
        let ended: Vec<PeerId> = self.ending.iter().copied().filter(|peer| is_silent(*peer)).collect();
        let why = ended.into_iter().filter_map(|peer| {
            self.ending.remove(&peer);
            self.known[peer.index()].ending.take().map(|error| (peer, error))
        });
        why.collect()
    }
}
