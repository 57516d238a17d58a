//! Connections whose ends share a receive context.

use super::prelude::*;
use super::shared_contexts::LENS_BYTES;
use crate::connecting;

/// Connects two endpoints. The second one receives through a context.
pub(crate) fn connect_with_shared_context(
    client: &Side,
    server: &Side,
    context: &SharedReceiveContext,
) -> (Endpoint, Endpoint) {
    let listener = server.open_listener(LISTENER);
    let connecting = client.open_endpoint(CLIENT);
    connecting.connect(listener.name().unwrap(), b"").unwrap();
    let request = connecting::next_request_of_first_side(&[server, client]);
    let mut info = request.info();
    info.ep.rx_ctx_cnt = SHARED_CONTEXT;
    let accepting = server.domain.endpoint_for_request(&info, &request).unwrap();
    let accepting = server.bind_endpoint(accepting, SERVER);
    accepting.bind_shared_receive_context(context).unwrap();
    accepting.accept(b"").unwrap();
    for (side, other) in [(server, client), (client, server)] {
        let heard = connecting::next_event_of_first_side(&[side, other]);
        assert!(matches!(heard, Ok(ConnectionEvent::Connected { .. })), "{heard:?}");
    }
    (connecting, accepting)
}

#[over(connected, automatic, native)]
fn connections_share_receives(net: &Net) {
    let (client, server) = (Side::new(net), Side::new(net));
    let context = server.domain.shared_receive_context(&server.info.rx).unwrap();
    // A receive that names a source is refused. An unconnected endpoint may still join the context, and
    // would have to heed the source.
    let refused = context.recv(marked_buffer(8), FabricAddress(0), 0).unwrap_err();
    assert_eq!(refused.error, Misuse::NoCapability(Caps::DIRECTED_RECV).into());
    for number in 0..2 {
        context.recv(marked_buffer(LENS_BYTES[3]), ANY, number).unwrap();
    }
    let (first, first_served) = connect_with_shared_context(&client, &server, &context);
    for number in 2..4 {
        // The connection identifies the peer, so the receive ignores this source.
        context.recv(marked_buffer(LENS_BYTES[3]), FabricAddress(number), number).unwrap();
    }
    let (second, second_served) = connect_with_shared_context(&client, &server, &context);
    for (number, (from, len_bytes)) in
        [&second, &first, &second, &first].into_iter().zip(LENS_BYTES).enumerate()
    {
        from.send(payload(number as u64, len_bytes), ANY, 9).unwrap();
        let received_there = connecting::next_completion_of_first_side(&[&server, &client]);
        assert_eq!(received_there.context, number as u64);
        assert!(received_bytes(&received_there.buffer) == payload(number as u64, len_bytes));
        assert_eq!(connecting::next_completion_of_first_side(&[&client, &server]).context, 9);
    }
    first_served.send(payload(1, 8), ANY, 10).unwrap();
    first.recv(marked_buffer(8), ANY, 11).unwrap();
    assert_eq!(connecting::next_completion_of_first_side(&[&client, &server]).context, 11);
    connecting::close_with_progress((first, second, first_served, second_served), &[&client, &server]);
}

#[over(connected, automatic, native)]
fn closed_connection_leaves_shared_receives_posted(net: &Net) {
    let (client, server) = (Side::new(net), Side::new(net));
    let context = server.domain.shared_receive_context(&server.info.rx).unwrap();
    let (first, first_served) = connect_with_shared_context(&client, &server, &context);
    let (second, second_served) = connect_with_shared_context(&client, &server, &context);
    context.recv(marked_buffer(8), ANY, 1).unwrap();
    first.shutdown().unwrap();
    let heard = connecting::next_event_of_first_side(&[&server, &client]);
    assert!(matches!(heard, Ok(ConnectionEvent::Shutdown { .. })), "{heard:?}");
    context.recv(marked_buffer(8), ANY, 2).expect("the context goes on");
    for number in 1..3 {
        second.send(payload(number, 8), ANY, 9).unwrap();
        assert_eq!(connecting::next_completion_of_first_side(&[&server, &client]).context, number);
    }
    drop(first_served);
    let error = context.clone().close().unwrap_err().error;
    assert_eq!(error.errno(), Errno::EBUSY, "one endpoint is left");
    connecting::close_with_progress((first, second, second_served), &[&client, &server]);
    context.close().expect("no endpoint is left");
}
