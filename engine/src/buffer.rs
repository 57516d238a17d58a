//! The memory of operations: what a send gathers from and a receive scatters to.
//!
//! There are two tiers over one path. The owned tier holds the application's [`Bytes`] or [`BytesMut`] until the
//! operation ends and hands it back with the completion. The raw tier holds addresses, for C callers and for callers
//! that want no copy and no ownership; making one is `unsafe`, using it is not. This is the only module of the
//! engine that dereferences raw pointers.

use std::io::{IoSlice, IoSliceMut};
use std::{fmt, mem, ptr, slice};

use bytes::{Buf, Bytes, BytesMut};
use smallvec::SmallVec;

use crate::error::Misuse;
use crate::limits::IOV_LIMIT;
use crate::rejected::Rejected;
use crate::transport::Space;

/// A piece of memory to read from: the raw tier's `struct iovec`.
#[derive(Debug, Clone, Copy)]
pub struct Segment {
    /// Where it starts. May be null if the length is 0.
    pub address: *const u8,
    /// How long it is.
    pub len_bytes: usize,
}

/// A piece of memory to write to: the raw tier's `struct iovec`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentMut {
    /// Where it starts. May be null if the length is 0.
    pub address: *mut u8,
    /// How long it is.
    pub len_bytes: usize,
}

// SAFETY: a segment is an address and a length; nothing is read through it except by `Source` and `Destination`,
// whose constructors make the caller promise that the memory may be used from whichever thread drives the endpoint.
unsafe impl Send for Segment {}
// SAFETY: as for `Segment`.
unsafe impl Send for SegmentMut {}
// SAFETY: as for `Segment`; through a shared one nothing is read or written at all.
unsafe impl Sync for SegmentMut {}

/// What a send operation gathers its message from.
pub struct Source {
    memory: SourceMemory,
    len_bytes: usize,
}

enum SourceMemory {
    Owned(Bytes),
    OwnedVector(Vec<Bytes>),
    /// Most operations have one segment, and it need not be looked for elsewhere.
    Raw(Segment),
    RawVector(Box<[Segment]>),
    /// What raw memory held when it was injected.
    Copied(Box<[u8]>),
    /// The operands of an atomic operation, and what follows them.
    Pair(Box<(Source, Source)>),
}

/// One piece of the caller's memory that a receive operation may fill: a [`Destination`] in the making, small enough to
/// be handed on without being moved through memory.
#[derive(Debug, Clone, Copy)]
pub struct Room(SegmentMut);

/// Where a receive operation scatters a message to.
pub struct Destination {
    memory: DestinationMemory,
    len_bytes: usize,
}

enum DestinationMemory {
    Owned(BytesMut),
    OwnedVector(Vec<BytesMut>),
    Raw(SegmentMut),
    RawVector(Box<[SegmentMut]>),
    /// A piece of the one segment that a multi-receive buffer is.
    RawPiece(SegmentMut),
}

/// The application's memory on its way back, in a completion.
///
/// ```
/// use bytes::BytesMut;
/// use homespun_engine::buffer::Buffer;
///
/// /// What was received, in one piece.
/// fn message(buffer: Buffer) -> Option<BytesMut> {
///     match buffer {
///         Buffer::ReceivedVector(pieces) => Some(pieces.into_iter().flatten().collect()),
///         other => other.into_received(),
///     }
/// }
/// let pieces = vec![BytesMut::from("hel"), BytesMut::from("lo")];
/// assert_eq!(message(Buffer::ReceivedVector(pieces)).as_deref(), Some(&b"hello"[..]));
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Buffer {
    /// The operation was posted through the raw tier: there is nothing to hand back.
    #[default]
    None,
    /// What was sent.
    Sent(Bytes),
    /// What was sent by a vectored operation.
    SentVector(Vec<Bytes>),
    /// What was received, cut to the length of the message.
    Received(BytesMut),
    /// What was received by a vectored operation; the message fills the buffers in order, each is cut to what it
    /// holds.
    ReceivedVector(Vec<BytesMut>),
    /// Where a message lies in a multi-receive buffer that was posted through the raw tier, as far as it was placed.
    Within(SegmentMut),
    /// What a multi-receive buffer has not used, if it is released without a message.
    Unused(BytesMut),
    /// The last message of a multi-receive buffer, together with what it has not used.
    ReceivedLast(Box<ReceivedLast>),
    /// What an atomic operation has fetched, together with what it was posted with.
    Fetched(Box<Fetched>),
}

/// The last message of a multi-receive buffer that was posted through the owned tier, `fi_msg(3)`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReceivedLast {
    /// The message.
    pub message: BytesMut,
    /// The end of the buffer, which no message has used. It lies behind the last one to be placed, which need not be this
    /// one: messages may complete in another order.
    pub unused: BytesMut,
}

/// The buffers of an atomic operation that fetches, `fi_atomic(3)`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Fetched {
    /// What the elements were before: [`Buffer::Received`], or [`Buffer::ReceivedVector`] where there were several buffers
    /// for it. Empty if the operation has failed.
    pub result: Buffer,
    /// The operands: [`Buffer::Sent`] or [`Buffer::SentVector`].
    pub operand: Buffer,
    /// What the elements were compared with, in the same way; [`Buffer::None`] if they were not.
    pub compare: Buffer,
}

impl Buffer {
    /// What an atomic operation has fetched, together with what it was posted with.
    pub fn into_fetched(self) -> Option<Fetched> {
        if let Buffer::Fetched(fetched) = self { Some(*fetched) } else { None }
    }

    /// What was sent, if it was posted in one owned piece.
    pub fn into_sent(self) -> Option<Bytes> {
        if let Buffer::Sent(bytes) = self { Some(bytes) } else { None }
    }

    /// What was sent, if it was posted in several owned pieces.
    pub fn into_sent_vector(self) -> Option<Vec<Bytes>> {
        if let Buffer::SentVector(buffers) = self { Some(buffers) } else { None }
    }

    /// What was received or fetched, if one owned buffer was posted for it.
    ///
    /// ```
    /// use bytes::BytesMut;
    /// use homespun_engine::buffer::Buffer;
    ///
    /// let received = Buffer::Received(BytesMut::from("hello"));
    /// assert_eq!(received.into_received().as_deref(), Some(&b"hello"[..]));
    /// ```
    pub fn into_received(self) -> Option<BytesMut> {
        match self {
            Buffer::Received(buffer) => Some(buffer),
            Buffer::ReceivedLast(last) => Some(last.message),
            Buffer::Fetched(fetched) => fetched.result.into_received(),
            _ => None,
        }
    }

    /// What was received or fetched, if several owned buffers were posted for it.
    pub fn into_received_vector(self) -> Option<Vec<BytesMut>> {
        match self {
            Buffer::ReceivedVector(buffers) => Some(buffers),
            Buffer::Fetched(fetched) => fetched.result.into_received_vector(),
            _ => None,
        }
    }
}

impl Source {
    /// Gathers from one owned buffer.
    pub fn owned(bytes: Bytes) -> Source {
        Source { len_bytes: bytes.len(), memory: SourceMemory::Owned(bytes) }
    }

    /// Gathers from owned buffers in order.
    ///
    /// # Errors
    ///
    /// [`Misuse::TooManySegments`] beyond [`IOV_LIMIT`], with the buffers.
    pub fn owned_vector(buffers: Vec<Bytes>) -> Result<Source, Rejected<Vec<Bytes>>> {
        match checked_total(buffers.iter().map(Bytes::len)) {
            Ok(len_bytes) => Ok(Source { len_bytes, memory: SourceMemory::OwnedVector(buffers) }),
            Err(misuse) => Err(Rejected { error: misuse.into(), buffer: buffers }),
        }
    }

    /// Gathers from the caller's memory.
    ///
    /// # Errors
    ///
    /// [`Misuse::TooManySegments`] beyond [`IOV_LIMIT`]; [`Misuse::Invalid`] for a null address with a length, or
    /// lengths that add up to more than the address space.
    ///
    /// # Safety
    ///
    /// Every segment must be readable, from any thread, and must not be written to, from now until the operation
    /// that is posted with this source has ended: its completion was produced, or the engine was dropped. With
    /// [`SendRequest::inject`](crate::operation::SendRequest::inject), until the request was posted or refused.
    #[inline(always)]
    pub unsafe fn raw(segments: &[Segment]) -> Result<Source, Misuse> {
        if let [one] = segments {
            return match one.address.is_null() && one.len_bytes > 0 {
                true => Err(NULL_WITH_LENGTH),
                false => Ok(Source { len_bytes: one.len_bytes, memory: SourceMemory::Raw(*one) }),
            };
        }
        check_count(segments.len())?;
        if segments.iter().any(|segment| segment.address.is_null() && segment.len_bytes > 0) {
            return Err(NULL_WITH_LENGTH);
        }
        let len_bytes = total(segments.iter().map(|segment| segment.len_bytes))?;
        Ok(Source { len_bytes, memory: SourceMemory::RawVector(segments.into()) })
    }

    /// Gathers from one source after the other. [`into_buffer`](Self::into_buffer) hands nothing of it back; it is to be
    /// [parted](Self::into_pair) before.
    pub(crate) fn pair(first: Source, second: Source) -> Source {
        let len_bytes = first.len_bytes.saturating_add(second.len_bytes);
        Source { len_bytes, memory: SourceMemory::Pair(Box::new((first, second))) }
    }

    /// The two sources that it was made of, or itself and nothing.
    pub(crate) fn into_pair(self) -> (Source, Option<Source>) {
        match self.memory {
            SourceMemory::Pair(pair) => (pair.0, Some(pair.1)),
            _ => (self, None),
        }
    }

    /// The length of the message.
    #[inline]
    pub fn len_bytes(&self) -> usize {
        self.len_bytes
    }

    /// The message's bytes from `offset_bytes` on.
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

    /// The whole message, if it lies in one piece.
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

    /// Stops depending on the caller's memory: copies what it holds, unless the memory is owned.
    pub fn detach(&mut self) {
        if let SourceMemory::Raw(_) | SourceMemory::RawVector(_) = &self.memory {
            let mut copy = Vec::with_capacity(self.len_bytes);
            for slice in self.slices(0) {
                copy.extend_from_slice(&slice);
            }
            self.memory = SourceMemory::Copied(copy.into());
        } else if let SourceMemory::Pair(pair) = &mut self.memory {
            pair.0.detach();
            pair.1.detach();
        }
    }

    /// Forgets the caller's memory, which will not be read again. Owned memory stays, to be handed back.
    #[inline]
    pub(crate) fn release(&mut self) {
        if let SourceMemory::Raw(_) | SourceMemory::RawVector(_) = &self.memory {
            self.memory = SourceMemory::Copied(Box::default());
        } else if let SourceMemory::Pair(pair) = &mut self.memory {
            pair.0.release();
            pair.1.release();
        }
    }

    /// Takes the application's memory out, to be handed back. What is left gathers nothing if that was owned.
    #[inline]
    pub(crate) fn take_buffer(&mut self) -> Buffer {
        if let SourceMemory::Raw(_) = &self.memory {
            return Buffer::None;
        }
        mem::take(self).into_buffer()
    }

    /// The application's memory, to be handed back.
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

impl Destination {
    /// Receives into `buffer[..buffer.len()]`.
    pub fn owned(buffer: BytesMut) -> Destination {
        Destination { len_bytes: buffer.len(), memory: DestinationMemory::Owned(buffer) }
    }

    /// Receives into owned buffers in order, each up to its length.
    ///
    /// # Errors
    ///
    /// [`Misuse::TooManySegments`] beyond [`IOV_LIMIT`], with the buffers.
    pub fn owned_vector(buffers: Vec<BytesMut>) -> Result<Destination, Rejected<Vec<BytesMut>>> {
        match checked_total(buffers.iter().map(BytesMut::len)) {
            Ok(len_bytes) => Ok(Destination { len_bytes, memory: DestinationMemory::OwnedVector(buffers) }),
            Err(misuse) => Err(Rejected { error: misuse.into(), buffer: buffers }),
        }
    }

    /// Receives into the caller's memory.
    ///
    /// # Errors
    ///
    /// As [`Source::raw`].
    ///
    /// # Safety
    ///
    /// Every segment must be initialised memory that is readable and writable from any thread, and that nothing else
    /// reads or writes, from now until the operation that is posted with this destination has ended: its completion
    /// was produced, or the engine was dropped.
    #[inline(always)]
    pub unsafe fn raw(segments: &[SegmentMut]) -> Result<Destination, Misuse> {
        check_count(segments.len())?;
        if segments.iter().any(|segment| segment.address.is_null() && segment.len_bytes > 0) {
            return Err(NULL_WITH_LENGTH);
        }
        // SAFETY: what is asked of the caller is the same.
        unsafe { Destination::room(segments) }
    }

    /// Receives a message into the caller's memory, as [`raw`](Self::raw). But a null address with a length is room for
    /// nothing: applications that expect messages of no bytes name no memory and some length.
    ///
    /// # Errors
    ///
    /// [`Misuse::TooManySegments`] beyond [`IOV_LIMIT`]; [`Misuse::Invalid`] for lengths that add up to more than the address
    /// space.
    ///
    /// # Safety
    ///
    /// As [`raw`](Self::raw), for the segments that have an address.
    #[inline(always)]
    pub unsafe fn room(segments: &[SegmentMut]) -> Result<Destination, Misuse> {
        if let [one] = segments {
            // SAFETY: what is asked of the caller is the same.
            return Ok(unsafe { Room::raw(*one) }.into());
        }
        check_count(segments.len())?;
        let segments: Box<[SegmentMut]> = segments.iter().map(|segment| segment.without_null()).collect();
        let len_bytes = total(segments.iter().map(|segment| segment.len_bytes))?;
        Ok(Destination { len_bytes, memory: DestinationMemory::RawVector(segments) })
    }

    /// The same memory for messages that come one after another, which has to be in one piece.
    ///
    /// # Errors
    ///
    /// [`Misuse::TooManySegments`] for more than one segment, [`Misuse::Invalid`] for none.
    pub(crate) fn in_one_piece(mut self) -> Result<Destination, Rejected<Destination>> {
        let count = match &mut self.memory {
            DestinationMemory::Owned(_) | DestinationMemory::Raw(_) | DestinationMemory::RawPiece(_) => {
                return Ok(self);
            }
            DestinationMemory::OwnedVector(buffers) if buffers.len() == 1 => {
                return Ok(Destination::owned(buffers.remove(0)));
            }
            DestinationMemory::OwnedVector(buffers) => buffers.len(),
            DestinationMemory::RawVector(segments) => segments.len(),
        };
        let misuse = match count {
            0 => Misuse::Invalid("a multi-receive buffer without a segment"),
            _ => Misuse::TooManySegments { count, max: 1 },
        };
        Err(Rejected { error: misuse.into(), buffer: self })
    }

    /// How many bytes are before the first address that is a multiple of `align_bytes`. Only for memory in one piece.
    pub(crate) fn padding_bytes(&self, align_bytes: usize) -> usize {
        let address = match &self.memory {
            DestinationMemory::Owned(buffer) => buffer.as_ptr().addr(),
            DestinationMemory::Raw(segment) | DestinationMemory::RawPiece(segment) => segment.address.addr(),
            DestinationMemory::OwnedVector(_) | DestinationMemory::RawVector(_) => return 0,
        };
        address.wrapping_neg() % align_bytes
    }

    /// Cuts `len_bytes` off that begin after `skip_bytes`, which are lost; what is behind them stays. Memory that is not
    /// in one piece, or shorter than that, stays as it is and gives nothing.
    pub(crate) fn cut_off(&mut self, skip_bytes: usize, len_bytes: usize) -> Destination {
        let end_bytes = skip_bytes.saturating_add(len_bytes);
        if end_bytes > self.len_bytes {
            return Destination::nowhere();
        }
        let memory = match &mut self.memory {
            DestinationMemory::Owned(buffer) => {
                buffer.advance(skip_bytes);
                DestinationMemory::Owned(buffer.split_to(len_bytes))
            }
            DestinationMemory::Raw(rest) | DestinationMemory::RawPiece(rest) => {
                // Both are within the segment, since its length says so.
                let piece = SegmentMut { address: rest.address.wrapping_add(skip_bytes), len_bytes };
                rest.address = rest.address.wrapping_add(end_bytes);
                rest.len_bytes -= end_bytes;
                DestinationMemory::RawPiece(piece)
            }
            DestinationMemory::OwnedVector(_) | DestinationMemory::RawVector(_) => {
                return Destination::nowhere();
            }
        };
        self.len_bytes -= end_bytes;
        Destination { len_bytes, memory }
    }

    /// Takes the application's memory out that no message has used.
    pub(crate) fn into_unused(self) -> Buffer {
        match self.memory {
            DestinationMemory::Owned(buffer) => Buffer::Unused(buffer),
            _ => Buffer::None,
        }
    }

    /// Room for nothing.
    #[inline]
    pub(crate) fn nowhere() -> Destination {
        Destination {
            len_bytes: 0,
            memory: DestinationMemory::Raw(SegmentMut { address: ptr::null_mut(), len_bytes: 0 }),
        }
    }

    /// How many bytes fit.
    #[inline]
    pub fn len_bytes(&self) -> usize {
        self.len_bytes
    }

    /// Copies `bytes` to `offset_bytes`; what does not fit is dropped. Returns how many bytes were copied.
    #[inline]
    pub fn copy_in(&mut self, offset_bytes: usize, bytes: &[u8]) -> usize {
        if let Some(whole) = self.contiguous_mut() {
            let room = whole.get_mut(offset_bytes..).unwrap_or_default();
            let count = room.len().min(bytes.len());
            room[..count].copy_from_slice(&bytes[..count]);
            return count;
        }
        let mut copied = 0;
        for place in &mut self.space(offset_bytes, bytes.len()) {
            let piece = &bytes[copied..copied + place.len()];
            place.copy_from_slice(piece);
            copied += piece.len();
        }
        copied
    }

    /// The memory from `offset_bytes` on, at most `limit_bytes` of it.
    pub fn space(&mut self, offset_bytes: usize, limit_bytes: usize) -> Space<'_> {
        let mut skip = offset_bytes;
        let mut left = limit_bytes;
        let mut space = Space::new();
        match &mut self.memory {
            DestinationMemory::Owned(buffer) => push_room(&mut space, buffer, &mut skip, &mut left),
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

    /// All of the memory, if it lies in one piece.
    #[inline]
    pub(crate) fn contiguous_mut(&mut self) -> Option<&mut [u8]> {
        match &mut self.memory {
            DestinationMemory::Owned(buffer) => Some(buffer),
            DestinationMemory::Raw(segment) | DestinationMemory::RawPiece(segment) => {
                Some(segment.as_mut_slice())
            }
            DestinationMemory::OwnedVector(_) | DestinationMemory::RawVector(_) => None,
        }
    }

    /// The application's memory as it is, to be handed back unused.
    pub fn into_buffer(mut self) -> Buffer {
        self.take_buffer(self.len_bytes)
    }

    /// Takes the application's memory out, to be handed back.
    #[inline]
    pub(crate) fn take_buffer(&mut self, received_bytes: usize) -> Buffer {
        if let DestinationMemory::Raw(_) | DestinationMemory::RawVector(_) = &self.memory {
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
            DestinationMemory::RawPiece(SegmentMut { address, len_bytes }) => {
                Buffer::Within(SegmentMut { address, len_bytes: len_bytes.min(received_bytes) })
            }
            DestinationMemory::Raw(_) | DestinationMemory::RawVector(_) => Buffer::None,
        }
    }
}

impl Room {
    /// Receives into one piece of the caller's memory. A null address is room for nothing, as in [`Destination::room`].
    ///
    /// # Safety
    ///
    /// As [`Destination::room`], for the operation that is posted with what this becomes.
    #[inline]
    pub unsafe fn raw(segment: SegmentMut) -> Room {
        Room(segment.without_null())
    }
}

impl From<Room> for Destination {
    #[inline]
    fn from(Room(segment): Room) -> Destination {
        Destination { len_bytes: segment.len_bytes, memory: DestinationMemory::Raw(segment) }
    }
}

impl Segment {
    #[inline]
    fn as_slice(&self) -> &[u8] {
        if self.len_bytes == 0 {
            return &[];
        }
        // SAFETY: segments reach this module only through `Source::raw`, which refuses null with a length, and whose
        // caller promised that the memory is readable and unchanged until the operation has ended. The engine drops
        // the `Source` when it ends the operation, and the slice borrows from the segment inside that `Source`.
        unsafe { slice::from_raw_parts(self.address, self.len_bytes) }
    }
}

impl SegmentMut {
    /// The segment, without its length if there is no memory.
    #[inline]
    fn without_null(self) -> SegmentMut {
        SegmentMut { len_bytes: if self.address.is_null() { 0 } else { self.len_bytes }, ..self }
    }

    #[inline]
    fn as_mut_slice(&mut self) -> &mut [u8] {
        if self.len_bytes == 0 {
            return &mut [];
        }
        // SAFETY: segments reach this module only through `Destination::room`, which leaves null no length, and
        // whose caller promised initialised memory that nothing else uses until the operation has ended. The engine
        // drops the `Destination` when it ends the operation, and the slice borrows it mutably, so there is never
        // more than one. A piece that `Destination::cut_off` makes is taken out of the segment that it is of, so both
        // are within what was promised and share no byte; the engine ends the operation of a multi-receive buffer
        // after those of its pieces.
        unsafe { slice::from_raw_parts_mut(self.address, self.len_bytes) }
    }
}

/// A source of nothing.
impl Default for Source {
    #[inline]
    fn default() -> Source {
        let segment = Segment { address: ptr::null(), len_bytes: 0 };
        Source { memory: SourceMemory::Raw(segment), len_bytes: 0 }
    }
}

/// Room for nothing.
impl Default for Destination {
    #[inline]
    fn default() -> Destination {
        Destination::nowhere()
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Source({} bytes)", self.len_bytes)
    }
}

impl fmt::Debug for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Destination({} bytes)", self.len_bytes)
    }
}

const NULL_WITH_LENGTH: Misuse = Misuse::Invalid("null buffer with a length");

fn check_count(count: usize) -> Result<(), Misuse> {
    if count > IOV_LIMIT { Err(Misuse::TooManySegments { count, max: IOV_LIMIT }) } else { Ok(()) }
}

fn checked_total(lengths: impl ExactSizeIterator<Item = usize>) -> Result<usize, Misuse> {
    check_count(lengths.len())?;
    total(lengths)
}

fn total(mut lengths: impl Iterator<Item = usize>) -> Result<usize, Misuse> {
    lengths.try_fold(0usize, usize::checked_add).ok_or(Misuse::Invalid("segment lengths overflow"))
}

fn push_rest<'a>(slices: &mut SmallVec<[IoSlice<'a>; IOV_LIMIT]>, piece: &'a [u8], skip: &mut usize) {
    let from = piece.len().min(*skip);
    *skip -= from;
    if from < piece.len() {
        slices.push(IoSlice::new(&piece[from..]));
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
    use crate::error::Error;

    fn concat(slices: &[IoSlice<'_>]) -> Vec<u8> {
        slices.iter().flat_map(|slice| slice.iter().copied()).collect()
    }

    proptest! {
        #[test]
        fn a_source_reads_as_the_concatenation_of_its_pieces(
            pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..20), 0..=IOV_LIMIT),
            offset in 0usize..100,
        ) {
            let whole: Vec<u8> = pieces.concat();
            let offset = offset.min(whole.len());
            let segments: Vec<Segment> =
                pieces.iter().map(|p| Segment { address: p.as_ptr(), len_bytes: p.len() }).collect();
            // SAFETY: `pieces` outlives the sources and is not written to.
            let raw = unsafe { Source::raw(&segments) }.unwrap();
            let owned = Source::owned_vector(pieces.iter().map(|p| Bytes::copy_from_slice(p)).collect()).unwrap();
            // SAFETY: as above.
            let mut copied = unsafe { Source::raw(&segments) }.unwrap();
            copied.detach();
            for source in [&raw, &owned, &copied] {
                prop_assert_eq!(source.len_bytes(), whole.len());
                prop_assert_eq!(concat(&source.slices(offset)), &whole[offset..]);
                if let Some(one) = source.contiguous() {
                    prop_assert_eq!(one, &whole[..]);
                }
            }
        }

        #[test]
        fn a_destination_fills_its_pieces_in_order_and_drops_the_rest(
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
            let Buffer::ReceivedVector(buffers) = destination.take_buffer(offset) else { panic!("not a vector") };
            let received: Vec<u8> = buffers.iter().flat_map(|b| b.iter().copied()).collect();
            prop_assert_eq!(&received[..], &message[..offset]);
        }
    }

    proptest! {
        #[test]
        fn a_pair_reads_as_one_source_after_the_other(
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
                pair.detach();
            }
            pair.release();
            prop_assert_eq!(pair.slices(first.concat().len()).len(), usize::from(!second.is_empty()), "it was copied");
            let (back, raw) = pair.into_pair();
            prop_assert_eq!(back.into_buffer(), Buffer::SentVector(pieces));
            prop_assert_eq!(raw.map(Source::into_buffer), Some(Buffer::None));
        }
    }

    /// How pieces are cut off: what is skipped, and how long each is.
    fn any_cuts() -> impl Strategy<Value = Vec<(usize, usize)>> {
        prop::collection::vec((0usize..9, 0usize..20), 0..12)
    }

    proptest! {
        #[test]
        fn pieces_that_are_cut_off_share_no_byte(len in 0usize..100, cuts in any_cuts()) {
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
                    let mut piece = rest.cut_off(*skip, *len);
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
    fn room_without_memory_takes_nothing_whatever_its_length() {
        let nowhere = SegmentMut { address: ptr::null_mut(), len_bytes: 9 };
        let mut byte = [0_u8];
        let somewhere = SegmentMut { address: byte.as_mut_ptr(), len_bytes: 1 };
        for (segments, len_bytes) in [(&[nowhere][..], 0), (&[nowhere, somewhere, nowhere][..], 1)] {
            // SAFETY: the one byte that there is outlives the room.
            let mut room = unsafe { Destination::room(segments) }.unwrap();
            assert_eq!((room.len_bytes(), room.copy_in(0, b"ab")), (len_bytes, len_bytes));
            // SAFETY: nothing is made of what is refused.
            assert!(unsafe { Destination::raw(segments) }.is_err());
        }
        assert_eq!(byte, *b"a");
    }

    #[test]
    fn a_multi_receive_buffer_has_one_piece() {
        let buffers = |count| vec![BytesMut::zeroed(3); count];
        let one = Destination::owned_vector(buffers(1)).unwrap().in_one_piece().unwrap();
        assert!(matches!(one.memory, DestinationMemory::Owned(_)) && one.len_bytes() == 3);
        let none = Destination::owned_vector(buffers(0)).unwrap().in_one_piece().unwrap_err();
        assert!(matches!(none.error, Error::Misuse(Misuse::Invalid(_))));
        let many = Destination::owned_vector(buffers(3)).unwrap().in_one_piece().unwrap_err();
        assert_eq!(many.error, Misuse::TooManySegments { count: 3, max: 1 }.into());
        assert_eq!(many.buffer.into_buffer().into_received_vector().map(|buffers| buffers.len()), Some(3));
        let empty = SegmentMut { address: ptr::null_mut(), len_bytes: 0 };
        // SAFETY: segments of length 0 are never written to.
        let many = unsafe { Destination::raw(&[empty; 2]) }.unwrap().in_one_piece().unwrap_err();
        assert_eq!(many.error, Misuse::TooManySegments { count: 2, max: 1 }.into());
        // SAFETY: as above.
        let mut one = unsafe { Destination::raw(&[empty]) }.unwrap().in_one_piece().unwrap();
        assert_eq!((one.padding_bytes(8), one.cut_off(0, 0).len_bytes()), (0, 0));
    }

    #[test]
    fn padding_leads_to_the_next_aligned_address() {
        let mut destination = Destination::owned(BytesMut::zeroed(64));
        let padding = destination.padding_bytes(8);
        destination.cut_off(padding, 3);
        assert_eq!(destination.padding_bytes(8), 5);
        destination.cut_off(5, 8);
        assert_eq!(destination.padding_bytes(8), 0);
    }

    #[test]
    fn null_with_a_length_too_many_segments_and_overflow_are_refused() {
        let null = Segment { address: ptr::null(), len_bytes: 1 };
        // SAFETY: a null segment is refused, so nothing is ever read through it.
        assert!(matches!(unsafe { Source::raw(&[null]) }, Err(Misuse::Invalid(_))));
        let empty = Segment { address: ptr::null(), len_bytes: 0 };
        // SAFETY: segments of length 0 are never read.
        let source = unsafe { Source::raw(&[empty; IOV_LIMIT]) }.unwrap();
        assert_eq!(source.len_bytes(), 0);
        assert!(source.slices(0).is_empty());
        // SAFETY: refused for their number, so nothing is ever read.
        let refused = unsafe { Source::raw(&[empty; IOV_LIMIT + 1]) };
        assert!(matches!(refused, Err(Misuse::TooManySegments { .. })));
        let byte = 0u8;
        let huge = Segment { address: &raw const byte, len_bytes: usize::MAX };
        // SAFETY: refused for their total length, so nothing is ever read.
        assert!(matches!(unsafe { Source::raw(&[huge, huge]) }, Err(Misuse::Invalid(_))));
    }
}
