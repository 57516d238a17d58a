//! How this side checks the addresses that links claim, and answers the questions of other endpoints.
//!
//! A check is a separate connection to the address that a link claims. A check carries no frames. See
//! docs/decisions/tcp-claims.md.

use std::io;
use std::time::{Duration, Instant};

use homespun_engine::address::Address;
use homespun_engine::errno::Errno;
use homespun_engine::transport::{FrameHandler, LinkError, LinkEvent, LinkId};
use homespun_engine::wire::address_claim::{ClaimRecord, ClaimStatus};
use homespun_engine::wire::hello::Question;
use mio::net::TcpStream;
use mio::{Interest, Token};
use smallvec::SmallVec;

use super::{TcpTransport, enlist_dirty, enlist_ready};
use crate::address_claims::{CheckOutcome, CheckPlan};
use crate::check::Check;
use crate::descriptors::DescriptorLimit;
use crate::hello::believed_address;
use crate::limits::{CHECK_TIMEOUT_MS, CHECKS_MAX, READS_MIN_ENDS};
use crate::link::Origin;
use crate::links::Slot;
use crate::listener::is_exhaustion;
use crate::socket;

/// The token of the check at this place in the poll. It is larger than the number of any link.
fn poll_token_of_check(place: usize) -> Token {
    Token(super::LISTENER.0 - 1 - place)
}

/// The place of the check with this token in the poll.
pub(super) fn check_of_poll_token(token: Token) -> Option<usize> {
    let place = super::LISTENER.0.checked_sub(1)?.checked_sub(token.0)?;
    (place < CHECKS_MAX).then_some(place)
}

/// The error of a link that claims the address of an endpoint that has not made the link.
const REFUTED: LinkError = LinkError::Protocol("claims the address of another endpoint");

impl TcpTransport {
    /// Makes the transport hold every newly accepted link that claims this address. A held link is admitted
    /// when the endpoint at the address confirms the claim, or when the address is released and nothing else
    /// contests the claim. Call this if an endpoint is certainly at the address. Links that are already up
    /// stay up.
    pub fn reserve_address(&mut self, address: Address) {
        self.address_claims.reserve_address(address, Instant::now());
    }

    /// Ends the effect of [`reserve_address`](Self::reserve_address).
    pub fn release_address(&mut self, address: Address) {
        self.address_claims.release_address(address);
    }

    /// Advances the checks of claims, and admits held links. Returns how many events it has reported.
    pub(super) fn advance_claim_checks(&mut self, receiver: &mut impl FrameHandler) -> u32 {
        while let Some(id) = self.address_claims.pop_surplus() {
            tracing::debug!(link = id.0, "dropped: the peer has hung up before its claim was proven");
            self.drop_link(id);
        }
        let mut reported = 0;
        let is_time_check_due = self.address_claims.count_pass_toward_time_check();
        for place in 0..self.checks.len() {
            // The others stay ready or late for a later pass.
            if self.ends_left <= READS_MIN_ENDS {
                break;
            }
            if self.checks[place].as_ref().is_some_and(|check| check.is_ready || is_time_check_due) {
                reported += self.advance_check(place, receiver);
            }
        }
        if is_time_check_due || self.address_claims.has_work() {
            reported += self.start_due_checks(receiver);
        }
        while let Some(admitted) = self.address_claims.pop_admitted() {
            reported += self.admit_held_link(admitted, receiver);
        }
        reported
    }

    /// Whether a check has something to do at once.
    pub(super) fn has_check_work(&self) -> bool {
        self.address_claims.has_work() || self.checks.iter().flatten().any(|check| check.is_ready)
    }

    /// Returns how soon a sleeping application must make a pass for a check; `None` if no check needs one.
    /// Not every pass reads the clock. After this call, the next pass does.
    pub(super) fn prepare_claim_checks_for_sleep(&mut self) -> Option<Duration> {
        let limit = Duration::from_millis(CHECK_TIMEOUT_MS);
        let ends = self.checks.iter().flatten().map(|check| check.began_at + limit).min();
        let at = self.address_claims.prepare_sleep_and_get_next_timer().into_iter().chain(ends).min()?;
        Some(at.saturating_duration_since(Instant::now()))
    }

    /// Begins the checks that are due. Returns how many events it has reported.
    fn start_due_checks(&mut self, receiver: &mut impl FrameHandler) -> u32 {
        let now = Instant::now();
        let mut reported = 0;
        while let Some(plan) = self.address_claims.start_next_check(now) {
            if !self.find_descriptor_for_check(&plan, now, &mut reported, receiver) {
                tracing::debug!(address = %plan.address, "a check waits for a descriptor");
                reported += self.postpone_check(&plan, true, now, receiver);
                break;
            }
            // Send the tokens to the peers before the check asks about them.
            plan.asked.iter().for_each(|(link, _)| self.flush_link(*link));
            let questions = self.questions_of(&plan);
            match self.connect_to_claimed_address(&plan, &questions) {
                Ok((stream, place)) => {
                    tracing::debug!(address = %plan.address, links = plan.asked.len(), "checking a claim");
                    self.checks[place] = Some(Box::new(Check::new(plan, stream, &questions, now)));
                    self.check_shortage.end();
                }
                Err(error) if is_temporary_shortage(socket::to_errno(&error)) => {
                    tracing::debug!(address = %plan.address, %error, "a check waits");
                    let lacks_descriptors = matches!(socket::to_errno(&error), Errno::EMFILE | Errno::ENFILE);
                    reported += self.postpone_check(&plan, lacks_descriptors, now, receiver);
                    break;
                }
                Err(error) => {
                    tracing::debug!(address = %plan.address, %error, "a check has failed");
                    reported += self.apply_check_outcome(&plan, &CheckOutcome::Unreachable, now, receiver);
                }
            }
        }
        reported
    }

    /// Whether a check may open a connection: it takes none of the descriptors that are reserved for the
    /// process, and leaves as many others as accepted connections have taken of these.
    fn has_descriptor_for_check(&self) -> bool {
        DescriptorLimit::current().has_spare(self.reserve_links.max(1))
    }

    /// Whether a check may open a connection. If a check of a held link may not, ends an unproven link:
    /// otherwise strangers that take all descriptors would keep the peers of held links waiting.
    fn find_descriptor_for_check(
        &mut self,
        plan: &CheckPlan,
        now: Instant,
        reported: &mut u32,
        receiver: &mut impl FrameHandler,
    ) -> bool {
        if self.has_descriptor_for_check() {
            return true;
        }
        let is_asked = |id: LinkId| plan.asked.iter().any(|(asked, _)| *asked == id);
        let may_displace = plan.id.is_contested() && self.ends_left > READS_MIN_ENDS;
        let found =
            self.accepted.oldest_displaceable(now).filter(|found| may_displace && !is_asked(found.id));
        let Some(found) = found else { return false };
        *reported += self.displace(found.id, receiver);
        self.has_descriptor_for_check()
    }

    /// The questions of a check. Each names the address at which the link has reached this side. No other
    /// process listens there, so no process can pass a token on to a peer that has connected to it instead.
    fn questions_of(&mut self, plan: &CheckPlan) -> Vec<Question> {
        let asked = plan.asked.iter().map(|&(link, token)| {
            let link = self.links.link_mut(link);
            let reached_at = link.and_then(|link| link.stream.local_addr().ok());
            Question { address: reached_at.map_or(self.address, Address::from), token }
        });
        asked.collect()
    }

    /// Starts to connect to a claimed address. Returns the connection, and the place for its check. If the
    /// address is on another host, the connection comes from the IP address at which the peer has reached
    /// this side. So the peer recognises this side.
    fn connect_to_claimed_address(
        &mut self,
        plan: &CheckPlan,
        questions: &[Question],
    ) -> io::Result<(TcpStream, usize)> {
        let is_local = self.local_addresses.contains(plan.address.ip());
        let reached_at = questions.first().map(|question| question.address.socket_addr());
        let source = if is_local { self.source } else { reached_at };
        let to = plan.address.socket_addr();
        let mut stream = socket::start_connect(to, source, self.buffers, self.connect_timeout)?;
        let place = self.checks.iter().position(Option::is_none).unwrap_or_else(|| {
            self.checks.push(None);
            self.checks.len() - 1
        });
        let both = Interest::READABLE | Interest::WRITABLE;
        self.poll.registry().register(&mut stream, poll_token_of_check(place), both)?;
        Ok((stream, place))
    }

    /// Advances one check. Returns how many events it has reported.
    fn advance_check(&mut self, place: usize, receiver: &mut impl FrameHandler) -> u32 {
        let Some(Some(check)) = self.checks.get_mut(place) else { return 0 };
        let now = Instant::now();
        let limit = Duration::from_millis(CHECK_TIMEOUT_MS);
        let is_late = now.saturating_duration_since(check.began_at) >= limit;
        let outcome = check.advance().or_else(|| is_late.then(|| check.outcome_without_answer()));
        match outcome {
            Some(outcome) => self.finish_check(place, &outcome, now, receiver),
            None => 0,
        }
    }

    fn finish_check(
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
        self.apply_check_outcome(&check.plan, outcome, now, receiver)
    }

    /// Acts on the result of a check. Returns how many events it has reported.
    fn apply_check_outcome(
        &mut self,
        plan: &CheckPlan,
        outcome: &CheckOutcome,
        now: Instant,
        receiver: &mut impl FrameHandler,
    ) -> u32 {
        tracing::debug!(address = %plan.address, ?outcome, "checked a claim");
        for (link, _) in &plan.asked {
            // The peer may have hung up, although this side has not yet seen the kernel's event.
            if let Some(hung_up) = self.links.link_mut(*link).filter(|link| link.is_hung_up()) {
                self.address_claims.record_hang_up(*link, plan.address, hung_up.determine_hang_up());
            }
        }
        let refuted = self.address_claims.finish_check(plan, outcome, now);
        self.report_confirmed(outcome, receiver);
        self.end_refuted_links(&refuted, receiver)
    }

    /// Reports the links whose claim an endpoint has confirmed. A held link is not reported here, but when
    /// it is admitted.
    fn report_confirmed(&mut self, outcome: &CheckOutcome, receiver: &mut impl FrameHandler) {
        let CheckOutcome::Answered(answers) = outcome else { return };
        for &(id, token, status) in answers {
            let Some(link) = self.links.link_mut(id).filter(|_| status == ClaimStatus::Confirmed) else {
                continue;
            };
            let is_to_be_reported = link.confirm_claim(token);
            if link.is_confirmed() {
                self.accepted.protect(id);
            }
            if is_to_be_reported {
                receiver.link_event(id, LinkEvent::Confirmed);
            }
        }
    }

    /// Postpones a check that lacks a descriptor, memory or a port. If descriptors are lacking for too long,
    /// ends the held links that it is about. Returns how many events it has reported.
    fn postpone_check(
        &mut self,
        plan: &CheckPlan,
        lacks_descriptors: bool,
        now: Instant,
        receiver: &mut impl FrameHandler,
    ) -> u32 {
        let mut overdue = self.address_claims.postpone_check(plan, now);
        if lacks_descriptors && plan.id.is_contested() && self.check_shortage.note_wait() {
            for (id, _) in &plan.asked {
                if self.links.link_mut(*id).is_some_and(|link| link.is_held()) && !overdue.contains(id) {
                    self.refuse_if_held(*id);
                    overdue.push(*id);
                }
            }
        }
        self.end_refuted_links(&overdue, receiver)
    }

    /// Ends links whose claim was refuted, or was not proven in time.
    fn end_refuted_links(&mut self, links: &[LinkId], receiver: &mut impl FrameHandler) -> u32 {
        let mut reported = 0;
        for &id in links {
            let is_known_to_engine = self.links.link_mut(id).is_some_and(|link| link.is_known_to_engine());
            tracing::debug!(link = id.0, is_known_to_engine, "refuted");
            self.drop_link(id);
            if is_known_to_engine {
                reported += self.count_and_report_end(id, REFUTED, receiver);
            }
        }
        self.ends_left = self.ends_left.max(READS_MIN_ENDS);
        reported
    }

    /// Reports a link that was held, and lets it be read.
    fn admit_held_link(&mut self, id: LinkId, receiver: &mut impl FrameHandler) -> u32 {
        let Some(link) = self.links.link_mut(id) else { return 0 };
        let Some(claimed) = link.admit(&mut self.spare) else { return 0 };
        tracing::debug!(link = id.0, peer = %claimed.address, "admitted");
        let (proof, has_ended) = (link.proof_of_claim(), link.is_hung_up());
        let (peer, instance) = (claimed.address, claimed.instance);
        receiver.link_event(id, LinkEvent::Up { peer, instance, proof, has_ended });
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
    pub(super) fn answer_questions(
        &mut self,
        id: LinkId,
        questions: &[Question],
        receiver: &mut impl FrameHandler,
    ) -> u32 {
        let Some(Origin::Accepted { remote, .. }) = self.links.link_mut(id).map(|link| link.origin) else {
            return 0;
        };
        let mut reported = 0;
        for question in questions {
            let local = &mut self.local_addresses;
            let asker = believed_address(question.address, remote, |ip| local.contains(ip));
            if self.address_claims.address_of_token(question.token).is_none() {
                reported += self.read_links_awaiting_token(asker, receiver);
            }
            let status = self.answer_about_token(question.token, asker);
            let Some(link) = self.links.link_mut(id) else { break };
            link.outbound
                .stage_bytes(&ClaimRecord { status, token: question.token }.to_bytes(), &mut self.spare);
            enlist_dirty(&mut self.dirty, id, link);
        }
        reported
    }

    /// Reads the links without a token that this side has connected to the asking endpoint: their tokens may
    /// have arrived unread. Reads no other links, so that a question from a stranger stays cheap.
    fn read_links_awaiting_token(&mut self, asker: Address, receiver: &mut impl FrameHandler) -> u32 {
        let ids: SmallVec<[LinkId; 2]> = self.address_claims.links_awaiting_token(asker).collect();
        ids.into_iter().map(|id| self.read_link_now(id, receiver)).sum()
    }

    /// Answers whether this side has connected the link with this token to the address of the endpoint that
    /// asks. The answer may be [`ClaimStatus::Unclear`].
    fn answer_about_token(&self, token: u64, asker: Address) -> ClaimStatus {
        match self.address_claims.address_of_token(token) {
            Some(to) if to == asker => ClaimStatus::Confirmed,
            // The link leads to another endpoint, which may have got this token from the asker and passed it
            // on.
            Some(_) => ClaimStatus::Unclear,
            // A link of this side has no token yet, and may lead to the asker. Its address may differ from
            // the asker's if connections to that address are forwarded to the asker.
            None if self.address_claims.is_awaiting_token() => ClaimStatus::Unclear,
            None => ClaimStatus::Denied,
        }
    }
}

/// Whether a connection cannot be begun at present, whatever its address.
fn is_temporary_shortage(errno: Errno) -> bool {
    is_exhaustion(errno) || errno == Errno::EADDRNOTAVAIL
}
