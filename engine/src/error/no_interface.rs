//! A choice of interfaces that leaves none.

/// The user allows only network interfaces that this host does not have: ENODATA.
#[derive(Debug, Clone, PartialEq, Eq, Hash, thiserror::Error)]
#[error("FI_HOMESPUN_IFACE={allowed} matches no interface of this host that is up; there are {available}")]
pub struct NoInterface {
    /// What the user allows, as written in `FI_HOMESPUN_IFACE`.
    pub allowed: String,
    /// The interfaces that are up, with their addresses.
    pub available: String,
}
