//! Tests of offers that no receive has matched when their link ends: each step drops some of them.

use super::*;
use crate::limits::{STEP_MAX_DROPS, UNEXPECTED_BUDGET_DEFAULT_BYTES};

/// Offers for three steps.
const OFFERS: usize = 3 * STEP_MAX_DROPS;

/// The tag of all messages here.
const TAG: u64 = 5;

fn receiver_with_large_budget() -> (Receiver, EffectsRecorder) {
    let mut receiver = Receiver::new(64, UNEXPECTED_BUDGET_DEFAULT_BYTES);
    receiver.link_added(LINK, PEER, MemberId::ONLY);
    (receiver, EffectsRecorder::default())
}

fn tagged_message(len_bytes: u64, awaits: AwaitedReply) -> Message {
    Message { tag: Some(TAG), awaits, ..Message::of_len(len_bytes) }
}

/// Offers messages with the numbers from 0 on.
fn offer(receiver: &mut Receiver, link: LinkId, awaits: AwaitedReply, asked: &mut EffectsRecorder) {
    for op in 0..OFFERS as u64 {
        let message = tagged_message(REMOTE.len() as u64, awaits);
        receiver.message_offered(link, &message, op, REMOTE, asked).unwrap();
        receiver.credit_sent(link);
    }
}

fn tagged_request(context: u64) -> ReceiveRequest {
    let criteria = Criteria { source: None, tag: TAG, ignore: 0 };
    ReceiveRequest { tagged: true, criteria, ..receive_request(REMOTE.len(), context) }
}

fn peek_with_tag(then: PeekAction) -> PeekRequest {
    let criteria = Criteria { source: None, tag: TAG, ignore: 0 };
    PeekRequest { tagged: true, criteria, context: 9, work: None, then }
}

/// Makes steps until all offers are dropped, and checks that nothing is left.
fn drop_all(receiver: &mut Receiver, asked: &mut EffectsRecorder) {
    for _ in 0..OFFERS {
        if !receiver.has_work_without_arrivals() {
            break;
        }
        receiver.finish_drop_step(asked);
    }
    assert_eq!((receiver.unexpected_len(), receiver.fetches_len()), (0, 0));
    assert!(receiver.try_reserve_budget(UNEXPECTED_BUDGET_DEFAULT_BYTES as u64), "all of it is free");
}

#[test]
fn link_end_drops_a_limited_number_of_offers_in_each_step() {
    let (mut receiver, mut asked) = receiver_with_large_budget();
    offer(&mut receiver, LINK, AwaitedReply::Match, &mut asked);
    receiver.link_ended(LINK, &RESET, &mut asked);
    // The first step has spent its drops when the link ends.
    for left in [2 * STEP_MAX_DROPS, 2 * STEP_MAX_DROPS, STEP_MAX_DROPS] {
        assert_eq!(receiver.unexpected_len(), left);
        assert!(receiver.has_work_without_arrivals() && receiver.rare_work_bits() != 0, "{left} left");
        receiver.finish_drop_step(&mut asked);
    }
    assert!(!receiver.has_work_without_arrivals());
    drop_all(&mut receiver, &mut asked);
    assert!(asked.take_ended().is_empty());
}

#[test]
fn receive_and_peek_find_no_offer_of_a_link_that_has_ended() {
    let (mut receiver, mut asked) = receiver_with_large_budget();
    receiver.link_added(OTHER, PeerId(6), MemberId::ONLY);
    offer(&mut receiver, LINK, AwaitedReply::Match, &mut asked);
    receiver.link_ended(LINK, &RESET, &mut asked);
    assert!(receiver.unexpected_len() > 0);
    receiver.peek(peek_with_tag(PeekAction::Keep), &mut asked).unwrap();
    assert_eq!(asked.take_ended(), [(9, Err(OperationError::NoMessage))]);
    offer(&mut receiver, OTHER, AwaitedReply::Match, &mut asked);
    receiver.link_ended(OTHER, &RESET, &mut asked);
    receiver.link_added(LINK, PEER, MemberId::ONLY);
    let message = tagged_message(5, AwaitedReply::Nothing);
    receiver.message_arrived(LINK, &message, b"later", &mut asked).unwrap();
    receiver.post(tagged_request(1), &mut asked).unwrap();
    assert_eq!(asked.take_ended(), [(1, Ok(b"later".to_vec()))]);
    receiver.link_ended(LINK, &RESET, &mut asked);
    drop_all(&mut receiver, &mut asked);
}

#[test]
fn receive_that_an_offer_fills_fails_at_once_with_its_link() {
    let (mut receiver, mut asked) = receiver_with_large_budget();
    offer(&mut receiver, LINK, AwaitedReply::Match, &mut asked);
    let last = tagged_message(REMOTE.len() as u64, AwaitedReply::Match);
    let criteria = Criteria { source: None, tag: 77, ignore: 0 };
    receiver.post(ReceiveRequest { criteria, ..tagged_request(1) }, &mut asked).unwrap();
    let message = Message { tag: Some(77), ..last };
    receiver.message_offered(LINK, &message, OFFERS as u64, REMOTE, &mut asked).unwrap();
    receiver.post(tagged_request(2), &mut asked).unwrap();
    receiver.link_ended(LINK, &RESET, &mut asked);
    assert_eq!(asked.take_ended(), [(2, Err(RESET)), (1, Err(RESET))], "in the order of their offers");
    drop_all(&mut receiver, &mut asked);
}

#[test]
fn receive_of_a_claimed_offer_fails_after_its_link_has_ended() {
    for is_claimed_by_receive in [false, true] {
        let (mut receiver, mut asked) = receiver_with_large_budget();
        offer(&mut receiver, LINK, AwaitedReply::Match, &mut asked);
        let message = Message { tag: Some(77), ..tagged_message(4, AwaitedReply::Match) };
        receiver.message_offered(LINK, &message, OFFERS as u64, REMOTE, &mut asked).unwrap();
        let criteria = Criteria { source: None, tag: 77, ignore: 0 };
        receiver.peek(PeekRequest { criteria, ..peek_with_tag(PeekAction::Claim) }, &mut asked).unwrap();
        asked.take_ended();
        receiver.link_ended(LINK, &RESET, &mut asked);
        assert!(receiver.unexpected_len() > 0);
        if is_claimed_by_receive {
            receiver.receive_claimed(tagged_request(1), 9, &mut asked).unwrap();
        } else {
            receiver.discard_claimed(true, 9, None, &mut asked).unwrap();
        }
        let context = if is_claimed_by_receive { 1 } else { 9 };
        assert_eq!(asked.take_ended(), [(context, Err(RESET))]);
        drop_all(&mut receiver, &mut asked);
    }
}

#[test]
fn later_link_with_the_same_number_has_only_its_own_offers() {
    let (mut receiver, mut asked) = receiver_with_large_budget();
    // The endpoint would fetch all of these early.
    offer(&mut receiver, LINK, AwaitedReply::Nothing, &mut asked);
    receiver.link_ended(LINK, &RESET, &mut asked);
    receiver.link_added(LINK, PEER, MemberId::ONLY);
    let last = OFFERS as u64 - 1;
    assert!(!receiver.has_offer(LINK, last) && receiver.unexpected_len() > 0);
    let message = tagged_message(REMOTE.len() as u64, AwaitedReply::Nothing);
    receiver.message_offered(LINK, &message, last, REMOTE, &mut asked).unwrap();
    let mut pulled = 0;
    for _ in 0..2 {
        let mut pull = make_pull_from(b"0123456789");
        let counted_pull = |link, remote: &RemotePayload, at_bytes, into: &mut [IoSliceMut<'_>]| {
            pulled += 1;
            pull(link, remote, at_bytes, into)
        };
        receiver.pull_payloads(|_| true, counted_pull, &mut asked);
    }
    assert_eq!(pulled, 1, "payload of the link that has ended");
    (0..3).for_each(|_| receiver.finish_drop_step(&mut asked));
    receiver.post(tagged_request(1), &mut asked).unwrap();
    assert_eq!(asked.take_ended(), [(1, Ok(b"0123456789".to_vec()))]);
    receiver.link_ended(LINK, &RESET, &mut asked);
    drop_all(&mut receiver, &mut asked);
}
