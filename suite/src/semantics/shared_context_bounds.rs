//! Limits of a shared receive context, and operations that wait for room.

use super::prelude::*;
use super::shared_contexts::Sharers;

#[over(one_process, automatic)]
fn full_queue_of_one_endpoint_delays_no_other(net: &Net) {
    let mut sharers = Sharers::new(net, 1);
    sharers.add_member_with_cq(&CqAttr { size_entries: 1, ..CqAttr::default() }, BOTH);
    let (peer, _) = sharers.open_peer();
    sharers.post_receives(0..10, 8);
    for identity in 0..4 {
        sharers.deliver(&peer, 1, payload(identity, 8), None);
    }
    for identity in 4..10 {
        sharers.deliver(&peer, 0, payload(identity, 8), None);
    }
    sharers.expect_in_order(0, 4..10);
    sharers.expect_in_order(1, 0..4);
}

#[over(one_process, automatic)]
fn multi_receive_buffer_serves_other_endpoints_while_one_queue_is_full(net: &Net) {
    let mut sharers = Sharers::new(net, 1);
    sharers.add_member_with_cq(&CqAttr { size_entries: 1, ..CqAttr::default() }, BOTH);
    let (peer, _) = sharers.open_peer();
    sharers.context.set_min_multi_recv_bytes(0);
    sharers.context.recv_multi(marked_buffer(10_000), ANY, 5).unwrap();
    for identity in 0..6 {
        sharers.deliver(&peer, 1, payload(identity, 16), None);
    }
    for identity in 6..12 {
        sharers.deliver(&peer, 0, payload(identity, 16), None);
        let completion = sharers.next_receive_completion(0);
        assert!(received_bytes(&completion.buffer) == payload(identity, 16));
    }
    for identity in 0..6 {
        let completion = sharers.next_receive_completion(1);
        assert!(received_bytes(&completion.buffer) == payload(identity, 16), "in their order");
    }
}

#[over(one_process, automatic)]
fn receives_beyond_the_depth_are_refused(net: &Net) {
    let mut sharers = Sharers::open_empty(net, &RxAttr { size_ops: 3, ..RxAttr::default() });
    sharers.add_member();
    sharers.add_member_with_cq(&CqAttr { size_entries: 1, ..CqAttr::default() }, BOTH);
    let (peer, _) = sharers.open_peer();
    sharers.post_receives(0..3, 8);
    assert_eq!(sharers.context.recv(marked_buffer(8), ANY, 3).unwrap_err().error, Again::QueueFull.into());
    for _ in 0..3 {
        sharers.deliver(&peer, 1, payload(1, 8), None);
    }
    // One entry is in the queue, and two wait for room in it.
    sharers.context.recv(marked_buffer(8), ANY, 3).unwrap();
    assert_eq!(sharers.context.recv(marked_buffer(8), ANY, 4).unwrap_err().error, Again::QueueFull.into());
    sharers.expect_in_order(1, 0..3);
    sharers.context.recv(marked_buffer(8), ANY, 4).unwrap();
}

#[over(one_process, automatic)]
fn messages_beyond_a_small_budget_all_arrive(net: &Net) {
    const MESSAGES: u64 = 60;
    let mut sharers = Sharers::open_empty(net, &RxAttr { total_buffered_recv_bytes: 1, ..RxAttr::default() });
    (0..2).for_each(|_| sharers.add_member());
    let (left, _) = sharers.open_peer();
    let (right, _) = sharers.open_peer();
    for number in 0..MESSAGES {
        for party in [&left, &right] {
            party.endpoint.send(payload(number, 3000), FabricAddress(number % 2), number).unwrap();
        }
    }
    sharers.drive_repeatedly();
    let mut arrived = 0;
    while arrived < 2 * MESSAGES {
        let _ = sharers.context.recv(marked_buffer(3000), ANY, arrived);
        let (_, ended) = sharers.next_ended_of_any();
        assert_eq!(ended.unwrap().0.len_bytes, 3000);
        arrived += 1;
    }
}

#[over(one_process, automatic)]
fn cancelled_receive_of_an_empty_context_is_reported_by_the_first_endpoint(net: &Net) {
    let mut sharers = Sharers::open_empty(net, &RxAttr { size_ops: 2, ..RxAttr::default() });
    sharers.context.recv(marked_buffer(8), ANY, 1).unwrap();
    sharers.context.recv(marked_buffer(8), ANY, 2).unwrap();
    sharers.context.cancel(2).unwrap();
    let refused = sharers.context.recv(marked_buffer(8), ANY, 3).unwrap_err();
    assert_eq!(refused.error, Again::QueueFull.into(), "what was not reported is outstanding");
    sharers.add_member();
    let failed = sharers.next_ended(0).unwrap_err();
    assert_eq!((failed.error, failed.completion.context), (OperationError::Cancelled, 2));
    sharers.context.recv(marked_buffer(8), ANY, 3).unwrap();
}
