//! The providers that are compared. They are the columns of the table.

/// A provider, and the type of its endpoints.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ProviderCase {
    /// The column's name.
    pub(crate) name: &'static str,
    pub(crate) provider: &'static str,
    pub(crate) domain: Option<&'static str>,
    pub(crate) endpoint: EndpointKind,
}

/// `enum fi_ep_type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum EndpointKind {
    Rdm,
    Msg,
}

impl EndpointKind {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            EndpointKind::Rdm => "RDM",
            EndpointKind::Msg => "MSG",
        }
    }

    pub(crate) const fn raw(self) -> u32 {
        match self {
            EndpointKind::Rdm => 3,
            EndpointKind::Msg => 1,
        }
    }
}

const fn new_case(
    name: &'static str,
    provider: &'static str,
    domain: Option<&'static str>,
    endpoint: EndpointKind,
) -> ProviderCase {
    ProviderCase { name, provider, domain, endpoint }
}

/// All cases. Some versions of libfabric lack some of them.
pub(crate) const PROVIDER_CASES: &[ProviderCase] = &[
    new_case("homespun shm", "homespun", Some("shm"), EndpointKind::Rdm),
    new_case("homespun tcp", "homespun", Some("tcp"), EndpointKind::Rdm),
    new_case("homespun auto", "homespun", Some("auto"), EndpointKind::Rdm),
    new_case("sockets", "sockets", None, EndpointKind::Rdm),
    new_case("tcp", "tcp", None, EndpointKind::Rdm),
    new_case("tcp;ofi_rxm", "tcp;ofi_rxm", None, EndpointKind::Rdm),
    new_case("shm", "shm", None, EndpointKind::Rdm),
    new_case("homespun shm", "homespun", Some("shm"), EndpointKind::Msg),
    new_case("homespun tcp", "homespun", Some("tcp"), EndpointKind::Msg),
    new_case("homespun auto", "homespun", Some("auto"), EndpointKind::Msg),
    new_case("sockets", "sockets", None, EndpointKind::Msg),
    new_case("tcp", "tcp", None, EndpointKind::Msg),
];

/// The columns of the table in their order.
pub(crate) const COLUMNS: [&str; 7] =
    ["homespun shm", "homespun tcp", "homespun auto", "sockets", "tcp", "tcp;ofi_rxm", "shm"];

impl ProviderCase {
    pub(crate) fn is_ours(&self) -> bool {
        self.provider == "homespun"
    }

    /// The case's name on a worker's command line.
    pub(crate) fn id(&self) -> String {
        format!("{}/{}", self.name, self.endpoint.name())
    }
}
