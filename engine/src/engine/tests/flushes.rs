//! Tests of flushes, from both sides, with a device that records what is made durable.

use super::durability::{Device, add_persistent_region, write_header};
use super::*;

mod parts;

pub(super) fn flush_request(to: PeerId, kind: FlushKind, len_bytes: u64, context: u64) -> AddressedRequest {
    let memory = RemoteMemory { key: KEY, address: 3 };
    AddressedRequest::new(to, TransmitOp::Flush { kind, memory, len_bytes }, context)
}

/// A flush of a region that begins at the address 1000.
fn flush_header(op: u64, key: u64, place: u64, len_bytes: u64, durable: Durable) -> Header {
    Header::Rma(Rma { op, key, address: 1000 + place, len_bytes, kind: RmaKind::Flush, durable })
}

/// Returns the number of the flush that was sent last, and checks the rest of its header.
fn last_flush_op(transport: &Scripted, len_bytes: u64, durable: Durable) -> u64 {
    let Some((_, Header::Rma(rma), payload)) = transport.sent.last() else { panic!("no access was sent") };
    let expected = Rma { op: rma.op, key: KEY, address: 3, len_bytes, kind: RmaKind::Flush, durable };
    assert_eq!((*rma, &payload[..]), (expected, &b""[..]));
    rma.op
}

fn add_volatile_region(engine: &Engine, key: u64, access: MrAccess) -> Arc<Region> {
    let attr = RegionAttr { key, access, base_address: 1000 };
    engine.target.regions().add(Region::owned(100, attr).unwrap()).unwrap()
}

#[test]
fn persistent_flush_makes_its_range_durable_and_nothing_else() {
    let (mut node, _) = engine_with_peer();
    let (_region, device) = add_persistent_region(&node.engine, KEY);
    let (_other, other_device) = add_persistent_region(&node.engine, KEY + 1);
    for (op, key) in [(1, KEY), (2, KEY + 1)] {
        node.frame(LINK, &write_header(op, key, 0, 4, Durable::Nothing), b"abcd");
    }
    // The peer has not written to this range through this endpoint.
    node.frame(LINK, &flush_header(3, KEY, 20, 70, Durable::Written), b"");
    assert_eq!((device.take_persisted(), other_device.take_persisted()), (vec![(20, 70)], vec![]));
    node.frame_begun(LINK, &flush_header(4, KEY, 100, 0, Durable::Written));
    node.frame(LINK, &flush_header(4, KEY, 100, 0, Durable::Written), b"");
    assert_eq!(device.take_persisted(), [], "a range of no bytes");
    node.transmit();
    assert_eq!(sent_answers(&node.transport), [1, 2, 3, 4].map(|op| (op, Outcome::Done)));
    assert_eq!(node.sink.counted, [(CounterEvents::REMOTE_WRITE, true); 2], "a flush is no access to count");
}

#[test]
fn visibility_flush_makes_nothing_durable() {
    let (mut node, _) = engine_with_peer();
    let (_region, device) = add_persistent_region(&node.engine, KEY);
    node.frame(LINK, &write_header(1, KEY, 0, 4, Durable::Nothing), b"abcd");
    node.frame(LINK, &flush_header(2, KEY, 0, 100, Durable::Nothing), b"");
    assert_eq!(device.take_persisted(), []);
    // The write is still one that a fenced commit has to make durable.
    node.frame(LINK, &write_header(3, KEY, 9, 0, Durable::Everything), b"");
    assert_eq!(device.take_persisted(), [(0, 4)]);
    node.transmit();
    assert_eq!(sent_answers(&node.transport), [1, 2, 3].map(|op| (op, Outcome::Done)));
}

#[test]
fn flush_of_wrong_region_or_range_is_refused_and_link_stays_up() {
    let (mut node, _) = engine_with_peer();
    let (_persistent, device) = add_persistent_region(&node.engine, KEY);
    let _volatile = add_volatile_region(&node.engine, 1, MrAccess::all());
    let _readable = add_volatile_region(&node.engine, 2, MrAccess::REMOTE_READ);
    let (visible, durable) = (Durable::Nothing, Durable::Written);
    let cases = [
        (flush_header(1, KEY, 0, 101, visible), Outcome::Refused(Refusal::Range)),
        (flush_header(2, KEY, 0, 101, durable), Outcome::Refused(Refusal::Range)),
        (flush_header(3, KEY, 101, 1, durable), Outcome::Refused(Refusal::Range)),
        (flush_header(4, KEY + 1, 0, 1, visible), Outcome::Refused(Refusal::Key)),
        (flush_header(5, KEY + 1, 0, 0, durable), Outcome::Refused(Refusal::Key)),
        (flush_header(6, 2, 0, 1, visible), Outcome::Refused(Refusal::Access)),
        (flush_header(7, 1, 0, 1, durable), Outcome::Refused(Refusal::Volatile)),
        (flush_header(8, 1, 0, 0, durable), Outcome::Refused(Refusal::Volatile)),
        // Accesses of no bytes need no region.
        (flush_header(9, KEY + 1, 0, 0, visible), Outcome::Done),
        (flush_header(10, 1, 0, 100, visible), Outcome::Done),
    ];
    for (header, _) in &cases {
        node.frame(LINK, header, b"");
    }
    node.transmit();
    let expected: Vec<_> = (1..).zip(cases.map(|(_, outcome)| outcome)).collect();
    assert_eq!(sent_answers(&node.transport), expected);
    assert!(device.take_persisted().is_empty() && node.engine.condemned.is_empty());
}

#[test]
fn flush_fails_if_the_device_does() {
    let (mut node, _) = engine_with_peer();
    let (_region, device): (_, Arc<Device>) = add_persistent_region(&node.engine, KEY);
    device.set_broken(true);
    node.frame(LINK, &flush_header(1, KEY, 0, 8, Durable::Written), b"");
    // Visibility does not need the device.
    node.pass_with_frame(LINK, &flush_header(2, KEY, 0, 8, Durable::Nothing), b"");
    assert_eq!(sent_answers(&node.transport), [(1, Outcome::NotDurable), (2, Outcome::Done)]);
}

#[test]
fn flush_ends_with_its_answer() {
    let (mut node, peer) = engine_with_peer();
    for (kind, durable) in
        [(FlushKind::Visibility, Durable::Nothing), (FlushKind::Persistent, Durable::Written)]
    {
        node.post(flush_request(peer, kind, 1 << 33, 5));
        let op = last_flush_op(&node.transport, 1 << 33, durable);
        assert!(node.sink.ended.is_empty() && node.outstanding_transmits() == 1);
        node.frame(LINK, &Header::Answer { op, outcome: Outcome::Done }, b"");
        let completion = node.take_ended().remove(0).unwrap();
        assert_eq!(completion, EndedOperation::of_flush(5, 1 << 33));
        assert_eq!(completion.flags, CompletionFlags::OF_FLUSH);
        assert_eq!(std::mem::take(&mut node.sink.counted), [(CounterEvents::WRITE, true)]);

        // A flush that is not signalled reports only its failure.
        let unsignalled = || flush_request(peer, kind, 8, 6).signalled(Signalled::No);
        node.post(unsignalled());
        let op = last_flush_op(&node.transport, 8, durable);
        node.frame(LINK, &Header::Answer { op, outcome: Outcome::Done }, b"");
        assert!(node.sink.ended.is_empty() && node.outstanding_transmits() == 0);
        node.post(unsignalled());
        let op = last_flush_op(&node.transport, 8, durable);
        let outcome = Outcome::Refused(Refusal::Access);
        node.frame(LINK, &Header::Answer { op, outcome }, b"");
        let failure = node.take_ended().remove(0).unwrap_err();
        assert_eq!(failure.error, OperationError::Refused(Refusal::Access));
        assert_eq!((failure.completion, failure.target), (EndedOperation::of_flush(6, 0), Some(peer)));
        assert_eq!(
            std::mem::take(&mut node.sink.counted),
            [(CounterEvents::WRITE, true), (CounterEvents::WRITE, false)]
        );
    }
    assert!(node.engine.condemned.is_empty());
}

#[test]
fn answer_that_no_flush_can_get_ends_the_link() {
    for (kind, outcome) in [
        (FlushKind::Visibility, Outcome::NotDurable),
        (FlushKind::Visibility, Outcome::Fault),
        (FlushKind::Persistent, Outcome::Fault),
    ] {
        let (mut node, peer) = engine_with_peer();
        node.post(flush_request(peer, kind, 8, 5));
        let Header::Rma(Rma { op, .. }) = node.transport.sent[0].1 else { panic!("an access was sent") };
        node.frame(LINK, &Header::Answer { op, outcome }, b"");
        assert!(!node.engine.condemned.is_empty(), "{kind:?} {outcome:?}");
    }
}

#[test]
fn flush_waits_for_writes_on_the_link_to_a_former_instance() {
    for is_answered in [true, false] {
        for kind in [FlushKind::Visibility, FlushKind::Persistent] {
            let (mut node, peer) = engine_with_peer();
            node.post(rma_request(peer, write_local(b"w"), 1));
            let Header::Rma(Rma { op, .. }) = node.transport.sent[0].1 else { panic!("an access was sent") };
            node.link_up(LinkId(8), 2, 2);
            node.post(flush_request(peer, kind, 8, 2));
            node.transmit();
            assert_eq!((node.transport.sent.len(), node.sink.ended.len()), (1, 0));
            if is_answered {
                node.frame(LINK, &Header::Answer { op, outcome: Outcome::Done }, b"");
            } else {
                node.link_down(LINK, RESET);
            }
            assert_eq!(node.ended_contexts(), [1]);
            node.transmit();
            let Some((LinkId(8), Header::Rma(flush), _)) = node.transport.sent.last() else {
                panic!("a flush")
            };
            assert_eq!((node.transport.sent.len(), flush.kind), (2, RmaKind::Flush));
        }
    }
}

#[test]
fn fenced_flush_waits_for_earlier_reads() {
    let (mut node, peer) = engine_with_peer();
    node.post(rma_request(peer, read_local(5), 1));
    let Header::Rma(Rma { op, .. }) = node.transport.sent[0].1 else { panic!("an access was sent") };
    node.post(flush_request(peer, FlushKind::Visibility, 5, 2).fence(true));
    node.transmit();
    assert_eq!(node.transport.sent.len(), 1);
    let refused = Header::Answer { op, outcome: Outcome::Refused(Refusal::Key) };
    node.pass_with_frame(LINK, &refused, b"");
    assert_eq!(node.transport.sent.len(), 2);
    last_flush_op(&node.transport, 5, Durable::Nothing);
}
