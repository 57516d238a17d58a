//! Tests of fenced sends, and of what they wait for.

use super::*;

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
    let (mut node, peer) = engine_with_peer();
    for level in [Level::Inject, Level::Transmit, Level::Match] {
        let (mut node, peer) = engine_with_peer();
        node.post(fenced_send_request(level, peer, 1));
        assert_eq!(count_sent_messages(&node.transport), 1);
    }
    // Once the link has taken a message, the message has reached the level of injection.
    node.post(send_request_at_level(Level::Inject, peer, 1));
    node.post(fenced_send_request(Level::Inject, peer, 2));
    assert_eq!((count_sent_messages(&node.transport), node.ended_contexts()), (2, vec![1, 2]));
}

#[test]
fn fence_after_unacknowledged_messages_asks_the_peer() {
    let (mut node, peer) = engine_with_peer();
    let other = node.engine.intern_peer(address(3));
    node.post(send_request_at_level(Level::Inject, peer, 1).signalled(Signalled::No));
    node.post(fenced_send_request(Level::Delivery, peer, 2));
    node.post(send_request_at_level(Level::Inject, peer, 3));
    assert!(!node.engine.try_inject(peer, None, None, b"x", &mut node.transport));
    assert_eq!(node.sent_since(1), [Header::Fence { matched: false }]);
    node.post(send_request_at_level(Level::Inject, other, 4));
    assert_eq!(node.ended_contexts(), [4], "others do not wait");

    let before = node.transport.sent.len();
    node.transmit();
    assert_eq!(node.transport.sent.len(), before, "it is asked for once");
    node.pass_with_frame(LINK, &Header::Fenced, b"");
    assert_eq!(node.sent_since(before).len(), 2);
    assert_eq!(node.ended_contexts(), [4, 3]);
}

#[test]
fn fence_waits_for_all_incomplete_operations() {
    let (mut node, peer) = engine_with_peer();
    node.post(send_request_at_level(Level::Transmit, peer, 1));
    node.post(send_request_at_level(Level::Match, peer, 2));
    node.post(fenced_send_request(Level::Inject, peer, 3));
    node.pass_with_frame(LINK, &Header::Ack { received: 2 }, b"");
    assert_eq!(node.ended_contexts(), [1]);
    node.pass_with_frame(LINK, &Header::Matched { number: 2 }, b"");
    assert_eq!(node.ended_contexts(), [1, 2, 3]);
    assert_eq!(count_sent_messages(&node.transport), node.transport.sent.len(), "there was nothing to ask");
}

#[test]
fn fence_at_match_level_asks_again_after_fence_at_transmit_level() {
    let (mut node, peer) = engine_with_peer();
    node.post(send_request_at_level(Level::Inject, peer, 1));
    node.post(fenced_send_request(Level::Transmit, peer, 2));
    node.pass_with_frame(LINK, &Header::Fenced, b"");
    node.frame(LINK, &Header::Ack { received: 2 }, b"");
    let before = node.transport.sent.len();
    node.post(fenced_send_request(Level::Match, peer, 3));
    assert_eq!(node.sent_since(before), [Header::Fence { matched: true }]);
}

#[test]
fn match_fence_is_answered_after_earlier_messages_match() {
    let (mut node, _) = engine_with_peer();
    node.frame(LINK, &untagged_header(1), b"a");
    node.frame(LINK, &untagged_header(1), b"b");
    node.pass_with_frame(LINK, &Header::Fence { matched: false }, b"");
    assert_eq!(node.sent_since(0), [Header::Fenced]);
    node.frame(LINK, &Header::Fence { matched: true }, b"");
    node.post_receive(receive_request(1, 1));
    node.transmit();
    assert_eq!(node.transport.sent.len(), 1);
    node.post_receive(receive_request(1, 2));
    node.transmit();
    assert_eq!(node.sent_since(1), [Header::Fenced]);
}

#[test]
fn waiting_fenced_send_is_cancellable_and_fails_with_its_link() {
    let (mut node, peer) = engine_with_peer();
    node.post(send_request_at_level(Level::Match, peer, 1));
    for context in [2, 3] {
        node.post(fenced_send_request(Level::Inject, peer, context));
    }
    node.cancel(2).unwrap();
    assert_eq!(node.ended_contexts(), [2]);
    node.link_down(LINK, RESET);
    assert_eq!(node.ended_contexts(), [2, 1, 3]);
}

#[test]
fn message_after_fence_of_cancelled_send_is_accepted() {
    let (mut node, peer) = engine_with_peer();
    let (mut other, _) = engine_with_peer();
    node.post(send_request_at_level(Level::Inject, peer, 1));
    node.post(fenced_send_request(Level::Match, peer, 2));
    node.cancel(2).unwrap();
    node.post(send_request_at_level(Level::Inject, peer, 3));
    assert!(node.engine.try_inject(peer, None, None, b"x", &mut node.transport), "nothing is queued");
    assert_eq!(node.transport.sent.len(), 4, "a fence of a cancelled send holds nothing");
    for (_, header, payload) in &node.transport.sent {
        other.frame(LINK, header, payload);
    }
    other.transmit();
    assert!(other.transport.closed.is_empty());
    assert!(!other.sent_since(0).contains(&Header::Fenced));
    other.post_receive(receive_request(1, 1));
    other.transmit();
    assert_eq!(other.sent_since(0), [Header::Fenced], "what came later does not count");
}

#[test]
fn fence_answer_covers_only_messages_before_the_fence() {
    let (mut node, peer) = engine_with_peer();
    node.post(send_request_at_level(Level::Inject, peer, 1));
    node.post(fenced_send_request(Level::Transmit, peer, 2));
    node.cancel(2).unwrap();
    node.post(send_request_at_level(Level::Inject, peer, 3));
    node.frame(LINK, &Header::Fenced, b"");
    let before = node.transport.sent.len();
    node.post(fenced_send_request(Level::Transmit, peer, 4));
    assert_eq!(node.sent_since(before), [Header::Fence { matched: false }]);
}

#[test]
fn peer_that_fences_without_reading_answers_is_disconnected() {
    let (mut node, _) = engine_with_peer();
    for _ in 0..1000 {
        node.transport.answers = [Sent::Full; 4].into();
        node.pass_with_frame(LINK, &Header::Fence { matched: false }, b"");
    }
    assert_eq!(node.transport.closed, [(LINK, Close::Abort)]);
}

#[test]
fn fence_waits_for_sends_to_former_instance() {
    let (mut node, peer) = engine_with_peer();
    node.post(send_request_at_level(Level::Transmit, peer, 1));
    node.link_up(LinkId(8), 2, 2);
    node.post(fenced_send_request(Level::Inject, peer, 2));
    assert_eq!(node.ended_contexts(), []);
    node.link_down(LINK, RESET);
    node.transmit();
    assert_eq!(node.ended_contexts(), [1, 2]);
}
