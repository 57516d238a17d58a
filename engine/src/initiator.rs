//! The initiator of an endpoint: sends, and accesses to peers' regions, from their posting to their
//! completion.
//!
//! ```text
//!  insert, enqueue, cancel        +-------------------------------------------+  complete, fail, count
//!  -----------------------------> | operations that have not ended            | ----------------------->
//!  first_queued, next_active ...  | queues per peer, peers to be looked at    |
//!  -----------------------------> | reads and atomics that await an answer    |
//!  completed, answered, failed    | turns, and completions that wait for room |
//!  -----------------------------> +-------------------------------------------+
//! ```
//!
//! Like the [receiver](crate::receiver) it gets events and answers with small [`InitiatorEffects`].
//! It knows neither links nor transports: the coordinator decides which link takes an operation,
//! and keeps what a [link](crate::link) has taken.

mod answers;
mod effects;
mod queues;
mod reports;
#[cfg(test)]
mod tests;
mod turns;

use slotmap::SlotMap;

pub(crate) use self::effects::InitiatorEffects;
use self::queues::PeerQueues;
use self::reports::Reports;
pub(crate) use self::turns::Turn;
use crate::completion::{EndedOperation, FailedOperation};
use crate::error::OperationError;
use crate::operation::{CancelKey, RmaRequest, Send, SendId};
use crate::peer_id::PeerId;
use crate::wire::AwaitedReply;

/// Where operations on peers wait, and end.
#[derive(Debug)]
pub(crate) struct Initiator {
    /// Operations that have not ended, but for those that ended when they were posted.
    sends: SlotMap<SendId, Send>,
    queues: PeerQueues,
    reports: Reports,
}

impl Initiator {
    /// Without operations. Those to one peer complete in the order of posting, or as they end.
    pub(crate) fn new(completes_in_order: bool) -> Initiator {
        Initiator {
            sends: SlotMap::with_key(),
            queues: PeerQueues::default(),
            reports: Reports::new(completes_in_order),
        }
    }

    /// How many operations have not ended or not been reported yet.
    #[inline(always)]
    pub(crate) fn outstanding(&self) -> usize {
        self.sends.len() + self.reports.unreported_ops()
    }

    /// The turn of an operation that is posted now, if it has one.
    #[inline(always)]
    pub(crate) fn take_turn(&mut self, to: PeerId) -> Option<Turn> {
        self.reports.take_turn(to)
    }

    /// Keeps an operation until it ends.
    #[inline(always)]
    pub(crate) fn insert(&mut self, send: Send) -> SendId {
        self.sends.insert(send)
    }

    /// Keeps an operation until it ends, behind those that wait for the link to its peer.
    // An operation is written where it stays: it is large.
    #[inline(always)]
    pub(crate) fn enqueue(&mut self, to: PeerId, send: Send) -> SendId {
        let id = self.sends.insert(send);
        self.queues.push(to, id);
        id
    }

    /// An operation that has not ended.
    #[inline]
    pub(crate) fn get(&self, id: SendId) -> Option<&Send> {
        self.sends.get(id)
    }

    /// As [`get`](Self::get), to be changed.
    #[inline]
    pub(crate) fn get_mut(&mut self, id: SendId) -> Option<&mut Send> {
        self.sends.get_mut(id)
    }

    /// All operations that have not ended.
    #[cfg(test)]
    pub(crate) fn sends(&self) -> impl Iterator<Item = (SendId, &Send)> {
        self.sends.iter()
    }

    #[cfg(test)]
    pub(crate) fn set_completes_in_order(&mut self, completes_in_order: bool) {
        self.reports = Reports::new(completes_in_order);
    }

    /// Whether no operation waits for the link to a peer.
    #[inline(always)]
    pub(crate) fn has_none_queued(&self, peer: PeerId) -> bool {
        self.queues.is_empty(peer)
    }

    /// The operation that is the next for a peer.
    #[inline]
    pub(crate) fn first_queued(&self, peer: PeerId) -> Option<SendId> {
        self.queues.first(peer)
    }

    /// The link has begun to take the operation that was the next for a peer, or it has ended.
    #[inline]
    pub(crate) fn unqueue_first(&mut self, peer: PeerId) {
        self.queues.pop(peer);
    }

    /// Something is left for a peer, which is to be looked at in the next pass.
    pub(crate) fn activate(&mut self, peer: PeerId) {
        self.queues.activate(peer);
    }

    /// How many peers are to be looked at.
    #[inline]
    pub(crate) fn active_len(&self) -> usize {
        self.queues.active_len()
    }

    /// The peer that is to be looked at next. [`requeue_or_deactivate`](Self::requeue_or_deactivate) follows.
    #[inline]
    pub(crate) fn pop_active(&mut self) -> Option<PeerId> {
        self.queues.pop_active()
    }

    /// A peer was looked at, and something is left for it or not.
    #[inline]
    pub(crate) fn requeue_or_deactivate(&mut self, peer: PeerId, is_active: bool) {
        self.queues.requeue_or_deactivate(peer, is_active);
    }

    /// The answer that an operation awaits before it ends.
    #[inline]
    pub(crate) fn awaited_reply(&self, id: SendId) -> AwaitedReply {
        self.sends.get(id).map_or(AwaitedReply::Nothing, |send| send.message.awaits)
    }

    /// An operation has succeeded, and ends.
    #[inline]
    pub(crate) fn completed(&mut self, id: SendId, effects: &mut impl InitiatorEffects) {
        if let Some(send) = self.sends.remove(id) {
            self.reports.send_completed(send, effects);
        }
    }

    /// An operation has succeeded as it was posted, and was never kept.
    #[inline(always)]
    pub(crate) fn completed_at_once(&mut self, send: Send, effects: &mut impl InitiatorEffects) {
        self.reports.send_completed(send, effects);
    }

    /// As [`completed_at_once`](Self::completed_at_once), of an access.
    pub(crate) fn access_completed_at_once(
        &mut self,
        request: RmaRequest,
        effects: &mut impl InitiatorEffects,
    ) {
        self.reports.completed_at_once(request, effects);
    }

    /// An operation of which its caller has counted the end completes.
    pub(crate) fn report(&mut self, completion: EndedOperation, effects: &mut impl InitiatorEffects) {
        self.reports.report(completion, effects);
    }

    /// An operation has failed of which its caller has counted the end.
    #[cold]
    pub(crate) fn report_failure(&mut self, failure: FailedOperation, effects: &mut impl InitiatorEffects) {
        self.reports.report_failure(failure, effects);
    }

    /// Operations on this peer, if it is known, have failed, and end.
    pub(crate) fn fail_sends(
        &mut self,
        sends: impl IntoIterator<Item = SendId>,
        target: Option<PeerId>,
        error: &OperationError,
        effects: &mut impl InitiatorEffects,
    ) {
        for send in sends {
            if let Some(send) = self.sends.remove(send) {
                self.reports.send_failed(send, target, error.clone(), effects);
            }
        }
    }

    /// The operations that wait for the link to a peer fail.
    pub(crate) fn fail_queued(
        &mut self,
        peer: PeerId,
        error: &OperationError,
        effects: &mut impl InitiatorEffects,
    ) {
        let queued = self.queues.take(peer);
        self.fail_sends(queued, Some(peer), error, effects);
    }

    /// Cancels the oldest operation that is meant and of which no link has taken a byte. Returns
    /// whether there was one.
    pub(crate) fn cancel(&mut self, meant: CancelKey, effects: &mut impl InitiatorEffects) -> bool {
        let sends = &self.sends;
        let is_meant = |id: SendId| {
            sends.get(id).is_some_and(|send| meant.matches_operation(send.context, send.signalled))
        };
        let Some((peer, send)) = self.queues.remove_first(is_meant) else { return false };
        self.fail_sends([send], Some(peer), &OperationError::Cancelled, effects);
        true
    }

    /// Whether an operation that ends as soon as it was posted can be reported at once: no earlier
    /// completion waits.
    #[inline(always)]
    pub(crate) fn can_report_at_once(&self) -> bool {
        self.reports.can_report_at_once()
    }

    /// Whether completions wait for room.
    #[inline(always)]
    pub(crate) fn has_held(&self) -> bool {
        self.reports.has_held()
    }

    /// Reports the completions that wait, as far as there is room now.
    #[cold]
    pub(crate) fn deliver_held(&mut self, effects: &mut impl InitiatorEffects) {
        self.reports.deliver_held(effects);
    }
}
