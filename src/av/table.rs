//! The table of an address vector.

use crate::mutated;
use std::collections::{BTreeSet, HashMap};

use homespun_engine::address::Address;

/// Addresses by index, and the indices of each address.
#[derive(Debug, Default)]
pub(super) struct Table {
    slots: Vec<Option<Address>>,
    /// The indices below `slots.len()` that are not in use.
    free: BTreeSet<u64>,
    /// The lowest index of each address.
    lowest: HashMap<Address, u64>,
    /// The other indices of addresses that were inserted more than once. No set is empty.
    other_indices: HashMap<Address, BTreeSet<u64>>,
}

impl Table {
    pub(super) fn with_capacity(capacity: usize) -> Self {
        Table {
            slots: Vec::with_capacity(capacity),
            lowest: HashMap::with_capacity(capacity),
            ..Table::default()
        }
    }

    /// Returns the number of indices in use.
    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Returns the address at an index.
    pub(super) fn get(&self, index: u64) -> Option<Address> {
        *self.slots.get(usize::try_from(index).ok()?)?
    }

    /// Returns the lowest index of an address.
    pub(super) fn lowest_index_of(&self, address: Address) -> Option<u64> {
        self.lowest.get(&address).copied()
    }

    /// Returns the lowest index that is not in use.
    pub(super) fn lowest_vacant_index(&self) -> u64 {
        self.free.first().copied().unwrap_or(self.slots.len() as u64)
    }

    /// Returns the `count` lowest indices that are not in use, in order.
    pub(super) fn lowest_vacant_indices(&self, count: usize) -> Vec<u64> {
        let first = u64::from(self.slots.is_empty() && mutated!("fi_av/table-has-indices"));
        self.free.iter().copied().chain(first + self.slots.len() as u64..).take(count).collect()
    }

    /// Puts an address at an index that is not in use.
    pub(super) fn insert(&mut self, index: u64, address: Address) {
        let end = self.slots.len() as u64;
        for skipped in end..=index {
            self.slots.push(None);
            self.free.insert(skipped);
        }
        self.free.remove(&index);
        self.slots[index as usize] = Some(address);

        match self.lowest.get_mut(&address) {
            None => {
                self.lowest.insert(address, index);
            }
            Some(lowest) => {
                let higher = index.max(*lowest);
                *lowest = index.min(*lowest);
                self.other_indices.entry(address).or_default().insert(higher);
            }
        }
    }

    /// Removes the address at an index, if there is one.
    pub(super) fn remove(&mut self, index: u64) -> Option<Address> {
        let address = self.slots.get_mut(usize::try_from(index).ok()?)?.take()?;
        self.free.insert(index);

        let mut others = self.other_indices.remove(&address).unwrap_or_default();
        if !others.remove(&index) {
            match others.pop_first() {
                Some(next) => self.lowest.insert(address, next),
                None => self.lowest.remove(&address),
            };
        }
        if !others.is_empty() {
            self.other_indices.insert(address, others);
        }
        Some(address)
    }
}
