//! The messages and receives of a program, and how they ended.

use crate::history::Level;

/// Everything that was posted, in the order of posting. Each call and each entry that is read has a moment of
/// its own.
#[derive(Debug, Default)]
pub(super) struct History {
    pub(super) messages: Vec<Message>,
    pub(super) receives: Vec<Receive>,
    now: u64,
}

/// A message that a peer has sent to a member. Its place in the history is its identity.
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
    /// When its sender was told that it had reached its level.
    pub(super) ended_at: Option<u64>,
    /// The receive that took it, and when the completion was read.
    pub(super) taken: Option<(usize, u64)>,
}

#[derive(Debug)]
pub(super) struct Receive {
    pub(super) tagged: Option<(u64, u64)>,
    /// The peer whose messages alone it takes.
    pub(super) from: Option<usize>,
    pub(super) len_bytes: usize,
    /// For a buffer that takes many messages: how little room releases it.
    pub(super) min_free_bytes: Option<usize>,
    pub(super) posted_at: u64,
    pub(super) took: Vec<usize>,
    pub(super) cancelled_at: Option<u64>,
    /// The member at whose queue the end was read.
    pub(super) ended_at: Option<usize>,
}

impl History {
    /// A moment that was not before.
    pub(super) fn tick(&mut self) -> u64 {
        self.now += 1;
        self.now
    }

    /// Notes that a receive took a message, which happens once to a message.
    pub(super) fn take(&mut self, receive: usize, message: usize) {
        let now = self.tick();
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

impl Receive {
    pub(super) fn has_ended(&self) -> bool {
        self.ended_at.is_some()
    }

    pub(super) fn accepts(&self, message: &Message) -> bool {
        let tag_fits = match (self.tagged, message.tag) {
            (None, None) => true,
            (Some((tag, ignore)), Some(sent)) => (tag ^ sent) & !ignore == 0,
            _ => false,
        };
        tag_fits && self.from.is_none_or(|from| from == message.from)
    }

    /// A moment until which it could certainly take a message: that of the sending of the last one that it
    /// took, or of its cancellation.
    pub(super) fn posted_until(&self, messages: &[Message]) -> u64 {
        if !self.has_ended() {
            return u64::MAX;
        }
        let last_sent_at = self.took.iter().map(|&message| messages[message].sent_at).max();
        last_sent_at.max(self.cancelled_at).unwrap_or(0)
    }
}
