//! A place in the memory of a peer, as one side tells the other of it.

use std::fmt;
use std::str::FromStr;

/// A place in a region of a peer's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    /// The region's key.
    pub(crate) key: u64,
    /// Where in the region.
    pub(crate) address: u64,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Place { key, address } = self;
        write!(f, "{key}:{address}")
    }
}

impl FromStr for Place {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const BAD: &str = "a place is a key and an address";
        let number = |text: &str| text.parse().map_err(|_| BAD);
        let (key, address) = text.split_once(':').ok_or(BAD)?;
        Ok(Place { key: number(key)?, address: number(address)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_arrives_as_it_was_told() {
        let place = Place { key: u64::MAX >> 1, address: 4096 };
        assert_eq!(place.to_string().parse(), Ok(place));
    }

    #[test]
    fn what_is_no_place_is_refused() {
        for text in ["", "1", "1:", ":1", "1:2:3", "x:1", "-1:1"] {
            assert!(text.parse::<Place>().is_err(), "{text:?}");
        }
    }
}
