//! Tests of flushes, from both sides, with a device that records what is made durable.

use super::durability::{Device, write_header};
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
