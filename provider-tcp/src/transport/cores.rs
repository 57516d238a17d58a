//! Finds out whether peers on this host run on the core on which this side waits for them.

use homespun_engine::address::Address;

use crate::limits::CORE_LOOK_MAX_LINKS;
use crate::link::Origin;
use crate::sys;
use crate::transport::TcpTransport;

impl TcpTransport {
    /// Returns whether a peer on this host has last sent on this core. Within a host, the kernel receives a
    /// packet on the core of the sender. Each call looks at the next [`CORE_LOOK_MAX_LINKS`] links.
    pub(super) fn look_for_peer_on_core(&mut self, core: u32) -> bool {
        for _ in 0..CORE_LOOK_MAX_LINKS {
            let Some(id) = self.links.next_id(self.core_turn) else { return false };
            let is_only_link = id == self.core_turn;
            self.core_turn = id;
            let Some(link) = self.links.link_mut(id) else { continue };
            let is_on_this_host = *link.is_on_this_host.get_or_insert_with(|| {
                let remote = match link.origin {
                    Origin::Connected(to) => to,
                    Origin::Accepted { remote, .. } => Address::from(remote),
                };
                self.local_addresses.contains(remote.socket_addr().ip())
            });
            if is_on_this_host && sys::incoming_core(&*link.stream).is_ok_and(|found| found == Some(core)) {
                return true;
            }
            if is_only_link {
                return false;
            }
        }
        false
    }
}
