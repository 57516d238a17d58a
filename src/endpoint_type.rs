//! What each type of endpoint demands and grants: `fi_endpoint(3)`, "type".

use homespun_engine::connection::EndpointRole;
use homespun_engine::flags::Caps;

use crate::info::{EndpointType, Info};

/// The capabilities that only unconnected endpoints have. A connected endpoint has only one source.
pub(crate) const UNCONNECTED_CAPS: Caps = Caps::SOURCE.union(Caps::DIRECTED_RECV);

impl Info {
    /// Returns the type of an endpoint that is opened with this info: [`EndpointType::Rdm`] if the info names
    /// none.
    pub fn endpoint_type(&self) -> EndpointType {
        self.ep.ep_type.unwrap_or(EndpointType::Rdm)
    }
}

impl EndpointType {
    /// The types that every provider supports, best first.
    pub(crate) const OFFERED: [EndpointType; 2] = [EndpointType::Rdm, EndpointType::Msg];

    /// Whether an endpoint connects to its one peer (`fi_cm(3)`), so that it needs an event queue, and no
    /// address vector.
    pub const fn is_connected(self) -> bool {
        match self {
            EndpointType::Msg => true,
            EndpointType::Rdm | EndpointType::Dgram => false,
        }
    }

    /// Whether endpoints need locks even if one thread alone makes the calls of their domain. An event queue
    /// belongs to no domain, so any thread may read it, and its reads drive connected endpoints.
    pub const fn needs_locks(self) -> bool {
        match self {
            EndpointType::Msg => true,
            EndpointType::Rdm | EndpointType::Dgram => false,
        }
    }

    pub(crate) const fn role(self) -> EndpointRole {
        match self {
            EndpointType::Msg => EndpointRole::Connected,
            EndpointType::Rdm | EndpointType::Dgram => EndpointRole::Unconnected,
        }
    }

    /// Which of the [`UNCONNECTED_CAPS`] endpoints have.
    pub(crate) const fn source_caps(self) -> Caps {
        match self {
            EndpointType::Rdm | EndpointType::Dgram => UNCONNECTED_CAPS,
            EndpointType::Msg => Caps::empty(),
        }
    }
}
