//! The events that counters count: `fi_cntr(3)`.

use super::prelude::*;

/// Lengths of operations that use every protocol.
pub(crate) const LENS_BYTES: [usize; 7] = [0, 8, 3000, 20_000, 100_000, 300_000, (1 << 20) + 5];

pub(crate) fn make_counting_setup() -> Setup {
    Setup { counts: true, ..Setup::default() }
}

pub(crate) fn make_region_spec(len_bytes: usize, kind: MemoryKind) -> RegionSpec {
    RegionSpec { len_bytes, kind, access: EVERYTHING, key: KEY, is_counted: true }
}

/// Drives all parties until the region has counted these accesses. With another provider, ignores the reads:
/// `fi_mr(3)` binds counters for writes only.
#[track_caller]
fn await_region_counts(party: &Party, region: &Region, reads: u64, writes: u64) {
    poll_until("accesses to a region", || {
        party.progress_all();
        let has_reads = !party.is_homespun() || region.read_counter(REMOTE_READ) == (reads, 0);
        (has_reads && region.read_counter(REMOTE_WRITE) == (writes, 0)).then_some(())
    });
}

/// Shows fi_endpoint/counter-bindings, fi_cntr/counts-completions.
#[over(all)]
fn messages_are_counted_at_both_ends(net: &Net) {
    let (alice, bob) = net.open_equal_pair(make_counting_setup());
    let mut sent = 0;
    for flags in LEVELS {
        for (context, len_bytes) in (1..).zip(LENS_BYTES) {
            let tag = (context % 2 == 0).then_some(Tag(context));
            bob.post_receive(context, len_bytes, tag, OpFlags::empty());
            let send = alice.message(context, len_bytes, flags);
            alice.endpoint.sendmsg(SendMsg { tag, ..send }).unwrap();
            assert_eq!((bob.next_completion().context, alice.next_completion().context), (context, context));
            sent += 1;
            if alice.is_homespun() {
                // A reported operation is already counted.
                assert_eq!((alice.read_counter(SEND), bob.read_counter(RECV)), ((sent, 0), (sent, 0)));
            }
        }
    }
    alice.wait_for_exact_counts(&[(SEND, (sent, 0))]);
    bob.wait_for_exact_counts(&[(RECV, (sent, 0))]);
}

/// Shows fi_cq/flag-remote-read-write, fi_cq/messages-complete-at-target, fi_mr/event-region-flag,
/// fi_mr/region-counts-remote-writes, fi_cntr/counts-completions.
#[over(all)]
fn accesses_are_counted_at_both_ends(net: &Net) {
    const LEN_BYTES: usize = 1 << 21;
    for kind in net.memory_kinds() {
        let (alice, bob) = net.open_equal_pair(make_counting_setup());
        let region = bob.register(make_region_spec(LEN_BYTES, kind)).unwrap();
        let mut done = 0;
        for (context, len_bytes) in (1..).zip(LENS_BYTES.repeat(2)) {
            post_access(RmaBy::Write, &alice, &region, context, 0, len_bytes);
            if context % 2 == 0 {
                // The target only looks at its counters to learn of the write.
                await_region_counts(&bob, &region, done, done + 1);
                let content = region.read_at(0, len_bytes);
                assert!(content == payload(context, len_bytes), "{kind:?}, {len_bytes} bytes");
            }
            post_access(RmaBy::Read, &alice, &region, context, 0, len_bytes);
            alice.expect_each([context; 2]);
            done += 1;
            if alice.is_homespun() {
                // An access that has completed is already counted at its target.
                assert_eq!(bob.read_counter(REMOTE_WRITE), (done, 0));
                assert_eq!(region.read_counter(REMOTE_WRITE), (done, 0));
            }
            bob.wait_for_exact_counts(&[(REMOTE_WRITE, (done, 0)), (REMOTE_READ, (done, 0))]);
            await_region_counts(&bob, &region, done, done);
        }
        // Remote data also produces a completion.
        let reads = done;
        for by in [RmaBy::Write, RmaBy::Writemsg, RmaBy::InjectWrite] {
            let call = RmaCall { data: Some(7), ..make_access(by, &alice, &region, 99, 0, 8) };
            alice.endpoint.rma(call).unwrap();
            assert_eq!(bob.next_completion().data, 7);
            done += 1;
        }
        bob.wait_for_exact_counts(&[(REMOTE_WRITE, (done, 0)), (REMOTE_READ, (reads, 0))]);
        await_region_counts(&bob, &region, reads, done);
        alice.wait_for_exact_counts(&[(WRITE, (done, 0)), (READ, (reads, 0))]);
    }
}

/// A region counts an atomic operation by what it does to the memory (`fi_mr(3)`). An endpoint counts it by
/// whether it returns results (`fi_endpoint(3)`).
/// Shows fi_cq/flag-remote-read-write, fi_atomic/target-completion-after-update,
/// fi_mr/region-counts-remote-writes.
#[over(all)]
fn updating_atomics_are_counted_as_writes_by_the_region(net: &Net) {
    for kind in net.memory_kinds() {
        let (alice, bob) = net.open_equal_pair(make_counting_setup());
        let region = bob.register(make_region_spec(8, kind)).unwrap();
        region.clear();
        let (mut reads, mut writes, mut updates, mut value) = (0, 0, 0, 0_u64);
        for round in 1..4 {
            for (atomic, op) in [
                (AtomicKind::Base, AtomicOp::Sum),
                (AtomicKind::Fetch, AtomicOp::Sum),
                (AtomicKind::Fetch, AtomicOp::Write),
                (AtomicKind::Fetch, AtomicOp::Read),
                (AtomicKind::Compare, AtomicOp::Cswap),
            ] {
                // Operations on no elements, in the last round, are counted too. `fi_atomic(3)` has none.
                let is_empty = round == 3 && alice.is_homespun();
                let operand = payload(round, if is_empty { 0 } else { 8 });
                let what = (op, Datatype::Uint64);
                let call = AtomicCall::new(atomic, what, operand, alice.peer(), &region, round);
                alice.endpoint.atomic(call).unwrap();
                reads += u64::from(atomic.fetches());
                writes += u64::from(op != AtomicOp::Read);
                updates += u64::from(!atomic.fetches());
                // An update is visible once the target has counted it.
                await_region_counts(&bob, &region, reads, writes);
                match op {
                    _ if is_empty => {}
                    AtomicOp::Sum => value += round,
                    AtomicOp::Write => value = round,
                    // The others leave the number as it is.
                    _ => {}
                }
                assert_eq!(region.content(), value.to_le_bytes(), "{atomic} {op} on {kind:?}");
                assert_eq!(alice.next_completion().context, round);
                bob.wait_for_exact_counts(&[(REMOTE_READ, (reads, 0)), (REMOTE_WRITE, (updates, 0))]);
            }
        }
        // The target of an atomic operation gets no entry.
        bob.assert_no_completion();
    }
}

#[over(all)]
fn accesses_to_a_mapped_region_are_counted(net: &Net) {
    let setup = Setup { selective: true, ..make_counting_setup() };
    let (alice, bob) = net.open_pair_with(setup, Setup::default());
    let mut region = bob.open_region(64, MemoryKind::Shareable, KEY);
    for done in 1..=20 {
        for by in [RmaBy::Write, RmaBy::InjectWrite, RmaBy::Read] {
            post_access(by, &alice, &region, 99, 0, 8);
        }
        let told = make_access(RmaBy::Writemsg, &alice, &region, done, 0, 8);
        alice.access(RmaCall { flags: OpFlags::COMPLETION, ..told });
        alice.wait_for_exact_counts(&[(WRITE, (3 * done, 0)), (READ, (done, 0))]);
        if done == 10 {
            // Now the region is mapped, if the transport can map it.
            region.start_counting();
        }
    }
    await_region_counts(&alice, &region, 10, 30);
    alice.assert_no_completion();
}

/// `fi_cntr(3)` leaves open whether a provider counts errors.
/// Shows fi_cntr/errors-are-counted-apart.
#[over(all, own)]
fn failures_are_counted_as_errors(net: &Net) {
    let (alice, bob) = net.open_equal_pair(Setup { selective: true, ..make_counting_setup() });
    // A truncated and a cancelled receive.
    bob.post_receives([1, 2], 4);
    alice.endpoint.send(payload(1, 8), alice.peer(), 1).unwrap();
    bob.expect_failure(1, Errno::ETRUNC);
    bob.endpoint.cancel(2).unwrap();
    bob.expect_failure(2, Errno::ECANCELED);
    // A refused access does not count at the target.
    let region = bob.register(make_region_spec(10, MemoryKind::Owned)).unwrap();
    for by in [RmaBy::Write, RmaBy::InjectWrite, RmaBy::Read] {
        let call = make_access(by, &alice, &region, 3, 0, 8);
        alice.endpoint.rma(RmaCall { key: KEY + 1, ..call.clone() }).unwrap();
        assert_eq!(alice.next_failure().errno(), Errno::EKEYREJECTED);
        alice.endpoint.rma(RmaCall { address: region.address_at(5), ..call }).unwrap();
        assert_eq!(alice.next_failure().errno(), Errno::EINVAL);
    }
    bob.wait_for_exact_counts(&[(RECV, (0, 2))]);
    await_region_counts(&bob, &region, 0, 0);
    // A refused post does not count.
    let unknown = FabricAddress(99);
    assert!(alice.endpoint.send(payload(1, 8), unknown, 4).is_err());
    assert!(alice.endpoint.inject(&payload(1, 8), unknown, None, None).is_err());
    alice.wait_for_exact_counts(&[(SEND, (1, 0)), (WRITE, (0, 4)), (READ, (0, 2))]);
    // Operations on an unreachable peer fail.
    let (_vacancy, absent) = net.insert_vacant_address(&alice);
    alice.endpoint.send(payload(1, 8), absent, 5).unwrap();
    assert_eq!(alice.next_failure().completion.context, 5);
    alice.endpoint.inject(&payload(1, 8), absent, None, None).unwrap();
    alice.next_failure();
    for by in [RmaBy::Write, RmaBy::Read] {
        alice.endpoint.rma(RmaCall { peer: absent, ..make_access(by, &alice, &region, 6, 0, 8) }).unwrap();
        assert_eq!(alice.next_failure().completion.context, 6);
    }
    alice.wait_for_exact_counts(&[(SEND, (1, 2)), (WRITE, (0, 5)), (READ, (0, 3))]);
}

#[over(all)]
fn multi_receive_counts_each_message(net: &Net) {
    for selective in [false, true] {
        let (alice, bob) =
            net.open_pair_with(make_counting_setup(), Setup { selective, ..make_counting_setup() });
        bob.endpoint.set_min_multi_recv_bytes(64);
        bob.endpoint.recv_multi(marked_buffer(10 * 64), ANY, 1).unwrap();
        (0..10).for_each(|context| alice.send(context, payload(context, 64)));
        bob.wait_for_exact_counts(&[(RECV, (10, 0))]);
        if !bob.is_homespun() {
            continue;
        }
        // The release of a buffer is not counted. A cancelled buffer counts as an error.
        bob.endpoint.recv_multi(marked_buffer(100), ANY, 2).unwrap();
        bob.endpoint.cancel(2).unwrap();
        bob.wait_for_exact_counts(&[(RECV, (10, 1))]);
        while bob.next_ended().is_ok() {}
    }
}

#[over(all)]
fn full_completion_queue_delays_no_counting(net: &Net) {
    const COUNT: u64 = 100;
    let (alice, bob) = net.open_equal_pair(Setup { cq_depth_entries: 2, ..make_counting_setup() });
    for context in 0..COUNT {
        bob.endpoint.recv(marked_buffer(8), ANY, context).unwrap();
        alice.endpoint.send(payload(context, 8), alice.peer(), context).unwrap();
    }
    alice.wait_for_exact_counts(&[(SEND, (COUNT, 0))]);
    bob.wait_for_exact_counts(&[(RECV, (COUNT, 0))]);
    alice.await_completions(COUNT as usize);
    bob.await_completions(COUNT as usize);
    assert_eq!((alice.read_counter(SEND), bob.read_counter(RECV)), ((COUNT, 0), (COUNT, 0)));
}

#[over(all)]
fn send_is_counted_only_at_its_completion_level(net: &Net) {
    let (alice, bob) = net.open_equal_pair(Setup { selective: true, ..make_counting_setup() });
    alice.post_send(1, 8, OpFlags::MATCH_COMPLETE);
    alice.post_send(2, 8, OpFlags::DELIVERY_COMPLETE);
    alice.assert_no_completion();
    alice.wait_for_exact_counts(&[(SEND, (1, 0))]);
    bob.endpoint.recv(marked_buffer(8), ANY, 3).unwrap();
    alice.wait_for_exact_counts(&[(SEND, (2, 0))]);
    bob.wait_for_exact_counts(&[(RECV, (1, 0))]);
    // Injected messages are counted, too.
    for tag in [None, Some(Tag(5))] {
        alice.endpoint.inject(&payload(3, 8), alice.peer(), tag, None).unwrap();
    }
    bob.endpoint.trecv(marked_buffer(8), ANY, Tag(5), 4).unwrap();
    alice.wait_for_exact_counts(&[(SEND, (4, 0))]);
    bob.wait_for_exact_counts(&[(RECV, (2, 0))]);
}
