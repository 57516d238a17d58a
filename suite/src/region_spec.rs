//! The attributes of a region.

use homespun::flags::MrAccess;
use serde::{Deserialize, Serialize};

use super::form;

/// A region to register.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct RegionSpec {
    /// Its length.
    pub len_bytes: usize,
    /// The kind of its memory.
    pub kind: Kind,
    /// The accesses that peers may make.
    #[serde(with = "form::bits")]
    pub access: MrAccess,
    /// The requested key.
    pub key: u64,
    /// Whether accesses of peers are counted.
    pub is_counted: bool,
}

/// The kind of a region's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    /// Memory that the region owns.
    Owned,
    /// Memory of the party, in two segments.
    Raw,
    /// Memory that the region owns, and that peers may map if possible.
    Shareable,
    /// A mapped file, which is persistent.
    File(FileKind),
}

/// The name of the file, and who maps it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileKind {
    /// Whether the party maps it, not the region.
    pub is_raw: bool,
    /// The number of its [name](super::files::NamedFile), if it has one.
    pub number: Option<u64>,
}

impl Kind {
    /// All kinds; the file is mapped by the region, and has no name.
    pub const ALL: [Kind; 4] =
        [Kind::Owned, Kind::Raw, Kind::Shareable, Kind::File(FileKind { is_raw: false, number: None })];
}
