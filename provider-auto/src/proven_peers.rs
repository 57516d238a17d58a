//! Peers that shared memory has proven: the kernel has vouched for the user of their process.
//!
//! While a link over shared memory leads to a peer, a connection over TCP that claims its address counts only
//! once the endpoint at the address confirms it.

use std::collections::HashMap;

use homespun_engine::address::Address;
use homespun_engine::transport::LinkId;

/// The peers at the other ends of the links over shared memory.
#[derive(Debug, Default)]
pub(crate) struct ProvenPeers {
    addresses: HashMap<LinkId, Address>,
    /// How many of these links lead to each address.
    link_counts: HashMap<Address, u32>,
    changes: Vec<ProvenPeer>,
}

/// A change for TCP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProvenPeer {
    /// The peer at this address is proven from now on.
    Begun(Address),
    /// The last link over shared memory to this address has ended.
    Ended(Address),
}

impl ProvenPeers {
    /// Records a link over shared memory to this address. The link may still be connecting: by then the
    /// kernel has told which user has the name there.
    pub(crate) fn link_begun(&mut self, near: LinkId, address: Address) {
        if self.addresses.insert(near, address).is_some() {
            return;
        }
        let links = self.link_counts.entry(address).or_default();
        *links += 1;
        if *links == 1 {
            self.changes.push(ProvenPeer::Begun(address));
        }
    }

    /// Records that a link over shared memory has ended, or has moved to TCP.
    pub(crate) fn link_ended(&mut self, near: LinkId) {
        let Some(address) = self.addresses.remove(&near) else { return };
        if let Some(links) = self.link_counts.get_mut(&address) {
            *links -= 1;
            if *links == 0 {
                self.link_counts.remove(&address);
                self.changes.push(ProvenPeer::Ended(address));
            }
        }
    }

    /// Whether there are changes that TCP does not know.
    #[inline]
    pub(crate) fn has_changes(&self) -> bool {
        !self.changes.is_empty()
    }

    /// Takes the changes, in their order.
    pub(crate) fn take_changes(&mut self) -> Vec<ProvenPeer> {
        std::mem::take(&mut self.changes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_is_proven_from_its_first_link_to_its_last() {
        let (one, other) = ("127.0.0.1:1".parse().unwrap(), "127.0.0.1:2".parse().unwrap());
        let mut proven = ProvenPeers::default();
        proven.link_begun(LinkId(1), one);
        proven.link_begun(LinkId(2), one);
        proven.link_begun(LinkId(3), other);
        proven.link_ended(LinkId(1));
        assert_eq!(proven.take_changes(), [ProvenPeer::Begun(one), ProvenPeer::Begun(other)]);
        proven.link_ended(LinkId(9));
        assert!(!proven.has_changes(), "one link is left");
        proven.link_ended(LinkId(2));
        assert_eq!(proven.take_changes(), [ProvenPeer::Ended(one)]);
    }
}
