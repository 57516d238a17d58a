//! Which unexpected messages peeks may find. MPICH needs that it is not all of them:
//! `docs/design/messages.md`.

use std::mem;

use crate::wire::Message;

/// Which unexpected messages peeks may find. Once a pass has ended a receive, it hides from peeks what it
/// receives after the last event that the application or a sender may learn of. The next pass shows all.
#[derive(Debug)]
pub(crate) struct PeekHorizon {
    kept_messages: u64,
    /// How many of the kept messages peeks may find; `u64::MAX` until a pass ends a receive.
    shown_messages: u64,
    /// Whether the latest peek has found nothing.
    is_awaited: bool,
    /// Whether a message has been kept that the latest peek did not find.
    owes_look: bool,
}

impl Default for PeekHorizon {
    fn default() -> PeekHorizon {
        PeekHorizon { kept_messages: 0, shown_messages: u64::MAX, is_awaited: false, owes_look: false }
    }
}

impl PeekHorizon {
    /// The number of the next message that is kept.
    pub(super) fn next_number(&self) -> u64 {
        self.kept_messages
    }

    /// Counts a message that is kept. Peeks may find it at once if its sender learns that it has arrived.
    pub(super) fn message_kept(&mut self, message: &Message) {
        self.kept_messages += 1;
        self.owes_look |= self.is_awaited;
        if message.awaits.wants_ack() {
            self.show_arrived();
        }
    }

    /// Shows what has arrived, and hides what arrives from here on in this pass: the application learns of
    /// the end of a receive.
    #[inline(always)]
    pub(super) fn receive_ended(&mut self) {
        self.shown_messages = self.kept_messages;
    }

    /// Shows what has arrived. What arrives from here on in this pass is hidden if a receive has ended.
    #[inline(always)]
    pub(crate) fn show_arrived(&mut self) {
        if self.shown_messages != u64::MAX {
            self.shown_messages = self.kept_messages;
        }
    }

    /// Shows what has arrived, and hides nothing until another receive ends.
    #[inline(always)]
    pub(crate) fn show_all(&mut self) {
        self.shown_messages = u64::MAX;
    }

    pub(super) fn hides(&self, kept_number: u64) -> bool {
        kept_number >= self.shown_messages
    }

    /// Records whether a peek has found a message.
    pub(super) fn peek_answered(&mut self, has_found: bool) {
        self.is_awaited = !has_found;
        self.owes_look = !has_found && self.shown_messages < self.kept_messages;
    }

    /// Whether the application should peek once more before it sleeps: nothing else would tell it of the
    /// message. True once for a peek.
    pub(crate) fn take_owed_look(&mut self) -> bool {
        self.is_awaited &= !self.owes_look;
        mem::take(&mut self.owes_look)
    }
}
