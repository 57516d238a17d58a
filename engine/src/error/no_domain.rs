//! A domain that does not exist.

use std::fmt;

/// A name that no domain has: ENODATA if `getinfo` was asked for it, ENOENT if an object was to be opened in
/// it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct NoDomain {
    /// The name.
    pub name: String,
    /// Where the name comes from.
    pub source: DomainNameSource,
    /// The names of the domains that exist.
    pub available: Vec<String>,
}

/// Where the name of a domain comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DomainNameSource {
    /// The hints of the application.
    Hints,
    /// The variable `FI_HOMESPUN_DOMAIN`.
    Environment,
    /// The info with which the application opens an object.
    Info,
}

impl fmt::Display for NoDomain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let NoDomain { name, source, available } = self;
        let variable = if *source == DomainNameSource::Environment { " (FI_HOMESPUN_DOMAIN)" } else { "" };
        write!(f, "there is no domain {name}{variable}, only {}", available.join(", "))
    }
}
