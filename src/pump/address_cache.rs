//! Caches of the address vector, valid until the vector changes.

use homespun_engine::engine::Engine;
use homespun_engine::error::Error;
use homespun_engine::peer_id::PeerId;
use homespun_engine::peers::Peers;

use crate::av::{AddressVector, FabricAddress};
use crate::mutated;

/// The peer of each `fi_addr_t`, cached from the address vector.
#[derive(Default)]
pub(super) struct PeerCache {
    version: u64,
    peers: Vec<Option<PeerId>>,
}

/// The `fi_addr_t` of each peer, cached from the address vector.
#[derive(Default)]
pub(super) struct AddressCache {
    version: u64,
    addresses: Vec<Option<FabricAddress>>,
}

impl PeerCache {
    /// Returns the peer at an address that was looked up since the vector last changed.
    #[inline(always)]
    pub(super) fn cached_peer(&self, address: FabricAddress, av: &AddressVector) -> Option<PeerId> {
        let index = usize::try_from(address.0).unwrap_or(usize::MAX);
        if self.version == av.version() { *self.peers.get(index)? } else { None }
    }

    #[inline]
    pub(super) fn peer_of_address(
        &mut self,
        address: FabricAddress,
        av: &AddressVector,
        engine: &mut Engine,
    ) -> Result<PeerId, Error> {
        let version = av.version();
        let index = usize::try_from(address.0).unwrap_or(usize::MAX);
        if self.version == version
            && let Some(Some(peer)) = self.peers.get(index)
        {
            return Ok(*peer);
        }
        self.look_up_uncached(address, version, av, engine)
    }

    #[inline(never)]
    fn look_up_uncached(
        &mut self,
        address: FabricAddress,
        version: u64,
        av: &AddressVector,
        engine: &mut Engine,
    ) -> Result<PeerId, Error> {
        if self.version != version {
            self.version = version;
            self.peers.clear();
        }
        let index = usize::try_from(address.0).unwrap_or(usize::MAX);
        // A connected endpoint has only one peer, so the address is ignored.
        if let Some(connected) = engine.connected_peer() {
            return connected;
        }
        let peer = engine.intern_peer(av.lookup(address)?);
        if self.peers.len() <= index {
            self.peers.resize(index + 1, None);
        }
        self.peers[index] = Some(peer);
        Ok(peer)
    }
}

impl AddressCache {
    /// Empties the cache. The engine has forgotten a peer, and may give the peer's id to another peer.
    pub(super) fn clear(&mut self) {
        self.addresses.clear();
    }

    pub(super) fn address_of_peer(
        &mut self,
        peer: PeerId,
        av: &AddressVector,
        peers: &Peers,
    ) -> FabricAddress {
        let version = av.version();
        if self.version != version && !mutated!("fi_cq/source-is-in-table") {
            self.version = version;
            self.addresses.clear();
        }
        let index = peer.index();
        if let Some(Some(address)) = self.addresses.get(index) {
            return *address;
        }
        let mut found = av.reverse_lookup(&peers.address_of(peer));
        if mutated!("fi_cq/no-insertion-by-provider") && found.is_none() {
            found = av.insert_one(peers.address_of(peer)).ok();
        }
        if mutated!("fi_cq/source-is-usable") {
            found = found.map(|FabricAddress(index)| FabricAddress(index + 1));
        }
        let address = found.unwrap_or(FabricAddress::UNSPECIFIED);
        if self.addresses.len() <= index {
            self.addresses.resize(index + 1, None);
        }
        self.addresses[index] = Some(address);
        address
    }
}
