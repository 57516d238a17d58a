//! The progress of a link's messages.

/// How many messages a link has taken, or its peer is known to have.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct MessageMark {
    /// How many eager messages.
    pub(super) messages: u64,
    /// How many requested payloads that the peer does not answer.
    pub(super) payloads: u64,
}

impl MessageMark {
    /// Records that the peer has this much. It may be known to have more already, since answers
    /// come in another order than their operations.
    pub(super) fn advance_to(&mut self, mark: MessageMark) {
        self.messages = self.messages.max(mark.messages);
        self.payloads = self.payloads.max(mark.payloads);
    }
}
