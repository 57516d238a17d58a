//! Copies bytes to and from words that other threads and processes read and write at the same time.
//!
//! A thread that loads bytes also sees everything that the storing thread did or saw before it stored these
//! bytes. So an application may wait until a word changes, and then read what was written before that word.
//! The last whole word of a call is stored after its other whole words. So an application that sees the last
//! whole word sees the others too.

#[cfg(all(target_arch = "x86_64", target_pointer_width = "64"))]
mod strings;

use std::sync::atomic::{AtomicU64, Ordering, fence};

const WORD_BYTES: usize = size_of::<u64>();

/// The least number of words for which the processor's string instruction is faster.
#[cfg(all(target_arch = "x86_64", target_pointer_width = "64"))]
const STRING_MIN_WORDS: usize = 64;

/// Copies bytes into words, from an offset on. The words must have room for all bytes.
#[inline]
pub(crate) fn store_bytes(words: &[AtomicU64], offset_bytes: usize, bytes: &[u8]) {
    fence(Ordering::Release);
    // Most stores are of one whole word.
    match (offset_bytes % WORD_BYTES, bytes.as_array()) {
        (0, Some(bytes)) => {
            words[offset_bytes / WORD_BYTES].store(u64::from_le_bytes(*bytes), Ordering::Relaxed);
        }
        _ => store_unaligned(words, offset_bytes, bytes),
    }
}

#[inline(never)]
fn store_unaligned(words: &[AtomicU64], offset_bytes: usize, bytes: &[u8]) {
    let offset_in_word = offset_bytes % WORD_BYTES;
    let head_bytes = if offset_in_word == 0 { 0 } else { bytes.len().min(WORD_BYTES - offset_in_word) };
    let (head, rest) = bytes.split_at(head_bytes);
    let mut place = offset_bytes / WORD_BYTES;
    if !head.is_empty() {
        store_partial_word(&words[place], offset_in_word, head);
        place += 1;
    }
    let (whole, tail) = rest.as_chunks();
    // One range check for all words.
    let (here, after) = words[place.min(words.len())..].split_at(whole.len());
    store_whole_words(here, whole);
    if !tail.is_empty() {
        store_partial_word(&after[0], 0, tail);
    }
}

#[inline(always)]
fn store_whole_words(words: &[AtomicU64], from: &[[u8; WORD_BYTES]]) {
    #[cfg(all(target_arch = "x86_64", target_pointer_width = "64"))]
    if from.len() >= STRING_MIN_WORDS
        && let (Some((last_word, words)), Some((last, from))) = (words.split_last(), from.split_last())
    {
        strings::store_with_rep_movs(words, from);
        // Store the last word last, as in the loop: the processor does not store it before the string.
        return last_word.store(u64::from_le_bytes(*last), Ordering::Relaxed);
    }
    for (word, bytes) in words.iter().zip(from) {
        word.store(u64::from_le_bytes(*bytes), Ordering::Relaxed);
    }
}

#[inline(always)]
fn load_whole_words(words: &[AtomicU64], into: &mut [[u8; WORD_BYTES]]) {
    #[cfg(all(target_arch = "x86_64", target_pointer_width = "64"))]
    if into.len() >= STRING_MIN_WORDS {
        return strings::load_with_rep_movs(words, into);
    }
    for (word, bytes) in words.iter().zip(into) {
        *bytes = word.load(Ordering::Relaxed).to_le_bytes();
    }
}

/// Copies bytes into a part of a word. Another thread may write the other bytes at the same time.
fn store_partial_word(word: &AtomicU64, offset_in_word: usize, bytes: &[u8]) {
    let (mut value, mut mask) = ([0; WORD_BYTES], [u8::MAX; WORD_BYTES]);
    value[offset_in_word..offset_in_word + bytes.len()].copy_from_slice(bytes);
    mask[offset_in_word..offset_in_word + bytes.len()].fill(0);
    let (value, mask) = (u64::from_le_bytes(value), u64::from_le_bytes(mask));
    let _ = word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |old| Some(old & mask | value));
}

/// Fills `bytes` from words, from an offset on. The words must have enough bytes.
#[inline]
pub(crate) fn load_bytes(words: &[AtomicU64], offset_bytes: usize, bytes: &mut [u8]) {
    match (offset_bytes % WORD_BYTES, bytes.as_mut_array()) {
        (0, Some(bytes)) => {
            *bytes = words[offset_bytes / WORD_BYTES].load(Ordering::Relaxed).to_le_bytes();
        }
        _ => load_unaligned(words, offset_bytes, bytes),
    }
    fence(Ordering::Acquire);
}

#[inline(never)]
fn load_unaligned(words: &[AtomicU64], offset_bytes: usize, bytes: &mut [u8]) {
    let offset_in_word = offset_bytes % WORD_BYTES;
    let head_bytes = if offset_in_word == 0 { 0 } else { bytes.len().min(WORD_BYTES - offset_in_word) };
    let (head, rest) = bytes.split_at_mut(head_bytes);
    let mut place = offset_bytes / WORD_BYTES;
    if !head.is_empty() {
        load_partial_word(&words[place], offset_in_word, head);
        place += 1;
    }
    let (whole, tail) = rest.as_chunks_mut();
    let (here, after) = words[place.min(words.len())..].split_at(whole.len());
    load_whole_words(here, whole);
    if !tail.is_empty() {
        load_partial_word(&after[0], 0, tail);
    }
}

fn load_partial_word(word: &AtomicU64, offset_in_word: usize, bytes: &mut [u8]) {
    let word = word.load(Ordering::Relaxed).to_le_bytes();
    bytes.copy_from_slice(&word[offset_in_word..offset_in_word + bytes.len()]);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const WORDS: usize = 300;

    proptest! {
        #[test]
        fn store_then_load_returns_same_bytes_and_changes_no_others(
            offset_bytes in 0..WORDS * WORD_BYTES,
            len_bytes in prop_oneof![Just(8), 0..40_usize, 480..560_usize, 0..WORDS * WORD_BYTES],
            room_offset_bytes in 0..9_usize,
        ) {
            let len_bytes = len_bytes.min(WORDS * WORD_BYTES - offset_bytes);
            let bytes: Vec<u8> = (0..len_bytes).map(|n| (n % 251) as u8 + 1).collect();
            let words: Vec<AtomicU64> = (0..WORDS).map(|_| AtomicU64::new(u64::MAX)).collect();
            store_bytes(&words, offset_bytes, &bytes);
            let load = |word: &AtomicU64| word.load(Ordering::Relaxed).to_le_bytes();
            let all: Vec<u8> = words.iter().flat_map(load).collect();
            let mut expected = vec![u8::MAX; WORDS * WORD_BYTES];
            expected[offset_bytes..offset_bytes + len_bytes].copy_from_slice(&bytes);
            prop_assert!(all == expected);
            let mut room = vec![0; room_offset_bytes + len_bytes + 9];
            load_bytes(&words, offset_bytes, &mut room[room_offset_bytes..room_offset_bytes + len_bytes]);
            let end_bytes = room_offset_bytes + len_bytes;
            prop_assert!(room[room_offset_bytes..end_bytes] == bytes);
            prop_assert!(room[..room_offset_bytes].iter().chain(&room[end_bytes..]).all(|byte| *byte == 0));
        }
    }

    /// A thread that sees the last word of a round sees no bytes of earlier rounds.
    #[test]
    fn last_word_is_stored_last() {
        const ROUNDS: u64 = 300;
        for (count, offset_in_word) in [(2, 0), (63, 0), (65, 0), (500, 0), (2048, 0), (500, 3), (2048, 5)] {
            let words: Vec<AtomicU64> = (0..count + 1).map(|_| AtomicU64::new(0)).collect();
            // The last whole word of the stored bytes.
            let last = if offset_in_word == 0 { count - 1 } else { count - 2 };
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    for round in 1..=ROUNDS {
                        // All bytes of a round are the same, so every word has the same value at any
                        // offset.
                        let bytes = [u8::try_from(round % 251).unwrap(); 2048 * WORD_BYTES];
                        words[count].store(round, Ordering::Relaxed);
                        store_bytes(
                            &words[..count],
                            offset_in_word,
                            &bytes[..(count * WORD_BYTES - offset_in_word)],
                        );
                        while words[count].load(Ordering::Acquire) == round {
                            std::hint::spin_loop();
                        }
                    }
                });
                for round in 1..=ROUNDS {
                    let word = u64::from_le_bytes([u8::try_from(round % 251).unwrap(); WORD_BYTES]);
                    while words[last].load(Ordering::Relaxed) != word {
                        std::thread::yield_now();
                    }
                    fence(Ordering::Acquire);
                    let mut bytes = vec![0; (last + 1) * WORD_BYTES - offset_in_word];
                    load_bytes(&words[..count], offset_in_word, &mut bytes);
                    assert!(
                        bytes.chunks(WORD_BYTES).all(|bytes| *bytes == word.to_le_bytes()[..bytes.len()])
                    );
                    words[count].store(0, Ordering::Release);
                }
            });
        }
    }
}
