//! Layering providers, such as `ofi_rxm`, which implement unconnected endpoints over connected
//! ones.
//!
//! A layer looks for a core provider by `fi_getinfo` with an internal flag of libfabric. homespun
//! answers a layer only if the application has named homespun. If it answered every layer, libfabric
//! would list the layer over homespun ahead of homespun itself, since it lists layers ahead of
//! providers that it does not know. Yet homespun already has all that the layer adds.
//! `docs/decisions/layers.md` has the reasons.

use std::ops::RangeInclusive;
use std::ptr;

use homespun::info::Version;
use homespun::params::OfferedName;

use crate::abi::provider::FiContext;

/// The flag of `fi_getinfo` with which a layer asks for a core provider.
const OFI_CORE_PROV_ONLY: u64 = 1 << 59;

/// The separator between the names of a provider and of the layers over it.
const NAME_SEPARATOR: char = ';';

/// The oldest and the newest libfabric in which the internal field `disable_layering` of a context is at
/// the byte that [`DIRECT_FIRST`] sets.
const KNOWN_HOSTS: RangeInclusive<Version> = Version::new(1, 17)..=Version::new(2, 7);

/// An empty context. The host uses it for internal data.
pub(crate) const NO_CONTEXT: FiContext = FiContext { internal: [ptr::null_mut(); 4] };

/// A context that makes the host omit layers for an application that names homespun without a
/// layer. Byte 5 of the context is the host's `disable_layering`, which the host sets itself for
/// providers that it knows to need no layer.
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

/// Whether these flags of `fi_getinfo` are those of a layer that asks for a core provider.
pub(crate) fn is_layer_request(flags: u64) -> bool {
    flags & OFI_CORE_PROV_ONLY != 0
}

/// Whether a layer may use homespun: the application must give the name under which homespun is offered,
/// and the host must offer no layer to an application that gives that name alone.
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
