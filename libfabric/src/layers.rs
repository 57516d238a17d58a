//! Layering providers, such as `ofi_rxm`, which make unconnected endpoints out of connected ones.
//!
//! A layer finds what it can stand on by `fi_getinfo` with a flag of the host's own. homespun
//! answers a layer only if the application has named homespun: everything that a layer adds is here
//! already, and the host lists layers ahead of providers that it does not know.
//! `docs/decisions/layers.md` has the reasons.

use std::ops::RangeInclusive;
use std::ptr;

use homespun::info::{PROVIDER_NAME, Version};

use crate::abi::provider::FiContext;

/// The flag by which a layer asks for a provider to stand on.
const OFI_CORE_PROV_ONLY: u64 = 1 << 59;

/// Stands between the names of a provider and of the layers over it.
const NAME_SEPARATOR: char = ';';

/// The oldest and the newest host that keep [`DIRECT_FIRST`] where this is written.
const KNOWN_HOSTS: RangeInclusive<Version> = Version::new(1, 17)..=Version::new(2, 7);

/// An empty context: the host keeps its own things there.
pub(crate) const NO_CONTEXT: FiContext = FiContext { internal: [ptr::null_mut(); 4] };

/// A context that has the host leave out layers for an application that names homespun without a
/// layer: byte 5 of the context is the host's `disable_layering`, which it sets itself for
/// providers that it knows to need no layer.
const DIRECT_FIRST: FiContext = {
    let mut bytes = [0; size_of::<usize>()];
    bytes[5] = 1;
    let word =
        if cfg!(target_endian = "big") { usize::from_be_bytes(bytes) } else { usize::from_le_bytes(bytes) };
    let [_, second, third, fourth] = NO_CONTEXT.internal;
    FiContext { internal: [ptr::without_provenance_mut(word), second, third, fourth] }
};

/// The context that a host of this version is to find.
pub(crate) fn context_for_host(host: Option<Version>) -> FiContext {
    if host.is_some_and(|version| KNOWN_HOSTS.contains(&version)) { DIRECT_FIRST } else { NO_CONTEXT }
}

/// Whether it is a layer that asks with these flags.
pub(crate) fn is_asked_by_layer(flags: u64) -> bool {
    flags & OFI_CORE_PROV_ONLY != 0
}

/// Whether a layer may stand on homespun: the application names homespun, and the host offers no
/// layer to an application that names homespun alone.
pub(crate) fn allows_layering(provider_name: Option<&str>, host: Option<Version>) -> bool {
    let is_named = provider_name.is_some_and(|names| {
        names.split(NAME_SEPARATOR).any(|name| name.eq_ignore_ascii_case(PROVIDER_NAME))
    });
    is_named && host.is_none_or(|version| KNOWN_HOSTS.contains(&version))
}
