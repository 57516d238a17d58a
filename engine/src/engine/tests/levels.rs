//! Tests of when sends of each level complete.

use super::*;

const LINK: LinkId = LinkId(7);

fn matched_header(number: u64) -> Header {
    Header::Matched { number }
}

fn message_awaiting_match(len_bytes: u64) -> Header {
    Header::Message(Message { awaits: AwaitedReply::Match, ..Message::of_len(len_bytes) })
}

#[test]
fn header_of_each_level_names_the_awaited_answer() {
    let (mut node, peer) = engine_with_peer();
    let levels = [Level::Inject, Level::Transmit, Level::Delivery, Level::Match];
    for (context, level) in (1..).zip(levels) {
        let request = send_request(peer, b"x", context).level(level);
        node.post(request);
    }
    let awaits: Vec<AwaitedReply> = node
        .sent_since(0)
        .iter()
        .map(|header| match header {
            Header::Message(message) => message.awaits,
            other => panic!("not a message: {other:?}"),
        })
        .collect();
    assert_eq!(
        awaits,
        [AwaitedReply::Nothing, AwaitedReply::Arrival, AwaitedReply::Arrival, AwaitedReply::Match]
    );
    assert_eq!(node.sink.ended_contexts(), [1]);
    node.frame(LINK, &Header::Ack { received: 4 }, b"");
    assert_eq!(
        node.sink.ended_contexts(),
        [1, 2, 3],
        "that it has arrived does not mean that it was matched"
    );
    node.frame(LINK, &matched_header(4), b"");
    assert_eq!(node.sink.ended_contexts(), [1, 2, 3, 4]);
}

#[test]
fn sends_at_match_level_complete_in_order_of_matching() {
    let (mut node, peer) = engine_with_peer();
    for context in 1..=3 {
        let request = send_request(peer, b"x", context).level(Level::Match);
        node.post(request);
    }
    for number in [3, 1, 2] {
        node.frame(LINK, &matched_header(number), b"");
    }
    assert_eq!(node.sink.ended_contexts(), [3, 1, 2]);
}

#[test]
fn match_is_reported_when_payload_is_in_place() {
    let (mut node, _) = engine_with_peer();
    node.post_receive(receive_request(4, 1));
    let mut arrivals = node.arrivals();
    arrivals.frame_begun(LINK, &message_awaiting_match(4));
    arrivals.payload_arrived(LINK, b"pos");
    node.transmit();
    assert!(node.transport.sent.is_empty());
    node.payload_arrived(LINK, b"t");
    node.transmit();
    assert_eq!(node.sent_since(0), [matched_header(1)]);

    node.frame(LINK, &message_awaiting_match(5), b"early");
    node.frame(LINK, &untagged_header(1), b"x");
    node.frame_begun(LINK, &message_awaiting_match(4));
    node.transmit();
    assert_eq!(node.transport.sent.len(), 1);
    for context in 2..=4 {
        node.post_receive(receive_request(5, context));
    }
    node.transmit();
    assert_eq!(node.sent_since(1), [matched_header(2)], "the last one is still on its way");
    node.payload_arrived(LINK, b"late");
    node.transmit();
    assert_eq!(node.sent_since(2), [matched_header(4)]);
}

#[test]
fn offer_awaiting_match_is_fetched_only_after_match() {
    let (mut node, _) = engine_with_peer();
    node.transport.memory = b"0123456789".to_vec();
    for (op, awaits) in [(1, AwaitedReply::Match), (2, AwaitedReply::Arrival)] {
        let message = Message { awaits, ..Message::of_len(10) };
        let request = Header::Request { message, op, remote_bytes: REMOTE.len() as u8 };
        node.frame(LINK, &request, REMOTE);
    }
    node.transmit();
    assert_eq!(node.sent_since(0), [Header::Done { op: 2, fault: false }]);
    node.post_receive(receive_request(10, 1));
    node.transmit();
    assert_eq!(node.sent_since(1), [Header::Done { op: 1, fault: false }]);
    assert_eq!(received_bytes(&node.sink.ended[0]), b"0123456789");
}

#[test]
fn match_after_link_down_sends_no_answer() {
    let (mut node, _) = engine_with_peer();
    let mut arrivals = node.arrivals();
    arrivals.frame(LINK, &message_awaiting_match(1), b"x");
    arrivals.link_event(LINK, LinkEvent::Down(RESET));
    // Now the link of another peer has this number.
    arrivals.link_event(LINK, LinkEvent::up(address(3), 1));
    node.post_receive(receive_request(1, 1));
    node.transmit();
    assert_eq!((node.sink.ended_contexts(), node.transport.sent.len()), (vec![1], 0));
}
