//! Awaited sources. An awaited source is a peer without a link that a posted receive names as its
//! only source. The peer was lost, or an attempt to connect to it was cut short. The engine
//! connects to each awaited source, to learn whether the peer is there. See
//! `docs/decisions/directed-receives.md`.

use std::mem;

use super::Engine;
use crate::connection::EndpointRole;
use crate::peer_id::PeerId;
use crate::transport::Transport;

impl Engine {
    /// Makes the next pass connect to this peer, if the peer is lost. The caller has posted a
    /// receive that names the peer as its only source.
    #[inline(always)]
    pub(super) fn add_awaited_source_if_lost(&mut self, source: PeerId) {
        if self.peers.peer(source).is_lost() {
            self.add_awaited_source(source);
        }
    }

    /// Makes the next pass connect to this peer. The pass skips the peer if the peer has a link by
    /// then, or if no posted receive names the peer as its only source.
    #[cold]
    pub(super) fn add_awaited_source(&mut self, source: PeerId) {
        // A connected endpoint has one peer, and connects only once.
        if self.config.role != EndpointRole::Connected && !self.awaited_sources.contains(&source) {
            self.awaited_sources.push(source);
        }
    }

    /// Connects to those awaited sources that still have no link and are named by a receive. If an
    /// attempt fails, the transport reports the new link as ended. Then the receives fail.
    pub(super) fn connect_to_awaited_sources(&mut self, transport: &mut impl Transport) {
        for source in mem::take(&mut self.awaited_sources) {
            let is_unlinked = self.peers.peer(source).links().is_empty();
            if is_unlinked && self.receive_side.has_receive_only_from(source, self.peers.address_of(source)) {
                self.find_or_open_transmit_link(source, transport);
            }
        }
    }
}
