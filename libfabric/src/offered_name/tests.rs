//! Tests of the translation of infos and hints.

use homespun::error::Unmet;
use homespun::info::{DomainAttr, EndpointType, EpAttr, FABRIC_NAME, FabricAttr};
use homespun::{Address, Errno, LocalAddress, Misuse};

use super::current::VERSION_IN_PLACE;
use super::infos::restore_protocol;
use super::*;
use crate::abi::{FI_PROTO_SOCK_TCP, FI_PROTO_XNET};

const NAME: OfferedName = OfferedName::Tcp;

fn make_info(source: &str, ep_type: EndpointType) -> Info {
    let source: Address = source.parse().expect("an address");
    Info {
        addr_format: Some(source.format()),
        src_addr: Some(source),
        ep: EpAttr { ep_type: Some(ep_type), ..EpAttr::default() },
        domain: DomainAttr { name: Some("shm".into()), ..DomainAttr::default() },
        fabric: FabricAttr { name: Some(FABRIC_NAME.into()), ..FabricAttr::default() },
        ..Info::default()
    }
}

fn make_local_addresses() -> Vec<LocalAddress> {
    [
        ("eth0", "192.0.2.7", "192.0.2.0/24"),
        ("lo", "127.0.0.1", "127.0.0.1/32"),
        ("eth0", "fd00::7", "fd00::/64"),
    ]
    .map(|(interface, ip, network)| LocalAddress {
        interface: interface.into(),
        ip: ip.parse().expect("an address"),
        network: network.into(),
    })
    .into()
}

/// Makes an info with this source. Returns the source, domain and fabric of each info that is
/// offered for it.
fn offer(source: &str, is_split: bool) -> Vec<[String; 3]> {
    let info = make_info(source, EndpointType::Rdm);
    let infos = offer_at_interfaces(info, NAME, is_split, &make_local_addresses());
    let text = |text: &Option<String>| text.clone().expect("a name");
    infos
        .iter()
        .map(|info| {
            let source = info.src_addr.expect("a source").to_string();
            [source, text(&info.domain.name), text(&info.fabric.name)]
        })
        .collect()
}

#[test]
fn wildcard_source_becomes_an_info_for_each_address_of_its_format() {
    assert_eq!(
        offer("0.0.0.0:7471", true),
        [["192.0.2.7:7471", "eth0", "192.0.2.0/24"], ["127.0.0.1:7471", "lo", "127.0.0.1/32"]]
    );
    assert_eq!(offer("[::]:0", true), [["[fd00::7]:0", "eth0", "fd00::/64"]]);
    assert_eq!(offer("0.0.0.0:7471", false), [["0.0.0.0:7471", "tcp", "tcp"]]);
    let info = make_info("[::]:0", EndpointType::Rdm);
    let without_ipv6 = offer_at_interfaces(info, NAME, true, &make_local_addresses()[..2]);
    assert_eq!(without_ipv6[0].domain.name.as_deref(), Some("tcp"));
}

#[test]
fn specific_source_has_the_names_of_its_interface() {
    assert_eq!(offer("127.0.0.1:7", true), [["127.0.0.1:7", "lo", "127.0.0.1/32"]]);
    assert_eq!(offer("203.0.113.7:7", true), [["203.0.113.7:7", "tcp", "tcp"]]);
}

#[test]
fn protocol_is_that_of_the_provider_in_whose_place_homespun_is() {
    let protocol = |name, ep_type| {
        let info = offer_info(make_info("127.0.0.1:0", ep_type), name, &Names::of_provider(name));
        assert_eq!(info.fabric.prov_version, VERSION_IN_PLACE);
        (info.ep.protocol, info.ep.protocol_version)
    };
    assert_eq!(protocol(OfferedName::Tcp, EndpointType::Rdm), (FI_PROTO_XNET, 1));
    assert_eq!(protocol(OfferedName::Tcp, EndpointType::Msg), (FI_PROTO_SOCK_TCP, 0));
    assert_eq!(protocol(OfferedName::Sockets, EndpointType::Rdm), (FI_PROTO_SOCK_TCP, 2));
    let own = make_info("127.0.0.1:0", EndpointType::Rdm);
    assert_eq!(offer_info(own.clone(), OfferedName::Homespun, &Names::of_provider(NAME)), own);
}

/// Returns the interfaces of the infos that meet these hints, or the error.
fn interfaces_meeting_hints(change: impl FnOnce(&mut Info)) -> Result<Vec<String>, Error> {
    let mut hints = Info::default();
    change(&mut hints);
    let wanted = Wanted::take_from(&mut hints, NAME);
    assert_eq!(hints, Info::default(), "homespun's own names are left");
    let info = make_info("0.0.0.0:0", EndpointType::Rdm);
    let infos = wanted.select(offer_at_interfaces(info, NAME, true, &make_local_addresses()).into_iter())?;
    Ok(infos.into_iter().filter_map(|info| info.domain.name).collect())
}

#[test]
fn hints_select_interfaces_networks_and_protocols() {
    for (met, expected) in [
        (interfaces_meeting_hints(|_| {}), &["eth0", "lo"][..]),
        (interfaces_meeting_hints(|hints| hints.domain.name = Some("LO".into())), &["lo"]),
        (interfaces_meeting_hints(|hints| hints.domain.name = Some("tcp".into())), &["eth0", "lo"]),
        (interfaces_meeting_hints(|hints| hints.fabric.name = Some("192.0.2.0/24".into())), &["eth0"]),
        (interfaces_meeting_hints(|hints| hints.ep.protocol = FI_PROTO_XNET), &["eth0", "lo"]),
    ] {
        assert_eq!(met, Ok(expected.iter().map(|name| (*name).to_owned()).collect()));
    }
    for (refused, unmet) in [
        (interfaces_meeting_hints(|hints| hints.domain.name = Some("eth1".into())), Unmet::DomainName),
        (interfaces_meeting_hints(|hints| hints.fabric.name = Some("homespun".into())), Unmet::FabricName),
        (interfaces_meeting_hints(|hints| hints.ep.protocol = FI_PROTO_SOCK_TCP), Unmet::Protocol),
        (interfaces_meeting_hints(|hints| hints.ep.protocol_version = 2), Unmet::ProtocolVersion),
    ] {
        assert_eq!(refused, Err(Misuse::Unmet(unmet).into()));
        assert_eq!(refused.unwrap_err().errno(), Errno::ENODATA);
    }
}

#[test]
fn connected_endpoints_are_left_out_beside_unconnected_ones() {
    let [rdm, msg] = [EndpointType::Rdm, EndpointType::Msg].map(|of| make_info("127.0.0.1:0", of));
    let preferred = |mut infos: Vec<Info>| {
        prefer_unconnected(&mut infos);
        infos
    };
    assert_eq!(preferred(vec![rdm.clone(), msg.clone()]), [rdm]);
    assert_eq!(preferred(vec![msg.clone()]), [msg]);
}

#[test]
fn protocol_in_place_is_restored_and_another_one_is_left() {
    let restored = |number, version| {
        let mut info = make_info("127.0.0.1:0", EndpointType::Rdm);
        (info.ep.protocol, info.ep.protocol_version) = (number, version);
        restore_protocol(&mut info, NAME);
        (info.ep.protocol, info.ep.protocol_version)
    };
    assert_eq!(restored(FI_PROTO_XNET, 1), (0, 0));
    assert_eq!(restored(FI_PROTO_XNET, 2), (FI_PROTO_XNET, 2));
    assert_eq!(restored(FI_PROTO_SOCK_TCP, 0), (FI_PROTO_SOCK_TCP, 0));
}
