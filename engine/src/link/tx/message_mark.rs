//! How far a link has come with messages.

/// How much of what messages consist of a link has taken, or its peer is known to have.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct MessageMark {
    /// How many eager messages.
    pub(super) messages: u64,
    /// How many payloads that were asked for, and are not answered.
    pub(super) payloads: u64,
}

impl MessageMark {
    /// The peer is known to have this much. Answers come in another order than what they answer, so
    /// it may be known to have more.
    pub(super) fn advance_to(&mut self, mark: MessageMark) {
        self.messages = self.messages.max(mark.messages);
        self.payloads = self.payloads.max(mark.payloads);
    }
}
