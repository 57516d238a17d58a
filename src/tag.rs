//! Tags of messages: `fi_tagged(3)`.

use std::fmt;

/// The tag of a message.
///
/// ```
/// use homespun::{Tag, TagMatch};
///
/// // A receive for this tag alone, and one for any tag whose upper half is 7.
/// assert_eq!(TagMatch::from(Tag(7)), Tag(7).ignoring(0));
/// let replies = Tag(7 << 32).ignoring(u64::from(u32::MAX));
/// assert!(replies.matches(Tag(7 << 32 | 5)) && !replies.matches(Tag(8 << 32)));
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Tag(pub u64);

impl fmt::Display for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl PartialEq<u64> for Tag {
    fn eq(&self, tag: &u64) -> bool {
        self.0 == *tag
    }
}

/// The tags that a receive accepts: they equal `tag` in all bits that are not set in `ignore`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct TagMatch {
    /// The bits to match.
    pub tag: u64,
    /// The bits that are ignored.
    pub ignore: u64,
}

impl Tag {
    /// Returns a match for all tags that differ from this one only in bits of `ignore`.
    #[must_use]
    pub fn ignoring(self, ignore: u64) -> TagMatch {
        TagMatch { tag: self.0, ignore }
    }
}

impl TagMatch {
    /// Accepts any tag.
    pub const ANY: TagMatch = TagMatch { tag: 0, ignore: u64::MAX };

    /// Whether a receive accepts a message with this tag.
    pub fn matches(self, tag: Tag) -> bool {
        (tag.0 ^ self.tag) & !self.ignore == 0
    }
}

impl From<Tag> for TagMatch {
    /// Accepts this tag alone.
    fn from(tag: Tag) -> TagMatch {
        tag.ignoring(0)
    }
}
