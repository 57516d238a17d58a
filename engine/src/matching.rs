//! Matches messages that arrive with posted receives: `fi_msg(3)`, `fi_tagged(3)`.
//!
//! A message takes the earliest posted receive that accepts it. A receive takes the earliest
//! message that it accepts, of those that arrived before it was posted. Messages and receives
//! without a match wait in two queues, in order.
//!
//! A search first scans the front of a queue, which is a dense array. If the match lies deeper, the
//! search builds an index. The queue keeps the index until it is short again, or until a call
//! removes many entries in one pass. With the index, the cost of a search is the logarithm of the
//! queue's length, for each ignore mask that receives use. Programs use few masks, however many
//! tags and sources there are.

mod index;
mod queue;

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;

use crate::matching::index::{PostedIndex, Sequence, UnexpectedIndex};
use crate::matching::queue::IndexedQueue;
use crate::peer_id::PeerId;

/// Which messages a receive accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Criteria {
    /// The only source whose messages the receive accepts; `None` for any source
    /// (`FI_ADDR_UNSPEC`).
    pub source: Option<PeerId>,
    /// The tag of the messages.
    pub tag: u64,
    /// The bits of the tag that matching ignores.
    pub ignore: u64,
}

impl Criteria {
    /// Returns criteria that accept every message.
    pub const fn any() -> Criteria {
        Criteria { source: None, tag: 0, ignore: u64::MAX }
    }

    /// Whether the criteria accept a message with this sender and tag.
    pub fn accepts(&self, source: PeerId, tag: u64) -> bool {
        (tag ^ self.tag) & !self.ignore == 0 && self.source.is_none_or(|only| only == source)
    }
}

/// The place of an unexpected message among those that wait. No later message gets the same place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place(Sequence);

/// The properties of a message that matching uses. An untagged message has tag 0.
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

/// The posted receives and the unexpected messages of one kind. Tagged and untagged messages never
/// match each other, so each kind has its own `Matching`.
///
/// `R` is the id of a receive, and `U` that of a message. An id is unique among those that wait.
///
/// When a message arrives, the caller first matches it with the posted receives
/// ([`take_posted`](Self::take_posted)), and adds it to the unexpected messages only if no receive
/// accepts it. When a receive is posted, the caller first matches it with the unexpected messages
/// ([`take_unexpected`](Self::take_unexpected)). So a receive and a message that it accepts never
/// both wait, unless the receiver keeps the message aside.
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
    /// Creates a `Matching` without receives and messages.
    pub fn new() -> Matching<R, U> {
        Matching { posted: IndexedQueue::new(), unexpected: IndexedQueue::new() }
    }

    /// Removes and returns the earliest posted receive that accepts a message with this sender and
    /// tag.
    #[inline]
    pub fn take_posted(&mut self, source: PeerId, tag: u64) -> Option<R> {
        self.posted.take_earliest(&Envelope { source, tag })
    }

    /// Returns the earliest posted receive that accepts a message with this sender and tag. The
    /// receive stays posted.
    #[inline]
    pub fn peek_posted(&mut self, source: PeerId, tag: u64) -> Option<R> {
        self.posted.peek_earliest(&Envelope { source, tag })
    }

    /// Adds a message behind all others, and returns its place. The caller has found no posted
    /// receive that accepts the message, or has kept the message aside.
    pub fn add_unexpected(&mut self, source: PeerId, tag: u64, message: U) -> Place {
        Place(self.unexpected.push(Envelope { source, tag }, message))
    }

    /// Removes and returns the earliest unexpected message that the criteria accept.
    #[inline]
    pub fn take_unexpected(&mut self, criteria: &Criteria) -> Option<U> {
        self.unexpected.take_earliest(criteria)
    }

    /// Returns the earliest unexpected message that the criteria accept (`FI_PEEK`). The message
    /// stays. Only the speed of the next search may change.
    pub fn peek_unexpected(&mut self, criteria: &Criteria) -> Option<U> {
        self.unexpected.peek_earliest(criteria)
    }

    /// Posts a receive behind all others. The receive accepts no unexpected message, or must not
    /// take one yet.
    #[inline]
    pub fn add_posted(&mut self, criteria: Criteria, receive: R) {
        self.posted.push(criteria, receive);
    }

    /// Removes a posted receive. Returns whether it was there.
    pub fn remove_posted(&mut self, receive: R) -> bool {
        self.posted.remove(receive)
    }

    /// Removes and returns all posted receives whose only source is this peer, the earliest first.
    pub fn take_all_directed_posted(&mut self, source: PeerId) -> Vec<R> {
        self.posted.take_all_where(|criteria, _| criteria.source == Some(source))
    }

    /// Returns all posted receives whose only source is this peer, the earliest first.
    pub fn directed_posted(&self, source: PeerId) -> impl Iterator<Item = R> {
        self.posted.iter_where(move |criteria| criteria.source == Some(source))
    }

    /// Returns the sources of the posted receives that name an only source. A source may occur
    /// several times.
    pub fn directed_sources(&self) -> impl Iterator<Item = PeerId> {
        self.posted.keys().filter_map(|criteria| criteria.source)
    }

    /// Removes all unexpected messages that `matches` selects, in one pass.
    pub fn remove_unexpected_where(&mut self, matches: impl Fn(U) -> bool) {
        self.unexpected.take_all_where(|_, message| matches(message));
    }

    /// Removes the unexpected message at a place. Returns whether it was there. The place makes
    /// this fast: a search from the front could take long, since peers choose how many messages
    /// wait and in which order they end.
    pub fn remove_unexpected(&mut self, place: Place, message: U) -> bool {
        self.unexpected.remove_at(place.0, message)
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

    /// Removes and returns all posted receives, the earliest first.
    pub fn drain_posted(&mut self) -> impl Iterator<Item = R> {
        self.posted.drain()
    }

    /// Removes and returns all unexpected messages, the earliest first.
    pub fn drain_unexpected(&mut self) -> impl Iterator<Item = U> {
        self.unexpected.drain()
    }
}
