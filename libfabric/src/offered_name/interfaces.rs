//! The infos for the interfaces of this host.

use std::net::SocketAddr;

use homespun::info::Info;
use homespun::params::OfferedName;
use homespun::{Address, AddressFormat, Error, Fabric, LocalAddress};

use super::infos::offer_info;
use super::names::Names;

/// Returns the addresses of this host: first IPv4, then IPv6. In each format the best address comes
/// first.
pub(super) fn local_addresses(fabric: &Fabric) -> Result<Vec<LocalAddress>, Error> {
    let mut addresses = fabric.local_addresses(AddressFormat::SockaddrIn)?;
    addresses.extend(fabric.local_addresses(AddressFormat::SockaddrIn6)?);
    Ok(addresses)
}

fn format_of(address: &LocalAddress) -> AddressFormat {
    if address.ip.is_ipv4() { AddressFormat::SockaddrIn } else { AddressFormat::SockaddrIn6 }
}

/// Names an info after the interface that has its source address. If the source is a wildcard or
/// missing and `is_split` is set, returns an info for each address of this host in the info's
/// format. An info without an interface gets the provider's name.
pub(super) fn offer_at_interfaces(
    info: Info,
    name: OfferedName,
    is_split: bool,
    addresses: &[LocalAddress],
) -> Vec<Info> {
    let specific = info.src_addr.filter(Address::is_specific);
    if let Some(source) = specific {
        let found = addresses.iter().find(|address| address.ip == source.ip());
        let names = found.map_or_else(|| Names::of_provider(name), Names::of_interface);
        return vec![offer_info(info, name, &names)];
    }
    let of_format =
        addresses.iter().filter(|address| is_split && info.addr_format == Some(format_of(address)));
    let port = info.src_addr.map_or(0, |source| source.port());
    let split: Vec<Info> = of_format
        .map(|address| {
            let source = Address::from(SocketAddr::new(address.ip, port));
            let info = Info { src_addr: Some(source), ..info.clone() };
            offer_info(info, name, &Names::of_interface(address))
        })
        .collect();
    if split.is_empty() { vec![offer_info(info, name, &Names::of_provider(name))] } else { split }
}
