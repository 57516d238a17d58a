//! The description of exposed payload, as it travels to the peer in an offer.
//!
//! ```text
//!  anywhere in this process's memory       within one region of shareable memory
//!  +---------+--------+ - - - - - -+       +------------+-------+---------+--------+--------+ - - - - - -+
//!  | address | length | the next   |       | descriptor | nonce | address | offset | length | the next   |
//!  +---------+--------+ - - - - - -+       +------------+-------+---------+--------+--------+ - - - - - -+
//!    8         8                             3            8       8         6        6
//! ```
//!
//! The descriptor, the nonce and the address are those of the region. The peer opens the region's memory as
//! [`shareable`](crate::shareable) says, and copies from its own mapping. Offsets count from the start of the
//! region. If the peer cannot map the region, it reads this process's memory at the addresses. The two kinds
//! of descriptions differ in their length.
//!
//! The description of one slice in a region is short enough for the line of a tagged offer.

use std::io::IoSlice;

use homespun_engine::limits::IOV_LIMIT;
use homespun_engine::transport::RemotePayload;
use smallvec::SmallVec;

use crate::own_regions;
use crate::sys::RemoteSlice;

const SLICE_BYTES: usize = 2 * size_of::<u64>();
const DESCRIPTOR_BYTES: usize = 3;
const NAME_BYTES: usize = DESCRIPTOR_BYTES + 2 * size_of::<u64>();
const SHORT_BYTES: usize = 6;
const REGION_SLICE_BYTES: usize = 2 * SHORT_BYTES;

/// A description is long enough for this many slices of a region.
#[cfg(test)]
const REGION_MAX_SLICES: usize = 3;

/// Descriptors and lengths from these on cannot be described.
pub(crate) const DESCRIPTOR_END: u32 = 1 << (8 * DESCRIPTOR_BYTES);
pub(crate) const REGION_END_BYTES: u64 = 1 << (8 * SHORT_BYTES);

// The remainder tells the kinds of descriptions apart.
const _: () = assert!((NAME_BYTES + REGION_SLICE_BYTES) % SLICE_BYTES == 15);
const _: () = assert!((NAME_BYTES + 2 * REGION_SLICE_BYTES) % SLICE_BYTES == 11);
const _: () = assert!((NAME_BYTES + 3 * REGION_SLICE_BYTES) % SLICE_BYTES == 7);

/// Slices of a process's memory, in the order of the payload.
pub(crate) type RemoteSlices = SmallVec<[RemoteSlice; IOV_LIMIT + 1]>;

/// The name of a region of shareable memory, for the peers of its owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RegionName {
    /// The owner's descriptor of the memory file.
    pub(crate) descriptor: u32,
    /// The number at the start of the file.
    pub(crate) nonce: u64,
    /// The address of the region in its owner's memory.
    pub(crate) address: u64,
}

/// Payload that a peer has exposed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Exposed {
    /// The region that has all slices.
    pub(crate) region: Option<RegionName>,
    slices: RemoteSlices,
}

/// Describes the addresses of exposed payload for the peer. Returns `None` if there are too many slices.
pub(crate) fn describe_addresses(payload: &[IoSlice<'_>]) -> Option<RemotePayload> {
    let mut bytes = SmallVec::<[u8; IOV_LIMIT * SLICE_BYTES]>::new();
    for slice in payload {
        bytes.extend_from_slice(&(slice.as_ptr() as u64).to_le_bytes());
        bytes.extend_from_slice(&(slice.len() as u64).to_le_bytes());
    }
    RemotePayload::new(&bytes)
}

/// Describes payload that lies in one region of shareable memory of this process. Returns `None` for other
/// payload, or if there are too many slices.
pub(crate) fn describe_in_region(payload: &[IoSlice<'_>]) -> Option<RemotePayload> {
    let (first, rest) = payload.split_first()?;
    let region = own_regions::find(first)?;
    let name = region.name;
    let mut bytes = SmallVec::<[u8; IOV_LIMIT * SLICE_BYTES]>::new();
    bytes.extend_from_slice(&name.descriptor.to_le_bytes()[..DESCRIPTOR_BYTES]);
    bytes.extend_from_slice(&name.nonce.to_le_bytes());
    bytes.extend_from_slice(&name.address.to_le_bytes());
    for slice in [first].into_iter().chain(rest) {
        let offset = region.offset_of(slice)?;
        bytes.extend_from_slice(&offset.to_le_bytes()[..SHORT_BYTES]);
        bytes.extend_from_slice(&(slice.len() as u64).to_le_bytes()[..SHORT_BYTES]);
    }
    RemotePayload::new(&bytes)
}

impl Exposed {
    /// Reads a description. Returns `None` if it is malformed.
    pub(crate) fn parse(from: &RemotePayload) -> Option<Exposed> {
        let bytes = from.as_bytes();
        if let (described, []) = bytes.as_chunks::<SLICE_BYTES>() {
            let slices = described.iter().map(|bytes| RemoteSlice {
                address: read_number(&bytes[..8]),
                len_bytes: read_number(&bytes[8..]),
            });
            return Some(Exposed { region: None, slices: slices.collect() });
        }
        let (name, rest) = bytes.split_first_chunk::<NAME_BYTES>()?;
        let (described, []) = rest.as_chunks::<REGION_SLICE_BYTES>() else { return None };
        let (descriptor, rest) = name.split_at(DESCRIPTOR_BYTES);
        let region = RegionName {
            // The number has 3 bytes.
            descriptor: read_number(descriptor) as u32,
            nonce: read_number(&rest[..8]),
            address: read_number(&rest[8..]),
        };
        let slices = described.iter().map(|bytes| {
            let address = region.address.checked_add(read_number(&bytes[..SHORT_BYTES]))?;
            Some(RemoteSlice { address, len_bytes: read_number(&bytes[SHORT_BYTES..]) })
        });
        Some(Exposed { region: Some(region), slices: slices.collect::<Option<_>>()? })
    }

    /// The slices of a range of the payload. `None` if the description does not cover the range.
    pub(crate) fn slices_of_range(&self, offset_bytes: u64, mut left_bytes: u64) -> Option<RemoteSlices> {
        let mut skip_bytes = offset_bytes;
        let mut pieces = RemoteSlices::new();
        for RemoteSlice { address, len_bytes } in &self.slices {
            let skipped = skip_bytes.min(*len_bytes);
            skip_bytes -= skipped;
            let taken = (len_bytes - skipped).min(left_bytes);
            left_bytes -= taken;
            if taken > 0 {
                pieces.push(RemoteSlice { address: address.checked_add(skipped)?, len_bytes: taken });
            }
        }
        (left_bytes == 0).then_some(pieces)
    }
}

/// Reads a little-endian number of up to 8 bytes.
fn read_number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use homespun_engine::buffer::SendBuffer;
    use proptest::prelude::*;

    use super::*;
    use crate::ShmProvider;

    fn make_buffer(len_bytes: usize) -> SendBuffer {
        SendBuffer::allocate(&ShmProvider::new(), len_bytes).unwrap()
    }

    fn parsed(payload: &[IoSlice<'_>]) -> Option<Exposed> {
        Some(Exposed::parse(&describe_in_region(payload)?).expect("it is well-formed"))
    }

    #[test]
    fn payload_in_a_region_is_described_by_the_region() {
        let buffer = make_buffer(10_000);
        let pieces = [IoSlice::new(&buffer[5000..9000]), IoSlice::new(&buffer[..100]), IoSlice::new(&buffer)];
        for count in 1..=REGION_MAX_SLICES {
            let exposed = parsed(&pieces[..count]).unwrap();
            assert_eq!(exposed.region.unwrap().address, buffer.as_ptr() as u64);
            let addresses = Exposed::parse(&describe_addresses(&pieces[..count]).unwrap()).unwrap();
            assert_eq!((exposed.slices, addresses.region), (addresses.slices, None));
        }
    }

    #[test]
    fn payload_outside_or_across_regions_is_described_by_addresses() {
        let (first, second) = (make_buffer(4096), make_buffer(4096));
        let elsewhere = vec![0; 4096];
        let cases: [&[IoSlice<'_>]; 5] = [
            &[],
            &[IoSlice::new(&elsewhere)],
            &[IoSlice::new(&first), IoSlice::new(&elsewhere)],
            &[IoSlice::new(&first), IoSlice::new(&second)],
            &[IoSlice::new(&first[..10]); REGION_MAX_SLICES + 1],
        ];
        for payload in cases {
            assert_eq!(parsed(payload), None);
        }
        assert!(parsed(&[IoSlice::new(&second)]).is_some());
    }

    #[test]
    fn freed_region_is_not_described() {
        let buffer = make_buffer(4096);
        let address = buffer.as_ptr();
        assert!(own_regions::find_at(address as usize, 4096).is_some());
        drop(buffer);
        assert!(own_regions::find_at(address as usize, 4096).is_none());
    }

    proptest! {
        #[test]
        fn range_of_any_description_has_the_wanted_length(
            bytes in proptest::collection::vec(prop_oneof![Just(0_u8), Just(0xff), any::<u8>()], 0..=64),
            offset_bytes: u64,
            wanted_bytes in prop_oneof![0_u64..100, any::<u64>()],
        ) {
            let exposed = Exposed::parse(&RemotePayload::new(&bytes).unwrap());
            if let Some(pieces) = exposed.and_then(|it| it.slices_of_range(offset_bytes, wanted_bytes)) {
                let len_bytes: u128 = pieces.iter().map(|piece| u128::from(piece.len_bytes)).sum();
                prop_assert_eq!(len_bytes, u128::from(wanted_bytes));
            }
        }

        #[test]
        fn range_matches_the_described_addresses(
            lens in proptest::collection::vec(0_u64..20, 0..=4),
            offset in 0_u64..40,
            wanted in 0_u64..40,
        ) {
            let mut bytes = Vec::new();
            let mut all = Vec::new();
            for (n, len) in lens.iter().enumerate() {
                let address = 1000 * (n as u64 + 1);
                bytes.extend(address.to_le_bytes());
                bytes.extend(len.to_le_bytes());
                all.extend(address..address + len);
            }
            let exposed = Exposed::parse(&RemotePayload::new(&bytes).unwrap()).unwrap();
            let expected = all.get(offset as usize..(offset + wanted) as usize).map(<[u64]>::to_vec);
            let addresses = |piece: &RemoteSlice| piece.address..piece.address + piece.len_bytes;
            let found = exposed
                .slices_of_range(offset, wanted)
                .map(|pieces| pieces.iter().flat_map(addresses).collect::<Vec<_>>());
            // An empty range may start beyond the end of the description.
            prop_assert_eq!(found.unwrap_or_default(), expected.unwrap_or_default());
        }
    }
}
