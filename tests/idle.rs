//! Whoever waits uses no processor time while nothing happens, however much has happened before, and wakes when
//! something does.
//!
//! The bounds are far above what a thread needs that sleeps, and far below what one uses that polls: nothing is said of
//! speed.

#[allow(dead_code, unused_imports, reason = "each suite uses a part of it")]
mod suite;

use std::os::fd::OwnedFd;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use homespun::endpoint::SendMsg;
use homespun::flags::{MrAccess, OpFlags};
use homespun::{
    ConnectionEvent, CounterAttr, CounterEvents, Errno, FabricAddress, MrAttr, ReadError, WaitObject,
};
use homespun_engine::limits::UNANSWERED_MAX_MS;
use homespun_engine::transport::{FrameHandler, LinkEvent, LinkId, Provider, Space, Transport as _};
use homespun_engine::wire::Header;
use homespun_shm::ShmProvider;
use homespun_tcp::TcpProvider;

use crate::suite::connecting::{CLIENT, LISTENER, SERVER, Side, sleep_for_event};
use crate::suite::payload::{payload, received, room};
use crate::suite::sleeping::{self, ASLEEP, PATIENCE, next};
use crate::suite::{Deadline, Net, Party, Setup, Transport, Turns, posix};

const ANY: FabricAddress = FabricAddress::UNSPECIFIED;

/// How long nothing happens.
const IDLE: Duration = Duration::from_millis(1000);

/// How much of that time the process may use: a twentieth. A loop that polls uses all of it, one that naps for a
/// hundred microseconds a fifth.
const USED_MAX: Duration = Duration::from_millis(50);

/// The processor time of the whole process is measured, so that one thing is tested at a time.
static ALONE: Mutex<()> = Mutex::new(());

/// The formats of addresses make no difference to sleeping, and every test takes its time.
const TRANSPORTS: [Transport; 2] = [Transport::Tcp4, Transport::Shm4];

/// Two parties that nobody drives but whoever waits.
fn sleepers(net: &Net, wait: WaitObject) -> (Party, Party) {
    let setup = || Setup { asleep: true, wait, ..Setup::default() };
    net.pair_of(setup(), setup())
}

fn send(party: &Party, context: u64, len_bytes: usize) {
    let (buffers, flags) = (vec![payload(context, len_bytes)], OpFlags::DELIVERY_COMPLETE);
    party
        .endpoint
        .sendmsg(SendMsg { buffers, to: party.peer(), context, flags, ..SendMsg::default() })
        .unwrap();
}

/// Messages of every kind in both directions, each of which is slept for.
fn exchange(alice: &Party, bob: &Party) {
    const LENS_BYTES: [usize; 5] = [0, 8, 9000, 70_000, 1 << 20];
    thread::scope(|scope| {
        for (party, count) in [(alice, 2 * LENS_BYTES.len()), (bob, 2 * LENS_BYTES.len())] {
            scope.spawn(move || {
                for (context, len_bytes) in (0..).zip(LENS_BYTES) {
                    party.endpoint.recv(room(len_bytes), ANY, 100 + context).unwrap();
                    send(party, context, len_bytes);
                }
                for _ in 0..count {
                    assert!(next(party.cq_here()).is_ok());
                }
            });
        }
    });
}

/// How much processor time the process uses while threads sleep and nothing happens.
fn used() -> Duration {
    // They fall asleep first.
    thread::sleep(Duration::from_millis(100));
    let before = posix::processor_time(libc::RUSAGE_SELF);
    thread::sleep(IDLE);
    posix::processor_time(libc::RUSAGE_SELF) - before
}

#[track_caller]
fn assert_idle(what: &str, used: Duration) {
    assert!(used < USED_MAX, "{what}: {used:?} of processor time in {IDLE:?} in which nothing happened");
}

#[test]
fn whoever_waits_uses_no_processor_time() {
    wait_over(&TRANSPORTS, || Turns::Alternate);
}

#[test]
fn whoever_waits_uses_no_processor_time_where_a_thread_makes_progress() {
    wait_over(&TRANSPORTS, || Turns::Automatic);
}

fn wait_over(transports: &[Transport], turns: impl Fn() -> Turns) {
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    for transport in transports {
        for wait in ASLEEP {
            let net = Net::new(transport, turns());
            let (alice, bob) = sleepers(&net, wait);
            // Before any link was made, and after.
            for round in 0..2 {
                if round == 1 {
                    exchange(&alice, &bob);
                }
                thread::scope(|scope| {
                    let sleeping = [&alice, &bob].map(|party| scope.spawn(|| next(party.cq_here())));
                    bob.endpoint.recv(room(8), ANY, 7).unwrap();
                    assert_idle(&format!("{transport:?} {wait:?} {round}"), used());
                    send(&alice, 8, 8);
                    let ended = sleeping.map(|thread| thread.join().expect("no panic").expect("no error").0);
                    assert_eq!(ended.each_ref().map(|completion| completion.context), [8, 7]);
                    assert!(received(&ended[1].buffer) == payload(8, 8));
                });
            }
        }
    }
}

#[test]
fn whoever_waits_for_a_counter_uses_no_processor_time() {
    count_over(&TRANSPORTS, Turns::Alternate);
}

#[test]
fn whoever_waits_for_a_counter_uses_no_processor_time_where_a_thread_makes_progress() {
    count_over(&TRANSPORTS, Turns::Automatic);
}

/// Two threads wait for counters, of an endpoint and of a region, by each kind of wait object.
fn count_over(transports: &[Transport], turns: Turns) {
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    for transport in transports {
        for wait in ASLEEP {
            let net = Net::new(transport, turns);
            let setup = || Setup { asleep: true, wait, counts: true, ..Setup::default() };
            let (alice, bob) = net.pair_of(setup(), setup());
            let attr = MrAttr { access: MrAccess::REMOTE_WRITE, requested_key: 7, ..MrAttr::default() };
            let region = bob.domain_here().register(8, &attr).expect("a region");
            let written = bob
                .domain_here()
                .open_counter(&CounterAttr { wait, ..CounterAttr::default() })
                .expect("a counter");
            region.bind_counter(&written, CounterEvents::REMOTE_WRITE).expect("its first counter");
            exchange(&alice, &bob);
            let received = bob.counter_here(CounterEvents::RECV);
            let before = received.read();
            thread::scope(|scope| {
                let waits = [(received, before + 1), (&written, 1)]
                    .map(|(counter, threshold)| scope.spawn(move || sleeping::reach(counter, threshold)));
                bob.endpoint.recv(room(8), ANY, 7).unwrap();
                assert_idle(&format!("{transport:?} {wait:?} with counters"), used());
                send(&alice, 8, 8);
                let endpoint = alice.endpoint.as_here();
                endpoint.write(payload(1, 8), alice.peer(), region.address(), region.key(), 9).unwrap();
                for _ in 0..2 {
                    next(alice.cq_here()).unwrap();
                }
                waits.into_iter().for_each(|thread| thread.join().expect("no panic"));
            });
            assert_eq!((received.read(), written.read()), (before + 1, 1));
        }
    }
}

#[test]
fn whoever_waits_for_a_set_uses_no_processor_time() {
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    for transport in TRANSPORTS {
        for object in ASLEEP {
            let net = Net::new(&transport, Turns::Alternate);
            let set = net.fabric.open_wait_set(object).expect("a wait set");
            let (wait, wait_set) = (WaitObject::Set, Some(set.clone()));
            let setup = Setup { asleep: true, counts: true, separate_queues: true, ..Setup::default() };
            let sleeper = |wait| Setup { wait, ..setup.clone() };
            let (alice, bob) = net.pair_of(sleeper(WaitObject::Unspec), Setup { wait_set, ..sleeper(wait) });
            // Before any link was made, and after.
            for number in 1..=2 {
                bob.endpoint.recv(room(8), ANY, number).unwrap();
                let received = bob.counter_here(CounterEvents::RECV);
                thread::scope(|scope| {
                    let waits = scope.spawn(|| {
                        let deadline = Deadline::new();
                        while received.read() < number {
                            sleeping::sleep_on_set(&set);
                            deadline.pause("a message");
                        }
                        // What is not read ends the next wait.
                        while bob.receive_queue_here().read().is_err() {
                            deadline.pause("the completion of a receive");
                        }
                    });
                    assert_idle(&format!("{transport:?} {object:?} in a set"), used());
                    alice.endpoint.send(payload(number, 8), alice.peer(), number).unwrap();
                    next(alice.cq_here()).unwrap();
                    waits.join().expect("no panic");
                });
            }
        }
    }
}

/// The child has copies of the descriptors, and of a lock that is taken for good.
#[test]
fn a_forked_child_leaves_whoever_waits_for_a_set_asleep() {
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    for object in ASLEEP {
        let net = Net::new(&Transport::Shm4, Turns::Alternate);
        let domain = net.domain();
        let set = net.fabric.open_wait_set(object).expect("a wait set");
        let attr = CounterAttr { wait: WaitObject::Set, wait_set: Some(set.clone()) };
        let counter = domain.open_counter(&attr).expect("a counter");
        thread::scope(|scope| {
            let waits = scope.spawn(|| {
                while counter.read() < 1 {
                    let _ = set.wait(None);
                }
            });
            sleeping::let_sleep();
            posix::in_forked_child(|| {
                let own = domain.open_counter(&attr).expect("a counter");
                own.add(1);
                assert!(set.wait(None), "it finds what it has counted");
                assert!(!set.wait(Some(Duration::from_millis(5))));
                assert_eq!(set.try_wait(), Ok(false), "there is nothing to sleep on");
                // It stays a member for as long as the child is there.
                std::mem::forget(own);
            });
            assert_idle(&format!("{object:?} after a fork"), used());
            counter.add(1);
            waits.join().expect("no panic");
        });
    }
}

#[test]
fn whoever_waits_for_more_than_there_is_uses_no_processor_time() {
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    for transport in TRANSPORTS {
        let net = Net::new(&transport, Turns::Alternate);
        let (alice, bob) = sleepers(&net, WaitObject::Unspec);
        for context in 0..2 {
            bob.endpoint.recv(room(8), ANY, context).unwrap();
        }
        thread::scope(|scope| {
            let waits = scope.spawn(|| bob.cq_here().sread_each(8, 2, None, |_, _| {}));
            send(&alice, 7, 8);
            assert_eq!(next(alice.cq_here()).unwrap().0.context, 7);
            assert_idle(&format!("{transport:?} with one of two"), used());
            send(&alice, 8, 8);
            assert_eq!(next(alice.cq_here()).unwrap().0.context, 8);
            assert_eq!(waits.join().expect("no panic"), Ok(2));
        });
    }
}

#[test]
fn whoever_waits_for_none_waits_for_one_and_uses_no_processor_time() {
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let net = Net::new(&Transport::Shm4, Turns::Alternate);
    let (alice, bob) = sleepers(&net, WaitObject::Unspec);
    bob.endpoint.recv(room(8), ANY, 1).unwrap();
    thread::scope(|scope| {
        let waits = scope.spawn(|| bob.cq_here().sread_each(8, 0, None, |_, _| {}));
        assert_idle("a threshold of 0", used());
        send(&alice, 7, 8);
        assert_eq!(next(alice.cq_here()).unwrap().0.context, 7);
        assert_eq!(waits.join().expect("no panic"), Ok(1));
    });
}

/// Much is under way and goes no further: a peer that does nothing, with a full link, and a receiver that waits for what
/// its peer does not send.
#[test]
fn whoever_waits_for_a_peer_that_stands_still_uses_no_processor_time() {
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    for transport in TRANSPORTS {
        let net = Net::new(&transport, Turns::Alternate);
        let there = net.elsewhere().expect("it reaches other processes");
        let alice = net.open(Setup { asleep: true, wait: WaitObject::Unspec, ..Setup::default() });
        let bob = there.party();
        alice.meet(&bob);
        bob.meet(&alice);
        bob.endpoint.recv(room(8), ANY, 1).unwrap();
        send(&alice, 1, 8);
        assert_eq!(next(alice.cq_here()).unwrap().0.context, 1);
        bob.stop();
        // Small ones, for which credit runs out; long ones, that fill what carries them; ones that are to be fetched.
        for context in 0..300 {
            send(&alice, context, [100, 9000, 200_000][context as usize % 3]);
        }
        thread::scope(|scope| {
            let waits = scope.spawn(|| alice.cq_here().sread(None));
            assert_idle(&format!("{transport:?} with a peer that stands still"), used());
            bob.kill();
            assert_eq!(waits.join().expect("no panic"), Err(ReadError::ErrorAvailable));
        });
    }
}

/// One that waits for a connection to a peer that makes none.
#[test]
fn whoever_waits_for_a_connection_uses_no_processor_time() {
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    for transport in TRANSPORTS {
        let net = Net::new(&transport, Turns::Alternate);
        // Bob's endpoint has its name, and nobody accepts there.
        let (alice, bob) = sleepers(&net, WaitObject::Fd);
        send(&alice, 1, 8);
        thread::scope(|scope| {
            let waits = scope.spawn(|| next(alice.cq_here()));
            assert_idle(&format!("{transport:?} with a connection that nobody takes"), used());
            let is_over = AtomicBool::new(false);
            thread::scope(|scope| {
                scope.spawn(|| {
                    while !is_over.load(Ordering::Relaxed) {
                        assert!(bob.poll().is_none());
                        thread::yield_now();
                    }
                });
                assert_eq!(waits.join().expect("no panic").unwrap().0.context, 1);
                is_over.store(true, Ordering::Relaxed);
            });
        });
    }
}

/// An application that was told of something, and does not come for it, is told again, but ever less often.
#[test]
fn a_condition_that_nobody_waits_for_uses_no_processor_time() {
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let net = Net::new(&Transport::Shm4, Turns::Alternate);
    let (alice, bob) = sleepers(&net, WaitObject::MutexCond);
    exchange(&alice, &bob);
    bob.endpoint.recv(room(8), ANY, 1).unwrap();
    let of = bob.cq_here().wait_mutex_cond().expect("a thread").expect("what it was opened with");
    while !bob.cq_here().try_wait().expect("a wait object") {}
    // Alice's message makes the descriptor readable, and stays unread.
    alice.endpoint.send(payload(1, 8), alice.peer(), 2).unwrap();
    assert_eq!(next(alice.cq_here()).unwrap().0.context, 2);
    assert_idle("a condition that nobody waits for", used());
    // Whoever comes late, though told before, is told again.
    assert!(posix::wait_for_condition(of, PATIENCE, || true));
    assert_eq!(next(bob.cq_here()).unwrap().0.context, 1);
}

/// A process that may open no more files: connections wait at its listener, and it looks again now and then.
#[test]
fn whoever_has_no_descriptors_left_naps() {
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    for transport in TRANSPORTS {
        let net = Net::new(&transport, Turns::Alternate);
        let (alice, bob) = sleepers(&net, WaitObject::Unspec);
        bob.endpoint.recv(room(8), ANY, 1).unwrap();
        let mut held: Vec<OwnedFd> = Vec::new();
        thread::scope(|scope| {
            // Alice has connected before there are none left.
            send(&alice, 2, 8);
            alice.poll();
            while let Ok(fd) = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC) {
                held.push(fd);
            }
            let waits = scope.spawn(|| next(bob.cq_here()));
            let used = used();
            held.clear();
            // It looks every other millisecond, which is work, but far from all there is time for.
            assert!(used < IDLE / 4, "{transport:?} without descriptors: {used:?} of {IDLE:?}");
            let sent = scope.spawn(|| next(alice.cq_here()));
            assert_eq!(waits.join().expect("no panic").unwrap().0.context, 1);
            assert_eq!(sent.join().expect("no panic").unwrap().0.context, 2);
        });
    }
}

#[test]
fn a_sleeper_is_woken_by_what_comes_long_after() {
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    for transport in TRANSPORTS {
        let net = Net::new(&transport, Turns::Alternate);
        let (alice, bob) = sleepers(&net, WaitObject::Fd);
        exchange(&alice, &bob);
        for at_most in [Duration::from_millis(20), Duration::from_millis(200)] {
            assert!(!sleeping::sleep(bob.cq_here(), at_most) || bob.poll().is_none());
        }
        bob.endpoint.recv(room(8), ANY, 1).unwrap();
        alice.endpoint.send(payload(1, 8), alice.peer(), 2).unwrap();
        assert_eq!(next(bob.cq_here()).unwrap().0.context, 1);
    }
}

#[test]
fn whoever_waits_for_an_event_uses_no_processor_time() {
    wait_for_events_over(&TRANSPORTS, || Turns::Alternate);
}

#[test]
fn whoever_waits_for_an_event_uses_no_processor_time_where_a_thread_makes_progress() {
    wait_for_events_over(&TRANSPORTS, || Turns::Automatic);
}

/// The link of an endpoint to a requester, and whether it is up.
#[derive(Default)]
struct Silent(bool);

impl FrameHandler for Silent {
    fn frame(&mut self, _: LinkId, _: &Header, _: &[u8]) {}
    fn begin(&mut self, _: LinkId, _: &Header) {}
    fn space(&mut self, _: LinkId) -> Space<'_> {
        Space::new()
    }
    fn placed(&mut self, _: LinkId, _: usize) {}
    fn chunk(&mut self, _: LinkId, _: &[u8]) {}
    fn link(&mut self, _: LinkId, event: LinkEvent) {
        self.0 |= matches!(event, LinkEvent::Up { .. });
    }
}

/// The passive endpoint goes while another endpoint has reached the requester, which may be about to accept and says nothing.
/// Nothing but the time wakes the requester.
fn requester_sleeps_until_its_time_is_over(transport: &Transport, provider: &impl Provider, turns: Turns) {
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    for wait in ASLEEP {
        let net = Net::new(transport, turns);
        let bind = net.info.src_addr.expect("a source was asked for");
        let client = Side::waiting_by(&net, wait, wait);
        let connecting = client.endpoint(CLIENT);
        let mut asked = (provider.open(bind, 1).expect("a transport"), Silent::default());
        let mut stranger = (provider.open(bind, 2).expect("a transport"), Silent::default());
        connecting.connect(asked.0.address(), b"").unwrap();
        stranger.0.connect(connecting.name().unwrap());
        let deadline = Deadline::new();
        while !(asked.1.0 && stranger.1.0) {
            for (transport, silent) in [&mut asked, &mut stranger] {
                transport.receive(16, silent);
                transport.flush();
            }
            client.progress();
            deadline.pause("links to the requester");
        }
        // What the stranger has said first is there, and is looked at now and then.
        (0..100).for_each(|_| client.progress());
        drop(asked);
        let begin = Instant::now();
        let before = posix::processor_time(libc::RUSAGE_SELF);
        let error = sleep_for_event(&client).expect_err("no endpoint accepts");
        let used = posix::processor_time(libc::RUSAGE_SELF) - before;
        assert!([Errno::ECONNREFUSED, Errno::ECONNRESET].contains(&error.errno), "{error:?}");
        assert!(
            begin.elapsed() > Duration::from_millis(UNANSWERED_MAX_MS / 2),
            "the stranger may have answered"
        );
        assert!(used < USED_MAX, "{transport:?} {wait:?}: {used:?} of processor time");
    }
}

#[test]
fn requester_with_a_silent_peer_sleeps_until_its_time_is_over() {
    for turns in [Turns::Alternate, Turns::Automatic] {
        requester_sleeps_until_its_time_is_over(&Transport::Tcp4, &TcpProvider::new(), turns);
        requester_sleeps_until_its_time_is_over(&Transport::Shm4, &ShmProvider::new(), turns);
    }
}

/// Those who listen, who have asked and who are connected sleep on their event queues.
fn wait_for_events_over(transports: &[Transport], turns: impl Fn() -> Turns) {
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    for transport in transports {
        for wait in ASLEEP {
            let net = Net::new(transport, turns());
            let [client, server] = [(); 2].map(|()| Side::waiting_by(&net, wait, wait));
            let heard = |sleeper: &Side, what: &str, other: &Side, then: &dyn Fn()| {
                thread::scope(|scope| {
                    let waits = scope.spawn(|| sleep_for_event(sleeper));
                    assert_idle(&format!("{transport:?} {wait:?} {what}"), used());
                    then();
                    while !waits.is_finished() {
                        other.progress();
                        thread::yield_now();
                    }
                    waits.join().expect("no panic")
                })
            };
            let listener = server.listener(LISTENER);
            let connecting = client.endpoint(CLIENT);
            let asked = heard(&server, "and listens", &client, &|| {
                connecting.connect(listener.name().unwrap(), b"may I?").unwrap();
            });
            let Ok(ConnectionEvent::Request(request)) = asked else { panic!("{asked:?}") };
            let accepting = server.endpoint_for(&request, SERVER);
            let connected = heard(&client, "and has asked", &server, &|| accepting.accept(b"").unwrap());
            assert_eq!(connected, Ok(ConnectionEvent::Connected { endpoint: CLIENT, data: Box::default() }));
            assert!(matches!(sleep_for_event(&server), Ok(ConnectionEvent::Connected { .. })));
            let shutdown = heard(&server, "and is connected", &client, &|| connecting.shutdown().unwrap());
            assert_eq!(shutdown, Ok(ConnectionEvent::Shutdown { endpoint: SERVER }));
            assert_eq!(sleep_for_event(&client), Ok(ConnectionEvent::Shutdown { endpoint: CLIENT }));
        }
    }
}
