//! What a shared receive context has room for, and what waits where there is none.

use homespun::info::RxAttr;
use homespun::{Again, CqAttr, FabricAddress, OperationError};

use crate::shared_contexts::{ANY, BOTH, Hall};
use crate::suite::Net;
use crate::suite::payload::{payload, received, room};

pub(crate) fn full_queue_of_one_endpoint_stops_no_other(net: &Net) {
    let mut hall = Hall::new(net, 1);
    hall.join_with(&CqAttr { size_entries: 1, ..CqAttr::default() }, BOTH);
    let (peer, _) = hall.peer();
    for context in 0..10 {
        hall.context.recv(room(8), ANY, context).unwrap();
    }
    for identity in 0..4 {
        hall.deliver(&peer, 1, payload(identity, 8), None);
    }
    for identity in 4..10 {
        hall.deliver(&peer, 0, payload(identity, 8), None);
    }
    for context in 4..10 {
        assert_eq!(hall.receipt(0).context, context);
    }
    for context in 0..4 {
        assert_eq!(hall.receipt(1).context, context);
    }
}

pub(crate) fn buffer_serves_others_while_one_queue_is_full(net: &Net) {
    let mut hall = Hall::new(net, 1);
    hall.join_with(&CqAttr { size_entries: 1, ..CqAttr::default() }, BOTH);
    let (peer, _) = hall.peer();
    hall.context.set_min_multi_recv_bytes(0);
    hall.context.recv_multi(room(10_000), ANY, 5).unwrap();
    for identity in 0..6 {
        hall.deliver(&peer, 1, payload(identity, 16), None);
    }
    for identity in 6..12 {
        hall.deliver(&peer, 0, payload(identity, 16), None);
        let completion = hall.receipt(0);
        assert!(received(&completion.buffer) == payload(identity, 16));
    }
    for identity in 0..6 {
        let completion = hall.receipt(1);
        assert!(received(&completion.buffer) == payload(identity, 16), "in their order");
    }
}

pub(crate) fn receives_beyond_the_depth_are_refused(net: &Net) {
    let mut hall = Hall::empty(net, &RxAttr { size_ops: 3, ..RxAttr::default() });
    hall.join();
    hall.join_with(&CqAttr { size_entries: 1, ..CqAttr::default() }, BOTH);
    let (peer, _) = hall.peer();
    for context in 0..3 {
        hall.context.recv(room(8), ANY, context).unwrap();
    }
    assert_eq!(hall.context.recv(room(8), ANY, 3).unwrap_err().error, Again::QueueFull.into());
    for _ in 0..3 {
        hall.deliver(&peer, 1, payload(1, 8), None);
    }
    // One is in the queue, and two wait for room there.
    hall.context.recv(room(8), ANY, 3).unwrap();
    assert_eq!(hall.context.recv(room(8), ANY, 4).unwrap_err().error, Again::QueueFull.into());
    for context in 0..3 {
        assert_eq!(hall.receipt(1).context, context);
    }
    hall.context.recv(room(8), ANY, 4).unwrap();
}

pub(crate) fn many_messages_wait_for_a_small_budget(net: &Net) {
    const MESSAGES: u64 = 60;
    let mut hall = Hall::empty(net, &RxAttr { total_buffered_recv_bytes: 1, ..RxAttr::default() });
    (0..2).for_each(|_| hall.join());
    let (left, _) = hall.peer();
    let (right, _) = hall.peer();
    for number in 0..MESSAGES {
        for party in [&left, &right] {
            party.endpoint.send(payload(number, 3000), FabricAddress(number % 2), number).unwrap();
        }
    }
    hall.settle();
    let mut arrived = 0;
    while arrived < 2 * MESSAGES {
        let _ = hall.context.recv(room(3000), ANY, arrived);
        let (_, ended) = hall.next_anywhere();
        assert_eq!(ended.unwrap().0.len_bytes, 3000);
        arrived += 1;
    }
}

pub(crate) fn report_without_endpoints_waits_for_the_first(net: &Net) {
    let mut hall = Hall::empty(net, &RxAttr { size_ops: 2, ..RxAttr::default() });
    hall.context.recv(room(8), ANY, 1).unwrap();
    hall.context.recv(room(8), ANY, 2).unwrap();
    hall.context.cancel(2).unwrap();
    let refused = hall.context.recv(room(8), ANY, 3).unwrap_err();
    assert_eq!(refused.error, Again::QueueFull.into(), "what was not reported is outstanding");
    hall.join();
    let failed = hall.next(0).unwrap_err();
    assert_eq!((failed.error, failed.completion.context), (OperationError::Cancelled, 2));
    hall.context.recv(room(8), ANY, 3).unwrap();
}
