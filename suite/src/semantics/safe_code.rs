//! Code without `unsafe` may use its handles in any way. Each call must return a result, and nothing may
//! crash or leak.

use std::mem;

use homespun::Fabric;

use super::prelude::*;

/// An endpoint with its objects. Only the test drives it.
struct OwnEndpoint {
    endpoint: Endpoint,
    cq: CompletionQueue,
    av: AddressVector,
}

impl OwnEndpoint {
    fn open_with(domain: &Domain, net: &Net, flags: BindFlags) -> OwnEndpoint {
        let cq = domain.open_cq(&CqAttr::default()).unwrap();
        let (endpoint, av) = open_endpoint_with_queues(domain, net.info(), &[(&cq, flags)]);
        endpoint.enable().unwrap();
        OwnEndpoint { endpoint, cq, av }
    }

    fn open_pair(net: &Net) -> (OwnEndpoint, OwnEndpoint) {
        let domain = net.open_other_domain();
        let [left, right] = [(); 2].map(|()| OwnEndpoint::open_with(&domain, net, BOTH));
        left.insert_address_of(&right.endpoint);
        right.insert_address_of(&left.endpoint);
        (left, right)
    }

    /// Inserts the address of a peer. The first one gets the fabric address 0.
    fn insert_address_of(&self, other: &Endpoint) -> FabricAddress {
        self.av.insert(&[other.name().unwrap()]).remove(0).unwrap()
    }
}

/// Returns a buffer to post, and the rest of its allocation. The rest shows whether the buffer still exists.
fn make_watched_buffer(len_bytes: usize) -> (BytesMut, BytesMut) {
    let mut rest = marked_buffer(2 * len_bytes);
    (rest.split_to(len_bytes), rest)
}

fn try_reclaim_allocation(rest: &mut BytesMut) -> bool {
    rest.clear();
    rest.try_reclaim(rest.capacity() + 1)
}

#[over(one_process)]
fn unreported_access_frees_its_buffer(net: &Net) {
    let (domain, others) = (net.open_other_domain(), net.open_other_domain());
    let alice = OwnEndpoint::open_with(&domain, net, BOTH | BindFlags::SELECTIVE_COMPLETION);
    let bob = OwnEndpoint::open_with(&others, net, BOTH);
    let to = alice.insert_address_of(&bob.endpoint);
    let ended = open_counter(&domain, WaitObject::None);
    alice.endpoint.bind_counter(&ended, CounterEvents::WRITE | CounterEvents::READ).unwrap();
    let attr = MrAttr { shareable: true, ..MrAttr::granting(EVERYTHING) };
    let region = others.register(64, &attr).unwrap();
    let memory = region.remote();
    // Over shared memory, the first access maps the region. Later accesses complete at post time.
    for n in 1..=6 {
        let sent = [1, 2, 3, 4].map(|number| payload(number, 8));
        alice.endpoint.write(sent[0].clone(), to, memory, n).unwrap();
        alice.endpoint.writev(sent[1..3].to_vec(), to, memory, n).unwrap();
        let (buffer, mut rest) = make_watched_buffer(8);
        alice.endpoint.read(buffer, to, memory, n).unwrap();
        let (op, datatype) = (AtomicOp::Sum, Datatype::Uint64);
        let target = AtomicTarget { peer: to, memory, op, datatype };
        alice.endpoint.atomic(sent[3].clone(), target, n).unwrap();
        poll_until("the memory of silent accesses", || {
            assert_eq!(alice.cq.read(), Ok(None), "success is silent");
            bob.cq.progress();
            let is_ended = ended.read() == 4 * n && sent.iter().all(Bytes::is_unique);
            (is_ended && try_reclaim_allocation(&mut rest)).then_some(())
        });
    }
}

/// Shows fi_cq/close-ebusy-for-endpoint.
#[over(one_process)]
fn objects_close_in_any_order_or_are_busy(net: &Net) {
    // The endpoint, the completion queue, the address vector and the domain can close in 24 orders. The
    // endpoint may be enabled.
    for order in 0..48 {
        let (order, is_enabled) = (order / 2, order % 2 == 0);
        let mut left = vec![0, 1, 2, 3];
        let places = [order / 6, order / 2 % 3, order % 2, 0];
        let order: Vec<usize> = places.into_iter().map(|place| left.remove(place)).collect();
        let domain = net.open_other_domain();
        let (endpoint, cq, av) = open_disabled_endpoint(&domain, net.info());
        if is_enabled {
            endpoint.enable().unwrap();
            endpoint.recv(marked_buffer(10), ANY, 1).unwrap();
        }
        let (mut endpoint, mut domain) = (Some(endpoint), Some(domain));
        let (mut cq, mut av) = (Some(cq), Some(av));
        for what in order {
            let is_bound = endpoint.is_some();
            match what {
                0 => endpoint = None,
                1 if is_bound => cq = cq.map(|cq| expect_busy(cq.close())),
                1 => cq.take().unwrap().close().unwrap(),
                2 if is_bound => av = av.map(|av| expect_busy(av.close())),
                2 => av.take().unwrap().close().unwrap(),
                _ => domain = None,
            }
        }
        assert!(endpoint.is_none() && domain.is_none());
        // Busy objects are free now.
        assert!(cq.is_none_or(|cq| cq.close().is_ok()) && av.is_none_or(|av| av.close().is_ok()));
    }
}

#[over(one_process)]
fn objects_may_be_dropped_while_a_thread_polls(net: &Net) {
    fn assert_clone_send_and_sync<T: Clone + Send + Sync + 'static>() {}
    assert_clone_send_and_sync::<(Endpoint, CompletionQueue, AddressVector, EventQueue, Fabric)>();
    let (alice, bob) = OwnEndpoint::open_pair(net);
    let peer = FabricAddress(0);
    let (is_over, polled) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        for cq in [alice.cq.clone(), alice.cq.clone(), bob.cq.clone()] {
            let (is_over, polled) = (&is_over, &polled);
            scope.spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    if cq.read() == Err(ReadError::ErrorAvailable) {
                        let _another_thread_may_have_it = cq.read_error();
                    }
                    polled.fetch_add(1, Ordering::Relaxed);
                    thread::yield_now();
                }
                // These are the last handles, without bindings.
                drop(cq);
            });
        }
        let _over = StopOnDrop(&is_over);
        for n in 0..50 {
            for party in [&alice, &bob] {
                party.endpoint.recv(marked_buffer(3000), ANY, n).unwrap();
                party.endpoint.send(payload(n, 3000), peer, n).unwrap();
            }
        }
        drop((alice, bob));
        let seen = polled.load(Ordering::Relaxed);
        poll_until("polls of queues that have no endpoint any more", || {
            (polled.load(Ordering::Relaxed) >= seen + 100).then_some(())
        });
    });
}

#[over(one_process)]
fn endpoint_closes_when_the_last_thread_drops_its_handle(net: &Net) {
    let (alice, bob) = OwnEndpoint::open_pair(net);
    let OwnEndpoint { endpoint, cq, av } = alice;
    let (name, peer) = (endpoint.name().unwrap(), FabricAddress(0));
    // This thread keeps no handle. The thread that drops the last handle waits for the receiver, so this
    // thread drives the receiver.
    let handles = [endpoint.clone(), endpoint.clone(), endpoint.clone(), endpoint];
    thread::scope(|scope| {
        for (thread, endpoint) in (0..).zip(handles) {
            let cq = cq.clone();
            scope.spawn(move || {
                let deadline = Deadline::new();
                // Each thread drops its handle after a different number of messages.
                for n in 0..20 * (thread + 1) {
                    let message = payload(n, 700);
                    while let Err(rejected) = endpoint.tsend(message.clone(), peer, Tag(thread), n) {
                        assert!(matches!(rejected.error, Error::Again(_)), "{rejected}");
                        let _sent = cq.read();
                        deadline.yield_or_panic("room for a send");
                    }
                    let _sent = cq.read();
                }
            });
        }
        for n in 0..200 {
            bob.endpoint.trecv(marked_buffer(700), ANY, Tag(0).ignoring(u64::MAX), n).unwrap();
        }
        // The messages of each thread arrive in order.
        let mut next = [0; 4];
        for _ in 0..200 {
            let completion = next_completion_of(&bob.cq, &[]);
            let next = &mut next[completion.tag.0 as usize];
            assert!(received_bytes(&completion.buffer) == payload(*next, 700));
            *next += 1;
        }
    });
    // All handles are dropped, so the objects and the address are free.
    cq.close().unwrap();
    av.close().unwrap();
    net.open_party_with(Setup { at: Some(name), ..Setup::default() });
}

#[over(one_process)]
fn dropped_endpoint_frees_posted_buffers(net: &Net) {
    let (alice, bob) = OwnEndpoint::open_pair(net);
    let peer = FabricAddress(0);
    let mut rests = Vec::new();
    for n in 0..20 {
        let [buffer, first, second] = [5000, 100, 9000].map(|len_bytes| {
            let (buffer, rest) = make_watched_buffer(len_bytes);
            rests.push(rest);
            buffer
        });
        alice.endpoint.trecv(buffer, ANY, Tag(n), n).unwrap();
        alice.endpoint.recvv(vec![first, second], ANY, n).unwrap();
    }
    let messages: Vec<Bytes> = (0..20).map(|n| payload(n, 1000 * n as usize)).collect();
    for (context, message) in (0..).zip(&messages) {
        bob.endpoint.recv(marked_buffer(20_000), ANY, context).unwrap();
        alice.endpoint.send(message.clone(), peer, context).unwrap();
    }
    // Half of the receives match messages, and one message is truncated. Nothing reads the entries.
    for n in 0..10 {
        bob.endpoint.tsend(payload(n, if n == 3 { 6000 } else { 4000 }), peer, Tag(n), 100 + n).unwrap();
        bob.endpoint.send(payload(n, 3000), peer, 100 + n).unwrap();
    }
    bob.cq.progress();
    alice.cq.progress();
    assert!(!rests.iter_mut().any(try_reclaim_allocation), "every buffer is still in use");
    let mut arrived = Vec::new();
    thread::scope(|scope| {
        let closing = scope.spawn(move || drop(alice));
        let deadline = Deadline::new();
        while !closing.is_finished() || arrived.len() < messages.len() {
            match bob.cq.read() {
                Ok(Some(completion)) if completion.context < 100 => arrived.push(completion),
                Ok(Some(_)) => {}
                Ok(None) => deadline.yield_or_panic("what was accepted for sending"),
                // Some of bob's sends may have failed because alice has closed.
                Err(ReadError::ErrorAvailable) => {
                    assert!(bob.cq.read_error().unwrap().unwrap().completion.context >= 100);
                }
                Err(error) => panic!("{error}"),
            }
        }
    });
    for completion in &arrived {
        assert!(received_bytes(&completion.buffer) == messages[completion.context as usize]);
    }
    assert!(rests.iter_mut().all(try_reclaim_allocation), "a posted buffer is still there");
    assert!(messages.iter().all(Bytes::is_unique), "a message is still there");
}

#[over(one_process)]
fn forgotten_endpoint_still_receives_and_keeps_its_objects_busy(net: &Net) {
    let (alice, bob) = OwnEndpoint::open_pair(net);
    let to_alice = FabricAddress(0);
    (0..3).for_each(|n| alice.endpoint.recv(marked_buffer(20_000), ANY, n).unwrap());
    // The application has no handle left, but the queue still drives the endpoint.
    mem::forget(alice.endpoint);
    (0..3).for_each(|n| bob.endpoint.send(payload(n, 20_000), to_alice, n).unwrap());
    for n in 0..3 {
        let completion = next_completion_of(&alice.cq, &[&bob.cq]);
        assert!(received_bytes(&completion.buffer) == payload(n, 20_000));
        mem::forget(completion);
    }
    // The objects bound to the endpoint stay busy.
    expect_busy(alice.cq.close());
    expect_busy(alice.av.close());
}
