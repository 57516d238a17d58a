//! Indexes that find the earliest match in a long queue.
//!
//! Both indexes keep one ordered set for each ignore mask in use. In a set, entries with the same source
//! filter and the same masked tag lie together, the earliest first. So one search finds the earliest match
//! under a mask. The sets are ordered, not hashed, because peers choose tags and sources, and could choose
//! values that hash badly.

use std::collections::BTreeSet;
use std::fmt;

use crate::matching::{Criteria, Envelope};
use crate::peer_id::PeerId;

/// For how many masks the index of unexpected messages has sets. A search with any further mask checks one
/// message after another.
const UNEXPECTED_MASKS_MAX: usize = 8;

/// The place of an entry in the order of arrival.
pub(super) type Sequence = u64;

/// An index of all entries of a queue by their keys.
pub(super) trait Index: Default + fmt::Debug {
    /// The key of an entry, which a query matches.
    type Key: Copy + fmt::Debug;
    /// The query that searches for a matching key.
    type Query;

    fn is_match(key: &Self::Key, query: &Self::Query) -> bool;

    fn insert(&mut self, key: &Self::Key, sequence: Sequence);

    /// Removes the entry with this key and sequence number.
    fn remove(&mut self, key: &Self::Key, sequence: Sequence);

    /// Returns the earliest entry that matches. `entries` are all entries of the queue, in order.
    fn earliest_match(
        &mut self,
        query: &Self::Query,
        entries: impl Iterator<Item = (Self::Key, Sequence)>,
    ) -> Option<Sequence>;
}

/// The entries under one mask, ordered by source filter, then by masked tag, then by sequence number.
#[derive(Debug)]
struct Masked {
    ignore: u64,
    entries: BTreeSet<(Option<PeerId>, u64, Sequence)>,
}

impl Masked {
    fn new(ignore: u64) -> Masked {
        Masked { ignore, entries: BTreeSet::new() }
    }

    fn insert(&mut self, source: Option<PeerId>, tag: u64, sequence: Sequence) {
        self.entries.insert((source, tag | self.ignore, sequence));
    }

    fn remove(&mut self, source: Option<PeerId>, tag: u64, sequence: Sequence) {
        self.entries.remove(&(source, tag | self.ignore, sequence));
    }

    fn earliest_match(&self, source: Option<PeerId>, tag: u64) -> Option<Sequence> {
        let tag = tag | self.ignore;
        let (_, _, sequence) = self.entries.range((source, tag, 0)..=(source, tag, Sequence::MAX)).next()?;
        Some(*sequence)
    }
}

/// The index of posted receives. Each receive is in the set of its mask. For a message, the index searches
/// every set twice: for receives from the message's sender, and for receives from any source.
#[derive(Debug, Default)]
pub(super) struct PostedIndex {
    masks: Vec<Masked>,
}

impl Index for PostedIndex {
    type Key = Criteria;
    type Query = Envelope;

    #[inline(always)]
    fn is_match(key: &Criteria, query: &Envelope) -> bool {
        query.is_accepted_by(key)
    }

    fn insert(&mut self, key: &Criteria, sequence: Sequence) {
        let at = self.masks.iter().position(|mask| mask.ignore == key.ignore).unwrap_or_else(|| {
            self.masks.push(Masked::new(key.ignore));
            self.masks.len() - 1
        });
        self.masks[at].insert(key.source, key.tag, sequence);
    }

    fn remove(&mut self, key: &Criteria, sequence: Sequence) {
        if let Some(at) = self.masks.iter().position(|mask| mask.ignore == key.ignore) {
            self.masks[at].remove(key.source, key.tag, sequence);
            if self.masks[at].entries.is_empty() {
                self.masks.swap_remove(at);
            }
        }
    }

    fn earliest_match(
        &mut self,
        query: &Envelope,
        _: impl Iterator<Item = (Criteria, Sequence)>,
    ) -> Option<Sequence> {
        let filters = [Some(query.source), None];
        self.masks
            .iter()
            .flat_map(|mask| filters.map(|source| mask.earliest_match(source, query.tag)))
            .flatten()
            .min()
    }
}

/// The index of unexpected messages. Each of the first [`UNEXPECTED_MASKS_MAX`] masks that receives use gets
/// a set. Each set has each message twice: under the message's sender, and under any source. For a receive,
/// the index searches only the set of the receive's mask.
#[derive(Debug, Default)]
pub(super) struct UnexpectedIndex {
    masks: Vec<Masked>,
}

impl Index for UnexpectedIndex {
    type Key = Envelope;
    type Query = Criteria;

    fn is_match(key: &Envelope, query: &Criteria) -> bool {
        key.is_accepted_by(query)
    }

    fn insert(&mut self, key: &Envelope, sequence: Sequence) {
        for mask in &mut self.masks {
            mask.insert(Some(key.source), key.tag, sequence);
            mask.insert(None, key.tag, sequence);
        }
    }

    fn remove(&mut self, key: &Envelope, sequence: Sequence) {
        for mask in &mut self.masks {
            mask.remove(Some(key.source), key.tag, sequence);
            mask.remove(None, key.tag, sequence);
        }
    }

    fn earliest_match(
        &mut self,
        query: &Criteria,
        mut entries: impl Iterator<Item = (Envelope, Sequence)>,
    ) -> Option<Sequence> {
        if let Some(mask) = self.masks.iter().find(|mask| mask.ignore == query.ignore) {
            return mask.earliest_match(query.source, query.tag);
        }
        if self.masks.len() == UNEXPECTED_MASKS_MAX {
            return entries.find(|(key, _)| key.is_accepted_by(query)).map(|(_, sequence)| sequence);
        }
        let mut mask = Masked::new(query.ignore);
        for (key, sequence) in entries {
            mask.insert(Some(key.source), key.tag, sequence);
            mask.insert(None, key.tag, sequence);
        }
        let earliest = mask.earliest_match(query.source, query.tag);
        self.masks.push(mask);
        earliest
    }
}
