//! A receiver that several endpoints share: `fi_srx_context`, `fi_endpoint(3)`.
//!
//! ```text
//!  engine of member A --+                                    +--> A, in the same call
//!  engine of member B --+--> lock, translate, [ Receiver ] --+--> mail of B --> carried out by B's engine
//!  a post of the        |                                    |
//!  application        --+                                    +--> mail of the next, while there is none
//! ```
//!
//! The receiver has the same type as that of a single endpoint. It knows links and peers by ids
//! that are the same for all members; this module translates between these and the members' own
//! ids. Effects at the calling member are carried out in the call. Effects at another member become
//! *mail*, since the caller does not hold the lock of that member's links and queue. Afterwards,
//! when it holds no lock, the caller makes each member with mail [fetch
//! it](crate::Engine::fetch_mail). See `docs/decisions/shared-context-mail.md`.

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
use crate::buffer::Destination;
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
/// Any thread may use the receiver. A thread that holds the lock of a member's engine may take the
/// receiver's lock. A thread that holds the receiver's lock must not take the lock of a member's
/// engine. While a thread holds a member's lock, it must not take the lock of another member.
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
    /// Creates a receiver without members. It accepts up to `depth_ops` outstanding receives.
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

    /// As [`Engine::post_receive`](crate::Engine::post_receive). If `from` is given, the receive
    /// accepts only messages of the peer at this address. The criteria of `request` must name no source.
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
            receiver.post(request, effects)
        })
    }

    /// As [`Engine::post_multi_receive`](crate::Engine::post_multi_receive). If `from` is given,
    /// the buffer accepts only messages of the peer at this address.
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

    /// As [`Engine::peek`](crate::Engine::peek). If `from` is given, the peek looks only for
    /// messages of the peer at this address. The oldest member reports a peek that finds no message.
    ///
    /// # Errors
    ///
    /// As [`Engine::peek`](crate::Engine::peek).
    pub fn peek(&self, from: Option<Address>, mut request: PeekRequest) -> Result<(), Error> {
        let mut state = self.lock();
        if state.is_queue_full() {
            return Err(Again::QueueFull.into());
        }
        // The source is interned and used under the same lock: between two locks, a peer that is
        // not in use may be forgotten.
        request.criteria.source = from.map(|from| state.intern_peer(from));
        state.act_for_application(|receiver, effects| receiver.peek(request, effects), self)
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

    /// Cancels the oldest receive with this context that no message has matched. The oldest member
    /// reports the receive. Returns whether there was such a receive.
    pub fn cancel(&self, context: u64) -> bool {
        self.cancel_receive(CancelKey::Context(context))
    }

    /// As [`cancel`](Self::cancel), for the receive of the deferred work with this number.
    pub fn cancel_work(&self, number: u64) -> bool {
        self.cancel_receive(CancelKey::Work(number))
    }

    fn cancel_receive(&self, key: CancelKey) -> bool {
        self.lock().act_for_application(|receiver, effects| receiver.cancel(key, effects), self)
    }

    /// Makes the oldest member report the failure of a receive or a peek that the caller had accepted,
    /// but that was refused or cancelled before it was posted. `is_work` says whether it is deferred
    /// work. `is_counted` says whether the member counts it; a peek is not counted.
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

    /// Returns the members with mail that were not notified of it yet. They count as notified from
    /// now on. The caller must make each of them [fetch its mail](crate::Engine::fetch_mail), while
    /// the caller holds no member's lock.
    pub fn take_members_with_mail(&self) -> Vec<MemberId> {
        let mut state = self.lock();
        self.has_unnotified_mail.store(false, Ordering::Release);
        state.mailboxes.take_unnotified_members()
    }

    /// Sets whether a member reports the success of only those receives that ask for it.
    pub fn set_selective(&self, member: MemberId, is_selective: bool) {
        self.lock().mailboxes.set_selective(member, is_selective);
    }

    /// Posts a receive with `post`. If `from` is given, the peer at this address becomes the only
    /// source of the receive.
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

    /// Reserves the whole budget. Returns whether all of it was free.
    #[cfg(test)]
    pub(crate) fn try_reserve_whole_budget(&self, limit_bytes: u64) -> bool {
        self.lock().receiver.try_reserve_budget(limit_bytes)
    }

    /// Returns the stored number of reports that wait, and their number counted anew.
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

    /// Locks the state. If a thread has panicked while it held the lock, other threads still go on.
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

    /// Returns the id of the peer at an address. May forget other peers that are not in use.
    fn intern_peer(&mut self, address: Address) -> PeerId {
        if self.peers.get(address).is_none() && self.peers.is_sweep_due() {
            self.forget_unused_peers();
        }
        self.peers.intern(address)
    }

    /// Forgets the peers that have no link, that no receive names, and that no waiting message or report
    /// comes from.
    fn forget_unused_peers(&mut self) {
        let named = self.receiver.peers_in_use().chain(self.mailboxes.report_sources());
        self.peers.retain_only(&named.collect());
    }

    /// Whether no more receives may be posted. The receiver counts the receives that have not
    /// ended. The mailboxes count the ended receives that were not reported yet.
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

    /// Runs an action of the receiver that the application has asked for. Then shares the budget that
    /// the action has freed among the members, which may be asleep.
    fn act_for_application<R>(
        &mut self,
        act: impl FnOnce(&mut Receiver, &mut Distribution<'_, NeverMember>) -> R,
        shared: &SharedReceiver,
    ) -> R {
        let result = self.act_without_member(act, shared);
        if self.receiver.rare_work_bits() != 0 && self.receiver.can_share_freed_budget() {
            self.act_without_member(|receiver, effects| receiver.share_freed_budget(effects), shared);
        }
        result
    }

    /// Runs an action of the receiver for a caller. If the caller is a member, carries out the effects
    /// at this member at once. Effects at other members become mail.
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

    /// If a receive names this peer as its only source and no member has a link to the peer, asks
    /// the members that have lost the peer to connect to it.
    fn ask_members_to_connect_if_awaited(&mut self, source: PeerId) {
        if !self.receiver.has_link_to(source)
            && self.receiver.has_receive_only_from(source)
            && let Some(address) = self.peers.address_of(source)
        {
            self.mailboxes.mail_source_to_all(address);
        }
    }

    /// Fails the receives whose only source is a peer that was lost and has no link. The caller has
    /// held the lock since it found the peer lost: without the lock, a member could have got a new
    /// link to the peer.
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
