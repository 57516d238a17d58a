//! Matches messages that arrive with posted receives: `fi_msg(3)`, `fi_tagged(3)`.
//!
//! A message that arrives takes the earliest posted receive that accepts the message. A receive
//! that is posted takes the earliest waiting message that the receive accepts. Messages and
//! receives without a match wait in two queues, in order.
//!
//! A search first scans the front of a queue. If the match lies deeper, the search builds an index.
//! The queue keeps the index until the queue is short again, or until a call removes many entries
//! in one pass. With the index, the cost of a search grows with the logarithm of the queue's
//! length, and with the number of ignore masks in use. Programs use few masks.

mod index;
mod queue;

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;

use std::collections::TryReserveError;

use crate::matching::index::{PostedIndex, Sequence, UnexpectedIndex};
use crate::matching::queue::IndexedQueue;
use crate::mutated;
use crate::peer_id::PeerId;

/// Which messages a receive accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Criteria {
    /// The only source whose messages the receive accepts. `None` accepts any source
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
    #[inline(always)]
    pub fn accepts(&self, source: PeerId, tag: u64) -> bool {
        let ignore = if mutated!("fi_tagged/tag-matches-without-ignored-bits") { 0 } else { self.ignore };
        let matched = if mutated!("fi_endpoint/tag-format") { u64::MAX >> 1 } else { u64::MAX };
        (tag ^ self.tag) & !ignore & matched == 0
            && self
                .source
                .map_or(source == PeerId(0) || !mutated!("fi_msg/unspecified-source-matches-any"), |only| {
                    only == source
                })
    }
}

/// The place of an unexpected message in the queue. No later message gets the same place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place(Sequence);

/// The properties of a message that matching uses. An untagged message has tag 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Envelope {
    source: PeerId,
    tag: u64,
}

impl Envelope {
    #[inline(always)]
    fn is_accepted_by(&self, criteria: &Criteria) -> bool {
        criteria.accepts(self.source, self.tag)
    }
}

/// The posted receives and the unexpected messages of one kind. Tagged and untagged messages never
/// match each other, so each kind has its own `Matching`.
///
/// `R` is the id of a receive, and `U` is the id of a message. Waiting receives have different ids,
/// and so do waiting messages.
///
/// When a message arrives, the caller first looks for a posted receive
/// ([`take_posted`](Self::take_posted)). If no receive accepts the message, the caller adds it to
/// the unexpected messages. When a receive is posted, the caller first looks for an unexpected
/// message ([`take_unexpected`](Self::take_unexpected)). So a message and a matching receive never
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

    /// Returns the earliest posted receive of all, if it accepts a message with this sender and tag.
    #[inline(always)]
    pub(crate) fn first_posted_if_accepts(&self, source: PeerId, tag: u64) -> Option<R> {
        self.posted.front_if_matches(&Envelope { source, tag })
    }

    /// Removes the earliest posted receive.
    #[inline(always)]
    pub(crate) fn take_first_posted(&mut self) {
        self.posted.take_at(0);
    }

    /// Like [`take_posted`](Self::take_posted), but the receive stays posted.
    #[inline]
    pub fn peek_posted(&mut self, source: PeerId, tag: u64) -> Option<R> {
        self.posted.peek_earliest(&Envelope { source, tag })
    }

    /// Makes room for one more unexpected message.
    ///
    /// # Errors
    ///
    /// There is no memory.
    pub fn try_reserve_unexpected(&mut self) -> Result<(), TryReserveError> {
        self.unexpected.try_reserve()
    }

    /// Adds a message behind all others, and returns its place. Does not look for a posted receive.
    pub fn add_unexpected(&mut self, source: PeerId, tag: u64, message: U) -> Place {
        Place(self.unexpected.push(Envelope { source, tag }, message))
    }

    /// Removes and returns the earliest unexpected message that the criteria accept.
    #[inline]
    pub fn take_unexpected(&mut self, criteria: &Criteria) -> Option<U> {
        self.unexpected.take_earliest(criteria)
    }

    /// Returns the earliest unexpected message that the criteria accept (`FI_PEEK`). The message
    /// stays in the queue.
    pub fn peek_unexpected(&mut self, criteria: &Criteria) -> Option<U> {
        self.unexpected.peek_earliest(criteria)
    }

    /// Posts a receive behind all others. Does not look for an unexpected message.
    #[inline]
    pub fn add_posted(&mut self, criteria: Criteria, receive: R) {
        self.posted.push(criteria, receive);
        if mutated!("fi_msg/receives-match-in-posting-order") {
            let earlier = self.posted.take_all_where(|other, name| *other == criteria && name != receive);
            earlier.into_iter().for_each(|earlier| _ = self.posted.push(criteria, earlier));
        }
    }

    /// Removes a posted receive. Returns whether it was there.
    pub fn remove_posted(&mut self, receive: R) -> bool {
        self.posted.remove(receive)
    }

    /// Removes and returns all posted receives that accept only this peer's messages, the earliest
    /// first.
    pub fn take_all_directed_posted(&mut self, source: PeerId) -> Vec<R> {
        self.posted.take_all_where(|criteria, _| criteria.source == Some(source))
    }

    /// Removes and returns all posted receives that `matches` selects, the earliest first, in one pass.
    pub fn take_all_posted_where(&mut self, matches: impl Fn(R) -> bool) -> Vec<R> {
        self.posted.take_all_where(|_, receive| matches(receive))
    }

    /// Returns all posted receives that accept only this peer's messages, the earliest first.
    pub fn directed_posted(&self, source: PeerId) -> impl Iterator<Item = R> {
        self.posted.iter_where(move |criteria| criteria.source == Some(source))
    }

    /// Returns the source of each posted receive that accepts only one source's messages. A source
    /// may occur several times.
    pub fn directed_sources(&self) -> impl Iterator<Item = PeerId> {
        self.posted.keys().filter_map(|criteria| criteria.source)
    }

    /// Removes all unexpected messages that `matches` selects, in one pass.
    pub fn remove_unexpected_where(&mut self, matches: impl Fn(U) -> bool) {
        self.unexpected.take_all_where(|_, message| matches(message));
    }

    /// Removes the unexpected message at a place. Returns whether the message was there. The cost
    /// grows only with the logarithm of the queue's length, so peers cannot make this call slow.
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
