//! Tests of the time limit that an application sets for the answer to its request.

use super::*;
use crate::limits::TIMEOUT_GRACE_MS;

const LIMIT_MS: u64 = 50;

fn now(ms: u64) -> Moment {
    Moment::from_ms(ms)
}

/// Returns an endpoint that has asked the endpoint at port 2, and gives up at [`LIMIT_MS`]. No link is up.
fn limited_engine() -> (Engine, Scripted, Recorder) {
    let (mut engine, mut transport, mut sink) = engine_with_role(EndpointRole::Connected);
    let deadline = Some(now(LIMIT_MS));
    engine.connect(address(2), NUMBER, b"please", deadline, &mut transport, &mut sink).unwrap();
    (engine, transport, sink)
}

#[test]
fn connect_fails_at_its_deadline_although_no_link_comes_up() {
    let (mut engine, mut transport, mut sink) = limited_engine();
    transport.answers = [Sent::Full].into();
    engine.transmit(&mut transport, &mut sink);
    transport.answers.clear();
    engine.post_receive(receive_request(8, 1), &mut sink).unwrap();
    assert!(engine.awaits_timeout());
    assert_eq!(engine.next_deadline(), Some(now(LIMIT_MS)), "the time runs without any pass");
    engine.advance_time(now(LIMIT_MS - 1), &mut sink);
    engine.advance_time(now(LIMIT_MS), &mut sink);
    assert!(sink.events.is_empty(), "an answer may have arrived");
    engine.advance_time(now(LIMIT_MS + TIMEOUT_GRACE_MS), &mut sink);
    let failure = take_failure(&mut sink);
    assert_eq!((&failure, failure.errno()), (&ConnectionError::TimedOut, Errno::ETIMEDOUT));
    assert_eq!(sink.ended_contexts(), [1]);
    // The link comes up when the engine has given it up, but has not closed it yet.
    bring_link_up(&mut engine, &mut sink, OWN, 2, 1);
    let sent = transport.sent.len();
    engine.transmit(&mut transport, &mut sink);
    engine.transmit(&mut transport, &mut sink);
    assert_eq!(transport.closed, [(OWN, Close::Abort)]);
    assert_eq!(transport.sent.len(), sent, "the request is not sent any more");
    assert!(!engine.awaits_timeout() && engine.next_deadline().is_none() && !engine.has_unsent());
}

#[test]
fn timed_out_connect_ends_the_links_of_all_acceptors() {
    let (mut engine, mut transport, mut sink) = limited_engine();
    bring_link_up(&mut engine, &mut sink, OWN, 2, 1);
    bring_link_up(&mut engine, &mut sink, OTHER, 3, 1);
    engine.advance_time(now(LIMIT_MS), &mut sink);
    engine.advance_time(now(LIMIT_MS + TIMEOUT_GRACE_MS), &mut sink);
    assert_eq!(take_failure(&mut sink), ConnectionError::TimedOut);
    // An answer that comes too late changes nothing.
    receive_frame(&mut engine, &mut sink, OTHER, handshake_header(HandshakeStep::Accept, NUMBER, b""), b"");
    engine.transmit(&mut transport, &mut sink);
    assert_eq!(transport.closed, [(OWN, Close::Abort), (OTHER, Close::Abort)]);
    assert!(sink.events.is_empty());
}

#[test]
fn answer_in_the_grace_period_connects() {
    let (mut engine, mut transport, mut sink) = limited_engine();
    bring_link_up(&mut engine, &mut sink, OWN, 2, 1);
    bring_link_up(&mut engine, &mut sink, OTHER, 3, 1);
    engine.advance_time(now(LIMIT_MS + 5000), &mut sink);
    receive_frame(&mut engine, &mut sink, OTHER, handshake_header(HandshakeStep::Accept, NUMBER, b""), b"");
    assert_eq!(sink.events, [ConnectionReport::Connected { data: Box::default() }]);
    engine.advance_time(now(LIMIT_MS + 10_000), &mut sink);
    assert!(!engine.awaits_timeout() && engine.next_deadline().is_none());
    engine.transmit(&mut transport, &mut sink);
    assert_eq!(transport.closed, [(OWN, Close::Drain)]);
}

#[test]
fn shorter_of_two_limits_counts() {
    let (mut engine, _, mut sink) = limited_engine();
    bring_link_up(&mut engine, &mut sink, OWN, 2, 1);
    bring_link_up(&mut engine, &mut sink, OTHER, 3, 1);
    engine.advance_time(now(0), &mut sink);
    engine.arrivals(&mut sink).link_event(OWN, LinkEvent::Down(LinkError::Closed));
    engine.advance_time(now(1), &mut sink);
    assert_eq!(engine.next_deadline(), Some(now(LIMIT_MS)));
    engine.advance_time(now(LIMIT_MS), &mut sink);
    engine.advance_time(now(LIMIT_MS + TIMEOUT_GRACE_MS), &mut sink);
    assert_eq!(take_failure(&mut sink), ConnectionError::TimedOut);
}

#[test]
fn accept_of_a_request_known_to_be_gone_fails_at_once() {
    let (mut passive, request, _, mut sink) = passive_engine_with_request();
    passive.arrivals(&mut sink).link_event(OTHER, LinkEvent::Down(RESET));
    assert!(!passive.mark_request_being_accepted(request.id));
    let (mut acceptor, mut transport, mut sink) = engine_with_role(EndpointRole::Connected);
    acceptor.accept_withdrawn(&mut sink).unwrap();
    assert_eq!(take_failure(&mut sink), ConnectionError::RequesterGone);
    acceptor.transmit(&mut transport, &mut sink);
    assert!(transport.sent.is_empty(), "the requester is not asked");
    let again = acceptor.accept_withdrawn(&mut sink).unwrap_err();
    assert_eq!(again.errno(), Errno::EOPBADSTATE);
}

#[test]
fn waiting_request_can_be_accepted() {
    let (mut passive, request, _, _) = passive_engine_with_request();
    assert!(passive.mark_request_being_accepted(request.id));
}
