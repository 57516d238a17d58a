//! A segment in memory that this process shares with the peer's process.

use std::io;
use std::mem::offset_of;
use std::os::fd::OwnedFd;
use std::ptr::{self, NonNull};

use homespun_engine::fork::ForkGeneration;
use rustix::fs::{fcntl_get_seals, fstat};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};

use crate::memory_file::{self, SIZE_SEALS};
use crate::payload_copy::copy_payload;
use crate::segment::{Area, DataArea, FRONT_BYTES, LINE_WORDS, LINES, Line, MapError, line_index};
use crate::sync::{AtomicU32, AtomicU64, Ordering, fence};
use crate::write_back;

/// The part of a segment before the two areas. This process never makes a reference to the whole of it.
#[repr(C, align(64))]
struct Head {
    producer: ProducerPart,
    consumer: ConsumerPart,
    wake_request: WakeRequestPart,
    lines: [Line; LINES],
}

#[repr(C, align(64))]
struct ProducerPart {
    finished_at: AtomicU64,
    room_requested: AtomicU32,
    core: AtomicU32,
    exposure_ended: AtomicU32,
}

#[repr(C, align(64))]
struct ConsumerPart {
    consumed_lines: AtomicU64,
    consumed_bytes: AtomicU64,
    consumed_front_bytes: AtomicU64,
}

#[repr(C, align(64))]
struct WakeRequestPart {
    wake_requested: AtomicU32,
    pulled_classes: AtomicU32,
}

const _: () = assert!(size_of::<Line>() == 64);
const _: () = assert!(offset_of!(Head, consumer) == 64 && offset_of!(Head, wake_request) == 128);
const _: () = assert!(offset_of!(Head, lines) == 192);
const _: () = assert!(size_of::<Head>() == 192 + LINES * 64 && LINE_WORDS == 8);

/// The size of the file of a segment with this data area.
const fn file_bytes(data: DataArea) -> usize {
    size_of::<Head>() + data.bytes() + FRONT_BYTES
}

/// A mapped segment. A forked child does not inherit the mapping.
#[derive(Debug)]
pub(crate) struct Segment {
    head: NonNull<Head>,
    data: DataArea,
    generation: ForkGeneration,
}

// SAFETY: the mapping belongs to the process, not to a thread, and no other `Segment` uses it. `Segment` is
// not `Sync`, so within this process one thread at a time uses the data area.
unsafe impl Send for Segment {}

impl Segment {
    /// Creates a segment that is all zero, and returns it with its file.
    pub(crate) fn create(data: DataArea) -> io::Result<(Segment, OwnedFd)> {
        let file = memory_file::create_sealed("homespun-ring", file_bytes(data) as u64)?;
        Ok((Segment::map_sealed(&file, data)?, file))
    }

    /// Maps a segment that another process has created.
    ///
    /// # Errors
    ///
    /// [`MapError::NotARing`] if the file has neither size of a segment, is not sealed, or is not writable;
    /// otherwise the error of the system call.
    pub(crate) fn map(file: &OwnedFd) -> Result<Segment, MapError> {
        // Only memory files have seals.
        let seals = fcntl_get_seals(file).map_err(|_| MapError::NotARing)?;
        if !seals.contains(SIZE_SEALS) {
            return Err(MapError::NotARing);
        }
        // Read the size after the seals: after the check, the size of a sealed file cannot change.
        let len_bytes = fstat(file).map_err(io::Error::from)?.st_size;
        let has_len = |data: &DataArea| usize::try_from(len_bytes) == Ok(file_bytes(*data));
        let data = DataArea::ALL.into_iter().find(has_len).ok_or(MapError::NotARing)?;
        Segment::map_sealed(file, data).map_err(|error| match error.kind() {
            // The descriptor is not writable.
            io::ErrorKind::PermissionDenied => MapError::NotARing,
            _ => error.into(),
        })
    }

    /// Maps a sealed file of the size of a segment with this data area.
    fn map_sealed(file: &OwnedFd, data: DataArea) -> io::Result<Segment> {
        let len_bytes = file_bytes(data);
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel picks the address, so no other memory is affected.
        let start = unsafe { mmap(ptr::null_mut(), len_bytes, protection, MapFlags::SHARED, file, 0)? };
        let head = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        let segment = Segment { head, data, generation: ForkGeneration::current() };
        // SAFETY: this is the new mapping. A forked child does not inherit it and never accesses it: `drop`
        // and the transport check `ForkGeneration::is_in_forked_child`.
        unsafe { madvise(start, len_bytes, Advice::LinuxDontFork)? };
        Ok(segment)
    }

    /// 0 until the producer announces the end of the ring. Then one more than the final number of lines.
    #[inline]
    pub(crate) fn finished_at(&self) -> &AtomicU64 {
        // SAFETY: the mapping lives as long as `self`, is page-aligned, and is larger than `Head`; the
        // seals keep the file from shrinking. The target is an atomic: other processes may change it, and
        // every bit pattern is valid. The same holds for each of the following accessors.
        unsafe { &(*self.head.as_ptr()).producer.finished_at }
    }

    /// Not 0 if the producer waits for room and asks to be woken.
    #[inline]
    pub(crate) fn room_requested(&self) -> &AtomicU32 {
        // SAFETY: as in `finished_at`.
        unsafe { &(*self.head.as_ptr()).producer.room_requested }
    }

    /// 0 until the producer has told on which core it runs. Then one more than the number of the core.
    #[inline]
    pub(crate) fn producer_core(&self) -> &AtomicU32 {
        // SAFETY: as in `finished_at`.
        unsafe { &(*self.head.as_ptr()).producer.core }
    }

    /// Tells the consumer that this side's memory is no longer exposed. The producer calls this before its
    /// application gets exposed memory back.
    pub(crate) fn end_exposure(&self) {
        // A forked child has not inherited the mapping, and the parent's memory stays exposed.
        if self.generation.is_in_forked_child() {
            return;
        }
        // SAFETY: as in `finished_at`.
        let ended = unsafe { &(*self.head.as_ptr()).producer.exposure_ended };
        // SYNC POINT: exposure ended
        ended.store(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Whether the producer's memory is no longer exposed. If not, everything that the caller has read from
    /// that memory before the call was exposed.
    pub(crate) fn has_exposure_ended(&self) -> bool {
        // SYNC POINT: exposure ended
        fence(Ordering::Acquire);
        // SAFETY: as in `finished_at`.
        unsafe { &(*self.head.as_ptr()).producer.exposure_ended }.load(Ordering::Relaxed) != 0
    }

    /// How many lines the consumer has consumed since the ring was created.
    #[inline]
    pub(crate) fn consumed_lines(&self) -> &AtomicU64 {
        // SAFETY: as in `finished_at`.
        unsafe { &(*self.head.as_ptr()).consumer.consumed_lines }
    }

    /// How many bytes of the main area the consumer has read since the ring was created.
    #[inline]
    pub(crate) fn consumed_bytes(&self) -> &AtomicU64 {
        // SAFETY: as in `finished_at`.
        unsafe { &(*self.head.as_ptr()).consumer.consumed_bytes }
    }

    /// How many bytes of the front area the consumer has read since the ring was created.
    #[inline]
    pub(crate) fn consumed_front_bytes(&self) -> &AtomicU64 {
        // SAFETY: as in `finished_at`.
        unsafe { &(*self.head.as_ptr()).consumer.consumed_front_bytes }
    }

    /// Not 0 if the consumer has stopped polling and asks to be woken.
    #[inline]
    pub(crate) fn wake_requested(&self) -> &AtomicU32 {
        // SAFETY: as in `finished_at`.
        unsafe { &(*self.head.as_ptr()).wake_request.wake_requested }
    }

    /// For which classes of lengths the consumer wants to pull payload, one bit for each class.
    #[inline]
    pub(crate) fn pulled_classes(&self) -> &AtomicU32 {
        // SAFETY: as in `finished_at`.
        unsafe { &(*self.head.as_ptr()).wake_request.pulled_classes }
    }

    /// The line at `position`, which counts lines since the ring was created.
    #[inline]
    pub(crate) fn line(&self, position: u64) -> &Line {
        // SAFETY: as in `finished_at`. `line_index` is within the array, and a line consists of atomics.
        unsafe {
            let lines = (&raw const (*self.head.as_ptr()).lines).cast::<Line>();
            &*lines.add(line_index(position))
        }
    }

    /// Prefetches the line at a position for writing.
    #[inline]
    pub(crate) fn prefetch_line_for_write(&self, position: u64) {
        let line = self.line(position);
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the instruction is a hint to the processor and changes no memory and no register.
        // Processors that do not support it ignore it.
        unsafe {
            std::arch::asm!("prefetchw [{}]", in(reg) line, options(nostack, preserves_flags, readonly));
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = line;
    }

    /// Prefetches the line at a position for reading.
    #[inline]
    pub(crate) fn prefetch_line_for_read(&self, position: u64) {
        let line = self.line(position);
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the instruction is a hint to the processor and changes no memory and no register.
        unsafe {
            std::arch::asm!("prefetcht0 [{}]", in(reg) line, options(nostack, preserves_flags, readonly));
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = line;
    }

    /// Copies `from` to an area, starting at `position`. A position counts bytes of the area since the ring
    /// was created.
    #[inline]
    pub(crate) fn write(&self, area: Area, position: u64, from: &[u8]) {
        let (area_ptr, size) = (self.area_ptr(area), self.size_of(area));
        assert!(from.len() <= size.bytes(), "more than the area holds");
        let place = size.index(position);
        let (start, rest) = from.split_at(from.len().min(size.bytes() - place));
        // SAFETY: both parts are within the area: `start` ends at the end of the area or before, and `rest`
        // fits because `from` is no longer than the area. This process has no reference to the area, so
        // `from` does not overlap with it. A correct peer does not read bytes before this side publishes
        // them. A faulty peer may read them, but they are plain bytes, for which all bit patterns are valid.
        unsafe {
            copy_payload(start.as_ptr(), area_ptr.add(place), start.len());
            copy_payload(rest.as_ptr(), area_ptr, rest.len());
        }
    }

    /// Copies from an area to `into`, starting at `position`, as in [`write`](Self::write).
    #[inline]
    pub(crate) fn read(&self, area: Area, position: u64, into: &mut [u8]) {
        let (area_ptr, size) = (self.area_ptr(area), self.size_of(area));
        assert!(into.len() <= size.bytes(), "more than the area holds");
        let place = size.index(position);
        let (start, rest) = into.split_at_mut(into.len().min(size.bytes() - place));
        // SAFETY: both parts are within the area, as in `write`, and `into` does not overlap with it. Only a
        // faulty peer writes to these bytes during the copy. Then `into` holds arbitrary bytes, which are
        // valid, and no caller reads the area a second time.
        unsafe {
            copy_payload(area_ptr.add(place), start.as_mut_ptr(), start.len());
            copy_payload(area_ptr, rest.as_mut_ptr(), rest.len());
        }
    }

    /// Copies from the main area as [`read`](Self::read), and writes the lines that it has read back to
    /// memory. If the processor cannot do this, only copies.
    pub(crate) fn read_and_write_back(&self, position: u64, into: &mut [u8]) {
        if !write_back::can_write_back() {
            return self.read(Area::Main, position, into);
        }
        let area_ptr = self.area_ptr(Area::Main);
        let mut position = position;
        for block in into.chunks_mut(write_back::BLOCK_BYTES) {
            self.read(Area::Main, position, block);
            let place = self.data.index(position);
            let until_end_bytes = block.len().min(self.data.bytes() - place);
            // SAFETY: the processor can write back. Both parts are within the area, as in `read`.
            unsafe {
                write_back::write_back(area_ptr.add(place), until_end_bytes);
                write_back::write_back(area_ptr, block.len() - until_end_bytes);
            }
            position += block.len() as u64;
        }
    }

    /// The size of the main area.
    #[inline]
    pub(crate) fn data_area(&self) -> DataArea {
        self.data
    }

    #[inline]
    fn size_of(&self, area: Area) -> DataArea {
        match area {
            Area::Front => DataArea::FRONT,
            Area::Main => self.data,
        }
    }

    #[inline]
    fn area_ptr(&self, area: Area) -> *mut u8 {
        let before_bytes = if area == Area::Front { self.data.bytes() } else { 0 };
        // SAFETY: the mapping goes on behind the head, with the main area and then the front area.
        unsafe { self.head.as_ptr().add(1).cast::<u8>().add(before_bytes) }
    }

    /// Overwrites a part of the segment, as a faulty process may. Drops bytes beyond the end of the segment.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn scribble(&self, offset: usize, bytes: &[u8]) {
        let file_bytes = file_bytes(self.data);
        let offset = offset % file_bytes;
        let bytes = &bytes[..bytes.len().min(file_bytes - offset)];
        // SAFETY: the range is within the mapping, which holds only atomics and bytes. References exist only
        // to the atomics.
        unsafe {
            ptr::copy_nonoverlapping(
                bytes.as_ptr(),
                self.head.as_ptr().cast::<u8>().add(offset),
                bytes.len(),
            );
        }
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        // A forked child may have another mapping at this address.
        if self.generation.is_in_forked_child() {
            return;
        }
        // SAFETY: this is the whole mapping that `map_sealed` has made, and no reference outlives `self`.
        let unmapped = unsafe { munmap(self.head.as_ptr().cast(), file_bytes(self.data)) };
        debug_assert!(unmapped.is_ok(), "{unmapped:?}");
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::net::UnixStream;

    use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};

    use super::*;

    fn make_sealed_memfd(len_bytes: usize, seals: SealFlags) -> OwnedFd {
        let file = memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        ftruncate(&file, len_bytes as u64).unwrap();
        fcntl_add_seals(&file, seals).unwrap();
        file
    }

    #[test]
    fn both_mappings_share_lines_and_data() {
        for data in DataArea::ALL {
            let (segment, file) = Segment::create(data).unwrap();
            let other = Segment::map(&file).unwrap();
            drop(file);
            assert_eq!(other.data_area(), data);
            segment.line(LINES as u64 + 3)[7].store(5, Ordering::Relaxed);
            assert_eq!(other.line(3)[7].load(Ordering::Relaxed), 5);
            let bytes: Vec<u8> = (1..=100).collect();
            let areas = [(Area::Front, FRONT_BYTES), (Area::Main, data.bytes())];
            for (area, area_bytes) in areas {
                let position = 3 * area_bytes as u64 - 40;
                segment.write(area, position, &bytes);
                let mut copy = [0; 101];
                other.read(area, position, &mut copy);
                assert_eq!((&copy[..100], copy[100]), (&bytes[..], 0), "in two parts, and nothing beyond");
            }
            for (fill, (area, area_bytes)) in (7..).zip(areas) {
                segment.write(area, 0, &vec![fill; area_bytes]);
            }
            for (fill, (area, area_bytes)) in (7..).zip(areas) {
                let mut all = vec![0; area_bytes];
                other.read(area, 3 * area_bytes as u64 - 40, &mut all);
                assert!(all.iter().all(|&byte| byte == fill));
            }
            assert_eq!(other.line(LINES as u64 - 1)[7].load(Ordering::Relaxed), 0, "the areas have a start");
        }
    }

    #[test]
    fn sealed_segment_keeps_its_size_and_seals() {
        for data in DataArea::ALL {
            let (_segment, file) = Segment::create(data).unwrap();
            for len_bytes in [0, file_bytes(data) - 1, file_bytes(data) + 1] {
                assert_eq!(ftruncate(&file, len_bytes as u64), Err(rustix::io::Errno::PERM));
            }
            assert_eq!(fcntl_add_seals(&file, SealFlags::WRITE), Err(rustix::io::Errno::PERM));
        }
    }

    #[test]
    fn map_of_unsealed_or_resized_memory_is_refused() {
        let both = SealFlags::SHRINK | SealFlags::GROW;
        let [large_bytes, small_bytes] = DataArea::ALL.map(file_bytes);
        for len_bytes in [large_bytes, small_bytes] {
            assert!(Segment::map(&make_sealed_memfd(len_bytes, both)).is_ok());
        }
        for (len_bytes, seals) in [
            (large_bytes, SealFlags::empty()),
            (large_bytes, SealFlags::SHRINK),
            (small_bytes, SealFlags::GROW),
            (large_bytes - 1, both),
            (large_bytes + 4096, both),
            (small_bytes - 1, both),
            (0, both),
        ] {
            let mapped = Segment::map(&make_sealed_memfd(len_bytes, seals));
            assert!(matches!(mapped, Err(MapError::NotARing)), "{len_bytes} {seals:?}: {mapped:?}");
        }
    }

    #[test]
    fn map_of_files_and_sockets_is_refused() {
        let files = ["/dev/zero", "/", "/proc/self/exe"].map(|path| File::open(path).unwrap());
        for file in files.map(OwnedFd::from) {
            assert!(matches!(Segment::map(&file), Err(MapError::NotARing)));
        }
        let (end, _) = UnixStream::pair().unwrap();
        assert!(matches!(Segment::map(&end.into()), Err(MapError::NotARing)));
    }

    #[test]
    fn map_of_write_sealed_memory_is_refused() {
        let all = SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE;
        let file = make_sealed_memfd(file_bytes(DataArea::LARGE), all);
        assert!(matches!(Segment::map(&file), Err(MapError::NotARing)));
    }
}
