//! Writing cache lines back to memory (`clwb`). A processor can sooner overwrite lines that another processor
//! has read, if the reader has written the lines back.

#[cfg(target_arch = "x86_64")]
use std::sync::LazyLock;

/// The size of a cache line of processors that can write lines back.
const LINE_BYTES: usize = 64;

/// How much a reader copies before it writes the copied lines back. So writing back overlaps with copying.
pub(crate) const BLOCK_BYTES: usize = 1024;

/// Whether this processor can write a cache line back to memory.
pub(crate) fn can_write_back() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        static CAN_WRITE_BACK: LazyLock<bool> = LazyLock::new(|| {
            use std::arch::x86_64::{__cpuid, __cpuid_count};
            const EXTENDED_FEATURES: u32 = 7;
            const CLWB: u32 = 1 << 24;
            __cpuid(0).eax >= EXTENDED_FEATURES && __cpuid_count(EXTENDED_FEATURES, 0).ebx & CLWB != 0
        });
        *CAN_WRITE_BACK
    }
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// Writes the lines of a range back to memory. The processor must be able to do this.
///
/// # Safety
///
/// [`can_write_back`] has returned true, and the whole range is mapped.
#[inline]
pub(crate) unsafe fn write_back(start: *const u8, len_bytes: usize) {
    let offset_in_line = start.addr() % LINE_BYTES;
    let first = start.wrapping_sub(offset_in_line);
    for offset in (0..offset_in_line + len_bytes).step_by(LINE_BYTES) {
        let line = first.wrapping_add(offset);
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the processor has the instruction, as the caller promises. The line has a byte of the
        // range, so it is mapped. The instruction changes no register, and no byte that a processor sees.
        unsafe {
            std::arch::asm!("clwb [{}]", in(reg) line, options(nostack, preserves_flags, readonly));
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = line;
    }
}
