//! Atomic operations, from both sides.

use super::rma::engine_with_region;
use super::*;

fn atomic_form(kind: AtomicKind, op: AtomicOp, datatype: Datatype, count: usize) -> AtomicForm {
    AtomicForm::new(kind, op, datatype, count).unwrap()
}

fn atomic_header(op: u64, address: u64, form: AtomicForm) -> Header {
    Header::Atomic(Atomic { op, key: KEY, address, form })
}

pub(super) fn base_local(bytes: &'static [u8]) -> AtomicLocal {
    AtomicLocal::Base { operand: Source::owned(Bytes::from_static(bytes)) }
}

pub(super) fn fetch_local(bytes: &'static [u8]) -> AtomicLocal {
    let result = Destination::owned(BytesMut::zeroed(bytes.len()));
    AtomicLocal::Fetch { operand: Source::owned(Bytes::from_static(bytes)), result }
}

pub(super) fn atomic_request(to: PeerId, local: AtomicLocal, op: AtomicOp, context: u64) -> AddressedRequest {
    let memory = RemoteMemory { key: KEY, address: 3 };
    let op = TransmitOp::Atomic { local, memory, op, datatype: Datatype::Uint8 };
    AddressedRequest::new(to, op, context)
}

#[test]
fn peer_that_leaves_fetched_values_unread_is_disconnected() {
    let (mut node, _) = engine_with_region(ATOMIC_MAX_BYTES);
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
    let (mut node, _) = engine_with_region(8);
    let sum = atomic_form(AtomicKind::Base, AtomicOp::Sum, Datatype::Uint8, 1);
    for op in 0..=RMA_LINK_MAX_OPS as u64 {
        assert!(node.engine.condemned.is_empty());
        node.frame(LINK, &atomic_header(op, op % 2 * 100, sum), b"x");
    }
    node.transmit();
    assert_eq!(node.transport.closed, [(LINK, Close::Abort)]);
}

#[test]
fn fetching_atomics_in_flight_are_limited() {
    static LONG: [u8; ATOMIC_MAX_BYTES] = [1; ATOMIC_MAX_BYTES];
    let (mut node, peer) = engine_with_peer();
    let count = ATOMIC_LINK_MAX_BYTES / ATOMIC_MAX_BYTES;
    for context in 0..=count as u64 {
        node.post(atomic_request(peer, fetch_local(&LONG), AtomicOp::Sum, context));
    }
    node.transmit();
    assert_eq!(node.transport.sent.len(), count);
    let data = Header::ReadData { op: node.op_at(0), len_bytes: ATOMIC_MAX_BYTES as u64 };
    node.pass_with_frame(LINK, &data, &LONG);
    assert_eq!(node.transport.sent.len(), count + 1);

    let (mut node, peer) = engine_with_peer();
    for context in 0..=RMA_LINK_MAX_OPS as u64 {
        node.post(atomic_request(peer, base_local(b"x"), AtomicOp::Sum, context));
    }
    assert_eq!(node.transport.sent.len(), RMA_LINK_MAX_OPS);
}
