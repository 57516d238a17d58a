//! Finds out whether peers run on the core on which this side waits for them.

use homespun_engine::transport::LinkId;

use crate::limits::CORE_LOOK_MAX_LINKS;
use crate::link::Slot;
use crate::transport::ShmTransport;

impl ShmTransport {
    /// Tells the peers that this side hears from the core on which this side runs. Returns whether one of
    /// them has last waited on the same core. If all links are cold, the peers of cold links count.
    pub(super) fn publish_core_to_active_peers(&mut self, core: u32) -> bool {
        if self.generation.is_in_forked_child() {
            return false;
        }
        if !self.hot.is_empty() {
            return (0..self.hot.len().min(CORE_LOOK_MAX_LINKS))
                .fold(false, |found, at| self.publish_core_to_peer(self.hot[at], core) | found);
        }
        let mut id = LinkId(0);
        let mut is_found = false;
        for _ in 0..CORE_LOOK_MAX_LINKS {
            let Some(next) = self.links.next_id(id) else { break };
            is_found |= self.publish_core_to_peer(next, core);
            if next <= id {
                break;
            }
            id = next;
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
