//! Tests of writes with remote data that take posted receives (`FI_RX_CQ_DATA`).

use std::sync::Arc;

use super::*;

/// Returns an engine with a peer, and with a region of this length. Its receives take remote data.
fn engine_with_region(len_bytes: usize) -> (Node, Arc<Region>) {
    let config = Config { remote_data_takes_receives: true, ..untimed_config() };
    let (node, _) = engine_with_config(config);
    let attr = RegionAttr { key: KEY, access: MrAccess::REMOTE_WRITE, base_address: 0 };
    let region = node.engine.target.regions().add(Region::owned(len_bytes, attr).unwrap()).unwrap();
    (node, region)
}

#[test]
fn write_with_remote_data_takes_a_receive_if_configured() {
    let (mut node, region) = engine_with_region(10);
    let with_data = |op, address| rma_header(op, address, 4, RmaKind::Write { data: Some(op) });
    node.post_receive(receive_request(8, 1));
    for op in [70, 71] {
        node.frame(LINK, &with_data(op, 0), b"data");
    }
    node.frame(LINK, &untagged_header(3), b"msg");
    // This write is refused, so it takes no receive.
    node.pass_with_frame(LINK, &with_data(72, 9), b"data");
    let told = |sink: &mut Recorder| -> Vec<_> {
        let ended = sink.take_ended().into_iter().map(Result::unwrap);
        ended.map(|ended| (ended.context, ended.flags, ended.len_bytes, ended.data)).collect()
    };
    let flags = CompletionFlags::RMA | CompletionFlags::REMOTE_WRITE | CompletionFlags::REMOTE_CQ_DATA;
    assert_eq!(told(&mut node.sink), [(1, flags, 4, 70)]);
    assert_eq!(read_region(&region), b"data\0\0\0\0\0\0", "the write waits for no receive");
    let refused = Outcome::Refused(Refusal::Range);
    assert_eq!(sent_answers(&node.transport), [(70, Outcome::Done), (71, Outcome::Done), (72, refused)]);
    node.post_receives(8, [2, 3]);
    let message = CompletionFlags::RECV | CompletionFlags::MSG;
    assert_eq!(told(&mut node.sink), [(2, flags, 4, 71), (3, message, 3, 0)]);
}

#[test]
fn peer_that_writes_remote_data_beyond_its_credit_is_disconnected() {
    let (mut node, _) = engine_with_region(10);
    // Reserves so much that the budget has no more credit to grant.
    node.engine
        .receive_side
        .try_reserve_budget(untimed_config().unexpected_budget_bytes as u64 - CREDIT_INITIAL_BYTES);
    let count = CREDIT_INITIAL_BYTES / MESSAGE_COST_BYTES;
    for op in 0..=count {
        assert!(node.engine.condemned.is_empty(), "credit covers the notice");
        let kind = RmaKind::Write { data: Some(op) };
        node.pass_with_frame(LINK, &rma_header(op, 0, 0, kind), b"");
    }
    assert_eq!(node.transport.closed, [(LINK, Close::Abort)]);
    assert_eq!(node.unexpected_len() as u64, count);
}
