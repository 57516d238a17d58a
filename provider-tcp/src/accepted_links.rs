//! The accepted links on which the peer has said hello, grouped by the host that they come from.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::{Duration, Instant};

use homespun_engine::source_host::SourceHost;
use homespun_engine::transport::LinkId;

use crate::limits::HOST_LINKS_PERCENT;

/// The accepted links on which the peer has said hello, and how many there may be.
///
/// A link is *unproven* until the endpoint at the address that its peer claims has confirmed it. If there is
/// no room for another link, it displaces an unproven one. Each host has a share of the links. A host that
/// has used it up displaces only its own links.
#[derive(Debug)]
pub(crate) struct AcceptedLinks {
    configured_max_links: usize,
    /// How many links the descriptors of the process allow.
    descriptor_max_links: usize,
    /// How long an unproven link is safe from being displaced.
    grace: Duration,
    links: HashMap<LinkId, AcceptedLink>,
    hosts: HashMap<SourceHost, LinksOfHost>,
    /// The hosts with unproven links. The last is the one that loses a link next.
    by_rank: BTreeSet<(Rank, SourceHost)>,
    /// How many links were inserted before the next one.
    next_number: u64,
}

#[derive(Debug, Clone, Copy)]
struct AcceptedLink {
    from: SourceHost,
    /// The number of links that were inserted before this one; `None` once the link is proven.
    unproven_number: Option<u64>,
}

/// Orders hosts by the number of their unproven links. Of two hosts with the same number, the one with the
/// older link comes later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    unproven_count: usize,
    oldest: Reverse<u64>,
}

#[derive(Debug, Default)]
struct LinksOfHost {
    count: usize,
    /// The unproven links by their numbers, so that the oldest comes first.
    unproven: BTreeMap<u64, UnprovenLink>,
}

#[derive(Debug, Clone, Copy)]
struct UnprovenLink {
    id: LinkId,
    since: Instant,
}

impl LinksOfHost {
    /// The rank of the host; `None` without unproven links.
    fn rank(&self) -> Option<Rank> {
        let (oldest, _) = self.unproven.first_key_value()?;
        Some(Rank { unproven_count: self.unproven.len(), oldest: Reverse(*oldest) })
    }
}

/// A link that another one may displace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DisplaceableLink {
    pub(crate) id: LinkId,
    number: u64,
}

/// Whether there is room for another link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Room {
    Free,
    /// The new link displaces this one.
    InPlaceOf(LinkId),
    Full,
}

impl AcceptedLinks {
    pub(crate) fn new(max_links: usize, grace: Duration) -> AcceptedLinks {
        AcceptedLinks {
            configured_max_links: max_links,
            descriptor_max_links: usize::MAX,
            grace,
            links: HashMap::new(),
            hosts: HashMap::new(),
            by_rank: BTreeSet::new(),
            next_number: 0,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.links.len()
    }

    /// Records how many links the descriptors of the process allow at present.
    pub(crate) fn limit_by_descriptors(&mut self, max_links: usize) {
        self.descriptor_max_links = max_links;
    }

    /// How many links there may be.
    pub(crate) fn max_links(&self) -> usize {
        self.configured_max_links.min(self.descriptor_max_links)
    }

    /// Whether a new link from this host has room. If all links are taken, the host with the most unproven
    /// links loses its oldest one. The new link counts as one of these.
    pub(crate) fn room_for(&self, from: SourceHost, now: Instant) -> Room {
        let host = self.hosts.get(&from);
        let (count, unproven_count) = host.map_or((0, 0), |host| (host.count, host.unproven.len()));
        let is_host_full = count >= share_of(self.max_links());
        if !is_host_full && self.len() < self.max_links() {
            return Room::Free;
        }
        let loser = match self.by_rank.last() {
            Some(&(rank, host)) if !is_host_full && rank.unproven_count > unproven_count => host,
            _ => from,
        };
        self.oldest_displaceable_of(loser, now).map_or(Room::Full, |found| Room::InPlaceOf(found.id))
    }

    /// The oldest link of the host with the most unproven links, if its grace is over.
    pub(crate) fn oldest_displaceable(&self, now: Instant) -> Option<DisplaceableLink> {
        let (_, host) = self.by_rank.last()?;
        self.oldest_displaceable_of(*host, now)
    }

    /// Whether a link that was found is still there and unproven.
    pub(crate) fn is_unproven(&self, found: DisplaceableLink) -> bool {
        self.links.get(&found.id).is_some_and(|link| link.unproven_number == Some(found.number))
    }

    /// Adds a link on which the peer has said hello.
    pub(crate) fn insert(&mut self, id: LinkId, from: SourceHost, now: Instant) {
        let number = self.next_number;
        self.next_number += 1;
        self.links.insert(id, AcceptedLink { from, unproven_number: Some(number) });
        self.hosts.entry(from).or_default().count += 1;
        self.change_unproven(from, |unproven| _ = unproven.insert(number, UnprovenLink { id, since: now }));
    }

    /// Lets no other link displace this one: its claim is confirmed, or this side has begun to close it.
    pub(crate) fn protect(&mut self, id: LinkId) {
        let Some(link) = self.links.get_mut(&id) else { return };
        let (from, number) = (link.from, link.unproven_number.take());
        number.into_iter().for_each(|number| self.remove_unproven(from, number));
    }

    /// Removes a link that has ended.
    pub(crate) fn remove(&mut self, id: LinkId) {
        let Some(AcceptedLink { from, unproven_number }) = self.links.remove(&id) else { return };
        unproven_number.into_iter().for_each(|number| self.remove_unproven(from, number));
        if let Some(host) = self.hosts.get_mut(&from) {
            host.count -= 1;
            if host.count == 0 {
                self.hosts.remove(&from);
            }
        }
    }

    fn remove_unproven(&mut self, from: SourceHost, number: u64) {
        self.change_unproven(from, |unproven| _ = unproven.remove(&number));
    }

    /// Changes the unproven links of a host, and so its rank.
    fn change_unproven(&mut self, from: SourceHost, change: impl FnOnce(&mut BTreeMap<u64, UnprovenLink>)) {
        let Some(host) = self.hosts.get_mut(&from) else { return };
        if let Some(before) = host.rank() {
            self.by_rank.remove(&(before, from));
        }
        change(&mut host.unproven);
        self.by_rank.extend(host.rank().map(|rank| (rank, from)));
    }

    fn oldest_displaceable_of(&self, host: SourceHost, now: Instant) -> Option<DisplaceableLink> {
        let (number, oldest) = self.hosts.get(&host)?.unproven.first_key_value()?;
        let is_aged = now.saturating_duration_since(oldest.since) >= self.grace;
        is_aged.then_some(DisplaceableLink { id: oldest.id, number: *number })
    }
}

/// How many of `max_links` one host may have.
fn share_of(max_links: usize) -> usize {
    // Divide first, so that a large number does not overflow. Round up, so that few links have a share, too.
    max_links / 100 * HOST_LINKS_PERCENT + (max_links % 100 * HOST_LINKS_PERCENT).div_ceil(100)
}

#[cfg(test)]
mod tests;
