//! Flushes, which are homespun's own: order, range, durability, and what their completions say.

use super::prelude::*;
use crate::FlushCall;

const LEN_BYTES: usize = 400_000;

/// The flags of a flush's completion.
pub(super) const FLUSH: CompletionFlags = CompletionFlags::OF_FLUSH;

/// Returns a flush of a range of a region.
pub(super) fn flush_call(
    party: &Party,
    region: &Region,
    context: u64,
    place: usize,
    len_bytes: usize,
) -> FlushCall {
    FlushCall {
        is_persistent: false,
        peer: party.peer(),
        address: region.address_at(place),
        key: region.key(),
        len_bytes: len_bytes as u64,
        context,
        flags: None,
    }
}

fn make_persistent(call: FlushCall) -> FlushCall {
    FlushCall { is_persistent: true, ..call }
}

#[track_caller]
fn post_and_expect_success(party: &Party, call: FlushCall) {
    party.endpoint.flush(call).unwrap();
    let completion = party.next_completion();
    let expected = (call.context, FLUSH, call.len_bytes as usize);
    assert_eq!((completion.context, completion.flags, completion.len_bytes), expected);
}

#[track_caller]
fn post_and_expect_refusal(party: &Party, call: FlushCall, refusal: Refusal, errno: Errno) {
    party.endpoint.flush(call).unwrap();
    let failed = party.next_failure();
    assert_eq!((failed.completion.context, failed.completion.flags), (call.context, FLUSH));
    assert_eq!(failed.completion.kind(), OperationKind::Flush);
    assert_eq!((&failed.error, failed.errno()), (&OperationError::Refused(refusal), errno), "{call:?}");
    let text = format!("the flush with context {} to ", call.context);
    assert!(failed.to_string().starts_with(&text), "{failed}");
}

/// Also with writes that the target fetches, and with injected writes, which are answered by count.
#[over(all)]
fn flush_completes_after_all_earlier_writes(net: &Net) {
    for kind in [MemoryKind::Owned, MemoryKind::Raw, MemoryKind::Shareable] {
        let (alice, bob) = net.open_pair();
        let regions = [1, 2].map(|key| bob.open_region(LEN_BYTES, kind, key));
        if kind == MemoryKind::Shareable {
            // One region is mapped, and the other is not yet.
            write_over_link_first(&alice, &regions[0]);
        }
        for round in (2..14).step_by(4) {
            post_access(RmaBy::Write, &alice, &regions[0], round, 100, LEN_BYTES - 100);
            post_access(RmaBy::Write, &alice, &regions[1], round + 1, 0, 20_000);
            post_access(RmaBy::InjectWrite, &alice, &regions[1], round + 2, 30_000, 64);
            // The range has nothing to do with the writes.
            alice.endpoint.flush(flush_call(&alice, &regions[0], round + 3, 0, 8)).unwrap();
            let mut written = 0;
            while alice.next_completion().context != round + 3 {
                written += 1;
            }
            assert!(regions[0].content()[100..] == payload(round, LEN_BYTES - 100), "{kind:?}");
            assert!(regions[1].content()[..20_000] == payload(round + 1, 20_000), "{kind:?}");
            assert!(regions[1].content()[30_000..30_064] == payload(round + 2, 64), "{kind:?}");
            let is_write = |context: u64| [round, round + 1].contains(&context);
            (written..2).for_each(|_| assert!(is_write(alice.next_completion().context)));
        }
    }
}

#[over(all)]
fn flush_completion_tells_kind_and_length(net: &Net) {
    for format in [CqFormat::Context, CqFormat::Msg, CqFormat::Tagged] {
        let setup = Setup { cq_format: Some(format), counts: true, ..Setup::default() };
        let (alice, bob) = net.open_pair_with(setup, Setup::default());
        let (persistent, _file) = register_file_region(&bob, LEN_BYTES, false, 1);
        let mapped = bob.open_region(LEN_BYTES, MemoryKind::Shareable, 2);
        write_over_link_first(&alice, &mapped);
        for (context, len_bytes) in (2..).step_by(3).zip([1, 4096, LEN_BYTES, 0]) {
            for call in [
                flush_call(&alice, &mapped, context, 0, len_bytes),
                flush_call(&alice, &persistent, context + 1, 0, len_bytes),
                make_persistent(flush_call(&alice, &persistent, context + 2, 0, len_bytes)),
            ] {
                let context = call.context;
                alice.endpoint.flush(call).unwrap();
                let completion = alice.next_completion();
                assert_eq!(completion.context, context);
                let expected = match format {
                    CqFormat::Context => (CompletionFlags::empty(), OperationKind::Unknown, 0),
                    _ => (FLUSH, OperationKind::Flush, len_bytes),
                };
                assert_eq!((completion.flags, completion.kind(), completion.len_bytes), expected);
            }
        }
        // The first write and the flushes.
        assert_eq!(alice.read_counter(CounterEvents::WRITE), (1 + 3 * 4, 0));
    }
}

#[over(all)]
fn flush_beyond_region_or_rights_is_refused(net: &Net) {
    let (alice, bob) = net.open_pair();
    let (persistent, _file) = register_file_region(&bob, LEN_BYTES, true, 1);
    let mapped = bob.open_region(LEN_BYTES, MemoryKind::Shareable, 2);
    let spec = RegionSpec::new(LEN_BYTES, MemoryKind::Shareable, 3);
    let readable = bob.register(RegionSpec { access: MrAccess::REMOTE_READ, ..spec }).unwrap();
    write_over_link_first(&alice, &mapped);
    alice.access(make_access(RmaBy::Read, &alice, &readable, 1, 0, 1));
    for is_persistent in [false, true] {
        let of = |region: &Region, context, place, len_bytes| FlushCall {
            is_persistent,
            ..flush_call(&alice, region, context, place, len_bytes)
        };
        for region in [&persistent, &mapped] {
            for (context, (place, len_bytes)) in
                (2..).zip([(0, LEN_BYTES + 1), (LEN_BYTES, 1), (LEN_BYTES + 1, 1), (8, LEN_BYTES)])
            {
                let call = of(region, context, place, len_bytes);
                post_and_expect_refusal(&alice, call, Refusal::Range, Errno::EINVAL);
            }
            let unknown = FlushCall { key: 99, ..of(region, 6, 0, 8) };
            post_and_expect_refusal(&alice, unknown, Refusal::Key, Errno::EKEYREJECTED);
        }
        post_and_expect_refusal(&alice, of(&readable, 7, 0, 8), Refusal::Access, Errno::EACCES);
    }
    // A refusal ends nothing else.
    post_and_expect_success(&alice, make_persistent(flush_call(&alice, &persistent, 8, 0, LEN_BYTES)));
    alice.exchange_long_messages(&bob);
}

#[over(all)]
fn persistent_flush_of_volatile_memory_fails(net: &Net) {
    let (alice, bob) = net.open_pair();
    for kind in [MemoryKind::Owned, MemoryKind::Raw, MemoryKind::Shareable] {
        let region = bob.open_region(LEN_BYTES, kind, 1);
        for len_bytes in [0, 8, LEN_BYTES] {
            let call = make_persistent(flush_call(&alice, &region, 2, 0, len_bytes));
            post_and_expect_refusal(&alice, call, Refusal::Volatile, Errno::EOPNOTSUPP);
            post_and_expect_success(&alice, flush_call(&alice, &region, 3, 0, len_bytes));
        }
    }
}

#[over(all)]
fn only_a_persistent_flush_makes_its_range_durable(net: &Net) {
    // Far enough from the start that no page has bytes of both writes.
    const PLACE: usize = 200_000;
    for is_raw in [false, true] {
        let (alice, bob) = net.open_pair();
        let (region, file) = register_file_region(&bob, LEN_BYTES, is_raw, 1);
        // Make the initial bytes durable. After this, only later writes make pages dirty.
        alice.access(make_access(RmaBy::Write, &alice, &region, 1, 0, LEN_BYTES));
        post_and_expect_success(&alice, make_persistent(flush_call(&alice, &region, 2, 0, LEN_BYTES)));
        file.assert_written_back_or_skip(bob.process_id());
        for (context, by) in [(3, RmaBy::Write), (4, RmaBy::InjectWrite)] {
            post_access(by, &alice, &region, context, PLACE, 4000);
            if by == RmaBy::Write {
                assert_eq!(alice.next_completion().context, context);
            }
            post_and_expect_success(&alice, flush_call(&alice, &region, 5, PLACE, 4000));
            file.assert_not_written_back_or_skip(bob.process_id());
            post_and_expect_success(&alice, make_persistent(flush_call(&alice, &region, 6, 0, 8192)));
            post_and_expect_success(&alice, make_persistent(flush_call(&alice, &region, 7, PLACE, 0)));
            file.assert_not_written_back_or_skip(bob.process_id());
            post_and_expect_success(&alice, make_persistent(flush_call(&alice, &region, 8, PLACE, 4000)));
            file.assert_written_back_or_skip(bob.process_id());
            assert!(file.read_content()[PLACE..PLACE + 4000] == payload(context, 4000));
        }
        // The owner's own bytes are in the range, too.
        region.write_at(PLACE, &payload(9, 100));
        file.assert_not_written_back_or_skip(bob.process_id());
        post_and_expect_success(&alice, make_persistent(flush_call(&alice, &region, 9, PLACE + 50, 1)));
        file.assert_written_back_or_skip(bob.process_id());
    }
}

#[over(all)]
fn fenced_flush_completes_after_earlier_reads(net: &Net) {
    for kind in [MemoryKind::Owned, MemoryKind::Shareable] {
        let (alice, bob) = net.open_pair();
        let region = bob.open_region(LEN_BYTES, kind, 1);
        write_over_link_first(&alice, &region);
        for round in 0..3 {
            let content = payload(round, LEN_BYTES);
            region.write_at(0, &content);
            post_access(RmaBy::Read, &alice, &region, 2, 0, LEN_BYTES);
            let fenced = FlushCall { flags: Some(OpFlags::FENCE), ..flush_call(&alice, &region, 3, 0, 8) };
            alice.endpoint.flush(fenced).unwrap();
            let read = alice.next_completion();
            assert_eq!((read.context, &received_bytes(&read.buffer)[..]), (2, &content[..]));
            assert_eq!(alice.next_completion().context, 3);
        }
    }
}

/// The flushes are so long that the target carries them out in several parts.
#[over(all)]
fn operations_after_a_long_persistent_flush_end_after_it(net: &Net) {
    const LONG_BYTES: usize = 2 * FLUSH_PASS_MAX_BYTES + LEN_BYTES;
    for is_raw in [false, true] {
        let (alice, bob) = net.open_pair();
        let (long, file) = register_file_region(&bob, LONG_BYTES, is_raw, 1);
        let mapped = bob.open_region(LEN_BYTES, MemoryKind::Shareable, 2);
        write_over_link_first(&alice, &mapped);
        for round in (2..10).step_by(4) {
            alice.access(make_access(RmaBy::Write, &alice, &long, round, 0, LONG_BYTES));
            let flush = make_persistent(flush_call(&alice, &long, round + 1, 0, LONG_BYTES));
            alice.endpoint.flush(flush).unwrap();
            post_access(RmaBy::Write, &alice, &mapped, round + 2, 0, 64);
            post_access(RmaBy::Read, &alice, &long, round + 3, 0, 64);
            assert_eq!(alice.next_completion().context, round + 1, "{is_raw}");
            file.assert_written_back_or_skip(bob.process_id());
            alice.expect_each([round + 2, round + 3]);
            assert!(file.read_content() == payload(round, LONG_BYTES));
            assert!(mapped.content()[..64] == payload(round + 2, 64));
        }
    }
}

#[over(all)]
fn flush_with_commit_flags_follows_its_kind(net: &Net) {
    // The default flags concern writes.
    let setup = Setup { tx_op_flags: OpFlags::COMMIT_COMPLETE, ..Setup::default() };
    let (alice, bob) = net.open_pair_with(setup, Setup::default());
    let region = bob.open_region(LEN_BYTES, MemoryKind::Owned, 1);
    post_and_expect_success(&alice, flush_call(&alice, &region, 1, 0, 8));
    let flags = Some(OpFlags::INJECT | OpFlags::REMOTE_CQ_DATA);
    let call = FlushCall { flags, ..flush_call(&alice, &region, 2, 0, 8) };
    post_and_expect_success(&alice, call);
    let flags = flags.map(|flags| flags | OpFlags::COMMIT_COMPLETE);
    expect_error(alice.endpoint.flush(FlushCall { flags, ..call }), Errno::EBADFLAGS);
}

#[over(all)]
fn flush_without_the_capability_takes_effect_unless_persistent(net: &Net) {
    let (alice, bob) = net.open_pair_with(Setup { caps: Caps::MSG, ..Setup::default() }, Setup::default());
    let region = bob.open_region(LEN_BYTES, MemoryKind::Owned, 1);
    alice.endpoint.flush(flush_call(&alice, &region, 1, 0, 8)).unwrap();
    assert_eq!(alice.next_completion().context, 1);
    let refused = alice.endpoint.flush(make_persistent(flush_call(&alice, &region, 2, 0, 8))).unwrap_err();
    assert_eq!(refused.errno(), Errno::EOPNOTSUPP);
}
