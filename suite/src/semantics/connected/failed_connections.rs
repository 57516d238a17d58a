//! Connections that end with the first operation that fails (`Endpoint::set_ends_on_failure`).

use super::prelude::*;

/// A region that does not exist.
const NOTHING: RemoteMemory = RemoteMemory { key: 0x5eed, address: 0 };

/// Connects two endpoints. The second one receives through the context, if there is one. Both end with the
/// first failure if `ends_on_failure`.
pub(super) fn connect(
    client: &Side,
    server: &Side,
    context: Option<&SharedReceiveContext>,
    ends_on_failure: bool,
) -> (Endpoint, Endpoint) {
    let listener = server.open_listener(LISTENER);
    let connecting = client.open_endpoint(CLIENT);
    connecting.set_ends_on_failure(ends_on_failure).unwrap();
    connecting.connect(listener.name().unwrap(), b"").unwrap();
    let request = next_request_of_first_side(&[server, client]);
    let mut info = request.info();
    if context.is_some() {
        info.ep.rx_ctx_cnt = SHARED_CONTEXT;
    }
    let accepting = server.domain.endpoint_for_request(&info, &request).unwrap();
    let accepting = server.bind_endpoint(accepting, SERVER);
    if let Some(context) = context {
        accepting.bind_shared_receive_context(context).unwrap();
    }
    accepting.set_ends_on_failure(ends_on_failure).unwrap();
    accepting.accept(b"").unwrap();
    expect_connected(client, server, b"");
    (connecting, accepting)
}

fn write_to(memory: RemoteMemory, context: u64) -> WriteMsg {
    let (buffers, flags) = (vec![payload(context, 8)], OpFlags::empty());
    WriteMsg { buffers, to: NOWHERE, memory, data: None, context, flags }
}

#[track_caller]
fn expect_end(sides: &[&Side], endpoint: u64) -> ConnectionEnd {
    match next_event_of_first_side(sides) {
        Ok(ConnectionEvent::Shutdown { endpoint: of, end }) if of == endpoint => end,
        other => panic!("the connection has not ended: {other:?}"),
    }
}

#[track_caller]
fn next_failure(sides: &[&Side]) -> CompletionError {
    next_operation_end_of_first_side(sides).expect_err("it cannot succeed")
}

/// Waits for the failure of the operation with this context.
#[track_caller]
fn expect_failure(sides: &[&Side], context: u64, error: OperationError) {
    let failed = next_failure(sides);
    assert_eq!((failed.completion.context, failed.error), (context, error));
}

/// Expects the end of a connection at the side where an operation has failed, and at its peer.
#[track_caller]
fn expect_failed_connection((failed, failed_end): (&Side, u64), (peer, peer_end): (&Side, u64)) {
    assert_eq!(expect_end(&[failed, peer], failed_end), ConnectionEnd::OperationFailed);
    assert!(matches!(expect_end(&[peer, failed], peer_end), ConnectionEnd::Lost(_)));
}

/// Posts operations with the contexts 90 to 92.
fn post_each_kind(endpoint: &Endpoint) -> [Result<(), Errno>; 3] {
    let posted = [
        endpoint.recv(marked_buffer(8), NOWHERE, 90),
        endpoint.send(payload(1, 8), NOWHERE, 91),
        endpoint.writemsg(write_to(NOTHING, 92)).map_err(Error::from),
    ];
    posted.map(|posted| posted.map_err(|error| error.errno()))
}

/// Expects the ends of what [`post_each_kind`] has posted after the failure.
#[track_caller]
fn expect_late_posts_flushed(sides: &[&Side]) {
    (90..93).for_each(|context| expect_failure(sides, context, OperationError::Flushed));
}

#[over(connected, native)]
fn refused_write_flushes_all_operations(net: &Net) {
    let (client, server) = (Side::new(net), Side::new(net));
    let (one, other) = connect(&client, &server, None, true);
    for context in 1..4 {
        one.recv(marked_buffer(8), NOWHERE, context).unwrap();
        other.recv(marked_buffer(8), NOWHERE, context).unwrap();
    }
    one.writemsg(write_to(NOTHING, 10)).unwrap();
    // The peer posts no receive for these, so they do not match before the write fails.
    for context in 11..14 {
        let (buffers, flags) = (vec![payload(context, 8)], OpFlags::MATCH_COMPLETE);
        one.sendmsg(SendMsg { buffers, tag: Some(Tag(7)), context, flags, ..SendMsg::default() }).unwrap();
    }
    expect_failure(&[&client, &server], 10, OperationError::Refused(Refusal::Key));
    let failures = [(); 6].map(|()| next_failure(&[&client, &server]));
    for failed in &failures {
        assert_eq!((&failed.error, failed.errno()), (&OperationError::Flushed, Errno::ECANCELED));
    }
    let contexts = |flags: CompletionFlags| -> Vec<u64> {
        let of_kind = failures.iter().filter(|failed| failed.completion.flags.contains(flags));
        of_kind.map(|failed| failed.completion.context).collect()
    };
    assert_eq!(contexts(CompletionFlags::RECV), [1, 2, 3], "receives end in order");
    assert_eq!(contexts(CompletionFlags::SEND), [11, 12, 13]);
    assert_eq!(expect_end(&[&client, &server], CLIENT), ConnectionEnd::OperationFailed);
    assert_eq!(post_each_kind(&one), [Ok(()); 3]);
    expect_late_posts_flushed(&[&client, &server]);
    assert_eq!(one.shutdown(), Ok(()), "it has ended");
    assert_eq!(post_each_kind(&one), [Err(Errno::ENOTCONN); 3]);
    // For the peer, the connection is lost.
    assert!(matches!(expect_end(&[&server, &client], SERVER), ConnectionEnd::Lost(_)));
    for context in 1..4 {
        let failed = next_failure(&[&server, &client]);
        assert_eq!(failed.completion.context, context);
        assert!(matches!(failed.error, OperationError::Link(_)), "{:?}", failed.error);
    }
    assert!(matches!(client.cq.read(), Ok(None)) && matches!(server.cq.read(), Ok(None)));
    assert!(client.poll_event().is_none() && server.poll_event().is_none());
}

#[over(connected, native)]
fn truncated_receive_flushes_later_ones(net: &Net) {
    let (client, server) = (Side::new(net), Side::new(net));
    for len_bytes in [9, 5000, 100_000, 1 << 20] {
        let (one, other) = connect(&client, &server, None, true);
        (1..5).for_each(|context| other.recv(marked_buffer(8), NOWHERE, context).unwrap());
        let mut posted = Vec::new();
        for (context, len_bytes) in (1..).zip([8, len_bytes, 8, 8]) {
            match one.send(payload(context, len_bytes), NOWHERE, context) {
                Ok(()) => posted.push(context),
                // The second message may have ended the connection by now.
                Err(refused) => assert_eq!((refused.errno(), context > 2), (Errno::ENOTCONN, true)),
            }
        }
        let received = next_completion_of_first_side(&[&server, &client]);
        assert_eq!((received.context, received_bytes(&received.buffer)), (1, payload(1, 8).to_vec()));
        let overflow_bytes = len_bytes as u64 - 8;
        expect_failure(&[&server, &client], 2, OperationError::Truncated { overflow_bytes });
        for context in [3, 4] {
            expect_failure(&[&server, &client], context, OperationError::Flushed);
        }
        assert_eq!(expect_end(&[&server, &client], SERVER), ConnectionEnd::OperationFailed);
        assert_eq!(post_each_kind(&other), [Ok(()); 3]);
        expect_late_posts_flushed(&[&server, &client]);
        assert!(matches!(expect_end(&[&client, &server], CLIENT), ConnectionEnd::Lost(_)));
        // Each send has ended once, with success or not.
        let next_end = |_: &u64| match next_operation_end_of_first_side(&[&client, &server]) {
            Ok((completion, _)) => completion.context,
            Err(failed) => failed.completion.context,
        };
        let mut sent: Vec<u64> = posted.iter().map(next_end).collect();
        sent.sort_unstable();
        assert_eq!(sent, posted);
        assert!(matches!(client.cq.read(), Ok(None)) && matches!(server.cq.read(), Ok(None)));
        close_with_progress((one, other), &[&client, &server]);
    }
}

#[over(connected, native)]
fn receive_too_short_for_a_waiting_message_ends_the_connection(net: &Net) {
    let (client, server) = (Side::new(net), Side::new(net));
    let (one, other) = connect(&client, &server, None, true);
    for (context, len_bytes) in (1..).zip([9, 8, 8]) {
        let (buffers, flags) = (vec![payload(context, len_bytes)], OpFlags::DELIVERY_COMPLETE);
        one.sendmsg(SendMsg { buffers, context, flags, ..SendMsg::default() }).unwrap();
    }
    // All messages have arrived.
    for _ in 1..4 {
        next_completion_of_first_side(&[&client, &server]);
    }
    other.recv(marked_buffer(8), NOWHERE, 1).unwrap();
    // The receive has failed in the call, so the endpoint sends nothing after it.
    assert_eq!(post_each_kind(&other), [Ok(()); 3]);
    expect_failure(&[&server, &client], 1, OperationError::Truncated { overflow_bytes: 1 });
    expect_late_posts_flushed(&[&server, &client]);
    expect_failed_connection((&server, SERVER), (&client, CLIENT));
}

#[over(connected, native)]
fn cancel_and_accesses_of_the_peer_do_not_end_the_connection(net: &Net) {
    let (client, server) = (Side::new(net), Side::new(net));
    let (one, other) = connect(&client, &server, None, true);
    assert!(one.ends_on_failure());
    one.recv(marked_buffer(8), NOWHERE, 1).unwrap();
    one.cancel(1).unwrap();
    expect_failure(&[&client], 1, OperationError::Cancelled);
    let attr = MrAttr { access: MrAccess::REMOTE_WRITE, ..MrAttr::default() };
    let region = server.domain.register(8, &attr).unwrap();
    one.writemsg(write_to(region.remote(), 2)).unwrap();
    assert_eq!(next_completion_of_first_side(&[&client, &server]).context, 2);
    one.recv(marked_buffer(8), NOWHERE, 3).unwrap();
    other.send(payload(3, 8), NOWHERE, 3).unwrap();
    assert_eq!(next_completion_of_first_side(&[&client, &server]).context, 3);
    assert!(client.poll_event().is_none() && server.poll_event().is_none());
}

#[over(connected, native)]
fn truncated_receive_of_a_shared_context_ends_only_its_connection(net: &Net) {
    let (client, server) = (Side::new(net), Side::new(net));
    let context = server.domain.shared_receive_context(&server.info.rx).unwrap();

    let (connecting, accepting) = connect(&client, &server, Some(&context), true);
    (1..3).for_each(|number| context.recv(marked_buffer(8), NOWHERE, number).unwrap());
    connecting.send(payload(1, 9), NOWHERE, 1).unwrap();
    expect_failure(&[&server, &client], 1, OperationError::Truncated { overflow_bytes: 1 });
    expect_failed_connection((&server, SERVER), (&client, CLIENT));
    next_operation_end_of_first_side(&[&client, &server]).expect("it was sent");
    // The other receive stays posted, for other connections.
    close_with_progress((connecting, accepting), &[&client, &server]);
    let (second, _served) = connect(&client, &server, Some(&context), true);
    second.send(payload(2, 8), NOWHERE, 2).unwrap();
    assert_eq!(next_completion_of_first_side(&[&server, &client]).context, 2);
}

#[over(connected, native)]
fn ends_on_failure_is_refused_once_enabled_or_without_connections(net: &Net) {
    let side = Side::new(net);
    let endpoint = side.open_endpoint(CLIENT);
    endpoint.set_ends_on_failure(true).unwrap();
    endpoint.set_ends_on_failure(false).unwrap();
    endpoint.enable().unwrap();
    expect_error(endpoint.set_ends_on_failure(true), Errno::EOPBADSTATE);
    assert!(!endpoint.ends_on_failure());
    let unconnected = net.fabric.domain(net.info()).unwrap().endpoint(net.info()).unwrap();
    let refused = unconnected.set_ends_on_failure(true).unwrap_err();
    assert!(matches!(refused, Error::Misuse(Misuse::NotSupported(_))), "{refused}");
}
