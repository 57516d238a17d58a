//! Proven peers: the peers of links over shared memory. For each of these links, the kernel has told which
//! user the peer's process belongs to.
//!
//! If a new connection over TCP claims the address of a proven peer, TCP holds the connection until the
//! endpoint at that address has confirmed it.

use std::collections::HashMap;

use homespun_engine::address::Address;
use homespun_engine::transport::LinkId;

/// The addresses of the proven peers.
#[derive(Debug, Default)]
pub(crate) struct ProvenPeers {
    address_by_link: HashMap<LinkId, Address>,
    /// How many links lead to each address.
    link_counts: HashMap<Address, u32>,
    changes: Vec<ProvenChange>,
}

/// A change of the proven peers, of which TCP must be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProvenChange {
    /// The peer at this address is proven from now on.
    Added(Address),
    /// The last link over shared memory to this address has ended.
    Removed(Address),
}

impl ProvenPeers {
    /// Adds a link over shared memory to this address, unless the link was added before. The link need not
    /// be up.
    pub(crate) fn add_link(&mut self, near: LinkId, address: Address) {
        if self.address_by_link.insert(near, address).is_some() {
            return;
        }
        let links = self.link_counts.entry(address).or_default();
        *links += 1;
        if *links == 1 {
            self.changes.push(ProvenChange::Added(address));
        }
    }

    /// Removes a link over shared memory that has ended or has moved to TCP.
    pub(crate) fn remove_link(&mut self, near: LinkId) {
        let Some(address) = self.address_by_link.remove(&near) else { return };
        if let Some(links) = self.link_counts.get_mut(&address) {
            *links -= 1;
            if *links == 0 {
                self.link_counts.remove(&address);
                self.changes.push(ProvenChange::Removed(address));
            }
        }
    }

    /// Whether there are changes that TCP does not know.
    #[inline]
    pub(crate) fn has_changes(&self) -> bool {
        !self.changes.is_empty()
    }

    /// Removes and returns the changes that TCP was not told yet, in their order.
    pub(crate) fn take_changes(&mut self) -> Vec<ProvenChange> {
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
        proven.add_link(LinkId(1), one);
        proven.add_link(LinkId(2), one);
        proven.add_link(LinkId(3), other);
        proven.remove_link(LinkId(1));
        assert_eq!(proven.take_changes(), [ProvenChange::Added(one), ProvenChange::Added(other)]);
        proven.remove_link(LinkId(9));
        assert!(!proven.has_changes(), "one link is left");
        proven.remove_link(LinkId(2));
        assert_eq!(proven.take_changes(), [ProvenChange::Removed(one)]);
    }
}
