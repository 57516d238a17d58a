//! What the address vector says of peers, remembered for as long as it stays as it is.

use homespun_engine::engine::Engine;
use homespun_engine::error::Error;
use homespun_engine::peer_id::PeerId;
use homespun_engine::peers::Peers;

use crate::av::{AddressVector, FabricAddress};

/// Which peer an `fi_addr_t` means, remembered from the address vector.
#[derive(Default)]
pub(super) struct Targets {
    version: u64,
    peers: Vec<Option<PeerId>>,
}

/// Which `fi_addr_t` a peer has, remembered from the address vector.
#[derive(Default)]
pub(super) struct Sources {
    version: u64,
    addresses: Vec<Option<FabricAddress>>,
}

impl Targets {
    #[inline]
    pub(super) fn peer(
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
        self.look_up(address, version, av, engine)
    }

    #[inline(never)]
    fn look_up(
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
        // Whatever the address is: a connection has one other end.
        if let Some(connected) = engine.connected_peer() {
            return connected;
        }
        let peer = engine.peer(av.lookup(address)?);
        if self.peers.len() <= index {
            self.peers.resize(index + 1, None);
        }
        self.peers[index] = Some(peer);
        Ok(peer)
    }
}

impl Sources {
    pub(super) fn address(&mut self, peer: PeerId, av: &AddressVector, peers: &Peers) -> FabricAddress {
        let version = av.version();
        if self.version != version {
            self.version = version;
            self.addresses.clear();
        }
        let index = peer.index();
        if let Some(Some(address)) = self.addresses.get(index) {
            return *address;
        }
        let address = av.reverse_lookup(&peers.address(peer)).unwrap_or(FabricAddress::UNSPECIFIED);
        if self.addresses.len() <= index {
            self.addresses.resize(index + 1, None);
        }
        self.addresses[index] = Some(address);
        address
    }
}
