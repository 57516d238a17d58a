//! The addresses that links lead to, and the checks of addresses that peers claim.
//!
//! A link that this side has connected leads to the address of the connect. A link that a peer has connected
//! *claims* an address by its hello. The claim is *contested* if there is another live link to the address
//! that is not held, or if the caller has reserved the address. Then this side *holds* the new link: it
//! neither reads nor reports the link. This side *admits* the link once the claim is proven or is no longer
//! contested. If a claim is not contested, the link is up at once, and this side checks the claim in the
//! background.
//!
//! This module has no sockets. [`start_next_check`](AddressClaims::start_next_check) returns a check. The
//! transport makes the connection for the check, and reports the outcome. See docs/decisions/tcp-claims.md.

mod due_queue;
mod hung_up_held;
mod links_to_address;
mod running_checks;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::mem;
use std::time::{Duration, Instant};

use homespun_engine::address::Address;
use homespun_engine::source_host::SourceHost;
use homespun_engine::transport::LinkId;
use homespun_engine::wire::address_claim::ClaimStatus;
use smallvec::SmallVec;

use self::due_queue::DueQueue;
use self::hung_up_held::HungUpHeld;
use self::links_to_address::{CheckState, LinksToAddress, Standing, VerdictEffect};
use self::running_checks::{CheckKind, RunningChecks};
use crate::limits::{CLAIM_TIME_CHECK_PASSES, PAST_TOKENS_MAX};

/// The links by the address that they lead to or claim, and the checks of the claims.
#[derive(Debug)]
pub(crate) struct AddressClaims {
    by_address: HashMap<Address, LinksToAddress>,
    /// The tokens that acceptors have given to links of this side, each with the address that the link leads
    /// to.
    given_tokens: HashMap<u64, Address>,
    /// The tokens in `given_tokens` of ended links, the earliest end first. They stay known for a while,
    /// since the acceptor may still have to read what the link has sent.
    past_tokens: VecDeque<u64>,
    /// The links of this side whose hello may have left, but which have no token yet. Each begins with the
    /// address to which the link was connected. So one range has all links to an endpoint that asks.
    awaiting_token: BTreeSet<(Address, LinkId)>,
    /// Addresses with a contested claim that wait for a check.
    contested_due: DueQueue,
    /// Other addresses that wait for a check.
    background_due: DueQueue,
    /// Addresses to check later, by time. The number in the key distinguishes entries with the same time.
    timers: BTreeMap<Timer, Address>,
    timer_count: u64,
    check_count: u64,
    running: RunningChecks,
    /// Held links that are to be admitted.
    admitted: VecDeque<LinkId>,
    hung_up_held: HungUpHeld,
    /// Held links that are to be dropped, because their peers have hung up.
    surplus: VecDeque<LinkId>,
    /// Addresses where the caller knows an endpoint, and since when. Every new claim of such an address is
    /// contested.
    reserved: HashMap<Address, Instant>,
    hold_timeout: Duration,
    /// How many passes remain until one must read the clock.
    passes_until_time_check: u32,
}

/// A moment, and a number that distinguishes entries of the same moment.
pub(crate) type Timer = (Instant, u64);

/// The links about which a check asks, and their tokens.
pub(crate) type Asked = SmallVec<[(LinkId, u64); 2]>;

/// A check that is to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CheckPlan {
    pub(crate) id: CheckId,
    /// The claimed address.
    pub(crate) address: Address,
    pub(crate) asked: Asked,
}

/// Identifies a check by the number of earlier checks. Also says the kind of the check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CheckId {
    number: u64,
    kind: CheckKind,
}

impl CheckId {
    /// Whether a held link waits for the check.
    pub(crate) fn is_contested(self) -> bool {
        self.kind == CheckKind::Contested
    }
}

/// The result of a check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CheckOutcome {
    /// The endpoint at the address has answered for these links.
    Answered(Vec<(LinkId, u64, ClaimStatus)>),
    /// A connection to the address was made, but no answer came.
    Silent,
    /// No connection to the address was made.
    Unreachable,
}

/// What the hello of an accepted link says, and when it came.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NewClaim {
    /// The claimed address.
    pub(crate) address: Address,
    /// The token that this side gives to the link.
    pub(crate) token: u64,
    /// The host that the link comes from.
    pub(crate) from: SourceHost,
    /// The place of the link among all accepted connections; `None` for a link that this side connects.
    pub(crate) serial: Option<u64>,
    /// When the last bytes have arrived that can be read.
    pub(crate) arrived_at: Instant,
}

/// How a peer has hung up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HangUp {
    /// The peer has ended its stream in order. The connection may have been reset later.
    EndOfStream,
    /// The peer has reset the connection.
    Reset,
}

/// What the hello of an accepted link means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Admission {
    /// The link is up at once.
    Open,
    /// The link is held.
    Held,
    /// The link ends.
    Refused(&'static str),
}

impl AddressClaims {
    pub(crate) fn new(hold_timeout: Duration) -> AddressClaims {
        AddressClaims {
            by_address: HashMap::new(),
            given_tokens: HashMap::new(),
            past_tokens: VecDeque::new(),
            awaiting_token: BTreeSet::new(),
            contested_due: DueQueue::default(),
            background_due: DueQueue::default(),
            timers: BTreeMap::new(),
            timer_count: 0,
            check_count: 0,
            running: RunningChecks::default(),
            admitted: VecDeque::new(),
            hung_up_held: HungUpHeld::default(),
            surplus: VecDeque::new(),
            reserved: HashMap::new(),
            hold_timeout,
            passes_until_time_check: 0,
        }
    }

    /// Records that the caller knows an endpoint at this address. Every later claim of the address is
    /// contested.
    pub(crate) fn reserve_address(&mut self, address: Address, now: Instant) {
        self.reserved.entry(address).or_insert(now);
    }

    /// Ends the effect of [`reserve_address`](Self::reserve_address).
    pub(crate) fn release_address(&mut self, address: Address) {
        if self.reserved.remove(&address).is_some() {
            self.admit_if_uncontested(address);
        }
    }

    /// Records that this side connects a link.
    pub(crate) fn add_connecting(&mut self, link: LinkId, to: Address, now: Instant) {
        let links = self.by_address.entry(to).or_default();
        let from = SourceHost::of(to);
        let claim = NewClaim { address: to, token: 0, from, serial: None, arrived_at: now };
        links.insert(link, &claim, Standing::Connecting, now);
    }

    /// Records that a link of this side has its connection. From now on the link's hello may leave.
    pub(crate) fn record_connection_made(&mut self, link: LinkId, to: Address) {
        self.awaiting_token.insert((to, link));
    }

    /// Records the token that the acceptor has given to a link of this side.
    pub(crate) fn record_given_token(&mut self, link: LinkId, to: Address, token: u64) {
        self.awaiting_token.remove(&(to, link));
        self.given_tokens.insert(token, to);
    }

    /// Whether a link of this side has no token yet, although the link's hello may have left.
    pub(crate) fn is_awaiting_token(&self) -> bool {
        !self.awaiting_token.is_empty()
    }

    /// The links of this side to this address that have no token yet, although their hello may have left.
    pub(crate) fn links_awaiting_token(&self, to: Address) -> impl Iterator<Item = LinkId> + '_ {
        self.awaiting_token.range((to, LinkId(0))..=(to, LinkId(u32::MAX))).map(|(_, link)| *link)
    }

    /// Records that a link that this side has connected is up. Unproven claims of the same address are
    /// checked again.
    pub(crate) fn record_connected(&mut self, link: LinkId, to: Address) {
        if let Some(links) = self.by_address.get_mut(&to) {
            links.mark_connected(link);
            self.schedule_check_now(to);
        }
    }

    /// The address to which this side has connected the link with this token.
    pub(crate) fn address_of_token(&self, token: u64) -> Option<Address> {
        self.given_tokens.get(&token).copied()
    }

    /// Records the claim of an accepted link that comes from this host.
    pub(crate) fn add_accepted(&mut self, link: LinkId, claim: NewClaim, now: Instant) -> Admission {
        let address = claim.address;
        let reserved_since = self.reserved.get(&address).copied();
        let links = self.by_address.entry(address).or_default();
        let is_contested = reserved_since.is_some() || links.is_contested();
        let admission = match (links.has_room_for_claim(), is_contested) {
            (true, false) => Admission::Open,
            (true, true) if links.has_room_to_hold() => Admission::Held,
            _ => {
                // The sooner the false claims are denied, the sooner the peer of a true one gets in.
                self.schedule_check_now(address);
                return Admission::Refused("too many links claim this address");
            }
        };
        let standing = match admission {
            Admission::Held => {
                let is_oldest = links.is_claim_oldest(&claim, reserved_since);
                Standing::Held { is_oldest }
            }
            _ => Standing::Unproven,
        };
        links.insert(link, &claim, standing, now);
        self.schedule_check_now(address);
        admission
    }

    /// Records that the peer of a link has hung up, or that this side closes the link. The link contests no
    /// claim any more. If the link is not held, the caller reads it to its end. If the link is held, it is
    /// kept after the end of the stream, but dropped after a reset. Only a few such links are kept.
    ///
    /// A held link whose claim is older than its rivals is admitted after the end of its stream. Its peer was
    /// there before them, and has left.
    pub(crate) fn record_hang_up(&mut self, link: LinkId, address: Address, how: HangUp) {
        let Some(links) = self.by_address.get_mut(&address) else { return };
        if let Some((from, is_oldest)) = links.mark_hung_up(link) {
            match how {
                HangUp::EndOfStream if is_oldest => {
                    links.admit_as_former(link);
                    self.admitted.push_back(link);
                }
                HangUp::EndOfStream => self.surplus.extend(self.hung_up_held.keep(link, address, from)),
                HangUp::Reset => self.surplus.push_back(link),
            }
        }
        self.admit_if_uncontested(address);
    }

    /// Forgets a link that has ended.
    pub(crate) fn remove_link(&mut self, link: LinkId, address: Address) {
        self.admitted.retain(|admitted| *admitted != link);
        self.hung_up_held.remove(|kept| kept == link);
        self.surplus.retain(|surplus| *surplus != link);
        self.awaiting_token.remove(&(address, link));
        let Some(links) = self.by_address.get_mut(&address) else { return };
        links.remove(link);
        if links.is_empty() {
            let check = links.check;
            self.by_address.remove(&address);
            self.unschedule_check(address, check);
        } else {
            self.admit_if_uncontested(address);
        }
    }

    /// Records that the link of this side with this token has ended. The token stays known for a while: the
    /// acceptor may still read from the link, and ask about it.
    pub(crate) fn retire_token(&mut self, token: u64) {
        if self.past_tokens.len() == PAST_TOKENS_MAX
            && let Some(oldest) = self.past_tokens.pop_front()
        {
            self.given_tokens.remove(&oldest);
        }
        self.past_tokens.push_back(token);
    }

    /// Removes and returns a held link that is to be admitted.
    pub(crate) fn pop_admitted(&mut self) -> Option<LinkId> {
        self.admitted.pop_front()
    }

    /// Removes and returns a held link that is to be dropped.
    pub(crate) fn pop_surplus(&mut self) -> Option<LinkId> {
        self.surplus.pop_front()
    }

    /// Starts the next check that is due, and returns its plan. Returns `None` if no check is due or too
    /// many are running. Each kind of check has reserved places.
    pub(crate) fn start_next_check(&mut self, now: Instant) -> Option<CheckPlan> {
        while let Some((timer, address)) = self.timers.first_key_value().map(|(timer, at)| (*timer, *at))
            && timer.0 <= now
        {
            self.timers.remove(&timer);
            if let Some(links) = self.by_address.get_mut(&address) {
                links.check = CheckState::Idle;
                self.schedule_check_now(address);
            }
        }
        while let Some((address, kind)) = self.pop_due() {
            let Some(links) = self.by_address.get_mut(&address) else { continue };
            let asked = links.links_to_ask_about();
            if asked.is_empty() {
                links.check = CheckState::Idle;
                continue;
            }
            let id = CheckId { number: self.check_count, kind };
            self.check_count += 1;
            links.check = CheckState::Running { number: id.number, is_renewed: false };
            self.running.add(SourceHost::of(address), kind);
            return Some(CheckPlan { id, address, asked });
        }
        None
    }

    /// Records the result of a check. Returns the links that are to end, because their claim is refuted or
    /// could not be proven in time, or because a proven link takes their place.
    pub(crate) fn finish_check(
        &mut self,
        plan: &CheckPlan,
        outcome: &CheckOutcome,
        now: Instant,
    ) -> Vec<LinkId> {
        self.running.remove(SourceHost::of(plan.address), plan.id.kind);
        let Some(links) = self.by_address.get_mut(&plan.address) else { return Vec::new() };
        let CheckState::Running { number, is_renewed } = links.check else { return Vec::new() };
        if number != plan.id.number {
            return Vec::new();
        }
        links.check = CheckState::Idle;
        let mut ends = Vec::new();
        let mut admitted: SmallVec<[LinkId; 2]> = SmallVec::new();
        match outcome {
            CheckOutcome::Answered(answers) => {
                // Apply the confirmations first: an unclear answer ends a link only if another link to the
                // address is proven.
                let is_confirmed = |answer: &&(_, _, ClaimStatus)| answer.2 == ClaimStatus::Confirmed;
                let others = answers.iter().filter(|answer| !is_confirmed(answer));
                for (link, token, verdict) in answers.iter().filter(is_confirmed).chain(others) {
                    match links.apply_verdict(*link, *token, *verdict) {
                        VerdictEffect::Stays => {}
                        VerdictEffect::Admitted { in_place_of } => {
                            admitted.push(*link);
                            ends.extend(in_place_of);
                        }
                        VerdictEffect::Ends => ends.push(*link),
                    }
                }
            }
            CheckOutcome::Silent => links.record_unanswered_check(true),
            CheckOutcome::Unreachable => {
                links.record_unanswered_check(false);
                if !self.reserved.contains_key(&plan.address) {
                    admitted.extend(links.admit_unless_another_is_up());
                }
            }
        }
        for link in links.links_held_too_long(now, self.hold_timeout) {
            if !ends.contains(&link) {
                ends.push(link);
            }
        }
        self.queue_admitted(&admitted);
        self.schedule_recheck(plan.address, is_renewed, now);
        ends
    }

    /// Records that a check could not begin, and schedules another check. Returns the links to end: they
    /// have been held for the hold timeout.
    pub(crate) fn postpone_check(&mut self, plan: &CheckPlan, now: Instant) -> Vec<LinkId> {
        self.running.remove(SourceHost::of(plan.address), plan.id.kind);
        self.schedule_recheck(plan.address, false, now);
        let links = self.by_address.get(&plan.address);
        links.map(|links| links.links_held_too_long(now, self.hold_timeout).to_vec()).unwrap_or_default()
    }

    /// Whether there is something to do, in this pass or a later one. Most passes ask nothing else.
    #[inline]
    pub(crate) fn is_busy(&self) -> bool {
        !self.running.is_empty()
            || !self.admitted.is_empty()
            || !self.surplus.is_empty()
            || !self.timers.is_empty()
            || !self.contested_due.is_empty()
            || !self.background_due.is_empty()
    }

    /// Whether there is something to do at once.
    pub(crate) fn has_work(&self) -> bool {
        !self.admitted.is_empty()
            || !self.surplus.is_empty()
            || self.may_start_check(CheckKind::Contested)
            || self.may_start_check(CheckKind::Background)
    }

    /// Counts a pass. Returns whether the pass must read the clock.
    pub(crate) fn count_pass_toward_time_check(&mut self) -> bool {
        if self.passes_until_time_check > 0 && !self.has_work() {
            self.passes_until_time_check -= 1;
            return false;
        }
        self.passes_until_time_check = CLAIM_TIME_CHECK_PASSES - 1;
        true
    }

    /// Returns when the next check is due: a sleeping application must then make a pass. Makes the next pass
    /// read the clock.
    pub(crate) fn prepare_sleep_and_get_next_timer(&mut self) -> Option<Instant> {
        self.passes_until_time_check = 0;
        self.timers.first_key_value().map(|((at, _), _)| *at)
    }

    /// Whether a check of this kind is due, and has a place.
    fn may_start_check(&self, kind: CheckKind) -> bool {
        let due = match kind {
            CheckKind::Contested => &self.contested_due,
            CheckKind::Background => &self.background_due,
        };
        self.running.has_room(kind) && due.has_eligible(|host| self.running.has_room_for_host(host, kind))
    }

    /// Removes the next address to check from its queue, and returns it. Returns `None` if no address waits
    /// or no place is free.
    fn pop_due(&mut self) -> Option<(Address, CheckKind)> {
        let running = &self.running;
        let queues = [
            (&mut self.contested_due, CheckKind::Contested),
            (&mut self.background_due, CheckKind::Background),
        ];
        queues.into_iter().filter(|(_, kind)| running.has_room(*kind)).find_map(|(due, kind)| {
            due.pop(|host| running.has_room_for_host(host, kind)).map(|address| (address, kind))
        })
    }

    /// If a claim of this address needs a check, queues the check. The check starts once there is a place
    /// for it.
    fn schedule_check_now(&mut self, address: Address) {
        let Some(links) = self.by_address.get_mut(&address) else { return };
        let is_contested = links.has_held();
        match &mut links.check {
            CheckState::Running { is_renewed, .. } => {
                *is_renewed = true;
                return;
            }
            CheckState::Due { is_contested: before, .. } if *before || !is_contested => return,
            CheckState::Waiting(_) | CheckState::Due { .. } | CheckState::Idle => {}
        }
        let has_questions = !links.links_to_ask_about().is_empty();
        let before = mem::take(&mut links.check);
        if has_questions {
            let due = if is_contested { &mut self.contested_due } else { &mut self.background_due };
            links.check = CheckState::Due { is_contested, ticket: due.push(address) };
        }
        self.unschedule_check(address, before);
    }

    /// Removes the address's check from the queue or the timers, if it waits there. `check` says where it
    /// waits.
    fn unschedule_check(&mut self, address: Address, check: CheckState) {
        match check {
            CheckState::Waiting(timer) => drop(self.timers.remove(&timer)),
            CheckState::Due { is_contested: true, ticket } => self.contested_due.remove(address, ticket),
            CheckState::Due { is_contested: false, ticket } => self.background_due.remove(address, ticket),
            CheckState::Running { .. } | CheckState::Idle => {}
        }
    }

    /// If a claim of this address still needs a check, schedules the check: at once, or after a delay.
    fn schedule_recheck(&mut self, address: Address, is_at_once: bool, now: Instant) {
        let Some(links) = self.by_address.get_mut(&address) else { return };
        links.check = CheckState::Idle;
        if is_at_once {
            return self.schedule_check_now(address);
        }
        if links.links_to_ask_about().is_empty() {
            links.delay_doublings = 0;
            return;
        }
        let mut at = now + links.advance_delay();
        if let Some(over_at) =
            links.oldest_held_since().and_then(|since| since.checked_add(self.hold_timeout))
        {
            at = at.min(over_at.max(now));
        }
        let timer = (at, self.timer_count);
        self.timer_count += 1;
        links.check = CheckState::Waiting(timer);
        self.timers.insert(timer, address);
    }

    fn admit_if_uncontested(&mut self, address: Address) {
        let Some(links) = self.by_address.get_mut(&address).filter(|_| !self.reserved.contains_key(&address))
        else {
            return;
        };
        let admitted = links.admit_uncontested();
        if !admitted.is_empty() {
            self.queue_admitted(&admitted);
            self.schedule_check_now(address);
        }
    }

    fn queue_admitted(&mut self, links: &[LinkId]) {
        self.hung_up_held.remove(|kept| links.contains(&kept));
        self.admitted.extend(links);
    }
}

#[cfg(test)]
mod tests;
