//! Tests of how connections end: by a shutdown of either side, or by a lost link.

use super::*;

#[test]
fn peer_shutdown_ends_the_connection() {
    let (mut node, peer) = connected_engine();
    node.post(send_request(peer, b"acked", 1).level(Level::Transmit));
    node.transport.answers = [Sent::Full].into();
    node.post(send_request(peer, b"queued", 2));
    node.frame(OTHER, &untagged_header(5), b"early");
    node.post_receive(receive_request(8, 3));
    node.post_receive(receive_request(8, 4));
    node.frame(OTHER, &untagged_header(6), b"before");
    node.frame(OTHER, &untagged_header(4), b"kept");
    node.post_receive(receive_request(8, 5));
    node.frame(OTHER, &untagged_header(4), b"left");
    node.post_receive(ReceiveRequest { tagged: true, ..receive_request(8, 6) });
    node.step(OTHER, HandshakeStep::Shutdown, b"");

    assert_eq!(node.ended_contexts(), [3, 4, 5, 1, 2], "receives fail in the next pass");
    node.deliver_held();
    assert_eq!(node.ended_contexts(), [3, 4, 5, 1, 2, 6]);
    assert_eq!(mem::take(&mut node.sink.events), [ConnectionReport::Shutdown(ConnectionEnd::Closed)]);
    for ended in node.take_ended().iter().skip(3) {
        let Err(failure) = ended else { panic!("{ended:?}") };
        assert_eq!(failure.error, OperationError::Link(LinkError::Closed));
    }
    node.transmit();
    assert_eq!(node.transport.closed, [(OTHER, Close::Drain)]);
    assert_eq!(node.engine.connected_peer(), Some(Err(Misuse::NotConnected.into())));
    // A receive still gets a message that arrived before. If there is none, the receive is refused.
    node.post_receive(receive_request(8, 7));
    assert_eq!(received_bytes(&node.sink.ended[0]), b"left");
    let rejected = node.engine.post_receive(receive_request(8, 8), &mut node.sink).unwrap_err();
    assert_eq!(rejected.error, Misuse::NotConnected.into());
    assert_eq!(node.shutdown(), Ok(()), "there is nothing to end");
    assert!(node.sink.events.is_empty());
}

#[test]
fn shutdown_cancels_all_operations_and_waits_for_the_peer() {
    let (mut node, peer) = connected_engine();
    node.post(send_request(peer, b"acked", 1).level(Level::Transmit));
    node.post_receive(receive_request(8, 2));
    node.shutdown().unwrap();
    assert_eq!(node.ended_contexts(), [1, 2]);
    let is_cancelled = |ended: &Result<EndedOperation, FailedOperation>| {
        matches!(ended, Err(FailedOperation { error: OperationError::Cancelled, .. }))
    };
    assert!(node.take_ended().iter().all(is_cancelled));
    assert_eq!(node.transport.sent.last().unwrap().1, handshake_header(HandshakeStep::Shutdown, NUMBER, b""));
    assert!(node.transport.closed.is_empty() && node.sink.events.is_empty(), "the peer does not know yet");
    // The engine ignores frames that the peer sent before it knew of the shutdown.
    node.frame(OTHER, &untagged_header(1), b"x");
    node.frame_begun(OTHER, &untagged_header(9));
    node.payload_arrived(OTHER, b"abc");
    node.frame(OTHER, &Header::Credit { granted_bytes: 1 << 20 }, b"");
    assert_eq!(node.shutdown(), Ok(()));
    node.transmit();
    assert!(node.transport.closed.is_empty() && node.sink.ended.is_empty() && node.sink.events.is_empty());
    node.link_down(OTHER, LinkError::Closed);
    assert_eq!(node.sink.events, [ConnectionReport::Shutdown(ConnectionEnd::Closed)]);
}

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
fn crossing_shutdowns_are_both_reported() {
    let (mut node, _) = connected_engine();
    node.shutdown().unwrap();
    node.step(OTHER, HandshakeStep::Shutdown, b"");
    node.transmit();
    assert_eq!(node.sink.events, [ConnectionReport::Shutdown(ConnectionEnd::Closed)]);
    assert_eq!(node.transport.closed, [(OTHER, Close::Drain)]);
}

#[test]
fn shutdown_ends_exposed_send_only_after_closing_the_link() {
    let (mut node, peer) = connected_engine();
    node.transport.pull_min_bytes = Some(10);
    node.post(send_request(peer, b"stays where it is", 1));
    assert_eq!(node.transport.exposed.len(), 1);
    node.shutdown().unwrap();
    assert_eq!((&node.transport.closed[..], node.ended_contexts()), (&[(OTHER, Close::Drain)][..], vec![1]));
    assert_eq!(
        node.sink.events,
        [ConnectionReport::Shutdown(ConnectionEnd::Closed)],
        "the peer can say nothing more"
    );

    // The link has taken only a part of the payload, so no shutdown can follow.
    let (mut node, peer) = connected_engine();
    node.post(send_request(peer, &[7; EAGER_MAX_BYTES + 2], 1));
    let Header::Request { op, .. } = node.transport.sent[0].1 else { panic!("too long to be sent at once") };
    node.frame(OTHER, &Header::Clear { op, cannot_pull: false }, b"");
    node.transport.answers = [Sent::Partial(1)].into();
    node.transmit();
    node.shutdown().unwrap();
    assert_eq!((&node.transport.closed[..], node.ended_contexts()), (&[(OTHER, Close::Drain)][..], vec![1]));
    assert_eq!(node.sink.events, [ConnectionReport::Shutdown(ConnectionEnd::Closed)]);
}

#[test]
fn lost_link_reports_shutdown() {
    let (mut node, _) = connected_engine();
    node.post_receive(receive_request(8, 1));
    node.link_down(OTHER, RESET);
    node.deliver_held();
    assert_eq!((node.ended_contexts(), &node.sink.events[..]), (vec![1], &[lost_report(RESET)][..]));
    node.transmit();
    assert!(node.transport.closed.is_empty());

    // If the peer breaks the protocol, the next pass closes the link.
    let (mut node, _) = connected_engine();
    node.post_receive(receive_request(8, 1));
    node.pass_with_frame(OTHER, &Header::Ack { received: 5 }, b"");
    node.deliver_held();
    assert_eq!(node.ended_contexts(), [1]);
    assert!(matches!(
        node.sink.events[..],
        [ConnectionReport::Shutdown(ConnectionEnd::Lost(LinkError::Protocol(_)))]
    ));
    assert_eq!(node.transport.closed, [(OTHER, Close::Abort)]);
    // A handshake step out of turn breaks the protocol.
    for (of, number) in [
        (HandshakeStep::Request, NUMBER),
        (HandshakeStep::Accept, NUMBER),
        (HandshakeStep::Reject, NUMBER + 1),
        (HandshakeStep::Confirm, NUMBER),
    ] {
        let (mut node, _) = connected_engine();
        node.pass_with_frame(OTHER, &handshake_header(of, number, b""), b"");
        assert!(matches!(
            node.sink.events[..],
            [ConnectionReport::Shutdown(ConnectionEnd::Lost(LinkError::Protocol(_)))]
        ));
        assert_eq!(node.transport.closed, [(OTHER, Close::Abort)]);
    }
}

/// The report of a connection whose link has ended by itself.
fn lost_report(error: LinkError) -> ConnectionReport {
    ConnectionReport::Shutdown(ConnectionEnd::Lost(error))
}

#[test]
fn link_closed_without_shutdown_is_a_lost_connection() {
    let (mut node, _) = connected_engine();
    node.link_down(OTHER, LinkError::Closed);
    assert_eq!(node.sink.events, [lost_report(LinkError::Closed)]);
}

#[test]
fn reset_after_own_shutdown_is_a_closed_connection() {
    let (mut node, _) = connected_engine();
    node.shutdown().unwrap();
    node.link_down(OTHER, RESET);
    assert_eq!(node.sink.events, [ConnectionReport::Shutdown(ConnectionEnd::Closed)]);
}

#[test]
fn reset_after_peer_shutdown_is_a_closed_connection() {
    let (mut node, _) = connected_engine();
    node.frame(OTHER, &handshake_header(HandshakeStep::Shutdown, NUMBER, b""), b"");
    node.link_down(OTHER, RESET);
    node.transmit();
    assert_eq!(node.sink.events, [ConnectionReport::Shutdown(ConnectionEnd::Closed)]);
}

#[test]
fn shutdown_with_exposed_payload_tells_the_peer_if_the_link_has_room() {
    for answers in [vec![], vec![Sent::Full]] {
        let (mut node, peer) = connected_engine();
        node.transport.pull_min_bytes = Some(10);
        node.post(send_request(peer, b"stays where it is", 1));
        let count = node.transport.sent.len();
        node.transport.answers = answers.iter().copied().collect();
        node.shutdown().unwrap();
        let shutdown = handshake_header(HandshakeStep::Shutdown, NUMBER, b"");
        let expected = if answers.is_empty() { vec![shutdown] } else { Vec::new() };
        assert_eq!(node.sent_since(count), expected);
        assert_eq!(node.transport.closed, [(OTHER, Close::Drain)]);
    }
}

#[test]
fn multi_receive_buffers_end_with_the_connection() {
    let (mut node, _) = connected_engine();
    node.post_multi_receive(receive_request(64, 1), 8);
    node.frame(OTHER, &untagged_header(5), b"first");
    node.sink.room = 1;
    node.frame(OTHER, &untagged_header(6), b"second");
    node.frame(OTHER, &untagged_header(5), b"third");
    node.post_receive(receive_request(8, 2));
    node.step(OTHER, HandshakeStep::Shutdown, b"");
    node.post_receive(receive_request(8, 3));
    node.post_multi_receive(receive_request(8, 4), 8);
    node.sink.room = usize::MAX;
    node.deliver_held();
    let ended: Vec<(u64, bool)> = node
        .sink
        .ended
        .iter()
        .map(|ended| match ended {
            Ok(completion) => (completion.context, true),
            Err(failure) => (failure.completion.context, false),
        })
        .collect();
    assert_eq!(ended, [(1, true), (1, true), (1, true), (1, false), (2, false), (3, false), (4, false)]);
    assert_eq!(node.outstanding_receives(), 0);
    node.take_ended();
    node.post_multi_receive(receive_request(8, 5), 8);
    assert_eq!((node.ended_contexts(), node.outstanding_receives()), (vec![5], 0));
}
