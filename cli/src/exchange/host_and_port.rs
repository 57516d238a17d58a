//! The host and the port of a server, as users write them.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

use homespun::Address;

/// The default port of a server.
pub(crate) const PORT_DEFAULT: u16 = 7471;

/// A host, by name or number, and a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HostAndPort {
    pub(crate) host: String,
    pub(crate) port: u16,
}

impl FromStr for HostAndPort {
    type Err = &'static str;

    /// Reads `HOST`, `HOST:PORT`, `[IPV6]` and `[IPV6]:PORT`. Without brackets, a text with several
    /// colons is an IPv6 address.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const BAD: &str = "an address is HOST, HOST:PORT or [IPV6]:PORT";
        let (host, port) = match text.strip_prefix('[') {
            Some(rest) => match rest.split_once(']').ok_or(BAD)? {
                (host, "") => (host, None),
                (host, port) => (host, Some(port.strip_prefix(':').ok_or(BAD)?)),
            },
            None => match text.split_once(':') {
                Some((_, rest)) if rest.contains(':') => (text, None),
                Some((host, port)) => (host, Some(port)),
                None => (text, None),
            },
        };
        if host.is_empty() {
            return Err(BAD);
        }
        let port = match port {
            Some(port) => port.parse().map_err(|_| "a port is a number up to 65535")?,
            None => PORT_DEFAULT,
        };
        Ok(HostAndPort { host: host.into(), port })
    }
}

impl From<Address> for HostAndPort {
    fn from(address: Address) -> Self {
        let host = match address.socket_addr() {
            SocketAddr::V6(v6) if v6.scope_id() != 0 => format!("{}%{}", v6.ip(), v6.scope_id()),
            other => other.ip().to_string(),
        };
        HostAndPort { host, port: address.port() }
    }
}

impl fmt::Display for HostAndPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let HostAndPort { host, port } = self;
        if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn make_target(host: &str, port: u16) -> Result<HostAndPort, &'static str> {
        Ok(HostAndPort { host: host.into(), port })
    }

    #[test]
    fn host_parses_with_and_without_a_port() {
        assert_eq!("localhost".parse(), make_target("localhost", PORT_DEFAULT));
        assert_eq!("10.0.0.1:80".parse(), make_target("10.0.0.1", 80));
        assert_eq!("[::1]:0".parse(), make_target("::1", 0));
        assert_eq!("[fe80::1%eth0]".parse(), make_target("fe80::1%eth0", PORT_DEFAULT));
        assert_eq!("::1".parse(), make_target("::1", PORT_DEFAULT));
    }

    #[test]
    fn malformed_address_is_refused() {
        for text in ["", ":80", "host:", "host:port", "host:65536", "[::1", "[::1]80", "[]:80"] {
            assert!(text.parse::<HostAndPort>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn written_target_parses_to_the_same_target() {
        for text in ["localhost:1", "127.0.0.1:7471", "[::1]:7471"] {
            assert_eq!(text.parse::<HostAndPort>().unwrap().to_string(), text);
        }
    }
}
