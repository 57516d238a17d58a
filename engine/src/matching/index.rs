//! What finds the earliest match in a long queue.
//!
//! Both directions have the same shape: for each mask of ignored bits that receives use, which in practice
//! are few, one ordered set. In it, entries with the same source filter and the same tag under that mask are
//! neighbours, the earliest first, so that the best match under a mask is one search away. Ordered sets
//! rather than hash tables, because tags and sources are chosen by others.

use std::collections::BTreeSet;
use std::fmt;

use crate::matching::{Criteria, Envelope};
use crate::peer_id::PeerId;

/// How many masks unexpected messages are indexed under. An application that uses more of them, while many
/// messages wait, has its later masks searched for one message after another.
const UNEXPECTED_MASKS_MAX: usize = 8;

/// The place of an entry in the order of arrival.
pub(super) type Sequence = u64;

/// Knows all entries of a queue by their keys.
pub(super) trait Index: Default + fmt::Debug {
    /// What the entries are matched by.
    type Key: Copy + fmt::Debug;
    /// What they are matched with.
    type Query;

    fn is_match(key: &Self::Key, query: &Self::Query) -> bool;

    fn insert(&mut self, key: &Self::Key, sequence: Sequence);

    /// Removes what was inserted with the same key and sequence number.
    fn remove(&mut self, key: &Self::Key, sequence: Sequence);

    /// The earliest entry that matches. `entries` are all there are, the earliest first.
    fn earliest_match(
        &mut self,
        query: &Self::Query,
        entries: impl Iterator<Item = (Self::Key, Sequence)>,
    ) -> Option<Sequence>;
}

/// Entries in the order of source filter, tag under the mask, sequence number.
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

/// Posted receives: each is filed once, under its own mask; a message asks every mask, for receives from its
/// sender and for receives from any source.
#[derive(Debug, Default)]
pub(super) struct PostedIndex {
    masks: Vec<Masked>,
}

impl Index for PostedIndex {
    type Key = Criteria;
    type Query = Envelope;

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

/// Unexpected messages: each is filed under every mask that a receive has asked for, once under its
/// sender and once under any source; a receive asks once.
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
