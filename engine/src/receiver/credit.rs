//! Credit bounds the memory that unexpected messages take.
//!
//! Every message costs its sender credit: [`MESSAGE_COST_BYTES`](crate::limits::MESSAGE_COST_BYTES)
//! and, if the message is eager, the length of its payload. The receiver grants each link credit
//! out of its endpoint's *budget*. Once a receive has taken a message, the receiver may grant the
//! message's credit again. The receiver keeps this sum within the budget:
//!
//! ```text
//!  used = (credit of present links: not spent yet, or held by messages that no receive has taken)
//!       + (payload that was fetched before a receive matched the message)
//!       + (what ended links have left behind)
//! ```
//!
//! There are two exceptions. First, every new link gets [`CREDIT_INITIAL_BYTES`], even if the
//! budget is used up. Second, ended links may leave so many messages behind that the budget is
//! overdrawn. Then the receiver may [refuse](super::Receiver::try_admit_link) new links, but
//! existing links lose nothing.
//!
//! A link in use gets a *window* of a sixteenth of the free budget. So early links leave some for
//! later ones.
//!
//! The peers of one host use at most their [share](super::shares). Messages that the receiver may
//! drop count as free: it drops them when it needs the room.

use super::shares::Shares;
use crate::limits::CREDIT_INITIAL_BYTES;
use crate::protocol_violation::ProtocolViolation;
use crate::source_host::SourceHost;

/// A link's window is the free budget divided by this.
const WINDOW_PARTS: u64 = 16;

/// An endpoint's memory for unexpected messages.
#[derive(Debug)]
pub(super) struct Budget {
    limit_bytes: u64,
    used_bytes: u64,
    /// The part of `used_bytes` that the receiver may drop.
    droppable_bytes: u64,
    /// The number of links.
    links: u64,
    /// The sum of all that was ever added to `used_bytes`.
    acquired_bytes: u64,
    /// The sum of all that was ever added to `droppable_bytes`.
    ever_droppable_bytes: u64,
    /// When links that got no credit may get some.
    retry: Retry,
    shares: Shares,
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
    /// Whether credit was due but the budget had none. If so, the receiver tries again with each
    /// message that arrives.
    is_starved: bool,
    /// The host whose share the link uses.
    host: Option<SourceHost>,
    /// What the host's share is charged for the link: the outstanding credit at the last update.
    /// Less may be outstanding now.
    charged_bytes: u64,
    /// The payload of the link's messages that was fetched before a receive matched them.
    fetched_bytes: u64,
}

/// When links that got no credit try again.
#[derive(Debug, Clone, Copy)]
enum Retry {
    /// There is no such link.
    Never,
    /// Once more than this was [released](Budget::released_bytes).
    AfterRelease { released_bytes: u64 },
    /// In the next pass.
    Now,
}

/// The outcome of an attempt to grant more credit.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Renewal {
    Granted,
    Starved,
}

/// The credit that a link may have outstanding.
struct Window {
    window_bytes: u64,
    /// What is missing to it.
    more_bytes: u64,
    /// Whether the budget has room for what is missing only after drops.
    needs_room: bool,
}

/// The error of a peer that has sent a frame without credit for it.
pub(super) const NOT_COVERED: ProtocolViolation = ProtocolViolation("sends more than it was granted");

impl Budget {
    pub(super) fn new(limit_bytes: usize) -> Budget {
        let limit_bytes = limit_bytes as u64;
        Budget {
            limit_bytes,
            used_bytes: 0,
            droppable_bytes: 0,
            links: 0,
            acquired_bytes: 0,
            ever_droppable_bytes: 0,
            retry: Retry::Never,
            shares: Shares::new(limit_bytes),
        }
    }

    /// Returns how many bytes of the limit are free.
    pub(super) fn free_bytes(&self) -> u64 {
        self.limit_bytes.saturating_sub(self.used_bytes)
    }

    /// Returns how many bytes are free for the peers of a host.
    fn room_bytes(&self, host: Option<SourceHost>) -> u64 {
        host.map_or(u64::MAX, |host| self.shares.free_bytes(host)).min(self.free_bytes())
    }

    /// As [`room_bytes`](Self::room_bytes), but counts all messages that the receiver may drop as
    /// dropped.
    fn reclaimable_bytes(&self, host: Option<SourceHost>) -> u64 {
        let of_share = host.map_or(u64::MAX, |host| self.shares.reclaimable_bytes(host));
        of_share.min((self.limit_bytes + self.droppable_bytes).saturating_sub(self.used_bytes))
    }

    /// Whether more bytes are used than the limit and the initial credit of the present links allow.
    pub(super) fn is_overdrawn(&self) -> bool {
        self.is_overdrawn_without(0)
    }

    /// As [`is_overdrawn`](Self::is_overdrawn), if all that may be dropped were dropped, and
    /// `abandoned_bytes` of ended links.
    pub(super) fn is_overdrawn_after_drops(&self, abandoned_bytes: u64) -> bool {
        self.is_overdrawn_without(self.droppable_bytes + abandoned_bytes)
    }

    /// As [`is_overdrawn`](Self::is_overdrawn), but ignores leftovers that are charged to hosts. If
    /// true, peers that are proven by credentials have left too much behind.
    pub(super) fn is_overdrawn_without_hosts(&self, abandoned_bytes: u64) -> bool {
        self.is_overdrawn_without(self.shares.left_behind_bytes() + abandoned_bytes)
    }

    fn is_overdrawn_without(&self, bytes: u64) -> bool {
        self.used_bytes.saturating_sub(bytes) > self.limit_bytes + self.links * CREDIT_INITIAL_BYTES
    }

    /// Returns how many bytes were ever released, or became droppable. While this number stays the
    /// same, nothing that had no room can have room.
    pub(super) fn released_bytes(&self) -> u64 {
        (self.acquired_bytes - self.used_bytes) + self.ever_droppable_bytes
    }

    /// Whether a link that got no credit may get some now.
    pub(super) fn can_grant_starved(&self) -> bool {
        match self.retry {
            Retry::Never => false,
            Retry::AfterRelease { released_bytes } => self.released_bytes() > released_bytes,
            Retry::Now => true,
        }
    }

    /// Forgets that links got no credit, since all of them are about to try again.
    pub(super) fn forget_starved(&mut self) {
        self.retry = Retry::Never;
    }

    /// Records that a link got no credit. With `needs_drops`, the next pass drops messages to make
    /// room for the link.
    fn record_starved(&mut self, needs_drops: bool) {
        self.retry = match self.retry {
            _ if needs_drops => Retry::Now,
            Retry::Never => Retry::AfterRelease { released_bytes: self.released_bytes() },
            earlier => earlier,
        };
    }

    /// Whether the limits allow this many bytes of payload from a host. Even if they do, the credit
    /// of links may never leave room for the payload.
    pub(super) fn can_ever_hold(&self, bytes: u64, host: Option<SourceHost>) -> bool {
        bytes <= host.map_or(self.limit_bytes, |_| self.shares.fetch_limit_bytes())
    }

    /// Whether this many bytes of payload from a host would fit if the receiver dropped all
    /// messages that it may drop.
    pub(super) fn can_fetch(&self, bytes: u64, host: Option<SourceHost>) -> bool {
        host.is_none_or(|host| self.shares.may_fetch(host, bytes)) && self.can_reclaim(bytes, host)
    }

    /// Whether this many bytes from a host would fit if the receiver dropped all messages that it
    /// may drop.
    pub(super) fn can_reclaim(&self, bytes: u64, host: Option<SourceHost>) -> bool {
        bytes <= self.reclaimable_bytes(host)
    }

    /// Whether this many bytes fit into the budget, and into the share of a host.
    pub(super) fn has_room(&self, bytes: u64, host: Option<SourceHost>) -> bool {
        bytes <= self.room_bytes(host)
    }

    /// Reserves memory that no host is charged for. Returns whether there was enough.
    #[cfg(test)]
    pub(super) fn try_reserve(&mut self, bytes: u64) -> bool {
        let is_there = self.has_room(bytes, None);
        self.acquire(if is_there { bytes } else { 0 });
        is_there
    }

    fn acquire(&mut self, bytes: u64) {
        self.used_bytes += bytes;
        self.acquired_bytes += bytes;
    }

    #[inline(always)]
    pub(super) fn release(&mut self, bytes: u64) {
        debug_assert!(bytes <= self.used_bytes, "more is freed than was used");
        self.used_bytes -= bytes;
    }

    /// Releases what an ended link of a host has left behind.
    pub(super) fn release_left_behind(&mut self, host: SourceHost, bytes: u64) {
        self.release(bytes);
        self.shares.release_left_behind(host, bytes);
    }

    /// Records that the receiver may drop this many bytes more of what a host has left behind.
    pub(super) fn add_droppable(&mut self, host: SourceHost, bytes: u64) {
        self.droppable_bytes += bytes;
        self.ever_droppable_bytes += bytes;
        self.shares.add_droppable(host, bytes);
    }

    /// Records that the receiver may drop this many bytes less of what a host has left behind.
    pub(super) fn remove_droppable(&mut self, host: SourceHost, bytes: u64) {
        self.droppable_bytes -= bytes;
        self.shares.remove_droppable(host, bytes);
    }

    pub(super) fn shares(&self) -> &Shares {
        &self.shares
    }
}

impl Grant {
    /// Creates the grant of a new link, with its initial credit.
    pub(super) fn initial(budget: &mut Budget) -> Grant {
        budget.acquire(CREDIT_INITIAL_BYTES);
        budget.links += 1;
        Grant {
            granted_bytes: CREDIT_INITIAL_BYTES,
            spent_bytes: 0,
            returned_bytes: 0,
            held_bytes: 0,
            due_at_bytes: CREDIT_INITIAL_BYTES / 2,
            is_starved: false,
            host: None,
            charged_bytes: 0,
            fetched_bytes: 0,
        }
    }

    /// Charges the link to a host. The link has no fetched payload yet.
    pub(super) fn charge_to(&mut self, host: SourceHost, budget: &mut Budget) {
        debug_assert!(self.host.is_none() && self.fetched_bytes == 0, "charged twice, or late");
        self.host = Some(host);
        self.update_charge(budget);
    }

    /// Returns the host whose share the link uses.
    pub(super) fn host(&self) -> Option<SourceHost> {
        self.host
    }

    /// Spends credit on a message that the peer has sent. Returns whether the peer had enough
    /// credit.
    #[inline(always)]
    pub(super) fn try_spend(&mut self, cost_bytes: u64) -> bool {
        let is_covered = cost_bytes <= self.granted_bytes - self.spent_bytes;
        self.spent_bytes += if is_covered { cost_bytes } else { 0 };
        is_covered
    }

    /// Whether the peer has credit for a message, and needs no more after it.
    #[inline(always)]
    pub(super) fn can_spend_before_renewal(&self, cost_bytes: u64) -> bool {
        // More credit is due before the peer has spent all that was granted.
        self.spent_bytes + cost_bytes < self.due_at_bytes && !self.is_starved
    }

    /// Spends credit on a message, and returns it: a posted receive takes the message as it arrives. Only
    /// after [`can_spend_before_renewal`](Self::can_spend_before_renewal).
    #[inline(always)]
    pub(super) fn spend_and_return(&mut self, cost_bytes: u64, budget: &mut Budget) {
        self.spent_bytes += cost_bytes;
        self.return_unheld(cost_bytes, budget);
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

    /// Reserves memory for a payload. Returns whether there was enough.
    pub(super) fn try_reserve_payload(&mut self, bytes: u64, budget: &mut Budget) -> bool {
        let may_fetch = self.host.is_none_or(|host| budget.shares.may_fetch(host, bytes));
        if !may_fetch || !budget.has_room(bytes, self.host) {
            return false;
        }
        budget.acquire(bytes);
        self.fetched_bytes += bytes;
        if let Some(host) = self.host {
            budget.shares.add_fetched(host, bytes);
        }
        true
    }

    /// Releases the memory of a payload.
    pub(super) fn release_payload(&mut self, bytes: u64, budget: &mut Budget) {
        budget.release(bytes);
        self.fetched_bytes -= bytes;
        if let Some(host) = self.host {
            budget.shares.remove_fetched(host, bytes);
        }
    }

    /// Whether the peer may soon need more credit.
    #[inline(always)]
    pub(super) fn is_renewal_due(&self) -> bool {
        self.spent_bytes >= self.due_at_bytes || self.is_starved
    }

    /// Grants more credit, unless there is too little to be worth a grant.
    pub(super) fn try_renew(&mut self, budget: &mut Budget) -> Renewal {
        self.update_charge(budget);
        let Window { window_bytes, more_bytes, needs_room } = self.next_window(budget);
        if more_bytes < window_bytes / 4 || needs_room {
            self.is_starved = true;
            budget.record_starved(needs_room);
            return Renewal::Starved;
        }
        self.is_starved = false;
        self.granted_bytes += more_bytes;
        self.due_at_bytes = self.granted_bytes - window_bytes / 2;
        budget.acquire(more_bytes);
        self.update_charge(budget);
        Renewal::Granted
    }

    /// Returns how much room the next grant needs, if the link is starved and only drops can make
    /// the room. Otherwise returns 0.
    pub(super) fn needed_room_bytes(&self, budget: &Budget) -> u64 {
        let Window { more_bytes, needs_room, .. } = self.next_window(budget);
        if self.is_starved && needs_room { more_bytes } else { 0 }
    }

    fn next_window(&self, budget: &Budget) -> Window {
        let outstanding_bytes = self.outstanding_bytes();
        let window_bytes = ((budget.reclaimable_bytes(self.host) + outstanding_bytes) / WINDOW_PARTS)
            .max(CREDIT_INITIAL_BYTES);
        let more_bytes = window_bytes.saturating_sub(outstanding_bytes);
        // The least window comes from the reserve, and may exceed the budget.
        let is_large_enough = window_bytes > CREDIT_INITIAL_BYTES && more_bytes >= window_bytes / 4;
        let needs_room = is_large_enough && !budget.has_room(more_bytes, self.host);
        Window { window_bytes, more_bytes, needs_room }
    }

    /// Charges the link's host for what is outstanding now.
    fn update_charge(&mut self, budget: &mut Budget) {
        if let Some(host) = self.host {
            let outstanding_bytes = self.outstanding_bytes();
            budget.shares.change_charge(host, self.charged_bytes, outstanding_bytes);
            self.charged_bytes = outstanding_bytes;
        }
    }

    fn outstanding_bytes(&self) -> u64 {
        self.granted_bytes - self.returned_bytes
    }

    /// Ends the grant when its link ends. Credit that no message holds returns to the budget. Held
    /// credit and fetched payload stay used until receives take the messages. Returns how many
    /// bytes stay used.
    pub(super) fn end(mut self, budget: &mut Budget) -> u64 {
        budget.links -= 1;
        budget.release(self.outstanding_bytes() - self.held_bytes);
        self.returned_bytes = self.granted_bytes - self.held_bytes;
        self.update_charge(budget);
        if let Some(host) = self.host {
            budget.shares.link_ended(host, self.held_bytes, self.fetched_bytes);
        }
        self.held_bytes + self.fetched_bytes
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use proptest::prelude::*;

    use super::*;
    use crate::limits::{HOST_FETCH_PERCENT, HOST_SHARE_PERCENT, MESSAGE_COST_BYTES};

    const LIMIT_BYTES: usize = 16 << 20;
    const SHARE_BYTES: u64 = LIMIT_BYTES as u64 * HOST_SHARE_PERCENT / 100;
    const FETCH_LIMIT_BYTES: u64 = LIMIT_BYTES as u64 * HOST_FETCH_PERCENT / 100;

    fn host(number: u8) -> SourceHost {
        SourceHost::V4(Ipv4Addr::new(192, 0, 2, number))
    }

    /// Returns the grant of a new link. The link uses the share of `host`, if there is one.
    fn open_grant(host: Option<SourceHost>, budget: &mut Budget) -> Grant {
        let mut grant = Grant::initial(budget);
        host.into_iter().for_each(|host| grant.charge_to(host, budget));
        grant
    }

    /// Makes the peer send messages that no receive takes, until the peer has no credit. Returns
    /// how much it has sent.
    fn flood(grant: &mut Grant, budget: &mut Budget) -> u64 {
        while grant.try_spend(MESSAGE_COST_BYTES) {
            grant.hold(MESSAGE_COST_BYTES);
            if grant.is_renewal_due() {
                grant.try_renew(budget);
            }
        }
        grant.held_bytes
    }

    #[test]
    fn link_begins_with_initial_credit_and_gets_a_share_of_free_budget() {
        let mut budget = Budget::new(LIMIT_BYTES);
        let mut grant = Grant::initial(&mut budget);
        assert!(!grant.is_renewal_due());
        assert!(grant.try_spend(CREDIT_INITIAL_BYTES / 2));
        grant.hold(CREDIT_INITIAL_BYTES / 2);
        assert!(grant.is_renewal_due());
        assert_eq!(grant.try_renew(&mut budget), Renewal::Granted);
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

    #[test]
    fn peers_of_one_host_leave_the_rest_of_the_budget_to_others() {
        let mut budget = Budget::new(LIMIT_BYTES);
        let links = 40;
        let mut grants: Vec<_> = (0..links).map(|_| open_grant(Some(host(1)), &mut budget)).collect();
        let sent_bytes: u64 = grants.iter_mut().map(|grant| flood(grant, &mut budget)).sum();
        assert!(sent_bytes <= SHARE_BYTES.max(links * CREDIT_INITIAL_BYTES), "{sent_bytes}");
        let mut other = open_grant(Some(host(2)), &mut budget);
        assert!(flood(&mut other, &mut budget) > CREDIT_INITIAL_BYTES, "no credit for another host");
    }

    #[test]
    fn fetched_payload_of_one_host_is_limited() {
        let mut budget = Budget::new(LIMIT_BYTES);
        let mut grants = [1, 1, 2].map(|number| open_grant(Some(host(number)), &mut budget));
        assert!(!budget.can_ever_hold(FETCH_LIMIT_BYTES + 1, Some(host(1))));
        assert!(budget.can_ever_hold(LIMIT_BYTES as u64, None));
        assert!(!grants[0].try_reserve_payload(FETCH_LIMIT_BYTES + 1, &mut budget));
        assert!(grants[0].try_reserve_payload(FETCH_LIMIT_BYTES, &mut budget));
        assert!(!grants[1].try_reserve_payload(1, &mut budget), "another link of the host");
        assert!(grants[2].try_reserve_payload(FETCH_LIMIT_BYTES / 2, &mut budget), "another host");
        // The links of the host still get windows.
        assert!(flood(&mut grants[1], &mut budget) > CREDIT_INITIAL_BYTES);
        grants[0].release_payload(FETCH_LIMIT_BYTES, &mut budget);
        assert!(grants[1].try_reserve_payload(1, &mut budget));
    }

    #[derive(Debug, Clone)]
    enum Step {
        Open(Option<u8>),
        End(usize),
        Arrive { link: usize, len_bytes: u64, is_held: bool },
        Receive(usize),
        Fetch { link: usize, len_bytes: u64 },
        FetchReceived(usize),
    }

    fn any_step() -> impl Strategy<Value = Step> {
        prop_oneof![
            1 => prop::option::of(0..3_u8).prop_map(Step::Open),
            1 => any::<usize>().prop_map(Step::End),
            8 => (any::<usize>(), 0..1_000_000_u64, any::<bool>())
                .prop_map(|(link, len_bytes, is_held)| Step::Arrive { link, len_bytes, is_held }),
            4 => any::<usize>().prop_map(Step::Receive),
            1 => (any::<usize>(), 0..20_000_000_u64)
                .prop_map(|(link, len_bytes)| Step::Fetch { link, len_bytes }),
            1 => any::<usize>().prop_map(Step::FetchReceived),
        ]
    }

    /// A link, with the messages that hold credit, and the payload that was fetched early.
    struct OpenLink {
        grant: Grant,
        held: Vec<u64>,
        fetched: Vec<u64>,
    }

    fn release_left(host: Option<SourceHost>, bytes: u64, budget: &mut Budget) {
        match host {
            Some(host) => budget.release_left_behind(host, bytes),
            None => budget.release(bytes),
        }
    }

    impl OpenLink {
        fn end(self, left_behind: &mut Vec<(Option<SourceHost>, u64)>, budget: &mut Budget) {
            let host = self.grant.host();
            let left_bytes = self.grant.end(budget);
            let messages = self.held.into_iter().chain(self.fetched);
            let before = left_behind.len();
            left_behind.extend(messages.map(|bytes| (host, bytes)));
            assert_eq!(left_bytes, left_behind[before..].iter().map(|(_, bytes)| bytes).sum::<u64>());
        }

        fn renew_if_due(&mut self, budget: &mut Budget) {
            if self.grant.is_renewal_due() {
                self.grant.try_renew(budget);
            }
        }
    }

    proptest! {
        /// Used credit stays within the budget, and the used credit of a host within its share.
        /// Both may exceed this by the initial credit of every link. A sender whose messages were
        /// all received can go on. Once all links have ended, nothing stays used.
        #[test]
        fn granted_credit_stays_within_budget_and_shares(steps in prop::collection::vec(any_step(), 1..300)) {
            let mut budget = Budget::new(LIMIT_BYTES);
            let mut links: Vec<OpenLink> = Vec::new();
            let mut left_behind = Vec::new();
            let mut most_links = 0;
            for step in steps {
                let count = links.len().max(1);
                match step {
                    Step::Open(number) if !budget.is_overdrawn() => {
                        let grant = open_grant(number.map(host), &mut budget);
                        links.push(OpenLink { grant, held: Vec::new(), fetched: Vec::new() });
                    }
                    Step::End(link) if link % count < links.len() => {
                        links.swap_remove(link % count).end(&mut left_behind, &mut budget);
                    }
                    Step::Arrive { link, len_bytes, is_held } => {
                        let Some(link) = links.get_mut(link % count) else { continue };
                        let cost_bytes = MESSAGE_COST_BYTES + len_bytes;
                        if !link.grant.try_spend(cost_bytes) {
                            continue;
                        }
                        if is_held {
                            link.grant.hold(cost_bytes);
                            link.held.push(cost_bytes);
                        } else {
                            link.grant.return_unheld(cost_bytes, &mut budget);
                        }
                        link.renew_if_due(&mut budget);
                    }
                    Step::Receive(which) => match links.get_mut(which % count) {
                        Some(link) if !link.held.is_empty() => {
                            let cost_bytes = link.held.swap_remove(which % link.held.len());
                            link.grant.return_held(cost_bytes, &mut budget);
                            link.renew_if_due(&mut budget);
                        }
                        _ => left_behind.pop().into_iter().for_each(|(host, bytes)| {
                            release_left(host, bytes, &mut budget);
                        }),
                    },
                    Step::Fetch { link, len_bytes } => {
                        let Some(link) = links.get_mut(link % count) else { continue };
                        let is_reserved = link.grant.try_reserve_payload(len_bytes, &mut budget);
                        link.fetched.extend(is_reserved.then_some(len_bytes));
                    }
                    Step::FetchReceived(link) => {
                        if let Some(link) = links.get_mut(link % count)
                            && let Some(bytes) = link.fetched.pop()
                        {
                            link.grant.release_payload(bytes, &mut budget);
                        }
                    }
                    Step::Open(_) | Step::End(_) => {}
                }
                most_links = most_links.max(links.len() as u64);
                let reserve_bytes = most_links * CREDIT_INITIAL_BYTES;
                let allowed_bytes = LIMIT_BYTES as u64 + reserve_bytes;
                prop_assert!(budget.used_bytes <= allowed_bytes, "{} used", budget.used_bytes);
                for number in 0..3 {
                    let of_host = |of: &Option<SourceHost>| *of == Some(host(number));
                    let of_links = links.iter().filter(|link| of_host(&link.grant.host())).map(|link| {
                        let fetched_bytes: u64 = link.fetched.iter().sum();
                        let outstanding_bytes = link.grant.outstanding_bytes();
                        (link.grant.charged_bytes + fetched_bytes, outstanding_bytes + fetched_bytes)
                    });
                    let (charged_bytes, used_bytes) =
                        of_links.fold((0, 0), |sums, (charged, used)| (sums.0 + charged, sums.1 + used));
                    let left_bytes: u64 =
                        left_behind.iter().filter(|(of, _)| of_host(of)).map(|(_, bytes)| bytes).sum();
                    let counted_bytes = budget.shares().used_bytes(host(number));
                    prop_assert_eq!(counted_bytes, charged_bytes + left_bytes);
                    prop_assert!(used_bytes + left_bytes <= counted_bytes);
                    prop_assert!(counted_bytes <= SHARE_BYTES + reserve_bytes, "{} of a host", counted_bytes);
                }
                for link in &links {
                    if link.held.is_empty() {
                        let credit_bytes = link.grant.granted_bytes - link.grant.spent_bytes;
                        prop_assert!(credit_bytes >= CREDIT_INITIAL_BYTES / 2);
                    }
                }
            }
            links.into_iter().for_each(|link| link.end(&mut left_behind, &mut budget));
            left_behind.into_iter().for_each(|(host, bytes)| release_left(host, bytes, &mut budget));
            prop_assert_eq!(budget.used_bytes, 0);
            prop_assert!(budget.shares().are_unused());
        }
    }
}
