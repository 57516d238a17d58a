//! What a member is to do, and has not been able to do yet.

use std::collections::VecDeque;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::flags::CounterEvents;
use crate::held_reports::Outcome;
use crate::peer_id::PeerId;
use crate::transport::LinkId;
use crate::wire::Header;

/// A member, as the others see it.
#[derive(Debug)]
pub(super) struct Mailbox {
    /// Whether it reports the success of receives alone that ask for it.
    pub(super) is_selective: bool,
    /// Whether there is anything, for the member to know without the lock.
    pub(super) has_mail: Arc<AtomicBool>,
    /// Reports, in order. They name peers as the receiver does.
    outcomes: VecDeque<Outcome>,
    counts: Vec<Count>,
    debts: Vec<(LinkId, Debt)>,
    /// What the member calls peers, by what the receiver calls them.
    names: Vec<Option<PeerId>>,
}

/// A receive that was counted.
#[derive(Debug)]
pub(crate) struct Count {
    pub(crate) events: CounterEvents,
    pub(crate) is_success: bool,
}

/// What the peer of a member's link is to be told.
#[derive(Debug)]
pub(crate) enum Debt {
    Header(Header),
    Ack,
    Credit,
}

impl Mailbox {
    pub(super) fn new(is_selective: bool) -> Mailbox {
        Mailbox {
            is_selective,
            has_mail: Arc::new(AtomicBool::new(false)),
            outcomes: VecDeque::new(),
            counts: Vec::new(),
            debts: Vec::new(),
            names: Vec::new(),
        }
    }

    /// How many reports wait.
    pub(super) fn unreported(&self) -> usize {
        self.outcomes.len()
    }

    /// Has the member call a peer so.
    pub(super) fn set_name(&mut self, peer: PeerId, name: PeerId) {
        if self.names.len() <= peer.index() {
            self.names.resize(peer.index() + 1, None);
        }
        self.names[peer.index()] = Some(name);
    }

    /// What the member calls a peer, if it has met it.
    pub(super) fn name(&self, peer: PeerId) -> Option<PeerId> {
        self.names.get(peer.index()).copied().flatten()
    }

    pub(super) fn report(&mut self, outcome: Outcome) {
        self.outcomes.push_back(outcome);
        self.has_mail.store(true, Ordering::Release);
    }

    /// Puts a report back that there was no room for.
    pub(super) fn put_back(&mut self, outcome: Outcome) {
        self.outcomes.push_front(outcome);
        self.has_mail.store(true, Ordering::Release);
    }

    pub(super) fn count(&mut self, count: Count) {
        self.counts.push(count);
        self.has_mail.store(true, Ordering::Release);
    }

    pub(super) fn owe(&mut self, link: LinkId, debt: Debt) {
        self.debts.push((link, debt));
        self.has_mail.store(true, Ordering::Release);
    }

    pub(super) fn take_report(&mut self) -> Option<Outcome> {
        let outcome = self.outcomes.pop_front();
        self.settle();
        outcome
    }

    pub(super) fn take_debts_and_counts(&mut self) -> (Vec<(LinkId, Debt)>, Vec<Count>) {
        let taken = (mem::take(&mut self.debts), mem::take(&mut self.counts));
        self.settle();
        taken
    }

    /// Nothing more can be told on a link, whose number may soon be another one's.
    pub(super) fn forget_link(&mut self, link: LinkId) {
        self.debts.retain(|(owing, _)| *owing != link);
    }

    /// Something was taken. Whether there is mail is what is left, which other threads may have added to since.
    fn settle(&mut self) {
        let is_empty = self.outcomes.is_empty() && self.counts.is_empty() && self.debts.is_empty();
        self.has_mail.store(!is_empty, Ordering::Release);
    }
}
