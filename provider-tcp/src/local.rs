//! The addresses of this host, and the choice among them.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use homespun_engine::address::{Address, AddressFormat};
use if_addrs::{IfAddr, Interface};
use ipnet::IpNet;

use crate::default_route::default_route_interfaces;
use crate::interface_selector::InterfaceSelector;

/// How the names of interfaces begin that seldom lead to an application's peers: bridges, interfaces of
/// containers and virtual machines, and tunnels of virtual private networks.
const VIRTUAL_PREFIXES: &[&str] = &[
    "docker",
    "podman",
    "cni",
    "br-",
    "virbr",
    "lxcbr",
    "lxdbr",
    "incusbr",
    "veth",
    "vnet",
    "vboxnet",
    "vmnet",
    "flannel",
    "cali",
    "cilium",
    "weave",
    "kube",
    "dummy",
    "tun",
    "tap",
    "wg",
    "tailscale",
    "zt",
    "nordlynx",
];

/// The network interfaces of this host, at one moment.
#[derive(Debug)]
pub struct LocalInterfaces(Vec<Interface>);

/// An address of this host, at which peers can reach an endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalAddress {
    /// The name of its interface, such as `eth0`.
    pub interface: String,
    /// The address.
    pub ip: IpAddr,
    /// The network of the interface, such as `192.0.2.0/24`. For a loopback interface: the address alone.
    pub network: String,
}

/// How well an allowed address suits an endpoint. The least value is the best.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Suitability {
    /// The address belongs to the interface of a default route. The number is the route's index in the
    /// kernel's order of preference; 0 is the best.
    DefaultRoute(usize),
    Physical,
    Virtual,
    Loopback,
    /// A link-local address. At best, peers in the same network reach it. An IPv4 host gives itself such an
    /// address if it gets no other.
    LinkLocal,
}

impl LocalInterfaces {
    /// Lists the interfaces.
    ///
    /// # Errors
    ///
    /// The error of `getifaddrs(3)`.
    pub fn list() -> io::Result<LocalInterfaces> {
        if_addrs::get_if_addrs().map(LocalInterfaces)
    }

    /// Returns the address that an endpoint bound to all interfaces gives to its peers: the best that the
    /// selector allows. Without a selector, the order is: the interface with the default route; other
    /// interfaces; interfaces of containers, virtual machines and virtual private networks; loopback. `None`
    /// if the selector allows no address of this format.
    pub fn reachable_ip(
        &self,
        format: AddressFormat,
        selector: Option<&InterfaceSelector>,
    ) -> Option<IpAddr> {
        self.choose_ip(format, selector, &default_route_interfaces(format))
    }

    fn choose_ip(
        &self,
        format: AddressFormat,
        selector: Option<&InterfaceSelector>,
        default_routes: &[String],
    ) -> Option<IpAddr> {
        let best = self.rank_usable(format, selector, default_routes).into_iter().next();
        match (best, selector) {
            (Some((Suitability::LinkLocal, _)) | None, None) => Some(loopback(format)),
            (best, _) => best.map(|(_, interface)| interface.ip()),
        }
    }

    /// Returns the usable addresses of this format that the selector allows, the best first, as in
    /// [`reachable_ip`](Self::reachable_ip).
    pub fn addresses(
        &self,
        format: AddressFormat,
        selector: Option<&InterfaceSelector>,
    ) -> Vec<LocalAddress> {
        let ranked = self.rank_usable(format, selector, &default_route_interfaces(format));
        ranked.into_iter().map(|(_, interface)| local_address(interface)).collect()
    }

    /// Returns the usable addresses that the selector allows, the best first. Equally good addresses keep
    /// the kernel's order.
    fn rank_usable(
        &self,
        format: AddressFormat,
        selector: Option<&InterfaceSelector>,
        default_routes: &[String],
    ) -> Vec<(Suitability, &Interface)> {
        let rank = |interface: &Interface| {
            selector.map_or(Some(0), |selector| selector.rank(&interface.name, interface.ip()))
        };
        let usable = self.0.iter().filter(|interface| is_usable(interface, format));
        let mut ranked: Vec<_> = usable
            .filter_map(|interface| {
                Some((rank(interface)?, suitability(interface, default_routes), interface))
            })
            .collect();
        ranked.sort_by_key(|&(rank, suitability, _)| (rank, suitability));
        ranked.into_iter().map(|(_, suitability, interface)| (suitability, interface)).collect()
    }
}

/// Lists the usable interfaces, each with its addresses, for an error message.
impl fmt::Display for LocalInterfaces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let formats = [AddressFormat::SockaddrIn, AddressFormat::SockaddrIn6];
        let usable = |interface: &&Interface| formats.iter().any(|&format| is_usable(interface, format));
        let mut listed: Vec<(&str, Vec<String>)> = Vec::new();
        for interface in self.0.iter().filter(usable) {
            let ip = interface.ip().to_string();
            match listed.iter_mut().find(|(name, _)| *name == interface.name) {
                Some((_, addresses)) => addresses.push(ip),
                None => listed.push((&interface.name, vec![ip])),
            }
        }
        for (index, (name, addresses)) in listed.iter().enumerate() {
            let comma = if index > 0 { ", " } else { "" };
            write!(f, "{comma}{name} ({})", addresses.join(", "))?;
        }
        if listed.is_empty() { f.write_str("none") } else { Ok(()) }
    }
}

/// The address at which peers reach a listener. If the listener is bound to a wildcard, this is the best
/// address of an interface that the selector allows.
///
/// # Errors
///
/// `AddrNotAvailable` if the selector allows no address of the listener's format.
pub(crate) fn reachable_address(
    bound: SocketAddr,
    selector: Option<&InterfaceSelector>,
) -> io::Result<Address> {
    let address = Address::from(bound);
    if address.is_specific() {
        return Ok(address);
    }
    let interfaces = LocalInterfaces::list()?;
    let Some(ip) = interfaces.reachable_ip(address.format(), selector) else {
        let format = address.format();
        tracing::warn!(?format, %interfaces, "no interface is among those that the user allows");
        return Err(rustix::io::Errno::ADDRNOTAVAIL.into());
    };
    Ok(SocketAddr::new(ip, bound.port()).into())
}

/// Whether an interface is up and peers can use its address in this format. Peers cannot use a link-local
/// IPv6 address: its scope id is valid only on this host.
fn is_usable(interface: &Interface, format: AddressFormat) -> bool {
    let is_of_format = match format {
        AddressFormat::SockaddrIn => interface.ip().is_ipv4(),
        AddressFormat::SockaddrIn6 => interface.ip().is_ipv6() && !interface.is_link_local(),
    };
    interface.is_oper_up() && is_of_format
}

fn local_address(interface: &Interface) -> LocalAddress {
    let ip = interface.ip();
    let prefix_bits = match &interface.addr {
        IfAddr::V4(address) => address.prefixlen,
        IfAddr::V6(address) => address.prefixlen,
    };
    let alone = IpNet::from(ip);
    let network = IpNet::new(ip, prefix_bits).map_or(alone, |network| network.trunc());
    let network = if interface.is_loopback() { alone } else { network };
    LocalAddress { interface: interface.name.clone(), ip, network: network.to_string() }
}

fn suitability(interface: &Interface, default_routes: &[String]) -> Suitability {
    let is_virtual = || VIRTUAL_PREFIXES.iter().any(|prefix| interface.name.starts_with(prefix));
    if interface.is_link_local() {
        Suitability::LinkLocal
    } else if interface.is_loopback() {
        Suitability::Loopback
    } else if let Some(index) = default_routes.iter().position(|name| *name == interface.name) {
        Suitability::DefaultRoute(index)
    } else if interface.is_p2p || is_virtual() {
        Suitability::Virtual
    } else {
        Suitability::Physical
    }
}

fn loopback(format: AddressFormat) -> IpAddr {
    match format {
        AddressFormat::SockaddrIn => Ipv4Addr::LOCALHOST.into(),
        AddressFormat::SockaddrIn6 => Ipv6Addr::LOCALHOST.into(),
    }
}

#[cfg(test)]
mod tests {
    use if_addrs::{IfAddr, IfOperStatus, Ifv4Addr, Ifv6Addr};

    use super::*;

    const IPV4: AddressFormat = AddressFormat::SockaddrIn;
    const IPV6: AddressFormat = AddressFormat::SockaddrIn6;

    fn make_interface(name: &str, ip: &str) -> Interface {
        let addr = match ip.parse().unwrap() {
            IpAddr::V4(ip) => {
                IfAddr::V4(Ifv4Addr { ip, netmask: Ipv4Addr::BROADCAST, prefixlen: 32, broadcast: None })
            }
            IpAddr::V6(ip) => {
                IfAddr::V6(Ifv6Addr { ip, netmask: Ipv6Addr::UNSPECIFIED, prefixlen: 0, broadcast: None })
            }
        };
        Interface {
            name: name.into(),
            addr,
            index: Some(1),
            oper_status: IfOperStatus::Up,
            is_p2p: name.starts_with("ppp"),
        }
    }

    fn make_interfaces(interfaces: &[(&str, &str)]) -> LocalInterfaces {
        LocalInterfaces(interfaces.iter().map(|(name, ip)| make_interface(name, ip)).collect())
    }

    /// A laptop with containers, a virtual private network and two network cards.
    fn make_laptop() -> LocalInterfaces {
        make_interfaces(&[
            ("lo", "127.0.0.1"),
            ("docker0", "172.17.0.1"),
            ("br-1234", "172.18.0.1"),
            ("ppp0", "10.9.0.2"),
            ("tun0", "10.8.0.2"),
            ("eth0", "192.0.2.7"),
            ("wlan0", "198.51.100.7"),
            ("lo", "::1"),
            ("docker0", "fd17::1"),
            ("eth0", "fe80::7"),
            ("eth0", "fd00::7"),
        ])
    }

    fn choose(format: AddressFormat, selector: &str, default_routes: &[&str]) -> Option<String> {
        let selector = (!selector.is_empty()).then(|| selector.parse().expect("a selector"));
        let routes: Vec<String> = default_routes.iter().map(|name| (*name).to_owned()).collect();
        let chosen = make_laptop().choose_ip(format, selector.as_ref(), &routes);
        chosen.map(|ip| ip.to_string())
    }

    #[test]
    fn interface_of_the_default_route_comes_first() {
        assert_eq!(choose(IPV4, "", &["wlan0", "eth0"]).as_deref(), Some("198.51.100.7"));
        assert_eq!(choose(IPV4, "", &["gone0", "eth0"]).as_deref(), Some("192.0.2.7"));
        assert_eq!(choose(IPV4, "", &["tun0"]).as_deref(), Some("10.8.0.2"), "even if it is a tunnel");
        assert_eq!(choose(IPV6, "", &["eth0"]).as_deref(), Some("fd00::7"));
    }

    #[test]
    fn virtual_interfaces_come_after_others_without_a_default_route() {
        assert_eq!(choose(IPV4, "", &[]).as_deref(), Some("192.0.2.7"));
        assert_eq!(choose(IPV4, "^eth0", &[]).as_deref(), Some("198.51.100.7"));
        assert_eq!(choose(IPV4, "^eth0,wlan0", &[]).as_deref(), Some("172.17.0.1"));
        assert_eq!(choose(IPV4, "^eth0,wlan0,172.16.0.0/12", &[]).as_deref(), Some("10.9.0.2"));
        assert_eq!(choose(IPV4, "^eth0,wlan0,172.16.0.0/12,10.0.0.0/8", &[]).as_deref(), Some("127.0.0.1"));
        assert_eq!(choose(IPV6, "", &[]).as_deref(), Some("fd00::7"));
        assert_eq!(choose(IPV6, "^eth0", &[]).as_deref(), Some("fd17::1"));
    }

    #[test]
    fn addresses_come_in_the_order_of_the_choice_with_their_networks() {
        let laptop = make_laptop();
        let list = |format, selector: Option<&str>| -> Vec<String> {
            let selector: Option<InterfaceSelector> = selector.map(|text| text.parse().expect("a selector"));
            let ranked = laptop.rank_usable(format, selector.as_ref(), &["wlan0".into()]);
            ranked.into_iter().map(|(_, interface)| local_address(interface).interface).collect()
        };
        assert_eq!(list(IPV4, None), ["wlan0", "eth0", "docker0", "br-1234", "ppp0", "tun0", "lo"]);
        assert_eq!(list(IPV6, None), ["eth0", "docker0", "lo"]);
        assert_eq!(list(IPV4, Some("lo,eth0")), ["lo", "eth0"]);
        assert_eq!(list(IPV4, Some("^eth0,wlan0,172.16.0.0/12,10.0.0.0/8")), ["lo"]);

        let mut eth0 = make_interface("eth0", "192.0.2.7");
        let IfAddr::V4(address) = &mut eth0.addr else { unreachable!("it is IPv4") };
        address.prefixlen = 24;
        assert_eq!(local_address(&eth0).network, "192.0.2.0/24");
        assert_eq!(local_address(&make_interface("lo", "127.0.0.1")).network, "127.0.0.1/32");
        assert_eq!(local_address(&make_interface("lo", "::1")).network, "::1/128");
    }

    #[test]
    fn selector_takes_what_the_default_would_not() {
        assert_eq!(choose(IPV4, "docker0,eth0", &["eth0"]).as_deref(), Some("172.17.0.1"));
        assert_eq!(choose(IPV4, "172.16.0.0/12", &["eth0"]).as_deref(), Some("172.17.0.1"));
        assert_eq!(choose(IPV4, "0.0.0.0/0", &["wlan0"]).as_deref(), Some("198.51.100.7"));
        assert_eq!(choose(IPV4, "lo", &["eth0"]).as_deref(), Some("127.0.0.1"));
    }

    #[test]
    fn selector_without_a_match_chooses_nothing() {
        assert_eq!(choose(IPV4, "eth9", &["eth0"]), None);
        assert_eq!(choose(IPV6, "10.0.0.0/8", &["eth0"]), None);
        assert_eq!(choose(IPV6, "fe80::/10", &["eth0"]), None, "peers cannot use it");
    }

    #[test]
    fn down_and_link_local_interfaces_are_not_chosen_unasked() {
        let down = Interface { oper_status: IfOperStatus::Down, ..make_interface("eth0", "192.0.2.7") };
        let interfaces = LocalInterfaces(vec![down, make_interface("eth1", "169.254.7.7")]);
        let chosen = |selector: Option<&str>| {
            let selector: Option<InterfaceSelector> = selector.map(|text| text.parse().unwrap());
            interfaces.choose_ip(IPV4, selector.as_ref(), &["eth0".into()]).map(|ip| ip.to_string())
        };
        assert_eq!(chosen(None).as_deref(), Some("127.0.0.1"));
        assert_eq!(chosen(Some("eth1")).as_deref(), Some("169.254.7.7"));
        assert_eq!(chosen(Some("eth0")), None);
        assert_eq!(interfaces.choose_ip(IPV6, None, &[]), Some(Ipv6Addr::LOCALHOST.into()));
    }

    #[test]
    fn interfaces_are_listed_with_their_addresses() {
        let interfaces = make_interfaces(&[("eth0", "192.0.2.7"), ("lo", "127.0.0.1"), ("eth0", "fd00::7")]);
        assert_eq!(interfaces.to_string(), "eth0 (192.0.2.7, fd00::7), lo (127.0.0.1)");
        assert_eq!(make_interfaces(&[]).to_string(), "none");
    }

    #[test]
    fn reachable_keeps_a_specific_address() {
        let bound: SocketAddr = "[fe80::1%3]:7".parse().unwrap();
        let nothing = "no-such-interface".parse().unwrap();
        assert_eq!(reachable_address(bound, Some(&nothing)).unwrap(), Address::from(bound));
    }

    #[test]
    fn wildcard_without_an_allowed_interface_has_no_address() {
        let bound = SocketAddr::from(([0, 0, 0, 0], 7));
        let refused = reachable_address(bound, Some(&"no-such-interface".parse().unwrap()));
        assert_eq!(refused.unwrap_err().kind(), io::ErrorKind::AddrNotAvailable);
        let loopback = reachable_address(bound, Some(&"127.0.0.0/8".parse().unwrap())).unwrap();
        assert_eq!(loopback.to_string(), "127.0.0.1:7");
    }
}
