//! What a memory region may be used for.

use bitflags::bitflags;

bitflags! {
    /// What a [memory region](crate::MemoryRegion) may be used for: the `RPMA_MR_USAGE_*` flags of
    /// `rpma_mr_reg(3)`. The bits are those of `librpma.h`, and part of a region's descriptor.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub struct Usage: u8 {
        /// Peers may read the region.
        const READ_SRC = 1 << 0;
        /// The region may be the destination of reads of a peer's memory.
        const READ_DST = 1 << 1;
        /// The region may be the source of writes to a peer's memory.
        const WRITE_SRC = 1 << 2;
        /// Peers may write to the region, also atomically.
        const WRITE_DST = 1 << 3;
        /// Peers may flush their writes to the region for visibility. They need `WRITE_DST`, too.
        const FLUSH_TYPE_VISIBILITY = 1 << 4;
        /// Peers may flush their writes to the region to persistence. They need `WRITE_DST`, too. The memory
        /// must be a shared mapping of a file.
        const FLUSH_TYPE_PERSISTENT = 1 << 5;
        /// Messages may be sent from the region.
        const SEND = 1 << 6;
        /// Messages may be received into the region.
        const RECV = 1 << 7;
    }
}

impl Usage {
    /// The kinds of flushes.
    pub(crate) const FLUSH_TYPES: Usage = Usage::FLUSH_TYPE_VISIBILITY.union(Usage::FLUSH_TYPE_PERSISTENT);
}
