//! Resolves names to addresses, and finds the local address that leads to a peer.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use dns_lookup::{AddrInfoHints, LookupError, getaddrinfo};
use homespun_engine::address::{Address, AddressFormat};
use homespun_engine::error::{Argument, Error, Misuse, SystemRequest, Unmet, Unresolved};
use homespun_engine::flags::InfoFlags;

use crate::info::Info;

/// The source and destination addresses of one [`Info`], both in one format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AddressPair {
    pub(crate) format: AddressFormat,
    pub(crate) src: Option<Address>,
    pub(crate) dest: Option<Address>,
}

/// The address for which a name stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AddressRole {
    /// An address of this host. Without a node, the wildcard: every interface.
    Source,
    /// The address of a peer. Without a node, the loopback address.
    Destination,
}

/// Returns all pairs of addresses that the arguments of `getinfo` name (`fi_getinfo(3)`). Node and service
/// name the source, or the destination, and replace the address of the hints for that end. An empty service
/// counts as no service; for a source without a node it counts as any port.
///
/// # Errors
///
/// [`Misuse::Unmet`] or [`Misuse::Unresolved`], with the reason, if there is no such pair.
/// [`Misuse::Invalid`] if the flags have `SOURCE`, but neither node nor service is given.
pub(crate) fn resolve_address_pairs(
    node: Option<&str>,
    service: Option<&str>,
    flags: InfoFlags,
    hints: &Info,
) -> Result<Vec<AddressPair>, Error> {
    let is_source = flags.contains(InfoFlags::SOURCE);
    let role = if is_source { AddressRole::Source } else { AddressRole::Destination };
    let service = match service {
        Some("") if is_source && node.is_none() => Some("0"),
        Some("") => None,
        service => service,
    };
    let named = if node.is_some() || service.is_some() {
        Some(resolve(node, service, role, flags.contains(InfoFlags::NUMERIC_HOST))?)
    } else if is_source {
        return Err(Misuse::Invalid(Argument::UnnamedSource).into());
    } else {
        None
    };
    let hinted_src = hints.src_addr.map(|src| vec![src]);
    let hinted_dest = hints.dest_addr.map(|dest| vec![dest]);
    let (src, dest) = match (named, role) {
        (Some(named), AddressRole::Source) => (Some(named), hinted_dest),
        (Some(named), AddressRole::Destination) => (hinted_src, Some(named)),
        (None, _) => (hinted_src, hinted_dest),
    };

    let host = host_address_formats()?;
    let ends = match (src, dest) {
        (None, None) => host
            .iter()
            .map(|&format| AddressPair { format, src: Some(format.wildcard()), dest: None })
            .collect(),
        (None, Some(dest)) => find_routes_to(&replace_wildcards_by_loopback(&dest))?,
        (Some(src), None) => bindable_addresses(&src, &host)?
            .iter()
            .map(|&src| AddressPair { format: src.format(), src: Some(src), dest: None })
            .collect(),
        (Some(src), Some(dest)) => {
            pairs_of_same_format(&bindable_addresses(&src, &host)?, &replace_wildcards_by_loopback(&dest))?
        }
    };
    let wanted = |ends: &AddressPair| hints.addr_format.is_none_or(|format| format == ends.format);
    let ends: Vec<AddressPair> = ends.into_iter().filter(wanted).collect();
    match hints.addr_format {
        Some(format) if ends.is_empty() => Err(Misuse::Unmet(Unmet::AddressFormat(format)).into()),
        _ => Ok(ends),
    }
}

/// Returns all addresses of a node and a service, at least one, in the resolver's order.
///
/// # Errors
///
/// [`Misuse::Unresolved`], with the node and the service, if they do not resolve, or if the service is a
/// number but not a port.
pub(crate) fn resolve(
    node: Option<&str>,
    service: Option<&str>,
    role: AddressRole,
    is_numeric_host: bool,
) -> Result<Vec<Address>, Error> {
    let unresolved = |reason: String| {
        let (node, service) = (node.map(str::to_owned), service.map(str::to_owned));
        Misuse::Unresolved(Box::new(Unresolved { node, service, reason }))
    };
    // The resolver would truncate a larger number to 16 bits.
    if service.is_some_and(|service| is_number(service) && service.parse::<u16>().is_err()) {
        return Err(unresolved("a port is a name or a number up to 65535".into()).into());
    }
    let mut flags = 0;
    if is_numeric_host {
        flags |= libc::AI_NUMERICHOST;
    }
    if role == AddressRole::Source {
        flags |= libc::AI_PASSIVE;
    }
    let hints = AddrInfoHints { flags, socktype: libc::SOCK_STREAM, ..AddrInfoHints::default() };
    let found =
        getaddrinfo(node, service, Some(hints)).map_err(|error| unresolved(describe_lookup_error(error)))?;

    let mut addresses = Vec::new();
    for address in found.flatten().map(|found| Address::from(found.sockaddr)) {
        if !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    if addresses.is_empty() {
        return Err(unresolved("the resolver knows no address".into()).into());
    }
    Ok(addresses)
}

/// Returns the resolver's reason without the common beginning of all reasons.
fn describe_lookup_error(error: LookupError) -> String {
    let reason = io::Error::from(error).to_string();
    reason.strip_prefix("failed to lookup address information: ").unwrap_or(&reason).to_owned()
}

/// Whether a service is a number. A name has at least one letter.
fn is_number(service: &str) -> bool {
    !service.bytes().any(|byte| byte.is_ascii_alphabetic())
}

/// Returns the address formats of this host, IPv4 first.
fn host_address_formats() -> Result<Vec<AddressFormat>, Error> {
    let interfaces = if_addrs::get_if_addrs().map_err(|error| SystemRequest::InterfaceList.refused(error))?;
    let has = |wanted: fn(&IpAddr) -> bool| interfaces.iter().any(|interface| wanted(&interface.ip()));
    let mut formats = Vec::new();
    if has(IpAddr::is_ipv4) {
        formats.push(AddressFormat::SockaddrIn);
    }
    if has(IpAddr::is_ipv6) {
        formats.push(AddressFormat::SockaddrIn6);
    }
    Ok(formats)
}

/// Replaces each wildcard by the loopback address of its format. Connecting to either reaches this host.
fn replace_wildcards_by_loopback(destinations: &[Address]) -> Vec<Address> {
    let mut reachable = Vec::new();
    for &dest in destinations {
        let loopback: IpAddr = match dest.format() {
            AddressFormat::SockaddrIn => Ipv4Addr::LOCALHOST.into(),
            AddressFormat::SockaddrIn6 => Ipv6Addr::LOCALHOST.into(),
        };
        let dest = if dest.is_specific() { dest } else { SocketAddr::new(loopback, dest.port()).into() };
        if !reachable.contains(&dest) {
            reachable.push(dest);
        }
    }
    reachable
}

/// Returns those of `addresses` to which endpoints of this host can be bound.
fn bindable_addresses(addresses: &[Address], host: &[AddressFormat]) -> Result<Vec<Address>, Error> {
    let mut local = Vec::new();
    for &address in addresses {
        let usable = if address.is_specific() {
            probe_local_address(address.with_port(0), None)?.is_some()
        } else {
            host.contains(&address.format())
        };
        if usable {
            local.push(address);
        }
    }
    if local.is_empty() {
        return Err(Misuse::Unmet(Unmet::LocalSource).into());
    }
    Ok(local)
}

/// Whether this host has the address.
pub(crate) fn is_address_of_this_host(address: Address) -> bool {
    matches!(probe_local_address(address.with_port(0), None), Ok(Some(_)))
}

/// Returns each destination to which there is a route, with the local address at the start of the route.
fn find_routes_to(destinations: &[Address]) -> Result<Vec<AddressPair>, Error> {
    let mut ends = Vec::new();
    for &dest in destinations {
        if let Some(src) = probe_local_address(dest.format().wildcard(), Some(dest))? {
            ends.push(AddressPair { format: dest.format(), src: Some(src), dest: Some(dest) });
        }
    }
    if ends.is_empty() {
        return Err(Misuse::Unmet(Unmet::Route).into());
    }
    Ok(ends)
}

/// Returns each source with each destination of its format.
fn pairs_of_same_format(sources: &[Address], destinations: &[Address]) -> Result<Vec<AddressPair>, Error> {
    let mut ends = Vec::new();
    for &src in sources {
        for &dest in destinations.iter().filter(|dest| dest.format() == src.format()) {
            ends.push(AddressPair { format: src.format(), src: Some(src), dest: Some(dest) });
        }
    }
    if ends.is_empty() {
        return Err(Misuse::Unmet(Unmet::OneAddressFormat).into());
    }
    Ok(ends)
}

/// Asks the system which address an endpoint bound to `bind` has when it talks to `peer`. Returns the
/// address with port 0; `None` if there is none. Connecting a datagram socket chooses a route and sends
/// nothing.
fn probe_local_address(bind: Address, peer: Option<Address>) -> Result<Option<Address>, Error> {
    let attempt = || -> io::Result<SocketAddr> {
        let socket = UdpSocket::bind(bind.socket_addr())?;
        if let Some(peer) = peer {
            socket.connect(peer.with_port(peer.port().max(1)).socket_addr())?;
        }
        socket.local_addr()
    };
    match attempt() {
        Ok(found) => Ok(Some(Address::from(found).with_port(0))),
        Err(error) if is_exhaustion(&error) => Err(SystemRequest::Socket.refused(error)),
        Err(_) => Ok(None),
    }
}

/// Whether the error is a lack of resources. Such an error says nothing about the address.
fn is_exhaustion(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM))
}

#[cfg(test)]
mod tests {
    use homespun_engine::errno::Errno;

    use super::*;

    fn parse_address(text: &str) -> Address {
        Address::from(text.parse::<SocketAddr>().expect("a socket address"))
    }

    fn host_has_ipv6() -> bool {
        host_address_formats().expect("interfaces").contains(&AddressFormat::SockaddrIn6)
    }

    #[test]
    fn numeric_addresses_resolve_without_a_resolver() {
        let found = resolve(Some("127.0.0.1"), Some("7471"), AddressRole::Destination, true);
        assert_eq!(found, Ok(vec![parse_address("127.0.0.1:7471")]));
        let found = resolve(Some("::1"), Some("7471"), AddressRole::Destination, true);
        assert_eq!(found, Ok(vec![parse_address("[::1]:7471")]));
        assert!(resolve(Some("localhost"), Some("7471"), AddressRole::Destination, true).is_err());
    }

    #[test]
    fn host_name_resolves_to_each_of_its_addresses_once() {
        let found =
            resolve(Some("localhost"), Some("7471"), AddressRole::Destination, false).expect("localhost");
        assert!(found.contains(&parse_address("127.0.0.1:7471")), "{found:?}");
        let mut once = found.clone();
        once.sort_unstable();
        once.dedup();
        assert_eq!(once.len(), found.len(), "{found:?}");
    }

    #[test]
    fn invalid_service_does_not_resolve() {
        for service in ["65536", "-1", "", " 80", "70000", "no-such-service", "80\0"] {
            let found = resolve(Some("127.0.0.1"), Some(service), AddressRole::Destination, true);
            assert!(found.is_err(), "{service:?} gave {found:?}");
        }
        assert!(resolve(Some("127.0.0.1"), Some("65535"), AddressRole::Destination, true).is_ok());
    }

    #[test]
    fn invalid_node_does_not_resolve() {
        for node in ["", "999.1.1.1", "127.0.0.1\0", "no-such-host.invalid"] {
            let found = resolve(Some(node), Some("80"), AddressRole::Destination, true);
            let error = found.unwrap_err();
            assert_eq!(error.errno(), Errno::ENODATA, "{node:?}");
            assert!(error.to_string().starts_with(&format!("host {node:?} with port \"80\" ")), "{error}");
        }
    }

    #[test]
    fn service_alone_is_the_wildcard_as_source_and_the_loopback_as_destination() {
        let src =
            resolve_address_pairs(None, Some("7471"), InfoFlags::SOURCE, &Info::default()).expect("a source");
        assert!(
            src.iter().any(|ends| ends.src == Some(parse_address("0.0.0.0:7471")) && ends.dest.is_none())
        );
        assert_eq!(src.iter().any(|ends| ends.src == Some(parse_address("[::]:7471"))), host_has_ipv6());
        let dest = resolve_address_pairs(None, Some("7471"), InfoFlags::empty(), &Info::default())
            .expect("a destination");
        let loopback = AddressPair {
            format: AddressFormat::SockaddrIn,
            src: Some(parse_address("127.0.0.1:0")),
            dest: Some(parse_address("127.0.0.1:7471")),
        };
        assert!(dest.contains(&loopback), "{dest:?}");
    }

    #[test]
    fn empty_service_is_no_service() {
        let none = Info::default();
        let empty = Some("");
        let of = |node, service, flags| resolve_address_pairs(node, service, flags, &none);
        assert_eq!(of(None, empty, InfoFlags::empty()), of(None, None, InfoFlags::empty()));
        assert_eq!(of(None, empty, InfoFlags::SOURCE), of(None, Some("0"), InfoFlags::SOURCE));
        for flags in [InfoFlags::empty(), InfoFlags::SOURCE] {
            let node = Some("127.0.0.1");
            let found = of(node, empty, flags);
            assert!(found.is_ok(), "{found:?}");
            assert_eq!(found, of(node, None, flags));
        }
    }

    #[test]
    fn wildcard_destination_is_the_loopback_address() {
        let from = |src: &str| Info { src_addr: Some(parse_address(src)), ..Info::default() };
        let pairs = [("0.0.0.0", "127.0.0.1"), ("::", "[::1]")];
        for (node, loopback) in pairs.into_iter().take(1 + usize::from(host_has_ipv6())) {
            let dest = Some(parse_address(&format!("{loopback}:7471")));
            let there = parse_address(&format!("{loopback}:0"));
            for hints in [Info::default(), from(&format!("{loopback}:0"))] {
                let found = resolve_address_pairs(Some(node), Some("7471"), InfoFlags::empty(), &hints);
                assert_eq!(found, Ok(vec![AddressPair { format: there.format(), src: Some(there), dest }]));
            }
        }
        let hints = Info { dest_addr: Some(parse_address("0.0.0.0:7471")), ..Info::default() };
        let found =
            resolve_address_pairs(None, None, InfoFlags::empty(), &hints).expect("a hinted destination");
        assert_eq!(found[0].dest, Some(parse_address("127.0.0.1:7471")));
    }

    #[test]
    fn getinfo_without_names_has_the_wildcard_of_each_format() {
        let found = resolve_address_pairs(None, None, InfoFlags::empty(), &Info::default()).expect("formats");
        let src = Some(parse_address("0.0.0.0:0"));
        assert_eq!(found[0], AddressPair { format: AddressFormat::SockaddrIn, src, dest: None });
        assert_eq!(found.iter().any(|ends| ends.src == Some(parse_address("[::]:0"))), host_has_ipv6());
        assert_eq!(found.len(), 1 + usize::from(host_has_ipv6()));
    }

    #[test]
    fn node_and_service_override_hints_for_the_same_end_only() {
        let hints = Info {
            src_addr: Some(parse_address("127.0.0.3:0")),
            dest_addr: Some(parse_address("127.0.0.4:4")),
            ..Info::default()
        };
        let both = |node, flags| {
            let found = resolve_address_pairs(node, Some("7471"), flags, &hints).expect("both ends");
            (found[0].src, found[0].dest)
        };
        let as_source = both(Some("127.0.0.2"), InfoFlags::SOURCE);
        assert_eq!(as_source, (Some(parse_address("127.0.0.2:7471")), hints.dest_addr));
        let as_destination = both(Some("127.0.0.2"), InfoFlags::empty());
        assert_eq!(as_destination, (hints.src_addr, Some(parse_address("127.0.0.2:7471"))));
        let unnamed = resolve_address_pairs(None, None, InfoFlags::empty(), &hints).expect("both hints");
        assert_eq!((unnamed[0].src, unnamed[0].dest), (hints.src_addr, hints.dest_addr));
    }

    #[test]
    fn resolve_error_names_the_conflicting_address() {
        let none = Info::default();
        let from = |src: &str| Info { src_addr: Some(parse_address(src)), ..Info::default() };
        let ipv6 = Info { addr_format: Some(AddressFormat::SockaddrIn6), ..Info::default() };
        let node = |node, flags, hints| {
            let Err(Error::Misuse(Misuse::Unmet(unmet))) =
                resolve_address_pairs(Some(node), Some("1"), flags, hints)
            else {
                panic!("{node} with {hints:?}")
            };
            unmet
        };
        let plain = InfoFlags::empty();
        assert_eq!(node("203.0.113.77", InfoFlags::SOURCE, &none), Unmet::LocalSource);
        assert_eq!(node("127.0.0.1", plain, &ipv6), Unmet::AddressFormat(AddressFormat::SockaddrIn6));
        assert_eq!(node("::1", plain, &from("127.0.0.1:0")), Unmet::OneAddressFormat);
        let unnamed = resolve_address_pairs(None, None, InfoFlags::SOURCE, &none);
        assert_eq!(unnamed.unwrap_err().errno(), Errno::EINVAL);
    }

    #[test]
    fn route_starts_at_an_address_of_this_host() {
        let start = |to: &str| {
            let to = parse_address(to);
            probe_local_address(to.format().wildcard(), Some(to))
        };
        assert_eq!(start("127.0.0.1:9"), Ok(Some(parse_address("127.0.0.1:0"))));
        assert_eq!(start("127.0.0.1:0"), Ok(Some(parse_address("127.0.0.1:0"))));
        if probe_local_address(parse_address("[::1]:0"), None) == Ok(Some(parse_address("[::1]:0"))) {
            assert_eq!(start("[::1]:9"), Ok(Some(parse_address("[::1]:0"))));
        }
    }
}
