//! The source of a send.

use std::io::IoSlice;
use std::{fmt, mem, ptr};

use bytes::Bytes;
use smallvec::SmallVec;

use super::Buffer;
use super::segment::{
    NULL_WITH_LENGTH, Segment, check_segment_count, check_segment_count_and_sum, sum_lengths,
};
use crate::error::Misuse;
use crate::limits::IOV_LIMIT;
use crate::rejected::Rejected;

/// The memory that a send gathers its message from.
pub struct Source {
    memory: SourceMemory,
    len_bytes: usize,
}

enum SourceMemory {
    Owned(Bytes),
    OwnedVector(Vec<Bytes>),
    /// One segment, as in most operations. It needs no allocation.
    Raw(Segment),
    RawVector(Box<[Segment]>),
    /// A copy of injected raw memory. Empty for raw memory that was released.
    Copied(Box<[u8]>),
    /// The operands and the compare operands of an atomic operation.
    Pair(Box<(Source, Source)>),
}

impl Source {
    /// Gathers from one owned buffer.
    pub fn owned(bytes: Bytes) -> Source {
        Source { len_bytes: bytes.len(), memory: SourceMemory::Owned(bytes) }
    }

    /// Gathers from owned buffers in their order.
    ///
    /// # Errors
    ///
    /// [`Misuse::TooManySegments`] beyond [`IOV_LIMIT`]. The error hands the buffers back.
    pub fn owned_vector(buffers: Vec<Bytes>) -> Result<Source, Rejected<Vec<Bytes>>> {
        match check_segment_count_and_sum(buffers.iter().map(Bytes::len)) {
            Ok(len_bytes) => Ok(Source { len_bytes, memory: SourceMemory::OwnedVector(buffers) }),
            Err(misuse) => Err(Rejected { error: misuse.into(), returned: buffers }),
        }
    }

    /// Gathers from the caller's memory.
    ///
    /// # Errors
    ///
    /// [`Misuse::TooManySegments`] beyond [`IOV_LIMIT`]; [`Misuse::Memory`] for a null address with
    /// a length, or for lengths whose sum exceeds the address space.
    ///
    /// # Safety
    ///
    /// Any thread must be able to read every segment, and nothing may write to a segment, until the
    /// operation that is posted with this source has ended. An operation has ended when its
    /// completion was produced, or when the engine was dropped. If the operation has
    /// [`TransmitOptions::inject`](crate::operation::TransmitOptions::inject), the memory is needed
    /// only until the engine has accepted or refused the post.
    #[inline(always)]
    pub unsafe fn raw(segments: &[Segment]) -> Result<Source, Misuse> {
        if let [one] = segments {
            return match one.address.is_null() && one.len_bytes > 0 {
                true => Err(NULL_WITH_LENGTH),
                false => Ok(Source { len_bytes: one.len_bytes, memory: SourceMemory::Raw(*one) }),
            };
        }
        check_segment_count(segments.len())?;
        if segments.iter().any(|segment| segment.address.is_null() && segment.len_bytes > 0) {
            return Err(NULL_WITH_LENGTH);
        }
        let len_bytes = sum_lengths(segments.iter().map(|segment| segment.len_bytes))?;
        Ok(Source { len_bytes, memory: SourceMemory::RawVector(segments.into()) })
    }

    /// Gathers from `first`, then from `second`. [`into_buffer`](Self::into_buffer) returns neither
    /// buffer of a pair. To get them back, split the pair by [`into_pair`](Self::into_pair).
    pub(crate) fn pair(first: Source, second: Source) -> Source {
        let len_bytes = first.len_bytes.saturating_add(second.len_bytes);
        Source { len_bytes, memory: SourceMemory::Pair(Box::new((first, second))) }
    }

    /// Returns the two sources of a pair, or the source itself and `None`.
    pub(crate) fn into_pair(self) -> (Source, Option<Source>) {
        match self.memory {
            SourceMemory::Pair(pair) => (pair.0, Some(pair.1)),
            _ => (self, None),
        }
    }

    /// Returns the length of the message.
    #[inline]
    pub fn len_bytes(&self) -> usize {
        self.len_bytes
    }

    /// Returns the bytes of the message from `offset_bytes` on.
    pub fn slices(&self, offset_bytes: usize) -> SmallVec<[IoSlice<'_>; IOV_LIMIT]> {
        let mut skip = offset_bytes;
        let mut slices = SmallVec::new();
        match &self.memory {
            SourceMemory::Owned(bytes) => push_rest(&mut slices, bytes, &mut skip),
            SourceMemory::OwnedVector(buffers) => {
                for bytes in buffers {
                    push_rest(&mut slices, bytes, &mut skip);
                }
            }
            SourceMemory::Raw(segment) => push_rest(&mut slices, segment.as_slice(), &mut skip),
            SourceMemory::RawVector(segments) => {
                for segment in segments {
                    push_rest(&mut slices, segment.as_slice(), &mut skip);
                }
            }
            SourceMemory::Copied(bytes) => push_rest(&mut slices, bytes, &mut skip),
            SourceMemory::Pair(pair) => {
                slices.extend(pair.0.slices(skip));
                slices.extend(pair.1.slices(skip.saturating_sub(pair.0.len_bytes)));
            }
        }
        slices
    }

    /// Returns the whole message, if it is in one piece.
    #[inline]
    pub fn contiguous(&self) -> Option<&[u8]> {
        match &self.memory {
            SourceMemory::Owned(bytes) => Some(bytes),
            SourceMemory::OwnedVector(buffers) => match buffers.as_slice() {
                [] => Some(&[]),
                [one] => Some(one),
                _ => None,
            },
            SourceMemory::Raw(segment) => Some(segment.as_slice()),
            SourceMemory::RawVector(segments) => segments.is_empty().then_some(&[]),
            SourceMemory::Copied(bytes) => Some(bytes),
            SourceMemory::Pair(_) => None,
        }
    }

    /// If the source borrows the caller's memory, copies the bytes, so the source no longer needs
    /// the caller's memory.
    pub fn copy_borrowed_memory(&mut self) {
        if let SourceMemory::Raw(_) | SourceMemory::RawVector(_) = &self.memory {
            let mut copy = Vec::with_capacity(self.len_bytes);
            for slice in self.slices(0) {
                copy.extend_from_slice(&slice);
            }
            self.memory = SourceMemory::Copied(copy.into());
        } else if let SourceMemory::Pair(pair) = &mut self.memory {
            pair.0.copy_borrowed_memory();
            pair.1.copy_borrowed_memory();
        }
    }

    /// Gives up the caller's memory, which the source no longer reads. Keeps owned memory, to hand
    /// it back.
    #[inline]
    pub(crate) fn release_raw_memory(&mut self) {
        if let SourceMemory::Raw(_) | SourceMemory::RawVector(_) = &self.memory {
            self.memory = SourceMemory::Copied(Box::default());
        } else if let SourceMemory::Pair(pair) = &mut self.memory {
            pair.0.release_raw_memory();
            pair.1.release_raw_memory();
        }
    }

    /// Takes out the memory that the completion returns to the application, and leaves the source
    /// empty. If the source only points to memory (`Raw`), returns [`Buffer::None`] and leaves the
    /// source as it is.
    #[inline]
    pub fn take_buffer(&mut self) -> Buffer {
        if let SourceMemory::Raw(_) = &self.memory {
            return Buffer::None;
        }
        mem::take(self).into_buffer()
    }

    /// Returns the application's memory, to hand it back.
    #[inline]
    pub fn into_buffer(self) -> Buffer {
        match self.memory {
            SourceMemory::Owned(bytes) => Buffer::Sent(bytes),
            SourceMemory::OwnedVector(buffers) => Buffer::SentVector(buffers),
            SourceMemory::Raw(_)
            | SourceMemory::RawVector(_)
            | SourceMemory::Copied(_)
            | SourceMemory::Pair(_) => Buffer::None,
        }
    }
}

/// An empty source.
impl Default for Source {
    #[inline]
    fn default() -> Source {
        let segment = Segment { address: ptr::null(), len_bytes: 0 };
        Source { memory: SourceMemory::Raw(segment), len_bytes: 0 }
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Source({} bytes)", self.len_bytes)
    }
}

fn push_rest<'a>(slices: &mut SmallVec<[IoSlice<'a>; IOV_LIMIT]>, piece: &'a [u8], skip: &mut usize) {
    let from = piece.len().min(*skip);
    *skip -= from;
    if from < piece.len() {
        slices.push(IoSlice::new(&piece[from..]));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::error::BadMemory;

    fn concat(slices: &[IoSlice<'_>]) -> Vec<u8> {
        slices.iter().flat_map(|slice| slice.iter().copied()).collect()
    }

    proptest! {
        #[test]
        fn source_reads_as_concatenation_of_its_pieces(
            pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..20), 0..=IOV_LIMIT),
            offset in 0usize..100,
        ) {
            let whole: Vec<u8> = pieces.concat();
            let offset = offset.min(whole.len());
            let segments: Vec<Segment> =
                pieces.iter().map(|p| Segment { address: p.as_ptr(), len_bytes: p.len() }).collect();
            // SAFETY: `pieces` outlives the sources and is not written to.
            let raw = unsafe { Source::raw(&segments) }.unwrap();
            let copies = pieces.iter().map(|p| Bytes::copy_from_slice(p)).collect();
            let owned = Source::owned_vector(copies).unwrap();
            // SAFETY: as above.
            let mut copied = unsafe { Source::raw(&segments) }.unwrap();
            copied.copy_borrowed_memory();
            for source in [&raw, &owned, &copied] {
                prop_assert_eq!(source.len_bytes(), whole.len());
                prop_assert_eq!(concat(&source.slices(offset)), &whole[offset..]);
                if let Some(one) = source.contiguous() {
                    prop_assert_eq!(one, &whole[..]);
                }
            }
        }

        #[test]
        fn pair_reads_as_both_sources_in_sequence(
            first in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..9), 0..=IOV_LIMIT),
            second in prop::collection::vec(any::<u8>(), 0..20),
            offset in 0usize..60,
        ) {
            let whole = [first.concat(), second.clone()].concat();
            let offset = offset.min(whole.len());
            let pieces: Vec<Bytes> = first.iter().map(|p| Bytes::copy_from_slice(p)).collect();
            let segment = Segment { address: second.as_ptr(), len_bytes: second.len() };
            // SAFETY: `second` outlives the source and is not written to.
            let raw = unsafe { Source::raw(&[segment]) }.unwrap();
            let mut pair = Source::pair(Source::owned_vector(pieces.clone()).unwrap(), raw);
            for _ in 0..2 {
                prop_assert_eq!(pair.len_bytes(), whole.len());
                prop_assert_eq!(concat(&pair.slices(offset)), &whole[offset..]);
                prop_assert_eq!(pair.contiguous(), None);
                pair.copy_borrowed_memory();
            }
            pair.release_raw_memory();
            let slice_count = pair.slices(first.concat().len()).len();
            prop_assert_eq!(slice_count, usize::from(!second.is_empty()), "it was copied");
            let (back, raw) = pair.into_pair();
            prop_assert_eq!(back.into_buffer(), Buffer::SentVector(pieces));
            prop_assert_eq!(raw.map(Source::into_buffer), Some(Buffer::None));
        }
    }

    #[test]
    fn invalid_segments_are_refused() {
        let null = Segment { address: ptr::null(), len_bytes: 1 };
        // SAFETY: `raw` refuses a null segment, so nothing is ever read through it.
        let refused = unsafe { Source::raw(&[null]) };
        assert!(matches!(refused, Err(Misuse::Memory(BadMemory::NullWithLength))));
        let empty = Segment { address: ptr::null(), len_bytes: 0 };
        // SAFETY: segments of length 0 are never read.
        let source = unsafe { Source::raw(&[empty; IOV_LIMIT]) }.unwrap();
        assert_eq!(source.len_bytes(), 0);
        assert!(source.slices(0).is_empty());
        // SAFETY: `raw` refuses the segments for their number, so nothing is ever read.
        let refused = unsafe { Source::raw(&[empty; IOV_LIMIT + 1]) };
        assert!(matches!(refused, Err(Misuse::TooManySegments { .. })));
        let byte = 0u8;
        let huge = Segment { address: &raw const byte, len_bytes: usize::MAX };
        // SAFETY: `raw` refuses the segments for their total length, so nothing is ever read.
        let refused = unsafe { Source::raw(&[huge, huge]) };
        assert!(matches!(refused, Err(Misuse::Memory(BadMemory::LengthOverflow))));
    }
}
