//! The time limit of a request for a connection that the other application neither accepts nor rejects.

use super::prelude::*;

const TIMEOUT: Duration = Duration::from_millis(30);

/// By how much a test advances the simulated clock, again and again.
const TICK: Duration = Duration::from_millis(1);

/// Opens two sides whose endpoints read the same simulated clock. No request times out before the test
/// advances the clock.
fn open_sides(net: &Net) -> (SimulatedClock, Side, Side) {
    let clock = SimulatedClock::new();
    let [client, server] = [(); 2].map(|()| Side::open_with_clock(net, &clock, WaitObject::None));
    (clock, client, server)
}

/// Opens an endpoint that gives up after [`TIMEOUT`].
fn open_impatient_endpoint(side: &Side) -> Endpoint {
    let endpoint = side.open_endpoint(CLIENT);
    assert_eq!(endpoint.connect_timeout(), None);
    endpoint.set_connect_timeout(Some(TIMEOUT));
    assert_eq!(endpoint.connect_timeout(), Some(TIMEOUT));
    endpoint
}

/// Advances the clock until the connect of the first side's endpoint fails, while all sides make progress.
#[track_caller]
fn expect_timeout(clock: &SimulatedClock, sides: &[&Side]) {
    let deadline = Deadline::new();
    let heard = loop {
        if let Some(heard) = sides[0].poll_event() {
            break heard;
        }
        sides.iter().skip(1).for_each(|side| side.progress());
        clock.advance(TICK);
        deadline.yield_or_panic("the end of the time");
    };
    let error = heard.expect_err("the server has not answered");
    assert_eq!((error.object, error.errno), (CLIENT, Errno::ETIMEDOUT));
    assert!(error.err_data.is_empty() && error.peer.is_some());
}

#[over(connected, native)]
fn undecided_request_fails_with_etimedout(net: &Net) {
    let (clock, client, server) = open_sides(net);
    let listener = server.open_listener(LISTENER);
    let connecting = open_impatient_endpoint(&client);
    connecting.enable().unwrap();
    connecting.recv(marked_buffer(8), NOWHERE, 1).unwrap();
    connecting.connect(listener.name().unwrap(), b"").unwrap();
    let request = next_request_of_first_side(&[&server, &client]);
    expect_timeout(&clock, &[&client, &server]);
    let failed = next_operation_end_of_first_side(&[&client]).expect_err("nothing can arrive");
    assert_eq!((failed.completion.context, failed.errno()), (1, Errno::ETIMEDOUT));
    let again = connecting.connect(listener.name().unwrap(), b"").map_err(|error: Error| error.errno());
    assert_eq!(again, Err(Errno::EOPBADSTATE), "an endpoint asks once");
    request.reject(b"too late").unwrap();
    assert!(client.poll_event().is_none());
}

#[over(connected, native)]
fn late_accept_does_not_stay_connected(net: &Net) {
    let (clock, client, server) = open_sides(net);
    let listener = server.open_listener(LISTENER);
    for passes in 0..6 {
        let connecting = open_impatient_endpoint(&client);
        connecting.connect(listener.name().unwrap(), b"").unwrap();
        let request = next_request_of_first_side(&[&server, &client]);
        expect_timeout(&clock, &[&client]);
        // The passive endpoint may or may not learn of the end before the accept.
        (0..passes).for_each(|_| {
            client.progress();
            server.progress();
        });
        let accepting = server.accept(&request, b"");
        match next_event_of_first_side(&[&server, &client]) {
            Err(error) => assert_eq!((error.object, error.errno), (SERVER, Errno::ECONNABORTED)),
            Ok(event) => {
                assert_eq!(event, ConnectionEvent::Connected { endpoint: SERVER, data: Box::default() });
                let end = next_event_of_first_side(&[&server, &client]);
                assert!(
                    matches!(end, Ok(ConnectionEvent::Shutdown { end: ConnectionEnd::Lost(_), .. })),
                    "{end:?}"
                );
            }
        }
        close_with_progress((connecting, accepting), &[&client, &server]);
        assert!(client.poll_event().is_none() && server.poll_event().is_none());
    }
}

#[over(connected, native)]
fn accept_in_time_connects_for_longer_than_the_timeout(net: &Net) {
    let (clock, client, server) = open_sides(net);
    let listener = server.open_listener(LISTENER);
    let first = client.open_endpoint(SERVER);
    first.set_connect_timeout(Some(Duration::from_secs(3600)));
    first.connect(listener.name().unwrap(), b"").unwrap();
    let _accepting = server.accept(&next_request_of_first_side(&[&server, &client]), b"");
    assert!(matches!(next_event_of_first_side(&[&client, &server]), Ok(ConnectionEvent::Connected { .. })));
    assert!(matches!(next_event_of_first_side(&[&server, &client]), Ok(ConnectionEvent::Connected { .. })));
    // A later endpoint times out meanwhile.
    let second = open_impatient_endpoint(&client);
    second.connect(listener.name().unwrap(), b"").unwrap();
    let _undecided = next_request_of_first_side(&[&server, &client]);
    expect_timeout(&clock, &[&client, &server]);
    first.shutdown().unwrap();
    let end = ConnectionEvent::Shutdown { endpoint: SERVER, end: ConnectionEnd::Closed };
    assert_eq!(next_event_of_first_side(&[&client, &server]), Ok(end.clone()));
    assert_eq!(next_event_of_first_side(&[&server, &client]), Ok(end));
}

#[over(connected, native)]
fn timed_out_request_leaves_event_queue_and_backlog(net: &Net) {
    let (clock, client, server) = open_sides(net);
    let listener = server.open_listener(LISTENER);
    listener.set_backlog(1).unwrap();
    for _ in 0..5 {
        let connecting = open_impatient_endpoint(&client);
        connecting.connect(listener.name().unwrap(), b"").unwrap();
        let deadline = Deadline::new();
        while !matches!(server.eq.peek(), Ok(Some(Event::Connection(ConnectionEvent::Request(_))))) {
            client.progress();
            deadline.yield_or_panic("a request");
        }
        expect_timeout(&clock, &[&client]);
        let deadline = Deadline::new();
        while server.eq.peek() != Ok(None) {
            client.progress();
            server.progress();
            deadline.yield_or_panic("that the request is withdrawn");
        }
    }
    drop(listener);
    // Both sides can still connect.
    let _pair = connect_pair(&client, &server);
}
