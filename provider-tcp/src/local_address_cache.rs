//! The list of this host's addresses, used to judge the addresses that peers claim.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use if_addrs::Interface;

use crate::limits::ADDRESS_LIST_FRESH_MS;

/// The addresses of this host, kept for [`ADDRESS_LIST_FRESH_MS`]. Each hello may need the list, and a host
/// may have thousands of interfaces.
#[derive(Debug, Default)]
pub(crate) struct LocalAddressCache {
    addresses: Vec<IpAddr>,
    read_at: Option<Instant>,
}

impl LocalAddressCache {
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

#[cfg(test)]
mod tests {
    use std::fs;
    use std::net::Ipv6Addr;

    use super::*;

    #[test]
    fn local_addresses_are_loopback_and_interfaces() {
        let mut local = LocalAddressCache::default();
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
        let mut local = LocalAddressCache::default();
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
