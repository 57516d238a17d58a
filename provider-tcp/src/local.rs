//! The addresses of this host.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use homespun_engine::address::{Address, AddressFormat};
use if_addrs::Interface;

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
}
