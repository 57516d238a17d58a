//! A point in the sequence of a link's messages.

/// A count of messages: those that a link has taken, or those that its peer is known to have.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct MessageMark {
    /// How many eager messages.
    pub(super) messages: u64,
    /// How many requested payloads. Payloads that the peer answers do not count.
    pub(super) payloads: u64,
}

impl MessageMark {
    /// Records that the peer has these messages. Answers may arrive out of order, so this side may
    /// already know that the peer has more.
    pub(super) fn advance_to(&mut self, mark: MessageMark) {
        self.messages = self.messages.max(mark.messages);
        self.payloads = self.payloads.max(mark.payloads);
    }
}
