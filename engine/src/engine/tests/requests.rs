//! Tests of the sender's side of a rendezvous.

use super::*;

fn engine_that_exposes() -> (Node, PeerId) {
    let (mut node, peer) = engine_with_peer();
    node.transport.pull_min_bytes = Some(10);
    (node, peer)
}

fn large_send_request(to: PeerId, context: u64, level: Level) -> AddressedRequest {
    send_request(to, b"0123456789", context).level(level)
}

/// Returns the numbers of the offered messages, in order.
fn offered_ops(transport: &Scripted) -> Vec<u64> {
    let op = |header: Header| match header {
        Header::Request { op, .. } => Some(op),
        _ => None,
    };
    transport.headers_since(0).into_iter().filter_map(op).collect()
}

/// Returns for each sent frame whether it is an offer.
fn sent_offers(transport: &Scripted) -> Vec<bool> {
    transport.sent.iter().map(|(_, header, _)| matches!(header, Header::Request { .. })).collect()
}

impl Node {
    fn header(&mut self, link: LinkId, header: Header) {
        self.frame(link, &header, b"");
    }
}

fn clear_header(op: u64) -> Header {
    Header::Clear { op, cannot_pull: false }
}

fn done_header(op: u64) -> Header {
    Header::Done { op, fault: false }
}

fn ended_errors(sink: &Recorder) -> Vec<(u64, Errno)> {
    let failures = sink.ended.iter().filter_map(|ended| ended.as_ref().err());
    failures.map(|failure| (failure.completion.context, failure.error.errno())).collect()
}

#[test]
fn small_or_injected_or_unexposable_message_goes_eagerly() {
    let (mut node, peer) = engine_that_exposes();
    node.post(send_request(peer, b"012345678", 1));
    node.post(large_send_request(peer, 2, Level::Inject).inject(true));
    node.transport.pull_min_bytes = Some(0);
    node.post(send_request(peer, b"", 3));
    assert!(node.transport.exposed.is_empty());
    node.transport.hides = true;
    node.post(large_send_request(peer, 4, Level::Inject));
    assert_eq!(node.ended_contexts(), [1, 2, 3, 4]);
    assert!(node.transport.sent.iter().all(|(_, header, _)| matches!(header, Header::Message(_))));
}

#[test]
fn large_message_is_offered_or_sent_as_the_transport_prefers_now() {
    let (mut node, peer) = engine_that_exposes();
    for (context, prefers_send) in (1..).zip([true, false, true]) {
        node.transport.prefers_send = prefers_send;
        node.post(large_send_request(peer, context, Level::Inject));
    }
    assert_eq!(sent_offers(&node.transport), [false, true, false]);
    assert_eq!((node.transport.exposed.len(), node.ended_contexts()), (1, vec![1, 3]));
}

#[test]
fn memory_is_not_exposed_to_peer_that_cannot_pull() {
    let (mut node, peer) = engine_that_exposes();
    for context in 1..=2 {
        node.post(large_send_request(peer, context, Level::Inject));
    }
    let ops = offered_ops(&node.transport);
    node.header(LINK, Header::Clear { op: ops[0], cannot_pull: true });
    node.transmit();
    node.post(large_send_request(peer, 3, Level::Inject));
    assert_eq!((node.ended_contexts(), node.transport.exposed.len()), (vec![1, 3], 2));
    node.header(LINK, Header::Clear { op: ops[1], cannot_pull: true });
    node.transmit();
    assert_eq!(node.ended_contexts(), [1, 3, 2]);

    // Another link may be able to pull.
    node.link_down(LINK, LinkError::Closed);
    node.link_up(LinkId(8), 2, 1);
    node.post(large_send_request(peer, 4, Level::Inject));
    assert_eq!(node.transport.exposed.len(), 3);
}

#[test]
fn offers_keep_message_order_and_are_exposed_once() {
    let (mut node, peer) = engine_that_exposes();
    node.transport.answers = [Sent::Full; 4].into();
    node.post(large_send_request(peer, 1, Level::Inject));
    node.post(send_request(peer, b"small", 2));
    node.post(large_send_request(peer, 3, Level::Inject));
    node.transmit_times(4);
    assert_eq!(sent_offers(&node.transport), [true, false, true]);
    assert_eq!(node.transport.exposed.len(), 2);
}

#[test]
fn exposed_send_is_cancellable_until_its_request_is_sent() {
    let (mut node, peer) = engine_that_exposes();
    node.transport.answers = [Sent::Full].into();
    node.post(large_send_request(peer, 1, Level::Inject));
    node.cancel(1).unwrap();
    node.post(large_send_request(peer, 2, Level::Inject));
    assert!(node.cancel(2).is_err());
    let counts = (node.transport.exposed.len(), offered_ops(&node.transport).len());
    assert_eq!(counts, (2, 1), "each was exposed for itself");
    assert_eq!(ended_errors(&node.sink), [(1, Errno::ECANCELED)]);
    let op = offered_ops(&node.transport)[0];
    node.header(LINK, clear_header(op));
    assert!(node.cancel(2).is_err());
}

#[test]
fn acknowledgements_do_not_count_offers() {
    let (mut node, peer) = engine_that_exposes();
    let small = |context| send_request(peer, b"small", context).level(Level::Transmit);
    node.post(small(1));
    node.post(large_send_request(peer, 2, Level::Transmit));
    node.post(small(3));
    node.header(LINK, Header::Ack { received: 2 });
    assert_eq!(node.ended_contexts(), [1, 3]);
    // A payload that is partly written does not count as a message either.
    let op = offered_ops(&node.transport)[0];
    node.header(LINK, clear_header(op));
    node.transport.answers = [Sent::Partial(1)].into();
    node.transmit();
    node.header(LINK, Header::Ack { received: 2 });
    assert!(ended_errors(&node.sink).is_empty());
    node.header(LINK, Header::Ack { received: 3 });
    node.transmit();
    assert_eq!(ended_errors(&node.sink), [(2, Errno::EPROTO)]);
}

#[test]
fn connecting_link_that_took_an_offer_stays_in_use() {
    let mut node = Node::new(untimed_config());
    node.transport.pull_min_bytes = Some(10);
    let peer = node.engine.intern_peer(address(2));
    node.post(large_send_request(peer, 1, Level::Inject));
    node.link_up(LINK, 2, 1);
    node.post(send_request(peer, b"after it", 2));
    assert!(node.transport.sent.iter().all(|(link, ..)| *link == LinkId(0)));
}

/// Returns an engine with four sends, each in another state of a rendezvous. The send with the
/// context 1 is offered. The payload of the others is requested (2), sent (3), or sent in part (4).
fn engine_with_sends_in_every_state() -> (Node, PeerId) {
    let (mut node, peer) = engine_that_exposes();
    for context in 1..=4 {
        node.post(large_send_request(peer, context, Level::Delivery));
    }
    let ops = offered_ops(&node.transport);
    for (op, answer) in [(ops[2], Sent::Whole), (ops[3], Sent::Partial(4))] {
        node.header(LINK, clear_header(op));
        node.transport.answers = [answer].into();
        node.transmit();
    }
    node.header(LINK, clear_header(ops[1]));
    assert_eq!((node.outstanding_transmits(), node.sink.ended.len()), (4, 0));
    (node, peer)
}

#[test]
fn exposed_memory_is_returned_only_after_link_close() {
    type Way = fn(&mut Node);
    let broken_protocol: Way = |node| node.header(LINK, Header::Ack { received: 99 });
    let lost_second_link: Way = |node| {
        node.link_up(LinkId(8), 2, 1);
        node.link_down(LinkId(8), RESET);
    };
    let new_instance: Way = |node| {
        node.link_up(LinkId(8), 2, 2);
        [0, REPLACED_LINK_IDLE_MAX_MS, REPLACED_LINK_IDLE_MAX_MS + TIMEOUT_GRACE_MS]
            .into_iter()
            .for_each(|ms| node.advance_time(Moment::from_ms(ms)));
    };
    for way in [broken_protocol, lost_second_link, new_instance] {
        let (mut node, _) = engine_with_sends_in_every_state();
        way(&mut node);
        let counts = (node.sink.ended.len(), node.outstanding_transmits());
        assert_eq!(counts, (0, 4), "the transport does not know");
        let closes = node.transport.closes.clone();
        node.sink.after_report = Some(Box::new(move || assert_eq!(closes.load(Ordering::Relaxed), 1)));
        node.transmit();
        assert_eq!(ended_errors(&node.sink).len(), 4, "each has failed after the link was closed");
        assert_eq!(node.transport.closed, [(LINK, Close::Abort)]);
        assert_eq!((node.outstanding_transmits(), node.has_unsent()), (0, false));

        // The transport may report the link as down before the engine closes it.
        let (mut node, _) = engine_with_sends_in_every_state();
        way(&mut node);
        node.link_down(LINK, LinkError::Closed);
        assert_eq!((node.sink.ended.len(), node.outstanding_transmits()), (4, 0));
        node.transmit();
        assert!(node.transport.closed.is_empty());

        // Closing the endpoint also closes links that the engine has ended.
        let (mut node, _) = engine_with_sends_in_every_state();
        way(&mut node);
        node.engine.close_links(&mut node.transport);
        assert_eq!(node.transport.closed[0], (LINK, Close::Abort));
    }
}

#[test]
fn invalid_answer_to_an_offered_message_ends_the_link() {
    // Makes the headers of a case. The argument holds the operation numbers of the sends of
    // `engine_with_sends_in_every_state`, in the order of their contexts.
    type Headers = fn(&[u64]) -> Vec<Header>;
    let cases: [(&str, Headers); 11] = [
        ("asks for what does not exist", |_| vec![clear_header(77)]),
        ("is done with what does not exist", |_| vec![done_header(77)]),
        ("uses the number zero", |_| vec![done_header(0)]),
        ("is nearly right", |ops| vec![done_header(ops[0] ^ (1 << 32))]),
        ("asks twice", |ops| vec![clear_header(ops[0]), clear_header(ops[0])]),
        ("is done twice", |ops| vec![done_header(ops[0]), done_header(ops[0])]),
        ("asks for what it is done with", |ops| vec![done_header(ops[0]), clear_header(ops[0])]),
        ("is done with what it has asked for", |ops| vec![done_header(ops[1])]),
        ("is done with what it has in part", |ops| vec![done_header(ops[3])]),
        ("cannot read what it was sent", |ops| vec![Header::Done { op: ops[2], fault: true }]),
        ("asks for what it was sent", |ops| vec![clear_header(ops[2])]),
    ];
    for (what, headers) in cases {
        let (mut node, _) = engine_with_sends_in_every_state();
        let headers = headers(&offered_ops(&node.transport));
        let (last, before) = headers.split_last().unwrap();
        for header in before {
            node.header(LINK, *header);
        }
        assert!(ended_errors(&node.sink).is_empty());
        node.header(LINK, *last);
        node.transmit();
        assert_eq!(node.transport.closed, [(LINK, Close::Abort)], "{what}");
        assert!(ended_errors(&node.sink).iter().all(|(_, errno)| *errno == Errno::EPROTO), "{what}");
        assert_eq!((node.sink.ended.len(), node.outstanding_transmits()), (4, 0), "{what}");
    }
}

#[test]
fn answer_to_offer_of_another_link_or_to_eager_send_ends_the_link() {
    for header in [clear_header, done_header] {
        let (mut node, peer) = engine_that_exposes();
        node.link_up(LinkId(8), 3, 3);
        node.post(large_send_request(peer, 1, Level::Inject));
        let op = offered_ops(&node.transport)[0];
        node.header(LinkId(8), header(op));
        node.transmit();
        assert_eq!(node.transport.closed, [(LinkId(8), Close::Abort)]);
        assert!(node.sink.ended.is_empty());

        node.post(send_request(peer, b"eager", 2).level(Level::Delivery));
        let (eager, _) = node.engine.initiator.sends().find(|(_, send)| send.context == 2).unwrap();
        node.header(LINK, header(op_number_of(eager)));
        node.transmit();
        assert_eq!((node.transport.closed.len(), node.sink.ended.len()), (2, 2));
    }
}
