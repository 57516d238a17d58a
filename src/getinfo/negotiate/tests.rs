use homespun_engine::address::AddressFormat;

use super::*;
use crate::info::{AvType, Version};

const MIB: u64 = 1 << 20;

fn make_provider() -> ProviderAttr {
    ProviderAttr {
        domain: "tcp".into(),
        formats: vec![AddressFormat::SockaddrIn, AddressFormat::SockaddrIn6],
        local: true,
        remote: true,
        max_message_bytes: MIB,
    }
}

/// Returns hints with one request.
fn make_hints(ask: impl FnOnce(&mut Info)) -> Info {
    let mut hints = Info::default();
    ask(&mut hints);
    hints
}

/// Returns the best offer.
fn make_best_offer(provider: &ProviderAttr, hints: &Info) -> Result<Info, Misuse> {
    super::make_offer(provider, candidate_ep_types(hints)?[0], hints)
}

fn expect_offer(ask: impl FnOnce(&mut Info)) -> Info {
    make_best_offer(&make_provider(), &make_hints(ask)).expect("this can be met")
}

#[test]
fn empty_hints_grant_every_default_capability() {
    let info = expect_offer(|_| {});
    let of_accesses = RMA_CAPS | TARGET_CAPS | RMA_EXTRAS;
    let reach = Caps::LOCAL_COMM | Caps::REMOTE_COMM;
    assert_eq!(info.caps, MESSAGE_CAPS | UNCONNECTED_CAPS | of_accesses | reach);
    assert_eq!((info.tx.caps, info.rx.caps), (TX_CAPS - CAPS_IF_ASKED, RX_CAPS - CAPS_IF_ASKED));
    assert_eq!((info.tx.rma_iov_limit, info.domain.mr_iov_limit), (1, IOV_LIMIT));
    assert_eq!(info.ep.ep_type, Some(EndpointType::Rdm));
    assert_eq!((info.ep.tx_ctx_cnt, info.ep.rx_ctx_cnt), (1, 1));
    assert_eq!(info.ep.max_msg_size_bytes, 1 << 20);
    assert_eq!(info.ep.mem_tag_format, TAG_GENERIC);
    assert_eq!((info.tx.msg_order, info.rx.msg_order), (ORDERS_FOR_FREE, ORDERS_FOR_FREE));
    assert_eq!((info.tx.comp_order, info.rx.comp_order), (Order::empty(), Order::empty()));
    assert_eq!((info.tx.size_ops, info.rx.size_ops), (TX_DEPTH_DEFAULT_OPS, RX_DEPTH_DEFAULT_OPS));
    assert_eq!(info.tx.inject_size_bytes, INJECT_MAX_BYTES);
    assert_eq!(info.rx.total_buffered_recv_bytes, UNEXPECTED_BUDGET_DEFAULT_BYTES);
    assert_eq!(info.domain.name.as_deref(), Some("tcp"));
    assert_eq!(info.domain.threading, Some(Threading::Safe));
    assert_eq!(info.domain.data_progress, Some(Progress::Manual));
    assert_eq!(info.domain.resource_mgmt, Some(ResourceManagement::Enabled));
    assert_eq!(info.domain.av_type, None);
    assert_eq!(info.fabric.name.as_deref(), Some(FABRIC_NAME));
    assert_eq!(info.fabric.prov_name.as_deref(), Some(PROVIDER_NAME));
}

#[test]
fn offer_used_as_hints_returns_itself() {
    let info = expect_offer(|_| {});
    assert_eq!(make_best_offer(&make_provider(), &info), Ok(info));
}

#[test]
fn hints_of_counts_and_provider_version_are_ignored() {
    type Ask = fn(&mut Info);
    let asks: [Ask; 12] = [
        |h| h.domain.mr_key_size_bytes = usize::MAX,
        |h| h.domain.cq_cnt = usize::MAX,
        |h| h.domain.ep_cnt = usize::MAX,
        |h| h.domain.tx_ctx_cnt = usize::MAX,
        |h| h.domain.rx_ctx_cnt = usize::MAX,
        |h| h.domain.max_ep_tx_ctx = 64,
        |h| h.domain.max_ep_rx_ctx = 64,
        |h| h.domain.max_ep_stx_ctx = 1,
        |h| h.domain.max_ep_srx_ctx = 1,
        |h| h.domain.cntr_cnt = usize::MAX,
        |h| h.domain.mr_cnt = usize::MAX,
        |h| h.fabric.prov_version = Version::new(u16::MAX, 0),
    ];
    for (index, ask) in asks.into_iter().enumerate() {
        assert_eq!(expect_offer(ask), expect_offer(|_| {}), "case {index}");
    }
}

#[test]
fn connected_endpoints_get_all_caps_but_sources() {
    assert_eq!(candidate_ep_types(&Info::default()), Ok(vec![EndpointType::Rdm, EndpointType::Msg]));
    let connected = |h: &mut Info| h.ep.ep_type = Some(EndpointType::Msg);
    let (info, unconnected) = (expect_offer(connected), expect_offer(|_| {}));
    assert_eq!(info.ep.ep_type, Some(EndpointType::Msg));
    assert_eq!(info.caps, unconnected.caps - UNCONNECTED_CAPS);
    assert_eq!(info.rx.caps, unconnected.rx.caps - UNCONNECTED_CAPS);
    assert_eq!((info.tx, info.domain), (unconnected.tx, unconnected.domain));
    for caps in [Caps::SOURCE, Caps::DIRECTED_RECV, Caps::SOURCE | Caps::SOURCE_ERR] {
        let hints = make_hints(|h| {
            connected(h);
            h.caps = caps | Caps::MSG;
        });
        assert_eq!(make_best_offer(&make_provider(), &hints), Err(Misuse::Unmet(Unmet::ConnectionSource)));
    }
}

/// Each line asks for values, and names the reason why they are refused.
macro_rules! refusals {
    ($($($($hint:ident).+ = $value:expr),+ => $unmet:expr;)*) => {$(
        let hints = make_hints(|h| { $(h.$($hint).+ = $value;)+ });
        let text = stringify!($($($hint).+ = $value),+);
        assert_eq!(make_best_offer(&make_provider(), &hints), Err(Misuse::Unmet($unmet)), "{text}");
    )*};
}

/// Shows fi_cq/flag-multicast, fi_cq/transmit-of-unreliable-endpoint, fi_cq/delivery-needs-reliable-endpoint,
/// fi_cq/device-memory, fi_msg/variable-messages, fi_endpoint/endpoint-authorization,
/// fi_endpoint/subset-of-capabilities, fi_trigger/xpu-triggers.
#[test]
fn each_refusal_names_its_reason() {
    let bit = |number: u32| Caps::from_bits_retain(1 << number);
    let [multicast, xpu, variable_msg, named_rx_ctx] = [5, 44, 48, 58].map(bit);
    let order = |number: u32| Order::from_bits_retain(1 << number);
    refusals! {
        caps = Caps::ATOMIC | Caps::HMEM => Unmet::Caps(Caps::HMEM);
        caps = Caps::RMA | Caps::READ | Caps::WRITE | Caps::RMA_EVENT => Unmet::RmaEventAlone;
        rx.caps = Caps::HMEM => Unmet::ReceiveCaps;
        caps = Caps::MSG | Caps::SOURCE_ERR => Unmet::SourceErrAlone;
        caps = Caps::SOURCE_ERR => Unmet::SourceErrAlone;
        caps = bit(6) => Unmet::Caps(bit(6));
        caps = Caps::MSG | variable_msg => Unmet::Caps(variable_msg);
        caps = Caps::MSG | xpu => Unmet::Caps(xpu);
        caps = Caps::MSG | Caps::SOURCE | multicast => Unmet::Caps(multicast);
        tx.caps = Caps::HMEM => Unmet::TransmitCaps;
        tx.caps = Caps::MSG | variable_msg => Unmet::TransmitCaps;
        rx.caps = multicast => Unmet::ReceiveCaps;
        rx.caps = named_rx_ctx => Unmet::ReceiveCaps;
        caps = Caps::MSG, tx.caps = Caps::TAGGED => Unmet::TransmitCaps;
        caps = Caps::TAGGED, rx.caps = Caps::TAGGED | Caps::SOURCE => Unmet::ReceiveCaps;
        caps = Caps::MSG, tx.op_flags = OpFlags::COMMIT_COMPLETE => Unmet::CommitAlone;
        tx.op_flags = OpFlags::FENCE => Unmet::TransmitFlags;
        rx.op_flags = OpFlags::PEEK => Unmet::ReceiveFlags;
        tx.msg_order = Order::SAS | order(9) => Unmet::MessageOrder;
        rx.msg_order = order(40) => Unmet::MessageOrder;
        tx.comp_order = order(16) => Unmet::TransmitCompletionOrder;
        tx.comp_order = Order::RMA_RAW => Unmet::TransmitCompletionOrder;
        rx.comp_order = Order::STRICT => Unmet::ReceiveCompletionOrder;
        tx.inject_size_bytes = INJECT_MAX_BYTES + 1 => Unmet::InjectSize { max_bytes: INJECT_MAX_BYTES };
        tx.size_ops = DEPTH_MAX_OPS + 1 => Unmet::TransmitDepth;
        rx.size_ops = usize::MAX => Unmet::ReceiveDepth;
        tx.iov_limit = IOV_LIMIT + 1 => Unmet::TransmitSegments;
        rx.iov_limit = IOV_LIMIT + 1 => Unmet::ReceiveSegments;
        tx.rma_iov_limit = 2 => Unmet::RemoteSegments;
        ep.ep_type = Some(EndpointType::Dgram) => Unmet::Datagrams;
        ep.protocol = 6 => Unmet::Protocol;
        ep.protocol_version = PROTOCOL_VERSION + 1 => Unmet::ProtocolVersion;
        ep.max_msg_size_bytes = (1 << 20) + 1 => Unmet::MessageSize { max_bytes: 1 << 20 };
        ep.tx_ctx_cnt = 2 => Unmet::SeveralContexts;
        ep.rx_ctx_cnt = 2 => Unmet::SeveralContexts;
        ep.auth_key = vec![1] => Unmet::AuthorizationKeys;
        domain.auth_key = vec![1] => Unmet::AuthorizationKeys;
        domain.data_progress = Some(Progress::ControlUnified) => Unmet::UnifiedDataProgress;
        domain.cq_data_size_bytes = 9 => Unmet::CompletionDataSize { max_bytes: 8 };
        domain.mr_iov_limit = IOV_LIMIT + 1 => Unmet::RegionSegments;
        domain.caps = bit(53) => Unmet::DomainCaps;
        domain.max_err_data_bytes = 257 => Unmet::ErrorDataSize { max_bytes: 256 };
        fabric.name = Some("192.0.2.0/24".into()) => Unmet::FabricName;
        fabric.prov_name = Some("tcp".into()) => Unmet::ProviderName;
    }
}

/// Each line asks for a value, and says what the offer has there or elsewhere.
macro_rules! grants {
    ($($($hint:ident).+ = $value:expr => $($($got:ident).+ == $granted:expr),+;)*) => {$(
        let info = expect_offer(|h| h.$($hint).+ = $value);
        $(assert_eq!(info.$($got).+, $granted, "{}", stringify!($($got).+ == $granted));)+
    )*};
}

/// Shows fi_cq/len-with-prefix, fi_cq-1.4/err-data-amount, fi_mr/mr-basic.
#[test]
fn hints_within_limits_are_granted() {
    let every_mode = MrMode::all() - MrMode::BASIC - MrMode::SCALABLE;
    let (auto, manual) = (Some(Progress::Auto), Some(Progress::Manual));
    let unified = Some(Progress::ControlUnified);
    let (disabled, enabled) = (Some(ResourceManagement::Disabled), Some(ResourceManagement::Enabled));
    grants! {
        tx.op_flags = TRANSMIT_DEFAULT_FLAGS => tx.op_flags == TRANSMIT_DEFAULT_FLAGS;
        rx.op_flags = RECEIVE_DEFAULT_FLAGS => rx.op_flags == RECEIVE_DEFAULT_FLAGS;
        tx.msg_order = Order::SAS => tx.msg_order == ORDERS_FOR_FREE;
        tx.comp_order = Order::SAS => tx.comp_order == Order::STRICT;
        tx.inject_size_bytes = 1 => tx.inject_size_bytes == INJECT_MAX_BYTES;
        tx.size_ops = 2 => tx.size_ops == 2;
        rx.size_ops = DEPTH_MAX_OPS => rx.size_ops == DEPTH_MAX_OPS;
        tx.iov_limit = IOV_LIMIT => tx.iov_limit == IOV_LIMIT;
        tx.rma_iov_limit = 1 => tx.rma_iov_limit == 1;
        tx.tclass = 0x201 => tx.tclass == 0;
        ep.ep_type = Some(EndpointType::Rdm) => ep.ep_type == Some(EndpointType::Rdm);
        ep.protocol = PROTOCOL => ep.protocol == PROTOCOL;
        ep.mem_tag_format = 0x30ff => ep.mem_tag_format == 0x30ff;
        ep.tx_ctx_cnt = 1 => ep.tx_ctx_cnt == 1;
        ep.rx_ctx_cnt = SHARED_CONTEXT => ep.rx_ctx_cnt == SHARED_CONTEXT;
        ep.tx_ctx_cnt = SHARED_CONTEXT => ep.tx_ctx_cnt == SHARED_CONTEXT;
        ep.max_msg_size_bytes = 7 => ep.max_msg_size_bytes == 1 << 20;
        ep.msg_prefix_size_bytes = 8 => ep.msg_prefix_size_bytes == 0;
        rx.total_buffered_recv_bytes = UNEXPECTED_BUDGET_MIN_BYTES + 1
            => rx.total_buffered_recv_bytes == UNEXPECTED_BUDGET_MIN_BYTES + 1;
        rx.total_buffered_recv_bytes = 1 => rx.total_buffered_recv_bytes == UNEXPECTED_BUDGET_MIN_BYTES;
        rx.total_buffered_recv_bytes = usize::MAX
            => rx.total_buffered_recv_bytes == UNEXPECTED_BUDGET_MAX_BYTES;
        mode = Mode::all() => mode == Mode::empty(), tx.mode == Mode::empty();
        domain.mr_mode = every_mode => domain.mr_mode == MrMode::empty();
        domain.mr_mode = MrMode::BASIC | MrMode::LOCAL => domain.mr_mode == MrMode::BASIC;
        domain.mr_mode = MrMode::SCALABLE => domain.mr_mode == MrMode::SCALABLE;
        fabric.api_version = Version::new(1, 4) => domain.mr_mode == MrMode::SCALABLE;
        fabric.api_version = Version::new(1, 5) => domain.mr_mode == MrMode::empty();
        fabric.api_version = Version::new(1, 17) => fabric.api_version == Version::new(1, 17);
        domain.mr_cnt = 9 => domain.mr_cnt == 0, domain.mr_key_size_bytes == 8;
        domain.mr_key_size_bytes = 3 => domain.mr_key_size_bytes == 8;
        domain.mr_key_size_bytes = 4 => domain.mr_key_size_bytes == 4;
        domain.mr_key_size_bytes = 7 => domain.mr_key_size_bytes == 7;
        domain.data_progress = manual => domain.data_progress == manual;
        domain.data_progress = auto => domain.data_progress == auto;
        domain.control_progress = auto => domain.control_progress == auto, domain.data_progress == manual;
        domain.control_progress = unified => domain.control_progress == unified;
        domain.resource_mgmt = disabled => domain.resource_mgmt == disabled;
        domain.resource_mgmt = enabled => domain.resource_mgmt == enabled;
        domain.threading = Some(Threading::Completion) => domain.threading == Some(Threading::Completion);
        domain.av_type = Some(AvType::Map) => domain.av_type == Some(AvType::Map);
        domain.av_type = Some(AvType::Table) => domain.av_type == Some(AvType::Table);
        domain.max_err_data_bytes = 1 => domain.max_err_data_bytes == 256;
        domain.cq_data_size_bytes = 4 => domain.cq_data_size_bytes == 8;
        domain.caps = Caps::LOCAL_COMM => domain.caps == Caps::LOCAL_COMM | Caps::REMOTE_COMM;
        fabric.name = Some("homespun".into()) => fabric.prov_name == Some(PROVIDER_NAME.to_owned());
        fabric.prov_name = Some("homespun".into()) => fabric.prov_name == Some(PROVIDER_NAME.to_owned());
    }
    let shared = expect_offer(|_| {}).domain;
    assert!(shared.max_ep_srx_ctx > 1 && shared.max_ep_stx_ctx > 1);
}

#[test]
fn requested_caps_are_granted_with_implied_and_free_ones() {
    let reach = Caps::LOCAL_COMM | Caps::REMOTE_COMM;
    // Senders get fences without a request. Receivers of untagged messages get multi-receive buffers, and
    // targets get counts of accesses.
    let both = Caps::SEND | Caps::RECV | Caps::FENCE;
    let many = Caps::MULTI_RECV;
    let (flushed, counted) = (Caps::RMA | Caps::RMA_PMEM, Caps::RMA_EVENT | reach);
    let rma = flushed | RMA_DIRECTIONS | Caps::RMA_EVENT;
    let atomic = Caps::ATOMIC | RMA_DIRECTIONS | Caps::RMA_EVENT;
    let cases = [
        (Caps::MSG, Caps::MSG | both | many | reach),
        (Caps::MSG | many, Caps::MSG | both | many | reach),
        (many | Caps::RECV, Caps::MSG | Caps::RECV | many | reach),
        (many | Caps::SEND, Caps::MSG | Caps::SEND | Caps::FENCE | many | reach),
        (Caps::TAGGED, Caps::TAGGED | both | reach),
        (Caps::MSG | Caps::SEND, Caps::MSG | Caps::SEND | Caps::FENCE | reach),
        (Caps::MSG | Caps::SOURCE, Caps::MSG | Caps::SOURCE | both | many | reach),
        (Caps::LOCAL_COMM, reach),
        (Caps::DIRECTED_RECV, Caps::DIRECTED_RECV | Caps::RECV | reach),
        (Caps::SOURCE, Caps::SOURCE | Caps::RECV | reach),
        (Caps::SOURCE | Caps::SOURCE_ERR, Caps::SOURCE | Caps::SOURCE_ERR | Caps::RECV | reach),
        (Caps::FENCE, Caps::FENCE | Caps::SEND | reach),
        (Caps::RMA, rma | Caps::FENCE | reach),
        (Caps::RMA_EVENT, rma | atomic | Caps::FENCE | reach),
        (Caps::RMA_EVENT | Caps::REMOTE_READ, flushed | Caps::ATOMIC | Caps::REMOTE_READ | counted),
        (Caps::MSG | Caps::RMA_EVENT, Caps::MSG | rma | atomic | both | many | reach),
        (Caps::RMA_PMEM, rma | Caps::FENCE | reach),
        (Caps::MSG | Caps::RMA | Caps::WRITE, Caps::MSG | flushed | Caps::WRITE | both | many | reach),
        (Caps::RMA | Caps::REMOTE_READ, flushed | Caps::REMOTE_READ | counted),
        (Caps::ATOMIC, atomic | Caps::FENCE | reach),
        (Caps::ATOMIC | Caps::READ, Caps::ATOMIC | Caps::READ | Caps::FENCE | reach),
        (
            Caps::RMA | Caps::ATOMIC | Caps::REMOTE_WRITE,
            flushed | Caps::ATOMIC | Caps::REMOTE_WRITE | counted,
        ),
    ];
    for (asked, granted) in cases {
        assert_eq!(expect_offer(|h| h.caps = asked).caps, granted, "{asked:?}");
    }
}

#[test]
fn tx_and_rx_caps_contain_only_their_side() {
    let send_only = expect_offer(|h| h.caps = Caps::MSG | Caps::SEND);
    assert_eq!(send_only.tx.caps, Caps::MSG | Caps::SEND | Caps::FENCE);
    assert_eq!((send_only.rx.caps, send_only.ep.rx_ctx_cnt), (Caps::empty(), 0));
    let receive_only = expect_offer(|h| h.caps = Caps::TAGGED | Caps::RECV | Caps::SOURCE);
    assert_eq!((receive_only.tx.caps, receive_only.ep.tx_ctx_cnt), (Caps::empty(), 0));
    assert_eq!(receive_only.rx.caps, Caps::TAGGED | Caps::RECV | Caps::SOURCE);
    let target = expect_offer(|h| h.caps = Caps::RMA | Caps::REMOTE_WRITE);
    assert_eq!(target.tx.caps, Caps::empty());
    assert_eq!(target.rx.caps, Caps::RMA | Caps::REMOTE_WRITE | Caps::RMA_EVENT | Caps::RMA_PMEM);
    let updated = expect_offer(|h| h.caps = Caps::ATOMIC | Caps::REMOTE_WRITE | Caps::WRITE);
    assert_eq!(updated.tx.caps, Caps::ATOMIC | Caps::WRITE | Caps::FENCE);
    assert_eq!(updated.rx.caps, Caps::ATOMIC | Caps::REMOTE_WRITE | Caps::RMA_EVENT);
    let narrowed = expect_offer(|h| {
        h.caps = Caps::MSG | Caps::TAGGED;
        h.tx.caps = Caps::MSG;
        h.rx.caps = Caps::TAGGED | Caps::RECV;
    });
    assert_eq!(narrowed.tx.caps, Caps::MSG | Caps::SEND);
    assert_eq!(narrowed.rx.caps, Caps::TAGGED | Caps::RECV);
    let copied = expect_offer(|h| h.tx.caps = Caps::MSG | Caps::SEND | Caps::RECV | Caps::LOCAL_COMM);
    assert_eq!(copied.tx.caps, Caps::MSG | Caps::SEND, "what does not concern transmission is left out");
}

#[test]
fn side_capabilities_of_the_other_side_are_ignored() {
    for ep_type in EndpointType::OFFERED {
        let plain = expect_offer(|h| h.ep.ep_type = Some(ep_type));
        let of_messages =
            Caps::RECV | Caps::MULTI_RECV | Caps::SOURCE | Caps::SOURCE_ERR | Caps::DIRECTED_RECV;
        for caps in (of_messages | Caps::REMOTE_READ | Caps::REMOTE_WRITE | Caps::RMA_EVENT).iter() {
            let info = expect_offer(|h| (h.ep.ep_type, h.tx.caps) = (Some(ep_type), caps));
            assert_eq!(info, plain, "{caps:?} in the transmit attributes");
        }
        for caps in [Caps::SEND, Caps::FENCE, Caps::READ, Caps::WRITE] {
            let info = expect_offer(|h| (h.ep.ep_type, h.rx.caps) = (Some(ep_type), caps));
            assert_eq!(info, plain, "{caps:?} in the receive attributes");
        }
    }
    let info = expect_offer(|h| {
        h.caps = Caps::TAGGED;
        h.tx.caps = Caps::TAGGED | Caps::SOURCE;
        h.rx.caps = Caps::TAGGED | Caps::WRITE;
    });
    assert_eq!((info.tx.caps, info.rx.caps), (Caps::TAGGED | Caps::SEND, Caps::TAGGED | Caps::RECV));
}

#[test]
fn trigger_cap_is_granted_to_both_sides_only_on_request() {
    assert!(!expect_offer(|_| {}).caps.contains(Caps::TRIGGER));
    assert!(!expect_offer(|h| h.caps = Caps::MSG).caps.contains(Caps::TRIGGER));
    let info = expect_offer(|h| h.caps = Caps::MSG | Caps::TRIGGER);
    assert!((info.caps & info.tx.caps & info.rx.caps).contains(Caps::MSG | Caps::TRIGGER));
}

#[test]
fn local_only_provider_is_not_granted_remote_comm() {
    let local = ProviderAttr { remote: false, ..make_provider() };
    let ask = |caps| make_best_offer(&local, &make_hints(|h| h.caps = caps));
    assert_eq!(ask(Caps::MSG).map(|info| info.caps.contains(Caps::REMOTE_COMM)), Ok(false));
    assert_eq!(ask(Caps::MSG | Caps::REMOTE_COMM), Err(Misuse::Unmet(Unmet::Caps(Caps::REMOTE_COMM))));
    let remote = ProviderAttr { local: false, ..make_provider() };
    let refused = make_best_offer(&remote, &make_hints(|h| h.domain.caps = Caps::LOCAL_COMM));
    assert_eq!(refused, Err(Misuse::Unmet(Unmet::DomainCaps)));
}

#[test]
fn inject_size_is_limited_to_the_message_size() {
    let small = ProviderAttr { max_message_bytes: 100, ..make_provider() };
    let info = make_best_offer(&small, &Info::default()).expect("an offer");
    assert_eq!(info.tx.inject_size_bytes, 100);
    assert!(make_best_offer(&small, &make_hints(|h| h.tx.inject_size_bytes = 101)).is_err());
}

#[test]
fn requested_order_is_granted_with_implied_orders() {
    for order in Order::all().iter() {
        let transmitting = expect_offer(|h| h.tx.msg_order = order);
        assert!(transmitting.tx.msg_order.contains(order | ORDERS_FOR_FREE));
        assert_eq!(transmitting.rx.msg_order, ORDERS_FOR_FREE, "{order:?}");
        let receiving = expect_offer(|h| h.rx.msg_order = order);
        assert!(receiving.rx.msg_order.contains(order | ORDERS_FOR_FREE));
        assert_eq!(receiving.tx.msg_order, ORDERS_FOR_FREE, "{order:?}");
        for info in [transmitting, receiving] {
            let [raw, war, waw] = [RAW_ORDERS, WAR_ORDERS, WAW_ORDERS].map(|orders| orders.contains(order));
            let sizes = [raw, war, waw].map(|is_ordered| if is_ordered { usize::MAX } else { 0 });
            let of = &info.ep;
            let granted =
                [of.max_order_raw_size_bytes, of.max_order_war_size_bytes, of.max_order_waw_size_bytes];
            assert_eq!(granted, sizes, "{order:?}");
            assert_eq!(make_best_offer(&make_provider(), &info), Ok(info));
        }
    }
    let whole = expect_offer(|h| h.tx.msg_order = Order::WAR).tx.msg_order;
    assert_eq!(whole, ORDERS_FOR_FREE | Order::WAR | Order::RMA_WAR | Order::ATOMIC_WAR);
    // Parts of an order do not grant the whole order.
    let parts = Order::RMA_WAR | Order::ATOMIC_WAR;
    assert_eq!(expect_offer(|h| h.tx.msg_order = parts).tx.msg_order, ORDERS_FOR_FREE | parts);
}

#[test]
fn max_order_size_in_hints_requests_that_order() {
    let info = expect_offer(|h| h.ep.max_order_raw_size_bytes = 8);
    for granted in [info.tx.msg_order, info.rx.msg_order] {
        assert_eq!(granted, ORDERS_FOR_FREE | RAW_ORDERS);
    }
    assert_eq!((info.ep.max_order_raw_size_bytes, info.ep.max_order_war_size_bytes), (usize::MAX, 0));
    // An explicit order takes precedence.
    let info = expect_offer(|h| {
        h.tx.msg_order = Order::ATOMIC_WAW;
        h.ep.max_order_waw_size_bytes = usize::MAX;
    });
    assert_eq!(info.tx.msg_order, ORDERS_FOR_FREE | Order::ATOMIC_WAW);
    assert_eq!((info.rx.msg_order, info.ep.max_order_waw_size_bytes), (ORDERS_FOR_FREE, usize::MAX));
}
