//! Converts infos for the application, and infos from the application.

use homespun::info::{FABRIC_NAME, Info};
use homespun::params::OfferedName;
use homespun::{Error, Fabric};

use super::current::{current, provider_version};
use super::interfaces::local_addresses;
use super::names::Names;
use super::protocol::Protocol;

/// Makes an info of homespun look like an info of the provider `name`: sets the names, the provider
/// version and the protocol. Changes nothing if `name` is homespun's own.
pub(crate) fn offer_info(mut info: Info, name: OfferedName, names: &Names) -> Info {
    if name == OfferedName::Homespun {
        return info;
    }
    info.fabric.name = Some(names.fabric.clone());
    info.fabric.prov_version = provider_version(name);
    info.domain.name = info.domain.name.map(|_| names.domain.clone());
    if let Some(ep_type) = info.ep.ep_type {
        let protocol = Protocol::of_endpoint(name, ep_type);
        info.ep.protocol = protocol.number;
        info.ep.protocol_version = protocol.version;
    }
    info
}

/// Returns the name by which the application knows an open domain. `asked` is the domain name in
/// the info that opened the domain.
pub(crate) fn name_of_open_domain(asked: Option<String>, native: &str) -> String {
    match current() {
        // `asked` may differ from the native name in upper and lower case.
        OfferedName::Homespun => native.to_owned(),
        _ => asked.unwrap_or_else(|| native.to_owned()),
    }
}

/// Whether homespun's fabric has the name `text`. The fabric has the name under which homespun is
/// offered. If homespun is offered under another provider's name, the names of this host's networks
/// are names of the fabric, too.
///
/// # Errors
///
/// The system's error if the interfaces cannot be listed.
pub(crate) fn is_fabric_name(fabric: &Fabric, text: &str) -> Result<bool, Error> {
    match current() {
        OfferedName::Homespun => Ok(text == FABRIC_NAME),
        name if text == name.as_str() => Ok(true),
        _ => Ok(local_addresses(fabric)?.iter().any(|address| address.network == text)),
    }
}

/// Replaces offered names by homespun's own names, in an info from the application. Keeps an
/// unknown domain name, so that homespun refuses the info.
///
/// # Errors
///
/// The system's error if the interfaces cannot be listed.
pub(crate) fn restore_info(fabric: &Fabric, info: &mut Info) -> Result<(), Error> {
    let name = current();
    if name == OfferedName::Homespun {
        return Ok(());
    }
    if let Some(asked) = &info.domain.name {
        let is_interface = |asked: &str| -> Result<bool, Error> {
            Ok(local_addresses(fabric)?.iter().any(|address| address.interface == asked))
        };
        if asked == name.as_str() || is_interface(asked)? {
            info.domain.name = fabric.domain_names().into_iter().next();
        }
    }
    restore_protocol(info, name);
    Ok(())
}

/// As [`restore_info`], for an object of an open domain. The application knows this domain as
/// `offered`, homespun knows it as `native`.
pub(crate) fn restore_info_of_domain(info: &mut Info, offered: &str, native: &str) {
    let name = current();
    if name == OfferedName::Homespun {
        return;
    }
    if info.domain.name.as_deref() == Some(offered) {
        info.domain.name = Some(native.to_owned());
    }
    restore_protocol(info, name);
}

pub(super) fn restore_protocol(info: &mut Info, name: OfferedName) {
    info.fabric.name = Some(FABRIC_NAME.to_owned());
    let protocol = Protocol::of_endpoint(name, info.endpoint_type());
    if info.ep.protocol == protocol.number && info.ep.protocol_version <= protocol.version {
        info.ep.protocol = 0;
        info.ep.protocol_version = 0;
    }
}
