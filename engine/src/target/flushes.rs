//! Flushes of regions by peers.

use super::{Target, TargetEffects, queue_answer};
use crate::flags::MrAccess;
use crate::protocol_violation::ProtocolViolation;
use crate::reassembly::clamp_to_usize;
use crate::transport::LinkId;
use crate::wire::{Durable, Outcome, Rma};

impl Target {
    /// Handles a peer's flush. All earlier writes of the peer on this link are in their regions: they were
    /// placed when they arrived, and the peer holds a flush back while this side fetches a write.
    ///
    /// # Errors
    ///
    /// A [`ProtocolViolation`] if the peer has too many accesses without an answer.
    pub(crate) fn flush_arrived(
        &mut self,
        id: LinkId,
        rma: &Rma,
        effects: &mut impl TargetEffects,
    ) -> Result<(), ProtocolViolation> {
        self.admit_access(id)?;
        let window = self.check_rma_window_and_offer_mapping(id, rma, MrAccess::REMOTE_WRITE, effects);
        let outcome = match window {
            Err(refusal) => Outcome::Refused(refusal),
            Ok(window) if rma.durable != Durable::Nothing => {
                let is_durable = window.try_persist(clamp_to_usize(rma.len_bytes));
                if is_durable { Outcome::Done } else { Outcome::NotDurable }
            }
            Ok(_) => Outcome::Done,
        };
        queue_answer(id, rma.op, outcome, effects);
        Ok(())
    }
}
