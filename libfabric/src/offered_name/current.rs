//! The name under which homespun is offered, and the provider's version with this name.

use std::ffi::CStr;

use homespun::info::{PROVIDER_VERSION, Version};
use homespun::params::OfferedName;
use parking_lot::Mutex;

/// The plugin's version while it has another provider's name. If two providers have the same name,
/// libfabric keeps the provider with the higher version. The version of libfabric's own providers
/// is libfabric's version.
pub(super) const VERSION_IN_PLACE: Version = Version::new(1000, 0);

static CURRENT: Mutex<OfferedName> = Mutex::new(OfferedName::Homespun);

/// Sets the name for all later calls.
pub(crate) fn set_current(name: OfferedName) {
    *CURRENT.lock() = name;
}

/// Returns the name.
pub(crate) fn current() -> OfferedName {
    *CURRENT.lock()
}

/// Returns the name for C code.
pub(crate) fn c_name(name: OfferedName) -> &'static CStr {
    match name {
        OfferedName::Tcp => c"tcp",
        OfferedName::Sockets => c"sockets",
        _ => c"homespun",
    }
}

/// Returns the provider's version under this name.
pub(crate) fn provider_version(name: OfferedName) -> Version {
    if name == OfferedName::Homespun { PROVIDER_VERSION } else { VERSION_IN_PLACE }
}
