//! Tests of how connections end: by a shutdown of either side, or by a lost link.

use super::*;

#[test]
fn shutdown_sends_acks_and_matches_before_shutdown_step() {
    let waits = |awaits| Header::Message(Message { awaits, ..Message::of_len(1) });
    let rooms: [&[Sent]; 4] = [
        &[],
        &[Sent::Full],
        &[Sent::Whole, Sent::Full],
        &[Sent::Full, Sent::Full, Sent::Whole, Sent::Whole, Sent::Full],
    ];
    for answers in rooms {
        let (mut node, _) = connected_engine();
        node.frame(OTHER, &waits(AwaitedReply::Match), b"x");
        node.frame(OTHER, &waits(AwaitedReply::Arrival), b"y");
        node.post_receive(receive_request(8, 1));
        assert_eq!(received_bytes(&node.sink.ended[0]), b"x");
        node.transport.answers = answers.iter().copied().collect();
        node.shutdown().unwrap();
        node.transmit();
        node.transmit();
        let told = [
            Header::Ack { received: 2 },
            Header::Matched { number: 1 },
            handshake_header(HandshakeStep::Shutdown, NUMBER, b""),
        ];
        assert_eq!(node.sent_since(0), told, "{answers:?}");
        assert!(node.transport.closed.is_empty() && node.sink.events.is_empty());
    }
}

#[test]
fn shutdown_with_exposed_send_closes_the_link_and_tells_the_peer_if_there_is_room() {
    for answers in [vec![], vec![Sent::Full]] {
        let (mut node, peer) = connected_engine();
        node.transport.pull_min_bytes = Some(10);
        node.post(send_request(peer, b"stays where it is", 1));
        assert_eq!(node.transport.exposed.len(), 1);
        let count = node.transport.sent.len();
        node.transport.answers = answers.iter().copied().collect();
        node.shutdown().unwrap();
        let shutdown = handshake_header(HandshakeStep::Shutdown, NUMBER, b"");
        assert_eq!(node.sent_since(count), Vec::from_iter(answers.is_empty().then_some(shutdown)));
        assert_ended_by_close(&node);
    }
}

/// Expects that a shutdown has closed the link and ended the only send.
#[track_caller]
fn assert_ended_by_close(node: &Node) {
    assert_eq!((&node.transport.closed[..], node.ended_contexts()), (&[(OTHER, Close::Drain)][..], vec![1]));
    let closed = ConnectionReport::Shutdown(ConnectionEnd::Closed);
    assert_eq!(node.sink.events, [closed], "the peer can say nothing more");
}

#[test]
fn shutdown_during_requested_payload_closes_the_link() {
    let (mut node, peer) = connected_engine();
    node.post(send_request(peer, &[7; EAGER_MAX_BYTES + 2], 1));
    let op = node.op_at(0);
    node.frame(OTHER, &Header::Clear { op, cannot_pull: false }, b"");
    node.transport.answers = [Sent::Partial(1)].into();
    node.transmit();
    node.shutdown().unwrap();
    assert_ended_by_close(&node);
}

#[test]
fn peer_that_breaks_the_protocol_loses_its_connection() {
    let steps = [HandshakeStep::Request, HandshakeStep::Accept, HandshakeStep::Confirm];
    let steps_out_of_turn = steps.map(|step| handshake_header(step, NUMBER, b""));
    let others = [handshake_header(HandshakeStep::Reject, NUMBER + 1, b""), Header::Ack { received: 5 }];
    for header in steps_out_of_turn.into_iter().chain(others) {
        let (mut node, _) = connected_engine();
        node.post_receive(receive_request(8, 1));
        node.pass_with_frame(OTHER, &header, b"");
        node.deliver_held();
        assert_eq!(node.ended_contexts(), [1], "{header:?}");
        let events = &node.sink.events[..];
        let is_lost =
            matches!(events, [ConnectionReport::Shutdown(ConnectionEnd::Lost(LinkError::Protocol(_)))]);
        assert!(is_lost, "{header:?}: {events:?}");
        assert_eq!(node.transport.closed, [(OTHER, Close::Abort)], "{header:?}");
    }
}

#[test]
fn end_of_link_is_lost_unless_a_side_has_shut_down() {
    type Before = fn(&mut Node);
    let nothing: Before = |_| ();
    let own_shutdown: Before = |node| node.shutdown().unwrap();
    let peer_shutdown: Before = |node| node.step(OTHER, HandshakeStep::Shutdown, b"");
    for (case, before, error, end) in [
        ("reset", nothing, RESET, ConnectionEnd::Lost(RESET)),
        ("closed", nothing, LinkError::Closed, ConnectionEnd::Lost(LinkError::Closed)),
        ("own shutdown", own_shutdown, RESET, ConnectionEnd::Closed),
        ("shutdown of the peer", peer_shutdown, RESET, ConnectionEnd::Closed),
    ] {
        let (mut node, _) = connected_engine();
        node.post_receive(receive_request(8, 1));
        before(&mut node);
        node.link_down(OTHER, error);
        node.transmit();
        node.deliver_held();
        assert_eq!(node.ended_contexts(), [1], "{case}");
        assert_eq!(node.sink.events, [ConnectionReport::Shutdown(end)], "{case}");
        assert!(node.transport.closed.is_empty(), "{case}");
    }
}
