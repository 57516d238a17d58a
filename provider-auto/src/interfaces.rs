//! Facts for the user of a host: for each interface, how peers at its addresses are reached.

use std::collections::BTreeMap;

use homespun_engine::address::AddressFormat;
use homespun_tcp::{LocalAddress, LocalInterfaces};

/// Returns a sentence for each interface whose address peers can use, and a sentence for all other
/// addresses.
pub(crate) fn interface_findings() -> Vec<String> {
    let formats = [AddressFormat::SockaddrIn, AddressFormat::SockaddrIn6];
    let addresses = LocalInterfaces::list().map(|interfaces| {
        formats.into_iter().flat_map(|format| interfaces.addresses(format, None)).collect()
    });
    describe_interfaces(addresses.unwrap_or_default())
}

fn describe_interfaces(addresses: Vec<LocalAddress>) -> Vec<String> {
    let mut by_interface = BTreeMap::<String, Vec<String>>::new();
    for LocalAddress { interface, ip, .. } in addresses {
        by_interface.entry(interface).or_default().push(ip.to_string());
    }
    let near = by_interface.into_iter().map(|(name, ips)| {
        format!(
            "peers at {} ({name}) are reached over shared memory if they are auto endpoints of this user in \
             this network namespace, else over TCP",
            ips.join(" and ")
        )
    });
    near.chain(["peers at all other addresses are reached over TCP".to_owned()]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn make_local_address(interface: &str, ip: &str) -> LocalAddress {
        LocalAddress { interface: interface.into(), ip: ip.parse().unwrap(), network: String::new() }
    }

    #[test]
    fn each_interface_has_one_finding_with_its_addresses() {
        let addresses = [("lo", "127.0.0.1"), ("eth0", "10.0.0.7"), ("lo", "::1")];
        let found =
            describe_interfaces(addresses.map(|(interface, ip)| make_local_address(interface, ip)).into());
        let begins = ["peers at 10.0.0.7 (eth0)", "peers at 127.0.0.1 and ::1 (lo)", "peers at all other"];
        assert_eq!(found.len(), begins.len(), "{found:?}");
        for (finding, begin) in found.iter().zip(begins) {
            assert!(finding.starts_with(begin), "{finding}");
        }
        assert!(found[0].contains("over shared memory") && !found[2].contains("shared memory"));
    }
}
