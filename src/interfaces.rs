//! The interfaces of this host that the user allows.

use homespun_engine::address::AddressFormat;
use homespun_engine::error::{Error, Misuse, NoInterface, SystemRequest, Unmet};
use homespun_tcp::{InterfaceSelector, LocalAddress, LocalInterfaces};

use crate::info::Info;

/// Returns the addresses in this format that peers can reach and `selector` allows, the best first.
///
/// # Errors
///
/// The system's error if the interfaces cannot be listed.
pub(crate) fn local_addresses(
    format: AddressFormat,
    selector: Option<&InterfaceSelector>,
) -> Result<Vec<LocalAddress>, Error> {
    Ok(list_interfaces()?.addresses(format, selector))
}

fn list_interfaces() -> Result<LocalInterfaces, Error> {
    LocalInterfaces::list().map_err(|error| SystemRequest::InterfaceList.refused(error))
}

/// Removes infos for endpoints on all interfaces if `selector` allows no interface with an address of the
/// info's format: peers could not reach such endpoints. Keeps the infos of domains for which `is_remote` is
/// false, since these domains use no interfaces.
///
/// # Errors
///
/// [`Misuse::NoInterface`] if `selector` allows no interface at all, even if the infos need none.
/// [`Misuse::Unmet`] if no info is left.
pub(crate) fn retain_reachable_infos(
    mut infos: Vec<Info>,
    selector: &InterfaceSelector,
    is_remote: impl Fn(&str) -> bool,
) -> Result<Vec<Info>, Error> {
    let interfaces = list_interfaces()?;
    let mut formats = vec![AddressFormat::SockaddrIn, AddressFormat::SockaddrIn6];
    formats.retain(|&format| interfaces.reachable_ip(format, Some(selector)).is_some());
    if formats.is_empty() {
        let (allowed, available) = (selector.to_string(), interfaces.to_string());
        return Err(Misuse::NoInterface(Box::new(NoInterface { allowed, available })).into());
    }
    let mut missing = None;
    infos.retain(|info| {
        let Some(source) = info.src_addr.filter(|address| !address.is_specific()) else { return true };
        let is_reachable =
            !info.domain.name.as_deref().is_some_and(&is_remote) || formats.contains(&source.format());
        if !is_reachable {
            missing = Some(source.format());
        }
        is_reachable
    });
    match missing {
        Some(format) if infos.is_empty() => Err(Misuse::Unmet(Unmet::AllowedInterface(format)).into()),
        _ => Ok(infos),
    }
}
