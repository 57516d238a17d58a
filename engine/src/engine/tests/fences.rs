//! Tests of fenced sends, and of what they wait for.

use super::*;

fn send_request_at_level(level: Level, to: PeerId, context: u64) -> AddressedRequest {
    send_request(to, b"x", context).level(level)
}

fn fenced_send_request(level: Level, to: PeerId, context: u64) -> AddressedRequest {
    send_request_at_level(level, to, context).fence(true)
}

#[test]
fn fence_answer_covers_only_messages_before_the_fence() {
    for (level, matched) in [(Level::Transmit, false), (Level::Match, true)] {
        let (mut node, peer) = engine_with_peer();
        node.post(send_request_at_level(Level::Inject, peer, 1));
        node.post(fenced_send_request(level, peer, 2));
        node.cancel(2).unwrap();
        node.post(send_request_at_level(Level::Inject, peer, 3));
        node.frame(LINK, &Header::Fenced, b"");
        let before = node.transport.sent.len();
        node.post(fenced_send_request(level, peer, 4));
        assert_eq!(node.sent_since(before), [Header::Fence { matched }]);
    }
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
