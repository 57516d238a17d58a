use std::sync::Arc;
use std::thread;

use proptest::prelude::*;

use super::super::{RegionAttr, Regions, Words};
use super::*;
use crate::atomic::{AtomicOp, Datatype};
use crate::flags::MrAccess;
use crate::loopback::{Faults, Network};
use crate::transport::Provider;

const ACCESS: MrAccess = MrAccess::REMOTE_READ.union(MrAccess::REMOTE_WRITE);

/// The key of the region that peers may map.
const SHAREABLE: u64 = 9;

fn region_attr(key: u64) -> RegionAttr {
    RegionAttr { key, access: ACCESS, base_address: 0 }
}

/// Regions of equal length, one for each way to update elements: owned memory; raw memory of one aligned
/// segment, of one misaligned segment, and of three segments; and memory that peers may map. The tests read
/// the memory only after the regions are gone.
struct Ways {
    regions: Regions,
    memory: Vec<Vec<u64>>,
    keys: Vec<u64>,
    /// The memory of the first raw region.
    start: SegmentMut,
}

impl Ways {
    fn new(len_bytes: usize) -> Ways {
        let regions = Regions::default();
        regions.add(Region::owned(len_bytes, region_attr(0)).unwrap()).unwrap();
        let mut memory: Vec<Vec<u64>> = (0..3).map(|_| vec![0; len_bytes / 8 + 3]).collect();
        let at = |memory: &mut Vec<u64>, offset_bytes, len_bytes| {
            let address = memory.as_mut_ptr().cast::<u8>().wrapping_add(offset_bytes);
            SegmentMut { address, len_bytes }
        };
        let (first, second) = (len_bytes / 3, len_bytes / 2);
        let segments = [
            vec![at(&mut memory[0], 0, len_bytes)],
            vec![at(&mut memory[1], 3, len_bytes)],
            vec![
                at(&mut memory[2], 0, first),
                at(&mut memory[2], first + 1, second - first),
                at(&mut memory[2], second + 2, len_bytes - second),
            ],
        ];
        let shareable = Network::new(0, Faults::default()).allocate_shareable(len_bytes).unwrap();
        let shareable = Region::shareable(shareable.unwrap(), len_bytes, region_attr(SHAREABLE));
        regions.add(shareable.unwrap()).unwrap();
        let start = segments[0][0];
        for (key, segments) in (1..).zip(segments) {
            // SAFETY: the memory outlives the regions, and no test reads it before they are gone.
            regions.add(unsafe { Region::raw(&segments, region_attr(key)) }.unwrap()).unwrap();
        }
        Ways { regions, memory, keys: vec![0, 1, 2, 3, SHAREABLE], start }
    }

    fn open_window(&self, key: u64, offset_bytes: usize, len_bytes: usize) -> Window {
        self.regions.checked_window(key, offset_bytes as u64, len_bytes as u64, ACCESS).unwrap()
    }
}

fn make_elements(op: AtomicOp, datatype: Datatype, count: usize, values: [&[u8]; 2]) -> Elements<'_> {
    let (combine, [operands, compares]) = (op.combine_fn(datatype).unwrap(), values);
    Elements { combine, size_bytes: datatype.size_bytes(), count, operands, compares }
}

proptest! {
    /// Elements change like bytes of a vector, in every kind of memory and at all offsets.
    #[test]
    fn atomics_match_byte_model_in_every_kind_of_memory(
        len_bytes in 1_usize..200,
        steps in prop::collection::vec(any::<([prop::sample::Index; 4], [u64; 2])>(), 1..20),
    ) {
        let ways = Ways::new(len_bytes);
        let mut model = vec![0; len_bytes];
        for ([at, op, datatype, count], seeds) in steps {
            let (op, datatype) = (*op.get(&AtomicOp::ALL), *datatype.get(&Datatype::ALL));
            let Some(combine) = op.combine_fn(datatype) else { continue };
            let size_bytes = datatype.size_bytes();
            let count = (1 + count.index(5)).min(len_bytes / size_bytes);
            if count == 0 {
                continue;
            }
            let place = at.index(len_bytes - count * size_bytes + 1);
            let random = |seed: u64| -> Vec<u8> {
                let mut random = fastrand::Rng::with_seed(seed);
                (0..count * size_bytes).map(|_| random.u8(..)).collect()
            };
            let [operands, compares] = seeds.map(random);
            let range = place..place + count * size_bytes;
            let before = model[range.clone()].to_vec();
            let parts = model[range].chunks_exact_mut(size_bytes);
            for ((element, operand), compare) in
                parts.zip(operands.chunks(size_bytes)).zip(compares.chunks(size_bytes))
            {
                combine(element, operand, compare);
            }
            for key in &ways.keys {
                let mut fetched = Vec::new();
                let window = ways.open_window(*key, place, count * size_bytes);
                let elements = make_elements(op, datatype, count, [&operands, &compares]);
                prop_assert!(window.update_elements_if_open(&elements, Some(&mut fetched)));
                prop_assert_eq!(&fetched, &before, "{} of {} in region {}", op, datatype, key);
                let mut content = vec![0; len_bytes];
                ways.open_window(*key, 0, len_bytes).open().unwrap().copy_out(0, &mut content);
                prop_assert_eq!(&content, &model, "{} of {} in region {}", op, datatype, key);
            }
        }
        let Ways { regions, memory, .. } = ways;
        drop(regions);
        // The memory between and after the segments was not touched.
        let bytes: Vec<u8> = memory[2].iter().flat_map(|word| word.to_ne_bytes()).collect();
        let (first, second) = (len_bytes / 3, len_bytes / 2);
        prop_assert!(bytes[first] == 0 && bytes[second + 1] == 0);
        prop_assert!(bytes[len_bytes + 2..].iter().all(|byte| *byte == 0));
    }
}

#[test]
fn update_through_closed_region_is_refused() {
    let mut memory = vec![7_u64; 2];
    let regions = Regions::default();
    let segment = SegmentMut { address: memory.as_mut_ptr().cast(), len_bytes: 16 };
    // SAFETY: the test does not read the memory before the region has ended.
    let region = regions.add(unsafe { Region::raw(&[segment], region_attr(1)) }.unwrap()).unwrap();
    let window = regions.checked_window(1, 0, 16, ACCESS).unwrap();
    regions.close(&region);
    let ones = 1_u64.to_ne_bytes().repeat(2);
    let mut fetched = Vec::new();
    let adding = make_elements(AtomicOp::Sum, Datatype::Uint64, 2, [&ones, &[]]);
    assert!(!window.update_elements_if_open(&adding, Some(&mut fetched)));
    assert_eq!((memory, fetched), (vec![7; 2], vec![]));
}

/// Threads add to the same elements through several regions. Two of the regions have the same memory. No
/// update is lost, whether the processor or a lock makes it atomic. Each value of an element is fetched
/// once.
#[test]
fn concurrent_atomic_updates_are_all_applied() {
    const THREADS: usize = 4;
    const ROUNDS: usize = 2000;
    let places = [
        (Datatype::Uint16, [0, 7]),
        (Datatype::Uint32, [4, 6]),
        (Datatype::Uint64, [0, 5]),
        (Datatype::Uint128, [0, 57]),
    ];
    for (datatype, offset_bytes) in
        places.into_iter().flat_map(|(datatype, offsets)| offsets.map(|at| (datatype, at)))
    {
        let size_bytes = datatype.size_bytes();
        let ways = Arc::new(Ways::new(96));
        // This region has the same memory as the first raw region.
        // SAFETY: as for the first region of this memory.
        ways.regions.add(unsafe { Region::raw(&[ways.start], region_attr(4)) }.unwrap()).unwrap();
        let mut one = vec![0; size_bytes];
        one[if cfg!(target_endian = "big") { size_bytes - 1 } else { 0 }] = 1;
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let (ways, one) = (ways.clone(), one.clone());
                thread::spawn(move || {
                    let mut fetched = [const { Vec::new() }; 4];
                    for _ in 0..ROUNDS {
                        for key in 0..4_u64 {
                            // The memory of region 1 has two keys.
                            let by = if key == 1 && thread % 2 == 1 { 4 } else { key };
                            let window = ways.open_window(by, offset_bytes, size_bytes);
                            let adding = make_elements(AtomicOp::Sum, datatype, 1, [&one, &[]]);
                            let fetched = &mut fetched[key as usize];
                            assert!(window.update_elements_if_open(&adding, Some(fetched)));
                        }
                    }
                    fetched
                })
            })
            .collect();
        let mut all = [const { Vec::new() }; 4];
        for thread in threads {
            for (all, fetched) in all.iter_mut().zip(thread.join().unwrap()) {
                all.extend(fetched.chunks_exact(size_bytes).map(|bytes| {
                    let mut whole = [0; 16];
                    let place = if cfg!(target_endian = "big") { 16 - size_bytes } else { 0 };
                    whole[place..place + size_bytes].copy_from_slice(bytes);
                    u128::from_ne_bytes(whole)
                }));
            }
        }
        for all in &mut all {
            all.sort_unstable();
            let expected: Vec<u128> = (0..(THREADS * ROUNDS) as u128).collect();
            assert!(*all == expected, "{datatype} at {offset_bytes}");
        }
    }
}

/// Words whose lock address differs from their address.
struct WordsWithLockAddress(Vec<AtomicU64>, usize);

impl Words for WordsWithLockAddress {
    fn words(&self) -> &[AtomicU64] {
        &self.0
    }

    fn lock_address(&self) -> usize {
        self.1
    }
}

#[test]
fn element_lock_is_selected_by_lock_address() {
    const PLACE: usize = 5 * LOCKED_BYTES;
    let regions = Regions::default();
    let words = WordsWithLockAddress((0..16).map(|_| AtomicU64::new(0)).collect(), PLACE);
    let region = regions.add(Region::kept_by(Box::new(words), 128, region_attr(1)).unwrap()).unwrap();
    let is_free = |number: usize| LOCKED[number % LOCKS].try_lock().is_ok();
    // Other tests may hold a lock for a moment.
    let is_held = |number: usize| (0..100).all(|_| !is_free(number));
    for (offset_bytes, numbers) in [(0, 5..6), (48, 5..6), (56, 5..7), (64, 6..7)] {
        region.update_element(offset_bytes, &mut [0; 16], |_| {
            assert!(numbers.clone().all(is_held), "{offset_bytes}");
            false
        });
    }
}
