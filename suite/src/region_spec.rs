//! The attributes of a region.

use homespun::flags::MrAccess;
use serde::{Deserialize, Serialize};

use super::form;

/// The region to register.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct RegionSpec {
    /// Its length.
    pub len_bytes: usize,
    /// The owner of the memory.
    pub kind: Kind,
    /// The accesses that peers may make.
    #[serde(with = "form::bits")]
    pub access: MrAccess,
    /// The requested key.
    pub key: u64,
    /// Whether accesses of peers are counted.
    pub is_counted: bool,
}

/// The owner of the memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    /// The region.
    Owned,
    /// The party, in two segments.
    Raw,
    /// The region; peers may map it if possible.
    Shareable,
    /// A file, which is persistent.
    File(FileKind),
}

/// The file, and the owner of its mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileKind {
    /// Mapped by the party, not by the region.
    pub is_raw: bool,
    /// The number of its [name](super::files::NamedFile), if it has one.
    pub number: Option<u64>,
}

impl Kind {
    /// All kinds; the file is mapped by the region, and has no name.
    pub const ALL: [Kind; 4] =
        [Kind::Owned, Kind::Raw, Kind::Shareable, Kind::File(FileKind { is_raw: false, number: None })];
}
