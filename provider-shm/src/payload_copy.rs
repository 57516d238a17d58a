//! Copies of payload that take the same time wherever the two buffers begin.
//!
//! For long copies the C library may use `rep movsb`. On some processors (Zen 3 and 4), this takes up to 25
//! times as long if the destination begins a few bytes behind the source, counted within their pages. The
//! application chooses where its buffers begin, so payload is copied by a loop of loads and stores. See
//! docs/decisions/payload-copies.md.

use std::ptr;

/// Shorter payload is copied by the C library.
#[cfg(target_arch = "x86_64")]
const LOOP_MIN_BYTES: usize = 512;

/// Copies `len_bytes` bytes.
///
/// # Safety
///
/// As for [`ptr::copy_nonoverlapping`]: `from` is valid for reads of `len_bytes` bytes, `to` is valid for
/// writes of as many, and the two ranges do not overlap.
#[inline]
pub(crate) unsafe fn copy_payload(from: *const u8, to: *mut u8, len_bytes: usize) {
    #[cfg(target_arch = "x86_64")]
    if len_bytes >= LOOP_MIN_BYTES && is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has AVX2, the length is that of a step at least, and the caller vouches for
        // the ranges.
        return unsafe { vectors::copy(from, to, len_bytes) };
    }
    // SAFETY: the caller vouches for the ranges.
    unsafe { ptr::copy_nonoverlapping(from, to, len_bytes) }
}

#[cfg(target_arch = "x86_64")]
mod vectors {
    use std::arch::x86_64::{__m256i, _mm256_loadu_si256, _mm256_storeu_si256};

    const VECTOR_BYTES: usize = size_of::<__m256i>();

    /// How much a step of the loop copies. All loads of a step come before its stores, so a load seldom has
    /// to wait for a store to an address with the same last 12 bits.
    const STEP_BYTES: usize = 4 * VECTOR_BYTES;

    const _: () = assert!(STEP_BYTES + VECTOR_BYTES <= super::LOOP_MIN_BYTES);

    /// # Safety
    ///
    /// As for [`copy_payload`](super::copy_payload). Also, the processor has AVX2, and `len_bytes` is at
    /// least [`LOOP_MIN_BYTES`](super::LOOP_MIN_BYTES).
    #[target_feature(enable = "avx2")]
    pub(super) unsafe fn copy(from: *const u8, to: *mut u8, len_bytes: usize) {
        // The first and the last step may overlap with their neighbours. Between them, stores are aligned.
        let aligned = VECTOR_BYTES - to.addr() % VECTOR_BYTES;
        let last = len_bytes - STEP_BYTES;
        // SAFETY: `len_bytes` exceeds a vector and a step together. Each offset below is `last` at most, and
        // from there a step fits into the ranges, for which the caller vouches.
        unsafe {
            copy_vector(from, to);
            let mut offset = aligned;
            while offset < last {
                copy_step(from.add(offset), to.add(offset));
                offset += STEP_BYTES;
            }
            copy_step(from.add(last), to.add(last));
        }
    }

    /// # Safety
    ///
    /// As for [`copy`], with [`STEP_BYTES`] as the length.
    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn copy_step(from: *const u8, to: *mut u8) {
        let (from, to) = (from.cast::<__m256i>(), to.cast::<__m256i>());
        // SAFETY: four vectors are the length of a step, and the accesses need no alignment.
        unsafe {
            let first = _mm256_loadu_si256(from);
            let second = _mm256_loadu_si256(from.add(1));
            let third = _mm256_loadu_si256(from.add(2));
            let fourth = _mm256_loadu_si256(from.add(3));
            _mm256_storeu_si256(to, first);
            _mm256_storeu_si256(to.add(1), second);
            _mm256_storeu_si256(to.add(2), third);
            _mm256_storeu_si256(to.add(3), fourth);
        }
    }

    /// # Safety
    ///
    /// As for [`copy`], with [`VECTOR_BYTES`] as the length.
    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn copy_vector(from: *const u8, to: *mut u8) {
        // SAFETY: the caller vouches for a vector at both places, and the accesses need no alignment.
        unsafe { _mm256_storeu_si256(to.cast(), _mm256_loadu_si256(from.cast())) }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MARGIN_BYTES: usize = 64;

    fn check_copy(from_offset: usize, to_offset: usize, len_bytes: usize) {
        let from: Vec<u8> = (0..from_offset + len_bytes).map(|n| (n % 251) as u8 ^ (n >> 8) as u8).collect();
        let mut to = vec![0xA5; to_offset + len_bytes + MARGIN_BYTES];
        // SAFETY: both vectors are long enough, and they do not overlap.
        unsafe { copy_payload(from.as_ptr().add(from_offset), to.as_mut_ptr().add(to_offset), len_bytes) };
        assert_eq!(&to[to_offset..to_offset + len_bytes], &from[from_offset..]);
        assert!(to[..to_offset].iter().all(|byte| *byte == 0xA5), "bytes before the destination changed");
        assert!(to[to_offset + len_bytes..].iter().all(|byte| *byte == 0xA5), "bytes behind it changed");
    }

    #[test]
    fn copy_near_the_shortest_loop_is_exact_at_every_alignment() {
        for len_bytes in 500..=680 {
            for to_offset in 0..64 {
                check_copy(len_bytes % 64, to_offset, len_bytes);
            }
        }
    }

    proptest! {
        #[test]
        fn copy_is_exact(
            from_offset in 0..128_usize,
            to_offset in 0..128_usize,
            len_bytes in 0..20_000_usize,
        ) {
            check_copy(from_offset, to_offset, len_bytes);
        }
    }
}
