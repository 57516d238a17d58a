//! The system's allocator, with a count of the bytes that the process holds.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};

struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The bytes ever allocated, and the bytes ever freed. Both only grow, so no thread sees less than nothing.
static ALLOCATED_BYTES: AtomicU64 = AtomicU64::new(0);
static FREED_BYTES: AtomicU64 = AtomicU64::new(0);

/// Returns how many bytes of the heap this process holds.
pub(crate) fn held_bytes() -> u64 {
    let freed = FREED_BYTES.load(Ordering::SeqCst);
    ALLOCATED_BYTES.load(Ordering::SeqCst) - freed
}

fn count_allocated(bytes: usize) {
    ALLOCATED_BYTES.fetch_add(bytes as u64, Ordering::Relaxed);
}

fn count_freed(bytes: usize) {
    FREED_BYTES.fetch_add(bytes as u64, Ordering::Relaxed);
}

// SAFETY: the system's allocator serves every call, and counting does not allocate.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count_allocated(layout.size());
        // SAFETY: the caller upholds the contract of the same call.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count_allocated(layout.size());
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, new_len_bytes: usize) -> *mut u8 {
        count_allocated(new_len_bytes);
        count_freed(layout.size());
        // SAFETY: as above.
        unsafe { System.realloc(memory, layout, new_len_bytes) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        count_freed(layout.size());
        // SAFETY: as above.
        unsafe { System.dealloc(memory, layout) }
    }
}
