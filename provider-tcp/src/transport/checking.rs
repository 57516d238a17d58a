//! How this side checks who its peers are, and answers the checks of others.
//!
//! A check is a connection of its own to the address that a link claims. It is no link, and carries no
//! frames. See docs/decisions/tcp-claims.md.

use std::io;
use std::time::{Duration, Instant};

use homespun_engine::address::Address;
use homespun_engine::errno::Errno;
use homespun_engine::transport::{FrameHandler, LinkError, LinkEvent, LinkId};
use homespun_engine::wire::claim::{Claim, ClaimKind};
use homespun_engine::wire::hello::Question;
use mio::net::TcpStream;
use mio::{Interest, Token};

use super::{TcpTransport, enlist_dirty, enlist_ready, report_down};
use crate::check::Check;
use crate::claims::{CheckOutcome, CheckPlan};
use crate::descriptors::DescriptorLimit;
use crate::hello::{believed_address, is_same_endpoint};
use crate::limits::{CHECK_TIMEOUT_MS, CHECKS_MAX};
use crate::link::Origin;
use crate::links::Slot;
use crate::listener::is_exhaustion;
use crate::socket;

/// The token of the check at this place. It is larger than any number of a link.
fn token_of(place: usize) -> Token {
    Token(super::LISTENER.0 - 1 - place)
}

/// The place of the check with this token.
pub(super) fn place_of(token: Token) -> Option<usize> {
    let place = super::LISTENER.0.checked_sub(1)?.checked_sub(token.0)?;
    (place < CHECKS_MAX).then_some(place)
}

/// The end of a link whose peer has not made it from the address that it claims.
const REFUTED: LinkError = LinkError::Protocol("claims the address of another endpoint");

impl TcpTransport {
    /// Holds accepted links that claim this address until the endpoint at the address confirms them, or until
    /// the address is released. For a caller who knows by better means than a hello that an endpoint is
    /// there. Links that are up stay.
    pub fn reserve_address(&mut self, address: Address) {
        self.claims.reserve(address);
    }

    /// Ends the effect of [`reserve_address`](Self::reserve_address).
    pub fn release_address(&mut self, address: Address) {
        self.claims.release(address);
    }

    /// Goes on with the checks of claims, and admits held links. Returns how many events it has reported.
    pub(super) fn check_claims(&mut self, receiver: &mut impl FrameHandler) -> u32 {
        let mut reported = 0;
        let is_look_due = self.claims.count_pass_and_check_due();
        for place in 0..self.checks.len() {
            if self.checks[place].as_ref().is_some_and(|check| check.is_ready || is_look_due) {
                reported += self.advance_check(place, receiver);
            }
        }
        if is_look_due || self.claims.has_work() {
            reported += self.begin_checks(receiver);
        }
        while let Some(id) = self.claims.take_admitted() {
            reported += self.admit(id, receiver);
        }
        reported
    }

    /// Whether a check has something to do at once.
    pub(super) fn has_check_work(&self) -> bool {
        self.claims.has_work() || self.checks.iter().flatten().any(|check| check.is_ready)
    }

    /// How soon the time must be looked at for the sake of a check.
    pub(super) fn request_claim_look(&mut self) -> Option<Duration> {
        let limit = Duration::from_millis(CHECK_TIMEOUT_MS);
        let ends = self.checks.iter().flatten().map(|check| check.began_at + limit).min();
        let at = self.claims.request_look().into_iter().chain(ends).min()?;
        Some(at.saturating_duration_since(Instant::now()))
    }

    /// Begins the checks that are due. Returns how many events it has reported.
    fn begin_checks(&mut self, receiver: &mut impl FrameHandler) -> u32 {
        let now = Instant::now();
        let mut reported = 0;
        while let Some(plan) = self.claims.next_check(now) {
            if !self.may_open_check() {
                tracing::debug!(address = %plan.address, "a check waits for a descriptor");
                reported += self.postpone(&plan, now, receiver);
                break;
            }
            // The peers know the tokens before they are asked about them.
            plan.asked.iter().for_each(|(link, _)| self.flush_link(*link));
            match self.connect_check(&plan) {
                Ok((stream, place)) => {
                    tracing::debug!(address = %plan.address, links = plan.asked.len(), "checking a claim");
                    self.checks[place] = Some(Box::new(Check::new(plan, stream, self.address, now)));
                }
                Err(error) if is_shortage(socket::to_errno(&error)) => {
                    tracing::debug!(address = %plan.address, %error, "a check waits");
                    reported += self.postpone(&plan, now, receiver);
                    break;
                }
                Err(error) => {
                    tracing::debug!(address = %plan.address, %error, "a check has failed");
                    reported += self.conclude(&plan, &CheckOutcome::Unreachable, now, receiver);
                }
            }
        }
        reported
    }

    /// Whether a check would take none of the descriptors that are reserved for the process.
    fn may_open_check(&self) -> bool {
        let limit = DescriptorLimit::current();
        self.listener.as_ref().is_none_or(|own| limit.has_spare(own.socket()))
    }

    /// Starts to connect to a claimed address. The connection comes from the address at which the peer has
    /// reached this side, so that the peer recognises it. Returns the place for the check, too.
    fn connect_check(&mut self, plan: &CheckPlan) -> io::Result<(TcpStream, usize)> {
        let is_local = self.local_addresses.contains(plan.address.ip());
        let reached_at = plan
            .asked
            .iter()
            .find_map(|(link, _)| self.links.link_mut(*link).and_then(|link| link.stream.local_addr().ok()));
        let source = if is_local { self.source } else { reached_at.or(self.source) };
        let mut stream = socket::start_connect(plan.address.socket_addr(), source, self.buffers)?;
        let place = self.checks.iter().position(Option::is_none).unwrap_or_else(|| {
            self.checks.push(None);
            self.checks.len() - 1
        });
        let both = Interest::READABLE | Interest::WRITABLE;
        self.poll.registry().register(&mut stream, token_of(place), both)?;
        Ok((stream, place))
    }

    /// Goes on with one check. Returns how many events it has reported.
    fn advance_check(&mut self, place: usize, receiver: &mut impl FrameHandler) -> u32 {
        let Some(Some(check)) = self.checks.get_mut(place) else { return 0 };
        let now = Instant::now();
        let limit = Duration::from_millis(CHECK_TIMEOUT_MS);
        let is_late = now.saturating_duration_since(check.began_at) >= limit;
        let outcome = check.advance().or_else(|| is_late.then(|| check.outcome_without_answer()));
        match outcome {
            Some(outcome) => self.end_check(place, &outcome, now, receiver),
            None => 0,
        }
    }

    fn end_check(
        &mut self,
        place: usize,
        outcome: &CheckOutcome,
        now: Instant,
        receiver: &mut impl FrameHandler,
    ) -> u32 {
        let Some(mut check) = self.checks.get_mut(place).and_then(Option::take) else { return 0 };
        if let Err(error) = self.poll.registry().deregister(&mut *check.stream) {
            tracing::debug!(%error, "the connection was not registered");
        }
        self.conclude(&check.plan, outcome, now, receiver)
    }

    /// Acts on what came of a check. Returns how many events it has reported.
    fn conclude(
        &mut self,
        plan: &CheckPlan,
        outcome: &CheckOutcome,
        now: Instant,
        receiver: &mut impl FrameHandler,
    ) -> u32 {
        tracing::debug!(address = %plan.address, ?outcome, "checked a claim");
        for (link, _) in &plan.asked {
            // An end that the kernel has not reported yet matters, too.
            if self.links.link_mut(*link).is_some_and(|link| link.is_hung_up()) {
                self.claims.hung_up(*link, plan.address);
            }
        }
        let refuted = self.claims.check_ended(plan, outcome, now);
        self.report_confirmed(outcome, receiver);
        self.end_claims(&refuted, receiver)
    }

    /// Reports the links whose claim an endpoint has confirmed. A link that is held is reported when it is
    /// admitted.
    fn report_confirmed(&mut self, outcome: &CheckOutcome, receiver: &mut impl FrameHandler) {
        let CheckOutcome::Answered(answers) = outcome else { return };
        for &(id, token, kind) in answers {
            if kind == ClaimKind::Confirmed
                && self.links.link_mut(id).is_some_and(|link| link.confirm_claim(token))
            {
                receiver.link_event(id, LinkEvent::Confirmed);
            }
        }
    }

    /// Lets a check wait for a descriptor. Returns how many events it has reported.
    fn postpone(&mut self, plan: &CheckPlan, now: Instant, receiver: &mut impl FrameHandler) -> u32 {
        let overdue = self.claims.check_postponed(plan, now);
        self.end_claims(&overdue, receiver)
    }

    /// Ends links whose claim was refuted, or was not proven in time.
    fn end_claims(&mut self, links: &[LinkId], receiver: &mut impl FrameHandler) -> u32 {
        let mut reported = 0;
        for &id in links {
            let is_known = self.links.link_mut(id).is_some_and(|link| link.is_known());
            tracing::debug!(link = id.0, is_known, "refuted");
            self.drop_link(id);
            if is_known {
                reported += report_down(id, REFUTED, receiver);
            }
        }
        reported
    }

    /// Reports a link that was held, and lets it be read.
    fn admit(&mut self, id: LinkId, receiver: &mut impl FrameHandler) -> u32 {
        let Some(link) = self.links.link_mut(id) else { return 0 };
        let Some(claimed) = link.admit(&mut self.spare) else { return 0 };
        tracing::debug!(link = id.0, peer = %claimed.address, "admitted");
        let (peer, instance, proof) = (claimed.address, claimed.instance, link.proof_of_claim());
        receiver.link_event(id, LinkEvent::Up { peer, instance, proof });
        enlist_dirty(&mut self.dirty, id, link);
        enlist_ready(&mut self.ready, id, link);
        1
    }

    /// Drops all held links.
    pub(super) fn drop_held_links(&mut self) {
        let is_held = |id: &LinkId| matches!(self.links.slot(*id), Some(Slot::Made(link)) if link.is_held());
        let held: Vec<LinkId> = self.links.ids().filter(is_held).collect();
        held.into_iter().for_each(|id| self.drop_link(id));
    }

    /// Answers the questions of a connection. Returns how many events it has reported.
    pub(super) fn answer(
        &mut self,
        id: LinkId,
        questions: &[Question],
        receiver: &mut impl FrameHandler,
    ) -> u32 {
        let mut reported = 0;
        if questions.iter().any(|question| self.claims.address_of_token(question.token).is_none()) {
            // The token may have arrived, and be unread.
            for waiting in self.links_awaiting_token() {
                reported += self.read_now(waiting, receiver);
            }
        }
        // A link whose connection is not made yet cannot be meant.
        let kind_of_unknown =
            if self.links_awaiting_token().is_empty() { ClaimKind::Denied } else { ClaimKind::Unclear };
        for question in questions {
            let kind = match self.claims.address_of_token(question.token) {
                Some(to) => self.verdict(id, to, question),
                None => kind_of_unknown,
            };
            let Some(link) = self.links.link_mut(id) else { break };
            link.outbound.stage_bytes(&Claim { kind, token: question.token }.to_bytes(), &mut self.spare);
            enlist_dirty(&mut self.dirty, id, link);
        }
        reported
    }

    /// The links of this side whose connection is made, and whose acceptor has given them no token.
    fn links_awaiting_token(&mut self) -> Vec<LinkId> {
        let links = &mut self.links;
        let is_made = |id: &LinkId| links.link_mut(*id).is_some_and(|link| link.is_connection_made());
        self.claims.links_awaiting_token().filter(is_made).collect()
    }

    /// Whether the endpoint that asks is the one at this address, to which this side has made the link.
    fn verdict(&mut self, asking: LinkId, to: Address, question: &Question) -> ClaimKind {
        let Some(Origin::Accepted { remote, .. }) = self.links.link_mut(asking).map(|link| link.origin)
        else {
            return ClaimKind::Unclear;
        };
        let local = &mut self.local_addresses;
        let asker = believed_address(question.address, remote, |ip| local.contains(ip));
        if is_same_endpoint(to, asker, |ip| local.contains(ip)) {
            ClaimKind::Confirmed
        } else {
            // Another endpoint may have passed on a token that it was given.
            ClaimKind::Unclear
        }
    }
}

/// Whether a connection cannot be begun at present, whatever its address.
fn is_shortage(errno: Errno) -> bool {
    is_exhaustion(errno) || errno == Errno::EADDRNOTAVAIL
}
