//! Whole words by the instruction that x86-64 has for strings of them, which moves a cache line
//! where a loop moves a word.
//!
//! The stores of a string may be seen in any order, but none of them after a later store of the
//! same thread, nor before an earlier one; loads keep to the order of loads (Intel's manual, volume
//! 3, "Fast-String Operation and Out-of-Order Stores"). So the fences around a copy mean for it
//! what they mean for a loop.

use std::arch::asm;
use std::sync::atomic::AtomicU64;

use super::WORD_BYTES;

/// Stores bytes into as many words as they are, in any order.
pub(super) fn store_with_rep_movs(words: &[AtomicU64], from: &[[u8; WORD_BYTES]]) {
    let count = words.len().min(from.len());
    // SAFETY: both are at least so many words long, and `from` is borrowed, so no thread writes it.
    // For others the instruction is so many stores of aligned words, each of which the processor
    // does at once, as it does a relaxed store of an atomic word; only their order is not that of
    // their places, which that of relaxed stores need not be either. It is done between what is
    // before it and what is after it, as stores are. The direction is forward wherever `asm!` is.
    unsafe {
        asm!(
            "rep movsq",
            inout("rcx") count => _,
            inout("rsi") from.as_ptr() => _,
            inout("rdi") words.as_ptr() => _,
            options(nostack, preserves_flags),
        );
    }
}

/// Loads as many words as there is room for, in any order.
pub(super) fn load_with_rep_movs(words: &[AtomicU64], into: &mut [[u8; WORD_BYTES]]) {
    let count = words.len().min(into.len());
    // SAFETY: as in `store`, the other way round: `into` is borrowed for writing, and others see
    // loads of aligned words.
    unsafe {
        asm!(
            "rep movsq",
            inout("rcx") count => _,
            inout("rsi") words.as_ptr() => _,
            inout("rdi") into.as_mut_ptr() => _,
            options(nostack, preserves_flags),
        );
    }
}
