//! Connections: `fi_cm(3)`.

use std::thread;
use std::time::Duration;

use homespun::atomic::{AtomicOp, Datatype};
use homespun::endpoint::{AtomicTarget, FetchAtomicMsg, ReadMsg, SendMsg, WriteMsg};
use homespun::eq::{EqAttr, Event};
use homespun::flags::{BindFlags, Caps, CounterEvents, MrAccess, OpFlags};
use homespun::info::EndpointType;
use homespun::limits::CONNECTION_DATA_MAX_BYTES;
use homespun::{
    Bytes, ConnectionEvent, CounterAttr, Endpoint, EqReadError, Errno, Error, FabricAddress, MrAttr,
};

use crate::suite::connecting::{CLIENT, LISTENER, SERVER, Side, close, completion, end, hear, pair, request};
use crate::suite::payload::{payload, received, room};
use crate::suite::{Deadline, Net};

/// What posts are given in place of an address, which is not looked at.
const NOWHERE: FabricAddress = FabricAddress(0x5eed);

/// Lengths of messages that travel in every way that there is.
const LENS_BYTES: [usize; 7] = [0, 1, 100, 5000, 100_000, 300_000, (1 << 20) + 1];

fn connected(endpoint: u64, data: &[u8]) -> ConnectionEvent {
    ConnectionEvent::Connected { endpoint, data: data.into() }
}

fn shutdown(endpoint: u64) -> ConnectionEvent {
    ConnectionEvent::Shutdown { endpoint }
}

#[track_caller]
fn errno<T>(result: Result<T, Error>) -> Errno {
    result.err().expect("it is refused").errno()
}

/// Why an attempt to connect has failed, and what the other side had to say.
#[track_caller]
fn failure(sides: &[&Side], endpoint: u64) -> (Errno, Vec<u8>) {
    match hear(sides) {
        Err(error) => {
            assert_eq!((error.object, error.prov_errno), (endpoint, error.errno.raw()));
            assert_eq!(sides[0].eq.strerror(error.prov_errno), error.errno.description());
            (error.errno, error.err_data)
        }
        Ok(event) => panic!("it has not failed: {event:?}"),
    }
}

/// Sends a message of each length from one to the other.
fn send_all(from: (&Side, &Endpoint), to: (&Side, &Endpoint)) {
    let sides = |first, second| [first, second];
    for (context, len_bytes) in (0..).zip(LENS_BYTES) {
        to.1.recv(room(len_bytes), NOWHERE, context).expect("room for a receive");
        to.1.trecv(room(len_bytes), NOWHERE, context, 0, 100 + context).expect("room for a receive");
        from.1.tsend(payload(!context, len_bytes), NOWHERE, context, 100 + context).expect("room for a send");
        let (buffers, flags) = (vec![payload(context, len_bytes)], OpFlags::DELIVERY_COMPLETE);
        let send =
            SendMsg { buffers, to: NOWHERE, data: Some(context), context, flags, ..SendMsg::default() };
        from.1.sendmsg(send).expect("room for a send");
    }
    let mut contents = Vec::new();
    for _ in 0..2 * LENS_BYTES.len() {
        let completion = completion(&sides(to.0, from.0));
        contents.push((completion.context, received(&completion.buffer)));
    }
    for _ in 0..2 * LENS_BYTES.len() {
        completion(&sides(from.0, to.0));
    }
    contents.sort_unstable_by_key(|(context, _)| *context);
    for ((context, content), (expected, len_bytes)) in
        contents.into_iter().zip((0..7).zip(LENS_BYTES).chain((100..).zip(LENS_BYTES)))
    {
        assert_eq!(context, expected);
        let identity = if context < 100 { context } else { !(context - 100) };
        assert!(content == payload(identity, len_bytes), "message {context}");
    }
}

pub(crate) fn a_request_is_accepted_and_both_are_connected(net: &Net) {
    let (client, server) = (Side::new(net), Side::new(net));
    let longest = payload(7, CONNECTION_DATA_MAX_BYTES);
    for (asks, answers) in [(&b""[..], &b""[..]), (b"x", &longest), (&longest, b"y")] {
        let listener = server.listener(LISTENER);
        let name = listener.name().unwrap();
        let connecting = client.endpoint(CLIENT);
        assert_eq!(errno(connecting.peer()), Errno::ENOTCONN);
        connecting.connect(name, asks).unwrap();
        let request = request(&[&server, &client]);
        assert_eq!((request.data(), request.passive_endpoint()), (asks, LISTENER));
        let info = request.info();
        assert_eq!((info.src_addr, info.ep.ep_type), (Some(name), Some(EndpointType::Msg)));
        assert_eq!(info.dest_addr, Some(connecting.name().unwrap()));
        let accepting = server.endpoint_for(&request, SERVER);
        accepting.accept(answers).unwrap();
        assert_eq!(hear(&[&server, &client]), Ok(connected(SERVER, b"")));
        assert_eq!(hear(&[&client, &server]), Ok(connected(CLIENT, answers)));
        // The connection has the address that was asked, as with sockets.
        assert_eq!((connecting.peer(), accepting.name()), (Ok(name), Ok(name)));
        assert_eq!(
            (accepting.peer(), connecting.name()),
            (Ok(info.dest_addr.unwrap()), Ok(info.dest_addr.unwrap()))
        );
        drop(connecting);
        assert_eq!(hear(&[&server, &client]), Ok(shutdown(SERVER)));
        assert!(server.look().is_none() && client.look().is_none());
    }
}

pub(crate) fn a_request_is_rejected(net: &Net) {
    let (client, server) = (Side::new(net), Side::new(net));
    let listener = server.listener(LISTENER);
    let longest = payload(7, CONNECTION_DATA_MAX_BYTES);
    for answers in [&b""[..], b"no", &longest] {
        let connecting = client.endpoint(CLIENT);
        connecting.connect(listener.name().unwrap(), b"please").unwrap();
        connecting.recv(room(8), NOWHERE, 1).unwrap();
        let request = request(&[&server, &client]);
        request.reject(answers).unwrap();
        assert_eq!(errno(request.reject(answers)), Errno::EOPBADSTATE);
        assert_eq!(errno(server.domain.endpoint_for_request(&request.info(), &request)), Errno::EOPBADSTATE);
        assert_eq!(failure(&[&client, &server], CLIENT), (Errno::ECONNREFUSED, answers.to_vec()));
        let failed = end(&[&client, &server]).expect_err("nothing will ever arrive for it");
        assert_eq!((failed.completion.context, failed.errno()), (1, Errno::ECONNREFUSED));
        assert_eq!(errno(connecting.connect(listener.name().unwrap(), b"")), Errno::EOPBADSTATE);
        assert_eq!(errno(connecting.send(payload(1, 1), NOWHERE, 2).map_err(Error::from)), Errno::ENOTCONN);
        assert_eq!(connecting.shutdown(), Ok(()), "there is nothing to end");
    }
    // To drop it is to reject it.
    let connecting = client.endpoint(CLIENT);
    connecting.connect(listener.name().unwrap(), b"please").unwrap();
    drop(request(&[&server, &client]));
    assert_eq!(failure(&[&client, &server], CLIENT), (Errno::ECONNREFUSED, Vec::new()));
}

pub(crate) fn nobody_listens(net: &Net) {
    let (client, server) = (Side::new(net), Side::new(net));
    let vacancy = net.vacancy();
    let connecting = client.endpoint(CLIENT);
    connecting.connect(vacancy.address, b"hello?").unwrap();
    assert_eq!(failure(&[&client, &server], CLIENT), (Errno::ECONNREFUSED, Vec::new()));
    // An endpoint without connections does not listen either, and goes on.
    let (alice, bob) = net.pair();
    let connecting = client.endpoint(CLIENT);
    connecting.connect(alice.endpoint.name().unwrap(), b"hello?").unwrap();
    let deadline = Deadline::new();
    let heard = loop {
        match client.look() {
            Some(heard) => break heard,
            None => alice.cq_here().progress(),
        }
        deadline.pause("an answer");
    };
    assert_eq!(heard.expect_err("it has no connections").errno, Errno::ECONNREFUSED);
    alice.exchange(&bob);
    // Nor does one that has a connection.
    let (one, other) = pair(&client, &server);
    for taken in [&one, &other] {
        let connecting = client.endpoint(9);
        let name = if std::ptr::eq(taken, &one) { one.name() } else { other.peer() };
        connecting.connect(name.unwrap(), b"hello?").unwrap();
        let (errno, _) = failure(&[&client, &server], 9);
        assert!([Errno::ECONNREFUSED, Errno::ECONNRESET].contains(&errno), "{errno:?}");
    }
    send_all((&client, &one), (&server, &other));
}

pub(crate) fn messages_travel_both_ways_over_a_connection(net: &Net) {
    let (client, server) = (Side::new(net), Side::new(net));
    let (one, other) = pair(&client, &server);
    send_all((&client, &one), (&server, &other));
    send_all((&server, &other), (&client, &one));
    one.inject(b"injected", NOWHERE, None, None).unwrap();
    other.recv(room(8), NOWHERE, 1).unwrap();
    assert_eq!(received(&completion(&[&server, &client]).buffer), b"injected");
}

pub(crate) fn memory_is_accessed_over_a_connection(net: &Net) {
    let (client, server) = (Side::new(net), Side::new(net));
    let (one, other) = pair(&client, &server);
    let attr = MrAttr { access: MrAccess::REMOTE_WRITE, ..MrAttr::default() };
    let region = server.domain.register(1 << 20, &attr).unwrap();
    for (context, len_bytes) in (0..).zip([8, 5000, 1 << 20]) {
        let write = WriteMsg {
            buffers: vec![payload(context, len_bytes)],
            to: NOWHERE,
            key: region.key(),
            address: 0,
            data: Some(context),
            context,
            flags: OpFlags::empty(),
        };
        one.writemsg(write).unwrap();
        assert_eq!(completion(&[&server, &client]).data, context);
        assert_eq!(completion(&[&client, &server]).context, context);
        let mut written = vec![0; len_bytes];
        region.read_at(0, &mut written).unwrap();
        assert!(written == payload(context, len_bytes));
    }
    drop(other);
}

/// Each behind a fence, so that it finds what those before it have left, and counted.
pub(crate) fn accesses_of_every_kind_go_over_a_connection(net: &Net) {
    const LEN_BYTES: usize = 100_000;
    let (client, server) = (Side::new(net), Side::new(net));
    let counter = client.domain.open_counter(&CounterAttr::default()).unwrap();
    let listener = server.listener(LISTENER);
    let one = client.endpoint(CLIENT);
    one.bind_counter(&counter, CounterEvents::READ | CounterEvents::WRITE).unwrap();
    one.connect(listener.name().unwrap(), b"").unwrap();
    let other = server.endpoint_for(&request(&[&server, &client]), SERVER);
    other.accept(b"").unwrap();
    assert_eq!(hear(&[&server, &client]), Ok(connected(SERVER, b"")));
    assert_eq!(hear(&[&client, &server]), Ok(connected(CLIENT, b"")));

    let access = MrAccess::REMOTE_READ | MrAccess::REMOTE_WRITE;
    let region = server.domain.register(LEN_BYTES, &MrAttr { access, ..MrAttr::default() }).unwrap();
    let (key, flags) = (region.key(), OpFlags::FENCE);
    for round in 0..3 {
        let number = 100 * round;
        let mut content = payload(round, LEN_BYTES).to_vec();
        content[..8].copy_from_slice(&number.to_le_bytes());
        let buffers = vec![Bytes::from(content.clone())];
        one.writemsg(WriteMsg { buffers, to: NOWHERE, key, context: 1, ..WriteMsg::default() }).unwrap();
        let target =
            AtomicTarget { peer: NOWHERE, address: 0, key, datatype: Datatype::Uint64, op: AtomicOp::Sum };
        let (operands, results) = (vec![Bytes::from_static(&[5, 0, 0, 0, 0, 0, 0, 0])], vec![room(8)]);
        one.fetch_atomicmsg(FetchAtomicMsg { operands, results, target, context: 2, flags }).unwrap();
        let buffers = vec![room(LEN_BYTES)];
        one.readmsg(ReadMsg { buffers, from: NOWHERE, address: 0, key, context: 3, flags }).unwrap();
        let ended = [(); 3].map(|()| completion(&[&client, &server]));
        assert_eq!(ended.each_ref().map(|completion| completion.context), [1, 2, 3]);
        assert_eq!(received(&ended[1].buffer), number.to_le_bytes());
        content[..8].copy_from_slice(&(number + 5).to_le_bytes());
        assert!(received(&ended[2].buffer) == content);
        assert_eq!(counter.read(), 3 * (round + 1));
    }
}

pub(crate) fn nothing_is_sent_before_the_connection_and_receives_may_wait_for_it(net: &Net) {
    let (client, server) = (Side::new(net), Side::new(net));
    let listener = server.listener(LISTENER);
    let connecting = client.endpoint(CLIENT);
    connecting.enable().unwrap();
    connecting.recv(room(8), NOWHERE, 1).unwrap();
    let refuse = |endpoint: &Endpoint| {
        assert_eq!(errno(endpoint.send(payload(1, 8), NOWHERE, 2).map_err(Error::from)), Errno::ENOTCONN);
        assert_eq!(errno(endpoint.inject(b"x", NOWHERE, None, None)), Errno::ENOTCONN);
        assert_eq!(errno(endpoint.shutdown()), Errno::ENOTCONN);
    };
    refuse(&connecting);
    connecting.connect(listener.name().unwrap(), b"").unwrap();
    refuse(&connecting);
    let accepting = server.endpoint_for(&request(&[&server, &client]), SERVER);
    accepting.enable().unwrap();
    accepting.recv(room(8), NOWHERE, 3).unwrap();
    refuse(&accepting);
    accepting.accept(b"").unwrap();
    assert_eq!(hear(&[&server, &client]), Ok(connected(SERVER, b"")));
    // It may send before the other side has heard of it.
    accepting.send(payload(4, 8), NOWHERE, 4).unwrap();
    assert_eq!(completion(&[&server, &client]).context, 4);
    assert_eq!(received(&completion(&[&client, &server]).buffer), payload(4, 8));
    assert_eq!(hear(&[&client, &server]), Ok(connected(CLIENT, b"")));
    connecting.send(payload(5, 8), NOWHERE, 5).unwrap();
    assert_eq!(completion(&[&client, &server]).context, 5);
    assert_eq!(received(&completion(&[&server, &client]).buffer), payload(5, 8));
}

pub(crate) fn the_requester_goes_before_it_is_accepted(net: &Net) {
    let (client, server) = (Side::new(net), Side::new(net));
    let listener = server.listener(LISTENER);
    let connecting = client.endpoint(CLIENT);
    connecting.connect(listener.name().unwrap(), b"").unwrap();
    let request = request(&[&server, &client]);
    drop(connecting);
    let accepting = server.endpoint_for(&request, SERVER);
    accepting.recv(room(8), NOWHERE, 1).map_err(Error::from).expect_err("it is not enabled");
    accepting.enable().unwrap();
    accepting.recv(room(8), NOWHERE, 1).unwrap();
    accepting.accept(b"").unwrap();
    assert_eq!(failure(&[&server, &client], SERVER), (Errno::ECONNABORTED, Vec::new()));
    assert_eq!(end(&[&server, &client]).expect_err("nobody sends").errno(), Errno::ECONNABORTED);
    assert!(client.look().is_none(), "what was closed has nothing to tell");
    // To reject it is as well in vain, and no mistake.
    let connecting = client.endpoint(CLIENT);
    connecting.connect(listener.name().unwrap(), b"").unwrap();
    let request = crate::suite::connecting::request(&[&server, &client]);
    drop(connecting);
    server.progress();
    request.reject(b"too late").unwrap();
}

pub(crate) fn requests_of_those_who_are_gone_leave_the_queue_unread(net: &Net) {
    let (client, server) = (Side::new(net), Side::new(net));
    let listener = server.listener(LISTENER);
    listener.set_backlog(1).unwrap();
    let name = listener.name().unwrap();
    let ask = |data: &[u8]| {
        let connecting = client.endpoint(CLIENT);
        connecting.connect(name, data).unwrap();
        let deadline = Deadline::new();
        loop {
            client.progress();
            // Which reads nothing.
            if let Ok(Event::Connection(ConnectionEvent::Request(request))) = server.eq.peek() {
                assert_eq!(request.data(), data, "it is the only one");
                return (connecting, request);
            }
            deadline.pause("a request");
        }
    };
    for round in 0..20 {
        let (connecting, request) = ask(&[round]);
        close(connecting, &[&client, &server]);
        let deadline = Deadline::new();
        while server.eq.peek() != Err(EqReadError::Empty) {
            server.progress();
            deadline.pause("that the request is withdrawn");
        }
        // Who has it from before it was withdrawn may do with it what can be done with others.
        match round {
            0 => drop(request),
            1 => request.reject(b"too late").unwrap(),
            2 => {
                let accepting = server.endpoint_for(&request, SERVER);
                accepting.accept(b"too late").unwrap();
                assert_eq!(failure(&[&server, &client], SERVER), (Errno::ECONNABORTED, Vec::new()));
            }
            _ => {}
        }
    }
    // The one that is there can be read, and accepted.
    let (connecting, peeked) = ask(b"please");
    let request = request(&[&server, &client]);
    assert_eq!(request, peeked);
    let accepting = server.endpoint_for(&request, SERVER);
    accepting.accept(b"").unwrap();
    assert_eq!(hear(&[&server, &client]), Ok(connected(SERVER, b"")));
    assert_eq!(hear(&[&client, &server]), Ok(connected(CLIENT, b"")));
    drop((connecting, accepting));
}

pub(crate) fn who_waits_is_refused_when_the_listener_goes(net: &Net) {
    let (client, server) = (Side::new(net), Side::new(net));
    let listener = server.listener(LISTENER);
    let name = listener.name().unwrap();
    let waiting: Vec<Endpoint> = (0..4).map(|number| client.endpoint(number)).collect();
    for endpoint in &waiting {
        endpoint.connect(name, b"").unwrap();
    }
    // One was read, others may have been heard, or not.
    let read = request(&[&server, &client]);
    drop(listener);
    let mut refused = Vec::new();
    while refused.len() < 3 {
        let error = hear(&[&client, &server]).expect_err("nobody listens");
        assert_eq!(error.errno, Errno::ECONNREFUSED, "{error:?}");
        refused.push(error.object);
    }
    assert!(server.look().is_none(), "requests that nobody has read are gone");
    // The one that was read can still be accepted.
    let accepting = server.endpoint_for(&read, SERVER);
    accepting.accept(b"welcome").unwrap();
    assert_eq!(hear(&[&server, &client]), Ok(connected(SERVER, b"")));
    let last = (0..4).find(|number| !refused.contains(number)).unwrap();
    assert_eq!(hear(&[&client, &server]), Ok(connected(last, b"welcome")));
    // The name is free again, as soon as nobody needs it.
    drop((accepting, read));
    let deadline = Deadline::new();
    while !net.is_free(name) {
        deadline.pause("the address");
    }
}

pub(crate) fn another_endpoint_accepts_what_the_first_has_not(net: &Net) {
    let (client, server) = (Side::new(net), Side::new(net));
    let listener = server.listener(LISTENER);
    let connecting = client.endpoint(CLIENT);
    connecting.connect(listener.name().unwrap(), b"").unwrap();
    let request = request(&[&server, &client]);
    let first = server.endpoint_for(&request, 7);
    assert_eq!(errno(server.domain.endpoint_for_request(&request.info(), &request)), Errno::EOPBADSTATE);
    assert_eq!(errno(first.connect(listener.name().unwrap(), b"")), Errno::EOPBADSTATE);
    assert_eq!(errno(first.set_name(listener.name().unwrap().with_port(0))), Errno::EOPBADSTATE);
    drop(first);
    let second = server.endpoint_for(&request, SERVER);
    second.accept(b"").unwrap();
    assert_eq!(errno(second.accept(b"")), Errno::EOPBADSTATE);
    assert_eq!(errno(request.reject(b"")), Errno::EOPBADSTATE);
    assert_eq!(hear(&[&server, &client]), Ok(connected(SERVER, b"")));
    assert_eq!(hear(&[&client, &server]), Ok(connected(CLIENT, b"")));
    // Who was opened for a request that is rejected meanwhile has come too late.
    let connecting = client.endpoint(CLIENT);
    connecting.connect(listener.name().unwrap(), b"").unwrap();
    let request = crate::suite::connecting::request(&[&server, &client]);
    let late = server.endpoint_for(&request, SERVER);
    request.reject(b"no").unwrap();
    assert_eq!(errno(late.accept(b"")), Errno::EOPBADSTATE);
    assert_eq!(failure(&[&client, &server], CLIENT), (Errno::ECONNREFUSED, b"no".to_vec()));
}

pub(crate) fn many_ask_at_once(net: &Net) {
    const REQUESTERS: u64 = 60;
    let (client, server) = (Side::new(net), Side::new(net));
    let listener = server.listener(LISTENER);
    let asking: Vec<Endpoint> = (0..REQUESTERS).map(|number| client.endpoint(number)).collect();
    for (number, endpoint) in (0_u64..).zip(&asking) {
        endpoint.connect(listener.name().unwrap(), &number.to_le_bytes()).unwrap();
    }
    // Every third is rejected. All of them are told what they have said.
    let mut accepted: Vec<(u64, Endpoint)> = Vec::new();
    let mut heard = (0, 0, 0);
    let deadline = Deadline::new();
    while heard != (REQUESTERS, REQUESTERS - REQUESTERS / 3, REQUESTERS) {
        match server.look() {
            None => {}
            Some(Ok(ConnectionEvent::Request(request))) => {
                heard.0 += 1;
                let number = u64::from_le_bytes(request.data().try_into().expect("its number"));
                if number % 3 == 0 {
                    request.reject(&number.to_le_bytes()).unwrap();
                } else {
                    let endpoint = server.endpoint_for(&request, number);
                    endpoint.accept(&number.to_le_bytes()).unwrap();
                    accepted.push((number, endpoint));
                }
            }
            Some(Ok(ConnectionEvent::Connected { .. })) => heard.1 += 1,
            Some(other) => panic!("{other:?}"),
        }
        match client.look() {
            None => {}
            Some(Ok(ConnectionEvent::Connected { endpoint, data })) => {
                assert!(endpoint % 3 != 0 && *data == endpoint.to_le_bytes());
                heard.2 += 1;
            }
            Some(Err(error)) => {
                assert!(error.object % 3 == 0 && error.err_data == error.object.to_le_bytes(), "{error:?}");
                heard.2 += 1;
            }
            Some(other) => panic!("{other:?}"),
        }
        deadline.pause_for(|| format!("all of them: {heard:?}"));
    }
    // Each is connected with the one that it has accepted.
    for (number, endpoint) in &accepted {
        asking[*number as usize].recv(room(8), NOWHERE, *number).unwrap();
        endpoint.send(payload(*number, 8), NOWHERE, *number).unwrap();
    }
    for _ in &accepted {
        let completion = completion(&[&client, &server]);
        assert_eq!(received(&completion.buffer), payload(completion.context, 8));
    }
    close((accepted, asking), &[&client, &server]);
}

pub(crate) fn the_backlog_is_limited(net: &Net) {
    let (client, server) = (Side::new(net), Side::new(net));
    let listener = server.listener(LISTENER);
    assert_eq!(errno(listener.set_backlog(0)), Errno::EINVAL);
    listener.set_backlog(2).unwrap();
    let ask = |number| {
        let endpoint = client.endpoint(number);
        endpoint.connect(listener.name().unwrap(), b"").unwrap();
        endpoint
    };
    let first = ask(1);
    let one = request(&[&server, &client]);
    let second = ask(2);
    let two = request(&[&server, &client]);
    let third = ask(3);
    assert_eq!(failure(&[&client, &server], 3), (Errno::ECONNREFUSED, Vec::new()));
    one.reject(b"").unwrap();
    assert_eq!(failure(&[&client, &server], 1), (Errno::ECONNREFUSED, Vec::new()));
    let fourth = ask(4);
    let four = request(&[&server, &client]);
    let accepting = server.endpoint_for(&two, SERVER);
    accepting.accept(b"").unwrap();
    // Who is being accepted waits no longer.
    let fifth = ask(5);
    let (mut is_connected, mut five) = (false, None);
    while !is_connected || five.is_none() {
        match hear(&[&server, &client]) {
            Ok(ConnectionEvent::Request(request)) => five = Some(request),
            event => is_connected = event == Ok(connected(SERVER, b"")),
        }
    }
    drop((four, five));
    drop((first, second, third, fourth, fifth));
}

pub(crate) fn an_endpoint_takes_over_the_address_of_a_passive_one(net: &Net) {
    let (client, server) = (Side::new(net), Side::new(net));
    let listener = server.listener(LISTENER);
    let reserved = client.fabric.passive_endpoint(&client.info).unwrap();
    let name = reserved.name().unwrap();
    assert_eq!(errno(reserved.set_name(name)), Errno::EOPBADSTATE, "it has its name");
    let connecting = client.domain.endpoint_for_passive(&client.info, &reserved).unwrap();
    let connecting = client.bound(connecting, CLIENT);
    assert_eq!(connecting.name(), Ok(name));
    for refused in [
        reserved.bind_eq(&client.eq, 9),
        reserved.listen(),
        reserved.set_backlog(1),
        client.domain.endpoint_for_passive(&client.info, &reserved).map(|_| ()),
    ] {
        assert_eq!(errno(refused), Errno::EOPBADSTATE);
    }
    drop(reserved);
    connecting.connect(listener.name().unwrap(), b"").unwrap();
    let request = request(&[&server, &client]);
    assert_eq!(request.info().dest_addr, Some(name));
    let accepting = server.endpoint_for(&request, SERVER);
    accepting.accept(b"").unwrap();
    assert_eq!(hear(&[&server, &client]), Ok(connected(SERVER, b"")));
    assert_eq!(hear(&[&client, &server]), Ok(connected(CLIENT, b"")));
    assert_eq!(connecting.name(), Ok(name));
    send_all((&client, &connecting), (&server, &accepting));
    // Who listens keeps its address.
    assert_eq!(errno(server.domain.endpoint_for_passive(&server.info, &listener)), Errno::EOPBADSTATE);
}

pub(crate) fn a_name_is_chosen_before_it_is_needed(net: &Net) {
    let side = Side::new(net);
    let any_port = side.info.src_addr.unwrap();
    let passive = side.fabric.passive_endpoint(&side.info).unwrap();
    passive.set_name(any_port).unwrap();
    let name = passive.name().unwrap();
    assert!(name.is_specific() && name.port() != 0);
    let taken = side.fabric.passive_endpoint(&side.info).unwrap();
    taken.set_name(name).unwrap();
    assert_eq!(errno(taken.name()), Errno::EADDRINUSE);
    taken.bind_eq(&side.eq, 1).unwrap();
    assert_eq!(errno(taken.listen()), Errno::EADDRINUSE);
    drop(passive);
    taken.listen().unwrap();
    assert_eq!(taken.name(), Ok(name));
    assert_eq!(errno(taken.listen()), Errno::EOPBADSTATE);
    assert_eq!(errno(taken.set_name(any_port)), Errno::EOPBADSTATE);
}

pub(crate) fn what_is_missing_or_too_much_is_refused(net: &Net) {
    let side = Side::new(net);
    let listener = side.listener(LISTENER);
    let name = listener.name().unwrap();
    let too_much = [0; CONNECTION_DATA_MAX_BYTES + 1];
    let both = BindFlags::TRANSMIT | BindFlags::RECV;

    let unbound = side.domain.endpoint(&side.info).unwrap();
    assert_eq!(errno(unbound.enable()), Errno::ENOEQ);
    unbound.bind_eq(&side.eq, 1).unwrap();
    unbound.bind_eq(&side.eq, 1).unwrap();
    let other_eq = side.fabric.open_eq(&EqAttr::default()).unwrap();
    assert_eq!(errno(unbound.bind_eq(&other_eq, 1)), Errno::EBUSY);
    assert_eq!(errno(unbound.connect(name, b"")), Errno::ENOCQ);
    unbound.bind_cq(&side.cq, both).unwrap();
    assert_eq!(errno(unbound.accept(b"")), Errno::EOPBADSTATE, "it was not opened for a request");
    assert_eq!(errno(unbound.connect(name, &too_much)), Errno::EINVAL);
    assert_eq!(errno(unbound.connect(name.with_port(0), b"")), Errno::EINVAL);
    let other_format = match name.socket_addr() {
        std::net::SocketAddr::V4(_) => "[::1]:9",
        std::net::SocketAddr::V6(_) => "127.0.0.1:9",
    };
    let other_format = other_format.parse::<std::net::SocketAddr>().unwrap().into();
    assert_eq!(errno(unbound.connect(other_format, b"")), Errno::EINVAL);
    unbound.connect(name, b"").unwrap();
    assert_eq!(errno(unbound.connect(name, b"")), Errno::EOPBADSTATE);

    let passive = side.fabric.passive_endpoint(&side.info).unwrap();
    assert_eq!(errno(passive.listen()), Errno::ENOEQ);
    passive.bind_eq(&side.eq, 1).unwrap();
    assert_eq!(errno(passive.bind_eq(&side.eq, 1)), Errno::EBUSY);
    assert_eq!(errno(passive.set_name(other_format)), Errno::EINVAL);
    assert_eq!(errno(side.fabric.passive_endpoint(&net.info)), Errno::EINVAL, "another type");
    let mut nowhere = side.info.clone();
    nowhere.domain.name = Some("nowhere".into());
    assert_eq!(errno(side.fabric.passive_endpoint(&nowhere)), Errno::ENOENT);
    assert_eq!(errno(side.domain.endpoint_for_passive(&net.info, &passive)), Errno::EINVAL);

    // Endpoints without connections may be bound to an event queue, and that is all.
    let unconnected = side.domain.endpoint(&net.info).unwrap();
    unconnected.bind_eq(&side.eq, 1).unwrap();
    assert_eq!(errno(unconnected.connect(name, b"")), Errno::ENOSYS);
    assert_eq!(errno(unconnected.accept(b"")), Errno::ENOSYS);
    assert_eq!(errno(unconnected.shutdown()), Errno::ENOSYS);

    let request = request(&[&side]);
    assert_eq!(errno(request.reject(&too_much)), Errno::EINVAL);
    let accepting = side.endpoint_for(&request, SERVER);
    assert_eq!(errno(accepting.accept(&too_much)), Errno::EINVAL);
    assert_eq!(errno(accepting.enable().and_then(|()| accepting.accept(&too_much))), Errno::EINVAL);
    accepting.accept(b"").unwrap();
    let mut asked = side.info.clone();
    asked.caps = Caps::MSG | Caps::SOURCE;
    assert_eq!(errno(side.domain.endpoint(&asked)), Errno::EINVAL);
}

pub(crate) fn what_is_bound_keeps_the_event_queue(net: &Net) {
    let side = Side::new(net);
    let listener = side.listener(LISTENER);
    let endpoint = side.endpoint(CLIENT);
    let (eq, error) = side.eq.clone().close().expect_err("objects are bound");
    assert_eq!(error.errno(), Errno::EBUSY);
    drop(listener);
    drop(endpoint);
    assert!(eq.close().is_ok());
}

pub(crate) fn an_endpoint_reads_of_its_connection_through_its_completion_queue_too(net: &Net) {
    let (client, server) = (Side::new(net), Side::new(net));
    let listener = server.listener(LISTENER);
    let connecting = client.endpoint(CLIENT);
    connecting.connect(listener.name().unwrap(), b"").unwrap();
    let accepting = server.endpoint_for(&request(&[&server, &client]), SERVER);
    accepting.accept(b"").unwrap();
    // Nobody reads the event queues.
    let deadline = Deadline::new();
    let (mut sent, mut is_received) = (false, false);
    connecting.recv(room(8), NOWHERE, 1).unwrap();
    while !is_received {
        sent = sent || accepting.send(payload(1, 8), NOWHERE, 2).is_ok();
        server.cq.progress();
        is_received = client.cq.read().is_ok_and(|completion| completion.context == 1);
        deadline.pause("a message over the connection");
    }
}

/// Long enough for a connection to be made by the library's own threads, where it has any.
pub(crate) fn connections_are_made_while_nobody_reads(net: &Net) {
    let (client, server) = (Side::new(net), Side::new(net));
    let listener = server.listener(LISTENER);
    let connecting = client.endpoint(CLIENT);
    connecting.connect(listener.name().unwrap(), b"").unwrap();
    connecting.recv(room(8), NOWHERE, 1).unwrap();
    let accepting = server.endpoint_for(&request(&[&server]), SERVER);
    accepting.accept(b"").unwrap();
    let deadline = Deadline::new();
    while accepting.send(payload(1, 8), NOWHERE, 2).is_err() {
        thread::sleep(Duration::from_millis(1));
        deadline.pause("a connection");
    }
    // The other side has it too, before anybody has read there.
    while connecting.send(payload(2, 8), NOWHERE, 3).is_err() {
        thread::sleep(Duration::from_millis(1));
        deadline.pause("a connection");
    }
    assert_eq!(hear(&[&client]), Ok(connected(CLIENT, b"")));
}
