//! A blocked thread uses no processor time while nothing happens, and wakes at the next event.
//!
//! Each bound is far above what a sleeping thread needs, and far below what a polling thread uses.

use std::os::fd::OwnedFd;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use homespun::flags::OpFlags;
use homespun::wait::WaitError;
use homespun::{ConnectionEnd, CounterAttr, CounterEvents, ReadError, WaitObject};

use homespun_suite::connecting::{CLIENT, ConnectionEvent, LISTENER, SERVER, Side, sleep_until_event};
use homespun_suite::payload::{payload, received_bytes};
use homespun_suite::sleeping::{self, BLOCKING_WAIT_OBJECTS, PATIENCE, sleep_until_operation_ends};
use homespun_suite::{Deadline, Net, Party, Setup, TransportKind, Turns, posix};

homespun_suite::party_process_entry!();

/// The time for which the process is idle while it is measured.
const IDLE: Duration = Duration::from_millis(400);

/// The most processor time that the process may use in [`IDLE`]: a twentieth. A thread that polls uses all
/// of the time. A thread that sleeps a hundred microseconds at a time uses a fifth.
const USED_MAX: Duration = Duration::from_millis(20);

/// A test holds this lock while it runs: it measures the processor time of the whole process.
static EXCLUSIVE_RUN: Mutex<()> = Mutex::new(());

fn lock_for_exclusive_run() -> MutexGuard<'static, ()> {
    EXCLUSIVE_RUN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The tests skip IPv6, since it adds nothing but time.
const TRANSPORTS: [TransportKind; 3] = [TransportKind::Tcp4, TransportKind::Shm4, TransportKind::MIXED4];

/// Opens two parties that make progress only in the calls of their blocked threads.
fn open_sleepers(net: &Net, wait: WaitObject) -> (Party, Party) {
    let setup = || Setup { asleep: true, wait, ..Setup::default() };
    net.open_pair_with(setup(), setup())
}

fn post_send(party: &Party, context: u64, len_bytes: usize) {
    party.post_send(context, len_bytes, OpFlags::DELIVERY_COMPLETE);
}

/// Sleeps until the next operation ends, which must succeed. Returns its context.
#[track_caller]
fn sleep_until_success(party: &Party) -> u64 {
    sleep_until_operation_ends(party.local_cq()).unwrap().0.context
}

/// Exchanges messages of every kind in both directions; each receiver blocks.
fn exchange_while_blocking(alice: &Party, bob: &Party) {
    const LENS_BYTES: [usize; 5] = [0, 8, 9000, 70_000, 1 << 20];
    thread::scope(|scope| {
        for party in [alice, bob] {
            scope.spawn(move || {
                for (context, len_bytes) in (0..).zip(LENS_BYTES) {
                    party.post_receives([100 + context], len_bytes);
                    post_send(party, context, len_bytes);
                }
                for _ in 0..2 * LENS_BYTES.len() {
                    sleep_until_success(party);
                }
            });
        }
    });
}

/// Measures the processor time of the process while its threads are blocked and nothing happens.
fn measure_idle_processor_time() -> Duration {
    // Let the threads fall asleep first.
    thread::sleep(Duration::from_millis(100));
    let before = posix::processor_time(libc::RUSAGE_SELF);
    thread::sleep(IDLE);
    posix::processor_time(libc::RUSAGE_SELF) - before
}

/// The cases of a test. Each case runs in a thread of its own, and all are measured together, with one
/// bound.
struct Cases {
    count: usize,
    state: Mutex<Arrivals>,
    changed: Condvar,
}

#[derive(Default)]
struct Arrivals {
    /// The number of cases that wait for the others.
    arrived: usize,
    /// How often all cases have met.
    meetings: usize,
    /// The processor time of the last measurement.
    used: Duration,
}

impl Cases {
    /// Runs a test for each transport and for each wait object that can block a thread.
    fn run_all(case: impl Fn(&Cases, &TransportKind, WaitObject) + Sync) {
        let transports = TRANSPORTS;
        let count = transports.len() * BLOCKING_WAIT_OBJECTS.len();
        let cases = Cases { count, state: Mutex::default(), changed: Condvar::new() };
        thread::scope(|scope| {
            for transport in &transports {
                for wait in BLOCKING_WAIT_OBJECTS {
                    let (cases, case) = (&cases, &case);
                    scope.spawn(move || case(cases, transport, wait));
                }
            }
        });
    }

    /// Waits until every case has called this function. The last caller calls `act`. Then all cases
    /// continue.
    #[track_caller]
    fn wait_for_all_cases(&self, act: impl FnOnce(&mut Arrivals)) -> Duration {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let meeting = state.meetings;
        state.arrived += 1;
        if state.arrived == self.count {
            act(&mut state);
            state.arrived = 0;
            state.meetings += 1;
            self.changed.notify_all();
            return state.used;
        }
        let waited = self.changed.wait_timeout_while(state, PATIENCE, |state| state.meetings == meeting);
        let (state, time) = waited.unwrap_or_else(PoisonError::into_inner);
        assert!(!time.timed_out(), "another case has failed before");
        state.used
    }

    /// Waits for all cases, and checks the processor time while their threads sleep.
    #[track_caller]
    fn assert_all_idle(&self, what: &str) {
        assert_idle(what, self.wait_for_all_cases(|state| state.used = measure_idle_processor_time()));
    }
}

#[track_caller]
fn assert_idle(what: &str, used: Duration) {
    assert!(used < USED_MAX, "{what}: {used:?} of processor time in {IDLE:?} in which nothing happened");
}

#[test]
fn blocked_reader_uses_no_processor_time() {
    check_idle_readers(Turns::Alternate);
}

#[test]
fn blocked_reader_uses_no_processor_time_under_automatic_progress() {
    check_idle_readers(Turns::Automatic);
}

fn check_idle_readers(turns: Turns) {
    let _alone = lock_for_exclusive_run();
    Cases::run_all(|cases, transport, wait| {
        let net = Net::new(transport, turns);
        let (alice, bob) = open_sleepers(&net, wait);
        // The first round is before any link is up, the second after.
        for round in 0..2 {
            if round == 1 {
                exchange_while_blocking(&alice, &bob);
            }
            thread::scope(|scope| {
                let sleeping =
                    [&alice, &bob].map(|party| scope.spawn(|| sleep_until_operation_ends(party.local_cq())));
                bob.post_receives([7], 8);
                cases.assert_all_idle(&format!("{transport:?} {wait:?} {round}"));
                post_send(&alice, 8, 8);
                let ended = sleeping.map(|thread| thread.join().expect("no panic").expect("no error").0);
                assert_eq!(ended.each_ref().map(|completion| completion.context), [8, 7]);
                assert!(received_bytes(&ended[1].buffer) == payload(8, 8));
            });
        }
    });
}

#[test]
fn wait_set_waiter_uses_no_processor_time() {
    let _alone = lock_for_exclusive_run();
    Cases::run_all(|cases, transport, object| {
        let net = Net::new(transport, Turns::Alternate);
        let set = net.fabric.open_wait_set(object).expect("a wait set");
        let (wait, wait_set) = (WaitObject::Set, Some(set.clone()));
        let setup = Setup { asleep: true, counts: true, separate_queues: true, ..Setup::default() };
        let sleeper = |wait| Setup { wait, ..setup.clone() };
        let (alice, bob) =
            net.open_pair_with(sleeper(WaitObject::Unspec), Setup { wait_set, ..sleeper(wait) });
        // The first round is before any link is up, the second after.
        for number in 1..=2 {
            bob.post_receives([number], 8);
            let received = bob.local_counter(CounterEvents::RECV);
            thread::scope(|scope| {
                let waits = scope.spawn(|| {
                    let deadline = Deadline::new();
                    while received.read() < number {
                        sleeping::sleep_on_wait_set(&set);
                        deadline.yield_or_panic("a message");
                    }
                    // An unread entry ends the next wait.
                    while bob.local_receive_cq().read().unwrap().is_none() {
                        deadline.yield_or_panic("the completion of a receive");
                    }
                });
                cases.assert_all_idle(&format!("{transport:?} {object:?} in a set"));
                alice.endpoint.send(payload(number, 8), alice.peer(), number).unwrap();
                sleep_until_operation_ends(alice.local_cq()).unwrap();
                waits.join().expect("no panic");
            });
        }
    });
}

/// The forked child has copies of the parent's descriptors and of a lock that is locked for ever.
#[test]
fn forked_child_does_not_disturb_a_wait_set_waiter() {
    let _alone = lock_for_exclusive_run();
    for object in BLOCKING_WAIT_OBJECTS {
        let net = Net::new(&TransportKind::Shm4, Turns::Alternate);
        let domain = net.open_other_domain();
        let set = net.fabric.open_wait_set(object).expect("a wait set");
        let attr = CounterAttr { wait: WaitObject::Set, wait_set: Some(set.clone()) };
        let counter = domain.open_counter(&attr).expect("a counter");
        thread::scope(|scope| {
            let waits = scope.spawn(|| {
                while counter.read() < 1 {
                    let _ = set.wait(None);
                }
            });
            sleeping::let_threads_fall_asleep();
            posix::run_in_forked_child(|| {
                let own = domain.open_counter(&attr).expect("a counter");
                own.add(1);
                assert_eq!(set.wait(None), Ok(()), "it finds what it has counted");
                assert_eq!(set.wait(Some(Duration::from_millis(5))), Err(WaitError::TimedOut));
                assert_eq!(set.try_wait(), Ok(false), "there is nothing to sleep on");
                // The descriptor stays in the set while the child lives.
                std::mem::forget(own);
            });
            assert_idle(&format!("{object:?} after a fork"), measure_idle_processor_time());
            counter.add(1);
            waits.join().expect("no panic");
        });
    }
}

/// Shows fi_cq/wait-condition, fi_cq/wait-condition-is-a-hint, fi_cq/cond-threshold.
#[test]
fn reader_below_its_threshold_uses_no_processor_time() {
    let _alone = lock_for_exclusive_run();
    for transport in TRANSPORTS {
        let net = Net::new(&transport, Turns::Alternate);
        let (alice, bob) = open_sleepers(&net, WaitObject::Unspec);
        bob.post_receives(0..2, 8);
        thread::scope(|scope| {
            let waits = scope.spawn(|| bob.local_cq().sread_each(8, 2, None, |_, _| {}));
            post_send(&alice, 7, 8);
            assert_eq!(sleep_until_success(&alice), 7);
            assert_idle(&format!("{transport:?} with one of two"), measure_idle_processor_time());
            post_send(&alice, 8, 8);
            assert_eq!(sleep_until_success(&alice), 8);
            assert_eq!(waits.join().expect("no panic"), Ok(Some(2)));
        });
    }
}

/// The stopped peer receives nothing. So the sender has no credit left, and the link is full.
#[test]
fn reader_with_a_stopped_peer_uses_no_processor_time() {
    let _alone = lock_for_exclusive_run();
    for transport in TRANSPORTS {
        let net = Net::new(&transport, Turns::Alternate);
        let there = net.with_processes().expect("it reaches other processes");
        let alice = net.open_party_with(Setup { asleep: true, wait: WaitObject::Unspec, ..Setup::default() });
        let bob = there.open_party();
        alice.meet(&bob);
        bob.post_receives([1], 8);
        post_send(&alice, 1, 8);
        assert_eq!(sleep_until_success(&alice), 1);
        bob.stop();
        // Send small messages until credit is used up, and long messages that fill the link or are offered.
        for context in 0..300 {
            post_send(&alice, context, [100, 9000, 200_000][context as usize % 3]);
        }
        thread::scope(|scope| {
            let waits = scope.spawn(|| alice.local_cq().sread(None));
            assert_idle(&format!("{transport:?}, peer stands still"), measure_idle_processor_time());
            bob.kill();
            assert_eq!(waits.join().expect("no panic"), Err(ReadError::ErrorAvailable));
        });
    }
}

/// While an event is unread, the library signals the condition again and again, at growing intervals.
#[test]
fn signalled_condition_variable_without_a_waiter_uses_no_processor_time() {
    let _alone = lock_for_exclusive_run();
    let net = Net::new(&TransportKind::Shm4, Turns::Alternate);
    let (alice, bob) = open_sleepers(&net, WaitObject::MutexCond);
    exchange_while_blocking(&alice, &bob);
    bob.post_receives([1], 8);
    let of = bob.local_cq().wait_mutex_cond().expect("a thread").expect("what it was opened with");
    while !bob.local_cq().try_wait().expect("a wait object") {}
    // Alice's message stays unread, so the library signals the condition of bob's queue.
    alice.endpoint.send(payload(1, 8), alice.peer(), 2).unwrap();
    assert_eq!(sleep_until_success(&alice), 2);
    assert_idle("a condition without a waiter", measure_idle_processor_time());
    // The event is signalled again for a late waiter.
    assert!(posix::wait_on_condition_variable(of, PATIENCE, || true));
    assert_eq!(sleep_until_success(&bob), 1);
}

/// The process has no descriptor left, so it cannot accept connections. Its listener retries at intervals.
#[test]
fn listener_without_descriptors_retries_rarely() {
    let _alone = lock_for_exclusive_run();
    for transport in TRANSPORTS {
        let net = Net::new(&transport, Turns::Alternate);
        let (alice, bob) = open_sleepers(&net, WaitObject::Unspec);
        bob.post_receives([1], 8);
        let mut held: Vec<OwnedFd> = Vec::new();
        thread::scope(|scope| {
            // Alice has connected before the descriptors run out.
            post_send(&alice, 2, 8);
            alice.poll_completion();
            while let Ok(fd) = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC) {
                held.push(fd);
            }
            let waits = scope.spawn(|| sleep_until_success(&bob));
            let used = measure_idle_processor_time();
            held.clear();
            // The listener retries every 2 or 20 milliseconds, which costs little.
            assert!(used < IDLE / 4, "{transport:?} without descriptors: {used:?} of {IDLE:?}");
            let sent = scope.spawn(|| sleep_until_success(&alice));
            assert_eq!((waits.join().expect("no panic"), sent.join().expect("no panic")), (1, 2));
        });
    }
}

#[test]
fn event_waiter_uses_no_processor_time() {
    check_idle_event_waiters(Turns::Alternate);
}

#[test]
fn event_waiter_uses_no_processor_time_under_automatic_progress() {
    check_idle_event_waiters(Turns::Automatic);
}

/// Blocks listeners, requesters and connected endpoints on their event queues.
fn check_idle_event_waiters(turns: Turns) {
    let _alone = lock_for_exclusive_run();
    Cases::run_all(|cases, transport, wait| {
        let net = Net::new(transport, turns);
        let [client, server] = [(); 2].map(|()| Side::open_with_wait_objects(&net, wait, wait));
        let heard = |sleeper: &Side, what: &str, other: &Side, then: &dyn Fn()| {
            thread::scope(|scope| {
                let waits = scope.spawn(|| sleep_until_event(sleeper));
                cases.assert_all_idle(&format!("{transport:?} {wait:?} {what}"));
                then();
                while !waits.is_finished() {
                    other.progress();
                    thread::yield_now();
                }
                waits.join().expect("no panic")
            })
        };
        let listener = server.open_listener(LISTENER);
        let connecting = client.open_endpoint(CLIENT);
        let asked = heard(&server, "and listens", &client, &|| {
            connecting.connect(listener.name().unwrap(), b"may I?").unwrap();
        });
        let Ok(ConnectionEvent::Request(request)) = asked else { panic!("{asked:?}") };
        let accepting = server.open_endpoint_for_request(&request, SERVER);
        let connected = heard(&client, "and has asked", &server, &|| accepting.accept(b"").unwrap());
        assert_eq!(connected, Ok(ConnectionEvent::Connected { endpoint: CLIENT, data: Box::default() }));
        assert!(matches!(sleep_until_event(&server), Ok(ConnectionEvent::Connected { .. })));
        let shutdown = heard(&server, "and is connected", &client, &|| connecting.shutdown().unwrap());
        assert_eq!(shutdown, Ok(ConnectionEvent::Shutdown { endpoint: SERVER, end: ConnectionEnd::Closed }));
        let own = Ok(ConnectionEvent::Shutdown { endpoint: CLIENT, end: ConnectionEnd::Closed });
        assert_eq!(sleep_until_event(&client), own);
    });
}
