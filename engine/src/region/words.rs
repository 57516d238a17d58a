//! Bytes in words that others read and write at the same time.
//!
//! What is stored in one call is seen together with all that this thread has done or seen before, by whoever loads it in one
//! call: an application may wait for a word to change, and look at what was written before.

use std::sync::atomic::{AtomicU64, Ordering, fence};

const WORD_BYTES: usize = size_of::<u64>();

/// Copies bytes into words, from a place on that has room for them.
#[inline]
pub(crate) fn store(words: &[AtomicU64], offset_bytes: usize, bytes: &[u8]) {
    fence(Ordering::Release);
    // Most that is written so is a number.
    match (offset_bytes % WORD_BYTES, bytes.as_array()) {
        (0, Some(bytes)) => {
            words[offset_bytes / WORD_BYTES].store(u64::from_le_bytes(*bytes), Ordering::Relaxed);
        }
        _ => store_any(words, offset_bytes, bytes),
    }
}

#[inline(never)]
fn store_any(words: &[AtomicU64], offset_bytes: usize, bytes: &[u8]) {
    let within = offset_bytes % WORD_BYTES;
    let head_bytes = if within == 0 { 0 } else { bytes.len().min(WORD_BYTES - within) };
    let (head, rest) = bytes.split_at(head_bytes);
    let mut place = offset_bytes / WORD_BYTES;
    if !head.is_empty() {
        store_part(&words[place], within, head);
        place += 1;
    }
    let (whole, tail) = rest.as_chunks();
    // One check of the range for all of it.
    let (here, after) = words[place.min(words.len())..].split_at(whole.len());
    for (word, bytes) in here.iter().zip(whole) {
        word.store(u64::from_le_bytes(*bytes), Ordering::Relaxed);
    }
    if !tail.is_empty() {
        store_part(&after[0], 0, tail);
    }
}

/// Copies bytes into a part of a word. The others may be written by somebody else meanwhile.
fn store_part(word: &AtomicU64, within: usize, bytes: &[u8]) {
    let (mut value, mut mask) = ([0; WORD_BYTES], [u8::MAX; WORD_BYTES]);
    value[within..within + bytes.len()].copy_from_slice(bytes);
    mask[within..within + bytes.len()].fill(0);
    let (value, mask) = (u64::from_le_bytes(value), u64::from_le_bytes(mask));
    let _ = word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |old| Some(old & mask | value));
}

/// Copies bytes out of words, from a place on that has as many.
#[inline]
pub(crate) fn load(words: &[AtomicU64], offset_bytes: usize, bytes: &mut [u8]) {
    match (offset_bytes % WORD_BYTES, bytes.as_mut_array()) {
        (0, Some(bytes)) => {
            *bytes = words[offset_bytes / WORD_BYTES].load(Ordering::Relaxed).to_le_bytes();
        }
        _ => load_any(words, offset_bytes, bytes),
    }
    fence(Ordering::Acquire);
}

#[inline(never)]
fn load_any(words: &[AtomicU64], offset_bytes: usize, bytes: &mut [u8]) {
    let within = offset_bytes % WORD_BYTES;
    let head_bytes = if within == 0 { 0 } else { bytes.len().min(WORD_BYTES - within) };
    let (head, rest) = bytes.split_at_mut(head_bytes);
    let mut place = offset_bytes / WORD_BYTES;
    if !head.is_empty() {
        load_part(&words[place], within, head);
        place += 1;
    }
    let (whole, tail) = rest.as_chunks_mut();
    let (here, after) = words[place.min(words.len())..].split_at(whole.len());
    for (word, bytes) in here.iter().zip(whole) {
        *bytes = word.load(Ordering::Relaxed).to_le_bytes();
    }
    if !tail.is_empty() {
        load_part(&after[0], 0, tail);
    }
}

fn load_part(word: &AtomicU64, within: usize, bytes: &mut [u8]) {
    let word = word.load(Ordering::Relaxed).to_le_bytes();
    bytes.copy_from_slice(&word[within..within + bytes.len()]);
}
