//! Cancelling operations: `fi_cancel(3)`.

use super::prelude::*;
use super::shared_contexts::Sharers;
use crate::raw::RawBuffer;

/// Shows fi_cq/readerr-describes-failure, fi_endpoint/cancel-reports-ecanceled,
/// fi_endpoint/cancel-is-bounded.
#[over(all)]
fn cancelled_receive_completes_with_ecanceled(net: &Net) {
    let (bob, _alice) = net.open_pair();
    for from in [ANY, bob.peer()] {
        bob.endpoint.recv(marked_buffer(8), from, 1).unwrap();
        bob.endpoint.trecv(marked_buffer(8), from, Tag(5), 2).unwrap();
        bob.endpoint.recvv(vec![marked_buffer(8), marked_buffer(8)], from, 3).unwrap();
        for context in [2, 1, 3] {
            bob.endpoint.cancel(context).unwrap();
            let failed = bob.expect_failure(context, Errno::ECANCELED);
            assert_eq!((&failed.error, failed.completion.len_bytes), (&OperationError::Cancelled, 0));
            if bob.is_homespun() {
                let kind = if context == 2 { CompletionFlags::TAGGED } else { CompletionFlags::MSG };
                assert_eq!(failed.completion.flags, CompletionFlags::RECV | kind);
                assert_eq!(failed.source, ANY);
            }
        }
        bob.endpoint.recv_multi(marked_buffer(100_000), from, 4).unwrap();
        bob.endpoint.cancel(4).unwrap();
        bob.expect_failure(4, Errno::ECANCELED);
    }
    bob.assert_no_completion();
}

/// Shows fi_endpoint/cancel-of-ended-operation.
#[over(all, own)]
fn cancel_of_unposted_transmitted_or_ended_operation_fails_with_enoent(net: &Net) {
    let (alice, bob) = net.open_pair();
    let expect_unknown = |party: &Party, context| expect_error(party.endpoint.cancel(context), Errno::ENOENT);
    expect_unknown(&bob, 1);
    bob.post_receives([1, 3], 8);
    alice.send(2, payload(1, 8));
    expect_unknown(&alice, 2);
    assert_eq!(bob.next_completion().context, 1);
    expect_unknown(&bob, 1);
    bob.endpoint.cancel(3).unwrap();
    expect_unknown(&bob, 3);
    bob.next_failure();
    bob.assert_no_completion();
    for len_bytes in [0, 100, 100_000] {
        alice.post_tagged(5, len_bytes, OpFlags::MATCH_COMPLETE);
        // The first message arrives before this one.
        alice.deliver(6, 0);
        expect_unknown(&alice, 5);
        alice.assert_no_completion();
        bob.receive_tagged(5, len_bytes);
        assert_eq!(alice.next_completion().context, 5);
        bob.receive(4, 0);
    }
}

/// Shows fi_endpoint/cancel-ends-one.
#[over(all)]
fn cancel_ends_only_the_oldest_receive_with_its_context(net: &Net) {
    let (alice, bob) = net.open_pair();
    let count = 50;
    bob.post_receives(0..count, 8);
    let cancelled = |context: u64| context.is_multiple_of(5) || context == 37;
    for context in (0..count).rev().filter(|&context| cancelled(context)) {
        bob.endpoint.cancel(context).unwrap();
        assert_eq!(bob.next_failure().completion.context, context);
    }
    for context in (0..count).filter(|&context| !cancelled(context)) {
        alice.send(context, payload(context, 8));
        bob.expect_message(context, &payload(context, 8));
    }
    // Of two receives with the same context, the older one is cancelled. The other one has room.
    bob.post_receives([9], 4);
    bob.post_receives([9], 8);
    bob.endpoint.cancel(9).unwrap();
    assert_eq!(bob.next_failure().completion.context, 9);
    alice.send(1, payload(1, 8));
    bob.expect_message(9, &payload(1, 8));
    // No cancelled receive takes a message.
    alice.send(2, payload(2, 8));
    bob.assert_no_completion();
    bob.receive_message(3, 8, &payload(2, 8));
}

/// The last byte of a receive's memory.
fn last_byte(room: &RawBuffer) -> SegmentMut {
    let last = room.pieces()[room.pieces().len() - 1];
    SegmentMut { address: last.address.wrapping_add(last.len_bytes - 1), len_bytes: 1 }
}

/// The memory behind all pieces of a receive. Only a guard is there.
fn byte_behind(room: &RawBuffer) -> SegmentMut {
    let last = last_byte(room);
    SegmentMut { address: last.address.wrapping_add(1), ..last }
}

#[over(one_process)]
fn receives_into_a_piece_of_memory_are_cancelled(net: &Net) {
    let (alice, bob) = net.open_pair();
    let domain = bob.local_domain();
    let multi_receive = Some(OpFlags::MULTI_RECV | OpFlags::COMPLETION);
    let receives: [(&[usize], _, _); 5] = [
        (&[8], None, None),
        (&[8], Some(5), None),
        (&[8, 8], None, None),
        (&[8, 8], Some(6), None),
        (&[100], None, multi_receive),
    ];
    let post = |(context, (lens_bytes, tag, flags)): (u64, (&[usize], _, _))| {
        let post = Post { peer: ANY, context, tag, flags, ..Post::default() };
        RawBuffer::post_receive(bob.endpoint.expect_local(), lens_bytes, 0, post).unwrap()
    };
    let rooms: Vec<_> = (1..).zip(receives).map(post).collect();
    bob.endpoint.recv(marked_buffer(8), ANY, 6).unwrap();
    rooms.iter().for_each(|room| domain.cancel_receives_into(byte_behind(room)));
    bob.assert_no_completion();
    for (context, room) in (1..).zip(&rooms) {
        domain.cancel_receives_into(last_byte(room));
        let failed = bob.next_failure();
        assert_eq!((failed.completion.context, failed.error), (context, OperationError::Cancelled));
        domain.cancel_receives_into(last_byte(room));
        bob.assert_no_completion();
    }
    alice.send(7, payload(1, 8));
    assert_eq!(bob.next_completion().context, 6, "its memory is elsewhere");
    // So are receives of a shared context.
    let sharers = Sharers::new(net, 1);
    let post = Post { peer: ANY, context: 7, ..Post::default() };
    let room = RawBuffer::post_shared_receive(&sharers.context, &[8], post).unwrap();
    for memory in [byte_behind(&room), last_byte(&room)] {
        sharers.drive_repeatedly();
        assert_eq!(poll_completion(&sharers.members[0].cq), None);
        sharers.domain.cancel_receives_into(memory);
    }
    let failed = sharers.next_ended(0).expect_err("it was cancelled");
    assert_eq!((failed.completion.context, failed.error), (7, OperationError::Cancelled));
}
