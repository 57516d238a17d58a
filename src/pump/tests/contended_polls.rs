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
    let counter =
        Counter::open(&CounterAttr::default(), DomainId::allocate(), &Clock::System).expect("a counter");
    counter.shared().add_endpoint(&as_drive(&endpoint.pump));
    let eq = EventQueue::open(&EqAttr::default(), &Clock::System).expect("a queue");
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
    endpoint.pump.progress_without_reader();
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

#[test]
fn closing_endpoint_fills_no_memory_that_was_withdrawn_from_its_receives() {
    const LEN_BYTES: usize = 8;
    let provider = RecordingProvider::default();
    let calls = provider.calls.clone();
    let [sender, silent] = [(); 2].map(|()| EndpointWithoutThread::new());
    let closing = EndpointWithoutThread::open(&provider);
    let memory = Box::leak(Box::new([0_u8; LEN_BYTES]));
    let piece = SegmentMut { address: memory.as_mut_ptr(), len_bytes: LEN_BYTES };
    #[expect(unsafe_code, reason = "only memory of the raw tier can be withdrawn")]
    // SAFETY: the memory is never freed, and read only once the endpoint has closed.
    let destination = unsafe { Destination::raw(&[piece]) }.expect("one piece");
    let deadline = Instant::now() + PATIENCE;
    for destination in [Destination::owned(BytesMut::zeroed(LEN_BYTES)), destination] {
        let mut receive = make_receive(ReceiveKind::Single, None, destination);
        closing.pump.post_receive(&mut receive).expect("room");
    }
    sender.send(&closing, Bytes::from_static(b"in time"));
    while !closing.cq.shared().has_unread() {
        sender.poll(1);
        closing.poll(1);
        assert!(Instant::now() < deadline, "the first message does not arrive");
    }
    // What the silent endpoint does not read keeps the closing one.
    closing.send(&silent, Bytes::from(vec![1; 64 << 20]));
    let close = thread::spawn({
        let pump = closing.pump.clone();
        move || pump.close(PATIENCE)
    });
    let passes = || calls.take().iter().filter(|call| **call == Call::Receive).count();
    let wait_for_passes = || {
        let mut count = 0;
        while count < 3 {
            count += passes();
            sender.poll(1);
            assert!(Instant::now() < deadline, "the close makes no passes");
            thread::yield_now();
        }
    };
    wait_for_passes();
    closing.pump.cancel_receives_into(&piece);
    sender.send(&closing, Bytes::from_static(b"too late"));
    wait_for_passes();
    silent.pump.close(Duration::ZERO);
    close.join().expect("no panic");
    assert_eq!(*memory, [0; LEN_BYTES]);
}
