//! How far peeks see. MPICH needs that they do not see all: `docs/design/messages.md`.

use crate::wire::Message;

/// Which unexpected messages a peek may find: all but those that have arrived behind the last thing which the
/// latest pass has let the application see. So to peeks, a pass that ends a receive is over with the last one
/// that it ends; what a transport had read together with it, and more, comes with the next pass.
#[derive(Debug)]
pub(crate) struct PeekHorizon {
    kept_messages: u64,
    /// How many of the kept messages peeks may find; `u64::MAX` until a pass ends a receive.
    shown_messages: u64,
}

impl Default for PeekHorizon {
    fn default() -> PeekHorizon {
        PeekHorizon { kept_messages: 0, shown_messages: u64::MAX }
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
        if message.awaits.wants_ack() {
            self.more_seen();
        }
    }

    /// Hides from peeks what arrives from here on in this pass.
    #[inline(always)]
    pub(super) fn receive_ended(&mut self) {
        self.shown_messages = self.kept_messages;
    }

    /// Moves the horizon, if there is one, behind what has arrived: the application may now learn of it.
    #[inline(always)]
    pub(crate) fn more_seen(&mut self) {
        if self.shown_messages != u64::MAX {
            self.shown_messages = self.kept_messages;
        }
    }

    /// Shows all messages that have arrived.
    #[inline(always)]
    pub(crate) fn show_all(&mut self) {
        self.shown_messages = u64::MAX;
    }

    pub(super) fn hides(&self, kept_number: u64) -> bool {
        kept_number >= self.shown_messages
    }
}
