//! Reports the ends of sends and accesses to the sink, and holds the reports while the sink is full. Counts
//! operations that have ended, also those that the application does not want reported.

use super::InitiatorEffects;
use super::turns::{Ending, Turn, Turns};
use crate::completion::{EndedOperation, FailedOperation, WorkEnd};
use crate::error::OperationError;
use crate::failure_watch::FailureWatch;
use crate::flags::CounterEvents;
use crate::held_reports::HeldReports;
use crate::mutated;
use crate::operation::{Send, Signalled};
use crate::peer_id::PeerId;
use crate::peers::PeerMarks;

/// Reports of sends and accesses that found no room in the sink, in order. An operation counts as
/// outstanding while its report waits for room or for a turn.
///
/// The reports of receives wait elsewhere, since they may go to another queue.
#[derive(Debug, Default)]
pub(super) struct Reports {
    held: HeldReports,
    /// The turns of operations, if these complete in the order of posting.
    turns: Option<Box<Turns>>,
    /// Whether a failure ends the connection.
    failure_watch: FailureWatch,
}

impl Reports {
    /// Creates empty reports. If `are_in_order`, operations complete in the order of posting. Otherwise they
    /// complete in the order in which they end.
    pub(super) fn new(are_in_order: bool) -> Reports {
        Reports { turns: are_in_order.then(Box::default), ..Reports::default() }
    }

    pub(super) fn set_failure_watch(&mut self, failure_watch: FailureWatch) {
        self.failure_watch = failure_watch;
    }

    /// Whether an operation has failed, so that the caller must end the connection. From then on, also after
    /// the end, an operation that waits for its turn is reported as flushed, even if it has succeeded.
    #[inline(always)]
    pub(super) fn has_watched_failure(&self) -> bool {
        self.failure_watch.asks_for_end()
    }

    #[inline(always)]
    pub(super) fn ended_ops_awaiting_report(&self) -> usize {
        self.held.len() + self.turns.as_ref().map_or(0, |turns| turns.waiting_ops())
    }

    /// Marks the peers of operations whose report waits for room or for its turn.
    pub(super) fn mark_peers(&self, marks: &mut PeerMarks) {
        let Reports { held, turns, failure_watch: _ } = self;
        marks.mark(held.peers());
        marks.mark(turns.iter().flat_map(|turns| turns.peers()));
    }

    /// Counts an operation that has succeeded, whether it is reported or not.
    #[inline(always)]
    pub(super) fn count(&self, event: CounterEvents, effects: &mut impl InitiatorEffects) {
        if effects.has_counters() {
            effects.count(event);
        }
    }

    /// As [`count`](Self::count), for a send or an access to a peer's region.
    // Runs before the completion is built, and so takes the send. A call between building and reporting the
    // completion would copy the completion once more.
    #[inline(always)]
    pub(super) fn count_send(&self, send: &Send, effects: &mut impl InitiatorEffects) {
        if effects.has_counters() {
            effects.count(send.counter_event());
        }
    }

    /// Counts a send or an access that has succeeded. If the operation is signalled, also reports it. If the
    /// operation has a turn, count and report wait for the turn.
    #[inline(always)]
    pub(super) fn report_success_in_turn(&mut self, send: Send, effects: &mut impl InitiatorEffects) {
        if let Some(turn) = send.turn {
            let ending = match send.signalled {
                Signalled::Yes => Ending::Completed(send.into_completion()),
                Signalled::No => Ending::CountedOnly(send.into_completion()),
                Signalled::Deferred => Ending::DeferredWork(Box::new(send.into_completion())),
            };
            return self.end_turn(turn, ending, effects);
        }
        match send.signalled {
            Signalled::Yes => {
                self.count_send(&send, effects);
                self.report_success(send.into_completion(), effects);
            }
            Signalled::No => self.count_send(&send, effects),
            Signalled::Deferred => self.report_deferred_work_success(send.into_completion(), effects),
        }
    }

    /// Like [`report_success_in_turn`](Self::report_success_in_turn), for an access that ended at post time.
    pub(super) fn report_immediate_access_in_turn(
        &mut self,
        to: PeerId,
        completion: EndedOperation,
        signalled: Signalled,
        effects: &mut impl InitiatorEffects,
    ) {
        if let Some(turn) = self.assign_turn(to) {
            let ending = match signalled {
                Signalled::Yes => Ending::Completed(completion),
                Signalled::No => Ending::CountedOnly(completion),
                Signalled::Deferred => Ending::DeferredWork(Box::new(completion)),
            };
            return self.end_turn(turn, ending, effects);
        }
        let event = CounterEvents::of_completion(completion.flags);
        match signalled {
            Signalled::Yes => {
                self.count(event, effects);
                self.report_success(completion, effects);
            }
            Signalled::No => self.count(event, effects),
            Signalled::Deferred => self.report_deferred_work_success(completion, effects),
        }
    }

    /// Like [`report_failure_in_turn`](Self::report_failure_in_turn), for an operation that ended at post
    /// time.
    pub(super) fn report_immediate_failure_in_turn(
        &mut self,
        to: PeerId,
        failure: FailedOperation,
        signalled: Signalled,
        effects: &mut impl InitiatorEffects,
    ) {
        match self.assign_turn(to) {
            Some(turn) => self.end_turn(turn, Ending::Failed(Box::new(failure), signalled), effects),
            None => self.count_and_report_failure(failure, signalled, effects),
        }
    }

    /// Whether an operation that ends at post time can be reported at once. Otherwise completions wait for
    /// room, or keep an order.
    #[inline(always)]
    pub(super) fn may_report_at_post_time(&self) -> bool {
        self.held.is_empty() && self.turns.is_none()
    }

    /// Returns the turn of an operation that is posted now, or `None` if completions keep no order.
    #[inline(always)]
    pub(super) fn assign_turn(&mut self, to: PeerId) -> Option<Turn> {
        self.turns.as_mut().map(|turns| turns.assign(to))
    }

    /// Reports deferred work that has succeeded.
    #[cold]
    pub(super) fn report_deferred_work_success(
        &mut self,
        mut completion: EndedOperation,
        effects: &mut impl InitiatorEffects,
    ) {
        let WorkEnd { context, is_reported } = effects.record_deferred_work_end(completion.context, true);
        if is_reported {
            completion.context = context;
            self.count(CounterEvents::of_completion(completion.flags), effects);
            self.report_success(completion, effects);
        }
    }

    /// Counts and reports an operation that has failed.
    pub(super) fn count_and_report_failure(
        &mut self,
        mut failure: FailedOperation,
        signalled: Signalled,
        effects: &mut impl InitiatorEffects,
    ) {
        let mut is_counted = true;
        if signalled == Signalled::Deferred {
            let end = effects.record_deferred_work_end(failure.completion.context, false);
            (failure.completion.context, is_counted) = (end.context, end.is_reported);
        }
        if is_counted && effects.has_counters() {
            effects.count_error(CounterEvents::of_completion(failure.completion.flags));
        }
        if signalled == Signalled::No && mutated!("fi_endpoint/failure-is-reported") {
            return;
        }
        if failure.error != OperationError::Cancelled {
            self.failure_watch.record_failure();
        }
        if mutated!("fi_cq/errors-are-always-reported") && signalled == Signalled::No {
            return;
        }
        self.report_failure(failure, effects);
    }

    /// Reports a success. The caller [counts](Self::count) the operation first.
    #[inline(always)]
    pub(super) fn report_success(&mut self, completion: EndedOperation, effects: &mut impl InitiatorEffects) {
        self.held.complete_or_hold(completion, |completion| effects.complete(completion));
    }

    /// As [`report_success`](Self::report_success), for a failure.
    pub(super) fn report_failure(&mut self, failure: FailedOperation, effects: &mut impl InitiatorEffects) {
        self.held.fail_or_hold(failure, |failure| effects.fail(failure));
    }

    /// Like [`report_success_in_turn`](Self::report_success_in_turn), for a failure. A failure is always
    /// reported.
    pub(super) fn report_failure_in_turn(
        &mut self,
        send: Send,
        target: Option<PeerId>,
        error: OperationError,
        effects: &mut impl InitiatorEffects,
    ) {
        let Send { turn, signalled, .. } = send;
        // How much of an access took effect is unknown.
        let completion = EndedOperation { len_bytes: 0, ..send.into_completion() };
        let failure = FailedOperation { completion, error, target };
        match turn {
            Some(turn) => self.end_turn(turn, Ending::Failed(Box::new(failure), signalled), effects),
            None => self.count_and_report_failure(failure, signalled, effects),
        }
    }

    /// Records the end of a send or an access. Then counts and reports, in order, the ended operations on
    /// this peer, up to the first that has not ended.
    #[cold]
    fn end_turn(&mut self, turn: Turn, ending: Ending, effects: &mut impl InitiatorEffects) {
        let Some(turns) = &mut self.turns else { return };
        let peer = turns.record_end(turn, ending);
        while let Some(ending) = self.turns.as_mut().and_then(|turns| turns.take_first_if_ended(peer)) {
            let is_flushed = self.failure_watch.forbids_success();
            let ending = if is_flushed { ending.into_flushed(peer) } else { ending };
            match ending {
                Ending::CountedOnly(completion) => {
                    self.count(CounterEvents::of_completion(completion.flags), effects);
                }
                Ending::Completed(completion) => {
                    self.count(CounterEvents::of_completion(completion.flags), effects);
                    self.report_success(completion, effects);
                }
                Ending::DeferredWork(completion) => self.report_deferred_work_success(*completion, effects),
                Ending::Failed(failure, signalled) => {
                    self.count_and_report_failure(*failure, signalled, effects);
                }
            }
        }
    }

    #[inline]
    pub(super) fn has_held_reports(&self) -> bool {
        !self.held.is_empty()
    }

    #[cold]
    pub(super) fn deliver_held(&mut self, effects: &mut impl InitiatorEffects) {
        self.held.deliver(|outcome| match outcome {
            Ok(completion) => effects.complete(completion).map_err(Ok),
            Err(failure) => effects.fail(*failure).map_err(|failure| Err(Box::new(failure))),
        });
    }
}
