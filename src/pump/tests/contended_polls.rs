//! Calls while another thread uses the endpoint.

use std::net::SocketAddr;
use std::sync::mpsc;
use std::thread;

use homespun_engine::transport::Provider;

use super::recording::{Call, RecordingProvider};
use super::*;
use crate::counter::{Counter, CounterAttr};
use crate::eq::{EqAttr, EventQueue};

#[test]
fn reads_of_queues_and_counters_do_not_wait_for_a_running_pass() {
    let provider = RecordingProvider::default();
    let calls = provider.calls.clone();
    let endpoint = Arc::new(EndpointWithoutThread::open(&provider));
    let counter = Counter::open(&CounterAttr::default(), DomainId::allocate()).expect("a counter");
    counter.shared().add_endpoint(&as_drive(&endpoint.pump));
    let eq = EventQueue::open(&EqAttr::default()).expect("a queue");
    eq.shared().add_endpoint(&as_drive(&endpoint.pump));

    let gate = calls.stop_receives();
    let pass = thread::spawn({
        let endpoint = endpoint.clone();
        move || endpoint.poll(1)
    });
    let deadline = Instant::now() + PATIENCE;
    while calls.take().is_empty() {
        assert!(Instant::now() < deadline, "the pass does not begin");
        thread::yield_now();
    }
    let (done, is_done) = mpsc::channel();
    let reads = thread::spawn({
        let endpoint = endpoint.clone();
        move || {
            endpoint.poll(1);
            let values = (counter.read(), counter.read_error());
            let event = eq.read().expect("no error").is_some();
            done.send(()).expect("the test waits");
            (values, event)
        }
    });
    let are_done = is_done.recv_timeout(PATIENCE);
    drop(gate);
    pass.join().expect("no panic");
    assert_eq!(reads.join().expect("no panic"), ((0, 0), false));
    are_done.expect("the reads wait for the pass");

    // Without another thread, each read makes a pass.
    calls.take();
    endpoint.progress_without_cq_reader();
    assert_eq!(calls.take(), [Call::Receive, Call::Flush]);
}

/// The engine of an endpoint that closes may send the rest of a frame from the memory of a region.
#[test]
fn close_of_a_region_waits_for_the_close_of_an_endpoint() {
    let provider = RecordingProvider::default();
    let calls = provider.calls.clone();
    let bind = Address::from(SocketAddr::from(([127, 0, 0, 1], 0)));
    let transport = provider.open(bind, 1).expect("an endpoint");
    let (regions, locking) = (Arc::default(), Locking::Taken);
    let pump = Arc::new(Pump::new(transport, Config::default(), regions, locking, Clock::System));

    let gate = calls.stop_receives();
    let closing = thread::spawn({
        let pump = pump.clone();
        move || pump.close(PATIENCE)
    });
    let deadline = Instant::now() + PATIENCE;
    while calls.take() != [Call::StopAccepting] {
        assert!(Instant::now() < deadline, "the close does not begin");
        thread::yield_now();
    }
    let is_waited_for = lock_for_poll(&pump.closing).is_none();
    drop(gate);
    closing.join().expect("no panic");
    assert!(is_waited_for);
}
