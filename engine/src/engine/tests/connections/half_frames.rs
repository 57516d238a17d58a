//! Tests of connections that are shut down while a link is in the middle of a frame.

use super::*;

#[test]
fn shutdown_during_message_sends_the_rest_before_ack_and_shutdown() {
    let asks = Header::Message(Message { awaits: AwaitedReply::Arrival, ..Message::of_len(1) });
    // What the link takes after the shutdown.
    let rooms: [&[Sent]; 3] =
        [&[], &[Sent::Full, Sent::Partial(3), Sent::Full], &[Sent::Partial(8), Sent::Whole, Sent::Full]];
    for answers in rooms {
        let (mut node, peer) = connected_engine();
        node.post_receive(receive_request(8, 1));
        node.transport.answers = [Sent::Partial(1), Sent::Full].into();
        node.post(send_request(peer, b"half of a message", 2));
        node.pass_with_frame(OTHER, &asks, b"x");
        assert_eq!(received_bytes(&node.take_ended()[0]), b"x");
        node.transport.answers = answers.iter().copied().collect();
        node.shutdown().unwrap();
        assert_eq!(node.ended_contexts(), [2], "its memory is the application's again");
        while node.has_unsent() {
            node.transmit();
        }
        let told = [
            untagged_header(17),
            Header::Ack { received: 1 },
            handshake_header(HandshakeStep::Shutdown, NUMBER, b""),
        ];
        assert_eq!(node.sent_since(0), told, "{answers:?}");
        assert_eq!(node.transport.sent[0].2, b"half of a message", "{answers:?}");
        assert!(node.transport.closed.is_empty() && node.sink.events.is_empty());
    }
}

#[test]
fn shutdown_during_read_answer_sends_the_rest_first() {
    let (mut node, _) = connected_engine();
    let region = node.add_region(Region::owned(5000, ATTR));
    region.write_at(4990, b"the end").unwrap();
    node.frame(OTHER, &rma_header(5, 0, 5000, RmaKind::Read), b"");
    node.transport.answers = [Sent::Partial(10)].into();
    node.transmit();
    node.shutdown().unwrap();
    let told =
        [Header::ReadData { op: 5, len_bytes: 5000 }, handshake_header(HandshakeStep::Shutdown, NUMBER, b"")];
    assert_eq!(node.sent_since(0), told);
    assert_eq!(node.transport.sent[0].2, read_region(&region));
    assert!(node.transport.closed.is_empty() && !node.has_unsent());
}

/// This side shuts down in the middle of a write. The peer still gets the whole write.
#[test]
fn shutdown_during_write_sends_the_rest_first() {
    let (mut node, peer) = connected_engine();
    node.post_receive(receive_request(8, 1));
    node.post(rma_request(peer, read_local(8), 2));
    node.post(rma_request(peer, write_local(b"a whole one"), 3));
    node.transport.answers = [Sent::Partial(1), Sent::Full].into();
    let bytes: &[u8] = &[7; 10_000];
    node.post(rma_request(peer, write_local(bytes), 4));
    let asks = Header::Message(Message { awaits: AwaitedReply::Arrival, ..Message::of_len(1) });
    node.pass_with_frame(OTHER, &asks, b"x");
    assert_eq!(received_bytes(&node.take_ended()[0]), b"x");
    node.shutdown().unwrap();
    let mut cancelled = node.ended_contexts();
    cancelled.sort_unstable();
    assert_eq!(cancelled, [2, 3, 4]);
    while node.has_unsent() {
        node.transmit();
    }
    let headers = node.sent_since(0);
    let told = [Header::Ack { received: 1 }, handshake_header(HandshakeStep::Shutdown, NUMBER, b"")];
    assert_eq!(headers[3..], told, "{headers:?}");
    assert_eq!(node.transport.sent[2].2, bytes);
    assert!(node.transport.closed.is_empty());
}

#[test]
fn shutdown_during_long_write_closes_the_link_at_once() {
    let (mut node, peer) = connected_engine();
    node.transport.answers = [Sent::Partial(1), Sent::Full].into();
    static LONG: [u8; EAGER_MAX_BYTES + 2] = [7; EAGER_MAX_BYTES + 2];
    node.post(rma_request(peer, write_local(&LONG), 2));
    node.shutdown().unwrap();
    assert_eq!(node.ended_contexts(), [2]);
    assert_eq!(node.transport.closed.len(), 1, "the link ends there");
}

#[test]
fn shutdown_does_not_wait_for_peer_to_request_offered_payload() {
    let (mut node, peer) = connected_engine();
    static LONG: [u8; EAGER_MAX_BYTES + 1] = [7; EAGER_MAX_BYTES + 1];
    node.post(send_request(peer, &LONG, 2));
    let op = node.op_at(0);
    node.shutdown().unwrap();
    assert_eq!(node.ended_contexts(), [2]);
    assert_eq!(node.sent_since(1), [handshake_header(HandshakeStep::Shutdown, NUMBER, b"")]);
    // The peer asks for the payload after the shutdown: the engine ignores this.
    node.frame(OTHER, &Header::Clear { op, cannot_pull: false }, b"");
    assert!(node.transport.closed.is_empty() && node.sink.events.is_empty());
}
