//! The receiver of an engine: its own, or one shared with other engines.

use std::io::IoSliceMut;
use std::sync::Arc;

use super::Engine;
use crate::address::Address;
use crate::buffer::Destination;
use crate::completion::{FailedOperation, Sink};
use crate::connection::EndpointRole;
use crate::error::{Error, Misuse, OperationError, Unsupported};
use crate::operation::{CancelKey, PeekRequest, ReceiveRequest};
use crate::peer_id::PeerId;
use crate::protocol_violation::ProtocolViolation;
use crate::receiver::{KeptCredit, MemberId, Receiver, ReceiverEffects};
use crate::rejected::Rejected;
use crate::shared_receiver::{Debt, Membership, Report, SharedReceiver};
use crate::transport::{LinkId, Pull, RemotePayload, Space};
use crate::wire::Message;

/// Matches an engine's messages with posted receives.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "an engine has one, and mostly the large one")]
pub(super) enum ReceiveSide {
    Own(Receiver),
    Shared(Membership),
    /// The engine has left its shared receiver: it is about to be dropped, or could not be enabled.
    /// Messages that still arrive are discarded.
    Left,
}

/// Calls the receiver, own or shared, or returns `$left` if the engine has left it.
macro_rules! ask {
    ($receive_side:expr, $receiver:ident => $act:expr, else $left:expr) => {
        match $receive_side {
            ReceiveSide::Own($receiver) => $act,
            ReceiveSide::Shared($receiver) => $act,
            ReceiveSide::Left => $left,
        }
    };
}

const SHARED: Error = Error::Misuse(Misuse::NotSupported(Unsupported::SharedContextReceive));

impl ReceiveSide {
    #[inline(always)]
    pub(super) fn outstanding_receives(&self) -> usize {
        match self {
            ReceiveSide::Own(receiver) => receiver.outstanding_receives(),
            ReceiveSide::Shared(_) | ReceiveSide::Left => 0,
        }
    }

    pub(super) fn wants_pass(&self) -> bool {
        ask!(self, receiver => receiver.wants_pass(), else false)
    }

    #[inline(always)]
    pub(super) fn rare_work_count(&self) -> usize {
        if let ReceiveSide::Own(receiver) = self {
            receiver.rare_work_count()
        } else {
            self.shared_rare_work_count()
        }
    }

    #[cold]
    fn shared_rare_work_count(&self) -> usize {
        if let ReceiveSide::Shared(membership) = self { membership.rare_work_count() } else { 0 }
    }

    #[inline(always)]
    pub(super) fn post(
        &mut self,
        request: ReceiveRequest,
        effects: &mut impl ReceiverEffects,
    ) -> Result<(), Rejected<Destination>> {
        match self {
            ReceiveSide::Own(receiver) => receiver.post(request, effects),
            ReceiveSide::Shared(_) | ReceiveSide::Left => Err(rejected_as_shared(request)),
        }
    }

    pub(super) fn post_multi_receive(
        &mut self,
        request: ReceiveRequest,
        min_free_bytes: usize,
        effects: &mut impl ReceiverEffects,
    ) -> Result<(), Rejected<Destination>> {
        match self {
            ReceiveSide::Own(receiver) => receiver.post_multi_receive(request, min_free_bytes, effects),
            ReceiveSide::Shared(_) | ReceiveSide::Left => Err(rejected_as_shared(request)),
        }
    }

    pub(super) fn peek(
        &mut self,
        request: PeekRequest,
        effects: &mut impl ReceiverEffects,
    ) -> Result<(), Error> {
        match self {
            ReceiveSide::Own(receiver) => receiver.peek(request, effects),
            ReceiveSide::Shared(_) | ReceiveSide::Left => Err(SHARED),
        }
    }

    pub(super) fn receive_claimed(
        &mut self,
        request: ReceiveRequest,
        effects: &mut impl ReceiverEffects,
    ) -> Result<(), Rejected<Destination>> {
        match self {
            ReceiveSide::Own(receiver) => receiver.receive_claimed(request, effects),
            ReceiveSide::Shared(_) | ReceiveSide::Left => Err(rejected_as_shared(request)),
        }
    }

    pub(super) fn discard_claimed(
        &mut self,
        tagged: bool,
        context: u64,
        effects: &mut impl ReceiverEffects,
    ) -> Result<(), Error> {
        match self {
            ReceiveSide::Own(receiver) => receiver.discard_claimed(tagged, context, effects),
            ReceiveSide::Shared(_) | ReceiveSide::Left => Err(SHARED),
        }
    }

    pub(super) fn cancel(&mut self, key: CancelKey, effects: &mut impl ReceiverEffects) -> bool {
        match self {
            ReceiveSide::Own(receiver) => receiver.cancel(key, effects),
            ReceiveSide::Shared(_) | ReceiveSide::Left => false,
        }
    }

    /// Reports a receive that was accepted before it could be posted, and then was refused.
    #[cold]
    pub(super) fn report_failure(&mut self, failure: FailedOperation, effects: &mut impl ReceiverEffects) {
        if let ReceiveSide::Own(receiver) = self {
            receiver.report_failure(failure, Some(MemberId::ONLY), effects);
        }
    }

    pub(super) fn link_added(&mut self, id: LinkId, peer: PeerId, address: Address) {
        match self {
            ReceiveSide::Own(receiver) => receiver.link_added(id, peer, MemberId::ONLY),
            ReceiveSide::Shared(membership) => membership.link_added(id, peer, address),
            ReceiveSide::Left => {}
        }
    }

    pub(super) fn link_ended(
        &mut self,
        id: LinkId,
        error: &OperationError,
        effects: &mut impl ReceiverEffects,
    ) {
        ask!(self, receiver => receiver.link_ended(id, error, effects), else ());
    }

    pub(super) fn peer_ended(
        &mut self,
        peer: PeerId,
        address: Address,
        error: &OperationError,
        effects: &mut impl ReceiverEffects,
    ) {
        match self {
            ReceiveSide::Own(receiver) => receiver.peer_ended(peer, error, effects),
            ReceiveSide::Shared(membership) => membership.peer_ended(address, error, effects),
            ReceiveSide::Left => {}
        }
    }

    /// Ends all receives of an own receiver, since no message can arrive any more. Receives of a
    /// shared receiver stay, for its other members.
    pub(super) fn fail_all_and_close(
        &mut self,
        peer: Option<PeerId>,
        error: &OperationError,
        effects: &mut impl ReceiverEffects,
    ) {
        if let ReceiveSide::Own(receiver) = self {
            receiver.fail_all_and_close(peer, error, effects);
        }
    }

    /// As [`fail_all_and_close`](Self::fail_all_and_close), with reports in the next pass.
    pub(super) fn fail_all_and_close_in_next_pass(
        &mut self,
        peer: Option<PeerId>,
        error: &OperationError,
        effects: &mut impl ReceiverEffects,
    ) {
        if let ReceiveSide::Own(receiver) = self {
            receiver.fail_all_and_close_in_next_pass(peer, error, effects);
        }
    }

    pub(super) fn is_overdrawn(&self) -> bool {
        ask!(self, receiver => receiver.is_overdrawn(), else false)
    }

    pub(super) fn progress_counts(&self, id: LinkId) -> (u64, usize, u64, u64) {
        ask!(self, receiver => receiver.progress_counts(id), else (0, 0, 0, 0))
    }

    pub(super) fn received_message_count(&self, id: LinkId) -> u64 {
        ask!(self, receiver => receiver.received_message_count(id), else 0)
    }

    pub(super) fn granted_bytes(&self, id: LinkId) -> u64 {
        ask!(self, receiver => receiver.granted_bytes(id), else 0)
    }

    pub(super) fn credit_sent(&mut self, id: LinkId) {
        ask!(self, receiver => receiver.credit_sent(id), else ());
    }

    pub(super) fn spend_credit(&mut self, id: LinkId, cost_bytes: u64) -> Result<(), ProtocolViolation> {
        ask!(self, receiver => receiver.spend_credit(id, cost_bytes), else Ok(()))
    }

    #[inline(always)]
    pub(super) fn return_credit(&mut self, id: LinkId, cost_bytes: u64, effects: &mut impl ReceiverEffects) {
        ask!(self, receiver => receiver.return_credit(id, cost_bytes, effects), else ());
    }

    pub(super) fn keep_credit(&mut self, id: LinkId, cost_bytes: u64) -> Option<KeptCredit> {
        ask!(self, receiver => receiver.keep_credit(id, cost_bytes), else None)
    }

    pub(super) fn free_kept_credit(&mut self, kept: KeptCredit, effects: &mut impl ReceiverEffects) {
        ask!(self, receiver => receiver.free_kept_credit(kept, effects), else ());
    }

    pub(super) fn fence_asked(
        &mut self,
        id: LinkId,
        matched: bool,
        effects: &mut impl ReceiverEffects,
    ) -> Result<(), ProtocolViolation> {
        ask!(self, receiver => receiver.fence_asked(id, matched, effects), else Ok(()))
    }

    #[inline(always)]
    pub(super) fn message_arrived(
        &mut self,
        id: LinkId,
        message: &Message,
        payload: &[u8],
        effects: &mut impl ReceiverEffects,
    ) -> Result<(), ProtocolViolation> {
        ask!(self, receiver => receiver.message_arrived(id, message, payload, effects), else Ok(()))
    }

    pub(super) fn begin_message(
        &mut self,
        id: LinkId,
        message: &Message,
        effects: &mut impl ReceiverEffects,
    ) -> Result<(), ProtocolViolation> {
        ask!(self, receiver => receiver.begin_message(id, message, effects), else Ok(()))
    }

    pub(super) fn put_payload(&mut self, id: LinkId, bytes: &[u8], effects: &mut impl ReceiverEffects) {
        ask!(self, receiver => receiver.put_payload(id, bytes, effects), else ());
    }

    pub(super) fn payload_space(&mut self, id: LinkId) -> Space<'_> {
        ask!(self, receiver => receiver.payload_space(id), else Space::new())
    }

    pub(super) fn bytes_placed(
        &mut self,
        id: LinkId,
        count_bytes: usize,
        effects: &mut impl ReceiverEffects,
    ) {
        ask!(self, receiver => receiver.bytes_placed(id, count_bytes, effects), else ());
    }

    pub(super) fn has_offer(&self, id: LinkId, op: u64) -> bool {
        ask!(self, receiver => receiver.has_offer(id, op), else false)
    }

    pub(super) fn message_offered(
        &mut self,
        id: LinkId,
        message: &Message,
        op: u64,
        remote: &[u8],
        effects: &mut impl ReceiverEffects,
    ) -> Result<(), ProtocolViolation> {
        ask!(self, receiver => receiver.message_offered(id, message, op, remote, effects), else Ok(()))
    }

    pub(super) fn begin_requested_data(&mut self, id: LinkId, op: u64, len_bytes: u64) -> bool {
        ask!(self, receiver => receiver.begin_requested_data(id, op, len_bytes), else false)
    }

    #[inline(always)]
    pub(super) fn has_deferred_fetches(&self) -> bool {
        ask!(self, receiver => receiver.has_deferred_fetches(), else false)
    }

    pub(super) fn fetch_deferred(&mut self, effects: &mut impl ReceiverEffects) {
        match self {
            ReceiveSide::Own(receiver) => receiver.fetch_deferred(),
            ReceiveSide::Shared(membership) => membership.fetch_deferred(effects),
            ReceiveSide::Left => {}
        }
    }

    #[inline(always)]
    pub(super) fn is_pulling(&self) -> bool {
        ask!(self, receiver => receiver.is_pulling(), else false)
    }

    pub(super) fn pull(
        &mut self,
        pull: impl FnMut(LinkId, &RemotePayload, u64, &mut [IoSliceMut<'_>]) -> Pull,
        effects: &mut impl ReceiverEffects,
    ) {
        match self {
            ReceiveSide::Own(receiver) => receiver.pull(|_| true, pull, effects),
            ReceiveSide::Shared(membership) => membership.pull(pull, effects),
            ReceiveSide::Left => {}
        }
    }

    #[inline(always)]
    pub(super) fn has_starved(&self) -> bool {
        ask!(self, receiver => receiver.has_starved(), else false)
    }

    pub(super) fn feed_starved(&mut self, effects: &mut impl ReceiverEffects) {
        ask!(self, receiver => receiver.feed_starved(effects), else ());
    }

    /// Whether reports of receives wait for room in their queue, or there is mail.
    #[inline(always)]
    pub(super) fn has_held_reports(&self) -> bool {
        if let ReceiveSide::Own(receiver) = self { receiver.has_held_reports() } else { self.has_mail() }
    }

    #[cold]
    fn has_mail(&self) -> bool {
        matches!(self, ReceiveSide::Shared(membership) if membership.has_mail())
    }

    /// Whether messages that still arrive are discarded.
    pub(super) fn has_left(&self) -> bool {
        matches!(self, ReceiveSide::Left)
    }
}

#[cold]
fn rejected_as_shared(request: ReceiveRequest) -> Rejected<Destination> {
    Rejected { error: SHARED, returned: request.destination }
}

impl Engine {
    /// Receives through a shared receiver from now on. The engine must have no links yet, and must
    /// not post receives. With `is_selective`, only receives that ask for it report success.
    pub fn share_receiver(&mut self, shared: &Arc<SharedReceiver>, is_selective: bool) -> MemberId {
        let keeps_order = self.config.role == EndpointRole::Connected;
        let membership = Membership::new(shared.clone(), is_selective, keeps_order);
        let id = membership.id();
        self.receive_side = ReceiveSide::Shared(membership);
        id
    }

    /// Leaves the shared receiver, if the engine has one, and gives up all that it has received
    /// there. Call this before the endpoint lingers, so that no more receives are matched.
    pub fn leave_shared_receiver(&mut self, sink: &mut impl Sink) {
        if !matches!(self.receive_side, ReceiveSide::Shared(_)) {
            return;
        }
        let (target, mut effects) = self.target_and_effects(sink);
        target.give_back_held_credit(&mut effects);
        for id in self.links.ids() {
            let received = self.receive_side.received_message_count(id);
            if let Some(link) = self.links.get_mut(id) {
                link.tx.debts_mut().settle_receiver_debts(received);
            }
        }
        self.receive_side = ReceiveSide::Left;
    }

    /// Whether other members of the shared receiver have mail to fetch.
    /// [`SharedReceiver::take_members_with_mail`] returns these members.
    #[inline(always)]
    pub fn has_mail_for_others(&self) -> bool {
        match &self.receive_side {
            ReceiveSide::Shared(membership) => membership.has_mail_for_others(),
            ReceiveSide::Own(_) | ReceiveSide::Left => false,
        }
    }

    /// Carries out the effects that calls of other members, and posts of the application, have left
    /// for this engine. The caller then makes a pass, in which links transmit.
    pub fn fetch_mail(&mut self, sink: &mut impl Sink) {
        let ReceiveSide::Shared(membership) = &mut self.receive_side else { return };
        let (debts, counts) = membership.take_debts_and_counts();
        for (link, debt) in debts {
            match debt {
                Debt::Header(header) => self.links.owe(link, header),
                Debt::Ack => self.links.owe_ack(link),
                Debt::Credit => self.links.owe_credit(link),
            }
        }
        if sink.has_counters() {
            for count in counts {
                if count.is_success { sink.count(count.events) } else { sink.count_error(count.events) }
            }
        }
        let (receive_side, mut effects) = self.receive_side_and_effects(sink);
        if let ReceiveSide::Shared(membership) = receive_side {
            membership.end_works(&mut effects);
        }
        let ReceiveSide::Shared(membership) = &mut self.receive_side else { return };
        while let Some(report) = membership.take_report(|address| self.peers.intern(address)) {
            let refused = match report.outcome {
                Ok(completion) => sink.complete(completion, &self.peers).map_err(Ok),
                Err(failure) => sink.fail(*failure, &self.peers).map_err(|failure| Err(Box::new(failure))),
            };
            if let Err(outcome) = refused {
                let source =
                    outcome.as_ref().map_or_else(|failure| failure.completion.source, |done| done.source);
                let report = Report { outcome, ..report };
                return membership
                    .put_back_report(report, source.map(|source| self.peers.address_of(source)));
            }
        }
        let (receive_side, mut effects) = self.receive_side_and_effects(sink);
        if let ReceiveSide::Shared(membership) = receive_side {
            membership.match_kept_aside(&mut effects);
        }
    }

    /// Delivers the reports that the receiver holds, or the mail for this engine.
    pub(super) fn deliver_held_receives(&mut self, sink: &mut impl Sink) {
        let (receive_side, mut effects) = self.receive_side_and_effects(sink);
        match receive_side {
            ReceiveSide::Own(receiver) => receiver.deliver_held_reports(&mut effects),
            ReceiveSide::Shared(_) => self.fetch_mail(sink),
            ReceiveSide::Left => {}
        }
    }
}

/// Gives tests the receiver of an engine that shares none.
#[cfg(test)]
impl std::ops::Deref for ReceiveSide {
    type Target = Receiver;

    fn deref(&self) -> &Receiver {
        match self {
            ReceiveSide::Own(receiver) => receiver,
            _ => panic!("the receiver is shared"),
        }
    }
}

#[cfg(test)]
impl std::ops::DerefMut for ReceiveSide {
    fn deref_mut(&mut self) -> &mut Receiver {
        match self {
            ReceiveSide::Own(receiver) => receiver,
            _ => panic!("the receiver is shared"),
        }
    }
}
