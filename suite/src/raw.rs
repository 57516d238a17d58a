//! Operations on raw memory. Most of it is never freed, which makes them safe for tests.

use std::fs::File;
use std::ops::Deref;
use std::ptr;
use std::sync::Arc;

use homespun::atomic::AtomicKind;
use homespun::endpoint::{AtomicMsg, CompareAtomicMsg, FetchAtomicMsg, RecvMsg, SendMsg};
use homespun::flags::{MrFlags, OpFlags};
use homespun::{
    Bytes, Domain, Endpoint, Error, FabricAddress, MemoryRegion, MrAttr, Segment, SegmentMut,
    SharedReceiveContext, Tag,
};
use rustix::mm::{MapFlags, ProtFlags, mmap};
use serde::{Deserialize, Serialize};

use super::atomic_call::AtomicCall;
use super::form;
use super::payload::marked_buffer;

/// The length of the guard behind each buffer. Guards must remain unchanged.
pub(crate) const GUARD_BYTES: usize = 64;

/// The arguments of a send or receive, apart from its memory.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub struct Post {
    /// The destination of a send, or the source of a receive.
    #[serde(with = "form::fabric_address")]
    pub peer: FabricAddress,
    /// The tag of a tagged message.
    pub tag: Option<u64>,
    /// The remote completion data of a send.
    pub data: Option<u64>,
    /// The context of the completion.
    pub context: u64,
    /// The flags of the call; `None` for the endpoint's default flags.
    pub flags: Option<OpFlags>,
}

/// Leaked memory, with a guard behind it.
#[derive(Debug, Clone, Copy)]
pub struct Piece {
    /// The first address.
    pub address: *mut u8,
    /// The length without the guard.
    pub len_bytes: usize,
}

// SAFETY: the memory is leaked, and every access to it goes through the pointer, from any thread.
unsafe impl Send for Piece {}
// SAFETY: as above.
unsafe impl Sync for Piece {}

impl Piece {
    pub(crate) fn allocate(len_bytes: usize) -> Piece {
        let memory = Box::leak(marked_buffer(len_bytes + GUARD_BYTES).to_vec().into_boxed_slice());
        Piece { address: memory.as_mut_ptr(), len_bytes }
    }

    /// A leaked copy of these bytes.
    pub(crate) fn copy_of(bytes: &Bytes) -> Piece {
        let piece = Piece::allocate(bytes.len());
        piece.write(0, bytes);
        piece
    }

    fn segment(&self) -> SegmentMut {
        SegmentMut { address: self.address, len_bytes: self.len_bytes }
    }

    /// A copy of the bytes.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.part(0, self.len_bytes)
    }

    /// A copy of a part of the bytes.
    #[track_caller]
    pub(crate) fn part(&self, offset_bytes: usize, len_bytes: usize) -> Vec<u8> {
        let end = offset_bytes.checked_add(len_bytes);
        assert!(end.is_some_and(|end| end <= self.len_bytes + GUARD_BYTES), "a part of the memory");
        let mut bytes = vec![0; len_bytes];
        // SAFETY: the memory was leaked, and has at least this length with its guard. A provider may write
        // to it at the same time, by whatever means, as a peer of a region may: the copy goes through a
        // pointer, and no reference to the memory exists.
        unsafe { self.address.add(offset_bytes).copy_to(bytes.as_mut_ptr(), len_bytes) };
        bytes
    }

    /// Copies bytes into the memory.
    pub(crate) fn write(&self, offset_bytes: usize, bytes: &[u8]) {
        assert!(offset_bytes + bytes.len() <= self.len_bytes, "a part of the memory");
        // SAFETY: as for `part`.
        unsafe { self.address.add(offset_bytes).copy_from(bytes.as_ptr(), bytes.len()) };
    }

    /// Panics if memory behind the piece was written to.
    #[track_caller]
    pub(crate) fn check_guard(&self) {
        let guard = self.part(self.len_bytes, GUARD_BYTES);
        assert_eq!(guard, marked_buffer(GUARD_BYTES), "memory beyond the room was written to");
    }
}

/// Returns leaked copies of these pieces.
pub(super) fn leak_segments(pieces: &[Bytes]) -> Vec<Segment> {
    let leak = |bytes| {
        let Piece { address, len_bytes } = Piece::copy_of(bytes);
        Segment { address, len_bytes }
    };
    pieces.iter().map(leak).collect()
}

/// A region of raw memory in two segments. A guard follows each segment, and must remain unchanged.
#[derive(Debug)]
pub struct RawRegion {
    // Dropped before the memory.
    region: MemoryRegion,
    memory: RawMemory,
}

/// The memory of a [`RawRegion`], which other regions may share.
#[derive(Debug, Clone)]
pub struct RawMemory(Arc<[Guarded; 2]>);

/// Memory that is freed after its regions were closed.
#[derive(Debug)]
struct Guarded(Piece);

impl Drop for Guarded {
    fn drop(&mut self) {
        let Piece { address, len_bytes } = self.0;
        // SAFETY: the piece was allocated as a box of this length. Each region of the memory was dropped
        // before.
        drop(unsafe { Box::from_raw(ptr::slice_from_raw_parts_mut(address, len_bytes + GUARD_BYTES)) });
    }
}

impl RawRegion {
    /// Allocates and registers memory of this length.
    pub fn allocate(domain: &Domain, len_bytes: usize, attr: &MrAttr) -> Result<RawRegion, Error> {
        let lens_bytes = [len_bytes / 3, len_bytes - len_bytes / 3];
        RawRegion::register(
            RawMemory(Arc::new(lens_bytes.map(|len_bytes| Guarded(Piece::allocate(len_bytes))))),
            domain,
            attr,
        )
    }

    /// Registers the same memory again, in another domain, or with another key.
    pub fn register_again(&self, domain: &Domain, attr: &MrAttr) -> Result<RawRegion, Error> {
        RawRegion::register(self.memory.clone(), domain, attr)
    }

    fn register(memory: RawMemory, domain: &Domain, attr: &MrAttr) -> Result<RawRegion, Error> {
        let segments = memory.0.each_ref().map(|guarded| guarded.0.segment());
        // SAFETY: the memory is initialised, and freed only after the region was dropped. Nothing reads it
        // before: see `content`.
        let region = unsafe { domain.register_raw(&segments, attr)? };
        Ok(RawRegion { region, memory })
    }

    /// Returns the first address of the memory.
    pub fn memory_address(&self) -> u64 {
        self.memory.0[0].0.address as u64
    }

    /// Closes the region, and returns its memory.
    pub fn close(self) -> RawMemory {
        self.memory
    }
}

impl Deref for RawRegion {
    type Target = MemoryRegion;

    fn deref(&self) -> &MemoryRegion {
        &self.region
    }
}

impl RawMemory {
    /// Returns the content of the memory. The caller has closed all regions of it. Panics if memory beyond
    /// a segment was written.
    #[track_caller]
    pub fn content(&self) -> Vec<u8> {
        self.0.iter().for_each(|guarded| guarded.0.check_guard());
        self.0.iter().flat_map(|guarded| guarded.0.bytes()).collect()
    }
}

/// Maps a file, and registers the mapping in two segments as persistent memory. Never unmaps the file.
pub fn map_and_register(
    domain: &Domain,
    file: &File,
    len_bytes: usize,
    attr: &MrAttr,
) -> Result<MemoryRegion, Error> {
    let flags = attr.flags | MrFlags::RMA_PMEM;
    // SAFETY: the system chooses an unused address.
    let mapped = unsafe {
        mmap(ptr::null_mut(), len_bytes, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, file, 0)
    };
    let first: *mut u8 = mapped.expect("a file can be mapped").cast();
    let second = first.wrapping_add(len_bytes / 3);
    let segments = [
        SegmentMut { address: first, len_bytes: len_bytes / 3 },
        SegmentMut { address: second, len_bytes: len_bytes - len_bytes / 3 },
    ];
    // SAFETY: the memory is a mapping of a file. The mapping is never removed, and nothing else accesses the
    // memory.
    unsafe { domain.register_raw(&segments, &MrAttr { flags, ..*attr }) }
}

/// Registers leaked memory.
pub fn leak_and_register(
    domain: &Domain,
    memory: &'static mut [u8],
    attr: &MrAttr,
) -> Result<MemoryRegion, Error> {
    let segment = SegmentMut { address: memory.as_mut_ptr(), len_bytes: memory.len() };
    // SAFETY: the memory is initialised and never freed. The only reference to it was given up.
    unsafe { domain.register_raw(&[segment], attr) }
}

/// Sends from leaked memory.
pub fn send_from_raw_memory(endpoint: &Endpoint, pieces: &[Bytes], post: Post) -> Result<(), Error> {
    let buffers = &leak_segments(pieces)[..];
    let Post { peer: to, tag, data, context, flags } = post;
    let flags = flags.unwrap_or(endpoint.tx_op_flags());
    // SAFETY: the memory is never freed, and nothing else refers to it. So the memory stays readable
    // and unchanged.
    unsafe { endpoint.post_send(&SendMsg { buffers, to, tag: tag.map(Tag), data, context, flags }) }
}

/// The memory of a posted receive, or of the results of an atomic operation.
#[derive(Debug)]
pub struct RawBuffer {
    pub(super) pieces: Vec<Piece>,
    pub(super) context: u64,
    /// Whether memory beyond the message stays as it was. Another provider may use the whole buffer.
    pub(super) keeps_rest: bool,
}

impl RawBuffer {
    /// Leaks pieces of these lengths, for an operation with this context.
    fn leak(lens_bytes: &[usize], context: u64) -> (RawBuffer, Vec<SegmentMut>) {
        let pieces: Vec<_> = lens_bytes.iter().copied().map(Piece::allocate).collect();
        let segments = pieces.iter().map(Piece::segment).collect();
        (RawBuffer { pieces, context, keeps_rest: true }, segments)
    }

    /// Posts a receive into pieces of these lengths. No other operation of the endpoint may have the same
    /// context.
    pub fn post_receive(
        endpoint: &Endpoint,
        lens_bytes: &[usize],
        ignore: u64,
        post: Post,
    ) -> Result<RawBuffer, Error> {
        let Post { peer: from, tag, context, flags, .. } = post;
        let (buffer, segments) = RawBuffer::leak(lens_bytes, context);
        let (buffers, tagged) = (&segments[..], tag.map(|tag| Tag(tag).ignoring(ignore)));
        let flags = flags.unwrap_or(endpoint.rx_op_flags());
        // SAFETY: the memory is initialised and never freed. Nothing refers to it.
        unsafe { endpoint.post_receive(&RecvMsg { buffers, from, tagged, context, flags })? };
        Ok(buffer)
    }

    /// As [`post_receive`](Self::post_receive), but posts to a shared receive context, with
    /// [`OpFlags::COMPLETION`].
    pub fn post_shared_receive(
        shared: &SharedReceiveContext,
        lens_bytes: &[usize],
        post: Post,
    ) -> Result<RawBuffer, Error> {
        let Post { peer: from, tag, context, .. } = post;
        let (buffer, segments) = RawBuffer::leak(lens_bytes, context);
        let (buffers, tagged) = (&segments[..], tag.map(|tag| Tag(tag).ignoring(0)));
        // SAFETY: as in `post_receive`.
        unsafe {
            let flags = OpFlags::COMPLETION;
            shared.post_receive(&RecvMsg { buffers, from, tagged, context, flags })?;
        }
        Ok(buffer)
    }

    /// The pieces of the memory.
    pub fn pieces(&self) -> &[Piece] {
        &self.pieces
    }

    /// Posts an atomic operation whose operands are in leaked memory. If it fetches, its results go to
    /// leaked memory, too.
    pub fn post_atomic(endpoint: &Endpoint, call: &AtomicCall) -> Result<Option<RawBuffer>, Error> {
        let AtomicCall { kind, operands, compares, results_bytes, target, context, flags, .. } = call;
        let (operands, compares) = (&leak_segments(operands)[..], &leak_segments(compares)[..]);
        let (buffer, results) = RawBuffer::leak(results_bytes, *context);
        let (results, target, context, flags) = (&results[..], *target, *context, *flags);
        // SAFETY: the memory is initialised and never freed. Nothing else refers to it.
        unsafe {
            match kind {
                AtomicKind::Base => {
                    endpoint.post_atomic(&AtomicMsg { operands, target, context, flags })?;
                    return Ok(None);
                }
                AtomicKind::Fetch => {
                    let atomic = FetchAtomicMsg { operands, results, target, context, flags };
                    endpoint.post_fetch_atomic(&atomic)?;
                }
                AtomicKind::Compare => {
                    let atomic = CompareAtomicMsg { operands, compares, results, target, context, flags };
                    endpoint.post_compare_atomic(&atomic)?;
                }
            }
        }
        Ok(Some(buffer))
    }

    /// Returns a message in a multi-receive buffer. The caller has read the completion of the message.
    /// Panics if the message is not inside the buffer.
    #[track_caller]
    pub fn message_at(&self, place: SegmentMut) -> Vec<u8> {
        let [piece] = self.pieces[..] else { panic!("a multi-receive buffer has one piece") };
        let offset = place.address.addr().wrapping_sub(piece.address.addr());
        let is_inside = offset.checked_add(place.len_bytes).is_some_and(|end| end <= piece.len_bytes);
        assert!(is_inside, "{place:?} is not in {piece:?}");
        piece.part(offset, place.len_bytes)
    }

    /// Returns the whole memory with its guards. Call it after the endpoint was closed.
    pub fn memory_after_close(&self) -> Vec<u8> {
        self.pieces.iter().flat_map(|piece| piece.part(0, piece.len_bytes + GUARD_BYTES)).collect()
    }

    /// Returns the received bytes. The caller has read the completion, with this context and length. Panics
    /// if memory beyond the buffer was written.
    #[track_caller]
    pub fn message(&self, context: u64, len_bytes: usize) -> Vec<u8> {
        assert_eq!(context, self.context, "the completion of another operation");
        self.pieces.iter().for_each(Piece::check_guard);
        let mut message: Vec<u8> = self.pieces.iter().flat_map(Piece::bytes).collect();
        assert!(len_bytes <= message.len(), "a completion tells of {len_bytes} bytes in {}", message.len());
        let beyond = message.split_off(len_bytes);
        let is_unchanged = beyond == marked_buffer(beyond.len());
        assert!(is_unchanged || !self.keeps_rest, "memory beyond the message was written to: {beyond:?}");
        message
    }
}
