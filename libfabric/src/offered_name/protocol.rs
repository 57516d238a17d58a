//! The protocol numbers of the providers whose names homespun can take.

use homespun::info::EndpointType;
use homespun::params::OfferedName;

use crate::abi::{FI_PROTO_SOCK_TCP, FI_PROTO_XNET};

/// The number of a protocol and its version.
pub(super) struct Protocol {
    pub(super) number: u32,
    pub(super) version: u32,
}

impl Protocol {
    /// Returns the protocol that the provider `name` states for endpoints of this type.
    pub(super) fn of_endpoint(name: OfferedName, ep_type: EndpointType) -> Protocol {
        match (name, ep_type) {
            (OfferedName::Tcp, EndpointType::Rdm) => Protocol { number: FI_PROTO_XNET, version: 1 },
            (OfferedName::Tcp, _) => Protocol { number: FI_PROTO_SOCK_TCP, version: 0 },
            _ => Protocol { number: FI_PROTO_SOCK_TCP, version: 2 },
        }
    }
}
