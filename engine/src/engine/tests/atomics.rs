//! Atomic operations, from both sides.

use std::sync::Arc;

use super::*;

const ANYTHING: MrAccess = MrAccess::REMOTE_READ.union(MrAccess::REMOTE_WRITE);

/// Returns an engine with a peer, and with a region of this length.
fn engine_with_region(len_bytes: usize, access: MrAccess) -> (Node, Arc<Region>) {
    let (node, _) = engine_with_peer();
    let attr = RegionAttr { key: KEY, access, base_address: 0 };
    let region = node.engine.target.regions().add(Region::owned(len_bytes, attr).unwrap()).unwrap();
    (node, region)
}

fn atomic_form(kind: AtomicKind, op: AtomicOp, datatype: Datatype, count: usize) -> AtomicForm {
    AtomicForm::new(kind, op, datatype, count).unwrap()
}

fn atomic_header(op: u64, address: u64, form: AtomicForm) -> Header {
    Header::Atomic(Atomic { op, key: KEY, address, form })
}

fn static_source(bytes: &'static [u8]) -> Source {
    Source::owned(Bytes::from_static(bytes))
}

pub(super) fn base_local(bytes: &'static [u8]) -> AtomicLocal {
    AtomicLocal::Base { operand: static_source(bytes) }
}

pub(super) fn fetch_local(bytes: &'static [u8]) -> AtomicLocal {
    AtomicLocal::Fetch { operand: static_source(bytes), result: zeroed_destination(bytes.len()) }
}

fn compare_local(bytes: &'static [u8], compare: &'static [u8]) -> AtomicLocal {
    AtomicLocal::Compare {
        operand: static_source(bytes),
        compare: static_source(compare),
        result: zeroed_destination(bytes.len()),
    }
}

fn zeroed_destination(len_bytes: usize) -> Destination {
    Destination::owned(BytesMut::zeroed(len_bytes))
}

pub(super) fn atomic_request(to: PeerId, local: AtomicLocal, op: AtomicOp, context: u64) -> AddressedRequest {
    let memory = RemoteMemory { key: KEY, address: 3 };
    let op = TransmitOp::Atomic { local, memory, op, datatype: Datatype::Uint8 };
    AddressedRequest::new(to, op, context)
}

fn last_sent_op(transport: &Scripted) -> u64 {
    match transport.sent.last() {
        Some((_, Header::Atomic(atomic), _)) => atomic.op,
        other => panic!("no atomic operation was sent last: {other:?}"),
    }
}

/// Returns the answers that were sent.
fn sent_answers(transport: &Scripted) -> Vec<(u64, Result<Vec<u8>, Outcome>)> {
    let answer = |(_, header, payload): &(LinkId, Header, Vec<u8>)| match header {
        Header::Answer { op, outcome } => Some((*op, Err(*outcome))),
        Header::ReadData { op, .. } => Some((*op, Ok(payload.clone()))),
        _ => None,
    };
    transport.sent.iter().filter_map(answer).collect()
}

#[test]
fn atomics_update_elements_and_answer_with_fetched_values() {
    let (mut node, region) = engine_with_region(8, ANYTHING);
    region.write_at(0, &[1, 2, 3, 4, 5, 6, 7, 8]).unwrap();
    let (sum, swap) = (AtomicOp::Sum, AtomicOp::Cswap);
    node.frame(
        LINK,
        &atomic_header(1, 1, atomic_form(AtomicKind::Base, sum, Datatype::Uint8, 2)),
        &[10, 255],
    );
    node.frame(LINK, &atomic_header(2, 1, atomic_form(AtomicKind::Fetch, sum, Datatype::Uint8, 2)), &[1, 1]);
    let read = atomic_form(AtomicKind::Fetch, AtomicOp::Read, Datatype::Uint16, 4);
    node.frame(LINK, &atomic_header(3, 0, read), b"");
    // This operation arrives piece by piece. Its second compare operand differs from the element.
    node.frame_begun(LINK, &atomic_header(4, 5, atomic_form(AtomicKind::Compare, swap, Datatype::Uint8, 2)));
    assert!(node.arrivals().payload_space(LINK).is_empty(), "nothing is updated in part");
    for byte in [60, 70, 6, 9] {
        node.payload_arrived(LINK, &[byte]);
    }
    assert_eq!(read_region(&region), [1, 13, 3, 4, 5, 60, 7, 8]);
    node.transmit();
    let expected = [
        (1, Err(Outcome::Done)),
        (2, Ok(vec![12, 2])),
        (3, Ok(vec![1, 13, 3, 4, 5, 6, 7, 8])),
        (4, Ok(vec![6, 7])),
    ];
    assert_eq!(sent_answers(&node.transport), expected);
    assert!(node.sink.ended.is_empty(), "the target hears nothing of it");
    assert!(!node.has_unsent());
}

#[test]
fn atomic_without_access_rights_is_refused_and_changes_nothing() {
    let refused = |access, remote_atomics, header: Header| {
        let (mut node, region) = engine_with_region(8, access);
        node.engine.target.set_atomic_access(remote_atomics);
        let payload = vec![1; header.payload_len_bytes() as usize];
        node.pass_with_frame(LINK, &header, &payload);
        assert!(node.transport.closed.is_empty());
        match &sent_answers(&node.transport)[..] {
            [(5, Err(Outcome::Refused(refusal)))] => {
                assert_eq!(read_region(&region), [0; 8]);
                Some(*refusal)
            }
            [(5, _)] => None,
            other => panic!("{other:?}"),
        }
    };
    let of = |kind, op| atomic_header(5, 0, atomic_form(kind, op, Datatype::Uint32, 2));
    let (read, write) = (MrAccess::REMOTE_READ, MrAccess::REMOTE_WRITE);
    let is_refused = Some(Refusal::Access);
    for (header, needed) in [
        (of(AtomicKind::Base, AtomicOp::Sum), write),
        (of(AtomicKind::Fetch, AtomicOp::Sum), read | write),
        (of(AtomicKind::Fetch, AtomicOp::Read), read),
        (of(AtomicKind::Compare, AtomicOp::Cswap), read | write),
    ] {
        for access in [MrAccess::empty(), read, write, read | write] {
            let expected = if access.contains(needed) { None } else { is_refused };
            // A region that gives peers no rights has no key.
            let of_region = if access.is_empty() { Some(Refusal::Key) } else { expected };
            assert_eq!(refused(access, ANYTHING, header), of_region, "{header:?} of a region of {access:?}");
            assert_eq!(refused(ANYTHING, access, header), expected, "{header:?} by way of {access:?}");
        }
    }
    let sum = atomic_form(AtomicKind::Base, AtomicOp::Sum, Datatype::Uint32, 2);
    for address in [1, 8, u64::MAX] {
        assert_eq!(refused(ANYTHING, ANYTHING, atomic_header(5, address, sum)), Some(Refusal::Range));
    }
    let unknown = Header::Atomic(Atomic { op: 5, key: KEY + 1, address: 0, form: sum });
    assert_eq!(refused(ANYTHING, ANYTHING, unknown), Some(Refusal::Key));
}

#[test]
fn atomic_on_no_elements_ignores_its_target() {
    for (kind, op) in [
        (AtomicKind::Base, AtomicOp::Sum),
        (AtomicKind::Fetch, AtomicOp::Sum),
        (AtomicKind::Fetch, AtomicOp::Read),
        (AtomicKind::Compare, AtomicOp::Cswap),
    ] {
        let (mut node, region) = engine_with_region(8, MrAccess::empty());
        let form = atomic_form(kind, op, Datatype::Uint32, 0);
        for (op, key, address) in [(1, KEY, 0), (2, KEY, 9), (3, KEY + 1, 0)] {
            let header = Header::Atomic(Atomic { op, key, address, form });
            node.frame(LINK, &header, b"");
        }
        node.transmit();
        let done = Err(Outcome::Done);
        assert_eq!(sent_answers(&node.transport), [(1, done.clone()), (2, done.clone()), (3, done)]);
        assert_eq!(read_region(&region), [0; 8]);
        assert!(!node.has_unsent() && node.engine.condemned.is_empty());
        assert_eq!(node.engine.target.unanswered_counts(LINK), (0, 0));
        // An endpoint that allows no atomic operations refuses even an operation on no elements.
        node.engine.target.set_atomic_access(MrAccess::empty());
        node.pass_with_frame(LINK, &atomic_header(4, 0, form), b"");
        assert_eq!(sent_answers(&node.transport).last(), Some(&(4, Err(Outcome::Refused(Refusal::Access)))));
    }
}

#[test]
fn region_closed_while_operands_arrive_is_unchanged() {
    let (mut node, region) = engine_with_region(8, ANYTHING);
    let header = atomic_header(5, 0, atomic_form(AtomicKind::Fetch, AtomicOp::Sum, Datatype::Uint8, 2));
    node.frame_begun(LINK, &header);
    node.payload_arrived(LINK, b"x");
    node.engine.target.regions().close(&region);
    node.payload_arrived(LINK, b"y");
    node.transmit();
    assert_eq!(sent_answers(&node.transport), [(5, Err(Outcome::Refused(Refusal::Key)))]);
    assert_eq!(read_region(&region), [0; 8]);
    // Results that were fetched before the region was closed are still sent.
    let (mut node, region) = engine_with_region(8, ANYTHING);
    node.frame(LINK, &header, b"xy");
    node.engine.target.regions().close(&region);
    node.transmit();
    assert_eq!(sent_answers(&node.transport), [(5, Ok(vec![0, 0]))]);
}

#[test]
fn atomic_results_resume_after_partial_sends() {
    let (mut node, _) = engine_with_region(100, ANYTHING);
    let peer = node.engine.intern_peer(address(2));
    let header =
        |op| atomic_header(op, 0, atomic_form(AtomicKind::Fetch, AtomicOp::Read, Datatype::Uint8, 50));
    node.frame(LINK, &header(5), b"");
    node.frame(LINK, &header(6), b"");
    node.transport.answers = [Sent::Full, Sent::Partial(10), Sent::Full, Sent::Partial(7)].into();
    node.transmit_times(2);
    node.post(send_request(peer, b"m", 1));
    node.transmit_times(4);
    assert_eq!(sent_answers(&node.transport), [(5, Ok(vec![0; 50])), (6, Ok(vec![0; 50]))]);
    assert!(node.sent_since(0).contains(&untagged_header(1)) && !node.has_unsent());
    assert_eq!(node.engine.target.unanswered_counts(LINK).1, 0);
}

#[test]
fn peer_that_leaves_fetched_values_unread_is_disconnected() {
    let (mut node, _) = engine_with_region(ATOMIC_MAX_BYTES, ANYTHING);
    let header = |op, count| {
        atomic_header(op, 0, atomic_form(AtomicKind::Fetch, AtomicOp::Read, Datatype::Uint8, count))
    };
    for op in 0..(ATOMIC_LINK_MAX_BYTES / ATOMIC_MAX_BYTES) as u64 {
        node.frame(LINK, &header(op, ATOMIC_MAX_BYTES), b"");
    }
    assert!(node.engine.condemned.is_empty());
    // When the link takes one result, there is room for one more.
    node.transport.answers = [Sent::Whole, Sent::Full, Sent::Full, Sent::Full].into();
    node.transmit();
    node.frame(LINK, &header(99, ATOMIC_MAX_BYTES), b"");
    assert!(node.engine.condemned.is_empty());
    node.pass_with_frame(LINK, &header(100, 1), b"");
    assert_eq!(node.transport.closed, [(LINK, Close::Abort)]);

    // The limit of unanswered operations also counts operations that fetch nothing or are refused.
    let (mut node, _) = engine_with_region(8, ANYTHING);
    let kinds = [atomic_form(AtomicKind::Base, AtomicOp::Sum, Datatype::Uint8, 1)];
    for op in 0..=RMA_LINK_MAX_OPS as u64 {
        assert!(node.engine.condemned.is_empty());
        node.frame(LINK, &atomic_header(op, op % 2 * 100, kinds[0]), b"x");
    }
    node.transmit();
    assert_eq!(node.transport.closed, [(LINK, Close::Abort)]);
}

#[test]
fn fetched_result_completes_with_operand_and_compare_buffers() {
    let (mut node, peer) = engine_with_peer();
    let flags = CompletionFlags::ATOMIC | CompletionFlags::READ;
    let sent = |bytes: &'static [u8]| Buffer::Sent(Bytes::from_static(bytes));
    let received = |bytes: &'static [u8]| Buffer::Received(BytesMut::from(bytes));
    for (context, local, op, payload, operand, compared) in [
        (1, fetch_local(b"ab"), AtomicOp::Sum, &b"ab"[..], sent(b"ab"), Buffer::None),
        (2, fetch_local(b"no"), AtomicOp::Read, b"", sent(b"no"), Buffer::None),
        (3, compare_local(b"ab", b"cd"), AtomicOp::Cswap, b"abcd", sent(b"ab"), sent(b"cd")),
    ] {
        node.post(atomic_request(peer, local, op, context));
        assert_eq!(node.transport.sent.last().unwrap().2, payload);
        let op = last_sent_op(&node.transport);
        let data = Header::ReadData { op, len_bytes: 2 };
        if context == 1 {
            node.frame(LINK, &data, b"xy");
        } else {
            node.frame_begun(LINK, &data);
            node.payload_arrived(LINK, b"x");
            node.arrivals().payload_space(LINK)[0].copy_from_slice(b"y");
            node.arrivals().bytes_placed(LINK, 1);
        }
        let completion = node.take_ended().remove(0).unwrap();
        assert_eq!((completion.context, completion.flags), (context, flags));
        let fetched = completion.buffer.into_fetched().unwrap();
        assert_eq!((fetched.result, fetched.operand, fetched.compare), (received(b"xy"), operand, compared));
    }
    // A failed operation has fetched nothing.
    node.post(atomic_request(peer, compare_local(b"ab", b"cd"), AtomicOp::Cswap, 4));
    let answer =
        Header::Answer { op: last_sent_op(&node.transport), outcome: Outcome::Refused(Refusal::Access) };
    node.frame(LINK, &answer, b"");
    let failure = node.take_ended().remove(0).unwrap_err();
    assert_eq!((failure.error.errno(), failure.completion.flags), (Errno::EACCES, flags));
    let fetched = failure.completion.buffer.into_fetched().unwrap();
    assert_eq!((fetched.result, fetched.compare), (received(b""), sent(b"cd")));
    let link = node.engine.links.get_mut(LINK).unwrap();
    assert_eq!(link.tx.outstanding_accesses(), (0, 0));
}

#[test]
fn partly_sent_operands_resume_from_memory_or_copy() {
    for inject in [false, true] {
        let (mut node, peer) = engine_with_peer();
        let (mut operand, mut compared) = (*b"0123456789", *b"abcdefghij");
        let segments = |bytes: &[u8]| {
            [
                Segment { address: bytes.as_ptr(), len_bytes: 4 },
                Segment { address: bytes[4..].as_ptr(), len_bytes: 6 },
            ]
        };
        #[expect(unsafe_code, reason = "the raw tier is what injection is about")]
        // SAFETY: the engine copies injected memory before `post_request` returns, and has sent all
        // other memory before the test changes it.
        let local = unsafe {
            AtomicLocal::Compare {
                operand: Source::raw(&segments(&operand)).unwrap(),
                compare: Source::raw(&segments(&compared)).unwrap(),
                result: zeroed_destination(10),
            }
        };
        node.transport.answers = [Sent::Partial(7), Sent::Full, Sent::Partial(5)].into();
        node.post(atomic_request(peer, local, AtomicOp::Cswap, 1).inject(inject));
        let op = last_sent_op(&node.transport);
        if inject {
            (operand, compared) = ([0; 10], [0; 10]);
        }
        node.post(send_request(peer, b"m", 2));
        node.transmit_times(3);
        assert_eq!(node.transport.sent[0].2, b"0123456789abcdefghij", "injected: {inject}");
        assert_eq!(node.sent_since(1), [untagged_header(1)], "the message waits for its turn");
        assert_eq!((operand[0], compared[0]), if inject { (0, 0) } else { (b'0', b'a') });
        node.frame(LINK, &Header::ReadData { op, len_bytes: 10 }, &[7; 10]);
        assert_eq!(node.ended_contexts(), [2, 1]);
        assert!(node.engine.condemned.is_empty());
    }
}

#[test]
fn short_segmented_operands_are_sent_at_once() {
    let (mut node, peer) = engine_with_peer();
    let pieces = vec![Bytes::from_static(b"a"), Bytes::from_static(b"bc")];
    let local = AtomicLocal::Base { operand: Source::owned_vector(pieces.clone()).unwrap() };
    node.post(atomic_request(peer, local, AtomicOp::Sum, 1));
    assert_eq!(node.transport.sent[0].2, b"abc");
    let done = Header::Answer { op: last_sent_op(&node.transport), outcome: Outcome::Done };
    node.frame(LINK, &done, b"");
    assert_eq!(node.take_ended().remove(0).unwrap().buffer, Buffer::SentVector(pieces));
}

#[test]
fn invalid_atomic_is_refused_with_its_buffers() {
    let (mut node, peer) = engine_with_peer();
    let mut refused = |request: AddressedRequest| {
        let rejected = node.try_post(request).unwrap_err();
        (rejected.errno(), rejected.returned)
    };
    let (sum, swap) = (AtomicOp::Sum, AtomicOp::Cswap);
    let (errno, buffer) = refused(atomic_request(peer, base_local(b"ab"), swap, 1));
    assert_eq!((errno, buffer), (Errno::EOPNOTSUPP, Buffer::Sent(Bytes::from_static(b"ab"))));
    assert_eq!(refused(atomic_request(peer, base_local(b"ab"), AtomicOp::Read, 1)).0, Errno::EOPNOTSUPP);
    assert_eq!(refused(atomic_request(peer, compare_local(b"a", b"b"), sum, 1)).0, Errno::EOPNOTSUPP);
    let complex =
        atomic_request(peer, base_local(b"01234567"), AtomicOp::Max, 1).datatype(Datatype::FloatComplex);
    assert_eq!(refused(complex).0, Errno::EOPNOTSUPP);
    let part = atomic_request(peer, base_local(b"abc"), sum, 1).datatype(Datatype::Uint16);
    assert_eq!(refused(part).0, Errno::EINVAL);
    let (errno, buffer) = refused(atomic_request(peer, compare_local(b"ab", b"c"), swap, 1));
    let fetched = buffer.into_fetched().unwrap();
    assert_eq!((errno, fetched.compare), (Errno::EINVAL, Buffer::Sent(Bytes::from_static(b"c"))));
    let short = AtomicLocal::Fetch { operand: static_source(b"ab"), result: zeroed_destination(1) };
    assert_eq!(refused(atomic_request(peer, short, sum, 1)).0, Errno::EINVAL);
    let long: &'static [u8] = &[1; ATOMIC_MAX_BYTES + 1];
    assert_eq!(refused(atomic_request(peer, fetch_local(long), sum, 1)).0, Errno::EMSGSIZE);
    node.engine.config.tx_depth_ops = 0;
    let rejected = node.try_post(atomic_request(peer, fetch_local(b"ab"), sum, 1));
    assert_eq!(rejected.unwrap_err().errno(), Errno::EAGAIN);
    assert!(node.transport.sent.is_empty() && node.sink.ended.is_empty());
}

#[test]
fn atomics_keep_queue_order_and_fences_wait_for_them() {
    let (mut node, peer) = engine_with_peer();
    node.transport.answers = [Sent::Full].into();
    node.post(atomic_request(peer, fetch_local(b"a"), AtomicOp::Sum, 1));
    node.post(send_request(peer, b"m", 2));
    node.post(atomic_request(peer, base_local(b"b"), AtomicOp::Sum, 3).fence(true));
    node.post(send_request(peer, b"n", 4));
    node.transmit_times(3);
    assert_eq!(node.transport.sent.len(), 2, "the fence holds");
    let Header::Atomic(Atomic { op, .. }) = node.transport.sent[0].1 else { panic!("not the first") };
    assert_eq!(node.transport.sent[1].1, untagged_header(1));
    node.frame(LINK, &Header::ReadData { op, len_bytes: 1 }, b"x");
    node.transmit_times(2);
    let op = match node.transport.sent[2].1 {
        Header::Atomic(Atomic { op, .. }) => op,
        other => panic!("{other:?}"),
    };
    assert_eq!(node.transport.sent[3].1, untagged_header(1));
    node.frame(LINK, &Header::Answer { op, outcome: Outcome::Done }, b"");
    assert_eq!(node.ended_contexts(), [2, 1, 4, 3]);
}

#[test]
fn fetching_atomics_in_flight_are_limited() {
    static LONG: [u8; ATOMIC_MAX_BYTES] = [1; ATOMIC_MAX_BYTES];
    let (mut node, peer) = engine_with_peer();
    let count = ATOMIC_LINK_MAX_BYTES / ATOMIC_MAX_BYTES;
    for context in 0..=count as u64 {
        let request = atomic_request(peer, fetch_local(&LONG), AtomicOp::Sum, context);
        node.post(request);
    }
    node.transmit();
    assert_eq!(node.transport.sent.len(), count);
    let Header::Atomic(first) = node.transport.sent[0].1 else { panic!("an atomic operation") };
    let data = Header::ReadData { op: first.op, len_bytes: ATOMIC_MAX_BYTES as u64 };
    node.pass_with_frame(LINK, &data, &LONG);
    assert_eq!(node.transport.sent.len(), count + 1);

    let (mut node, peer) = engine_with_peer();
    for context in 0..=RMA_LINK_MAX_OPS as u64 {
        node.post(atomic_request(peer, base_local(b"x"), AtomicOp::Sum, context));
    }
    assert_eq!(node.transport.sent.len(), RMA_LINK_MAX_OPS);
}

#[test]
fn invalid_answer_to_atomic_ends_the_link() {
    type Headers = fn(u64) -> Vec<Header>;
    fn done_answer(op: u64) -> Header {
        Header::Answer { op, outcome: Outcome::Done }
    }
    fn read_data_header(op: u64, len_bytes: u64) -> Header {
        Header::ReadData { op, len_bytes }
    }
    let cases: [(AtomicLocal, Headers); 10] = [
        (base_local(b"xy"), |op| vec![done_answer(op + 1)]),
        (base_local(b"xy"), |op| vec![Header::Answer { op, outcome: Outcome::Fault }]),
        (base_local(b"xy"), |op| vec![read_data_header(op, 2)]),
        (base_local(b"xy"), |op| vec![Header::Clear { op, cannot_pull: false }]),
        (base_local(b"xy"), |op| vec![Header::Done { op, fault: false }]),
        (base_local(b"xy"), |op| vec![done_answer(op), done_answer(op)]),
        (fetch_local(b"xy"), |op| vec![done_answer(op)]),
        (fetch_local(b"xy"), |op| vec![read_data_header(op, 1)]),
        (fetch_local(b"xy"), |op| vec![read_data_header(op, 3)]),
        (fetch_local(b"xy"), |op| vec![read_data_header(op, 2), done_answer(op)]),
    ];
    for (local, headers) in cases {
        let (mut node, peer) = engine_with_peer();
        node.post(atomic_request(peer, local, AtomicOp::Sum, 1));
        for header in headers(last_sent_op(&node.transport)) {
            let payload = vec![b'x'; header.payload_len_bytes() as usize];
            node.frame(LINK, &header, &payload);
        }
        node.transmit();
        assert_eq!(node.transport.closed, [(LINK, Close::Abort)]);
        assert_eq!(node.ended_contexts(), [1]);
    }
    // An answer before the link has taken all operands breaks the protocol.
    let (mut node, peer) = engine_with_peer();
    node.transport.answers = [Sent::Partial(3)].into();
    let long = fetch_local(b"more than inline");
    node.post(atomic_request(peer, long, AtomicOp::Sum, 1));
    let early = read_data_header(last_sent_op(&node.transport), 16);
    node.pass_with_frame(LINK, &early, b"more than inline");
    assert_eq!(node.transport.closed, [(LINK, Close::Abort)]);
}
