//! Finds out whether peers run on the core on which this side waits for them.

use homespun_engine::transport::LinkId;

use crate::limits::CORE_LOOK_MAX_LINKS;
use crate::link::Slot;
use crate::transport::ShmTransport;

impl ShmTransport {
    /// Tells the peers that this side hears from the core on which this side runs. Returns whether one of
    /// them has last waited on the same core. If all links are cold, the peers of cold links count. Each call
    /// looks at the next [`CORE_LOOK_MAX_LINKS`] links.
    pub(super) fn publish_core_to_active_peers(&mut self, core: u32) -> bool {
        if self.generation.is_in_forked_child() {
            return false;
        }
        let (mut is_found, count) = (false, self.hot.len());
        if count == 0 {
            return self.publish_core_to_cold_links(core);
        }
        for _ in 0..count.min(CORE_LOOK_MAX_LINKS) {
            self.core_turn = (self.core_turn + 1) % count;
            is_found |= self.publish_core_to_peer(self.hot[self.core_turn], core);
        }
        is_found
    }

    fn publish_core_to_cold_links(&mut self, core: u32) -> bool {
        let (mut is_found, mut first) = (false, None);
        for _ in 0..CORE_LOOK_MAX_LINKS {
            let Some(next) = self.links.next_id(self.cold_core_turn) else { break };
            if first == Some(next) {
                break;
            }
            first.get_or_insert(next);
            self.cold_core_turn = next;
            is_found |= self.publish_core_to_peer(next, core);
        }
        is_found
    }

    /// Returns whether the peer of this link has last waited on this core.
    fn publish_core_to_peer(&mut self, id: LinkId, core: u32) -> bool {
        let Some(Slot::Made(link)) = self.links.get_mut(id) else { return false };
        if let Some(outgoing) = &mut link.outgoing {
            outgoing.ring.publish_core(core);
        }
        link.incoming.as_ref().is_some_and(|incoming| incoming.ring.producer_core() == Some(core))
    }
}
