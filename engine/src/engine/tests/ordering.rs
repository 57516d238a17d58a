//! Tests of the order of operations, at the initiator and at the target, and of completions in the
//! order of posting.

use super::atomics::{atomic_request, base_local, fetch_local};
use super::flushes::flush_request;
use super::rma::{KEY, read_local, read_region, rma_header, rma_request, write_local};
use super::*;
use crate::atomic::AtomicOp;
use crate::error::OperationError;
use crate::flags::Order;
use crate::limits::{FLUSH_AT_ONCE_MAX_BYTES, READ_COPIED_MAX_BYTES};
use crate::operation::{FlushKind, RmaLocal};
use crate::region::{Region, RegionAttr};
use crate::transport::LinkEvent;
use crate::wire::{Outcome, Refusal, Rma, RmaKind};

const LINK: LinkId = LinkId(7);
const LONG_BYTES: usize = READ_COPIED_MAX_BYTES + 1;

/// Returns an engine with this configuration, and with a peer whose link 7 is up.
pub(super) fn engine_with_config(config: Config) -> (Engine, PeerId, Scripted, Recorder) {
    let mut engine = Engine::new(config);
    let mut sink = Recorder::default();
    engine.arrivals(&mut sink).link_event(LINK, LinkEvent::up(address(2), 1));
    let peer = engine.intern_peer(address(2));
    (engine, peer, Scripted::default(), sink)
}

fn engine_with_transmit_order(order: Order) -> (Engine, PeerId, Scripted, Recorder) {
    let (engine, peer, transport, sink) =
        engine_with_config(Config { transmit_order: order, ..untimed_config() });
    // Writes of 9 bytes and more are offered.
    (engine, peer, Scripted { pull_min_bytes: Some(9), ..transport }, sink)
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
    fn post(self, engine: &mut Engine, peer: PeerId, transport: &mut Scripted, sink: &mut Recorder) {
        let local = match self {
            Kind::Send => {
                return engine.post_request(send_request(peer, b"m", 9), transport, sink).unwrap();
            }
            Kind::Flush | Kind::ShortPersistentFlush | Kind::LongPersistentFlush => {
                let (kind, len_bytes) = match self {
                    Kind::Flush => (FlushKind::Visibility, FLUSH_AT_ONCE_MAX_BYTES + 1),
                    Kind::ShortPersistentFlush => (FlushKind::Persistent, FLUSH_AT_ONCE_MAX_BYTES),
                    _ => (FlushKind::Persistent, FLUSH_AT_ONCE_MAX_BYTES + 1),
                };
                let request = flush_request(peer, kind, len_bytes as u64, 9);
                return engine.post_request(request, transport, sink).unwrap();
            }
            Kind::ShortRead => read_local(READ_COPIED_MAX_BYTES),
            Kind::LongRead => read_local(LONG_BYTES),
            Kind::ShortWrite => write_local(b"short"),
            Kind::OfferedWrite => write_local(b"0123456789"),
            Kind::Update | Kind::Fetch => {
                let local = if self == Kind::Update { base_local(&[1]) } else { fetch_local(&[1]) };
                let request = atomic_request(peer, local, AtomicOp::Sum, 9);
                return engine.post_request(request, transport, sink).unwrap();
            }
        };
        engine.post_request(rma_request(peer, local, 9), transport, sink).unwrap();
    }
}

/// Returns the number of the access that was sent as frame `place`.
fn access_op_at(transport: &Scripted, place: usize) -> u64 {
    match transport.sent[place].1 {
        Header::Rma(rma) => rma.op,
        other => panic!("no access: {other:?}"),
    }
}

fn deliver_answer(engine: &mut Engine, sink: &mut Recorder, op: u64, outcome: Outcome) {
    engine.arrivals(sink).frame(LINK, &Header::Answer { op, outcome }, b"");
}

#[test]
fn ordered_operation_waits_for_answer_of_earlier_one() {
    let nothing = Order::empty();
    let cases = [
        (Kind::LongRead, Kind::Send, Order::SAR),
        (Kind::LongRead, Kind::ShortRead, nothing),
        (Kind::LongRead, Kind::LongRead, nothing),
        (Kind::LongRead, Kind::ShortWrite, Order::WAR | Order::RMA_WAR),
        (Kind::LongRead, Kind::OfferedWrite, Order::WAR | Order::RMA_WAR),
        (Kind::OfferedWrite, Kind::Send, Order::SAW),
        (Kind::OfferedWrite, Kind::ShortRead, Order::RAW | Order::RMA_RAW),
        (Kind::OfferedWrite, Kind::LongRead, Order::RAW | Order::RMA_RAW),
        (Kind::OfferedWrite, Kind::ShortWrite, Order::WAW | Order::RMA_WAW),
        (Kind::OfferedWrite, Kind::OfferedWrite, Order::WAW | Order::RMA_WAW),
        (Kind::LongRead, Kind::Update, Order::WAR),
        (Kind::LongRead, Kind::Fetch, Order::WAR | Order::RAR),
        (Kind::OfferedWrite, Kind::Update, Order::WAW),
        (Kind::OfferedWrite, Kind::Fetch, Order::RAW | Order::WAW),
        (Kind::ShortRead, Kind::Fetch, nothing),
        (Kind::Fetch, Kind::ShortRead, nothing),
        (Kind::Fetch, Kind::OfferedWrite, nothing),
        (Kind::Update, Kind::LongRead, nothing),
        (Kind::Update, Kind::Fetch, nothing),
        (Kind::ShortRead, Kind::Send, nothing),
        (Kind::ShortRead, Kind::ShortWrite, nothing),
        (Kind::ShortWrite, Kind::Send, nothing),
        (Kind::ShortWrite, Kind::ShortRead, nothing),
        (Kind::ShortWrite, Kind::ShortWrite, nothing),
        // A flush waits for offered writes whatever the order.
        (Kind::OfferedWrite, Kind::Flush, Order::all()),
        (Kind::ShortWrite, Kind::Flush, nothing),
        (Kind::LongRead, Kind::Flush, nothing),
        (Kind::Send, Kind::Flush, nothing),
        (Kind::Flush, Kind::Flush, nothing),
        (Kind::Flush, Kind::Send, nothing),
        (Kind::Flush, Kind::ShortRead, nothing),
        (Kind::Flush, Kind::OfferedWrite, nothing),
        (Kind::OfferedWrite, Kind::LongPersistentFlush, Order::all()),
        (Kind::LongRead, Kind::LongPersistentFlush, nothing),
        (Kind::ShortPersistentFlush, Kind::Send, nothing),
        (Kind::ShortPersistentFlush, Kind::ShortWrite, nothing),
        // Everything but a flush waits for long flushes whatever the order.
        (Kind::LongPersistentFlush, Kind::Send, Order::all()),
        (Kind::LongPersistentFlush, Kind::ShortRead, Order::all()),
        (Kind::LongPersistentFlush, Kind::LongRead, Order::all()),
        (Kind::LongPersistentFlush, Kind::ShortWrite, Order::all()),
        (Kind::LongPersistentFlush, Kind::OfferedWrite, Order::all()),
        (Kind::LongPersistentFlush, Kind::Update, Order::all()),
        (Kind::LongPersistentFlush, Kind::Fetch, Order::all()),
        (Kind::LongPersistentFlush, Kind::Flush, nothing),
        (Kind::LongPersistentFlush, Kind::ShortPersistentFlush, nothing),
        (Kind::LongPersistentFlush, Kind::LongPersistentFlush, nothing),
        (Kind::Send, Kind::ShortWrite, nothing),
        (Kind::Send, Kind::LongRead, nothing),
    ];
    for (first, second, holding) in cases {
        for order in Order::all().iter() {
            let (mut engine, peer, mut transport, mut sink) = engine_with_transmit_order(order);
            first.post(&mut engine, peer, &mut transport, &mut sink);
            second.post(&mut engine, peer, &mut transport, &mut sink);
            engine.transmit(&mut transport, &mut sink);
            let is_held = holding.contains(order);
            assert_eq!(
                transport.sent.len(),
                2 - usize::from(is_held),
                "{second:?} after {first:?}, {order:?}"
            );
            if is_held {
                let op = access_op_at(&transport, 0);
                deliver_answer(&mut engine, &mut sink, op, Outcome::Refused(Refusal::Key));
                engine.transmit(&mut transport, &mut sink);
                assert_eq!(transport.sent.len(), 2, "{second:?} after {first:?}, {order:?}");
                assert!(engine.condemned.is_empty());
            }
        }
    }
}

#[test]
fn operation_held_by_order_holds_back_only_later_ones_to_its_peer() {
    let (mut engine, peer, mut transport, mut sink) = engine_with_transmit_order(Order::SAW);
    let other = engine.intern_peer(address(3));
    engine.arrivals(&mut sink).link_event(LinkId(8), LinkEvent::up(address(3), 1));
    Kind::OfferedWrite.post(&mut engine, peer, &mut transport, &mut sink);
    Kind::Send.post(&mut engine, peer, &mut transport, &mut sink);
    // No order holds the read back, but it queues behind the send.
    Kind::ShortRead.post(&mut engine, peer, &mut transport, &mut sink);
    assert!(!engine.try_inject(peer, None, None, b"x", &mut transport));
    assert_eq!(transport.sent.len(), 1);
    assert!(engine.try_inject(other, None, None, b"x", &mut transport));
    assert!(engine.has_unsent() && !engine.has_work_without_arrivals(), "the answer will tell");
    let op = access_op_at(&transport, 0);
    engine.arrivals(&mut sink).frame(LINK, &Header::Clear { op, cannot_pull: true }, b"");
    engine.transmit(&mut transport, &mut sink);
    // The payload was requested and is sent, but the peer has not answered the write.
    assert_eq!(transport.sent.last().unwrap().1, Header::Data { op, len_bytes: 10 });
    deliver_answer(&mut engine, &mut sink, op, Outcome::Done);
    engine.transmit(&mut transport, &mut sink);
    assert_eq!(sent_headers_since(&transport, 3)[0], untagged_header(1));
    assert!(matches!(sent_headers_since(&transport, 4)[..], [Header::Rma(Rma { kind: RmaKind::Read, .. })]));
    assert!(engine.try_inject(peer, None, None, b"x", &mut transport));
}

#[test]
fn short_read_after_long_read_is_deferred() {
    let (mut engine, peer, mut transport, mut sink) = engine_with_transmit_order(Order::WAR);
    for kind in [Kind::LongRead, Kind::ShortRead, Kind::ShortWrite] {
        kind.post(&mut engine, peer, &mut transport, &mut sink);
    }
    let [long, short] = [0, 1].map(|place| access_op_at(&transport, place));
    deliver_answer(&mut engine, &mut sink, long, Outcome::Refused(Refusal::Key));
    engine.transmit(&mut transport, &mut sink);
    assert_eq!(transport.sent.len(), 2);
    deliver_answer(&mut engine, &mut sink, short, Outcome::Refused(Refusal::Key));
    engine.transmit(&mut transport, &mut sink);
    assert_eq!(transport.sent.len(), 3);
}

#[test]
fn operations_wait_for_short_flush_after_long_flush() {
    let (mut engine, peer, mut transport, mut sink) = engine_with_transmit_order(Order::empty());
    for kind in [Kind::LongPersistentFlush, Kind::ShortPersistentFlush] {
        kind.post(&mut engine, peer, &mut transport, &mut sink);
    }
    let memory = RemoteMemory { key: KEY, address: 0 };
    for place in [0, 1] {
        assert!(!engine.try_inject(peer, None, None, b"x", &mut transport));
        let write = engine.try_inject_write(peer, b"x", memory, None, &mut transport);
        assert_eq!((write, transport.sent.len()), (Ok(InjectedWrite::Declined), 2));
        let op = access_op_at(&transport, place);
        deliver_answer(&mut engine, &mut sink, op, Outcome::Done);
    }
    assert!(engine.try_inject(peer, None, None, b"x", &mut transport));
    let write = engine.try_inject_write(peer, b"x", memory, None, &mut transport);
    assert_eq!((write, sink.ended.len()), (Ok(InjectedWrite::Sent), 2));
}

#[test]
fn link_down_releases_held_operations() {
    let (mut engine, peer, mut transport, mut sink) = engine_with_transmit_order(Order::STRICT);
    Kind::OfferedWrite.post(&mut engine, peer, &mut transport, &mut sink);
    Kind::Send.post(&mut engine, peer, &mut transport, &mut sink);
    engine.arrivals(&mut sink).link_event(LINK, LinkEvent::Down(RESET));
    assert_eq!(sink.take_ended().len(), 2);
    engine.arrivals(&mut sink).link_event(LINK, LinkEvent::up(address(2), 2));
    Kind::Send.post(&mut engine, peer, &mut transport, &mut sink);
    assert_eq!(sink.take_ended().len(), 1);
}

/// Lets a peer read a region, then overwrite the start of the region with its next frame. Returns
/// the bytes that the peer has read, and the bytes in the region afterwards.
fn read_then_overwrite(order: Order, len_bytes: usize) -> (Vec<u8>, Vec<u8>) {
    let (mut engine, _, mut transport, mut sink) =
        engine_with_config(Config { receive_order: order, ..untimed_config() });
    let attr = RegionAttr { key: KEY, access: MrAccess::all(), base_address: 0 };
    let region = engine.target.regions().add(Region::owned(LONG_BYTES, attr).unwrap()).unwrap();
    region.write_at(0, b"before").unwrap();
    let mut arrivals = engine.arrivals(&mut sink);
    arrivals.frame(LINK, &rma_header(1, 0, len_bytes as u64, RmaKind::Read), b"");
    arrivals.frame(LINK, &rma_header(2, 0, 6, RmaKind::Write { data: None }), b"after.");
    engine.transmit(&mut transport, &mut sink);
    let (_, header, bytes) =
        transport.sent.iter().find(|(_, header, _)| matches!(header, Header::ReadData { .. })).unwrap();
    assert_eq!(*header, Header::ReadData { op: 1, len_bytes: len_bytes as u64 });
    assert!(engine.condemned.is_empty() && !engine.has_unsent());
    (bytes[..6].to_vec(), read_region(&region)[..6].to_vec())
}

#[test]
fn short_read_is_copied_on_arrival_if_order_is_agreed() {
    for order in Order::all().iter() {
        let is_copied = (Order::WAR | Order::RMA_WAR | Order::SAR | Order::RAR).contains(order);
        for len_bytes in [6, READ_COPIED_MAX_BYTES, LONG_BYTES] {
            let was = if is_copied && len_bytes < LONG_BYTES { b"before" } else { b"after." };
            let expected = (was.to_vec(), b"after.".to_vec());
            assert_eq!(read_then_overwrite(order, len_bytes), expected, "{order:?}, {len_bytes} bytes");
        }
    }
}

#[test]
fn short_read_waits_for_earlier_long_read() {
    let (mut engine, _, mut transport, mut sink) =
        engine_with_config(Config { receive_order: Order::STRICT, ..untimed_config() });
    let attr = RegionAttr { key: KEY, access: MrAccess::all(), base_address: 0 };
    let region = engine.target.regions().add(Region::owned(LONG_BYTES, attr).unwrap()).unwrap();
    let mut arrivals = engine.arrivals(&mut sink);
    for (op, len_bytes) in [(1, 1), (2, LONG_BYTES as u64), (3, 1), (4, 0), (5, 1)] {
        arrivals.frame(LINK, &rma_header(op, 0, len_bytes, RmaKind::Read), b"");
    }
    region.write_at(0, b"!").unwrap();
    engine.transmit(&mut transport, &mut sink);
    let first_bytes: Vec<(u64, u8)> = transport
        .sent
        .iter()
        .filter_map(|(_, header, bytes)| match header {
            Header::ReadData { op, .. } => Some((*op, bytes[0])),
            _ => None,
        })
        .collect();
    assert_eq!(first_bytes, [(1, 0), (2, b'!'), (3, b'!'), (5, b'!')]);
}

#[test]
fn read_copied_before_region_close_is_refused() {
    let (mut engine, _, mut transport, mut sink) =
        engine_with_config(Config { receive_order: Order::WAR, ..untimed_config() });
    let attr = RegionAttr { key: KEY, access: MrAccess::all(), base_address: 0 };
    let region = engine.target.regions().add(Region::owned(6, attr).unwrap()).unwrap();
    engine.arrivals(&mut sink).frame(LINK, &rma_header(1, 0, 6, RmaKind::Read), b"");
    engine.target.regions().close(&region);
    engine.transmit(&mut transport, &mut sink);
    assert_eq!(
        sent_headers_since(&transport, 0),
        [Header::Answer { op: 1, outcome: Outcome::Refused(Refusal::Key) }]
    );
}

#[test]
fn completions_keep_the_order_of_posting_to_each_peer() {
    let (mut engine, peer, mut transport, mut sink) =
        engine_with_config(Config { completes_in_order: true, ..untimed_config() });
    let other = engine.intern_peer(address(3));
    engine.arrivals(&mut sink).link_event(LinkId(8), LinkEvent::up(address(3), 1));
    engine.post_request(rma_request(peer, write_local(b"w"), 1), &mut transport, &mut sink).unwrap();
    engine.post_request(send_request(peer, b"m", 2), &mut transport, &mut sink).unwrap();
    let silent = rma_request(peer, write_local(b"s"), 3).signalled(Signalled::No);
    engine.post_request(silent, &mut transport, &mut sink).unwrap();
    let matched = send_request(peer, b"m", 4).level(Level::Match);
    engine.post_request(matched, &mut transport, &mut sink).unwrap();
    engine.post_request(send_request(peer, b"m", 5), &mut transport, &mut sink).unwrap();
    engine.post_request(send_request(other, b"m", 6), &mut transport, &mut sink).unwrap();
    assert_eq!(sink.ended_contexts(), [6], "others do not wait");
    assert_eq!(engine.outstanding_transmits(), 5, "what waits for its turn is outstanding");
    engine.arrivals(&mut sink).frame(LINK, &Header::Matched { number: 2 }, b"");
    let [first, silent] = [0, 2].map(|place| access_op_at(&transport, place));
    deliver_answer(&mut engine, &mut sink, first, Outcome::Refused(Refusal::Key));
    assert_eq!(sink.ended_contexts(), [6, 1, 2]);
    assert_eq!(sink.ended[1].as_ref().unwrap_err().error, OperationError::Refused(Refusal::Key));
    // Even an operation that reports nothing holds back the reports of later operations.
    deliver_answer(&mut engine, &mut sink, silent, Outcome::Done);
    assert_eq!(sink.ended_contexts(), [6, 1, 2, 4, 5]);
    assert_eq!(engine.outstanding_transmits(), 0);
}

#[test]
fn operation_waiting_for_its_turn_counts_as_outstanding_and_fails_in_order() {
    let (mut engine, peer, mut transport, mut sink) =
        engine_with_config(Config { completes_in_order: true, tx_depth_ops: 3, ..untimed_config() });
    engine.post_request(rma_request(peer, write_local(b"w"), 1), &mut transport, &mut sink).unwrap();
    transport.answers = [Sent::Whole, Sent::Full].into();
    engine.post_request(send_request(peer, b"m", 2), &mut transport, &mut sink).unwrap();
    engine.post_request(send_request(peer, b"m", 3), &mut transport, &mut sink).unwrap();
    engine.cancel(3, &mut sink).unwrap();
    assert!(sink.ended.is_empty());
    let refused = engine.post_request(send_request(peer, b"m", 4), &mut transport, &mut sink).unwrap_err();
    assert_eq!(refused.error, Again::QueueFull.into());
    engine.arrivals(&mut sink).link_event(LINK, LinkEvent::Down(RESET));
    let errors: Vec<_> =
        sink.take_ended().into_iter().map(|ended| ended.err().map(|f| f.error.errno())).collect();
    assert_eq!(errors, [Some(Errno::ECONNRESET), None, Some(Errno::ECANCELED)]);
}

#[test]
fn unordered_completions_come_as_operations_end() {
    let (mut engine, peer, mut transport, mut sink) = engine_with_config(untimed_config());
    engine.post_request(rma_request(peer, write_local(b"w"), 1), &mut transport, &mut sink).unwrap();
    engine.post_request(send_request(peer, b"m", 2), &mut transport, &mut sink).unwrap();
    assert_eq!(sink.ended_contexts(), [2]);
    let local = RmaLocal::Read(Destination::owned(BytesMut::zeroed(0)));
    engine.post_request(rma_request(peer, local, 3), &mut transport, &mut sink).unwrap();
    let op = access_op_at(&transport, 0);
    deliver_answer(&mut engine, &mut sink, op, Outcome::Done);
    assert_eq!(sink.ended_contexts(), [2, 1]);
}
