//! The addresses of this host.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

use homespun_engine::address::{Address, AddressFormat};
use if_addrs::Interface;

use crate::limits::ADDRESS_LIST_FRESH_MS;

/// The address at which peers reach a listener. For a listener bound to a wildcard it is the address of an
/// interface, if possible the preferred one.
pub(crate) fn reachable_address(bound: SocketAddr, preferred_interface: Option<&str>) -> io::Result<Address> {
    let address = Address::from(bound);
    if address.is_specific() {
        return Ok(address);
    }
    let ip = routable_ip(&if_addrs::get_if_addrs()?, address.format(), preferred_interface);
    Ok(SocketAddr::new(ip, bound.port()).into())
}

/// Whether two addresses are those of one endpoint: all addresses of this host count as the same host.
pub(crate) fn is_same_endpoint(
    one: Address,
    other: Address,
    mut is_local: impl FnMut(IpAddr) -> bool,
) -> bool {
    one == other || one.port() == other.port() && is_local(one.ip()) && is_local(other.ip())
}

/// The addresses of this host. The list is read rarely: each hello of a peer may ask for it, and a host may
/// have thousands of interfaces.
#[derive(Debug, Default)]
pub(crate) struct LocalAddresses {
    addresses: Vec<IpAddr>,
    read_at: Option<Instant>,
}

impl LocalAddresses {
    /// Whether this host has the address.
    pub(crate) fn contains(&mut self, ip: IpAddr) -> bool {
        ip.is_loopback() || self.contains_interface(ip, Instant::now(), list_addresses)
    }

    fn contains_interface(&mut self, ip: IpAddr, now: Instant, list: impl FnOnce() -> Vec<IpAddr>) -> bool {
        let is_fresh =
            |read_at| now.saturating_duration_since(read_at) < Duration::from_millis(ADDRESS_LIST_FRESH_MS);
        if !self.read_at.is_some_and(is_fresh) {
            self.addresses = list();
            self.read_at = Some(now);
        }
        self.addresses.contains(&ip)
    }
}

/// The addresses of all interfaces. If they cannot be listed, only loopback addresses count as local.
fn list_addresses() -> Vec<IpAddr> {
    let interfaces = if_addrs::get_if_addrs().unwrap_or_default();
    interfaces.iter().map(Interface::ip).collect()
}

/// The preferred interface's address, else the first address that other hosts may route to, else loopback.
fn routable_ip(interfaces: &[Interface], format: AddressFormat, preferred_interface: Option<&str>) -> IpAddr {
    let (is_v4, loopback): (bool, IpAddr) = match format {
        AddressFormat::SockaddrIn => (true, Ipv4Addr::LOCALHOST.into()),
        AddressFormat::SockaddrIn6 => (false, Ipv6Addr::LOCALHOST.into()),
    };
    // A link-local address of IPv6 is useless to a peer: its scope id is valid on this host only.
    let usable = |interface: &&Interface| {
        interface.is_oper_up() && interface.ip().is_ipv4() == is_v4 && (is_v4 || !interface.is_link_local())
    };
    let is_preferred = |interface: &&Interface| Some(interface.name.as_str()) == preferred_interface;
    let is_routable = |interface: &&Interface| !interface.is_loopback() && !interface.is_link_local();
    let mut candidates = interfaces.iter().filter(usable);
    let chosen = candidates.clone().find(is_preferred).or_else(|| candidates.find(is_routable));
    chosen.map_or(loopback, Interface::ip)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use if_addrs::{IfAddr, IfOperStatus, Ifv4Addr, Ifv6Addr};

    use super::*;

    fn make_interface(ip: &str, oper_status: IfOperStatus) -> Interface {
        let addr = match ip.parse().unwrap() {
            IpAddr::V4(ip) => {
                IfAddr::V4(Ifv4Addr { ip, netmask: Ipv4Addr::BROADCAST, prefixlen: 32, broadcast: None })
            }
            IpAddr::V6(ip) => {
                IfAddr::V6(Ifv6Addr { ip, netmask: Ipv6Addr::UNSPECIFIED, prefixlen: 0, broadcast: None })
            }
        };
        Interface { name: "test0".into(), addr, index: Some(1), oper_status, is_p2p: false }
    }

    #[test]
    fn routable_picks_the_first_reachable_address() {
        let interfaces = [
            make_interface("127.0.0.1", IfOperStatus::Up),
            make_interface("::1", IfOperStatus::Up),
            make_interface("10.0.0.1", IfOperStatus::Down),
            make_interface("169.254.7.7", IfOperStatus::Up),
            make_interface("fe80::7", IfOperStatus::Up),
            make_interface("10.0.0.2", IfOperStatus::Up),
            make_interface("10.0.0.3", IfOperStatus::Up),
            make_interface("fd00::2", IfOperStatus::Up),
        ];
        assert_eq!(routable_ip(&interfaces, AddressFormat::SockaddrIn, None), IpAddr::from([10, 0, 0, 2]));
        assert_eq!(
            routable_ip(&interfaces, AddressFormat::SockaddrIn6, None),
            "fd00::2".parse::<IpAddr>().unwrap()
        );
        assert_eq!(
            routable_ip(&interfaces[..4], AddressFormat::SockaddrIn, None),
            IpAddr::from([127, 0, 0, 1])
        );
        assert_eq!(
            routable_ip(&interfaces[..5], AddressFormat::SockaddrIn6, None),
            IpAddr::V6(Ipv6Addr::LOCALHOST)
        );
    }

    #[test]
    fn routable_prefers_the_named_interface() {
        let special = |ip| Interface { name: "special".into(), ..make_interface(ip, IfOperStatus::Up) };
        let interfaces = [
            make_interface("10.0.0.2", IfOperStatus::Up),
            make_interface("fd00::2", IfOperStatus::Up),
            special("10.0.0.9"),
            special("fe80::9"),
        ];
        let chosen = |format| routable_ip(&interfaces, format, Some("special"));
        assert_eq!(chosen(AddressFormat::SockaddrIn), IpAddr::from([10, 0, 0, 9]));
        assert_eq!(chosen(AddressFormat::SockaddrIn6), "fd00::2".parse::<IpAddr>().unwrap());
        assert_eq!(
            routable_ip(&interfaces, AddressFormat::SockaddrIn, Some("missing")),
            IpAddr::from([10, 0, 0, 2])
        );
    }

    #[test]
    fn reachable_keeps_a_specific_address() {
        let bound: SocketAddr = "[fe80::1%3]:7".parse().unwrap();
        assert_eq!(reachable_address(bound, None).unwrap(), Address::from(bound));
    }

    #[test]
    fn local_addresses_are_loopback_and_interfaces() {
        let mut local = LocalAddresses::default();
        let mut is_local = |ip: IpAddr| local.contains(ip);
        assert!(is_local("127.9.9.9".parse().unwrap()));
        assert!(is_local(Ipv6Addr::LOCALHOST.into()));
        // The kernel's list also has link-local addresses. A host without IPv6 has no such file.
        for line in fs::read_to_string("/proc/net/if_inet6").unwrap_or_default().lines() {
            let digits = line.split_whitespace().next().unwrap();
            let ip = Ipv6Addr::from(u128::from_str_radix(digits, 16).unwrap());
            assert!(is_local(ip.into()), "{ip}");
        }
        // TEST-NET-3 is for documentation; no host has it.
        assert!(!is_local("203.0.113.77".parse().unwrap()));
    }

    #[test]
    fn address_list_is_read_again_only_after_its_time() {
        let (old, new): (IpAddr, IpAddr) = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
        let mut local = LocalAddresses::default();
        let begin = Instant::now();
        let mut reads = 0;
        let fresh = Duration::from_millis(ADDRESS_LIST_FRESH_MS);
        for hello in 0..1000 {
            let at = begin + fresh * hello / 1001;
            let list = || {
                reads += 1;
                vec![old]
            };
            assert!(!local.contains_interface(new, at, list), "a hello's claim");
        }
        assert_eq!(reads, 1, "each hello has read the list");
        assert!(local.contains_interface(new, begin + fresh, || vec![new]));
        assert!(!local.contains_interface(old, begin + fresh, || unreachable!("just read")));
    }
}
