//! Message order: `msg_order` of `fi_endpoint(3)`. Messages of one sender match in the order of sending.
//! Other pairs of reads, writes and sends keep their order if both endpoints have agreed on it.

use super::atomics::make_add_call;
use super::prelude::*;

/// The length of an access for which the target needs several passes, in every protocol.
const LONG_BYTES: usize = PULL_STEP_MAX_BYTES + 100_000;

/// The offset of the last bytes of a long access.
const END: usize = LONG_BYTES - 100;

/// Shows fi_msg/receives-match-in-posting-order, fi_tagged/tags-are-checked-in-order.
#[over(all)]
fn earliest_matching_receive_takes_a_message(net: &Net) {
    let (alice, bob) = net.open_pair();
    // Post more receives than a linear search handles.
    let others = 40;
    let post =
        |tagged: TagMatch, context| bob.endpoint.trecv(marked_buffer(8), ANY, tagged, context).unwrap();
    (0..others).for_each(|context| post(Tag(100 + context).into(), context));
    post(Tag(7).into(), 1000);
    post(TagMatch::ANY, 1001);
    post(Tag(7).into(), 1002);
    for (tag, context) in [(7, 1000), (7, 1001), (7, 1002), (139, 39), (100, 0), (120, 20)] {
        alice.post_tagged(tag, 8, OpFlags::empty());
        let completion = bob.next_completion();
        assert_eq!((completion.tag.0, completion.context), (tag, context));
        alice.next_completion();
    }
    // In the other direction, a receive takes the earliest message that it accepts, out of many.
    (0..others).for_each(|tag| alice.deliver_tagged(1000 + tag, tag, 8));
    post(Tag(1039).into(), 1);
    post(Tag(1001).ignoring(0x3e), 2);
    post(Tag(1000).ignoring(0xff), 3);
    let mut taken: Vec<(u64, u64)> =
        (0..3).map(|_| bob.next_completion()).map(|entry| (entry.context, entry.tag.0)).collect();
    if !bob.is_homespun() {
        // Receives of another provider may complete in any order.
        taken.sort_unstable();
    }
    // 1001 is 0b1111101001. If the bits of 0x3e are ignored, it matches every odd number from 961 to 1023.
    assert_eq!(taken, [(1, 1039), (2, 1001), (3, 1000)]);
}

/// Shows fi_tagged/tagged-sends-meet-tagged-receives.
#[over(all)]
fn tagged_and_untagged_messages_match_separately(net: &Net) {
    let (alice, bob) = net.open_pair();
    bob.endpoint.trecv(marked_buffer(8), ANY, TagMatch::ANY, 1).unwrap();
    alice.send_unexpected(alice.message(5, 8, OpFlags::empty()));
    bob.assert_no_completion();
    bob.receive(2, 8);
    if !alice.is_homespun() {
        alice.next_completion();
    }
    bob.endpoint.recv(marked_buffer(8), ANY, 3).unwrap();
    alice.deliver_tagged(0, 6, 8);
    assert_eq!(bob.next_completion().context, 1);
    bob.assert_no_completion();
}

/// Shows fi_cq/tag-field, fi_endpoint/tag-format, fi_tagged/tag-matches-without-ignored-bits.
#[over(all)]
fn tags_are_matched_bit_by_bit(net: &Net) {
    let (alice, bob) = net.open_pair();
    for (tag, ignore, context) in [(0xff00, 0x00ff, 1), (1 << 63, 0, 2), (0, !(1 << 40), 3)] {
        bob.endpoint.trecv(marked_buffer(8), ANY, Tag(tag).ignoring(ignore), context).unwrap();
    }
    for (tag, context) in [(u64::MAX - (1 << 40), 3), (0xff37, 1), (1 << 63, 2)] {
        alice.post_tagged(tag, 8, OpFlags::empty());
        let completion = bob.next_completion();
        assert_eq!((completion.context, completion.tag.0), (context, tag));
        alice.next_completion();
    }
    // A tag that differs in a bit that is not ignored does not match.
    for (tag, ignore, other, same) in [(0b1000, 0b0111, 0b11000, 0b1101), (1 << 63, 0, 0, 1 << 63)] {
        bob.endpoint.trecv(marked_buffer(8), ANY, Tag(tag).ignoring(ignore), 4).unwrap();
        alice.deliver_tagged(other, 1, 8);
        bob.assert_no_completion();
        alice.deliver_tagged(same, 2, 8);
        assert_eq!(bob.next_completion().tag, same);
    }
}

/// Opens two parties with these message orders, and a long region of the second.
fn open_pair_with_order(net: &Net, order: Order, kind: MemoryKind) -> (Party, Party, Region) {
    let (alice, bob) = net.open_equal_pair(Setup { order, ..Setup::default() });
    let region = bob.open_region(LONG_BYTES, kind, 7);
    (alice, bob, region)
}

/// Waits until this many operations have completed. Returns the results of the reads with these contexts.
fn await_read_results(party: &Party, contexts: &[u64], ended: usize) -> Vec<Vec<u8>> {
    let completions: Vec<_> = (0..ended).map(|_| party.next_completion()).collect();
    let content = |context: &u64| {
        let found = completions.iter().find(|completion| completion.context == *context);
        received_bytes(&found.expect("the read has ended").buffer)
    };
    contexts.iter().map(content).collect()
}

/// Writes to the beginning of the region. The identity is also the context.
fn post_write_with_flags(party: &Party, region: &Region, identity: u64, len_bytes: usize, flags: OpFlags) {
    let call = make_access(RmaBy::Writemsg, party, region, identity, 0, len_bytes);
    party.endpoint.rma(RmaCall { flags, ..call }).unwrap();
}

/// When a message arrives, earlier writes have reached the region. The two may complete in any order.
/// Shows fi_cq/order-tells-of-earlier, fi_atomic/later-message-tells-of-atomic.
#[over(all)]
fn message_arrives_after_earlier_writes_at_every_level(net: &Net) {
    // A peer may map shareable memory after its first write by frames.
    for kind in [MemoryKind::Raw, MemoryKind::Shareable] {
        let (alice, bob, region) = open_pair_with_order(net, Order::SAW, kind);
        let mut identity = 0;
        for of_write in LEVELS {
            for of_send in LEVELS {
                for len_bytes in [8, 20_000, LONG_BYTES] {
                    identity += 1;
                    bob.endpoint.recv(marked_buffer(8), ANY, 0).unwrap();
                    post_write_with_flags(&alice, &region, identity, len_bytes, of_write);
                    alice.post_send(999, 8, of_send);
                    bob.next_completion();
                    let place = len_bytes - len_bytes.min(100);
                    let end = region.read_at(place, len_bytes - place);
                    let expected = &payload(identity, len_bytes)[place..];
                    assert!(end == expected, "{len_bytes} bytes, {of_write:?}, {of_send:?}");
                    alice.await_completions(2);
                }
            }
        }
    }
}

/// Without an order, the initiator waits until the write is delivered.
/// Shows fi_cq/delivery-replaces-order.
#[over(all)]
fn message_arrives_after_delivered_writes_without_an_order(net: &Net) {
    let (alice, bob, region) = open_pair_with_order(net, Order::empty(), MemoryKind::Raw);
    for (identity, len_bytes) in (1..).zip([8, 20_000, LONG_BYTES]) {
        bob.endpoint.recv(marked_buffer(8), ANY, 0).unwrap();
        post_write_with_flags(&alice, &region, identity, len_bytes, OpFlags::DELIVERY_COMPLETE);
        assert_eq!(alice.next_completion().context, identity);
        alice.post_send(999, 8, OpFlags::INJECT_COMPLETE);
        bob.next_completion();
        assert!(region.read_at(0, len_bytes) == payload(identity, len_bytes), "{len_bytes} bytes");
        assert_eq!(alice.next_completion().context, 999);
    }
}

/// Shows fi_endpoint/data-order.
#[over(all)]
fn read_does_not_overtake_a_write(net: &Net) {
    for order in [Order::RAW, Order::RMA_RAW] {
        let (alice, _bob, region) = open_pair_with_order(net, order, MemoryKind::Raw);
        for (identity, len_bytes) in (1..).zip([8, 20_000, LONG_BYTES, LONG_BYTES]) {
            let place = len_bytes - len_bytes.min(100);
            post_access(RmaBy::Write, &alice, &region, identity, 0, len_bytes);
            post_access(RmaBy::Read, &alice, &region, 99, place, len_bytes - place);
            let read = await_read_results(&alice, &[99], 2);
            assert!(read[0] == payload(identity, len_bytes)[place..], "{len_bytes} bytes, {order:?}");
        }
    }
}

/// Shows fi_endpoint/data-order.
#[over(all)]
fn write_does_not_overtake_a_write(net: &Net) {
    for order in [Order::WAW, Order::RMA_WAW] {
        let (alice, _bob, region) = open_pair_with_order(net, order, MemoryKind::Raw);
        for (identity, second_bytes) in (1..).zip([100, 20_000, LONG_BYTES]) {
            post_access(RmaBy::Write, &alice, &region, identity, 0, LONG_BYTES);
            let place = LONG_BYTES - second_bytes;
            let second = make_access(RmaBy::Writemsg, &alice, &region, 99, place, second_bytes);
            // At the default level of another provider, a completed write may not be visible yet.
            let flags = if alice.is_homespun() { OpFlags::empty() } else { OpFlags::DELIVERY_COMPLETE };
            alice.endpoint.rma(RmaCall { flags, ..second }).unwrap();
            alice.await_completions(2);
            assert!(region.read_at(END, 100) == payload(99, second_bytes)[second_bytes - 100..]);
            let first = if second_bytes == LONG_BYTES { 99 } else { identity };
            assert!(region.read_at(0, 8) == payload(first, 8));
        }
    }
}

/// Shows fi_endpoint/data-order.
#[over(all)]
fn write_does_not_overtake_a_read(net: &Net) {
    for order in [Order::WAR, Order::RMA_WAR] {
        let (alice, _bob, region) = open_pair_with_order(net, order, MemoryKind::Raw);
        let lens_bytes = [8, READ_COPIED_MAX_BYTES, READ_COPIED_MAX_BYTES + 1, LONG_BYTES];
        // Another provider may order short accesses alone (`max_order_war_size` of `fi_endpoint(3)`).
        let count = if alice.is_homespun() { lens_bytes.len() } else { 1 };
        for (identity, len_bytes) in (1..).zip(lens_bytes).take(count) {
            let before = payload(identity, LONG_BYTES);
            region.write_at(0, &before[..len_bytes]);
            region.write_at(END, &before[END..]);
            // A short message after the second read waits, too.
            post_access(RmaBy::Read, &alice, &region, 50, 0, len_bytes);
            post_access(RmaBy::Read, &alice, &region, 51, END, 100);
            post_access(RmaBy::Write, &alice, &region, 99, 0, len_bytes.min(40_000));
            post_access(RmaBy::Write, &alice, &region, 98, END, 100);
            let read = await_read_results(&alice, &[50, 51], 4);
            assert!(read[0] == before[..len_bytes], "{len_bytes} bytes, {order:?}");
            assert!(read[1] == before[END..], "behind {len_bytes} bytes, {order:?}");
            if alice.is_homespun() {
                assert!(region.read_at(END, 100) == payload(98, 100), "a completed write is visible");
            }
        }
    }
}

#[over(all)]
fn message_does_not_overtake_a_read(net: &Net) {
    let (alice, bob, region) = open_pair_with_order(net, Order::SAR, MemoryKind::Raw);
    // One long read, then more short reads than a link takes at once.
    for (identity, count, len_bytes) in [(1, 1, LONG_BYTES), (3, 700, READ_COPIED_MAX_BYTES)] {
        let place = LONG_BYTES - len_bytes;
        let before = payload(identity, len_bytes);
        region.write_at(place, &before);
        bob.post_receives([0], 8);
        let reads: Vec<u64> = (1000..).take(count).collect();
        for &context in &reads {
            post_access(RmaBy::Read, &alice, &region, context, place, len_bytes);
        }
        alice.endpoint.send(payload(9, 8), alice.peer(), 99).unwrap();
        bob.next_completion();
        region.write_at(place, &payload(identity + 1, len_bytes));
        for content in await_read_results(&alice, &reads, count + 1) {
            assert!(content == before, "what the target did when it had the message was read");
        }
    }
}

#[over(all)]
fn fetch_does_not_overtake_a_read(net: &Net) {
    const LAST: usize = LONG_BYTES - 8;
    let (alice, _bob, region) = open_pair_with_order(net, Order::RAR, MemoryKind::Raw);
    let lens_bytes = [8, READ_COPIED_MAX_BYTES, READ_COPIED_MAX_BYTES + 1, LONG_BYTES];
    for (number, len_bytes) in (1_u64..).zip(lens_bytes) {
        region.write_at(LAST, &number.to_le_bytes());
        // A short fetch after the long reads waits, too.
        post_access(RmaBy::Read, &alice, &region, 50, LONG_BYTES - len_bytes, len_bytes);
        post_access(RmaBy::Read, &alice, &region, 51, LAST, 8);
        let fetch = make_add_call(AtomicKind::Fetch, &alice, &region, 100, 52);
        alice.endpoint.atomic(fetch.at_address(region.address_at(LAST))).unwrap();
        for found in await_read_results(&alice, &[50, 51, 52], 3) {
            assert_eq!(found[found.len() - 8..], number.to_le_bytes(), "{len_bytes} bytes");
        }
        assert_eq!(region.read_at(LAST, 8), (number + 100).to_le_bytes());
    }
}

#[over(all)]
fn access_does_not_overtake_messages(net: &Net) {
    // The number of messages. The target's budget for unexpected messages has no room for all of them.
    const COUNT: u64 = 100;
    let order = Order::RAS | Order::WAS;
    for kind in net.memory_kinds() {
        let target = Setup { order, unexpected_bytes: UNEXPECTED_BUDGET_MIN_BYTES, ..Setup::default() };
        let (alice, bob) = net.open_pair_with(Setup { order, ..Setup::default() }, target);
        let region = bob.open_region(8, kind, 7);
        (0..COUNT).for_each(|context| alice.post_send(context, 8, OpFlags::empty()));
        post_access(RmaBy::Read, &alice, &region, 1000, 0, 8);
        post_access(RmaBy::Write, &alice, &region, 1001, 0, 8);
        let mut contexts = Vec::new();
        for _ in 0..100 {
            alice.progress_all();
            contexts.extend(alice.poll_completion().map(|ended| ended.expect("nothing fails").0.context));
        }
        assert!(region.content() == marked_buffer(8));
        for context in 0..COUNT {
            bob.receive_message(context, 8, &payload(context, 8));
        }
        contexts.resize_with(COUNT as usize + 2, || alice.next_completion().context);
        let accesses = contexts.split_off(COUNT as usize);
        assert_eq!(contexts, (0..COUNT).collect::<Vec<_>>());
        assert!(accesses == [1000, 1001] || accesses == [1001, 1000], "{accesses:?}");
    }
}

#[over(driven)]
fn access_to_a_mapped_region_does_not_overtake_messages(net: &Net) {
    let order = Order::RAS | Order::WAS;
    let asleep = Setup { order, asleep: true, ..Setup::default() };
    let (alice, bob) = net.open_pair_with(Setup { order, ..Setup::default() }, asleep);
    let region = bob.open_region(8, MemoryKind::Shareable, 7);
    // Bob makes progress only when he polls. He has no completions.
    let together = || {
        assert!(bob.poll_completion().is_none());
        alice.poll_completion().map(|ended| ended.expect("nothing fails").0)
    };
    post_access(RmaBy::Write, &alice, &region, 1, 0, 8);
    poll_until("the first access, after which the memory is mapped", together);
    for _ in 0..10 {
        together();
    }
    alice.send(2, payload(2, 8));
    post_access(RmaBy::Write, &alice, &region, 3, 0, 8);
    alice.assert_no_completion();
    assert!(region.content() == payload(1, 8));
    net.start_driving(&bob);
    assert_eq!(alice.next_completion().context, 3);
    assert!(region.content() == payload(3, 8));
    bob.receive_message(0, 8, &payload(2, 8));
}

#[over(all)]
fn read_does_not_overtake_a_read(net: &Net) {
    let (alice, _bob, region) = open_pair_with_order(net, Order::RAR, MemoryKind::Raw);
    let mut version: u64 = 0;
    region.write_at(END, &version.to_le_bytes());
    for _ in 0..3 {
        post_access(RmaBy::Read, &alice, &region, 50, 0, LONG_BYTES);
        post_access(RmaBy::Read, &alice, &region, 51, END, 8);
        let mut ended = Vec::new();
        let deadline = Deadline::new();
        while ended.len() < 2 {
            version += 1;
            region.write_at(END, &version.to_le_bytes());
            alice.progress_all();
            ended.extend(alice.poll_completion().map(|ended| ended.expect("no read fails").0));
            deadline.yield_or_panic("two reads");
        }
        ended.sort_by_key(|completion| completion.context);
        let version_at = |n: usize, place: usize| {
            u64::from_le_bytes(received_bytes(&ended[n].buffer)[place..place + 8].try_into().unwrap())
        };
        let [first, second] = [version_at(0, END), version_at(1, 0)];
        assert!(first <= second, "version {first} was read first, and then {second}");
    }
}
