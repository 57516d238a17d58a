//! Copies whole words with x86-64's string instruction. It moves a cache line while a loop moves a
//! word.
//!
//! Other threads may see the stores of one string in any order. But these stores stay after earlier
//! stores of the same thread, and before later ones. Loads keep the order of loads (Intel's manual,
//! volume 3, "Fast-String Operation and Out-of-Order Stores"). So fences around a string work as
//! they do around a loop.

use std::arch::asm;
use std::sync::atomic::AtomicU64;

use super::WORD_BYTES;

/// Stores bytes into words, in any order. Stops at the end of the shorter slice.
pub(super) fn store_with_rep_movs(words: &[AtomicU64], from: &[[u8; WORD_BYTES]]) {
    let count = words.len().min(from.len());
    // SAFETY: both slices have at least `count` words. `from` is borrowed, so no thread writes to it. Other
    // threads see `count` stores of aligned words. The processor makes each store at once, like a relaxed
    // store of an atomic word. The order of these stores is open, as for relaxed stores. All of them come
    // after earlier stores and before later stores. The direction flag is clear, as `asm!` guarantees, so
    // the copy runs forward.
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

/// Loads words into `into`, in any order. Stops at the end of the shorter slice.
pub(super) fn load_with_rep_movs(words: &[AtomicU64], into: &mut [[u8; WORD_BYTES]]) {
    let count = words.len().min(into.len());
    // SAFETY: as in `store_with_rep_movs`, with the directions exchanged: `into` is mutably
    // borrowed, and other threads see loads of aligned words.
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
