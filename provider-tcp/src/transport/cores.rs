//! Finds out whether peers on this host run on the core on which this side waits for them.

use homespun_engine::address::Address;
use homespun_engine::transport::LinkId;

use crate::limits::RECENT_CORES_MAX_PEERS;
use crate::link::Origin;
use crate::sys;
use crate::transport::TcpTransport;

/// The cores of the peers whose frames have ended long waits.
///
/// Within a host, the kernel receives a packet on the core where its sending was caused. Not every packet is
/// the peer's doing: the acknowledgement of bytes that this side sends arrives on the core of this side, and
/// so does payload for which this side has made room. So the core is read right after this side has waited
/// and one read has taken all that had arrived, the begin of a frame at the least.
#[derive(Debug, Default)]
pub(super) struct PeerCores {
    /// Whether this side has waited since a core was last read.
    pub(super) is_read_due: bool,
    /// The latest come last.
    recent: Vec<(LinkId, u32)>,
}

impl PeerCores {
    fn record(&mut self, id: LinkId, core: u32) {
        self.recent.retain(|&(known, _)| known != id);
        if self.recent.len() == RECENT_CORES_MAX_PEERS {
            self.recent.remove(0);
        }
        self.recent.push((id, core));
    }
}

impl TcpTransport {
    /// Returns whether a peer on this host was on this core when its frames last ended a long wait.
    pub(super) fn look_for_peer_on_core(&mut self, core: u32) -> bool {
        self.peer_cores.is_read_due = true;
        let Self { peer_cores, links, .. } = self;
        peer_cores.recent.iter().any(|&(id, found)| found == core && links.slot(id).is_some())
    }

    /// Records the core of the peer whose frames have just been read.
    #[cold]
    pub(super) fn read_peer_core(&mut self, id: LinkId) {
        self.peer_cores.is_read_due = false;
        let Some(link) = self.links.link_mut(id) else { return };
        let is_on_this_host = *link.is_on_this_host.get_or_insert_with(|| {
            let remote = match link.origin {
                Origin::Connected(to) => to,
                Origin::Accepted { remote, .. } => Address::from(remote),
            };
            self.local_addresses.contains(remote.socket_addr().ip())
        });
        if is_on_this_host && let Ok(Some(core)) = sys::incoming_core(&*link.stream) {
            self.peer_cores.record(id, core);
        }
    }
}
