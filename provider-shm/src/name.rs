//! The names of endpoints: abstract UNIX addresses made of the version of the protocol, IP address and port.
//!
//! An abstract name belongs to the network namespace. It is in no file system, and vanishes with its socket.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use homespun_engine::address::{Address, AddressFormat};
use homespun_engine::wire::hello::VERSION;
use rustix::net::SocketAddrUnix;
use smallvec::{SmallVec, smallvec};

use crate::limits::PORTS_MAX;

/// The first port of the dynamic range.
const PORTS_START: u16 = 49_152;

const _: () = assert!(PORTS_START.checked_add(PORTS_MAX - 1).is_some());
const _: () = assert!(PORTS_MAX.is_power_of_two());

/// The kind of endpoint that a name belongs to. Endpoints of one kind find only each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NameKind {
    /// An endpoint over shared memory alone.
    Alone,
    /// An endpoint that also listens on TCP, at the port in its name. An endpoint of the other kind may use
    /// the same port number, so the two kinds need different names.
    BesideTcp {
        /// A part of the name; empty if the provider sets none.
        neighbourhood: Arc<str>,
    },
}

/// The first version of the protocol that is a part of names.
const NAMED_SINCE: u16 = 10;

/// How many later versions a connector looks for.
const LATER_VERSIONS: u16 = 16;

/// The socket name of the endpoint at an address that speaks this version of the protocol.
///
/// A connector passes its ring before the peer's process makes progress, and takes frames at once. With the
/// version in the name, the connector does not pass a ring to a peer that cannot read it.
pub(crate) fn socket_name(kind: &NameKind, version: u16, address: Address) -> io::Result<SocketAddrUnix> {
    let address = address.socket_addr();
    let name = match kind {
        NameKind::Alone => format!("homespun/shm/{version}/{address}"),
        NameKind::BesideTcp { neighbourhood } => {
            format!("homespun/auto/{version}/{neighbourhood}/{address}")
        }
    };
    Ok(SocketAddrUnix::new_abstract_name(name.as_bytes())?)
}

/// The other versions that an endpoint at an address may speak.
pub(crate) fn other_versions() -> impl Iterator<Item = u16> {
    (NAMED_SINCE..=VERSION + LATER_VERSIONS).filter(|&version| version != VERSION)
}

/// The addresses to bind for an endpoint: a specific address alone, or for a wildcard the loopback address
/// and the wildcard. Peers reach the endpoint at the first of these addresses.
pub(crate) fn addresses_to_bind(bind: Address) -> SmallVec<[Address; 2]> {
    if bind.is_specific() { smallvec![bind] } else { smallvec![to_loopback(bind), bind] }
}

/// The addresses to which an endpoint that peers reach at `to` may be bound.
pub(crate) fn possible_bind_addresses(kind: &NameKind, to: Address) -> SmallVec<[Address; 2]> {
    let wildcard = to.format().wildcard().with_port(to.port());
    // An endpoint bound to a wildcard answers only for the addresses of this host.
    if to.is_specific() && is_local(to) {
        return smallvec![to, wildcard];
    }
    match kind {
        NameKind::Alone => smallvec![to],
        // The address is not one of this host, so only TCP reaches the endpoint.
        NameKind::BesideTcp { .. } => SmallVec::new(),
    }
}

/// The ports to try for an endpoint: the requested port, or every dynamic port if the request is 0. For 0,
/// the first port depends on the instance and on the number of earlier calls. So a new endpoint does not
/// reuse the port of an endpoint that this process has just closed. Peers may still connect to that port.
pub(crate) fn ports_to_try(asked: u16, instance: u64) -> impl Iterator<Item = u16> {
    /// Calls for port 0 so far in this process.
    static CALLS: AtomicU64 = AtomicU64::new(0);
    /// The distance between the first ports of successive calls. It is odd, and the number of ports is a
    /// power of two. So the successive calls of one instance start at every port once before a port repeats.
    const STRIDE: u64 = 10_007;

    let (start, count) = match asked {
        0 => {
            let moved = CALLS.fetch_add(1, Ordering::Relaxed).wrapping_mul(STRIDE);
            ((instance.wrapping_add(moved) % u64::from(PORTS_MAX)) as u16, PORTS_MAX)
        }
        _ => (0, 1),
    };
    (0..count).map(move |step| match asked {
        0 => PORTS_START + (start + step) % PORTS_MAX,
        asked => asked,
    })
}

/// Whether this host has the address.
pub(crate) fn is_local(address: Address) -> bool {
    // A bind succeeds only for an address of this host. A link-local address needs its scope id.
    address.ip().is_loopback()
        || match UdpSocket::bind(address.with_port(0).socket_addr()) {
            Ok(_) => true,
            // Without a free descriptor the check is impossible. Then say yes: the caller's next step needs
            // a descriptor, too, and fails with this error.
            Err(error) => matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE)),
        }
}

fn to_loopback(bind: Address) -> Address {
    let ip: IpAddr = match bind.format() {
        AddressFormat::SockaddrIn => Ipv4Addr::LOCALHOST.into(),
        AddressFormat::SockaddrIn6 => Ipv6Addr::LOCALHOST.into(),
    };
    SocketAddr::new(ip, bind.port()).into()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::net::SocketAddrV6;

    use super::*;

    fn parse_address(text: &str) -> Address {
        text.parse::<SocketAddr>().unwrap().into()
    }

    #[test]
    fn socket_name_contains_kind_version_address_and_port() {
        let beside_tcp = |neighbourhood: &str| NameKind::BesideTcp { neighbourhood: neighbourhood.into() };
        for (kind, expected) in [
            (NameKind::Alone, "homespun/shm/7/[::1]:5000"),
            (beside_tcp(""), "homespun/auto/7//[::1]:5000"),
            (beside_tcp("left"), "homespun/auto/7/left/[::1]:5000"),
        ] {
            let name = socket_name(&kind, 7, parse_address("[::1]:5000")).unwrap();
            assert_eq!(name.abstract_name(), Some(expected.as_bytes()));
        }
    }

    #[test]
    fn binding_a_wildcard_takes_the_loopback_name_too() {
        let all = |text| addresses_to_bind(parse_address(text)).to_vec();
        assert_eq!(all("127.0.0.2:7"), [parse_address("127.0.0.2:7")]);
        assert_eq!(all("0.0.0.0:7"), [parse_address("127.0.0.1:7"), parse_address("0.0.0.0:7")]);
        assert_eq!(all("[::]:7"), [parse_address("[::1]:7"), parse_address("[::]:7")]);
    }

    #[test]
    fn wildcard_is_a_candidate_for_local_addresses_only() {
        let beside_tcp = NameKind::BesideTcp { neighbourhood: "".into() };
        for kind in [&NameKind::Alone, &beside_tcp] {
            let all = |text| possible_bind_addresses(kind, parse_address(text)).to_vec();
            assert_eq!(all("127.9.9.9:7"), [parse_address("127.9.9.9:7"), parse_address("0.0.0.0:7")]);
            assert_eq!(all("[::1]:7"), [parse_address("[::1]:7"), parse_address("[::]:7")]);
        }
        // TEST-NET-3 is for documentation; no host has it.
        let elsewhere = parse_address("203.0.113.77:7");
        assert_eq!(possible_bind_addresses(&NameKind::Alone, elsewhere).to_vec(), [elsewhere]);
        assert!(possible_bind_addresses(&beside_tcp, elsewhere).is_empty());
    }

    #[test]
    fn addresses_of_interfaces_are_local_also_those_with_a_scope() {
        let file = std::fs::read_to_string("/proc/net/if_inet6");
        // A host without IPv6 has no such file.
        for line in file.unwrap_or_default().lines() {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let ip = Ipv6Addr::from(u128::from_str_radix(fields[0], 16).unwrap());
            let index = u32::from_str_radix(fields[1], 16).unwrap();
            let scope_id = if ip.is_unicast_link_local() { index } else { 0 };
            assert!(is_local(SocketAddr::from(SocketAddrV6::new(ip, 7, 0, scope_id)).into()), "{line}");
        }
        assert!(is_local(parse_address("127.9.9.9:7")));
        assert!(!is_local(parse_address("203.0.113.77:7")));
    }

    #[test]
    fn ports_to_try_yields_each_dynamic_port_once() {
        for instance in [0, 7, u64::MAX] {
            let tried: Vec<u16> = ports_to_try(0, instance).collect();
            assert_eq!(tried.len(), usize::from(PORTS_MAX));
            assert_eq!(tried.iter().collect::<BTreeSet<_>>().len(), tried.len());
            assert!(tried.iter().all(|&port| port >= PORTS_START));
        }
        assert_eq!(ports_to_try(80, 7).collect::<Vec<_>>(), [80]);
    }

    #[test]
    fn ports_of_one_instance_start_elsewhere_each_time() {
        let starts: Vec<Option<u16>> = (0..100).map(|_| ports_to_try(0, 7).next()).collect();
        assert_eq!(starts.iter().collect::<BTreeSet<_>>().len(), starts.len());
    }
}
