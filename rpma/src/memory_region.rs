//! Memory regions of this process: memory of the application, registered for operations.

use homespun::flags::{MrAccess, MrFlags};
use homespun::{MrAttr, Segment, SegmentMut};

use crate::error::{Error, Invalid};
use crate::peer::Peer;
use crate::remote_region::RemoteMemoryRegion;
use crate::usage::Usage;

/// Memory of the application, registered for operations and for accesses of peers: `rpma_mr_reg(3)`.
///
/// Peers learn of the region by its [descriptor](Self::descriptor). Operations of this side take a
/// [slice](Self::slice) of it. Dropping the region deregisters it (`rpma_mr_dereg(3)`): from then on no
/// access of a peer touches the memory. Receives into the memory that no message has taken end with
/// [`Status::Flushed`](crate::Status::Flushed), unless all memory of the receive is in other regions with
/// [`Usage::RECV`].
///
/// ```
/// use homespun_rpma::{MemoryRegion, Peer, RemoteMemoryRegion, Usage};
///
/// let peer = Peer::new()?;
/// let mut memory = vec![0; 4096];
/// // SAFETY: the vector outlives the region, and nothing else uses its bytes meanwhile.
/// let region = unsafe { MemoryRegion::register(&peer, memory.as_mut_ptr(), 4096, Usage::WRITE_DST)? };
///
/// // What a peer makes of it.
/// let remote = RemoteMemoryRegion::from_descriptor(&region.descriptor())?;
/// assert_eq!(remote.size_bytes(), 4096);
/// assert_eq!(region.descriptor()[..8], (region.as_ptr().addr() as u64).to_le_bytes());
/// # drop(region);
/// # Ok::<(), homespun_rpma::Error>(())
/// ```
#[derive(Debug)]
pub struct MemoryRegion {
    peer: Peer,
    region: homespun::MemoryRegion,
    usage: Usage,
    /// The usage that operations of this side have.
    local_usage: Usage,
}

/// A part of a [`MemoryRegion`] that an operation reads or fills.
#[derive(Debug, Clone, Copy)]
pub struct LocalSlice<'a> {
    region: Option<&'a MemoryRegion>,
    offset_bytes: usize,
    len_bytes: usize,
}

impl MemoryRegion {
    /// Registers `size_bytes` of memory from `address` on.
    ///
    /// With [`Usage::FLUSH_TYPE_PERSISTENT`] the memory must be a shared mapping of a file. A persistent
    /// flush then calls `msync(2)`, or writes back the processor's cache lines if the file is mapped with
    /// `MAP_SYNC` or is a memory device.
    ///
    /// # Errors
    ///
    /// - [`Invalid::NullRegion`], [`Invalid::EmptyRegion`], [`Invalid::NoUsage`].
    /// - [`Error::Fabric`] for persistent memory that is not a shared mapping of a file.
    ///
    /// # Safety
    ///
    /// The memory must be initialised and readable from any thread, and with [`Usage::READ_DST`],
    /// [`Usage::WRITE_DST`] or [`Usage::RECV`] writable, until the region is dropped and every operation on a
    /// [slice](Self::slice) of it has ended. An operation has ended when the application has read its
    /// completion, or has dropped the connection or its request. A send or an access that reports no success
    /// has also ended when the completion of a later one of its connection was read. A receive of a shared
    /// receive queue ends with its completion, or when the queue and all connections with it are dropped.
    ///
    /// Until the region is dropped, Rust references to memory with [`Usage::READ_SRC`] or
    /// [`Usage::WRITE_DST`] must be references to atomics or cells. While an operation reads a slice, nothing
    /// may write to it; while an operation fills a slice, nothing else may access it. Peers are part of this:
    /// a slice that peers may write to must not be read by an operation while they do. The mapping of
    /// persistent memory must not change until the region is dropped.
    pub unsafe fn register(
        peer: &Peer,
        address: *mut u8,
        size_bytes: usize,
        usage: Usage,
    ) -> Result<MemoryRegion, Error> {
        if address.is_null() {
            return Err(Invalid::NullRegion.into());
        }
        if size_bytes == 0 {
            return Err(Invalid::EmptyRegion.into());
        }
        if usage.is_empty() {
            return Err(Invalid::NoUsage.into());
        }
        let mut access = MrAccess::empty();
        access.set(MrAccess::REMOTE_READ, usage.contains(Usage::READ_SRC));
        access.set(MrAccess::REMOTE_WRITE, usage.contains(Usage::WRITE_DST));
        let mut flags = MrFlags::empty();
        flags.set(MrFlags::RMA_PMEM, usage.contains(Usage::FLUSH_TYPE_PERSISTENT));
        let attr = MrAttr { access, flags, ..MrAttr::default() };
        let segment = SegmentMut { address, len_bytes: size_bytes };
        // SAFETY: the caller promises what `register_raw` requires, until the region is dropped.
        let region = unsafe { peer.domain().register_raw(&[segment], &attr)? };
        if usage.contains(Usage::RECV) {
            peer.receive_regions().add(segment);
        }
        Ok(MemoryRegion { peer: peer.clone(), region, usage, local_usage: usage })
    }

    /// Lets operations of this side use the region in further ways. RDMA hardware does not tell the ways
    /// apart: it sends from every region, and receives into every region that it may write to. Peers do not
    /// learn of it, and [`usage`](Self::usage) stays.
    ///
    /// # Safety
    ///
    /// The memory fulfils what [`register`](Self::register) asks for with this usage.
    pub unsafe fn allow_local_usage(&mut self, usage: Usage) {
        if usage.contains(Usage::RECV) && !self.local_usage.contains(Usage::RECV) {
            self.peer.receive_regions().add(self.memory());
        }
        self.local_usage |= usage;
    }

    fn memory(&self) -> SegmentMut {
        SegmentMut { address: self.as_ptr(), len_bytes: self.size_bytes() }
    }

    /// Returns the bytes by which a peer learns of the region: `rpma_mr_get_descriptor(3)`.
    /// [`RemoteMemoryRegion`] has their layout.
    pub fn descriptor(&self) -> [u8; RemoteMemoryRegion::DESCRIPTOR_BYTES] {
        self.as_remote().descriptor()
    }

    /// Returns the region as a peer sees it.
    pub fn as_remote(&self) -> RemoteMemoryRegion {
        let key = u32::try_from(self.region.key()).expect("the domain of a peer has keys of 4 bytes");
        RemoteMemoryRegion::new(self.region.address(), self.size_bytes() as u64, key, self.usage)
    }

    /// Returns the address of the first byte: `rpma_mr_get_ptr(3)`.
    pub fn as_ptr(&self) -> *mut u8 {
        self.region.as_ptr()
    }

    /// Returns the length in bytes: `rpma_mr_get_size(3)`.
    pub fn size_bytes(&self) -> usize {
        self.region.len_bytes()
    }

    /// Returns what the region may be used for.
    pub fn usage(&self) -> Usage {
        self.usage
    }

    /// Returns `len_bytes` of the region from `offset_bytes` on, for an operation.
    ///
    /// # Errors
    ///
    /// [`Invalid::LocalRange`] if the region ends before the slice does.
    pub fn slice(&self, offset_bytes: usize, len_bytes: usize) -> Result<LocalSlice<'_>, Invalid> {
        let region_bytes = self.size_bytes();
        match offset_bytes.checked_add(len_bytes) {
            Some(end) if end <= region_bytes => {
                Ok(LocalSlice { region: Some(self), offset_bytes, len_bytes })
            }
            _ => Err(Invalid::LocalRange { offset_bytes, len_bytes, region_bytes }),
        }
    }

    /// Returns the whole region, for an operation.
    pub fn as_slice(&self) -> LocalSlice<'_> {
        LocalSlice { region: Some(self), offset_bytes: 0, len_bytes: self.size_bytes() }
    }
}

impl Drop for MemoryRegion {
    fn drop(&mut self) {
        if self.local_usage.contains(Usage::RECV) {
            self.peer.receive_regions().remove(self.memory(), self.peer.domain());
        }
    }
}

impl LocalSlice<'_> {
    /// No memory: a message without bytes, a receive without room, or an access of no bytes.
    pub const EMPTY: LocalSlice<'static> = LocalSlice { region: None, offset_bytes: 0, len_bytes: 0 };

    /// Returns the length in bytes.
    pub fn len_bytes(&self) -> usize {
        self.len_bytes
    }

    /// Whether this is [`EMPTY`](Self::EMPTY), of no region.
    pub(crate) fn has_no_region(&self) -> bool {
        self.region.is_none()
    }

    /// Returns the memory that an operation with this usage reads.
    pub(crate) fn source(&self, usage: Usage) -> Result<Segment, Invalid> {
        let SegmentMut { address, len_bytes } = self.destination(usage)?;
        Ok(Segment { address, len_bytes })
    }

    /// Returns the memory that an operation with this usage fills.
    pub(crate) fn destination(&self, usage: Usage) -> Result<SegmentMut, Invalid> {
        let Some(region) = self.region else {
            return Ok(SegmentMut { address: std::ptr::null_mut(), len_bytes: 0 });
        };
        if !region.local_usage.contains(usage) {
            return Err(Invalid::LocalUsage { needed: usage });
        }
        Ok(SegmentMut { address: region.as_ptr().wrapping_add(self.offset_bytes), len_bytes: self.len_bytes })
    }
}
