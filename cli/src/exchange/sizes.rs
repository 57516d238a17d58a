//! A list of sizes to measure, as users write it.

use std::str::FromStr;

use super::run::SIZE_MAX_BYTES;
use crate::size;

/// The largest number of sizes.
pub(crate) const SIZES_MAX: usize = 64;

/// Sizes of messages, in the order of measurement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sizes(pub(crate) Vec<usize>);

impl FromStr for Sizes {
    type Err = String;

    /// Reads sizes that are separated by commas.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let sizes = text.split(',').map(parse_message_size).collect::<Result<Vec<usize>, String>>()?;
        if sizes.len() > SIZES_MAX {
            return Err(format!("at most {SIZES_MAX} sizes are measured"));
        }
        Ok(Sizes(sizes))
    }
}

/// Reads the size of a message.
///
/// # Errors
///
/// A message for the user, if the text is not a size, or if the size exceeds [`SIZE_MAX_BYTES`].
pub(crate) fn parse_message_size(text: &str) -> Result<usize, String> {
    match size::parse(text)? {
        size if size <= SIZE_MAX_BYTES => Ok(size as usize),
        _ => Err(format!("messages of at most {} are measured", size::format_with_unit(SIZE_MAX_BYTES))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_keep_their_order() {
        assert_eq!("1M,8,0,64M,1.5K,1KiB".parse(), Ok(Sizes(vec![1 << 20, 8, 0, 64 << 20, 1536, 1024])));
    }

    #[test]
    fn malformed_too_large_or_too_many_sizes_are_refused() {
        for text in ["", "1,", ",1", "1 2", "65M", "64.5M", "x"] {
            assert!(text.parse::<Sizes>().is_err(), "{text:?}");
        }
        assert!(vec!["1"; SIZES_MAX].join(",").parse::<Sizes>().is_ok());
        assert!(vec!["1"; SIZES_MAX + 1].join(",").parse::<Sizes>().is_err());
    }
}
