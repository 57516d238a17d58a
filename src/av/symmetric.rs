//! Ranges of nodes and services: `fi_av_insertsym` of `fi_av(3)`.

use crate::mutated;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use homespun_engine::address::Address;
use homespun_engine::error::{Argument, Error, Misuse};

use super::{AddressVector, FabricAddress};

impl AddressVector {
    /// Inserts the addresses of a range of nodes and services, as `fi_av_insertsym(3)` does. Returns a
    /// result for each address, as [`insert`](Self::insert) does.
    ///
    /// The range has `node_count` nodes from `node` on, each with `service_count` services from `service`
    /// on. All services of one node come before the next node. The next node after `10.1.1.1` is
    /// `10.1.1.2`, after `host09` it is `host10`. The next service after port 5000 is port 5001. Resolving
    /// names may block.
    ///
    /// # Errors
    ///
    /// The call fails with [`Misuse::Invalid`], and inserts nothing, in three cases:
    ///
    /// - `node_count` is above 1, and the node's name does not end in a number.
    /// - `service_count` is above 1, and the service is not a number.
    /// - The range goes beyond the last address or port.
    ///
    /// Otherwise the result for an address may be an error of [`insert_svc`](Self::insert_svc).
    pub fn insert_sym(
        &self,
        node: &str,
        node_count: usize,
        service: &str,
        service_count: usize,
    ) -> Result<Vec<Result<FabricAddress, Error>>, Error> {
        if node_count == 0 || service_count == 0 {
            return Ok(Vec::new());
        }
        // Check the ends of both ranges first, so that a range that is too long fails at once.
        let steps = |count: usize| count as u64 - 1;
        successor_of_node(node, steps(node_count)).ok_or(BEYOND)?;
        successor_of_service(service, steps(service_count)).ok_or(BEYOND)?;
        let mut found = Vec::new();
        for nodes_before in 0..node_count as u64 {
            let node = successor_of_node(node, nodes_before).ok_or(BEYOND)?;
            for services_before in 0..service_count as u64 {
                let service = successor_of_service(service, services_before).ok_or(BEYOND)?;
                found.push(self.resolve_svc(&node, &service));
            }
        }
        if mutated!("fi_av/insertsym-order") {
            found.reverse();
        }
        // Insert a wildcard in place of an address that was not found. The vector refuses a wildcard, but
        // leaves an index unused for it.
        let wildcard = self.format().wildcard();
        let addresses: Vec<Address> =
            found.iter().map(|found| *found.as_ref().unwrap_or(&wildcard)).collect();
        let inserted = self.insert(&addresses).into_iter().zip(found);
        Ok(inserted.map(|(inserted, found)| found.and(inserted)).collect())
    }
}

const BEYOND: Misuse = Misuse::Invalid(Argument::AddressRange);

/// Returns the node that is `steps` after `node`: `host10` comes 1 step after `host09`. Returns `None` if
/// there is no such node. With 0 steps, returns `node`.
fn successor_of_node(node: &str, steps: u64) -> Option<String> {
    if steps == 0 {
        return Some(node.to_owned());
    }
    match node.parse() {
        Ok(IpAddr::V4(address)) => {
            let next = u32::from(address).checked_add(u32::try_from(steps).ok()?)?;
            Some(Ipv4Addr::from(next).to_string())
        }
        Ok(IpAddr::V6(address)) => {
            let next = u128::from(address).checked_add(steps.into())?;
            Some(Ipv6Addr::from(next).to_string())
        }
        Err(_) => {
            let name = node.trim_end_matches(|last: char| last.is_ascii_digit());
            let number = &node[name.len()..];
            let next = number.parse::<u64>().ok()?.checked_add(steps)?;
            Some(format!("{name}{next:0width$}", width = number.len()))
        }
    }
}

/// Returns the port that is `steps` above `service`. Returns `None` if there is no such port, or if
/// `service` is not a number. With 0 steps, returns `service`, even if it is a name.
fn successor_of_service(service: &str, steps: u64) -> Option<String> {
    if steps == 0 {
        return Some(service.to_owned());
    }
    let port = u64::from(service.parse::<u16>().ok()?).checked_add(steps)?;
    u16::try_from(port).ok().map(|port| port.to_string())
}

#[cfg(test)]
mod tests {
    use homespun_engine::address::AddressFormat;
    use homespun_engine::errno::Errno;

    use super::*;
    use crate::av::AvAttr;
    use crate::domain_id::DomainId;

    fn open_vector() -> AddressVector {
        AddressVector::open(&AvAttr::default(), AddressFormat::SockaddrIn, DomainId::allocate())
            .expect("a vector")
    }

    #[test]
    fn successor_increments_the_last_number() {
        for (node, steps, next) in [
            ("10.1.1.1", 1, Some("10.1.1.2")),
            ("10.1.1.255", 1, Some("10.1.2.0")),
            ("255.255.255.255", 1, None),
            ("fe80::ffff", 1, Some("fe80::1:0")),
            ("host10", 1, Some("host11")),
            ("host09", 2, Some("host11")),
            ("r2d2-099", 1, Some("r2d2-100")),
            ("host", 1, None),
            ("host", 0, Some("host")),
            ("host18446744073709551615", 1, None),
        ] {
            assert_eq!(successor_of_node(node, steps).as_deref(), next, "{node}");
        }
        for (service, steps, next) in [
            ("5000", 1, Some("5001")),
            ("65535", 1, None),
            ("65535", 0, Some("65535")),
            ("http", 0, Some("http")),
            ("http", 1, None),
        ] {
            assert_eq!(successor_of_service(service, steps).as_deref(), next, "{service}");
        }
    }

    #[test]
    fn symmetric_insertion_inserts_services_before_nodes() {
        let av = open_vector();
        let inserted = av.insert_sym("127.0.0.1", 2, "5000", 3).expect("a range");
        let inserted: Vec<FabricAddress> =
            inserted.into_iter().map(|address| address.expect("an address")).collect();
        let text = |address: &FabricAddress| av.lookup(*address).expect("it was inserted").to_string();
        let found: Vec<String> = inserted.iter().map(text).collect();
        let expected = [
            "127.0.0.1:5000",
            "127.0.0.1:5001",
            "127.0.0.1:5002",
            "127.0.0.2:5000",
            "127.0.0.2:5001",
            "127.0.0.2:5002",
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn symmetric_insertion_of_a_bad_range_inserts_nothing() {
        let av = open_vector();
        for (node, nodes, service, services) in [
            ("127.0.0.1", 1, "65535", 2),
            ("255.255.255.255", 2, "1", 1),
            ("localhost", 2, "1", 1),
            ("127.0.0.1", 1, "http", 2),
        ] {
            let refused = av.insert_sym(node, nodes, service, services).expect_err("no such range");
            assert_eq!(refused.errno(), Errno::EINVAL, "{node} {service}");
        }
        for (nodes, services) in [(0, 3), (3, 0), (usize::MAX, 0), (0, usize::MAX)] {
            assert!(av.insert_sym("host1", nodes, "5000", services).expect("no addresses").is_empty());
        }
        assert!(av.is_empty());
    }

    #[test]
    fn symmetric_insertion_reports_each_address() {
        let av = open_vector();
        let inserted = av.insert_sym("127.0.0.1", 1, "0", 2).expect("a range");
        assert_eq!(inserted[0].as_ref().expect_err("no port").errno(), Errno::EINVAL);
        assert_eq!(inserted[1].as_ref().expect("a port").0, 1, "the refused address has taken an index");
    }
}
