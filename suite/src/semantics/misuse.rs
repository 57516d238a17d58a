//! Refused calls, which return their errors and have no effect.

use super::prelude::*;

/// Checks that refused calls had no effect: new messages arrive, and no other operation ends.
#[track_caller]
fn check_calls_had_no_effect(alice: &Party, bob: &Party) {
    alice.exchange_long_messages(bob);
    alice.assert_no_completion();
    bob.assert_no_completion();
}

/// Shows fi_endpoint/enable-needs-bindings.
#[over(one_process)]
fn enable_without_queues_or_address_vector_fails(net: &Net) {
    let domain = net.open_other_domain();
    let (cq, av) = (domain.open_cq(&CqAttr::default()).unwrap(), domain.open_av(&AvAttr::default()).unwrap());
    let endpoint = domain.endpoint(net.info()).unwrap();
    expect_error(endpoint.enable(), Errno::ENOAV);
    endpoint.bind_av(&av).unwrap();
    expect_error(endpoint.enable(), Errno::ENOCQ);
    endpoint.bind_cq(&cq, BindFlags::TRANSMIT).unwrap();
    assert_eq!(endpoint.enable(), Err(Misuse::NoCompletionQueue(Direction::Receive).into()));
    expect_error(endpoint.send(Bytes::new(), FabricAddress(0), 1), Errno::EOPBADSTATE);
    endpoint.bind_cq(&cq, BindFlags::RECV).unwrap();
    endpoint.enable().unwrap();
    // A send-only endpoint needs no receive queue, and vice versa.
    for (caps, direction) in [(Caps::SEND, BindFlags::TRANSMIT), (Caps::RECV, BindFlags::RECV)] {
        let info = Info { caps: Caps::MSG | caps, ..net.info().clone() };
        let endpoint = domain.endpoint(&info).unwrap();
        endpoint.bind_av(&av).unwrap();
        expect_error(endpoint.enable(), Errno::ENOCQ);
        endpoint.bind_cq(&cq, direction).unwrap();
        endpoint.enable().unwrap();
    }
}

/// Shows fi_endpoint/one-queue-per-operation.
#[over(one_process)]
fn second_binding_of_a_queue_or_vector_fails_with_ebusy(net: &Net) {
    let domain = net.open_other_domain();
    let (cq, av) = (domain.open_cq(&CqAttr::default()).unwrap(), domain.open_av(&AvAttr::default()).unwrap());
    let endpoint = domain.endpoint(net.info()).unwrap();
    // A binding without a direction has no effect.
    for flags in [BindFlags::empty(), BindFlags::SELECTIVE_COMPLETION] {
        endpoint.bind_cq(&cq, flags).unwrap();
    }
    let unknown = BindFlags::from_bits_retain(1 << 40) | BindFlags::RECV;
    expect_error(endpoint.bind_cq(&cq, unknown), Errno::EBADFLAGS);
    endpoint.bind_cq(&cq, BindFlags::RECV).unwrap();
    expect_error(endpoint.bind_cq(&cq, BindFlags::RECV), Errno::EBUSY);
    expect_error(endpoint.bind_cq(&cq, BOTH), Errno::EBUSY);
    endpoint.bind_cq(&cq, BindFlags::TRANSMIT).unwrap();
    endpoint.bind_av(&av).unwrap();
    expect_error(endpoint.bind_av(&av), Errno::EBUSY);
    endpoint.enable().unwrap();
    expect_error(endpoint.bind_cq(&cq, BindFlags::RECV), Errno::EBUSY);
    expect_error(endpoint.bind_av(&av), Errno::EBUSY);
    expect_error(endpoint.set_name(endpoint.name().unwrap()), Errno::EOPBADSTATE);
}

/// Shows fi_tagged/tagged-send-needs-connection.
#[over(all, own)]
fn unknown_fabric_address_is_refused(net: &Net) {
    let (alice, bob) = net.open_pair();
    for unknown in [FabricAddress(1), FabricAddress(1 << 40), ANY] {
        expect_error(alice.endpoint.send(payload(1, 8), unknown, 1), Errno::EINVAL);
        expect_error(alice.endpoint.inject(b"8 bytes!", unknown, Some(Tag(1)), None), Errno::EINVAL);
    }
    let removed = alice.insert_address_of(&bob);
    alice.endpoint.send(payload(2, 8), removed, 2).unwrap();
    alice.next_completion();
    alice.av.remove(&[removed]);
    expect_error(alice.endpoint.send(payload(3, 8), removed, 3), Errno::EINVAL);
    bob.receive_message(4, 8, &payload(2, 8));
    check_calls_had_no_effect(&alice, &bob);
}

/// Shows fi_endpoint/set-op-flags.
#[over(all, own)]
fn invalid_default_op_flags_fail_with_ebadflags(net: &Net) {
    let (alice, bob) = net.open_pair();
    let unknown = OpFlags::from_bits_retain(1);
    for flags in [unknown, OpFlags::PEEK, OpFlags::CLAIM, OpFlags::DISCARD, OpFlags::FENCE] {
        expect_error(alice.endpoint.set_tx_op_flags(flags), Errno::EBADFLAGS);
        expect_error(bob.endpoint.set_rx_op_flags(flags), Errno::EBADFLAGS);
    }
    expect_error(alice.endpoint.set_tx_op_flags(OpFlags::MULTI_RECV), Errno::EBADFLAGS);
    for flags in [OpFlags::COMMIT_COMPLETE, OpFlags::INJECT, OpFlags::MATCH_COMPLETE] {
        expect_error(bob.endpoint.set_rx_op_flags(flags), Errno::EBADFLAGS);
    }
    check_calls_had_no_effect(&alice, &bob);
}

#[over(all)]
fn messages_without_the_capability_arrive(net: &Net) {
    let open = |caps| Setup { caps, ..Setup::default() };
    let (alice, bob) = net.open_pair_with(open(Caps::TAGGED | Caps::RECV), open(Caps::MSG | Caps::SEND));
    bob.endpoint.trecv(marked_buffer(8), ANY, Tag(1), 1).unwrap();
    alice.endpoint.tsend(payload(1, 8), alice.peer(), Tag(1), 2).unwrap();
    assert!(received_bytes(&bob.next_completion().buffer) == payload(1, 8));
    assert_eq!(alice.next_completion().context, 2);
    alice.endpoint.set_rx_op_flags(OpFlags::MULTI_RECV).unwrap();
    alice.endpoint.recv_multi(marked_buffer(8), ANY, 3).unwrap();
    bob.endpoint.inject(&payload(2, 8), bob.peer(), None, None).unwrap();
    assert!(received_bytes(&alice.next_completion().buffer) == payload(2, 8));
}

/// Shows fi_endpoint/limits-refuse, fi_msg/inject-size-limits-inject, fi_msg/inject-flag-limit,
/// fi_tagged/tagged-inject-limit.
#[over(all, own)]
fn injects_and_vectors_beyond_their_limits_are_refused(net: &Net) {
    let (alice, bob) = net.open_pair();
    let max = alice.endpoint.info().tx.inject_size_bytes;
    let message = payload(1, max + 1);
    expect_error(alice.endpoint.inject(&message, alice.peer(), None, None), Errno::EMSGSIZE);
    for tag in [None, Some(Tag(7))] {
        let (buffers, flags) = (vec![message.slice(..max), message.slice(max..)], OpFlags::INJECT);
        let send = SendMsg { buffers, to: alice.peer(), tag, flags, ..SendMsg::default() };
        expect_error(alice.endpoint.sendmsg(send), Errno::EMSGSIZE);
    }
    let max = alice.endpoint.info().tx.iov_limit;
    let sent = alice.endpoint.sendv(vec![payload(1, 8); max + 1], alice.peer(), 1);
    expect_error(sent, Errno::EINVAL);
    let posted = bob.endpoint.recvv(vec![marked_buffer(8); max + 1], ANY, 1);
    expect_error(posted, Errno::EINVAL);
    check_calls_had_no_effect(&alice, &bob);
}

#[over(one_process)]
fn endpoint_with_unsupported_info_fails_with_einval(net: &Net) {
    let domain = net.open_other_domain();
    let refused = |change: fn(&mut Info)| {
        let mut info = net.info().clone();
        change(&mut info);
        assert_eq!(expect_errno(domain.endpoint(&info)), Errno::EINVAL, "{info:?}");
    };
    refused(|info| info.caps |= Caps::HMEM);
    refused(|info| info.tx.size_ops = usize::MAX);
    refused(|info| info.tx.op_flags = OpFlags::FENCE);
    refused(|info| info.ep.max_msg_size_bytes = usize::MAX);
    refused(|info| info.ep.auth_key = vec![1; 8]);
    refused(|info| info.ep.ep_type = Some(EndpointType::Msg));
    refused(|info| info.domain.name = Some("another".into()));
    refused(|info| info.src_addr = info.src_addr.map(make_address_of_other_format));

    let mut open_ended = net.info().clone();
    (open_ended.tx.size_ops, open_ended.rx.size_ops, open_ended.ep.max_msg_size_bytes) = (0, 0, 0);
    open_ended.caps = Caps::TAGGED;
    let granted = domain.endpoint(&open_ended).unwrap().info().clone();
    assert!(granted.tx.size_ops > 0 && granted.rx.size_ops > 0 && granted.ep.max_msg_size_bytes > 0);
    assert!(granted.caps.contains(Caps::TAGGED | Caps::SEND | Caps::RECV));
}
