//! The end of a connection, by `fi_shutdown` or by closing an endpoint: `fi_cm(3)`.

use super::prelude::*;

/// Shows fi_eq/connection-events, fi_cm/shutdown-event.
#[over(connected, automatic)]
fn peer_of_a_shutdown_gets_its_messages_and_one_event(net: &Net) {
    for shuts_down in [true, false] {
        let ((client, one), (server, other)) = open_connection(net);
        for context in 0..5 {
            other.recv(marked_buffer(100), NOWHERE, context).unwrap();
            one.send(payload(context, 100), NOWHERE, context).unwrap();
            assert_eq!(next_completion_of_first_side(&[&client, &server]).context, context);
        }
        if shuts_down {
            one.shutdown().unwrap();
        }
        // Or else the endpoint closes.
        let _one = shuts_down.then_some(one);
        for context in 0..5 {
            assert_eq!(next_message_of_first_side(&[&server, &client]), payload(context, 100));
        }
        assert_eq!(next_event_of_first_side(&[&server, &client]), Ok(make_shutdown_event(SERVER)));
        assert!(server.poll_event().is_none());
    }
}

/// No page promises what receives and posts find after the end of the connection, or that the side which
/// ends it gets an event.
/// Shows fi_eq/connection-events, fi_cm/shutdown-event.
#[over(connected, automatic, own)]
fn messages_sent_before_a_shutdown_arrive_before_its_event(net: &Net) {
    let (client, server) = (Side::new(net), Side::new(net));
    for (shuts_down, count) in [(true, 5), (false, 50)] {
        let (one, other) = connect_pair(&client, &server);
        other.recv(marked_buffer(100), NOWHERE, 1).unwrap();
        for context in 0..count {
            one.send(payload(context, 100), NOWHERE, context).unwrap();
            assert_eq!(next_completion_of_first_side(&[&client, &server]).context, context);
        }
        if shuts_down {
            one.shutdown().unwrap();
        }
        // Or else the endpoint closes.
        let one = shuts_down.then_some(one);
        assert_eq!(next_event_of_first_side(&[&server, &client]), Ok(make_shutdown_event(SERVER)));
        assert_eq!(next_message_of_first_side(&[&server, &client]), payload(0, 100));
        // The connection has ended, but no message that has arrived is lost.
        for context in 1..count {
            other.recv(marked_buffer(100), NOWHERE, context).unwrap();
            assert_eq!(next_message_of_first_side(&[&server, &client]), payload(context, 100));
        }
        expect_error(other.recv(marked_buffer(100), NOWHERE, 9), Errno::ENOTCONN);
        expect_error(other.send(payload(1, 8), NOWHERE, 9), Errno::ENOTCONN);
        if let Some(one) = one {
            // The peer knows.
            assert_eq!(next_event_of_first_side(&[&client, &server]), Ok(make_shutdown_event(CLIENT)));
            assert_eq!(one.shutdown(), Ok(()));
        }
        assert!(server.poll_event().is_none() && client.poll_event().is_none());
    }
}

/// Shows fi_cm/shutdown-keeps-completions.
#[over(connected, native)]
fn completion_before_a_shutdown_is_read_after_it(net: &Net) {
    let ((client, one), _server) = open_connection(net);
    one.send(payload(1, 8), NOWHERE, 1).unwrap();
    poll_until("a completion", || client.cq.read_each(0, |_, _| panic!("nothing is asked for")).unwrap());
    one.shutdown().unwrap();
    assert_eq!(next_completion_of_first_side(&[&client]).context, 1);
}

/// Shows fi_cm/shutdown-cancels-or-discards.
#[over(connected, native)]
fn operations_fail_when_the_connection_ends(net: &Net) {
    let ((client, one), (server, other)) = open_connection(net);
    other.recv(marked_buffer(8), NOWHERE, 1).unwrap();
    other.trecv(marked_buffer(8), NOWHERE, Tag(7), 2).unwrap();
    one.recv(marked_buffer(8), NOWHERE, 3).unwrap();
    // The peer posts no receive for this message.
    let (buffers, flags) = (vec![payload(4, 8)], OpFlags::MATCH_COMPLETE);
    let send = SendMsg { buffers, tag: Some(Tag(1)), context: 4, flags, ..SendMsg::default() };
    one.sendmsg(send).unwrap();
    one.shutdown().unwrap();
    let mut ended = [(); 2].map(|()| {
        // A cancelled operation has ended when the call returns.
        let failed = next_operation_end_of_first_side(&[&client]).expect_err("it was cancelled");
        assert_eq!(failed.error, OperationError::Cancelled);
        failed.completion.context
    });
    ended.sort_unstable();
    assert_eq!(ended, [3, 4]);
    for context in [1, 2] {
        let failed = next_operation_end_of_first_side(&[&server, &client]).expect_err("no sender is left");
        let error = OperationError::Link(LinkError::Closed);
        assert_eq!((failed.completion.context, failed.error), (context, error));
    }
    expect_shut_down(&client, &server);
}

#[over(connected)]
fn send_of_a_received_message_succeeds_although_the_receiver_shuts_down(net: &Net) {
    let (client, server) = (Side::new(net), Side::new(net));
    for len_bytes in [0, 8, 5000, 300_000] {
        let (one, other) = connect_pair(&client, &server);
        let (buffers, flags) = (vec![payload(1, len_bytes)], OpFlags::MATCH_COMPLETE);
        one.sendmsg(SendMsg { buffers, context: 1, flags, ..SendMsg::default() }).unwrap();
        for _ in 0..100 {
            client.progress();
            server.progress();
        }
        // The message has arrived before, or arrives now.
        other.recv(marked_buffer(len_bytes), NOWHERE, 2).unwrap();
        assert!(next_message_of_first_side(&[&server, &client]) == payload(1, len_bytes));
        other.shutdown().unwrap();
        assert_eq!(next_completion_of_first_side(&[&client, &server]).context, 1, "{len_bytes} bytes");
        expect_shut_down(&client, &server);
    }
}

/// Shows fi_cm/shutdown-event.
#[over(connected, automatic)]
fn simultaneous_shutdowns_reach_both_sides(net: &Net) {
    let (client, server) = (Side::new(net), Side::new(net));
    for _ in 0..10 {
        let (one, other) = connect_pair(&client, &server);
        one.shutdown().unwrap();
        other.shutdown().unwrap();
        expect_shut_down(&client, &server);
        drop((one, other));
        assert!(server.poll_event().is_none() && client.poll_event().is_none());
    }
}

/// No page promises that a message arrives although its sender closes, and its receive is posted later.
#[over(connected, own)]
fn accepted_request_connects_although_the_server_closes_at_once(net: &Net) {
    let (client, server) = (Side::new(net), Side::new(net));
    for round in 0..10 {
        let listener = server.open_listener(LISTENER);
        let (connecting, request) = ask(&client, &server, &listener, b"");
        let accepting = server.accept(&request, b"welcome");
        drop(request);
        drop(listener);
        let connected = next_event_of_first_side(&[&server, &client]);
        assert_eq!(connected, Ok(make_connected_event(SERVER, b"")), "{round}");
        accepting.send(payload(1, 8), NOWHERE, 1).unwrap();
        next_completion_of_first_side(&[&server]);
        // The client has made no progress since the server was connected. The close waits until the server's
        // messages are sent.
        thread::scope(|scope| {
            scope.spawn(|| drop(accepting));
            let connected = next_event_of_first_side(&[&client]);
            assert_eq!(connected, Ok(make_connected_event(CLIENT, b"welcome")), "{round}");
            assert_eq!(next_event_of_first_side(&[&client]), Ok(make_shutdown_event(CLIENT)), "{round}");
        });
        connecting.recv(marked_buffer(8), NOWHERE, 2).unwrap();
        assert_eq!(next_message_of_first_side(&[&client]), payload(1, 8), "{round}");
    }
}

#[over(connected, automatic, native)]
fn connection_objects_may_be_dropped_in_any_order(net: &Net) {
    for order in 0..6 {
        let (client, server, listener) = open_sides(net);
        let connecting = client.open_endpoint(CLIENT);
        connecting.connect(listener.name().unwrap(), b"").unwrap();
        let request = next_request_of_first_side(&[&server, &client]);
        let accepting = server.open_endpoint_for_request(&request, SERVER);
        if order % 2 == 0 {
            accepting.accept(b"").unwrap();
        }
        // The parts of a tuple are dropped in their order.
        match order / 2 {
            0 => drop((server, client, request, accepting, listener, connecting)),
            1 => drop((connecting, listener, accepting, request, server, client)),
            _ => drop((listener, server, request, connecting, accepting, client)),
        }
    }
}

#[over(connected, native)]
fn long_message_in_flight_arrives_whole_or_fails_at_shutdown(net: &Net) {
    let (client, server) = (Side::new(net), Side::new(net));
    for shuts_down in [0, 1] {
        let (one, other) = connect_pair(&client, &server);
        other.recv(marked_buffer(5 << 20), NOWHERE, 1).unwrap();
        one.send(payload(1, 5 << 20), NOWHERE, 2).unwrap();
        for _ in 0..3 {
            server.progress();
            client.progress();
        }
        [&one, &other][shuts_down].shutdown().unwrap();
        // The send may succeed or fail. If the sender shut down and the send succeeded, the message has
        // arrived.
        let sent = next_operation_end_of_first_side(&[&client, &server]).is_ok();
        let arrived = next_operation_end_of_first_side(&[&server, &client]);
        assert!(!sent || arrived.is_ok() || shuts_down == 1, "{arrived:?}");
        assert_eq!(next_event_of_first_side(&[&client, &server]), Ok(make_shutdown_event(CLIENT)));
        let end = next_event_of_first_side(&[&server, &client]);
        // The sender can say nothing more after a part of a message.
        let is_cut_off = shuts_down == 0
            && arrived.is_err()
            && matches!(end, Ok(ConnectionEvent::Shutdown { end: ConnectionEnd::Lost(_), .. }));
        assert!(is_cut_off || end == Ok(make_shutdown_event(SERVER)), "{end:?}");
        if let Ok((completion, _)) = arrived {
            assert!(received_bytes(&completion.buffer) == payload(1, 5 << 20));
        }
    }
}
