//! Connections whose ends share a receive context.

use super::failed_connections::connect;
use super::prelude::*;
use super::shared_contexts::LENS_BYTES;

#[over(connected, automatic, native)]
fn connections_share_receives(net: &Net) {
    let (client, server) = (Side::new(net), Side::new(net));
    let context = server.domain.shared_receive_context(&server.info.rx).unwrap();
    // A receive that names a source is refused. An unconnected endpoint may still join the context, and
    // would have to heed the source.
    let refused = context.recv(marked_buffer(8), FabricAddress(0), 0).unwrap_err();
    assert_eq!(refused.error, Misuse::NoCapability(Caps::DIRECTED_RECV).into());
    (0..2).for_each(|number| context.recv(marked_buffer(LENS_BYTES[3]), ANY, number).unwrap());
    let (first, first_served) = connect(&client, &server, Some(&context), false);
    for number in 2..4 {
        // The connection identifies the peer, so the receive ignores this source.
        context.recv(marked_buffer(LENS_BYTES[3]), FabricAddress(number), number).unwrap();
    }
    let (second, second_served) = connect(&client, &server, Some(&context), false);
    let senders = [&second, &first, &second, &first].into_iter();
    for (number, (from, len_bytes)) in (0..).zip(senders.zip(LENS_BYTES)) {
        from.send(payload(number, len_bytes), ANY, 9).unwrap();
        let received = next_completion_of_first_side(&[&server, &client]);
        assert_eq!(received.context, number);
        assert!(received_bytes(&received.buffer) == payload(number, len_bytes));
        assert_eq!(next_completion_of_first_side(&[&client, &server]).context, 9);
    }
    first_served.send(payload(1, 8), ANY, 10).unwrap();
    first.recv(marked_buffer(8), ANY, 11).unwrap();
    assert_eq!(next_completion_of_first_side(&[&client, &server]).context, 11);
    close_with_progress((first, second, first_served, second_served), &[&client, &server]);
}

#[over(connected, automatic, native)]
fn closed_connection_leaves_shared_receives_posted(net: &Net) {
    let (client, server) = (Side::new(net), Side::new(net));
    let context = server.domain.shared_receive_context(&server.info.rx).unwrap();
    let (first, first_served) = connect(&client, &server, Some(&context), false);
    let (second, second_served) = connect(&client, &server, Some(&context), false);
    context.recv(marked_buffer(8), ANY, 1).unwrap();
    first.shutdown().unwrap();
    assert_eq!(next_event_of_first_side(&[&server, &client]), Ok(make_shutdown_event(SERVER)));
    context.recv(marked_buffer(8), ANY, 2).expect("the context goes on");
    for number in 1..3 {
        second.send(payload(number, 8), ANY, 9).unwrap();
        assert_eq!(next_completion_of_first_side(&[&server, &client]).context, number);
    }
    drop(first_served);
    // One endpoint is left.
    let context = expect_busy(context.close());
    close_with_progress((first, second, second_served), &[&client, &server]);
    context.close().expect("no endpoint is left");
}
