//! Mistakes in a caller's description of memory.

/// Why memory cannot be used as it is described: EINVAL.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum BadMemory {
    /// No segment, for a region or for a buffer that must be one segment.
    #[error("no segment, where at least one is needed")]
    NoSegment,
    /// A reusable buffer, posted as a multi-receive buffer. A reusable buffer cannot be cut into
    /// messages.
    #[error("a reusable buffer, where one that can be cut into messages is needed")]
    Reusable,
    /// A segment at the null address that is not empty.
    #[error("a null address with a length")]
    NullWithLength,
    /// The sum of the lengths exceeds the address space.
    #[error("segments that are longer together than the address space")]
    LengthOverflow,
    /// Operands, comparands and results of an atomic operation must have equal lengths.
    #[error("operands, comparands or results of different lengths")]
    UnequalOperands,
    /// The length of the operands is not a multiple of the element size.
    #[error("a part of an element of an atomic operation")]
    PartialElement,
    /// A region must have at least one byte.
    #[error("a memory region of 0 bytes")]
    EmptyRegion,
    /// The system, or the object that keeps the memory, has less memory than the region needs.
    #[error("a memory region larger than the memory for it")]
    RegionTooLarge,
    /// The file ends before the region does.
    #[error("a memory region larger than its file")]
    LargerThanFile,
    /// The offset in the file is not a multiple of the page size.
    #[error("an offset in a file that is not a multiple of the page size")]
    FileOffset,
    /// The access does not lie within the region.
    #[error("a range beyond the end of the memory region")]
    BeyondRegion,
    /// A copy from or to a region that is the whole address space. Most of the addresses have no
    /// memory.
    #[error("a copy from or to a memory region that is the address space")]
    AddressSpace,
    /// A write by this side to a region that peers may only read. The region's memory belongs to
    /// the application, and may be read-only.
    #[error("a write to a memory region that peers may only read")]
    NotWritable,
    /// Only shared mappings of files can be made durable.
    #[error("persistent memory that is not a shared mapping of a file")]
    NotPersistent,
    /// Peers can map only memory that the region allocates itself.
    #[error("shareable memory that the region does not allocate itself")]
    NotShareable,
}
