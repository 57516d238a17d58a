//! The name under which libfabric offers homespun: its own name, or that of another provider
//! (`FI_HOMESPUN_AS`).
//!
//! With the name of another provider, homespun's infos look like infos of that provider: they have
//! its protocol numbers. An info whose source is an address of this host names its domain after the
//! network interface, and its fabric after the network. If the application gives no address, it
//! gets an info for each address of this host. All these infos stand for one domain of homespun.
//!
//! This module translates hints and infos at the C interface; the crate `homespun` knows only its
//! own names. `docs/decisions/offered-names.md` has the reasons.

mod current;
mod infos;
mod interfaces;
mod names;
mod protocol;
#[cfg(test)]
mod tests;
mod wanted;

use homespun::flags::InfoFlags;
use homespun::info::Info;
use homespun::params::OfferedName;
use homespun::{Error, Fabric};

pub(crate) use self::current::{c_name, current, provider_version, set_current};
pub(crate) use self::infos::{
    is_fabric_name, name_of_open_domain, offer_info, restore_info, restore_info_of_domain,
};
use self::interfaces::{local_addresses, offer_at_interfaces};
pub(crate) use self::names::Names;
use self::wanted::Wanted;

/// `fi_getinfo(3)`. Hints and infos have the names under which homespun is currently offered.
///
/// # Errors
///
/// As [`Fabric::getinfo`].
pub(crate) fn getinfo(
    fabric: &Fabric,
    node: Option<&str>,
    service: Option<&str>,
    flags: InfoFlags,
    hints: Option<Info>,
) -> Result<Vec<Info>, Error> {
    let name = current();
    if name == OfferedName::Homespun {
        return fabric.getinfo(node, service, flags, hints.as_ref());
    }
    let mut hints = hints.unwrap_or_default();
    let wanted = Wanted::take_from(&mut hints, name);
    hints.domain.name = fabric.domain_names().into_iter().next();
    let has_addresses = hints.src_addr.is_some() || hints.dest_addr.is_some();
    let is_source_open = node.is_none() && service.is_none() && !has_addresses;
    let infos = fabric.getinfo(node, service, flags, Some(&hints))?;
    if flags.contains(InfoFlags::PROV_ATTR_ONLY) {
        let names = Names::of_provider(name);
        return Ok(infos.into_iter().map(|info| offer_info(info, name, &names)).collect());
    }
    let addresses = local_addresses(fabric)?;
    let is_split = is_source_open || wanted.names_interface();
    let offered = infos.into_iter().flat_map(|info| offer_at_interfaces(info, name, is_split, &addresses));
    let mut infos = wanted.select(offered)?;
    if name == OfferedName::Tcp && hints.ep.ep_type.is_none() {
        prefer_unconnected(&mut infos);
    }
    Ok(infos)
}

/// Removes infos of connected endpoints if there are infos of unconnected endpoints. Since 1.18
/// libfabric moves `tcp`'s unconnected endpoints to the end of the list. An application that asks
/// for no type takes the first info, and would get a connected endpoint.
fn prefer_unconnected(infos: &mut Vec<Info>) {
    let is_unconnected = |info: &Info| !info.endpoint_type().is_connected();
    if infos.iter().any(is_unconnected) {
        infos.retain(is_unconnected);
    }
}
