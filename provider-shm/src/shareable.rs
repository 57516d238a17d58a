//! Shareable memory: a region of one process that peers map. Peers read and write mapped memory without that
//! process's help.
//!
//! The region is a sealed memory file. Only the owner, which has allocated the region, keeps a descriptor. A
//! peer opens the file through the owner's entry in `/proc`. A nonce at the start of the file shows that the
//! process id still belongs to the owner.
//!
//! ```text
//!  first page                 the following pages
//!  +-------+---------+- - -+---------------------+
//!  | nonce | retired |     | shared words        |
//!  +-------+---------+- - -+---------------------+
//!    8       4
//! ```
//!
//! The kernel frees the pages when no process maps them any more. So after the end of the region, a peer
//! that still maps the pages accesses valid memory.
//!
//! Peers also copy payload of messages from such memory: see [`peer_regions`](crate::peer_regions).
//!
//! A forked child does not inherit mappings of peers' memory. The child inherits mappings of memory that its
//! parent has allocated, since the application may read that memory. But the child does not end the region.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, OnceLock};

use homespun_engine::fork::ForkGeneration;
use homespun_engine::transport::{RemotePayload, SharedMemory};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Statx, StatxFlags, fcntl_get_seals, open, statx};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};
use rustix::process::{Resource, getrlimit};
use rustix::system::sysinfo;

use crate::exposed::RegionName;
use crate::limits::{PEER_MEMORY_HOST_MULTIPLE, PEER_MEMORY_MAX_BYTES};
use crate::memory_file::{self, SIZE_SEALS};
use crate::own_regions;
use crate::payload_copy::copy_payload;
use crate::write_back;

/// The offset of the shared words in the file.
const START_BYTES: usize = 4096;

/// The size of a region's description for peers: the owner's descriptor number, and the nonce.
const DESCRIPTION_BYTES: usize = size_of::<u32>() + size_of::<u64>();

#[repr(C)]
struct FirstPage {
    nonce: AtomicU64,
    /// Not 0 once the owner has ended the region.
    retired: AtomicU32,
}

const _: () = assert!(size_of::<FirstPage>() <= START_BYTES);

/// A mapping of the whole file.
#[derive(Debug)]
struct Mapping {
    start: NonNull<FirstPage>,
    /// The number of words that are shared.
    words: usize,
    generation: ForkGeneration,
    /// The address space of a mapping of a peer's memory.
    taken: Option<PeerAddressSpace>,
}

// SAFETY: the mapping belongs to the process, not to a thread, and all references into it are to atomics.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

/// Memory that this process has allocated: the file and its mapping.
#[derive(Debug)]
struct Allocation {
    mapping: Mapping,
    file: OwnedFd,
}

/// Allocates at least this many bytes, all zero.
pub(crate) fn allocate(len_bytes: usize) -> io::Result<Arc<dyn SharedMemory>> {
    let words = len_bytes.div_ceil(size_of::<u64>());
    let file_bytes = file_size_bytes(words).ok_or(io::ErrorKind::OutOfMemory)?;
    // The kernel overcommits: it would grant more memory than the host has, and later kill the process.
    if file_bytes as u64 > host_memory_bytes() {
        return Err(io::ErrorKind::OutOfMemory.into());
    }
    let file = memory_file::create_sealed("homespun-memory", file_bytes as u64)?;
    let mapping = Mapping::map_sealed(&file, words, false)?;
    let nonce = getrandom::u64().map_err(|error| {
        error.raw_os_error().map_or(io::ErrorKind::Other.into(), io::Error::from_raw_os_error)
    })?;
    mapping.first_page().nonce.store(nonce, Ordering::Relaxed);
    let allocation = Allocation { mapping, file };
    own_regions::add(allocation.name(), words * size_of::<u64>());
    Ok(Arc::new(allocation))
}

/// The size of the host's memory, with swap.
pub(crate) fn host_memory_bytes() -> u64 {
    static BYTES: LazyLock<u64> = LazyLock::new(|| {
        let host = sysinfo();
        u64::from(host.mem_unit).saturating_mul(host.totalram.saturating_add(host.totalswap))
    });
    *BYTES
}

/// A part of the address space that this process spends on memory of peers. A region may be as long as its
/// peer likes, since only the pages that are written take memory. But without address space, this process
/// could not even allocate.
#[derive(Debug)]
struct PeerAddressSpace {
    len_bytes: u64,
}

/// The length of all of these parts.
static PEER_MEMORY_BYTES: AtomicU64 = AtomicU64::new(0);

impl PeerAddressSpace {
    /// Returns `None` if a region of this length would exceed a limit.
    fn try_take(len_bytes: u64) -> Option<PeerAddressSpace> {
        let host_bytes = host_memory_bytes();
        let max_bytes = host_bytes.saturating_mul(PEER_MEMORY_HOST_MULTIPLE).min(PEER_MEMORY_MAX_BYTES);
        // The limit may change at any time.
        let process_bytes = getrlimit(Resource::As).current.unwrap_or(u64::MAX);
        let max_bytes = max_bytes.min(process_bytes / 2);
        let add = |sum: u64| sum.checked_add(len_bytes).filter(|sum| *sum <= max_bytes);
        let is_taken = len_bytes <= host_bytes
            && PEER_MEMORY_BYTES.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).is_ok();
        // Not `then_some`: the value would be made, and dropped, in any case.
        is_taken.then(|| PeerAddressSpace { len_bytes })
    }
}

impl Drop for PeerAddressSpace {
    fn drop(&mut self) {
        PEER_MEMORY_BYTES.fetch_sub(self.len_bytes, Ordering::Relaxed);
    }
}

/// Maps memory that the process `pid` has allocated. Returns `None` if the description is wrong or a system
/// call fails.
pub(crate) fn map(pid: i32, from: &RemotePayload, len_bytes: u64) -> Option<Arc<dyn SharedMemory>> {
    let (descriptor, nonce) = from.as_bytes().split_first_chunk()?;
    let nonce = u64::from_le_bytes(nonce.try_into().ok()?);
    let words = usize::try_from(len_bytes.div_ceil(size_of::<u64>() as u64)).ok()?;
    let expected_bytes = file_size_bytes(words)?;
    if words == 0 {
        return None;
    }
    let is_expected = |size_bytes| size_bytes == expected_bytes;
    let (file, _) = open_sealed(pid, u32::from_le_bytes(*descriptor), is_expected)?;
    let mapping = Mapping::map_sealed(&file, words, true).ok()?;
    let has_nonce = mapping.first_page().nonce.load(Ordering::Relaxed) == nonce;
    has_nonce.then(|| Arc::new(mapping) as Arc<dyn SharedMemory>)
}

/// Opens a memory file of the process `pid`, whose size must satisfy `is_expected`. Returns the file and its
/// size, which cannot change.
fn open_sealed(pid: i32, descriptor: u32, is_expected: impl Fn(usize) -> bool) -> Option<(OwnedFd, usize)> {
    if pid == 0 {
        return None;
    }
    let path = format!("/proc/{pid}/fd/{descriptor}");
    // Open with `O_PATH` first, and find out what the file is without asking its file system. The path may
    // lead to a device, which an open could change, or into a file system in user space, which need not
    // answer.
    let found = open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let status = cached_status(&found)?;
    let is_file = FileType::from_raw_mode(status.stx_mode.into()) == FileType::RegularFile;
    let size_bytes = usize::try_from(status.stx_size).ok().filter(|size| is_expected(*size))?;
    if !is_file || device_of(&status) != memory_file_device()? {
        return None;
    }
    let path = format!("/proc/self/fd/{}", found.as_raw_fd());
    // If the peer holds a lease on the file, the open fails instead of waiting until the lease ends.
    let file = open(path, OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty()).ok()?;
    // Check the seals before the size, which then cannot change any more.
    let is_sealed = fcntl_get_seals(&file).is_ok_and(|seals| seals.contains(SIZE_SEALS));
    let is_unchanged = cached_status(&file)?.stx_size == status.stx_size;
    (is_sealed && is_unchanged).then_some((file, size_bytes))
}

/// What the kernel knows of a file. Never waits for the file system. For a memory file, the answer is exact.
fn cached_status(file: &OwnedFd) -> Option<Statx> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let wanted = StatxFlags::TYPE | StatxFlags::SIZE;
    let status = statx(file, c"", flags, wanted).ok()?;
    StatxFlags::from_bits_retain(status.stx_mask).contains(wanted).then_some(status)
}

fn device_of(status: &Statx) -> (u32, u32) {
    (status.stx_dev_major, status.stx_dev_minor)
}

/// The device of all memory files with small pages. Pages of a file with huge pages may be missing, and then
/// an access fails.
fn memory_file_device() -> Option<(u32, u32)> {
    static DEVICE: OnceLock<(u32, u32)> = OnceLock::new();
    if let Some(device) = DEVICE.get() {
        return Some(*device);
    }
    let file = memory_file::create_sealed("homespun-device", 0).ok()?;
    let device = device_of(&cached_status(&file)?);
    Some(*DEVICE.get_or_init(|| device))
}

/// The size of the file for this many shared words.
fn file_size_bytes(words: usize) -> Option<usize> {
    let bytes = words.checked_mul(size_of::<u64>())?.checked_add(START_BYTES)?;
    isize::try_from(bytes).is_ok().then_some(bytes)
}

impl Mapping {
    /// Maps a sealed file of the size for this many words.
    ///
    /// # Errors
    ///
    /// The system's error. Also ENOMEM if memory of peers would take too much address space.
    fn map_sealed(file: &OwnedFd, words: usize, belongs_to_peer: bool) -> io::Result<Mapping> {
        let len_bytes = file_size_bytes(words).ok_or(io::ErrorKind::OutOfMemory)?;
        let taken = if belongs_to_peer {
            Some(PeerAddressSpace::try_take(len_bytes as u64).ok_or(io::ErrorKind::OutOfMemory)?)
        } else {
            None
        };
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel picks the address, so no other memory is affected.
        let start = unsafe { mmap(ptr::null_mut(), len_bytes, protection, MapFlags::SHARED, file, 0)? };
        let first_page = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        let mapping = Mapping { start: first_page, words, generation: ForkGeneration::current(), taken };
        if belongs_to_peer {
            // SAFETY: this is the new mapping. A forked child does not inherit it and never accesses it:
            // `words`, `is_retired` and `drop` check for that.
            unsafe { madvise(start, len_bytes, Advice::LinuxDontFork)? };
        }
        Ok(mapping)
    }

    /// Whether the mapping is of a peer's memory. A forked child does not inherit such a mapping.
    fn belongs_to_peer(&self) -> bool {
        self.taken.is_some()
    }

    fn first_page(&self) -> &FirstPage {
        // SAFETY: the mapping lives as long as `self`, starts at a page, is longer than a page, and the seals
        // keep its length. The page holds only atomics, for which all bit patterns are valid. In a forked
        // child that has not inherited the mapping, the callers return before this call.
        unsafe { self.start.as_ref() }
    }
}

impl SharedMemory for Mapping {
    fn words(&self) -> &[AtomicU64] {
        // A forked child may have another mapping at this address.
        if self.belongs_to_peer() && self.generation.is_in_forked_child() {
            return &[];
        }
        // SAFETY: as in `first_page`. `self.words` words follow the first page, whose end is aligned for
        // them.
        unsafe {
            let start = self.start.cast::<u8>().add(START_BYTES).cast::<AtomicU64>();
            slice::from_raw_parts(start.as_ptr(), self.words)
        }
    }

    /// This process does not pass on descriptions of its peers' memory.
    fn describe(&self) -> Option<RemotePayload> {
        None
    }

    fn retire(&self) {
        // A forked child must not end a region that its parent has allocated.
        if self.generation.is_in_forked_child() {
            return;
        }
        self.first_page().retired.store(1, Ordering::Release);
    }

    fn is_retired(&self) -> bool {
        self.generation.is_in_forked_child() || self.first_page().retired.load(Ordering::Acquire) != 0
    }
}

impl Allocation {
    fn name(&self) -> RegionName {
        RegionName {
            // A descriptor is not negative.
            descriptor: self.file.as_raw_fd().cast_unsigned(),
            nonce: self.mapping.first_page().nonce.load(Ordering::Relaxed),
            address: self.mapping.words().as_ptr() as u64,
        }
    }

    /// Stops describing the region to peers. In a forked child, nothing describes it.
    fn hide(&self) {
        if !self.mapping.generation.is_in_forked_child() {
            own_regions::remove(&self.name());
        }
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        self.hide();
    }
}

impl SharedMemory for Allocation {
    fn words(&self) -> &[AtomicU64] {
        self.mapping.words()
    }

    fn describe(&self) -> Option<RemotePayload> {
        let mut bytes = [0; DESCRIPTION_BYTES];
        let (descriptor, nonce) = bytes.split_at_mut(size_of::<u32>());
        descriptor.copy_from_slice(&self.file.as_fd().as_raw_fd().to_le_bytes());
        nonce.copy_from_slice(&self.name().nonce.to_le_bytes());
        RemotePayload::new(&bytes)
    }

    fn retire(&self) {
        self.hide();
        self.mapping.retire();
    }

    fn is_retired(&self) -> bool {
        self.mapping.is_retired()
    }
}

/// A region of a peer that this process only reads. The mapping is writable all the same: on some processors,
/// lines of a read-only page are written back without effect.
#[derive(Debug)]
pub(crate) struct PeerMapping(Mapping);

impl PeerMapping {
    /// Maps a region of at most `max_bytes` that the process `pid` has allocated. Returns `None` if the name
    /// is wrong, if the region has ended, or if a system call fails.
    pub(crate) fn map(pid: i32, name: &RegionName, max_bytes: u64) -> Option<PeerMapping> {
        let is_expected = |size_bytes: usize| {
            let words_bytes = size_bytes.saturating_sub(START_BYTES);
            words_bytes > 0 && words_bytes.is_multiple_of(size_of::<u64>()) && size_bytes as u64 <= max_bytes
        };
        let (file, size_bytes) = open_sealed(pid, name.descriptor, is_expected)?;
        let words = (size_bytes - START_BYTES) / size_of::<u64>();
        let mapping = Mapping::map_sealed(&file, words, true).ok()?;
        let has_nonce = mapping.first_page().nonce.load(Ordering::Relaxed) == name.nonce;
        (has_nonce && !mapping.is_retired()).then_some(PeerMapping(mapping))
    }

    /// Whether the peer has ended the region.
    pub(crate) fn is_retired(&self) -> bool {
        self.0.is_retired()
    }

    /// The length of the region.
    pub(crate) fn len_bytes(&self) -> u64 {
        (self.0.words * size_of::<u64>()) as u64
    }

    /// Fills `into` from the region, from `offset_bytes` on. With `writes_back`, also writes the copied lines
    /// of the region back to memory, if the processor can do this.
    ///
    /// Copies nothing and returns false if the range exceeds the region, or in a forked child.
    pub(crate) fn read(&self, offset_bytes: u64, into: &mut [u8], writes_back: bool) -> bool {
        let is_within =
            offset_bytes.checked_add(into.len() as u64).is_some_and(|end| end <= self.len_bytes());
        if !is_within || self.0.generation.is_in_forked_child() {
            return false;
        }
        let writes_back = writes_back && write_back::can_write_back();
        let block_bytes = if writes_back { write_back::BLOCK_BYTES } else { into.len().max(1) };
        // SAFETY: the mapping is longer than this offset.
        let mut from = unsafe { self.0.start.cast::<u8>().as_ptr().add(START_BYTES + offset_bytes as usize) };
        for block in into.chunks_mut(block_bytes) {
            // SAFETY: the range is within the mapping, as checked above, and the seals keep the file from
            // shrinking. `into` is borrowed exclusively, so it is no part of the mapping. The peer's
            // application leaves exposed payload unchanged. Only a faulty peer, or a peer that ends the link,
            // writes to it during the copy. Then `into` holds arbitrary bytes, which are valid.
            unsafe {
                copy_payload(from, block.as_mut_ptr(), block.len());
                if writes_back {
                    write_back::write_back(from, block.len());
                }
                from = from.add(block.len());
            }
        }
        true
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // A forked child may have another mapping at this address.
        if self.belongs_to_peer() && self.generation.is_in_forked_child() {
            return;
        }
        let len_bytes = file_size_bytes(self.words).unwrap_or_default();
        // SAFETY: this is the whole mapping that `map_sealed` has made, and no reference outlives `self`. A
        // forked child either has inherited this mapping or has returned above.
        let unmapped = unsafe { munmap(self.start.as_ptr().cast(), len_bytes) };
        debug_assert!(unmapped.is_ok(), "{unmapped:?}");
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::process;

    use rustix::fs::{MemfdFlags, fcntl_add_seals, ftruncate, memfd_create};

    use super::*;

    fn own_pid() -> i32 {
        i32::try_from(process::id()).unwrap()
    }

    fn make_description(file: &OwnedFd, nonce: u64) -> RemotePayload {
        RemotePayload::new(&[&file.as_raw_fd().to_le_bytes()[..], &nonce.to_le_bytes()].concat()).unwrap()
    }

    #[test]
    fn mapping_shares_words_and_retirement() {
        let own = allocate(100).unwrap();
        assert_eq!(own.words().len(), 13);
        assert!(own.words().iter().all(|word| word.load(Ordering::Relaxed) == 0));
        let theirs = map(own_pid(), &own.describe().unwrap(), 100).unwrap();
        theirs.words()[12].store(7, Ordering::Relaxed);
        assert_eq!(own.words()[12].load(Ordering::Relaxed), 7);
        assert!(theirs.describe().is_none() && !theirs.is_retired());
        own.retire();
        assert!(theirs.is_retired());
        drop(own);
        assert_eq!(theirs.words()[12].load(Ordering::Relaxed), 7, "the pages stay while they are mapped");
    }

    #[test]
    fn map_with_a_wrong_description_fails() {
        let own = allocate(100).unwrap();
        let right = own.describe().unwrap();
        for len_bytes in [0, 1, 96, 105, 4096, u64::MAX] {
            assert!(map(own_pid(), &right, len_bytes).is_none(), "{len_bytes}");
        }
        for place in 0..DESCRIPTION_BYTES {
            let mut bytes = right.as_bytes().to_vec();
            bytes[place] ^= 0x80;
            assert!(map(own_pid(), &RemotePayload::new(&bytes).unwrap(), 100).is_none(), "byte {place}");
            assert!(map(own_pid(), &RemotePayload::new(&bytes[..place]).unwrap(), 100).is_none());
        }
        assert!(map(0, &right, 100).is_none());
        drop(own);
        assert!(map(own_pid(), &right, 100).is_none());
    }

    #[test]
    fn map_of_unsealed_or_other_files_fails() {
        let file = memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        ftruncate(&file, (START_BYTES + 8) as u64).unwrap();
        assert!(map(own_pid(), &make_description(&file, 0), 8).is_none(), "an unsealed file was mapped");
        fcntl_add_seals(&file, SIZE_SEALS).unwrap();
        assert!(map(own_pid(), &make_description(&file, 0), 8).is_some());
        for path in ["/dev/zero", "/", "/proc/self/exe"] {
            let file = File::open(path).unwrap().into();
            assert!(map(own_pid(), &make_description(&file, 0), 8).is_none(), "{path}");
        }
    }

    #[test]
    fn map_of_file_longer_than_host_memory_fails() {
        let words = usize::try_from(host_memory_bytes()).unwrap() / size_of::<u64>();
        let map_words = |words| {
            let file = memory_file::create_sealed("test", file_size_bytes(words).unwrap() as u64).unwrap();
            map(own_pid(), &make_description(&file, 0), (words * size_of::<u64>()) as u64)
        };
        assert!(map_words(words - START_BYTES / size_of::<u64>()).is_some());
        assert!(map_words(words).is_none());
    }

    #[test]
    fn allocate_beyond_host_memory_fails() {
        for len_bytes in [usize::MAX, isize::MAX as usize, 1 << 46] {
            assert!(allocate(len_bytes).is_err());
        }
    }
}
