use std::net::SocketAddr;

use super::*;

const GRACE: Duration = Duration::from_millis(500);

fn host(number: u8) -> SourceHost {
    SourceHost::of(SocketAddr::from(([10, 0, 0, number], 1)).into())
}

/// AcceptedLinks, and the time.
struct TimedLinks {
    links: AcceptedLinks,
    now: Instant,
    count: u32,
}

impl TimedLinks {
    fn new(max_links: usize) -> TimedLinks {
        TimedLinks { links: AcceptedLinks::new(max_links, GRACE), now: Instant::now(), count: 0 }
    }

    /// Adds links of a host, and lets a moment pass after each. Returns the first of them.
    fn insert(&mut self, from: u8, count: usize) -> LinkId {
        let first = LinkId(self.count);
        for _ in 0..count {
            self.links.insert(LinkId(self.count), host(from), self.now);
            self.count += 1;
            self.now += Duration::from_micros(1);
        }
        first
    }

    fn insert_proven(&mut self, from: u8, count: usize) {
        let first = self.insert(from, count);
        (first.0..self.count).for_each(|number| self.links.protect(LinkId(number)));
    }

    fn room_for(&self, from: u8) -> Room {
        self.links.room_for(host(from), self.now)
    }
}

#[test]
fn host_with_the_most_unproven_links_loses_its_oldest() {
    let mut timed = TimedLinks::new(10);
    timed.insert(1, 2);
    let of_second = timed.insert(2, 3);
    timed.insert_proven(3, 5);
    timed.now += GRACE;
    assert_eq!(timed.room_for(4), Room::InPlaceOf(of_second));
    timed.links.remove(of_second);
    assert_eq!(timed.room_for(4), Room::Free);
    timed.insert(4, 1);
    timed.now += GRACE;
    // Both have two. A further link of either host is the third of its own host.
    assert_eq!(timed.room_for(1), Room::InPlaceOf(LinkId(0)));
    assert_eq!(timed.room_for(2), Room::InPlaceOf(LinkId(of_second.0 + 1)));
}

#[test]
fn of_hosts_with_as_many_links_the_one_with_the_older_link_loses_it() {
    let mut timed = TimedLinks::new(6);
    for host in [3, 1, 2, 3, 1, 2] {
        timed.insert(host, 1);
    }
    timed.now += GRACE;
    // After each loss, another host has the most.
    for number in 0..6 {
        let found = timed.links.oldest_displaceable(timed.now).unwrap();
        assert_eq!(found.id, LinkId(number));
        timed.links.remove(found.id);
    }
}

#[test]
fn unproven_link_is_displaced_only_after_its_grace() {
    let mut timed = TimedLinks::new(4);
    let first = timed.insert(1, 1);
    timed.now += GRACE / 2;
    timed.insert(1, 1);
    timed.insert_proven(2, 2);
    assert_eq!((timed.room_for(3), timed.links.oldest_displaceable(timed.now)), (Room::Full, None));
    timed.now += GRACE / 2;
    assert_eq!(timed.room_for(3), Room::InPlaceOf(first));
    assert_eq!(timed.links.oldest_displaceable(timed.now).map(|found| found.id), Some(first));
}

#[test]
fn proven_links_are_not_displaced() {
    let mut timed = TimedLinks::new(4);
    timed.insert_proven(1, 2);
    let unproven = timed.insert(1, 1);
    timed.insert_proven(2, 1);
    timed.now += GRACE;
    assert_eq!(timed.room_for(3), Room::InPlaceOf(unproven));
    let found = timed.links.oldest_displaceable(timed.now).unwrap();
    assert!(timed.links.is_unproven(found));
    timed.links.protect(unproven);
    assert!(!timed.links.is_unproven(found));
    assert_eq!((timed.room_for(3), timed.links.oldest_displaceable(timed.now)), (Room::Full, None));
}

#[test]
fn host_beyond_its_share_displaces_only_its_own_links() {
    let mut timed = TimedLinks::new(100);
    timed.insert(2, 20);
    let own = timed.insert(1, HOST_LINKS_PERCENT);
    timed.now += GRACE;
    assert_eq!((timed.room_for(1), timed.room_for(2)), (Room::InPlaceOf(own), Room::Free));
    for number in own.0..timed.count {
        timed.links.protect(LinkId(number));
    }
    assert_eq!(timed.room_for(1), Room::Full, "others have unproven links, but room is left for others");
}

#[test]
fn host_with_young_links_only_does_not_make_another_pay() {
    let mut timed = TimedLinks::new(10);
    timed.insert(1, 4);
    timed.now += GRACE;
    timed.insert(2, 6);
    assert_eq!(timed.room_for(2), Room::Full);
    assert_eq!(timed.room_for(3), Room::Full, "the links of the host that pays are young");
}

#[test]
fn slow_peers_of_a_host_with_many_proven_links_stay() {
    let mut timed = TimedLinks::new(100);
    timed.insert_proven(1, 70);
    let slow = timed.insert(1, 1);
    let of_stranger = timed.insert(2, 29);
    timed.now += GRACE;
    assert_eq!(timed.room_for(3), Room::InPlaceOf(of_stranger));
    assert_eq!(timed.room_for(1), Room::InPlaceOf(of_stranger));
    assert!(timed.links.is_unproven(DisplaceableLink { id: slow, number: slow.0.into() }));
}

#[test]
fn descriptors_limit_links_and_shares() {
    let mut timed = TimedLinks::new(1000);
    timed.links.limit_by_descriptors(4);
    assert_eq!(timed.links.max_links(), 4);
    timed.insert_proven(1, 3);
    assert_eq!((timed.room_for(1), timed.room_for(2)), (Room::Full, Room::Free));
    timed.insert_proven(2, 1);
    assert_eq!(timed.room_for(2), Room::Full);
    timed.links.limit_by_descriptors(usize::MAX);
    assert_eq!((timed.links.max_links(), timed.room_for(1)), (1000, Room::Free));
}

#[test]
fn few_links_and_unlimited_ones_have_a_share() {
    let shares = [0, 1, 2, 4, 20, 100, 1 << 14].map(share_of);
    assert_eq!(shares, [0, 1, 2, 3, 15, 75, 12_288]);
    assert!(share_of(usize::MAX) > usize::MAX / 2);
}

#[test]
fn ended_links_leave_nothing_behind() {
    let mut timed = TimedLinks::new(10);
    timed.insert(1, 2);
    timed.insert_proven(2, 2);
    timed.insert(2, 1);
    (0..timed.count).rev().for_each(|number| timed.links.remove(LinkId(number)));
    timed.links.remove(LinkId(0));
    assert_eq!(timed.links.len(), 0);
    assert!(timed.links.hosts.is_empty() && timed.links.by_rank.is_empty());
}
