//! Cancelling operations: `fi_cancel(3)`.

use homespun::endpoint::SendMsg;
use homespun::error::Missing;
use homespun::flags::{CompletionFlags, OpFlags};
use homespun::{Errno, Error, FabricAddress, Misuse, OperationError};

use homespun_suite::Net;
use homespun_suite::payload::{payload, received, room};

const ANY: FabricAddress = FabricAddress::UNSPECIFIED;

pub(crate) fn cancelled_receive_completes_with_ecanceled(net: &Net) {
    let bob = net.party();
    bob.endpoint.recv(room(8), ANY, 1).unwrap();
    bob.endpoint.trecv(room(8), ANY, 5, 0, 2).unwrap();
    bob.endpoint.recvv(vec![room(8), room(8)], ANY, 3).unwrap();
    for context in [2, 1, 3] {
        bob.endpoint.cancel(context).unwrap();
        let failed = bob.failure();
        assert_eq!((failed.completion.context, failed.completion.len_bytes), (context, 0));
        assert_eq!((failed.error.clone(), failed.errno()), (OperationError::Cancelled, Errno::ECANCELED));
        let kind = if context == 2 { CompletionFlags::TAGGED } else { CompletionFlags::MSG };
        assert_eq!(failed.completion.flags, CompletionFlags::RECV | kind);
        assert_eq!(failed.source, FabricAddress::UNSPECIFIED);
    }
    bob.silence();
}

pub(crate) fn cancel_of_unposted_or_ended_operation_fails_with_enoent(net: &Net) {
    let (alice, bob) = net.pair();
    let is_unknown = |result| matches!(result, Err(Error::Misuse(Misuse::NotFound(Missing::Operation))));
    assert!(is_unknown(bob.endpoint.cancel(1)));
    bob.endpoint.recv(room(8), ANY, 1).unwrap();
    alice.endpoint.send(payload(1, 8), alice.peer(), 2).unwrap();
    assert_eq!(alice.completion().context, 2);
    assert!(is_unknown(alice.endpoint.cancel(2)), "it has ended");
    assert_eq!(bob.completion().context, 1);
    assert!(is_unknown(bob.endpoint.cancel(1)), "it has ended");
    bob.endpoint.recv(room(8), ANY, 3).unwrap();
    bob.endpoint.cancel(3).unwrap();
    assert!(is_unknown(bob.endpoint.cancel(3)), "once is enough");
    bob.failure();
    bob.silence();
}

pub(crate) fn cancelled_receive_takes_no_message(net: &Net) {
    let (alice, bob) = net.pair();
    bob.endpoint.recv(room(8), ANY, 1).unwrap();
    bob.endpoint.cancel(1).unwrap();
    assert_eq!(bob.failure().completion.context, 1);
    alice.endpoint.send(payload(1, 8), alice.peer(), 2).unwrap();
    alice.completion();
    bob.silence();
    bob.endpoint.recv(room(8), ANY, 3).unwrap();
    let completion = bob.completion();
    assert_eq!((completion.context, received(&completion.buffer)), (3, payload(1, 8).to_vec()));
}

pub(crate) fn cancel_takes_one_of_several_receives(net: &Net) {
    let (alice, bob) = net.pair();
    let count = 50;
    for context in 0..count {
        bob.endpoint.recv(room(8), ANY, context).unwrap();
    }
    let cancelled = |context: u64| context.is_multiple_of(5) || context == 37;
    for context in (0..count).rev().filter(|&context| cancelled(context)) {
        bob.endpoint.cancel(context).unwrap();
        assert_eq!(bob.failure().completion.context, context);
    }
    for context in (0..count).filter(|&context| !cancelled(context)) {
        alice.endpoint.send(payload(context, 8), alice.peer(), context).unwrap();
        assert_eq!(bob.completion().context, context);
        alice.completion();
    }
    // Of two receives with the same context, the older is cancelled.
    for (tag, context) in [(1, 9), (2, 9)] {
        bob.endpoint.trecv(room(8), ANY, tag, 0, context).unwrap();
    }
    bob.endpoint.cancel(9).unwrap();
    assert_eq!(bob.failure().completion.context, 9);
    alice.endpoint.tsend(payload(1, 8), alice.peer(), 2, 1).unwrap();
    assert_eq!(bob.completion().tag, 2);
}

pub(crate) fn cancel_of_a_transmitted_send_fails_with_enoent(net: &Net) {
    let (alice, bob) = net.pair();
    for len_bytes in [0, 100, 100_000] {
        let (buffers, flags) = (vec![payload(1, len_bytes)], OpFlags::MATCH_COMPLETE);
        let (to, tag) = (alice.peer(), Some(5));
        alice
            .endpoint
            .sendmsg(SendMsg { buffers, to, tag, context: 1, flags, ..SendMsg::default() })
            .unwrap();
        // The first message has arrived when this one has.
        alice.send_and_wait(SendMsg { to, context: 2, ..SendMsg::default() });
        assert!(matches!(alice.endpoint.cancel(1), Err(Error::Misuse(Misuse::NotFound(Missing::Operation)))));
        alice.silence();
        bob.endpoint.trecv(room(len_bytes), ANY, 5, 0, 3).unwrap();
        assert!(received(&bob.completion().buffer) == payload(1, len_bytes));
        assert_eq!(alice.completion().context, 1);
        bob.endpoint.recv(room(0), ANY, 4).unwrap();
        assert_eq!(bob.completion().context, 4);
    }
}
