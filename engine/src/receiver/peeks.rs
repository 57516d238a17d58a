//! Peeking at unexpected messages, and claiming them: `FI_PEEK`, `FI_CLAIM`, `FI_DISCARD`,
//! `fi_tagged(3)`.

use super::effects::UnrecordedEnd;
use super::unexpected::Unexpected;
use super::{MemberId, Receiver, ReceiverEffects};
use crate::buffer::{Buffer, Destination};
use crate::completion::EndedOperation;
use crate::error::{Again, Argument, Error, Missing, Misuse, OperationError};
use crate::matching::Criteria;
use crate::mutated;
use crate::operation::{PeekAction, PeekRequest, Receive, ReceiveRequest, ReceiveRole};
use crate::reassembly::clamp_to_usize;
use crate::rejected::Rejected;

const NOT_CLAIMED: Error = Error::Misuse(Misuse::NotFound(Missing::ClaimedMessage));

impl Receiver {
    /// Looks for an unexpected message, and reports the result at once. A peek cannot look at
    /// untagged messages that are kept aside for a multi-receive buffer. The buffer may still take
    /// these messages once the completion queue has room.
    ///
    /// # Errors
    ///
    /// See [`Engine::peek`](crate::Engine::peek).
    pub(crate) fn peek(
        &mut self,
        mut request: PeekRequest,
        effects: &mut impl ReceiverEffects,
    ) -> Result<(), Error> {
        let is_full = self.outstanding_receives() >= self.depth_ops;
        if is_full && !self.held.is_empty() || self.is_kind_kept_aside(request.tagged) {
            return Err(Again::QueueFull.into());
        }
        let PeekRequest { tagged, context, work, then, .. } = request;
        if then == PeekAction::Claim && self.claimed.contains_key(&(tagged, context)) {
            return Err(Misuse::Invalid(Argument::ClaimedContext).into());
        }
        if !tagged {
            request.criteria = Criteria { tag: 0, ignore: u64::MAX, ..request.criteria };
        }
        let has_found = self.report_if_peek_finds(&request, effects);
        self.horizon.peek_answered(has_found);
        if !has_found {
            // A message kept aside has arrived, and may be the one that the peek looks for.
            if !tagged && self.has_kept_aside() {
                return Err(Again::QueueFull.into());
            }
            if mutated!("fi_tagged/peek-is-not-queued") {
                let receive = Receive { tagged, context, ..Receive::VACANT };
                self.post_without_matching(request.criteria, receive);
            }
            let error = match mutated!("fi_tagged/peek-without-message-fails") {
                true => OperationError::Cancelled,
                false => OperationError::NoMessage,
            };
            self.report_failed_peek(tagged, context, work, error, effects);
        }
        Ok(())
    }

    /// Receives the message that a peek with the context `claimed_by` has claimed.
    ///
    /// # Errors
    ///
    /// See [`Engine::receive_claimed`](crate::Engine::receive_claimed).
    pub(crate) fn receive_claimed(
        &mut self,
        request: ReceiveRequest,
        claimed_by: u64,
        effects: &mut impl ReceiverEffects,
    ) -> Result<(), Rejected<Destination>> {
        let ReceiveRequest { destination, tagged, context, signalled, .. } = request;
        let mut key = (tagged, claimed_by);
        if mutated!("fi_tagged/claim-uses-context-of-peek") {
            key = self.claimed.keys().find(|(of, _)| *of == tagged).copied().unwrap_or(key);
        }
        if !self.claimed.contains_key(&key) {
            return Err(Rejected { error: NOT_CLAIMED, returned: destination });
        }
        if self.outstanding_receives() >= self.depth_ops {
            return Err(Rejected { error: Again::QueueFull.into(), returned: destination });
        }
        let receive = Receive { destination, tagged, context, signalled, role: ReceiveRole::Single };
        self.drop_claimed_if_abandoned(&key, effects);
        match self.claimed.remove(&key) {
            Some(Ok(message)) => self.receive_unexpected(receive, message, effects),
            Some(Err(error)) => {
                self.count_and_report_failure(receive.into_failure(None, 0, error), signalled, None, effects);
            }
            None => {}
        }
        Ok(())
    }

    /// Discards the message that a peek with this context has claimed. The call completes like a
    /// peek that finds the message. If the call is deferred work, `work` is its number.
    ///
    /// # Errors
    ///
    /// See [`Engine::discard_claimed`](crate::Engine::discard_claimed).
    pub(crate) fn discard_claimed(
        &mut self,
        tagged: bool,
        context: u64,
        work: Option<u64>,
        effects: &mut impl ReceiverEffects,
    ) -> Result<(), Error> {
        let key = (tagged, context);
        if !self.claimed.contains_key(&key) {
            return Err(NOT_CLAIMED);
        }
        if self.outstanding_receives() >= self.depth_ops {
            return Err(Again::QueueFull.into());
        }
        self.drop_claimed_if_abandoned(&key, effects);
        match self.claimed.remove(&key) {
            Some(Ok(message)) => {
                let completion = self.unexpected.get(message).map(|found| peek_completion(context, found));
                if let Some(completion) = completion
                    && let Some(member) = self.discard_unexpected(message, effects)
                {
                    self.report_successful_peek(completion, work, member, effects);
                }
            }
            Some(Err(error)) => self.report_failed_peek(tagged, context, work, error, effects),
            None => {}
        }
        Ok(())
    }

    /// If the link of a claimed message has ended before the whole message was there, replaces the message
    /// by the error of the link.
    fn drop_claimed_if_abandoned(&mut self, key: &(bool, u64), effects: &mut impl ReceiverEffects) {
        if let Some(Ok(message)) = self.claimed.get(key) {
            self.drop_if_abandoned(*message, effects);
        }
    }

    /// Records that the rest of a claimed message is lost. The receive of this message will fail.
    pub(super) fn fail_claimed_message(&mut self, tagged: bool, context: u64, error: &OperationError) {
        self.claimed.insert((tagged, context), Err(error.clone()));
    }

    /// Reports the message that a peek finds. Returns whether the peek has found one.
    fn report_if_peek_finds(&mut self, request: &PeekRequest, effects: &mut impl ReceiverEffects) -> bool {
        let PeekRequest { tagged, criteria, context, work, then } = request;
        let id = loop {
            let matching = if *tagged { &mut self.tagged } else { &mut self.untagged };
            // Messages are found in the order of their arrival: if the first is hidden, all are.
            let Some(id) = matching.peek_unexpected(criteria) else { return false };
            if self.unexpected.get(id).is_none_or(|found| self.horizon.hides(found.kept_number)) {
                return false;
            }
            let leaves_claimed = *then == PeekAction::Claim && mutated!("fi_tagged/claim-reserves-message");
            if *then != PeekAction::Keep && !leaves_claimed {
                matching.take_unexpected(criteria);
            }
            if !self.drop_if_abandoned(id, effects) {
                break id;
            }
        };
        let Some(unexpected) = self.unexpected.get_mut(id) else { return false };
        let completion = peek_completion(*context, unexpected);
        let member = unexpected.origin.member;
        match then {
            PeekAction::Keep => {}
            PeekAction::Claim => {
                unexpected.claim = Some(*context);
                let (origin, used_bytes) = (unexpected.origin, unexpected.used_bytes());
                match self.links.link_of_origin(origin) {
                    Some(link) => link.unclaimed_bytes -= used_bytes,
                    None => {
                        self.leftovers.forbid_drop(origin.creation_number, used_bytes, &mut self.budget);
                    }
                }
                self.claimed.insert((*tagged, *context), Ok(id));
            }
            PeekAction::Discard => {
                self.discard_unexpected(id, effects);
            }
        }
        self.report_successful_peek(completion, *work, member, effects);
        true
    }

    fn report_successful_peek(
        &mut self,
        completion: EndedOperation,
        work: Option<u64>,
        member: MemberId,
        effects: &mut impl ReceiverEffects,
    ) {
        match work {
            None if mutated!("fi_tagged/peek-reports-in-queue") => {}
            None => self.report_success(completion, Some(member), effects),
            Some(number) => {
                let outcome = Ok(EndedOperation { context: number, ..completion });
                let end = UnrecordedEnd { outcome, counts_as_receive: false };
                self.end_deferred_work(end, Some(member), effects);
            }
        }
    }

    fn report_failed_peek(
        &mut self,
        tagged: bool,
        context: u64,
        work: Option<u64>,
        error: OperationError,
        effects: &mut impl ReceiverEffects,
    ) {
        let receive = Receive { tagged, context: work.unwrap_or(context), ..Receive::VACANT };
        let failure = receive.into_failure(None, 0, error);
        match work {
            None => self.report_failure(failure, None, effects),
            Some(_) => {
                let end = UnrecordedEnd { outcome: Err(Box::new(failure)), counts_as_receive: false };
                self.end_deferred_work(end, None, effects);
            }
        }
    }
}

/// Creates the completion of a peek that has found a message.
fn peek_completion(context: u64, found: &Unexpected) -> EndedOperation {
    let Unexpected { source, message, notice, .. } = found;
    let mut receive = Receive { tagged: message.tag.is_some(), context, ..Receive::VACANT };
    let mut completion = receive.take_completion(*source, message, clamp_to_usize(message.len_bytes));
    if mutated!("fi_tagged/peek-reports-metadata") {
        (completion.data, completion.tag) = (0, 0);
    }
    if mutated!("fi_tagged/peek-len-is-message-size") {
        completion.len_bytes = 0;
    }
    if mutated!("fi_tagged/peek-may-return-no-data") {
        completion.buffer = Buffer::Received(found.bytes[..].into());
    }
    if let Some(notice) = notice {
        notice.describe_write_in(&mut completion);
    }
    completion
}
