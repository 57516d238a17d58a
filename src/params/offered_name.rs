//! The names under which libfabric can offer homespun.

use std::fmt;
use std::str::FromStr;

use crate::info::PROVIDER_NAME;

/// The name under which libfabric offers homespun to C programs.
///
/// A name is parsed in upper or lower case:
///
/// ```
/// use homespun::params::OfferedName;
///
/// assert_eq!("TCP".parse(), Ok(OfferedName::Tcp));
/// assert_eq!(OfferedName::Tcp.to_string(), "tcp");
/// let refused = "shm".parse::<OfferedName>().unwrap_err();
/// assert!(refused.to_string().starts_with("homespun, tcp or sockets; the addresses of shm are texts"));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum OfferedName {
    /// homespun's own name, beside the names of libfabric's providers.
    #[default]
    Homespun,
    /// In place of libfabric's `tcp`.
    Tcp,
    /// In place of libfabric's `sockets`.
    Sockets,
}

/// Why a text is no [`OfferedName`]. The message says what the text should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OfferedNameError {
    /// `shm`, the name of libfabric's provider for shared memory, which homespun cannot replace.
    #[error("homespun, tcp or sockets; the addresses of shm are texts, and those of homespun are not")]
    Shm,
    /// No name that homespun can take.
    #[error("homespun, tcp or sockets")]
    Unknown,
}

impl OfferedName {
    /// All names.
    pub const ALL: [OfferedName; 3] = [OfferedName::Homespun, OfferedName::Tcp, OfferedName::Sockets];

    /// Returns the name under which libfabric shows homespun.
    pub const fn as_str(self) -> &'static str {
        match self {
            OfferedName::Homespun => PROVIDER_NAME,
            OfferedName::Tcp => "tcp",
            OfferedName::Sockets => "sockets",
        }
    }
}

impl FromStr for OfferedName {
    type Err = OfferedNameError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let text = text.trim();
        let named = OfferedName::ALL.into_iter().find(|name| text.eq_ignore_ascii_case(name.as_str()));
        named.ok_or(match text.eq_ignore_ascii_case("shm") {
            true => OfferedNameError::Shm,
            false => OfferedNameError::Unknown,
        })
    }
}

impl fmt::Display for OfferedName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
