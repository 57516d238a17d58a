//! Waiting for events of connections: `fi_eq(3)`, `fi_poll(3)`.

use std::sync::Barrier;

use super::prelude::*;
use crate::connecting::ConnectionRequest;

#[track_caller]
fn sleep_until_request(side: &Side) -> ConnectionRequest {
    match sleep_until_event(side) {
        Ok(ConnectionEvent::Request(request)) => request,
        other => panic!("not a request: {other:?}"),
    }
}

/// Shows fi_eq/eq-sread-blocks.
#[over(connected, automatic, native)]
fn event_wait_wakes_for_connection_events(net: &Net) {
    for wait in WAIT_OBJECTS {
        let side = || Side::open_with_wait_objects(net, wait, WaitObject::None);
        let (client, server) = (side(), side());
        let listener = server.open_listener(LISTENER);
        let name = listener.name().unwrap();
        thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..3 {
                    let request = sleep_until_request(&server);
                    let_threads_fall_asleep();
                    let _accepting = server.accept(&request, b"welcome");
                    assert_eq!(sleep_until_event(&server), Ok(make_connected_event(SERVER, b"")));
                    assert_eq!(sleep_until_event(&server), Ok(make_shutdown_event(SERVER)));
                }
            });
            for _ in 0..3 {
                let_threads_fall_asleep();
                let connecting = client.open_endpoint(CLIENT);
                connecting.connect(name, b"please").unwrap();
                assert_eq!(sleep_until_event(&client), Ok(make_connected_event(CLIENT, b"welcome")));
                let_threads_fall_asleep();
                connecting.shutdown().unwrap();
                assert_eq!(sleep_until_event(&client), Ok(make_shutdown_event(CLIENT)));
            }
        });
    }
}

/// Shows fi_eq/eq-sread-blocks.
#[over(connected, native)]
fn event_wait_wakes_for_connection_failures(net: &Net) {
    for wait in BLOCKING_WAIT_OBJECTS {
        let side = || Side::open_with_wait_objects(net, wait, WaitObject::None);
        let (client, server) = (side(), side());
        let listener = server.open_listener(LISTENER);
        let name = listener.name().unwrap();
        let vacancy = net.reserve_vacant_address();
        let (arrived, is_arrived) = mpsc::channel();
        let connect = |to| {
            let connecting = client.open_endpoint(CLIENT);
            connecting.connect(to, b"").unwrap();
            connecting
        };
        thread::scope(|scope| {
            scope.spawn(|| {
                let arrived = arrived;
                let rejected = sleep_until_request(&server);
                let_threads_fall_asleep();
                rejected.reject(b"no").unwrap();
                let gone = sleep_until_request(&server);
                arrived.send(()).unwrap();
                let_threads_fall_asleep();
                let accepting = server.open_endpoint_for_request(&gone, SERVER);
                // The requester closes soon after its request has arrived.
                thread::sleep(Duration::from_millis(20));
                accepting.accept(b"").unwrap();
                match sleep_until_event(&server) {
                    Err(error) => assert_eq!((error.object, error.errno), (SERVER, Errno::ECONNABORTED)),
                    // The requester was still open when the server accepted.
                    Ok(event) => {
                        assert_eq!(event, make_connected_event(SERVER, b""));
                        assert_eq!(sleep_until_event(&server), Ok(make_shutdown_event(SERVER)));
                    }
                }
            });
            for (to, said) in [(vacancy.address, &b""[..]), (name, b"no")] {
                let _connecting = connect(to);
                let error = sleep_until_event(&client).expect_err("it is refused");
                assert_eq!((error.object, error.errno), (CLIENT, Errno::ECONNREFUSED));
                assert_eq!(error.err_data[..], *said);
            }
            let _connecting = connect(name);
            // The request goes out while the client waits for another event.
            assert_eq!(client.eq.sread(Some(Duration::from_millis(10))), Ok(None));
            // Keep the requester open until the server has the request. Closing would withdraw the request.
            is_arrived.recv().expect("the server has the request");
        });
    }
}

#[over(connected, native)]
fn blocked_completion_read_completes_the_connection(net: &Net) {
    for wait in BLOCKING_WAIT_OBJECTS {
        let client = Side::open_with_wait_objects(net, WaitObject::None, wait);
        let server = Side::open_with_wait_objects(net, WaitObject::Unspec, wait);
        let listener = server.open_listener(LISTENER);
        let connecting = client.open_endpoint(CLIENT);
        thread::scope(|scope| {
            scope.spawn(|| {
                let accepting = server.open_endpoint_for_request(&sleep_until_request(&server), SERVER);
                accepting.accept(b"").unwrap();
                assert_eq!(sleep_until_event(&server), Ok(make_connected_event(SERVER, b"")));
                accepting.send(payload(1, 8), NOWHERE, 1).unwrap();
                assert_eq!(sleep_until_operation_ends(&server.cq).unwrap().0.context, 1);
                assert_eq!(sleep_until_event(&server), Ok(make_shutdown_event(SERVER)));
            });
            connecting.enable().unwrap();
            connecting.recv(marked_buffer(8), NOWHERE, 2).unwrap();
            connecting.connect(listener.name().unwrap(), b"").unwrap();
            // The client reads no event before its completion.
            let (completion, _) = sleep_until_operation_ends(&client.cq).unwrap();
            assert_eq!(received_bytes(&completion.buffer), payload(1, 8));
            drop(connecting);
        });
    }
}

/// Shows fi_eq/eq-sread-blocks.
#[over(connected, native)]
fn application_event_wakes_every_waiter(net: &Net) {
    for wait in WAIT_OBJECTS {
        let attr = EqAttr { flags: EqFlags::WRITE, wait, ..EqAttr::default() };
        let eq = net.fabric.open_eq(&attr).unwrap();
        let written = Event::Written { number: 7, data: b"wake up"[..].into() };
        let ready = Barrier::new(4);
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    ready.wait();
                    assert_eq!(eq.speek(Some(PATIENCE)), Ok(Some(written.clone())));
                });
            }
            ready.wait();
            let_threads_fall_asleep();
            eq.write(7, b"wake up").unwrap();
        });
        assert_eq!(eq.read(), Ok(Some(written)));
    }
}
