//! Tests of the time limit that an application sets for the answer to its request.

use super::*;

const LIMIT_MS: u64 = 50;

fn now(ms: u64) -> Moment {
    Moment::from_ms(ms)
}

/// Returns an endpoint that has asked the endpoint at port 2, and gives up at [`LIMIT_MS`]. No link is up.
fn limited_engine() -> Node {
    let mut node = engine_with_role(EndpointRole::Connected);
    let deadline = Some(now(LIMIT_MS));
    node.connect(address(2), NUMBER, b"please", deadline).unwrap();
    node
}

#[test]
fn connect_fails_at_its_deadline_although_no_link_comes_up() {
    let mut node = limited_engine();
    node.transport.answers = [Sent::Full].into();
    node.transmit();
    node.transport.answers.clear();
    node.post_receive(receive_request(8, 1));
    assert!(node.awaits_timeout());
    assert_eq!(node.next_deadline(), Some(now(LIMIT_MS)), "the time runs without any pass");
    node.advance_time(now(LIMIT_MS - 1));
    node.advance_time(now(LIMIT_MS));
    assert!(node.sink.events.is_empty(), "an answer may have arrived");
    node.advance_time(now(LIMIT_MS + TIMEOUT_GRACE_MS));
    let failure = take_failure(&mut node.sink);
    assert_eq!((&failure, failure.errno()), (&ConnectionError::TimedOut, Errno::ETIMEDOUT));
    assert_eq!(node.ended_contexts(), [1]);
    // The link comes up when the engine has given it up, but has not closed it yet.
    node.link_up(OWN, 2, 1);
    let sent = node.transport.sent.len();
    node.transmit();
    node.transmit();
    assert_eq!(node.transport.closed, [(OWN, Close::Abort)]);
    assert_eq!(node.transport.sent.len(), sent, "the request is not sent any more");
    assert!(!node.awaits_timeout() && node.next_deadline().is_none() && !node.has_unsent());
}

#[test]
fn timed_out_connect_ends_the_links_of_all_acceptors() {
    let mut node = limited_engine();
    node.link_up(OWN, 2, 1);
    node.link_up(OTHER, 3, 1);
    node.advance_time(now(LIMIT_MS));
    node.advance_time(now(LIMIT_MS + TIMEOUT_GRACE_MS));
    assert_eq!(take_failure(&mut node.sink), ConnectionError::TimedOut);
    // An answer that comes too late changes nothing.
    node.step(OTHER, HandshakeStep::Accept, b"");
    node.transmit();
    assert_eq!(node.transport.closed, [(OWN, Close::Abort), (OTHER, Close::Abort)]);
    assert!(node.sink.events.is_empty());
}

#[test]
fn shorter_of_two_limits_counts() {
    let mut node = limited_engine();
    node.link_up(OWN, 2, 1);
    node.link_up(OTHER, 3, 1);
    node.advance_time(now(0));
    node.link_down(OWN, LinkError::Closed);
    node.advance_time(now(1));
    assert_eq!(node.next_deadline(), Some(now(LIMIT_MS)));
    node.advance_time(now(LIMIT_MS));
    node.advance_time(now(LIMIT_MS + TIMEOUT_GRACE_MS));
    assert_eq!(take_failure(&mut node.sink), ConnectionError::TimedOut);
}

#[test]
fn accept_of_a_request_known_to_be_gone_fails_at_once() {
    let (mut node, request) = passive_engine_with_request();
    assert!(node.engine.mark_request_being_accepted(request.id));
    let (mut node, request) = passive_engine_with_request();
    node.link_down(OTHER, RESET);
    assert!(!node.engine.mark_request_being_accepted(request.id));
    let mut node = engine_with_role(EndpointRole::Connected);
    node.engine.accept_withdrawn(&mut node.sink).unwrap();
    assert_eq!(take_failure(&mut node.sink), ConnectionError::RequesterGone);
    node.transmit();
    assert!(node.transport.sent.is_empty(), "the requester is not asked");
    let again = node.engine.accept_withdrawn(&mut node.sink).unwrap_err();
    assert_eq!(again.errno(), Errno::EOPBADSTATE);
}
