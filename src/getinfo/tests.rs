use std::net::SocketAddr;

use bytes::BytesMut;
use homespun_engine::address::{Address, AddressFormat};
use homespun_engine::errno::Errno;
use homespun_engine::flags::{Caps, OpFlags};

use super::*;
use crate::fabric::{Fabric, getinfo};
use crate::info::{DomainAttr, RxAttr, TxAttr, Version};
use crate::{Domain, FabricAddress};

fn make_provider(domain: &str) -> ProviderAttr {
    ProviderAttr {
        domain: domain.into(),
        formats: vec![AddressFormat::SockaddrIn, AddressFormat::SockaddrIn6],
        local: true,
        remote: true,
        max_message_bytes: 1 << 20,
    }
}

/// Returns the result of these providers for a peer at the loopback interface.
fn getinfo_of_loopback_peer(providers: &[ProviderAttr], hints: &Info) -> Result<Vec<Info>, Error> {
    getinfo_with_domain_param(providers, None, hints)
}

/// As [`getinfo_of_loopback_peer`], but a parameter allows only one domain.
fn getinfo_with_domain_param(
    providers: &[ProviderAttr],
    only: Option<&str>,
    hints: &Info,
) -> Result<Vec<Info>, Error> {
    let (node, service) = (Some("127.0.0.1"), Some("7471"));
    getinfo_from_providers(providers, only, node, service, InfoFlags::NUMERIC_HOST, Some(hints))
}

/// Returns hints that name this domain.
fn hints_with_domain(domain: &str) -> Info {
    let mut hints = Info::default();
    hints.domain.name = Some(domain.into());
    hints
}

/// Returns the best info without a peer, and its domain.
fn open_domain(fabric: &Fabric, hints: &Info) -> (Info, Domain) {
    let infos = fabric.getinfo(None, None, InfoFlags::empty(), Some(hints)).expect("an answer");
    let domain = fabric.domain(&infos[0]).expect("a domain");
    (infos[0].clone(), domain)
}

/// Checks that the infos of connected endpoints follow those of unconnected endpoints, with the same domains
/// in the same order. Returns these domains.
fn check_and_list_domains(infos: &[Info]) -> Vec<&str> {
    let (unconnected, connected) = infos.split_at(infos.len() / 2);
    let all = |infos: &[Info], of| infos.iter().all(|info| info.ep.ep_type == Some(of));
    assert!(all(unconnected, EndpointType::Rdm) && all(connected, EndpointType::Msg), "{infos:?}");
    let name = |info: &Info| info.domain.name.clone().expect("a domain has a name");
    assert!(unconnected.iter().map(name).eq(connected.iter().map(name)));
    unconnected.iter().filter_map(|info| info.domain.name.as_deref()).collect()
}

#[test]
fn info_has_source_and_destination_address() {
    let found = getinfo_of_loopback_peer(&[make_provider("tcp")], &Info::default()).expect("an answer");
    let types: Vec<_> = found.iter().map(|info| info.ep.ep_type).collect();
    assert_eq!(types, [Some(EndpointType::Rdm), Some(EndpointType::Msg)]);
    let loopback = |port| Some(Address::from(SocketAddr::from(([127, 0, 0, 1], port))));
    assert_eq!((found[0].src_addr, found[0].dest_addr), (loopback(0), loopback(7471)));
    assert_eq!(found[0].addr_format, Some(AddressFormat::SockaddrIn));
}

#[test]
fn getinfo_returns_all_domains_in_order_or_the_named_one() {
    let providers = [make_provider("auto"), make_provider("tcp")];
    let found = getinfo_of_loopback_peer(&providers, &Info::default()).expect("both");
    assert_eq!(check_and_list_domains(&found), ["auto", "tcp"]);
    let found = getinfo_of_loopback_peer(&providers, &hints_with_domain("tcp")).expect("the one named");
    assert_eq!(check_and_list_domains(&found), ["tcp"]);
    let refused =
        getinfo_of_loopback_peer(&providers, &hints_with_domain("eth0")).expect_err("there is none");
    assert_eq!(refused.to_string(), "there is no domain eth0, only auto, tcp");
    assert_eq!(refused.errno(), Errno::ENODATA);
}

#[test]
fn domain_parameter_leaves_only_that_domain_unless_hints_name_another() {
    let providers = [make_provider("tcp"), make_provider("shm")];
    let (any, named) = (Info::default(), hints_with_domain("shm"));
    for (param, hints) in [("shm", &any), ("shm", &named), ("tcp", &named), ("token-ring", &named)] {
        let found = getinfo_with_domain_param(&providers, Some(param), hints).expect("the one left");
        assert_eq!(check_and_list_domains(&found), ["shm"]);
    }
    for hints in [any, hints_with_domain("token-ring")] {
        let refused =
            getinfo_with_domain_param(&providers, Some("token-ring"), &hints).expect_err("there is none");
        let text = "there is no domain token-ring (FI_HOMESPUN_DOMAIN), only tcp, shm";
        assert_eq!(refused.to_string(), text);
        assert_eq!(refused.errno(), Errno::ENODATA);
    }
}

#[test]
fn domain_of_the_parameter_is_offered_even_for_remote_comm_hints() {
    let providers = [make_provider("tcp"), ProviderAttr { remote: false, ..make_provider("shm") }];
    let caps = Caps::MSG | Caps::LOCAL_COMM | Caps::REMOTE_COMM;
    let mut hints = Info { caps, ..Info::default() };
    hints.tx.caps = caps;
    hints.domain.caps = Caps::REMOTE_COMM;
    let found = getinfo_with_domain_param(&providers, Some("shm"), &hints).expect("the one left");
    assert_eq!(check_and_list_domains(&found), ["shm"]);
    assert!(found[0].caps.contains(Caps::MSG | Caps::LOCAL_COMM), "{found:?}");
    assert!(!found[0].caps.contains(Caps::REMOTE_COMM), "{found:?}");
    let found = getinfo_of_loopback_peer(&providers, &hints).expect("the one that reaches them");
    assert_eq!(check_and_list_domains(&found), ["tcp"]);
}

#[test]
fn prov_attr_only_returns_only_fabric_attributes() {
    let mut hints = Info { caps: Caps::RMA, ..Info::default() };
    hints.fabric.api_version = Version::new(1, 17);
    let providers = [make_provider("auto"), make_provider("tcp")];
    let node = Some("no-such-host.invalid");
    let found = getinfo_from_providers(&providers, None, node, None, InfoFlags::PROV_ATTR_ONLY, Some(&hints))
        .expect("one answer");
    let fabric = FabricAttr {
        name: Some(FABRIC_NAME.into()),
        prov_name: Some(PROVIDER_NAME.into()),
        prov_version: PROVIDER_VERSION,
        api_version: Version::new(1, 17),
    };
    assert_eq!(found, [Info { fabric, ..Info::default() }]);
}

#[test]
fn unknown_flags_are_ignored() {
    let ask = |node, flags| getinfo_from_providers(&[make_provider("tcp")], None, node, None, flags, None);
    for node in [None, Some("127.0.0.1")] {
        let plain = ask(node, InfoFlags::empty());
        assert!(plain.is_ok(), "{plain:?}");
        for bit in 0..u64::BITS {
            let flag = InfoFlags::from_bits_retain(1 << bit);
            if !InfoFlags::all().contains(flag) {
                assert_eq!(ask(node, flag), plain, "bit {bit}");
            }
        }
    }
}

#[test]
fn getinfo_offers_the_built_in_providers() {
    let found = getinfo(None, None, InfoFlags::empty(), None).expect("an answer");
    assert_eq!(found[0].domain.name.as_deref(), Some("auto"));
    let everywhere = AddressFormat::SockaddrIn.wildcard();
    assert_eq!((found[0].src_addr, found[0].dest_addr), (Some(everywhere), None));
    let names = getinfo(Some("localhost"), Some("7471"), InfoFlags::empty(), None).expect("localhost");
    assert!(names.iter().all(|info| info.dest_addr.is_some_and(|dest| dest.ip().is_loopback())));
    let refused = getinfo(Some("localhost"), Some("7471"), InfoFlags::NUMERIC_HOST, None);
    assert_eq!(refused.unwrap_err().errno(), Errno::ENODATA);
}

#[test]
fn parameter_sets_budget_that_hints_leave_open() {
    let fabric = Fabric::with_params(Params { unexpected_bytes: 2 << 20, ..Params::default() });
    let budgets = |hints: Option<&Info>| -> Vec<usize> {
        let found = fabric.getinfo(None, None, InfoFlags::empty(), hints).expect("an answer");
        found.iter().map(|info| info.rx.total_buffered_recv_bytes).collect()
    };
    assert!(budgets(None).iter().all(|&bytes| bytes == 2 << 20));
    let mut hints = Info::default();
    hints.rx.total_buffered_recv_bytes = 5 << 20;
    assert!(budgets(Some(&hints)).iter().all(|&bytes| bytes == 5 << 20));

    // The same holds for an endpoint whose info the application may have changed.
    let (mut info, domain) = open_domain(&fabric, &Info::default());
    for (asked, granted) in [(0, 2 << 20), (5 << 20, 5 << 20)] {
        info.rx.total_buffered_recv_bytes = asked;
        let endpoint = domain.endpoint(&info).expect("an endpoint");
        assert_eq!(endpoint.info().rx.total_buffered_recv_bytes, granted);
    }
}

#[test]
fn parameters_set_the_sizes_of_shared_contexts_that_attributes_leave_open() {
    let fabric = Fabric::with_params(Params { tx_size_ops: 50, rx_size_ops: 60, ..Params::default() });
    let (_, domain) = open_domain(&fabric, &Info::default());
    for (asked, granted) in [(0, [50, 60]), (7, [7, 7])] {
        let transmit = TxAttr { size_ops: asked, ..TxAttr::default() };
        let transmit = domain.shared_transmit_context(&transmit).expect("a transmit context");
        let receive = RxAttr { size_ops: asked, ..RxAttr::default() };
        let receive = domain.shared_receive_context(&receive).expect("a receive context");
        assert_eq!([transmit.attr().size_ops, receive.attr().size_ops], granted);
    }
}

#[test]
fn endpoint_with_an_unspecified_domain_and_type_is_rdm() {
    let (answer, domain) = open_domain(&Fabric::with_params(Params::default()), &Info::default());
    let mut info = Info { domain: DomainAttr::default(), ..answer.clone() };
    info.ep.ep_type = None;
    let endpoint = domain.endpoint(&info).expect("an endpoint");
    assert_eq!(endpoint.info().ep.ep_type, Some(EndpointType::Rdm));
    assert_eq!(endpoint.info().domain.name, answer.domain.name);
    info.domain.name = Some("eth0".into());
    assert_eq!(domain.endpoint(&info).map(drop).unwrap_err().errno(), Errno::EINVAL);
}

#[test]
fn local_only_provider_is_not_offered_for_another_host() {
    let local = ProviderAttr { remote: false, ..make_provider("shm") };
    let both = [local.clone(), make_provider("tcp")];
    let found = getinfo_of_loopback_peer(&both, &Info::default()).expect("both reach this host");
    assert_eq!(check_and_list_domains(&found), ["shm", "tcp"]);
    let elsewhere = |providers: &[ProviderAttr]| {
        // No host has an address of TEST-NET-3. There may be no route to it either.
        let (node, service) = (Some("203.0.113.77"), Some("7471"));
        getinfo_from_providers(providers, None, node, service, InfoFlags::NUMERIC_HOST, None)
    };
    if let Ok(found) = elsewhere(&both) {
        assert_eq!(check_and_list_domains(&found), ["tcp"]);
        assert_eq!(elsewhere(&[local]), Err(Misuse::Unmet(Unmet::LocalDestination).into()));
    }
}

/// Shows fi_cq/receive-level-delays-flush.
#[test]
fn flags_granted_by_getinfo_can_be_set_and_no_others() {
    let fabric = Fabric::new();
    let (info, domain) = open_domain(&fabric, &Info::default());
    let endpoint = domain.endpoint(&info).expect("an endpoint");
    let context = domain.shared_receive_context(&info.rx).expect("a context");
    let asked = |hints: &Info| fabric.getinfo(None, None, InfoFlags::empty(), Some(hints)).is_ok();
    let (mut sends, mut receives) = (OpFlags::empty(), OpFlags::empty());
    for bit in 0..u64::BITS {
        let flag = OpFlags::from_bits_retain(1 << bit);
        let mut hints = Info::default();
        hints.tx.op_flags = flag;
        assert_eq!(asked(&hints), endpoint.set_tx_op_flags(flag).is_ok(), "bit {bit} of sends");
        sends.set(flag, asked(&hints));
        let mut hints = Info::default();
        hints.rx.op_flags = flag;
        assert_eq!(asked(&hints), endpoint.set_rx_op_flags(flag).is_ok(), "bit {bit} of receives");
        assert_eq!(asked(&hints), context.set_rx_op_flags(flag).is_ok(), "bit {bit} of shared receives");
        receives.set(flag, asked(&hints));
    }
    let levels = OpFlags::INJECT_COMPLETE | OpFlags::TRANSMIT_COMPLETE | OpFlags::DELIVERY_COMPLETE;
    assert!(sends.contains(levels | OpFlags::COMPLETION | OpFlags::INJECT | OpFlags::MATCH_COMPLETE));
    assert!(receives.contains(levels | OpFlags::COMPLETION));
    assert!(!sends.intersects(OpFlags::FENCE | OpFlags::REMOTE_CQ_DATA | OpFlags::MULTI_RECV));
    assert!(!receives.intersects(OpFlags::PEEK | OpFlags::CLAIM | OpFlags::DISCARD | OpFlags::INJECT));
}

#[test]
fn receives_have_the_default_flag_trigger_only_with_the_capability() {
    for caps in [Caps::MSG, Caps::MSG | Caps::TRIGGER] {
        let (info, domain) = open_domain(&Fabric::new(), &Info { caps, ..Info::default() });
        let endpoint = domain.endpoint(&info).expect("an endpoint");
        let context = domain.shared_receive_context(&info.rx).expect("a context");
        let is_allowed = caps.contains(Caps::TRIGGER);
        assert_eq!(endpoint.set_rx_op_flags(OpFlags::TRIGGER).is_ok(), is_allowed, "{caps:?}");
        assert_eq!(context.set_rx_op_flags(OpFlags::TRIGGER).is_ok(), is_allowed, "{caps:?}");
        // A receive without a trigger cannot have the flag.
        let posted = context.recv(BytesMut::zeroed(8), FabricAddress::UNSPECIFIED, 1);
        let refused = posted.err().map(|refused| refused.error.errno());
        assert_eq!(refused, is_allowed.then_some(Errno::EBADFLAGS));
    }
}

/// Shows fi_cq/context-null-for-remote-data, fi_cq/len-with-prefix, fi_cq/buffered-receives,
/// fi_cq/notify-flags-only.
#[test]
fn infos_with_rx_cq_data_follow_all_others_if_the_hints_name_the_mode_twice() {
    let providers = [make_provider("auto"), make_provider("tcp")];
    let plain = getinfo_of_loopback_peer(&providers, &Info::default()).expect("both");
    for (mode, of_receives, is_offered) in [
        (Mode::RX_CQ_DATA, Mode::RX_CQ_DATA, true),
        (Mode::all(), Mode::RX_CQ_DATA | Mode::CONTEXT, true),
        (Mode::all(), Mode::CONTEXT, false),
        (Mode::all(), Mode::empty(), false),
        (Mode::empty(), Mode::RX_CQ_DATA, false),
        (Mode::all() - Mode::RX_CQ_DATA, Mode::all(), false),
    ] {
        let mut hints = Info { mode, ..Info::default() };
        hints.rx.mode = of_receives;
        let found = getinfo_of_loopback_peer(&providers, &hints).expect("both");
        let (first, rest) = found.split_at(plain.len());
        assert_eq!(first, plain, "{mode:?}, {of_receives:?}");
        let mut with_mode = if is_offered { plain.clone() } else { Vec::new() };
        for info in &mut with_mode {
            (info.mode, info.rx.mode) = (Mode::RX_CQ_DATA, Mode::RX_CQ_DATA);
        }
        assert_eq!(rest, with_mode, "{mode:?}, {of_receives:?}");
    }
}

#[test]
fn infos_with_rx_cq_data_are_offered_only_where_a_write_can_take_a_receive() {
    let providers = [make_provider("tcp")];
    let messages = Caps::MSG | Caps::SEND | Caps::RECV;
    for (caps, is_offered) in [
        (messages | Caps::RMA, true),
        (messages | Caps::RMA | Caps::REMOTE_WRITE, true),
        (messages | Caps::RMA | Caps::WRITE, false),
        (messages | Caps::ATOMIC, false),
        (Caps::TAGGED | Caps::RMA, false),
        (Caps::MSG | Caps::SEND | Caps::RMA, false),
        (messages, false),
    ] {
        let mut hints = Info { caps, mode: Mode::RX_CQ_DATA, ..Info::default() };
        hints.rx.mode = Mode::RX_CQ_DATA;
        let found = getinfo_of_loopback_peer(&providers, &hints).expect("the hints are met");
        assert!(found[0].mode.is_empty(), "{caps:?}");
        assert_eq!(found.iter().any(|info| !info.mode.is_empty()), is_offered, "{caps:?}");
    }
}

#[test]
fn endpoint_has_the_mode_of_its_info_or_of_its_receive_side() {
    let provider = make_provider("tcp");
    let granted = |mode, of_receives| {
        let mut info = Info { mode, ..Info::default() };
        info.rx.mode = of_receives;
        let granted = grant_info(&provider, &info).expect("it can be granted");
        assert_eq!(granted.mode, granted.rx.mode);
        granted.mode
    };
    assert_eq!(granted(Mode::all(), Mode::empty()), Mode::RX_CQ_DATA);
    assert_eq!(granted(Mode::empty(), Mode::RX_CQ_DATA), Mode::RX_CQ_DATA);
    assert_eq!(granted(Mode::CONTEXT, Mode::CONTEXT), Mode::empty());
    for caps in [Caps::TAGGED | Caps::RMA, Caps::MSG | Caps::SEND | Caps::RMA] {
        let info = Info { caps, mode: Mode::RX_CQ_DATA, ..Info::default() };
        let refused = Misuse::Invalid(Argument::NotOffered(Unmet::RxCqDataAlone));
        assert_eq!(grant_info(&provider, &info), Err(refused.into()), "{caps:?}");
    }
}
