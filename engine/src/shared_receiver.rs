//! A receiver that several endpoints share: `fi_srx_context`, `fi_endpoint(3)`.
//!
//! ```text
//!  engine of member A --+                                    +--> A, in the same call
//!  engine of member B --+--> lock, translate, [ Receiver ] --+--> mail of B --> carried out by B's engine
//!  a post of the        |                                    |
//!  application        --+                                    +--> mail of the next, while there is none
//! ```
//!
//! The receiver has the same type as the receiver of a single endpoint. It has its own ids for links and
//! peers, common to all members. This module translates between these ids and the members' own ids. Effects
//! at the calling member are carried out in the call. Effects at another member become *mail*, since the
//! caller does not hold that member's lock. When the caller holds no lock any more, it makes each member
//! with mail [fetch the mail](crate::Engine::fetch_mail). See `docs/decisions/shared-context-mail.md`.

mod distribution;
mod mailbox;
mod mailboxes;
mod membership;
mod peers;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use self::distribution::{Distribution, NeverMember};
pub(crate) use self::mailbox::{Mail, Reply, Report};
use self::mailboxes::Mailboxes;
pub(crate) use self::membership::Membership;
use self::peers::SharedPeers;
use crate::address::Address;
use crate::buffer::{Destination, SegmentMut};
use crate::completion::FailedOperation;
use crate::error::{Again, Error};
use crate::link_table::LinkTable;
use crate::operation::{CancelKey, PeekRequest, ReceiveRequest};
use crate::peer_id::PeerId;
pub use crate::receiver::MemberId;
use crate::receiver::{Receiver, ReceiverEffects};
use crate::rejected::Rejected;
use crate::transport::LinkId;

/// The receives and the unexpected messages of several endpoints, the members.
///
/// Any thread may use the receiver. A thread may hold one member's lock when it takes the receiver's lock. A
/// thread that holds the receiver's lock must not take a member's lock. A thread that holds one member's
/// lock must not take another member's lock.
#[derive(Debug)]
pub struct SharedReceiver {
    state: Mutex<State>,
    /// Whether a member has mail of which it was not notified yet.
    has_unnotified_mail: AtomicBool,
    /// [`Receiver::rare_work_bits`], for members to read without the lock.
    rare_work: AtomicUsize,
}

#[derive(Debug)]
struct State {
    depth_ops: usize,
    receiver: Receiver,
    peers: SharedPeers,
    /// The members' links, by the receiver's ids.
    links: LinkTable<(MemberId, LinkId)>,
    mailboxes: Mailboxes,
}

impl SharedReceiver {
    /// Creates a receiver without members. At most `depth_ops` receives may be outstanding.
    pub fn new(depth_ops: usize, unexpected_budget_bytes: usize) -> Arc<SharedReceiver> {
        Arc::new(SharedReceiver {
            state: Mutex::new(State {
                depth_ops,
                receiver: Receiver::new(depth_ops, unexpected_budget_bytes),
                peers: SharedPeers::default(),
                links: LinkTable::default(),
                mailboxes: Mailboxes::default(),
            }),
            has_unnotified_mail: AtomicBool::new(false),
            rare_work: AtomicUsize::new(0),
        })
    }

    /// Like [`Engine::post_receive`](crate::Engine::post_receive). If `from` is given, the receive accepts
    /// only messages of the peer at this address. The criteria of `request` must name no source.
    ///
    /// # Errors
    ///
    /// [`Again::QueueFull`] when as many receives are outstanding as the depth allows.
    pub fn post_receive(
        &self,
        from: Option<Address>,
        request: ReceiveRequest,
    ) -> Result<(), Rejected<Destination>> {
        self.intern_source_and_post(from, request, |receiver, request, effects| {
            receiver.post(request, effects).map(|_| ())
        })
    }

    /// Like [`Engine::post_multi_receive`](crate::Engine::post_multi_receive). If `from` is given, the
    /// buffer accepts only messages of the peer at this address.
    ///
    /// # Errors
    ///
    /// As [`Engine::post_multi_receive`](crate::Engine::post_multi_receive).
    pub fn post_multi_receive(
        &self,
        from: Option<Address>,
        request: ReceiveRequest,
        min_free_bytes: usize,
        work: Option<u64>,
    ) -> Result<(), Rejected<Destination>> {
        self.intern_source_and_post(from, request, |receiver, request, effects| {
            receiver.post_multi_receive(request, min_free_bytes, work, effects)
        })
    }

    /// As [`Engine::receive_claimed`](crate::Engine::receive_claimed).
    ///
    /// # Errors
    ///
    /// As [`Engine::receive_claimed`](crate::Engine::receive_claimed).
    pub fn receive_claimed(
        &self,
        request: ReceiveRequest,
        claimed_by: u64,
    ) -> Result<(), Rejected<Destination>> {
        self.intern_source_and_post(None, request, |receiver, request, effects| {
            receiver.receive_claimed(request, claimed_by, effects)
        })
    }

    /// Like [`Engine::peek`](crate::Engine::peek). If `from` is given, the peek looks only for messages of
    /// the peer at this address. If the peek finds no message, the oldest member reports that.
    ///
    /// # Errors
    ///
    /// As [`Engine::peek`](crate::Engine::peek).
    pub fn peek(&self, from: Option<Address>, mut request: PeekRequest) -> Result<(), Error> {
        let mut state = self.lock();
        if state.is_queue_full() {
            return Err(Again::QueueFull.into());
        }
        // Intern the source under the same lock: once the lock is released, an unused peer may be forgotten.
        request.criteria.source = from.map(|from| state.intern_peer(from));
        let look = |receiver: &mut Receiver, effects: &mut Distribution<'_, NeverMember>| {
            // The latest pass of one member says nothing of the others.
            receiver.horizon.show_all();
            receiver.peek(request, effects)
        };
        state.act_for_application(look, self)
    }

    /// As [`Engine::discard_claimed`](crate::Engine::discard_claimed).
    ///
    /// # Errors
    ///
    /// As [`Engine::discard_claimed`](crate::Engine::discard_claimed).
    pub fn discard_claimed(&self, tagged: bool, context: u64, work: Option<u64>) -> Result<(), Error> {
        let mut state = self.lock();
        if state.is_queue_full() {
            return Err(Again::QueueFull.into());
        }
        state.act_for_application(
            |receiver, effects| receiver.discard_claimed(tagged, context, work, effects),
            self,
        )
    }

    /// Cancels the oldest unmatched receive with this context. The oldest member reports it. Returns whether
    /// there was such a receive.
    pub fn cancel(&self, context: u64) -> bool {
        self.cancel_receive(CancelKey::Context(context))
    }

    /// Like [`cancel`](Self::cancel), for the receive of the deferred work with this number.
    pub fn cancel_work(&self, number: u64) -> bool {
        self.cancel_receive(CancelKey::Work(number))
    }

    /// Cancels all unmatched receives whose memory overlaps `memory`. The oldest member reports them.
    pub fn cancel_into(&self, memory: &SegmentMut) {
        self.lock().act_for_application(|receiver, effects| receiver.cancel_into(memory, effects), self);
    }

    fn cancel_receive(&self, key: CancelKey) -> bool {
        self.lock().act_for_application(|receiver, effects| receiver.cancel(key, effects), self)
    }

    /// Makes the oldest member report the failure of a receive or a peek that was accepted, but refused or
    /// cancelled before it was posted. `is_work` says whether the operation is deferred work. `is_counted`
    /// says whether the member counts the operation; a peek is not counted.
    pub fn report_refused_receive(&self, failure: FailedOperation, is_work: bool, is_counted: bool) {
        let mut state = self.lock();
        state.act_for_application(
            |receiver, effects| receiver.report_refused(failure, is_work, is_counted, effects),
            self,
        );
    }

    /// Whether some members have mail to [fetch](crate::Engine::fetch_mail).
    #[inline]
    pub fn has_mail_for_members(&self) -> bool {
        self.has_unnotified_mail.load(Ordering::Acquire)
    }

    /// Returns the members that have mail and were not notified yet, and counts them as notified. The caller
    /// must make each member [fetch its mail](crate::Engine::fetch_mail), and must first release any
    /// member's lock.
    pub fn take_members_with_mail(&self) -> Vec<MemberId> {
        let mut state = self.lock();
        self.has_unnotified_mail.store(false, Ordering::Release);
        state.mailboxes.take_unnotified_members()
    }

    /// Sets whether a member reports successes only if the receive asks for a report.
    pub fn set_selective(&self, member: MemberId, is_selective: bool) {
        self.lock().mailboxes.set_selective(member, is_selective);
    }

    /// Posts a receive with `post`. If `from` is given, the receive accepts only messages of the peer at
    /// this address.
    fn intern_source_and_post(
        &self,
        from: Option<Address>,
        mut request: ReceiveRequest,
        post: impl FnOnce(
            &mut Receiver,
            ReceiveRequest,
            &mut Distribution<'_, NeverMember>,
        ) -> Result<(), Rejected<Destination>>,
    ) -> Result<(), Rejected<Destination>> {
        let mut state = self.lock();
        if state.is_queue_full() {
            return Err(Rejected { error: Again::QueueFull.into(), returned: request.destination });
        }
        if let Some(from) = from {
            let source = state.intern_peer(from);
            request.criteria.source = Some(source);
            if !state.receiver.has_link_to(source) {
                state.mailboxes.mail_source_to_all(from);
            }
        }
        state.act_for_application(|receiver, effects| post(receiver, request, effects), self)
    }

    /// Returns the stored number of waiting reports, and the number that a new count finds.
    #[cfg(test)]
    pub(crate) fn unreported_counts(&self) -> (usize, usize) {
        let mailboxes = &self.lock().mailboxes;
        (mailboxes.unreported_count(), mailboxes.recount_unreported())
    }

    /// Returns the number of known peers.
    #[cfg(test)]
    pub(crate) fn peers_len(&self) -> usize {
        self.lock().peers.len()
    }

    /// Locks the state, even if another thread has panicked with the lock held.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Whether a payload is being pulled on a link of a member.
    fn is_pulling_for(&self, member: MemberId) -> bool {
        let mut owners = self.receiver.pulling_links().filter_map(|link| self.links.get(link));
        owners.any(|(owner, _)| *owner == member)
    }

    /// Returns the id of the peer at an address. May forget other peers that are unused.
    fn intern_peer(&mut self, address: Address) -> PeerId {
        if self.peers.get(address).is_none() && self.peers.is_sweep_due() {
            self.forget_unused_peers();
        }
        self.peers.intern(address)
    }

    /// Forgets unused peers. A peer is in use if it has a link, if a receive names it, or if a waiting
    /// message or report comes from it.
    fn forget_unused_peers(&mut self) {
        let named = self.receiver.peers_in_use().chain(self.mailboxes.report_sources());
        self.peers.retain_only(&named.collect());
    }

    /// Whether no more receives may be posted. The receiver counts the receives that have not ended. The
    /// mailboxes count the ended receives whose reports wait.
    fn is_queue_full(&self) -> bool {
        self.receiver.outstanding_receives() + self.mailboxes.unreported_count() >= self.depth_ops
    }

    /// Runs an action of the receiver that no member calls.
    fn act_without_member<R>(
        &mut self,
        act: impl FnOnce(&mut Receiver, &mut Distribution<'_, NeverMember>) -> R,
        shared: &SharedReceiver,
    ) -> R {
        self.act_for_caller(None, act, shared)
    }

    /// Runs an action of the receiver for the application. Then distributes the budget that the action has
    /// freed, since the members may be asleep.
    fn act_for_application<R>(
        &mut self,
        act: impl FnOnce(&mut Receiver, &mut Distribution<'_, NeverMember>) -> R,
        shared: &SharedReceiver,
    ) -> R {
        let result = self.act_without_member(act, shared);
        if self.receiver.rare_work_bits() != 0 && self.receiver.can_share_freed_budget() {
            self.share_freed_budget(shared);
        }
        result
    }

    /// Distributes the freed budget for members that may be asleep. If a step cannot distribute all, wakes a
    /// member, whose passes distribute the rest.
    fn share_freed_budget(&mut self, shared: &SharedReceiver) {
        self.act_without_member(|receiver, effects| receiver.share_freed_budget(effects), shared);
        if self.receiver.can_share_freed_budget()
            && let Some(member) = self.mailboxes.recipient_or_oldest(None)
        {
            self.mailboxes.mark_unnotified(member);
            shared.has_unnotified_mail.store(true, Ordering::Release);
        }
    }

    /// Runs an action of the receiver for a caller. Effects at the calling member are carried out at once.
    /// Effects at other members become mail.
    fn act_for_caller<R, E: ReceiverEffects>(
        &mut self,
        caller: Option<(MemberId, &mut E)>,
        act: impl FnOnce(&mut Receiver, &mut Distribution<'_, E>) -> R,
        shared: &SharedReceiver,
    ) -> R {
        let State { receiver, links, mailboxes, .. } = self;
        let id = caller.as_ref().map(|(id, _)| *id);
        let pulling_before = receiver.pulling_len();
        let mut distribution = Distribution { caller, links, mailboxes };
        let result = act(receiver, &mut distribution);
        if receiver.pulling_len() > pulling_before {
            // The member that owns the link pulls the payload, so it must make a pass.
            let owners = receiver.pulling_links().filter_map(|link| links.get(link)).map(|(owner, _)| *owner);
            owners.filter(|owner| Some(*owner) != id).for_each(|owner| mailboxes.mark_unnotified(owner));
        }
        if mailboxes.has_unnotified_members() {
            shared.has_unnotified_mail.store(true, Ordering::Release);
        }
        shared.rare_work.store(receiver.rare_work_bits(), Ordering::Relaxed);
        result
    }

    /// If a receive accepts only messages of this peer and no member has a link to the peer, asks the
    /// members that have lost the peer to connect to it.
    fn ask_members_to_connect_if_awaited(&mut self, source: PeerId) {
        if !self.receiver.has_link_to(source)
            && self.receiver.has_receive_only_from(source)
            && let Some(address) = self.peers.address_of(source)
        {
            self.mailboxes.mail_source_to_all(address);
        }
    }

    /// Fails the receives that accept only messages of a lost peer without links. The caller must have held
    /// the lock since it found the peer lost: otherwise a member may have got a new link to the peer.
    fn fail_receives_only_from_lost_peers<E: ReceiverEffects>(
        &mut self,
        mut caller: Option<(MemberId, &mut E)>,
        shared: &SharedReceiver,
    ) {
        let State { peers, receiver, .. } = self;
        for (peer, error) in peers.take_lost_without_links(|peer| !receiver.has_link_to(peer)) {
            let caller = caller.as_mut().map(|(id, effects)| (*id, &mut **effects));
            self.act_for_caller(
                caller,
                |receiver, effects| receiver.fail_receives_only_from(peer, &error, effects),
                shared,
            );
        }
    }
}
