//! Tests of full sinks, depths and cancellation.

use super::*;

#[test]
fn completion_without_room_is_held_in_order_and_counts_as_outstanding() {
    let (mut engine, peer, mut transport, _) = engine_with_peer();
    let mut engine_sink = Recorder { room: 1, ..Recorder::default() };
    engine.receive_side.set_depth_ops(3);
    for context in 1..=3 {
        engine.post_receive(receive_request(4, context), &mut engine_sink).unwrap();
    }
    for _ in 0..3 {
        engine.arrivals(&mut engine_sink).frame(LinkId(7), &untagged_header(1), b"m");
    }
    assert_eq!(engine_sink.ended_contexts(), [1]);
    assert_eq!(engine.outstanding_receives(), 2);
    engine.post_receive(receive_request(4, 4), &mut engine_sink).unwrap();
    let full = engine.post_receive(receive_request(4, 5), &mut engine_sink).unwrap_err();
    assert_eq!((full.error, full.returned.len_bytes()), (Again::QueueFull.into(), 4));
    engine.config.tx_depth_ops = 2;
    for context in [8, 9] {
        engine.post_request(send_request(peer, b"sent", context), &mut transport, &mut engine_sink).unwrap();
    }
    let full =
        engine.post_request(send_request(peer, b"sent", 10), &mut transport, &mut engine_sink).unwrap_err();
    assert_eq!((full.error, engine.outstanding_transmits()), (Again::QueueFull.into(), 2));
    assert_eq!(full.returned.into_sent().as_deref(), Some(&b"sent"[..]));
    engine_sink.take_ended();
    engine.deliver_held(&mut engine_sink);
    assert_eq!(engine_sink.ended_contexts(), [8]);
    engine_sink.room = 10;
    engine.arrivals(&mut engine_sink).frame(LinkId(7), &untagged_header(1), b"m");
    assert_eq!(engine_sink.ended_contexts(), [8], "a later completion does not overtake a held one");
    engine.deliver_held(&mut engine_sink);
    assert_eq!(engine_sink.ended_contexts(), [8, 9, 2, 3, 4]);
}

#[test]
fn posts_beyond_depth_or_message_limit_are_refused() {
    let (mut engine, peer, mut transport, mut sink) = engine_with_peer();
    engine.config = Config { tx_depth_ops: 1, message_max_bytes: 4, ..untimed_config() };
    let too_long =
        engine.post_request(send_request(peer, b"12345", 0), &mut transport, &mut sink).unwrap_err();
    assert_eq!(too_long.error, Misuse::TooLong { len_bytes: 5, max_bytes: 4 }.into());
    assert_eq!(too_long.returned.into_sent().unwrap().len(), 5);
    transport.answers = [Sent::Full].into();
    engine.post_request(send_request(peer, b"1", 1), &mut transport, &mut sink).unwrap();
    let full = engine.post_request(send_request(peer, b"2", 2), &mut transport, &mut sink).unwrap_err();
    assert_eq!(full.error, Again::QueueFull.into());
    engine.transmit(&mut transport, &mut sink);
    engine.post_request(send_request(peer, b"3", 3), &mut transport, &mut sink).unwrap();
    assert_eq!(sink.ended_contexts(), [1, 3]);
}

#[test]
fn cancel_succeeds_only_before_the_operation_begins() {
    let (mut engine, peer, mut transport, mut sink) = engine_with_peer();
    transport.answers = [Sent::Partial(1)].into();
    engine.post_request(send_request(peer, b"begun before", 1), &mut transport, &mut sink).unwrap();
    engine.post_request(send_request(peer, b"queued", 2), &mut transport, &mut sink).unwrap();
    engine.post_receive(receive_request(4, 3), &mut sink).unwrap();
    engine.post_receive(ReceiveRequest { tagged: true, ..receive_request(4, 4) }, &mut sink).unwrap();
    engine.arrivals(&mut sink).frame_begun(LinkId(7), &untagged_header(2));

    assert!(engine.cancel(1, &mut sink).is_err(), "a link has begun it");
    assert!(engine.cancel(3, &mut sink).is_err(), "a message has matched it");
    engine.cancel(2, &mut sink).unwrap();
    engine.cancel(4, &mut sink).unwrap();
    assert!(engine.cancel(4, &mut sink).is_err());
    assert_eq!(sink.ended_contexts(), [2, 4]);
    for ended in sink.take_ended() {
        assert_eq!(ended.unwrap_err().error, OperationError::Cancelled);
    }
    engine.arrivals(&mut sink).payload_arrived(LinkId(7), b"ab");
    engine.transmit(&mut transport, &mut sink);
    assert_eq!(sink.ended_contexts(), [3, 1]);
}
