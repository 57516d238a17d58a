//! Held links whose peers have hung up.

use std::collections::{HashMap, VecDeque};

use homespun_engine::address::Address;
use homespun_engine::source_host::SourceHost;
use homespun_engine::transport::LinkId;

use crate::limits::{HELD_HUNG_UP_MAX_LINKS, HELD_HUNG_UP_MAX_LINKS_OF_ADDRESS};

/// Held links that are kept although their peers have hung up, in the order of the hang-ups. Only a few are
/// kept, and a host with many such links loses its own.
#[derive(Debug, Default)]
pub(super) struct HungUpHeld {
    kept: VecDeque<KeptLink>,
}

#[derive(Debug, Clone, Copy)]
struct KeptLink {
    id: LinkId,
    /// The address that the link claims.
    address: Address,
    /// The host that the link comes from.
    from: SourceHost,
}

impl HungUpHeld {
    /// Keeps a link. If too many are kept, returns the one to drop instead: of the host with the most kept
    /// links, the one whose peer was the first to hang up.
    pub(super) fn keep(&mut self, id: LinkId, address: Address, from: SourceHost) -> Option<LinkId> {
        if self.kept.iter().any(|kept| kept.id == id) {
            return None;
        }
        self.kept.push_back(KeptLink { id, address, from });
        let claims_address = |kept: &KeptLink| kept.address == address;
        if self.kept.iter().filter(|kept| claims_address(kept)).count() > HELD_HUNG_UP_MAX_LINKS_OF_ADDRESS {
            self.take_first_of_largest_host(claims_address)
        } else if self.kept.len() > HELD_HUNG_UP_MAX_LINKS {
            self.take_first_of_largest_host(|_| true)
        } else {
            None
        }
    }

    /// Forgets links that have ended or are admitted.
    pub(super) fn remove(&mut self, is_removed: impl Fn(LinkId) -> bool) {
        self.kept.retain(|kept| !is_removed(kept.id));
    }

    /// Of the links that `is_candidate` selects, takes the first one of the host with the most such links.
    fn take_first_of_largest_host(&mut self, is_candidate: impl Fn(&KeptLink) -> bool) -> Option<LinkId> {
        let mut counts: HashMap<SourceHost, usize> = HashMap::new();
        for kept in self.kept.iter().filter(|kept| is_candidate(kept)) {
            *counts.entry(kept.from).or_default() += 1;
        }
        let most = counts.values().copied().max()?;
        let is_first = |kept: &KeptLink| is_candidate(kept) && counts.get(&kept.from) == Some(&most);
        let place = self.kept.iter().position(is_first)?;
        self.kept.remove(place).map(|kept| kept.id)
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;

    fn address(host: u8, port: u16) -> Address {
        SocketAddr::from(([10, 0, 0, host], port)).into()
    }

    /// Keeps a link of a host that claims an address of this host.
    fn keep(kept: &mut HungUpHeld, id: u32, host: u8, port: u16) -> Option<LinkId> {
        let claimed = address(host, port);
        kept.keep(LinkId(id), claimed, SourceHost::of(claimed))
    }

    #[test]
    fn host_with_the_most_links_loses_its_first() {
        let mut kept = HungUpHeld::default();
        assert_eq!(keep(&mut kept, 0, 1, 1), None);
        for number in 1..HELD_HUNG_UP_MAX_LINKS as u16 {
            assert_eq!(keep(&mut kept, number.into(), 2, number), None);
        }
        for number in HELD_HUNG_UP_MAX_LINKS as u16..1000 {
            let first = u32::from(number) - HELD_HUNG_UP_MAX_LINKS as u32 + 1;
            assert_eq!(keep(&mut kept, number.into(), 2, number), Some(LinkId(first)));
        }
        assert!(kept.kept.iter().any(|kept| kept.id == LinkId(0)), "the link of another host is gone");
        // With one link of each host, the first goes.
        let mut kept = HungUpHeld::default();
        for host in 0..HELD_HUNG_UP_MAX_LINKS as u8 {
            assert_eq!(keep(&mut kept, host.into(), host, 1), None);
        }
        assert_eq!(keep(&mut kept, 200, 200, 1), Some(LinkId(0)));
    }

    #[test]
    fn few_links_of_an_address_are_kept() {
        let mut kept = HungUpHeld::default();
        let claimed = address(1, 1);
        let [peer, stranger] = [1, 2].map(|host| SourceHost::of(address(host, 1)));
        assert_eq!(kept.keep(LinkId(0), claimed, peer), None);
        for id in 1..HELD_HUNG_UP_MAX_LINKS_OF_ADDRESS as u32 {
            assert_eq!(kept.keep(LinkId(id), claimed, stranger), None);
        }
        assert_eq!(kept.keep(LinkId(100), claimed, stranger), Some(LinkId(1)));
        assert_eq!(kept.keep(LinkId(100), claimed, stranger), None, "it is kept already");
        assert_eq!(keep(&mut kept, 200, 1, 2), None, "another address");
    }

    #[test]
    fn removed_links_make_room() {
        let mut kept = HungUpHeld::default();
        for id in 0..HELD_HUNG_UP_MAX_LINKS as u16 {
            keep(&mut kept, id.into(), 1, id);
        }
        kept.remove(|id| id.0 % 2 == 0);
        for id in 1000..1000 + HELD_HUNG_UP_MAX_LINKS as u16 / 2 {
            assert_eq!(keep(&mut kept, id.into(), 1, id), None);
        }
        assert_eq!(keep(&mut kept, 2000, 1, 2000), Some(LinkId(1)));
    }
}
