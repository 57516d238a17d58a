//! Blocking reads, and wait objects on which an application sleeps itself: `fi_cq(3)`, `fi_poll(3)`.

use super::prelude::*;
use crate::posix;

/// Lengths of messages that use every protocol.
const LENS_BYTES: [usize; 6] = [0, 8, 9000, 70_000, 300_000, 5 << 20];

/// Returns message lengths for a test. If endpoints have no descriptor, a reader yields between two polls,
/// and long messages would take too long.
fn select_lens_bytes(net: &Net) -> &'static [usize] {
    if net.can_sleep() { &LENS_BYTES } else { &LENS_BYTES[..4] }
}

/// Returns the setup of a party that makes progress only in the calls of its waiting threads.
fn sleeping_setup(wait: WaitObject) -> Setup {
    Setup { asleep: true, wait, ..Setup::default() }
}

/// Runs a test with two [sleeping](sleeping_setup) parties for each wait object.
fn for_each_pair_of_sleepers(net: &Net, waits: &[WaitObject], test: impl Fn(&Party, &Party)) {
    for &wait in waits {
        let (alice, bob) = net.open_equal_pair(sleeping_setup(wait));
        test(&alice, &bob);
        start_driving_both(net, [&alice, &bob]);
    }
}

#[track_caller]
fn sleep_until_completion(cq: &CompletionQueue) -> Completion {
    sleep_until_operation_ends(cq).expect("no operation fails").0
}

/// Runs `test` here, and `work` in a thread, which then waits on the queue until the test is over. Meanwhile
/// the queue's endpoints answer peers.
fn run_beside_waiter(cq: &CompletionQueue, work: impl FnOnce() + Send, test: impl FnOnce()) {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            work();
            while !is_over.load(Ordering::SeqCst) {
                assert_eq!(cq.sread(Some(PATIENCE)), Ok(None));
            }
        });
        let over = StopOnDrop(&is_over);
        test();
        drop(over);
        cq.signal();
    });
}

/// Shows fi_cq/wait-object-is-signaled, fi_cq/wait-unspec-blocks, fi_cq/wait-mutex-cond, fi_cq/wait-yield,
/// fi_cq/wait-condition, fi_cq/sread-blocks.
#[over(one_process)]
fn messages_of_every_size_wake_both_sides(net: &Net) {
    let lens_bytes = (0..).zip(select_lens_bytes(net).iter().copied());
    for_each_pair_of_sleepers(net, &WAIT_OBJECTS, |alice, bob| {
        let answer_each = || {
            for (context, len_bytes) in lens_bytes.clone() {
                bob.post_receives([context], len_bytes);
                let ended = sleep_until_operation_ends(bob.local_cq());
                let (taken, source) = ended.expect("no operation fails");
                assert!(received_bytes(&taken.buffer) == payload(context, len_bytes));
                assert_eq!(source, bob.peer());
                bob.post_send(99, 8, OpFlags::empty());
                assert_eq!(sleep_until_completion(bob.local_cq()).context, 99);
            }
        };
        run_beside_waiter(bob.local_cq(), answer_each, || {
            for (context, len_bytes) in lens_bytes.clone() {
                let_threads_fall_asleep();
                alice.post_receives([77], 8);
                alice.post_send(context, len_bytes, OpFlags::empty());
                let ended = [(); 2].map(|()| sleep_until_completion(alice.local_cq()).context);
                assert_eq!(BTreeSet::from(ended), BTreeSet::from([context, 77]));
            }
        });
    });
}

/// The receiver's thread sleeps while another thread posts the receives: that of a long message before the
/// send, and any other after it.
/// Shows fi_cq/match-depends-on-receiver.
#[over(one_process)]
fn completions_of_every_level_wake_the_sender(net: &Net) {
    let of_level = |flags| select_lens_bytes(net).iter().map(move |&len_bytes| (flags, len_bytes));
    let matched = [(OpFlags::MATCH_COMPLETE, 100); 30];
    let messages: Vec<_> = LEVELS.into_iter().flat_map(of_level).chain(matched).collect();
    for_each_pair_of_sleepers(net, &BLOCKING_WAIT_OBJECTS, |alice, bob| {
        let take_each = || {
            for context in 0..messages.len() as u64 {
                assert_eq!(sleep_until_completion(bob.local_cq()).context, context);
            }
        };
        run_beside_waiter(bob.local_cq(), take_each, || {
            for (context, &(flags, len_bytes)) in (0..).zip(&messages) {
                let is_first = len_bytes > 9000;
                if is_first {
                    bob.post_receives([context], len_bytes);
                }
                alice.post_send(context, len_bytes, flags);
                if !is_first {
                    if context % 3 == 0 {
                        let_threads_fall_asleep();
                    }
                    bob.post_receives([context], len_bytes);
                }
                assert_eq!(sleep_until_completion(alice.local_cq()).context, context);
            }
        });
    });
}

/// Shows fi_cq/wait-object-is-signaled, fi_cq/sread-blocks.
#[over(one_process)]
fn errors_wake_a_blocked_reader(net: &Net) {
    for_each_pair_of_sleepers(net, &WAIT_OBJECTS, |alice, bob| {
        // The send goes to an address without a listener.
        let (_vacancy, absent) = net.insert_vacant_address(alice);
        alice.endpoint.send(payload(1, 8), absent, 1).unwrap();
        let failed = sleep_until_operation_ends(alice.local_cq()).expect_err("there is no listener");
        assert_eq!((failed.completion.context, failed.errno()), (1, Errno::ECONNREFUSED));
        thread::scope(|scope| {
            scope.spawn(|| {
                // A truncated receive, and then a cancelled one.
                let failed = sleep_until_operation_ends(bob.local_cq()).expect_err("it does not fit");
                assert_eq!((failed.completion.context, failed.overflow_bytes()), (2, 4));
                let failed = sleep_until_operation_ends(bob.local_cq()).expect_err("it was cancelled");
                assert_eq!((failed.completion.context, failed.errno()), (3, Errno::ECANCELED));
            });
            bob.post_receives([2, 3], 4);
            let_threads_fall_asleep();
            alice.post_send(4, 8, OpFlags::DELIVERY_COMPLETE);
            assert_eq!(sleep_until_completion(alice.local_cq()).context, 4);
            let_threads_fall_asleep();
            bob.endpoint.cancel(3).unwrap();
        });
    });
}

/// The test kills the peer's process.
#[over(one_process, other_processes)]
fn killed_peer_wakes_a_blocked_reader(net: &Net) {
    let there = net.with_processes().expect("the transport reaches other processes");
    for wait in BLOCKING_WAIT_OBJECTS {
        let (alice, bob) = (net.open_party_with(sleeping_setup(wait)), there.open_party());
        alice.meet(&bob);
        bob.post_receives([1], 8);
        alice.post_send(2, 8, OpFlags::MATCH_COMPLETE);
        assert_eq!(sleep_until_completion(alice.local_cq()).context, 2);
        // Send a short message that arrives and stays unmatched. Also send a long message. The peer dies
        // before it fetches the long one.
        alice.post_send(3, 8, OpFlags::MATCH_COMPLETE);
        alice.post_send(4, 1 << 20, OpFlags::MATCH_COMPLETE);
        thread::scope(|scope| {
            scope.spawn(|| {
                let failed = [(); 2].map(|()| {
                    let failed = sleep_until_operation_ends(alice.local_cq());
                    failed.expect_err("the peer is dead").completion.context
                });
                assert_eq!(BTreeSet::from(failed), BTreeSet::from([3, 4]));
            });
            let_threads_fall_asleep();
            bob.kill();
        });
    }
}

/// Shows fi_cq/timeout-in-milliseconds, fi_cq/sread-blocks, fi_cq/sread-return.
#[over(one_process)]
fn timeout_ends_a_blocking_read(net: &Net) {
    for wait in WAIT_OBJECTS {
        let alice = net.open_party_with(sleeping_setup(wait));
        let cq = alice.local_cq();
        for millis in [0, 1, 30] {
            let (begin, timeout) = (Instant::now(), Duration::from_millis(millis));
            assert_eq!(cq.sread(Some(timeout)), Ok(None));
            assert!(begin.elapsed() >= timeout, "it has given up too soon");
        }
        assert_eq!(cq.sread_each(0, 1, Some(Duration::ZERO), |_, _| {}), Ok(None));
    }
}

/// Shows fi_cq/sread-ends-on-signal, fi_cq/signal-unblocks-sread, fi_cq/sread-return.
#[over(one_process)]
fn signal_ends_all_current_waits_or_the_next(net: &Net) {
    for wait in WAIT_OBJECTS {
        let alice = net.open_party_with(sleeping_setup(wait));
        let cq = alice.local_cq();
        cq.signal();
        cq.signal();
        assert_eq!(cq.sread(Some(PATIENCE)), Ok(None), "it came before");
        assert_eq!(cq.sread(Some(Duration::from_millis(1))), Ok(None), "and it is over");

        let has_woken_all = (1..=20)
            .any(|attempt| signal_four_waits_and_check_all_wake(cq, attempt * Duration::from_millis(5)));
        assert!(has_woken_all, "one signal has never ended four waits by {wait:?}");
    }
}

/// Starts four threads that wait, and signals once after the time `to_begin`. Returns whether this signal
/// ended all four waits. If it did not, sends further signals.
fn signal_four_waits_and_check_all_wake(cq: &CompletionQueue, to_begin: Duration) -> bool {
    const THREADS: usize = 4;
    let (begun, ended) = (AtomicUsize::new(0), AtomicUsize::new(0));
    // A signal may remain from an earlier attempt.
    let _ = cq.sread(Some(Duration::from_millis(1)));
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                begun.fetch_add(1, Ordering::SeqCst);
                assert_eq!(cq.sread(None), Ok(None));
                ended.fetch_add(1, Ordering::SeqCst);
            });
        }
        poll_until("four threads to begin", || (begun.load(Ordering::SeqCst) == THREADS).then_some(()));
        thread::sleep(to_begin);
        assert_eq!(ended.load(Ordering::SeqCst), 0, "nothing has ended them");
        cq.signal();
        // Wait ten times as long as the threads had to begin.
        let until = Instant::now() + 10 * to_begin;
        while ended.load(Ordering::SeqCst) < THREADS && Instant::now() < until {
            thread::yield_now();
        }
        let are_all_woken = ended.load(Ordering::SeqCst) == THREADS;
        let deadline = Deadline::new();
        while ended.load(Ordering::SeqCst) < THREADS {
            cq.signal();
            deadline.yield_or_panic("four threads to be signalled");
        }
        are_all_woken
    })
}

/// Shows fi_cq/wait-condition, fi_cq/cond-threshold, fi_cq/read-several, fi_cq/sread-blocks.
#[over(one_process)]
fn blocking_read_waits_for_the_threshold(net: &Net) {
    for_each_pair_of_sleepers(net, &WAIT_OBJECTS, |alice, bob| {
        let cq = bob.local_cq();
        bob.post_receives(0..8, 8);
        let drive_until = |is_over: &dyn Fn() -> bool| {
            poll_until("the end of a wait", || {
                alice.poll_completion();
                is_over().then_some(())
            });
        };
        // Waits for five entries, while alice sends so many messages, and while `act` runs.
        let read_five = |timeout: Option<Duration>, messages: u64, act: &dyn Fn()| {
            thread::scope(|scope| {
                let waits = scope.spawn(move || {
                    let mut contexts = Vec::new();
                    let read = cq.sread_each(8, 5, timeout, |entry, _| contexts.push(entry.context));
                    (read, contexts)
                });
                let_threads_fall_asleep();
                (0..messages).for_each(|_| alice.post_send(9, 8, OpFlags::empty()));
                act();
                drive_until(&|| waits.is_finished());
                waits.join().expect("no panic")
            })
        };
        assert_eq!(read_five(Some(PATIENCE), 5, &|| {}), (Ok(Some(5)), vec![0, 1, 2, 3, 4]));
        // A read that finds fewer entries than its threshold times out. Later, an error follows a success.
        let (read, _) = read_five(Some(Duration::from_millis(100)), 1, &|| {});
        if read == Ok(None) {
            thread::scope(|scope| {
                let late = scope.spawn(|| sleep_until_completion(cq));
                drive_until(&|| late.is_finished());
                assert_eq!(late.join().expect("no panic").context, 5);
            });
        } else {
            assert_eq!(read, Ok(Some(1)));
        }
        let (read, _) = read_five(None, 1, &|| {
            // Only the error can end the wait, whether or not the message has arrived.
            let begin = Instant::now();
            drive_until(&|| begin.elapsed() > Duration::from_millis(20));
            bob.endpoint.cancel(7).unwrap();
        });
        assert!(matches!(read, Ok(Some(1)) | Err(ReadError::ErrorAvailable)), "{read:?}");
        assert_eq!(cq.sread(None), Err(ReadError::ErrorAvailable));
        assert_eq!(cq.read_error().unwrap().expect("it was announced").completion.context, 7);
    });
}

/// A threshold above the depth of the queue acts as the depth.
/// Shows fi_cq/cond-threshold.
#[over(one_process)]
fn threshold_beyond_the_depth_acts_as_the_depth(net: &Net) {
    let setup = Setup { cq_depth_entries: 2, ..sleeping_setup(WaitObject::Unspec) };
    let bob = net.open_party_with(setup);
    bob.insert_address_of(&bob);
    (0..3).for_each(|context| bob.post_send(context, 8, OpFlags::empty()));
    let mut count = 0;
    assert_eq!(bob.local_cq().sread_each(8, 100, Some(PATIENCE), |_, _| count += 1), Ok(Some(2)));
    // The third entry had no room, and the next read returns it.
    assert_eq!((count, sleep_until_completion(bob.local_cq()).context), (2, 2));
}

/// Each party has two threads. One sleeps until a message arrives, and the other polls for completions of
/// sends.
#[over(one_process)]
fn blocked_reader_wakes_while_another_thread_polls(net: &Net) {
    let (alice, bob) = net.open_equal_pair(Setup { separate_queues: true, ..sleeping_setup(WaitObject::Fd) });
    let take_each = |party: &Party| {
        for context in 0..100 {
            party.post_receives([context], 20_000);
            let taken = sleep_until_completion(party.local_receive_cq());
            assert!(received_bytes(&taken.buffer) == payload(context, 20_000));
        }
    };
    let send_each = |party: &Party| {
        for context in 0..100 {
            party.post_send(context, 20_000, OpFlags::DELIVERY_COMPLETE);
            assert_eq!(next_completion_of(party.local_cq(), &[]).context, context);
        }
    };
    let (alice_takes, bob_takes) = (|| take_each(&alice), || take_each(&bob));
    run_beside_waiter(alice.local_receive_cq(), alice_takes, || {
        run_beside_waiter(bob.local_receive_cq(), bob_takes, || {
            thread::scope(|scope| {
                scope.spawn(|| send_each(&alice));
                send_each(&bob);
            });
        });
    });
    start_driving_both(net, [&alice, &bob]);
}

#[over(one_process)]
fn endpoints_open_and_close_under_a_blocked_reader(net: &Net) {
    for wait in BLOCKING_WAIT_OBJECTS {
        let domain = net.open_other_domain();
        let cq = domain.open_cq(&CqAttr { wait, ..CqAttr::default() }).unwrap();
        let counter = open_counter(&domain, WaitObject::None);
        let messages = Info { caps: Caps::MSG | Caps::SEND | Caps::RECV, ..net.info().clone() };
        let taken = AtomicU64::new(0);
        thread::scope(|scope| {
            let receives = scope.spawn(|| {
                for context in 0..3 {
                    assert_eq!(sleep_until_completion(&cq).context, context);
                    taken.fetch_add(1, Ordering::SeqCst);
                }
            });
            let alice = net.open_party_with(Setup::asleep());
            let open = |is_bound_late| {
                let_threads_fall_asleep();
                let (endpoint, _av) = open_endpoint_with_queues(&domain, &messages, &[]);
                if is_bound_late {
                    endpoint.bind_counter(&counter, SEND | RECV).unwrap();
                    endpoint.enable().unwrap();
                    let_threads_fall_asleep();
                }
                endpoint.bind_cq(&cq, BOTH).unwrap();
                endpoint.enable().unwrap();
                endpoint
            };
            let reach = |endpoint: &Endpoint, context: u64| {
                let_threads_fall_asleep();
                endpoint.recv(marked_buffer(8), ANY, context).unwrap();
                alice.endpoint.send(payload(1, 8), alice.insert(endpoint.name().unwrap()), context).unwrap();
                poll_until("a message to wake its receiver", || {
                    alice.poll_completion();
                    (taken.load(Ordering::SeqCst) > context).then_some(())
                });
            };
            let first = open(false);
            reach(&first, 0);
            let second = open(true);
            reach(&second, 1);
            drop(first);
            reach(&second, 2);
            receives.join().expect("everything has arrived");
            net.start_driving(&alice);
        });
    }
}

/// A handler in the waiting thread ends the waits for queues, event queues, counters and wait sets.
/// Shows fi_cq/sread-ends-on-signal.
#[over(one_process)]
fn signal_handler_ends_every_wait(net: &Net) {
    // Threads that poll do not sleep, so no handler ends their waits.
    if !net.can_sleep() {
        return;
    }
    const TIMEOUT: Option<Duration> = Some(PATIENCE.saturating_mul(2));
    let with_each_handler = |wait: &(dyn Fn() + Sync)| {
        [false, true].into_iter().for_each(|restarts| posix::interrupt_wait(restarts, wait));
    };
    for wait in BLOCKING_WAIT_OBJECTS {
        let (alice, bob) = net.open_equal_pair(Setup { counts: true, ..sleeping_setup(wait) });
        let cq = bob.local_cq();
        with_each_handler(&|| assert_eq!(cq.sread(TIMEOUT), Ok(None)));
        let counter = bob.local_counter(CounterEvents::RECV);
        with_each_handler(&|| assert_eq!(counter.wait(1, TIMEOUT), Err(CounterWaitError::Interrupted)));
        // Whatever the queue has is read, though it is less than the wait was for.
        alice.post_send(1, 8, OpFlags::INJECT_COMPLETE);
        let read_none = |threshold| alice.local_cq().sread_each(0, threshold, TIMEOUT, |_, _| {});
        assert_eq!(read_none(1), Ok(Some(0)));
        with_each_handler(&|| assert_eq!(read_none(2), Ok(Some(0))));
        assert_eq!(alice.next_completion().context, 1);
        start_driving_both(net, [&alice, &bob]);

        let side = Side::open_with_wait_objects(net, wait, WaitObject::None);
        let _listener = side.open_listener(LISTENER);
        with_each_handler(&|| assert_eq!(side.eq.sread(TIMEOUT), Ok(None)));

        let set = net.fabric.open_wait_set(wait).expect("a wait set");
        let member = CqAttr { wait: WaitObject::Set, wait_set: Some(set.clone()), ..CqAttr::default() };
        let member = net.open_other_domain().open_cq(&member).unwrap();
        with_each_handler(&|| assert_eq!(set.wait(TIMEOUT), Err(WaitError::Interrupted)));
        thread::scope(|scope| {
            let other = scope.spawn(|| set.wait(TIMEOUT));
            let_threads_fall_asleep();
            with_each_handler(&|| assert_eq!(set.wait(TIMEOUT), Err(WaitError::Interrupted)));
            member.signal();
            assert_eq!(other.join().expect("no panic"), Ok(()));
        });
    }
}

/// `fi_trywait(3)` of a queue and a counter, which answers for all objects together.
#[over(one_process)]
fn trywait_of_two_objects_refuses_sleep_once_after_a_change_of_one(net: &Net) {
    let (alice, bob) = net.open_equal_pair(Setup { counts: true, ..sleeping_setup(WaitObject::Fd) });
    let both: [&dyn Waitable; 2] = [bob.local_cq(), bob.local_counter(RECV)];
    assert_eq!(both.map(Waitable::wait_object), [WaitObject::Fd; 2]);
    if net.can_sleep() {
        poll_until("an idle queue and an idle counter", || {
            (net.fabric.try_wait(&both) == Ok(true)).then_some(())
        });
        bob.local_counter(RECV).add(1);
        assert_eq!(net.fabric.try_wait(&both), Ok(false), "the second has changed");
        assert_eq!(net.fabric.try_wait(&both), Ok(true), "it was told of");
    } else if net.network.is_some() {
        assert_eq!(net.fabric.try_wait(&both), Ok(false), "they are polled");
    }
    start_driving_both(net, [&alice, &bob]);
}

/// Shows fi_cq/wait-default-is-none, fi_cq/wait-none-refuses-sread, fi_cq/wait-unspec-may-not-be-retrievable,
/// fi_cq/sread-needs-wait-object, fi_cq/signal-needs-wait-object.
#[over(one_process)]
fn queue_without_a_wait_object_refuses_waits(net: &Net) {
    let domain = net.open_other_domain();
    let polled = domain.open_cq(&CqAttr::default()).unwrap();
    assert_eq!(polled.sread(None), Err(ReadError::NoWaitObject));
    assert_eq!(polled.sread(Some(Duration::from_millis(1))), Err(ReadError::NoWaitObject));
    assert_eq!(polled.sread(Some(Duration::ZERO)), Ok(None), "it need not wait");
    assert_eq!(ReadError::NoWaitObject.errno(), Errno::EINVAL);
    polled.signal();
    expect_error(polled.try_wait(), Errno::EINVAL);
    expect_error(net.fabric.try_wait(&[&polled]), Errno::EINVAL);
    assert!(polled.wait_fd().is_none() && polled.wait_mutex_cond().unwrap().is_none());
    assert_eq!(polled.wait_object(), WaitObject::None);
    for wait in WAIT_OBJECTS {
        let cq = domain.open_cq(&CqAttr { wait, ..CqAttr::default() }).unwrap();
        assert_eq!(cq.wait_object(), wait);
        assert_eq!(cq.wait_fd().is_some(), wait == WaitObject::Fd);
        assert_eq!(cq.wait_mutex_cond().unwrap().is_some(), wait == WaitObject::MutexCond);
    }
    for (wait, refused) in [(WaitObject::Set, Errno::EINVAL), (WaitObject::PollFd, Errno::ENOSYS)] {
        assert_eq!(expect_errno(domain.open_cq(&CqAttr { wait, ..CqAttr::default() })), refused);
    }
}
