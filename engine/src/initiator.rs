//! The initiator of an endpoint: the sends of the endpoint and its accesses to peers' regions, from post to
//! completion.
//!
//! ```text
//!  insert, enqueue, cancel        +-------------------------------------------+  complete, fail, count
//!  -----------------------------> | operations that have not ended            | ----------------------->
//!  first_queued, pop_active, ...  | queues per peer, peers with work to do    |
//!  -----------------------------> | reads and atomics that await an answer    |
//!  end_with_success, ...          | turns, and completions that wait for room |
//!  -----------------------------> +-------------------------------------------+
//! ```
//!
//! The caller tells the initiator what happened. The initiator asks for [`InitiatorEffects`], and the caller
//! carries them out. The initiator knows neither links nor transports. The engine decides which link takes
//! an operation. The state of each [link](crate::link) lists the operations that the link has taken.

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
use crate::buffer::Buffer;
use crate::completion::{EndedOperation, FailedOperation};
use crate::error::OperationError;
use crate::failure_watch::FailureWatch;
use crate::flags::{CompletionFlags, CounterEvents};
use crate::limits::INJECT_QUEUE_MAX_OPS;
use crate::link::{BegunAccess, RequestStage};
use crate::mutated;
use crate::operation::{AccessKind, CancelKey, Send, SendId, Signalled};
use crate::peer_id::PeerId;
use crate::peers::PeerMarks;
use crate::wire::AwaitedReply;

/// An endpoint's operations on its peers, until they end and are reported.
#[derive(Debug)]
pub(crate) struct Initiator {
    /// Operations that have not ended. Most operations that end at post time never enter this table.
    sends: SlotMap<SendId, Send>,
    queues: PeerQueues,
    reports: Reports,
    /// How many counted writes the links have taken and the peers have not answered. They report no
    /// success, so nothing else is kept of them.
    counted_writes: u64,
}

impl Initiator {
    /// Creates an empty initiator. If `completes_in_order`, operations on one peer complete in the order of
    /// posting. Otherwise they complete in the order in which they end.
    pub(crate) fn new(completes_in_order: bool) -> Initiator {
        Initiator {
            sends: SlotMap::with_key(),
            queues: PeerQueues::default(),
            reports: Reports::new(completes_in_order),
            counted_writes: 0,
        }
    }

    /// Watches for operations that fail, or ends the watch.
    pub(crate) fn set_failure_watch(&mut self, failure_watch: FailureWatch) {
        self.reports.set_failure_watch(failure_watch);
    }

    /// Whether an operation has failed, so that the caller must end the connection. If completions keep an
    /// order, a failure counts once all earlier operations have ended, and no success is reported after it.
    #[inline(always)]
    pub(crate) fn has_watched_failure(&self) -> bool {
        self.reports.has_watched_failure()
    }

    /// Returns how many operations have not ended, or have not been reported.
    #[inline(always)]
    pub(crate) fn outstanding_ops(&self) -> usize {
        self.sends.len() + self.counted_writes as usize + self.reports.ended_ops_awaiting_report()
    }

    /// Whether any operation has not ended.
    pub(crate) fn has_operations(&self) -> bool {
        !self.sends.is_empty()
    }

    /// Returns the turn of an operation that is posted now, or `None` if completions keep no order.
    #[inline(always)]
    pub(crate) fn assign_turn(&mut self, to: PeerId) -> Option<Turn> {
        self.reports.assign_turn(to)
    }

    /// Keeps an operation until it ends.
    #[inline(always)]
    pub(crate) fn insert(&mut self, send: Send) -> SendId {
        self.sends.insert(send)
    }

    /// Keeps an operation until it ends, and queues the operation behind others for the same peer.
    // Inlined, so that the operation, which is large, is built in its slot.
    #[inline(always)]
    pub(crate) fn enqueue(&mut self, to: PeerId, send: Send) -> SendId {
        let id = self.sends.insert(send);
        self.queues.push(to, id);
        id
    }

    /// Records that a link took a counted write.
    #[inline(always)]
    pub(crate) fn record_counted_write(&mut self) {
        self.counted_writes += 1;
    }

    /// Ends this many counted writes, which have succeeded.
    #[inline]
    pub(crate) fn end_counted_writes(&mut self, ops: u64, effects: &mut impl InitiatorEffects) {
        self.counted_writes -= ops;
        if effects.has_counters() {
            (0..ops).for_each(|_| effects.count(CounterEvents::WRITE));
        }
    }

    /// Ends this many counted writes, which have failed.
    pub(crate) fn fail_counted_writes(
        &mut self,
        ops: u64,
        target: PeerId,
        error: &OperationError,
        effects: &mut impl InitiatorEffects,
    ) {
        self.counted_writes -= ops;
        for _ in 0..ops {
            let flags = CompletionFlags::of_access(false, false);
            let completion = EndedOperation::of_transmit(0, flags, Buffer::None);
            let failure = FailedOperation { completion, error: error.clone(), target: Some(target) };
            self.reports.count_and_report_failure(failure, Signalled::No, effects);
        }
    }

    /// Whether so many operations are queued for a peer that an injected write must not join them.
    pub(crate) fn has_no_room_to_inject(&self, peer: PeerId) -> bool {
        self.queues.len(peer) >= INJECT_QUEUE_MAX_OPS
    }

    /// Whether the first operation that is queued for a peer is an injected write.
    pub(crate) fn is_injected_write_first_queued(&self, peer: PeerId) -> bool {
        let first = self.queues.first(peer).and_then(|first| self.sends.get(first));
        first.is_some_and(|send| {
            matches!(send.access_kind(), Some(AccessKind::Write { .. })) && !send.may_be_fetched
        })
    }

    /// Returns an operation that has not ended.
    #[inline]
    pub(crate) fn get(&self, id: SendId) -> Option<&Send> {
        self.sends.get(id)
    }

    /// Copies the payload of an operation that has not ended, if the payload is in borrowed memory. The
    /// application may then reuse that memory.
    #[inline]
    pub(crate) fn copy_borrowed_source(&mut self, id: SendId) {
        if let Some(send) = self.sends.get_mut(id) {
            send.source.copy_borrowed_memory();
        }
    }

    /// Records that a link has begun to take an access, at this stage.
    #[inline]
    pub(crate) fn record_access_begun(&mut self, id: SendId, stage: RequestStage, begun: BegunAccess) {
        let Some(send) = self.sends.get_mut(id) else { return };
        let Some(one_sided) = &mut send.one_sided else { return };
        one_sided.begun = begun;
        if stage == RequestStage::Sent {
            send.source.release_raw_memory();
        }
    }

    /// Returns all operations that have not ended.
    #[cfg(test)]
    pub(crate) fn sends(&self) -> impl Iterator<Item = (SendId, &Send)> {
        self.sends.iter()
    }

    #[cfg(test)]
    pub(crate) fn set_completes_in_order(&mut self, completes_in_order: bool) {
        self.reports = Reports::new(completes_in_order);
    }

    /// Whether no operation for a peer is queued.
    #[inline(always)]
    pub(crate) fn has_none_queued(&self, peer: PeerId) -> bool {
        self.queues.is_empty(peer)
    }

    /// Returns the next queued operation for a peer.
    #[inline]
    pub(crate) fn first_queued(&self, peer: PeerId) -> Option<SendId> {
        self.queues.first(peer)
    }

    /// Removes the first operation from a peer's queue. The link has begun to take the operation, or the
    /// operation has ended.
    #[inline]
    pub(crate) fn unqueue_first(&mut self, peer: PeerId) {
        self.queues.pop(peer);
    }

    /// Lists a peer as active: the next pass has work for it. Unblocks it if it is blocked.
    pub(crate) fn activate(&mut self, peer: PeerId) {
        self.queues.activate(peer);
    }

    /// Returns how many peers are active.
    #[inline]
    pub(crate) fn active_len(&self) -> usize {
        self.queues.active_len()
    }

    /// Whether any peer is active or blocked.
    pub(crate) fn has_listed_peers(&self) -> bool {
        self.queues.active_len() > 0 || self.queues.has_blocked()
    }

    /// Whether any peer is blocked.
    #[inline(always)]
    pub(crate) fn has_blocked_peers(&self) -> bool {
        self.queues.has_blocked()
    }

    /// Lists a peer as active if it is blocked. Called when an event of one of the peer's links may
    /// let its work go on.
    #[inline]
    pub(crate) fn unblock(&mut self, peer: PeerId) {
        self.queues.unblock(peer);
    }

    /// Removes and returns the next active peer. The caller then calls [`requeue`](Self::requeue),
    /// [`block`](Self::block) or [`deactivate`](Self::deactivate).
    #[inline]
    pub(crate) fn pop_active(&mut self) -> Option<PeerId> {
        self.queues.pop_active()
    }

    /// Ends the peer's part of a pass: the next pass tries again.
    #[inline]
    pub(crate) fn requeue(&mut self, peer: PeerId) {
        self.queues.requeue(peer);
    }

    /// Ends the peer's part of a pass: its work waits for an event of one of its links.
    #[inline]
    pub(crate) fn block(&mut self, peer: PeerId) {
        self.queues.block(peer);
    }

    /// Ends the peer's part of a pass: it has no work left.
    #[inline]
    pub(crate) fn deactivate(&mut self, peer: PeerId) {
        self.queues.deactivate(peer);
    }

    /// Returns the reply of the peer that an operation awaits before it ends.
    #[inline]
    pub(crate) fn awaited_reply(&self, id: SendId) -> AwaitedReply {
        self.sends.get(id).map_or(AwaitedReply::Nothing, |send| send.message.awaits)
    }

    /// Ends an operation that has succeeded.
    #[inline]
    pub(crate) fn end_with_success(&mut self, id: SendId, effects: &mut impl InitiatorEffects) {
        if let Some(send) = self.sends.remove(id) {
            self.counted_writes += u64::from(mutated!("fi_msg/eagain-may-be-retried"));
            self.reports.report_success_in_turn(send, effects);
        }
    }

    /// Reports an operation that succeeded at post time and never entered the table.
    #[inline(always)]
    pub(crate) fn report_immediate_success(&mut self, send: Send, effects: &mut impl InitiatorEffects) {
        self.reports.report_success_in_turn(send, effects);
    }

    /// Like [`report_immediate_success`](Self::report_immediate_success), for an access.
    pub(crate) fn report_immediate_access(
        &mut self,
        to: PeerId,
        completion: EndedOperation,
        signalled: Signalled,
        effects: &mut impl InitiatorEffects,
    ) {
        self.reports.report_immediate_access_in_turn(to, completion, signalled, effects);
    }

    /// Like [`report_immediate_access`](Self::report_immediate_access), for any operation that has failed.
    #[cold]
    pub(crate) fn report_immediate_failure(
        &mut self,
        to: PeerId,
        failure: FailedOperation,
        signalled: Signalled,
        effects: &mut impl InitiatorEffects,
    ) {
        self.reports.report_immediate_failure_in_turn(to, failure, signalled, effects);
    }

    /// Reports the success of an operation that the caller has counted.
    pub(crate) fn report_success(&mut self, completion: EndedOperation, effects: &mut impl InitiatorEffects) {
        self.reports.report_success(completion, effects);
    }

    /// Reports the failure of an operation that the caller has counted.
    #[cold]
    pub(crate) fn report_failure(&mut self, failure: FailedOperation, effects: &mut impl InitiatorEffects) {
        self.reports.report_failure(failure, effects);
    }

    /// Ends operations that have failed. `target` is their peer, if known.
    pub(crate) fn fail_sends(
        &mut self,
        sends: impl IntoIterator<Item = SendId>,
        target: Option<PeerId>,
        error: &OperationError,
        effects: &mut impl InitiatorEffects,
    ) {
        for send in sends {
            if let Some(send) = self.sends.remove(send) {
                self.reports.report_failure_in_turn(send, target, error.clone(), effects);
            }
        }
    }

    /// Fails the operations that are queued for a peer.
    pub(crate) fn fail_queued(
        &mut self,
        peer: PeerId,
        error: &OperationError,
        effects: &mut impl InitiatorEffects,
    ) {
        let queued = self.queues.take_all(peer);
        self.fail_sends(queued, Some(peer), error, effects);
    }

    /// Cancels the first queued operation that matches `key`. Returns whether there was one.
    pub(crate) fn cancel(&mut self, key: CancelKey, effects: &mut impl InitiatorEffects) -> bool {
        let sends = &self.sends;
        let matches = |id: SendId| {
            sends.get(id).is_some_and(|send| key.matches_operation(send.context, send.signalled))
        };
        let Some((peer, send)) = self.queues.remove_first(matches) else { return false };
        self.fail_sends([send], Some(peer), &OperationError::Cancelled, effects);
        true
    }

    /// Marks the peers that operations and their reports refer to.
    pub(crate) fn mark_peers(&self, marks: &mut PeerMarks) {
        let Initiator { sends: _, queues, reports, counted_writes: _ } = self;
        marks.mark(queues.peers());
        reports.mark_peers(marks);
    }

    /// Whether an operation that ends at post time can be reported at once. Otherwise completions wait for
    /// room, or keep an order.
    #[inline(always)]
    pub(crate) fn may_report_at_post_time(&self) -> bool {
        self.reports.may_report_at_post_time()
    }

    /// Whether completions wait for room in the queue.
    #[inline(always)]
    pub(crate) fn has_held_reports(&self) -> bool {
        self.reports.has_held_reports()
    }

    /// Reports the completions that wait, as far as the queue has room now.
    #[cold]
    pub(crate) fn deliver_held(&mut self, effects: &mut impl InitiatorEffects) {
        self.reports.deliver_held(effects);
    }
}
