//! Converts infos, hints and attributes to text and to bytes, and back. The result must equal the original.
#![cfg(feature = "serde")]

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

use homespun::av::{AvAttr, AvFlags};
use homespun::eq::{EqAttr, EqFlags};
use homespun::flags::{Mode, Order};
use homespun::info::{
    AvType, DomainAttr, EndpointType, EpAttr, FabricAttr, MrMode, Progress, ResourceManagement, RxAttr,
    Threading, TxAttr, Version,
};
use homespun::{Address, AddressFormat, Caps, CqAttr, CqFormat, Fabric, Hints, Info, OpFlags, WaitObject};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Checks that a value is unchanged after conversion to text and back, and to bytes and back.
fn check_round_trip<T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(
    it: &T,
) -> Result<(), TestCaseError> {
    let text = serde_json::to_string(it).unwrap();
    prop_assert_eq!(&serde_json::from_str::<T>(&text).unwrap(), it, "{}", text);
    let bytes = postcard::to_stdvec(it).unwrap();
    prop_assert_eq!(&postcard::from_bytes::<T>(&bytes).unwrap(), it);
    Ok(())
}

fn any_address() -> impl Strategy<Value = Address> {
    let v4 = any::<(u32, u16)>().prop_map(|(ip, port)| SocketAddr::from((Ipv4Addr::from(ip), port)));
    let v6 = any::<(u128, u16, u32)>()
        .prop_map(|(ip, port, scope)| SocketAddrV6::new(Ipv6Addr::from(ip), port, 0, scope).into());
    prop_oneof![v4, v6].prop_map(Address::from)
}

fn any_name() -> impl Strategy<Value = Option<String>> {
    option::of(any::<String>())
}

prop_compose! {
    fn any_tx_attr()(
        bits in any::<[u64; 5]>(),
        sizes in any::<[usize; 4]>(),
        tclass in any::<u32>(),
    ) -> TxAttr {
        TxAttr {
            caps: Caps::from_bits_retain(bits[0]),
            mode: Mode::from_bits_retain(bits[1]),
            op_flags: OpFlags::from_bits_retain(bits[2]),
            msg_order: Order::from_bits_retain(bits[3]),
            comp_order: Order::from_bits_truncate(bits[4]),
            inject_size_bytes: sizes[0],
            size_ops: sizes[1],
            iov_limit: sizes[2],
            rma_iov_limit: sizes[3],
            tclass,
        }
    }
}

prop_compose! {
    fn any_rx_attr()(bits in any::<[u64; 5]>(), sizes in any::<[usize; 3]>()) -> RxAttr {
        RxAttr {
            caps: Caps::from_bits_truncate(bits[0]),
            mode: Mode::from_bits_retain(bits[1]),
            op_flags: OpFlags::from_bits_retain(bits[2]),
            msg_order: Order::from_bits_retain(bits[3]),
            comp_order: Order::from_bits_retain(bits[4]),
            total_buffered_recv_bytes: sizes[0],
            size_ops: sizes[1],
            iov_limit: sizes[2],
        }
    }
}

prop_compose! {
    fn any_ep_attr()(
        ep_type in option::of(prop::sample::select(vec![
            EndpointType::Msg,
            EndpointType::Dgram,
            EndpointType::Rdm,
        ])),
        protocol in any::<[u32; 2]>(),
        sizes in any::<[usize; 7]>(),
        mem_tag_format in any::<u64>(),
        auth_key in vec(any::<u8>(), 0..40),
    ) -> EpAttr {
        EpAttr {
            ep_type,
            protocol: protocol[0],
            protocol_version: protocol[1],
            max_msg_size_bytes: sizes[0],
            msg_prefix_size_bytes: sizes[1],
            max_order_raw_size_bytes: sizes[2],
            max_order_war_size_bytes: sizes[3],
            max_order_waw_size_bytes: sizes[4],
            mem_tag_format,
            tx_ctx_cnt: sizes[5],
            rx_ctx_cnt: sizes[6],
            auth_key,
        }
    }
}

prop_compose! {
    fn any_domain_attr()(
        name in any_name(),
        threading in option::of(prop::sample::select(vec![
            Threading::Safe, Threading::Fid, Threading::Domain, Threading::Completion, Threading::Endpoint,
        ])),
        progress in any::<[Option<bool>; 2]>(),
        is_protected in any::<Option<bool>>(),
        is_table in any::<Option<bool>>(),
        bits in any::<(u32, u64, u64)>(),
        sizes in any::<[usize; 15]>(),
        auth_key in vec(any::<u8>(), 0..40),
        tclass in any::<u32>(),
    ) -> DomainAttr {
        let progress = progress.map(|is_auto| {
            is_auto.map(|is_auto| if is_auto { Progress::Auto } else { Progress::Manual })
        });
        DomainAttr {
            name,
            threading,
            control_progress: progress[0],
            data_progress: progress[1],
            resource_mgmt: is_protected.map(|is_protected| {
                if is_protected { ResourceManagement::Enabled } else { ResourceManagement::Disabled }
            }),
            av_type: is_table.map(|is_table| if is_table { AvType::Table } else { AvType::Map }),
            mr_mode: MrMode::from_bits_retain(bits.0),
            mr_key_size_bytes: sizes[0],
            cq_data_size_bytes: sizes[1],
            cq_cnt: sizes[2],
            ep_cnt: sizes[3],
            tx_ctx_cnt: sizes[4],
            rx_ctx_cnt: sizes[5],
            max_ep_tx_ctx: sizes[6],
            max_ep_rx_ctx: sizes[7],
            max_ep_stx_ctx: sizes[8],
            max_ep_srx_ctx: sizes[9],
            cntr_cnt: sizes[10],
            mr_iov_limit: sizes[11],
            caps: Caps::from_bits_retain(bits.1),
            mode: Mode::from_bits_retain(bits.2),
            auth_key,
            max_err_data_bytes: sizes[12],
            mr_cnt: sizes[13],
            tclass,
        }
    }
}

prop_compose! {
    fn any_fabric_attr()(names in [any_name(), any_name()], versions in any::<[u32; 2]>()) -> FabricAttr {
        let [name, prov_name] = names;
        let [prov_version, api_version] = versions.map(Version::from_raw);
        FabricAttr { name, prov_name, prov_version, api_version }
    }
}

prop_compose! {
    fn any_info()(
        bits in any::<[u64; 2]>(),
        is_v6 in any::<Option<bool>>(),
        addresses in [option::of(any_address()), option::of(any_address())],
        (tx, rx, ep, domain, fabric) in
            (any_tx_attr(), any_rx_attr(), any_ep_attr(), any_domain_attr(), any_fabric_attr()),
    ) -> Info {
        Info {
            caps: Caps::from_bits_retain(bits[0]),
            mode: Mode::from_bits_retain(bits[1]),
            addr_format: is_v6.map(|is_v6| {
                if is_v6 { AddressFormat::SockaddrIn6 } else { AddressFormat::SockaddrIn }
            }),
            src_addr: addresses[0],
            dest_addr: addresses[1],
            tx,
            rx,
            ep,
            domain,
            fabric,
        }
    }
}

proptest! {
    #[test]
    fn infos_and_hints_survive_a_round_trip(
        info in any_info(),
        node in option::of(any::<String>()),
        port in option::of(any::<u16>()),
        is_source in any::<bool>(),
    ) {
        check_round_trip(&info)?;
        let mut hints = Hints::from(info);
        if let Some(node) = node {
            hints = hints.node(node);
        }
        if let Some(port) = port {
            hints = hints.service(port);
        }
        if is_source {
            hints = hints.source();
        }
        check_round_trip(&hints)?;
    }

    #[test]
    fn object_attributes_survive_a_round_trip(
        size in any::<usize>(),
        flags in any::<u64>(),
        format in prop::sample::select(vec![
            None, Some(CqFormat::Context), Some(CqFormat::Msg), Some(CqFormat::Data), Some(CqFormat::Tagged),
        ]),
        wait in prop::sample::select(vec![
            WaitObject::None, WaitObject::Unspec, WaitObject::Set, WaitObject::Fd, WaitObject::MutexCond,
            WaitObject::Yield, WaitObject::PollFd,
        ]),
        name in any_name(),
    ) {
        check_round_trip(&CqAttr { size_entries: size, format, wait, ..CqAttr::default() })?;
        let eq_flags = EqFlags::from_bits_retain(flags);
        check_round_trip(&EqAttr { size_entries: size, flags: eq_flags, wait, ..EqAttr::default() })?;
        let (flags, av_type) = (AvFlags::from_bits_retain(flags), Some(AvType::Map));
        check_round_trip(&AvAttr { count: size, name, flags, av_type, ..AvAttr::default() })?;
    }
}

#[test]
fn handwritten_json_is_read() {
    let hints: Hints = serde_json::from_str(
        r#"{
            "node": "127.0.0.1",
            "service": "7471",
            "flags": "NUMERIC_HOST",
            "info": {
                "caps": "TAGGED | SOURCE",
                "addr_format": "SOCKADDR_IN",
                "ep": { "ep_type": "RDM" },
                "domain": { "name": "tcp", "data_progress": "MANUAL", "resource_mgmt": "DISABLED" },
                "tx": { "op_flags": "DELIVERY_COMPLETE" }
            }
        }"#,
    )
    .unwrap();
    let said = Hints::new()
        .node("127.0.0.1")
        .service(7471)
        .numeric_host()
        .caps(Caps::TAGGED | Caps::SOURCE)
        .addr_format(AddressFormat::SockaddrIn)
        .ep_type(EndpointType::Rdm)
        .domain("tcp")
        .resource_mgmt(ResourceManagement::Disabled)
        .tx_op_flags(OpFlags::DELIVERY_COMPLETE)
        .with(|info| info.domain.data_progress = Some(Progress::Manual));
    assert_eq!(hints, said);
    let info = Fabric::new().info(&hints).unwrap();
    let text = serde_json::to_value(&info).unwrap();
    assert_eq!(
        (&text["dest_addr"], &text["domain"]["data_progress"]),
        (&"127.0.0.1:7471".into(), &"MANUAL".into())
    );
}

#[test]
fn missing_fields_are_unspecified_and_unknown_ones_are_refused() {
    assert_eq!(serde_json::from_str::<Hints>("{}").unwrap(), Hints::new());
    assert_eq!(serde_json::from_str::<Info>("{}").unwrap(), Info::default());
    let refused = |text| serde_json::from_str::<Hints>(text).unwrap_err().to_string();
    assert!(refused(r#"{ "info": { "cap": "TAGGED" } }"#).contains("unknown field `cap`"));
    assert!(refused(r#"{ "domain": "tcp" }"#).contains("unknown field `domain`"));
    assert!(refused(r#"{ "info": { "caps": "TELEPATHY" } }"#).contains("unrecognized named flag"));
    assert!(refused(r#"{ "info": { "ep": { "ep_type": "TELEPATHY" } } }"#).contains("unknown variant"));
    assert!(refused(r#"{ "info": { "src_addr": "nowhere" } }"#).contains("invalid socket address"));
}
