//! Regions that are mapped files.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use homespun_engine::buffer::SegmentMut;
use homespun_engine::errno::Errno;
use homespun_engine::error::{BadMemory, Error, Misuse, SystemRequest};
use homespun_engine::region::{Persist, Words};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::param::page_size;
use tracing::warn;

use super::persistent::Persistent;

/// A mapped part of a file.
#[derive(Debug)]
pub(super) struct MappedFile {
    /// The first byte, at the beginning of a page.
    address: NonNull<u8>,
    /// The length of the part of the file. The mapping continues to the end of the page.
    len_bytes: usize,
    is_dax: bool,
    /// A number for the place of the first byte in the file: see [`Words::lock_address`].
    place: usize,
}

// SAFETY: the address and the length never change, and all accesses to the memory are by atomic words.
unsafe impl Send for MappedFile {}
// SAFETY: as above.
unsafe impl Sync for MappedFile {}

impl MappedFile {
    /// Maps a range of a file. If the file's device is memory (DAX), flushing the caches makes writes to the
    /// mapping durable.
    ///
    /// # Errors
    ///
    /// [`Misuse::Memory`] for a length of 0, an offset that is not a multiple of the page size, or a range
    /// beyond the file's end. The system's error, such as EACCES if the file is not open for reading and
    /// writing.
    pub(super) fn map(file: &File, offset_bytes: u64, len_bytes: usize) -> Result<MappedFile, Error> {
        let metadata = file.metadata().map_err(|error| SystemRequest::FileMapping.refused(error))?;
        if len_bytes == 0 {
            return Err(Misuse::Memory(BadMemory::EmptyRegion).into());
        }
        if !offset_bytes.is_multiple_of(page_size() as u64) {
            return Err(Misuse::Memory(BadMemory::FileOffset).into());
        }
        let end_bytes = offset_bytes.checked_add(len_bytes as u64);
        if end_bytes.is_none_or(|end_bytes| end_bytes > metadata.len()) {
            return Err(Misuse::Memory(BadMemory::LargerThanFile).into());
        }
        // SAFETY: the system chooses an address at which nothing is mapped.
        let map = |flags| unsafe {
            mmap(ptr::null_mut(), len_bytes, ProtFlags::READ | ProtFlags::WRITE, flags, file, offset_bytes)
        };
        // The first attempt succeeds only for files whose device is memory.
        let (mapped, is_dax) = match map(MapFlags::SHARED_VALIDATE | MapFlags::SYNC) {
            Ok(address) => (Ok(address), true),
            Err(_) => (map(MapFlags::SHARED), false),
        };
        let mapped = mapped.map_err(|error| SystemRequest::FileMapping.refused(error))?;
        let address = NonNull::new(mapped.cast());
        let address = address.ok_or_else(|| SystemRequest::FileMapping.refused(Errno::ENOMEM))?;
        let place = lock_address_of_file_page(metadata.dev(), metadata.ino(), offset_bytes);
        Ok(MappedFile { address, len_bytes, is_dax, place })
    }
}

/// A handle to the memory of a mapped file. Clones share one mapping.
#[derive(Debug, Clone)]
pub(super) struct FileMemory(pub(super) Arc<MappedFile>);

impl Words for FileMemory {
    fn words(&self) -> &[AtomicU64] {
        let MappedFile { address, len_bytes, .. } = *self.0;
        // SAFETY: the memory is mapped, readable and writable, while a handle exists, and no other
        // reference to it exists. It begins and ends at page boundaries, so it consists of whole words.
        // Other processes that have mapped the file write to it like other threads. If the file was
        // truncated, the system kills this process with a signal at the first access beyond its end, so
        // nothing is read there.
        unsafe { slice::from_raw_parts(address.as_ptr().cast(), len_bytes.div_ceil(size_of::<u64>())) }
    }

    fn lock_address(&self) -> usize {
        self.0.place
    }
}

/// Returns the [`Words::lock_address`] of a page of a file: the same number in every mapping of the page.
/// Pages of two files may have the same number.
fn lock_address_of_file_page(device: u64, inode: u64, offset_bytes: u64) -> usize {
    let page = (device.rotate_left(32) ^ inode).wrapping_add(offset_bytes / page_size() as u64);
    (page as usize).wrapping_mul(page_size()) & (usize::MAX >> 1)
}

impl Persist for FileMemory {
    fn persist(&self, offset_bytes: usize, len_bytes: usize) -> Result<(), Errno> {
        let memory = SegmentMut { address: self.0.address.as_ptr(), len_bytes: self.0.len_bytes };
        // SAFETY: the memory stays mapped while a handle exists, and `is_dax` is true only if it was
        // mapped with `MAP_SYNC`.
        let persistent = unsafe { Persistent::from_file_mapping(memory, self.0.is_dax) };
        persistent.persist(offset_bytes, len_bytes)
    }
}

impl Drop for MappedFile {
    fn drop(&mut self) {
        // SAFETY: `map` has mapped this range, and no handle exists any more.
        if let Err(errno) = unsafe { munmap(self.address.as_ptr().cast(), self.len_bytes) } {
            warn!(%errno, "a file stays mapped");
        }
    }
}

#[cfg(test)]
mod tests {
    use rustix::fs::{MemfdFlags, memfd_create};

    use super::*;

    #[test]
    fn same_file_offset_has_same_lock_address_in_any_mapping() {
        let file = File::from(memfd_create("homespun-test", MemfdFlags::CLOEXEC).unwrap());
        let page_bytes = page_size();
        file.set_len(3 * page_bytes as u64).unwrap();
        let map = |file, offset_bytes, len_bytes| {
            FileMemory(Arc::new(MappedFile::map(file, offset_bytes, len_bytes).unwrap()))
        };
        let [first, again] = [(); 2].map(|()| map(&file, 0, 3 * page_bytes));
        let part = map(&file, page_bytes as u64, page_bytes);
        assert_ne!(first.words().as_ptr(), again.words().as_ptr());
        assert_eq!(first.lock_address(), again.lock_address());
        assert_eq!(first.lock_address() + page_bytes, part.lock_address());
        assert!(first.lock_address().is_multiple_of(page_bytes) && first.lock_address() <= usize::MAX / 2);
    }
}
