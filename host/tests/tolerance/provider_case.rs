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
    Msg = 1,
    Rdm = 3,
}

impl EndpointKind {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            EndpointKind::Rdm => "RDM",
            EndpointKind::Msg => "MSG",
        }
    }
}

/// The columns of the table in their order.
pub(crate) const COLUMNS: [&str; 7] =
    ["homespun shm", "homespun tcp", "homespun auto", "sockets", "tcp", "tcp;ofi_rxm", "shm"];

/// All cases. Some versions of libfabric lack some of them.
pub(crate) fn provider_cases() -> impl Iterator<Item = ProviderCase> {
    [EndpointKind::Rdm, EndpointKind::Msg].into_iter().flat_map(|endpoint| {
        // The last two have no connected endpoints.
        let columns = if endpoint == EndpointKind::Rdm { &COLUMNS[..] } else { &COLUMNS[..5] };
        columns.iter().map(move |&name| {
            let homespun = name.split_once(' ');
            let (provider, domain) =
                homespun.map_or((name, None), |(provider, domain)| (provider, Some(domain)));
            ProviderCase { name, provider, domain, endpoint }
        })
    })
}

impl ProviderCase {
    pub(crate) fn is_ours(&self) -> bool {
        self.provider == "homespun"
    }

    /// The case's name on a worker's command line.
    pub(crate) fn id(&self) -> String {
        format!("{}/{}", self.name, self.endpoint.name())
    }
}
