//! A queue that is searched from its front.

use std::collections::{TryReserveError, VecDeque};

use crate::matching::index::{Index, Sequence};
use crate::mutated;

/// How many entries a search scans before it uses an index. An index costs more than this scan, so
/// a queue of up to this length never builds an index.
const SCAN_MAX_ENTRIES: usize = 16;

/// A queue with fewer entries drops its index. The number is less than the length at which a queue
/// builds an index. So a queue whose length varies a little does not build an index again and
/// again.
const INDEX_MIN_ENTRIES: usize = SCAN_MAX_ENTRIES / 2;

/// A queue whose capacity is no larger than this never shrinks.
const SHRINK_MIN_ENTRIES: usize = 256;

/// Entries in the order of arrival, each with a key and a name.
///
/// If an entry near either end is removed, the gap closes. If a deeper entry is removed, its slot
/// stays vacant. The slot at the front is never vacant, and vacant slots never outnumber the
/// entries.
#[derive(Debug)]
pub(super) struct IndexedQueue<X: Index, N> {
    /// Sorted by sequence number.
    slots: VecDeque<Slot<X::Key, N>>,
    vacant: usize,
    next: Sequence,
    index: Option<X>,
}

#[derive(Debug)]
struct Slot<K, N> {
    sequence: Sequence,
    entry: Option<(K, N)>,
}

impl<X: Index, N: Copy + Eq> IndexedQueue<X, N> {
    pub(super) fn new() -> Self {
        IndexedQueue { slots: VecDeque::new(), vacant: 0, next: 0, index: None }
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.vacant
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = N> {
        self.slots.iter().filter_map(|slot| slot.entry.map(|(_, name)| name))
    }

    /// Returns the keys of the entries.
    pub(super) fn keys(&self) -> impl Iterator<Item = X::Key> {
        self.slots.iter().filter_map(|slot| slot.entry.map(|(key, _)| key))
    }

    /// Returns the names of the entries whose key `matches`.
    pub(super) fn iter_where(&self, matches: impl Fn(&X::Key) -> bool) -> impl Iterator<Item = N> {
        let entries = self.slots.iter().filter_map(|slot| slot.entry);
        entries.filter_map(move |(key, name)| matches(&key).then_some(name))
    }

    /// Makes room for one more entry.
    #[inline]
    pub(super) fn try_reserve(&mut self) -> Result<(), TryReserveError> {
        self.slots.try_reserve(1)
    }

    /// Adds an entry behind all others, and returns its sequence number.
    #[inline]
    pub(super) fn push(&mut self, key: X::Key, name: N) -> Sequence {
        let sequence = self.next;
        self.next += 1;
        self.slots.push_back(Slot { sequence, entry: Some((key, name)) });
        if let Some(index) = &mut self.index {
            index.insert(&key, sequence);
        }
        sequence
    }

    /// Removes and returns the earliest entry that matches.
    #[inline]
    pub(super) fn take_earliest(&mut self, query: &X::Query) -> Option<N> {
        let at = self.find_earliest(query)?;
        self.take_at(at)
    }

    /// Returns the earliest entry that matches, and leaves it in the queue.
    pub(super) fn peek_earliest(&mut self, query: &X::Query) -> Option<N> {
        let at = self.find_earliest(query)?;
        self.slots[at].entry.map(|(_, name)| name)
    }

    /// Searches from the front for the entry with this name, and removes it. Returns whether there
    /// was one.
    pub(super) fn remove(&mut self, name: N) -> bool {
        let at = self.slots.iter().position(|slot| slot.entry.is_some_and(|(_, found)| found == name));
        at.is_some_and(|at| self.take_at(at).is_some())
    }

    /// Removes the entry with this sequence number and name. Returns whether there was one.
    pub(super) fn remove_at(&mut self, sequence: Sequence, name: N) -> bool {
        let Ok(at) = self.slots.binary_search_by_key(&sequence, |slot| slot.sequence) else { return false };
        let is_there = self.slots[at].entry.is_some_and(|(_, found)| found == name);
        is_there && self.take_at(at).is_some()
    }

    /// Removes and returns all entries that `matches` selects, in one pass.
    pub(super) fn take_all_where(&mut self, matches: impl Fn(&X::Key, N) -> bool) -> Vec<N> {
        let mut taken = Vec::new();
        for slot in &mut self.slots {
            if let Some((_, name)) = slot.entry.take_if(|(key, name)| matches(key, *name)) {
                taken.push(name);
            }
        }
        if !taken.is_empty() {
            // The next search that needs the index builds it again.
            self.index = None;
            self.slots.retain(|slot| slot.entry.is_some());
            self.vacant = 0;
        }
        taken
    }

    /// Removes all entries.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = N> {
        self.vacant = 0;
        self.index = None;
        self.slots.drain(..).filter_map(|slot| slot.entry.map(|(_, name)| name))
    }

    /// Returns the first entry, if it matches.
    #[inline(always)]
    pub(super) fn front_if_matches(&self, query: &X::Query) -> Option<N> {
        let (key, name) = self.slots.front()?.entry.as_ref()?;
        X::is_match(key, query).then_some(*name)
    }

    /// Returns the position of the earliest entry that matches.
    #[inline]
    fn find_earliest(&mut self, query: &X::Query) -> Option<usize> {
        let is_match =
            |slot: &Slot<X::Key, N>| slot.entry.as_ref().is_some_and(|(key, _)| X::is_match(key, query));
        if mutated!("fi_tagged/tags-are-checked-in-order") {
            return self.slots.iter().rposition(is_match);
        }
        // Most often the front matches, or the queue is empty.
        if self.slots.front().is_none_or(is_match) {
            return self.slots.front().map(|_| 0);
        }
        let near = self.slots.iter().take(SCAN_MAX_ENTRIES).position(is_match);
        if near.is_some() || self.slots.len() <= SCAN_MAX_ENTRIES {
            return near;
        }
        let entries = || self.slots.iter().filter_map(|slot| slot.entry.map(|(key, _)| (key, slot.sequence)));
        let index = self.index.get_or_insert_with(|| {
            let mut index = X::default();
            entries().for_each(|(key, sequence)| index.insert(&key, sequence));
            index
        });
        let sequence = index.earliest_match(query, entries())?;
        self.slots.binary_search_by_key(&sequence, |slot| slot.sequence).ok()
    }

    #[inline(always)]
    pub(super) fn take_at(&mut self, at: usize) -> Option<N> {
        if at == 0 && self.vacant == 0 && self.index.is_none() {
            let slot = self.slots.pop_front()?;
            self.shrink_if_large();
            return slot.entry.map(|(_, name)| name);
        }
        self.take_from_middle(at)
    }

    fn take_from_middle(&mut self, at: usize) -> Option<N> {
        let sequence = self.slots.get(at)?.sequence;
        let from_end = at.min(self.slots.len() - 1 - at);
        let (key, name) = if from_end <= SCAN_MAX_ENTRIES {
            self.slots.remove(at)?.entry
        } else {
            self.vacant += 1;
            self.slots[at].entry.take()
        }?;
        if let Some(index) = &mut self.index {
            index.remove(&key, sequence);
        }
        self.compact();
        Some(name)
    }

    /// Frees memory if the queue was once much longer.
    #[inline(always)]
    fn shrink_if_large(&mut self) {
        if self.slots.capacity() > SHRINK_MIN_ENTRIES {
            self.shrink_if_worthwhile();
        }
    }

    #[cold]
    fn shrink_if_worthwhile(&mut self) {
        let room = self.slots.capacity();
        if self.slots.len() < room / 4 {
            self.slots.shrink_to(room / 2);
        }
    }

    /// Removes vacant slots where the queue has too many. Drops the index if the queue has become
    /// short.
    fn compact(&mut self) {
        while self.slots.front().is_some_and(|slot| slot.entry.is_none()) {
            self.slots.pop_front();
            self.vacant -= 1;
        }
        if self.vacant > self.len() {
            self.slots.retain(|slot| slot.entry.is_some());
            self.vacant = 0;
        }
        if self.len() < INDEX_MIN_ENTRIES {
            self.index = None;
        }
        self.shrink_if_large();
    }
}
