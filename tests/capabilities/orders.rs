//! Orders of messages, accesses and completions: `fi_endpoint(3)`.

use homespun::atomic::{AtomicOp, Datatype};
use homespun::endpoint::{AtomicTarget, SendMsg};
use homespun::flags::{CompletionFlags, OpFlags, Order};
use homespun::info::Info;
use homespun::{Bytes, BytesMut, MemoryRegion, RemoteMemory};

use crate::Check;
use crate::endpoint_pair::{ANY, EndpointPair, TestEndpoint, read_content};
use homespun_suite::payload::{marked_buffer, payload, received_bytes};

/// The check of each message order. The check gets an info that has the order.
pub(crate) const OF_MESSAGES: &[(Order, Check)] = &[
    (Order::SAS, check_sends_after_sends),
    (Order::SAW, |info| check_sends_after_accesses(info, Before::Write)),
    (Order::SAR, |info| check_sends_after_accesses(info, Before::Read)),
    (Order::WAS, |info| check_accesses_after_sends(info, Order::WAS)),
    (Order::RAS, |info| check_accesses_after_sends(info, Order::RAS)),
    (Order::RAR, |info| {
        check_accesses_and_atomics(info, check_reads_after_reads, check_fetches_after_fetches);
    }),
    (Order::RAW, |info| {
        check_accesses_and_atomics(info, check_reads_after_writes, check_fetches_after_updates);
    }),
    (Order::WAR, |info| {
        check_accesses_and_atomics(info, check_writes_after_reads, check_updates_after_fetches);
    }),
    (Order::WAW, |info| {
        check_accesses_and_atomics(info, check_writes_after_writes, check_updates_after_updates);
    }),
    (Order::RMA_RAR, check_reads_after_reads),
    (Order::RMA_RAW, check_reads_after_writes),
    (Order::RMA_WAR, check_writes_after_reads),
    (Order::RMA_WAW, check_writes_after_writes),
    (Order::ATOMIC_RAR, check_fetches_after_fetches),
    (Order::ATOMIC_RAW, check_fetches_after_updates),
    (Order::ATOMIC_WAR, check_updates_after_fetches),
    (Order::ATOMIC_WAW, check_updates_after_updates),
];

/// A check for each completion order of transmit operations. If an application asks for one of these orders,
/// it gets all of them.
pub(crate) const OF_TRANSMIT_COMPLETIONS: &[(Order, Check)] = &[
    (Order::RAR, check_completion_order),
    (Order::RAW, check_completion_order),
    (Order::RAS, check_completion_order),
    (Order::WAR, check_completion_order),
    (Order::WAW, check_completion_order),
    (Order::WAS, check_completion_order),
    (Order::SAR, check_completion_order),
    (Order::SAW, check_completion_order),
    (Order::SAS, check_completion_order),
];

/// The check of each completion order of receives; none is offered.
pub(crate) const OF_RECEIVE_COMPLETIONS: &[(Order, Check)] = &[];

/// Message lengths that use different protocols. Without an order, a short message could overtake a long
/// one.
const LENS_BYTES: [usize; 5] = [300_000, 0, 20_000, 8, 3000];

/// The length of an access that takes longer than the operation after it.
const LONG_BYTES: usize = 300_000;

/// The number of repetitions of a check that could pass by accident.
const TURNS: u64 = 10;

fn check_accesses_and_atomics(info: &Info, accesses: Check, atomics: Check) {
    accesses(info);
    atomics(info);
}

fn check_sends_after_sends(info: &Info) {
    let pair = EndpointPair::open(info);
    let (alice, bob) = (&pair.alice, &pair.bob);
    let count = 4 * LENS_BYTES.len() as u64;
    let len_bytes = |number: u64| LENS_BYTES[number as usize % LENS_BYTES.len()];
    for number in 0..count {
        alice.endpoint.send(payload(number, len_bytes(number)), alice.peer, number).unwrap();
    }
    for number in 0..count {
        bob.endpoint.recv(marked_buffer(LENS_BYTES[0]), ANY, number).unwrap();
    }
    // This order says nothing about the completion order of receives.
    for _ in 0..count {
        let completion = pair.next_completion(bob);
        assert!(completion.flags.contains(CompletionFlags::RECV));
        let number = completion.context;
        assert!(received_bytes(&completion.buffer) == payload(number, len_bytes(number)), "message {number}");
    }
    for _ in 0..count {
        pair.next_completion(alice);
    }
}

/// Opens a pair, and a region of bob's.
fn open_pair_with_region(info: &Info) -> (EndpointPair, MemoryRegion) {
    let pair = EndpointPair::open(info);
    let region = pair.register_region(LONG_BYTES, 7);
    (pair, region)
}

/// Posts a write of alice's to the region.
fn post_write(pair: &EndpointPair, region: &MemoryRegion, message: Bytes) {
    let TestEndpoint { endpoint, peer, .. } = &pair.alice;
    endpoint.write(message, *peer, region.remote(), 1).unwrap();
}

fn post_read(pair: &EndpointPair, region: &MemoryRegion, len_bytes: usize, context: u64) {
    let TestEndpoint { endpoint, peer, .. } = &pair.alice;
    endpoint.read(marked_buffer(len_bytes), *peer, region.remote(), context).unwrap();
}

/// Waits until this many operations of alice have completed. Returns the bytes of her reads, sorted by
/// context.
fn await_read_results(pair: &EndpointPair, operations: usize) -> Vec<Vec<u8>> {
    let completions = (0..operations).map(|_| pair.next_completion(&pair.alice));
    let mut reads: Vec<_> =
        completions.filter(|completion| completion.flags.contains(CompletionFlags::READ)).collect();
    reads.sort_by_key(|completion| completion.context);
    reads.iter().map(|completion| received_bytes(&completion.buffer)).collect()
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Before {
    Read,
    Write,
}

/// Checks that a message arrives only after earlier accesses have taken effect.
fn check_sends_after_accesses(info: &Info, before: Before) {
    let (pair, region) = open_pair_with_region(info);
    for turn in 0..TURNS {
        let old = payload(turn, LONG_BYTES);
        region.write_at(0, &old).unwrap();
        match before {
            Before::Read => post_read(&pair, &region, LONG_BYTES, 2),
            Before::Write => post_write(&pair, &region, payload(turn + 1, LONG_BYTES)),
        }
        pair.bob.endpoint.recv(marked_buffer(8), ANY, 1).unwrap();
        pair.alice.endpoint.inject(b"message", pair.alice.peer, None, None).unwrap();
        pair.next_completion(&pair.bob);
        if before == Before::Write {
            assert!(read_content(&region, LONG_BYTES) == payload(turn + 1, LONG_BYTES));
            await_read_results(&pair, 1);
        } else {
            // The read must not see bytes that are written from now on.
            region.write_at(0, &payload(turn + 1, LONG_BYTES)).unwrap();
            assert!(await_read_results(&pair, 1) == [old]);
        }
    }
}

/// Checks that short messages sent before an access have arrived when the access completes.
fn check_accesses_after_sends(info: &Info, order: Order) {
    const EACH: u64 = 5;
    let (pair, region) = open_pair_with_region(info);
    let (alice, bob) = (&pair.alice, &pair.bob);
    for _ in 0..TURNS {
        for context in 0..EACH {
            bob.endpoint.recv(marked_buffer(3000), ANY, context).unwrap();
            alice.endpoint.send(payload(context, 3000), alice.peer, context).unwrap();
        }
        if order == Order::RAS {
            post_read(&pair, &region, 8, 2);
        } else {
            post_write(&pair, &region, payload(1, 8));
        }
        // The sends may complete before or after the access.
        for _ in 0..=EACH {
            let ended = pair.next_completion(alice);
            if ended.flags.intersects(CompletionFlags::READ | CompletionFlags::WRITE) {
                for _ in 0..EACH {
                    let message = bob.poll_completion().expect("the message has arrived").expect("success").0;
                    assert!(received_bytes(&message.buffer) == payload(message.context, 3000));
                }
            }
        }
    }
}

/// Checks that a later read sees at least the writes that an earlier read saw.
fn check_reads_after_reads(info: &Info) {
    let (pair, region) = open_pair_with_region(info);
    for turn in 0..TURNS {
        region.write_at(0, &turn.to_le_bytes()).unwrap();
        post_read(&pair, &region, LONG_BYTES, 1);
        post_read(&pair, &region, 8, 2);
        pair.progress();
        region.write_at(0, &(turn + 1).to_le_bytes()).unwrap();
        let read_results = await_read_results(&pair, 2);
        let number = |bytes: &[u8]| u64::from_le_bytes(bytes[..8].try_into().unwrap());
        assert!(number(&read_results[0]) <= number(&read_results[1]) && number(&read_results[0]) >= turn);
    }
}

fn check_reads_after_writes(info: &Info) {
    assert!(info.ep.max_order_raw_size_bytes >= LONG_BYTES);
    let (pair, region) = open_pair_with_region(info);
    for turn in 0..TURNS {
        post_write(&pair, &region, payload(turn, LONG_BYTES));
        post_read(&pair, &region, LONG_BYTES, 2);
        assert!(await_read_results(&pair, 2) == [payload(turn, LONG_BYTES)]);
    }
}

fn check_writes_after_reads(info: &Info) {
    assert!(info.ep.max_order_war_size_bytes >= LONG_BYTES);
    let (pair, region) = open_pair_with_region(info);
    region.write_at(0, &payload(0, LONG_BYTES)).unwrap();
    for turn in 0..TURNS {
        post_read(&pair, &region, LONG_BYTES, 2);
        post_write(&pair, &region, payload(turn + 1, LONG_BYTES));
        assert!(await_read_results(&pair, 2) == [payload(turn, LONG_BYTES)]);
    }
}

fn check_writes_after_writes(info: &Info) {
    assert!(info.ep.max_order_waw_size_bytes >= LONG_BYTES);
    let (pair, region) = open_pair_with_region(info);
    for turn in 0..TURNS {
        post_write(&pair, &region, payload(turn, LONG_BYTES));
        post_write(&pair, &region, payload(turn + 1, 3000));
        await_read_results(&pair, 2);
        let mut expected = payload(turn, LONG_BYTES).to_vec();
        expected[..3000].copy_from_slice(&payload(turn + 1, 3000));
        assert!(read_content(&region, LONG_BYTES) == expected);
    }
}

/// The number of elements of an atomic operation.
const NUMBERS: u64 = 100;

fn make_atomic_target(pair: &EndpointPair, region: &MemoryRegion, op: AtomicOp) -> AtomicTarget {
    let (address, key) = (region.address(), region.key());
    AtomicTarget {
        peer: pair.alice.peer,
        memory: RemoteMemory { address, key },
        datatype: Datatype::Uint64,
        op,
    }
}

fn repeat_number(number: u64) -> Bytes {
    number.to_le_bytes().repeat(NUMBERS as usize).into()
}

fn post_update(pair: &EndpointPair, region: &MemoryRegion, op: AtomicOp, number: u64) {
    pair.alice.endpoint.atomic(repeat_number(number), make_atomic_target(pair, region, op), 1).unwrap();
}

fn post_fetch(pair: &EndpointPair, region: &MemoryRegion, context: u64) {
    let (room, target) =
        (BytesMut::zeroed(8 * NUMBERS as usize), make_atomic_target(pair, region, AtomicOp::Read));
    pair.alice.endpoint.fetch_atomic(Bytes::new(), room, target, context).unwrap();
}

fn check_fetches_after_fetches(info: &Info) {
    let (pair, region) = open_pair_with_region(info);
    for turn in 0..TURNS {
        post_fetch(&pair, &region, 1);
        post_fetch(&pair, &region, 2);
        assert!(await_read_results(&pair, 2) == [repeat_number(turn), repeat_number(turn)]);
        post_update(&pair, &region, AtomicOp::Sum, 1);
        await_read_results(&pair, 1);
    }
}

fn check_fetches_after_updates(info: &Info) {
    assert!(info.ep.max_order_raw_size_bytes >= 8 * NUMBERS as usize);
    let (pair, region) = open_pair_with_region(info);
    for turn in 0..TURNS {
        post_update(&pair, &region, AtomicOp::Write, turn);
        post_fetch(&pair, &region, 2);
        assert!(await_read_results(&pair, 2) == [repeat_number(turn)]);
    }
}

fn check_updates_after_fetches(info: &Info) {
    assert!(info.ep.max_order_war_size_bytes >= 8 * NUMBERS as usize);
    let (pair, region) = open_pair_with_region(info);
    for turn in 0..TURNS {
        post_fetch(&pair, &region, 2);
        post_update(&pair, &region, AtomicOp::Write, turn + 1);
        assert!(await_read_results(&pair, 2) == [repeat_number(turn)]);
    }
}

fn check_updates_after_updates(info: &Info) {
    assert!(info.ep.max_order_waw_size_bytes >= 8 * NUMBERS as usize);
    let (pair, region) = open_pair_with_region(info);
    for turn in 0..TURNS {
        post_update(&pair, &region, AtomicOp::Write, turn);
        post_update(&pair, &region, AtomicOp::Prod, 3);
        post_update(&pair, &region, AtomicOp::Sum, 1);
        await_read_results(&pair, 3);
        assert!(read_content(&region, 8 * NUMBERS as usize) == repeat_number(3 * turn + 1));
    }
}

/// Checks that long and short operations complete in posting order.
fn check_completion_order(info: &Info) {
    let (pair, region) = open_pair_with_region(info);
    let (alice, bob) = (&pair.alice, &pair.bob);
    let count = 6 * LENS_BYTES.len() as u64;
    let at = (region.address(), region.key());
    for context in 0..count {
        let len_bytes = LENS_BYTES[context as usize % LENS_BYTES.len()];
        let message = payload(context, len_bytes);
        match context % 3 {
            0 => {
                bob.endpoint.recv(marked_buffer(len_bytes), ANY, context).unwrap();
                let flags =
                    if context % 2 == 0 { OpFlags::DELIVERY_COMPLETE } else { OpFlags::INJECT_COMPLETE };
                let (buffers, to) = (vec![message], alice.peer);
                alice
                    .endpoint
                    .sendmsg(SendMsg { buffers, to, context, flags, ..SendMsg::default() })
                    .unwrap();
            }
            1 => alice
                .endpoint
                .write(message, alice.peer, RemoteMemory { address: at.0, key: at.1 }, context)
                .unwrap(),
            _ => alice
                .endpoint
                .read(
                    marked_buffer(len_bytes),
                    alice.peer,
                    RemoteMemory { address: at.0, key: at.1 },
                    context,
                )
                .unwrap(),
        }
    }
    for context in 0..count {
        assert_eq!(pair.next_completion(alice).context, context);
    }
}
