//! The time limit of a request for a connection that the other application neither accepts nor rejects.

use super::prelude::*;
use crate::connecting::PassiveEndpoint;
use crate::handle::Endpoint;

const TIMEOUT: Duration = Duration::from_millis(30);

/// By how much a test advances the simulated clock, again and again.
const TICK: Duration = Duration::from_millis(1);

/// Opens two sides whose endpoints read the same simulated clock, and a passive endpoint of the second. No
/// request times out before the test advances the clock.
fn open_sides(net: &Net) -> (SimulatedClock, Side, Side, PassiveEndpoint) {
    let clock = SimulatedClock::new();
    let [client, server] = [(); 2].map(|()| Side::open_with_clock(net, &clock, WaitObject::None));
    let listener = server.open_listener(LISTENER);
    (clock, client, server, listener)
}

/// Requests a connection with an endpoint that gives up after [`TIMEOUT`].
fn connect_impatiently(side: &Side, listener: &PassiveEndpoint) -> Endpoint {
    let endpoint = side.open_endpoint(CLIENT);
    assert_eq!(endpoint.connect_timeout(), None);
    endpoint.set_connect_timeout(Some(TIMEOUT));
    assert_eq!(endpoint.connect_timeout(), Some(TIMEOUT));
    endpoint.connect(listener.name().unwrap(), b"").unwrap();
    endpoint
}

/// Advances the clock until the connect of the first side's endpoint fails, while all sides make progress.
#[track_caller]
fn expect_timeout(clock: &SimulatedClock, sides: &[&Side]) {
    let heard = poll_until("the end of the time", || {
        sides.iter().skip(1).for_each(|side| side.progress());
        clock.advance(TICK);
        sides[0].poll_event()
    });
    let error = heard.expect_err("the server has not answered");
    assert_eq!((error.object, error.errno), (CLIENT, Errno::ETIMEDOUT));
    assert!(error.err_data.is_empty() && error.peer.is_some());
}

#[over(connected, native)]
fn undecided_request_fails_with_etimedout(net: &Net) {
    let (clock, client, server, listener) = open_sides(net);
    let connecting = connect_impatiently(&client, &listener);
    connecting.recv(marked_buffer(8), NOWHERE, 1).unwrap();
    let request = next_request_of_first_side(&[&server, &client]);
    expect_timeout(&clock, &[&client, &server]);
    let failed = next_operation_end_of_first_side(&[&client]).expect_err("nothing can arrive");
    assert_eq!((failed.completion.context, failed.errno()), (1, Errno::ETIMEDOUT));
    // An endpoint asks once.
    expect_error(connecting.connect(listener.name().unwrap(), b""), Errno::EOPBADSTATE);
    request.reject(b"too late").unwrap();
    assert!(client.poll_event().is_none());
}

#[over(connected, native)]
fn late_accept_does_not_stay_connected(net: &Net) {
    let (clock, client, server, listener) = open_sides(net);
    for passes in 0..6 {
        let connecting = connect_impatiently(&client, &listener);
        let request = next_request_of_first_side(&[&server, &client]);
        expect_timeout(&clock, &[&client]);
        // The passive endpoint may or may not learn of the end before the accept.
        [&client, &server].repeat(passes).into_iter().for_each(Side::progress);
        let accepting = server.accept(&request, b"");
        match next_event_of_first_side(&[&server, &client]) {
            Err(error) => assert_eq!((error.object, error.errno), (SERVER, Errno::ECONNABORTED)),
            Ok(event) => {
                assert_eq!(event, make_connected_event(SERVER, b""));
                let end = next_event_of_first_side(&[&server, &client]);
                let is_lost =
                    matches!(end, Ok(ConnectionEvent::Shutdown { end: ConnectionEnd::Lost(_), .. }));
                assert!(is_lost, "{end:?}");
            }
        }
        close_with_progress((connecting, accepting), &[&client, &server]);
        assert!(client.poll_event().is_none() && server.poll_event().is_none());
    }
}

#[over(connected, native)]
fn accept_in_time_connects_for_longer_than_the_timeout(net: &Net) {
    let (clock, client, server, listener) = open_sides(net);
    let first = client.open_endpoint(SERVER);
    first.set_connect_timeout(Some(Duration::from_secs(3600)));
    first.connect(listener.name().unwrap(), b"").unwrap();
    let _accepting = server.accept(&next_request_of_first_side(&[&server, &client]), b"");
    for sides in [[&client, &server], [&server, &client]] {
        assert_eq!(next_event_of_first_side(&sides), Ok(make_connected_event(SERVER, b"")));
    }
    // A later endpoint times out meanwhile.
    let _second = connect_impatiently(&client, &listener);
    let _undecided = next_request_of_first_side(&[&server, &client]);
    expect_timeout(&clock, &[&client, &server]);
    first.shutdown().unwrap();
    for sides in [[&client, &server], [&server, &client]] {
        assert_eq!(next_event_of_first_side(&sides), Ok(make_shutdown_event(SERVER)));
    }
}

#[over(connected, native)]
fn timed_out_request_leaves_event_queue_and_backlog(net: &Net) {
    let (clock, client, server, listener) = open_sides(net);
    listener.set_backlog(1).unwrap();
    for _ in 0..5 {
        let _connecting = connect_impatiently(&client, &listener);
        poll_until("a request", || {
            client.progress();
            server.peek_request()
        });
        expect_timeout(&clock, &[&client]);
        poll_until("that the request is withdrawn", || {
            client.progress();
            server.progress();
            (server.eq.peek() == Ok(None)).then_some(())
        });
    }
    drop(listener);
    // Both sides can still connect.
    let _pair = connect_pair(&client, &server);
}
