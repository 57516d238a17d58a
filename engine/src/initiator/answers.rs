//! Operations that end with an answer of the peer: accesses to the peer's regions, and messages
//! whose payload the peer fetches.

use super::{Initiator, InitiatorEffects};
use crate::error::OperationError;
use crate::link::RequestStage;
use crate::mutated;
use crate::operation::{AccessKind, IncomingData, Send, SendId};
use crate::peer_id::PeerId;
use crate::reassembly::{Reassembly, clamp_to_usize};
use crate::transport::Space;
use crate::wire::{Durable, Outcome};

impl Initiator {
    /// Whether an operation is a message.
    pub(crate) fn is_message(&self, id: SendId) -> bool {
        self.sends.get(id).is_some_and(|send| send.one_sided.is_none())
    }

    /// Whether the peer answers an operation once it has the whole payload.
    pub(crate) fn needs_answer(&self, id: SendId) -> bool {
        let is_answered = |send: &Send| send.one_sided.is_some() || send.message.awaits.wants_answer();
        self.sends.get(id).is_some_and(is_answered)
    }

    /// Returns where the next piece of read data goes. Returns `None` if the operation expects no
    /// piece, or no piece of this length.
    pub(crate) fn next_read_piece(&self, id: SendId, len_bytes: u64) -> Option<Reassembly<SendId>> {
        let send = self.sends.get(id)?;
        let kind = send.access_kind()?;
        let arrived_bytes = kind.incoming_data()?.arrived_bytes;
        let end = arrived_bytes.checked_add(len_bytes).filter(|end| *end <= send.message.len_bytes)?;
        if kind.is_atomic() && len_bytes != send.message.len_bytes {
            return None;
        }
        Some(Reassembly { len_bytes: end, arrived_bytes, owner: id })
    }

    /// Copies the next bytes of a piece into the memory of the read.
    pub(crate) fn put_read_piece(&mut self, piece: &Reassembly<SendId>, bytes: &[u8]) {
        if mutated!("fi_atomic/results-before-completion") && self.is_atomic(piece.owner) {
            return;
        }
        if let Some(incoming) = self.incoming_data_of(piece.owner)
            && !mutated!("fi_cq/delivery-is-default-for-fetches")
        {
            incoming.destination.copy_in(clamp_to_usize(piece.arrived_bytes), bytes);
        }
    }

    /// Returns the memory for the next bytes of a piece.
    pub(crate) fn read_piece_space(&mut self, piece: &Reassembly<SendId>) -> Space<'_> {
        match self.incoming_data_of(piece.owner) {
            Some(incoming) => incoming
                .destination
                .slices_mut(clamp_to_usize(piece.arrived_bytes), clamp_to_usize(piece.left_bytes())),
            None => Space::new(),
        }
    }

    /// Records that a piece has arrived whole. Returns whether the operation is atomic. The piece
    /// of an atomic operation is also the answer that ends the operation.
    pub(crate) fn finish_read_piece(&mut self, piece: &Reassembly<SendId>) -> bool {
        if let Some(incoming) = self.incoming_data_of(piece.owner) {
            incoming.arrived_bytes = piece.arrived_bytes;
        }
        self.is_atomic(piece.owner)
    }

    fn is_atomic(&self, id: SendId) -> bool {
        self.sends.get(id).and_then(Send::access_kind).is_some_and(AccessKind::is_atomic)
    }

    fn incoming_data_of(&mut self, id: SendId) -> Option<&mut IncomingData> {
        self.sends.get_mut(id)?.one_sided.as_mut()?.kind.incoming_data_mut()
    }

    /// Whether the target may give this answer to an access at this stage.
    #[inline]
    pub(crate) fn is_answer_allowed(&self, id: SendId, stage: RequestStage, outcome: Outcome) -> bool {
        let Some(send) = self.sends.get(id) else { return false };
        let Some(kind) = send.access_kind() else { return false };
        match (kind.incoming_data(), stage, outcome) {
            (_, _, Outcome::NotDurable) if kind.durable() == Durable::Nothing => false,
            (None, RequestStage::Offered, _) => true,
            (_, _, Outcome::Fault) => false,
            (None, RequestStage::Sent, _) => true,
            (Some(incoming), RequestStage::Requested, Outcome::Done) => {
                incoming.arrived_bytes == send.message.len_bytes
            }
            // An atomic operation that fetches elements ends when the elements arrive. Only if
            // there are no elements does the target send `Done`.
            (Some(_), RequestStage::Sent, Outcome::Done) => send.message.len_bytes == 0,
            (Some(_), RequestStage::Requested | RequestStage::Sent, Outcome::Refused(_)) => true,
            _ => false,
        }
    }

    /// Ends an operation that the peer has answered.
    pub(crate) fn end_with_answer(
        &mut self,
        id: SendId,
        peer: PeerId,
        outcome: Outcome,
        effects: &mut impl InitiatorEffects,
    ) {
        match error_of_outcome(outcome) {
            Some(error) => self.fail_sends([id], Some(peer), &error, effects),
            None => self.end_with_success(id, effects),
        }
    }

    /// Ends the next counted writes of a link, `ops` of them. The last has this outcome, and the others have
    /// succeeded.
    #[inline]
    pub(crate) fn end_counted_writes_with_answer(
        &mut self,
        ops: u64,
        peer: PeerId,
        outcome: Outcome,
        effects: &mut impl InitiatorEffects,
    ) {
        match error_of_outcome(outcome) {
            Some(error) => {
                self.end_counted_writes(ops - 1, effects);
                self.fail_counted_writes(1, peer, &error, effects);
            }
            None => self.end_counted_writes(ops, effects),
        }
    }
}

/// Returns the error with which an access ends that the peer answers so.
fn error_of_outcome(outcome: Outcome) -> Option<OperationError> {
    match outcome {
        Outcome::Done => None,
        Outcome::Refused(refusal) => Some(OperationError::Refused(refusal)),
        Outcome::Fault => Some(OperationError::Fault),
        Outcome::NotDurable => Some(OperationError::NotDurable),
    }
}
