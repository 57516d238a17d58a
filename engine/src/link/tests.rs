//! Tests of links alone: events go in, answers come out.

use slotmap::SlotMap;

use super::*;
use crate::limits::MESSAGE_COST_BYTES;
use crate::operation::SendId;
use crate::peer_id::PeerId;
use crate::protocol_violation::ProtocolViolation;
use crate::transport::LinkId;
use crate::wire::AwaitedReply;

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
