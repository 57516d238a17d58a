//! The name under which libfabric offers homespun, and what goes with it.
//!
//! Under the name of another provider (`FI_HOMESPUN_AS`) homespun's infos look like those of that provider.
//! They have its protocol numbers. There is one for each address of this host; its domain has the name of the
//! network interface, and its fabric that of the network. All of them stand for one domain of homespun. This
//! module translates hints and infos at the C interface; below it there are only homespun's own names.
//! `docs/decisions/offered-names.md` has the reasons.

use std::ffi::CStr;
use std::net::SocketAddr;

use homespun::error::Unmet;
use homespun::flags::InfoFlags;
use homespun::info::{EndpointType, FABRIC_NAME, Info, PROVIDER_VERSION, Version};
use homespun::params::OfferedName;
use homespun::{Address, AddressFormat, Error, Fabric, LocalAddress, Misuse};
use parking_lot::Mutex;

use crate::abi::{FI_PROTO_SOCK_TCP, FI_PROTO_XNET};

/// The version of the provider under another name than its own. Of two providers with one name libfabric
/// takes the one with the higher version, and its own providers have its own version.
const VERSION_IN_PLACE: Version = Version::new(1000, 0);

static CURRENT: Mutex<OfferedName> = Mutex::new(OfferedName::Homespun);

/// Sets the name for all later calls.
pub(crate) fn set_current(name: OfferedName) {
    *CURRENT.lock() = name;
}

/// Returns the name.
pub(crate) fn current() -> OfferedName {
    *CURRENT.lock()
}

/// Returns the name for C code.
pub(crate) fn c_name(name: OfferedName) -> &'static CStr {
    match name {
        OfferedName::Tcp => c"tcp",
        OfferedName::Sockets => c"sockets",
        _ => c"homespun",
    }
}

/// Returns the provider's version under this name.
pub(crate) fn provider_version(name: OfferedName) -> Version {
    if name == OfferedName::Homespun { PROVIDER_VERSION } else { VERSION_IN_PLACE }
}

/// The names of an info's fabric and domain, as the application sees them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Names {
    pub(crate) fabric: String,
    pub(crate) domain: String,
}

impl Names {
    /// Returns the names of infos that stand for no interface: both are the provider's name.
    pub(crate) fn of_provider(name: OfferedName) -> Names {
        Names { fabric: name.to_string(), domain: name.to_string() }
    }

    fn of_interface(address: &LocalAddress) -> Names {
        Names { fabric: address.network.clone(), domain: address.interface.clone() }
    }
}

/// `fi_getinfo(3)`, with hints and infos of the current name.
///
/// # Errors
///
/// As [`Fabric::getinfo`].
pub(crate) fn getinfo(
    fabric: &Fabric,
    node: Option<&str>,
    service: Option<&str>,
    flags: InfoFlags,
    hints: Option<Info>,
) -> Result<Vec<Info>, Error> {
    let name = current();
    if name == OfferedName::Homespun {
        return fabric.getinfo(node, service, flags, hints.as_ref());
    }
    let mut hints = hints.unwrap_or_default();
    let wanted = Wanted::take_from(&mut hints, name);
    hints.domain.name = fabric.domain_names().into_iter().next();
    let has_addresses = hints.src_addr.is_some() || hints.dest_addr.is_some();
    let is_source_open = node.is_none() && service.is_none() && !has_addresses;
    let infos = fabric.getinfo(node, service, flags, Some(&hints))?;
    if flags.contains(InfoFlags::PROV_ATTR_ONLY) {
        let names = Names::of_provider(name);
        return Ok(infos.into_iter().map(|info| offer_info(info, name, &names)).collect());
    }
    let addresses = local_addresses(fabric)?;
    let is_split = is_source_open || wanted.names_interface();
    let offered = infos.into_iter().flat_map(|info| offer_at_interfaces(info, name, is_split, &addresses));
    let mut infos = wanted.select(offered)?;
    if name == OfferedName::Tcp && hints.ep.ep_type.is_none() {
        prefer_unconnected(&mut infos);
    }
    Ok(infos)
}

/// Gives an info of homespun the names and the protocol of the provider in whose place it is offered.
pub(crate) fn offer_info(mut info: Info, name: OfferedName, names: &Names) -> Info {
    if name == OfferedName::Homespun {
        return info;
    }
    info.fabric.name = Some(names.fabric.clone());
    info.fabric.prov_version = provider_version(name);
    info.domain.name = info.domain.name.map(|_| names.domain.clone());
    if let Some(ep_type) = info.ep.ep_type {
        let protocol = Protocol::of_endpoint(name, ep_type);
        info.ep.protocol = protocol.number;
        info.ep.protocol_version = protocol.version;
    }
    info
}

/// Returns the name by which an application knows a domain that it opened with an info of the name `asked`.
pub(crate) fn name_of_open_domain(asked: Option<String>, native: &str) -> String {
    match current() {
        // It has the case in which homespun writes it.
        OfferedName::Homespun => native.to_owned(),
        _ => asked.unwrap_or_else(|| native.to_owned()),
    }
}

/// Whether a fabric has this name: that of the provider, or of a network of this host.
///
/// # Errors
///
/// The system's error if the interfaces cannot be listed.
pub(crate) fn is_fabric_name(fabric: &Fabric, text: &str) -> Result<bool, Error> {
    match current() {
        OfferedName::Homespun => Ok(text == FABRIC_NAME),
        name if text == name.as_str() => Ok(true),
        _ => Ok(local_addresses(fabric)?.iter().any(|address| address.network == text)),
    }
}

/// Gives an info from the application the names that homespun's own calls know. A name that no answer of
/// `fi_getinfo` has stays as it is, and is refused by these calls.
///
/// # Errors
///
/// The system's error if the interfaces cannot be listed.
pub(crate) fn restore_info(fabric: &Fabric, info: &mut Info) -> Result<(), Error> {
    let name = current();
    if name == OfferedName::Homespun {
        return Ok(());
    }
    if let Some(asked) = &info.domain.name {
        let is_interface = |asked: &str| -> Result<bool, Error> {
            Ok(local_addresses(fabric)?.iter().any(|address| address.interface == asked))
        };
        if asked == name.as_str() || is_interface(asked)? {
            info.domain.name = fabric.domain_names().into_iter().next();
        }
    }
    restore_protocol(info, name);
    Ok(())
}

/// As [`restore_info`], for an object of a domain that the application knows by this name.
pub(crate) fn restore_info_of_domain(info: &mut Info, offered: &str, native: &str) {
    let name = current();
    if name == OfferedName::Homespun {
        return;
    }
    if info.domain.name.as_deref() == Some(offered) {
        info.domain.name = Some(native.to_owned());
    }
    restore_protocol(info, name);
}

fn restore_protocol(info: &mut Info, name: OfferedName) {
    info.fabric.name = Some(FABRIC_NAME.to_owned());
    let protocol = Protocol::of_endpoint(name, info.ep.ep_type.unwrap_or(EndpointType::Rdm));
    if info.ep.protocol == protocol.number && info.ep.protocol_version <= protocol.version {
        info.ep.protocol = 0;
        info.ep.protocol_version = 0;
    }
}

/// The number of a protocol and its version.
struct Protocol {
    number: u32,
    version: u32,
}

impl Protocol {
    /// Returns the protocol that the provider of this name has for endpoints of this type.
    fn of_endpoint(name: OfferedName, ep_type: EndpointType) -> Protocol {
        match (name, ep_type) {
            (OfferedName::Tcp, EndpointType::Rdm) => Protocol { number: FI_PROTO_XNET, version: 1 },
            (OfferedName::Tcp, _) => Protocol { number: FI_PROTO_SOCK_TCP, version: 0 },
            _ => Protocol { number: FI_PROTO_SOCK_TCP, version: 2 },
        }
    }
}

/// What hints demand of the names and the protocol. `None` and zero leave them open.
struct Wanted {
    fabric: Option<String>,
    domain: Option<String>,
    protocol: Protocol,
}

impl Wanted {
    /// Takes the demands out of the hints. If a fabric or domain has the provider's name, it is left open.
    fn take_from(hints: &mut Info, name: OfferedName) -> Wanted {
        let is_specific = |text: &String| !text.eq_ignore_ascii_case(name.as_str());
        let ep = &mut hints.ep;
        Wanted {
            fabric: hints.fabric.name.take().filter(is_specific),
            domain: hints.domain.name.take().filter(is_specific),
            protocol: Protocol {
                number: std::mem::take(&mut ep.protocol),
                version: std::mem::take(&mut ep.protocol_version),
            },
        }
    }

    /// Whether the hints name an interface or a network.
    fn names_interface(&self) -> bool {
        self.fabric.is_some() || self.domain.is_some()
    }

    /// Returns the infos that meet the hints.
    ///
    /// # Errors
    ///
    /// The first demand that no info meets.
    fn select(&self, infos: impl Iterator<Item = Info>) -> Result<Vec<Info>, Error> {
        let mut infos: Vec<Info> = infos.collect();
        let Wanted { fabric, domain, protocol } = self;
        infos.retain(|info| protocol.number == 0 || info.ep.protocol == protocol.number);
        require_some(&infos, Unmet::Protocol)?;
        infos.retain(|info| info.ep.protocol_version >= protocol.version);
        require_some(&infos, Unmet::ProtocolVersion)?;
        infos.retain(|info| is_met(domain.as_ref(), info.domain.name.as_ref()));
        require_some(&infos, Unmet::DomainName)?;
        infos.retain(|info| is_met(fabric.as_ref(), info.fabric.name.as_ref()));
        require_some(&infos, Unmet::FabricName)?;
        Ok(infos)
    }
}

/// libfabric compares the names of fabrics and domains without regard to case.
fn is_met(asked: Option<&String>, offered: Option<&String>) -> bool {
    asked.is_none_or(|asked| offered.is_some_and(|offered| asked.eq_ignore_ascii_case(offered)))
}

fn require_some(infos: &[Info], unmet: Unmet) -> Result<(), Error> {
    if infos.is_empty() { Err(Misuse::Unmet(unmet).into()) } else { Ok(()) }
}

/// Leaves out connected endpoints if there are unconnected ones. Since 1.18 libfabric moves the unconnected
/// endpoints of `tcp` to the end of the list, and an application that names no type takes the first info.
fn prefer_unconnected(infos: &mut Vec<Info>) {
    let is_unconnected = |info: &Info| info.ep.ep_type == Some(EndpointType::Rdm);
    if infos.iter().any(is_unconnected) {
        infos.retain(is_unconnected);
    }
}

/// Returns the addresses of this host of both formats, the best of each first.
fn local_addresses(fabric: &Fabric) -> Result<Vec<LocalAddress>, Error> {
    let mut addresses = fabric.local_addresses(AddressFormat::SockaddrIn)?;
    addresses.extend(fabric.local_addresses(AddressFormat::SockaddrIn6)?);
    Ok(addresses)
}

fn format_of(address: &LocalAddress) -> AddressFormat {
    if address.ip.is_ipv4() { AddressFormat::SockaddrIn } else { AddressFormat::SockaddrIn6 }
}

/// Names an info after the interface of its source. If the source is a wildcard address and `is_split`,
/// returns an info for each address of this host in its place, unless there is none of its format.
fn offer_at_interfaces(
    info: Info,
    name: OfferedName,
    is_split: bool,
    addresses: &[LocalAddress],
) -> Vec<Info> {
    let specific = info.src_addr.filter(Address::is_specific);
    if let Some(source) = specific {
        let found = addresses.iter().find(|address| address.ip == source.ip());
        let names = found.map_or_else(|| Names::of_provider(name), Names::of_interface);
        return vec![offer_info(info, name, &names)];
    }
    let of_format =
        addresses.iter().filter(|address| is_split && info.addr_format == Some(format_of(address)));
    let port = info.src_addr.map_or(0, |source| source.port());
    let split: Vec<Info> = of_format
        .map(|address| {
            let source = Address::from(SocketAddr::new(address.ip, port));
            let info = Info { src_addr: Some(source), ..info.clone() };
            offer_info(info, name, &Names::of_interface(address))
        })
        .collect();
    if split.is_empty() { vec![offer_info(info, name, &Names::of_provider(name))] } else { split }
}

#[cfg(test)]
mod tests {
    use homespun::Errno;
    use homespun::info::{DomainAttr, EpAttr, FabricAttr};

    use super::*;

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

    fn make_addresses() -> Vec<LocalAddress> {
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

    /// Returns the source, the domain and the fabric of each info for this source.
    fn offer(source: &str, is_split: bool) -> Vec<[String; 3]> {
        let info = make_info(source, EndpointType::Rdm);
        let infos = offer_at_interfaces(info, NAME, is_split, &make_addresses());
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
        let without_ipv6 = offer_at_interfaces(info, NAME, true, &make_addresses()[..2]);
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
    fn select(change: impl FnOnce(&mut Info)) -> Result<Vec<String>, Error> {
        let mut hints = Info::default();
        change(&mut hints);
        let wanted = Wanted::take_from(&mut hints, NAME);
        assert_eq!(hints, Info::default(), "homespun's own names are left");
        let info = make_info("0.0.0.0:0", EndpointType::Rdm);
        let infos = wanted.select(offer_at_interfaces(info, NAME, true, &make_addresses()).into_iter())?;
        Ok(infos.into_iter().filter_map(|info| info.domain.name).collect())
    }

    #[test]
    fn hints_select_interfaces_networks_and_protocols() {
        assert_eq!(select(|_| {}), Ok(vec!["eth0".into(), "lo".into()]));
        assert_eq!(select(|hints| hints.domain.name = Some("LO".into())), Ok(vec!["lo".into()]));
        assert_eq!(select(|hints| hints.domain.name = Some("tcp".into())).map(|found| found.len()), Ok(2));
        assert_eq!(select(|hints| hints.fabric.name = Some("192.0.2.0/24".into())), Ok(vec!["eth0".into()]));
        assert_eq!(select(|hints| hints.ep.protocol = FI_PROTO_XNET).map(|found| found.len()), Ok(2));
        for (refused, unmet) in [
            (select(|hints| hints.domain.name = Some("eth1".into())), Unmet::DomainName),
            (select(|hints| hints.fabric.name = Some("homespun".into())), Unmet::FabricName),
            (select(|hints| hints.ep.protocol = FI_PROTO_SOCK_TCP), Unmet::Protocol),
            (select(|hints| hints.ep.protocol_version = 2), Unmet::ProtocolVersion),
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
}
