//! The destination of a receive.

use std::io::IoSliceMut;
use std::{fmt, mem, ptr};

use bytes::{Buf, BytesMut};

use super::segment::{
    NULL_WITH_LENGTH, SegmentMut, check_segment_count, check_segment_count_and_sum, sum_lengths,
};
use super::{Buffer, ReusableBuffer};
use crate::error::{BadMemory, Misuse};
use crate::rejected::Rejected;
use crate::transport::Space;

/// The memory that a receive scatters its message to.
pub struct Destination {
    memory: DestinationMemory,
    len_bytes: usize,
}

enum DestinationMemory {
    Owned(BytesMut),
    OwnedVector(Vec<BytesMut>),
    /// The whole room of a reusable buffer.
    Reusable(BytesMut),
    Raw(SegmentMut),
    RawVector(Box<[SegmentMut]>),
    /// A piece of one segment, which is a multi-receive buffer.
    RawPiece(SegmentMut),
}

impl Destination {
    /// Receives into `buffer[..buffer.len()]`.
    pub fn owned(buffer: BytesMut) -> Destination {
        Destination { len_bytes: buffer.len(), memory: DestinationMemory::Owned(buffer) }
    }

    /// Receives into the whole room of a reusable buffer.
    pub fn reusable(buffer: ReusableBuffer) -> Destination {
        let room = buffer.into_room();
        Destination { len_bytes: room.len(), memory: DestinationMemory::Reusable(room) }
    }

    /// Receives into owned buffers in their order, each up to its length.
    ///
    /// # Errors
    ///
    /// [`Misuse::TooManySegments`] beyond [`IOV_LIMIT`](crate::limits::IOV_LIMIT). The error hands
    /// the buffers back.
    pub fn owned_vector(buffers: Vec<BytesMut>) -> Result<Destination, Rejected<Vec<BytesMut>>> {
        match check_segment_count_and_sum(buffers.iter().map(BytesMut::len)) {
            Ok(len_bytes) => Ok(Destination { len_bytes, memory: DestinationMemory::OwnedVector(buffers) }),
            Err(misuse) => Err(Rejected { error: misuse.into(), returned: buffers }),
        }
    }

    /// Receives into the caller's memory.
    ///
    /// # Errors
    ///
    /// [`Misuse::TooManySegments`] beyond [`IOV_LIMIT`](crate::limits::IOV_LIMIT);
    /// [`Misuse::Memory`] for a null address with a length, or for lengths whose sum exceeds the
    /// address space.
    ///
    /// # Safety
    ///
    /// Every segment must be initialised memory that any thread may read and write. Nothing else
    /// may read or write the memory until the operation that is posted with this destination has
    /// ended. An operation has ended when its completion was produced, or when the engine was
    /// dropped.
    #[inline(always)]
    pub unsafe fn raw(segments: &[SegmentMut]) -> Result<Destination, Misuse> {
        check_segment_count(segments.len())?;
        if segments.iter().any(|segment| segment.address.is_null() && segment.len_bytes > 0) {
            return Err(NULL_WITH_LENGTH);
        }
        // SAFETY: the caller has promised what `raw_allowing_null` requires.
        unsafe { Destination::raw_allowing_null(segments) }
    }

    /// Like [`raw`](Self::raw), but counts a segment with a null address as empty, whatever its
    /// length. Applications that expect empty messages pass such segments.
    ///
    /// # Errors
    ///
    /// [`Misuse::TooManySegments`] beyond [`IOV_LIMIT`](crate::limits::IOV_LIMIT);
    /// [`Misuse::Memory`] for lengths whose sum exceeds the address space.
    ///
    /// # Safety
    ///
    /// As [`raw`](Self::raw), for the segments that have an address.
    #[inline(always)]
    pub unsafe fn raw_allowing_null(segments: &[SegmentMut]) -> Result<Destination, Misuse> {
        if let [one] = segments {
            let segment = one.null_as_empty();
            return Ok(Destination { len_bytes: segment.len_bytes, memory: DestinationMemory::Raw(segment) });
        }
        check_segment_count(segments.len())?;
        let segments: Box<[SegmentMut]> = segments.iter().map(|segment| segment.null_as_empty()).collect();
        let len_bytes = sum_lengths(segments.iter().map(|segment| segment.len_bytes))?;
        Ok(Destination { len_bytes, memory: DestinationMemory::RawVector(segments) })
    }

    /// Returns the same memory for use as a multi-receive buffer. The memory must be one segment.
    ///
    /// # Errors
    ///
    /// [`Misuse::TooManySegments`] for more than one segment; [`Misuse::Memory`] for no segment,
    /// and for a reusable buffer.
    pub(crate) fn into_multi_receive_buffer(mut self) -> Result<Destination, Rejected<Destination>> {
        let count = match &mut self.memory {
            DestinationMemory::Owned(_) | DestinationMemory::Raw(_) | DestinationMemory::RawPiece(_) => {
                return Ok(self);
            }
            DestinationMemory::OwnedVector(buffers) if buffers.len() == 1 => {
                return Ok(Destination::owned(buffers.remove(0)));
            }
            DestinationMemory::OwnedVector(buffers) => buffers.len(),
            DestinationMemory::RawVector(segments) => segments.len(),
            DestinationMemory::Reusable(_) => {
                let misuse = Misuse::Memory(BadMemory::Reusable);
                return Err(Rejected { error: misuse.into(), returned: self });
            }
        };
        let misuse = match count {
            0 => Misuse::Memory(BadMemory::NoSegment),
            _ => Misuse::TooManySegments { count, max: 1 },
        };
        Err(Rejected { error: misuse.into(), returned: self })
    }

    /// Returns how many bytes precede the first address that is a multiple of `align_bytes`, for
    /// memory in one piece.
    pub(crate) fn padding_bytes(&self, align_bytes: usize) -> usize {
        let address = match &self.memory {
            DestinationMemory::Owned(buffer) => buffer.as_ptr().addr(),
            DestinationMemory::Raw(segment) | DestinationMemory::RawPiece(segment) => segment.address.addr(),
            DestinationMemory::OwnedVector(_)
            | DestinationMemory::RawVector(_)
            | DestinationMemory::Reusable(_) => return 0,
        };
        address.wrapping_neg() % align_bytes
    }

    /// Drops the first `skip_bytes`, returns the next `len_bytes`, and keeps the rest. If the
    /// memory is too short or not in one piece, changes nothing and returns an empty destination.
    pub(crate) fn skip_and_split_to(&mut self, skip_bytes: usize, len_bytes: usize) -> Destination {
        let end_bytes = skip_bytes.saturating_add(len_bytes);
        if end_bytes > self.len_bytes {
            return Destination::empty();
        }
        let memory = match &mut self.memory {
            DestinationMemory::Owned(buffer) => {
                buffer.advance(skip_bytes);
                DestinationMemory::Owned(buffer.split_to(len_bytes))
            }
            DestinationMemory::Raw(rest) | DestinationMemory::RawPiece(rest) => {
                // Both addresses lie within the segment, since its length was checked above.
                let piece = SegmentMut { address: rest.address.wrapping_add(skip_bytes), len_bytes };
                rest.address = rest.address.wrapping_add(end_bytes);
                rest.len_bytes -= end_bytes;
                DestinationMemory::RawPiece(piece)
            }
            DestinationMemory::OwnedVector(_)
            | DestinationMemory::RawVector(_)
            | DestinationMemory::Reusable(_) => {
                return Destination::empty();
            }
        };
        self.len_bytes -= end_bytes;
        Destination { len_bytes, memory }
    }

    /// Returns the application's memory that no message has used.
    pub(crate) fn into_unused(self) -> Buffer {
        match self.memory {
            DestinationMemory::Owned(buffer) => Buffer::Unused(buffer),
            _ => Buffer::None,
        }
    }

    /// Creates a destination without room.
    #[inline]
    pub(crate) const fn empty() -> Destination {
        Destination {
            len_bytes: 0,
            memory: DestinationMemory::Raw(SegmentMut { address: ptr::null_mut(), len_bytes: 0 }),
        }
    }

    /// Whether the completion has a buffer: it hands the application's memory back, or names a piece of it.
    #[inline]
    pub(crate) fn gives_buffer(&self) -> bool {
        !matches!(self.memory, DestinationMemory::Raw(_) | DestinationMemory::RawVector(_))
    }

    /// Whether the caller's memory has a byte in common with `memory`. Owned memory has none.
    pub(crate) fn overlaps(&self, memory: &SegmentMut) -> bool {
        match &self.memory {
            DestinationMemory::Raw(segment) | DestinationMemory::RawPiece(segment) => {
                segment.overlaps(memory)
            }
            DestinationMemory::RawVector(segments) => segments.iter().any(|segment| segment.overlaps(memory)),
            DestinationMemory::Owned(_)
            | DestinationMemory::OwnedVector(_)
            | DestinationMemory::Reusable(_) => false,
        }
    }

    /// Returns how many bytes fit.
    #[inline]
    pub fn len_bytes(&self) -> usize {
        self.len_bytes
    }

    /// Copies `bytes` to `offset_bytes`, as far as they fit. Returns the number of bytes copied.
    #[inline]
    pub fn copy_in(&mut self, offset_bytes: usize, bytes: &[u8]) -> usize {
        if let Some(whole) = self.contiguous_mut() {
            let room = whole.get_mut(offset_bytes..).unwrap_or_default();
            let count = room.len().min(bytes.len());
            room[..count].copy_from_slice(&bytes[..count]);
            return count;
        }
        let mut copied = 0;
        for place in &mut self.slices_mut(offset_bytes, bytes.len()) {
            let piece = &bytes[copied..copied + place.len()];
            place.copy_from_slice(piece);
            copied += piece.len();
        }
        copied
    }

    /// Returns the memory from `offset_bytes` on, at most `limit_bytes` of it.
    pub fn slices_mut(&mut self, offset_bytes: usize, limit_bytes: usize) -> Space<'_> {
        let mut skip = offset_bytes;
        let mut left = limit_bytes;
        let mut space = Space::new();
        match &mut self.memory {
            DestinationMemory::Owned(buffer) | DestinationMemory::Reusable(buffer) => {
                push_room(&mut space, buffer, &mut skip, &mut left);
            }
            DestinationMemory::OwnedVector(buffers) => {
                for buffer in buffers {
                    push_room(&mut space, buffer, &mut skip, &mut left);
                }
            }
            DestinationMemory::Raw(segment) | DestinationMemory::RawPiece(segment) => {
                push_room(&mut space, segment.as_mut_slice(), &mut skip, &mut left);
            }
            DestinationMemory::RawVector(segments) => {
                for segment in segments {
                    push_room(&mut space, segment.as_mut_slice(), &mut skip, &mut left);
                }
            }
        }
        space
    }

    /// Returns all of the memory, if it is in one piece.
    #[inline]
    pub(crate) fn contiguous_mut(&mut self) -> Option<&mut [u8]> {
        match &mut self.memory {
            DestinationMemory::Owned(buffer) | DestinationMemory::Reusable(buffer) => Some(buffer),
            DestinationMemory::Raw(segment) | DestinationMemory::RawPiece(segment) => {
                Some(segment.as_mut_slice())
            }
            DestinationMemory::OwnedVector(_) | DestinationMemory::RawVector(_) => None,
        }
    }

    /// Returns all of the application's memory, to hand it back unused.
    pub fn into_buffer(mut self) -> Buffer {
        self.take_buffer(self.len_bytes)
    }

    /// Removes the application's memory and returns it for the completion, cut to `received_bytes`.
    pub(crate) fn take_buffer(&mut self, received_bytes: usize) -> Buffer {
        if !self.gives_buffer() {
            return Buffer::None;
        }
        let nothing = DestinationMemory::RawVector(Box::default());
        match mem::replace(&mut self.memory, nothing) {
            DestinationMemory::Owned(mut buffer) => {
                buffer.truncate(received_bytes);
                Buffer::Received(buffer)
            }
            DestinationMemory::OwnedVector(mut buffers) => {
                let mut left = received_bytes;
                for buffer in &mut buffers {
                    buffer.truncate(left);
                    left -= buffer.len();
                }
                Buffer::ReceivedVector(buffers)
            }
            DestinationMemory::Reusable(room) => {
                Buffer::Reusable(ReusableBuffer::from_room(room, received_bytes))
            }
            DestinationMemory::RawPiece(SegmentMut { address, len_bytes }) => {
                Buffer::Within(SegmentMut { address, len_bytes: len_bytes.min(received_bytes) })
            }
            DestinationMemory::Raw(_) | DestinationMemory::RawVector(_) => Buffer::None,
        }
    }
}

/// A destination without room.
impl Default for Destination {
    #[inline]
    fn default() -> Destination {
        Destination::empty()
    }
}

impl fmt::Debug for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Destination({} bytes)", self.len_bytes)
    }
}

fn push_room<'a>(space: &mut Space<'a>, piece: &'a mut [u8], skip: &mut usize, left: &mut usize) {
    let from = piece.len().min(*skip);
    *skip -= from;
    let len = (piece.len() - from).min(*left);
    *left -= len;
    if len > 0 {
        space.push(IoSliceMut::new(&mut piece[from..from + len]));
    }
}

#[cfg(test)]
mod tests {
    use std::ptr;

    use proptest::prelude::*;

    use super::*;
    use crate::limits::IOV_LIMIT;

    proptest! {
        #[test]
        fn destination_fills_pieces_in_order_and_drops_excess(
            lengths in prop::collection::vec(0usize..20, 0..=IOV_LIMIT),
            chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..30), 0..6),
        ) {
            let buffers: Vec<BytesMut> = lengths.iter().map(|len| BytesMut::zeroed(*len)).collect();
            let mut destination = Destination::owned_vector(buffers).unwrap();
            let room = destination.len_bytes();
            let mut offset = 0;
            for chunk in &chunks {
                let fits = chunk.len().min(room - offset);
                prop_assert_eq!(destination.copy_in(offset, chunk), fits);
                offset += fits;
            }
            let message: Vec<u8> = chunks.concat();
            let Buffer::ReceivedVector(buffers) = destination.take_buffer(offset) else {
                panic!("not a vector")
            };
            let received: Vec<u8> = buffers.iter().flat_map(|b| b.iter().copied()).collect();
            prop_assert_eq!(&received[..], &message[..offset]);
        }
    }

    /// Generates cuts: how many bytes to skip, and how many to split off.
    fn any_cuts() -> impl Strategy<Value = Vec<(usize, usize)>> {
        prop::collection::vec((0usize..9, 0usize..20), 0..12)
    }

    proptest! {
        #[test]
        fn split_off_pieces_share_no_byte(len in 0usize..100, cuts in any_cuts()) {
            let mut memory = vec![0u8; len];
            let start = memory.as_mut_ptr();
            // SAFETY: `memory` outlives the destination, and nothing else uses it meanwhile.
            let raw = unsafe { Destination::raw(&[SegmentMut { address: start, len_bytes: len }]) }.unwrap();
            let owned = Destination::owned(BytesMut::zeroed(len));
            let mut places = Vec::new();
            for mut rest in [raw, owned] {
                let mut used = 0;
                for (mark, (skip, len)) in (1u8..).zip(&cuts) {
                    let fits = skip + len <= rest.len_bytes();
                    let mut piece = rest.skip_and_split_to(*skip, *len);
                    prop_assert_eq!(piece.len_bytes(), if fits { *len } else { 0 });
                    used += if fits { skip + len } else { 0 };
                    prop_assert_eq!(rest.len_bytes(), memory.len() - used);
                    prop_assert_eq!(piece.copy_in(0, &[mark; 20]), piece.len_bytes());
                    match piece.take_buffer(usize::MAX) {
                        Buffer::Within(place) => places.push((place, mark)),
                        Buffer::Received(bytes) => prop_assert!(bytes.iter().all(|byte| *byte == mark)),
                        Buffer::None => prop_assert!(!fits),
                        other => panic!("not a piece: {other:?}"),
                    }
                }
                prop_assert_eq!(rest.copy_in(0, &[255; 100]), memory.len() - used);
                if let Buffer::Unused(unused) = rest.into_unused() {
                    prop_assert_eq!(unused.len(), memory.len() - used);
                }
            }
            for (place, mark) in places {
                let from = place.address.addr() - start.addr();
                prop_assert!(memory[from..from + place.len_bytes].iter().all(|byte| *byte == mark));
            }
        }
    }

    #[test]
    fn null_segment_takes_no_bytes() {
        let nowhere = SegmentMut { address: ptr::null_mut(), len_bytes: 9 };
        let mut byte = [0_u8];
        let somewhere = SegmentMut { address: byte.as_mut_ptr(), len_bytes: 1 };
        for (segments, len_bytes) in [(&[nowhere][..], 0), (&[nowhere, somewhere, nowhere][..], 1)] {
            // SAFETY: the only byte outlives the destination.
            let mut room = unsafe { Destination::raw_allowing_null(segments) }.unwrap();
            assert_eq!((room.len_bytes(), room.copy_in(0, b"ab")), (len_bytes, len_bytes));
            // SAFETY: `raw` refuses the segments, so nothing ever uses them.
            assert!(unsafe { Destination::raw(segments) }.is_err());
        }
        assert_eq!(byte, *b"a");
    }

    #[test]
    fn multi_receive_buffer_with_two_pieces_is_refused() {
        let buffers = |count| vec![BytesMut::zeroed(3); count];
        let one = Destination::owned_vector(buffers(1)).unwrap().into_multi_receive_buffer().unwrap();
        assert!(matches!(one.memory, DestinationMemory::Owned(_)) && one.len_bytes() == 3);
        let none = Destination::owned_vector(buffers(0)).unwrap().into_multi_receive_buffer().unwrap_err();
        assert_eq!(none.error, Misuse::Memory(BadMemory::NoSegment).into());
        let many = Destination::owned_vector(buffers(3)).unwrap().into_multi_receive_buffer().unwrap_err();
        assert_eq!(many.error, Misuse::TooManySegments { count: 3, max: 1 }.into());
        assert_eq!(many.returned.into_buffer().into_received_vector().map(|buffers| buffers.len()), Some(3));
        let empty = SegmentMut { address: ptr::null_mut(), len_bytes: 0 };
        // SAFETY: segments of length 0 are never written to.
        let many = unsafe { Destination::raw(&[empty; 2]) }.unwrap().into_multi_receive_buffer().unwrap_err();
        assert_eq!(many.error, Misuse::TooManySegments { count: 2, max: 1 }.into());
        // SAFETY: as above.
        let mut one = unsafe { Destination::raw(&[empty]) }.unwrap().into_multi_receive_buffer().unwrap();
        assert_eq!((one.padding_bytes(8), one.skip_and_split_to(0, 0).len_bytes()), (0, 0));
    }

    #[test]
    fn padding_reaches_next_aligned_address() {
        let mut destination = Destination::owned(BytesMut::zeroed(64));
        let padding = destination.padding_bytes(8);
        destination.skip_and_split_to(padding, 3);
        assert_eq!(destination.padding_bytes(8), 5);
        destination.skip_and_split_to(5, 8);
        assert_eq!(destination.padding_bytes(8), 0);
    }
}
