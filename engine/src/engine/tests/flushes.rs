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

#[test]
fn visibility_flush_leaves_writes_to_a_fenced_commit() {
    let (mut node, _) = engine_with_peer();
    let (_region, device) = add_persistent_region(&node, KEY, 100);
    node.frame(LINK, &write_header(1, KEY, 0, 4, Durable::Nothing), b"abcd");
    node.frame(LINK, &flush_header(2, KEY, 0, 100, Durable::Nothing), b"");
    assert_eq!(device.take_persisted(), []);
    node.frame(LINK, &write_header(3, KEY, 9, 0, Durable::Everything), b"");
    assert_eq!(device.take_persisted(), [(0, 4)]);
    node.pass_with_frame(LINK, &flush_header(4, KEY, 20, 70, Durable::Written), b"");
    assert_eq!(sent_answers(&node.transport), [1, 2, 3, 4].map(|op| (op, Outcome::Done)));
    assert_eq!(node.sink.counted, [(CounterEvents::REMOTE_WRITE, true); 2], "the writes, not the flushes");
}

#[test]
fn flush_waits_for_writes_on_the_link_to_a_former_instance() {
    for is_answered in [true, false] {
        for kind in [FlushKind::Visibility, FlushKind::Persistent] {
            let (mut node, peer) = engine_with_peer();
            node.post(rma_request(peer, write_local(b"w"), 1));
            node.link_up(LinkId(8), 2, 2);
            node.post(flush_request(peer, kind, 8, 2));
            node.transmit();
            assert_eq!((node.transport.sent.len(), node.sink.ended.len()), (1, 0));
            if is_answered {
                node.answer(LINK, node.op_at(0), Outcome::Done);
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
