//! The providers that are compared. They are the columns of the table.

/// A provider, and the type of its endpoints.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ProviderCase {
    /// The column's name.
    pub(crate) name: &'static str,
    pub(crate) provider: &'static str,
    pub(crate) domain: Option<&'static str>,
    pub(crate) endpoint: Endpoint,
}

/// `enum fi_ep_type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Endpoint {
    Rdm,
    Msg,
}

impl Endpoint {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Endpoint::Rdm => "RDM",
            Endpoint::Msg => "MSG",
        }
    }

    pub(crate) const fn raw(self) -> u32 {
        match self {
            Endpoint::Rdm => 3,
            Endpoint::Msg => 1,
        }
    }
}

const fn new_case(
    name: &'static str,
    provider: &'static str,
    domain: Option<&'static str>,
    endpoint: Endpoint,
) -> ProviderCase {
    ProviderCase { name, provider, domain, endpoint }
}

/// All cases. Some versions of libfabric lack some of them.
pub(crate) const PROVIDER_CASES: &[ProviderCase] = &[
    new_case("homespun shm", "homespun", Some("shm"), Endpoint::Rdm),
    new_case("homespun tcp", "homespun", Some("tcp"), Endpoint::Rdm),
    new_case("homespun auto", "homespun", Some("auto"), Endpoint::Rdm),
    new_case("sockets", "sockets", None, Endpoint::Rdm),
    new_case("tcp", "tcp", None, Endpoint::Rdm),
    new_case("tcp;ofi_rxm", "tcp;ofi_rxm", None, Endpoint::Rdm),
    new_case("shm", "shm", None, Endpoint::Rdm),
    new_case("homespun shm", "homespun", Some("shm"), Endpoint::Msg),
    new_case("homespun tcp", "homespun", Some("tcp"), Endpoint::Msg),
    new_case("homespun auto", "homespun", Some("auto"), Endpoint::Msg),
    new_case("sockets", "sockets", None, Endpoint::Msg),
    new_case("tcp", "tcp", None, Endpoint::Msg),
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
