//! Many links that end at once: how many the engine ends and closes in one pass.

use super::*;
use crate::limits::{PEER_MAX_LINKS, STEP_MAX_CLOSES, STEP_MAX_REPLACED_ENDS};

/// Makes passes until the engine wants no more. Returns how many links each pass has closed.
fn close_in_passes(engine: &mut Engine, transport: &mut Scripted, sink: &mut Recorder) -> Vec<usize> {
    let mut closed = Vec::new();
    while engine.has_work_without_arrivals() {
        let before = transport.closed.len();
        engine.transmit(transport, sink);
        closed.push(transport.closed.len() - before);
    }
    closed
}

/// More links than one pass closes.
const BREACHED_LINKS: usize = 3 * STEP_MAX_CLOSES;

/// Returns an engine whose peers have all broken the protocol.
fn engine_with_breached_links() -> (Engine, Recorder) {
    let (mut engine, mut sink) = (Engine::new(untimed_config()), Recorder::default());
    for number in 0..BREACHED_LINKS as u32 {
        let mut arrivals = engine.arrivals(&mut sink);
        arrivals.link_event(LinkId(number), LinkEvent::up(address(100 + number as u16), 1));
        arrivals.frame(LinkId(number), &Header::Fenced, &[]);
    }
    (engine, sink)
}

#[test]
fn links_that_break_the_protocol_are_closed_a_few_in_each_pass() {
    let (mut engine, mut sink) = engine_with_breached_links();
    let mut transport = Scripted::default();
    // The engine handles no frame of a link that is still to be closed.
    engine.arrivals(&mut sink).frame(LinkId(40), &untagged_header(0), &[]);
    engine.post_receive(receive_request(0, 1), &mut sink).unwrap();
    let closed = close_in_passes(&mut engine, &mut transport, &mut sink);
    assert_eq!(closed, [STEP_MAX_CLOSES; 3]);
    let expected: Vec<_> = (0..BREACHED_LINKS as u32).map(|number| (LinkId(number), Close::Abort)).collect();
    assert_eq!(transport.closed, expected);
    assert!(sink.ended.is_empty());
}

#[test]
fn closed_engine_closes_all_links_at_once() {
    let (mut engine, _) = engine_with_breached_links();
    let mut transport = Scripted::default();
    engine.close_links(&mut transport);
    assert_eq!(transport.closed.len(), BREACHED_LINKS);
}

#[test]
fn peer_has_a_limited_number_of_links() {
    let (mut engine, peer, mut transport, mut sink) = engine_with_peer();
    let more = 100..100 + PEER_MAX_LINKS as u32;
    for number in more.clone() {
        engine.arrivals(&mut sink).link_event(LinkId(number), LinkEvent::up(address(2), 1));
    }
    engine.transmit(&mut transport, &mut sink);
    assert_eq!(transport.closed, [(LinkId(more.end - 1), Close::Abort)], "the last is one too many");
    // The others are not harmed.
    engine.post_request(send_request(peer, b"on", 1), &mut transport, &mut sink).unwrap();
    assert_eq!(transport.sent.last().unwrap().0, LinkId(7));
    let mut ended = sink.take_ended();
    assert!(ended.pop().unwrap().is_ok());
    // Links to a new instance, and to other peers, come up.
    transport.closed.clear();
    engine.arrivals(&mut sink).link_event(LinkId(300), LinkEvent::up(address(3), 1));
    engine.arrivals(&mut sink).link_event(LinkId(301), LinkEvent::up(address(2), 2));
    assert_eq!(close_in_passes(&mut engine, &mut transport, &mut sink), []);
}

#[test]
fn silent_former_links_end_a_few_at_a_time() {
    const LINKS: usize = 2 * STEP_MAX_REPLACED_ENDS + 1;
    let mut engine = Engine::new(untimed_config());
    let (mut transport, mut sink) = (Scripted::default(), Recorder::default());
    for number in 0..=LINKS as u32 {
        let up = LinkEvent::up(address(2), number.into());
        engine.arrivals(&mut sink).link_event(LinkId(number), up);
    }
    for ms in [0, REPLACED_LINK_IDLE_MAX_MS] {
        engine.advance_time(Moment::from_ms(ms), &mut sink);
    }
    let late = Moment::from_ms(REPLACED_LINK_IDLE_MAX_MS + TIMEOUT_GRACE_MS);
    for left in [LINKS - STEP_MAX_REPLACED_ENDS, LINKS - 2 * STEP_MAX_REPLACED_ENDS, 0] {
        assert!(engine.next_deadline().is_some_and(|deadline| deadline <= late), "the rest is due");
        engine.advance_time(late, &mut sink);
        close_in_passes(&mut engine, &mut transport, &mut sink);
        assert_eq!(transport.closed.len(), LINKS - left);
    }
    assert!(!engine.awaits_timeout() && engine.next_deadline().is_none());
}
