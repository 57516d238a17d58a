//! The part of a region that one access of a peer may touch.

use std::io::{IoSlice, IoSliceMut};
use std::ops::Range;
use std::slice;
use std::sync::Arc;

use smallvec::SmallVec;

use super::{Memory, Region, RegionAttr, segments_in_range};
use crate::buffer::SegmentMut;
use crate::flags::MrAccess;
use crate::limits::IOV_LIMIT;
use crate::transport::Space;

/// The part of a region that is being read or written on behalf of a peer.
#[derive(Debug, Clone)]
pub(crate) struct Window {
    region: Arc<Region>,
    offset_bytes: usize,
}

/// Offsets count from the start of the window, and must lie in the range for which the window was
/// made.
impl Window {
    /// Creates a window that begins at an offset in a region.
    pub(super) fn new(region: Arc<Region>, offset_bytes: usize) -> Window {
        Window { region, offset_bytes }
    }

    /// Creates a window on no memory, in a region that peers do not know.
    pub(crate) fn empty() -> Window {
        let attr = RegionAttr { key: 0, access: MrAccess::empty(), base_address: 0 };
        let region = Arc::new(Region::new(0, Memory::Owned(Box::default()), attr));
        Window { region, offset_bytes: 0 }
    }

    pub(crate) fn region(&self) -> &Arc<Region> {
        &self.region
    }

    /// Returns the range in the region of the window's first `len_bytes`.
    pub(crate) fn region_range(&self, len_bytes: usize) -> Range<usize> {
        self.offset_bytes..self.offset_bytes + len_bytes
    }

    /// Whether the memory is available as slices.
    pub(crate) fn is_sliceable(&self) -> bool {
        matches!(self.region.memory, Memory::Raw(_))
    }

    /// Returns the right to touch the memory in this call of the engine; `None` if the region is closed.
    #[inline]
    pub(crate) fn open(&mut self) -> Option<OpenWindow<'_>> {
        self.region.is_open().then_some(OpenWindow(self))
    }
}

/// A window whose memory may be touched until the engine's call returns: its region was open when
/// this was made, and a close of the region waits for the call. Each use of the memory takes one of
/// these, so that no use can look at the mark twice and find two answers.
#[derive(Debug)]
pub(crate) struct OpenWindow<'w>(&'w mut Window);

impl<'w> OpenWindow<'w> {
    /// Copies `bytes` to an offset.
    #[inline]
    pub(crate) fn copy_in(&self, at_bytes: usize, bytes: &[u8]) {
        self.0.region.copy_in(self.0.offset_bytes + at_bytes, bytes);
    }

    /// Fills `into` from an offset.
    #[inline]
    pub(crate) fn copy_out(&self, at_bytes: usize, into: &mut [u8]) {
        self.0.region.copy_out(self.0.offset_bytes + at_bytes, into);
    }

    /// Makes `len_bytes` from an offset on durable. Returns whether that succeeded.
    pub(crate) fn try_persist(&self, at_bytes: usize, len_bytes: usize) -> bool {
        self.0.region.try_persist(self.0.offset_bytes + at_bytes, len_bytes)
    }

    /// Returns the memory at an offset for writing. Empty if the window is not
    /// [sliceable](Window::is_sliceable).
    pub(crate) fn slices_mut(self, at_bytes: usize, len_bytes: usize) -> Space<'w> {
        let place = |piece: SegmentMut| {
            // SAFETY: the piece lies in a segment. The caller of `raw` has promised that the
            // segment is initialised, that it is writable until the region has ended, and that the
            // application has no reference to it. The slice lives no longer than the borrow of the
            // window, which the engine gives up before its call returns. Two peers may write to one
            // place at the same time through two endpoints. System calls or plain copies then carry
            // out both writes, and the bytes have no particular value.
            IoSliceMut::new(unsafe { slice::from_raw_parts_mut(piece.address, piece.len_bytes) })
        };
        self.pieces(at_bytes, len_bytes).map(place).collect()
    }

    /// Returns the memory at an offset for reading. Empty if the window is not
    /// [sliceable](Window::is_sliceable).
    pub(crate) fn slices(self, at_bytes: usize, len_bytes: usize) -> SmallVec<[IoSlice<'w>; IOV_LIMIT]> {
        let place = |piece: SegmentMut| {
            // SAFETY: as in `slices_mut`; the memory is readable.
            IoSlice::new(unsafe { slice::from_raw_parts(piece.address, piece.len_bytes) })
        };
        self.pieces(at_bytes, len_bytes).map(place).collect()
    }

    fn pieces(&self, at_bytes: usize, len_bytes: usize) -> impl Iterator<Item = SegmentMut> {
        let segments: &[SegmentMut] = match &self.0.region.memory {
            Memory::Raw(segments) => segments,
            Memory::Owned(_) | Memory::Shared(_) | Memory::Kept(_) => &[],
        };
        segments_in_range(segments, self.0.offset_bytes + at_bytes, len_bytes)
    }
}
