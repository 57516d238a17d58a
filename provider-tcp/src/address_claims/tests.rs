use std::iter;
use std::net::SocketAddr;
use std::ops::RangeInclusive;

use super::*;
use crate::limits::{
    ARRIVAL_TOLERANCE_MS, CHECK_RETRY_MS, CHECK_SILENT_MAX, CHECK_UNCLEAR_MAX, CHECKS_BACKGROUND_MAX,
    CHECKS_CONTESTED_MAX, CHECKS_MAX, CHECKS_OF_HOST_MAX, HELD_MAX_LINKS, LINKS_TO_ADDRESS_MAX,
    PAST_TOKENS_MAX, UNHELD_MAX_LINKS_OF_ADDRESS,
};

const HOLD: Duration = Duration::from_secs(60);

const ONE: LinkId = LinkId(1);
const TWO: LinkId = LinkId(2);
const THREE: LinkId = LinkId(3);

fn address(port: u16) -> Address {
    address_of_host(1, port)
}

fn address_of_host(host: u8, port: u16) -> Address {
    SocketAddr::from(([10, 0, 0, host], port)).into()
}

/// The first link that claims an address in [`TimedClaims::accept_claims_of_host`]. Its number is even.
fn first_link(host: u8, port: u16) -> LinkId {
    LinkId(u32::from(host) << 17 | u32::from(port) << 1)
}

/// AddressClaims, and the time.
struct TimedClaims {
    claims: AddressClaims,
    now: Instant,
    accepted_count: u64,
}

impl TimedClaims {
    fn new() -> TimedClaims {
        TimedClaims { claims: AddressClaims::new(HOLD), now: Instant::now(), accepted_count: 0 }
    }

    /// Records claims of the address with port 1.
    fn of_links(links: &[LinkId]) -> TimedClaims {
        let mut timed = TimedClaims::new();
        links.iter().for_each(|link| _ = timed.accept(*link, 1));
        timed
    }

    /// Records the claim of a link whose token is a thousand times its number.
    fn accept(&mut self, link: LinkId, port: u16) -> Admission {
        self.accept_claim_of(link, address(port))
    }

    fn accept_claim_of(&mut self, link: LinkId, address: Address) -> Admission {
        self.accept_claim_that_arrived(link, address, self.now)
    }

    fn accept_claim_that_arrived(
        &mut self,
        link: LinkId,
        address: Address,
        arrived_at: Instant,
    ) -> Admission {
        let (token, from) = (u64::from(link.0) * 1000, SourceHost::of(address));
        let serial = Some(self.accepted_count);
        self.accepted_count += 1;
        self.claims.add_accepted(link, NewClaim { address, token, from, serial, arrived_at }, self.now)
    }

    /// Accepts one claim of each of these ports of a host. If `is_contested`, accepts two claims of each.
    fn accept_claims_of_host(&mut self, host: u8, ports: RangeInclusive<u16>, is_contested: bool) {
        for port in ports {
            let link = first_link(host, port);
            assert_eq!(self.accept_claim_of(link, address_of_host(host, port)), Admission::Open);
            if is_contested {
                let second = LinkId(link.0 | 1);
                assert_eq!(self.accept_claim_of(second, address_of_host(host, port)), Admission::Held);
            }
        }
    }

    fn start_all_checks(&mut self) -> Vec<CheckPlan> {
        let plans = iter::from_fn(|| self.start_next_check()).collect();
        assert!(!self.claims.has_work(), "a pass would find nothing to do");
        plans
    }

    fn finish_checks_without_answer(&mut self, plans: &[CheckPlan]) {
        for plan in plans {
            self.claims.finish_check(plan, &CheckOutcome::Silent, self.now);
        }
    }

    fn start_next_check(&mut self) -> Option<CheckPlan> {
        self.claims.start_next_check(self.now)
    }

    /// Makes the next check, which must ask about these links, and answers it.
    #[track_caller]
    fn finish_next_check_with(&mut self, expected: &[(LinkId, ClaimStatus)]) -> Vec<LinkId> {
        let plan = self.start_next_check().expect("a check");
        assert!(
            plan.asked.iter().map(|(link, _)| link).eq(expected.iter().map(|(link, _)| link)),
            "{plan:?}"
        );
        let answers =
            plan.asked.iter().zip(expected).map(|((link, token), (_, status))| (*link, *token, *status));
        self.claims.finish_check(&plan, &CheckOutcome::Answered(answers.collect()), self.now)
    }

    #[track_caller]
    fn finish_next_check_without_answer(&mut self, outcome: &CheckOutcome) -> Vec<LinkId> {
        let plan = self.start_next_check().expect("a check");
        self.claims.finish_check(&plan, outcome, self.now)
    }

    fn pop_all_admitted(&mut self) -> Vec<LinkId> {
        iter::from_fn(|| self.claims.pop_admitted()).collect()
    }

    /// Moves the time on to the next timer.
    #[track_caller]
    fn advance_to_timer(&mut self) -> Duration {
        let at = self.claims.prepare_sleep_and_get_next_timer().expect("a timer");
        let waited = at - self.now;
        self.now = at;
        waited
    }
}

#[test]
fn second_claim_is_held_until_it_is_confirmed() {
    let mut timed = TimedClaims::of_links(&[ONE]);
    assert_eq!(timed.accept(TWO, 1), Admission::Held);
    assert_eq!(timed.accept(THREE, 2), Admission::Open, "of another address");
    // One check asks about both links of the contested address. This check comes before the check of the
    // other address.
    let ends = timed.finish_next_check_with(&[(ONE, ClaimStatus::Confirmed), (TWO, ClaimStatus::Confirmed)]);
    assert_eq!((ends, timed.pop_all_admitted()), (vec![], vec![TWO]));
}

#[test]
fn claim_of_an_address_that_is_being_connected_is_held() {
    let mut timed = TimedClaims::new();
    timed.claims.add_connecting(ONE, address(1), timed.now);
    assert_eq!(timed.accept(TWO, 1), Admission::Held);
    // A silent endpoint may be a rival. If the check reaches no endpoint, there is no rival, although a link
    // is still connecting to the address.
    assert_eq!(timed.finish_next_check_without_answer(&CheckOutcome::Silent), []);
    assert_eq!(timed.pop_all_admitted(), []);
    timed.advance_to_timer();
    assert_eq!(timed.finish_next_check_without_answer(&CheckOutcome::Unreachable), []);
    assert_eq!(timed.pop_all_admitted(), [TWO]);
}

#[test]
fn link_that_is_up_keeps_an_unreachable_claim_held() {
    let mut timed = TimedClaims::new();
    timed.claims.add_connecting(ONE, address(1), timed.now);
    timed.claims.record_connected(ONE, address(1));
    assert_eq!(timed.start_next_check(), None, "a link of this side needs no check");
    timed.accept(TWO, 1);
    let begin = timed.now;
    let mut delays = Vec::new();
    loop {
        let ends = timed.finish_next_check_without_answer(&CheckOutcome::Unreachable);
        assert_eq!(timed.pop_all_admitted(), []);
        if !ends.is_empty() {
            assert_eq!((ends, timed.now - begin), (vec![TWO], HOLD));
            break;
        }
        delays.push(timed.advance_to_timer());
    }
    assert_eq!(delays[0], Duration::from_millis(CHECK_RETRY_MS));
    assert!(delays.len() < 30 && delays.iter().sum::<Duration>() == HOLD);
}

#[test]
fn link_may_be_held_without_a_limit() {
    let mut timed = TimedClaims { claims: AddressClaims::new(Duration::MAX), ..TimedClaims::new() };
    timed.accept(ONE, 1);
    timed.accept(TWO, 1);
    for _ in 0..20 {
        assert_eq!(timed.finish_next_check_without_answer(&CheckOutcome::Silent), []);
        timed.advance_to_timer();
    }
}

#[test]
fn end_of_the_contesting_link_admits_the_oldest_held_one() {
    let mut timed = TimedClaims::of_links(&[ONE, TWO, THREE]);
    timed.claims.remove_link(ONE, address(1));
    assert_eq!(timed.pop_all_admitted(), [TWO]);
    // When TWO ends, THREE waits to be admitted. When THREE ends, too, no link waits any more.
    timed.claims.remove_link(TWO, address(1));
    timed.claims.remove_link(THREE, address(1));
    assert_eq!(timed.pop_all_admitted(), []);
    assert!(timed.claims.by_address.is_empty());
}

#[test]
fn hung_up_link_contests_nothing_and_is_read_to_its_end() {
    let mut timed = TimedClaims::of_links(&[ONE, TWO]);
    let plan = timed.start_next_check().unwrap();
    timed.claims.record_hang_up(ONE, address(1), HangUp::EndOfStream);
    assert_eq!(timed.pop_all_admitted(), [TWO]);
    assert_eq!(timed.accept(THREE, 1), Admission::Held, "the admitted one contests it");
    let answers = [ONE, TWO].map(|link| (link, u64::from(link.0) * 1000, ClaimStatus::Denied));
    let ends = timed.claims.finish_check(&plan, &CheckOutcome::Answered(answers.to_vec()), timed.now);
    assert_eq!(ends, [TWO], "an answer denies a link whose endpoint has ended");
}

#[test]
fn unclear_claim_stays_unless_another_link_is_proven() {
    let mut timed = TimedClaims::of_links(&[ONE]);
    for _ in 0..CHECK_UNCLEAR_MAX {
        assert_eq!(timed.finish_next_check_with(&[(ONE, ClaimStatus::Unclear)]), []);
        timed.now += HOLD;
    }
    assert_eq!(timed.start_next_check(), None);
    timed.accept(TWO, 1);
    let ends = timed.finish_next_check_with(&[(ONE, ClaimStatus::Unclear), (TWO, ClaimStatus::Confirmed)]);
    assert_eq!((ends, timed.pop_all_admitted()), (vec![], vec![TWO]));
    for count in 2..=CHECK_UNCLEAR_MAX {
        timed.advance_to_timer();
        let ends = timed.finish_next_check_with(&[(ONE, ClaimStatus::Unclear)]);
        assert_eq!(ends == [ONE], count == CHECK_UNCLEAR_MAX, "{ends:?}");
    }
}

#[test]
fn silent_address_is_asked_a_few_times_and_an_unreachable_one_once() {
    let mut timed = TimedClaims::of_links(&[ONE]);
    for _ in 1..CHECK_SILENT_MAX {
        assert_eq!(timed.finish_next_check_without_answer(&CheckOutcome::Silent), []);
        assert!(timed.advance_to_timer() > Duration::from_secs(1), "the peer may compute for long");
    }
    assert_eq!(timed.finish_next_check_without_answer(&CheckOutcome::Silent), []);
    assert!(!timed.claims.is_busy());
    timed.accept(TWO, 2);
    assert_eq!(timed.finish_next_check_without_answer(&CheckOutcome::Unreachable), []);
    assert!(!timed.claims.is_busy());
}

#[test]
fn claim_beside_a_link_that_comes_up_is_checked_until_there_is_an_answer() {
    let mut timed = TimedClaims::new();
    timed.claims.add_connecting(ONE, address(1), timed.now);
    timed.accept(TWO, 1);
    timed.finish_next_check_without_answer(&CheckOutcome::Unreachable);
    assert_eq!(timed.pop_all_admitted(), [TWO]);
    timed.claims.record_connected(ONE, address(1));
    for _ in 0..20 {
        assert_eq!(timed.finish_next_check_without_answer(&CheckOutcome::Silent), []);
        timed.advance_to_timer();
    }
    assert_eq!(timed.finish_next_check_with(&[(TWO, ClaimStatus::Denied)]), [TWO]);
}

#[test]
fn link_accepted_during_a_check_is_checked_next() {
    let mut timed = TimedClaims::of_links(&[ONE]);
    let plan = timed.start_next_check().unwrap();
    timed.accept(TWO, 1);
    assert_eq!(timed.start_next_check(), None, "one check of an address at a time");
    let answers = vec![(ONE, 1000, ClaimStatus::Confirmed)];
    timed.claims.finish_check(&plan, &CheckOutcome::Answered(answers), timed.now);
    assert_eq!(timed.finish_next_check_with(&[(TWO, ClaimStatus::Confirmed)]), []);
    assert_eq!(timed.pop_all_admitted(), [TWO]);
}

#[test]
fn answer_about_an_ended_link_with_the_same_id_is_ignored() {
    let mut timed = TimedClaims::of_links(&[ONE]);
    let plan = timed.start_next_check().unwrap();
    timed.claims.remove_link(ONE, address(1));
    let (from, arrived_at) = (SourceHost::of(address(1)), timed.now);
    let claim = NewClaim { address: address(1), token: 77, from, serial: Some(1), arrived_at };
    timed.claims.add_accepted(ONE, claim, timed.now);
    let denied = CheckOutcome::Answered(vec![(ONE, 1000, ClaimStatus::Denied)]);
    assert_eq!(timed.claims.finish_check(&plan, &denied, timed.now), []);
    assert_eq!(timed.start_next_check().unwrap().asked[..], [(ONE, 77)]);
}

#[test]
fn number_of_checks_is_limited_with_places_for_contested_claims() {
    let mut timed = TimedClaims::new();
    (1..=10).for_each(|host| timed.accept_claims_of_host(host, 1..=10, false));
    let background = timed.start_all_checks();
    assert_eq!(background.len(), CHECKS_BACKGROUND_MAX);
    (11..=20).for_each(|host| timed.accept_claims_of_host(host, 1..=10, true));
    let contested = timed.start_all_checks();
    assert_eq!(background.len() + contested.len(), CHECKS_MAX);
    timed.finish_checks_without_answer(&[background, contested].concat());
    assert!(timed.claims.has_work());
}

#[test]
fn contested_claims_leave_places_for_background_checks() {
    let mut timed = TimedClaims::new();
    (1..=10).for_each(|host| timed.accept_claims_of_host(host, 1..=10, true));
    let contested = timed.start_all_checks();
    assert_eq!(contested.len(), CHECKS_CONTESTED_MAX);
    (11..=20).for_each(|host| timed.accept_claims_of_host(host, 1..=10, false));
    let background = timed.start_all_checks();
    assert!(!background.is_empty(), "contested checks have taken all places");
    assert_eq!(contested.len() + background.len(), CHECKS_MAX);
    timed.finish_checks_without_answer(&contested);
    let again = timed.start_all_checks();
    assert_eq!(again.len(), CHECKS_CONTESTED_MAX, "places change hands only within a kind");
}

#[test]
fn address_that_is_no_longer_contested_keeps_the_place_of_a_contested_one() {
    let mut timed = TimedClaims::new();
    (1..=10).for_each(|host| timed.accept_claims_of_host(host, 1..=10, true));
    for (host, port) in (1..=10).flat_map(|host| (1..=10).map(move |port| (host, port))) {
        timed.claims.remove_link(first_link(host, port), address_of_host(host, port));
    }
    assert_eq!(timed.pop_all_admitted().len(), 100);
    assert_eq!(timed.start_all_checks().len(), CHECKS_CONTESTED_MAX);
}

#[test]
fn number_of_checks_of_a_host_is_limited() {
    let mut timed = TimedClaims::new();
    timed.accept_claims_of_host(1, 1..=70, true);
    let of_first = timed.start_all_checks();
    assert_eq!(of_first.len(), CHECKS_OF_HOST_MAX);
    timed.accept_claims_of_host(2, 1..=1, true);
    timed.accept_claims_of_host(1, 71..=80, false);
    let others = timed.start_all_checks();
    let hosts: Vec<Address> = others.iter().map(|plan| plan.address).collect();
    assert_eq!(hosts[0], address_of_host(2, 1));
    assert_eq!(hosts[1..], [71, 72, 73, 74].map(|port| address_of_host(1, port)));
    timed.finish_checks_without_answer(&of_first[..1]);
    assert_eq!(timed.start_all_checks()[0].address, address_of_host(1, 5));
}

#[test]
fn postponed_check_is_made_later() {
    let mut timed = TimedClaims::of_links(&[ONE]);
    let plan = timed.start_next_check().unwrap();
    assert!(timed.claims.postpone_check(&plan, timed.now).is_empty());
    assert_eq!(timed.start_next_check(), None);
    timed.advance_to_timer();
    assert_eq!(timed.finish_next_check_with(&[(ONE, ClaimStatus::Confirmed)]), []);
}

#[test]
fn claim_beyond_the_held_ones_is_refused_and_has_them_checked_at_once() {
    let mut timed = TimedClaims::of_links(&[ONE]);
    for number in 0..HELD_MAX_LINKS {
        assert_eq!(timed.accept(LinkId(10 + number as u32), 1), Admission::Held);
    }
    timed.finish_next_check_without_answer(&CheckOutcome::Silent);
    assert_eq!(timed.start_next_check(), None, "the next check is due later");
    assert!(matches!(timed.accept(LinkId(9999), 1), Admission::Refused(_)));
    let plan = timed.start_next_check().expect("a check at once");
    assert_eq!(plan.asked.len(), 1 + HELD_MAX_LINKS);
    assert_eq!(timed.accept(LinkId(9999), 2), Admission::Open);
}

#[test]
fn tokens_are_known_beyond_the_end_of_their_links() {
    let mut timed = TimedClaims::new();
    timed.claims.add_connecting(ONE, address(1), timed.now);
    assert!(!timed.claims.is_awaiting_token(), "its hello has not left");
    timed.claims.record_connection_made(ONE, address(1));
    assert_eq!(timed.claims.links_awaiting_token(address(1)).collect::<Vec<_>>(), [ONE]);
    assert_eq!(timed.claims.links_awaiting_token(address(2)).count(), 0);
    timed.claims.record_given_token(ONE, address(1), 7);
    assert!(!timed.claims.is_awaiting_token());
    timed.claims.remove_link(ONE, address(1));
    timed.claims.retire_token(7);
    for token in 1000..1000 + PAST_TOKENS_MAX as u64 {
        assert_eq!(timed.claims.address_of_token(7), Some(address(1)));
        timed.claims.record_given_token(TWO, address(2), token);
        timed.claims.retire_token(token);
    }
    assert_eq!(timed.claims.address_of_token(7), None, "the oldest of more than are kept");
    assert_eq!(timed.claims.given_tokens.len(), PAST_TOKENS_MAX);
}

#[test]
fn due_address_is_forgotten_when_its_last_link_ends() {
    let mut timed = TimedClaims::new();
    for port in 1..=1000 {
        timed.accept(LinkId(port.into()), port);
    }
    // The addresses with an odd port are contested.
    for port in (1..=1000).step_by(2) {
        assert_eq!(timed.accept(LinkId(u32::from(port) + 1000), port), Admission::Held);
    }
    for port in 1..=1000 {
        timed.claims.remove_link(LinkId(port.into()), address(port));
        timed.claims.remove_link(LinkId(u32::from(port) + 1000), address(port));
    }
    assert!(timed.claims.contested_due.is_empty() && timed.claims.background_due.is_empty());
    assert!(!timed.claims.is_busy());
}

/// Accepts this many links that claim the address with port 1, beside the link ONE. Confirms those that
/// `finish_next_check_with` asks about. Returns their first number.
fn accept_and_confirm(timed: &mut TimedClaims, count: usize) {
    for number in 0..count as u32 {
        let link = LinkId(100 + number);
        timed.accept(link, 1);
        let plan = timed.start_next_check().expect("a check");
        let answers = plan.asked.iter().filter(|(asked, _)| *asked == link);
        let answers = answers.map(|(link, token)| (*link, *token, ClaimStatus::Confirmed)).collect();
        assert_eq!(timed.claims.finish_check(&plan, &CheckOutcome::Answered(answers), timed.now), []);
    }
}

#[test]
fn confirmed_links_of_an_address_are_limited() {
    let mut timed = TimedClaims::new();
    accept_and_confirm(&mut timed, UNHELD_MAX_LINKS_OF_ADDRESS);
    assert!(matches!(timed.accept(ONE, 1), Admission::Refused(_)));
    assert_eq!(timed.accept(ONE, 2), Admission::Open);
    // A link whose peer has hung up gives its place to another one.
    timed.claims.record_hang_up(LinkId(100), address(1), HangUp::EndOfStream);
    assert_eq!(timed.accept(TWO, 1), Admission::Held);
    // As long as both are held, neither knows which of the two takes the place.
    assert_eq!(timed.accept(THREE, 1), Admission::Held);
    let ends =
        timed.finish_next_check_with(&[(TWO, ClaimStatus::Confirmed), (THREE, ClaimStatus::Confirmed)]);
    assert_eq!(ends, [THREE]);
}

#[test]
fn unproven_link_of_an_address_gives_its_place_to_a_confirmed_one() {
    let mut timed = TimedClaims::of_links(&[ONE]);
    accept_and_confirm(&mut timed, UNHELD_MAX_LINKS_OF_ADDRESS - 1);
    timed.pop_all_admitted();
    timed.accept(TWO, 1);
    timed.accept(THREE, 1);
    let confirmed = ClaimStatus::Confirmed;
    let answers = [(ONE, ClaimStatus::Unclear), (TWO, confirmed), (THREE, confirmed)];
    assert_eq!(timed.finish_next_check_with(&answers), [ONE, THREE], "one place for two");
    assert_eq!(timed.pop_all_admitted(), [TWO]);
}

#[test]
fn links_to_an_address_are_limited_although_their_peers_have_hung_up() {
    let mut timed = TimedClaims::new();
    for number in 0..LINKS_TO_ADDRESS_MAX as u32 {
        assert_eq!(timed.accept(LinkId(number), 1), Admission::Open);
        timed.claims.record_hang_up(LinkId(number), address(1), HangUp::EndOfStream);
    }
    assert!(matches!(timed.accept(LinkId(9999), 1), Admission::Refused(_)));
    timed.claims.remove_link(LinkId(7), address(1));
    assert_eq!(timed.accept(LinkId(9999), 1), Admission::Open);
}

/// Asserts whether a claim that arrives this long after its address was reserved is admitted when its peer
/// hangs up.
fn check_claim_of_a_reserved_address(after: Duration, how: HangUp, is_admitted: bool) {
    let mut timed = TimedClaims::new();
    timed.claims.reserve_address(address(1), timed.now);
    let arrived_at = timed.now + after;
    timed.now += Duration::from_secs(5);
    assert_eq!(timed.accept_claim_that_arrived(ONE, address(1), arrived_at), Admission::Held);
    assert_eq!(timed.claims.pop_admitted(), None, "its peer has not left");
    timed.claims.record_hang_up(ONE, address(1), how);
    assert_eq!(timed.claims.pop_admitted(), is_admitted.then_some(ONE), "{after:?}, {how:?}");
    assert_eq!(timed.claims.pop_surplus(), (how == HangUp::Reset).then_some(ONE));
}

#[test]
fn held_claim_that_is_older_than_the_reservation_is_admitted_when_its_peer_leaves() {
    let tolerance = Duration::from_millis(ARRIVAL_TOLERANCE_MS);
    check_claim_of_a_reserved_address(Duration::ZERO, HangUp::EndOfStream, true);
    check_claim_of_a_reserved_address(tolerance, HangUp::EndOfStream, true);
    check_claim_of_a_reserved_address(tolerance + Duration::from_millis(1), HangUp::EndOfStream, false);
    check_claim_of_a_reserved_address(Duration::ZERO, HangUp::Reset, false);
}

#[test]
fn claim_of_an_early_connection_with_a_late_hello_is_not_the_oldest() {
    for is_first_connection in [true, false] {
        let mut timed = TimedClaims::new();
        let serial_of_stranger = timed.accepted_count;
        timed.accepted_count += 1;
        assert_eq!(timed.accept(ONE, 1), Admission::Open);
        if is_first_connection {
            timed.now += Duration::from_secs(1);
            timed.accepted_count = serial_of_stranger;
        }
        assert_eq!(timed.accept(TWO, 1), Admission::Held);
        timed.claims.record_hang_up(TWO, address(1), HangUp::EndOfStream);
        assert_eq!(timed.claims.pop_admitted(), None, "{is_first_connection}");
    }
}
