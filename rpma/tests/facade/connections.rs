//! Connections: their requests, events and ends.

use crate::prelude::*;

pub(crate) fn accepted_request_connects_both_sides(net: &Net) {
    let (client_peer, server_peer) = (net.open_peer(), net.open_peer());
    let longest = payload(7, PRIVATE_DATA_MAX_BYTES);
    for (asks, answers) in [(&b""[..], &b""[..]), (b"x", &longest), (&longest, b"y")] {
        let endpoint = listen(&server_peer);
        let client = request(&client_peer, &endpoint, None);
        assert_eq!(client.private_data(), b"");
        let client = client.connect(asks).unwrap();
        let incoming = next_request(&endpoint, None);
        assert_eq!(incoming.private_data(), asks);
        let address = incoming.private_data().as_ptr();
        let server = incoming.connect(answers).unwrap();
        assert_eq!(server.private_data().as_ptr(), address, "C programs keep the pointer");
        assert_eq!((server.private_data(), client.private_data()), (asks, &b""[..]));
        expect_event(&server, ConnectionEvent::Established);
        expect_event(&client, ConnectionEvent::Established);
        assert_eq!((server.private_data(), client.private_data()), (asks, answers));
    }
}

pub(crate) fn dropped_request_is_rejected(net: &Net) {
    let (client_peer, server_peer) = (net.open_peer(), net.open_peer());
    let endpoint = listen(&server_peer);
    let memory = Memory::zeroed(&client_peer, 8, Usage::RECV);
    for _ in 0..3 {
        let prepared = request(&client_peer, &endpoint, None);
        prepared.recv(memory.all(), 5).unwrap();
        let client = prepared.connect(b"please").unwrap();
        drop(next_request(&endpoint, None));
        expect_event(&client, ConnectionEvent::Rejected);
        assert_eq!(client.next_event(), Err(Error::NoEvent));
        expect_failure(client.completion_queue(), Status::Flushed, 5);
    }
    // A request that the server has not read.
    let client = request(&client_peer, &endpoint, None).connect(b"please").unwrap();
    wait_readable(endpoint.fd());
    drop(endpoint);
    expect_event(&client, ConnectionEvent::Rejected);
}

pub(crate) fn request_without_an_answer_is_unreachable(net: &Net) {
    let (client_peer, server_peer) = (net.open_peer(), net.open_peer());
    let endpoint = listen(&server_peer);
    let connect = |timeout, data| {
        let config = ConnectionConfig::default();
        let prepared = request_with_timeout(&client_peer, &endpoint, &config, timeout);
        prepared.connect(data).unwrap()
    };
    // The server does not read the request, and then reads it but does not decide.
    let client = connect(Duration::from_millis(50), b"first");
    expect_event(&client, ConnectionEvent::Unreachable);
    let client = connect(Duration::from_millis(300), b"second");
    let undecided = next_request_unless_given_up(&endpoint, &client, b"second");
    expect_event(&client, ConnectionEvent::Unreachable);
    assert_eq!(client.next_event(), Err(Error::NoEvent));
    drop(undecided);
}

pub(crate) fn addresses_of_both_formats_connect(net: &Net) {
    for (format, address) in [(AddressFormat::SockaddrIn, "127.0.0.1"), (AddressFormat::SockaddrIn6, "::1")] {
        let (client_peer, server_peer) = (net.open_peer_with(format), net.open_peer_with(format));
        let endpoint = Endpoint::listen(&server_peer, address, "0").unwrap();
        assert_eq!(endpoint.address().ip().to_string(), address);
        let client = request(&client_peer, &endpoint, None).connect(b"").unwrap();
        let server = next_request(&endpoint, None).connect(b"").unwrap();
        expect_event(&client, ConnectionEvent::Established);
        expect_event(&server, ConnectionEvent::Established);
        // An address of the other format fits neither peer.
        let other = if address == "::1" { "127.0.0.1" } else { "::1" };
        assert!(matches!(Endpoint::listen(&server_peer, other, 0), Err(Error::Fabric(_))));
        let refused = ConnectionRequest::new(&client_peer, other, 1, None);
        assert!(matches!(refused, Err(Error::Fabric(_))));
    }
}

pub(crate) fn disconnect_closes_both_sides(net: &Net) {
    for closes_client in [true, false] {
        let Pair { client, server, .. } = Pair::connect(net);
        let (one, other) = if closes_client { (&client, &server) } else { (&server, &client) };
        assert_eq!(one.disconnect(), Ok(()));
        expect_event(other, ConnectionEvent::Closed);
        expect_event(one, ConnectionEvent::Closed);
        assert_eq!((one.next_event(), other.next_event()), (Err(Error::NoEvent), Err(Error::NoEvent)));
        let memory = Memory::zeroed(&net.open_peer(), 8, Usage::SEND | Usage::RECV);
        assert_eq!(one.send(memory.all(), Report::Always, 1), Err(Error::NotConnected));
        assert_eq!(other.send(memory.all(), Report::Always, 1), Err(Error::NotConnected));
        assert_eq!(other.recv(memory.all(), 1), Err(Error::NotConnected));
        assert_eq!([other.disconnect(), one.disconnect(), one.disconnect()], [(); 3].map(Ok));
    }
}

pub(crate) fn disconnect_before_the_connection_fails(net: &Net) {
    let (client_peer, server_peer) = (net.open_peer(), net.open_peer());
    let endpoint = listen(&server_peer);
    let client = request(&client_peer, &endpoint, None).connect(b"").unwrap();
    assert_eq!(client.disconnect(), Err(Error::NotConnected));
    let server = next_request(&endpoint, None).connect(b"").unwrap();
    expect_event(&client, ConnectionEvent::Established);
    assert_eq!(client.disconnect(), Ok(()));
    expect_event(&server, ConnectionEvent::Established);
    expect_event(&server, ConnectionEvent::Closed);
}

pub(crate) fn dropped_connection_closes_the_other_side(net: &Net) {
    for (drops_client, disconnects_first) in [(true, false), (false, false), (false, true)] {
        let Pair { client, server, .. } = Pair::connect(net);
        let (dropped, left) = if drops_client { (client, server) } else { (server, client) };
        if disconnects_first {
            dropped.disconnect().unwrap();
        }
        drop(dropped);
        expect_event(&left, ConnectionEvent::Closed);
        assert_eq!(left.disconnect(), Ok(()));
    }
}

pub(crate) fn disconnect_carries_out_posted_sends_first(net: &Net) {
    const COUNT: u64 = 60;
    // Long messages need the peer's help.
    for len_bytes in [8, 100_000] {
        let Pair { client, server, client_peer, server_peer } = Pair::connect_deep(net);
        let received = Memory::zeroed(&server_peer, COUNT as usize * len_bytes, Usage::RECV);
        for number in 0..COUNT {
            server.recv(received.slice(number as usize * len_bytes, len_bytes), number).unwrap();
        }
        let content: Vec<u8> = (0..COUNT).flat_map(|number| payload(number, len_bytes)).collect();
        let sent = Memory::with(&client_peer, &content, Usage::SEND);
        for number in 0..COUNT {
            let slice = sent.slice(number as usize * len_bytes, len_bytes);
            client.send(slice, Report::OnError, number).unwrap();
        }
        client.disconnect().unwrap();
        drop(client);
        for number in 0..COUNT {
            expect_success(server.completion_queue(), Operation::Recv, number);
        }
        assert!(received.read(0, content.len()) == content);
        expect_event(&server, ConnectionEvent::Closed);
    }
}

/// Shows rpma_cq_get_completion/receive-error-completes, rpma_cq_wait/end-of-connection-ends-wait.
pub(crate) fn end_of_the_connection_flushes_posted_receives(net: &Net) {
    let Pair { client, server, client_peer, server_peer } = Pair::connect(net);
    let (ours, theirs) =
        (Memory::zeroed(&client_peer, 8, Usage::RECV), Memory::zeroed(&server_peer, 8, Usage::RECV));
    for context in 1..=3 {
        client.recv(ours.slice(0, 0), context).unwrap();
        server.recv(theirs.slice(0, 0), 10 + context).unwrap();
    }
    let queue = server.completion_queue().clone();
    let sleeper = spawn_sleeper(move || queue.wait());
    client.disconnect().unwrap();
    assert_eq!(join_in_time(sleeper), Ok(()));
    for context in 1..=3 {
        expect_failure(client.completion_queue(), Status::Flushed, context);
        expect_failure(server.completion_queue(), Status::Flushed, 10 + context);
    }
}

pub(crate) fn private_data_has_a_limit(net: &Net) {
    let (client_peer, server_peer) = (net.open_peer(), net.open_peer());
    let endpoint = listen(&server_peer);
    let (len_bytes, max_bytes) = (PRIVATE_DATA_MAX_BYTES + 1, PRIVATE_DATA_MAX_BYTES);
    let refused = Error::Invalid(Invalid::PrivateData { len_bytes, max_bytes });
    let too_long = payload(1, len_bytes);
    assert_eq!(request(&client_peer, &endpoint, None).connect(&too_long).unwrap_err(), refused);
    let client = request(&client_peer, &endpoint, None).connect(b"").unwrap();
    assert_eq!(next_request(&endpoint, None).connect(&too_long).unwrap_err(), refused);
    expect_event(&client, ConnectionEvent::Rejected);
    // A service that is no number and has none.
    let unknown = ConnectionRequest::new(&client_peer, "127.0.0.1", "no-such-service", None);
    assert!(matches!(unknown, Err(Error::Fabric(_))), "{unknown:?}");
}

pub(crate) fn polled_request_is_returned_next(net: &Net) {
    let peer = net.open_peer();
    let endpoint = listen(&peer);
    assert!(!endpoint.poll_requests());
    let client = request(&peer, &endpoint, None).connect(b"may I?").unwrap();
    while !endpoint.poll_requests() {
        wait_readable(endpoint.fd());
    }
    assert!(endpoint.poll_requests());
    let request = endpoint.next_connection_request(None).unwrap();
    assert_eq!(request.private_data(), b"may I?");
    assert!(!endpoint.poll_requests());
    drop(request);
    expect_event(&client, ConnectionEvent::Rejected);
}

pub(crate) fn last_event_ends_the_waits_of_all_threads(net: &Net) {
    let Pair { client, server, .. } = Pair::connect(net);
    let mut events = thread::scope(|scope| {
        let waits = [(); 3].map(|()| scope.spawn(|| client.next_event()));
        server.disconnect().unwrap();
        waits.map(|wait| wait.join().unwrap())
    });
    events.sort_by_key(Result::is_err);
    let none = Err(Error::NoEvent);
    assert_eq!(events, [Ok(ConnectionEvent::Closed), none.clone(), none]);
}
