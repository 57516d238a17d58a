//! The identity of a domain, which the objects of the domain carry.

use std::sync::atomic::{AtomicU64, Ordering};

/// Tells the objects of one domain from those of another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DomainId(u64);

impl DomainId {
    pub(crate) fn allocate() -> DomainId {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        DomainId(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}
