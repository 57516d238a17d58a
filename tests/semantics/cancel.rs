//! Cancelling operations: `fi_cancel(3)`.

use homespun::endpoint::SendMsg;
use homespun::error::Missing;
use homespun::flags::{CompletionFlags, OpFlags};
use homespun::{Errno, Error, FabricAddress, Misuse, OperationError, Tag};

use homespun_suite::Net;
use homespun_suite::payload::{marked_buffer, payload, received_bytes};

const ANY: FabricAddress = FabricAddress::UNSPECIFIED;

pub(crate) fn cancelled_receive_completes_with_ecanceled(net: &Net) {
    let bob = net.open_party();
    bob.endpoint.recv(marked_buffer(8), ANY, 1).unwrap();
    bob.endpoint.trecv(marked_buffer(8), ANY, Tag(5), 2).unwrap();
    bob.endpoint.recvv(vec![marked_buffer(8), marked_buffer(8)], ANY, 3).unwrap();
    for context in [2, 1, 3] {
        bob.endpoint.cancel(context).unwrap();
        let failed = bob.next_failure();
        assert_eq!((failed.completion.context, failed.completion.len_bytes), (context, 0));
        assert_eq!((failed.error.clone(), failed.errno()), (OperationError::Cancelled, Errno::ECANCELED));
        let kind = if context == 2 { CompletionFlags::TAGGED } else { CompletionFlags::MSG };
        assert_eq!(failed.completion.flags, CompletionFlags::RECV | kind);
        assert_eq!(failed.source, FabricAddress::UNSPECIFIED);
    }
    bob.assert_no_completion();
}

pub(crate) fn cancel_of_unposted_or_ended_operation_fails_with_enoent(net: &Net) {
    let (alice, bob) = net.open_pair();
    let is_unknown = |result| matches!(result, Err(Error::Misuse(Misuse::NotFound(Missing::Operation))));
    assert!(is_unknown(bob.endpoint.cancel(1)));
    bob.endpoint.recv(marked_buffer(8), ANY, 1).unwrap();
    alice.endpoint.send(payload(1, 8), alice.peer(), 2).unwrap();
    assert_eq!(alice.next_completion().context, 2);
    assert!(is_unknown(alice.endpoint.cancel(2)), "it has ended");
    assert_eq!(bob.next_completion().context, 1);
    assert!(is_unknown(bob.endpoint.cancel(1)), "it has ended");
    bob.endpoint.recv(marked_buffer(8), ANY, 3).unwrap();
    bob.endpoint.cancel(3).unwrap();
    assert!(is_unknown(bob.endpoint.cancel(3)), "once is enough");
    bob.next_failure();
    bob.assert_no_completion();
}

pub(crate) fn cancelled_receive_takes_no_message(net: &Net) {
    let (alice, bob) = net.open_pair();
    bob.endpoint.recv(marked_buffer(8), ANY, 1).unwrap();
    bob.endpoint.cancel(1).unwrap();
    assert_eq!(bob.next_failure().completion.context, 1);
    alice.endpoint.send(payload(1, 8), alice.peer(), 2).unwrap();
    alice.next_completion();
    bob.assert_no_completion();
    bob.endpoint.recv(marked_buffer(8), ANY, 3).unwrap();
    let completion = bob.next_completion();
    assert_eq!((completion.context, received_bytes(&completion.buffer)), (3, payload(1, 8).to_vec()));
}

pub(crate) fn cancel_ends_only_the_oldest_receive_with_its_context(net: &Net) {
    let (alice, bob) = net.open_pair();
    let count = 50;
    for context in 0..count {
        bob.endpoint.recv(marked_buffer(8), ANY, context).unwrap();
    }
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

pub(crate) fn cancel_of_a_transmitted_send_fails_with_enoent(net: &Net) {
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
        assert!(matches!(alice.endpoint.cancel(1), Err(Error::Misuse(Misuse::NotFound(Missing::Operation)))));
        alice.assert_no_completion();
        bob.endpoint.trecv(marked_buffer(len_bytes), ANY, Tag(5), 3).unwrap();
        assert!(received_bytes(&bob.next_completion().buffer) == payload(1, len_bytes));
        assert_eq!(alice.next_completion().context, 1);
        bob.endpoint.recv(marked_buffer(0), ANY, 4).unwrap();
        assert_eq!(bob.next_completion().context, 4);
    }
}
