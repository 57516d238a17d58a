//! The hosts that messages come from.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::address::Address;

/// A host: an IPv4 address, or the first 64 bits of an IPv6 address.
///
/// A host can usually take any IPv6 address with the same first 64 bits, so all these addresses
/// count as one host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SourceHost {
    /// An IPv4 address.
    V4(Ipv4Addr),
    /// The first 64 bits of an IPv6 address.
    V6Network(u64),
}

impl SourceHost {
    /// Returns the host of an address.
    pub fn of(address: Address) -> SourceHost {
        match address.ip().to_canonical() {
            IpAddr::V4(ip) => SourceHost::V4(ip),
            IpAddr::V6(ip) => SourceHost::V6Network(first_half(ip)),
        }
    }
}

fn first_half(ip: Ipv6Addr) -> u64 {
    (ip.to_bits() >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(text: &str) -> SourceHost {
        SourceHost::of(text.parse().unwrap())
    }

    #[test]
    fn addresses_of_one_host_differ_in_port_or_lower_half() {
        assert_eq!(host("192.0.2.1:1"), host("192.0.2.1:2"));
        assert_ne!(host("192.0.2.1:1"), host("192.0.2.2:1"));
        assert_eq!(host("[2001:db8:0:1::1]:1"), host("[2001:db8:0:1:ffff::2]:2"));
        assert_ne!(host("[2001:db8:0:1::1]:1"), host("[2001:db8:0:2::1]:1"));
        assert_eq!(host("[::ffff:192.0.2.1]:1"), host("192.0.2.1:1"));
    }
}
