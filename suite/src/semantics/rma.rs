//! Access to the memory of peers: `fi_rma(3)`, `fi_mr(3)`.

use super::atomics::{MODEST_BYTES, SUM_OF_BYTES, encode_number, make_add_call, perform_and_wait};
use super::prelude::*;
use super::rx_cq_data::{NOTIFIED, ROOM_BYTES, fields};

/// Lengths of accesses that use every protocol.
const LENS_BYTES: [usize; 8] = [0, 1, 8, 100, 4096, 20_000, 300_000, (1 << 20) + 5];

fn make_write_call(party: &Party, region: &Region, context: u64, len_bytes: usize) -> RmaCall {
    RmaCall::new(RmaBy::Write, payload(context, len_bytes), party.peer(), region, context)
}

fn make_read_call(party: &Party, region: &Region, context: u64, len_bytes: usize) -> RmaCall {
    RmaCall::new(RmaBy::Read, payload(0, len_bytes), party.peer(), region, context)
}

/// Makes a write whose completion reports what the target has done with it. Every write of homespun is such
/// a write. By default, a write of another provider may complete before the target checks it.
fn make_processed_write_call(party: &Party, region: &Region, context: u64, len_bytes: usize) -> RmaCall {
    let call = make_write_call(party, region, context, len_bytes);
    if party.is_homespun() {
        return call;
    }
    RmaCall { by: RmaBy::Writemsg, flags: OpFlags::DELIVERY_COMPLETE, ..call }
}

/// The length of the longest write that the party injects.
fn inject_max_bytes(party: &Party) -> usize {
    let granted = party.endpoint.info().tx.inject_size_bytes;
    if party.is_homespun() { INJECT_MAX_BYTES } else { granted.min(INJECT_MAX_BYTES) }
}

/// Accesses a region, and waits for the completion. If homespun writes it, it has the length of the access:
/// `fi_cq(3)` gives the completion of an initiator no length. Returns the bytes of a read.
#[track_caller]
fn access_and_wait(party: &Party, call: RmaCall) -> Vec<u8> {
    let is_read = matches!(call.by, RmaBy::Read | RmaBy::Readv | RmaBy::Readmsg);
    let direction = if is_read { CompletionFlags::READ } else { CompletionFlags::WRITE };
    let len_bytes = call.buffers.iter().map(Bytes::len).sum();
    let completion = party.access(call);
    assert_eq!(completion.flags, CompletionFlags::RMA | direction);
    assert!(completion.len_bytes == len_bytes || !party.is_homespun(), "{completion:?}");
    if is_read { received_bytes(&completion.buffer) } else { Vec::new() }
}

/// Posts an access, and waits until it has failed.
#[track_caller]
fn fail_access(party: &Party, call: RmaCall) -> CompletionError {
    party.endpoint.rma(call).unwrap();
    party.next_failure()
}

/// Shows fi_cq/reports-ends-of-transfers, fi_cq/context-of-operation, fi_cq/context-is-always-there,
/// fi_cq/flags-field, fi_cq/flag-rma, fi_cq/flag-read-write, fi_rma/writes-reach-memory,
/// fi_rma/reads-return-memory, fi_rma/rma-context-comes-back, fi_rma/rma-vectors,
/// fi_rma/inject-write-frees-and-hides.
#[over(all)]
fn every_call_accesses_the_region(net: &Net) {
    let (alice, bob) = net.open_pair();
    for kind in net.memory_kinds() {
        let region = bob.open_region(300, kind, KEY);
        let call = |by, context| {
            let count = if matches!(by, RmaBy::Write | RmaBy::Read) { 1 } else { 3 };
            let buffers = split_unevenly(&payload(context, 200), count);
            RmaCall { buffers, ..make_access(by, &alice, &region, context, 50, 200) }
        };
        let writes = [RmaBy::Write, RmaBy::Writev, RmaBy::Writemsg, RmaBy::WriteRaw, RmaBy::InjectWrite];
        for (context, by) in (1..).zip(writes) {
            region.write_at(0, &marked_buffer(300));
            if by != RmaBy::InjectWrite {
                access_and_wait(&alice, call(by, context));
            } else {
                alice.endpoint.rma(call(by, context)).unwrap();
                if alice.is_homespun() {
                    // The success of the write is not reported. A fenced send completes after it.
                    alice.send_and_wait_for_delivery(alice.message(99, 0, OpFlags::FENCE));
                    bob.receive(0, 0);
                }
            }
            let expected = [&marked_buffer(50)[..], &payload(context, 200), &marked_buffer(50)].concat();
            region.expect_content(&alice, &expected, &format!("{:?}", (by, kind)));
        }
        region.write_at(0, &payload(9, 300));
        for (context, by) in (1..).zip([RmaBy::Read, RmaBy::Readv, RmaBy::Readmsg]) {
            let read = access_and_wait(&alice, call(by, context));
            assert!(read == payload(9, 300)[50..250], "{by:?}, {kind:?}");
        }
    }
}

/// While the link has no room, injected writes are refused. A refused write leaves no trace.
/// Shows fi_rma/inject-write-frees-and-hides.
#[over(all)]
fn injected_writes_beyond_the_room_of_the_link_go_after_progress(net: &Net) {
    const WRITES: u64 = 3000;
    let (alice, bob) = net.open_pair();
    let longest_bytes = inject_max_bytes(&alice);
    let region = bob.open_region(longest_bytes, MemoryKind::Raw, KEY);
    for number in 1..=WRITES {
        let len_bytes = if number % 3 == 0 { longest_bytes } else { 8 };
        let write = make_access(RmaBy::InjectWrite, &alice, &region, number, 0, len_bytes);
        poll_until("room for an injected write", || {
            let Err(error) = alice.endpoint.rma(write.clone()) else { return Some(()) };
            assert_eq!(error.errno(), Errno::EAGAIN);
            assert!(alice.poll_completion().is_none());
            bob.progress_all();
            None
        });
    }
    alice.send_and_wait_for_delivery(alice.message(99, 0, OpFlags::FENCE));
    // The last write was long.
    assert!(region.content() == payload(WRITES, longest_bytes));
}

/// There is no later message that could make the write visible. `fi_cq(3)` promises this only for the level
/// of delivery.
/// Shows fi_cq/len-field, fi_cq/visible-means-readable, fi_cq/silent-access-as-initiator-level,
/// fi_cq/persistent-memory, fi_rma/rma-levels, fi_rma/access-is-silent-at-target,
/// fi_rma/writes-reach-memory.
#[over(all)]
fn accesses_of_every_size_and_level_move_every_byte(net: &Net) {
    let (alice, bob) = net.open_pair();
    let levels = if alice.is_homespun() { &LEVELS_AND_NONE[..] } else { &[OpFlags::DELIVERY_COMPLETE] };
    let mut context = 0;
    for kind in net.memory_kinds() {
        for len_bytes in LENS_BYTES {
            let region = bob.open_region(len_bytes + 20, kind, KEY);
            for &flags in levels {
                context += 1;
                let write = make_access(RmaBy::Writemsg, &alice, &region, context, 9, len_bytes);
                access_and_wait(&alice, RmaCall { flags, ..write });
                let written = payload(context, len_bytes);
                let expected = [&marked_buffer(9)[..], &written, &marked_buffer(11)].concat();
                assert!(region.content() == expected, "{len_bytes} bytes, {kind:?}, {flags:?}");
            }
            let bytes = access_and_wait(&alice, make_access(RmaBy::Read, &alice, &region, 0, 9, len_bytes));
            assert!(bytes == payload(context, len_bytes), "{len_bytes} bytes, {kind:?}");
        }
    }
    bob.assert_no_completion();
}

/// Shows fi_mr/target-must-be-registered, fi_mr/access-rights.
#[over(all)]
fn access_beyond_rights_or_bounds_is_refused_and_the_next_succeeds(net: &Net) {
    let (alice, bob) = net.open_pair();
    for kind in net.memory_kinds() {
        let register =
            |access, key| bob.register(RegionSpec { access, ..RegionSpec::new(100, kind, key) }).unwrap();
        let region = register(EVERYTHING, KEY);
        let unreadable = register(MrAccess::REMOTE_WRITE, 2);
        let unwritable = register(MrAccess::REMOTE_READ, 3);
        // After a first access, the peer may have mapped shareable memory.
        for region in [&region, &unwritable] {
            access_and_wait(&alice, make_read_call(&alice, region, 1, 8));
        }
        access_and_wait(&alice, make_write_call(&alice, &unreadable, 1, 8));
        unreadable.expect_content(&alice, &[&payload(1, 8)[..], &marked_buffer(92)].concat(), "a write");
        unreadable.write_at(0, &marked_buffer(8));
        for len_bytes in [8, 50, 20_000] {
            let write = make_processed_write_call(&alice, &region, 1, len_bytes);
            let read = make_read_call(&alice, &region, 1, len_bytes);
            let mut cases = vec![
                (RmaCall { key: KEY + 1, ..write.clone() }, Errno::EKEYREJECTED),
                (RmaCall { key: KEY + 1, ..read.clone() }, Errno::EKEYREJECTED),
                (RmaCall { key: unwritable.key(), ..write.clone() }, Errno::EACCES),
                (RmaCall { key: unreadable.key(), ..read.clone() }, Errno::EACCES),
            ];
            let [start, end] = [region.address_at(0), region.address_at(100)];
            for address in [start.wrapping_sub(1), end - 7, end + 1, u64::MAX] {
                cases.push((RmaCall { address, ..write.clone() }, Errno::EINVAL));
                cases.push((RmaCall { address, ..read.clone() }, Errno::EINVAL));
            }
            for (call, errno) in cases {
                let failed = fail_access(&alice, call.clone());
                assert_eq!(failed.completion.context, 1, "{call:?}");
                if alice.is_homespun() {
                    assert_eq!(failed.errno(), errno, "{call:?}");
                }
            }
        }
        for region in [region, unreadable, unwritable] {
            assert!(region.content() == marked_buffer(100));
        }
    }
    if alice.is_homespun() {
        alice.exchange_long_messages(&bob);
    }
}

/// Shows fi_mr/access-rights.
#[over(all, own)]
fn target_refuses_accesses_that_its_capabilities_lack(net: &Net) {
    let messages = Caps::MSG | Caps::SEND | Caps::RECV;
    let caps = messages | Caps::RMA | Caps::REMOTE_READ;
    let (alice, bob) = net.open_pair_with(Setup::default(), Setup { caps, ..Setup::default() });
    for kind in [MemoryKind::Owned, MemoryKind::Shareable] {
        let region = bob.open_region(100, kind, KEY);
        // After the first access, the peer may have mapped shareable memory.
        for _ in 0..3 {
            let failed = fail_access(&alice, make_write_call(&alice, &region, 1, 10));
            assert_eq!(failed.errno(), Errno::EACCES);
            if alice.is_native() {
                assert_eq!(failed.peer.as_deref(), Some(&bob.endpoint.name().unwrap()));
            }
            assert!(access_and_wait(&alice, make_read_call(&alice, &region, 2, 10)) == marked_buffer(10));
        }
    }
}

/// Shows fi_cq/events-of-endpoints-and-regions, fi_cq/context-null-without-operation,
/// fi_cq/context-null-for-remote-data, fi_cq/flags-field, fi_cq/len-field, fi_cq/flag-remote-read-write,
/// fi_cq/messages-complete-at-target, fi_cq/persistent-memory, fi_cq-1.4/remote-write-flag,
/// fi_rma/remote-data-notifies-target.
#[over(all)]
fn write_with_remote_data_completes_at_the_target(net: &Net) {
    let caps = Caps::MSG | Caps::RMA | Caps::SOURCE;
    let target = Setup { caps, separate_queues: true, ..Setup::default() };
    let (alice, bob) = net.open_pair_with(Setup::default(), target);
    check_write_calls_with_remote_data(net, (&alice, &bob), false);
    // A refused write delivers no remote data. Another provider may end the link with it.
    for kind in net.memory_kinds().take(if alice.is_homespun() { usize::MAX } else { 1 }) {
        let region = bob.open_region(10, kind, KEY);
        let call = RmaCall { key: 1, data: Some(9), ..make_processed_write_call(&alice, &region, 9, 10) };
        assert_eq!(fail_access(&alice, call).completion.context, 9);
        bob.assert_no_completion();
    }
}

/// Writes with remote data by every call to every kind of memory. The target has a queue for receives. Each
/// write takes a receive, if the target `takes_receives` for them.
pub(super) fn check_write_calls_with_remote_data(
    net: &Net,
    (alice, bob): (&Party, &Party),
    takes_receives: bool,
) {
    let queue = bob.receive_cq.clone().expect("it has two");
    for kind in net.memory_kinds() {
        let region = bob.open_region(100_000, kind, KEY);
        for (data, by) in (70..).zip([RmaBy::Write, RmaBy::Writemsg, RmaBy::InjectWrite]) {
            for len_bytes in [0, 10, 100_000] {
                if by == RmaBy::InjectWrite && len_bytes > inject_max_bytes(alice) {
                    continue;
                }
                let post = Post { peer: ANY, context: data, ..Post::default() };
                let room = takes_receives
                    .then(|| bob.endpoint.receive_into_raw_memory(&[ROOM_BYTES], 0, post).unwrap());
                let write = make_access(by, alice, &region, data, 0, len_bytes);
                alice.endpoint.rma(RmaCall { data: Some(data), ..write }).unwrap();
                let (completion, source) = bob.next_ended_of(&queue).unwrap();
                let context = if takes_receives { data } else { 0 };
                assert_eq!(fields(&completion), (context, NOTIFIED, len_bytes, data));
                if takes_receives || bob.is_homespun() {
                    // `fi_cq(3)` speaks of the sources of receives only.
                    assert_eq!(source, bob.peer());
                }
                assert!(region.content()[..len_bytes] == payload(data, len_bytes), "{kind:?}");
                if let Some(room) = room {
                    assert_eq!(completion.buffer, Buffer::None);
                    let untouched = room.into_filled_bytes(data, ROOM_BYTES);
                    assert!(untouched == marked_buffer(ROOM_BYTES), "the receive's memory was written to");
                }
                if by != RmaBy::InjectWrite {
                    assert_eq!(alice.next_completion().context, data);
                }
            }
        }
    }
}

#[over(all)]
fn accesses_beyond_the_limit_of_a_link_complete(net: &Net) {
    const COUNT: usize = RMA_LINK_MAX_OPS;
    let (alice, bob) = net.open_pair();
    let region = bob.open_region(8 * COUNT, MemoryKind::Owned, KEY);
    let mut left = 2 * COUNT;
    for number in 0..COUNT {
        for by in [RmaBy::Write, RmaBy::Read] {
            post_access(by, &alice, &region, number as u64, 8 * number, 8);
        }
        while let Some(ended) = alice.poll_completion() {
            ended.unwrap();
            left -= 1;
        }
    }
    alice.await_completions(left);
    let expected: Vec<u8> = (0..COUNT).flat_map(|number| payload(number as u64, 8)).collect();
    region.expect_content(&alice, &expected, &format!("{COUNT}"));
}

#[over(all)]
fn rma_and_messages_flow_both_ways_at_once(net: &Net) {
    const COUNT: u64 = 60;
    const SLOT_BYTES: usize = 40_000;
    let (alice, bob) = net.open_pair();
    let len_bytes = |number: u64| [8, 3000, SLOT_BYTES][number as usize % 3];
    let open_slots = |party: &Party, kind, key| party.open_region(COUNT as usize * SLOT_BYTES, kind, key);
    // Parties of one process share a domain and its keys.
    let sides =
        [(&alice, open_slots(&bob, MemoryKind::Owned, 1)), (&bob, open_slots(&alice, MemoryKind::Raw, 2))];
    for number in 0..COUNT {
        for (party, slots) in &sides {
            let place = number as usize * SLOT_BYTES;
            post_access(RmaBy::Write, party, slots, number, place, len_bytes(number));
            party.post_receives([number], len_bytes(number));
            party.post_send(number, len_bytes(number), OpFlags::empty());
        }
    }
    for (party, slots) in &sides {
        for _ in 0..3 * COUNT {
            let completion = party.next_completion();
            if completion.flags.contains(CompletionFlags::RECV) {
                let message = payload(completion.context, len_bytes(completion.context));
                assert!(received_bytes(&completion.buffer) == message);
            }
        }
        let slot = |number| {
            let written = payload(number, len_bytes(number));
            [&written[..], &marked_buffer(SLOT_BYTES - written.len())].concat()
        };
        let expected: Vec<u8> = (0..COUNT).flat_map(slot).collect();
        slots.expect_content(party, &expected, "all writes");
    }
}

#[over(all)]
fn endpoint_accesses_its_own_region(net: &Net) {
    let alice = net.open_party();
    alice.insert_address_of(&alice);
    for (context, len_bytes) in (4..).zip([10, 100_000]) {
        let region = alice.open_region(len_bytes, MemoryKind::Raw, KEY);
        access_and_wait(&alice, make_write_call(&alice, &region, context, len_bytes));
        region.expect_content(&alice, &payload(context, len_bytes), &format!("{len_bytes}"));
        let read = access_and_wait(&alice, make_read_call(&alice, &region, context, len_bytes));
        assert!(read == payload(context, len_bytes));
    }
}

/// Shows fi_cq/errors-are-always-reported, fi_rma/rma-context-without-completion, fi_rma/rma-completion-flag.
#[over(all)]
fn selective_completion_hides_success_and_reports_failure(net: &Net) {
    let (alice, bob) = net.open_pair_with(Setup::selective(), Setup::default());
    let region = bob.open_region(10, MemoryKind::Owned, KEY);
    post_access(RmaBy::Write, &alice, &region, 1, 0, 10);
    post_access(RmaBy::Read, &alice, &region, 2, 0, 10);
    for (context, by) in [(3, RmaBy::Writemsg), (4, RmaBy::Readmsg)] {
        let call = make_access(by, &alice, &region, context, 0, 10);
        alice.access(RmaCall { flags: OpFlags::COMPLETION, ..call });
    }
    let write = RmaCall { key: 1, ..make_processed_write_call(&alice, &region, 5, 10) };
    assert_eq!(fail_access(&alice, write.clone()).completion.context, 5);
    if alice.is_homespun() {
        let failed = fail_access(&alice, RmaCall { by: RmaBy::InjectWrite, ..write });
        assert_eq!(failed.completion.context, 0, "injected accesses have no context");
    }
    alice.assert_no_completion();
}

/// Shows fi_mr/closed-region-is-not-accessed, fi_mr/access-to-closed-region-fails.
#[over(all)]
fn memory_of_a_closed_region_is_never_accessed(net: &Net) {
    const LEN_BYTES: usize = (1 << 20) + 9;
    for rounds in 0..4 {
        let (alice, bob) = net.open_pair();
        let region = bob.open_region(LEN_BYTES, MemoryKind::Raw, KEY);
        let calls = [
            make_processed_write_call(&alice, &region, 1, LEN_BYTES),
            make_read_call(&alice, &region, 2, LEN_BYTES),
        ];
        let (kind, operand) = (AtomicKind::Fetch, payload(3, MODEST_BYTES));
        let atomic = AtomicCall::new(kind, SUM_OF_BYTES, operand, alice.peer(), &region, 3);
        let count = 6;
        calls.iter().cycle().take(count - 2).for_each(|call| alice.endpoint.rma(call.clone()).unwrap());
        for _ in 0..2 {
            alice.endpoint.atomic(atomic.clone()).unwrap();
        }
        (0..rounds).for_each(|_| alice.progress_all());
        let (mut before, closed) = region.close_raw();
        for _ in 0..count {
            // Accesses that ended before the close have succeeded.
            if let Err(failed) = alice.next_ended()
                && alice.is_homespun()
            {
                assert_eq!(failed.errno(), Errno::EKEYREJECTED);
            }
        }
        if !alice.is_homespun() {
            // `fi_mr(3)` leaves open whether active accesses still reach the memory.
            before = closed.content();
        }
        let [write, _] = calls;
        let mut failures = vec![fail_access(&alice, write)];
        alice.endpoint.atomic(atomic).unwrap();
        failures.push(alice.next_failure());
        assert!(closed.content() == before);
        if alice.is_homespun() {
            assert!(failures.iter().all(|failed| failed.errno() == Errno::EKEYREJECTED), "{failures:?}");
            alice.exchange_long_messages(&bob);
        }
    }
}

/// Shows fi_mr/requested-key.
#[over(all)]
fn registration_with_a_key_in_use_fails_with_enokey(net: &Net) {
    let (alice, bob) = net.open_pair();
    let first = bob.open_region(10, MemoryKind::Raw, KEY);
    expect_error(bob.register(RegionSpec::new(20, MemoryKind::Owned, KEY)), Errno::ENOKEY);
    first.close_raw();
    let second = bob.open_region(20, MemoryKind::Owned, KEY);
    access_and_wait(&alice, make_write_call(&alice, &second, 1, 20));
    second.expect_content(&alice, &payload(1, 20), "the second region");
}

#[over(all, own)]
fn accesses_fail_when_the_target_closes(net: &Net) {
    let (alice, bob) = net.open_pair();
    let region = bob.open_region(100_000, MemoryKind::Raw, KEY);
    access_and_wait(&alice, make_write_call(&alice, &region, 1, 10));
    let calls = [make_write_call(&alice, &region, 2, 100_000), make_read_call(&alice, &region, 3, 100_000)];
    let atomics = [(AtomicKind::Base, 4), (AtomicKind::Fetch, 5)]
        .map(|(kind, context)| make_add_call(kind, &alice, &region, 1, context));
    drop(region);
    drop(bob);
    for (context, call) in (2..).zip(calls) {
        assert_eq!(fail_access(&alice, call).completion.context, context);
    }
    for (context, call) in (4..).zip(atomics) {
        alice.endpoint.atomic(call).unwrap();
        assert_eq!(alice.next_failure().completion.context, context);
    }
    alice.assert_no_completion();
}

/// Shows fi_rma/rma-inject-limit.
#[over(driven, own)]
fn post_with_invalid_arguments_is_refused(net: &Net) {
    let (alice, bob) = net.open_pair_with(Setup { tx_depth_ops: 2, ..Setup::default() }, Setup::asleep());
    let region = bob.open_region(10, MemoryKind::Owned, KEY);
    let call = |by, buffers| RmaCall { by, buffers, ..make_write_call(&alice, &region, 1, 8) };
    let (long, many) = (vec![payload(1, INJECT_MAX_BYTES + 1)], vec![payload(1, 1); 5]);
    for (call, errno) in [
        (call(RmaBy::InjectWrite, long.clone()), Errno::EMSGSIZE),
        (RmaCall { flags: OpFlags::INJECT, ..call(RmaBy::Writemsg, long) }, Errno::EMSGSIZE),
        (call(RmaBy::Writev, many.clone()), Errno::EINVAL),
        (call(RmaBy::Readv, many), Errno::EINVAL),
        (RmaCall { peer: FabricAddress(77), ..make_write_call(&alice, &region, 1, 8) }, Errno::EINVAL),
    ] {
        assert_eq!(expect_errno(alice.endpoint.rma(call.clone())), errno, "{call:?}");
    }
    post_access(RmaBy::Write, &alice, &region, 1, 0, 8);
    post_access(RmaBy::Read, &alice, &region, 2, 0, 8);
    expect_error(alice.endpoint.rma(make_write_call(&alice, &region, 3, 8)), Errno::EAGAIN);
    net.start_driving(&bob);
    alice.expect_each([1, 2]);
    alice.assert_no_completion();
}

#[over(all)]
fn accesses_without_the_capability_take_effect(net: &Net) {
    let caps = Caps::MSG | Caps::RECV;
    let (alice, bob) = net.open_pair_with(Setup { caps, ..Setup::default() }, Setup::default());
    let region = bob.open_region(10, MemoryKind::Owned, KEY);
    alice.access(make_write_call(&alice, &region, 1, 8));
    assert!(access_and_wait(&alice, make_read_call(&alice, &region, 2, 8)) == payload(1, 8));
    region.write_at(0, &encode_number(0));
    for kind in [AtomicKind::Base, AtomicKind::Fetch] {
        perform_and_wait(&alice, make_add_call(kind, &alice, &region, 1, 3));
    }
    region.expect_content(&alice, &[&encode_number(2)[..], &marked_buffer(2)].concat(), "both operations");
}

#[over(one_process)]
fn refused_post_returns_its_buffers(net: &Net) {
    let alice = net.open_party();
    let (endpoint, memory) = (alice.endpoint.expect_local(), RemoteMemory { address: 0, key: KEY });
    let (bytes, pieces) = (payload(1, 8), split_unevenly(&payload(2, 8), 2));
    expect_rejected(endpoint.write(bytes.clone(), ANY, memory, 1), Errno::EINVAL, bytes);
    let write = WriteMsg { buffers: pieces.clone(), data: Some(3), context: 4, ..WriteMsg::default() };
    let back = endpoint.writemsg(write).unwrap_err().returned;
    assert_eq!((back.buffers, back.data, back.context), (pieces, Some(3), 4));
    let rooms = vec![marked_buffer(3), marked_buffer(4)];
    expect_rejected(endpoint.readv(rooms.clone(), ANY, memory, 1), Errno::EINVAL, rooms);
    let read = ReadMsg { buffers: vec![marked_buffer(5)], context: 6, ..ReadMsg::default() };
    let back = endpoint.readmsg(read).unwrap_err().returned;
    assert_eq!((back.buffers, back.context), (vec![marked_buffer(5)], 6));
}

/// Shows fi_mr/invalid-registration-is-refused.
#[over(one_process)]
fn invalid_registrations_are_refused(net: &Net) {
    let domain = net.open_other_domain();
    let attr = MrAttr { access: EVERYTHING, requested_key: Some(1), ..MrAttr::default() };
    expect_error(domain.register(0, &attr), Errno::EINVAL);
    expect_error(domain.register(usize::MAX, &attr), Errno::EINVAL);
    let flags = MrFlags::from_bits_retain(1);
    assert!(domain.register(8, &MrAttr { flags, ..attr }).is_ok(), "flags without a meaning are ignored");
    // Some applications pass capabilities such as `FI_RMA` here. The library checks only the rights.
    let access = EVERYTHING | MrAccess::from_bits_retain(Caps::RMA.bits() | Caps::MSG.bits() | 1);
    let region = domain.register(8, &MrAttr { access, ..attr }).unwrap();
    assert_eq!((region.key(), region.address(), region.len_bytes(), region.access()), (1, 0, 8, EVERYTHING));
    assert!(region.read_at(1, &mut [0; 8]).is_err() && region.write_at(9, &[]).is_err());
}

/// Shows fi_mr/key-of-region.
#[over(all, own)]
fn region_with_local_access_only_takes_no_key(net: &Net) {
    let (alice, bob) = net.open_pair();
    let local = MrAccess::READ | MrAccess::WRITE | MrAccess::SEND | MrAccess::RECV;
    for kind in net.memory_kinds() {
        let spec = RegionSpec::new(100, kind, KEY);
        let locals =
            [local, MrAccess::empty()].map(|access| bob.register(RegionSpec { access, ..spec }).unwrap());
        for region in &locals {
            assert_eq!(region.key(), u64::MAX, "FI_KEY_NOTAVAIL");
            for call in [make_read_call(&alice, region, 1, 8), make_write_call(&alice, region, 1, 8)] {
                for key in [region.key(), KEY] {
                    let failed = fail_access(&alice, RmaCall { key, ..call.clone() });
                    assert_eq!(failed.errno(), Errno::EKEYREJECTED, "{call:?}");
                }
            }
        }
        let remote = bob.register(spec).unwrap();
        assert_eq!(remote.key(), KEY);
        drop(locals);
        access_and_wait(&alice, make_write_call(&alice, &remote, 2, 8));
    }
}

/// Shows fi_rma/address-is-virtual-or-offset, fi_mr/unneeded-mr-mode-is-cleared, fi_mr/provider-key.
#[over(one_process)]
fn mr_mode_decides_keys_and_addresses(net: &Net) {
    use homespun::info::MrMode;

    for (mode, picks, counts) in [
        (MrMode::empty(), false, false),
        (MrMode::BASIC, true, true),
        (MrMode::PROV_KEY, true, false),
        (MrMode::VIRT_ADDR, false, true),
    ] {
        let mut info = net.info().clone();
        info.domain.mr_mode = mode;
        let domain = net.fabric.domain(&info).unwrap();
        let attr = MrAttr { access: EVERYTHING, requested_key: Some(5), ..MrAttr::default() };
        let owned = domain.register(8, &attr).unwrap();
        let attr = MrAttr { requested_key: Some(6), ..attr };
        let raw = crate::raw::RawRegion::allocate(&domain, 8, &attr).unwrap();
        assert_eq!([owned.key() != 5, raw.key() != 6], [picks; 2], "{mode:?}");
        let drawn = [(); 2].map(|()| domain.register(8, &MrAttr::granting(EVERYTHING)).unwrap());
        assert_ne!(drawn[0].key(), drawn[1].key(), "{mode:?}");
        let own = owned.as_ptr().expose_provenance() as u64;
        let expected = if counts { [own, raw.memory_address()] } else { [0; 2] };
        assert_eq!([owned.address(), raw.address()], expected);
    }
}
