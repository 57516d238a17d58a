//! Transmit contexts that endpoints share: `fi_stx_context` of `fi_endpoint(3)`.

use super::prelude::*;

/// Returns an info for endpoints that share a transmit context.
fn make_sharing_info(net: &Net) -> Info {
    let mut info = net.info().clone();
    info.ep.tx_ctx_cnt = SHARED_CONTEXT;
    info
}

/// Shows fi_endpoint/shared-transmits.
#[over(one_process)]
fn endpoints_that_share_a_context_complete_in_their_own_queues(net: &Net) {
    const MESSAGES: u64 = 10;
    let (domain, info) = (net.open_other_domain(), make_sharing_info(net));
    let context = domain.shared_transmit_context(&info.tx).unwrap();
    let (receiver, receive_cq, _av) = open_disabled_endpoint(&domain, net.info());
    receiver.enable().unwrap();
    let senders = [1_000, 2_000].map(|base| {
        let (sender, cq, av) = open_disabled_endpoint(&domain, &info);
        assert_eq!(sender.info().ep.tx_ctx_cnt, SHARED_CONTEXT);
        sender.bind_shared_transmit_context(&context).unwrap();
        sender.enable().unwrap();
        expect_error(sender.bind_shared_transmit_context(&context), Errno::EBUSY);
        let to = av.insert_one(receiver.name().unwrap()).unwrap();
        (base, sender, cq, to)
    });
    // Any endpoint takes a context, even after it is enabled.
    let (late, _cq, _av) = open_disabled_endpoint(&domain, net.info());
    late.enable().unwrap();
    late.bind_shared_transmit_context(&context).unwrap();
    drop((late, context));
    (0..2 * MESSAGES).for_each(|number| receiver.recv(marked_buffer(100), ANY, number).unwrap());
    for number in 0..MESSAGES {
        for (base, sender, _, to) in &senders {
            sender.send(payload(base + number, 100), *to, base + number).unwrap();
        }
    }
    let cqs = [&senders[0].2, &senders[1].2, &receive_cq];
    for (base, _, cq, _) in &senders {
        for number in *base..base + MESSAGES {
            let sent = next_completion_of(cq, &cqs);
            assert_eq!(sent.context, number, "each queue reports its own endpoint's sends");
        }
    }
    let arrived: BTreeSet<_> =
        (0..2 * MESSAGES).map(|_| received_bytes(&next_completion_of(&receive_cq, &cqs).buffer)).collect();
    let numbers = [1_000, 2_000].into_iter().flat_map(|base| base..base + MESSAGES);
    assert_eq!(arrived, numbers.map(|number| payload(number, 100).to_vec()).collect::<BTreeSet<_>>());
}

/// Shows fi_endpoint/one-shared-context.
#[over(one_process)]
fn invalid_uses_of_transmit_contexts_are_refused(net: &Net) {
    let (domain, info) = (net.open_other_domain(), make_sharing_info(net));
    let context = domain.shared_transmit_context(&info.tx).unwrap();

    let (sharer, _cq, _av) = open_disabled_endpoint(&domain, &info);
    assert_eq!(expect_errno(sharer.enable()), Errno::EOPBADSTATE, "no context is bound");
    let elsewhere = net.open_other_domain().shared_transmit_context(&info.tx).unwrap();
    expect_error(sharer.bind_shared_transmit_context(&elsewhere), Errno::EDOMAIN);
    let messages = TxAttr { caps: Caps::MSG | Caps::SEND, ..TxAttr::default() };
    let messages = domain.shared_transmit_context(&messages).unwrap();
    sharer.bind_shared_transmit_context(&messages).expect("its capabilities do not matter");
    expect_error(sharer.bind_shared_transmit_context(&context), Errno::EBUSY);
    sharer.enable().unwrap();

    let unspecified = domain.shared_transmit_context(&TxAttr::default()).unwrap();
    assert!(unspecified.attr().caps.contains(info.tx.caps), "whatever is left open is all that there is");
    let beyond = TxAttr { comp_order: Order::from_bits_retain(1 << 40), ..TxAttr::default() };
    expect_error(domain.shared_transmit_context(&beyond).map(drop), Errno::ENODATA);
}
