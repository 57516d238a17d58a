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
    let (mut engine, peer, mut transport, mut sink) = engine_with_peer();
    let levels = [Level::Inject, Level::Transmit, Level::Delivery, Level::Match];
    for (context, level) in (1..).zip(levels) {
        let request = send_request(peer, b"x", context).level(level);
        engine.post_request(request, &mut transport, &mut sink).unwrap();
    }
    let awaits: Vec<AwaitedReply> = sent_headers_since(&transport, 0)
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
    assert_eq!(sink.ended_contexts(), [1]);
    engine.arrivals(&mut sink).frame(LINK, &Header::Ack { received: 4 }, b"");
    assert_eq!(sink.ended_contexts(), [1, 2, 3], "that it has arrived does not mean that it was matched");
    engine.arrivals(&mut sink).frame(LINK, &matched_header(4), b"");
    assert_eq!(sink.ended_contexts(), [1, 2, 3, 4]);
}

#[test]
fn sends_at_match_level_complete_in_order_of_matching() {
    let (mut engine, peer, mut transport, mut sink) = engine_with_peer();
    for context in 1..=3 {
        let request = send_request(peer, b"x", context).level(Level::Match);
        engine.post_request(request, &mut transport, &mut sink).unwrap();
    }
    for number in [3, 1, 2] {
        engine.arrivals(&mut sink).frame(LINK, &matched_header(number), b"");
    }
    assert_eq!(sink.ended_contexts(), [3, 1, 2]);
}

#[test]
fn match_is_reported_when_payload_is_in_place() {
    let (mut engine, _, mut transport, mut sink) = engine_with_peer();
    engine.post_receive(receive_request(4, 1), &mut sink).unwrap();
    let mut arrivals = engine.arrivals(&mut sink);
    arrivals.frame_begun(LINK, &message_awaiting_match(4));
    arrivals.payload_arrived(LINK, b"pos");
    engine.transmit(&mut transport, &mut sink);
    assert!(transport.sent.is_empty());
    engine.arrivals(&mut sink).payload_arrived(LINK, b"t");
    engine.transmit(&mut transport, &mut sink);
    assert_eq!(sent_headers_since(&transport, 0), [matched_header(1)]);

    engine.arrivals(&mut sink).frame(LINK, &message_awaiting_match(5), b"early");
    engine.arrivals(&mut sink).frame(LINK, &untagged_header(1), b"x");
    engine.arrivals(&mut sink).frame_begun(LINK, &message_awaiting_match(4));
    engine.transmit(&mut transport, &mut sink);
    assert_eq!(transport.sent.len(), 1);
    for context in 2..=4 {
        engine.post_receive(receive_request(5, context), &mut sink).unwrap();
    }
    engine.transmit(&mut transport, &mut sink);
    assert_eq!(sent_headers_since(&transport, 1), [matched_header(2)], "the last one is still on its way");
    engine.arrivals(&mut sink).payload_arrived(LINK, b"late");
    engine.transmit(&mut transport, &mut sink);
    assert_eq!(sent_headers_since(&transport, 2), [matched_header(4)]);
}

#[test]
fn offer_awaiting_match_is_fetched_only_after_match() {
    let (mut engine, _, mut transport, mut sink) = engine_with_peer();
    transport.memory = b"0123456789".to_vec();
    for (op, awaits) in [(1, AwaitedReply::Match), (2, AwaitedReply::Arrival)] {
        let message = Message { awaits, ..Message::of_len(10) };
        let request = Header::Request { message, op, remote_bytes: REMOTE.len() as u8 };
        engine.arrivals(&mut sink).frame(LINK, &request, REMOTE);
    }
    engine.transmit(&mut transport, &mut sink);
    assert_eq!(sent_headers_since(&transport, 0), [Header::Done { op: 2, fault: false }]);
    engine.post_receive(receive_request(10, 1), &mut sink).unwrap();
    engine.transmit(&mut transport, &mut sink);
    assert_eq!(sent_headers_since(&transport, 1), [Header::Done { op: 1, fault: false }]);
    assert_eq!(received_bytes(&sink.ended[0]), b"0123456789");
}

#[test]
fn match_after_link_down_sends_no_answer() {
    let (mut engine, _, mut transport, mut sink) = engine_with_peer();
    let mut arrivals = engine.arrivals(&mut sink);
    arrivals.frame(LINK, &message_awaiting_match(1), b"x");
    arrivals.link_event(LINK, LinkEvent::Down(RESET));
    // Now the link of another peer has this number.
    arrivals.link_event(LINK, LinkEvent::up(address(3), 1));
    engine.post_receive(receive_request(1, 1), &mut sink).unwrap();
    engine.transmit(&mut transport, &mut sink);
    assert_eq!((sink.ended_contexts(), transport.sent.len()), (vec![1], 0));
}
