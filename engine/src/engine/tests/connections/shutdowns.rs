//! Tests of how connections end: by a shutdown of either side, or by a lost link.

use super::*;

#[test]
fn peer_shutdown_ends_the_connection() {
    let (mut engine, peer, mut transport, mut sink) = connected_engine();
    let acked = send_request(peer, b"acked", 1).level(Level::Transmit);
    engine.post_request(acked, &mut transport, &mut sink).unwrap();
    transport.answers = [Sent::Full].into();
    engine.post_request(send_request(peer, b"queued", 2), &mut transport, &mut sink).unwrap();
    receive_frame(&mut engine, &mut sink, OTHER, untagged_header(5), b"early");
    engine.post_receive(receive_request(8, 3), &mut sink).unwrap();
    engine.post_receive(receive_request(8, 4), &mut sink).unwrap();
    receive_frame(&mut engine, &mut sink, OTHER, untagged_header(6), b"before");
    receive_frame(&mut engine, &mut sink, OTHER, untagged_header(4), b"kept");
    engine.post_receive(receive_request(8, 5), &mut sink).unwrap();
    receive_frame(&mut engine, &mut sink, OTHER, untagged_header(4), b"left");
    let tagged = ReceiveRequest { tagged: true, ..receive_request(8, 6) };
    engine.post_receive(tagged, &mut sink).unwrap();
    receive_frame(&mut engine, &mut sink, OTHER, handshake_header(HandshakeStep::Shutdown, NUMBER, b""), b"");

    assert_eq!(sink.ended_contexts(), [3, 4, 5, 1, 2], "receives fail in the next pass");
    engine.deliver_held(&mut sink);
    assert_eq!(sink.ended_contexts(), [3, 4, 5, 1, 2, 6]);
    assert_eq!(mem::take(&mut sink.events), [ConnectionReport::Shutdown(ConnectionEnd::Closed)]);
    for ended in sink.take_ended().iter().skip(3) {
        let Err(failure) = ended else { panic!("{ended:?}") };
        assert_eq!(failure.error, OperationError::Link(LinkError::Closed));
    }
    engine.transmit(&mut transport, &mut sink);
    assert_eq!(transport.closed, [(OTHER, Close::Drain)]);
    assert_eq!(engine.connected_peer(), Some(Err(Misuse::NotConnected.into())));
    // A receive still gets a message that arrived before. If there is none, the receive is refused.
    engine.post_receive(receive_request(8, 7), &mut sink).unwrap();
    assert_eq!(received_bytes(&sink.ended[0]), b"left");
    let rejected = engine.post_receive(receive_request(8, 8), &mut sink).unwrap_err();
    assert_eq!(rejected.error, Misuse::NotConnected.into());
    assert_eq!(engine.shutdown(&mut transport, &mut sink), Ok(()), "there is nothing to end");
    assert!(sink.events.is_empty());
}

#[test]
fn shutdown_cancels_all_operations_and_waits_for_the_peer() {
    let (mut engine, peer, mut transport, mut sink) = connected_engine();
    let acked = send_request(peer, b"acked", 1).level(Level::Transmit);
    engine.post_request(acked, &mut transport, &mut sink).unwrap();
    engine.post_receive(receive_request(8, 2), &mut sink).unwrap();
    engine.shutdown(&mut transport, &mut sink).unwrap();
    assert_eq!(sink.ended_contexts(), [1, 2]);
    let is_cancelled = |ended: &Result<EndedOperation, FailedOperation>| {
        matches!(ended, Err(FailedOperation { error: OperationError::Cancelled, .. }))
    };
    assert!(sink.take_ended().iter().all(is_cancelled));
    assert_eq!(transport.sent.last().unwrap().1, handshake_header(HandshakeStep::Shutdown, NUMBER, b""));
    assert!(transport.closed.is_empty() && sink.events.is_empty(), "the peer does not know yet");
    // The engine ignores frames that the peer sent before it knew of the shutdown.
    let mut arrivals = engine.arrivals(&mut sink);
    arrivals.frame(OTHER, &untagged_header(1), b"x");
    arrivals.frame_begun(OTHER, &untagged_header(9));
    arrivals.payload_arrived(OTHER, b"abc");
    arrivals.frame(OTHER, &Header::Credit { granted_bytes: 1 << 20 }, b"");
    assert_eq!(engine.shutdown(&mut transport, &mut sink), Ok(()));
    engine.transmit(&mut transport, &mut sink);
    assert!(transport.closed.is_empty() && sink.ended.is_empty() && sink.events.is_empty());
    engine.arrivals(&mut sink).link_event(OTHER, LinkEvent::Down(LinkError::Closed));
    assert_eq!(sink.events, [ConnectionReport::Shutdown(ConnectionEnd::Closed)]);
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
        let (mut engine, _, mut transport, mut sink) = connected_engine();
        receive_frame(&mut engine, &mut sink, OTHER, waits(AwaitedReply::Match), b"x");
        receive_frame(&mut engine, &mut sink, OTHER, waits(AwaitedReply::Arrival), b"y");
        engine.post_receive(receive_request(8, 1), &mut sink).unwrap();
        assert_eq!(received_bytes(&sink.ended[0]), b"x");
        transport.answers = answers.iter().copied().collect();
        engine.shutdown(&mut transport, &mut sink).unwrap();
        engine.transmit(&mut transport, &mut sink);
        engine.transmit(&mut transport, &mut sink);
        let told = [
            Header::Ack { received: 2 },
            Header::Matched { number: 1 },
            handshake_header(HandshakeStep::Shutdown, NUMBER, b""),
        ];
        assert_eq!(sent_headers_since(&transport, 0), told, "{answers:?}");
        assert!(transport.closed.is_empty() && sink.events.is_empty());
    }
}

#[test]
fn shutdown_without_room_is_sent_later() {
    let (mut engine, _, mut transport, mut sink) = connected_engine();
    transport.answers = [Sent::Full, Sent::Full].into();
    engine.shutdown(&mut transport, &mut sink).unwrap();
    for _ in 0..2 {
        assert!(transport.sent.is_empty() && engine.has_unsent());
        engine.transmit(&mut transport, &mut sink);
    }
    assert_eq!(sent_headers_since(&transport, 0), [handshake_header(HandshakeStep::Shutdown, NUMBER, b"")]);
    assert!(!engine.has_unsent());
}

#[test]
fn crossing_shutdowns_are_both_reported() {
    let (mut engine, _, mut transport, mut sink) = connected_engine();
    engine.shutdown(&mut transport, &mut sink).unwrap();
    receive_frame(&mut engine, &mut sink, OTHER, handshake_header(HandshakeStep::Shutdown, NUMBER, b""), b"");
    engine.transmit(&mut transport, &mut sink);
    assert_eq!(sink.events, [ConnectionReport::Shutdown(ConnectionEnd::Closed)]);
    assert_eq!(transport.closed, [(OTHER, Close::Drain)]);
}

#[test]
fn shutdown_ends_exposed_send_only_after_closing_the_link() {
    let (mut engine, peer, mut transport, mut sink) = connected_engine();
    transport.pull_min_bytes = Some(10);
    engine.post_request(send_request(peer, b"stays where it is", 1), &mut transport, &mut sink).unwrap();
    assert_eq!(transport.exposed.len(), 1);
    engine.shutdown(&mut transport, &mut sink).unwrap();
    assert_eq!((&transport.closed[..], sink.ended_contexts()), (&[(OTHER, Close::Drain)][..], vec![1]));
    assert_eq!(
        sink.events,
        [ConnectionReport::Shutdown(ConnectionEnd::Closed)],
        "the peer can say nothing more"
    );

    // The link has taken only a part of the payload, so no shutdown can follow.
    let (mut engine, peer, mut transport, mut sink) = connected_engine();
    engine.post_request(send_request(peer, &[7; EAGER_MAX_BYTES + 2], 1), &mut transport, &mut sink).unwrap();
    let Header::Request { op, .. } = transport.sent[0].1 else { panic!("too long to be sent at once") };
    receive_frame(&mut engine, &mut sink, OTHER, Header::Clear { op, cannot_pull: false }, b"");
    transport.answers = [Sent::Partial(1)].into();
    engine.transmit(&mut transport, &mut sink);
    engine.shutdown(&mut transport, &mut sink).unwrap();
    assert_eq!((&transport.closed[..], sink.ended_contexts()), (&[(OTHER, Close::Drain)][..], vec![1]));
    assert_eq!(sink.events, [ConnectionReport::Shutdown(ConnectionEnd::Closed)]);
}

#[test]
fn lost_link_reports_shutdown() {
    let (mut engine, _, mut transport, mut sink) = connected_engine();
    engine.post_receive(receive_request(8, 1), &mut sink).unwrap();
    engine.arrivals(&mut sink).link_event(OTHER, LinkEvent::Down(RESET));
    engine.deliver_held(&mut sink);
    assert_eq!((sink.ended_contexts(), &sink.events[..]), (vec![1], &[lost_report(RESET)][..]));
    engine.transmit(&mut transport, &mut sink);
    assert!(transport.closed.is_empty());

    // If the peer breaks the protocol, the next pass closes the link.
    let (mut engine, _, mut transport, mut sink) = connected_engine();
    engine.post_receive(receive_request(8, 1), &mut sink).unwrap();
    receive_frame(&mut engine, &mut sink, OTHER, Header::Ack { received: 5 }, b"");
    engine.transmit(&mut transport, &mut sink);
    engine.deliver_held(&mut sink);
    assert_eq!(sink.ended_contexts(), [1]);
    assert!(matches!(
        sink.events[..],
        [ConnectionReport::Shutdown(ConnectionEnd::Lost(LinkError::Protocol(_)))]
    ));
    assert_eq!(transport.closed, [(OTHER, Close::Abort)]);
    // A handshake step out of turn breaks the protocol.
    for (of, number) in [
        (HandshakeStep::Request, NUMBER),
        (HandshakeStep::Accept, NUMBER),
        (HandshakeStep::Reject, NUMBER + 1),
        (HandshakeStep::Confirm, NUMBER),
    ] {
        let (mut engine, _, mut transport, mut sink) = connected_engine();
        receive_frame(&mut engine, &mut sink, OTHER, handshake_header(of, number, b""), b"");
        engine.transmit(&mut transport, &mut sink);
        assert!(matches!(
            sink.events[..],
            [ConnectionReport::Shutdown(ConnectionEnd::Lost(LinkError::Protocol(_)))]
        ));
        assert_eq!(transport.closed, [(OTHER, Close::Abort)]);
    }
}

/// The report of a connection whose link has ended by itself.
fn lost_report(error: LinkError) -> ConnectionReport {
    ConnectionReport::Shutdown(ConnectionEnd::Lost(error))
}

#[test]
fn link_closed_without_shutdown_is_a_lost_connection() {
    let (mut engine, _, _, mut sink) = connected_engine();
    engine.arrivals(&mut sink).link_event(OTHER, LinkEvent::Down(LinkError::Closed));
    assert_eq!(sink.events, [lost_report(LinkError::Closed)]);
}

#[test]
fn reset_after_own_shutdown_is_a_closed_connection() {
    let (mut engine, _, mut transport, mut sink) = connected_engine();
    engine.shutdown(&mut transport, &mut sink).unwrap();
    engine.arrivals(&mut sink).link_event(OTHER, LinkEvent::Down(RESET));
    assert_eq!(sink.events, [ConnectionReport::Shutdown(ConnectionEnd::Closed)]);
}

#[test]
fn reset_after_peer_shutdown_is_a_closed_connection() {
    let (mut engine, _, mut transport, mut sink) = connected_engine();
    let mut arrivals = engine.arrivals(&mut sink);
    arrivals.frame(OTHER, &handshake_header(HandshakeStep::Shutdown, NUMBER, b""), b"");
    arrivals.link_event(OTHER, LinkEvent::Down(RESET));
    engine.transmit(&mut transport, &mut sink);
    assert_eq!(sink.events, [ConnectionReport::Shutdown(ConnectionEnd::Closed)]);
}

#[test]
fn shutdown_with_exposed_payload_tells_the_peer_if_the_link_has_room() {
    for answers in [vec![], vec![Sent::Full]] {
        let (mut engine, peer, mut transport, mut sink) = connected_engine();
        transport.pull_min_bytes = Some(10);
        engine.post_request(send_request(peer, b"stays where it is", 1), &mut transport, &mut sink).unwrap();
        let count = transport.sent.len();
        transport.answers = answers.iter().copied().collect();
        engine.shutdown(&mut transport, &mut sink).unwrap();
        let shutdown = handshake_header(HandshakeStep::Shutdown, NUMBER, b"");
        let expected = if answers.is_empty() { vec![shutdown] } else { Vec::new() };
        assert_eq!(sent_headers_since(&transport, count), expected);
        assert_eq!(transport.closed, [(OTHER, Close::Drain)]);
    }
}

#[test]
fn multi_receive_buffers_end_with_the_connection() {
    let (mut engine, _, _, mut sink) = connected_engine();
    engine.post_multi_receive(receive_request(64, 1), 8, None, &mut sink).unwrap();
    receive_frame(&mut engine, &mut sink, OTHER, untagged_header(5), b"first");
    sink.room = 1;
    receive_frame(&mut engine, &mut sink, OTHER, untagged_header(6), b"second");
    receive_frame(&mut engine, &mut sink, OTHER, untagged_header(5), b"third");
    engine.post_receive(receive_request(8, 2), &mut sink).unwrap();
    receive_frame(&mut engine, &mut sink, OTHER, handshake_header(HandshakeStep::Shutdown, NUMBER, b""), b"");
    engine.post_receive(receive_request(8, 3), &mut sink).unwrap();
    engine.post_multi_receive(receive_request(8, 4), 8, None, &mut sink).unwrap();
    sink.room = usize::MAX;
    engine.deliver_held(&mut sink);
    let ended: Vec<(u64, bool)> = sink
        .ended
        .iter()
        .map(|ended| match ended {
            Ok(completion) => (completion.context, true),
            Err(failure) => (failure.completion.context, false),
        })
        .collect();
    assert_eq!(ended, [(1, true), (1, true), (1, true), (1, false), (2, false), (3, false), (4, false)]);
    assert_eq!(engine.outstanding_receives(), 0);
    sink.take_ended();
    engine.post_multi_receive(receive_request(8, 5), 8, None, &mut sink).unwrap();
    assert_eq!((sink.ended_contexts(), engine.outstanding_receives()), (vec![5], 0));
}
