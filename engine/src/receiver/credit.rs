//! Credit bounds the memory that unexpected messages take.
//!
//! Every message costs its sender credit: [`MESSAGE_COST_BYTES`](crate::limits::MESSAGE_COST_BYTES)
//! and, if the message is eager, the length of its payload. The receiver grants each link credit
//! out of its endpoint's *budget*. Once a receive has taken a message, the receiver may grant the
//! message's credit again. So at any moment
//!
//! ```text
//!  used = (what links may still send, or have sent and no receive has taken)
//!       + (payload that was fetched before a receive matched the message)
//!       + (what links left behind that have ended)
//! ```
//!
//! is within the budget. There are two exceptions. Every link begins with [`CREDIT_INITIAL_BYTES`],
//! however many links there are. And ended links may leave so many messages behind that the budget is
//! overdrawn; then no new link comes up, but existing links lose nothing. A link in use gets a
//! *window* of a sixteenth of the free budget, so that early links leave some for later ones.

use crate::limits::CREDIT_INITIAL_BYTES;
use crate::protocol_violation::ProtocolViolation;

/// A link's window is the free budget divided by this.
const WINDOW_PARTS: u64 = 16;

/// An endpoint's memory for unexpected messages.
#[derive(Debug)]
pub(super) struct Budget {
    limit_bytes: u64,
    used_bytes: u64,
    /// The number of links.
    links: u64,
    /// The largest `used_bytes` at which a link got no credit. Once fewer bytes are in use, the
    /// link may get some.
    starved_at_bytes: u64,
}

/// The credit that the receiver has granted to a link's peer.
#[derive(Debug)]
pub(super) struct Grant {
    /// All credit granted since the link came up.
    pub(super) granted_bytes: u64,
    /// The credit that messages have spent.
    spent_bytes: u64,
    /// The part of `spent_bytes` that was returned.
    returned_bytes: u64,
    /// The part of `spent_bytes` that unexpected messages still hold.
    held_bytes: u64,
    /// When the peer has spent this much in all, more credit is due.
    due_at_bytes: u64,
    /// Whether credit was due but the budget had none. If so, each message that arrives is a new
    /// attempt.
    is_starved: bool,
}

/// The error of a peer that has sent a frame without credit for it.
pub(super) const NOT_COVERED: ProtocolViolation = ProtocolViolation("sends more than it was granted");

impl Budget {
    pub(super) fn new(limit_bytes: usize) -> Budget {
        Budget { limit_bytes: limit_bytes as u64, used_bytes: 0, links: 0, starved_at_bytes: 0 }
    }

    fn free_bytes(&self) -> u64 {
        self.limit_bytes.saturating_sub(self.used_bytes)
    }

    /// Whether more bytes are used than the limit and the initial credit of the present links
    /// allow.
    pub(super) fn is_overdrawn(&self) -> bool {
        self.used_bytes > self.limit_bytes + self.links * CREDIT_INITIAL_BYTES
    }

    /// Whether fewer bytes are used than when a link got no credit.
    pub(super) fn can_grant_starved(&self) -> bool {
        self.used_bytes < self.starved_at_bytes
    }

    /// Clears `starved_at_bytes`, since the starved links are about to try again.
    pub(super) fn reset_starved_at(&mut self) {
        self.starved_at_bytes = 0;
    }

    /// Whether the limit is large enough for this many bytes. Even if so, the credit that links
    /// hold may never leave room for them.
    pub(super) fn can_ever_hold(&self, bytes: u64) -> bool {
        bytes <= self.limit_bytes
    }

    /// Whether a payload of this length fits now.
    pub(super) fn has_room(&self, bytes: u64) -> bool {
        bytes <= self.free_bytes()
    }

    /// Reserves memory for a payload. Returns whether there was enough.
    pub(super) fn try_reserve(&mut self, bytes: u64) -> bool {
        let is_there = self.has_room(bytes);
        self.used_bytes += if is_there { bytes } else { 0 };
        is_there
    }

    #[inline(always)]
    pub(super) fn release(&mut self, bytes: u64) {
        debug_assert!(bytes <= self.used_bytes, "more is freed than was used");
        self.used_bytes -= bytes;
    }
}

impl Grant {
    /// Creates the grant of a new link, with its initial credit.
    pub(super) fn initial(budget: &mut Budget) -> Grant {
        budget.used_bytes += CREDIT_INITIAL_BYTES;
        budget.links += 1;
        Grant {
            granted_bytes: CREDIT_INITIAL_BYTES,
            spent_bytes: 0,
            returned_bytes: 0,
            held_bytes: 0,
            due_at_bytes: CREDIT_INITIAL_BYTES / 2,
            is_starved: false,
        }
    }

    /// Spends credit on a message that the peer has sent. Returns whether the peer had enough
    /// credit.
    #[inline(always)]
    pub(super) fn try_spend(&mut self, cost_bytes: u64) -> bool {
        let is_covered = cost_bytes <= self.granted_bytes - self.spent_bytes;
        self.spent_bytes += if is_covered { cost_bytes } else { 0 };
        is_covered
    }

    /// Holds the credit of a message until a receive takes the message.
    pub(super) fn hold(&mut self, cost_bytes: u64) {
        self.held_bytes += cost_bytes;
    }

    /// Returns credit that is not held: a posted receive took the message as it arrived.
    #[inline(always)]
    pub(super) fn return_unheld(&mut self, cost_bytes: u64, budget: &mut Budget) {
        self.returned_bytes += cost_bytes;
        budget.release(cost_bytes);
    }

    /// Returns held credit: a receive took the message.
    pub(super) fn return_held(&mut self, cost_bytes: u64, budget: &mut Budget) {
        self.held_bytes -= cost_bytes;
        self.return_unheld(cost_bytes, budget);
    }

    /// Whether the peer may soon need more credit.
    #[inline(always)]
    pub(super) fn is_renewal_due(&self) -> bool {
        self.spent_bytes >= self.due_at_bytes || self.is_starved
    }

    /// Grants more credit, unless there is too little to be worth a grant. Returns whether it did.
    pub(super) fn try_renew(&mut self, budget: &mut Budget) -> bool {
        let outstanding_bytes = self.granted_bytes - self.returned_bytes;
        let window_bytes =
            ((budget.free_bytes() + outstanding_bytes) / WINDOW_PARTS).max(CREDIT_INITIAL_BYTES);
        let more_bytes = window_bytes.saturating_sub(outstanding_bytes);
        if more_bytes < window_bytes / 4 {
            self.is_starved = true;
            budget.starved_at_bytes = budget.starved_at_bytes.max(budget.used_bytes);
            return false;
        }
        self.is_starved = false;
        self.granted_bytes += more_bytes;
        self.due_at_bytes = self.granted_bytes - window_bytes / 2;
        budget.used_bytes += more_bytes;
        true
    }

    /// Ends the grant when its link ends. Credit that no message holds returns to the budget. Held
    /// credit stays used until receives take the messages.
    pub(super) fn end(self, budget: &mut Budget) {
        budget.links -= 1;
        budget.release(self.granted_bytes - self.returned_bytes - self.held_bytes);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::limits::MESSAGE_COST_BYTES;

    const LIMIT_BYTES: usize = 1 << 20;

    #[test]
    fn link_begins_with_initial_credit_and_gets_a_share_of_free_budget() {
        let mut budget = Budget::new(LIMIT_BYTES);
        let mut grant = Grant::initial(&mut budget);
        assert!(!grant.is_renewal_due());
        assert!(grant.try_spend(CREDIT_INITIAL_BYTES / 2));
        grant.hold(CREDIT_INITIAL_BYTES / 2);
        assert!(grant.is_renewal_due() && grant.try_renew(&mut budget));
        assert_eq!(grant.granted_bytes, LIMIT_BYTES as u64 / WINDOW_PARTS);
        assert!(!grant.is_renewal_due());
    }

    #[test]
    fn more_than_was_granted_is_refused() {
        let mut budget = Budget::new(LIMIT_BYTES);
        let mut grant = Grant::initial(&mut budget);
        assert!(grant.try_spend(CREDIT_INITIAL_BYTES));
        assert!(!grant.try_spend(1));
        assert!(!grant.try_spend(u64::MAX));
    }

    #[derive(Debug, Clone)]
    enum Step {
        Open,
        End(usize),
        Arrive { link: usize, len_bytes: u64, is_held: bool },
        Receive(usize),
        Fetch(u64),
        FetchReceived,
    }

    fn any_step() -> impl Strategy<Value = Step> {
        prop_oneof![
            1 => Just(Step::Open),
            1 => any::<usize>().prop_map(Step::End),
            8 => (any::<usize>(), 0..100_000_u64, any::<bool>())
                .prop_map(|(link, len_bytes, is_held)| Step::Arrive { link, len_bytes, is_held }),
            4 => any::<usize>().prop_map(Step::Receive),
            1 => (0..2_000_000_u64).prop_map(Step::Fetch),
            1 => Just(Step::FetchReceived),
        ]
    }

    proptest! {
        /// Used credit stays within the budget, except for the initial credit of every link. A
        /// sender whose messages were all received can go on. Nothing stays used once all links
        /// have ended.
        #[test]
        fn granted_credit_stays_within_the_budget(steps in prop::collection::vec(any_step(), 1..300)) {
            let mut budget = Budget::new(LIMIT_BYTES);
            let mut links: Vec<(Grant, Vec<u64>)> = Vec::new();
            let (mut left_behind, mut fetched, mut most_links) = (Vec::new(), Vec::new(), 0);
            for step in steps {
                let count = links.len().max(1);
                match step {
                    Step::Open if !budget.is_overdrawn() => {
                        links.push((Grant::initial(&mut budget), Vec::new()));
                    }
                    Step::End(link) if link % count < links.len() => {
                        let (grant, held) = links.swap_remove(link % count);
                        grant.end(&mut budget);
                        left_behind.extend(held);
                    }
                    Step::Arrive { link, len_bytes, is_held } => {
                        let Some((grant, held)) = links.get_mut(link % count) else { continue };
                        let cost_bytes = MESSAGE_COST_BYTES + len_bytes;
                        if !grant.try_spend(cost_bytes) {
                            continue;
                        }
                        if is_held {
                            grant.hold(cost_bytes);
                            held.push(cost_bytes);
                        } else {
                            grant.return_unheld(cost_bytes, &mut budget);
                        }
                        if grant.is_renewal_due() {
                            grant.try_renew(&mut budget);
                        }
                    }
                    Step::Receive(which) => match links.get_mut(which % count) {
                        Some((grant, held)) if !held.is_empty() => {
                            grant.return_held(held.swap_remove(which % held.len()), &mut budget);
                            if grant.is_renewal_due() {
                                grant.try_renew(&mut budget);
                            }
                        }
                        _ => left_behind.pop().into_iter().for_each(|bytes| budget.release(bytes)),
                    },
                    Step::Fetch(bytes) => fetched.extend(budget.try_reserve(bytes).then_some(bytes)),
                    Step::FetchReceived => fetched.pop().into_iter().for_each(|bytes| budget.release(bytes)),
                    Step::Open | Step::End(_) => {}
                }
                most_links = most_links.max(links.len() as u64);
                let allowed = LIMIT_BYTES as u64 + most_links * CREDIT_INITIAL_BYTES;
                prop_assert!(budget.used_bytes <= allowed, "{} used", budget.used_bytes);
                for (grant, held) in &links {
                    if held.is_empty() {
                        prop_assert!(grant.granted_bytes - grant.spent_bytes >= CREDIT_INITIAL_BYTES / 2);
                    }
                }
            }
            for (grant, held) in links {
                grant.end(&mut budget);
                left_behind.extend(held);
            }
            left_behind.into_iter().chain(fetched).for_each(|bytes| budget.release(bytes));
            prop_assert_eq!(budget.used_bytes, 0);
        }
    }
}
