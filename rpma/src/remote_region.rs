//! Memory regions of peers, and the descriptor by which a peer learns of them.

use homespun::RemoteMemory;

use crate::error::Invalid;
use crate::usage::Usage;

/// The length of a key in a descriptor.
pub(crate) const KEY_BYTES: usize = size_of::<u32>();

/// A memory region of a peer: `rpma_mr_remote_from_descriptor(3)`.
///
/// The peer [describes](crate::MemoryRegion::descriptor) its region in 21 bytes, which the application
/// carries over, for example as private data of a connection. All numbers are little-endian:
///
/// | bytes | |
/// | --- | --- |
/// | 0 to 7 | the address of the first byte in the peer's process |
/// | 8 to 15 | the length in bytes |
/// | 16 to 19 | the key |
/// | 20 | the [`Usage`] |
///
/// A descriptor comes from outside and may say anything. The target checks each access by the key, the range
/// and the rights of its own region, so a false descriptor leads to failed operations.
///
/// ```
/// use homespun_rpma::{RemoteMemoryRegion, Usage};
///
/// let descriptor = [0, 0x10, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0b1000];
/// let region = RemoteMemoryRegion::from_descriptor(&descriptor)?;
/// assert_eq!((region.size_bytes(), region.usage()), (8, Usage::WRITE_DST));
/// # Ok::<(), homespun_rpma::Invalid>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RemoteMemoryRegion {
    address: u64,
    size_bytes: u64,
    key: u32,
    usage: Usage,
}

/// A place in a memory region of a peer: where an access begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RemotePlace {
    memory: Option<RemoteMemory>,
}

impl RemoteMemoryRegion {
    /// The length of a descriptor in bytes: `rpma_mr_get_descriptor_size(3)`.
    pub const DESCRIPTOR_BYTES: usize = 21;

    pub(crate) fn new(address: u64, size_bytes: u64, key: u32, usage: Usage) -> RemoteMemoryRegion {
        RemoteMemoryRegion { address, size_bytes, key, usage }
    }

    /// Reads the descriptor of a peer's region. Ignores bytes behind it.
    ///
    /// # Errors
    ///
    /// [`Invalid::ShortDescriptor`] for less than 21 bytes; [`Invalid::DescriptorUsage`] if the usage is 0.
    pub fn from_descriptor(descriptor: &[u8]) -> Result<RemoteMemoryRegion, Invalid> {
        let too_short = Invalid::ShortDescriptor {
            len_bytes: descriptor.len(),
            min_bytes: RemoteMemoryRegion::DESCRIPTOR_BYTES,
        };
        let (address, rest) = descriptor.split_first_chunk().ok_or(too_short)?;
        let (size_bytes, rest) = rest.split_first_chunk().ok_or(too_short)?;
        let (key, rest) = rest.split_first_chunk().ok_or(too_short)?;
        let usage = Usage::from_bits_truncate(*rest.first().ok_or(too_short)?);
        if usage.is_empty() {
            return Err(Invalid::DescriptorUsage);
        }
        Ok(RemoteMemoryRegion {
            address: u64::from_le_bytes(*address),
            size_bytes: u64::from_le_bytes(*size_bytes),
            key: u32::from_le_bytes(*key),
            usage,
        })
    }

    /// Returns the bytes that describe the region, for [`from_descriptor`](Self::from_descriptor).
    pub fn descriptor(&self) -> [u8; RemoteMemoryRegion::DESCRIPTOR_BYTES] {
        let mut descriptor = [0; RemoteMemoryRegion::DESCRIPTOR_BYTES];
        let (address, rest) = descriptor.split_at_mut(8);
        let (size_bytes, rest) = rest.split_at_mut(8);
        let (key, usage) = rest.split_at_mut(4);
        address.copy_from_slice(&self.address.to_le_bytes());
        size_bytes.copy_from_slice(&self.size_bytes.to_le_bytes());
        key.copy_from_slice(&self.key.to_le_bytes());
        usage.copy_from_slice(&[self.usage.bits()]);
        descriptor
    }

    /// Returns the length of the region in bytes: `rpma_mr_remote_get_size(3)`.
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// Returns what the peer allows.
    pub fn usage(&self) -> Usage {
        self.usage
    }

    /// Returns the kinds of flushes that the region supports, of [`Usage::FLUSH_TYPE_VISIBILITY`] and
    /// [`Usage::FLUSH_TYPE_PERSISTENT`]: `rpma_mr_remote_get_flush_type(3)`.
    pub fn flush_types(&self) -> Usage {
        self.usage & Usage::FLUSH_TYPES
    }

    /// Returns the place `offset_bytes` behind the start of the region. The target checks whether it lies in
    /// the region.
    pub fn at(&self, offset_bytes: u64) -> RemotePlace {
        RemotePlace { memory: Some(self.memory_at(offset_bytes)) }
    }

    pub(crate) fn memory_at(&self, offset_bytes: u64) -> RemoteMemory {
        RemoteMemory { address: self.address.wrapping_add(offset_bytes), key: self.key.into() }
    }
}

impl RemotePlace {
    /// No place, for an access of no bytes.
    pub const NONE: RemotePlace = RemotePlace { memory: None };

    pub(crate) fn memory(self) -> Option<RemoteMemory> {
        self.memory
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn descriptor_describes_every_region(
            address: u64,
            size_bytes: u64,
            key: u32,
            usage in 1..=u8::MAX,
            behind in proptest::collection::vec(any::<u8>(), 0..8),
        ) {
            let usage_bits = Usage::from_bits_retain(usage);
            let region = RemoteMemoryRegion { address, size_bytes, key, usage: usage_bits };
            let mut descriptor = region.descriptor().to_vec();
            prop_assert_eq!(descriptor[0..8].to_vec(), address.to_le_bytes().to_vec());
            prop_assert_eq!(descriptor[8..16].to_vec(), size_bytes.to_le_bytes().to_vec());
            prop_assert_eq!(descriptor[16..20].to_vec(), key.to_le_bytes().to_vec());
            prop_assert_eq!(descriptor[20], usage);
            descriptor.extend(behind);
            prop_assert_eq!(RemoteMemoryRegion::from_descriptor(&descriptor), Ok(region));
        }

        #[test]
        fn foreign_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..32)) {
            match RemoteMemoryRegion::from_descriptor(&bytes) {
                Ok(region) => prop_assert_eq!(&region.descriptor()[..], &bytes[..21]),
                Err(Invalid::DescriptorUsage) => prop_assert_eq!(bytes[20], 0),
                Err(refused) => {
                    let len_bytes = bytes.len();
                    prop_assert_eq!(refused, Invalid::ShortDescriptor { len_bytes, min_bytes: 21 });
                    prop_assert!(len_bytes < 21);
                }
            }
        }
    }

    #[test]
    fn place_beyond_the_address_space_does_not_panic() {
        let region = RemoteMemoryRegion::new(u64::MAX - 1, 8, 3, Usage::READ_SRC);
        assert_eq!(region.at(5).memory(), Some(RemoteMemory { address: 3, key: 3 }));
        assert_eq!(RemotePlace::NONE.memory(), None);
    }

    #[test]
    fn flush_types_are_those_of_the_usage() {
        let region = RemoteMemoryRegion::new(0, 8, 3, Usage::all());
        assert_eq!(region.flush_types(), Usage::FLUSH_TYPE_VISIBILITY | Usage::FLUSH_TYPE_PERSISTENT);
        let region = RemoteMemoryRegion::new(0, 8, 3, Usage::WRITE_DST | Usage::FLUSH_TYPE_VISIBILITY);
        assert_eq!(region.flush_types(), Usage::FLUSH_TYPE_VISIBILITY);
    }
}
