//! Memory for writes and flushes: mapped, and registered in librpma's terms.

use std::fs::File;
use std::io;
use std::ptr::{self, NonNull};

use homespun_rpma::{Error, MemoryRegion, Peer, Usage};
use rustix::mm::{MapFlags, MsyncFlags, ProtFlags, mmap, mmap_anonymous, msync};

/// Mapped memory that stays until the process ends. So it outlives every region and operation, also after a
/// failure.
///
/// No reference to the memory exists. This process and others only copy bytes to it.
#[derive(Debug)]
pub(super) struct Mapping {
    base: NonNull<u8>,
    len_bytes: usize,
}

impl Mapping {
    /// Maps memory of this process, which is zero.
    pub(super) fn of_memory(len_bytes: usize) -> io::Result<Mapping> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses an address where nothing is mapped.
        let base = unsafe { mmap_anonymous(ptr::null_mut(), len_bytes, access, MapFlags::PRIVATE) }?;
        Mapping::new(base.cast(), len_bytes)
    }

    /// Maps a file.
    ///
    /// # Errors
    ///
    /// Errors of the system; `InvalidData` if the file is shorter than this.
    pub(super) fn of_file(file: &File, len_bytes: usize) -> io::Result<Mapping> {
        if file.metadata()?.len() < len_bytes as u64 {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses an address where nothing is mapped.
        let base = unsafe { mmap(ptr::null_mut(), len_bytes, access, MapFlags::SHARED, file, 0) }?;
        Mapping::new(base.cast(), len_bytes)
    }

    fn new(base: *mut u8, len_bytes: usize) -> io::Result<Mapping> {
        let base = NonNull::new(base).ok_or(io::ErrorKind::InvalidData)?;
        Ok(Mapping { base, len_bytes })
    }

    /// Copies bytes to the beginning of the memory. No operation may be reading the memory.
    ///
    /// # Panics
    ///
    /// If there are more bytes than memory.
    #[inline]
    pub(super) fn write(&self, bytes: &[u8]) {
        assert!(bytes.len() <= self.len_bytes, "beyond the end of a mapping");
        // SAFETY: the range is mapped until the process ends. `bytes` does not overlap with it, since no
        // reference to the mapping exists.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), self.base.as_ptr(), bytes.len()) }
    }

    /// Makes the first bytes of a mapped file durable: `msync(2)`.
    pub(super) fn sync(&self, len_bytes: usize) -> io::Result<()> {
        assert!(len_bytes <= self.len_bytes, "beyond the end of a mapping");
        // SAFETY: the range is mapped, and `msync` changes no memory.
        unsafe { msync(self.base.as_ptr().cast(), len_bytes, MsyncFlags::SYNC) }?;
        Ok(())
    }

    /// Registers the memory.
    pub(super) fn register(&self, peer: &Peer, usage: Usage) -> Result<MemoryRegion, Error> {
        // SAFETY: the memory stays mapped and initialised until the process ends, no reference to it exists,
        // and `write` is not called while an operation reads it.
        unsafe { MemoryRegion::register(peer, self.base.as_ptr(), self.len_bytes, usage) }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn written_bytes_are_in_the_file() {
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        file.as_file().set_len(8192).unwrap();
        let mapping = Mapping::of_file(file.as_file(), 8192).unwrap();
        mapping.write(b"hello");
        mapping.sync(5).unwrap();
        assert!(fs::read(file.path()).unwrap().starts_with(b"hello\0"));
    }

    #[test]
    fn file_that_is_too_short_is_refused() {
        let file = tempfile::tempfile().expect("a temporary file");
        file.set_len(4095).unwrap();
        assert_eq!(Mapping::of_file(&file, 4096).unwrap_err().kind(), io::ErrorKind::InvalidData);
    }

    #[test]
    #[should_panic(expected = "beyond the end")]
    fn write_beyond_the_end_panics() {
        Mapping::of_memory(4096).unwrap().write(&[0; 4097]);
    }
}
