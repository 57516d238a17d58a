//! Registered memory, which peers read and write without a receive: `fi_mr(3)`.
//!
//! A [`Region`] is memory with a key and access rights. [`Regions`] is the table in which the
//! endpoints of a domain look up keys. There are two tiers of memory. Memory that a region owns,
//! shares or borrows consists of atomic words: the application may copy to and from it while peers
//! access it. Peers that can map shared memory access that memory without an engine. Raw memory
//! belongs to the application, which promises to keep the memory until the region has ended. The
//! engine reads frames straight into raw memory, and sends frames straight from raw memory.
//!
//! # How a region ends
//!
//! [`Regions::close`] takes the region out of the table and marks the region as closed. An engine
//! looks at the mark once for each use of the memory (`Window::open`), and keeps no slice of raw
//! memory between calls. So the region has ended once all engine calls that were running at the close
//! have returned. Then no engine touches the memory any more. What an engine has not read or written
//! whole by then fails, and the link goes on.

mod atomics;
mod table;
mod window;
pub(crate) mod words;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::{fmt, ptr};

use smallvec::SmallVec;
use tracing::warn;

pub(crate) use self::atomics::Elements;
pub use self::table::Regions;
pub(crate) use self::window::Window;
use crate::buffer::SegmentMut;
use crate::errno::Errno;
use crate::error::{BadMemory, InUse, Misuse};
use crate::flags::{CounterEvents, MrAccess};
use crate::limits::IOV_LIMIT;
use crate::mutated;
use crate::transport::SharedMemory;

/// Registered memory.
pub struct Region {
    key: u64,
    access: MrAccess,
    base_address: u64,
    len_bytes: usize,
    memory: Memory,
    /// Whether peers may access the region. If not, it is not enabled yet.
    is_enabled: AtomicBool,
    is_closed: AtomicBool,
    /// The counter of writes, and the counter of reads.
    counters: [OnceLock<Arc<dyn CountAccess>>; 2],
    /// Makes writes to the memory durable, if the memory is persistent.
    persistence: Option<Box<dyn Persist>>,
    /// Whether an attempt to make the memory durable has ever failed.
    has_failed: AtomicBool,
}

/// Makes writes to persistent memory durable: `FI_RMA_PMEM`, `fi_mr(3)`.
pub trait Persist: Send + Sync {
    /// Makes a range of the region durable, no matter which process wrote it. Returns when the range is
    /// durable. Engines call this only before the region has ended.
    ///
    /// # Errors
    ///
    /// The system's error. After an error, no byte of the region counts as durable: the system may
    /// have dropped pages that it could not write, and reports this only once. So the engine never
    /// calls this again for the region.
    fn persist(&self, offset_bytes: usize, len_bytes: usize) -> Result<(), Errno>;
}

/// Words that a region borrows from their keeper, such as a mapped file.
pub trait Words: Send + Sync {
    /// Returns the words, the same ones in every call.
    fn words(&self) -> &[AtomicU64];

    /// Returns a number for the address of the first word. Each following byte has the next number.
    /// The numbers select locks for atomic operations that the processor has no instruction for. If
    /// memory is mapped twice, such as a file, both mappings must return the same number. No number
    /// may exceed half of `usize::MAX`.
    fn lock_address(&self) -> usize {
        self.words().as_ptr().addr()
    }
}

/// Counts the accesses of peers to a region: `fi_mr_bind`, `fi_mr(3)`.
pub trait CountAccess: Send + Sync {
    /// Counts one more access of this kind. The caller holds the lock of an endpoint.
    fn count(&self, event: CounterEvents);
}

/// The events that the two entries of [`Region::counters`] count.
const REGION_EVENTS: [CounterEvents; 2] = [CounterEvents::REMOTE_WRITE, CounterEvents::REMOTE_READ];

enum Memory {
    /// Whole words. The region may end within the last word.
    Owned(Box<[AtomicU64]>),
    /// Words that peers may map.
    Shared(Arc<dyn SharedMemory>),
    /// Words that another object keeps.
    Kept(Box<dyn Words>),
    Raw(SmallVec<[SegmentMut; 1]>),
}

const WORD_BYTES: usize = size_of::<u64>();

// SAFETY: the segments of raw memory are only addresses. Only `copy_in`, `copy_out`, `slices_mut`,
// `slices` and `try_update_natively` access the memory there. The caller of `Region::raw` has
// promised that any thread may access the memory in these ways until the region has ended.
unsafe impl Sync for Region {}

/// The attributes of a new region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RegionAttr {
    /// The key by which peers name the region.
    pub key: u64,
    /// The access rights.
    pub access: MrAccess,
    /// The address that peers use for the first byte: 0 if peers count from the start of the
    /// region, or else the address of the region's memory.
    pub base_address: u64,
}

impl Region {
    /// Creates a region that owns its memory. All bytes are zero at first.
    ///
    /// # Errors
    ///
    /// [`Misuse::Memory`] for a length of 0, or for more memory than is available.
    pub fn owned(len_bytes: usize, attr: RegionAttr) -> Result<Region, Misuse> {
        let mut words = Vec::new();
        let count = len_bytes.div_ceil(WORD_BYTES);
        if words.try_reserve_exact(count).is_err() {
            return Err(Misuse::Memory(BadMemory::RegionTooLarge));
        }
        words.resize_with(count, AtomicU64::default);
        Region::new_non_empty(len_bytes, Memory::Owned(words.into()), attr)
    }

    /// Creates a region of the caller's memory. Several segments act as one piece of memory. A
    /// segment may be empty. A single segment at the null address stands for the address space,
    /// where most addresses have no memory.
    ///
    /// # Errors
    ///
    /// [`Misuse::TooManySegments`] beyond [`IOV_LIMIT`]; [`Misuse::Memory`] for no segment, for a
    /// null address with a length among several segments, or for lengths whose sum exceeds the
    /// address space.
    ///
    /// # Safety
    ///
    /// Until the region has [ended](self#how-a-region-ends), every segment must be initialised
    /// memory that any thread may read. If peers may write, any thread must be allowed to write,
    /// too. Until then, no Rust reference to the memory may exist, except to atomics or cells.
    /// Bytes that a peer and another thread access at the same time have no particular value. If
    /// the region is the address space, all this must hold for memory that a peer accesses, during
    /// the access.
    pub unsafe fn raw(segments: &[SegmentMut], attr: RegionAttr) -> Result<Region, Misuse> {
        if segments.len() > IOV_LIMIT {
            return Err(Misuse::TooManySegments { count: segments.len(), max: IOV_LIMIT });
        }
        let is_null = |segment: &SegmentMut| segment.address.is_null() && segment.len_bytes > 0;
        let forbids_null = segments.len() > 1 || mutated!("fi_mr/region-of-unbacked-addresses");
        if forbids_null && segments.iter().any(is_null) {
            return Err(Misuse::Memory(BadMemory::NullWithLength));
        }
        if segments.is_empty() {
            return Err(Misuse::Memory(BadMemory::NoSegment));
        }
        let total = segments.iter().try_fold(0_usize, |sum, segment| sum.checked_add(segment.len_bytes));
        let len_bytes = total.ok_or(Misuse::Memory(BadMemory::LengthOverflow))?;
        Ok(Region::new(len_bytes, Memory::Raw(SmallVec::from_slice(segments)), attr))
    }

    /// Creates a region of memory that peers may map. Peers access mapped memory without an engine.
    /// The memory is retired when the region is closed.
    ///
    /// # Errors
    ///
    /// [`Misuse::Memory`] for a length of 0, or for a length that exceeds the memory.
    pub fn shareable(
        memory: Arc<dyn SharedMemory>,
        len_bytes: usize,
        attr: RegionAttr,
    ) -> Result<Region, Misuse> {
        if len_bytes.div_ceil(WORD_BYTES) > memory.words().len() {
            return Err(Misuse::Memory(BadMemory::RegionTooLarge));
        }
        Region::new_non_empty(len_bytes, Memory::Shared(memory), attr)
    }

    /// Creates a region of the words of `keeper`. The region keeps the keeper until the region is
    /// dropped.
    ///
    /// # Errors
    ///
    /// [`Misuse::Memory`] for a length of 0, or for a length that exceeds the memory.
    pub fn kept_by(keeper: Box<dyn Words>, len_bytes: usize, attr: RegionAttr) -> Result<Region, Misuse> {
        if len_bytes.div_ceil(WORD_BYTES) > keeper.words().len() {
            return Err(Misuse::Memory(BadMemory::RegionTooLarge));
        }
        Region::new_non_empty(len_bytes, Memory::Kept(keeper), attr)
    }

    /// Returns the region with the means to make its memory durable.
    #[must_use]
    pub fn with_persistence(self, persistence: Box<dyn Persist>) -> Region {
        Region { persistence: Some(persistence), ..self }
    }

    /// Whether writes to the region can be made durable.
    pub fn is_persistent(&self) -> bool {
        self.persistence.is_some()
    }

    fn new_non_empty(len_bytes: usize, memory: Memory, attr: RegionAttr) -> Result<Region, Misuse> {
        if len_bytes == 0 && !mutated!("fi_mr/invalid-registration-is-refused") {
            return Err(Misuse::Memory(BadMemory::EmptyRegion));
        }
        Ok(Region::new(len_bytes, memory, attr))
    }

    fn new(len_bytes: usize, memory: Memory, attr: RegionAttr) -> Region {
        let RegionAttr { key, access, base_address } = attr;
        Region {
            key,
            access,
            base_address,
            len_bytes,
            memory,
            is_enabled: AtomicBool::new(true),
            is_closed: AtomicBool::new(false),
            counters: Default::default(),
            persistence: None,
            has_failed: AtomicBool::new(false),
        }
    }

    /// Returns the region in a disabled state. Peers cannot access it until it is
    /// [enabled](Self::enable).
    #[must_use]
    pub fn into_disabled(mut self) -> Region {
        *self.is_enabled.get_mut() = false;
        self
    }

    /// Lets peers access the region: `fi_mr_enable`.
    pub fn enable(&self) {
        self.is_enabled.store(true, Ordering::Release);
    }

    /// Whether peers may access the region.
    pub fn is_enabled(&self) -> bool {
        self.is_enabled.load(Ordering::Acquire)
    }

    /// Binds a counter to these events of the region. The counter counts only accesses through
    /// endpoints that have events ([`rma_events`]).
    ///
    /// # Errors
    ///
    /// [`Misuse::Busy`] if one of the events already has a counter. Then nothing has changed,
    /// unless another thread binds a counter at the same time.
    ///
    /// [`rma_events`]: crate::engine::Config::rma_events
    pub fn bind_counter(&self, events: CounterEvents, counter: &Arc<dyn CountAccess>) -> Result<(), Misuse> {
        const BUSY: Misuse = Misuse::Busy(InUse::CounterBound);
        let places = || {
            self.counters
                .iter()
                .zip(REGION_EVENTS)
                .filter(|(_, event)| events.contains(*event))
                .map(|it| it.0)
        };
        if places().any(|place| place.get().is_some()) {
            return Err(BUSY);
        }
        places().try_for_each(|place| place.set(counter.clone()).map_err(|_| BUSY))?;
        // Peers that have mapped the memory use frames from now on, and accesses by frames can be
        // counted.
        if let Some(memory) = self.shareable_memory() {
            memory.retire();
        }
        Ok(())
    }

    /// Counts an access of a peer. If one counter is bound to both events, it counts the access
    /// once.
    #[inline]
    pub(crate) fn count_access(&self, events: CounterEvents) {
        let mut counted: Option<&Arc<dyn CountAccess>> = None;
        for (place, event) in self.counters.iter().zip(REGION_EVENTS) {
            let is_missed =
                event == CounterEvents::REMOTE_WRITE && mutated!("fi_mr/region-counts-remote-writes");
            let Some(counter) = place.get().filter(|_| events.contains(event) && !is_missed) else {
                continue;
            };
            if counted.is_none_or(|first| !Arc::ptr_eq(first, counter)) {
                counter.count(event);
            }
            counted = Some(counter);
        }
    }

    /// Makes a range of a region that was open at the start of the engine's call durable. Returns whether
    /// the range is now durable. Returns `false` if the region is not persistent, or if this or an earlier
    /// attempt has failed.
    pub(crate) fn try_persist(&self, offset_bytes: usize, len_bytes: usize) -> bool {
        let Some(persistence) = &self.persistence else { return false };
        if self.has_failed.load(Ordering::Acquire) {
            return false;
        }
        if len_bytes == 0 {
            return true;
        }
        let persisted = persistence.persist(offset_bytes, len_bytes);
        if let Err(errno) = persisted {
            warn!(
                key = self.key, %errno,
                "what was written could not be made durable, and nothing is from now on"
            );
            self.has_failed.store(true, Ordering::Release);
        }
        persisted.is_ok()
    }

    /// Returns the key by which peers name the region.
    pub fn key(&self) -> u64 {
        self.key
    }

    /// Returns the access rights of the region.
    pub fn access(&self) -> MrAccess {
        self.access
    }

    /// Returns the address of the first byte, as peers know it.
    pub fn base_address(&self) -> u64 {
        self.base_address
    }

    /// Returns the start of the memory in this process, or of the first segment. The application
    /// may access the memory through this pointer until the region has
    /// [ended](self#how-a-region-ends). Such an access is like an access of a peer.
    pub fn as_ptr(&self) -> *mut u8 {
        match &self.memory {
            Memory::Owned(words) => words.as_ptr().cast::<u8>().cast_mut(),
            Memory::Shared(memory) => memory.words().as_ptr().cast::<u8>().cast_mut(),
            Memory::Kept(keeper) => keeper.words().as_ptr().cast::<u8>().cast_mut(),
            Memory::Raw(segments) => segments[0].address,
        }
    }

    /// Returns the region with its [address](Self::as_ptr) in this process as the base address.
    #[must_use]
    pub fn with_own_base_address(self) -> Region {
        Region { base_address: self.as_ptr().expose_provenance() as u64, ..self }
    }

    /// Returns the length of the region.
    pub fn len_bytes(&self) -> usize {
        self.len_bytes
    }

    /// Whether peers may map the region.
    pub fn is_shareable(&self) -> bool {
        self.shareable_memory().is_some()
    }

    /// Copies from the region, to fill `into`. If a peer writes at the same time, the copy may have
    /// only a part of the new bytes.
    ///
    /// # Errors
    ///
    /// [`Misuse::Memory`] if the range exceeds the region, or if the region is the address space.
    /// Nothing is then copied.
    pub fn read_at(&self, offset_bytes: usize, into: &mut [u8]) -> Result<(), Misuse> {
        self.check_range(offset_bytes, into.len())?;
        if self.is_address_space() {
            return Err(Misuse::Memory(BadMemory::AddressSpace));
        }
        self.copy_out(offset_bytes, into);
        Ok(())
    }

    /// Copies all of `from` into the region. A peer that reads at the same time may get only a part
    /// of `from`.
    ///
    /// # Errors
    ///
    /// [`Misuse::Memory`] if the range exceeds the region, if the region is the address space, or
    /// if the region is raw memory that peers may not write. Nothing is then copied.
    pub fn write_at(&self, offset_bytes: usize, from: &[u8]) -> Result<(), Misuse> {
        self.check_range(offset_bytes, from.len())?;
        if self.is_address_space() {
            return Err(Misuse::Memory(BadMemory::AddressSpace));
        }
        if matches!(self.memory, Memory::Raw(_)) && !self.access.contains(MrAccess::REMOTE_WRITE) {
            return Err(Misuse::Memory(BadMemory::NotWritable));
        }
        self.copy_in(offset_bytes, from);
        Ok(())
    }

    /// Whether the region is the address space, where most addresses have no memory.
    fn is_address_space(&self) -> bool {
        matches!(&self.memory, Memory::Raw(segments) if segments[0].address.is_null() && self.len_bytes > 0)
    }

    fn check_range(&self, offset_bytes: usize, len_bytes: usize) -> Result<(), Misuse> {
        let is_within = offset_bytes.checked_add(len_bytes).is_some_and(|end| end <= self.len_bytes);
        if is_within { Ok(()) } else { Err(Misuse::Memory(BadMemory::BeyondRegion)) }
    }

    pub(crate) fn is_open(&self) -> bool {
        !self.is_closed.load(Ordering::Acquire)
    }

    /// Copies `bytes` into the region, except bytes beyond its end.
    fn copy_in(&self, offset_bytes: usize, mut bytes: &[u8]) {
        match &self.memory {
            Memory::Owned(words) => self.store_to_words(words, offset_bytes, bytes),
            Memory::Shared(memory) => self.store_to_words(memory.words(), offset_bytes, bytes),
            Memory::Kept(keeper) => self.store_to_words(keeper.words(), offset_bytes, bytes),
            Memory::Raw(segments) => {
                for piece in segments_in_range(segments, offset_bytes, bytes.len()) {
                    let (here, rest) = bytes.split_at(piece.len_bytes);
                    // SAFETY: the piece lies in a segment. The caller of `raw` has promised that
                    // the segment is writable if peers may write. They may: a window was made for a
                    // write, or `write_at` or `try_write_for_peer` has checked it. No Rust reference
                    // to the segment exists, and `copy` allows overlap.
                    unsafe { ptr::copy(here.as_ptr(), piece.address, here.len()) };
                    bytes = rest;
                }
            }
        }
    }

    /// Copies from the region into `into`. Bytes of `into` beyond the region's end stay unchanged.
    fn copy_out(&self, offset_bytes: usize, into: &mut [u8]) {
        match &self.memory {
            Memory::Owned(words) => self.load_from_words(words, offset_bytes, into),
            Memory::Shared(memory) => self.load_from_words(memory.words(), offset_bytes, into),
            Memory::Kept(keeper) => self.load_from_words(keeper.words(), offset_bytes, into),
            Memory::Raw(segments) => {
                let mut copied_bytes = 0;
                for piece in segments_in_range(segments, offset_bytes, into.len()) {
                    let here = &mut into[copied_bytes..copied_bytes + piece.len_bytes];
                    // SAFETY: the piece lies in a segment, and the caller of `raw` has promised
                    // that segments are readable.
                    unsafe { ptr::copy(piece.address, here.as_mut_ptr(), here.len()) };
                    copied_bytes += piece.len_bytes;
                }
            }
        }
    }
}

impl Region {
    fn store_to_words(&self, words: &[AtomicU64], offset_bytes: usize, bytes: &[u8]) {
        let room_bytes = self.len_bytes.saturating_sub(offset_bytes);
        words::store_bytes(words, offset_bytes, &bytes[..bytes.len().min(room_bytes)]);
    }

    fn load_from_words(&self, words: &[AtomicU64], offset_bytes: usize, into: &mut [u8]) {
        let room_bytes = self.len_bytes.saturating_sub(offset_bytes).min(into.len());
        words::load_bytes(words, offset_bytes, &mut into[..room_bytes]);
    }

    /// Returns the memory, if peers may map it. Returns `None` once a counter is bound to the
    /// region, or once the region is closed.
    pub(crate) fn shareable_memory(&self) -> Option<&dyn SharedMemory> {
        match &self.memory {
            Memory::Shared(memory) => Some(&**memory).filter(|memory| !memory.is_retired()),
            Memory::Owned(_) | Memory::Kept(_) | Memory::Raw(_) => None,
        }
    }
}

/// Returns the pieces of segments that make up a range of bytes. Leaves out bytes beyond the last
/// segment.
fn segments_in_range(
    segments: &[SegmentMut],
    offset_bytes: usize,
    len_bytes: usize,
) -> impl Iterator<Item = SegmentMut> {
    let (mut skip, mut left) = (offset_bytes, len_bytes);
    segments.iter().filter_map(move |segment| {
        let skipped_bytes = skip.min(segment.len_bytes);
        skip -= skipped_bytes;
        let here_bytes = left.min(segment.len_bytes - skipped_bytes);
        left -= here_bytes;
        // The sum never wraps, since the offset lies in the segment. `wrapping_add` serves only
        // because `add` is an `unsafe fn`. A null segment is the address space: there the offset is the
        // address.
        let address = match segment.address.is_null() {
            true => ptr::with_exposed_provenance_mut(skipped_bytes),
            false => segment.address.wrapping_add(skipped_bytes),
        };
        (here_bytes > 0).then_some(SegmentMut { address, len_bytes: here_bytes })
    })
}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Region")
            .field("len_bytes", &self.len_bytes)
            .field("access", &self.access)
            .field("is_closed", &self.is_closed)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::wire::Refusal;

    const ATTR: RegionAttr = RegionAttr { key: 7, access: MrAccess::REMOTE_WRITE, base_address: 0 };

    #[test]
    fn empty_or_null_region_is_refused() {
        assert!(matches!(Region::owned(0, ATTR), Err(Misuse::Memory(BadMemory::EmptyRegion))));
        assert!(matches!(Region::owned(usize::MAX, ATTR), Err(Misuse::Memory(BadMemory::RegionTooLarge))));
        let null = SegmentMut { address: ptr::null_mut(), len_bytes: 1 };
        // SAFETY: `raw` refuses all of these, so nothing is ever read.
        unsafe {
            assert!(matches!(Region::raw(&[], ATTR), Err(Misuse::Memory(BadMemory::NoSegment))));
            assert!(matches!(Region::raw(&[null; 2], ATTR), Err(Misuse::Memory(BadMemory::NullWithLength))));
            assert!(matches!(Region::raw(&[null; IOV_LIMIT + 1], ATTR), Err(Misuse::TooManySegments { .. })));
        }
    }

    #[test]
    fn address_space_region_is_accessible_only_to_peers() {
        let word = AtomicU64::new(7);
        let place = word.as_ptr().expose_provenance() as u64;
        let all = SegmentMut { address: ptr::null_mut(), len_bytes: usize::MAX };
        let regions = Regions::default();
        // SAFETY: the test accesses only an atomic that outlives the region.
        let region = regions.add(unsafe { Region::raw(&[all], ATTR).unwrap() }).unwrap();
        let refused = Err(Misuse::Memory(BadMemory::AddressSpace));
        assert_eq!((region.read_at(1, &mut [0]), region.write_at(1, &[0])), (refused.clone(), refused));
        let mut window = regions.checked_window(7, place, 8, MrAccess::REMOTE_WRITE).unwrap();
        window.open().unwrap().copy_in(0, &[9; 8]);
        assert_eq!(word.load(Ordering::Relaxed), 0x0909_0909_0909_0909);
        let none = SegmentMut { address: ptr::null_mut(), len_bytes: 0 };
        // SAFETY: the segment has no bytes.
        let empty = unsafe { Region::raw(&[none], RegionAttr { key: 8, ..ATTR }).unwrap() };
        let _empty = regions.add(empty).unwrap();
        assert!(regions.checked_window(8, 0, 0, MrAccess::REMOTE_WRITE).is_ok());
        assert_eq!(regions.checked_window(8, 0, 1, MrAccess::REMOTE_WRITE).err(), Some(Refusal::Range));
    }

    #[test]
    fn read_only_region_refuses_local_writes() {
        static BYTES: [u8; 4] = *b"read";
        let segment = SegmentMut { address: BYTES.as_ptr().cast_mut(), len_bytes: BYTES.len() };
        let attr = RegionAttr { access: MrAccess::REMOTE_READ, ..ATTR };
        // SAFETY: the memory is readable for ever, and peers may not write.
        let region = unsafe { Region::raw(&[segment], attr).unwrap() };
        assert_eq!(region.write_at(0, b"x"), Err(Misuse::Memory(BadMemory::NotWritable)));
        let mut bytes = [0; 4];
        region.read_at(0, &mut bytes).unwrap();
        assert_eq!(bytes, BYTES);
    }

    #[test]
    fn local_copy_beyond_region_is_refused() {
        let region = Region::owned(10, ATTR).unwrap();
        region.write_at(3, b"hello").unwrap();
        let mut bytes = [9; 10];
        region.read_at(0, &mut bytes).unwrap();
        assert_eq!(&bytes, b"\0\0\0hello\0\0");
        assert!(region.write_at(6, b"hello").is_err() && region.read_at(usize::MAX, &mut bytes).is_err());
    }

    proptest! {
        /// The same writes leave the same bytes in an owned region, in a raw region of up to
        /// `IOV_LIMIT` segments, and in a byte vector.
        #[test]
        fn owned_and_raw_regions_behave_as_byte_vector(
            segments in prop::collection::vec(0_usize..40, 1..=IOV_LIMIT),
            writes in prop::collection::vec(
                (any::<prop::sample::Index>(), prop::collection::vec(any::<u8>(), 0..50)),
                1..20,
            ),
        ) {
            let len_bytes: usize = segments.iter().sum();
            prop_assume!(len_bytes > 0);
            let mut memory: Vec<Vec<u8>> = segments.iter().map(|len_bytes| vec![0; *len_bytes]).collect();
            let segments: Vec<SegmentMut> = memory
                .iter_mut()
                .map(|bytes| SegmentMut { address: bytes.as_mut_ptr(), len_bytes: bytes.len() })
                .collect();
            let regions = [
                Region::owned(len_bytes, ATTR).unwrap(),
                // SAFETY: the memory outlives the region, and no code reads it before the region
                // has ended.
                unsafe { Region::raw(&segments, ATTR) }.unwrap(),
            ];
            let mut model = vec![0; len_bytes];
            for (at, bytes) in writes {
                let at = at.index(len_bytes);
                let bytes = &bytes[..bytes.len().min(len_bytes - at)];
                model[at..at + bytes.len()].copy_from_slice(bytes);
                for region in &regions {
                    region.write_at(at, bytes).unwrap();
                    let mut read = vec![0; len_bytes - at];
                    region.read_at(at, &mut read).unwrap();
                    prop_assert_eq!(&read, &model[at..]);
                }
            }
            let mut window = Window::new(Arc::new(regions.into_iter().nth(1).unwrap()), 0);
            let slices = window.open().unwrap().slices(0, len_bytes);
            let direct: Vec<u8> = slices.iter().flat_map(|slice| slice.to_vec()).collect();
            prop_assert_eq!(&direct, &model);
            drop(slices);
            prop_assert_eq!(memory.concat(), model);
        }
    }
}
