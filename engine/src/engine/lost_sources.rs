//! Sources of posted receives that were lost before: the engine connects to each, to learn whether
//! it is there again. See `docs/decisions/directed-receives.md`.

use std::mem;

use super::Engine;
use crate::connection::EndpointRole;
use crate::peer_id::PeerId;
use crate::transport::Transport;

impl Engine {
    /// A receive that accepts messages from this peer alone was posted. If the peer is lost, the next pass
    /// connects to it.
    #[inline(always)]
    pub(super) fn source_named(&mut self, source: PeerId) {
        if self.peers.peer(source).is_lost {
            self.add_lost_source(source);
        }
    }

    #[cold]
    fn add_lost_source(&mut self, source: PeerId) {
        // A connected endpoint has one peer, and never gets another.
        if self.config.role != EndpointRole::Connected && !self.lost_sources.contains(&source) {
            self.lost_sources.push(source);
        }
    }

    /// Connects to the lost sources that posted receives still wait for. If that fails, too, these receives
    /// end with the link.
    pub(super) fn connect_to_lost_sources(&mut self, transport: &mut impl Transport) {
        for source in mem::take(&mut self.lost_sources) {
            let state = self.peers.peer(source);
            let is_unlinked = state.is_lost && state.links.is_empty();
            if is_unlinked && self.receive_side.awaits(source, self.peers.address_of(source)) {
                self.find_or_open_transmit_link(source, transport);
            }
        }
    }
}
