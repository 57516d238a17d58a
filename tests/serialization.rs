//! Converts infos, hints and attributes to text and to bytes, and back. The result must equal the original.
#![cfg(feature = "serde")]

use std::net::SocketAddr;

use homespun::av::{AvAttr, AvFlags};
use homespun::eq::{EqAttr, EqFlags};
use homespun::flags::{Mode, Order};
use homespun::info::{AvType, EndpointType, MrMode, Progress, ResourceManagement};
use homespun::{AddressFormat, Caps, CqAttr, CqFormat, Fabric, Hints, Info, OpFlags, WaitObject};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Checks that a value is unchanged after conversion to text and back, and to bytes and back.
fn check_round_trip<T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(it: &T) {
    let text = serde_json::to_string(it).unwrap();
    assert_eq!(&serde_json::from_str::<T>(&text).unwrap(), it, "{text}");
    let bytes = postcard::to_stdvec(it).unwrap();
    assert_eq!(&postcard::from_bytes::<T>(&bytes).unwrap(), it);
}

/// What the provider reports is mostly filled in. To it come the fields that no provider sets.
#[test]
fn every_value_survives_a_round_trip() {
    for mut info in Fabric::new().infos(&Hints::new()).unwrap() {
        check_round_trip(&info);
        let (v4, v6): (SocketAddr, SocketAddr) =
            ("1.2.3.4:5".parse().unwrap(), "[fe80::1%7]:9".parse().unwrap());
        (info.src_addr, info.dest_addr) = (Some(v4.into()), Some(v6.into()));
        let (caps, mode) = (Caps::from_bits_retain(u64::MAX), Mode::from_bits_retain(u64::MAX));
        (info.caps, info.mode, info.ep.auth_key) = (caps, mode, vec![0, 255, b'"']);
        (info.tx.msg_order, info.domain.mr_mode) =
            (Order::from_bits_retain(u64::MAX), MrMode::from_bits_retain(u32::MAX));
        (info.rx.total_buffered_recv_bytes, info.ep.mem_tag_format) = (usize::MAX, u64::MAX);
        info.domain.name = Some("\u{0}\"\u{1F980}".to_owned());
        check_round_trip(&info);
        check_round_trip(&Hints::from(info).node("node").service(7471).source());
    }
    for wait in [WaitObject::None, WaitObject::Unspec, WaitObject::Set, WaitObject::Fd, WaitObject::PollFd] {
        let format = Some(CqFormat::Tagged);
        check_round_trip(&CqAttr { size_entries: 7, format, wait, ..CqAttr::default() });
        let flags = EqFlags::from_bits_retain(u64::MAX);
        check_round_trip(&EqAttr { size_entries: 7, flags, wait, ..EqAttr::default() });
    }
    let (flags, name) = (AvFlags::from_bits_retain(u64::MAX), Some("name".to_owned()));
    check_round_trip(&AvAttr { count: 7, name, flags, av_type: Some(AvType::Map), ..AvAttr::default() });
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
    assert_eq!(text["dest_addr"], "127.0.0.1:7471");
    assert_eq!(text["domain"]["data_progress"], "MANUAL");
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
