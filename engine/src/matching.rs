//! Matches messages that arrive with posted receives: `fi_msg(3)`, `fi_tagged(3)`.
//!
//! A message takes the earliest posted receive that accepts it; a receive takes the earliest
//! message that has arrived before it and that it accepts. Messages and receives without a match
//! wait in two queues, in order.
//!
//! A search first scans the front of a queue, which is a dense array. Only if the match lies deeper
//! does it build an index, which is kept until the queue is short again. With the index a search
//! costs the logarithm of the queue's length, for each of the few ignore masks that receives use,
//! however many tags and sources there are.

mod index;
mod queue;

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;

use crate::matching::index::{PostedIndex, UnexpectedIndex};
use crate::matching::queue::IndexedQueue;
use crate::peer_id::PeerId;

/// Which messages a receive accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Criteria {
    /// The only sender it accepts messages from; `None` is any (`FI_ADDR_UNSPEC`).
    pub source: Option<PeerId>,
    /// The tag.
    pub tag: u64,
    /// The bits of the tag that do not matter.
    pub ignore: u64,
}

impl Criteria {
    /// Returns criteria that accept every message.
    pub const fn any() -> Criteria {
        Criteria { source: None, tag: 0, ignore: u64::MAX }
    }

    /// Whether a message with this sender and tag is accepted.
    pub fn accepts(&self, source: PeerId, tag: u64) -> bool {
        (tag ^ self.tag) & !self.ignore == 0 && self.source.is_none_or(|only| only == source)
    }
}

/// The properties of a message that matching uses. Untagged messages have tag 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Envelope {
    source: PeerId,
    tag: u64,
}

impl Envelope {
    fn is_accepted_by(&self, criteria: &Criteria) -> bool {
        criteria.accepts(self.source, self.tag)
    }
}

/// The posted receives and the unexpected messages of one space: tagged and untagged messages never match
/// each other, so each has its own.
///
/// `R` names a receive and `U` a message. A name is unique among those that wait.
///
/// The caller first matches a message that arrives with the posted receives
/// ([`take_posted`](Self::take_posted)), and adds it to the unexpected messages only if no receive
/// accepts it. It first matches a new receive with the unexpected messages
/// ([`take_unexpected`](Self::take_unexpected)). So no receive waits beside a message that it
/// accepts, unless the receiver sets messages aside for it.
#[derive(Debug)]
pub struct Matching<R, U> {
    posted: IndexedQueue<PostedIndex, R>,
    unexpected: IndexedQueue<UnexpectedIndex, U>,
}

impl<R: Copy + Eq, U: Copy + Eq> Default for Matching<R, U> {
    fn default() -> Self {
        Self::new()
    }
}

impl<R: Copy + Eq, U: Copy + Eq> Matching<R, U> {
    /// Creates an empty space.
    pub fn new() -> Matching<R, U> {
        Matching { posted: IndexedQueue::new(), unexpected: IndexedQueue::new() }
    }

    /// Takes the earliest posted receive that accepts a message with this sender and tag.
    #[inline]
    pub fn take_posted(&mut self, source: PeerId, tag: u64) -> Option<R> {
        self.posted.take_earliest(&Envelope { source, tag })
    }

    /// Returns the earliest posted receive that accepts a message with this sender and tag, and
    /// leaves it where it is.
    #[inline]
    pub fn peek_posted(&mut self, source: PeerId, tag: u64) -> Option<R> {
        self.posted.peek_earliest(&Envelope { source, tag })
    }

    /// Adds a message behind all others. No posted receive accepts it, or none may take it yet.
    pub fn add_unexpected(&mut self, source: PeerId, tag: u64, message: U) {
        self.unexpected.push(Envelope { source, tag }, message);
    }

    /// Takes the earliest unexpected message that the criteria accept.
    #[inline]
    pub fn take_unexpected(&mut self, criteria: &Criteria) -> Option<U> {
        self.unexpected.take_earliest(criteria)
    }

    /// Returns the earliest unexpected message that the criteria accept (`FI_PEEK`), and leaves it
    /// where it is. Only the speed of the next search may change.
    pub fn peek_unexpected(&mut self, criteria: &Criteria) -> Option<U> {
        self.unexpected.peek_earliest(criteria)
    }

    /// Posts a receive behind all others. It accepts no unexpected message, or may take none yet.
    #[inline]
    pub fn add_posted(&mut self, criteria: Criteria, receive: R) {
        self.posted.push(criteria, receive);
    }

    /// Removes a posted receive. Returns whether it was there.
    pub fn remove_posted(&mut self, receive: R) -> bool {
        self.posted.remove(receive)
    }

    /// Takes all posted receives that accept messages only from this source, the earliest first.
    pub fn take_all_directed_posted(&mut self, source: PeerId) -> Vec<R> {
        self.posted.take_all_where(|criteria, _| criteria.source == Some(source))
    }

    /// Returns the posted receives that accept messages only from this source, the earliest first.
    pub fn directed_posted(&self, source: PeerId) -> impl Iterator<Item = R> {
        self.posted.iter_where(move |criteria| criteria.source == Some(source))
    }

    /// Returns the sources of posted receives that accept only one. A source may come several
    /// times.
    pub fn directed_sources(&self) -> impl Iterator<Item = PeerId> {
        self.posted.keys().filter_map(|criteria| criteria.source)
    }

    /// Drops all unexpected messages that `matches` selects, in one pass.
    pub fn remove_unexpected_where(&mut self, matches: impl Fn(U) -> bool) {
        self.unexpected.take_all_where(|_, message| matches(message));
    }

    /// Drops an unexpected message. Returns whether it was there.
    pub fn remove_unexpected(&mut self, message: U) -> bool {
        self.unexpected.remove(message)
    }

    /// Returns the posted receives, the earliest first.
    pub fn posted(&self) -> impl Iterator<Item = R> {
        self.posted.iter()
    }

    /// Returns the unexpected messages, the earliest first.
    pub fn unexpected(&self) -> impl Iterator<Item = U> {
        self.unexpected.iter()
    }

    /// Returns how many receives are posted.
    pub fn posted_len(&self) -> usize {
        self.posted.len()
    }

    /// Returns how many unexpected messages wait.
    pub fn unexpected_len(&self) -> usize {
        self.unexpected.len()
    }

    /// Takes all posted receives, the earliest first.
    pub fn drain_posted(&mut self) -> impl Iterator<Item = R> {
        self.posted.drain()
    }

    /// Takes all unexpected messages, the earliest first.
    pub fn drain_unexpected(&mut self) -> impl Iterator<Item = U> {
        self.unexpected.drain()
    }
}
