//! Pieces of the caller's memory, as in an iovec.

use std::slice;

use crate::error::{BadMemory, Misuse};
use crate::limits::IOV_LIMIT;
use crate::mutated;

/// A piece of memory to read from: the raw tier's `struct iovec`.
#[derive(Debug, Clone, Copy)]
pub struct Segment {
    /// Where the piece starts. May be null if the length is 0.
    pub address: *const u8,
    /// The length of the piece.
    pub len_bytes: usize,
}

/// A piece of memory to write to: the raw tier's `struct iovec`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentMut {
    /// Where the piece starts. May be null if the length is 0.
    pub address: *mut u8,
    /// The length of the piece.
    pub len_bytes: usize,
}

// SAFETY: a segment is an address and a length. Only `Source` and `Destination` access the memory
// there, and their constructors require that any thread that drives the endpoint may do so.
unsafe impl Send for Segment {}
// SAFETY: as for `Segment`.
unsafe impl Send for SegmentMut {}
// SAFETY: as for `Segment`; nothing reads or writes memory through a shared `SegmentMut`.
unsafe impl Sync for SegmentMut {}

impl Segment {
    /// Returns the memory, or `None` for a null address with a length.
    ///
    /// # Safety
    ///
    /// The memory must be readable, and nothing may write to it, as long as the slice is used.
    #[inline(always)]
    pub unsafe fn bytes<'a>(self) -> Option<&'a [u8]> {
        if self.address.is_null() {
            return (self.len_bytes == 0).then_some(&[]);
        }
        // SAFETY: the caller promises it. No memory is longer than half of the address space.
        (self.len_bytes <= isize::MAX as usize)
            .then(|| unsafe { slice::from_raw_parts(self.address, self.len_bytes) })
    }

    /// Returns the memory as a slice. Only for a segment of a [`Source`](super::Source).
    #[inline]
    pub(super) fn as_slice(&self) -> &[u8] {
        if self.len_bytes == 0 {
            return &[];
        }
        // SAFETY: only `Source` calls this, for segments that came through `Source::raw`.
        // `Source::raw` refuses null with a length, and its caller has promised that the memory is
        // readable and unchanged until the operation has ended. The engine drops the `Source` when
        // it ends the operation, and the slice borrows from the segment in the `Source`.
        unsafe { slice::from_raw_parts(self.address, self.len_bytes) }
    }
}

impl SegmentMut {
    /// Whether the two segments have a byte in common.
    pub fn overlaps(&self, other: &SegmentMut) -> bool {
        // Compared by distance: an end may lie beyond the last address.
        let (start, other_start) = (self.address.addr(), other.address.addr());
        match start.checked_sub(other_start) {
            Some(distance) => distance < other.len_bytes && self.len_bytes > 0,
            None => other_start - start < self.len_bytes && other.len_bytes > 0,
        }
    }

    /// Returns the segment, with length 0 if its address is null.
    #[inline]
    pub(super) fn null_as_empty(self) -> SegmentMut {
        SegmentMut { len_bytes: if self.address.is_null() { 0 } else { self.len_bytes }, ..self }
    }

    /// Returns the memory as a slice. Only for a segment of a [`Destination`](super::Destination).
    #[inline]
    pub(super) fn as_mut_slice(&mut self) -> &mut [u8] {
        if self.len_bytes == 0 {
            return &mut [];
        }
        // SAFETY: only `Destination` calls this, for segments that came through
        // `Destination::raw_allowing_null`. That function sets the length of a null segment to 0. The caller
        // of that function has promised initialised memory that nothing else uses until the operation has
        // ended. The engine drops the `Destination` when it ends the operation. The slice borrows the
        // `Destination` mutably, so there is never more than one slice. `Destination::skip_and_split_to`
        // cuts each piece off its segment: piece and rest lie within the promised memory and share no byte.
        // The engine ends the operation of a multi-receive buffer after the operations of its pieces.
        unsafe { slice::from_raw_parts_mut(self.address, self.len_bytes) }
    }
}

/// The error of a null address with a length.
pub(super) const NULL_WITH_LENGTH: Misuse = Misuse::Memory(BadMemory::NullWithLength);

/// Checks the number of segments of one operation.
///
/// # Errors
///
/// [`Misuse::TooManySegments`] beyond [`IOV_LIMIT`].
pub(super) fn check_segment_count(count: usize) -> Result<(), Misuse> {
    let max = IOV_LIMIT - usize::from(mutated!("fi_endpoint/limits-hold"));
    if count > max && !mutated!("fi_endpoint/limits-refuse") {
        return Err(Misuse::TooManySegments { count, max });
    }
    Ok(())
}

/// Checks the number of segments of one operation, and returns their total length.
pub(super) fn check_segment_count_and_sum(
    lengths: impl ExactSizeIterator<Item = usize>,
) -> Result<usize, Misuse> {
    check_segment_count(lengths.len())?;
    sum_lengths(lengths)
}

/// Returns the total length of segments.
pub(super) fn sum_lengths(mut lengths: impl Iterator<Item = usize>) -> Result<usize, Misuse> {
    lengths.try_fold(0usize, usize::checked_add).ok_or(Misuse::Memory(BadMemory::LengthOverflow))
}

#[cfg(test)]
mod tests {
    use std::ptr;

    use super::*;

    fn segment(address: usize, len_bytes: usize) -> SegmentMut {
        SegmentMut { address: ptr::without_provenance_mut(address), len_bytes }
    }

    #[test]
    fn segments_overlap_if_they_have_a_byte_in_common() {
        let middle = segment(100, 10);
        for other in [middle, segment(95, 6), segment(109, 6), segment(104, 1), segment(0, 1000)] {
            assert!(middle.overlaps(&other) && other.overlaps(&middle), "{other:?}");
        }
        for other in [segment(90, 10), segment(110, 10), segment(104, 0), segment(0, 0)] {
            assert!(!middle.overlaps(&other) && !other.overlaps(&middle), "{other:?}");
        }
        let last = segment(usize::MAX - 9, 10);
        assert!(last.overlaps(&segment(usize::MAX, 1)) && !last.overlaps(&middle));
    }
}
