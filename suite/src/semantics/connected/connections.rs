//! Connections: `fi_cm(3)`.

use super::prelude::*;

/// Lengths of messages that use every protocol.
const LENS_BYTES: [usize; 7] = [0, 1, 100, 5000, 100_000, 300_000, (1 << 20) + 1];

/// Waits until a connection request of the first side fails with this error and this data of the rejection.
#[track_caller]
fn expect_connection_failure(sides: &[&Side], endpoint: u64, errno: Errno, data: &[u8]) {
    let error = next_event_of_first_side(sides).expect_err("it cannot succeed");
    assert_eq!((error.object, error.errno, &error.err_data[..]), (endpoint, errno, data));
    let text = sides[0].eq.strerror(error.prov_errno);
    assert!(text.starts_with(error.errno.description()), "{text}");
}

/// Sends a message of each length from one endpoint to the other.
fn send_and_check_all_lengths(from: (&Side, &Endpoint), to: (&Side, &Endpoint)) {
    for (context, len_bytes) in (0..).zip(LENS_BYTES) {
        to.1.recv(marked_buffer(len_bytes), NOWHERE, context).unwrap();
        to.1.trecv(marked_buffer(len_bytes), NOWHERE, Tag(context), 100 + context).unwrap();
        let tagged = payload(100 + context, len_bytes);
        from.1.tsend(tagged, NOWHERE, Tag(context), 100 + context).unwrap();
        let (buffers, data) = (vec![payload(context, len_bytes)], Some(context));
        let flags = OpFlags::DELIVERY_COMPLETE;
        from.1.sendmsg(SendMsg { buffers, to: NOWHERE, data, context, flags, ..SendMsg::default() }).unwrap();
    }
    let mut arrived = BTreeSet::new();
    for _ in 0..2 * LENS_BYTES.len() {
        let Completion { context, buffer, .. } = next_completion_of_first_side(&[to.0, from.0]);
        assert!(arrived.insert(context), "message {context} has arrived before");
        let message = payload(context, LENS_BYTES[context as usize % 100]);
        assert!(received_bytes(&buffer) == message, "message {context}");
        next_completion_of_first_side(&[from.0, to.0]);
    }
}

/// Shows fi_endpoint/connect-enables, fi_eq/connection-events, fi_eq/connected-on-both-sides,
/// fi_cm/accept-connects-both, fi_endpoint/connection-needs-info-of-request.
#[over(connected, automatic, own)]
fn accepted_request_connects_both_endpoints(net: &Net) {
    let (client, server) = (Side::new(net), Side::new(net));
    let longest = payload(7, CONNECTION_DATA_MAX_BYTES);
    for (asks, answers) in [(&b""[..], &b""[..]), (b"x", &longest), (&longest, b"y")] {
        let listener = server.open_listener(LISTENER);
        let name = listener.name().unwrap();
        let connecting = client.open_endpoint(CLIENT);
        expect_error(connecting.peer(), Errno::ENOTCONN);
        connecting.connect(name, asks).unwrap();
        let request = next_request_of_first_side(&[&server, &client]);
        assert_eq!((request.data(), request.passive_endpoint()), (asks, LISTENER));
        let info = request.info();
        assert_eq!((info.src_addr, info.ep.ep_type), (Some(name), Some(EndpointType::Msg)));
        assert_eq!(info.dest_addr, Some(connecting.name().unwrap()));
        let accepting = server.accept(&request, answers);
        expect_connected(&client, &server, answers);
        // Both ends report the address that the client requested, as sockets do.
        assert_eq!([connecting.peer(), accepting.name()], [Ok(name), Ok(name)]);
        assert_eq!([accepting.peer(), connecting.name()], [(); 2].map(|()| Ok(info.dest_addr.unwrap())));
        drop(connecting);
        assert_eq!(next_event_of_first_side(&[&server, &client]), Ok(make_shutdown_event(SERVER)));
        assert!(server.poll_event().is_none() && client.poll_event().is_none());
    }
}

/// Shows fi_eq/eq-eavail-means-readerr, fi_cm/rejected-request-is-error.
#[over(connected, automatic, own)]
fn rejected_request_fails_with_econnrefused(net: &Net) {
    let (client, server, listener) = open_sides(net);
    let longest = payload(7, CONNECTION_DATA_MAX_BYTES);
    for answers in [&b""[..], b"no", &longest] {
        let (connecting, request) = ask(&client, &server, &listener, b"please");
        connecting.recv(marked_buffer(8), NOWHERE, 1).unwrap();
        request.reject(answers).unwrap();
        expect_error(request.reject(answers), Errno::EOPBADSTATE);
        expect_error(server.domain.endpoint_for_request(&request.info(), &request), Errno::EOPBADSTATE);
        expect_connection_failure(&[&client, &server], CLIENT, Errno::ECONNREFUSED, answers);
        let failed = next_operation_end_of_first_side(&[&client, &server])
            .expect_err("nothing will ever arrive for it");
        assert_eq!((failed.completion.context, failed.errno()), (1, Errno::ECONNREFUSED));
        expect_error(connecting.connect(listener.name().unwrap(), b""), Errno::EOPBADSTATE);
        expect_error(connecting.send(payload(1, 1), NOWHERE, 2), Errno::ENOTCONN);
        assert_eq!(connecting.shutdown(), Ok(()), "there is nothing to end");
    }
    // Dropping a request rejects it.
    let (_connecting, request) = ask(&client, &server, &listener, b"please");
    drop(request);
    expect_connection_failure(&[&client, &server], CLIENT, Errno::ECONNREFUSED, b"");
}

/// Shows fi_cm/rejected-request-is-error.
#[over(connected, native)]
fn connect_without_a_listener_fails_with_econnrefused(net: &Net) {
    let (client, server) = (Side::new(net), Side::new(net));
    let vacancy = net.reserve_vacant_address();
    let connecting = client.open_endpoint(CLIENT);
    connecting.connect(vacancy.address, b"hello?").unwrap();
    expect_connection_failure(&[&client, &server], CLIENT, Errno::ECONNREFUSED, b"");
    // An unconnected endpoint refuses requests, too, and still works. Further calls of connect are
    // refused, and must not change the peer that the event names.
    let (alice, bob) = net.open_pair();
    let name = alice.endpoint.name().unwrap();
    let connecting = client.open_endpoint(CLIENT);
    connecting.connect(name, b"hello?").unwrap();
    let heard = poll_until("an answer", || {
        // Another thread may report the event at any moment of this call.
        expect_error(connecting.connect(vacancy.address, b""), Errno::EOPBADSTATE);
        alice.local_cq().progress();
        client.poll_event()
    });
    let refused = heard.expect_err("it has no connections");
    assert_eq!((refused.errno, refused.peer), (Errno::ECONNREFUSED, Some(name)));
    assert_eq!(refused.to_string(), format!("there is no connection to {name}: Connection refused"));
    alice.exchange_long_messages(&bob);
    // A connected endpoint also refuses requests, and still works.
    let (one, other) = connect_pair(&client, &server);
    let connecting = client.open_endpoint(9);
    connecting.connect(one.name().unwrap(), b"hello?").unwrap();
    let refused = next_event_of_first_side(&[&client, &server]).expect_err("it has its connection");
    assert!([Errno::ECONNREFUSED, Errno::ECONNRESET].contains(&refused.errno), "{refused:?}");
    send_and_check_all_lengths((&client, &one), (&server, &other));
}

#[over(connected, automatic)]
fn connection_carries_messages_both_ways(net: &Net) {
    let ((client, one), (server, other)) = open_connection(net);
    send_and_check_all_lengths((&client, &one), (&server, &other));
    send_and_check_all_lengths((&server, &other), (&client, &one));
    // The other end is the only source, whatever address a receive names.
    for from in [NOWHERE, FabricAddress(17)] {
        one.inject(b"injected", NOWHERE, None, None).unwrap();
        other.recv(marked_buffer(8), from, 1).unwrap();
        assert_eq!(next_message_of_first_side(&[&server, &client]), b"injected");
    }
}

/// Each access is counted and fenced. The fence makes it find the effects of the previous accesses.
#[over(connected, native)]
fn connection_carries_fenced_rma_and_atomics(net: &Net) {
    const LEN_BYTES: usize = 100_000;
    let ((client, one), (server, _other)) = open_connection(net);
    let counter = open_counter(&client.domain, WaitObject::None);
    one.bind_counter(&counter, READ | WRITE).unwrap();
    let region = server.domain.register(LEN_BYTES, &MrAttr::granting(EVERYTHING)).unwrap();
    let (to, memory, flags) = (NOWHERE, region.remote(), OpFlags::FENCE);
    let target = AtomicTarget { peer: to, memory, datatype: Datatype::Uint64, op: AtomicOp::Sum };
    for round in 0..3 {
        let number = 100 * round;
        let mut content = payload(round, LEN_BYTES).to_vec();
        content[..8].copy_from_slice(&number.to_le_bytes());
        one.write(Bytes::from(content.clone()), to, memory, 1).unwrap();
        let (operands, results) = (vec![5_u64.to_le_bytes().to_vec().into()], vec![marked_buffer(8)]);
        one.fetch_atomicmsg(FetchAtomicMsg { operands, results, target, context: 2, flags }).unwrap();
        let buffers = vec![marked_buffer(LEN_BYTES)];
        one.readmsg(ReadMsg { buffers, from: NOWHERE, memory, context: 3, flags }).unwrap();
        let ended = [(); 3].map(|()| next_completion_of_first_side(&[&client, &server]));
        assert_eq!(ended.each_ref().map(|completion| completion.context), [1, 2, 3]);
        assert_eq!(received_bytes(&ended[1].buffer), number.to_le_bytes());
        content[..8].copy_from_slice(&(number + 5).to_le_bytes());
        assert!(received_bytes(&ended[2].buffer) == content);
        assert_eq!(counter.read(), 3 * (round + 1));
    }
}

/// Shows fi_tagged/tagged-send-needs-connection, fi_cm/no-send-before-connected.
#[over(connected, own)]
fn send_before_connection_fails_with_enotconn(net: &Net) {
    let (client, server, listener) = open_sides(net);
    let connecting = client.open_endpoint(CLIENT);
    connecting.enable().unwrap();
    connecting.recv(marked_buffer(8), NOWHERE, 1).unwrap();
    let refuse = |endpoint: &Endpoint| {
        expect_error(endpoint.send(payload(1, 8), NOWHERE, 2), Errno::ENOTCONN);
        expect_error(endpoint.inject(b"x", NOWHERE, None, None), Errno::ENOTCONN);
        expect_error(endpoint.shutdown(), Errno::ENOTCONN);
    };
    refuse(&connecting);
    connecting.connect(listener.name().unwrap(), b"").unwrap();
    refuse(&connecting);
    let accepting =
        server.open_endpoint_for_request(&next_request_of_first_side(&[&server, &client]), SERVER);
    accepting.enable().unwrap();
    accepting.recv(marked_buffer(8), NOWHERE, 3).unwrap();
    refuse(&accepting);
    accepting.accept(b"").unwrap();
    assert_eq!(next_event_of_first_side(&[&server, &client]), Ok(make_connected_event(SERVER, b"")));
    // The server may send before the client has read its event.
    accepting.send(payload(4, 8), NOWHERE, 4).unwrap();
    assert_eq!(next_completion_of_first_side(&[&server, &client]).context, 4);
    assert_eq!(next_message_of_first_side(&[&client, &server]), payload(4, 8));
    assert_eq!(next_event_of_first_side(&[&client, &server]), Ok(make_connected_event(CLIENT, b"")));
    connecting.send(payload(5, 8), NOWHERE, 5).unwrap();
    assert_eq!(next_completion_of_first_side(&[&client, &server]).context, 5);
    assert_eq!(next_message_of_first_side(&[&server, &client]), payload(5, 8));
}

#[over(connected, automatic, native)]
fn unread_request_leaves_the_event_queue_when_its_requester_closes(net: &Net) {
    let (client, server, listener) = open_sides(net);
    listener.set_backlog(1).unwrap();
    let name = listener.name().unwrap();
    let ask = |data: &[u8]| {
        let connecting = client.open_endpoint(CLIENT);
        connecting.connect(name, data).unwrap();
        let request = poll_until("a request", || {
            client.progress();
            // A peek leaves the event in the queue.
            server.peek_request()
        });
        assert_eq!(request.data(), data, "it is the only one");
        (connecting, request)
    };
    for round in 0..20 {
        let (connecting, request) = ask(&[round]);
        close_with_progress(connecting, &[&client, &server]);
        poll_until("that the request is withdrawn", || {
            server.progress();
            (server.eq.peek() == Ok(None)).then_some(())
        });
        // The server peeked at the request, and the requester withdrew it. Every call for the request still
        // succeeds.
        match round {
            0 => drop(request),
            1 => request.reject(b"too late").unwrap(),
            2 => {
                let _accepting = server.accept(&request, b"too late");
                expect_connection_failure(&[&server, &client], SERVER, Errno::ECONNABORTED, b"");
            }
            _ => {}
        }
    }
    // The remaining request can be read and accepted.
    let (_connecting, peeked) = ask(b"please");
    let request = next_request_of_first_side(&[&server, &client]);
    assert_eq!(request, peeked);
    let _accepting = server.accept(&request, b"");
    expect_connected(&client, &server, b"");
}

#[over(connected, own)]
fn waiting_requests_are_refused_when_the_listener_closes(net: &Net) {
    let (client, server, listener) = open_sides(net);
    let name = listener.name().unwrap();
    let waiting: Vec<Endpoint> = (0..4).map(|number| client.open_endpoint(number)).collect();
    waiting.iter().for_each(|endpoint| endpoint.connect(name, b"").unwrap());
    // One request was read. The others may have arrived.
    let read = next_request_of_first_side(&[&server, &client]);
    drop(listener);
    let refused = [(); 3].map(|()| {
        let error = next_event_of_first_side(&[&client, &server]).expect_err("the listener is closed");
        assert_eq!(error.errno, Errno::ECONNREFUSED, "{error:?}");
        error.object
    });
    assert!(server.poll_event().is_none(), "unread requests are withdrawn");
    // The request that was read can still be accepted.
    let accepting = server.accept(&read, b"welcome");
    assert_eq!(next_event_of_first_side(&[&server, &client]), Ok(make_connected_event(SERVER, b"")));
    let last = (0..4).find(|number| !refused.contains(number)).unwrap();
    assert_eq!(next_event_of_first_side(&[&client, &server]), Ok(make_connected_event(last, b"welcome")));
    // The name is free again once its last user has closed.
    drop((accepting, read));
    poll_until("the address", || net.probe_address_is_free(name).then_some(()));
}

/// Shows fi_cm/accept-needs-handle.
#[over(connected, own)]
fn request_is_accepted_after_its_first_endpoint_closes(net: &Net) {
    let (client, server, listener) = open_sides(net);
    let (_connecting, request) = ask(&client, &server, &listener, b"");
    let first = server.open_endpoint_for_request(&request, 7);
    expect_error(server.domain.endpoint_for_request(&request.info(), &request), Errno::EOPBADSTATE);
    expect_error(first.connect(listener.name().unwrap(), b""), Errno::EOPBADSTATE);
    expect_error(first.set_name(listener.name().unwrap().with_port(0)), Errno::EOPBADSTATE);
    drop(first);
    let second = server.accept(&request, b"");
    expect_error(second.accept(b""), Errno::EOPBADSTATE);
    expect_error(request.reject(b""), Errno::EOPBADSTATE);
    expect_connected(&client, &server, b"");
    // The endpoint was opened for this request before the rejection. The endpoint can no longer accept the
    // request.
    let (_connecting, request) = ask(&client, &server, &listener, b"");
    let late = server.open_endpoint_for_request(&request, SERVER);
    request.reject(b"no").unwrap();
    expect_error(late.accept(b""), Errno::EOPBADSTATE);
    expect_connection_failure(&[&client, &server], CLIENT, Errno::ECONNREFUSED, b"no");
}

/// Shows fi_cm/backlog.
#[over(connected, own)]
fn requests_beyond_the_backlog_are_refused(net: &Net) {
    let (client, server, listener) = open_sides(net);
    expect_error(listener.set_backlog(0), Errno::EINVAL);
    listener.set_backlog(2).unwrap();
    let name = listener.name().unwrap();
    let asking = [1, 2, 3, 4, 5].map(|number| client.open_endpoint(number));
    let ask = |number: usize| asking[number - 1].connect(name, b"").unwrap();
    ask(1);
    let one = next_request_of_first_side(&[&server, &client]);
    ask(2);
    let two = next_request_of_first_side(&[&server, &client]);
    ask(3);
    expect_connection_failure(&[&client, &server], 3, Errno::ECONNREFUSED, b"");
    one.reject(b"").unwrap();
    expect_connection_failure(&[&client, &server], 1, Errno::ECONNREFUSED, b"");
    ask(4);
    let _four = next_request_of_first_side(&[&server, &client]);
    let _accepting = server.accept(&two, b"");
    // A request no longer counts once its accept has begun.
    ask(5);
    let (mut is_connected, mut five) = (false, None);
    while !is_connected || five.is_none() {
        match next_event_of_first_side(&[&server, &client]) {
            Ok(ConnectionEvent::Request(request)) => five = Some(request),
            event => is_connected = event == Ok(make_connected_event(SERVER, b"")),
        }
    }
}

/// Shows fi_endpoint/take-over-passive-endpoint.
#[over(connected, own)]
fn endpoint_takes_over_address_of_passive_endpoint(net: &Net) {
    let (client, server, listener) = open_sides(net);
    let reserved = client.fabric.passive_endpoint(&client.info).unwrap();
    let name = reserved.name().unwrap();
    assert_eq!(expect_errno(reserved.set_name(name)), Errno::EOPBADSTATE, "it has its name");
    let connecting = client.domain.endpoint_from_passive(&client.info, &reserved).unwrap();
    let connecting = client.bind_endpoint(connecting, CLIENT);
    assert_eq!(connecting.name(), Ok(name));
    for refused in [
        reserved.bind_eq(&client.eq, 9),
        reserved.listen(),
        reserved.set_backlog(1),
        client.domain.endpoint_from_passive(&client.info, &reserved).map(|_| ()),
    ] {
        expect_error(refused, Errno::EOPBADSTATE);
    }
    drop(reserved);
    connecting.connect(listener.name().unwrap(), b"").unwrap();
    let request = next_request_of_first_side(&[&server, &client]);
    assert_eq!(request.info().dest_addr, Some(name));
    let accepting = server.accept(&request, b"");
    expect_connected(&client, &server, b"");
    assert_eq!(connecting.name(), Ok(name));
    send_and_check_all_lengths((&client, &connecting), (&server, &accepting));
    // A listening endpoint keeps its address.
    expect_error(server.domain.endpoint_from_passive(&server.info, &listener), Errno::EOPBADSTATE);
}

/// Shows fi_cm/connect-once.
#[over(connected, native)]
fn invalid_connection_calls_are_refused(net: &Net) {
    let side = Side::new(net);
    let listener = side.open_listener(LISTENER);
    let name = listener.name().unwrap();
    let too_much = [0; CONNECTION_DATA_MAX_BYTES + 1];

    let unbound = side.domain.endpoint(&side.info).unwrap();
    expect_error(unbound.enable(), Errno::ENOEQ);
    unbound.bind_eq(&side.eq, 1).unwrap();
    unbound.bind_eq(&side.eq, 1).unwrap();
    let other_eq = side.fabric.open_eq(&EqAttr::default()).unwrap();
    expect_error(unbound.bind_eq(&other_eq, 1), Errno::EBUSY);
    expect_error(unbound.connect(name, b""), Errno::ENOCQ);
    unbound.bind_cq(&side.cq, BOTH).unwrap();
    assert_eq!(expect_errno(unbound.accept(b"")), Errno::EOPBADSTATE, "it was not opened for a request");
    expect_error(unbound.connect(name, &too_much), Errno::EINVAL);
    expect_error(unbound.connect(name.with_port(0), b""), Errno::EINVAL);
    let other_format = make_address_of_other_format(name);
    expect_error(unbound.connect(other_format, b""), Errno::EINVAL);
    unbound.connect(name, b"").unwrap();
    expect_error(unbound.connect(name, b""), Errno::EOPBADSTATE);

    let passive = side.fabric.passive_endpoint(&side.info).unwrap();
    expect_error(passive.listen(), Errno::ENOEQ);
    passive.bind_eq(&side.eq, 1).unwrap();
    expect_error(passive.bind_eq(&side.eq, 1), Errno::EBUSY);
    expect_error(passive.set_name(other_format), Errno::EINVAL);
    assert_eq!(expect_errno(side.fabric.passive_endpoint(net.info())), Errno::EINVAL, "another type");
    let mut nowhere = side.info.clone();
    nowhere.domain.name = Some("nowhere".into());
    expect_error(side.fabric.passive_endpoint(&nowhere), Errno::ENOENT);
    expect_error(side.domain.endpoint_from_passive(net.info(), &passive), Errno::EINVAL);

    // Unconnected endpoints accept an event queue, but no connection calls.
    let unconnected = side.domain.endpoint(net.info()).unwrap();
    unconnected.bind_eq(&side.eq, 1).unwrap();
    expect_error(unconnected.connect(name, b""), Errno::ENOSYS);
    expect_error(unconnected.accept(b""), Errno::ENOSYS);
    expect_error(unconnected.shutdown(), Errno::ENOSYS);

    let request = next_request_of_first_side(&[&side]);
    expect_error(request.reject(&too_much), Errno::EINVAL);
    let accepting = side.open_endpoint_for_request(&request, SERVER);
    expect_error(accepting.accept(&too_much), Errno::EINVAL);
    expect_error(accepting.enable().and_then(|()| accepting.accept(&too_much)), Errno::EINVAL);
    accepting.accept(b"").unwrap();
    let mut asked = side.info.clone();
    asked.caps = Caps::MSG | Caps::SOURCE;
    expect_error(side.domain.endpoint(&asked), Errno::EINVAL);
}

/// Shows fi_eq/close-eq-ebusy.
#[over(connected, native)]
fn close_of_a_bound_event_queue_fails_with_ebusy(net: &Net) {
    let side = Side::new(net);
    let listener = side.open_listener(LISTENER);
    let endpoint = side.open_endpoint(CLIENT);
    let eq = expect_busy(side.eq.clone().close());
    drop((listener, endpoint));
    assert!(eq.close().is_ok());
}

/// The library's own threads, if it has any, make the connection.
#[over(automatic)]
fn connection_is_made_without_reads_by_the_application(net: &Net) {
    let (client, server, listener) = open_sides(net);
    let connecting = client.open_endpoint(CLIENT);
    connecting.connect(listener.name().unwrap(), b"").unwrap();
    connecting.recv(marked_buffer(8), NOWHERE, 1).unwrap();
    let accepting = server.accept(&next_request_of_first_side(&[&server]), b"");
    // The client is connected too, before it has read a queue.
    for (identity, endpoint) in [(1, &accepting), (2, &connecting)] {
        poll_until("a connection", || endpoint.send(payload(identity, 8), NOWHERE, 2).ok());
    }
    assert_eq!(next_event_of_first_side(&[&client]), Ok(make_connected_event(CLIENT, b"")));
}
