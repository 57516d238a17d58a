//! Messages that are longer than the buffer: `FI_ETRUNC`.

use super::prelude::*;

/// Checks the error of a receive of `room_bytes` that matched a message of `message_bytes`.
#[track_caller]
fn check_truncated(failed: &CompletionError, identity: u64, room_bytes: usize, message_bytes: usize) {
    let overflow_bytes = (message_bytes - room_bytes) as u64;
    assert_eq!(failed.error, OperationError::Truncated { overflow_bytes });
    assert_eq!((failed.errno(), failed.overflow_bytes()), (Errno::ETRUNC, overflow_bytes));
    assert_eq!((failed.completion.context, failed.completion.len_bytes), (identity, room_bytes));
    assert!(received_bytes(&failed.completion.buffer) == payload(identity, room_bytes), "another prefix");
}

/// Shows fi_cq/readerr-describes-failure, fi_cq/len-field, fi_cq/olen-field.
#[over(all)]
fn long_message_is_truncated_with_etrunc(net: &Net) {
    let (alice, bob) = net.open_pair();
    let small = [(0, 1), (0, 9000), (1, 2), (7, 8), (100, 4097), (8192, 8193)];
    let large = [(5000, 70_000), (65_536, 65_537), (1000, 1 << 20), (1 << 18, 1 << 20)];
    for (identity, (room_bytes, message_bytes)) in (1..).zip(small.into_iter().chain(large)) {
        let send = alice.message(identity, message_bytes, OpFlags::empty());
        let send = SendMsg { tag: Some(Tag(9)), data: Some(4), ..send };
        for early in [true, false] {
            if early {
                bob.endpoint.trecv(marked_buffer(room_bytes), ANY, Tag(9), identity).unwrap();
                alice.endpoint.sendmsg(send.clone()).unwrap();
            } else {
                alice.send_unexpected(send.clone());
                bob.endpoint.trecvv(marked_buffers(room_bytes, 3), ANY, Tag(9), identity).unwrap();
            }
            if early || !alice.is_homespun() {
                assert_eq!(next_send_end(&alice), identity);
            }
            let failed = bob.next_failure();
            check_truncated(&failed, identity, room_bytes, message_bytes);
            assert!(failed.source == bob.peer() || !bob.is_native());
            assert_eq!((failed.completion.tag.0, failed.completion.data), (9, 4));
            let flags = CompletionFlags::RECV | CompletionFlags::TAGGED | CompletionFlags::REMOTE_CQ_DATA;
            assert_eq!(failed.completion.flags, flags);
        }
    }
}

#[over(all)]
fn truncation_affects_neither_sender_nor_next_message(net: &Net) {
    let (alice, bob) = net.open_pair();
    for message_bytes in [20, 5000, 300_000] {
        for (identity, room_bytes) in [(1, message_bytes), (2, 10), (3, message_bytes)] {
            bob.post_receives([identity], room_bytes);
        }
        (1..=3).for_each(|identity| alice.post_send(identity, message_bytes, OpFlags::empty()));
        let mut successes = Vec::new();
        for _ in 0..3 {
            match bob.next_ended() {
                Ok((completion, _)) => {
                    let identity = completion.context;
                    assert!(received_bytes(&completion.buffer) == payload(identity, message_bytes));
                    successes.push(identity);
                }
                Err(failed) => check_truncated(&failed, 2, 10, message_bytes),
            }
        }
        assert_eq!(successes, [1, 3]);
        let mut sent = [(); 3].map(|()| next_send_end(&alice));
        if !alice.is_homespun() {
            // Another provider need not complete sends in their order.
            sent.sort_unstable();
        }
        assert_eq!(sent, [1, 2, 3]);
    }
}

/// Shows fi_cq/failures-are-apart, fi_cq/error-hides-later-entries, fi_cq/read-eavail, fi_cq/errno-values,
/// fi_cq-1.4/error-queue.
#[over(all, own)]
fn truncation_errors_keep_completion_order(net: &Net) {
    let (alice, bob) = net.open_pair();
    for (context, room_bytes) in [(1, 32), (2, 8), (3, 8), (4, 32)] {
        bob.post_receives([context], room_bytes);
    }
    (1..=4).for_each(|context| alice.deliver(context, 32));
    let mut contexts = Vec::new();
    poll_until("the first message", || {
        let read = bob.cq.read_each(10, |completion, _| contexts.push(completion.context));
        read.expect("an error ends the batch").map(|count| assert_eq!(count, 1))
    });
    assert_eq!(contexts, [1]);
    for context in [2, 3] {
        // Reads return no entry before the error.
        for _ in 0..3 {
            assert_eq!(bob.cq.read(), Err(ReadError::ErrorAvailable));
        }
        check_truncated(&bob.cq.read_error().unwrap().unwrap(), context, 8, 32);
    }
    assert_eq!(bob.cq.read_error(), Ok(None), "a success is on top");
    assert_eq!(bob.cq.read().unwrap().unwrap().context, 4);
    assert_eq!(bob.cq.read_error(), Ok(None));
}

/// Waits for the end of a send, and returns its context. homespun does not tell the sender that its
/// message was truncated. No page says whether another provider reports an error.
#[track_caller]
fn next_send_end(sender: &Party) -> u64 {
    match sender.next_ended() {
        Ok((completion, _)) => {
            assert!(completion.flags.contains(CompletionFlags::SEND));
            completion.context
        }
        Err(failed) if !sender.is_homespun() => failed.completion.context,
        Err(failed) => panic!("the sender is told of the truncation: {failed:?}"),
    }
}
