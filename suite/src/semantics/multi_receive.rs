//! Buffers that take many messages: `FI_MULTI_RECV` of `fi_msg(3)`.

use super::prelude::*;

const RECEIVED: CompletionFlags = CompletionFlags::RECV.union(CompletionFlags::MSG);
const RELEASED: CompletionFlags = CompletionFlags::MULTI_RECV;

/// The context of most buffers here.
const BUFFER: u64 = 100;

/// Lengths of messages that use every protocol.
const LENS_BYTES: [usize; 10] = [8, 0, 1000, 40_000, 31, 300_000, 8, 9, 70_000, 100];

fn post_raw_multi_receive(party: &Party, len_bytes: usize, context: u64) -> ReceiveBuffer {
    let post = Post { peer: ANY, context, flags: Some(OpFlags::MULTI_RECV), ..Post::default() };
    party.endpoint.receive_into_raw_memory(&[len_bytes], 0, post).unwrap()
}

/// Sends a message with this number to a peer.
fn send_with_progress(from: &Party, to: FabricAddress, number: u64, len_bytes: usize) {
    let deadline = Deadline::new();
    while let Err(error) = from.endpoint.send(payload(number, len_bytes), to, number) {
        assert_eq!(error.errno(), Errno::EAGAIN);
        from.progress_all();
        deadline.yield_or_panic("room for a send");
    }
}

/// Returns the place of a message in a raw buffer.
#[track_caller]
fn expect_message_place(completion: &Completion) -> SegmentMut {
    let Buffer::Within(place) = completion.buffer else { panic!("no place: {completion:?}") };
    place
}

/// Returns the length of the unused rest of a released buffer.
#[track_caller]
fn expect_unused_len(completion: &Completion) -> usize {
    assert!(completion.flags.contains(RELEASED));
    match &completion.buffer {
        Buffer::Unused(unused) => unused.len(),
        Buffer::ReceivedLast(last) => last.unused.len(),
        other => panic!("not a release: {other:?}"),
    }
}

/// Cancels a buffer, which the error releases. `fi_endpoint(3)` does not say that the error has the flag of a
/// release. Checks what comes back.
#[track_caller]
fn cancel_buffer(party: &Party, context: u64, buffer: &Buffer) {
    party.endpoint.cancel(context).unwrap();
    let failed = party.expect_failure(context, Errno::ECANCELED);
    let optional = if party.is_homespun() { CompletionFlags::empty() } else { RELEASED };
    assert_eq!(failed.completion.flags | optional, RECEIVED | RELEASED);
    assert!(failed.completion.buffer == *buffer);
}

/// Checks that the last entry of a buffer releases the buffer. Another provider may write a separate entry
/// for the release.
#[track_caller]
fn expect_release(party: &Party, last: CompletionFlags) {
    if party.is_homespun() || last.contains(RELEASED) {
        assert!(last.contains(RELEASED), "{last:?}");
    } else {
        assert_eq!(party.next_completion().flags, RELEASED);
    }
}

/// Shows fi_cq/buf-field, fi_cq/multi-recv-with-message, fi_msg/multi-recv-packs-messages,
/// fi_msg/multi-recv-completes-per-message.
#[over(all)]
fn messages_fill_a_buffer_in_send_order(net: &Net) {
    let (alice, bob) = net.open_pair();
    let len_bytes = 1 << 20;
    let buffer = post_raw_multi_receive(&bob, len_bytes, BUFFER);
    // With another provider, an empty message need not have a place.
    let lens_bytes = LENS_BYTES.map(|len| if bob.is_homespun() { len } else { len.max(1) });
    for (number, len_bytes) in (0..).zip(lens_bytes) {
        let post = Post { peer: alice.peer(), data: Some(number), context: number, ..Post::default() };
        alice.endpoint.send_from_raw_memory(&[payload(number, len_bytes)], post).unwrap();
    }
    let mut places = BTreeMap::new();
    for _ in LENS_BYTES {
        let (completion, source) = bob.next_completion_with_source();
        let (number, place) = (completion.data, expect_message_place(&completion));
        let len_bytes = lens_bytes[number as usize];
        assert!(buffer.message_at(place) == payload(number, len_bytes), "message {number}");
        assert_eq!((completion.context, completion.len_bytes, source), (BUFFER, len_bytes, bob.peer()));
        let flags = RECEIVED | CompletionFlags::REMOTE_CQ_DATA;
        assert_eq!((completion.flags, completion.tag.0), (flags, 0));
        assert!(places.insert(number, place).is_none(), "message {number} came twice");
    }
    let start = places[&0].address.addr();
    let mut end = start;
    for place in places.values() {
        let address = place.address.addr();
        if bob.is_homespun() {
            assert_eq!(address, end.next_multiple_of(MULTI_RECV_ALIGN_BYTES));
        }
        assert!(address >= end, "no byte is used twice");
        end = address + place.len_bytes;
    }
    cancel_buffer(&bob, BUFFER, &Buffer::None);
    buffer.into_filled_bytes(BUFFER, end - start);
    bob.assert_no_completion();
}

/// Shows fi_cq/multi-recv-with-or-without-message, fi_cq/multi-recv-without-message.
#[over(all, own)]
fn message_that_does_not_fit_goes_to_the_next_receive(net: &Net) {
    let (alice, bob) = net.open_pair();
    bob.endpoint.set_min_multi_recv_bytes(8);
    bob.endpoint.recv_multi(marked_buffer(100), ANY, 1).unwrap();
    bob.endpoint.recv(marked_buffer(100), ANY, 2).unwrap();
    bob.endpoint.recv_multi(marked_buffer(1000), ANY, 3).unwrap();
    (0..).zip([50, 60, 70]).for_each(|(number, len_bytes)| alice.deliver(number, len_bytes));
    let first = bob.next_completion();
    assert_eq!((first.context, first.flags, first.data), (1, RECEIVED, 0));
    let release = bob.next_completion();
    assert_eq!((release.context, release.flags, release.len_bytes), (1, RELEASED, 0));
    assert_eq!((release.data, expect_unused_len(&release)), (0, 50));
    let (second, third) = (bob.next_completion(), bob.next_completion());
    assert_eq!((second.context, third.context), (2, 3));
    assert_eq!(received_bytes(&second.buffer), payload(1, 60));
    assert_eq!(received_bytes(&third.buffer), payload(2, 70));
    // The last message fits into no receive, and waits.
    alice.deliver(4, 950);
    assert_eq!(bob.next_completion().flags, RELEASED);
    bob.assert_no_completion();
    bob.receive_message(4, 950, &payload(4, 950));
}

#[over(all)]
fn message_longer_than_an_empty_buffer_is_truncated(net: &Net) {
    let (alice, bob) = net.open_pair();
    for (number, len_bytes) in (0..).zip([200, 100_000]) {
        let buffer = post_raw_multi_receive(&bob, 150, number);
        send_with_progress(&alice, alice.peer(), number, len_bytes);
        let failed = bob.expect_failure(number, Errno::ETRUNC);
        assert_eq!(failed.overflow_bytes(), len_bytes as u64 - 150);
        if bob.is_homespun() {
            assert_eq!(failed.completion.flags, RECEIVED);
            let placed = buffer.message_at(expect_message_place(&failed.completion));
            assert_eq!(placed, payload(number, len_bytes)[..150]);
            let release = bob.next_completion();
            assert_eq!((release.context, release.flags, release.buffer), (number, RELEASED, Buffer::None));
        } else {
            assert!(failed.completion.flags.contains(RECEIVED));
            expect_release(&bob, failed.completion.flags);
            assert_eq!(buffer.into_filled_bytes(number, 150), payload(number, len_bytes)[..150]);
        }
        assert_eq!(alice.next_completion().context, number);
    }
    alice.deliver(5, 10);
    bob.assert_no_completion();
}

/// Shows fi_endpoint/min-multi-recv, fi_msg/multi-recv-released-below-minimum.
#[over(all, own)]
fn buffer_keeps_the_minimum_set_when_posted(net: &Net) {
    let (alice, bob) = net.open_pair();
    assert_eq!(bob.endpoint.min_multi_recv_bytes(), MIN_MULTI_RECV_DEFAULT_BYTES);
    for (context, min_bytes) in [(1, 60), (2, 0), (3, usize::MAX)] {
        bob.endpoint.set_min_multi_recv_bytes(min_bytes);
        assert_eq!(bob.endpoint.min_multi_recv_bytes(), min_bytes);
        bob.endpoint.recv_multi(marked_buffer(128), ANY, context).unwrap();
    }
    (0..).zip([64, 8, 120, 8, 8]).for_each(|(number, len_bytes)| alice.deliver(number, len_bytes));
    let told = [(); 6].map(|()| {
        let completion = bob.next_completion();
        (completion.context, completion.flags.contains(RELEASED), completion.len_bytes)
    });
    let expected = [
        // 56 bytes of the buffer are left after the second message.
        (1, false, 64),
        (1, true, 8),
        // No byte is left. The minimum is 0, and 0 is not less than 0.
        (2, false, 120),
        (2, false, 8),
        (2, true, 0),
        (3, true, 8),
    ];
    assert_eq!(told, expected);
}

/// Shows fi_cq/format-data, fi_cq/buf-field, fi_cq/multi-recv-with-or-without-message,
/// fi_cq/multi-recv-with-message, fi_cq/fields-mean-the-same.
#[over(all)]
fn completion_gives_the_message_offset_if_the_format_has_it(net: &Net) {
    use CqFormat::{Context, Data, Msg, Tagged};
    for format in [Context, Msg, Data, Tagged] {
        let (alice, bob) =
            net.open_pair_with(Setup::default(), Setup { cq_format: Some(format), ..Setup::default() });
        bob.endpoint.set_min_multi_recv_bytes(30);
        let buffer = post_raw_multi_receive(&bob, 100, BUFFER);
        let told = |number| {
            let post = Post { peer: alice.peer(), data: Some(7), context: number, ..Post::default() };
            alice.endpoint.send_from_raw_memory(&[payload(number, 40)], post).unwrap();
            let completion = bob.next_completion();
            assert_eq!(completion.context, BUFFER);
            completion
        };
        let (first, last) = (told(1), told(2));
        let flags = RECEIVED | CompletionFlags::REMOTE_CQ_DATA;
        let flags = if format == Context { CompletionFlags::empty() } else { flags };
        let released = if format == Context { CompletionFlags::empty() } else { last.flags & RELEASED };
        assert_eq!([first.flags, last.flags], [flags, flags | released]);
        if format != Context {
            expect_release(&bob, last.flags);
        }
        if matches!(format, Data | Tagged) {
            for (identity, told) in [(1, &first), (2, &last)] {
                assert_eq!(told.data, 7);
                assert_eq!(buffer.message_at(expect_message_place(told)), payload(identity, 40));
            }
        } else {
            assert_eq!((first.buffer, last.buffer), (Buffer::None, Buffer::None));
        }
        assert_eq!(buffer.into_filled_bytes(BUFFER, 80)[..40], payload(1, 40));
    }
}

/// Shows fi_cq/flag-multi-recv, fi_cq/multi-recv-without-message, fi_msg/multi-recv-release-is-reported,
/// fi_cq-1.4/context-of-all-completions.
#[over(all)]
fn selective_completion_reports_only_the_release_of_a_buffer(net: &Net) {
    let (alice, bob) = net.open_equal_pair(Setup::selective());
    bob.endpoint.set_min_multi_recv_bytes(30);
    bob.endpoint.recv_multi(marked_buffer(100), ANY, 1).unwrap();
    bob.post_receive(2, 100, None, OpFlags::MULTI_RECV | OpFlags::COMPLETION);
    bob.endpoint.recv_multi(marked_buffer(100), ANY, 3).unwrap();
    (0..5).for_each(|number| alice.deliver(number, 40));
    let told: Vec<_> = (0..3).map(|_| bob.next_completion()).collect();
    assert_eq!(told[0].context, 1);
    // Another provider may report the last message together with the release.
    assert!(told[0].flags.contains(RELEASED));
    if bob.is_homespun() {
        assert_eq!(told[0].flags, RELEASED);
    }
    if bob.is_native() {
        assert_eq!(expect_unused_len(&told[0]), 20);
    }
    assert_eq!((told[1].context, told[1].flags), (2, RECEIVED));
    assert_eq!(received_bytes(&told[1].buffer), payload(2, 40));
    assert_eq!((told[2].context, told[2].flags | RELEASED), (2, RECEIVED | RELEASED));
    assert_eq!(received_bytes(&told[2].buffer), payload(3, 40));
    expect_release(&bob, told[2].flags);
    bob.assert_no_completion();
    bob.endpoint.cancel(3).unwrap();
    let failed = bob.next_failure();
    // Behind the C interface, no entry has told how much of the buffer the fifth has taken.
    if bob.is_native() {
        assert_eq!(failed.completion.buffer, Buffer::Unused(marked_buffer(60)), "it has taken the fifth");
    }
}

#[over(all)]
fn cancelled_buffer_is_released_with_an_error(net: &Net) {
    let (alice, bob) = net.open_pair();
    // The rest of the buffer exceeds the default minimum of every provider.
    let len_bytes = 100_000;
    bob.endpoint.recv_multi(marked_buffer(len_bytes), ANY, 1).unwrap();
    let raw = post_raw_multi_receive(&bob, len_bytes, 2);
    alice.deliver(0, 16);
    assert_eq!(received_bytes(&bob.next_completion().buffer), payload(0, 16));
    cancel_buffer(&bob, 1, &Buffer::Unused(marked_buffer(len_bytes - 16)));
    if bob.is_homespun() {
        assert_eq!(bob.endpoint.cancel(1).unwrap_err().errno(), Errno::ENOENT);
    }
    alice.deliver(1, 16);
    let completion = bob.next_completion();
    assert_eq!(completion.context, 2);
    assert_eq!(raw.message_at(expect_message_place(&completion)), payload(1, 16));
    cancel_buffer(&bob, 2, &Buffer::None);
    bob.assert_no_completion();
    raw.into_filled_bytes(2, 16);
}

#[over(all, own)]
fn buffer_takes_no_message_while_the_queue_is_full(net: &Net) {
    let (alice, bob) =
        net.open_pair_with(Setup::default(), Setup { cq_depth_entries: 3, ..Setup::default() });
    bob.endpoint.set_min_multi_recv_bytes(0);
    bob.endpoint.recv_multi(marked_buffer(20 * 24), ANY, 1).unwrap();
    let lens_bytes = |number: u64| if number.is_multiple_of(2) { 24 } else { 0 };
    (0..60).for_each(|number| alice.deliver(number, lens_bytes(number)));
    // The multi-receive buffer may still take any of the messages, so a peek cannot tell which will remain.
    let peek = RecvMsg { flags: OpFlags::PEEK, ..RecvMsg::default() };
    expect_error(bob.endpoint.recvmsg(peek), Errno::EAGAIN);
    // The later receives must match no message until the buffer is full. The buffer is full after 20
    // messages of 24 bytes. The last of these is the 40th message in all.
    bob.endpoint.recv(marked_buffer(24), ANY, 2).unwrap();
    bob.endpoint.recv_multi(marked_buffer(1000), ANY, 3).unwrap();
    let (mut told, mut is_released) = (0, false);
    while told < 60 || !is_released {
        let completion = bob.next_completion();
        if completion.flags == RELEASED {
            assert_eq!((completion.context, told, is_released), (1, 40, false));
            is_released = true;
            continue;
        }
        let context = if told < 40 { 1 } else { 2 + u64::from(told > 40) };
        assert_eq!(completion.context, context, "{told}");
        assert_eq!(received_bytes(&completion.buffer), payload(told, lens_bytes(told)), "{told}");
        told += 1;
    }
    bob.assert_no_completion();
}

#[over(all)]
fn buffer_is_not_written_after_its_endpoint_closes(net: &Net) {
    let (alice, bob) = net.open_pair();
    let buffer = post_raw_multi_receive(&bob, 1 << 20, BUFFER);
    alice.deliver(0, 100);
    assert_eq!(buffer.message_at(expect_message_place(&bob.next_completion())), payload(0, 100));
    for (number, len_bytes) in (1..).zip([100, 200_000, 300_000]) {
        send_with_progress(&alice, alice.peer(), number, len_bytes);
    }
    let Party { endpoint, cq, .. } = bob;
    drop(endpoint);
    let at_the_end = buffer.memory_after_close();
    for _ in 0..20 {
        alice.progress_all();
        cq.progress();
    }
    assert!(buffer.memory_after_close() == at_the_end);
}

/// Shows fi_cq/match-means-matched.
#[over(all)]
fn match_level_completes_when_a_buffer_takes_the_message(net: &Net) {
    let (alice, bob) = net.open_pair();
    for (number, len_bytes) in (0..).zip([10, 100_000]) {
        alice.post_send(number, len_bytes, OpFlags::MATCH_COMPLETE);
    }
    alice.assert_no_completion();
    bob.endpoint.recv_multi(marked_buffer(200_000), ANY, BUFFER).unwrap();
    alice.expect_in_order([0, 1]);
    assert_eq!(received_bytes(&bob.next_completion().buffer), payload(0, 10));
    assert!(received_bytes(&bob.next_completion().buffer) == payload(1, 100_000));
}

#[over(all)]
fn buffer_takes_messages_to_own_endpoint(net: &Net) {
    let alice = net.open_party();
    let own = alice.insert_address_of(&alice);
    alice.endpoint.recv_multi(marked_buffer(1 << 20), ANY, BUFFER).unwrap();
    (0..).zip(LENS_BYTES).for_each(|(number, len_bytes)| send_with_progress(&alice, own, number, len_bytes));
    let (sent, taken) = alice.next_completions_of_sends_and_others(2 * LENS_BYTES.len());
    assert_eq!(sent.len(), LENS_BYTES.len());
    let messages: BTreeSet<_> = taken.iter().map(|completion| received_bytes(&completion.buffer)).collect();
    let expected = (0..).zip(LENS_BYTES).map(|(number, len_bytes)| payload(number, len_bytes).to_vec());
    assert!(messages == expected.collect::<BTreeSet<_>>(), "each message arrives, whole");
}

/// Shows fi_endpoint/default-flags.
#[over(all, own)]
fn default_flag_makes_receives_multi_receive(net: &Net) {
    let (alice, bob) = net.open_pair();
    bob.endpoint.set_rx_op_flags(OpFlags::MULTI_RECV).unwrap();
    bob.endpoint.recv(marked_buffer(100), ANY, 1).unwrap();
    let post = Post { peer: ANY, context: 2, ..Post::default() };
    let raw = bob.endpoint.receive_into_raw_memory(&[100], 0, post).unwrap();
    let pieces = vec![marked_buffer(10), marked_buffer(10)];
    expect_error(bob.endpoint.recvv(pieces.clone(), ANY, 3), Errno::EINVAL);
    for buffers in [vec![marked_buffer(8); 3], vec![]] {
        let receive = RecvMsg { buffers, flags: OpFlags::MULTI_RECV, ..RecvMsg::default() };
        expect_error(bob.endpoint.recvmsg(receive), Errno::EINVAL);
    }
    // Receives with explicit flags or a tag are ordinary ones.
    bob.endpoint.recvmsg(RecvMsg { buffers: pieces.clone(), context: 4, ..RecvMsg::default() }).unwrap();
    bob.endpoint.trecv(marked_buffer(8), ANY, Tag(7), 5).unwrap();
    bob.endpoint.trecvv(pieces, ANY, Tag(7), 6).unwrap();
    (0..5).for_each(|number| alice.deliver(number, 20));
    for context in 5..7 {
        alice.endpoint.tsend(payload(context, 8), alice.peer(), Tag(7), context).unwrap();
        alice.next_completion();
    }
    let all = [(); 7].map(|()| bob.next_completion());
    // The buffers are released with 56 bytes left.
    let told = all.each_ref().map(|completion| (completion.context, completion.flags.contains(RELEASED)));
    let expected = [(1, false), (1, true), (2, false), (2, true), (4, false), (5, false), (6, false)];
    assert_eq!(told, expected);
    assert_eq!(raw.message_at(expect_message_place(&all[3])), payload(3, 20));
    assert_eq!(received_bytes(&all[4].buffer), payload(4, 20));
}
