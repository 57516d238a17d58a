//! The end of a receive: with its message, truncated, or with a failure.

use super::effects::{EndedWork, ReportLater, UnrecordedEnd};
use super::links::Arriving;
use super::{MemberId, PayloadDestination, Receiver, ReceiverEffects};
use crate::completion::{EndedOperation, FailedOperation};
use crate::error::OperationError;
use crate::flags::CounterEvents;
use crate::held_reports::ReportOutcome;
use crate::mutated;
use crate::operation::{Receive, ReceiveId, ReceiveRole, Signalled};
use crate::peer_id::PeerId;
use crate::reassembly::{Reassembly, clamp_to_usize};
use crate::wire::Message;

impl Receiver {
    /// Ends a receive in the operation table that has its whole message.
    #[inline(always)]
    pub(super) fn finish_receive(
        &mut self,
        id: ReceiveId,
        source: PeerId,
        message: &Message,
        member: MemberId,
        effects: &mut impl ReceiverEffects,
    ) {
        let Some(receive) = self.receives.get_mut(id) else { return };
        if message.len_bytes > receive.destination.len_bytes() as u64 {
            return self.fail_truncated_receive(id, source, message, member, effects);
        }
        if receive.signalled == Signalled::Yes {
            // Counted first: a count after the completion is built would move the completion once
            // more.
            effects.count(CounterEvents::RECV, member);
            let placed_bytes = clamp_to_usize(message.len_bytes);
            if receive.destination.gives_buffer() {
                let completion = receive.take_completion(source, message, placed_bytes);
                self.report_success(completion, Some(member), effects);
            } else {
                let received = receive.without_buffer(source, message, placed_bytes);
                self.complete_or_hold(received.into(), Some(member), effects);
            }
        } else if receive.signalled == Signalled::Deferred {
            return self.finish_deferred_receive(id, source, message, member, effects);
        } else if receive.role != ReceiveRole::Single {
            return self.finish_turn_or_buffer_part(id, source, message, member, effects);
        } else {
            self.horizon.receive_ended();
            effects.count(CounterEvents::RECV, member);
            if effects.wants_unsignalled_reports(member) {
                let completion = receive.take_completion(source, message, clamp_to_usize(message.len_bytes));
                self.report_success(completion, Some(member), effects);
            }
        }
        self.receives.remove(id);
    }

    /// Ends a receive that never entered the operation table and has its whole message.
    pub(super) fn finish_immediate_receive(
        &mut self,
        mut receive: Receive,
        source: PeerId,
        message: &Message,
        member: MemberId,
        effects: &mut impl ReceiverEffects,
    ) {
        if message.len_bytes > receive.destination.len_bytes() as u64 {
            return self.report_truncated(receive, source, message, member, effects);
        }
        if receive.signalled == Signalled::Deferred {
            let completion = receive.take_completion(source, message, clamp_to_usize(message.len_bytes));
            return self.end_deferred_receive(Ok(completion), Some(member), effects);
        }
        effects.count(CounterEvents::RECV, member);
        if receive.signalled == Signalled::Yes || effects.wants_unsignalled_reports(member) {
            let completion = receive.take_completion(source, message, clamp_to_usize(message.len_bytes));
            self.report_success(completion, Some(member), effects);
        }
    }

    /// Ends a receive of the operation table that has its whole message. The receive has a turn, or
    /// is a part of a multi-receive buffer.
    #[cold]
    fn finish_turn_or_buffer_part(
        &mut self,
        id: ReceiveId,
        source: PeerId,
        message: &Message,
        member: MemberId,
        effects: &mut impl ReceiverEffects,
    ) {
        if self.has_turn(id) {
            self.end_ordered_receive(id, source, message, effects);
        } else {
            effects.count(CounterEvents::RECV, member);
            let placed_bytes = clamp_to_usize(message.len_bytes);
            let complete = |part: &mut Receive| part.take_completion(source, message, placed_bytes);
            self.part_received(id, member, complete, effects);
        }
    }

    /// Ends a receive in the operation table that has its whole message and is deferred work.
    #[cold]
    fn finish_deferred_receive(
        &mut self,
        id: ReceiveId,
        source: PeerId,
        message: &Message,
        member: MemberId,
        effects: &mut impl ReceiverEffects,
    ) {
        if let Some(mut receive) = self.receives.remove(id) {
            let completion = receive.take_completion(source, message, clamp_to_usize(message.len_bytes));
            self.end_deferred_receive(Ok(completion), Some(member), effects);
        }
    }

    /// Ends a receive that is deferred work.
    #[cold]
    pub(super) fn end_deferred_receive(
        &mut self,
        outcome: ReportOutcome,
        at: Option<MemberId>,
        effects: &mut impl ReceiverEffects,
    ) {
        self.end_deferred_work(UnrecordedEnd { outcome, counts_as_receive: true }, at, effects);
    }

    /// Records the end of deferred work. Then counts and reports the end, if
    /// [`ReceiverEffects::record_work_end`] says so.
    #[cold]
    pub(super) fn end_deferred_work(
        &mut self,
        end: UnrecordedEnd,
        at: Option<MemberId>,
        effects: &mut impl ReceiverEffects,
    ) {
        let Some(EndedWork { outcome, is_reported, is_counted }) = effects.record_work_end(end, at) else {
            return;
        };
        match outcome {
            Ok(completion) => {
                if let Some(member) = at.filter(|_| is_counted) {
                    effects.count(CounterEvents::RECV, member);
                }
                if is_reported {
                    self.report_success(completion, at, effects);
                }
            }
            Err(failure) => {
                if is_counted {
                    effects.count_error(CounterEvents::of_completion(failure.completion.flags), at);
                }
                self.report_failure(*failure, at, effects);
            }
        }
    }

    /// Fails a receive in the operation table whose destination is shorter than its message.
    #[cold]
    fn fail_truncated_receive(
        &mut self,
        id: ReceiveId,
        source: PeerId,
        message: &Message,
        member: MemberId,
        effects: &mut impl ReceiverEffects,
    ) {
        if self.has_turn(id) {
            return self.end_ordered_receive(id, source, message, effects);
        }
        let Some(receive) = self.receives.remove(id) else { return };
        let is_part = receive.role == ReceiveRole::Part;
        self.report_truncated(receive, source, message, member, effects);
        if is_part {
            self.part_failed(id, member, effects);
        }
    }

    /// Reports that the destination of a receive was shorter than its message.
    #[cold]
    fn report_truncated(
        &mut self,
        mut receive: Receive,
        source: PeerId,
        message: &Message,
        member: MemberId,
        effects: &mut impl ReceiverEffects,
    ) {
        let placed_bytes = receive.destination.len_bytes();
        let error = OperationError::Truncated { overflow_bytes: message.len_bytes - placed_bytes as u64 };
        let completion = receive.take_completion(source, message, placed_bytes);
        let failure = FailedOperation { completion, error, target: None };
        self.count_and_report_failure(failure, receive.signalled, Some(member), effects);
        self.record_failure_if_watched();
    }

    /// Fails the receives whose only source is this peer. The peer is gone or could not be reached.
    pub(crate) fn fail_receives_only_from(
        &mut self,
        peer: PeerId,
        error: &OperationError,
        effects: &mut impl ReceiverEffects,
    ) {
        if self.has_unmatched_untagged() {
            self.fail_directed_untagged_after_kept_messages(peer, error);
        } else {
            for receive in self.untagged.take_all_directed_posted(peer) {
                self.fail_removed_receive(receive, Some(peer), error, effects);
            }
        }
        for receive in self.tagged.take_all_directed_posted(peer) {
            self.fail_removed_receive(receive, Some(peer), error, effects);
        }
    }

    /// Fails all receives, since the connection has ended or could not be made. Receives that are
    /// posted later fail too, unless a message waits for them.
    pub(crate) fn fail_all_and_close(
        &mut self,
        peer: Option<PeerId>,
        error: &OperationError,
        effects: &mut impl ReceiverEffects,
    ) {
        self.end_error = Some(Box::new(error.clone()));
        if mutated!("fi_cm/shutdown-cancels-or-discards") {
            return;
        }
        if self.has_unmatched_untagged() {
            self.fail_all_untagged_after_kept_messages(peer, error);
        } else {
            for receive in self.untagged.drain_posted().collect::<Vec<_>>() {
                self.fail_removed_receive(receive, peer, error, effects);
            }
        }
        for receive in self.tagged.drain_posted().collect::<Vec<_>>() {
            self.fail_removed_receive(receive, peer, error, effects);
        }
    }

    /// As [`fail_all_and_close`](Self::fail_all_and_close), but reports the failures in the next
    /// pass. In this pass the application can still read what its other endpoints have received.
    pub(crate) fn fail_all_and_close_in_next_pass(
        &mut self,
        peer: Option<PeerId>,
        error: &OperationError,
        effects: &mut impl ReceiverEffects,
    ) {
        self.fail_all_and_close(peer, error, &mut ReportLater(effects));
    }

    /// Fails a receive or a buffer that was removed from matching. The failure names `peer` as the source.
    pub(super) fn fail_removed_receive(
        &mut self,
        id: ReceiveId,
        peer: Option<PeerId>,
        error: &OperationError,
        effects: &mut impl ReceiverEffects,
    ) {
        if self.receives.get(id).is_some_and(|receive| receive.role == ReceiveRole::Buffer) {
            self.fail_buffer(id, peer, error, effects);
        } else if let Some(receive) = self.receives.remove(id) {
            let signalled = receive.signalled;
            self.count_and_report_failure(
                receive.into_failure(peer, 0, error.clone()),
                signalled,
                None,
                effects,
            );
        }
    }

    /// Handles a partial message whose rest will not arrive. If a receive has matched the message,
    /// the receive fails. If the message is unexpected, the receiver drops it.
    pub(super) fn abandon_partial_message(
        &mut self,
        source: PeerId,
        filling: &Reassembly<Arriving>,
        member: MemberId,
        error: &OperationError,
        effects: &mut impl ReceiverEffects,
    ) {
        let Arriving { message, destination, .. } = &filling.owner;
        match *destination {
            PayloadDestination::Posted(id) => {
                if self.has_turn(id) {
                    self.fail_ordered_receive(id, source, filling, error, effects);
                } else if let Some(receive) = self.receives.remove(id) {
                    let placed_bytes =
                        clamp_to_usize(filling.arrived_bytes).min(receive.destination.len_bytes());
                    let Receive { role, signalled, .. } = receive;
                    let failure = receive.into_failure(Some(source), placed_bytes, error.clone());
                    self.count_and_report_failure(failure, signalled, Some(member), effects);
                    if *error == OperationError::Fault {
                        self.record_failure_if_watched();
                    }
                    if role == ReceiveRole::Part {
                        self.part_failed(id, member, effects);
                    }
                }
            }
            PayloadDestination::Unexpected(id) => self.drop_incomplete(id, message, error, effects),
            PayloadDestination::Nowhere => {}
        }
    }

    /// Reports a receive or a peek that has succeeded.
    pub(super) fn report_success(
        &mut self,
        completion: EndedOperation,
        to: Option<MemberId>,
        effects: &mut impl ReceiverEffects,
    ) {
        self.complete_or_hold(completion, to, effects);
    }

    // Not a closure: a closure would not be inlined, and each move of a completion costs.
    #[inline(always)]
    fn complete_or_hold(
        &mut self,
        completion: EndedOperation,
        to: Option<MemberId>,
        effects: &mut impl ReceiverEffects,
    ) {
        self.horizon.receive_ended();
        if self.held.is_empty() {
            if let Err(refused) = effects.complete(completion, to) {
                self.held.hold(Ok(refused));
            }
        } else {
            self.held.hold(Ok(completion));
        }
    }

    /// Reports a peek that has found no message, or a failed receive that was counted already.
    pub(crate) fn report_failure(
        &mut self,
        failure: FailedOperation,
        to: Option<MemberId>,
        effects: &mut impl ReceiverEffects,
    ) {
        self.held.fail_or_hold(failure, |failure| effects.fail(failure, to));
    }

    /// Counts and reports a receive that has failed.
    pub(crate) fn count_and_report_failure(
        &mut self,
        failure: FailedOperation,
        signalled: Signalled,
        to: Option<MemberId>,
        effects: &mut impl ReceiverEffects,
    ) {
        self.horizon.receive_ended();
        if signalled == Signalled::Deferred {
            return self.end_deferred_receive(Err(Box::new(failure)), to, effects);
        }
        effects.count_error(CounterEvents::of_completion(failure.completion.flags), to);
        self.report_failure(failure, to, effects);
    }

    /// Reports a receive or a peek that was refused or cancelled before it could be posted.
    #[cold]
    pub(crate) fn report_refused(
        &mut self,
        failure: FailedOperation,
        is_work: bool,
        is_counted: bool,
        effects: &mut impl ReceiverEffects,
    ) {
        if is_work {
            let end = UnrecordedEnd { outcome: Err(Box::new(failure)), counts_as_receive: is_counted };
            return self.end_deferred_work(end, None, effects);
        }
        if is_counted {
            effects.count_error(CounterEvents::of_completion(failure.completion.flags), None);
        }
        self.report_failure(failure, None, effects);
    }

    /// Whether reports of ended receives wait for room in their queue.
    #[inline(always)]
    pub(crate) fn has_held_reports(&self) -> bool {
        !self.held.is_empty()
    }

    /// Delivers the held reports of ended receives, as far as the queue has room. Then matches
    /// untagged messages that were kept aside, if no report is held any more. In a shared receiver,
    /// reports wait at the members instead.
    #[cold]
    pub(crate) fn deliver_held_reports(&mut self, effects: &mut impl ReceiverEffects) {
        self.held.deliver(|outcome| match outcome {
            Ok(completion) => effects.complete(completion, Some(MemberId::ONLY)).map_err(Ok),
            Err(failure) => {
                effects.fail(*failure, Some(MemberId::ONLY)).map_err(|failure| Err(Box::new(failure)))
            }
        });
        self.match_kept_untagged(effects);
    }
}
