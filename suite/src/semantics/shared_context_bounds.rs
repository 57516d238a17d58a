//! Limits of a shared receive context, and operations that wait for room.

use super::prelude::*;
use super::shared_contexts::Sharers;

#[over(one_process, automatic)]
fn full_queue_of_one_endpoint_delays_no_other(net: &Net) {
    let mut sharers = Sharers::new(net, 1);
    sharers.add_member_with_cq(&CqAttr { size_entries: 1, ..CqAttr::default() }, BOTH);
    let (peer, _) = sharers.open_peer();
    sharers.post_receives(0..10, 8);
    (0..4).for_each(|identity| sharers.deliver(&peer, 1, payload(identity, 8), None));
    (4..10).for_each(|identity| sharers.deliver(&peer, 0, payload(identity, 8), None));
    sharers.expect_in_order(0, 4..10);
    sharers.expect_in_order(1, 0..4);
}

#[over(one_process, automatic)]
fn receives_beyond_the_depth_are_refused(net: &Net) {
    let mut sharers = Sharers::open_empty(net, &RxAttr { size_ops: 3, ..RxAttr::default() });
    sharers.add_member();
    sharers.add_member_with_cq(&CqAttr { size_entries: 1, ..CqAttr::default() }, BOTH);
    let (peer, _) = sharers.open_peer();
    sharers.post_receives(0..3, 8);
    assert_eq!(sharers.context.recv(marked_buffer(8), ANY, 3).unwrap_err().error, Again::QueueFull.into());
    (0..3).for_each(|identity| sharers.deliver(&peer, 1, payload(identity, 8), None));
    // One entry is in the queue, and two wait for room in it.
    sharers.context.recv(marked_buffer(8), ANY, 3).unwrap();
    assert_eq!(sharers.context.recv(marked_buffer(8), ANY, 4).unwrap_err().error, Again::QueueFull.into());
    sharers.expect_in_order(1, 0..3);
    sharers.context.recv(marked_buffer(8), ANY, 4).unwrap();
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
