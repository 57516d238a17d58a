//! Tests of full sinks, depths and cancellation.

use super::*;

#[test]
fn completion_without_room_is_held_in_order_and_counts_as_outstanding() {
    let (mut node, peer) = engine_with_peer();
    node.sink.room = 1;
    node.engine.receive_side.set_depth_ops(3);
    node.post_receives(4, 1..=3);
    for _ in 0..3 {
        node.frame(LINK, &untagged_header(1), b"m");
    }
    assert_eq!(node.ended_contexts(), [1]);
    assert_eq!(node.outstanding_receives(), 2);
    node.post_receive(receive_request(4, 4));
    let full = node.engine.post_receive(receive_request(4, 5), &mut node.sink).unwrap_err();
    assert_eq!((full.error, full.returned.len_bytes()), (Again::QueueFull.into(), 4));
    node.engine.config.tx_depth_ops = 2;
    for context in [8, 9] {
        node.post(send_request(peer, b"sent", context));
    }
    let full = node.try_post(send_request(peer, b"sent", 10)).unwrap_err();
    assert_eq!((full.error, node.outstanding_transmits()), (Again::QueueFull.into(), 2));
    assert_eq!(full.returned.into_sent().as_deref(), Some(&b"sent"[..]));
    node.take_ended();
    node.deliver_held();
    assert_eq!(node.ended_contexts(), [8]);
    node.sink.room = 10;
    node.frame(LINK, &untagged_header(1), b"m");
    assert_eq!(node.ended_contexts(), [8], "a later completion does not overtake a held one");
    node.deliver_held();
    assert_eq!(node.ended_contexts(), [8, 9, 2, 3, 4]);
}

#[test]
fn posts_beyond_depth_or_message_limit_are_refused() {
    let (mut node, peer) = engine_with_peer();
    node.engine.config = Config { tx_depth_ops: 1, message_max_bytes: 4, ..untimed_config() };
    let too_long = node.try_post(send_request(peer, b"12345", 0)).unwrap_err();
    assert_eq!(too_long.error, Misuse::TooLong { len_bytes: 5, max_bytes: 4 }.into());
    assert_eq!(too_long.returned.into_sent().unwrap().len(), 5);
    node.transport.answers = [Sent::Full].into();
    node.post(send_request(peer, b"1", 1));
    let full = node.try_post(send_request(peer, b"2", 2)).unwrap_err();
    assert_eq!(full.error, Again::QueueFull.into());
    node.transmit();
    node.post(send_request(peer, b"3", 3));
    assert_eq!(node.ended_contexts(), [1, 3]);
}

#[test]
fn cancel_succeeds_only_before_the_operation_begins() {
    let (mut node, peer) = engine_with_peer();
    node.transport.answers = [Sent::Partial(1)].into();
    node.post(send_request(peer, b"begun before", 1));
    node.post(send_request(peer, b"queued", 2));
    node.post_receive(receive_request(4, 3));
    node.post_receive(ReceiveRequest { tagged: true, ..receive_request(4, 4) });
    node.frame_begun(LINK, &untagged_header(2));

    assert!(node.cancel(1).is_err(), "a link has begun it");
    assert!(node.cancel(3).is_err(), "a message has matched it");
    node.cancel(2).unwrap();
    node.cancel(4).unwrap();
    assert!(node.cancel(4).is_err());
    assert_eq!(node.ended_contexts(), [2, 4]);
    for ended in node.take_ended() {
        assert_eq!(ended.unwrap_err().error, OperationError::Cancelled);
    }
    node.payload_arrived(LINK, b"ab");
    node.transmit();
    assert_eq!(node.ended_contexts(), [3, 1]);
}
