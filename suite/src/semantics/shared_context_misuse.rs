//! Wrong uses of shared receive contexts, and their errors.

use super::prelude::*;
use super::shared_contexts::Sharers;

#[over(one_process, automatic)]
fn close_of_a_context_with_endpoints_fails_with_ebusy(net: &Net) {
    let sharers = Sharers::open_empty(net, &RxAttr::default());
    let endpoint = sharers.open_unbound_endpoint();
    endpoint.bind_shared_receive_context(&sharers.context).unwrap();
    let context = expect_busy(sharers.context.close());
    drop(endpoint);
    context.recv(marked_buffer(8), ANY, 1).unwrap();
    context.close().expect("nothing is bound to it");
}

/// Shows fi_endpoint/shared-context-is-bound, fi_endpoint/one-shared-context.
#[over(one_process, automatic)]
fn invalid_bindings_and_calls_of_shared_contexts_are_refused(net: &Net) {
    let sharers = Sharers::new(net, 1);
    let others = net.open_other_domain().shared_receive_context(&RxAttr::default()).unwrap();
    let endpoint = sharers.open_unbound_endpoint();
    expect_error(endpoint.bind_shared_receive_context(&others), Errno::EDOMAIN);

    let cq = sharers.domain.open_cq(&CqAttr::default()).unwrap();
    endpoint.bind_cq(&cq, BOTH).unwrap();
    assert_eq!(expect_errno(endpoint.enable()), Errno::EOPBADSTATE, "it has no context");
    endpoint.bind_shared_receive_context(&sharers.context).unwrap();
    expect_error(endpoint.bind_shared_receive_context(&sharers.context), Errno::EBUSY);
    endpoint.enable().unwrap();
    expect_error(endpoint.bind_shared_receive_context(&sharers.context), Errno::EBUSY);

    let refused = endpoint.recv(marked_buffer(8), ANY, 1).unwrap_err();
    assert_eq!((refused.errno(), refused.returned.len()), (Errno::ENOSYS, 8), "receives are the context's");
    expect_error(endpoint.trecv(marked_buffer(8), ANY, Tag(1), 1), Errno::ENOSYS);
    expect_error(endpoint.recv_multi(marked_buffer(8), ANY, 1), Errno::ENOSYS);
    for flags in [OpFlags::PEEK, OpFlags::CLAIM, OpFlags::CLAIM | OpFlags::DISCARD] {
        expect_error(endpoint.recvmsg(RecvMsg { flags, ..RecvMsg::default() }), Errno::ENOSYS);
    }

    let info = Info { caps: Caps::MSG | Caps::SEND, ..sharers.info.clone() };
    let sender = sharers.domain.endpoint(&info).unwrap();
    sender.bind_av(&sharers.av).unwrap();
    sender.bind_cq(&cq, BindFlags::TRANSMIT).unwrap();
    sender.bind_shared_receive_context(&sharers.context).unwrap();
    // No queue would report what the context receives.
    expect_error(sender.enable(), Errno::ENOCQ);
    sender.bind_cq(&cq, BindFlags::RECV).unwrap();
    sender.enable().unwrap();

    let alone = sharers.domain.endpoint(net.info()).unwrap();
    expect_error(alone.bind_shared_receive_context(&sharers.context), Errno::EINVAL);

    let (stranger, _av) = open_endpoint_with_queues(&sharers.domain, &sharers.info, &[(&cq, BOTH)]);
    stranger.bind_shared_receive_context(&sharers.context).unwrap();
    assert_eq!(expect_errno(stranger.enable()), Errno::EINVAL, "it has another address vector");

    let flags = OpFlags::TRIGGER;
    expect_error(sharers.context.recvmsg(RecvMsg { flags, ..RecvMsg::default() }), Errno::EBADFLAGS);
    let ordered = RxAttr { comp_order: homespun::flags::Order::STRICT, ..RxAttr::default() };
    expect_error(sharers.domain.shared_receive_context(&ordered), Errno::ENODATA);
}

#[over(one_process, automatic)]
fn directed_receive_without_endpoints_is_refused(net: &Net) {
    let sharers = Sharers::new(net, 0);
    let refused = sharers.context.recv(marked_buffer(8), FabricAddress(0), 1).unwrap_err();
    assert_eq!((refused.errno(), refused.returned.len()), (Errno::ENOAV, 8));
    sharers.context.recv(marked_buffer(8), ANY, 1).expect("an undirected one waits");
    let sharers = Sharers::new(net, 1);
    let refused = sharers.context.trecv(marked_buffer(8), FabricAddress(17), Tag(0), 1).unwrap_err();
    assert_eq!(refused.error, Misuse::UnknownAddress(17).into());
}
