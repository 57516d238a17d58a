//! The address of memory in a peer's region.

/// An address in a region of a peer: `struct fi_rma_iov` without its length.
///
/// The owner of the region sends this address to its peers, for example in a message
/// ([`MemoryRegion::remote`](https://docs.rs/homespun)). The peers pass the address to reads,
/// writes and atomic operations.
///
/// ```
/// # use homespun_engine::remote_memory::RemoteMemory;
/// let region = RemoteMemory { address: 4096, key: 7 };
/// let told = region.to_bytes();
/// assert_eq!(RemoteMemory::from_bytes(told).offset(64), RemoteMemory { address: 4160, key: 7 });
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct RemoteMemory {
    /// The address in the region: its [base address](crate::region::RegionAttr::base_address) plus
    /// an offset in bytes.
    pub address: u64,
    /// The key of the region.
    pub key: u64,
}

impl RemoteMemory {
    /// The length of [`to_bytes`](Self::to_bytes).
    pub const LEN_BYTES: usize = 16;

    /// Returns the address that is `bytes` higher in the same region. The sum wraps around.
    #[must_use]
    pub fn offset(self, bytes: u64) -> RemoteMemory {
        RemoteMemory { address: self.address.wrapping_add(bytes), ..self }
    }

    /// Returns the address as bytes for a message. The form is the same on every host.
    pub fn to_bytes(self) -> [u8; Self::LEN_BYTES] {
        (u128::from(self.address) | u128::from(self.key) << 64).to_le_bytes()
    }

    /// Returns the address that [`to_bytes`](Self::to_bytes) has written.
    pub fn from_bytes(bytes: [u8; Self::LEN_BYTES]) -> RemoteMemory {
        let both = u128::from_le_bytes(bytes);
        RemoteMemory { address: both as u64, key: (both >> 64) as u64 }
    }
}
