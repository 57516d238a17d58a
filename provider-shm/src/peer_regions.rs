//! The regions of a peer's shareable memory that this side has mapped, to copy exposed payload from them.
//!
//! A region is mapped when its first payload is pulled. It stays mapped until its owner ends it, the link
//! ends, or the link maps too many other regions.
//!
//! # Payload that the peer overwrites
//!
//! The lines of copied payload stay in this processor's cache. If the peer's application then writes the
//! next payload to the same place, it waits for each of these lines. This takes several times as long as the
//! copy, unless the copying side has written the lines back to memory. But writing back makes the copy
//! slower, which is wasted if the peer does not overwrite the payload. So this side remembers a few words of
//! the last payload at each place. If they have changed, it writes back when it next copies from there.

use std::io::IoSliceMut;

use crate::exposed::{RegionName, RemoteSlices};
use crate::limits::{MAP_FAILURES_MAX, PULLED_REGIONS_LINK_MAX, REGION_WRITE_BACK_MAX_BYTES};
use crate::shareable::PeerMapping;

/// How many places of payload are remembered for each region, a power of two.
const PLACES: usize = 16;

/// How many words of a payload are remembered.
const SAMPLED_WORDS: usize = 8;

/// The mapped regions of a link's peer.
#[derive(Debug, Default)]
pub(crate) struct PeerRegions {
    /// The region that was used last is at the end.
    regions: Vec<PeerRegion>,
    /// How many attempts to map have failed since the last one that succeeded.
    failures: u32,
}

#[derive(Debug)]
struct PeerRegion {
    name: RegionName,
    memory: PeerMapping,
    places: Box<[Place; PLACES]>,
}

/// Payload at a place of a region.
#[derive(Debug, Clone, Copy, Default)]
struct Place {
    offset_bytes: u64,
    len_bytes: u64,
    /// A number made of some words of the last payload.
    sample: u64,
    /// Whether the last two payloads differed.
    is_overwritten: bool,
}

/// The result of [`PeerRegions::copy`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RegionCopy {
    Done,
    /// The range is not within the region.
    OutOfRange,
    /// The region is not mapped, or has ended.
    NotMapped,
}

impl PeerRegions {
    pub(crate) fn is_empty(&self) -> bool {
        self.regions.is_empty()
    }

    pub(crate) fn contains(&self, name: &RegionName) -> bool {
        self.regions.iter().any(|region| region.name == *name)
    }

    /// How much memory is mapped.
    pub(crate) fn mapped_bytes(&self) -> u64 {
        self.regions.iter().map(|region| region.memory.len_bytes()).sum()
    }

    /// Maps a region of at most `max_bytes` that the process `pid` has allocated. Returns whether it is
    /// mapped.
    pub(crate) fn map(&mut self, pid: i32, name: &RegionName, max_bytes: u64) -> bool {
        let Some(memory) = PeerMapping::map(pid, name, max_bytes) else {
            self.failures += 1;
            tracing::debug!(?name, "cannot map the region of a peer");
            return false;
        };
        self.failures = 0;
        if self.regions.len() >= PULLED_REGIONS_LINK_MAX {
            self.regions.remove(0);
        }
        tracing::trace!(?name, len_bytes = memory.len_bytes(), "mapped a region of a peer");
        self.regions.push(PeerRegion { name: *name, memory, places: Box::new([Place::default(); PLACES]) });
        true
    }

    /// Whether so many attempts to map have failed that a further one is not worth its time.
    pub(crate) fn has_given_up(&self) -> bool {
        self.failures >= MAP_FAILURES_MAX
    }

    /// Fills `into` from slices of a region. `writes_back` says for a payload's length whether writing
    /// back seems to pay.
    pub(crate) fn copy(
        &mut self,
        name: &RegionName,
        from: &RemoteSlices,
        into: &mut [IoSliceMut<'_>],
        writes_back: impl FnOnce(u64) -> bool,
    ) -> RegionCopy {
        let Some(at) = self.regions.iter().rposition(|region| region.name == *name) else {
            return RegionCopy::NotMapped;
        };
        if self.regions[at].memory.is_retired() {
            self.regions.remove(at);
            return RegionCopy::NotMapped;
        }
        self.regions[at..].rotate_left(1);
        let is_done = self.regions.last_mut().is_some_and(|region| region.copy(from, into, writes_back));
        if is_done { RegionCopy::Done } else { RegionCopy::OutOfRange }
    }

    /// Unmaps the regions that have ended.
    pub(crate) fn unmap_retired(&mut self) {
        self.regions.retain(|region| !region.memory.is_retired());
    }
}

impl PeerRegion {
    /// Returns false if the slices are not within the region.
    fn copy(
        &mut self,
        from: &RemoteSlices,
        into: &mut [IoSliceMut<'_>],
        writes_back: impl FnOnce(u64) -> bool,
    ) -> bool {
        let len_bytes = from.iter().map(|slice| slice.len_bytes).sum::<u64>();
        let offset_of = |address: u64| address.wrapping_sub(self.name.address);
        let Some(first) = from.first() else { return true };
        let offset_bytes = offset_of(first.address);
        let place = &mut self.places[place_index(offset_bytes)];
        let is_known = (place.offset_bytes, place.len_bytes) == (offset_bytes, len_bytes);
        let writes_back = is_known
            && place.is_overwritten
            && len_bytes <= REGION_WRITE_BACK_MAX_BYTES
            && writes_back(len_bytes);

        let mut into_slices = into.iter_mut().map(|slice| &mut **slice);
        let mut room: &mut [u8] = &mut [];
        for slice in from {
            let (mut offset, mut left_bytes) = (offset_of(slice.address), slice.len_bytes);
            while left_bytes > 0 {
                if room.is_empty() {
                    let Some(next) = into_slices.next() else { return false };
                    room = next;
                    continue;
                }
                let count = room.len().min(usize::try_from(left_bytes).unwrap_or(usize::MAX));
                let (start, rest) = room.split_at_mut(count);
                if !self.memory.read(offset, start, writes_back) {
                    return false;
                }
                room = rest;
                offset = offset.wrapping_add(count as u64);
                left_bytes -= count as u64;
            }
        }

        let sample = sample_words(into.first().map_or(&[], |slice| &**slice));
        let is_overwritten = is_known && place.sample != sample;
        *place = Place { offset_bytes, len_bytes, sample, is_overwritten };
        true
    }
}

fn place_index(offset_bytes: u64) -> usize {
    // Buffers usually start at multiples of a power of two. The product mixes all bits into the highest.
    (offset_bytes.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - PLACES.ilog2())) as usize
}

/// Makes a number of some words of `bytes`.
fn sample_words(bytes: &[u8]) -> u64 {
    let (words, _) = bytes.as_chunks();
    let step = (words.len() / SAMPLED_WORDS).max(1);
    let sampled = words.iter().step_by(step).map(|word| u64::from_le_bytes(*word));
    sampled.fold(0, |sample, word| (sample ^ word).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(29))
}

#[cfg(test)]
mod tests {
    use std::io::IoSlice;
    use std::process;

    use homespun_engine::buffer::SendBuffer;

    use super::*;
    use crate::ShmProvider;
    use crate::exposed::{Exposed, describe_in_region};
    use crate::shareable::host_memory_bytes;

    const LEN_BYTES: usize = 100_000;

    fn own_pid() -> i32 {
        i32::try_from(process::id()).unwrap()
    }

    fn make_buffer() -> SendBuffer {
        let mut buffer = SendBuffer::allocate(&ShmProvider::new(), LEN_BYTES).unwrap();
        let bytes = buffer.get_mut().unwrap();
        bytes.iter_mut().zip(0_u32..).for_each(|(byte, n)| *byte = (n % 251) as u8);
        buffer
    }

    fn describe(pieces: &[&[u8]]) -> Exposed {
        let pieces: Vec<_> = pieces.iter().map(|piece| IoSlice::new(piece)).collect();
        Exposed::parse(&describe_in_region(&pieces).unwrap()).unwrap()
    }

    fn map(regions: &mut PeerRegions, exposed: &Exposed) -> bool {
        regions.map(own_pid(), &exposed.region.unwrap(), host_memory_bytes())
    }

    fn copy(regions: &mut PeerRegions, exposed: &Exposed, offset_bytes: u64, into: &mut [u8]) -> RegionCopy {
        let from = exposed.slices_of_range(offset_bytes, into.len() as u64).unwrap();
        let (first, second) = into.split_at_mut(into.len() / 3);
        let into = &mut [IoSliceMut::new(first), IoSliceMut::new(&mut []), IoSliceMut::new(second)];
        regions.copy(&exposed.region.unwrap(), &from, into, |_| true)
    }

    #[test]
    fn slices_of_a_mapped_region_are_copied() {
        let (buffer, mut regions) = (make_buffer(), PeerRegions::default());
        let exposed = describe(&[&buffer[7..50_000], &buffer[3..4], &buffer[99_000..]]);
        let all = [&buffer[7..50_000], &buffer[3..4], &buffer[99_000..]].concat();
        let mut into = vec![0; all.len()];
        assert_eq!(copy(&mut regions, &exposed, 0, &mut into), RegionCopy::NotMapped);
        assert!(map(&mut regions, &exposed) && regions.contains(&exposed.region.unwrap()));
        for (offset, count) in [(0, all.len()), (49_990, 20), (0, 0), (all.len() - 1, 1), (3, 40_000)] {
            let into = &mut into[..count];
            assert_eq!(copy(&mut regions, &exposed, offset as u64, into), RegionCopy::Done);
            assert!(into == &all[offset..offset + count], "{count} bytes at {offset}");
        }
    }

    #[test]
    fn slices_beyond_the_region_are_not_copied() {
        let (buffer, mut regions) = (make_buffer(), PeerRegions::default());
        let exposed = describe(&[&buffer]);
        assert!(map(&mut regions, &exposed));
        let name = exposed.region.unwrap();
        for (address, len_bytes) in [
            (name.address - 1, 2),
            (name.address - 4096, 8),
            (name.address + LEN_BYTES as u64, 1),
            (name.address + LEN_BYTES as u64 - 1, 2),
            (0, 10),
            (u64::MAX, 10),
        ] {
            let from = RemoteSlices::from_iter([crate::sys::RemoteSlice { address, len_bytes }]);
            let mut into = vec![0; len_bytes as usize];
            let copied = regions.copy(&name, &from, &mut [IoSliceMut::new(&mut into)], |_| false);
            assert_eq!(copied, RegionCopy::OutOfRange, "{len_bytes} bytes at {address:#x}");
        }
    }

    #[test]
    fn wrong_or_too_large_region_is_not_mapped() {
        let (buffer, mut regions) = (make_buffer(), PeerRegions::default());
        let name = describe(&[&buffer]).region.unwrap();
        for wrong in [
            RegionName { nonce: !name.nonce, ..name },
            RegionName { descriptor: 0, ..name },
            RegionName { descriptor: 0xff_ffff, ..name },
        ] {
            assert!(!regions.map(own_pid(), &wrong, host_memory_bytes()));
        }
        assert!(!regions.map(own_pid(), &name, LEN_BYTES as u64));
        assert!(!regions.map(0, &name, host_memory_bytes()));
        assert!(!regions.has_given_up());
        assert!(regions.map(own_pid(), &name, host_memory_bytes()));
        for _ in 0..MAP_FAILURES_MAX {
            assert!(!regions.has_given_up() && !regions.map(0, &name, host_memory_bytes()));
        }
        assert!(regions.has_given_up());
    }

    #[test]
    fn ended_region_is_unmapped() {
        let (buffers, mut regions) = ([make_buffer(), make_buffer()], PeerRegions::default());
        let exposed = [describe(&[&buffers[0]]), describe(&[&buffers[1]])];
        assert!(exposed.iter().all(|exposed| map(&mut regions, exposed)));
        let [first, second] = buffers;
        drop(first);
        assert_eq!(copy(&mut regions, &exposed[0], 0, &mut [0; 8]), RegionCopy::NotMapped);
        assert!(!regions.contains(&exposed[0].region.unwrap()) && !map(&mut regions, &exposed[0]));
        drop(second);
        regions.unmap_retired();
        assert!(regions.is_empty() && regions.mapped_bytes() == 0);
    }

    #[test]
    fn region_used_least_recently_makes_room() {
        let buffers: Vec<_> = (0..=PULLED_REGIONS_LINK_MAX).map(|_| make_buffer()).collect();
        let exposed: Vec<_> = buffers.iter().map(|buffer| describe(&[buffer])).collect();
        let (last, others) = exposed.split_last().unwrap();
        let mut regions = PeerRegions::default();
        assert!(others.iter().all(|exposed| map(&mut regions, exposed)));
        assert_eq!(copy(&mut regions, &exposed[0], 0, &mut [0; 8]), RegionCopy::Done);
        assert!(map(&mut regions, last));
        let is_mapped = |exposed: &Exposed| regions.contains(&exposed.region.unwrap());
        assert!(is_mapped(&exposed[0]) && !is_mapped(&exposed[1]) && is_mapped(last));
    }

    #[test]
    fn overwritten_payload_is_written_back() {
        let (mut buffer, mut regions) = (make_buffer(), PeerRegions::default());
        let exposed = describe(&[&buffer]);
        assert!(map(&mut regions, &exposed));
        let copy_and_see_write_back = |regions: &mut PeerRegions| {
            let (mut into, mut is_asked) = (vec![0; 20_000], false);
            let from = exposed.slices_of_range(0, 20_000).unwrap();
            let copied = regions.copy(
                &exposed.region.unwrap(),
                &from,
                &mut [IoSliceMut::new(&mut into)],
                |len_bytes| {
                    is_asked = len_bytes == 20_000;
                    is_asked
                },
            );
            assert_eq!(copied, RegionCopy::Done);
            (into, is_asked)
        };
        assert!(!copy_and_see_write_back(&mut regions).1, "nothing is known yet");
        assert!(!copy_and_see_write_back(&mut regions).1, "nothing has changed");
        for round in 0..3 {
            buffer.get_mut().unwrap()[..20_000].fill(round);
            let (into, is_written_back) = copy_and_see_write_back(&mut regions);
            assert_eq!((into, is_written_back), (vec![round; 20_000], round > 0));
        }
        assert!(copy_and_see_write_back(&mut regions).1);
        assert!(!copy_and_see_write_back(&mut regions).1, "the application overwrites it no more");
    }
}
