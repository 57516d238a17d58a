//! Tests of fenced sends, and of what they wait for.

use super::*;

const LINK: LinkId = LinkId(7);

fn send_request_at_level(level: Level, to: PeerId, context: u64) -> AddressedRequest {
    send_request(to, b"x", context).level(level)
}

fn fenced_send_request(level: Level, to: PeerId, context: u64) -> AddressedRequest {
    send_request_at_level(level, to, context).fence(true)
}

fn count_sent_messages(transport: &Scripted) -> usize {
    transport.sent.iter().filter(|(_, header, _)| matches!(header, Header::Message(_))).count()
}

#[test]
fn fence_without_earlier_operations_does_not_wait() {
    let (mut engine, peer, mut transport, mut sink) = engine_with_peer();
    for level in [Level::Inject, Level::Transmit, Level::Match] {
        let (mut engine, peer, mut transport, mut sink) = engine_with_peer();
        engine.post_request(fenced_send_request(level, peer, 1), &mut transport, &mut sink).unwrap();
        assert_eq!(count_sent_messages(&transport), 1);
    }
    // Once the link has taken a message, the message has reached the level of injection.
    engine.post_request(send_request_at_level(Level::Inject, peer, 1), &mut transport, &mut sink).unwrap();
    engine.post_request(fenced_send_request(Level::Inject, peer, 2), &mut transport, &mut sink).unwrap();
    assert_eq!((count_sent_messages(&transport), sink.ended_contexts()), (2, vec![1, 2]));
}

#[test]
fn fence_after_unacknowledged_messages_asks_the_peer() {
    let (mut engine, peer, mut transport, mut sink) = engine_with_peer();
    let other = engine.intern_peer(address(3));
    let silent = send_request_at_level(Level::Inject, peer, 1).signalled(Signalled::No);
    engine.post_request(silent, &mut transport, &mut sink).unwrap();
    engine.post_request(fenced_send_request(Level::Delivery, peer, 2), &mut transport, &mut sink).unwrap();
    engine.post_request(send_request_at_level(Level::Inject, peer, 3), &mut transport, &mut sink).unwrap();
    assert!(!engine.try_inject(peer, None, None, b"x", &mut transport));
    assert_eq!(sent_headers_since(&transport, 1), [Header::Fence { matched: false }]);
    engine.post_request(send_request_at_level(Level::Inject, other, 4), &mut transport, &mut sink).unwrap();
    assert_eq!(sink.ended_contexts(), [4], "others do not wait");

    let before = transport.sent.len();
    engine.transmit(&mut transport, &mut sink);
    assert_eq!(transport.sent.len(), before, "it is asked for once");
    engine.arrivals(&mut sink).frame(LINK, &Header::Fenced, b"");
    engine.transmit(&mut transport, &mut sink);
    assert_eq!(sent_headers_since(&transport, before).len(), 2);
    assert_eq!(sink.ended_contexts(), [4, 3]);
}

#[test]
fn fence_waits_for_all_incomplete_operations() {
    let (mut engine, peer, mut transport, mut sink) = engine_with_peer();
    engine.post_request(send_request_at_level(Level::Transmit, peer, 1), &mut transport, &mut sink).unwrap();
    engine.post_request(send_request_at_level(Level::Match, peer, 2), &mut transport, &mut sink).unwrap();
    engine.post_request(fenced_send_request(Level::Inject, peer, 3), &mut transport, &mut sink).unwrap();
    engine.arrivals(&mut sink).frame(LINK, &Header::Ack { received: 2 }, b"");
    engine.transmit(&mut transport, &mut sink);
    assert_eq!(sink.ended_contexts(), [1]);
    engine.arrivals(&mut sink).frame(LINK, &Header::Matched { number: 2 }, b"");
    engine.transmit(&mut transport, &mut sink);
    assert_eq!(sink.ended_contexts(), [1, 2, 3]);
    assert_eq!(count_sent_messages(&transport), transport.sent.len(), "there was nothing to ask");
}

#[test]
fn fence_at_match_level_asks_again_after_fence_at_transmit_level() {
    let (mut engine, peer, mut transport, mut sink) = engine_with_peer();
    engine.post_request(send_request_at_level(Level::Inject, peer, 1), &mut transport, &mut sink).unwrap();
    engine.post_request(fenced_send_request(Level::Transmit, peer, 2), &mut transport, &mut sink).unwrap();
    engine.arrivals(&mut sink).frame(LINK, &Header::Fenced, b"");
    engine.transmit(&mut transport, &mut sink);
    engine.arrivals(&mut sink).frame(LINK, &Header::Ack { received: 2 }, b"");
    let before = transport.sent.len();
    engine.post_request(fenced_send_request(Level::Match, peer, 3), &mut transport, &mut sink).unwrap();
    assert_eq!(sent_headers_since(&transport, before), [Header::Fence { matched: true }]);
}

#[test]
fn match_fence_is_answered_after_earlier_messages_match() {
    let (mut engine, _, mut transport, mut sink) = engine_with_peer();
    let mut arrivals = engine.arrivals(&mut sink);
    arrivals.frame(LINK, &untagged_header(1), b"a");
    arrivals.frame(LINK, &untagged_header(1), b"b");
    arrivals.frame(LINK, &Header::Fence { matched: false }, b"");
    engine.transmit(&mut transport, &mut sink);
    assert_eq!(sent_headers_since(&transport, 0), [Header::Fenced]);
    engine.arrivals(&mut sink).frame(LINK, &Header::Fence { matched: true }, b"");
    engine.post_receive(receive_request(1, 1), &mut sink).unwrap();
    engine.transmit(&mut transport, &mut sink);
    assert_eq!(transport.sent.len(), 1);
    engine.post_receive(receive_request(1, 2), &mut sink).unwrap();
    engine.transmit(&mut transport, &mut sink);
    assert_eq!(sent_headers_since(&transport, 1), [Header::Fenced]);
}

#[test]
fn waiting_fenced_send_is_cancellable_and_fails_with_its_link() {
    let (mut engine, peer, mut transport, mut sink) = engine_with_peer();
    engine.post_request(send_request_at_level(Level::Match, peer, 1), &mut transport, &mut sink).unwrap();
    for context in [2, 3] {
        engine
            .post_request(fenced_send_request(Level::Inject, peer, context), &mut transport, &mut sink)
            .unwrap();
    }
    engine.cancel(2, &mut sink).unwrap();
    assert_eq!(sink.ended_contexts(), [2]);
    engine.arrivals(&mut sink).link_event(LINK, LinkEvent::Down(RESET));
    assert_eq!(sink.ended_contexts(), [2, 1, 3]);
}

#[test]
fn message_after_fence_of_cancelled_send_is_accepted() {
    let (mut engine, peer, mut transport, mut sink) = engine_with_peer();
    let (mut other, _, mut other_transport, mut other_sink) = engine_with_peer();
    engine.post_request(send_request_at_level(Level::Inject, peer, 1), &mut transport, &mut sink).unwrap();
    engine.post_request(fenced_send_request(Level::Match, peer, 2), &mut transport, &mut sink).unwrap();
    engine.cancel(2, &mut sink).unwrap();
    engine.post_request(send_request_at_level(Level::Inject, peer, 3), &mut transport, &mut sink).unwrap();
    assert!(engine.try_inject(peer, None, None, b"x", &mut transport), "nothing is queued");
    assert_eq!(transport.sent.len(), 4, "a fence of a cancelled send holds nothing");
    for (_, header, payload) in &transport.sent {
        other.arrivals(&mut other_sink).frame(LINK, header, payload);
    }
    other.transmit(&mut other_transport, &mut other_sink);
    assert!(other_transport.closed.is_empty());
    assert!(!sent_headers_since(&other_transport, 0).contains(&Header::Fenced));
    other.post_receive(receive_request(1, 1), &mut other_sink).unwrap();
    other.transmit(&mut other_transport, &mut other_sink);
    assert_eq!(sent_headers_since(&other_transport, 0), [Header::Fenced], "what came later does not count");
}

#[test]
fn fence_answer_covers_only_messages_before_the_fence() {
    let (mut engine, peer, mut transport, mut sink) = engine_with_peer();
    engine.post_request(send_request_at_level(Level::Inject, peer, 1), &mut transport, &mut sink).unwrap();
    engine.post_request(fenced_send_request(Level::Transmit, peer, 2), &mut transport, &mut sink).unwrap();
    engine.cancel(2, &mut sink).unwrap();
    engine.post_request(send_request_at_level(Level::Inject, peer, 3), &mut transport, &mut sink).unwrap();
    engine.arrivals(&mut sink).frame(LINK, &Header::Fenced, b"");
    let before = transport.sent.len();
    engine.post_request(fenced_send_request(Level::Transmit, peer, 4), &mut transport, &mut sink).unwrap();
    assert_eq!(sent_headers_since(&transport, before), [Header::Fence { matched: false }]);
}

#[test]
fn peer_that_fences_without_reading_answers_is_disconnected() {
    let (mut engine, _, mut transport, mut sink) = engine_with_peer();
    for _ in 0..1000 {
        transport.answers = [Sent::Full; 4].into();
        engine.arrivals(&mut sink).frame(LINK, &Header::Fence { matched: false }, b"");
        engine.transmit(&mut transport, &mut sink);
    }
    assert_eq!(transport.closed, [(LINK, Close::Abort)]);
}

#[test]
fn fence_waits_for_sends_to_former_instance() {
    let (mut engine, peer, mut transport, mut sink) = engine_with_peer();
    engine.post_request(send_request_at_level(Level::Transmit, peer, 1), &mut transport, &mut sink).unwrap();
    engine.arrivals(&mut sink).link_event(LinkId(8), LinkEvent::up(address(2), 2));
    engine.post_request(fenced_send_request(Level::Inject, peer, 2), &mut transport, &mut sink).unwrap();
    assert_eq!(sink.ended_contexts(), []);
    engine.arrivals(&mut sink).link_event(LINK, LinkEvent::Down(RESET));
    engine.transmit(&mut transport, &mut sink);
    assert_eq!(sink.ended_contexts(), [1, 2]);
}
