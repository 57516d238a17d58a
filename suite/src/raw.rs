//! Operations on raw memory. Most of it is never freed, which makes them safe for tests.

use std::fs::File;
use std::ops::Deref;
use std::ptr;
use std::sync::Arc;

use homespun::atomic::AtomicKind;
use homespun::endpoint::{AtomicMsg, CompareAtomicMsg, FetchAtomicMsg, RecvMsg, SendMsg, WriteMsg};
use homespun::flags::{MrFlags, OpFlags};
use homespun::{
    Bytes, Domain, Endpoint, Error, FabricAddress, MemoryRegion, MrAttr, RemoteMemory, Segment, SegmentMut,
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
    #[serde(with = "form::optional_flags")]
    pub flags: Option<OpFlags>,
}

/// Returns leaked copies of these pieces.
fn leak_copies(pieces: &[Bytes]) -> Vec<Segment> {
    let leak = |piece: &Bytes| {
        let memory: &'static [u8] = Box::leak(piece.to_vec().into_boxed_slice());
        Segment { address: memory.as_ptr(), len_bytes: memory.len() }
    };
    pieces.iter().map(leak).collect()
}

/// Writes to a region, by its address and key, from leaked memory.
pub fn write_raw(
    endpoint: &Endpoint,
    pieces: &[Bytes],
    to: FabricAddress,
    (address, key): (u64, u64),
    data: Option<u64>,
    context: u64,
    flags: OpFlags,
) -> Result<(), Error> {
    let buffers = &leak_copies(pieces)[..];
    // SAFETY: the memory is never freed, and nothing else refers to it. So the memory stays readable
    // and unchanged.
    unsafe {
        endpoint.post_write(&WriteMsg {
            buffers,
            to,
            memory: RemoteMemory { address, key },
            data,
            context,
            flags,
        })
    }
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

/// Memory with a guard behind it.
#[derive(Debug)]
struct Guarded(SegmentMut);

impl Guarded {
    fn allocate(len_bytes: usize) -> Guarded {
        let memory = Box::into_raw(marked_buffer(len_bytes + GUARD_BYTES).to_vec().into_boxed_slice());
        Guarded(SegmentMut { address: memory.cast(), len_bytes })
    }

    fn slice(&self) -> *mut [u8] {
        ptr::slice_from_raw_parts_mut(self.0.address, self.0.len_bytes + GUARD_BYTES)
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        // SAFETY: `allocate` has allocated it. Each region of the memory was dropped before.
        drop(unsafe { Box::from_raw(self.slice()) });
    }
}

impl RawRegion {
    /// Allocates and registers memory of this length.
    pub fn allocate(domain: &Domain, len_bytes: usize, attr: &MrAttr) -> Result<RawRegion, Error> {
        let lens_bytes = [len_bytes / 3, len_bytes - len_bytes / 3];
        RawRegion::register(RawMemory(Arc::new(lens_bytes.map(Guarded::allocate))), domain, attr)
    }

    /// Registers the same memory again, in another domain, or with another key.
    pub fn register_again(&self, domain: &Domain, attr: &MrAttr) -> Result<RawRegion, Error> {
        RawRegion::register(self.memory.clone(), domain, attr)
    }

    fn register(memory: RawMemory, domain: &Domain, attr: &MrAttr) -> Result<RawRegion, Error> {
        let segments = memory.0.each_ref().map(|guarded| guarded.0);
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
        let mut content = Vec::new();
        for guarded in &*self.0 {
            // SAFETY: the regions were closed, so nothing writes to the memory any more.
            let memory = unsafe { &*guarded.slice() };
            let (inside, guard) = memory.split_at(guarded.0.len_bytes);
            assert_eq!(guard, &marked_buffer(GUARD_BYTES)[..], "memory beyond the region was written to");
            content.extend_from_slice(inside);
        }
        content
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
    let buffers = &leak_copies(pieces)[..];
    let Post { peer: to, tag, data, context, flags } = post;
    let flags = flags.unwrap_or(endpoint.tx_op_flags());
    // SAFETY: the memory is never freed, and nothing else refers to it. So the memory stays readable
    // and unchanged.
    unsafe { endpoint.post_send(&SendMsg { buffers, to, tag: tag.map(Tag), data, context, flags }) }
}

/// Returns leaked pieces of these lengths, each with [`GUARD_BYTES`] behind it.
fn leak_marked_pieces(lens_bytes: &[usize]) -> Vec<SegmentMut> {
    let leak = |&len_bytes: &usize| {
        let memory = Box::leak(marked_buffer(len_bytes + GUARD_BYTES).to_vec().into_boxed_slice());
        SegmentMut { address: memory.as_mut_ptr(), len_bytes }
    };
    lens_bytes.iter().map(leak).collect()
}

/// The memory of a posted receive, or of the results of an atomic operation.
#[derive(Debug)]
pub struct RawBuffer {
    /// The pieces, each with [`GUARD_BYTES`] behind it.
    pieces: Vec<SegmentMut>,
    context: u64,
}

impl RawBuffer {
    /// Posts a receive into pieces of these lengths. No other operation of the endpoint may have the same
    /// context.
    pub fn post_receive(
        endpoint: &Endpoint,
        lens_bytes: &[usize],
        ignore: u64,
        post: Post,
    ) -> Result<RawBuffer, Error> {
        let pieces = leak_marked_pieces(lens_bytes);
        let Post { peer: from, tag, context, flags, .. } = post;
        let (buffers, tagged) = (&pieces[..], tag.map(|tag| Tag(tag).ignoring(ignore)));
        let flags = flags.unwrap_or(endpoint.rx_op_flags());
        // SAFETY: the memory is initialised and never freed. Nothing reads it before the completion was
        // read: see `into_message`.
        unsafe { endpoint.post_receive(&RecvMsg { buffers, from, tagged, context, flags })? };
        Ok(RawBuffer { pieces, context })
    }

    /// As [`post_receive`](Self::post_receive), but posts to a shared receive context, by default with
    /// [`OpFlags::COMPLETION`].
    pub fn post_shared_receive(
        shared: &SharedReceiveContext,
        lens_bytes: &[usize],
        post: Post,
    ) -> Result<RawBuffer, Error> {
        let pieces = leak_marked_pieces(lens_bytes);
        let Post { peer: from, tag, context, flags, .. } = post;
        let (buffers, tagged) = (&pieces[..], tag.map(|tag| Tag(tag).ignoring(0)));
        let flags = flags.unwrap_or(OpFlags::COMPLETION);
        // SAFETY: as in `post_receive`.
        unsafe { shared.post_receive(&RecvMsg { buffers, from, tagged, context, flags })? };
        Ok(RawBuffer { pieces, context })
    }

    /// The pieces of the memory.
    pub fn pieces(&self) -> &[SegmentMut] {
        &self.pieces
    }

    /// Posts an atomic operation whose operands are in leaked memory. If it fetches, its results go to
    /// leaked memory, too.
    pub fn post_atomic(endpoint: &Endpoint, call: &AtomicCall) -> Result<Option<RawBuffer>, Error> {
        let AtomicCall { kind, operands, compares, results_bytes, target, context, flags, .. } = call;
        let (operands, compares) = (&leak_copies(operands)[..], &leak_copies(compares)[..]);
        let pieces = leak_marked_pieces(results_bytes);
        let (results, target, context, flags) = (&pieces[..], *target, *context, *flags);
        // SAFETY: the memory is initialised and never freed. Nothing else refers to the operands. Nothing
        // reads the results before the completion was read: see `into_message`.
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
        Ok(Some(RawBuffer { pieces, context }))
    }

    /// Returns a message in a multi-receive buffer. The caller has read the completion of the message.
    /// Panics if the message is not inside the buffer.
    #[track_caller]
    pub fn message_at(&self, place: SegmentMut) -> Vec<u8> {
        let [piece] = self.pieces[..] else { panic!("a multi-receive buffer has one piece") };
        let offset = place.address.addr().wrapping_sub(piece.address.addr());
        let is_inside = offset.checked_add(place.len_bytes).is_some_and(|end| end <= piece.len_bytes);
        assert!(is_inside, "{place:?} is not in {piece:?}");
        // SAFETY: the bytes lie in the piece, which `post_receive` has leaked. The caller has read the
        // completion of the message, and no other message uses these bytes.
        unsafe { std::slice::from_raw_parts(piece.address.add(offset), place.len_bytes) }.to_vec()
    }

    /// Returns the whole memory. Call it after the endpoint was closed.
    pub fn memory_after_close(&self) -> Vec<u8> {
        let whole = self.pieces.iter().map(|piece| {
            // SAFETY: the piece and its guard are one allocation, which `post_receive` has leaked. The
            // caller has closed the endpoint, so nothing writes to the memory any more.
            unsafe { std::slice::from_raw_parts(piece.address, piece.len_bytes + GUARD_BYTES) }
        });
        whole.collect::<Vec<_>>().concat()
    }

    /// Returns the received bytes. The caller has read the completion, with this context and length. Panics
    /// if memory beyond the buffer was written.
    #[track_caller]
    pub fn into_message(self, context: u64, len_bytes: usize) -> Vec<u8> {
        assert_eq!(context, self.context, "the completion of another operation");
        let mut message = Vec::new();
        for piece in self.pieces {
            // SAFETY: the piece and its guard are one allocation that was leaked when the operation was
            // posted. The caller has the completion with the operation's context. So the operation has
            // ended, and nothing writes to the memory any more.
            let memory = unsafe { std::slice::from_raw_parts(piece.address, piece.len_bytes + GUARD_BYTES) };
            let (inside, guard) = memory.split_at(piece.len_bytes);
            assert_eq!(guard, &marked_buffer(GUARD_BYTES)[..], "memory beyond the room was written to");
            message.extend_from_slice(inside);
        }
        let beyond = message.split_off(len_bytes);
        assert_eq!(beyond, marked_buffer(beyond.len()), "memory beyond the message was written to");
        message
    }
}
