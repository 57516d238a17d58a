//! How receives end: with their message, cut short, or with a failure.

use super::effects::ReportLater;
use super::links::Arriving;
use super::{MemberId, Placement, Receiver, ReceiverEffects};
use crate::completion::{Completion, Failure, WorkEnd};
use crate::error::OperationError;
use crate::filling::{Filling, clamp};
use crate::flags::CounterEvents;
use crate::operation::{Receive, ReceiveId, ReceiveRole, Signalled};
use crate::peer_id::PeerId;
use crate::wire::Message;

impl Receiver {
    /// A receive that is in the operation table has all of its message.
    #[inline(always)]
    pub(super) fn received_at(
        &mut self,
        id: ReceiveId,
        source: PeerId,
        message: &Message,
        member: MemberId,
        effects: &mut impl ReceiverEffects,
    ) {
        let Some(receive) = self.receives.get_mut(id) else { return };
        if message.len_bytes > receive.destination.len_bytes() as u64 {
            return self.received_truncated_at(id, source, message, member, effects);
        }
        if receive.signalled == Signalled::Yes {
            // Before there is a completion, which would be moved once more.
            effects.count(CounterEvents::RECV, member);
            let completion = receive.completion(source, message, clamp(message.len_bytes));
            self.report_inline(completion, Some(member), effects);
        } else if receive.signalled == Signalled::Deferred {
            return self.work_received_at(id, source, message, member, effects);
        } else if receive.role != ReceiveRole::Single {
            return self.special_received_at(id, source, message, member, effects);
        } else {
            effects.count(CounterEvents::RECV, member);
            if effects.reports_unasked(member) {
                let completion = receive.completion(source, message, clamp(message.len_bytes));
                self.report(completion, Some(member), effects);
            }
        }
        self.receives.remove(id);
    }

    /// A receive that never was in the operation table has all of its message.
    pub(super) fn received(
        &mut self,
        mut receive: Receive,
        source: PeerId,
        message: &Message,
        member: MemberId,
        effects: &mut impl ReceiverEffects,
    ) {
        if message.len_bytes > receive.destination.len_bytes() as u64 {
            return self.received_truncated(receive, source, message, member, effects);
        }
        if receive.signalled == Signalled::Deferred {
            let completion = receive.completion(source, message, clamp(message.len_bytes));
            return self.work_received(completion, member, effects);
        }
        effects.count(CounterEvents::RECV, member);
        if receive.signalled == Signalled::Yes || effects.reports_unasked(member) {
            let completion = receive.completion(source, message, clamp(message.len_bytes));
            self.report(completion, Some(member), effects);
        }
    }

    /// A receive in the operation table that has a turn, or is part of a multi-receive buffer, has all of its
    /// message.
    #[cold]
    fn special_received_at(
        &mut self,
        id: ReceiveId,
        source: PeerId,
        message: &Message,
        member: MemberId,
        effects: &mut impl ReceiverEffects,
    ) {
        if self.has_turn(id) {
            self.received_in_turn(id, source, message, effects);
        } else {
            effects.count(CounterEvents::RECV, member);
            self.part_received(id, source, message, member, effects);
        }
    }

    /// A receive in the operation table that is deferred work has all of its message.
    #[cold]
    fn work_received_at(
        &mut self,
        id: ReceiveId,
        source: PeerId,
        message: &Message,
        member: MemberId,
        effects: &mut impl ReceiverEffects,
    ) {
        if let Some(mut receive) = self.receives.remove(id) {
            let completion = receive.completion(source, message, clamp(message.len_bytes));
            self.work_received(completion, member, effects);
        }
    }

    /// A receive that is deferred work has succeeded.
    #[cold]
    fn work_received(
        &mut self,
        mut completion: Completion,
        member: MemberId,
        effects: &mut impl ReceiverEffects,
    ) {
        let WorkEnd { context, is_reported } = effects.work_ended(completion.context, true);
        if is_reported {
            completion.context = context;
            effects.count(CounterEvents::RECV, member);
            self.report(completion, Some(member), effects);
        }
    }

    /// A message is longer than the receive in the operation table that it was given.
    #[cold]
    fn received_truncated_at(
        &mut self,
        id: ReceiveId,
        source: PeerId,
        message: &Message,
        member: MemberId,
        effects: &mut impl ReceiverEffects,
    ) {
        if self.has_turn(id) {
            return self.received_in_turn(id, source, message, effects);
        }
        let Some(receive) = self.receives.remove(id) else { return };
        let is_part = receive.role == ReceiveRole::Part;
        self.received_truncated(receive, source, message, member, effects);
        if is_part {
            self.part_failed(id, member, effects);
        }
    }

    /// A message is longer than the receive that it was given.
    #[cold]
    fn received_truncated(
        &mut self,
        mut receive: Receive,
        source: PeerId,
        message: &Message,
        member: MemberId,
        effects: &mut impl ReceiverEffects,
    ) {
        let placed_bytes = receive.destination.len_bytes();
        let error = OperationError::Truncated { overflow_bytes: message.len_bytes - placed_bytes as u64 };
        let completion = receive.completion(source, message, placed_bytes);
        let failure = Failure { completion, error, target: None };
        self.failed(failure, receive.signalled, Some(member), effects);
    }

    /// A peer is gone, or could not be reached: receives that accept messages of it alone fail.
    pub(crate) fn peer_ended(
        &mut self,
        peer: PeerId,
        error: &OperationError,
        effects: &mut impl ReceiverEffects,
    ) {
        if self.leaves_unmatched() {
            self.fail_directed_later(peer, error);
        } else {
            for receive in self.untagged.take_posted_for(peer) {
                self.fail_posted(receive, Some(peer), error, effects);
            }
        }
        for receive in self.tagged.take_posted_for(peer) {
            self.fail_posted(receive, Some(peer), error, effects);
        }
    }

    /// Nothing more can arrive: the connection has ended, or there will be none. All receives fail, and so do
    /// those that are posted from now on, unless a message is there for them.
    pub(crate) fn end_all(
        &mut self,
        peer: Option<PeerId>,
        error: &OperationError,
        effects: &mut impl ReceiverEffects,
    ) {
        self.over = Some(Box::new(error.clone()));
        if self.leaves_unmatched() {
            self.fail_all_later(peer, error);
        } else {
            for receive in self.untagged.drain_posted().collect::<Vec<_>>() {
                self.fail_posted(receive, peer, error, effects);
            }
        }
        for receive in self.tagged.drain_posted().collect::<Vec<_>>() {
            self.fail_posted(receive, peer, error, effects);
        }
    }

    /// As [`end_all`](Self::end_all), but what fails is reported in the next pass: an application
    /// that drives several endpoints reads first what the others have received in this one.
    pub(crate) fn end_all_in_next_pass(
        &mut self,
        peer: Option<PeerId>,
        error: &OperationError,
        effects: &mut impl ReceiverEffects,
    ) {
        self.end_all(peer, error, &mut ReportLater(effects));
    }

    /// A receive that was taken out of matching fails with the only peer that it accepts messages of.
    pub(super) fn fail_posted(
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
            self.failed(receive.failure(peer, 0, error.clone()), signalled, None, effects);
        }
    }

    /// A receive that was being filled fails; the beginning of an unexpected message vanishes.
    pub(super) fn abandon(
        &mut self,
        source: PeerId,
        filling: &Filling<Arriving>,
        member: MemberId,
        error: &OperationError,
        effects: &mut impl ReceiverEffects,
    ) {
        let Arriving { message, place, .. } = &filling.place;
        match *place {
            Placement::Posted(id) => {
                if self.has_turn(id) {
                    self.abandoned_in_turn(id, source, filling, error, effects);
                } else if let Some(receive) = self.receives.remove(id) {
                    let placed_bytes = clamp(filling.arrived_bytes).min(receive.destination.len_bytes());
                    let Receive { role, signalled, .. } = receive;
                    let failure = receive.failure(Some(source), placed_bytes, error.clone());
                    self.failed(failure, signalled, Some(member), effects);
                    if role == ReceiveRole::Part {
                        self.part_failed(id, member, effects);
                    }
                }
            }
            Placement::Unexpected(id) => self.lose(id, message, error, effects),
            Placement::Nowhere => {}
        }
    }

    /// Reports a receive, or a look at a message, that has succeeded.
    pub(super) fn report(
        &mut self,
        completion: Completion,
        to: Option<MemberId>,
        effects: &mut impl ReceiverEffects,
    ) {
        self.report_inline(completion, to, effects);
    }

    // Without a closure, which would not be inlined: each time that a completion is moved costs.
    #[inline(always)]
    fn report_inline(
        &mut self,
        completion: Completion,
        to: Option<MemberId>,
        effects: &mut impl ReceiverEffects,
    ) {
        if self.held.is_empty() {
            if let Err(refused) = effects.complete(completion, to) {
                self.held.keep(Ok(refused));
            }
        } else {
            self.held.keep(Ok(completion));
        }
    }

    /// Reports a look at a message that has found nothing, or what has failed and was counted.
    pub(crate) fn report_failure(
        &mut self,
        failure: Failure,
        to: Option<MemberId>,
        effects: &mut impl ReceiverEffects,
    ) {
        self.held.report_failure(failure, |failure| effects.fail(failure, to));
    }

    /// Counts and reports a receive that has failed.
    pub(super) fn failed(
        &mut self,
        mut failure: Failure,
        signalled: Signalled,
        to: Option<MemberId>,
        effects: &mut impl ReceiverEffects,
    ) {
        let mut is_counted = true;
        if signalled == Signalled::Deferred {
            let end = effects.work_ended(failure.completion.context, false);
            (failure.completion.context, is_counted) = (end.context, end.is_reported);
        }
        if is_counted {
            effects.count_error(CounterEvents::of(failure.completion.flags), to);
        }
        self.report_failure(failure, to, effects);
    }

    /// Whether ends of receives wait for room in their queue.
    #[inline(always)]
    pub(crate) fn has_held(&self) -> bool {
        !self.held.is_empty()
    }

    /// Reports what waits for room in its queue, as far as there is room now. Reports of a shared receiver
    /// wait at their members instead.
    #[cold]
    pub(crate) fn deliver_held(&mut self, effects: &mut impl ReceiverEffects) {
        self.held.deliver(|outcome| match outcome {
            Ok(completion) => effects.complete(completion, Some(MemberId::ONLY)).map_err(Ok),
            Err(failure) => {
                effects.fail(*failure, Some(MemberId::ONLY)).map_err(|failure| Err(Box::new(failure)))
            }
        });
        self.match_kept_untagged(effects);
    }
}
