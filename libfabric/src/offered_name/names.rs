//! The names that an application sees in infos.

use homespun::LocalAddress;
use homespun::params::OfferedName;

/// The names of an info's fabric and domain, as the application sees them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Names {
    pub(crate) fabric: String,
    pub(crate) domain: String,
}

impl Names {
    /// Returns the names of infos that stand for no interface: fabric and domain have the
    /// provider's name.
    pub(crate) fn of_provider(name: OfferedName) -> Names {
        Names { fabric: name.to_string(), domain: name.to_string() }
    }

    /// Returns the names of infos that stand for the interface of an address.
    pub(super) fn of_interface(address: &LocalAddress) -> Names {
        Names { fabric: address.network.clone(), domain: address.interface.clone() }
    }
}
