//! Waiting for counters: `fi_cntr(3)`, `fi_poll(3)`.

use super::counters::{LENS_BYTES, make_counting_setup, make_region_spec};
use super::prelude::*;

/// Returns all wait objects of counters.
pub(super) fn all_wait_objects() -> impl Iterator<Item = WaitObject> {
    WAIT_OBJECTS.into_iter().chain([WaitObject::None])
}

/// Opens two parties with counters. The parties make progress only in the calls of their waiting threads.
fn open_sleepers(net: &Net, wait: WaitObject) -> (Party, Party) {
    let setup = || Setup { asleep: true, wait, ..make_counting_setup() };
    net.open_pair_with(setup(), setup())
}

/// While this thread acts, another one waits until the counter has reached the threshold, and then drives the
/// counter's endpoints. The counter must count nothing more.
pub(super) fn wait_for_counter_beside(counter: &Counter, threshold: u64, act: impl FnOnce()) {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            wait_for_threshold(counter, threshold);
            drive_counter_until(counter, &is_over);
        });
        let _over = StopOnDrop(&is_over);
        act();
    });
    assert_eq!((counter.read(), counter.read_error()), (threshold, 0));
}

/// Both parties wait only for counters, which count sends, receives, and accesses by the peer. Some of the
/// sends end only when the peer responds.
/// Shows fi_cntr/wait-reaches-threshold, fi_cntr/counter-wait-objects.
#[over(one_process)]
fn counter_waits_wake_for_endpoint_events(net: &Net) {
    for wait in all_wait_objects() {
        let (alice, bob) = open_sleepers(net, wait);
        assert_eq!(bob.local_counter(RECV).wait_object(), wait);
        let region = bob.register(make_region_spec(1 << 21, MemoryKind::Raw)).unwrap();
        let lens_bytes = if net.can_sleep() { &LENS_BYTES[..] } else { &LENS_BYTES[..5] };
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                for (number, &len_bytes) in (1..).zip(lens_bytes) {
                    bob.endpoint.recv(marked_buffer(len_bytes), ANY, number).unwrap();
                    wait_for_threshold(bob.local_counter(RECV), number);
                    wait_for_threshold(bob.local_counter(REMOTE_WRITE), number);
                    wait_for_threshold(bob.local_counter(REMOTE_READ), number);
                    bob.endpoint.send(payload(number, 8), bob.peer(), number).unwrap();
                    wait_for_threshold(bob.local_counter(SEND), number);
                }
                drive_counter_until(bob.local_counter(RECV), &is_over);
            });
            let _over = StopOnDrop(&is_over);
            for (number, &len_bytes) in (1..).zip(lens_bytes) {
                let_threads_fall_asleep();
                alice.endpoint.recv(marked_buffer(8), ANY, number).unwrap();
                alice.post_send(number, len_bytes, OpFlags::MATCH_COMPLETE);
                wait_for_threshold(alice.local_counter(SEND), number);
                post_access(RmaBy::Write, &alice, &region, number, 0, len_bytes);
                wait_for_threshold(alice.local_counter(WRITE), number);
                post_access(RmaBy::Read, &alice, &region, number, 0, len_bytes);
                wait_for_threshold(alice.local_counter(READ), number);
                wait_for_threshold(alice.local_counter(RECV), number);
            }
        });
        start_driving_both(net, [&alice, &bob]);
        for party in [&alice, &bob] {
            let has_no_failure = |event| party.read_counter(event).1 == 0;
            assert!([SEND, RECV, READ, WRITE].into_iter().all(has_no_failure), "{wait:?}");
        }
    }
}

/// The target waits only for the counter of its region. The counter is bound to no endpoint.
/// Shows fi_cntr/wait-reaches-threshold.
#[over(one_process)]
fn counter_wait_wakes_for_remote_accesses_to_a_region(net: &Net) {
    for wait in all_wait_objects() {
        let setup = |wait| Setup { wait, ..Setup::asleep() };
        let (alice, bob) = net.open_pair_with(setup(WaitObject::Unspec), setup(wait));
        let region = register_region(bob.local_domain(), KEY, MrFlags::empty());
        let counter = open_counter(bob.local_domain(), wait);
        region.bind_counter(&counter, REMOTE_WRITE | REMOTE_READ).unwrap();
        wait_for_counter_beside(&counter, 10, || {
            for context in 0..5 {
                let_threads_fall_asleep();
                let endpoint = alice.endpoint.expect_local();
                endpoint.write(payload(context, 8), alice.peer(), region.remote(), context).unwrap();
                endpoint.read(marked_buffer(8), alice.peer(), region.remote(), context).unwrap();
                for _ in 0..2 {
                    sleep_until_operation_ends(alice.local_cq()).expect("no failure");
                }
            }
        });
        start_driving_both(net, [&alice, &bob]);
    }
}

/// Shows fi_cntr/error-ends-wait.
#[over(one_process)]
fn counter_wait_ends_when_an_operation_fails(net: &Net) {
    for wait in all_wait_objects() {
        let (alice, bob) = open_sleepers(net, wait);
        thread::scope(|scope| {
            let waits = scope.spawn(|| bob.local_counter(RECV).wait(1, Some(PATIENCE)));
            let_threads_fall_asleep();
            // A failure that was counted before the wait does not end the wait.
            poll_until("a wait to end", || {
                bob.endpoint.recv(marked_buffer(4), ANY, 1).unwrap();
                bob.endpoint.cancel(1).unwrap();
                thread::sleep(Duration::from_millis(1));
                waits.is_finished().then_some(())
            });
            assert_eq!(waits.join().expect("no panic"), Err(CounterWaitError::ErrorAvailable));
        });
        assert!(bob.read_counter(RECV).1 > 0);
        // The send goes to an address without a listener.
        let (_vacancy, absent) = net.insert_vacant_address(&alice);
        alice.endpoint.send(payload(1, 8), absent, 1).unwrap();
        let waited = alice.local_counter(SEND).wait(1, Some(PATIENCE));
        assert_eq!(waited, Err(CounterWaitError::ErrorAvailable));
        start_driving_both(net, [&alice, &bob]);
    }
}
