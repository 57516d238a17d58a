//! Tests of links alone: events go in, answers come out.

use slotmap::SlotMap;

use super::*;
use crate::flags::Order;
use crate::limits::{CREDIT_INITIAL_BYTES, MESSAGE_COST_BYTES, RMA_LINK_MAX_OPS};
use crate::operation::SendId;
use crate::peer_id::PeerId;
use crate::protocol_violation::ProtocolViolation;
use crate::reassembly::Reassembly;
use crate::transport::LinkId;
use crate::wire::{AwaitedReply, Header, Message, Outcome};

const LINK: LinkId = LinkId(3);
const OTHER: LinkId = LinkId(0);
const PEER: PeerId = PeerId(5);

fn make_send_ids<const COUNT: usize>() -> [SendId; COUNT] {
    let mut table = SlotMap::with_key();
    [(); COUNT].map(|()| table.insert(()))
}

/// Returns a link that has taken these sends whole.
fn link_with_sent(sends: &[(SendId, AwaitedReply)]) -> LinkTx {
    let mut tx = LinkTx::default();
    for (send, awaits) in sends {
        tx.record_message_begun(MESSAGE_COST_BYTES);
        if *awaits != AwaitedReply::Nothing {
            tx.await_reply(*send, *awaits);
        }
    }
    tx
}

/// A write of one byte, which reports nothing at the target.
const WRITE: LinkAccess = LinkAccess::make_write(0);

#[test]
fn acknowledgement_ends_sends_that_await_it() {
    let [first, second, third] = make_send_ids();
    let mut tx = link_with_sent(&[
        (first, AwaitedReply::Arrival),
        (second, AwaitedReply::Nothing),
        (third, AwaitedReply::Arrival),
    ]);
    assert_eq!(tx.pop_acknowledged(), None);
    tx.record_ack(2).unwrap();
    assert_eq!((tx.pop_acknowledged(), tx.pop_acknowledged()), (Some(first), None));
    assert_eq!(tx.record_ack(1), Err(ProtocolViolation("acknowledges what was not sent")));
    assert!(tx.record_ack(4).is_err());
    assert!(!tx.all_operations_have_completed());
    tx.record_ack(3).unwrap();
    assert_eq!(tx.pop_acknowledged(), Some(third));
    assert!(tx.all_operations_have_completed());
}

#[test]
fn message_that_is_being_written_cannot_be_acknowledged() {
    let [send] = make_send_ids();
    let mut tx = link_with_sent(&[(send, AwaitedReply::Nothing)]);
    tx.record_partial_frame(FrameKind::Message, send, 4);
    tx.advance_partial_frame(3);
    assert_eq!(tx.partial_frame().map(|writing| writing.taken_bytes), Some(7));
    assert!(tx.record_ack(1).is_err() && !tx.may_begin_message_given_credit());
    tx.end_partial_frame();
    assert!(tx.record_ack(1).is_ok() && tx.may_begin_message_given_credit());
}

#[test]
fn match_ends_the_send_with_its_number() {
    let [first, second] = make_send_ids();
    let mut tx = link_with_sent(&[(first, AwaitedReply::Match), (second, AwaitedReply::Match)]);
    assert_eq!(tx.take_matched_send(2), Ok(second));
    assert_eq!(tx.take_matched_send(2), Err(ProtocolViolation("has matched what does not wait for it")));
    assert_eq!(tx.take_matched_send(1), Ok(first));
}

#[test]
fn credit_is_spent_and_raised_but_not_taken_back() {
    let mut tx = LinkTx::default();
    tx.record_message_begun(MESSAGE_COST_BYTES);
    assert_eq!(tx.credit_bytes(), CREDIT_INITIAL_BYTES - MESSAGE_COST_BYTES);
    tx.record_credit_grant(CREDIT_INITIAL_BYTES + 1).unwrap();
    assert_eq!(tx.credit_bytes(), CREDIT_INITIAL_BYTES + 1 - MESSAGE_COST_BYTES);
    assert_eq!(tx.record_credit_grant(CREDIT_INITIAL_BYTES), Err(ProtocolViolation("takes credit back")));
}

#[test]
fn fence_answer_covers_messages_sent_before_it() {
    let [send] = make_send_ids();
    let mut tx = link_with_sent(&[(send, AwaitedReply::Nothing)]);
    assert!(
        tx.all_operations_have_reached_level(AwaitedReply::Nothing)
            && !tx.all_operations_have_reached_level(AwaitedReply::Arrival)
    );
    assert_eq!(tx.record_fence_answer(), Err(ProtocolViolation("answers a fence that was not sent")));
    tx.record_fence_sent(false);
    assert!(tx.is_fence_unanswered() && tx.record_fence_answer().is_ok() && !tx.is_fence_unanswered());
    assert!(
        tx.all_operations_have_reached_level(AwaitedReply::Arrival)
            && !tx.all_operations_have_reached_level(AwaitedReply::Match)
    );
    tx.record_message_begun(MESSAGE_COST_BYTES);
    assert!(!tx.all_operations_have_reached_level(AwaitedReply::Arrival));
}

#[test]
fn request_is_cleared_sent_and_done_once() {
    let [send] = make_send_ids();
    let mut tx = LinkTx::default();
    tx.record_offer_sent(send, true);
    assert!(tx.has_exposed_payload() && tx.has_unfetched_payload() && tx.may_expose());
    assert!(tx.record_clear(op_number_of(send) + 1, false).is_err());
    tx.record_clear(op_number_of(send), true).unwrap();
    assert!(tx.record_clear(op_number_of(send), true).is_err(), "it was cleared already");
    assert!(!tx.has_exposed_payload() && tx.has_unfetched_payload() && !tx.may_expose());
    assert_eq!(tx.next_cleared(), Some(send));
    tx.pop_cleared();
    assert_eq!(tx.next_cleared(), None);
    assert!(tx.take_done_send(op_number_of(send), false, |_| true).is_err(), "the link does not have it all");
    assert_eq!(tx.record_payload_sent(send, true), SendEnd::WithAnswer);
    assert!(tx.take_done_send(op_number_of(send), false, |_| false).is_err(), "it is no message");
    assert_eq!(tx.take_done_send(op_number_of(send), false, |_| true), Ok(send));
    assert!(tx.all_operations_have_completed());
}

#[test]
fn accesses_are_limited_until_they_are_answered() {
    let ids = make_send_ids::<RMA_LINK_MAX_OPS>();
    let mut tx = LinkTx::default();
    let begun = ids.map(|send| {
        assert!(tx.may_begin_access(&WRITE));
        tx.record_access_begun(send, &WRITE, RequestStage::Sent, Order::empty())
    });
    assert!(!tx.may_begin_access(&WRITE) && !tx.has_no_unanswered_accesses());
    tx.record_access_end(ids[0], &WRITE, begun[0], Order::empty());
    assert!(tx.may_begin_access(&WRITE));
    let costly = LinkAccess::make_write(CREDIT_INITIAL_BYTES + 1);
    assert!(!tx.may_begin_access(&costly), "there is no credit for it");
}

#[test]
fn answer_tells_that_messages_before_it_have_arrived() {
    let [send, access] = make_send_ids();
    let mut tx = link_with_sent(&[(send, AwaitedReply::Nothing)]);
    assert!(!tx.all_messages_have_arrived());
    let begun = tx.record_access_begun(access, &WRITE, RequestStage::Sent, Order::empty());
    tx.record_access_end(access, &WRITE, begun, Order::empty());
    assert!(tx.all_messages_have_arrived());
    tx.record_message_begun(MESSAGE_COST_BYTES);
    assert!(!tx.all_messages_have_arrived());
}

#[test]
fn offered_write_holds_up_messages_that_must_not_overtake_it() {
    let ids = make_send_ids::<3>();
    let mut tx = LinkTx::default();
    tx.record_access_begun(ids[0], &WRITE, RequestStage::Sent, Order::SAW);
    assert!(tx.may_begin_message_given_credit(), "the peer writes it as it arrives");
    let offered = tx.record_access_begun(ids[1], &WRITE, RequestStage::Offered, Order::SAW);
    assert!(!tx.may_begin_message_given_credit());
    tx.record_access_end(ids[1], &WRITE, offered, Order::SAW);
    assert!(tx.may_begin_message_given_credit());
    tx.record_access_begun(ids[2], &WRITE, RequestStage::Offered, Order::SAS);
    assert!(tx.may_begin_message_given_credit(), "the order does not concern writes");
}

#[test]
fn ended_link_returns_unended_and_exposed_sends() {
    let [awaits, writing, requested] = make_send_ids();
    let mut tx = link_with_sent(&[(awaits, AwaitedReply::Arrival), (writing, AwaitedReply::Nothing)]);
    tx.record_partial_frame(FrameKind::Message, writing, 1);
    tx.record_offer_sent(requested, true);
    let unended = tx.into_pending_sends();
    assert_eq!((unended.sends, unended.exposed), (vec![awaits, writing], vec![requested]));
}

#[test]
fn collected_frame_is_whole_with_its_last_byte() {
    let message = Message::of_len(9);
    let mut rx = LinkRx::default();
    assert!(matches!(rx.collect_bytes(b"x"), Ok(Collected::Nothing)));
    rx.begin_collecting(CollectedHeader::Message(message, 7), 3).unwrap();
    assert!(matches!(rx.collect_bytes(b"ab"), Ok(Collected::Part)));
    assert_eq!(rx.arrived_bytes(), 2);
    let Ok(Collected::Whole(whole)) = rx.collect_bytes(b"cd") else { panic!("it is all there") };
    assert_eq!(whole.payload(), b"abc");
    assert!(matches!(whole.header(), CollectedHeader::Message(_, 7)));
    assert!(matches!(rx.collect_bytes(b"x"), Ok(Collected::Nothing)));
}

#[test]
fn read_piece_ends_with_its_last_byte() {
    let [send] = make_send_ids();
    let mut rx = LinkRx::default();
    rx.begin_read_piece(Reassembly { len_bytes: 5, arrived_bytes: 2, owner: send });
    assert!(rx.count_read_bytes(1).is_none());
    assert_eq!(rx.arriving_read_piece().map(|filling| filling.arrived_bytes), Some(3));
    assert_eq!(rx.count_read_bytes(2).map(|filling| (filling.owner, filling.arrived_bytes)), Some((send, 5)));
    assert!(rx.arriving_read_piece().is_none() && rx.count_read_bytes(1).is_none());
}

#[test]
fn pending_replies_are_sent_in_their_order() {
    let answer = Header::Answer { op: 1, outcome: Outcome::Done };
    let mut links = Links::default();
    links.insert(LINK, PEER);
    links.queue_read_data(LINK);
    links.queue_credit_grant(LINK);
    links.queue_header(LINK, answer);
    links.queue_ack(LINK);
    let mut replies = std::mem::take(links.get_mut(LINK).unwrap().tx.pending_replies_mut());
    assert!(replies.is_ack_pending() && !replies.is_credit_grant_next() && !replies.has_only_read_data());
    replies.record_ack_sent();
    assert_eq!(replies.peek_header(), Some(&answer));
    assert!(!replies.is_credit_grant_next(), "answers go before it");
    replies.pop_header();
    assert!(replies.peek_header().is_none() && replies.is_credit_grant_next());
    replies.record_credit_sent();
    assert!(replies.has_only_read_data() && !replies.is_empty());
    replies.clear_read_data();
    assert!(replies.is_empty());
}

#[test]
fn send_pending_replies_visits_links_until_nothing_is_pending() {
    let mut links = Links::default();
    for link in [LINK, OTHER] {
        links.insert(link, PEER);
        links.queue_ack(link);
        links.queue_ack(link);
    }
    let mut asked = Vec::new();
    links.send_pending_replies(|link, tx| {
        asked.push(link);
        if link == LINK {
            tx.pending_replies_mut().record_ack_sent();
        }
    });
    assert_eq!(asked, [LINK, OTHER]);
    assert!(links.have_pending_replies());
    assert!(links.try_send_pending_replies_of(LINK, |_, _| panic!("no reply is pending")));
    assert!(!links.try_send_pending_replies_of(OTHER, |_, _| {}));
    links.remove(OTHER);
    assert!(!links.have_pending_replies());
}
