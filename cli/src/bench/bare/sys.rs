//! System calls of the bare loops that have no safe interface: shared memory, and reading the memory of
//! another process.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::path::Path;
use std::ptr::{self, NonNull};
use std::sync::atomic::AtomicU64;

use rustix::fs::{
    MemfdFlags, Mode, OFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, ftruncate, memfd_create,
};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// The seals that fix the length of a segment's file. Without them another process could shorten the
/// file, and an access beyond the new end would raise SIGBUS.
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW);

/// Mapped memory that processes share. It has no name in the file system.
///
/// The only references to the memory are to the atomic numbers that [`atomic_at`](Self::atomic_at)
/// returns. All other accesses copy bytes. If another process writes at the wrong time, the copied bytes
/// are meaningless, but nothing worse happens.
#[derive(Debug)]
pub(super) struct BareSegment {
    file: OwnedFd,
    base: NonNull<u8>,
    len_bytes: usize,
}

impl BareSegment {
    /// Creates a segment of zeros.
    pub(super) fn create(len_bytes: usize) -> io::Result<BareSegment> {
        let file = memfd_create("homespun-bench", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&file, len_bytes as u64)?;
        fcntl_add_seals(&file, SEALS)?;
        BareSegment::map(file, len_bytes)
    }

    /// Opens the segment of another process. `path` is the path of its descriptor in `/proc`.
    ///
    /// # Errors
    ///
    /// Errors of the system, and `InvalidData` if the file is not a segment of this length.
    pub(super) fn open(path: &Path, len_bytes: usize) -> io::Result<BareSegment> {
        let file = rustix::fs::open(path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
        let is_sealed = fcntl_get_seals(&file)?.contains(SEALS);
        let actual_bytes = rustix::fs::fstat(&file)?.st_size;
        if !is_sealed || usize::try_from(actual_bytes) != Ok(len_bytes) {
            return Err(io::ErrorKind::InvalidData.into());
        }
        BareSegment::map(file, len_bytes)
    }

    fn map(file: OwnedFd, len_bytes: usize) -> io::Result<BareSegment> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses an address where nothing is mapped. The file has this length and is
        // sealed against becoming shorter, so the whole mapping stays readable and writable.
        let base = unsafe { mmap(ptr::null_mut(), len_bytes, access, MapFlags::SHARED, &file, 0) }?;
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::InvalidData)?;
        Ok(BareSegment { file, base, len_bytes })
    }

    /// The descriptor. Another process opens its path in `/proc`.
    pub(super) fn descriptor(&self) -> RawFd {
        self.file.as_raw_fd()
    }

    /// The 8-byte number at this offset in bytes.
    ///
    /// # Panics
    ///
    /// If the offset is not a multiple of 8, or not within the segment.
    #[inline]
    pub(super) fn atomic_at(&self, offset: usize) -> &AtomicU64 {
        assert!(offset.is_multiple_of(align_of::<AtomicU64>()), "a number is not aligned");
        let place = self.checked_ptr(offset, size_of::<AtomicU64>()).cast();
        // SAFETY: the number is within the mapping. It is aligned, since `offset` is and the mapping starts
        // at a page. All bit patterns are valid. The mapping lives as long as `self`, which the reference
        // borrows, and all references into the mapping are to atomics.
        unsafe { AtomicU64::from_ptr(place) }
    }

    /// Copies bytes to the segment, starting at `offset`.
    ///
    /// # Panics
    ///
    /// If some of the bytes would lie outside the segment.
    #[inline]
    pub(super) fn write(&self, offset: usize, bytes: &[u8]) {
        let place = self.checked_ptr(offset, bytes.len());
        // SAFETY: the range is within the mapping. No slice of this process refers to the mapping, so
        // `bytes` does not overlap with it.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), place, bytes.len()) }
    }

    /// Copies bytes from the segment, starting at `offset`.
    ///
    /// # Panics
    ///
    /// If some of the bytes would lie outside the segment.
    #[inline]
    pub(super) fn read(&self, offset: usize, into: &mut [u8]) {
        let place = self.checked_ptr(offset, into.len());
        // SAFETY: the range is within the mapping. No slice of this process refers to the mapping, so `into`
        // does not overlap with it. Bytes may have any value.
        unsafe { ptr::copy_nonoverlapping(place, into.as_mut_ptr(), into.len()) }
    }

    /// Fills the segment with zeros. The other process must not be writing.
    pub(super) fn clear(&self) {
        // SAFETY: the whole segment is mapped for writing.
        unsafe { ptr::write_bytes(self.base.as_ptr(), 0, self.len_bytes) }
    }

    /// The address at `offset`. Panics unless the `count_bytes` bytes from there on lie within the
    /// segment.
    #[inline]
    fn checked_ptr(&self, offset: usize, count_bytes: usize) -> *mut u8 {
        let fits = offset <= self.len_bytes && count_bytes <= self.len_bytes - offset;
        assert!(fits, "beyond the end of a segment");
        // SAFETY: the offset is within the mapping, or one past its end.
        unsafe { self.base.as_ptr().add(offset) }
    }
}

impl Drop for BareSegment {
    fn drop(&mut self) {
        // SAFETY: the segment was mapped with this length, and no reference outlives `self`.
        let unmapped = unsafe { munmap(self.base.as_ptr().cast(), self.len_bytes) };
        debug_assert!(unmapped.is_ok(), "{unmapped:?}");
    }
}

/// Copies from an address in the memory of process `pid`: `process_vm_readv(2)`.
///
/// # Errors
///
/// Errors of the system, such as `EPERM` or `ENOSYS` if the call is not allowed. `UnexpectedEof` if only
/// a part could be read.
pub(super) fn read_process_memory(pid: i32, address: u64, into: &mut [u8]) -> io::Result<()> {
    let local = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
    let remote = libc::iovec { iov_base: address as *mut libc::c_void, iov_len: into.len() };
    // SAFETY: the kernel writes only to `into`, which is borrowed exclusively and has the length in `local`.
    // It uses the remote address only in the other process, and returns an error if nothing is mapped there.
    let copied = unsafe { libc::process_vm_readv(pid, &raw const local, 1, &raw const remote, 1, 0) };
    match usize::try_from(copied) {
        Ok(copied) if copied == into.len() => Ok(()),
        Ok(_) => Err(io::ErrorKind::UnexpectedEof.into()),
        Err(_) => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;

    #[test]
    fn second_mapping_shows_writes_of_the_first() {
        let first = BareSegment::create(8192).unwrap();
        let path = format!("/proc/self/fd/{}", first.descriptor());
        let second = BareSegment::open(path.as_ref(), 8192).unwrap();
        first.atomic_at(64).store(7, Ordering::Release);
        first.write(8189, b"end");
        assert_eq!(second.atomic_at(64).load(Ordering::Acquire), 7);
        let mut end = [0; 4];
        second.read(8188, &mut end);
        assert_eq!(&end, b"\0end");
        second.clear();
        assert_eq!(first.atomic_at(64).load(Ordering::Acquire), 0);
    }

    #[test]
    fn file_that_is_no_segment_of_that_length_is_refused() {
        let segment = BareSegment::create(8192).unwrap();
        let path = format!("/proc/self/fd/{}", segment.descriptor());
        assert_eq!(BareSegment::open(path.as_ref(), 4096).unwrap_err().kind(), io::ErrorKind::InvalidData);
        assert!(BareSegment::open("/dev/null".as_ref(), 8192).is_err());
    }

    #[test]
    #[should_panic(expected = "beyond the end")]
    fn write_beyond_the_end_panics() {
        BareSegment::create(4096).unwrap().write(4090, b"too long");
    }

    #[test]
    fn own_memory_is_read_and_unmapped_address_fails_with_efault() {
        let pid = i32::try_from(std::process::id()).unwrap();
        let there = *b"hello";
        let mut here = [0; 5];
        read_process_memory(pid, there.as_ptr() as u64, &mut here).unwrap();
        assert_eq!(here, there);
        let error = read_process_memory(pid, 8, &mut here).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EFAULT));
    }
}
