//! Tests of connections that end with the first operation that fails.

use super::*;
use crate::engine::tests::rma::{read_local, rma_request, write_local};
use crate::operation::PeekAction;
use crate::wire::{Outcome, Refusal, Rma};

const NO_KEY: Outcome = Outcome::Refused(Refusal::Key);

/// As [`connected_engine`], but the connection ends with the first failure.
fn connected_engine_that_ends_on_failure() -> (Engine, PeerId, Scripted, Recorder) {
    let (mut engine, peer, transport, sink) = connected_engine();
    engine.end_connection_on_failure();
    (engine, peer, transport, sink)
}

/// Posts a write, and returns its number on the link.
fn post_write(
    engine: &mut Engine,
    peer: PeerId,
    context: u64,
    transport: &mut Scripted,
    sink: &mut Recorder,
) -> u64 {
    engine.post_request(rma_request(peer, write_local(b"data"), context), transport, sink).unwrap();
    match transport.sent.last() {
        Some((_, Header::Rma(rma), _)) => rma.op,
        other => panic!("no write was sent: {other:?}"),
    }
}

/// Takes the reports of ended operations: their contexts and errors.
fn take_errors(sink: &mut Recorder) -> Vec<(u64, Option<OperationError>)> {
    let of_report = |ended: Result<EndedOperation, FailedOperation>| match ended {
        Ok(completion) => (completion.context, None),
        Err(failure) => (failure.completion.context, Some(failure.error)),
    };
    sink.take_ended().into_iter().map(of_report).collect()
}

fn flushed(context: u64) -> (u64, Option<OperationError>) {
    (context, Some(OperationError::Flushed))
}

/// As [`connected_engine_that_ends_on_failure`], but the completions of sends and accesses keep their order.
fn ordered_engine_that_ends_on_failure() -> (Engine, PeerId, Scripted, Recorder) {
    let (mut engine, peer, transport, sink) = connected_engine();
    engine.initiator.set_completes_in_order(true);
    engine.end_connection_on_failure();
    (engine, peer, transport, sink)
}

fn refuse(engine: &mut Engine, sink: &mut Recorder, op: u64) {
    receive_frame(engine, sink, OTHER, Header::Answer { op, outcome: NO_KEY }, b"");
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
fn refused_access_flushes_other_operations_and_ends_the_link() {
    let (mut engine, peer, mut transport, mut sink) = connected_engine_that_ends_on_failure();
    engine.post_receive(receive_request(8, 1), &mut sink).unwrap();
    engine.post_receive(receive_request(8, 2), &mut sink).unwrap();
    let refused = post_write(&mut engine, peer, 3, &mut transport, &mut sink);
    let done = post_write(&mut engine, peer, 4, &mut transport, &mut sink);
    engine.post_request(rma_request(peer, read_local(4), 5), &mut transport, &mut sink).unwrap();
    refuse(&mut engine, &mut sink, refused);
    let refusal = (3, Some(OperationError::Refused(Refusal::Key)));
    assert_eq!(take_errors(&mut sink), [refusal, flushed(1), flushed(2)]);
    // What arrives later changes nothing.
    receive_frame(&mut engine, &mut sink, OTHER, Header::Answer { op: done, outcome: Outcome::Done }, b"");
    receive_frame(&mut engine, &mut sink, OTHER, untagged_header(1), b"x");
    assert!(sink.ended.is_empty() && engine.has_work_without_arrivals());
    assert_eq!(engine.connected_peer(), Some(Err(Misuse::NotConnected.into())));
    engine.transmit(&mut transport, &mut sink);
    assert_eq!(take_errors(&mut sink), [flushed(4), flushed(5)]);
    assert_eq!(transport.closed, [(OTHER, Close::Drain)], "the peer still gets what it was sent");
    assert_eq!(sink.events, [ConnectionReport::Shutdown(ConnectionEnd::OperationFailed)]);
    let sent = sent_headers_since(&transport, 0);
    let shutdown = handshake_header(HandshakeStep::Shutdown, NUMBER, b"");
    assert!(!sent.contains(&shutdown), "for the peer, the connection is lost");
    // Later posts have the same end, until this side shuts the connection down.
    let post_late_send = |engine: &mut Engine, sink: &mut Recorder| {
        let AddressedRequest { mut request, .. } = send_request(peer, b"late", 7);
        engine.flush_late_post(&mut request, Misuse::NotConnected.into(), sink)
    };
    for tagged in [false, true] {
        let receive = ReceiveRequest { tagged, ..receive_request(8, 6) };
        engine.post_receive(receive, &mut sink).unwrap();
    }
    assert_eq!(post_late_send(&mut engine, &mut sink), Ok(()));
    assert_eq!(take_errors(&mut sink), [flushed(6), flushed(6), flushed(7)]);
    engine.shutdown(&mut transport, &mut sink).unwrap();
    assert_eq!(post_late_send(&mut engine, &mut sink), Err(Misuse::NotConnected.into()));
    assert!(engine.post_receive(receive_request(8, 6), &mut sink).is_err());
    assert_eq!((engine.outstanding_transmits(), engine.outstanding_receives()), (0, 0));
    assert!(!engine.has_work_without_arrivals());
}

#[test]
fn failure_flushes_ordered_completions_only_after_it() {
    for answers in [[0, 1, 2], [2, 1, 0], [1, 2, 0], [1, 0, 2]] {
        let (mut engine, peer, mut transport, mut sink) = ordered_engine_that_ends_on_failure();
        let ops = [1, 2, 3].map(|context| post_write(&mut engine, peer, context, &mut transport, &mut sink));
        for place in answers {
            let outcome = if place == 1 { NO_KEY } else { Outcome::Done };
            receive_frame(&mut engine, &mut sink, OTHER, Header::Answer { op: ops[place], outcome }, b"");
        }
        engine.transmit(&mut transport, &mut sink);
        assert_eq!(sink.ended.remove(0).expect("it succeeded").context, 1);
        let failures = take_failures_on_peer(&mut sink, peer);
        let refusal = OperationError::Refused(Refusal::Key);
        assert_eq!(failures, [(2, refusal), (3, OperationError::Flushed)], "{answers:?}");
        assert_eq!(sink.events, [ConnectionReport::Shutdown(ConnectionEnd::OperationFailed)]);
    }
}

#[test]
fn success_that_waits_behind_an_unanswered_access_is_flushed() {
    let (mut engine, peer, mut transport, mut sink) = ordered_engine_that_ends_on_failure();
    let refused = post_write(&mut engine, peer, 1, &mut transport, &mut sink);
    post_write(&mut engine, peer, 2, &mut transport, &mut sink);
    engine.post_request(send_request(peer, b"sent", 3), &mut transport, &mut sink).unwrap();
    refuse(&mut engine, &mut sink, refused);
    engine.transmit(&mut transport, &mut sink);
    let flushed = [2, 3].map(|context| (context, OperationError::Flushed));
    let failures = take_failures_on_peer(&mut sink, peer);
    assert_eq!(failures[0], (1, OperationError::Refused(Refusal::Key)));
    assert_eq!(failures[1..], flushed);
    assert_eq!(engine.outstanding_transmits(), 0);
    assert_eq!(sink.events, [ConnectionReport::Shutdown(ConnectionEnd::OperationFailed)]);
}

#[test]
fn unsignalled_success_behind_a_failure_is_counted_and_reported_as_flushed() {
    for is_answered_first in [false, true] {
        let (mut engine, peer, mut transport, mut sink) = ordered_engine_that_ends_on_failure();
        let refused = post_write(&mut engine, peer, 1, &mut transport, &mut sink);
        let write = rma_request(peer, write_local(b"data"), 2).signalled(Signalled::No);
        engine.post_request(write, &mut transport, &mut sink).unwrap();
        let Some((_, Header::Rma(Rma { op: unsignalled, .. }), _)) = transport.sent.last() else {
            panic!("no write was sent");
        };
        let unsignalled = *unsignalled;
        engine
            .post_request(send_request(peer, b"sent", 3).signalled(Signalled::No), &mut transport, &mut sink)
            .unwrap();
        if is_answered_first {
            let done = Header::Answer { op: unsignalled, outcome: Outcome::Done };
            receive_frame(&mut engine, &mut sink, OTHER, done, b"");
        }
        refuse(&mut engine, &mut sink, refused);
        engine.transmit(&mut transport, &mut sink);
        let contexts: Vec<u64> =
            take_failures_on_peer(&mut sink, peer).into_iter().map(|(context, _)| context).collect();
        assert_eq!(contexts, [1, 2, 3]);
        let (write, send) = (CounterEvents::WRITE, CounterEvents::SEND);
        assert_eq!(sink.counted, [(write, false), (write, false), (send, false)]);
    }
}

#[test]
fn failure_before_the_connection_is_up_fails_alone_and_leaves_the_option_on() {
    let (mut engine, mut transport, mut sink) = engine_with_role(EndpointRole::Connected);
    engine.end_connection_on_failure();
    engine.connect(address(2), NUMBER, b"please", None, &mut transport, &mut sink).unwrap();
    bring_link_up(&mut engine, &mut sink, OWN, 2, 1);
    engine.post_receive(receive_request(8, 1), &mut sink).unwrap();
    let completion = EndedOperation::of_transmit(2, CompletionFlags::of_send(false), Buffer::None);
    let error = OperationError::Deferred(Box::new(Misuse::NotConnected));
    engine.report_refused_operation(FailedOperation { completion, error, target: None }, &mut sink);
    assert_eq!(sink.ended_contexts(), [2]);
    bring_link_up(&mut engine, &mut sink, OTHER, 3, 1);
    let accept = handshake_header(HandshakeStep::Accept, NUMBER, b"");
    receive_frame(&mut engine, &mut sink, OTHER, accept, b"");
    engine.transmit(&mut transport, &mut sink);
    let peer = engine.connected_peer().expect("it is for connections").expect("it is connected");
    let refused = post_write(&mut engine, peer, 3, &mut transport, &mut sink);
    refuse(&mut engine, &mut sink, refused);
    engine.transmit(&mut transport, &mut sink);
    assert_eq!(sink.ended_contexts(), [2, 3, 1]);
    assert_eq!(sink.events.last(), Some(&ConnectionReport::Shutdown(ConnectionEnd::OperationFailed)));
}

#[test]
fn truncated_receive_flushes_later_receives_in_the_same_pass() {
    let (mut engine, peer, mut transport, mut sink) = connected_engine_that_ends_on_failure();
    let acked = send_request(peer, b"acked", 9).level(Level::Transmit);
    engine.post_request(acked, &mut transport, &mut sink).unwrap();
    for context in 1..5 {
        engine.post_receive(receive_request(4, context), &mut sink).unwrap();
    }
    let tagged = ReceiveRequest { tagged: true, ..receive_request(4, 5) };
    engine.post_receive(tagged, &mut sink).unwrap();
    for message in [&b"good"[..], b"too long", b"late", b"last"] {
        receive_frame(&mut engine, &mut sink, OTHER, untagged_header(message.len() as u64), message);
    }
    let truncated = (2, Some(OperationError::Truncated { overflow_bytes: 4 }));
    assert_eq!(take_errors(&mut sink), [(1, None), truncated]);
    assert!(engine.has_work_without_arrivals(), "no thread sleeps over it");
    engine.transmit(&mut transport, &mut sink);
    // A thread may sleep after the pass, so the pass has reported all receives.
    assert_eq!(take_errors(&mut sink), [flushed(9), flushed(3), flushed(4), flushed(5)]);
    assert_eq!(sink.events, [ConnectionReport::Shutdown(ConnectionEnd::OperationFailed)]);
    assert_eq!(transport.closed, [(OTHER, Close::Drain)]);
    let rejected = handshake_header(HandshakeStep::Reject, NUMBER, b"");
    assert_eq!(sent_headers_since(&transport, 0).last(), Some(&rejected), "the peer learns of the failure");
    assert!(!engine.has_work_without_arrivals());
}

#[test]
fn message_that_the_peer_rejects_fails_and_later_operations_are_flushed() {
    let (mut engine, peer, mut transport, mut sink) = ordered_engine_that_ends_on_failure();
    engine.post_receive(receive_request(4, 1), &mut sink).unwrap();
    for context in [2, 3] {
        let send = send_request(peer, b"too long", context).level(Level::Transmit);
        engine.post_request(send, &mut transport, &mut sink).unwrap();
    }
    post_write(&mut engine, peer, 4, &mut transport, &mut sink);
    receive_frame(&mut engine, &mut sink, OTHER, handshake_header(HandshakeStep::Reject, NUMBER, b""), b"");
    engine.transmit(&mut transport, &mut sink);
    engine.deliver_held(&mut sink);
    let rejected = (2, Some(OperationError::PeerReceive));
    let closed = (1, Some(OperationError::Link(LinkError::Closed)));
    assert_eq!(take_errors(&mut sink), [rejected, flushed(3), flushed(4), closed]);
    let lost = ConnectionEnd::Lost(LinkError::Closed);
    assert_eq!(sink.events, [ConnectionReport::Shutdown(lost)]);
    assert_eq!(transport.closed, [(OTHER, Close::Drain)]);
}

#[test]
fn receive_that_is_too_short_for_a_waiting_message_ends_the_connection_at_once() {
    type PostReceive = fn(&mut Engine, &mut Recorder);
    let posts: [PostReceive; 3] = [
        |engine, sink| engine.post_receive(receive_request(4, 1), sink).unwrap(),
        |engine, sink| engine.post_multi_receive(receive_request(4, 1), 1, None, sink).unwrap(),
        |engine, sink| {
            let criteria = receive_request(4, 1).criteria;
            let then = PeekAction::Claim;
            engine.peek(PeekRequest { tagged: false, criteria, context: 1, work: None, then }, sink).unwrap();
            sink.ended.clear();
            engine.receive_claimed(receive_request(4, 1), 1, sink).unwrap();
        },
    ];
    for post in posts {
        let (mut engine, peer, mut transport, mut sink) = connected_engine_that_ends_on_failure();
        let tagged = ReceiveRequest { tagged: true, ..receive_request(4, 2) };
        engine.post_receive(tagged, &mut sink).unwrap();
        post_write(&mut engine, peer, 3, &mut transport, &mut sink);
        for message in [&b"too long"[..], b"late"] {
            receive_frame(&mut engine, &mut sink, OTHER, untagged_header(message.len() as u64), message);
        }
        engine.transmit(&mut transport, &mut sink);
        post(&mut engine, &mut sink);
        let truncated = (1, Some(OperationError::Truncated { overflow_bytes: 4 }));
        let mut errors = take_errors(&mut sink);
        // The end of a buffer has a completion of its own.
        errors.retain(|(context, error)| (*context, error.is_some()) != (1, false));
        assert_eq!(errors, [truncated, flushed(2)]);
        assert_eq!(engine.connected_peer(), Some(Err(Misuse::NotConnected.into())), "no send leaves");
        engine.post_receive(receive_request(4, 4), &mut sink).unwrap();
        assert_eq!(take_errors(&mut sink), [flushed(4)], "all messages are dropped");
        engine.transmit(&mut transport, &mut sink);
        assert_eq!(take_errors(&mut sink), [flushed(3)]);
        assert_eq!(sink.events, [ConnectionReport::Shutdown(ConnectionEnd::OperationFailed)]);
    }
}

#[test]
fn offered_message_that_is_too_long_ends_the_connection_in_the_pass_that_pulls_it() {
    let (mut engine, peer, transport, mut sink) = connected_engine_that_ends_on_failure();
    let mut transport = Scripted { memory: b"too long".to_vec(), ..transport };
    let Header::Message(message) = untagged_header(8) else { unreachable!("it is a message") };
    let offer = Header::Request { message, op: 11, remote_bytes: REMOTE.len() as u8 };
    receive_frame(&mut engine, &mut sink, OTHER, offer, REMOTE);
    engine.post_receive(receive_request(4, 1), &mut sink).unwrap();
    transport.answers = [Sent::Full].into();
    engine.post_request(send_request(peer, b"queued", 2), &mut transport, &mut sink).unwrap();
    engine.transmit(&mut transport, &mut sink);
    let truncated = (1, Some(OperationError::Truncated { overflow_bytes: 4 }));
    assert_eq!(take_errors(&mut sink), [truncated, flushed(2)]);
    assert!(transport.sent.is_empty(), "nothing is sent after the failure");
    assert_eq!(engine.connected_peer(), Some(Err(Misuse::NotConnected.into())));
    assert!(engine.has_work_without_arrivals(), "the link must be closed");
    engine.transmit(&mut transport, &mut sink);
    assert_eq!(sink.events, [ConnectionReport::Shutdown(ConnectionEnd::OperationFailed)]);
}

#[test]
fn message_that_waits_behind_a_failed_receive_is_dropped_if_the_link_is_lost_too() {
    let (mut engine, _, mut transport, mut sink) = connected_engine_that_ends_on_failure();
    engine.post_receive(receive_request(4, 1), &mut sink).unwrap();
    for message in [&b"too long"[..], b"late"] {
        receive_frame(&mut engine, &mut sink, OTHER, untagged_header(message.len() as u64), message);
    }
    engine.arrivals(&mut sink).link_event(OTHER, LinkEvent::Down(RESET));
    engine.transmit(&mut transport, &mut sink);
    assert_eq!(take_errors(&mut sink), [(1, Some(OperationError::Truncated { overflow_bytes: 4 }))]);
    assert!(engine.post_receive(receive_request(4, 2), &mut sink).is_err());
}

#[test]
fn message_that_arrived_before_the_link_was_lost_is_received() {
    let (mut engine, peer, mut transport, mut sink) = connected_engine_that_ends_on_failure();
    post_write(&mut engine, peer, 1, &mut transport, &mut sink);
    receive_frame(&mut engine, &mut sink, OTHER, untagged_header(4), b"kept");
    engine.arrivals(&mut sink).link_event(OTHER, LinkEvent::Down(RESET));
    engine.transmit(&mut transport, &mut sink);
    assert_eq!(take_errors(&mut sink), [(1, Some(OperationError::Link(RESET)))]);
    engine.post_receive(receive_request(4, 2), &mut sink).unwrap();
    assert_eq!(take_errors(&mut sink), [(2, None)]);
}

#[test]
fn receive_that_fails_after_the_link_was_lost_is_the_last() {
    let (mut engine, peer, mut transport, mut sink) = connected_engine_that_ends_on_failure();
    post_write(&mut engine, peer, 1, &mut transport, &mut sink);
    for message in [&b"too long"[..], b"late"] {
        receive_frame(&mut engine, &mut sink, OTHER, untagged_header(message.len() as u64), message);
    }
    engine.arrivals(&mut sink).link_event(OTHER, LinkEvent::Down(RESET));
    engine.transmit(&mut transport, &mut sink);
    assert_eq!(take_errors(&mut sink), [(1, Some(OperationError::Link(RESET)))]);
    engine.post_receive(receive_request(4, 2), &mut sink).unwrap();
    assert_eq!(take_errors(&mut sink), [(2, Some(OperationError::Truncated { overflow_bytes: 4 }))]);
    assert!(engine.post_receive(receive_request(4, 3), &mut sink).is_err());
}

#[test]
fn refused_deferred_operation_ends_the_connection() {
    let (mut engine, _, mut transport, mut sink) = connected_engine_that_ends_on_failure();
    engine.post_receive(receive_request(4, 1), &mut sink).unwrap();
    for (error, ends) in [
        (OperationError::Cancelled, false),
        (OperationError::Deferred(Box::new(Misuse::TooLong { len_bytes: 2, max_bytes: 1 })), true),
    ] {
        let completion =
            EndedOperation::of_transmit(2, CompletionFlags::of_access(false, false), Buffer::None);
        let failure = FailedOperation { completion, error, target: None };
        engine.report_refused_operation(failure, &mut sink);
        engine.transmit(&mut transport, &mut sink);
        assert_eq!(!sink.events.is_empty(), ends);
    }
}

#[test]
fn cancel_and_empty_peek_leave_the_connection_open() {
    let (mut engine, peer, mut transport, mut sink) = connected_engine_that_ends_on_failure();
    engine.post_receive(receive_request(4, 1), &mut sink).unwrap();
    transport.answers = [Sent::Full].into();
    engine.post_request(send_request(peer, b"queued", 2), &mut transport, &mut sink).unwrap();
    engine.cancel(1, &mut sink).unwrap();
    engine.cancel(2, &mut sink).unwrap();
    let criteria = receive_request(4, 3).criteria;
    let peek = PeekRequest { tagged: false, criteria, context: 3, work: None, then: PeekAction::Keep };
    engine.peek(peek, &mut sink).unwrap();
    assert_eq!(sink.ended_contexts(), [1, 2, 3]);
    engine.transmit(&mut transport, &mut sink);
    assert!(sink.events.is_empty() && transport.closed.is_empty());
    assert!(engine.connected_peer().unwrap().is_ok());
}

#[test]
fn shutdown_and_lost_link_end_as_without_the_option() {
    let (mut engine, peer, mut transport, mut sink) = connected_engine_that_ends_on_failure();
    engine.post_receive(receive_request(4, 1), &mut sink).unwrap();
    post_write(&mut engine, peer, 2, &mut transport, &mut sink);
    engine.arrivals(&mut sink).link_event(OTHER, LinkEvent::Down(RESET));
    engine.deliver_held(&mut sink);
    engine.transmit(&mut transport, &mut sink);
    let lost = Some(OperationError::Link(RESET));
    let mut errors = take_errors(&mut sink);
    errors.sort_unstable_by_key(|(context, _)| *context);
    assert_eq!(errors, [(1, lost.clone()), (2, lost)]);
    assert_eq!(sink.events, [ConnectionReport::Shutdown(ConnectionEnd::Lost(RESET))]);
    assert!(transport.closed.is_empty() && !engine.has_work_without_arrivals());
}
