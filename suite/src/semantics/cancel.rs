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
            let failed = bob.next_failure();
            assert_eq!((failed.completion.context, failed.completion.len_bytes), (context, 0));
            assert_eq!((failed.error.clone(), failed.errno()), (OperationError::Cancelled, Errno::ECANCELED));
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
fn cancel_of_unposted_or_ended_operation_fails_with_enoent(net: &Net) {
    let (alice, bob) = net.open_pair();
    let is_unknown = |result| expect_errno(result) == Errno::ENOENT;
    assert!(is_unknown(bob.endpoint.cancel(1)));
    bob.endpoint.recv(marked_buffer(8), ANY, 1).unwrap();
    alice.send(2, payload(1, 8));
    assert!(is_unknown(alice.endpoint.cancel(2)), "it has ended");
    assert_eq!(bob.next_completion().context, 1);
    assert!(is_unknown(bob.endpoint.cancel(1)), "it has ended");
    bob.endpoint.recv(marked_buffer(8), ANY, 3).unwrap();
    bob.endpoint.cancel(3).unwrap();
    assert!(is_unknown(bob.endpoint.cancel(3)), "once is enough");
    bob.next_failure();
    bob.assert_no_completion();
}

#[over(all)]
fn cancelled_receive_takes_no_message(net: &Net) {
    let (alice, bob) = net.open_pair();
    bob.endpoint.recv(marked_buffer(8), ANY, 1).unwrap();
    bob.endpoint.cancel(1).unwrap();
    assert_eq!(bob.next_failure().completion.context, 1);
    alice.endpoint.send(payload(1, 8), alice.peer(), 2).unwrap();
    alice.next_completion();
    bob.assert_no_completion();
    bob.receive_message(3, 8, &payload(1, 8));
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
        alice.endpoint.send(payload(context, 8), alice.peer(), context).unwrap();
        assert_eq!(bob.next_completion().context, context);
        alice.next_completion();
    }
    // Of two receives with the same context, the older one is cancelled.
    for (tag, context) in [(1, 9), (2, 9)] {
        bob.endpoint.trecv(marked_buffer(8), ANY, Tag(tag), context).unwrap();
    }
    bob.endpoint.cancel(9).unwrap();
    assert_eq!(bob.next_failure().completion.context, 9);
    alice.endpoint.tsend(payload(1, 8), alice.peer(), Tag(2), 1).unwrap();
    assert_eq!(bob.next_completion().tag, 2);
}

/// Shows fi_endpoint/cancel-of-ended-operation.
#[over(all, own)]
fn cancel_of_a_transmitted_send_fails_with_enoent(net: &Net) {
    let (alice, bob) = net.open_pair();
    for len_bytes in [0, 100, 100_000] {
        let (buffers, flags) = (vec![payload(1, len_bytes)], OpFlags::MATCH_COMPLETE);
        let (to, tag) = (alice.peer(), Some(5));
        alice
            .endpoint
            .sendmsg(SendMsg { buffers, to, tag: tag.map(Tag), context: 1, flags, ..SendMsg::default() })
            .unwrap();
        // The first message arrives before this one.
        alice.send_and_wait_for_delivery(SendMsg { to, context: 2, ..SendMsg::default() });
        expect_error(alice.endpoint.cancel(1), Errno::ENOENT);
        alice.assert_no_completion();
        bob.endpoint.trecv(marked_buffer(len_bytes), ANY, Tag(5), 3).unwrap();
        assert!(received_bytes(&bob.next_completion().buffer) == payload(1, len_bytes));
        assert_eq!(alice.next_completion().context, 1);
        bob.receive(4, 0);
    }
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
    for room in &rooms {
        domain.cancel_receives_into(byte_behind(room));
    }
    bob.assert_no_completion();
    for (context, room) in (1..).zip(&rooms) {
        domain.cancel_receives_into(last_byte(room));
        let failed = bob.next_failure();
        assert_eq!((failed.completion.context, failed.error), (context, OperationError::Cancelled));
        domain.cancel_receives_into(last_byte(room));
        bob.assert_no_completion();
    }
    alice.endpoint.send(payload(1, 8), alice.peer(), 7).unwrap();
    assert_eq!(bob.next_completion().context, 6, "its memory is elsewhere");
    alice.next_completion();
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
