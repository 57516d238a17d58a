//! The attributes of a region.

use homespun::flags::MrAccess;
use serde::{Deserialize, Serialize};

use super::form;

/// A region to register.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct RegionSpec {
    /// The length of the region.
    pub len_bytes: usize,
    /// The kind of the region's memory.
    pub kind: MemoryKind,
    /// The accesses that peers may make.
    #[serde(with = "form::access")]
    pub access: MrAccess,
    /// The requested key.
    pub key: u64,
    /// Whether accesses of peers are counted.
    pub is_counted: bool,
}

impl RegionSpec {
    /// Returns a region that peers may read and write.
    pub fn new(len_bytes: usize, kind: MemoryKind, key: u64) -> RegionSpec {
        let access = MrAccess::REMOTE_READ | MrAccess::REMOTE_WRITE;
        RegionSpec { len_bytes, kind, access, key, is_counted: false }
    }
}

/// The kind of a region's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum MemoryKind {
    /// Memory that the region owns.
    Owned,
    /// Memory of the party, in two segments.
    Raw,
    /// Memory that the region owns, and that peers may map if possible.
    Shareable,
    /// A mapped file, which is persistent.
    File(RegionFile),
}

/// The file of a region.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegionFile {
    /// Whether the party maps the file itself, and registers the mapping. If not, the library maps the file.
    pub is_raw: bool,
    /// The number in the [name](super::files::NamedFile) of the file, or `None` for a file without a name.
    pub number: Option<u64>,
}

impl MemoryKind {
    /// All kinds. The library maps the file, which has no name.
    pub const ALL: [MemoryKind; 4] = [
        MemoryKind::Owned,
        MemoryKind::Raw,
        MemoryKind::Shareable,
        MemoryKind::File(RegionFile { is_raw: false, number: None }),
    ];
}
