//! Flushes of regions by peers.
//!
//! The target carries out a short flush when it arrives. A longer one it carries out in parts, over several
//! passes: a flush costs its target as much as the range needs, and its sender only a frame. The links take
//! turns. A persistent flush that arrives while an earlier one of its link is carried out in parts waits for
//! that one.

use super::partial_flush::PartialFlush;
use super::{Target, TargetEffects, queue_answer};
use crate::flags::MrAccess;
use crate::limits::{FLUSH_AT_ONCE_MAX_BYTES, FLUSH_PART_MIN_BYTES, FLUSH_PASS_MAX_BYTES};
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
            Ok(_) if rma.durable == Durable::Nothing => Outcome::Done,
            Ok(window) => {
                let Some(link) = self.links.get_mut(id) else { return Ok(()) };
                let len_bytes = clamp_to_usize(rma.len_bytes);
                let mut flush = PartialFlush::new(rma.op, window, len_bytes);
                let is_first = link.flushes.is_empty();
                if !is_first || len_bytes > FLUSH_AT_ONCE_MAX_BYTES {
                    link.flushes.push_back(flush);
                    if is_first {
                        self.flushing.push_back(id);
                    }
                    return Ok(());
                }
                flush.persist_part(len_bytes)
            }
        };
        queue_answer(id, rma.op, outcome, effects);
        Ok(())
    }

    /// Whether a flush is carried out in parts.
    pub(crate) fn has_partial_flushes(&self) -> bool {
        !self.flushing.is_empty()
    }

    /// Carries out one part of a flush on each link that has one, up to the limit of one pass.
    pub(crate) fn advance_flushes(&mut self, effects: &mut impl TargetEffects) {
        let mut left_bytes = FLUSH_PASS_MAX_BYTES;
        for _ in 0..self.flushing.len() {
            if left_bytes < FLUSH_PART_MIN_BYTES {
                return;
            }
            let Some(id) = self.flushing.pop_front() else { return };
            let Some(link) = self.links.get_mut(id) else { continue };
            let Some(flush) = link.flushes.front_mut() else { continue };
            let part_bytes = flush.left_bytes().min(left_bytes);
            let is_cut_short = part_bytes < flush.left_bytes() && part_bytes < FLUSH_PASS_MAX_BYTES;
            left_bytes = left_bytes.saturating_sub(part_bytes.max(FLUSH_PART_MIN_BYTES));
            let outcome = flush.persist_part(part_bytes);
            if outcome != Outcome::Done || flush.left_bytes() == 0 {
                queue_answer(id, flush.op(), outcome, effects);
                link.flushes.pop_front();
            }
            if link.flushes.is_empty() {
                continue;
            }
            // With what others have left of a pass, a link has not had its turn: they could leave it a few
            // bytes each time.
            if is_cut_short { self.flushing.push_front(id) } else { self.flushing.push_back(id) }
        }
    }
}
