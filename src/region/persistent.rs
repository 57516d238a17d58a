//! Makes persistent memory durable: `FI_RMA_PMEM` of `fi_mr(3)`.
//!
//! Memory is persistent if it is a shared mapping of a file. A mapping is *DAX* if the file's device is
//! memory and the mapping has `MAP_SYNC`, or if it is a mapping of the device itself. Bytes of a DAX mapping
//! are durable once they have left the processor's caches, so on x86-64 this module flushes their cache
//! lines. In all other cases it calls `msync(2)`, which waits for the device. On a file system in ordinary
//! memory, such as tmpfs, `msync(2)` succeeds and makes nothing durable.

use homespun_engine::buffer::SegmentMut;
use homespun_engine::errno::Errno;
use homespun_engine::error::{BadMemory, Error, Misuse};
use homespun_engine::region::Persist;
use rustix::mm::{MsyncFlags, msync};
use rustix::param::page_size;
use smallvec::SmallVec;

#[cfg(target_arch = "x86_64")]
use super::cache_lines;
use super::mappings::{Mapping, read_mappings};

/// The persistent memory of a region, in the order of its bytes.
#[derive(Debug, Clone)]
pub(super) struct Persistent {
    pieces: SmallVec<[Piece; 1]>,
}

/// A piece of persistent memory in one mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Piece {
    memory: SegmentMut,
    is_dax: bool,
}

impl Persistent {
    /// Determines how writes to the caller's memory are made durable.
    ///
    /// # Errors
    ///
    /// [`Misuse::Memory`] if a part of the memory is not a shared mapping of a file. The system's error if
    /// the mappings cannot be read.
    ///
    /// # Safety
    ///
    /// The mapping of the memory must not change while the result is used.
    pub(super) unsafe fn from_segments(segments: &[SegmentMut]) -> Result<Persistent, Error> {
        Ok(Persistent { pieces: split_by_mapping(segments, &read_mappings()?)? })
    }

    /// Returns the persistent memory of one file mapping.
    ///
    /// # Safety
    ///
    /// The memory must stay mapped while the result is used. `is_dax` may be true only for a DAX mapping.
    pub(super) unsafe fn from_file_mapping(memory: SegmentMut, is_dax: bool) -> Persistent {
        Persistent { pieces: SmallVec::from_slice(&[Piece { memory, is_dax }]) }
    }
}

impl Persist for Persistent {
    fn persist(&self, offset_bytes: usize, len_bytes: usize) -> Result<(), Errno> {
        let (mut skip_bytes, mut left_bytes) = (offset_bytes, len_bytes);
        for piece in &self.pieces {
            let Piece { memory: SegmentMut { address, len_bytes }, is_dax } = *piece;
            let skipped_bytes = skip_bytes.min(len_bytes);
            let here_bytes = left_bytes.min(len_bytes - skipped_bytes);
            skip_bytes -= skipped_bytes;
            left_bytes -= here_bytes;
            if here_bytes > 0 {
                let memory =
                    SegmentMut { address: address.wrapping_add(skipped_bytes), len_bytes: here_bytes };
                // SAFETY: the creator of `self` has promised that the mapping does not change.
                unsafe { persist(memory, is_dax)? };
            }
        }
        Ok(())
    }
}

/// # Safety
///
/// The memory must be mapped. `is_dax` may be true only for a DAX mapping.
unsafe fn persist(memory: SegmentMut, is_dax: bool) -> Result<(), Errno> {
    let SegmentMut { address, len_bytes } = memory;
    #[cfg(target_arch = "x86_64")]
    if is_dax {
        // SAFETY: the caller promises that the memory is mapped.
        unsafe { cache_lines::write_back(address, len_bytes) };
        return Ok(());
    }
    // On other processors `msync` makes DAX mappings durable, too.
    let _ = is_dax;
    let within_page_bytes = address.addr() % page_size();
    let page = address.wrapping_sub(within_page_bytes);
    // SAFETY: the caller promises that the memory is mapped, so its first page is, too. The call changes
    // no bytes.
    unsafe { msync(page.cast(), within_page_bytes + len_bytes, MsyncFlags::SYNC) }
        .map_err(|errno| Errno::new(errno.raw_os_error()))
}

/// Splits segments into pieces of one mapping each. Fails if one of the mappings is not of a file.
fn split_by_mapping(segments: &[SegmentMut], mappings: &[Mapping]) -> Result<SmallVec<[Piece; 1]>, Misuse> {
    const NOT_OF_FILES: Misuse = Misuse::Memory(BadMemory::NotPersistent);
    let mut pieces: SmallVec<[Piece; 1]> = SmallVec::new();
    for segment in segments {
        let (mut address, mut left_bytes) = (segment.address, segment.len_bytes);
        while left_bytes > 0 {
            let found = mappings.iter().find(|mapping| mapping.addresses.contains(&address.addr()));
            let mapping = found.filter(|mapping| mapping.is_of_file).ok_or(NOT_OF_FILES)?;
            let len_bytes = left_bytes.min(mapping.addresses.end - address.addr());
            pieces.push(Piece { memory: SegmentMut { address, len_bytes }, is_dax: mapping.is_dax });
            address = address.wrapping_add(len_bytes);
            left_bytes -= len_bytes;
        }
    }
    Ok(pieces)
}

#[cfg(test)]
mod tests {
    use std::ptr::without_provenance_mut;

    use super::*;

    fn make_segment(address: usize, len_bytes: usize) -> SegmentMut {
        SegmentMut { address: without_provenance_mut(address), len_bytes }
    }

    fn make_mapping(addresses: std::ops::Range<usize>, is_of_file: bool, is_dax: bool) -> Mapping {
        Mapping { addresses, is_of_file, is_dax }
    }

    #[test]
    fn persistent_memory_is_split_by_its_mappings() {
        let mappings = [
            make_mapping(100..200, true, false),
            make_mapping(200..300, true, true),
            make_mapping(300..400, false, false),
            make_mapping(500..600, true, false),
        ];
        let of = |segments: &[SegmentMut]| {
            let pieces = split_by_mapping(segments, &mappings).map_err(|misuse| misuse.errno())?;
            let piece = |piece: Piece| (piece.memory.address.addr(), piece.memory.len_bytes, piece.is_dax);
            Ok(pieces.into_iter().map(piece).collect::<Vec<_>>())
        };
        assert_eq!(of(&[make_segment(110, 90)]), Ok(vec![(110, 90, false)]));
        assert_eq!(of(&[make_segment(110, 91)]), Ok(vec![(110, 90, false), (200, 1, true)]));
        let two = [make_segment(599, 1), make_segment(0, 0), make_segment(250, 50)];
        assert_eq!(of(&two), Ok(vec![(599, 1, false), (250, 50, true)]));
        for other in [
            make_segment(99, 1),
            make_segment(250, 51),
            make_segment(300, 1),
            make_segment(599, 2),
            make_segment(450, 1),
        ] {
            assert_eq!(of(&[other]), Err(Errno::EINVAL), "{other:?}");
        }
        assert_eq!(of(&[make_segment(usize::MAX, 1)]), Err(Errno::EINVAL));
    }
}
