//! Tests of writes with remote data that take posted receives (`FI_RX_CQ_DATA`).

use std::sync::Arc;

use super::rma::{KEY, read_region, rma_header, sent_answers};
use super::*;
use crate::flags::MrAccess;
use crate::region::{Region, RegionAttr};
use crate::wire::{Outcome, Refusal, RmaKind};

const LINK: LinkId = LinkId(7);

/// Returns an engine with a peer, and with a region of this length. Its receives take remote data.
fn engine_with_region(len_bytes: usize) -> (Engine, Arc<Region>, Scripted, Recorder) {
    let config = Config { remote_data_takes_receives: true, ..untimed_config() };
    let (mut engine, mut sink) = (Engine::new(config), Recorder::default());
    engine.arrivals(&mut sink).link_event(LINK, LinkEvent::up(address(2), 1));
    let attr = RegionAttr { key: KEY, access: MrAccess::REMOTE_WRITE, base_address: 0 };
    let region = engine.target.regions().add(Region::owned(len_bytes, attr).unwrap()).unwrap();
    (engine, region, Scripted::default(), sink)
}

#[test]
fn write_with_remote_data_takes_a_receive_if_configured() {
    let (mut engine, region, mut transport, mut sink) = engine_with_region(10);
    let with_data = |op, address| rma_header(op, address, 4, RmaKind::Write { data: Some(op) });
    engine.post_receive(receive_request(8, 1), &mut sink).unwrap();
    for op in [70, 71] {
        engine.arrivals(&mut sink).frame(LINK, &with_data(op, 0), b"data");
    }
    engine.arrivals(&mut sink).frame(LINK, &untagged_header(3), b"msg");
    // This write is refused, so it takes no receive.
    engine.arrivals(&mut sink).frame(LINK, &with_data(72, 9), b"data");
    engine.transmit(&mut transport, &mut sink);
    let told = |sink: &mut Recorder| -> Vec<_> {
        let ended = sink.take_ended().into_iter().map(Result::unwrap);
        ended.map(|ended| (ended.context, ended.flags, ended.len_bytes, ended.data)).collect()
    };
    let flags = CompletionFlags::RMA | CompletionFlags::REMOTE_WRITE | CompletionFlags::REMOTE_CQ_DATA;
    assert_eq!(told(&mut sink), [(1, flags, 4, 70)]);
    assert_eq!(read_region(&region), b"data\0\0\0\0\0\0", "the write waits for no receive");
    let refused = Outcome::Refused(Refusal::Range);
    assert_eq!(sent_answers(&transport), [(70, Outcome::Done), (71, Outcome::Done), (72, refused)]);
    for context in [2, 3] {
        engine.post_receive(receive_request(8, context), &mut sink).unwrap();
    }
    let message = CompletionFlags::RECV | CompletionFlags::MSG;
    assert_eq!(told(&mut sink), [(2, flags, 4, 71), (3, message, 3, 0)]);
}

#[test]
fn peer_that_writes_remote_data_beyond_its_credit_is_disconnected() {
    let (mut engine, _, mut transport, mut sink) = engine_with_region(10);
    // Reserves so much that the budget has no more credit to grant.
    engine
        .receive_side
        .try_reserve_budget(untimed_config().unexpected_budget_bytes as u64 - CREDIT_INITIAL_BYTES);
    let count = CREDIT_INITIAL_BYTES / MESSAGE_COST_BYTES;
    for op in 0..=count {
        assert!(engine.condemned.is_empty(), "credit covers the notice");
        let kind = RmaKind::Write { data: Some(op) };
        engine.arrivals(&mut sink).frame(LINK, &rma_header(op, 0, 0, kind), b"");
        engine.transmit(&mut transport, &mut sink);
    }
    assert_eq!(transport.closed, [(LINK, Close::Abort)]);
    assert_eq!(engine.receive_side.unexpected_len() as u64, count);
}
