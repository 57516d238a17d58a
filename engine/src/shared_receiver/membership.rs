//! A shared receiver, as the engine of one member has it.

use std::io::IoSliceMut;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, MutexGuard};

use super::distribution::{Distribution, NoMember, named, source_of};
use super::mailbox::{Count, Debt, Report};
use super::{SharedReceiver, State};
use crate::address::Address;
use crate::breach::Breach;
use crate::error::OperationError;
use crate::peer_id::PeerId;
use crate::receiver::{Effects, KeptCredit, Lent, MemberId, Receiver};
use crate::transport::{LinkId, Pull, Remote, Space};
use crate::wire::Message;

/// What translates between a member and the receiver that it shares. Its methods are those of [`Receiver`].
#[derive(Debug)]
pub(crate) struct Membership {
    shared: Arc<SharedReceiver>,
    id: MemberId,
    /// Whether there is mail.
    has_mail: Arc<AtomicBool>,
    /// What the receiver calls the member's links.
    links: Vec<Option<LinkId>>,
    /// What is being read into. The receiver is not locked meanwhile.
    lent: Option<Lent>,
}

impl Membership {
    /// Joins. Mail that has waited for a member is this one's. With `keeps_order` the receives of its messages
    /// complete in the order in which they are given them.
    pub(crate) fn new(shared: Arc<SharedReceiver>, is_selective: bool, keeps_order: bool) -> Membership {
        let mut state = shared.lock();
        let (id, has_mail) = state.mailboxes.join(is_selective);
        if keeps_order {
            state.receiver.keep_order(id);
        }
        if state.mailboxes.has_news() {
            shared.has_news.store(true, Ordering::Release);
        }
        drop(state);
        Membership { shared, id, has_mail, links: Vec::new(), lent: None }
    }

    pub(crate) fn id(&self) -> MemberId {
        self.id
    }

    /// Does something on behalf of the member.
    fn act<R, E: Effects>(
        &mut self,
        effects: &mut E,
        act: impl FnOnce(&mut Receiver, &mut Distribution<'_, E>) -> R,
    ) -> R {
        let mut state = lock(&self.shared, &mut self.lent);
        state.act(Some((self.id, effects)), act, &self.shared)
    }

    /// Does something that concerns nothing but the receiver.
    fn look<R>(&self, look: impl FnOnce(&State) -> R) -> R {
        look(&self.shared.lock())
    }

    /// What the receiver calls a link.
    fn link(&self, id: LinkId) -> Option<LinkId> {
        self.links.get(id.0 as usize).copied().flatten()
    }

    pub(crate) fn link_added(&mut self, id: LinkId, peer: PeerId, address: Address) {
        let mut guard = self.shared.lock();
        let state = &mut *guard;
        let link = state.links.insert((self.id, id));
        let shared_peer = state.peers.intern(address);
        state.mailboxes.set_name(self.id, shared_peer, peer);
        state.receiver.link_added(link, shared_peer, self.id);
        let place = id.0 as usize;
        if self.links.len() <= place {
            self.links.resize(place + 1, None);
        }
        self.links[place] = Some(link);
    }

    pub(crate) fn link_ended(&mut self, id: LinkId, error: &OperationError, effects: &mut impl Effects) {
        let Some(link) = self.links.get_mut(id.0 as usize).and_then(Option::take) else { return };
        let mut guard = lock(&self.shared, &mut self.lent);
        let state = &mut *guard;
        let caller = Some((self.id, &mut *effects));
        state.act(caller, |receiver, effects| receiver.link_ended(link, error, effects), &self.shared);
        state.links.remove(link);
        state.mailboxes.forget_link(self.id, id);
        state.end_silent_peers(Some((self.id, effects)), &self.shared);
    }

    /// A peer is gone as far as this member knows. Others may hear it still: what it alone can match ends
    /// with the last of its links.
    pub(crate) fn peer_ended(
        &mut self,
        address: Address,
        error: &OperationError,
        effects: &mut impl Effects,
    ) {
        let mut state = lock(&self.shared, &mut self.lent);
        state.peers.set_ending(address, error.clone());
        state.end_silent_peers(Some((self.id, effects)), &self.shared);
    }

    pub(crate) fn is_overdrawn(&self) -> bool {
        self.look(|state| state.receiver.is_overdrawn())
    }

    pub(crate) fn granted_bytes(&self, id: LinkId) -> u64 {
        self.link(id).map_or(0, |link| self.look(|state| state.receiver.granted_bytes(link)))
    }

    pub(crate) fn received_messages(&self, id: LinkId) -> u64 {
        self.link(id).map_or(0, |link| self.look(|state| state.receiver.received_messages(link)))
    }

    pub(crate) fn credit_told(&mut self, id: LinkId) {
        if let Some(link) = self.link(id) {
            self.shared.lock().receiver.credit_told(link);
        }
    }

    pub(crate) fn progress(&self, id: LinkId) -> (u64, usize, u64, u64) {
        self.link(id).map_or((0, 0, 0, 0), |link| self.look(|state| state.receiver.progress(link)))
    }

    pub(crate) fn has_offer(&self, id: LinkId, op: u64) -> bool {
        self.link(id).is_some_and(|link| self.look(|state| state.receiver.has_offer(link, op)))
    }

    pub(crate) fn spend_credit(&mut self, id: LinkId, cost_bytes: u64) -> Result<(), Breach> {
        let Some(link) = self.link(id) else { return Ok(()) };
        self.shared.lock().receiver.spend_credit(link, cost_bytes)
    }

    pub(crate) fn return_credit(&mut self, id: LinkId, cost_bytes: u64, effects: &mut impl Effects) {
        let Some(link) = self.link(id) else { return };
        self.act(effects, |receiver, effects| receiver.return_credit(link, cost_bytes, effects));
    }

    pub(crate) fn keep_credit(&mut self, id: LinkId, cost_bytes: u64) -> Option<KeptCredit> {
        let link = self.link(id)?;
        self.shared.lock().receiver.keep_credit(link, cost_bytes)
    }

    pub(crate) fn free_kept_credit(&mut self, kept: KeptCredit, effects: &mut impl Effects) {
        self.act(effects, |receiver, effects| receiver.free_kept_credit(kept, effects));
    }

    pub(crate) fn fence_asked(
        &mut self,
        id: LinkId,
        matched: bool,
        effects: &mut impl Effects,
    ) -> Result<(), Breach> {
        let Some(link) = self.link(id) else { return Ok(()) };
        self.act(effects, |receiver, effects| receiver.fence_asked(link, matched, effects))
    }

    pub(crate) fn message(
        &mut self,
        id: LinkId,
        message: &Message,
        payload: &[u8],
        effects: &mut impl Effects,
    ) -> Result<(), Breach> {
        let Some(link) = self.link(id) else { return Ok(()) };
        self.act(effects, |receiver, effects| receiver.message(link, message, payload, effects))
    }

    pub(crate) fn begin_message(
        &mut self,
        id: LinkId,
        message: &Message,
        effects: &mut impl Effects,
    ) -> Result<(), Breach> {
        let Some(link) = self.link(id) else { return Ok(()) };
        self.act(effects, |receiver, effects| receiver.begin_message(link, message, effects))
    }

    pub(crate) fn offered(
        &mut self,
        id: LinkId,
        message: &Message,
        op: u64,
        remote: &[u8],
        effects: &mut impl Effects,
    ) -> Result<(), Breach> {
        let Some(link) = self.link(id) else { return Ok(()) };
        self.act(effects, |receiver, effects| receiver.offered(link, message, op, remote, effects))
    }

    pub(crate) fn put(&mut self, id: LinkId, bytes: &[u8], effects: &mut impl Effects) {
        let Some(link) = self.link(id) else { return };
        self.act(effects, |receiver, effects| receiver.put(link, bytes, effects));
    }

    pub(crate) fn space(&mut self, id: LinkId) -> Space<'_> {
        let link = self.link(id);
        let mut state = lock(&self.shared, &mut self.lent);
        self.lent = link.and_then(|link| state.receiver.lend(link));
        drop(state);
        self.lent.as_mut().map_or_else(Space::new, Lent::space)
    }

    pub(crate) fn placed(&mut self, id: LinkId, count_bytes: usize, effects: &mut impl Effects) {
        let Some(link) = self.link(id) else { return };
        self.act(effects, |receiver, effects| receiver.placed(link, count_bytes, effects));
    }

    pub(crate) fn begin_data(&mut self, id: LinkId, op: u64, len_bytes: u64) -> bool {
        self.link(id).is_some_and(|link| self.shared.lock().receiver.begin_data(link, op, len_bytes))
    }

    pub(crate) fn pull(
        &mut self,
        mut pull: impl FnMut(LinkId, &Remote, u64, &mut [IoSliceMut<'_>]) -> Pull,
        effects: &mut impl Effects,
    ) {
        let id = self.id;
        self.act(effects, |receiver, effects| {
            let links = effects.links;
            let local = |link| links.get(link).filter(|(owner, _)| *owner == id).map(|(_, local)| *local);
            let is_own = |link| local(link).is_some();
            let pull = |link, from: &Remote, at_bytes, into: &mut [IoSliceMut<'_>]| match local(link) {
                Some(link) => pull(link, from, at_bytes, into),
                None => Pull::Gone,
            };
            receiver.pull(is_own, pull, effects);
        });
    }

    pub(crate) fn feed_starved(&mut self, effects: &mut impl Effects) {
        self.act(effects, |receiver, effects| receiver.feed_starved(effects));
    }

    /// What cannot be matched as long as reports of the member wait is matched now that none does.
    pub(crate) fn match_kept_aside(&mut self, effects: &mut impl Effects) {
        let id = self.id;
        self.act(effects, |receiver, effects| receiver.match_kept_aside(id, effects));
    }

    pub(crate) fn fetch_deferred(&mut self, effects: &mut impl Effects) {
        self.act(effects, |receiver, _| receiver.fetch_deferred());
    }

    pub(crate) fn has_deferred(&self) -> bool {
        self.look(|state| state.receiver.has_deferred())
    }

    pub(crate) fn has_starved(&self) -> bool {
        self.look(|state| state.receiver.has_starved())
    }

    pub(crate) fn is_pulling(&self) -> bool {
        self.look(|state| state.is_pulling_for(self.id))
    }

    pub(crate) fn wants_pass(&self) -> bool {
        self.look(|state| {
            state.mailboxes.has_news_for(self.id)
                || state.is_pulling_for(self.id)
                || state.receiver.has_room_to_give()
        })
    }

    pub(crate) fn rare_work(&self) -> usize {
        self.shared.rare_work.load(Ordering::Relaxed)
    }

    /// Whether there is mail.
    pub(crate) fn has_mail(&self) -> bool {
        self.has_mail.load(Ordering::Acquire)
    }

    /// Whether other members are to be told of mail.
    pub(crate) fn has_news(&self) -> bool {
        self.shared.has_news()
    }

    /// What the peers of links are to be told, and what is to be counted. The reports are taken one by one.
    pub(crate) fn take_mail(&mut self) -> (Vec<(LinkId, Debt)>, Vec<Count>) {
        self.shared.lock().mailboxes.take_debts_and_counts(self.id)
    }

    /// The next report, whose source is known to the member afterwards.
    pub(crate) fn take_report(&mut self, name: impl FnOnce(Address) -> PeerId) -> Option<Report> {
        let mut guard = self.shared.lock();
        let State { mailboxes, peers, .. } = &mut *guard;
        let Report { outcome, is_common } = mailboxes.take_report(self.id)?;
        let source = source_of(&outcome);
        let name = source.map(|source| {
            mailboxes.name(self.id, source).unwrap_or_else(|| {
                let name = name(peers.address(source));
                mailboxes.set_name(self.id, source, name);
                name
            })
        });
        Some(Report { outcome: named(outcome, name), is_common })
    }

    /// Puts the report back that was taken last: there is no room for it. The address is that of its source.
    pub(crate) fn put_back(&mut self, report: Report, source: Option<Address>) {
        let mut guard = self.shared.lock();
        let State { mailboxes, peers, .. } = &mut *guard;
        let source = source.map(|source| peers.intern(source));
        mailboxes.put_back(self.id, Report { outcome: named(report.outcome, source), ..report });
    }
}

impl Drop for Membership {
    /// Leaves. What it was receiving fails at the oldest of the others, which also gets its mail that concerns
    /// no endpoint.
    fn drop(&mut self) {
        let mut guard = lock(&self.shared, &mut self.lent);
        let state = &mut *guard;
        state.mailboxes.leave(self.id);
        let (id, error) = (self.id, OperationError::Cancelled);
        for link in self.links.drain(..).flatten() {
            state.apart(|receiver, effects| receiver.link_ended(link, &error, effects), &self.shared);
            state.links.remove(link);
        }
        state.apart(|receiver, effects| receiver.member_ended(id, &error, effects), &self.shared);
        state.end_silent_peers::<NoMember>(None, &self.shared);
    }
}

/// Locks the receiver, which gets back what it has lent to the member's transport.
fn lock<'a>(shared: &'a SharedReceiver, lent: &mut Option<Lent>) -> MutexGuard<'a, State> {
    let mut state = shared.lock();
    if let Some(lent) = lent.take() {
        state.receiver.take_back(lent);
    }
    state
}
