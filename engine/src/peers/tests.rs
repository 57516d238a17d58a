//! Tests of the table: which peers it keeps, and that no two peers ever share an id.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use proptest::prelude::*;

use super::*;
use crate::transport::LinkId;

const SWEEP_MIN_PEERS: usize = 8;

fn address(number: u16) -> Address {
    SocketAddr::from(([127, 0, 0, 1], number)).into()
}

/// A table, and what a correct table must know. A peer's key is its port.
#[derive(Default)]
struct Modelled {
    peers: Peers,
    /// The ids of peers that are named, linked or kept.
    used: BTreeMap<u16, PeerId>,
    named: BTreeSet<u16>,
    /// The peers to which a link leads.
    linked: BTreeSet<u16>,
    /// The peers that a part of the engine refers to, besides links.
    kept: BTreeSet<u16>,
    /// How many peers were introduced so far. `last_used` has this number as it was when each peer was last
    /// used.
    introductions: usize,
    last_used: BTreeMap<u16, usize>,
    most_used: usize,
}

#[derive(Debug, Clone)]
enum Step {
    /// A link comes up, and introduces the peer if it is not known.
    LinkUp(u16),
    LinkDown(u16),
    /// A part of the engine keeps the id of a linked peer, for example for a message that waits.
    Keep(u16),
    Drop(u16),
    Name(u16),
}

impl Modelled {
    fn sweep_if_due(&mut self) {
        if self.peers.is_sweep_due() {
            let mut marks = self.peers.new_marks();
            marks.mark(self.kept.iter().map(|number| self.used[number]));
            self.peers.sweep(&marks);
        }
    }

    fn take_step(&mut self, step: &Step) {
        match *step {
            Step::LinkUp(number) => {
                self.sweep_if_due();
                self.introductions += usize::from(self.peers.find(address(number)).is_none());
                let id = self.peers.intern_introduced(address(number));
                if self.linked.insert(number) {
                    self.peers.peer_mut(id).link_begun(LinkId(number.into()));
                }
                self.used.insert(number, id);
            }
            Step::LinkDown(number) if self.linked.remove(&number) => {
                self.peers.peer_mut(self.used[&number]).link_ended(LinkId(number.into()));
            }
            Step::Keep(number) if self.linked.contains(&number) => drop(self.kept.insert(number)),
            Step::Drop(number) => drop(self.kept.remove(&number)),
            Step::Name(number) => {
                let id = self.peers.intern_named(address(number));
                self.named.insert(number);
                self.used.insert(number, id);
            }
            Step::LinkDown(_) | Step::Keep(_) => {}
        }
        let Modelled { used, named, linked, kept, introductions, last_used, .. } = self;
        last_used.extend(used.keys().map(|&number| (number, *introductions)));
        used.retain(|number, _| named.contains(number) || linked.contains(number) || kept.contains(number));
        self.most_used = self.most_used.max(self.used.len());
    }

    fn check(&self) {
        for (&number, &id) in &self.used {
            assert_eq!(self.peers.find(address(number)), Some(id), "{number} has lost its id");
            assert_eq!(self.peers.address_of(id), address(number), "the id of {number} was given away");
        }
        for (&number, &introductions) in &self.last_used {
            if self.introductions - introductions < SWEEP_MIN_PEERS {
                assert!(self.peers.find(address(number)).is_some(), "{number} is forgotten too soon");
            }
        }
        let ids: BTreeSet<PeerId> = self.peers.by_address.values().copied().collect();
        assert_eq!(ids.len(), self.peers.len(), "two peers have one id");
        assert_eq!(ids.len() + self.peers.free.len(), self.peers.slots.len(), "an id is lost");
        let bound = 2 * self.most_used + 2 * self.most_used.max(SWEEP_MIN_PEERS);
        let len = self.peers.slots.len();
        assert!(len <= bound, "{len} ids for {} peers", self.most_used);
    }
}

fn any_step() -> impl Strategy<Value = Step> {
    let number = 0_u16..60;
    prop_oneof![
        6 => number.clone().prop_map(Step::LinkUp),
        6 => number.clone().prop_map(Step::LinkDown),
        1 => number.clone().prop_map(Step::Keep),
        2 => number.clone().prop_map(Step::Drop),
        1 => (0_u16..6).prop_map(Step::Name),
    ]
}

proptest! {
    #[test]
    fn table_keeps_used_peers_and_stays_bounded(steps in prop::collection::vec(any_step(), 0..150)) {
        let peers = Peers::with_sweep_min(SWEEP_MIN_PEERS);
        let mut modelled = Modelled { peers, ..Modelled::default() };
        for step in &steps {
            modelled.take_step(step);
            modelled.check();
        }
    }
}
