//! Many links that end at once: how many the engine ends and closes in one pass.

use super::*;

/// Makes passes until the engine wants no more. Returns how many links each pass has closed.
fn close_in_passes(node: &mut Node) -> Vec<usize> {
    let mut closed = Vec::new();
    while node.has_work_without_arrivals() {
        let before = node.transport.closed.len();
        node.transmit();
        closed.push(node.transport.closed.len() - before);
    }
    closed
}

/// More links than one pass closes.
const BREACHED_LINKS: usize = 3 * STEP_MAX_CLOSES;

/// Returns an engine whose peers have all broken the protocol.
fn engine_with_breached_links() -> Node {
    let mut node = Node::new(untimed_config());
    for number in 0..BREACHED_LINKS as u32 {
        node.link_up(LinkId(number), 100 + number as u16, 1);
        node.frame(LinkId(number), &Header::Fenced, &[]);
    }
    node
}

#[test]
fn links_that_break_the_protocol_are_closed_a_few_in_each_pass() {
    let mut node = engine_with_breached_links();
    // The engine handles no frame of a link that is still to be closed.
    node.frame(LinkId(40), &untagged_header(0), &[]);
    node.post_receive(receive_request(0, 1));
    let closed = close_in_passes(&mut node);
    assert_eq!(closed, [STEP_MAX_CLOSES; 3]);
    let expected: Vec<_> = (0..BREACHED_LINKS as u32).map(|number| (LinkId(number), Close::Abort)).collect();
    assert_eq!(node.transport.closed, expected);
    assert!(node.sink.ended.is_empty());
}

#[test]
fn closed_engine_closes_all_links_at_once() {
    let mut node = engine_with_breached_links();
    node.engine.close_links(&mut node.transport);
    assert_eq!(node.transport.closed.len(), BREACHED_LINKS);
}

#[test]
fn peer_has_a_limited_number_of_links() {
    let (mut node, peer) = engine_with_peer();
    let more = 100..100 + PEER_MAX_LINKS as u32;
    for number in more.clone() {
        node.link_up(LinkId(number), 2, 1);
    }
    node.transmit();
    assert_eq!(node.transport.closed, [(LinkId(more.end - 1), Close::Abort)], "the last is one too many");
    // The others are not harmed.
    node.post(send_request(peer, b"on", 1));
    assert_eq!(node.transport.sent.last().unwrap().0, LINK);
    let mut ended = node.take_ended();
    assert!(ended.pop().unwrap().is_ok());
    // Links to a new instance, and to other peers, come up.
    node.transport.closed.clear();
    node.link_up(LinkId(300), 3, 1);
    node.link_up(LinkId(301), 2, 2);
    assert_eq!(close_in_passes(&mut node), []);
}

#[test]
fn silent_former_links_end_a_few_at_a_time() {
    const LINKS: usize = 2 * STEP_MAX_REPLACED_ENDS + 1;
    let mut node = Node::new(untimed_config());
    for number in 0..=LINKS as u32 {
        let up = LinkEvent::up(address(2), number.into());
        node.link_event(LinkId(number), up);
    }
    for ms in [0, REPLACED_LINK_IDLE_MAX_MS] {
        node.advance_time(Moment::from_ms(ms));
    }
    let late = Moment::from_ms(REPLACED_LINK_IDLE_MAX_MS + TIMEOUT_GRACE_MS);
    for left in [LINKS - STEP_MAX_REPLACED_ENDS, LINKS - 2 * STEP_MAX_REPLACED_ENDS, 0] {
        assert!(node.next_deadline().is_some_and(|deadline| deadline <= late), "the rest is due");
        node.advance_time(late);
        close_in_passes(&mut node);
        assert_eq!(node.transport.closed.len(), LINKS - left);
    }
    assert!(!node.awaits_timeout() && node.next_deadline().is_none());
}
