//! A name without an address.

use std::fmt;

/// A node, a service, or a pair of them, for which the resolver knows no address: ENODATA.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Unresolved {
    /// The name of the host, if the caller gave one.
    pub node: Option<String>,
    /// The port, or its name, if the caller gave one.
    pub service: Option<String>,
    /// What the resolver says.
    pub reason: String,
}

/// Names may contain any character, so they are shown quoted.
impl fmt::Display for Unresolved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Unresolved { node, service, reason } = self;
        match (node, service) {
            (Some(node), Some(service)) => write!(f, "host {node:?} with port {service:?} does not resolve")?,
            (Some(node), None) => write!(f, "host {node:?} does not resolve")?,
            (None, service) => write!(f, "port {:?} does not resolve", service.as_deref().unwrap_or(""))?,
        }
        write!(f, ": {reason}")
    }
}

impl std::error::Error for Unresolved {}
