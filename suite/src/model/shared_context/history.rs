//! The messages and receives of a program, and their results.

use std::collections::{BTreeMap, BTreeSet};

use crate::model::history::Level;

/// All posts, in order. Each call, and each entry that was read, has its own time.
#[derive(Debug, Default)]
pub(super) struct History {
    pub(super) messages: Vec<Message>,
    pub(super) receives: Vec<Receive>,
    /// The members that have left. The flag tells whether the test had read all entries of the member's
    /// queue.
    pub(super) left: BTreeSet<(usize, bool)>,
    /// The time at which the first link between a peer and a member ended.
    pub(super) ended_links: BTreeMap<(usize, usize), u64>,
    /// Whether the network ends links by itself.
    pub(super) is_violent: bool,
    now: u64,
}

/// A message of a peer to a member. Its index in the history is its identity.
#[derive(Debug)]
pub(super) struct Message {
    /// The number of the peer.
    pub(super) from: usize,
    /// The number of the member.
    pub(super) to: usize,
    pub(super) tag: Option<u64>,
    pub(super) len_bytes: usize,
    pub(super) level: Level,
    pub(super) sent_at: u64,
    /// The time at which the sender read the completion of its send.
    pub(super) ended_at: Option<u64>,
    /// Whether the sender read that its send has failed.
    pub(super) has_failed: bool,
    /// The receive that matched the message, and the time at which the completion was read.
    pub(super) taken: Option<(usize, u64)>,
}

#[derive(Debug)]
pub(super) struct Receive {
    pub(super) tagged: Option<(u64, u64)>,
    /// The only source that the receive accepts, if it names one.
    pub(super) from: Option<usize>,
    pub(super) len_bytes: usize,
    /// For a multi-receive buffer: the free length below which it is released.
    pub(super) min_free_bytes: Option<usize>,
    pub(super) posted_at: u64,
    pub(super) took: Vec<usize>,
    pub(super) cancelled_at: Option<u64>,
    /// The member from whose queue the last entry of the receive was read.
    pub(super) ended_at: Option<usize>,
    /// How many matched messages the receive lost because their member left.
    pub(super) lost_with_member: usize,
    /// How many matched messages the receive lost because their link ended. A directed receive that fails
    /// because its peer's link ended counts one.
    pub(super) lost_with_link: usize,
    /// Whether the end of the receive is lost: it was in the queue of a member that left with unread
    /// entries.
    pub(super) is_unheard: bool,
}

impl History {
    pub(super) fn new(is_violent: bool) -> History {
        History { is_violent, ..History::default() }
    }

    /// Advances the time of the history, and returns it.
    pub(super) fn advance_time(&mut self) -> u64 {
        self.now += 1;
        self.now
    }

    /// Records that a receive matched a message. Panics if a receive has matched the message before, or if
    /// the receive has matched a message and is no multi-receive buffer.
    pub(super) fn record_taken(&mut self, receive: usize, message: usize) {
        let now = self.advance_time();
        let before = self.messages[message].taken.replace((receive, now));
        assert_eq!(before, None, "message {message} was received again, by receive {receive}");
        let receive = &mut self.receives[receive];
        assert!(
            receive.took.is_empty() || receive.min_free_bytes.is_some(),
            "one receive was matched by two messages: {receive:?} and {message}"
        );
        receive.took.push(message);
    }
}

impl History {
    pub(super) fn has_left(&self, member: usize) -> bool {
        self.left.iter().any(|(left, _)| *left == member)
    }

    /// Whether a member left with unread entries, which are lost.
    pub(super) fn has_left_with_unread_entries(&self, member: usize) -> bool {
        self.left.contains(&(member, false))
    }

    /// Whether messages from a peer to a member may be lost although the member has not left.
    pub(super) fn can_lose_messages(&self, from: usize, to: usize) -> bool {
        self.is_violent || self.ended_links.contains_key(&(from, to))
    }

    /// Whether, at that time, no link between a peer and a member had ended.
    pub(super) fn no_link_had_ended(&self, from: usize, to: usize, now: u64) -> bool {
        !self.is_violent && self.ended_links.get(&(from, to)).is_none_or(|ended_at| now < *ended_at)
    }

    /// Whether a message must be received, since no event can have lost it.
    pub(super) fn is_certain_to_arrive(&self, message: &Message) -> bool {
        let Message { from, to, .. } = *message;
        !message.has_failed && !self.has_left(to) && !self.can_lose_messages(from, to)
    }
}

impl Receive {
    pub(super) fn has_ended(&self) -> bool {
        self.ended_at.is_some() || self.is_unheard
    }

    pub(super) fn accepts(&self, message: &Message) -> bool {
        let tag_fits = match (self.tagged, message.tag) {
            (None, None) => true,
            (Some((tag, ignore)), Some(sent)) => (tag ^ sent) & !ignore == 0,
            _ => false,
        };
        tag_fits && self.from.is_none_or(|from| from == message.from)
    }

    /// Returns the latest time at which the receive was certainly posted: when its last message was sent, or
    /// when it was cancelled. Returns `u64::MAX` for a receive that has not ended.
    pub(super) fn certainly_posted_until(&self, messages: &[Message]) -> u64 {
        if !self.has_ended() {
            return u64::MAX;
        }
        let last_sent_at = self.took.iter().map(|&message| messages[message].sent_at).max();
        last_sent_at.max(self.cancelled_at).unwrap_or(0)
    }
}
