//! Tests of the sender's side of a rendezvous.

use super::*;
use crate::limits::EAGER_MAX_BYTES;
use crate::link::op_number_of;

const LINK: LinkId = LinkId(7);

fn engine_that_exposes() -> (Engine, PeerId, Scripted, Recorder) {
    let (engine, peer, transport, sink) = engine_with_peer();
    (engine, peer, Scripted { pull_min_bytes: Some(10), ..transport }, sink)
}

fn large_send_request(to: PeerId, context: u64, level: Level) -> AddressedRequest {
    send_request(to, b"0123456789", context).level(level)
}

/// Returns the numbers of the offered messages, in order.
fn offered_ops(transport: &Scripted) -> Vec<u64> {
    let op = |(_, header, _): &(LinkId, Header, Vec<u8>)| match header {
        Header::Request { op, .. } => Some(*op),
        _ => None,
    };
    transport.sent.iter().filter_map(op).collect()
}

fn deliver_header(engine: &mut Engine, sink: &mut Recorder, link: LinkId, header: Header) {
    engine.arrivals(sink).frame(link, &header, b"");
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
fn large_message_is_offered_and_ends_when_the_peer_is_done_at_any_level() {
    for level in [Level::Inject, Level::Transmit, Level::Delivery] {
        let (mut engine, peer, mut transport, mut sink) = engine_that_exposes();
        let request = large_send_request(peer, 1, level).tag(Some(5)).data(Some(6));
        engine.post_request(request, &mut transport, &mut sink).unwrap();
        let op = offered_ops(&transport)[0];
        let message =
            Message { tag: Some(5), data: Some(6), awaits: level.awaited_reply(), ..Message::of_len(10) };
        let header = Header::Request { message, op, remote_bytes: REMOTE.len() as u8 };
        assert_eq!(transport.sent, [(LINK, header, REMOTE.to_vec())]);
        assert_eq!(transport.exposed, [(LINK, b"0123456789".to_vec())]);
        engine.transmit(&mut transport, &mut sink);
        assert!(sink.ended.is_empty() && engine.has_unsent(), "closing waits for the peer");
        deliver_header(&mut engine, &mut sink, LINK, done_header(op));
        let completion = sink.take_ended().remove(0).unwrap();
        assert_eq!(completion.buffer, Buffer::Sent(Bytes::from_static(b"0123456789")));
        assert_eq!((engine.outstanding_transmits(), engine.has_unsent()), (0, false));
    }
}

#[test]
fn small_or_injected_or_unexposable_message_goes_eagerly() {
    let (mut engine, peer, mut transport, mut sink) = engine_that_exposes();
    engine.post_request(send_request(peer, b"012345678", 1), &mut transport, &mut sink).unwrap();
    let injected = large_send_request(peer, 2, Level::Inject).inject(true);
    engine.post_request(injected, &mut transport, &mut sink).unwrap();
    transport.pull_min_bytes = Some(0);
    engine.post_request(send_request(peer, b"", 3), &mut transport, &mut sink).unwrap();
    assert!(transport.exposed.is_empty());
    transport.hides = true;
    engine.post_request(large_send_request(peer, 4, Level::Inject), &mut transport, &mut sink).unwrap();
    assert_eq!(sink.ended_contexts(), [1, 2, 3, 4]);
    assert!(transport.sent.iter().all(|(_, header, _)| matches!(header, Header::Message(_))));
}

#[test]
fn large_message_is_offered_or_sent_as_the_transport_prefers_now() {
    let (mut engine, peer, mut transport, mut sink) = engine_that_exposes();
    for (context, prefers_send) in (1..).zip([true, false, true]) {
        transport.prefers_send = prefers_send;
        let request = large_send_request(peer, context, Level::Inject);
        engine.post_request(request, &mut transport, &mut sink).unwrap();
    }
    let is_offer = |(_, header, _): &(LinkId, Header, Vec<u8>)| matches!(header, Header::Request { .. });
    assert_eq!(transport.sent.iter().map(is_offer).collect::<Vec<_>>(), [false, true, false]);
    assert_eq!((transport.exposed.len(), sink.ended_contexts()), (1, vec![1, 3]));
}

#[test]
fn message_beyond_the_eager_limit_is_requested_if_the_transport_prefers_to_send() {
    let (mut engine, peer, mut transport, mut sink) = engine_that_exposes();
    transport.prefers_send = true;
    static LONG: [u8; EAGER_MAX_BYTES + 1] = [7; EAGER_MAX_BYTES + 1];
    engine.post_request(send_request(peer, &LONG, 1), &mut transport, &mut sink).unwrap();
    let op = offered_ops(&transport)[0];
    let header = Header::Request { message: Message::of_len(LONG.len() as u64), op, remote_bytes: 0 };
    assert_eq!(transport.sent, [(LINK, header, Vec::new())], "nothing is exposed");
    deliver_header(&mut engine, &mut sink, LINK, clear_header(op));
    engine.transmit(&mut transport, &mut sink);
    assert_eq!((transport.sent[1].2.len(), sink.ended_contexts()), (LONG.len(), vec![1]));
}

#[test]
fn requested_payload_is_sent_and_completes_by_level() {
    for level in [Level::Inject, Level::Delivery] {
        let (mut engine, peer, mut transport, mut sink) = engine_that_exposes();
        engine.post_request(large_send_request(peer, 1, level), &mut transport, &mut sink).unwrap();
        let op = offered_ops(&transport)[0];
        deliver_header(&mut engine, &mut sink, LINK, clear_header(op));
        assert!(engine.has_unsent());
        transport.answers = [Sent::Full, Sent::Partial(3), Sent::Full, Sent::Partial(2)].into();
        for _ in 0..4 {
            engine.transmit(&mut transport, &mut sink);
            assert!(sink.ended.is_empty());
        }
        engine.transmit(&mut transport, &mut sink);
        let data = (LINK, Header::Data { op, len_bytes: 10 }, b"0123456789".to_vec());
        assert_eq!(transport.sent[1..], [data]);
        assert!(!engine.has_unsent(), "the peer has all of it");
        if level == Level::Delivery {
            assert!(sink.ended.is_empty());
            deliver_header(&mut engine, &mut sink, LINK, done_header(op));
        }
        assert_eq!((sink.ended_contexts(), engine.outstanding_transmits()), (vec![1], 0));
        assert!(sink.ended[0].is_ok() && transport.closed.is_empty());
    }
}

#[test]
fn requested_payload_precedes_queued_messages() {
    let (mut engine, peer, mut transport, mut sink) = engine_that_exposes();
    engine.post_request(large_send_request(peer, 1, Level::Inject), &mut transport, &mut sink).unwrap();
    transport.answers = [Sent::Full].into();
    engine.post_request(send_request(peer, b"queued", 2), &mut transport, &mut sink).unwrap();
    let op = offered_ops(&transport)[0];
    deliver_header(&mut engine, &mut sink, LINK, clear_header(op));
    engine.transmit(&mut transport, &mut sink);
    assert_eq!(sink.ended_contexts(), [1, 2]);
}

#[test]
fn memory_is_not_exposed_to_peer_that_cannot_pull() {
    let (mut engine, peer, mut transport, mut sink) = engine_that_exposes();
    for context in 1..=2 {
        engine
            .post_request(large_send_request(peer, context, Level::Inject), &mut transport, &mut sink)
            .unwrap();
    }
    let ops = offered_ops(&transport);
    deliver_header(&mut engine, &mut sink, LINK, Header::Clear { op: ops[0], cannot_pull: true });
    engine.transmit(&mut transport, &mut sink);
    engine.post_request(large_send_request(peer, 3, Level::Inject), &mut transport, &mut sink).unwrap();
    assert_eq!((sink.ended_contexts(), transport.exposed.len()), (vec![1, 3], 2));
    deliver_header(&mut engine, &mut sink, LINK, Header::Clear { op: ops[1], cannot_pull: true });
    engine.transmit(&mut transport, &mut sink);
    assert_eq!(sink.ended_contexts(), [1, 3, 2]);

    // Another link may be able to pull.
    let mut arrivals = engine.arrivals(&mut sink);
    arrivals.link_event(LINK, LinkEvent::Down(LinkError::Closed));
    arrivals.link_event(LinkId(8), LinkEvent::up(address(2), 1));
    engine.post_request(large_send_request(peer, 4, Level::Inject), &mut transport, &mut sink).unwrap();
    assert_eq!(transport.exposed.len(), 3);
}

#[test]
fn offers_keep_message_order_and_are_exposed_once() {
    let (mut engine, peer, mut transport, mut sink) = engine_that_exposes();
    transport.answers = [Sent::Full; 4].into();
    engine.post_request(large_send_request(peer, 1, Level::Inject), &mut transport, &mut sink).unwrap();
    engine.post_request(send_request(peer, b"small", 2), &mut transport, &mut sink).unwrap();
    engine.post_request(large_send_request(peer, 3, Level::Inject), &mut transport, &mut sink).unwrap();
    for _ in 0..4 {
        engine.transmit(&mut transport, &mut sink);
    }
    let kinds: Vec<bool> =
        transport.sent.iter().map(|(_, header, _)| matches!(header, Header::Request { .. })).collect();
    assert_eq!((kinds, transport.exposed.len()), (vec![true, false, true], 2));
}

#[test]
fn exposed_send_is_cancellable_until_its_request_is_sent() {
    let (mut engine, peer, mut transport, mut sink) = engine_that_exposes();
    transport.answers = [Sent::Full].into();
    engine.post_request(large_send_request(peer, 1, Level::Inject), &mut transport, &mut sink).unwrap();
    engine.cancel(1, &mut sink).unwrap();
    engine.post_request(large_send_request(peer, 2, Level::Inject), &mut transport, &mut sink).unwrap();
    assert!(engine.cancel(2, &mut sink).is_err());
    assert_eq!(
        (transport.exposed.len(), offered_ops(&transport).len()),
        (2, 1),
        "each was exposed for itself"
    );
    assert_eq!(ended_errors(&sink), [(1, Errno::ECANCELED)]);
    deliver_header(&mut engine, &mut sink, LINK, clear_header(offered_ops(&transport)[0]));
    assert!(engine.cancel(2, &mut sink).is_err());
}

#[test]
fn send_fails_with_efault_if_the_peer_cannot_read_its_memory() {
    let (mut engine, peer, mut transport, mut sink) = engine_that_exposes();
    let silent = large_send_request(peer, 1, Level::Inject).signalled(Signalled::No);
    engine.post_request(silent, &mut transport, &mut sink).unwrap();
    let op = offered_ops(&transport)[0];
    deliver_header(&mut engine, &mut sink, LINK, Header::Done { op, fault: true });
    assert_eq!(ended_errors(&sink), [(1, Errno::EFAULT)]);
    engine.transmit(&mut transport, &mut sink);
    assert!(transport.closed.is_empty(), "the link is sound");
}

#[test]
fn acknowledgements_do_not_count_offers() {
    let (mut engine, peer, mut transport, mut sink) = engine_that_exposes();
    let small = |context| send_request(peer, b"small", context).level(Level::Transmit);
    engine.post_request(small(1), &mut transport, &mut sink).unwrap();
    engine.post_request(large_send_request(peer, 2, Level::Transmit), &mut transport, &mut sink).unwrap();
    engine.post_request(small(3), &mut transport, &mut sink).unwrap();
    deliver_header(&mut engine, &mut sink, LINK, Header::Ack { received: 2 });
    assert_eq!(sink.ended_contexts(), [1, 3]);
    // A payload that is partly written does not count as a message either.
    deliver_header(&mut engine, &mut sink, LINK, clear_header(offered_ops(&transport)[0]));
    transport.answers = [Sent::Partial(1)].into();
    engine.transmit(&mut transport, &mut sink);
    deliver_header(&mut engine, &mut sink, LINK, Header::Ack { received: 2 });
    assert!(ended_errors(&sink).is_empty());
    deliver_header(&mut engine, &mut sink, LINK, Header::Ack { received: 3 });
    engine.transmit(&mut transport, &mut sink);
    assert_eq!(ended_errors(&sink), [(2, Errno::EPROTO)]);
}

#[test]
fn connecting_link_that_took_an_offer_stays_in_use() {
    let mut engine = Engine::new(untimed_config());
    let (mut transport, mut sink) =
        (Scripted { pull_min_bytes: Some(10), ..Scripted::default() }, Recorder::default());
    let peer = engine.intern_peer(address(2));
    engine.post_request(large_send_request(peer, 1, Level::Inject), &mut transport, &mut sink).unwrap();
    engine.arrivals(&mut sink).link_event(LINK, LinkEvent::up(address(2), 1));
    engine.post_request(send_request(peer, b"after it", 2), &mut transport, &mut sink).unwrap();
    assert!(transport.sent.iter().all(|(link, ..)| *link == LinkId(0)));
}

/// Returns an engine with four sends, each in another state of a rendezvous. The send with the
/// context 1 is offered. The payload of the others is requested (2), sent (3), or sent in part (4).
fn engine_with_sends_in_every_state() -> (Engine, PeerId, Scripted, Recorder) {
    let (mut engine, peer, mut transport, mut sink) = engine_that_exposes();
    for context in 1..=4 {
        engine
            .post_request(large_send_request(peer, context, Level::Delivery), &mut transport, &mut sink)
            .unwrap();
    }
    let ops = offered_ops(&transport);
    for (op, answer) in [(ops[2], Sent::Whole), (ops[3], Sent::Partial(4))] {
        deliver_header(&mut engine, &mut sink, LINK, clear_header(op));
        transport.answers = [answer].into();
        engine.transmit(&mut transport, &mut sink);
    }
    deliver_header(&mut engine, &mut sink, LINK, clear_header(ops[1]));
    assert_eq!((engine.outstanding_transmits(), sink.ended.len()), (4, 0));
    (engine, peer, transport, sink)
}

#[test]
fn link_down_fails_each_offered_send_once() {
    let (mut engine, _, mut transport, mut sink) = engine_with_sends_in_every_state();
    engine.arrivals(&mut sink).link_event(LINK, LinkEvent::Down(RESET));
    assert_eq!(ended_errors(&sink), [1, 2, 3, 4].map(|context| (context, Errno::ECONNRESET)));
    engine.transmit(&mut transport, &mut sink);
    assert_eq!((engine.outstanding_transmits(), engine.has_unsent(), sink.ended.len()), (0, false, 4));
}

/// A sink. For each operation that ends, it records how many links were closed before.
struct Watching {
    closes: Arc<AtomicUsize>,
    seen: Vec<usize>,
}

impl Sink for Watching {
    fn complete(&mut self, completion: EndedOperation, _: &Peers) -> Result<(), EndedOperation> {
        panic!("it failed: {completion:?}");
    }

    fn fail(&mut self, _: FailedOperation, _: &Peers) -> Result<(), FailedOperation> {
        self.seen.push(self.closes.load(Ordering::Relaxed));
        Ok(())
    }
}

#[test]
fn exposed_memory_is_returned_only_after_link_close() {
    type Way = fn(&mut Engine, &mut Recorder);
    let broken_protocol: Way = |engine, sink| {
        deliver_header(engine, sink, LINK, Header::Ack { received: 99 });
    };
    let lost_second_link: Way = |engine, sink| {
        let mut arrivals = engine.arrivals(sink);
        arrivals.link_event(LinkId(8), LinkEvent::up(address(2), 1));
        arrivals.link_event(LinkId(8), LinkEvent::Down(RESET));
    };
    let new_instance: Way = |engine, sink| {
        engine.arrivals(sink).link_event(LinkId(8), LinkEvent::up(address(2), 2));
        [0, REPLACED_LINK_IDLE_MAX_MS, REPLACED_LINK_IDLE_MAX_MS + TIMEOUT_GRACE_MS]
            .into_iter()
            .for_each(|ms| engine.advance_time(Moment::from_ms(ms), sink));
    };
    for way in [broken_protocol, lost_second_link, new_instance] {
        let (mut engine, _, mut transport, mut sink) = engine_with_sends_in_every_state();
        way(&mut engine, &mut sink);
        assert_eq!((sink.ended.len(), engine.outstanding_transmits()), (0, 4), "the transport does not know");
        let mut watching = Watching { closes: transport.closes.clone(), seen: Vec::new() };
        engine.transmit(&mut transport, &mut watching);
        assert_eq!((watching.seen, &transport.closed[..]), (vec![1; 4], &[(LINK, Close::Abort)][..]));
        assert_eq!((engine.outstanding_transmits(), engine.has_unsent()), (0, false));

        // The transport may report the link as down before the engine closes it.
        let (mut engine, _, mut transport, mut sink) = engine_with_sends_in_every_state();
        way(&mut engine, &mut sink);
        engine.arrivals(&mut sink).link_event(LINK, LinkEvent::Down(LinkError::Closed));
        assert_eq!((sink.ended.len(), engine.outstanding_transmits()), (4, 0));
        engine.transmit(&mut transport, &mut sink);
        assert!(transport.closed.is_empty());

        // Closing the endpoint also closes links that the engine has ended.
        let (mut engine, _, mut transport, mut sink) = engine_with_sends_in_every_state();
        way(&mut engine, &mut sink);
        engine.close_links(&mut transport);
        assert_eq!(transport.closed[0], (LINK, Close::Abort));
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
        let (mut engine, _, mut transport, mut sink) = engine_with_sends_in_every_state();
        let headers = headers(&offered_ops(&transport));
        let (last, before) = headers.split_last().unwrap();
        for header in before {
            deliver_header(&mut engine, &mut sink, LINK, *header);
        }
        assert!(ended_errors(&sink).is_empty());
        deliver_header(&mut engine, &mut sink, LINK, *last);
        engine.transmit(&mut transport, &mut sink);
        assert_eq!(transport.closed, [(LINK, Close::Abort)], "{what}");
        assert!(ended_errors(&sink).iter().all(|(_, errno)| *errno == Errno::EPROTO), "{what}");
        assert_eq!((sink.ended.len(), engine.outstanding_transmits()), (4, 0), "{what}");
    }
}

#[test]
fn answer_to_offer_of_another_link_or_to_eager_send_ends_the_link() {
    for header in [clear_header, done_header] {
        let (mut engine, peer, mut transport, mut sink) = engine_that_exposes();
        engine.arrivals(&mut sink).link_event(LinkId(8), LinkEvent::up(address(3), 3));
        engine.post_request(large_send_request(peer, 1, Level::Inject), &mut transport, &mut sink).unwrap();
        let op = offered_ops(&transport)[0];
        deliver_header(&mut engine, &mut sink, LinkId(8), header(op));
        engine.transmit(&mut transport, &mut sink);
        assert_eq!((&transport.closed[..], sink.ended.len()), (&[(LinkId(8), Close::Abort)][..], 0));

        let eager = send_request(peer, b"eager", 2).level(Level::Delivery);
        engine.post_request(eager, &mut transport, &mut sink).unwrap();
        let eager = engine
            .initiator
            .sends()
            .find(|(_, send)| send.context == 2)
            .map(|(id, _)| op_number_of(id))
            .unwrap();
        deliver_header(&mut engine, &mut sink, LINK, header(eager));
        engine.transmit(&mut transport, &mut sink);
        assert_eq!((transport.closed.len(), sink.ended.len()), (2, 2));
    }
}
