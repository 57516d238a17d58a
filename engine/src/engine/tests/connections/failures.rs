//! Tests of connections that end with the first operation that fails.

use super::*;

const NO_KEY: Outcome = Outcome::Refused(Refusal::Key);

/// As [`connected_engine`], but the connection ends with the first failure.
fn connected_engine_that_ends_on_failure() -> (Node, PeerId) {
    let (mut node, peer) = connected_engine();
    node.engine.end_connection_on_failure();
    (node, peer)
}

/// Posts a write, and returns its number on the link.
fn post_write(node: &mut Node, peer: PeerId, context: u64) -> u64 {
    node.post(rma_request(peer, write_local(b"data"), context));
    node.last_op()
}

/// Takes the reports of ended operations, which must have failed: their contexts and errors.
#[track_caller]
fn take_errors(sink: &mut Recorder) -> Vec<(u64, OperationError)> {
    let failures = sink.take_ended().into_iter().map(|ended| ended.expect_err("it failed"));
    failures.map(|failure| (failure.completion.context, failure.error)).collect()
}

/// As [`connected_engine_that_ends_on_failure`], but the completions of sends and accesses keep their order.
fn ordered_engine_that_ends_on_failure() -> (Node, PeerId) {
    let (mut node, peer) = connected_engine();
    node.engine.initiator.set_completes_in_order(true);
    node.engine.end_connection_on_failure();
    (node, peer)
}

/// Takes the reports of ended operations, and expects each to be a failed operation on this peer, without a
/// length. Returns their contexts and errors.
#[track_caller]
fn take_failures_on_peer(sink: &mut Recorder, peer: PeerId) -> Vec<(u64, OperationError)> {
    let of_report = |ended: Result<EndedOperation, FailedOperation>| {
        let FailedOperation { completion, error, target } = ended.expect_err("it failed");
        let EndedOperation { context, len_bytes, .. } = completion;
        assert_eq!((len_bytes, target), (0, Some(peer)), "{context}: {error}");
        (context, error)
    };
    sink.take_ended().into_iter().map(of_report).collect()
}

#[test]
fn failure_flushes_ordered_completions_only_after_it() {
    for answers in [[0, 1, 2], [2, 1, 0], [1, 2, 0], [1, 0, 2]] {
        let (mut node, peer) = ordered_engine_that_ends_on_failure();
        let ops = [1, 2, 3].map(|context| post_write(&mut node, peer, context));
        for place in answers {
            let outcome = if place == 1 { NO_KEY } else { Outcome::Done };
            node.answer(OTHER, ops[place], outcome);
        }
        node.transmit();
        assert_eq!(node.sink.ended.remove(0).expect("it succeeded").context, 1);
        let failures = take_failures_on_peer(&mut node.sink, peer);
        let refusal = OperationError::Refused(Refusal::Key);
        assert_eq!(failures, [(2, refusal), (3, OperationError::Flushed)], "{answers:?}");
        assert_eq!(node.sink.events, [ConnectionReport::Shutdown(ConnectionEnd::OperationFailed)]);
    }
}

#[test]
fn unsignalled_success_behind_a_failure_is_counted_and_reported_as_flushed() {
    for is_answered_first in [false, true] {
        let (mut node, peer) = ordered_engine_that_ends_on_failure();
        let refused = post_write(&mut node, peer, 1);
        node.post(rma_request(peer, write_local(b"data"), 2).signalled(Signalled::No));
        let unsignalled = node.last_op();
        node.post(send_request(peer, b"sent", 3).signalled(Signalled::No));
        if is_answered_first {
            node.answer(OTHER, unsignalled, Outcome::Done);
        }
        node.answer(OTHER, refused, NO_KEY);
        node.transmit();
        let contexts: Vec<u64> =
            take_failures_on_peer(&mut node.sink, peer).into_iter().map(|(context, _)| context).collect();
        assert_eq!(contexts, [1, 2, 3]);
        let (write, send) = (CounterEvents::WRITE, CounterEvents::SEND);
        assert_eq!(node.sink.counted, [(write, false), (write, false), (send, false)]);
    }
}

#[test]
fn failure_before_the_connection_is_up_fails_alone_and_leaves_the_option_on() {
    let mut node = engine_with_role(EndpointRole::Connected);
    node.engine.end_connection_on_failure();
    node.connect(b"please", None);
    node.link_up(OWN, 2, 1);
    node.post_receive(receive_request(8, 1));
    let completion = EndedOperation::of_transmit(2, CompletionFlags::of_send(false), Buffer::None);
    let error = OperationError::Deferred(Box::new(Misuse::NotConnected));
    node.engine.report_refused_operation(FailedOperation { completion, error, target: None }, &mut node.sink);
    assert_eq!(node.ended_contexts(), [2]);
    node.link_up(OTHER, 3, 1);
    node.step(OTHER, HandshakeStep::Accept, b"");
    node.transmit();
    let peer = node.engine.connected_peer().expect("it is for connections").expect("it is connected");
    let refused = post_write(&mut node, peer, 3);
    node.answer(OTHER, refused, NO_KEY);
    node.transmit();
    assert_eq!(node.ended_contexts(), [2, 3, 1]);
    assert_eq!(node.sink.events.last(), Some(&ConnectionReport::Shutdown(ConnectionEnd::OperationFailed)));
}

#[test]
fn message_that_the_peer_rejects_fails_and_later_operations_are_flushed() {
    let (mut node, peer) = ordered_engine_that_ends_on_failure();
    node.post_receive(receive_request(4, 1));
    for context in [2, 3] {
        node.post(send_request(peer, b"too long", context).level(Level::Transmit));
    }
    post_write(&mut node, peer, 4);
    node.step(OTHER, HandshakeStep::Reject, b"");
    node.transmit();
    node.deliver_held();
    let rejected = (2, OperationError::PeerReceive);
    let [first_flushed, second_flushed] = [3, 4].map(|context| (context, OperationError::Flushed));
    let closed = (1, OperationError::Link(LinkError::Closed));
    assert_eq!(take_errors(&mut node.sink), [rejected, first_flushed, second_flushed, closed]);
    let lost = ConnectionEnd::Lost(LinkError::Closed);
    assert_eq!(node.sink.events, [ConnectionReport::Shutdown(lost)]);
    assert_eq!(node.transport.closed, [(OTHER, Close::Drain)]);
}

/// Delivers a message that is too long for the receives of these tests, and another one. Then the link ends.
fn receive_two_and_lose_link(node: &mut Node) {
    for message in [&b"too long"[..], b"late"] {
        node.frame(OTHER, &untagged_header(message.len() as u64), message);
    }
    node.link_down(OTHER, RESET);
    node.transmit();
}

#[test]
fn message_that_waits_behind_a_failed_receive_is_dropped_if_the_link_is_lost_too() {
    let (mut node, _) = connected_engine_that_ends_on_failure();
    node.post_receive(receive_request(4, 1));
    receive_two_and_lose_link(&mut node);
    assert_eq!(take_errors(&mut node.sink), [(1, OperationError::Truncated { overflow_bytes: 4 })]);
    assert!(node.engine.post_receive(receive_request(4, 2), &mut node.sink).is_err());
}

#[test]
fn receive_that_fails_after_the_link_was_lost_is_the_last() {
    let (mut node, peer) = connected_engine_that_ends_on_failure();
    post_write(&mut node, peer, 1);
    receive_two_and_lose_link(&mut node);
    assert_eq!(take_errors(&mut node.sink), [(1, OperationError::Link(RESET))]);
    node.post_receive(receive_request(4, 2));
    assert_eq!(take_errors(&mut node.sink), [(2, OperationError::Truncated { overflow_bytes: 4 })]);
    assert!(node.engine.post_receive(receive_request(4, 3), &mut node.sink).is_err());
}

#[test]
fn refused_deferred_operation_ends_the_connection() {
    let (mut node, _) = connected_engine_that_ends_on_failure();
    node.post_receive(receive_request(4, 1));
    let too_long = Misuse::TooLong { len_bytes: 2, max_bytes: 1 };
    for (error, ends) in
        [(OperationError::Cancelled, false), (OperationError::Deferred(Box::new(too_long)), true)]
    {
        let completion =
            EndedOperation::of_transmit(2, CompletionFlags::of_access(false, false), Buffer::None);
        let failure = FailedOperation { completion, error, target: None };
        node.engine.report_refused_operation(failure, &mut node.sink);
        node.transmit();
        assert_eq!(!node.sink.events.is_empty(), ends);
    }
}
