//! Polls while another thread uses the endpoint.

use std::sync::mpsc;
use std::thread;

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
