//! Buffers of receives that come back whole, for another post.

use super::prelude::*;
use super::shared_contexts::Sharers;

/// Lengths of messages that use every protocol.
const LENS_BYTES: [usize; 9] = [400_000, 8, 0, 20_000, 64, 3000, 1 << 20, 1, 100_000];

/// Returns a buffer filled with a byte that no test sends.
fn make_marked_buffer(room_bytes: usize) -> ReusableBuffer {
    ReusableBuffer::from(marked_buffer(room_bytes))
}

#[track_caller]
fn expect_reusable(completion: Completion) -> ReusableBuffer {
    completion.buffer.into_reusable().expect("the buffer that was posted")
}

/// Waits for the failure of a receive with a buffer of 64 bytes, which comes back empty.
#[track_caller]
fn expect_failed_receive(party: &Party, is_expected: impl Fn(&OperationError) -> bool) {
    let failed = party.next_failure();
    assert!(is_expected(&failed.error), "{failed:?}");
    assert_eq!(failed.completion.len_bytes, 0);
    let buffer = expect_reusable(failed.completion);
    assert_eq!((buffer.room_bytes(), buffer.len()), (64, 0));
}

#[over(one_process)]
fn reusable_buffer_takes_message_after_message(net: &Net) {
    const ROOM_BYTES: usize = 1 << 20;
    let (alice, bob) = net.open_pair();
    let mut buffer = make_marked_buffer(ROOM_BYTES);
    for (identity, len_bytes) in (0..).zip(LENS_BYTES.into_iter().cycle().take(4 * LENS_BYTES.len())) {
        let tag = (identity % 2 == 0).then_some(Tag(7));
        let send = || {
            let send = alice.message(identity, len_bytes, OpFlags::empty());
            alice.endpoint.sendmsg(SendMsg { tag, ..send }).unwrap();
        };
        let post = |buffer| match tag {
            Some(tag) => bob.endpoint.expect_local().trecv_into(buffer, ANY, tag, identity).unwrap(),
            None => bob.endpoint.expect_local().recv_into(buffer, ANY, identity).unwrap(),
        };
        // Receive each length twice: into a buffer posted before the send, and into one posted after the
        // send.
        if identity < 2 * LENS_BYTES.len() as u64 {
            post(buffer);
            send();
        } else {
            send();
            net.progress();
            post(buffer);
        }
        let completion = bob.next_completion();
        assert_eq!((completion.context, completion.len_bytes), (identity, len_bytes));
        buffer = expect_reusable(completion);
        assert_eq!((buffer.room_bytes(), buffer.len()), (ROOM_BYTES, len_bytes));
        assert!(buffer[..] == payload(identity, len_bytes)[..], "message {identity} has other bytes");
        alice.next_completion();
    }
    let (before, message) = (buffer.as_ptr(), buffer.into_message());
    assert_eq!((message.as_ptr(), message.len()), (before, LENS_BYTES[LENS_BYTES.len() - 1]));
}

#[over(one_process)]
fn failed_receive_returns_its_reusable_buffer_empty(net: &Net) {
    let (alice, bob) = net.open_pair();
    let endpoint = bob.endpoint.expect_local();
    // The buffer has received a message before.
    endpoint.recv_into(make_marked_buffer(64), ANY, 1).unwrap();
    alice.endpoint.send(payload(1, 16), alice.peer(), 1).unwrap();
    let used = expect_reusable(bob.next_completion());
    assert_eq!(used.len(), 16);
    endpoint.recv_into(used, ANY, 2).unwrap();
    endpoint.cancel(2).unwrap();
    expect_failed_receive(&bob, |error| *error == OperationError::Cancelled);
    alice.next_completion();
    alice.exchange_long_messages(&bob);
    endpoint.trecv_into(make_marked_buffer(64), bob.peer(), Tag(1), 2).unwrap();
    drop(alice);
    expect_failed_receive(&bob, |error| matches!(error, OperationError::Link(_)));
}

#[over(one_process)]
fn refused_receive_returns_its_reusable_buffer(net: &Net) {
    let bob: Party = net.open_party_with(Setup { rx_depth_ops: 1, ..Setup::default() });
    let endpoint = bob.endpoint.expect_local();
    let rejected = endpoint.recv_into(make_marked_buffer(64), FabricAddress(9), 1).unwrap_err();
    assert_eq!((rejected.errno(), rejected.returned.room_bytes()), (Errno::EINVAL, 64));
    // A multi-receive buffer is split into its messages.
    endpoint.set_rx_op_flags(OpFlags::MULTI_RECV).unwrap();
    let rejected = endpoint.recv_into(make_marked_buffer(64), ANY, 1).unwrap_err();
    assert_eq!(rejected.error, Misuse::Memory(BadMemory::Reusable).into());
    assert_eq!((rejected.returned.room_bytes(), rejected.returned.len()), (64, 0));
    endpoint.trecv_into(rejected.returned, ANY, Tag(1), 2).expect("tagged receives ignore the flag");
    let rejected = endpoint.trecv_into(make_marked_buffer(32), ANY, Tag(1), 3).unwrap_err();
    assert_eq!((rejected.errno(), rejected.returned.room_bytes()), (Errno::EAGAIN, 32));
}

#[over(one_process)]
fn shared_context_fills_reusable_buffers(net: &Net) {
    let (sharers, peer) = Sharers::with_peer(net, 2);
    let mut buffer = make_marked_buffer(400_000);
    for (identity, len_bytes) in (0..).zip([8, 400_000, 0, 20_000]) {
        let (to, tag) = (identity as usize % 2, (identity > 1).then_some(5));
        match tag {
            Some(tag) => sharers.context.trecv_into(buffer, ANY, Tag(tag), identity).unwrap(),
            None => sharers.context.recv_into(buffer, ANY, identity).unwrap(),
        }
        sharers.deliver(&peer, to, payload(identity, len_bytes), tag);
        buffer = expect_reusable(sharers.next_receive_completion(to));
        assert!(buffer[..] == payload(identity, len_bytes)[..]);
        assert_eq!(buffer.room_bytes(), 400_000);
    }
}
