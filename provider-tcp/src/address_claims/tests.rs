use std::net::SocketAddr;

use super::*;
use crate::limits::{CHECK_RETRY_MS, CHECK_SILENT_MAX, CHECK_UNCLEAR_MAX, HELD_MAX_LINKS};

const HOLD: Duration = Duration::from_secs(60);

const ONE: LinkId = LinkId(1);
const TWO: LinkId = LinkId(2);
const THREE: LinkId = LinkId(3);

fn address(port: u16) -> Address {
    SocketAddr::from(([10, 0, 0, 1], port)).into()
}

/// AddressClaims, and the time.
struct Books {
    claims: AddressClaims,
    now: Instant,
}

impl Books {
    fn new() -> Books {
        Books { claims: AddressClaims::new(HOLD), now: Instant::now() }
    }

    /// Records the claim of a link whose token is a thousand times its number.
    fn accept(&mut self, link: LinkId, port: u16) -> Admission {
        self.claims.add_accepted(link, address(port), u64::from(link.0) * 1000, self.now)
    }

    fn start_next_check(&mut self) -> Option<CheckPlan> {
        self.claims.start_next_check(self.now)
    }

    /// Makes the next check, which must ask about these links, and answers it.
    #[track_caller]
    fn answer(&mut self, expected: &[(LinkId, ClaimStatus)]) -> Vec<LinkId> {
        let plan = self.start_next_check().expect("a check");
        let asked: Vec<LinkId> = plan.asked.iter().map(|(link, _)| *link).collect();
        assert_eq!(asked, expected.iter().map(|(link, _)| *link).collect::<Vec<_>>());
        let answers =
            plan.asked.iter().zip(expected).map(|((link, token), (_, status))| (*link, *token, *status));
        self.claims.finish_check(&plan, &CheckOutcome::Answered(answers.collect()), self.now)
    }

    #[track_caller]
    fn fail(&mut self, outcome: &CheckOutcome) -> Vec<LinkId> {
        let plan = self.start_next_check().expect("a check");
        self.claims.finish_check(&plan, outcome, self.now)
    }

    fn admitted(&mut self) -> Vec<LinkId> {
        std::iter::from_fn(|| self.claims.pop_admitted()).collect()
    }

    /// Moves the time on to the next timer.
    #[track_caller]
    fn advance_to_timer(&mut self) -> Duration {
        let at = self.claims.request_time_check().expect("a timer");
        let waited = at - self.now;
        self.now = at;
        waited
    }
}

#[test]
fn first_claim_is_open_and_checked_once() {
    let mut books = Books::new();
    assert_eq!(books.accept(ONE, 1), Admission::Open);
    assert_eq!(books.answer(&[(ONE, ClaimStatus::Confirmed)]), []);
    assert_eq!(books.start_next_check(), None);
    assert!(!books.claims.is_busy());
}

#[test]
fn second_claim_is_held_until_it_is_confirmed() {
    let mut books = Books::new();
    books.accept(ONE, 1);
    assert_eq!(books.accept(TWO, 1), Admission::Held);
    assert_eq!(books.accept(THREE, 2), Admission::Open, "of another address");
    // One connection asks about both, and the contested address comes first.
    let ends = books.answer(&[(ONE, ClaimStatus::Confirmed), (TWO, ClaimStatus::Confirmed)]);
    assert_eq!((ends, books.admitted()), (vec![], vec![TWO]));
}

#[test]
fn denied_claims_end_whether_held_or_not() {
    let mut books = Books::new();
    books.accept(ONE, 1);
    books.accept(TWO, 1);
    assert_eq!(books.answer(&[(ONE, ClaimStatus::Denied), (TWO, ClaimStatus::Denied)]), [ONE, TWO]);
    assert_eq!(books.admitted(), []);
}

#[test]
fn claim_of_an_address_that_is_being_connected_is_held() {
    let mut books = Books::new();
    books.claims.add_connecting(ONE, address(1), books.now);
    assert_eq!(books.accept(TWO, 1), Admission::Held);
    // No endpoint can be reached there, so the connecting link is no evidence of another peer.
    assert_eq!(books.fail(&CheckOutcome::Silent), []);
    assert_eq!(books.admitted(), []);
    books.advance_to_timer();
    assert_eq!(books.fail(&CheckOutcome::Unreachable), []);
    assert_eq!(books.admitted(), [TWO]);
}

#[test]
fn link_that_is_up_keeps_an_unreachable_claim_held() {
    let mut books = Books::new();
    books.claims.add_connecting(ONE, address(1), books.now);
    books.claims.record_connected(ONE, address(1));
    assert_eq!(books.start_next_check(), None, "a link of this side needs no check");
    books.accept(TWO, 1);
    let begin = books.now;
    let mut delays = Vec::new();
    loop {
        let ends = books.fail(&CheckOutcome::Unreachable);
        assert_eq!(books.admitted(), []);
        if !ends.is_empty() {
            assert_eq!((ends, books.now - begin), (vec![TWO], HOLD));
            break;
        }
        delays.push(books.advance_to_timer());
    }
    assert_eq!(delays[0], Duration::from_millis(CHECK_RETRY_MS));
    assert!(delays.len() < 30 && delays.iter().sum::<Duration>() == HOLD);
}

#[test]
fn link_may_be_held_without_a_limit() {
    let mut books = Books { claims: AddressClaims::new(Duration::MAX), now: Instant::now() };
    books.accept(ONE, 1);
    books.accept(TWO, 1);
    for _ in 0..20 {
        assert_eq!(books.fail(&CheckOutcome::Silent), []);
        books.advance_to_timer();
    }
}

#[test]
fn end_of_the_contesting_link_admits_the_oldest_held_one() {
    let mut books = Books::new();
    books.accept(ONE, 1);
    books.accept(TWO, 1);
    books.accept(THREE, 1);
    books.claims.remove_link(ONE, address(1));
    assert_eq!(books.admitted(), [TWO]);
    // A held link that ends is no longer to be admitted.
    books.claims.remove_link(TWO, address(1));
    books.claims.remove_link(THREE, address(1));
    assert_eq!(books.admitted(), []);
    assert!(books.claims.by_address.is_empty());
}

#[test]
fn hung_up_link_contests_nothing_and_is_read_to_its_end() {
    let mut books = Books::new();
    books.accept(ONE, 1);
    books.accept(TWO, 1);
    let plan = books.start_next_check().unwrap();
    books.claims.record_hang_up(ONE, address(1), HangUp::EndOfStream);
    assert_eq!(books.admitted(), [TWO]);
    assert_eq!(books.accept(THREE, 1), Admission::Held, "the admitted one contests it");
    let answers = [ONE, TWO].map(|link| (link, u64::from(link.0) * 1000, ClaimStatus::Denied));
    let ends = books.claims.finish_check(&plan, &CheckOutcome::Answered(answers.to_vec()), books.now);
    assert_eq!(ends, [TWO], "an answer denies a link whose endpoint has ended");
}

#[test]
fn unclear_claim_is_left_alone_unless_a_link_is_proven() {
    let mut books = Books::new();
    books.accept(ONE, 1);
    for _ in 0..CHECK_UNCLEAR_MAX {
        assert_eq!(books.answer(&[(ONE, ClaimStatus::Unclear)]), []);
        books.now += HOLD;
    }
    assert_eq!(books.start_next_check(), None);
    books.accept(TWO, 1);
    let ends = books.answer(&[(ONE, ClaimStatus::Unclear), (TWO, ClaimStatus::Confirmed)]);
    assert_eq!((ends, books.admitted()), (vec![], vec![TWO]));
    for count in 2..=CHECK_UNCLEAR_MAX {
        books.advance_to_timer();
        let ends = books.answer(&[(ONE, ClaimStatus::Unclear)]);
        assert_eq!(ends == [ONE], count == CHECK_UNCLEAR_MAX, "{ends:?}");
    }
}

#[test]
fn silent_address_is_asked_a_few_times_and_an_unreachable_one_once() {
    let mut books = Books::new();
    books.accept(ONE, 1);
    for _ in 1..CHECK_SILENT_MAX {
        assert_eq!(books.fail(&CheckOutcome::Silent), []);
        assert!(books.advance_to_timer() > Duration::from_secs(1), "the peer may compute for long");
    }
    assert_eq!(books.fail(&CheckOutcome::Silent), []);
    assert!(!books.claims.is_busy());
    books.accept(TWO, 2);
    assert_eq!(books.fail(&CheckOutcome::Unreachable), []);
    assert!(!books.claims.is_busy());
}

#[test]
fn claim_beside_a_link_that_comes_up_is_checked_until_there_is_an_answer() {
    let mut books = Books::new();
    books.claims.add_connecting(ONE, address(1), books.now);
    books.accept(TWO, 1);
    books.fail(&CheckOutcome::Unreachable);
    assert_eq!(books.admitted(), [TWO]);
    books.claims.record_connected(ONE, address(1));
    for _ in 0..20 {
        assert_eq!(books.fail(&CheckOutcome::Silent), []);
        books.advance_to_timer();
    }
    assert_eq!(books.answer(&[(TWO, ClaimStatus::Denied)]), [TWO]);
}

#[test]
fn newcomer_during_a_check_is_asked_about_next() {
    let mut books = Books::new();
    books.accept(ONE, 1);
    let plan = books.start_next_check().unwrap();
    books.accept(TWO, 1);
    assert_eq!(books.start_next_check(), None, "one check of an address at a time");
    let answers = vec![(ONE, 1000, ClaimStatus::Confirmed)];
    books.claims.finish_check(&plan, &CheckOutcome::Answered(answers), books.now);
    assert_eq!(books.answer(&[(TWO, ClaimStatus::Confirmed)]), []);
    assert_eq!(books.admitted(), [TWO]);
}

#[test]
fn answer_about_an_earlier_link_of_the_number_means_nothing() {
    let mut books = Books::new();
    books.accept(ONE, 1);
    let plan = books.start_next_check().unwrap();
    books.claims.remove_link(ONE, address(1));
    books.claims.add_accepted(ONE, address(1), 77, books.now);
    let denied = CheckOutcome::Answered(vec![(ONE, 1000, ClaimStatus::Denied)]);
    assert_eq!(books.claims.finish_check(&plan, &denied, books.now), []);
    assert_eq!(books.start_next_check().unwrap().asked[..], [(ONE, 77)]);
}

#[test]
fn number_of_checks_is_limited_with_places_for_contested_claims() {
    let mut books = Books::new();
    for port in 1..=100 {
        books.accept(LinkId(port.into()), port);
    }
    let plans: Vec<CheckPlan> = std::iter::from_fn(|| books.start_next_check()).collect();
    assert_eq!(plans.len(), CHECKS_BACKGROUND_MAX);
    assert!(!books.claims.has_work());
    for port in 51..=100 {
        assert_eq!(books.accept(LinkId(u32::from(port) + 100), port), Admission::Held);
    }
    let contested: Vec<CheckPlan> = std::iter::from_fn(|| books.start_next_check()).collect();
    assert_eq!(plans.len() + contested.len(), CHECKS_MAX);
    for plan in plans.iter().chain(&contested) {
        books.claims.finish_check(plan, &CheckOutcome::Silent, books.now);
    }
    assert!(books.claims.has_work());
}

#[test]
fn postponed_check_is_made_later() {
    let mut books = Books::new();
    books.accept(ONE, 1);
    let plan = books.start_next_check().unwrap();
    assert!(books.claims.postpone_check(&plan, books.now).is_empty());
    assert_eq!(books.start_next_check(), None);
    books.advance_to_timer();
    assert_eq!(books.answer(&[(ONE, ClaimStatus::Confirmed)]), []);
}

#[test]
fn number_of_held_links_of_an_address_is_limited() {
    let mut books = Books::new();
    books.accept(ONE, 1);
    for number in 0..HELD_MAX_LINKS {
        assert_eq!(books.accept(LinkId(10 + number as u32), 1), Admission::Held);
    }
    assert!(matches!(books.accept(LinkId(9999), 1), Admission::Refused(_)));
    assert_eq!(books.accept(LinkId(9999), 2), Admission::Open);
}

#[test]
fn tokens_are_known_beyond_the_end_of_their_links() {
    let mut books = Books::new();
    books.claims.add_connecting(ONE, address(1), books.now);
    assert!(!books.claims.is_awaiting_token(), "its hello has not left");
    books.claims.record_connection_made(ONE, address(1));
    assert_eq!(books.claims.links_awaiting_token(1).collect::<Vec<_>>(), [(ONE, address(1))]);
    assert_eq!(books.claims.links_awaiting_token(2).count(), 0);
    books.claims.record_given_token(ONE, address(1), 7);
    assert!(!books.claims.is_awaiting_token());
    books.claims.remove_link(ONE, address(1));
    books.claims.retire_token(7);
    for token in 1000..1000 + PAST_TOKENS_MAX as u64 {
        assert_eq!(books.claims.address_of_token(7), Some(address(1)));
        books.claims.record_given_token(TWO, address(2), token);
        books.claims.retire_token(token);
    }
    assert_eq!(books.claims.address_of_token(7), None, "the oldest of more than are kept");
    assert_eq!(books.claims.given_tokens.len(), PAST_TOKENS_MAX);
}

#[test]
fn time_is_looked_at_in_few_passes() {
    let mut books = Books::new();
    books.accept(ONE, 1);
    let plan = books.start_next_check().unwrap();
    let looks = (0..10 * CLAIM_LOOK_PASSES).filter(|_| books.claims.count_pass_and_check_due()).count();
    assert_eq!(looks, 10);
    books.claims.finish_check(
        &plan,
        &CheckOutcome::Answered(vec![(ONE, 1000, ClaimStatus::Unclear)]),
        books.now,
    );
    books.claims.request_time_check();
    assert!(books.claims.count_pass_and_check_due());
}

#[test]
fn due_address_is_forgotten_when_its_last_link_ends() {
    let mut books = Books::new();
    for port in 1..=1000 {
        books.accept(LinkId(port.into()), port);
    }
    // The addresses with an odd port are contested.
    for port in (1..=1000).step_by(2) {
        assert_eq!(books.accept(LinkId(u32::from(port) + 1000), port), Admission::Held);
    }
    for port in 1..=1000 {
        books.claims.remove_link(LinkId(port.into()), address(port));
        books.claims.remove_link(LinkId(u32::from(port) + 1000), address(port));
    }
    assert!(books.claims.contested_due.is_empty() && books.claims.background_due.is_empty());
    assert!(!books.claims.is_busy());
}
