//! Endpoint addresses.

use std::fmt;
use std::net::{AddrParseError, IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::str::FromStr;

/// The fabric address of an endpoint: an IPv4 or IPv6 socket address.
///
/// Every domain names endpoints by socket addresses (`FI_SOCKADDR_IN` and `FI_SOCKADDR_IN6`), even
/// a domain that never opens a socket. An address keeps the scope id of an IPv6 address but not the
/// flow label.
///
/// The text form is `127.0.0.1:7471` or `[::1]:7471`, which `FromStr` parses. With the feature
/// `serde`, an address is serialized as this text in every format.
///
/// ```
/// # use homespun_engine::address::Address;
/// let address: Address = "[fe80::1%2]:7471".parse().unwrap();
/// assert_eq!((address.port(), address.to_string().as_str()), (7471, "[fe80::1%2]:7471"));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Address(SocketAddr);

/// The format of an address, as `fi_info` names it (`addr_format`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "SCREAMING_SNAKE_CASE")
)]
pub enum AddressFormat {
    /// `struct sockaddr_in`, 16 bytes.
    SockaddrIn,
    /// `struct sockaddr_in6`, 28 bytes.
    SockaddrIn6,
}

impl AddressFormat {
    /// Returns the size of one address of this format in its C form.
    pub const fn len_bytes(self) -> usize {
        match self {
            AddressFormat::SockaddrIn => 16,
            AddressFormat::SockaddrIn6 => 28,
        }
    }

    /// Returns the address that binds every interface, with a port that the system chooses.
    pub const fn wildcard(self) -> Address {
        match self {
            AddressFormat::SockaddrIn => Address(SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0))),
            AddressFormat::SockaddrIn6 => {
                Address(SocketAddr::V6(SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, 0, 0, 0)))
            }
        }
    }
}

impl Address {
    /// Returns the IP address.
    pub fn ip(&self) -> IpAddr {
        self.0.ip()
    }

    /// Returns the port.
    pub fn port(&self) -> u16 {
        self.0.port()
    }

    /// Returns the same host with another port.
    #[must_use]
    pub fn with_port(mut self, port: u16) -> Address {
        self.0.set_port(port);
        self
    }

    /// Returns the format of this address.
    pub fn format(&self) -> AddressFormat {
        match self.0 {
            SocketAddr::V4(_) => AddressFormat::SockaddrIn,
            SocketAddr::V6(_) => AddressFormat::SockaddrIn6,
        }
    }

    /// Returns the standard library's form.
    pub fn socket_addr(&self) -> SocketAddr {
        self.0
    }

    /// Whether the address names one host or interface, and not "any".
    pub fn is_specific(&self) -> bool {
        !self.0.ip().is_unspecified()
    }
}

impl From<SocketAddr> for Address {
    fn from(address: SocketAddr) -> Self {
        match address {
            SocketAddr::V6(v6) => Address(SocketAddrV6::new(*v6.ip(), v6.port(), 0, v6.scope_id()).into()),
            v4 @ SocketAddr::V4(_) => Address(v4),
        }
    }
}

impl From<Address> for SocketAddr {
    fn from(address: Address) -> SocketAddr {
        address.socket_addr()
    }
}

impl FromStr for Address {
    type Err = AddrParseError;

    fn from_str(text: &str) -> Result<Self, AddrParseError> {
        text.parse::<SocketAddr>().map(Address::from)
    }
}

/// Serializes the text in every format. The standard library's type loses the scope id in binary
/// formats.
#[cfg(feature = "serde")]
impl serde::Serialize for Address {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

#[cfg(feature = "serde")]
impl<'de> serde::Deserialize<'de> for Address {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_equality_ignores_flow_label() {
        let with_flow = SocketAddrV6::new(Ipv6Addr::LOCALHOST, 7, 99, 3);
        let without = SocketAddrV6::new(Ipv6Addr::LOCALHOST, 7, 0, 3);
        assert_eq!(Address::from(SocketAddr::V6(with_flow)), Address::from(SocketAddr::V6(without)));
    }

    #[test]
    fn wildcards_are_not_specific() {
        assert!(!AddressFormat::SockaddrIn.wildcard().is_specific());
        assert!(!AddressFormat::SockaddrIn6.wildcard().is_specific());
        assert_eq!(AddressFormat::SockaddrIn6.wildcard().format(), AddressFormat::SockaddrIn6);
    }
}
