//! Tests of which operations are counted, whether or not they are reported.

use std::sync::Mutex;

use super::*;

const SENT: (CounterEvents, bool) = (CounterEvents::SEND, true);
const RECEIVED: (CounterEvents, bool) = (CounterEvents::RECV, true);
const NOT_RECEIVED: (CounterEvents, bool) = (CounterEvents::RECV, false);

/// Removes and returns the events that were counted since the last call.
fn take_counted(sink: &mut Recorder) -> Vec<(CounterEvents, bool)> {
    std::mem::take(&mut sink.counted)
}

/// A counter that records the events of a region.
#[derive(Default)]
struct Events(Mutex<Vec<CounterEvents>>);

impl CountAccess for Events {
    fn count(&self, event: CounterEvents) {
        self.0.lock().unwrap().push(event);
    }
}

impl Events {
    fn take(&self) -> Vec<CounterEvents> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

fn rma_header(op: u64, key: u64, len_bytes: u64, kind: RmaKind) -> Header {
    Header::Rma(Rma { op, key, address: 0, len_bytes, kind, durable: Durable::Nothing })
}

#[test]
fn ended_sends_are_counted_signalled_or_not() {
    let (mut node, peer) = engine_with_peer();
    for signalled in [Signalled::Yes, Signalled::No] {
        for level in [Level::Inject, Level::Transmit, Level::Match] {
            let send = send_request(peer, b"x", 1).signalled(signalled).level(level);
            node.post(send);
        }
        assert_eq!(take_counted(&mut node.sink), [SENT], "the others wait for the peer");
        let received = if signalled == Signalled::Yes { 2 } else { 5 };
        node.frame(LINK, &Header::Ack { received }, b"");
        assert_eq!(take_counted(&mut node.sink), [SENT]);
        node.frame(LINK, &Header::Matched { number: received + 1 }, b"");
        assert_eq!(take_counted(&mut node.sink), [SENT]);
    }
    assert_eq!(node.sink.ended.len(), 3);
    // A send that the link takes in two parts.
    node.transport.answers = [Sent::Partial(2)].into();
    node.post(send_request(peer, b"0123456789", 1).signalled(Signalled::No));
    assert_eq!(take_counted(&mut node.sink), []);
    node.transmit();
    assert_eq!(take_counted(&mut node.sink), [SENT]);
}

#[test]
fn long_sends_are_counted_when_fetched() {
    let (mut node, peer) = engine_with_peer();
    node.transport.pull_min_bytes = Some(4);
    for (number, succeeds) in [true, false].into_iter().enumerate() {
        let signalled = if succeeds { Signalled::Yes } else { Signalled::No };
        let send = send_request(peer, b"long", 1).signalled(signalled);
        node.post(send);
        let Header::Request { op, .. } = node.transport.sent[number].1 else { panic!("not a request") };
        assert_eq!(take_counted(&mut node.sink), []);
        node.frame(LINK, &Header::Done { op, fault: !succeeds }, b"");
        assert_eq!(take_counted(&mut node.sink), [(CounterEvents::SEND, succeeds)]);
    }
    // A send whose payload the peer asks for.
    node.post(send_request(peer, b"long", 1).signalled(Signalled::No));
    let Header::Request { op, .. } = node.transport.sent[2].1 else { panic!("not a request") };
    node.pass_with_frame(LINK, &Header::Clear { op, cannot_pull: false }, b"");
    assert_eq!(take_counted(&mut node.sink), [SENT]);
}

#[test]
fn receive_counts_success_and_failure_counts_error() {
    let (mut node, _) = engine_with_peer();
    for signalled in [Signalled::Yes, Signalled::No] {
        let room = |len_bytes| ReceiveRequest { signalled, ..receive_request(len_bytes, 1) };
        node.post_receive(room(4));
        node.frame(LINK, &untagged_header(4), b"take");
        node.frame(LINK, &untagged_header(4), b"that");
        assert_eq!(take_counted(&mut node.sink), [RECEIVED], "no receive has matched the second");
        node.post_receive(room(4));
        assert_eq!(take_counted(&mut node.sink), [RECEIVED]);
        node.post_receive(room(3));
        node.frame(LINK, &untagged_header(4), b"long");
        assert_eq!(take_counted(&mut node.sink), [NOT_RECEIVED]);
        node.post_receive(room(3));
        node.cancel(1).unwrap();
        assert_eq!(take_counted(&mut node.sink), [NOT_RECEIVED]);
    }
    assert_eq!(node.sink.ended.len(), 2 + 2 + 2);
    // A peek is not counted. The receive that later takes the message is counted.
    let peek = |then| PeekRequest { tagged: false, criteria: Criteria::any(), context: 5, work: None, then };
    for then in [PeekAction::Keep, PeekAction::Claim, PeekAction::Discard] {
        node.frame(LINK, &untagged_header(1), b"x");
        node.engine.peek(peek(then), &mut node.sink).unwrap();
        assert_eq!(take_counted(&mut node.sink), []);
        match then {
            PeekAction::Keep => node.post_receive(receive_request(1, 5)),
            PeekAction::Claim => {
                node.engine.receive_claimed(receive_request(1, 5), 5, &mut node.sink).unwrap();
            }
            PeekAction::Discard => continue,
        }
        assert_eq!(take_counted(&mut node.sink), [RECEIVED]);
    }
    node.engine.peek(peek(PeekAction::Keep), &mut node.sink).unwrap();
    assert_eq!(take_counted(&mut node.sink), [], "a look that has found nothing");
}

#[test]
fn each_message_in_multi_receive_buffer_is_counted() {
    for signalled in [Signalled::Yes, Signalled::No] {
        let (mut node, _) = engine_with_peer();
        let buffer = ReceiveRequest { signalled, ..receive_request(16, 1) };
        node.post_multi_receive(buffer, 1);
        for message in [b"12345678", b"abcdefgh"] {
            node.frame(LINK, &untagged_header(8), message);
            assert_eq!(take_counted(&mut node.sink), [RECEIVED]);
        }
        // If messages are signalled, the completion of the last message also reports the release of
        // the buffer. Otherwise the release has a completion of its own. The release never counts
        // as a message.
        assert_eq!(node.sink.ended.len(), if signalled == Signalled::Yes { 2 } else { 1 });
        node.post_multi_receive(receive_request(16, 2), 1);
        node.cancel(2).unwrap();
        assert_eq!(take_counted(&mut node.sink), [NOT_RECEIVED]);
    }
}

#[test]
fn held_completion_is_counted_once() {
    let (mut node, peer) = engine_with_peer();
    node.sink.room = 1;
    for context in 0..3 {
        node.post(send_request(peer, b"x", context));
    }
    assert_eq!((node.take_ended().len(), take_counted(&mut node.sink)), (1, vec![SENT; 3]));
    node.deliver_held();
    node.take_ended();
    node.deliver_held();
    assert_eq!((node.take_ended().len(), take_counted(&mut node.sink)), (1, vec![]));
}

#[test]
fn operations_ended_by_link_down_count_as_errors() {
    let (mut node, peer) = engine_with_peer();
    node.post(send_request(peer, b"x", 1).signalled(Signalled::No).level(Level::Match));
    let read = RmaLocal::Read(Destination::owned(BytesMut::zeroed(4)));
    node.post(rma_request(peer, read, 2));
    let write = RmaLocal::Write { source: Source::owned(Bytes::from_static(b"x")), data: None };
    node.post(rma_request(peer, write, 3));
    node.post_receive(receive_request(4, 4));
    node.frame_begun(LINK, &untagged_header(4));
    assert_eq!(take_counted(&mut node.sink), []);
    node.link_down(LINK, RESET);
    node.transmit();
    let mut ended = take_counted(&mut node.sink);
    ended.sort_by_key(|(events, _)| events.bits());
    let kinds = [CounterEvents::READ, CounterEvents::WRITE, CounterEvents::RECV, CounterEvents::SEND];
    assert_eq!(ended, kinds.map(|kind| (kind, false)));
}

#[test]
fn remote_access_counts_for_endpoint_and_region() {
    let (mut node, _) = engine_with_peer();
    let access = MrAccess::REMOTE_READ | MrAccess::REMOTE_WRITE;
    let attr = RegionAttr { key: KEY, access, base_address: 0 };
    let mut memory = vec![0; 10];
    let region = node.engine.target.regions().add(raw_region(&mut memory, attr).unwrap()).unwrap();
    let events = Arc::new(Events::default());
    let counter: Arc<dyn CountAccess> = events.clone();
    region.bind_counter(CounterEvents::OF_REGION, &counter).unwrap();
    for event in [CounterEvents::REMOTE_READ, CounterEvents::REMOTE_WRITE] {
        assert!(matches!(region.bind_counter(event, &counter), Err(Misuse::Busy(_))));
    }
    node.transport.memory = b"pulled".into();
    let write = RmaKind::Write { data: None };
    let offer = RmaKind::Offer { data: Some(9), remote_bytes: REMOTE.len() as u8 };
    let cases = [
        (rma_header(1, KEY, 4, write), &b"4444"[..], CounterEvents::REMOTE_WRITE),
        (rma_header(2, KEY, 6, offer), REMOTE, CounterEvents::REMOTE_WRITE),
        (rma_header(3, KEY, 6, RmaKind::Read), b"", CounterEvents::REMOTE_READ),
        (rma_header(4, KEY, 0, RmaKind::Read), b"", CounterEvents::REMOTE_READ),
    ];
    for tells in [true, false] {
        node.engine.target.set_counts_accesses(tells);
        for (header, payload, event) in &cases {
            node.pass_with_frame(LINK, header, payload);
            let expected = if tells { vec![*event] } else { vec![] };
            assert_eq!(events.take(), expected);
            let expected: Vec<_> = expected.into_iter().map(|event| (event, true)).collect();
            assert_eq!(take_counted(&mut node.sink), expected);
        }
    }
    // A read is counted when all its data is sent. A refused read is never counted.
    node.engine.target.set_counts_accesses(true);
    node.transport.answers = [Sent::Partial(3), Sent::Full].into();
    node.pass_with_frame(LINK, &rma_header(5, KEY, 6, RmaKind::Read), b"");
    assert_eq!(events.take(), []);
    node.transmit();
    node.transmit();
    assert_eq!(events.take(), [CounterEvents::REMOTE_READ]);
    let refused =
        [rma_header(6, 1, 4, write), rma_header(7, KEY, 40, write), rma_header(8, KEY, 11, RmaKind::Read)];
    for header in refused {
        node.frame(LINK, &header, &vec![0; header.payload_len_bytes() as usize]);
        node.transmit();
    }
    assert_eq!(events.take(), []);
    assert_eq!(take_counted(&mut node.sink), [(CounterEvents::REMOTE_READ, true)]);
    node.engine.target.regions().close(&region);
}

#[test]
fn remote_atomic_counts_once_per_region_counter() {
    let (mut node, _) = engine_with_peer();
    let access = MrAccess::REMOTE_READ | MrAccess::REMOTE_WRITE;
    let attrs = [KEY, KEY + 1].map(|key| RegionAttr { key, access, base_address: 0 });
    let [shared, apart] =
        attrs.map(|attr| node.engine.target.regions().add(Region::owned(8, attr).unwrap()).unwrap());
    let events = [(); 3].map(|()| Arc::new(Events::default()));
    let [both, reads, writes] = events.each_ref().map(|events| -> Arc<dyn CountAccess> { events.clone() });
    shared.bind_counter(CounterEvents::OF_REGION, &both).unwrap();
    apart.bind_counter(CounterEvents::REMOTE_READ, &reads).unwrap();
    apart.bind_counter(CounterEvents::REMOTE_WRITE, &writes).unwrap();
    let [read, write] = [CounterEvents::REMOTE_READ, CounterEvents::REMOTE_WRITE];
    // Each case has the events that the endpoint counts, and the events that the region's counters
    // count.
    for (op, (kind, what, of_endpoint, of_region)) in (1..).zip([
        (AtomicKind::Base, AtomicOp::Sum, write, write),
        (AtomicKind::Fetch, AtomicOp::Sum, read, read | write),
        (AtomicKind::Fetch, AtomicOp::Read, read, read),
        (AtomicKind::Compare, AtomicOp::Cswap, read, read | write),
    ]) {
        let form = AtomicForm::new(kind, what, Datatype::Uint64, 1).unwrap();
        for key in [KEY, KEY + 1] {
            let header = Header::Atomic(Atomic { op, key, address: 0, form });
            let payload = vec![1; header.payload_len_bytes() as usize];
            node.frame(LINK, &header, &payload);
            assert_eq!(take_counted(&mut node.sink), [(of_endpoint, true)], "{kind} {what:?}");
        }
        let [both, reads, writes] = events.each_ref().map(|events| events.take().len());
        let expected = (1, usize::from(of_region.contains(read)), usize::from(of_region.contains(write)));
        assert_eq!((both, reads, writes), expected, "{kind} {what:?}");
    }
}

#[test]
fn disabled_region_refuses_access_until_enabled() {
    let (mut node, _) = engine_with_peer();
    let attr = RegionAttr { key: KEY, access: MrAccess::REMOTE_WRITE, base_address: 0 };
    let region = node.engine.target.regions().add(Region::owned(4, attr).unwrap().into_disabled()).unwrap();
    for (op, outcome) in [(1, Outcome::Refused(crate::wire::Refusal::Key)), (2, Outcome::Done)] {
        assert_eq!(region.is_enabled(), op == 2);
        node.pass_with_frame(LINK, &rma_header(op, KEY, 4, RmaKind::Write { data: None }), b"1234");
        assert_eq!(node.transport.sent.last().unwrap().1, Header::Answer { op, outcome });
        region.enable();
    }
}
