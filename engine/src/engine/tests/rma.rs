//! Tests of accesses to regions, from both sides.

use std::sync::Arc;
use std::sync::mpsc::{self, TryRecvError};
use std::{hint, thread};

use super::*;

pub(super) const KEY: u64 = 77;
const ANYTHING: MrAccess = MrAccess::REMOTE_READ.union(MrAccess::REMOTE_WRITE);

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
fn engine_with_region(len_bytes: usize) -> (Node, Arc<Region>) {
    let (node, _) = engine_with_peer();
    let attr = RegionAttr { key: KEY, access: ANYTHING, base_address: 0 };
    let region = node.engine.target.regions().add(Region::owned(len_bytes, attr).unwrap()).unwrap();
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

fn last_sent_op(transport: &Scripted) -> u64 {
    match transport.sent.last() {
        Some((_, Header::Rma(rma), _)) => rma.op,
        other => panic!("no access was sent last: {other:?}"),
    }
}

#[test]
fn write_to_raw_region_is_received_in_place() {
    let (mut node, _) = engine_with_region(1);
    let mut memory = vec![0; 10];
    let attr = RegionAttr { key: 1, access: ANYTHING, base_address: 1000 };
    let region = node.engine.target.regions().add(raw_region(&mut memory, attr).unwrap()).unwrap();
    let write = |op, address, len_bytes| {
        Header::Rma(Rma { op, key: 1, address, len_bytes, kind: WRITE, durable: Durable::Nothing })
    };
    node.frame_begun(LINK, &write(1, 1004, 6));
    node.payload_arrived(LINK, b"h");
    node.arrivals().payload_space(LINK)[0].copy_from_slice(b"ello!");
    node.arrivals().bytes_placed(LINK, 5);
    node.frame(LINK, &write(2, 1000, 1), b">");
    // The region ends in the middle of this write.
    node.frame_begun(LINK, &write(3, 1000, 4));
    node.payload_arrived(LINK, b"<<");
    node.engine.target.regions().close(&region);
    assert!(node.arrivals().payload_space(LINK).is_empty());
    node.payload_arrived(LINK, b"<<");
    node.transmit();
    assert_eq!(memory, b"<<\0\0hello!");
    let outcomes = [(1, Outcome::Done), (2, Outcome::Done), (3, Outcome::Refused(Refusal::Key))];
    assert_eq!(sent_answers(&node.transport), outcomes);
}

#[test]
fn empty_access_ignores_its_target() {
    let (mut node, region) = engine_with_region(10);
    let access =
        |op, key, address, kind, durable| Header::Rma(Rma { op, key, address, len_bytes: 0, kind, durable });
    for (op, kind) in [(1, WRITE), (2, RmaKind::Read)] {
        node.frame(LINK, &access(op, KEY + 1, 0, kind, Durable::Nothing), b"");
        node.frame(LINK, &access(op + 2, KEY, 11, kind, Durable::Nothing), b"");
    }
    // A durable write must name a region, even if it is empty.
    node.pass_with_frame(LINK, &access(5, KEY + 1, 0, WRITE, Durable::Everything), b"");
    let mut answers = sent_answers(&node.transport);
    answers.sort_unstable_by_key(|(op, _)| *op);
    let mut expected: Vec<_> = (1..5).map(|op| (op, Outcome::Done)).collect();
    expected.push((5, Outcome::Refused(Refusal::Key)));
    assert_eq!(answers, expected);
    assert_eq!(read_region(&region), [0; 10]);
    assert!(node.engine.condemned.is_empty());
}

#[test]
fn access_outside_region_or_rights_is_refused_and_link_stays_up() {
    let (mut node, region) = engine_with_region(10);
    let attr = RegionAttr { key: 1, access: MrAccess::REMOTE_READ, base_address: 0 };
    node.engine.target.regions().add(Region::owned(10, attr).unwrap()).unwrap();
    let with_key = |op, key, kind| {
        Header::Rma(Rma { op, key, address: 0, len_bytes: 4, kind, durable: Durable::Nothing })
    };
    let cases = [
        (with_key(1, KEY + 1, WRITE), Refusal::Key),
        (with_key(2, 1, WRITE), Refusal::Access),
        (rma_header(3, 7, 4, WRITE), Refusal::Range),
        (rma_header(4, u64::MAX - 1, 4, WRITE), Refusal::Range),
        (rma_header(5, 7, 4, RmaKind::Offer { data: None, remote_bytes: 4 }), Refusal::Range),
        (rma_header(6, 7, 4, RmaKind::Read), Refusal::Range),
        (with_key(7, KEY + 1, RmaKind::Read), Refusal::Key),
    ];
    for (header, _) in &cases {
        let payload = vec![b'x'; header.payload_len_bytes() as usize];
        node.frame(LINK, header, &payload);
    }
    node.frame_begun(LINK, &rma_header(8, 7, 4, WRITE));
    node.payload_arrived(LINK, b"xxxx");
    node.transmit();
    let mut answers = sent_answers(&node.transport);
    answers.sort_by_key(|(op, _)| *op);
    let expected: Vec<_> = (1..).zip(cases.iter().map(|(_, refusal)| Outcome::Refused(*refusal))).collect();
    assert_eq!(answers[..7], expected);
    assert_eq!(answers[7], (8, Outcome::Refused(Refusal::Range)));
    assert_eq!(read_region(&region), [0; 10]);
    assert!(node.transport.closed.is_empty() && node.transport.pulled.is_empty());
}

#[test]
fn access_without_endpoint_capability_is_refused() {
    let config = Config { remote_access: MrAccess::REMOTE_READ, ..untimed_config() };
    let (mut node, _) = engine_with_config(config);
    let attr = RegionAttr { key: KEY, access: ANYTHING, base_address: 0 };
    node.engine.target.regions().add(Region::owned(1, attr).unwrap()).unwrap();
    node.frame(LINK, &rma_header(1, 0, 1, WRITE), b"x");
    node.pass_with_frame(LINK, &rma_header(2, 0, 1, RmaKind::Read), b"");
    assert_eq!(sent_answers(&node.transport), [(1, Outcome::Refused(Refusal::Access)), (2, Outcome::Done)]);
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

#[test]
fn region_closed_during_read_is_not_read_further() {
    let (mut node, _) = engine_with_region(1);
    let mut memory = vec![b'a'; 20];
    let attr = RegionAttr { key: 1, access: ANYTHING, base_address: 0 };
    let region = node.engine.target.regions().add(raw_region(&mut memory, attr).unwrap()).unwrap();
    let read = Header::Rma(Rma {
        op: 5,
        key: 1,
        address: 0,
        len_bytes: 20,
        kind: RmaKind::Read,
        durable: Durable::Nothing,
    });
    node.frame(LINK, &read, b"");
    node.transport.answers = [Sent::Partial(4)].into();
    node.transmit();
    node.engine.target.regions().close(&region);
    memory.fill(b'b');
    node.transmit();
    assert_eq!(node.transport.sent[0].2, [&[b'a'; 4][..], &[0; 16]].concat());
    assert_eq!(sent_answers(&node.transport), [(5, Outcome::Refused(Refusal::Key))]);
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
                let attr = RegionAttr { key: KEY, access: ANYTHING, base_address: 0 };
                region = node.engine.target.regions().add(raw_region(&mut memory, attr).unwrap()).unwrap();
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
            let attr = RegionAttr { key: KEY, access: ANYTHING, base_address: 0 };
            region = node.engine.target.regions().add(raw_region(&mut memory, attr).unwrap()).unwrap();
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
    node.sink.room = 1;
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
    node.sink.room = usize::MAX;
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
fn write_ends_with_its_answer() {
    let (mut node, peer) = engine_with_peer();
    node.post(rma_request(peer, write_local(b"small"), 1));
    let op = last_sent_op(&node.transport);
    let sent = rma_header(op, 3, 5, WRITE);
    assert_eq!(node.transport.sent, [(LINK, sent, b"small".to_vec())]);
    assert!(node.sink.ended.is_empty() && node.outstanding_transmits() == 1);
    node.frame(LINK, &Header::Answer { op, outcome: Outcome::Done }, b"");
    let completion = node.take_ended().remove(0).unwrap();
    assert_eq!((completion.context, completion.flags), (1, CompletionFlags::RMA | CompletionFlags::WRITE));
    assert_eq!(completion.len_bytes, 5);
    assert_eq!(completion.buffer, Buffer::Sent(Bytes::from_static(b"small")));

    for (refusal, errno) in [
        (Refusal::Key, Errno::EKEYREJECTED),
        (Refusal::Access, Errno::EACCES),
        (Refusal::Range, Errno::EINVAL),
    ] {
        node.post(rma_request(peer, write_local(b"refused"), 2).signalled(Signalled::No));
        let answer = Header::Answer { op: last_sent_op(&node.transport), outcome: Outcome::Refused(refusal) };
        node.frame(LINK, &answer, b"");
        let failure = node.take_ended().remove(0).unwrap_err();
        assert_eq!((failure.error.errno(), failure.completion.context), (errno, 2));
    }
    assert!(node.outstanding_transmits() == 0 && node.engine.condemned.is_empty());
}

#[test]
fn injected_write_is_copied_and_reports_no_success() {
    for answer in [Sent::Full, Sent::Partial(2), Sent::Whole] {
        let (mut node, peer) = engine_with_peer();
        let mut bytes = *b"more than inline";
        let segment = Segment { address: bytes.as_ptr(), len_bytes: bytes.len() };
        #[expect(unsafe_code, reason = "the raw tier is what injection is about")]
        // SAFETY: the engine copies injected memory before `post_request` returns.
        let source = unsafe { Source::raw(&[segment]) }.unwrap();
        node.transport.answers = [answer].into();
        let local = RmaLocal::Write { source, data: None };
        node.post(rma_request(peer, local, 0).inject(true).signalled(Signalled::No));
        bytes.fill(0);
        node.transmit();
        assert_eq!(node.transport.sent[0].2, b"more than inline");
        let done = Header::Answer { op: last_sent_op(&node.transport), outcome: Outcome::Done };
        node.frame(LINK, &done, b"");
        assert!(
            node.sink.ended.is_empty()
                && node.outstanding_transmits() == 0
                && node.engine.condemned.is_empty()
        );
    }
}

#[test]
fn long_write_is_offered_and_sent_on_request() {
    for (asks, outcome) in [(false, Outcome::Done), (true, Outcome::Done), (false, Outcome::Fault)] {
        let (mut node, peer) = engine_with_peer();
        node.transport.pull_min_bytes = Some(10);
        node.post(rma_request(peer, write_local(b"0123456789"), 1));
        let op = last_sent_op(&node.transport);
        let kind = RmaKind::Offer { data: None, remote_bytes: REMOTE.len() as u8 };
        assert_eq!(node.transport.sent[0].1, rma_header(op, 3, 10, kind));
        assert_eq!(node.transport.exposed, [(LINK, b"0123456789".to_vec())]);
        if asks {
            node.pass_with_frame(LINK, &Header::Clear { op, cannot_pull: true }, b"");
            assert_eq!(node.transport.sent[1].1, Header::Data { op, len_bytes: 10 });
            assert_eq!(node.transport.sent[1].2, b"0123456789");
        }
        assert!(node.sink.ended.is_empty());
        node.frame(LINK, &Header::Answer { op, outcome }, b"");
        assert_eq!(node.ended_contexts(), [1]);
        // Once the peer has said that it cannot pull, the engine exposes no more memory.
        node.post(rma_request(peer, write_local(b"0123456789"), 2));
        assert_eq!(node.transport.exposed.len(), 1 + usize::from(!asks));
    }
}

#[test]
fn read_ends_with_its_last_byte() {
    let (mut node, peer) = engine_with_peer();
    node.post(rma_request(peer, read_local(6), 1));
    let op = last_sent_op(&node.transport);
    node.frame(LINK, &Header::ReadData { op, len_bytes: 2 }, b"ab");
    node.frame_begun(LINK, &Header::ReadData { op, len_bytes: 4 });
    node.payload_arrived(LINK, b"c");
    node.arrivals().payload_space(LINK)[0].copy_from_slice(b"def");
    node.arrivals().bytes_placed(LINK, 3);
    node.frame(LINK, &Header::Answer { op, outcome: Outcome::Done }, b"");
    let completion = node.take_ended().remove(0).unwrap();
    assert_eq!(completion.flags, CompletionFlags::RMA | CompletionFlags::READ);
    assert_eq!(completion.buffer, Buffer::Received(BytesMut::from(&b"abcdef"[..])));

    // A read of no bytes gets only an answer.
    node.post(rma_request(peer, read_local(0), 2));
    let op = last_sent_op(&node.transport);
    node.frame(LINK, &Header::Answer { op, outcome: Outcome::Done }, b"");
    assert_eq!(node.ended_contexts(), [2]);
}

#[test]
fn accesses_keep_queue_order_and_fence_waits_for_answers() {
    let (mut node, peer) = engine_with_peer();
    node.transport.answers = [Sent::Partial(1), Sent::Full].into();
    node.post(rma_request(peer, write_local(b"ten bytes."), 1));
    node.post(send_request(peer, b"m", 2));
    node.post(rma_request(peer, read_local(1), 3));
    node.post(rma_request(peer, write_local(b"!"), 4).fence(true));
    node.post(send_request(peer, b"n", 5));
    node.transmit_times(5);
    let kinds = |transport: &Scripted| -> Vec<&str> {
        let kind = |header: &Header| match header {
            Header::Message(_) => "message",
            Header::Rma(Rma { kind: RmaKind::Read, .. }) => "read",
            Header::Rma(_) => "write",
            _ => "other",
        };
        transport.sent.iter().map(|(_, header, _)| kind(header)).collect()
    };
    assert_eq!(kinds(&node.transport), ["write", "message", "read"]);
    let ops: Vec<u64> = node
        .transport
        .sent
        .iter()
        .filter_map(|(_, header, _)| if let Header::Rma(rma) = header { Some(rma.op) } else { None })
        .collect();
    node.pass_with_frame(LINK, &Header::Answer { op: ops[0], outcome: Outcome::Done }, b"");
    assert_eq!(kinds(&node.transport).len(), 3, "the read has no answer");
    node.frame(LINK, &Header::ReadData { op: ops[1], len_bytes: 1 }, b"x");
    node.pass_with_frame(LINK, &Header::Answer { op: ops[1], outcome: Outcome::Done }, b"");
    assert_eq!(kinds(&node.transport), ["write", "message", "read", "write", "message"]);
}

#[test]
fn accesses_in_flight_are_limited() {
    let (mut node, peer) = engine_with_peer();
    for context in 0..=RMA_LINK_MAX_OPS as u64 {
        node.post(rma_request(peer, write_local(b"x"), context));
    }
    node.transmit();
    assert_eq!(node.transport.sent.len(), RMA_LINK_MAX_OPS);
    let Header::Rma(first) = node.transport.sent[0].1 else { panic!("a write") };
    node.pass_with_frame(LINK, &Header::Answer { op: first.op, outcome: Outcome::Done }, b"");
    assert_eq!(node.transport.sent.len(), RMA_LINK_MAX_OPS + 1);
}

#[test]
fn waiting_access_is_cancellable_and_sent_one_fails_with_its_link() {
    let (mut node, peer) = engine_with_peer();
    node.transport.answers = [Sent::Whole, Sent::Full].into();
    node.post(rma_request(peer, read_local(4), 1));
    node.post(rma_request(peer, write_local(b"x"), 2));
    assert!(node.cancel(1).is_err());
    node.cancel(2).unwrap();
    node.frame_begun(LINK, &Header::ReadData { op: last_sent_op(&node.transport), len_bytes: 4 });
    node.link_down(LINK, RESET);
    let errors: Vec<_> =
        node.take_ended().into_iter().map(|ended| ended.unwrap_err().error.errno()).collect();
    assert_eq!(errors, [Errno::ECANCELED, Errno::ECONNRESET]);
}

#[test]
fn invalid_answer_to_access_ends_the_link() {
    type Headers = fn(u64) -> Vec<Header>;
    fn done_answer(op: u64) -> Header {
        Header::Answer { op, outcome: Outcome::Done }
    }
    fn fault_answer(op: u64) -> Header {
        Header::Answer { op, outcome: Outcome::Fault }
    }
    fn read_data_header(op: u64, len_bytes: u64) -> Header {
        Header::ReadData { op, len_bytes }
    }
    let cases: [(RmaLocal, Headers); 8] = [
        (write_local(b"x"), |op| vec![done_answer(op + 1)]),
        (write_local(b"x"), |op| vec![fault_answer(op)]),
        (write_local(b"x"), |op| vec![read_data_header(op, 1)]),
        (write_local(b"x"), |op| vec![Header::Done { op, fault: false }]),
        (write_local(b"x"), |op| vec![done_answer(op), done_answer(op)]),
        (read_local(2), |op| vec![done_answer(op)]),
        (read_local(2), |op| vec![read_data_header(op, 1), read_data_header(op, 2)]),
        (read_local(2), |op| vec![Header::Clear { op, cannot_pull: false }]),
    ];
    for (local, headers) in cases {
        let (mut node, peer) = engine_with_peer();
        node.post(rma_request(peer, local, 1));
        for header in headers(last_sent_op(&node.transport)) {
            let payload = vec![b'x'; header.payload_len_bytes() as usize];
            node.frame(LINK, &header, &payload);
        }
        node.transmit();
        assert_eq!(node.transport.closed, [(LINK, Close::Abort)]);
        assert_eq!(node.ended_contexts(), [1]);
    }
}

#[test]
fn read_answer_without_room_is_copied_once() {
    let (mut node, region) = engine_with_region(10);
    region.write_at(0, b"first").unwrap();
    node.frame(LINK, &rma_header(5, 0, 5, RmaKind::Read), b"");
    node.transport.answers = [Sent::Full, Sent::Full].into();
    node.transmit();
    region.write_at(0, b"later").unwrap();
    node.transmit();
    node.transmit();
    let (_, header, bytes) = &node.transport.sent[0];
    assert_eq!((header, &bytes[..]), (&Header::ReadData { op: 5, len_bytes: 5 }, &b"first"[..]));
    assert_eq!(sent_answers(&node.transport), [(5, Outcome::Done)]);
}
