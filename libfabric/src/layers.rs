//! Layering providers, such as `ofi_rxm`: they implement unconnected endpoints over another
//! provider's connected endpoints.
//!
//! A layer looks for a core provider by `fi_getinfo` with an internal flag of libfabric. homespun
//! answers a layer only if the application has named homespun. Otherwise libfabric would list the
//! layer over homespun ahead of homespun itself, although the layer adds nothing that homespun
//! lacks. `docs/decisions/layers.md` has the reasons.

use std::ops::RangeInclusive;
use std::ptr;

use homespun::info::Version;
use homespun::params::OfferedName;

use crate::abi::provider::FiContext;

/// The flag of `fi_getinfo` with which a layer asks for a core provider.
const OFI_CORE_PROV_ONLY: u64 = 1 << 59;

/// The separator between the names of a provider and of the layers over it.
const NAME_SEPARATOR: char = ';';

/// The versions of libfabric in which the byte that [`DIRECT_FIRST`] sets is the internal field
/// `disable_layering`.
const KNOWN_HOSTS: RangeInclusive<Version> = Version::new(1, 17)..=Version::new(2, 7);

/// An empty context. The host uses it for internal data.
pub(crate) const NO_CONTEXT: FiContext = FiContext { internal: [ptr::null_mut(); 4] };

/// A context that makes the host omit layers for an application that names only homespun. Byte 5 of
/// the context is the host's internal field `disable_layering`.
const DIRECT_FIRST: FiContext = {
    let mut bytes = [0; size_of::<usize>()];
    bytes[5] = 1;
    let word =
        if cfg!(target_endian = "big") { usize::from_be_bytes(bytes) } else { usize::from_le_bytes(bytes) };
    let [_, second, third, fourth] = NO_CONTEXT.internal;
    FiContext { internal: [ptr::without_provenance_mut(word), second, third, fourth] }
};

/// Returns the context for a host of this version.
pub(crate) fn context_for_host(host: Option<Version>) -> FiContext {
    if host.is_some_and(|version| KNOWN_HOSTS.contains(&version)) { DIRECT_FIRST } else { NO_CONTEXT }
}

/// Whether a call of `fi_getinfo` with these flags comes from a layer that asks for a core
/// provider.
pub(crate) fn is_layer_request(flags: u64) -> bool {
    flags & OFI_CORE_PROV_ONLY != 0
}

/// Whether a layer may use homespun. The application must give the name under which homespun is
/// offered. The host, if there is one, must have a version for which [`DIRECT_FIRST`] works.
pub(crate) fn allows_layering(
    provider_name: Option<&str>,
    offered: OfferedName,
    host: Option<Version>,
) -> bool {
    let is_named = provider_name.is_some_and(|names| {
        names.split(NAME_SEPARATOR).any(|name| name.eq_ignore_ascii_case(offered.as_str()))
    });
    is_named && host.is_none_or(|version| KNOWN_HOSTS.contains(&version))
}
