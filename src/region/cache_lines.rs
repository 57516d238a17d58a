//! Writes cache lines back to memory. After that, bytes in persistent memory are durable.

use std::arch::asm;
use std::arch::x86_64::{__cpuid, __cpuid_count, _mm_clflush, _mm_sfence};
use std::sync::OnceLock;

/// The length of a cache line on every processor of this architecture, in bytes.
const LINE_BYTES: usize = 64;

/// The instructions that write a cache line back, the best one first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FlushMethod {
    /// `clwb`: keeps the line in the cache. Not ordered with writes of other lines.
    WriteBack,
    /// `clflushopt`: is not ordered with writes of other lines.
    FlushUnordered,
    /// `clflush`: every processor has it.
    Flush,
}

impl FlushMethod {
    /// Returns the best instruction of this processor.
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

/// Writes a range of bytes back from the caches to memory, and waits until that is done.
///
/// # Safety
///
/// The bytes must be mapped.
pub(super) unsafe fn write_back(address: *const u8, len_bytes: usize) {
    // SAFETY: the caller promises that the bytes are mapped, and `best` returns an instruction that
    // exists.
    unsafe { write_back_by(FlushMethod::best(), address, len_bytes) };
}

/// # Safety
///
/// The bytes must be mapped, and the processor must have this instruction.
unsafe fn write_back_by(method: FlushMethod, address: *const u8, len_bytes: usize) {
    let skipped_bytes = address.addr() % LINE_BYTES;
    let first = address.wrapping_sub(skipped_bytes);
    for line in (0..skipped_bytes + len_bytes).step_by(LINE_BYTES) {
        let line = first.wrapping_add(line);
        // SAFETY: a line does not cross a page boundary, so the line is mapped if one of its bytes is.
        // The instruction changes no bytes.
        unsafe {
            match method {
                FlushMethod::WriteBack => asm!("clwb [{}]", in(reg) line, options(nostack, preserves_flags)),
                FlushMethod::FlushUnordered => {
                    asm!("clflushopt [{}]", in(reg) line, options(nostack, preserves_flags));
                }
                FlushMethod::Flush => _mm_clflush(line),
            }
        }
    }
    // SAFETY: every processor of this architecture has this instruction.
    unsafe { _mm_sfence() };
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Without persistent memory, a test cannot check that lines have left the caches. This test checks only
    /// that no byte changes.
    #[test]
    fn cache_line_write_back_keeps_contents() {
        let methods = [FlushMethod::WriteBack, FlushMethod::FlushUnordered, FlushMethod::Flush];
        let best = methods.iter().position(|method| *method == FlushMethod::best()).unwrap();
        let memory: Vec<u8> = (0..1000_u32).map(|n| n as u8).collect();
        for method in &methods[best..] {
            for (place, len_bytes) in [(0, 1000), (1, 0), (1, 1), (63, 2), (64, 64), (999, 1)] {
                // SAFETY: the bytes are those of a vector. A processor with `clwb` also has `clflushopt`.
                unsafe { write_back_by(*method, memory[place..].as_ptr(), len_bytes) };
            }
        }
        assert!(memory.iter().enumerate().all(|(n, byte)| *byte == n as u8));
    }
}
