//! A refused call returns its buffers unchanged.

use super::prelude::*;

/// Checks that every send call is refused with this error and returns its buffers.
#[track_caller]
fn assert_every_send_refused(endpoint: &Endpoint, to: FabricAddress, message: &Bytes, errno: Errno) {
    let whole = |refused: Result<(), Rejected<Bytes>>| {
        let rejected = refused.expect_err("no send can be posted");
        assert_eq!(rejected.errno(), errno);
        assert_eq!((rejected.returned.as_ptr(), rejected.returned.len()), (message.as_ptr(), message.len()));
    };
    whole(endpoint.send(message.clone(), to, 1));
    whole(endpoint.senddata(message.clone(), 2, to, 1));
    whole(endpoint.tsend(message.clone(), to, Tag(3), 1));
    whole(endpoint.tsenddata(message.clone(), 2, to, Tag(3), 1));
    let in_pieces = split_unevenly(message, IOV_LIMIT);
    expect_rejected(endpoint.sendv(in_pieces.clone(), to, 1), errno, in_pieces.clone());
    expect_rejected(endpoint.tsendv(in_pieces.clone(), to, Tag(3), 1), errno, in_pieces.clone());
    let (tag, data, flags) = (Some(Tag(3)), Some(2), OpFlags::COMPLETION | OpFlags::FENCE);
    let send = SendMsg { buffers: in_pieces, to, tag, data, context: 1, flags };
    let rejected = endpoint.sendmsg(send.clone()).expect_err("no send can be posted");
    let back = rejected.returned;
    assert_eq!(Error::from(Rejected { error: rejected.error, returned: () }).errno(), errno);
    assert_eq!((back.buffers, back.to, back.tag), (send.buffers, send.to, send.tag));
    assert_eq!((back.data, back.context, back.flags), (send.data, send.context, send.flags));
}

/// Checks that every receive call and every peek is refused with this error and returns its buffers.
#[track_caller]
fn assert_every_receive_refused(endpoint: &Endpoint, from: FabricAddress, errno: Errno) {
    assert_every_posted_receive_refused(endpoint, from, errno);
    for flags in [OpFlags::PEEK, OpFlags::PEEK | OpFlags::CLAIM] {
        assert_recvmsg_refused(endpoint, from, flags, errno);
    }
}

/// Checks that every call that posts a receive is refused with this error and returns its buffers.
#[track_caller]
fn assert_every_posted_receive_refused(endpoint: &Endpoint, from: FabricAddress, errno: Errno) {
    let whole = |post: &dyn Fn(BytesMut) -> Result<(), Rejected<BytesMut>>| {
        let buffer = marked_buffer(24);
        let address = buffer.as_ptr();
        let rejected = post(buffer).expect_err("no receive can be posted");
        assert_eq!((rejected.errno(), rejected.returned.as_ptr()), (errno, address));
        assert_eq!(rejected.returned, marked_buffer(24));
    };
    whole(&|buffer| endpoint.recv(buffer, from, 1));
    whole(&|buffer| endpoint.trecv(buffer, from, Tag(7), 1));
    let pieces = || vec![marked_buffer(24), marked_buffer(8)];
    expect_rejected(endpoint.recvv(pieces(), from, 1), errno, pieces());
    expect_rejected(endpoint.trecvv(pieces(), from, Tag(7), 1), errno, pieces());
    assert_recvmsg_refused(endpoint, from, OpFlags::COMPLETION, errno);
}

#[track_caller]
fn assert_recvmsg_refused(endpoint: &Endpoint, from: FabricAddress, flags: OpFlags, errno: Errno) {
    let buffers = || vec![marked_buffer(24), marked_buffer(8)];
    let receive = RecvMsg { buffers: buffers(), from, tagged: Some(Tag(7).ignoring(1)), context: 9, flags };
    let rejected = endpoint.recvmsg(receive).expect_err("no receive can be posted");
    assert_eq!(rejected.errno(), errno, "{flags:?}");
    let back = rejected.returned;
    assert_eq!((back.buffers, back.from, back.tagged), (buffers(), from, Some(Tag(7).ignoring(1))));
    assert_eq!((back.context, back.flags), (9, flags));
}

/// Shows fi_endpoint/enable-before-transfers, fi_msg/posts-need-enabled-endpoint,
/// fi_tagged/tagged-posts-need-enabled-endpoint.
#[over(one_process)]
fn disabled_endpoint_returns_every_buffer(net: &Net) {
    let endpoint = net.open_other_domain().endpoint(net.info()).unwrap();
    assert_every_send_refused(&endpoint, FabricAddress(0), &payload(1, 90_000), Errno::EOPBADSTATE);
    assert_every_receive_refused(&endpoint, ANY, Errno::EOPBADSTATE);
    expect_error(endpoint.inject(b"", FabricAddress(0), None, None), Errno::EOPBADSTATE);
    expect_error(endpoint.cancel(1), Errno::EOPBADSTATE);
    // A call of `name` does not enable the endpoint.
    endpoint.name().unwrap();
    expect_error(endpoint.send(Bytes::new(), FabricAddress(0), 1), Errno::EOPBADSTATE);
}

#[over(one_process)]
fn post_to_an_unknown_peer_returns_every_buffer(net: &Net) {
    let (alice, _bob) = net.open_pair();
    let endpoint = alice.endpoint.expect_local();
    let unknown = FabricAddress(77);
    assert_every_send_refused(endpoint, unknown, &payload(1, 90_000), Errno::EINVAL);
    assert_every_receive_refused(endpoint, unknown, Errno::EINVAL);
}

/// Shows fi_msg/eagain-for-full-queue.
#[over(one_process)]
fn post_to_a_full_queue_returns_every_buffer(net: &Net) {
    let (alice, bob) = net.open_equal_pair(Setup { tx_depth_ops: 1, rx_depth_ops: 1, ..Setup::default() });
    let flags = OpFlags::MATCH_COMPLETE;
    let send = SendMsg { buffers: vec![payload(1, 8)], to: alice.peer(), flags, ..SendMsg::default() };
    alice.endpoint.sendmsg(send).unwrap();
    assert_every_send_refused(alice.endpoint.expect_local(), alice.peer(), &payload(2, 80), Errno::EAGAIN);
    alice.endpoint.recv(marked_buffer(8), ANY, 5).unwrap();
    assert_every_posted_receive_refused(alice.endpoint.expect_local(), ANY, Errno::EAGAIN);
    bob.receive_message(6, 8, &payload(1, 8));
    alice.next_completion();
}

#[over(one_process)]
fn oversized_vector_and_claim_without_a_message_return_their_buffers(net: &Net) {
    let (alice, _bob) = net.open_pair();
    let (endpoint, to) = (alice.endpoint.expect_local(), alice.peer());
    let (sent, room) = (vec![payload(1, 9); IOV_LIMIT + 1], vec![marked_buffer(9); IOV_LIMIT + 1]);
    expect_rejected(endpoint.sendv(sent.clone(), to, 1), Errno::EINVAL, sent);
    expect_rejected(endpoint.recvv(room.clone(), ANY, 1), Errno::EINVAL, room);
    assert_recvmsg_refused(endpoint, ANY, OpFlags::CLAIM, Errno::ENOENT);
    assert_recvmsg_refused(endpoint, ANY, OpFlags::CLAIM | OpFlags::DISCARD, Errno::ENOENT);
    let contradiction = OpFlags::PEEK | OpFlags::CLAIM | OpFlags::DISCARD;
    assert_recvmsg_refused(endpoint, ANY, contradiction, Errno::EINVAL);
}
