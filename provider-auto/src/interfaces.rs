//! What the user of a host may want to know: how peers at each interface's addresses are reached.

use std::collections::BTreeMap;
use std::net::IpAddr;

/// A sentence for each interface.
pub(crate) fn interface_findings() -> Vec<String> {
    let interfaces = if_addrs::get_if_addrs().unwrap_or_default();
    describe(interfaces.iter().map(|interface| (interface.name.as_str(), interface.ip())))
}

fn describe<'a>(addresses: impl Iterator<Item = (&'a str, IpAddr)>) -> Vec<String> {
    let mut by_interface = BTreeMap::<&str, Vec<String>>::new();
    for (name, ip) in addresses {
        by_interface.entry(name).or_default().push(ip.to_string());
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

    #[test]
    fn each_interface_has_one_finding_with_its_addresses() {
        let addresses = [("lo", "127.0.0.1"), ("eth0", "10.0.0.7"), ("lo", "::1")];
        let found = describe(addresses.into_iter().map(|(name, ip)| (name, ip.parse().unwrap())));
        let begins = ["peers at 10.0.0.7 (eth0)", "peers at 127.0.0.1 and ::1 (lo)", "peers at all other"];
        assert_eq!(found.len(), begins.len(), "{found:?}");
        for (finding, begin) in found.iter().zip(begins) {
            assert!(finding.starts_with(begin), "{finding}");
        }
        assert!(found[0].contains("over shared memory") && !found[2].contains("shared memory"));
    }
}
