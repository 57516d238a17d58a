//! A memory region that one process announces to the other.

use std::fmt;
use std::str::FromStr;

/// The key and the address of a peer's region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RemoteRegion {
    /// The region's key.
    pub(crate) key: u64,
    /// The address of the region's first byte.
    pub(crate) address: u64,
}

impl fmt::Display for RemoteRegion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RemoteRegion { key, address } = self;
        write!(f, "{key}:{address}")
    }
}

impl FromStr for RemoteRegion {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const BAD: &str = "a remote region is a key and an address";
        let number = |text: &str| text.parse().map_err(|_| BAD);
        let (key, address) = text.split_once(':').ok_or(BAD)?;
        Ok(RemoteRegion { key: number(key)?, address: number(address)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_region_parses_to_the_same_region() {
        let place = RemoteRegion { key: u64::MAX >> 1, address: 4096 };
        assert_eq!(place.to_string().parse(), Ok(place));
    }

    #[test]
    fn malformed_region_is_refused() {
        for text in ["", "1", "1:", ":1", "1:2:3", "x:1", "-1:1"] {
            assert!(text.parse::<RemoteRegion>().is_err(), "{text:?}");
        }
    }
}
