//! Tests of accesses to regions, from both sides.

use std::sync::mpsc::{self, TryRecvError};
use std::{hint, thread};

use super::atomics::{atomic_request, base_local, fetch_local};
use super::flushes::flush_request;
use super::*;

pub(super) const KEY: u64 = 77;
const ANYTHING: MrAccess = MrAccess::REMOTE_READ.union(MrAccess::REMOTE_WRITE);

/// The attributes of a region that peers may read and write.
pub(super) const ATTR: RegionAttr = RegionAttr { key: KEY, access: ANYTHING, base_address: 0 };

pub(super) fn rma_request(to: PeerId, local: RmaLocal, context: u64) -> AddressedRequest {
    let memory = RemoteMemory { key: KEY, address: 3 };
    AddressedRequest::new(to, TransmitOp::Rma { local, memory }, context)
}

pub(super) fn write_local(bytes: &'static [u8]) -> RmaLocal {
    RmaLocal::Write { source: Source::owned(Bytes::from_static(bytes)), data: None }
}

pub(super) fn read_local(len_bytes: usize) -> RmaLocal {
    RmaLocal::Read(Destination::owned(BytesMut::zeroed(len_bytes)))
}

/// Creates a region of this memory. The test must not read, move or drop the memory before the
/// region has ended.
#[expect(unsafe_code, reason = "raw regions are what this is about")]
pub(super) fn raw_region(memory: &mut [u8], attr: RegionAttr) -> Result<Region, Misuse> {
    let segment = SegmentMut { address: memory.as_mut_ptr(), len_bytes: memory.len() };
    // SAFETY: the tests that call this do not touch the memory before the region has ended.
    unsafe { Region::raw(&[segment], attr) }
}

/// Returns an engine with a peer, and with a region of this length.
pub(super) fn engine_with_region(len_bytes: usize) -> (Node, Arc<Region>) {
    let (node, _) = engine_with_peer();
    let region = node.add_region(Region::owned(len_bytes, ATTR));
    (node, region)
}

pub(super) fn rma_header(op: u64, address: u64, len_bytes: u64, kind: RmaKind) -> Header {
    Header::Rma(Rma { op, key: KEY, address, len_bytes, kind, durable: Durable::Nothing })
}

const WRITE: RmaKind = RmaKind::Write { data: None };

pub(super) fn read_region(region: &Region) -> Vec<u8> {
    let mut bytes = vec![0; region.len_bytes()];
    region.read_at(0, &mut bytes).unwrap();
    bytes
}

pub(super) fn sent_answers(transport: &Scripted) -> Vec<(u64, Outcome)> {
    let answer = |(_, header, _): &(LinkId, Header, Vec<u8>)| match header {
        Header::Answer { op, outcome } => Some((*op, *outcome)),
        _ => None,
    };
    transport.sent.iter().filter_map(answer).collect()
}

/// A counter of the accesses to a region.
#[derive(Default)]
struct AccessCounter(AtomicUsize);

impl CountAccess for AccessCounter {
    fn count(&self, _: CounterEvents) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Binds a counter to all accesses to a region.
fn bind_access_counter(region: &Region) -> Arc<AccessCounter> {
    let counter = Arc::new(AccessCounter::default());
    let bound: Arc<dyn CountAccess> = counter.clone();
    region.bind_counter(CounterEvents::OF_REGION, &bound).unwrap();
    counter
}

#[test]
fn access_counts_for_endpoint_and_region_with_rma_events_only() {
    let [read, write] = [CounterEvents::REMOTE_READ, CounterEvents::REMOTE_WRITE];
    let offer = RmaKind::Offer { data: Some(9), remote_bytes: REMOTE.len() as u8 };
    for rma_events in [true, false] {
        let (mut node, _) = engine_with_config(Config { rma_events, ..untimed_config() });
        let region = node.add_region(Region::owned(10, ATTR));
        let counter = bind_access_counter(&region);
        node.transport.memory = b"pulled".to_vec();
        node.pass_with_frame(LINK, &rma_header(1, 0, 4, WRITE), b"4444");
        node.pass_with_frame(LINK, &rma_header(2, 0, 6, offer), REMOTE);
        node.pass_with_frame(LINK, &rma_header(3, 0, 6, RmaKind::Read), b"");
        node.pass_with_frame(LINK, &rma_header(4, 0, 0, RmaKind::Read), b"");
        let mut expected = [write, write, read, read].map(|event| (event, true)).to_vec();
        expected.truncate(if rma_events { 4 } else { 0 });
        assert_eq!((counter.0.load(Ordering::Relaxed), &node.sink.counted), (expected.len(), &expected));
        assert_eq!(sent_answers(&node.transport).len(), 4);
    }
}

#[test]
fn read_is_counted_once_all_its_data_is_sent() {
    let (mut node, region) = engine_with_region(6);
    let counter = bind_access_counter(&region);
    node.transport.answers = [Sent::Partial(3), Sent::Full].into();
    node.pass_with_frame(LINK, &rma_header(5, 0, 6, RmaKind::Read), b"");
    assert_eq!((counter.0.load(Ordering::Relaxed), &node.sink.counted[..]), (0, &[][..]));
    node.transmit_times(2);
    let counted = [(CounterEvents::REMOTE_READ, true)];
    assert_eq!((counter.0.load(Ordering::Relaxed), &node.sink.counted[..]), (1, &counted[..]));
}

#[test]
fn write_to_region_closed_amid_it_is_placed_no_further_and_refused() {
    let (mut node, _) = engine_with_peer();
    let mut memory = vec![0; 5];
    let region = node.add_region(raw_region(&mut memory, ATTR));
    node.frame_begun(LINK, &rma_header(3, 0, 4, WRITE));
    node.arrivals().payload_space(LINK)[0][..2].copy_from_slice(b"<<");
    node.arrivals().bytes_placed(LINK, 2);
    node.engine.target.regions().close(&region);
    assert!(node.arrivals().payload_space(LINK).is_empty());
    node.payload_arrived(LINK, b"<<");
    node.transmit();
    assert_eq!(memory, b"<<\0\0\0");
    assert_eq!(sent_answers(&node.transport), [(3, Outcome::Refused(Refusal::Key))]);
}

#[test]
fn long_read_is_sent_in_pieces_with_messages_between() {
    let (mut node, region) = engine_with_region(READ_PIECE_MAX_BYTES + 3);
    let peer = node.engine.intern_peer(address(2));
    region.write_at(READ_PIECE_MAX_BYTES, b"end").unwrap();
    let whole = region.len_bytes() as u64;
    node.frame(LINK, &rma_header(5, 0, whole, RmaKind::Read), b"");
    node.transport.answers = [Sent::Partial(10), Sent::Full, Sent::Partial(1)].into();
    node.transmit();
    node.post(send_request(peer, b"m", 1));
    node.transmit_times(4);
    let op = 5;
    assert_eq!(
        node.sent_since(0),
        [
            Header::ReadData { op, len_bytes: READ_PIECE_MAX_BYTES as u64 },
            untagged_header(1),
            Header::ReadData { op, len_bytes: 3 },
            Header::Answer { op, outcome: Outcome::Done },
        ]
    );
    assert_eq!(node.transport.sent[0].2.len(), READ_PIECE_MAX_BYTES);
    assert_eq!(node.transport.sent[2].2, b"end");
    assert!(!node.has_unsent());
}

/// The peer's other link ends while this one is in the middle of a frame.
#[test]
fn access_after_the_end_of_a_link_waits_for_the_frame_on_the_other() {
    const OTHER: LinkId = LinkId(8);
    for is_fenced in [false, true] {
        let (mut node, _) = engine_with_region(20);
        let peer = node.engine.intern_peer(address(2));
        node.link_up(OTHER, 2, 1);
        node.frame(OTHER, &rma_header(5, 0, 20, RmaKind::Read), b"");
        node.transport.answers = [Sent::Partial(4)].into();
        node.transmit();
        assert_eq!((node.transport.sent.len(), node.transport.sent[0].2.len()), (1, 4));
        node.link_down(LINK, LinkError::Closed);
        node.transport.answers = [Sent::Partial(3)].into();
        node.post(rma_request(peer, write_local(b"later"), 1).fence(is_fenced));
        assert_eq!(node.transport.sent.len(), 1, "the frame is not whole");
        node.arrivals().link_writable(OTHER);
        node.transmit();
        assert_eq!(node.transport.sent[0].2.len(), 20);
        let (link, header, payload) = node.transport.sent.last().unwrap();
        assert!(matches!(header, Header::Rma(_)) && *link == OTHER && payload == b"later", "{header:?}");
    }
}

/// Another thread closes the region at any moment of the pass that sends the data.
#[test]
fn read_during_region_close_is_whole_or_refused() {
    let mut memory = vec![b'a'; 40];
    let (to_close, closing) = mpsc::channel::<(u32, Arc<Regions>, Arc<Region>)>();
    let (closed, ends) = mpsc::channel();
    thread::scope(|scope| {
        // Spins, since a thread that must be woken is too late. Ends with the sender.
        scope.spawn(move || {
            loop {
                match closing.try_recv() {
                    Ok((round, regions, region)) => {
                        (0..round % 256).for_each(|_| hint::spin_loop());
                        regions.close(&region);
                        closed.send(()).unwrap();
                    }
                    Err(TryRecvError::Empty) => hint::spin_loop(),
                    Err(TryRecvError::Disconnected) => return,
                }
            }
        });
        let to_close = to_close;
        for round in 0..2000 {
            let (mut node, mut region) = engine_with_region(memory.len());
            region.write_at(0, &memory).unwrap();
            if round % 2 == 0 {
                node.engine.target.regions().close(&region);
                region = node.add_region(raw_region(&mut memory, ATTR));
            }
            for op in [5, 6] {
                node.frame(LINK, &rma_header(op, 0, 40, RmaKind::Read), b"");
            }
            to_close.send((round, node.engine.target.regions().clone(), region)).unwrap();
            while node.has_unsent() {
                node.transmit();
            }
            ends.recv().unwrap();
            let mut is_right = true;
            for (_, header, payload) in &node.transport.sent {
                assert_eq!(header.payload_len_bytes(), payload.len() as u64, "{header:?}");
                is_right &= payload.iter().all(|byte| *byte == b'a');
                if let Header::Answer { outcome, .. } = header {
                    let is_refused = *outcome == Outcome::Refused(Refusal::Key);
                    assert!(is_right || is_refused, "a read succeeds with wrong data in round {round}");
                    is_right = true;
                }
            }
            assert_eq!(sent_answers(&node.transport).len(), 2);
        }
    });
}

/// Another thread closes the region while the peer's payload is being pulled.
#[test]
fn write_during_region_close_is_placed_or_refused() {
    for has_memory_of_its_own in [true, false] {
        let (mut node, mut region) = engine_with_region(10);
        let mut memory = vec![0; 10];
        if !has_memory_of_its_own {
            node.engine.target.regions().close(&region);
            region = node.add_region(raw_region(&mut memory, ATTR));
        }
        let offer = RmaKind::Offer { data: None, remote_bytes: REMOTE.len() as u8 };
        node.frame(LINK, &rma_header(5, 1, 5, offer), REMOTE);
        let regions = node.engine.target.regions().clone();
        let closed = region.clone();
        let (target, mut effects) = node.engine.target_and_effects(&mut node.sink);
        target
            .pull_payloads(
                |_, _, _, into| {
                    regions.close(&closed);
                    into[0].copy_from_slice(b"hello");
                    Pull::Done
                },
                &mut effects,
            )
            .unwrap();
        node.transmit();
        assert_eq!(sent_answers(&node.transport), [(5, Outcome::Done)]);
        assert_eq!(read_region(&region), b"\0hello\0\0\0\0");
    }
}

#[test]
fn offered_write_is_pulled_into_the_region_or_requested() {
    for (pulled, fetched) in [(Pull::Done, true), (Pull::Refused, true), (Pull::Fault, false)] {
        let (mut node, region) = engine_with_region(10);
        node.transport.memory = b"hello".to_vec();
        node.transport.pulls = [pulled].into();
        let offer = RmaKind::Offer { data: Some(3), remote_bytes: REMOTE.len() as u8 };
        node.pass_with_frame(LINK, &rma_header(5, 1, 5, offer), REMOTE);
        if pulled == Pull::Refused {
            assert_eq!(node.sent_since(0), [Header::Clear { op: 5, cannot_pull: true }]);
            node.pass_with_frame(LINK, &Header::Data { op: 5, len_bytes: 5 }, b"hello");
        }
        let outcome = if fetched { Outcome::Done } else { Outcome::Fault };
        assert_eq!(sent_answers(&node.transport), [(5, outcome)]);
        assert_eq!(read_region(&region) == b"\0hello\0\0\0\0", fetched);
        assert_eq!(node.sink.ended.len(), usize::from(fetched));
        assert!(node.engine.target.inbounds_len() == 0 && node.engine.fetches_len() == 0);
    }
}

#[test]
fn remote_data_completes_at_target_and_costs_credit_until_read() {
    let (mut node, _) = engine_with_region(10);
    node.sink.room = Some(1);
    let count = CREDIT_INITIAL_BYTES / MESSAGE_COST_BYTES;
    for op in 0..count {
        let kind = RmaKind::Write { data: Some(op) };
        node.frame(LINK, &rma_header(op, 0, 4, kind), b"data");
    }
    let completion = node.sink.ended[0].as_ref().unwrap();
    let flags = CompletionFlags::RMA | CompletionFlags::REMOTE_WRITE | CompletionFlags::REMOTE_CQ_DATA;
    assert_eq!((completion.flags, completion.context, completion.len_bytes), (flags, 0, 4));
    assert_eq!(completion.source, Some(node.engine.intern_peer(address(2))));
    // The other completions wait, in order. When the queue takes them, their credit returns to the
    // peer.
    node.transmit();
    node.sink.room = None;
    node.deliver_held();
    let data: Vec<u64> = node.take_ended().iter().flatten().map(|completion| completion.data).collect();
    assert_eq!(data, (0..count).collect::<Vec<_>>());
    node.transmit();
    assert!(node.sent_since(0).iter().any(|header| matches!(header, Header::Credit { .. })));
    assert!(node.transport.closed.is_empty());
}

#[test]
fn peer_that_leaves_answers_unread_is_disconnected() {
    let (mut node, _) = engine_with_region(10);
    for op in 0..RMA_LINK_MAX_OPS as u64 {
        let kind = if op % 2 == 0 { WRITE } else { RmaKind::Read };
        node.frame(LINK, &rma_header(op, 0, 0, kind), b"");
    }
    assert!(node.engine.condemned.is_empty());
    // When the link takes one answer, the peer may make one more access.
    node.transport.answers = [Sent::Whole, Sent::Full, Sent::Full].into();
    node.transmit();
    assert_eq!(sent_answers(&node.transport).len(), 1);
    node.frame(LINK, &rma_header(9999, 0, 0, RmaKind::Read), b"");
    assert!(node.engine.condemned.is_empty());
    node.pass_with_frame(LINK, &rma_header(9999, 0, 0, WRITE), b"");
    assert_eq!(node.transport.closed, [(LINK, Close::Abort)]);
}

#[test]
fn waiting_access_is_cancellable_and_sent_one_fails_with_its_link() {
    let (mut node, peer) = engine_with_peer();
    node.transport.answers = [Sent::Whole, Sent::Full].into();
    node.post(rma_request(peer, read_local(4), 1));
    node.post(rma_request(peer, write_local(b"x"), 2));
    assert!(node.cancel(1).is_err());
    node.cancel(2).unwrap();
    node.frame_begun(LINK, &Header::ReadData { op: node.last_op(), len_bytes: 4 });
    node.link_down(LINK, RESET);
    let errors: Vec<_> =
        node.take_ended().into_iter().map(|ended| ended.unwrap_err().error.errno()).collect();
    assert_eq!(errors, [Errno::ECANCELED, Errno::ECONNRESET]);
}

#[test]
fn invalid_answer_to_access_ends_the_link() {
    type Post = fn(PeerId) -> AddressedRequest;
    type Headers = fn(u64) -> Vec<Header>;
    fn answer(op: u64, outcome: Outcome) -> Header {
        Header::Answer { op, outcome }
    }
    fn done_answer(op: u64) -> Header {
        answer(op, Outcome::Done)
    }
    fn read_data_header(op: u64, len_bytes: u64) -> Header {
        Header::ReadData { op, len_bytes }
    }
    let write: Post = |peer| rma_request(peer, write_local(b"x"), 1);
    let read: Post = |peer| rma_request(peer, read_local(2), 1);
    let update: Post = |peer| atomic_request(peer, base_local(b"xy"), AtomicOp::Sum, 1);
    let fetch: Post = |peer| atomic_request(peer, fetch_local(b"xy"), AtomicOp::Sum, 1);
    let visibility: Post = |peer| flush_request(peer, FlushKind::Visibility, 8, 1);
    let persistent: Post = |peer| flush_request(peer, FlushKind::Persistent, 8, 1);
    let cases: [(Post, Headers); 22] = [
        (write, |op| vec![done_answer(op + 1)]),
        (write, |op| vec![answer(op, Outcome::Fault)]),
        (write, |op| vec![answer(op, Outcome::NotDurable)]),
        (write, |op| vec![read_data_header(op, 1)]),
        (write, |op| vec![Header::Done { op, fault: false }]),
        (write, |op| vec![done_answer(op), done_answer(op)]),
        (read, |op| vec![done_answer(op)]),
        (read, |op| vec![read_data_header(op, 1), read_data_header(op, 2)]),
        (read, |op| vec![Header::Clear { op, cannot_pull: false }]),
        (update, |op| vec![done_answer(op + 1)]),
        (update, |op| vec![answer(op, Outcome::Fault)]),
        (update, |op| vec![read_data_header(op, 2)]),
        (update, |op| vec![Header::Clear { op, cannot_pull: false }]),
        (update, |op| vec![Header::Done { op, fault: false }]),
        (update, |op| vec![done_answer(op), done_answer(op)]),
        (fetch, |op| vec![done_answer(op)]),
        (fetch, |op| vec![read_data_header(op, 1)]),
        (fetch, |op| vec![read_data_header(op, 3)]),
        (fetch, |op| vec![read_data_header(op, 2), done_answer(op)]),
        (visibility, |op| vec![answer(op, Outcome::NotDurable)]),
        (visibility, |op| vec![answer(op, Outcome::Fault)]),
        (persistent, |op| vec![answer(op, Outcome::Fault)]),
    ];
    for (post, headers) in cases {
        let (mut node, peer) = engine_with_peer();
        node.post(post(peer));
        let headers = headers(node.last_op());
        for header in &headers {
            let payload = vec![b'x'; header.payload_len_bytes() as usize];
            node.frame(LINK, header, &payload);
        }
        node.transmit();
        assert_eq!(node.transport.closed, [(LINK, Close::Abort)], "{headers:?}");
        assert_eq!(node.ended_contexts(), [1], "{headers:?}");
    }
    // An answer before the link has taken all operands breaks the protocol.
    let (mut node, peer) = engine_with_peer();
    node.transport.answers = [Sent::Partial(3)].into();
    node.post(atomic_request(peer, fetch_local(b"more than inline"), AtomicOp::Sum, 1));
    let early = read_data_header(node.last_op(), 16);
    node.pass_with_frame(LINK, &early, b"more than inline");
    assert_eq!(node.transport.closed, [(LINK, Close::Abort)]);
}
