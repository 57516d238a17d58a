//! The receiver of an engine: its own, or one shared with other engines.

use std::io::IoSliceMut;
use std::sync::Arc;

use super::Engine;
use crate::address::Address;
use crate::buffer::{Destination, SegmentMut};
use crate::completion::{FailedOperation, Sink};
use crate::connection::EndpointRole;
use crate::error::{Error, Misuse, OperationError, Unsupported};
use crate::failure_watch::FailureWatch;
use crate::link_fault::{LinkFault, NoMemory};
use crate::moment::Moment;
use crate::operation::{CancelKey, PeekRequest, ReceiveRequest};
use crate::peer_id::PeerId;
use crate::peers::PeerMarks;
use crate::protocol_violation::ProtocolViolation;
use crate::receiver::{HeldCredit, MemberId, PostedReceive, Receiver, ReceiverEffects, WriteNotice};
use crate::rejected::Rejected;
use crate::shared_receiver::{Mail, Membership, Reply, Report, SharedReceiver};
use crate::transport::{AddressProof, LinkId, Pull, RemotePayload, Space};
use crate::wire::Message;

/// The receiver of an engine.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "an engine has one, and mostly the large one")]
pub(super) enum ReceiveSide {
    Own(Receiver),
    Shared(Membership),
    /// The engine has left its shared receiver: its endpoint is about to be dropped, or could not
    /// be enabled. Messages that still arrive are discarded.
    Left,
}

/// Defines methods that call the receiver, own or shared. If the engine has left its shared receiver, or the
/// shared receiver does not know the link, a method returns the value after `else`.
macro_rules! calls_of_receiver {
    ($(
        $(#[$meta:meta])*
        $how:ident fn $name:ident($($arg:ident: $type:ty),* $(,)?) $(-> $result:ty)?, else $left:expr;
    )*) => {
        $(calls_of_receiver! { @$how [$(#[$meta])*] $name [$($arg: $type),*] [$($result)?] [$left] })*
    };
    (@look [$($meta:tt)*] $name:ident [] [$result:ty] [$left:expr]) => {
        $($meta)*
        pub(super) fn $name(&self) -> $result {
            match self {
                ReceiveSide::Own(receiver) => receiver.$name(),
                ReceiveSide::Shared(membership) => membership.look(|receiver| receiver.$name()),
                ReceiveSide::Left => $left,
            }
        }
    };
    (@look_at_link [$($meta:tt)*] $name:ident [$($arg:ident: $type:ty),*] [$result:ty] [$left:expr]) => {
        $($meta)*
        pub(super) fn $name(&self, id: LinkId, $($arg: $type),*) -> $result {
            match self {
                ReceiveSide::Own(receiver) => receiver.$name(id, $($arg),*),
                ReceiveSide::Shared(membership) => membership
                    .look_at_link(id, |receiver, link| receiver.$name(link, $($arg),*))
                    .unwrap_or($left),
                ReceiveSide::Left => $left,
            }
        }
    };
    (@change_link [$($meta:tt)*] $name:ident [$($arg:ident: $type:ty),*] [$($result:ty)?] [$left:expr]) => {
        $($meta)*
        pub(super) fn $name(&mut self, id: LinkId, $($arg: $type),*) $(-> $result)? {
            match self {
                ReceiveSide::Own(receiver) => receiver.$name(id, $($arg),*),
                ReceiveSide::Shared(membership) => membership
                    .change_link(id, |receiver, link| receiver.$name(link, $($arg),*))
                    .unwrap_or($left),
                ReceiveSide::Left => $left,
            }
        }
    };
    (@act [$($meta:tt)*] $name:ident [$($arg:ident: $type:ty),*] [] [$left:expr]) => {
        $($meta)*
        pub(super) fn $name(&mut self, $($arg: $type,)* effects: &mut impl ReceiverEffects) {
            match self {
                ReceiveSide::Own(receiver) => receiver.$name($($arg,)* effects),
                ReceiveSide::Shared(membership) => {
                    membership.act(effects, |receiver, effects| receiver.$name($($arg,)* effects));
                }
                ReceiveSide::Left => $left,
            }
        }
    };
    (@act_on_link [$($meta:tt)*] $name:ident [$($arg:ident: $type:ty),*] [$($result:ty)?] [$left:expr]) => {
        $($meta)*
        pub(super) fn $name(
            &mut self,
            id: LinkId,
            $($arg: $type,)*
            effects: &mut impl ReceiverEffects,
        ) $(-> $result)? {
            match self {
                ReceiveSide::Own(receiver) => receiver.$name(id, $($arg,)* effects),
                ReceiveSide::Shared(membership) => membership
                    .act_on_link(id, effects, |receiver, link, effects| {
                        receiver.$name(link, $($arg,)* effects)
                    })
                    .unwrap_or($left),
                ReceiveSide::Left => $left,
            }
        }
    };
}

const SHARED: Error = Error::Misuse(Misuse::NotSupported(Unsupported::SharedContextReceive));

impl ReceiveSide {
    calls_of_receiver! {
        look_at_link fn progress_counts() -> (u64, u64, u64), else (0, 0, 0);
        look_at_link fn arrived_eager_count() -> u64, else 0;
        look_at_link fn granted_bytes() -> u64, else 0;
        look_at_link fn has_offer(op: u64) -> bool, else false;
        #[inline(always)]
        look fn has_deferred_fetches() -> bool, else false;
        #[inline(always)]
        look fn has_starved_links() -> bool, else false;
        #[inline(always)]
        look fn needs_drop_step() -> bool, else false;
        change_link fn link_up(address: Address, proof: AddressProof), else ();
        change_link fn peer_proven(), else ();
        change_link fn credit_sent(), else ();
        change_link fn spend_credit(cost_bytes: u64) -> Result<(), ProtocolViolation>, else Ok(());
        change_link fn hold_credit(cost_bytes: u64) -> Option<HeldCredit>, else None;
        change_link fn begin_data_if_requested(op: u64, len_bytes: u64) -> bool, else false;
        #[inline(always)]
        act_on_link fn return_credit(cost_bytes: u64), else ();
        act_on_link fn fence_asked(asks_match: bool) -> Result<(), ProtocolViolation>, else Ok(());
        #[inline(always)]
        act_on_link fn message_arrived(
            message: &Message,
            payload: &[u8],
        ) -> Result<(), LinkFault>, else Ok(());
        act_on_link fn write_notice_arrived(notice: WriteNotice) -> Result<(), NoMemory>, else Ok(());
        act_on_link fn begin_message(message: &Message) -> Result<(), LinkFault>, else Ok(());
        act_on_link fn put_payload(bytes: &[u8]), else ();
        act_on_link fn bytes_placed(count_bytes: usize), else ();
        act_on_link fn message_offered(
            message: &Message,
            op: u64,
            remote: &[u8],
        ) -> Result<(), LinkFault>, else Ok(());
        act fn return_held_credit(held: HeldCredit), else ();
        act fn grant_credit_to_starved_links(), else ();
        act fn finish_drop_step(), else ();
    }

    pub(super) fn has_work_without_arrivals(&self) -> bool {
        match self {
            ReceiveSide::Own(receiver) => receiver.has_work_without_arrivals(),
            ReceiveSide::Shared(membership) => membership.has_work_without_arrivals(),
            ReceiveSide::Left => false,
        }
    }

    #[inline(always)]
    pub(super) fn is_pulling(&self) -> bool {
        match self {
            ReceiveSide::Own(receiver) => receiver.is_pulling(),
            ReceiveSide::Shared(membership) => membership.is_pulling(),
            ReceiveSide::Left => false,
        }
    }

    pub(super) fn try_admit_link(&mut self, address: Address, proof: AddressProof) -> bool {
        match self {
            ReceiveSide::Own(receiver) => receiver.try_admit_link(address, proof),
            ReceiveSide::Shared(membership) => membership.try_admit_link(address, proof),
            ReceiveSide::Left => true,
        }
    }

    pub(super) fn link_ended(
        &mut self,
        id: LinkId,
        error: &OperationError,
        effects: &mut impl ReceiverEffects,
    ) {
        match self {
            ReceiveSide::Own(receiver) => receiver.link_ended(id, error, effects),
            ReceiveSide::Shared(membership) => membership.link_ended(id, error, effects),
            ReceiveSide::Left => {}
        }
    }

    pub(super) fn payload_space(&mut self, id: LinkId) -> Space<'_> {
        match self {
            ReceiveSide::Own(receiver) => receiver.payload_space(id),
            ReceiveSide::Shared(membership) => membership.payload_space(id),
            ReceiveSide::Left => Space::new(),
        }
    }

    /// Whether the application should peek once more before it sleeps.
    pub(super) fn take_owed_look(&mut self) -> bool {
        if let ReceiveSide::Own(receiver) = self { receiver.horizon.take_owed_look() } else { false }
    }

    /// Does nothing if the receiver is shared: its peeks find all that has arrived.
    #[inline(always)]
    pub(super) fn show_all_to_peeks(&mut self) {
        if let ReceiveSide::Own(receiver) = self {
            receiver.horizon.show_all();
        }
    }

    /// As [`show_all_to_peeks`](Self::show_all_to_peeks), but a pass that has ended a receive hides what
    /// arrives from here on.
    #[inline(always)]
    pub(super) fn show_arrived_to_peeks(&mut self) {
        if let ReceiveSide::Own(receiver) = self {
            receiver.horizon.show_arrived();
        }
    }

    #[inline(always)]
    pub(super) fn outstanding_receives(&self) -> usize {
        match self {
            ReceiveSide::Own(receiver) => receiver.outstanding_receives(),
            ReceiveSide::Shared(_) | ReceiveSide::Left => 0,
        }
    }

    #[inline(always)]
    pub(super) fn rare_work_bits(&self) -> usize {
        if let ReceiveSide::Own(receiver) = self {
            receiver.rare_work_bits()
        } else {
            self.nonzero_if_shared_rare_work()
        }
    }

    #[cold]
    fn nonzero_if_shared_rare_work(&self) -> usize {
        if let ReceiveSide::Shared(membership) = self { membership.rare_work_bits() } else { 0 }
    }

    #[inline(always)]
    pub(super) fn post(
        &mut self,
        request: ReceiveRequest,
        effects: &mut impl ReceiverEffects,
    ) -> Result<PostedReceive, Rejected<Destination>> {
        match self {
            ReceiveSide::Own(receiver) => receiver.post(request, effects),
            ReceiveSide::Shared(_) | ReceiveSide::Left => Err(rejected_as_shared(request)),
        }
    }

    pub(super) fn post_multi_receive(
        &mut self,
        request: ReceiveRequest,
        min_free_bytes: usize,
        work: Option<u64>,
        effects: &mut impl ReceiverEffects,
    ) -> Result<(), Rejected<Destination>> {
        match self {
            ReceiveSide::Own(receiver) => receiver.post_multi_receive(request, min_free_bytes, work, effects),
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
        claimed_by: u64,
        effects: &mut impl ReceiverEffects,
    ) -> Result<(), Rejected<Destination>> {
        match self {
            ReceiveSide::Own(receiver) => receiver.receive_claimed(request, claimed_by, effects),
            ReceiveSide::Shared(_) | ReceiveSide::Left => Err(rejected_as_shared(request)),
        }
    }

    pub(super) fn discard_claimed(
        &mut self,
        tagged: bool,
        context: u64,
        work: Option<u64>,
        effects: &mut impl ReceiverEffects,
    ) -> Result<(), Error> {
        match self {
            ReceiveSide::Own(receiver) => receiver.discard_claimed(tagged, context, work, effects),
            ReceiveSide::Shared(_) | ReceiveSide::Left => Err(SHARED),
        }
    }

    pub(super) fn cancel(&mut self, key: CancelKey, effects: &mut impl ReceiverEffects) -> bool {
        match self {
            ReceiveSide::Own(receiver) => receiver.cancel(key, effects),
            ReceiveSide::Shared(_) | ReceiveSide::Left => false,
        }
    }

    /// Does nothing if the receiver is shared.
    pub(super) fn cancel_into(&mut self, memory: &SegmentMut, effects: &mut impl ReceiverEffects) {
        match self {
            ReceiveSide::Own(receiver) => receiver.cancel_into(memory, effects),
            ReceiveSide::Shared(_) | ReceiveSide::Left => {}
        }
    }

    /// Fails the receives that messages on the engine's links are filling, if their memory overlaps `memory`.
    pub(super) fn abandon_messages_into(&mut self, memory: &SegmentMut, effects: &mut impl ReceiverEffects) {
        match self {
            ReceiveSide::Own(receiver) => receiver.abandon_messages_into(memory, MemberId::ONLY, effects),
            ReceiveSide::Shared(membership) => membership.abandon_messages_into(memory, effects),
            ReceiveSide::Left => {}
        }
    }

    /// Reports the failure of a receive that the caller had accepted, but the engine has refused.
    /// Does nothing if the receiver is shared.
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

    /// Whether a posted receive names this peer as its only source.
    pub(super) fn has_receive_only_from(&self, peer: PeerId, address: Address) -> bool {
        match self {
            ReceiveSide::Own(receiver) => receiver.has_receive_only_from(peer),
            ReceiveSide::Shared(membership) => membership.has_receive_only_from(address),
            ReceiveSide::Left => false,
        }
    }

    pub(super) fn peer_lost(
        &mut self,
        peer: PeerId,
        address: Address,
        error: &OperationError,
        effects: &mut impl ReceiverEffects,
    ) {
        match self {
            ReceiveSide::Own(receiver) => receiver.fail_receives_only_from(peer, error, effects),
            ReceiveSide::Shared(membership) => membership.peer_lost(address, error, effects),
            ReceiveSide::Left => {}
        }
    }

    /// Fails all receives, since no message can arrive any more. A shared receiver keeps its
    /// receives: its other members may still get messages.
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

    /// As [`fail_all_and_close`](Self::fail_all_and_close), but reports the failures in the next
    /// pass.
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

    /// Watches for receives that fail by their message, or ends the watch. A shared receiver mails each of
    /// these failures, and the engine finds it in its mail.
    pub(super) fn set_failure_watch(&mut self, failure_watch: FailureWatch) {
        match self {
            ReceiveSide::Own(receiver) => receiver.set_failure_watch(failure_watch),
            ReceiveSide::Shared(membership) => {
                membership.set_mails_failures(failure_watch == FailureWatch::On);
            }
            ReceiveSide::Left => {}
        }
    }

    /// Whether a receive has failed by its message, so that the connection must end.
    #[inline(always)]
    pub(super) fn has_watched_failure(&self) -> bool {
        matches!(self, ReceiveSide::Own(receiver) if receiver.has_watched_failure())
    }

    /// Drops the messages that no receive has taken. Those in a shared receiver stay, as they do when a
    /// connection is lost.
    pub(super) fn drop_all_messages(&mut self, error: &OperationError, effects: &mut impl ReceiverEffects) {
        if let ReceiveSide::Own(receiver) = self {
            receiver.drop_all_messages(error, effects);
        }
    }

    // A shared receiver delays no fetches: it is not told the time.

    #[inline]
    pub(super) fn has_delayed_fetches(&self) -> bool {
        matches!(self, ReceiveSide::Own(receiver) if receiver.has_delayed_fetches())
    }

    pub(super) fn delayed_fetch_deadline(&self) -> Option<Moment> {
        match self {
            ReceiveSide::Own(receiver) => receiver.delayed_fetch_deadline(),
            _ => None,
        }
    }

    pub(super) fn begin_due_fetches(&mut self, now: Moment) {
        if let ReceiveSide::Own(receiver) = self {
            receiver.begin_due_fetches(now);
        }
    }

    pub(super) fn end_fetch_delays(&mut self) {
        if let ReceiveSide::Own(receiver) = self {
            receiver.end_fetch_delays();
        }
    }

    pub(super) fn begin_deferred_fetches(&mut self, effects: &mut impl ReceiverEffects) {
        match self {
            ReceiveSide::Own(receiver) => receiver.begin_deferred_fetches(),
            ReceiveSide::Shared(membership) => membership.begin_deferred_fetches(effects),
            ReceiveSide::Left => {}
        }
    }

    pub(super) fn pull_payloads(
        &mut self,
        pull: impl FnMut(LinkId, &RemotePayload, u64, &mut [IoSliceMut<'_>]) -> Pull,
        effects: &mut impl ReceiverEffects,
    ) {
        match self {
            ReceiveSide::Own(receiver) => receiver.pull_payloads(|_| true, pull, effects),
            ReceiveSide::Shared(membership) => membership.pull_payloads(pull, effects),
            ReceiveSide::Left => {}
        }
    }

    /// Marks the peers that the receiver refers to, so that the engine does not forget them. A
    /// shared receiver has peer ids of its own, so nothing is marked for it.
    pub(super) fn mark_peers(&self, marks: &mut PeerMarks) {
        match self {
            ReceiveSide::Own(receiver) => receiver.mark_peers(marks),
            ReceiveSide::Shared(_) | ReceiveSide::Left => {}
        }
    }

    /// Whether reports of receives wait for room in their queue. For a shared receiver: whether it
    /// has mail for this engine.
    #[inline(always)]
    pub(super) fn has_held_reports(&self) -> bool {
        if let ReceiveSide::Own(receiver) = self { receiver.has_held_reports() } else { self.has_mail() }
    }

    #[cold]
    fn has_mail(&self) -> bool {
        matches!(self, ReceiveSide::Shared(membership) if membership.has_mail())
    }

    /// Whether the engine has left its shared receiver. If so, messages that still arrive are
    /// discarded.
    pub(super) fn has_left_shared_receiver(&self) -> bool {
        matches!(self, ReceiveSide::Left)
    }
}

#[cold]
fn rejected_as_shared(request: ReceiveRequest) -> Rejected<Destination> {
    Rejected { error: SHARED, returned: request.destination }
}

impl Engine {
    /// Makes the engine receive through a shared receiver from now on. The engine must have no
    /// links yet. With `is_selective`, a receive reports its success only if it asks for a
    /// completion.
    pub fn join_shared_receiver(&mut self, shared: &Arc<SharedReceiver>, is_selective: bool) -> MemberId {
        let keeps_order = self.config.role == EndpointRole::Connected;
        let membership = Membership::join(shared.clone(), is_selective, keeps_order);
        let id = membership.id();
        self.receive_side = ReceiveSide::Shared(membership);
        id
    }

    /// Sets the queue, by any number of its own, to which the engine reports its receives. Members of a
    /// shared receiver with the same queue report in the order in which their receives end.
    pub fn set_receive_queue(&mut self, queue: Option<u64>) {
        if let ReceiveSide::Shared(membership) = &self.receive_side {
            membership.set_receive_queue(queue);
        }
    }

    /// Leaves the shared receiver, if the engine has one. Gives up all messages that the shared
    /// receiver holds for the engine. Call this before a closed endpoint sends its last frames, so
    /// that its messages match no more receives.
    pub fn leave_shared_receiver(&mut self, sink: &mut impl Sink) {
        if !matches!(self.receive_side, ReceiveSide::Shared(_)) {
            return;
        }
        let (target, mut effects) = self.target_and_effects(sink);
        target.return_all_held_credit(&mut effects);
        for id in self.links.ids() {
            let received = self.receive_side.arrived_eager_count(id);
            if let Some(link) = self.links.get_mut(id) {
                link.tx.pending_replies_mut().freeze_ack_and_drop_credit_grant(received);
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

    /// Takes this engine's mail out of its shared receiver, and carries it out. Calls of other
    /// members and posts of the application leave mail: effects that this engine must carry out.
    /// Afterwards the caller makes a pass, which transmits.
    pub fn fetch_mail(&mut self, sink: &mut impl Sink) {
        let ReceiveSide::Shared(membership) = &mut self.receive_side else { return };
        let Mail { replies, counts, sources } = membership.take_mail_except_reports();
        for source in sources {
            if let Some(source) = self.peers.find(source) {
                self.add_awaited_source_if_lost(source);
            }
        }
        for (link, reply) in replies {
            match reply {
                Reply::Header(header) => self.links.queue_header(link, header),
                Reply::Ack => self.links.queue_ack(link),
                Reply::Credit => self.links.queue_credit_grant(link),
            }
        }
        if sink.has_counters() {
            for count in counts {
                if count.is_success { sink.count(count.events) } else { sink.count_error(count.events) }
            }
        }
        let (receive_side, mut effects) = self.receive_side_and_effects(sink);
        if let ReceiveSide::Shared(membership) = receive_side {
            membership.record_work_ends(&mut effects);
        }
        self.forget_unused_peers_if_due(sink);
        let ReceiveSide::Shared(membership) = &mut self.receive_side else { return };
        let (mut has_failed_receive, mut has_made_report) = (false, false);
        while let Some(report) = membership.take_report(|address| self.peers.intern_introduced(address)) {
            has_failed_receive |=
                report.outcome.as_ref().is_err_and(|failure| failure.is_receive_failed_by_message());
            let refused = match report.outcome {
                Ok(completion) => sink.complete(completion, &self.peers).map_err(Ok),
                Err(failure) => sink.fail(*failure, &self.peers).map_err(|failure| Err(Box::new(failure))),
            };
            if let Err(outcome) = refused {
                let source =
                    outcome.as_ref().map_or_else(|failure| failure.completion.source, |done| done.source);
                let report = Report { outcome, ..report };
                membership.put_back_report(report, source.map(|source| self.peers.address_of(source)));
                if has_made_report {
                    membership.notify_members_with_reports();
                }
                if has_failed_receive {
                    self.end_connection_after_failure(sink);
                }
                return;
            }
            has_made_report = true;
        }
        if has_made_report {
            membership.notify_members_with_reports();
        }
        let (receive_side, mut effects) = self.receive_side_and_effects(sink);
        if let ReceiveSide::Shared(membership) = receive_side {
            membership.match_kept_aside(&mut effects);
        }
        if has_failed_receive {
            self.end_connection_after_failure(sink);
        }
    }

    /// Delivers the reports that the engine's own receiver holds. For a shared receiver: fetches
    /// this engine's mail.
    pub(super) fn deliver_held_receives(&mut self, sink: &mut impl Sink) {
        let (receive_side, mut effects) = self.receive_side_and_effects(sink);
        match receive_side {
            ReceiveSide::Own(receiver) => receiver.deliver_held_reports(&mut effects),
            ReceiveSide::Shared(_) => self.fetch_mail(sink),
            ReceiveSide::Left => {}
        }
    }
}

/// Gives tests the receiver of an engine whose receiver is not shared.
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
