//! Waiting: blocking reads, and what applications sleep on by themselves. `fi_cq(3)`, `fi_poll(3)`.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use homespun::endpoint::SendMsg;
use homespun::flags::{BindFlags, CompletionFlags, OpFlags};
use homespun::info::ResourceManagement;
use homespun::wait::Waitable;
use homespun::{
    AvAttr, Completion, CompletionQueue, CqAttr, Errno, Error, FabricAddress, ReadError, WaitObject,
};

use crate::suite::payload::{payload, received, room};
use crate::suite::sleeping::{ASLEEP, OBJECTS, Over, PATIENCE, let_sleep, next};
use crate::suite::{Deadline, Net, Party, Setup};

const ANY: FabricAddress = FabricAddress::UNSPECIFIED;

/// Lengths of messages that travel in every way that there is.
const LENS_BYTES: [usize; 6] = [0, 8, 9000, 70_000, 300_000, 5 << 20];

/// As many of them as come through in little time: whoever waits for endpoints that cannot be slept on gives way to other
/// threads between any two looks.
fn lens_bytes(net: &Net) -> &'static [usize] {
    if net.can_sleep() { &LENS_BYTES } else { &LENS_BYTES[..4] }
}

/// A party that nobody drives but whoever waits.
fn sleeper(wait: WaitObject) -> Setup {
    Setup { asleep: true, wait, ..Setup::default() }
}

fn sleepers(net: &Net, wait: WaitObject) -> (Party, Party) {
    net.pair_of(sleeper(wait), sleeper(wait))
}

/// Two parties have ended what they had to do; one that closes may need the other's progress.
fn wake(net: &Net, parties: [&Party; 2]) {
    parties.into_iter().for_each(|party| net.wake(party));
}

#[track_caller]
fn completion(cq: &CompletionQueue) -> Completion {
    next(cq).expect("no operation fails").0
}

/// Goes on sleeping, so that what is under way is answered, until signalled for good.
fn attend(cq: &CompletionQueue, is_over: &AtomicBool) {
    while !is_over.load(Ordering::SeqCst) {
        assert_eq!(cq.sread(Some(PATIENCE)), Err(ReadError::Empty));
    }
}

/// Ends [`attend`].
fn dismiss(cq: &CompletionQueue, is_over: &AtomicBool) {
    is_over.store(true, Ordering::SeqCst);
    cq.signal().expect("a queue with a wait object");
}

fn send(party: &Party, context: u64, len_bytes: usize, flags: OpFlags) {
    let buffers = vec![payload(context, len_bytes)];
    party
        .endpoint
        .sendmsg(SendMsg { buffers, to: party.peer(), context, flags, ..SendMsg::default() })
        .unwrap();
}

fn errno<T>(result: Result<T, Error>) -> Errno {
    result.err().expect("it is refused").errno()
}

pub(crate) fn messages_of_every_size_wake_both_sides(net: &Net) {
    for wait in OBJECTS {
        let (alice, bob) = sleepers(net, wait);
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                for (context, len_bytes) in (0..).zip(lens_bytes(net).iter().copied()) {
                    bob.endpoint.recv(room(len_bytes), ANY, context).unwrap();
                    let taken = completion(bob.cq_here());
                    assert!(received(&taken.buffer) == payload(context, len_bytes));
                    bob.endpoint.send(payload(context, 8), bob.peer(), 99).unwrap();
                    assert_eq!(completion(bob.cq_here()).context, 99);
                }
                attend(bob.cq_here(), &is_over);
            });
            let _over = Over(&is_over);
            for (context, len_bytes) in (0..).zip(lens_bytes(net).iter().copied()) {
                let_sleep();
                alice.endpoint.recv(room(8), ANY, 77).unwrap();
                send(&alice, context, len_bytes, OpFlags::empty());
                let mut ended = [completion(alice.cq_here()).context, completion(alice.cq_here()).context];
                ended.sort_unstable();
                assert_eq!(ended, [context, 77]);
            }
            dismiss(bob.cq_here(), &is_over);
        });
        wake(net, [&alice, &bob]);
    }
}

pub(crate) fn completions_of_every_level_wake(net: &Net) {
    let levels = [
        OpFlags::INJECT_COMPLETE,
        OpFlags::TRANSMIT_COMPLETE,
        OpFlags::DELIVERY_COMPLETE,
        OpFlags::MATCH_COMPLETE,
    ];
    for wait in ASLEEP {
        let (alice, bob) = sleepers(net, wait);
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..levels.len() * lens_bytes(net).len() {
                    completion(bob.cq_here());
                }
                attend(bob.cq_here(), &is_over);
            });
            let _over = Over(&is_over);
            for (level, flags) in (0..).zip(levels) {
                for (n, len_bytes) in (0..).zip(lens_bytes(net).iter().copied()) {
                    let context = 10 * level + n;
                    // Posts receives from another thread than the one that sleeps.
                    if flags == OpFlags::MATCH_COMPLETE || len_bytes > 9000 {
                        bob.endpoint.recv(room(len_bytes), ANY, context).unwrap();
                        send(&alice, context, len_bytes, flags);
                    } else {
                        send(&alice, context, len_bytes, flags);
                        let_sleep();
                        bob.endpoint.recv(room(len_bytes), ANY, context).unwrap();
                    }
                    assert_eq!(completion(alice.cq_here()).context, context);
                }
            }
            dismiss(bob.cq_here(), &is_over);
        });
        wake(net, [&alice, &bob]);
    }
}

/// The receiver's thread sleeps when a third one posts the receive that the sender waits to hear of.
pub(crate) fn a_match_by_another_thread_is_told_of(net: &Net) {
    for wait in ASLEEP {
        let (alice, bob) = sleepers(net, wait);
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                for context in 0..30 {
                    assert_eq!(completion(bob.cq_here()).context, context);
                }
                attend(bob.cq_here(), &is_over);
            });
            let _over = Over(&is_over);
            for context in 0..30 {
                send(&alice, context, 100, OpFlags::MATCH_COMPLETE);
                if context % 3 == 0 {
                    let_sleep();
                }
                bob.endpoint.recv(room(100), ANY, context).unwrap();
                assert_eq!(completion(alice.cq_here()).context, context);
            }
            dismiss(bob.cq_here(), &is_over);
        });
        wake(net, [&alice, &bob]);
    }
}

pub(crate) fn errors_wake(net: &Net) {
    for wait in OBJECTS {
        let (alice, bob) = sleepers(net, wait);
        // Nobody listens.
        let vacancy = net.vacancy();
        let nobody = alice.av.insert(&[vacancy.address]).remove(0).unwrap();
        alice.endpoint.send(payload(1, 8), nobody, 1).unwrap();
        let failed = next(alice.cq_here()).expect_err("nobody listens");
        assert_eq!((failed.completion.context, failed.errno()), (1, Errno::ECONNREFUSED));
        thread::scope(|scope| {
            scope.spawn(|| {
                // Cut, and then taken back.
                let failed = next(bob.cq_here()).expect_err("it does not fit");
                assert_eq!((failed.completion.context, failed.overflow_bytes()), (2, 4));
                let failed = next(bob.cq_here()).expect_err("it was cancelled");
                assert_eq!((failed.completion.context, failed.errno()), (3, Errno::ECANCELED));
            });
            bob.endpoint.recv(room(4), ANY, 2).unwrap();
            bob.endpoint.recv(room(4), ANY, 3).unwrap();
            let_sleep();
            send(&alice, 4, 8, OpFlags::DELIVERY_COMPLETE);
            assert_eq!(completion(alice.cq_here()).context, 4);
            let_sleep();
            bob.endpoint.cancel(3).unwrap();
        });
        wake(net, [&alice, &bob]);
    }
}

pub(crate) fn the_end_of_a_peer_wakes(net: &Net) {
    for wait in ASLEEP {
        let (alice, bob) = sleepers(net, wait);
        send(&alice, 1, 8, OpFlags::TRANSMIT_COMPLETE);
        bob.endpoint.recv(room(8), ANY, 2).unwrap();
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                assert_eq!(completion(bob.cq_here()).context, 2);
                attend(bob.cq_here(), &is_over);
            });
            let _over = Over(&is_over);
            assert_eq!(completion(alice.cq_here()).context, 1);
            dismiss(bob.cq_here(), &is_over);
        });
        // It is never matched.
        send(&alice, 3, 8, OpFlags::MATCH_COMPLETE);
        thread::scope(|scope| {
            scope.spawn(|| {
                let failed = next(alice.cq_here()).expect_err("the peer closes");
                assert_eq!(failed.completion.context, 3);
            });
            let_sleep();
            drop(bob);
        });
    }
}

/// A peer in a process that is killed.
pub(crate) fn the_death_of_a_peer_wakes(net: &Net) {
    let Some(there) = net.elsewhere() else { return };
    for wait in ASLEEP {
        let (alice, bob) = (net.open(sleeper(wait)), there.party());
        alice.meet(&bob);
        bob.meet(&alice);
        bob.endpoint.recv(room(8), ANY, 1).unwrap();
        send(&alice, 2, 8, OpFlags::MATCH_COMPLETE);
        assert_eq!(completion(alice.cq_here()).context, 2);
        // A message that was taken and is not matched, and one that the peer would have to fetch.
        send(&alice, 3, 8, OpFlags::MATCH_COMPLETE);
        send(&alice, 4, 1 << 20, OpFlags::MATCH_COMPLETE);
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut failed: Vec<u64> = (0..2)
                    .map(|_| next(alice.cq_here()).expect_err("the peer is dead").completion.context)
                    .collect();
                failed.sort_unstable();
                assert_eq!(failed, [3, 4]);
            });
            let_sleep();
            bob.kill();
        });
    }
}

pub(crate) fn a_timeout_ends_a_wait(net: &Net) {
    for wait in OBJECTS {
        let alice = net.open(sleeper(wait));
        let cq = alice.cq_here();
        for millis in [0, 1, 30] {
            let (begin, timeout) = (Instant::now(), Duration::from_millis(millis));
            assert_eq!(cq.sread(Some(timeout)), Err(ReadError::Empty));
            assert!(begin.elapsed() >= timeout, "it has given up too soon");
        }
        assert_eq!(cq.sread_each(0, 1, Some(Duration::ZERO), |_, _| {}), Err(ReadError::Empty));
    }
}

pub(crate) fn a_signal_ends_all_waits_or_else_the_next(net: &Net) {
    for wait in OBJECTS {
        let alice = net.open(sleeper(wait));
        let cq = alice.cq_here();
        cq.signal().unwrap();
        cq.signal().unwrap();
        assert_eq!(cq.sread(Some(PATIENCE)), Err(ReadError::Empty), "it came before");
        assert_eq!(cq.sread(Some(Duration::from_millis(1))), Err(ReadError::Empty), "and it is over");

        let ended = AtomicUsize::new(0);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    assert_eq!(cq.sread(None), Err(ReadError::Empty));
                    ended.fetch_add(1, Ordering::Relaxed);
                });
            }
            let deadline = Deadline::new();
            while ended.load(Ordering::Relaxed) < 4 {
                // Who comes to wait later is signalled later.
                cq.signal().unwrap();
                deadline.pause("four threads to be signalled");
            }
        });
    }
}

pub(crate) fn a_threshold_is_waited_for(net: &Net) {
    for wait in OBJECTS {
        let (alice, bob) = sleepers(net, wait);
        let cq = bob.cq_here();
        let mut contexts = Vec::new();
        for context in 0..8 {
            bob.endpoint.recv(room(8), ANY, context).unwrap();
        }
        let send_some = |count| (0..count).for_each(|_| send(&alice, 9, 8, OpFlags::empty()));
        let drive_until = |is_over: &dyn Fn() -> bool| {
            let deadline = Deadline::new();
            while !is_over() {
                alice.poll();
                deadline.pause("the end of a wait");
            }
        };
        thread::scope(|scope| {
            let waits = scope.spawn(|| {
                cq.sread_each(8, 5, Some(PATIENCE), |completion, _| contexts.push(completion.context))
            });
            let_sleep();
            send_some(5);
            drive_until(&|| waits.is_finished());
            assert_eq!(waits.join().expect("no panic"), Ok(5));
        });
        assert_eq!(contexts, [0, 1, 2, 3, 4]);

        // Fewer, and then the time is over; then an error, behind a success.
        thread::scope(|scope| {
            let waits = scope.spawn(|| cq.sread_each(8, 5, Some(Duration::from_millis(100)), |_, _| {}));
            send_some(1);
            drive_until(&|| waits.is_finished());
            let read = waits.join().expect("no panic");
            if read == Err(ReadError::Empty) {
                let late = scope.spawn(|| completion(cq));
                drive_until(&|| late.is_finished());
            } else {
                assert_eq!(read, Ok(1));
            }
        });
        thread::scope(|scope| {
            let waits = scope.spawn(|| cq.sread_each(8, 5, None, |_, _| {}));
            send_some(1);
            // Wherever the message is by then, only the error can end the wait.
            let begin = Instant::now();
            drive_until(&|| begin.elapsed() > Duration::from_millis(20));
            bob.endpoint.cancel(7).unwrap();
            drive_until(&|| waits.is_finished());
            let read = waits.join().expect("no panic");
            assert!(matches!(read, Ok(1) | Err(ReadError::ErrorAvailable)), "{read:?}");
        });
        assert_eq!(cq.sread(None), Err(ReadError::ErrorAvailable));
        assert_eq!(cq.read_error().expect("it was announced").completion.context, 7);
        wake(net, [&alice, &bob]);
    }
}

/// More than the queue holds is as many as it holds.
pub(crate) fn a_threshold_beyond_the_depth_is_the_depth(net: &Net) {
    let setup = Setup { cq_depth_entries: 2, ..sleeper(WaitObject::Unspec) };
    let bob = net.open(setup);
    let to = bob.meet(&bob);
    for context in 0..3 {
        bob.endpoint.send(payload(1, 8), to, context).unwrap();
    }
    let mut count = 0;
    assert_eq!(bob.cq_here().sread_each(8, 100, Some(PATIENCE), |_, _| count += 1), Ok(2));
    // The third had no room, and waits for whoever sleeps next.
    assert_eq!((count, completion(bob.cq_here()).context), (2, 2));
}

pub(crate) fn several_threads_sleep_on_one_queue(net: &Net) {
    const MESSAGES: usize = 200;
    for wait in ASLEEP {
        let (alice, bob) = sleepers(net, wait);
        let cq = bob.cq_here();
        let (taken, is_over) = (AtomicUsize::new(0), AtomicBool::new(false));
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    while !is_over.load(Ordering::SeqCst) {
                        match cq.sread(Some(PATIENCE)) {
                            Ok(_) => {
                                taken.fetch_add(1, Ordering::SeqCst);
                            }
                            // Others may have taken what there was, but nothing ends the wait before all is over.
                            Err(ReadError::Empty) if is_over.load(Ordering::SeqCst) => {}
                            Err(error) => panic!("{error}"),
                        }
                    }
                    // Whoever has not come to wait yet is the next one that would.
                    cq.signal().unwrap();
                });
            }
            let _over = Over(&is_over);
            for context in 0..MESSAGES as u64 {
                bob.endpoint.recv(room(100), ANY, context).unwrap();
                send(&alice, context, 100, OpFlags::DELIVERY_COMPLETE);
                assert_eq!(completion(alice.cq_here()).context, context);
            }
            dismiss(cq, &is_over);
        });
        assert_eq!(taken.load(Ordering::SeqCst), MESSAGES);
        wake(net, [&alice, &bob]);
    }
}

/// Each endpoint has a thread that sleeps until something arrives, and one that polls for the ends of its sends.
pub(crate) fn one_thread_sleeps_while_another_polls(net: &Net) {
    const MESSAGES: u64 = 100;
    let setup = || Setup { separate_queues: true, ..sleeper(WaitObject::Fd) };
    let (alice, bob) = net.pair_of(setup(), setup());
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let _over = Over(&is_over);
        let senders = [&alice, &bob].map(|party| {
            let is_over = &is_over;
            scope.spawn(move || {
                for context in 0..MESSAGES {
                    party.endpoint.recv(room(20_000), ANY, context).unwrap();
                    let taken = completion(party.receive_queue_here());
                    assert!(received(&taken.buffer) == payload(context, 20_000));
                }
                attend(party.receive_queue_here(), is_over);
            });
            scope.spawn(move || {
                for context in 0..MESSAGES {
                    send(party, context, 20_000, OpFlags::DELIVERY_COMPLETE);
                    let deadline = Deadline::new();
                    loop {
                        match party.cq_here().read() {
                            Ok(sent) => break assert_eq!(sent.context, context),
                            Err(ReadError::Empty) => deadline.pause("the end of a send"),
                            Err(error) => panic!("{error}"),
                        }
                    }
                }
            })
        });
        senders.into_iter().for_each(|sender| sender.join().expect("all was sent"));
        [&alice, &bob].into_iter().for_each(|party| dismiss(party.receive_queue_here(), &is_over));
    });
    wake(net, [&alice, &bob]);
}

pub(crate) fn endpoints_come_and_go_while_a_thread_sleeps(net: &Net) {
    for wait in ASLEEP {
        let domain = net.domain();
        let cq = domain.open_cq(&CqAttr { wait, ..CqAttr::default() }).unwrap();
        let av = domain.open_av(&AvAttr::default()).unwrap();
        let open = || {
            let endpoint = domain.endpoint(net.info()).unwrap();
            endpoint.bind_cq(&cq, BindFlags::TRANSMIT | BindFlags::RECV).unwrap();
            endpoint.bind_av(&av).unwrap();
            endpoint.enable().unwrap();
            endpoint
        };
        let taken = AtomicU64::new(0);
        thread::scope(|scope| {
            let receives = scope.spawn(|| {
                for context in 0..3 {
                    assert_eq!(completion(&cq).context, context);
                    taken.fetch_add(1, Ordering::SeqCst);
                }
            });
            let alice = net.open(Setup { asleep: true, ..Setup::default() });
            let reach = |endpoint: &homespun::Endpoint, context: u64| {
                let to = alice.av.insert(&[endpoint.name().unwrap()]).remove(0).unwrap();
                endpoint.recv(room(8), ANY, context).unwrap();
                alice.endpoint.send(payload(1, 8), to, context).unwrap();
                let deadline = Deadline::new();
                while taken.load(Ordering::SeqCst) <= context {
                    alice.poll();
                    deadline.pause("a message to wake its receiver");
                }
            };
            let_sleep();
            let first = open();
            let_sleep();
            reach(&first, 0);
            let second = open();
            let_sleep();
            reach(&second, 1);
            drop(first);
            let_sleep();
            reach(&second, 2);
            receives.join().expect("everything has arrived");
            net.wake(&alice);
        });
    }
}

pub(crate) fn an_overrun_ends_every_wait(net: &Net) {
    let setup = Setup {
        resource_mgmt: Some(ResourceManagement::Disabled),
        cq_depth_entries: 1,
        ..sleeper(WaitObject::Unspec)
    };
    let alice = net.open(setup);
    for context in 0..2 {
        alice.endpoint.recv(room(8), ANY, context).unwrap();
        alice.endpoint.cancel(context).unwrap();
    }
    let cq = alice.cq_here();
    assert_eq!(cq.sread(None), Err(ReadError::ErrorAvailable));
    assert!(cq.read_error().is_ok());
    for _ in 0..2 {
        assert_eq!(cq.sread(None), Err(ReadError::Overrun));
        assert_eq!(cq.sread_each(8, 8, None, |_, _| {}), Err(ReadError::Overrun));
        assert_eq!(cq.try_wait(), Ok(false), "there is something to be told");
    }
}

pub(crate) fn several_queues_are_slept_on_at_once(net: &Net) {
    let (alice, bob) = sleepers(net, WaitObject::Fd);
    let queues: [&dyn Waitable; 2] = [alice.cq_here(), bob.cq_here()];
    let deadline = Deadline::new();
    if net.can_sleep() {
        while net.fabric.try_wait(&queues) != Ok(true) {
            deadline.pause("two idle queues");
        }
        bob.endpoint.recv(room(8), ANY, 1).unwrap();
        bob.endpoint.cancel(1).unwrap();
        assert_eq!(net.fabric.try_wait(&queues), Ok(false));
        assert!(next(bob.cq_here()).is_err());
    } else {
        assert_eq!(net.fabric.try_wait(&queues), Ok(false), "they are polled");
    }
    assert_eq!(net.fabric.try_wait(&[]), Ok(true));
}

pub(crate) fn without_a_wait_object_nobody_waits(net: &Net) {
    let domain = net.domain();
    let polled = domain.open_cq(&CqAttr::default()).unwrap();
    assert_eq!(polled.sread(None), Err(ReadError::NoWaitObject));
    assert_eq!(polled.sread(Some(Duration::from_millis(1))), Err(ReadError::NoWaitObject));
    assert_eq!(polled.sread(Some(Duration::ZERO)), Err(ReadError::Empty), "it need not wait");
    assert_eq!(ReadError::NoWaitObject.errno(), Errno::EINVAL);
    assert_eq!(errno(polled.signal()), Errno::EINVAL);
    assert_eq!(errno(polled.try_wait()), Errno::EINVAL);
    assert_eq!(errno(net.fabric.try_wait(&[&polled])), Errno::EINVAL);
    assert!(polled.wait_fd().is_none() && polled.wait_mutex_cond().unwrap().is_none());
    assert_eq!(polled.wait_object(), WaitObject::None);
    for wait in OBJECTS {
        let cq = domain.open_cq(&CqAttr { wait, ..CqAttr::default() }).unwrap();
        assert_eq!(cq.wait_object(), wait);
        assert_eq!(cq.wait_fd().is_some(), wait == WaitObject::Fd);
        assert_eq!(cq.wait_mutex_cond().unwrap().is_some(), wait == WaitObject::MutexCond);
    }
    for (wait, refused) in [(WaitObject::Set, Errno::EINVAL), (WaitObject::PollFd, Errno::ENOSYS)] {
        assert_eq!(errno(domain.open_cq(&CqAttr { wait, ..CqAttr::default() })), refused);
    }
}

/// What is sent is read by whoever sleeps, also where the queue belongs to one direction alone.
pub(crate) fn a_queue_of_one_direction_is_slept_on(net: &Net) {
    let setup = || Setup { separate_queues: true, ..sleeper(WaitObject::Unspec) };
    let (alice, bob) = net.pair_of(setup(), setup());
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let _over = Over(&is_over);
            // Its receives are driven by whoever waits for its sends.
            send(&bob, 1, 300_000, OpFlags::DELIVERY_COMPLETE);
            let sent = completion(bob.cq_here());
            assert!(sent.flags.contains(CompletionFlags::SEND));
            dismiss(alice.receive_queue_here(), &is_over);
        });
        let_sleep();
        alice.endpoint.recv(room(300_000), ANY, 2).unwrap();
        assert_eq!(completion(alice.receive_queue_here()).context, 2);
        // Who has received says so.
        attend(alice.receive_queue_here(), &is_over);
    });
    wake(net, [&alice, &bob]);
}
