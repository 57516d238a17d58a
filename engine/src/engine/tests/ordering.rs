//! Tests of the order of operations, at the initiator and at the target, and of completions in the
//! order of posting.

use super::atomics::{atomic_request, base_local, fetch_local};
use super::flushes::flush_request;
use super::*;

const LONG_BYTES: usize = READ_COPIED_MAX_BYTES + 1;

fn engine_with_transmit_order(order: Order) -> (Node, PeerId) {
    let (mut node, peer) = engine_with_config(Config { transmit_order: order, ..untimed_config() });
    // Writes of 9 bytes and more are offered.
    node.transport.pull_min_bytes = Some(9);
    (node, peer)
}

/// The kinds of operations, by how they are posted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Send,
    ShortRead,
    LongRead,
    ShortWrite,
    OfferedWrite,
    Update,
    Fetch,
    Flush,
    ShortPersistentFlush,
    LongPersistentFlush,
}

impl Kind {
    fn post(self, node: &mut Node, peer: PeerId) {
        let flush = |kind, len_bytes: usize| flush_request(peer, kind, len_bytes as u64, 9);
        node.post(match self {
            Kind::Send => send_request(peer, b"m", 9),
            Kind::Flush => flush(FlushKind::Visibility, FLUSH_AT_ONCE_MAX_BYTES + 1),
            Kind::ShortPersistentFlush => flush(FlushKind::Persistent, FLUSH_AT_ONCE_MAX_BYTES),
            Kind::LongPersistentFlush => flush(FlushKind::Persistent, FLUSH_AT_ONCE_MAX_BYTES + 1),
            Kind::ShortRead => rma_request(peer, read_local(READ_COPIED_MAX_BYTES), 9),
            Kind::LongRead => rma_request(peer, read_local(LONG_BYTES), 9),
            Kind::ShortWrite => rma_request(peer, write_local(b"short"), 9),
            Kind::OfferedWrite => rma_request(peer, write_local(b"0123456789"), 9),
            Kind::Update => atomic_request(peer, base_local(&[1]), AtomicOp::Sum, 9),
            Kind::Fetch => atomic_request(peer, fetch_local(&[1]), AtomicOp::Sum, 9),
        });
    }
}

#[test]
fn ordered_operation_waits_for_answer_of_earlier_one() {
    let nothing = Order::empty();
    let cases: &[(Kind, &[Kind], Order)] = &[
        (Kind::LongRead, &[Kind::Send], Order::SAR),
        (Kind::LongRead, &[Kind::ShortWrite, Kind::OfferedWrite], Order::WAR | Order::RMA_WAR),
        (Kind::LongRead, &[Kind::Update], Order::WAR),
        (Kind::LongRead, &[Kind::Fetch], Order::WAR | Order::RAR),
        (Kind::LongRead, &[Kind::ShortRead, Kind::LongRead], nothing),
        (Kind::LongRead, &[Kind::Flush, Kind::LongPersistentFlush], nothing),
        (Kind::OfferedWrite, &[Kind::Send], Order::SAW),
        (Kind::OfferedWrite, &[Kind::ShortRead, Kind::LongRead], Order::RAW | Order::RMA_RAW),
        (Kind::OfferedWrite, &[Kind::ShortWrite, Kind::OfferedWrite], Order::WAW | Order::RMA_WAW),
        (Kind::OfferedWrite, &[Kind::Update], Order::WAW),
        (Kind::OfferedWrite, &[Kind::Fetch], Order::RAW | Order::WAW),
        // A flush waits for offered writes whatever the order.
        (Kind::OfferedWrite, &[Kind::Flush, Kind::LongPersistentFlush], Order::all()),
        (Kind::ShortRead, &[Kind::Send, Kind::ShortWrite, Kind::Fetch], nothing),
        (Kind::ShortWrite, &[Kind::Send, Kind::ShortRead, Kind::ShortWrite, Kind::Flush], nothing),
        (Kind::Update, &[Kind::LongRead, Kind::Fetch], nothing),
        (Kind::Fetch, &[Kind::ShortRead, Kind::OfferedWrite], nothing),
        (Kind::Send, &[Kind::ShortWrite, Kind::LongRead, Kind::Flush], nothing),
        (Kind::Flush, &[Kind::Flush, Kind::Send, Kind::ShortRead, Kind::OfferedWrite], nothing),
        (Kind::ShortPersistentFlush, &[Kind::Send, Kind::ShortWrite], nothing),
        // Everything but a flush waits for long flushes whatever the order.
        (Kind::LongPersistentFlush, &[Kind::Send, Kind::Update, Kind::Fetch], Order::all()),
        (Kind::LongPersistentFlush, &[Kind::ShortRead, Kind::LongRead], Order::all()),
        (Kind::LongPersistentFlush, &[Kind::ShortWrite, Kind::OfferedWrite], Order::all()),
        (Kind::LongPersistentFlush, &[Kind::Flush, Kind::ShortPersistentFlush], nothing),
        (Kind::LongPersistentFlush, &[Kind::LongPersistentFlush], nothing),
    ];
    let pairs = cases
        .iter()
        .flat_map(|(first, seconds, holding)| seconds.iter().map(move |second| (*first, *second, *holding)));
    for (first, second, holding) in pairs {
        for order in Order::all().iter() {
            let (mut node, peer) = engine_with_transmit_order(order);
            first.post(&mut node, peer);
            second.post(&mut node, peer);
            node.transmit();
            let is_held = holding.contains(order);
            let sent_at_first = if is_held { 1 } else { 2 };
            assert_eq!(node.transport.sent.len(), sent_at_first, "{second:?} after {first:?}, {order:?}");
            if is_held {
                node.answer(LINK, node.op_at(0), Outcome::Refused(Refusal::Key));
                node.transmit();
                assert_eq!(node.transport.sent.len(), 2, "{second:?} after {first:?}, {order:?}");
                assert!(node.engine.condemned.is_empty());
            }
        }
    }
}

#[test]
fn operation_held_by_order_holds_back_only_later_ones_to_its_peer() {
    let (mut node, peer) = engine_with_transmit_order(Order::SAW);
    let other = node.engine.intern_peer(address(3));
    node.link_up(LinkId(8), 3, 1);
    Kind::OfferedWrite.post(&mut node, peer);
    Kind::Send.post(&mut node, peer);
    // No order holds the read back, but it queues behind the send.
    Kind::ShortRead.post(&mut node, peer);
    assert!(!node.engine.try_send_at_once(peer, None, None, b"x", &mut node.transport));
    assert_eq!(node.transport.sent.len(), 1);
    assert!(node.engine.try_send_at_once(other, None, None, b"x", &mut node.transport));
    assert!(node.has_unsent() && !node.has_work_without_arrivals(), "the answer will tell");
    let op = node.op_at(0);
    node.pass_with_frame(LINK, &Header::Clear { op, cannot_pull: true }, b"");
    // The payload was requested and is sent, but the peer has not answered the write.
    assert_eq!(node.transport.sent.last().unwrap().1, Header::Data { op, len_bytes: 10 });
    node.answer(LINK, op, Outcome::Done);
    node.transmit();
    assert_eq!(node.sent_since(3)[0], untagged_header(1));
    assert!(matches!(node.sent_since(4)[..], [Header::Rma(Rma { kind: RmaKind::Read, .. })]));
    assert!(node.engine.try_send_at_once(peer, None, None, b"x", &mut node.transport));
}

#[test]
fn short_read_after_long_read_is_deferred() {
    let (mut node, peer) = engine_with_transmit_order(Order::WAR);
    for kind in [Kind::LongRead, Kind::ShortRead, Kind::ShortWrite] {
        kind.post(&mut node, peer);
    }
    for (op, sent) in [(node.op_at(0), 2), (node.op_at(1), 3)] {
        node.answer(LINK, op, Outcome::Refused(Refusal::Key));
        node.transmit();
        assert_eq!(node.transport.sent.len(), sent);
    }
}

#[test]
fn operations_wait_for_short_flush_after_long_flush() {
    let (mut node, peer) = engine_with_transmit_order(Order::empty());
    for kind in [Kind::LongPersistentFlush, Kind::ShortPersistentFlush] {
        kind.post(&mut node, peer);
    }
    let memory = RemoteMemory { key: KEY, address: 0 };
    for place in [0, 1] {
        assert!(!node.engine.try_send_at_once(peer, None, None, b"x", &mut node.transport));
        let write = node.engine.try_inject_write(peer, b"x", memory, None, &mut node.transport);
        assert_eq!((write, node.transport.sent.len()), (Ok(InjectedWrite::Declined), 2));
        node.answer(LINK, node.op_at(place), Outcome::Done);
    }
    assert!(node.engine.try_send_at_once(peer, None, None, b"x", &mut node.transport));
    let write = node.engine.try_inject_write(peer, b"x", memory, None, &mut node.transport);
    assert_eq!((write, node.sink.ended.len()), (Ok(InjectedWrite::Sent), 2));
}

#[test]
fn read_copied_before_region_close_is_refused() {
    let (mut node, _) = engine_with_config(Config { receive_order: Order::WAR, ..untimed_config() });
    let region = node.add_region(Region::owned(6, ATTR));
    node.frame(LINK, &rma_header(1, 0, 6, RmaKind::Read), b"");
    node.engine.target.regions().close(&region);
    node.transmit();
    assert_eq!(node.sent_since(0), [Header::Answer { op: 1, outcome: Outcome::Refused(Refusal::Key) }]);
}

/// The results of atomic operations were copied, whatever they wait for.
#[test]
fn short_read_is_copied_on_arrival_only_if_all_reads_ahead_were() {
    let fetch = AtomicForm::new(AtomicKind::Fetch, AtomicOp::Read, Datatype::Uint8, 1).unwrap();
    let fetch = Header::Atomic(Atomic { op: 2, key: KEY, address: 0, form: fetch });
    for (ahead_bytes, found) in [(READ_COPIED_MAX_BYTES, b"before"), (LONG_BYTES, b"behind")] {
        let (mut node, _) = engine_with_config(Config { receive_order: Order::WAR, ..untimed_config() });
        let attr = RegionAttr { key: KEY, access: MrAccess::all(), base_address: 0 };
        let region = node.engine.target.regions().add(Region::owned(LONG_BYTES, attr).unwrap()).unwrap();
        region.write_at(0, b"before").unwrap();
        node.frame(LINK, &rma_header(1, 0, ahead_bytes as u64, RmaKind::Read), b"");
        node.frame(LINK, &fetch, b"");
        node.frame(LINK, &rma_header(3, 0, 6, RmaKind::Read), b"");
        region.write_at(0, b"behind").unwrap();
        node.transmit();
        let data = |(_, header, data): &(LinkId, Header, Vec<u8>)| {
            matches!(header, Header::ReadData { op: 3, .. }).then(|| data.clone())
        };
        assert_eq!(node.transport.sent.iter().find_map(data).unwrap(), found);
    }
}
