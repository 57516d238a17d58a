//! The receiver of an endpoint. It matches messages with posted receives, and keeps the messages
//! and receives that have no match yet.
//!
//! ```text
//!  message_arrived, pull, ... +----------------------------------------------+  complete, fail, count
//!  -------------------------> | posted receives    <-- matching --> messages | ------------------------>
//!  post, peek, cancel, ...    | multi-receive buffers             unexpected |  queue_header, queue_ack ...
//!  -------------------------> | claimed messages           budget and credit | ------------------------>
//!  link_added, link_ended ... | fetches of offered messages                  |  Err(LinkFault)
//!                             +----------------------------------------------+
//! ```
//!
//! The caller passes events to the receiver, and carries out the [`ReceiverEffects`] that the
//! receiver asks for. The receiver has no transport and no completion queue, and knows a link only
//! by its number.

mod abandoned;
mod credit;
mod delayed;
mod dropping;
mod effects;
mod ends;
mod failures;
mod fetching;
mod granting;
mod kept_aside;
mod leftovers;
mod links;
mod messages;
mod multi_receive;
mod notices;
mod payload_destination;
mod peek_horizon;
mod peeks;
mod peer_marks;
mod shares;
#[cfg(test)]
mod tests;
mod turns;
mod unexpected;
mod write_notice;

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::mem;

use slotmap::SlotMap;

use self::abandoned::{AbandonedLink, AbandonedLinks};
use self::credit::Budget;
use self::delayed::DelayedFetches;
pub use self::effects::MemberId;
pub(crate) use self::effects::{EndedWork, ReceiverEffects, UnrecordedEnd};
pub(crate) use self::granting::HeldCredit;
use self::leftovers::Leftovers;
use self::links::{Arriving, ReceiverLink, ReceiverLinks};
pub(crate) use self::messages::{EndedAtOnce, LentBuffer};
use self::multi_receive::{MemberMessages, MultiReceives};
use self::payload_destination::PayloadDestination;
use self::peek_horizon::PeekHorizon;
use self::turns::ReceiveTurns;
use self::unexpected::Unexpected;
pub(crate) use self::write_notice::WriteNotice;
use crate::buffer::{Destination, SegmentMut};
use crate::error::{Again, Misuse, OperationError};
use crate::failure_watch::FailureWatch;
use crate::fetches::Fetches;
use crate::held_reports::HeldReports;
use crate::limits::DEFERRED_STEP_MAX_FETCHES;
use crate::link_fault::TryBox;
use crate::matching::{Criteria, Matching};
use crate::mutated;
use crate::operation::{
    CancelKey, FetchId, Receive, ReceiveId, ReceiveRequest, ReceiveRole, Signalled, UnexpectedId,
};
use crate::peer_id::PeerId;
use crate::protocol_violation::ProtocolViolation;
use crate::reassembly::Reassembly;
use crate::rejected::Rejected;
use crate::transport::LinkId;

/// A claimed message, or the error that has ended it.
type Claimed = Result<UnexpectedId, OperationError>;

/// Whether a receive found its message when it was posted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PostedReceive {
    Waiting,
    /// A message had arrived. The receive may have ended.
    Matched,
}

/// Matches messages with posted receives.
#[derive(Debug)]
pub(crate) struct Receiver {
    /// How many receives may be outstanding.
    depth_ops: usize,
    receives: SlotMap<ReceiveId, Receive>,
    untagged: Matching<ReceiveId, UnexpectedId>,
    tagged: Matching<ReceiveId, UnexpectedId>,
    multi_receives: MultiReceives,
    /// The receives whose completion waits for earlier ones.
    turns: ReceiveTurns,
    /// Whether [multi-receive buffers](MultiReceives::may_claim_untagged) may take messages,
    /// receives have [turns](ReceiveTurns::has_turns), or a failure [ends the
    /// connection](Self::has_watched_failure). For an ordinary message, the receiver checks only
    /// this flag.
    has_special_cases: bool,
    // Boxed: a table never shrinks, and this one may once have held very many messages.
    unexpected: SlotMap<UnexpectedId, TryBox<Unexpected>>,
    /// Messages that peeks have claimed. The key is whether the message is tagged, and the context
    /// of the peek.
    claimed: HashMap<(bool, u64), Claimed>,
    links: ReceiverLinks,
    fetches: Fetches<Arriving>,
    delayed: DelayedFetches,
    /// Unmatched offers that wait for room in the budget. Receives may have matched some of them
    /// since.
    deferred: VecDeque<FetchId>,
    /// How many deferred offers were not tried again since the budget last released memory.
    untried_offers: usize,
    /// The value of [`Budget::released_bytes`] when `untried_offers` was last reset.
    tried_at_released_bytes: u64,
    /// The limit of the memory for unexpected messages, and how much of it is used.
    budget: Budget,
    /// Links that are due more credit, but for which the budget had no room.
    starved: BTreeSet<LinkId>,
    /// Starved links that are about to try again.
    retrying: BTreeSet<LinkId>,
    /// What ended links have left behind.
    leftovers: Leftovers,
    /// Ended links whose unmatched offers are not all dropped yet.
    abandoned: AbandonedLinks,
    /// How many messages were dropped to make room.
    dropped_messages: u64,
    /// How many of them were dropped since the present step began.
    dropped_in_step: usize,
    /// How many offers of links that have ended were dropped since the present step began.
    abandoned_in_step: usize,
    /// Whether anything was dropped in the step, or is left to drop. One flag, since each pass reads it.
    needs_drop_step: bool,
    held: HeldReports,
    /// The error of receives that are posted after the connection has ended; `None` before.
    end_error: Option<Box<OperationError>>,
    /// Whether a failed receive ends the connection.
    failure_watch: FailureWatch,
    /// Which unexpected messages peeks may find.
    pub(crate) horizon: PeekHorizon,
}

impl Receiver {
    /// Creates a receiver without links. It accepts up to `depth_ops` outstanding receives.
    pub(crate) fn new(depth_ops: usize, unexpected_budget_bytes: usize) -> Receiver {
        Receiver {
            depth_ops,
            receives: SlotMap::with_key(),
            untagged: Matching::new(),
            tagged: Matching::new(),
            multi_receives: MultiReceives::default(),
            turns: ReceiveTurns::default(),
            has_special_cases: false,
            unexpected: SlotMap::with_key(),
            claimed: HashMap::new(),
            links: ReceiverLinks::default(),
            fetches: Fetches::default(),
            delayed: DelayedFetches::default(),
            deferred: VecDeque::new(),
            untried_offers: 0,
            tried_at_released_bytes: 0,
            budget: Budget::new(unexpected_budget_bytes),
            starved: BTreeSet::new(),
            retrying: BTreeSet::new(),
            leftovers: Leftovers::default(),
            abandoned: AbandonedLinks::default(),
            dropped_messages: 0,
            dropped_in_step: 0,
            abandoned_in_step: 0,
            needs_drop_step: false,
            held: HeldReports::default(),
            end_error: None,
            failure_watch: FailureWatch::default(),
            horizon: PeekHorizon::default(),
        }
    }

    /// Returns how many receives have not ended, or have not been reported.
    #[inline(always)]
    pub(crate) fn outstanding_receives(&self) -> usize {
        self.receives.len() + self.held.len()
    }

    /// Returns how many payloads the receiver is pulling.
    pub(crate) fn pulling_len(&self) -> usize {
        self.fetches.pulling_len()
    }

    /// Whether the next pass has work even if no frame arrives.
    pub(crate) fn has_work_without_arrivals(&self) -> bool {
        self.fetches.pulling_len() > 0
            || self.has_offers_to_drop()
            || self.can_share_freed_budget()
            || self.has_watched_failure()
    }

    /// Whether the budget has room for a starved link or a deferred offer.
    pub(crate) fn can_share_freed_budget(&self) -> bool {
        !self.retrying.is_empty()
            || (!self.starved.is_empty() && self.budget.can_grant_starved())
            || self.can_fetch_deferred()
    }

    /// Returns 0 if there is no offer to fetch or to drop, no payload to pull, no credit to grant and no
    /// connection to end. Otherwise returns some other number.
    #[inline(always)]
    pub(crate) fn rare_work_bits(&self) -> usize {
        self.deferred.len()
            | self.fetches.pulling_len()
            | self.starved.len()
            | self.retrying.len()
            | usize::from(self.needs_drop_step)
            | usize::from(self.has_watched_failure())
    }

    /// Posts a receive. If unexpected messages match, the receive takes the earliest of them at once.
    ///
    /// # Errors
    ///
    /// [`Again::QueueFull`] when [`depth_ops`](Self::depth_ops) receives are outstanding.
    /// [`Misuse::NotConnected`] if [the connection has ended](Self::fail_all_and_close) and no
    /// message waits for the receive, unless the receive [is flushed](Self::flushes_posts). Each error hands
    /// back the destination.
    #[inline(always)]
    pub(crate) fn post(
        &mut self,
        request: ReceiveRequest,
        effects: &mut impl ReceiverEffects,
    ) -> Result<PostedReceive, Rejected<Destination>> {
        if self.outstanding_receives() >= self.depth_ops {
            return Err(Rejected { error: Again::QueueFull.into(), returned: request.destination });
        }
        let ReceiveRequest { destination, tagged, criteria, context, signalled } = request;
        let (tag, ignore) = if tagged { (criteria.tag, criteria.ignore) } else { (0, u64::MAX) };
        let is_source_ignored = if tagged {
            mutated!("fi_tagged/tagged-source")
        } else {
            mutated!("fi_msg/source-directs-receive")
        };
        let source = criteria.source.filter(|_| !is_source_ignored);
        let criteria = Criteria { tag, ignore, source };
        if self.is_kind_kept_aside(tagged) {
            let receive = Receive { destination, tagged, context, signalled, role: ReceiveRole::Single };
            let id = self.post_without_matching(criteria, receive);
            self.fail_if_connection_ended(id, effects);
            return Ok(PostedReceive::Waiting);
        }
        let matching = if tagged { &mut self.tagged } else { &mut self.untagged };
        let mut found = matching.take_unexpected(&criteria);
        if found.is_some() && (!self.abandoned.is_empty() || self.has_watched_failure()) {
            found = self.skip_abandoned(found, tagged, &criteria, effects);
            found = self.drop_found_after_failure(found, effects);
        }
        let matching = if tagged { &mut self.tagged } else { &mut self.untagged };
        match found {
            Some(found) => {
                let receive = Receive { destination, tagged, context, signalled, role: ReceiveRole::Single };
                self.receive_unexpected(receive, found, effects);
                return Ok(PostedReceive::Matched);
            }
            None if self.end_error.is_some() => {
                if (tagged || !self.has_kept_aside()) && !self.flushes_posts() {
                    return Err(Rejected { error: Misuse::NotConnected.into(), returned: destination });
                }
                let receive = Receive { destination, tagged, context, signalled, role: ReceiveRole::Single };
                let id = self.post_without_matching(criteria, receive);
                self.fail_if_connection_ended(id, effects);
            }
            None => {
                let receive = Receive { destination, tagged, context, signalled, role: ReceiveRole::Single };
                matching.add_posted(criteria, self.receives.insert(receive));
            }
        }
        Ok(PostedReceive::Waiting)
    }

    /// Posts a receive, if it has to wait for its message. Returns whether it was posted: not if it may find
    /// a message, or is refused, or must end. If it was posted, its destination was taken.
    #[inline(always)]
    pub(crate) fn try_post_waiting(
        &mut self,
        tagged: bool,
        criteria: Criteria,
        context: u64,
        signalled: Signalled,
        destination: &mut Destination,
    ) -> bool {
        let is_full = self.outstanding_receives() >= self.depth_ops;
        let matching = if tagged { &mut self.tagged } else { &mut self.untagged };
        let keeps_aside = self.multi_receives.keeps_untagged && !tagged;
        if is_full || keeps_aside || self.end_error.is_some() || matching.unexpected_len() > 0 {
            return false;
        }
        let destination = mem::take(destination);
        let role = ReceiveRole::Single;
        let id = self.receives.insert(Receive { destination, tagged, context, signalled, role });
        matching.add_posted(criteria, id);
        true
    }

    /// Cancels one posted receive or multi-receive buffer with this key: the oldest untagged one
    /// or, if there is none, the oldest tagged one. Matched receives and ended buffers are no
    /// longer posted. Returns whether one was cancelled.
    pub(crate) fn cancel(&mut self, key: CancelKey, effects: &mut impl ReceiverEffects) -> bool {
        let found =
            self.posted().find(|(_, receive)| key.matches_operation(receive.context, receive.signalled));
        let Some((id, tagged)) = found.map(|(id, receive)| (id, receive.tagged)) else { return false };
        if mutated!("fi_endpoint/cancel-is-bounded") {
            return true;
        }
        let matching = if tagged { &mut self.tagged } else { &mut self.untagged };
        matching.remove_posted(id);
        let error = match mutated!("fi_endpoint/cancel-reports-ecanceled") {
            true => OperationError::NoMessage,
            false => OperationError::Cancelled,
        };
        self.fail_removed_receive(id, None, &error, effects);
        true
    }

    /// Cancels all posted receives and multi-receive buffers whose memory overlaps `memory`: the untagged
    /// ones first, each kind in the order of posting. Matched receives are no longer posted. The rest of a
    /// buffer is posted, but not the parts that messages have taken.
    pub(crate) fn cancel_into(&mut self, memory: &SegmentMut, effects: &mut impl ReceiverEffects) {
        let receives = &self.receives;
        let is_into_memory =
            |id| receives.get(id).is_some_and(|receive: &Receive| receive.destination.overlaps(memory));
        // In one pass for each kind, as very many receives may be posted.
        let mut cancelled = self.untagged.take_all_posted_where(is_into_memory);
        cancelled.extend(self.tagged.take_all_posted_where(is_into_memory));
        for id in cancelled {
            self.fail_removed_receive(id, None, &OperationError::Cancelled, effects);
        }
    }

    /// Fails the receives of a member that messages are filling, if their memory overlaps `memory`. What has
    /// not arrived of these messages is dropped.
    pub(crate) fn abandon_messages_into(
        &mut self,
        memory: &SegmentMut,
        member: MemberId,
        effects: &mut impl ReceiverEffects,
    ) {
        let receives = &self.receives;
        let is_into_memory = |filling: &Reassembly<Arriving>| match filling.owner.destination {
            PayloadDestination::Posted(id) => {
                receives.get(id).is_some_and(|receive| receive.destination.overlaps(memory))
            }
            PayloadDestination::Unexpected(_) | PayloadDestination::Nowhere => false,
        };
        let mut abandoned = Vec::new();
        let mut abandon_if_into_memory = |source: PeerId, filling: &mut Reassembly<Arriving>| {
            if is_into_memory(filling) {
                abandoned.push((source, *filling));
                filling.owner.destination = PayloadDestination::Nowhere;
            }
        };
        for (link, filling) in self.fetches.fillings_mut() {
            if let Some(link) = self.links.get(link).filter(|link| link.member == member) {
                abandon_if_into_memory(link.peer, filling);
            }
        }
        for link in self.links.iter_mut().filter(|link| link.member == member) {
            if let Some(links::IncomingMessage::Eager { filling, .. }) = &mut link.reading {
                abandon_if_into_memory(link.peer, filling);
            }
        }
        for (source, filling) in abandoned {
            self.abandon_partial_message(source, &filling, member, &OperationError::Cancelled, effects);
        }
    }

    /// Returns the posted receives, the untagged ones first, each kind in the order of posting.
    fn posted(&self) -> impl Iterator<Item = (ReceiveId, &Receive)> {
        let ids = [&self.untagged, &self.tagged].into_iter().flat_map(Matching::posted);
        ids.filter_map(|id| self.receives.get(id).map(|receive| (id, receive)))
    }

    /// Adds a link on which `peer` sends to `member`. The link begins with a little credit.
    pub(crate) fn link_added(&mut self, id: LinkId, peer: PeerId, member: MemberId) {
        self.links.insert(id, peer, member, &mut self.budget);
    }

    /// Removes a link that has ended. A receive fails if a message from the link was filling it.
    /// Whole unexpected messages stay. Partial ones are dropped. Later steps drop some of the offers,
    /// but from now on no receive and no peek finds them.
    pub(crate) fn link_ended(
        &mut self,
        id: LinkId,
        error: &OperationError,
        effects: &mut impl ReceiverEffects,
    ) {
        let Some(link) = self.links.remove(id) else { return };
        let ReceiverLink { peer, member, creation_number, grant, reading, unproven_messages, .. } = link;
        let unclaimed_bytes = link.unclaimed_bytes;
        let host = grant.host();
        let left_bytes = grant.end(&mut self.budget);
        if let Some(host) = host {
            self.leftovers.add_link(creation_number, host, left_bytes, unclaimed_bytes);
        }
        if let Some(links::IncomingMessage::Eager { filling, .. }) = reading {
            self.abandon_partial_message(peer, &filling, member, error, effects);
        }
        let offers = self.fetches.end_link(id);
        // Fetches are removed one by one: the end of a fetch may let a buffer take messages that
        // were kept aside, and this changes the fetches.
        while let Some(fetch) = self.fetches.remove_next_needed(&offers) {
            self.leftovers.release(creation_number, fetch.filling.owner.held_bytes, &mut self.budget);
            self.abandon_partial_message(peer, &fetch.filling, member, error, effects);
        }
        self.starved.remove(&id);
        self.retrying.remove(&id);
        let error = error.clone();
        self.end_abandoned_link(
            AbandonedLink { offers, creation_number, host, error, unproven_messages },
            effects,
        );
    }

    /// Drops the unexpected messages of a member that leaves, or whose connection ends with a failure. The
    /// caller ends the member's links next. The end of a link must not give such a message to a receive.
    /// Receives of the member that wait for their turn fail when the links end.
    pub(crate) fn drop_messages_of_member(
        &mut self,
        member: MemberId,
        error: &OperationError,
        effects: &mut impl ReceiverEffects,
    ) {
        let is_of_member = |unexpected: &Unexpected| unexpected.origin.member == member;
        let of_member = self.unexpected.iter().filter(|(_, unexpected)| is_of_member(unexpected));
        let lost: Vec<_> = of_member.map(|(id, unexpected)| (id, unexpected.message)).collect();
        for matching in [&mut self.untagged, &mut self.tagged] {
            matching.remove_unexpected_where(|id| {
                self.unexpected.get(id).is_some_and(|unexpected| is_of_member(unexpected))
            });
        }
        if let Some(aside) = self.multi_receives.kept_aside.get_mut(&member) {
            *aside = MemberMessages::default();
        }
        for (id, message) in lost {
            if let Some(unexpected) = self.remove_unexpected_and_return_credit(id, effects)
                && let Some(context) = unexpected.claim
            {
                self.fail_claimed_message(message.tag.is_some(), context, error);
            }
        }
        self.match_kept_aside(member, effects);
        self.turns.fail_ended_receives_of_member(member, error);
    }

    /// Gives freed room in the budget to offers and links that wait for it.
    pub(crate) fn share_freed_budget(&mut self, effects: &mut impl ReceiverEffects) {
        for _ in 0..self.deferred.len().div_ceil(DEFERRED_STEP_MAX_FETCHES) {
            self.begin_deferred_fetches();
        }
        self.grant_credit_to_starved_links(effects);
    }

    /// Whether a posted receive names this peer as its only source.
    pub(crate) fn has_receive_only_from(&self, peer: PeerId) -> bool {
        self.untagged.directed_posted(peer).chain(self.tagged.directed_posted(peer)).next().is_some()
    }

    /// Whether any link leads to this peer.
    pub(crate) fn has_link_to(&self, peer: PeerId) -> bool {
        self.links.has_link_to(peer)
    }

    /// Returns the peer that sends on a link.
    pub(crate) fn peer_of_link(&self, id: LinkId) -> Option<PeerId> {
        self.links.get(id).map(|link| link.peer)
    }

    /// Returns the peers that links, directed receives, messages or ended receives refer to. A peer
    /// may occur several times.
    pub(crate) fn peers_in_use(&self) -> impl Iterator<Item = PeerId> {
        let posted = self.untagged.directed_sources().chain(self.tagged.directed_sources());
        let waiting = self.unexpected.values().map(|unexpected| unexpected.source);
        let ended = self.turns.sources_of_ended().chain(self.multi_receives.failing_sources());
        self.links.linked_peers().chain(posted).chain(waiting).chain(ended)
    }

    /// Returns three counts of a link: arrived eager messages, changes of offers, and arrived bytes
    /// of the message that is being read. Each byte of a message changes one of the counts when it
    /// arrives.
    pub(crate) fn progress_counts(&self, id: LinkId) -> (u64, u64, u64) {
        let Some(link) = self.links.get(id) else { return (0, 0, 0) };
        let reading_bytes = match &link.reading {
            Some(links::IncomingMessage::Eager { filling, .. }) => filling.arrived_bytes,
            Some(links::IncomingMessage::Requested(fetch)) => self.fetches.arrived_bytes(*fetch),
            None => 0,
        };
        (link.received_messages, self.fetches.count_of_changes(id), reading_bytes)
    }

    /// Returns how many eager messages of a link have arrived whole.
    pub(crate) fn arrived_eager_count(&self, id: LinkId) -> u64 {
        self.links.get(id).map_or(0, |link| link.received_messages)
    }
}
