//! Atomic operations on the memory of a region. See [`atomic`](crate::atomic) for which accesses
//! exclude each other.

#![expect(clippy::host_endian_bytes, reason = "elements lie in memory as the application has them")]

use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering, fence};
use std::sync::{Mutex, MutexGuard, PoisonError};

use smallvec::SmallVec;

use super::{Memory, Region, WORD_BYTES, Window, segments_in_range};
use crate::atomic::{Combine, ELEMENT_MAX_BYTES};
use crate::buffer::SegmentMut;
use crate::mutated;

/// The number of locks for elements that the processor cannot update atomically.
const LOCKS: usize = 128;

/// The length of the blocks of memory that share a lock, in bytes. An element lies in at most two
/// blocks.
const LOCKED_BYTES: usize = 64;

const _: () = assert!(ELEMENT_MAX_BYTES <= LOCKED_BYTES);

/// The locks of the process. The address of memory selects the lock. If the memory has several addresses,
/// its [lock address](super::Words::lock_address) selects the lock. So all regions and domains use the same
/// lock for the same memory.
static LOCKED: [Mutex<()>; LOCKS] = [const { Mutex::new(()) }; LOCKS];

/// An operation on an array of elements.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Elements<'a> {
    pub(crate) combine: Combine,
    /// The size of one element.
    pub(crate) size_bytes: usize,
    pub(crate) count: usize,
    /// The operands of all elements; empty if the operation has none.
    pub(crate) operands: &'a [u8],
    /// The compare operands of all elements; empty if the operation has none.
    pub(crate) compares: &'a [u8],
}

impl Window {
    /// Updates the elements of the window, if the region is open. Appends the old values to
    /// `before`, if there is one. Returns whether the region is open.
    pub(crate) fn update_elements_if_open(
        &self,
        elements: &Elements<'_>,
        mut before: Option<&mut Vec<u8>>,
    ) -> bool {
        let is_open = self.region().is_open();
        if is_open {
            let Elements { combine, size_bytes, count, operands, compares } = *elements;
            let mut of_operands = operands.chunks_exact(size_bytes);
            let mut of_compares = compares.chunks_exact(size_bytes);
            for number in 0..count {
                let operand = of_operands.next().unwrap_or_default();
                let compare = of_compares.next().unwrap_or_default();
                let place_bytes = self.region_range(0).start + number * size_bytes;
                let mut element = [0; ELEMENT_MAX_BYTES];
                let element = &mut element[..size_bytes];
                let is_skipped =
                    number > 0 && number + 1 == count && mutated!("fi_atomic/arrays-are-updated-completely");
                self.region().update_element(place_bytes, element, |element| {
                    !is_skipped && combine(element, operand, compare)
                });
                if mutated!("fi_atomic/fetch-returns-initial-value") {
                    combine(element, operand, compare);
                }
                if let Some(before) = &mut before {
                    before.extend_from_slice(element);
                }
            }
        }
        is_open
    }
}

impl Region {
    /// Writes the element at an offset to `before`. Then updates the element, if `combine` returns
    /// true.
    fn update_element(&self, offset_bytes: usize, before: &mut [u8], combine: impl Fn(&mut [u8]) -> bool) {
        if mutated!("fi_atomic/atomic-per-element") {
            let combine_slowly = |element: &mut [u8]| {
                std::thread::yield_now();
                combine(element)
            };
            return self.update_locked(&Locks::new(), offset_bytes, before, combine_slowly);
        }
        match &self.memory {
            Memory::Owned(words) => {
                self.update_element_in_words(words, || words.as_ptr().addr(), offset_bytes, before, combine);
            }
            Memory::Shared(memory) => {
                let words = memory.words();
                self.update_element_in_words(words, || words.as_ptr().addr(), offset_bytes, before, combine);
            }
            Memory::Kept(keeper) => {
                self.update_element_in_words(
                    keeper.words(),
                    || keeper.lock_address(),
                    offset_bytes,
                    before,
                    combine,
                );
            }
            Memory::Raw(segments) => {
                let mut pieces = segments_in_range(segments, offset_bytes, before.len());
                if let Some(first) = pieces.next() {
                    let is_whole = first.len_bytes == before.len();
                    if is_whole && try_update_natively(first, before, &combine) {
                        return;
                    }
                    let all = [first].into_iter().chain(pieces);
                    let places = all.map(|piece| (piece.address.addr(), piece.len_bytes));
                    self.update_locked(&lock_places(places), offset_bytes, before, combine);
                }
            }
        }
    }

    fn update_element_in_words(
        &self,
        words: &[AtomicU64],
        lock_address: impl Fn() -> usize,
        offset_bytes: usize,
        before: &mut [u8],
        combine: impl Fn(&mut [u8]) -> bool,
    ) {
        let (word, offset_in_word) = (offset_bytes / WORD_BYTES, offset_bytes % WORD_BYTES);
        if offset_in_word + before.len() <= WORD_BYTES {
            return update_in_word(&words[word], offset_in_word, before, combine);
        }
        self.update_locked(
            &lock_places([(lock_address() + offset_bytes, before.len())]),
            offset_bytes,
            before,
            combine,
        );
    }

    /// Updates an element under the locks of its memory.
    fn update_locked(
        &self,
        _locks: &Locks,
        offset_bytes: usize,
        before: &mut [u8],
        combine: impl Fn(&mut [u8]) -> bool,
    ) {
        self.copy_out(offset_bytes, before);
        let mut element = [0; ELEMENT_MAX_BYTES];
        let element = &mut element[..before.len()];
        element.copy_from_slice(before);
        if combine(element) {
            self.copy_in(offset_bytes, element);
        }
    }
}

type Locks = SmallVec<[MutexGuard<'static, ()>; 2]>;

/// Locks pieces of memory, each given by address and length. The order of locking is always the
/// same, so two threads cannot wait for each other.
fn lock_places(places: impl IntoIterator<Item = (usize, usize)>) -> Locks {
    let ends = |(address, len_bytes): (usize, usize)| [address, address + len_bytes - 1];
    let mut numbers: SmallVec<[usize; 2]> =
        places.into_iter().flat_map(ends).map(|address| address / LOCKED_BYTES % LOCKS).collect();
    numbers.sort_unstable();
    numbers.dedup();
    numbers.into_iter().map(|number| LOCKED[number].lock().unwrap_or_else(PoisonError::into_inner)).collect()
}

/// Updates an element that lies within one word of a region.
fn update_in_word(
    word: &AtomicU64,
    offset_in_word: usize,
    before: &mut [u8],
    combine: impl Fn(&mut [u8]) -> bool,
) {
    let range = offset_in_word..offset_in_word + before.len();
    let mut present = word.load(Ordering::Relaxed);
    loop {
        let mut bytes = present.to_le_bytes();
        before.copy_from_slice(&bytes[range.clone()]);
        if !combine(&mut bytes[range.clone()]) {
            return fence(Ordering::Acquire);
        }
        let next = u64::from_le_bytes(bytes);
        match word.compare_exchange_weak(present, next, Ordering::AcqRel, Ordering::Relaxed) {
            Ok(_) => return,
            Err(found) => present = found,
        }
    }
}

/// Updates an element of raw memory with the processor's instructions. Returns `false` without an
/// update if the processor has none for this size and alignment.
fn try_update_natively(element: SegmentMut, before: &mut [u8], combine: impl Fn(&mut [u8]) -> bool) -> bool {
    macro_rules! update {
        ($atomic:ty, $number:ty) => {{
            if !element.address.cast::<$atomic>().is_aligned() {
                return false;
            }
            // SAFETY: the element is aligned. It is a piece of a segment, which has the element's
            // length. The caller of `Region::raw` has promised that the segment is initialised
            // memory that is readable, and writable if peers may write. This holds during this call
            // of the engine, since the region was found open. Other than to atomics and cells, no
            // Rust reference to the memory exists. If peers may only read, this code does only a
            // relaxed load, which suits read-only memory. Other accesses at the same time are
            // either atomic accesses of this size, or have no particular result: copies on behalf
            // of peers, and elements of another size.
            let cell = unsafe { <$atomic>::from_ptr(element.address.cast::<$number>()) };
            let mut present = cell.load(Ordering::Relaxed);
            loop {
                let mut bytes = present.to_ne_bytes();
                before.copy_from_slice(&bytes);
                if !combine(&mut bytes) {
                    fence(Ordering::Acquire);
                    break;
                }
                let next = <$number>::from_ne_bytes(bytes);
                match cell.compare_exchange_weak(present, next, Ordering::AcqRel, Ordering::Relaxed) {
                    Ok(_) => break,
                    Err(found) => present = found,
                }
            }
        }};
    }
    match before.len() {
        1 => update!(AtomicU8, u8),
        2 => update!(AtomicU16, u16),
        4 => update!(AtomicU32, u32),
        8 => update!(AtomicU64, u64),
        _ => return false,
    }
    true
}

#[cfg(test)]
mod tests;
