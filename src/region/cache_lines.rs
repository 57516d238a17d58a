//! Writes cache lines back to memory, for memory that is durable once they are written.

use std::arch::asm;
use std::arch::x86_64::{__cpuid, __cpuid_count, _mm_clflush, _mm_sfence};
use std::sync::OnceLock;

/// The length of a line on every processor of this architecture, in bytes.
const LINE_BYTES: usize = 64;

/// The instruction that writes a line back. Each is better than the one after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FlushMethod {
    /// The line stays in the cache, and others need not wait for it.
    WriteBack,
    /// Others need not wait for it.
    FlushUnordered,
    /// Every processor has this.
    Flush,
}

impl FlushMethod {
    /// The best that this processor has.
    fn best() -> FlushMethod {
        static BEST: OnceLock<FlushMethod> = OnceLock::new();
        *BEST.get_or_init(|| {
            const FEATURES_LEAF: u32 = 7;
            let features =
                if __cpuid(0).eax >= FEATURES_LEAF { __cpuid_count(FEATURES_LEAF, 0).ebx } else { 0 };
            if features & 1 << 24 != 0 {
                FlushMethod::WriteBack
            } else if features & 1 << 23 != 0 {
                FlushMethod::FlushUnordered
            } else {
                FlushMethod::Flush
            }
        })
    }
}

/// Writes a range of bytes back from the caches to memory, and waits until it is written.
///
/// # Safety
///
/// The bytes are mapped.
pub(super) unsafe fn write_back(address: *const u8, len_bytes: usize) {
    // SAFETY: the caller promises it.
    unsafe { write_back_by(FlushMethod::best(), address, len_bytes) };
}

/// # Safety
///
/// The bytes are mapped, and the processor has this way.
unsafe fn write_back_by(way: FlushMethod, address: *const u8, len_bytes: usize) {
    let skipped_bytes = address.addr() % LINE_BYTES;
    let first = address.wrapping_sub(skipped_bytes);
    for line in (0..skipped_bytes + len_bytes).step_by(LINE_BYTES) {
        let line = first.wrapping_add(line);
        // SAFETY: lines do not cross pages, so the line is mapped if one of its bytes is. What is
        // in memory does not change.
        unsafe {
            match way {
                FlushMethod::WriteBack => asm!("clwb [{}]", in(reg) line, options(nostack, preserves_flags)),
                FlushMethod::FlushUnordered => {
                    asm!("clflushopt [{}]", in(reg) line, options(nostack, preserves_flags));
                }
                FlushMethod::Flush => _mm_clflush(line),
            }
        }
    }
    // SAFETY: every processor of this architecture has it.
    unsafe { _mm_sfence() };
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether lines have left the caches is not to be seen without the device; that everything
    /// stays as it is can be.
    #[test]
    fn cache_line_write_back_keeps_contents() {
        let ways = [FlushMethod::WriteBack, FlushMethod::FlushUnordered, FlushMethod::Flush];
        let best = ways.iter().position(|way| *way == FlushMethod::best()).unwrap();
        let memory: Vec<u8> = (0..1000_u32).map(|n| n as u8).collect();
        for way in &ways[best..] {
            for (place, len_bytes) in [(0, 1000), (1, 0), (1, 1), (63, 2), (64, 64), (999, 1)] {
                // SAFETY: the bytes are a vector's. A processor with `clwb` has `clflushopt`.
                unsafe { write_back_by(*way, memory[place..].as_ptr(), len_bytes) };
            }
        }
        assert!(memory.iter().enumerate().all(|(n, byte)| *byte == n as u8));
    }
}
