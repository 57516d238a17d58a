//! What code without `unsafe` may do to its handles, and what it gets for that: an answer, and never a crash or a leak.

use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use homespun::atomic::{AtomicOp, Datatype};
use homespun::endpoint::{AtomicTarget, WriteMsg};
use homespun::flags::{Caps, CounterEvents, MrAccess};
use homespun::info::Info;
use homespun::trigger::{DeferredAction, DeferredWork, Operation, Trigger};
use homespun::{
    AddressVector, AvAttr, BindFlags, Bytes, BytesMut, CompletionQueue, CounterAttr, CqAttr, Domain,
    Endpoint, Errno, Error, EventQueue, Fabric, FabricAddress, MrAttr, OpFlags, ReadError, SendMsg,
};

use crate::suite::payload::{payload, received, room};
use crate::suite::sleeping::Over;
use crate::suite::{Deadline, Net, Setup};

const ANY: FabricAddress = FabricAddress::UNSPECIFIED;

/// An endpoint with its objects, which nobody drives but the test.
struct Own {
    endpoint: Endpoint,
    cq: CompletionQueue,
    av: AddressVector,
}

impl Own {
    fn open(domain: &Domain, net: &Net) -> Own {
        Own::open_as(domain, net.info(), BindFlags::empty())
    }

    fn open_as(domain: &Domain, info: &Info, how: BindFlags) -> Own {
        let (cq, av) =
            (domain.open_cq(&CqAttr::default()).unwrap(), domain.open_av(&AvAttr::default()).unwrap());
        let endpoint = domain.endpoint(info).unwrap();
        endpoint.bind_cq(&cq, BindFlags::TRANSMIT | BindFlags::RECV | how).unwrap();
        endpoint.bind_av(&av).unwrap();
        endpoint.enable().unwrap();
        Own { endpoint, cq, av }
    }

    fn pair(net: &Net) -> (Own, Own) {
        let domain = net.domain();
        let (left, right) = (Own::open(&domain, net), Own::open(&domain, net));
        left.meet(&right.endpoint);
        right.meet(&left.endpoint);
        (left, right)
    }

    /// Its first acquaintance has the address 0.
    fn meet(&self, other: &Endpoint) -> FabricAddress {
        self.av.insert(&[other.name().unwrap()]).remove(0).unwrap()
    }
}

/// A buffer to be posted, and the rest of its memory, by which one sees whether the buffer still exists.
fn watched(len_bytes: usize) -> (BytesMut, BytesMut) {
    let mut rest = room(2 * len_bytes);
    (rest.split_to(len_bytes), rest)
}

fn is_freed(rest: &mut BytesMut) -> bool {
    rest.clear();
    rest.try_reclaim(rest.capacity() + 1)
}

/// Memory that tells when it is freed.
struct Traced {
    bytes: Bytes,
    freed: Arc<AtomicUsize>,
}

impl AsRef<[u8]> for Traced {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Traced {
    fn drop(&mut self) {
        self.freed.fetch_add(1, Ordering::Relaxed);
    }
}

pub(crate) fn silent_access_frees_its_memory(net: &Net) {
    const ROUNDS: usize = 6;
    let mut info = net.info().clone();
    for caps in [&mut info.caps, &mut info.tx.caps, &mut info.rx.caps] {
        *caps |= Caps::TRIGGER;
    }
    let (domain, others) = (net.domain(), net.domain());
    let alice = Own::open_as(&domain, &info, BindFlags::SELECTIVE_COMPLETION);
    let bob = Own::open(&others, net);
    let to = alice.meet(&bob.endpoint);
    let counter = || domain.open_counter(&CounterAttr::default()).unwrap();
    let (ended, due) = (counter(), counter());
    alice.endpoint.bind_counter(&ended, CounterEvents::WRITE | CounterEvents::READ).unwrap();
    let access = MrAccess::REMOTE_READ | MrAccess::REMOTE_WRITE;
    let attr = MrAttr { access, requested_key: 5, shareable: true, ..MrAttr::default() };
    let region = others.register(64, &attr).unwrap();
    let (address, key) = (region.address(), region.key());

    let freed = Arc::new(AtomicUsize::new(0));
    let traced = |n| Bytes::from_owner(Traced { bytes: payload(n, 8), freed: freed.clone() });
    let deadline = Deadline::new();
    // Over shared memory the first access has the region mapped, and those that follow end as they are posted.
    for round in 1..=ROUNDS {
        let n = round as u64;
        alice.endpoint.write(traced(n), to, address, key, n).unwrap();
        alice.endpoint.writev(vec![traced(n), traced(n + 1)], to, address, key, n).unwrap();
        let (buffer, mut rest) = watched(8);
        alice.endpoint.read(buffer, to, address, key, n).unwrap();
        let (op, datatype) = (AtomicOp::Sum, Datatype::Uint64);
        let target = AtomicTarget { peer: to, address, key, op, datatype };
        alice.endpoint.atomic(traced(n), target, n).unwrap();
        while ended.read() < 4 * n || freed.load(Ordering::Relaxed) < 5 * round - 1 || !is_freed(&mut rest) {
            assert_eq!(alice.cq.read().unwrap_err(), ReadError::Empty, "success is silent");
            bob.cq.progress();
            deadline.pause("the memory of silent accesses");
        }
        let write = WriteMsg { buffers: vec![traced(n)], to, address, key, ..WriteMsg::default() };
        let operation = Operation::Write(write);
        let action = DeferredAction::Post { endpoint: alice.endpoint.clone(), operation };
        let trigger = Trigger { counter: due.clone(), threshold: n };
        domain.queue_work(DeferredWork { context: n, trigger, action, completion: None }).unwrap();
        due.add(1);
        while freed.load(Ordering::Relaxed) < 5 * round {
            assert_eq!(alice.cq.read().unwrap_err(), ReadError::Empty, "success is silent");
            bob.cq.progress();
            deadline.pause("the memory of silent work");
        }
    }
    assert_eq!(freed.load(Ordering::Relaxed), 5 * ROUNDS);
}

pub(crate) fn what_is_posted_is_freed_with_its_endpoint(net: &Net) {
    let (alice, bob) = Own::pair(net);
    let peer = FabricAddress(0);
    let mut rests = Vec::new();
    for n in 0..20 {
        let (buffer, rest) = watched(5000);
        rests.push(rest);
        let (first, rest) = watched(100);
        rests.push(rest);
        let (second, rest) = watched(9000);
        rests.push(rest);
        alice.endpoint.trecv(buffer, ANY, n, 0, n).unwrap();
        alice.endpoint.recvv(vec![first, second], ANY, n).unwrap();
    }
    let messages: Vec<Bytes> = (0..20).map(|n| payload(n, 1000 * n as usize)).collect();
    for (context, message) in (0..).zip(&messages) {
        bob.endpoint.recv(room(20_000), ANY, context).unwrap();
        alice.endpoint.send(message.clone(), peer, context).unwrap();
    }
    // Half of them get messages, of which one is cut, and nobody reads that they have.
    for n in 0..10 {
        bob.endpoint.tsend(payload(n, if n == 3 { 6000 } else { 4000 }), peer, n, 100 + n).unwrap();
        bob.endpoint.send(payload(n, 3000), peer, 100 + n).unwrap();
    }
    bob.cq.progress();
    alice.cq.progress();
    assert!(!rests.iter_mut().any(is_freed), "somebody has all of them");
    let mut arrived = Vec::new();
    thread::scope(|scope| {
        let closing = scope.spawn(move || drop(alice));
        let deadline = Deadline::new();
        while !closing.is_finished() || arrived.len() < messages.len() {
            match bob.cq.read() {
                Ok(completion) if completion.context < 100 => arrived.push(completion),
                Ok(_) => {}
                // Some of bob's own may have found nobody any more.
                Err(ReadError::ErrorAvailable) => {
                    assert!(bob.cq.read_error().unwrap().completion.context >= 100);
                }
                Err(_) => deadline.pause("what was accepted for sending"),
            }
        }
    });
    for completion in &arrived {
        assert!(received(&completion.buffer) == messages[completion.context as usize]);
    }
    assert!(rests.iter_mut().all(is_freed), "a posted buffer is still there");
    assert!(messages.iter().all(Bytes::is_unique), "a message is still there");
}

pub(crate) fn what_is_forgotten_harms_nobody(net: &Net) {
    let (alice, bob) = Own::pair(net);
    let deadline = Deadline::new();
    let to_alice = FabricAddress(0);
    for n in 0..3 {
        alice.endpoint.recv(room(20_000), ANY, n).unwrap();
    }
    // Nobody can call it any more, but its queue still drives it.
    mem::forget(alice.endpoint);
    for n in 0..3 {
        bob.endpoint.send(payload(n, 20_000), to_alice, n).unwrap();
    }
    let mut read = 0;
    while read < 3 {
        let _sent = bob.cq.read();
        match alice.cq.read() {
            Ok(completion) => {
                assert!(received(&completion.buffer) == payload(read, 20_000));
                mem::forget(completion);
                read += 1;
            }
            Err(ReadError::Empty) => deadline.pause("messages to an endpoint that was forgotten"),
            Err(error) => panic!("{error}"),
        }
    }
    // What it is bound to stays busy.
    assert_eq!(alice.cq.close().unwrap_err().1.errno(), Errno::EBUSY);
    assert_eq!(alice.av.close().unwrap_err().1.errno(), Errno::EBUSY);
}

pub(crate) fn objects_are_closed_in_any_order_or_are_busy(net: &Net) {
    // In which of 24 orders endpoint, queue, vector and domain are given up.
    for order in 0..24 {
        let mut left = vec![0, 1, 2, 3];
        let places = [order / 6, order / 2 % 3, order % 2, 0];
        let order: Vec<usize> = places.into_iter().map(|place| left.remove(place)).collect();
        let domain = net.domain();
        let Own { endpoint, cq, av } = Own::open(&domain, net);
        endpoint.recv(room(10), ANY, 1).unwrap();
        let (mut endpoint, mut domain) = (Some(endpoint), Some(domain));
        let (mut cq, mut av) = (Some(cq), Some(av));
        for what in order {
            let is_bound = endpoint.is_some();
            match what {
                0 => endpoint = None,
                1 => match cq.take().unwrap().close() {
                    Ok(()) => assert!(!is_bound),
                    Err((busy, error)) => {
                        assert!(is_bound && error.errno() == Errno::EBUSY);
                        cq = Some(busy);
                    }
                },
                2 => match av.take().unwrap().close() {
                    Ok(()) => assert!(!is_bound),
                    Err((busy, error)) => {
                        assert!(is_bound && error.errno() == Errno::EBUSY);
                        av = Some(busy);
                    }
                },
                _ => domain = None,
            }
        }
        assert!(endpoint.is_none() && domain.is_none());
        // What was busy is so no longer.
        assert!(cq.is_none_or(|cq| cq.close().is_ok()) && av.is_none_or(|av| av.close().is_ok()));
    }
}

pub(crate) fn everything_is_dropped_while_a_thread_polls(net: &Net) {
    fn is_shareable<T: Clone + Send + Sync + 'static>(_: &T) {}
    let eq: fn(&EventQueue) = is_shareable;
    let fabric: fn(&Fabric) = is_shareable;
    let _checked_by_the_compiler = (eq, fabric);
    let (alice, bob) = Own::pair(net);
    is_shareable(&alice.endpoint);
    is_shareable(&alice.cq);
    is_shareable(&alice.av);
    let (is_over, polled) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        for cq in [alice.cq.clone(), alice.cq.clone(), bob.cq.clone()] {
            let (is_over, polled) = (&is_over, &polled);
            scope.spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    let read = cq.read();
                    polled.fetch_add(1, Ordering::Relaxed);
                    match read {
                        Err(ReadError::ErrorAvailable) => {
                            let _another_thread_may_have_it = cq.read_error();
                        }
                        Ok(_) | Err(_) => thread::yield_now(),
                    }
                }
                // The last handles; nothing is bound any more.
                drop(cq);
            });
        }
        let _over = Over(&is_over);
        let deadline = Deadline::new();
        for n in 0..50 {
            alice.endpoint.recv(room(3000), ANY, n).unwrap();
            bob.endpoint.recv(room(3000), ANY, n).unwrap();
            alice.endpoint.send(payload(n, 3000), FabricAddress(0), n).unwrap();
            bob.endpoint.send(payload(n, 3000), FabricAddress(0), n).unwrap();
        }
        drop(alice);
        drop(bob);
        let seen = polled.load(Ordering::Relaxed);
        while polled.load(Ordering::Relaxed) < seen + 100 {
            deadline.pause("polls of queues that have no endpoint any more");
        }
    });
}

pub(crate) fn the_last_of_many_threads_closes_the_endpoint(net: &Net) {
    let (alice, bob) = Own::pair(net);
    let sent = AtomicUsize::new(0);
    let Own { endpoint, cq, av } = alice;
    let name = endpoint.name().unwrap();
    // None is left to this thread, which drives the receiver: whoever drops the last one waits for that.
    let handles = [endpoint.clone(), endpoint.clone(), endpoint.clone(), endpoint];
    thread::scope(|scope| {
        for (thread, endpoint) in (0..).zip(handles) {
            let (cq, sent) = (cq.clone(), &sent);
            scope.spawn(move || {
                let deadline = Deadline::new();
                // Each leaves after another number of messages, so that the handles go one by one.
                for n in 0..20 * (thread + 1) {
                    let message = payload(n, 700);
                    while let Err(rejected) = endpoint.tsend(message.clone(), FabricAddress(0), thread, n) {
                        assert!(matches!(rejected.error, Error::Again(_)), "{rejected}");
                        let _sent = cq.read();
                        deadline.pause("room for a send");
                    }
                    sent.fetch_add(1, Ordering::Relaxed);
                    let _sent = cq.read();
                }
            });
        }
        let deadline = Deadline::new();
        for n in 0..200 {
            bob.endpoint.trecv(room(700), ANY, 0, u64::MAX, n).unwrap();
        }
        let mut taken = 0;
        while taken < 200 {
            match bob.cq.read() {
                Ok(completion) => {
                    assert_eq!(completion.len_bytes, 700);
                    taken += 1;
                }
                Err(ReadError::Empty) => deadline.pause("messages of all threads"),
                Err(error) => panic!("{error}"),
            }
        }
    });
    assert_eq!(sent.into_inner(), 200);
    // All handles are gone, so nothing is bound, and the address is free.
    cq.close().unwrap();
    av.close().unwrap();
    net.open(Setup { at: Some(name), ..Setup::default() });
}

pub(crate) fn an_endpoint_is_dropped_amid_traffic_in_both_directions(net: &Net) {
    const WINDOW: u64 = 8;
    // After so many completions; messages of every way to travel are on their way then.
    for leaves_after in [0, 1, 7, 40, 150] {
        let (alice, bob) = Own::pair(net);
        let is_gone = AtomicBool::new(false);
        thread::scope(|scope| {
            let is_gone = &is_gone;
            scope.spawn(move || {
                let mut ended = 0;
                converse(&alice, WINDOW, |_| {
                    ended += 1;
                    ended > leaves_after
                });
                drop(alice);
                is_gone.store(true, Ordering::Release);
            });
            scope.spawn(move || {
                // Until the one who has left is noticed; then every send must end, one way or the other.
                let deadline = Deadline::new();
                let mut outstanding = converse(&bob, WINDOW, |failed| failed);
                while outstanding > 0 || !is_gone.load(Ordering::Acquire) {
                    match bob.cq.read() {
                        Ok(completion) => outstanding -= u64::from(completion.context == SENT),
                        Err(ReadError::ErrorAvailable) => {
                            let failed = bob.cq.read_error().unwrap();
                            outstanding -= u64::from(failed.completion.context == SENT);
                        }
                        Err(_) => deadline.pause("the end of every send"),
                    }
                }
                drop(bob);
            });
        });
    }
}

/// The context of sends; that of receives is another.
const SENT: u64 = 1;

/// Keeps so many messages in flight in each direction until something has ended that `is_last` says is the last: it is told
/// whether it is a send that failed. Returns how many sends have not ended.
fn converse(own: &Own, window: u64, mut is_last: impl FnMut(bool) -> bool) -> u64 {
    let deadline = Deadline::new();
    let (mut sending, mut receiving, mut number) = (0, 0, 0);
    loop {
        while receiving < window {
            own.endpoint.recv(room(70_000), ANY, 2).unwrap();
            receiving += 1;
        }
        while sending < window {
            number += 1;
            let len_bytes = [8, 900, 20_000, 70_000][number as usize % 4];
            // A level that waits for the peer, so that it is noticed when it leaves.
            let send = SendMsg {
                buffers: vec![payload(number, len_bytes)],
                to: FabricAddress(0),
                context: SENT,
                flags: OpFlags::DELIVERY_COMPLETE,
                ..SendMsg::default()
            };
            own.endpoint.sendmsg(send).unwrap();
            sending += 1;
        }
        let (context, is_failed) = match own.cq.read() {
            Ok(completion) => (completion.context, false),
            Err(ReadError::ErrorAvailable) => {
                let failed = own.cq.read_error().unwrap();
                (failed.completion.context, true)
            }
            Err(_) => {
                deadline.pause("traffic");
                continue;
            }
        };
        if context == SENT {
            sending -= 1;
        } else {
            receiving -= 1;
        }
        if is_last(is_failed && context == SENT) {
            return sending;
        }
    }
}
