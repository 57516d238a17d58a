//! A shared receiver, from the view of the engine of one member.

use std::collections::BTreeSet;
use std::io::IoSliceMut;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, MutexGuard};

use super::distribution::{Distribution, NeverMember};
use super::mailbox::{EndsWork, Mail, Report, source_of, with_source};
use super::{SharedReceiver, State};
use crate::address::Address;
use crate::buffer::SegmentMut;
use crate::error::OperationError;
use crate::flags::CounterEvents;
use crate::peer_id::PeerId;
use crate::receiver::{EndedWork, LentBuffer, MemberId, Receiver, ReceiverEffects, UnrecordedEnd};
use crate::transport::{AddressProof, LinkId, Pull, RemotePayload, Space};

/// A member's access to the shared receiver. Translates the ids of links and peers. Methods with the names of
/// methods of [`Receiver`] do the same.
#[derive(Debug)]
pub(crate) struct Membership {
    shared: Arc<SharedReceiver>,
    id: MemberId,
    /// Whether the member has mail.
    has_mail: Arc<AtomicBool>,
    /// The receiver's ids of the member's links.
    links: Vec<Option<LinkId>>,
    /// The buffer that the receiver has lent to the transport. The transport reads payload into it
    /// while the receiver is not locked.
    lent: Option<LentBuffer>,
}

impl Membership {
    /// Joins the receiver, and takes over the mail for the next member. If `keeps_order`, the
    /// member's receives complete in the order in which they match.
    pub(crate) fn join(shared: Arc<SharedReceiver>, is_selective: bool, keeps_order: bool) -> Membership {
        let mut state = shared.lock();
        let (id, has_mail) = state.mailboxes.add_member(is_selective);
        if keeps_order {
            state.receiver.keep_completion_order(id);
        }
        if state.mailboxes.has_unnotified_members() {
            shared.has_unnotified_mail.store(true, Ordering::Release);
        }
        drop(state);
        Membership { shared, id, has_mail, links: Vec::new(), lent: None }
    }

    pub(crate) fn id(&self) -> MemberId {
        self.id
    }

    /// Makes the member learn by mail of each of its receives that fail by their message.
    pub(crate) fn set_mails_failures(&self, mails_failures: bool) {
        self.shared.lock().mailboxes.set_mails_failures(self.id, mails_failures);
    }

    /// Runs an action of the receiver on behalf of the member.
    pub(crate) fn act<R, E: ReceiverEffects>(
        &mut self,
        effects: &mut E,
        act: impl FnOnce(&mut Receiver, &mut Distribution<'_, E>) -> R,
    ) -> R {
        let mut state = lock_and_return_buffer(&self.shared, &mut self.lent);
        state.act_for_caller(Some((self.id, effects)), act, &self.shared)
    }

    /// As [`act`](Self::act), for one of the member's links. Returns `None` if there is no such link.
    pub(crate) fn act_on_link<R, E: ReceiverEffects>(
        &mut self,
        id: LinkId,
        effects: &mut E,
        act: impl FnOnce(&mut Receiver, LinkId, &mut Distribution<'_, E>) -> R,
    ) -> Option<R> {
        let link = self.shared_link_id(id)?;
        Some(self.act(effects, |receiver, effects| act(receiver, link, effects)))
    }

    /// As [`act_on_link`](Self::act_on_link), for an action without effects.
    pub(crate) fn change_link<R>(
        &mut self,
        id: LinkId,
        change: impl FnOnce(&mut Receiver, LinkId) -> R,
    ) -> Option<R> {
        let link = self.shared_link_id(id)?;
        Some(change(&mut self.shared.lock().receiver, link))
    }

    /// As [`change_link`](Self::change_link), but changes nothing.
    pub(crate) fn look_at_link<R>(&self, id: LinkId, look: impl FnOnce(&Receiver, LinkId) -> R) -> Option<R> {
        let link = self.shared_link_id(id)?;
        Some(self.look(|receiver| look(receiver, link)))
    }

    /// Looks at the receiver.
    pub(crate) fn look<R>(&self, look: impl FnOnce(&Receiver) -> R) -> R {
        self.read_state(|state| look(&state.receiver))
    }

    /// Reads the receiver's state.
    fn read_state<R>(&self, look: impl FnOnce(&State) -> R) -> R {
        look(&self.shared.lock())
    }

    /// Returns the receiver's id of a link.
    fn shared_link_id(&self, id: LinkId) -> Option<LinkId> {
        self.links.get(id.0 as usize).copied().flatten()
    }

    pub(crate) fn link_added(&mut self, id: LinkId, peer: PeerId, address: Address) {
        let mut guard = self.shared.lock();
        let state = &mut *guard;
        let link = state.links.insert((self.id, id));
        let shared_peer = state.intern_peer(address);
        state.mailboxes.add_link_to(self.id, shared_peer, peer);
        state.receiver.link_added(link, shared_peer, self.id);
        let place = id.0 as usize;
        if self.links.len() <= place {
            self.links.resize(place + 1, None);
        }
        self.links[place] = Some(link);
    }

    pub(crate) fn link_ended(
        &mut self,
        id: LinkId,
        error: &OperationError,
        effects: &mut impl ReceiverEffects,
    ) {
        let Some(link) = self.links.get_mut(id.0 as usize).and_then(Option::take) else { return };
        let mut guard = lock_and_return_buffer(&self.shared, &mut self.lent);
        let state = &mut *guard;
        let peer = state.receiver.peer_of_link(link);
        let caller = Some((self.id, &mut *effects));
        state.act_for_caller(
            caller,
            |receiver, effects| receiver.link_ended(link, error, effects),
            &self.shared,
        );
        state.links.remove(link);
        state.mailboxes.remove_link(self.id, id, peer);
        state.fail_receives_only_from_lost_peers(Some((self.id, effects)), &self.shared);
    }

    /// Records that this member has lost a peer. If no other member has a link to the peer, the
    /// receives that accept only this peer's messages fail.
    pub(crate) fn peer_lost(
        &mut self,
        address: Address,
        error: &OperationError,
        effects: &mut impl ReceiverEffects,
    ) {
        let mut state = lock_and_return_buffer(&self.shared, &mut self.lent);
        state.peers.mark_lost(address, error.clone());
        state.fail_receives_only_from_lost_peers(Some((self.id, effects)), &self.shared);
    }

    pub(crate) fn has_receive_only_from(&self, address: Address) -> bool {
        self.read_state(|state| {
            state.peers.get(address).is_some_and(|peer| state.receiver.has_receive_only_from(peer))
        })
    }

    pub(crate) fn try_admit_link(&mut self, address: Address, proof: AddressProof) -> bool {
        let mut state = self.shared.lock();
        let may_come_up = state.receiver.try_admit_link(address, proof);
        self.shared.rare_work.store(state.receiver.rare_work_bits(), Ordering::Relaxed);
        may_come_up
    }

    /// The caller holds the member's lock, so no transport reads into a receive of the member meanwhile.
    pub(crate) fn abandon_messages_into(&mut self, memory: &SegmentMut, effects: &mut impl ReceiverEffects) {
        let id = self.id;
        self.act(effects, |receiver, effects| receiver.abandon_messages_into(memory, id, effects));
    }

    pub(crate) fn payload_space(&mut self, id: LinkId) -> Space<'_> {
        let link = self.shared_link_id(id);
        let mut state = lock_and_return_buffer(&self.shared, &mut self.lent);
        self.lent = link.and_then(|link| state.receiver.lend_buffer(link));
        drop(state);
        self.lent.as_mut().map_or_else(Space::new, LentBuffer::payload_space)
    }

    pub(crate) fn pull_payloads(
        &mut self,
        mut pull: impl FnMut(LinkId, &RemotePayload, u64, &mut [IoSliceMut<'_>]) -> Pull,
        effects: &mut impl ReceiverEffects,
    ) {
        let id = self.id;
        self.act(effects, |receiver, effects| {
            let links = effects.links;
            let local = |link| links.get(link).filter(|(owner, _)| *owner == id).map(|(_, local)| *local);
            let is_own = |link| local(link).is_some();
            let pull = |link, from: &RemotePayload, at_bytes, into: &mut [IoSliceMut<'_>]| match local(link) {
                Some(link) => pull(link, from, at_bytes, into),
                None => Pull::Gone,
            };
            receiver.pull_payloads(is_own, pull, effects);
        });
    }

    /// Matches the messages that were kept aside, unless reports of this member still wait for
    /// room.
    pub(crate) fn match_kept_aside(&mut self, effects: &mut impl ReceiverEffects) {
        let id = self.id;
        self.act(effects, |receiver, effects| receiver.match_kept_aside(id, effects));
    }

    pub(crate) fn begin_deferred_fetches(&mut self, effects: &mut impl ReceiverEffects) {
        self.act(effects, |receiver, _| receiver.begin_deferred_fetches());
    }

    pub(crate) fn is_pulling(&self) -> bool {
        self.read_state(|state| state.is_pulling_for(self.id))
    }

    pub(crate) fn has_work_without_arrivals(&self) -> bool {
        self.read_state(|state| {
            state.mailboxes.is_unnotified(self.id)
                || state.is_pulling_for(self.id)
                || state.receiver.has_offers_to_drop()
                || state.receiver.can_share_freed_budget()
        })
    }

    pub(crate) fn rare_work_bits(&self) -> usize {
        self.shared.rare_work.load(Ordering::Relaxed)
    }

    /// Whether the member has mail.
    pub(crate) fn has_mail(&self) -> bool {
        self.has_mail.load(Ordering::Acquire)
    }

    /// Whether other members have mail of which they were not notified yet.
    pub(crate) fn has_mail_for_others(&self) -> bool {
        self.shared.has_mail_for_members()
    }

    /// Removes and returns the member's mail, except reports. To get the reports, call
    /// [`take_report`](Self::take_report).
    pub(crate) fn take_mail_except_reports(&mut self) -> Mail {
        self.shared.lock().mailboxes.take_mail_except_reports(self.id)
    }

    /// Records and counts the ends of deferred work in the mail. If an end must also be reported,
    /// its report keeps its place among the reports.
    pub(crate) fn record_work_ends(&mut self, effects: &mut impl ReceiverEffects) {
        let id = self.id;
        let mut state = self.shared.lock();
        state.mailboxes.record_work_ends(id, |mut report| {
            let Some(EndsWork { counts_as_receive }) = report.ends_work.take() else {
                return Some(report);
            };
            let end = UnrecordedEnd { outcome: report.outcome, counts_as_receive };
            let EndedWork { outcome, is_reported, is_counted } = effects.record_work_end(end, Some(id))?;
            match &outcome {
                Ok(_) if is_counted => effects.count(CounterEvents::RECV, id),
                Err(failure) if is_counted => {
                    effects.count_error(CounterEvents::of_completion(failure.completion.flags), Some(id));
                }
                _ => {}
            }
            (is_reported || outcome.is_err()).then_some(Report { outcome, ..report })
        });
        if state.mailboxes.has_unnotified_members() {
            self.shared.has_unnotified_mail.store(true, Ordering::Release);
        }
    }

    /// Records to which queue the member reports its receives.
    pub(crate) fn set_receive_queue(&self, queue: Option<u64>) {
        self.shared.lock().mailboxes.set_receive_queue(self.id, queue);
    }

    /// Lists the other members whose reports may have waited for one that this member has made.
    pub(crate) fn notify_members_with_reports(&self) {
        let mut state = self.shared.lock();
        state.mailboxes.notify_members_with_reports();
        if state.mailboxes.has_unnotified_members() {
            self.shared.has_unnotified_mail.store(true, Ordering::Release);
        }
    }

    /// Removes and returns the next report. If the member's engine does not know the source,
    /// `intern` adds the source.
    pub(crate) fn take_report(&mut self, intern: impl FnOnce(Address) -> PeerId) -> Option<Report> {
        let mut guard = self.shared.lock();
        let State { mailboxes, peers, .. } = &mut *guard;
        let report = mailboxes.take_report(self.id)?;
        let name = source_of(&report.outcome).and_then(|source| {
            mailboxes.members_id_of_peer(self.id, source).or_else(|| peers.address_of(source).map(intern))
        });
        Some(Report { outcome: with_source(report.outcome, name), ..report })
    }

    /// Puts back the report that was taken last, because the queue has no room. `source` is the
    /// address of the report's source.
    pub(crate) fn put_back_report(&mut self, report: Report, source: Option<Address>) {
        let mut state = self.shared.lock();
        let source = source.map(|source| state.intern_peer(source));
        state
            .mailboxes
            .put_back_report(self.id, Report { outcome: with_source(report.outcome, source), ..report });
    }
}

impl Drop for Membership {
    /// Leaves the receiver. If a receive is being filled from a link of this member, the oldest
    /// other member reports that it failed. The oldest other member also takes over mail that
    /// concerns no particular endpoint. Freed room in the budget goes to the other members.
    fn drop(&mut self) {
        let mut guard = lock_and_return_buffer(&self.shared, &mut self.lent);
        let state = &mut *guard;
        state.mailboxes.remove_member(self.id);
        let (id, error) = (self.id, OperationError::Cancelled);
        state.act_without_member(
            |receiver, effects| receiver.drop_messages_of_member(id, &error, effects),
            &self.shared,
        );
        let mut peers = BTreeSet::new();
        for link in self.links.drain(..).flatten() {
            peers.extend(state.receiver.peer_of_link(link));
            state.act_without_member(
                |receiver, effects| receiver.link_ended(link, &error, effects),
                &self.shared,
            );
            state.links.remove(link);
        }
        // The other members may be asleep, so this one leaves none of its work to them.
        state.act_without_member(
            |receiver, effects| receiver.drop_all_abandoned_offers(effects),
            &self.shared,
        );
        for peer in peers {
            state.ask_members_to_connect_if_awaited(peer);
        }
        state.share_freed_budget(&self.shared);
        state.fail_receives_only_from_lost_peers::<NeverMember>(None, &self.shared);
        state.forget_unused_peers();
    }
}

/// Locks the receiver, and returns the buffer that the member's transport has borrowed.
fn lock_and_return_buffer<'a>(
    shared: &'a SharedReceiver,
    lent: &mut Option<LentBuffer>,
) -> MutexGuard<'a, State> {
    let mut state = shared.lock();
    if let Some(lent) = lent.take() {
        state.receiver.take_back_buffer(lent);
    }
    state
}
