//! The links of an endpoint: how they come up, how they end, and the operations that end with them.
//!
//! All messages to a peer travel on one link, to keep their order. If the peer has opened a link,
//! this side uses that link. Otherwise this side opens one. If both endpoints connect at the same
//! moment, both links stay, and each side sends on its own link. When a link ends, the operations
//! that it has taken end, too.

use tracing::{debug, warn};

use super::Engine;
use crate::address::Address;
use crate::completion::Sink;
use crate::errno::Errno;
use crate::error::OperationError;
use crate::limits::{PEER_MAX_LINKS, STEP_MAX_CLOSES};
use crate::link::{Link, PendingSends, Standing};
use crate::link_fault::LinkFault;
use crate::operation::SendId;
use crate::peer_id::PeerId;
use crate::peers::{PeerLinkEnd, PeerLinkUp};
use crate::protocol_violation::ProtocolViolation;
use crate::transport::{AddressProof, Close, LinkError, LinkId, Transport};
use crate::wire::Header;

/// A link that the engine has ended but has not closed at the transport yet.
#[derive(Debug)]
pub(super) struct ClosingLink {
    pub(super) link: LinkId,
    pub(super) how: Close,
    error: OperationError,
    unended: ExposedSends,
    /// Sent before the link is closed, if the link has room for it.
    pub(super) farewell: Option<Header>,
}

/// Offers and accesses whose memory one peer may still read. They must not end before the link to
/// this peer is closed.
#[derive(Debug, Default)]
pub(super) struct ExposedSends {
    peer: Option<PeerId>,
    exposed: Vec<SendId>,
}

impl ClosingLink {
    /// Returns the peer that may still read memory of operations of the link.
    pub(super) fn peer_of_exposed_sends(&self) -> Option<PeerId> {
        self.unended.peer
    }

    /// Creates the entry of a link without exposed sends.
    pub(super) fn without_sends(link: LinkId, how: Close) -> ClosingLink {
        let error = OperationError::Link(LinkError::Closed);
        ClosingLink { link, how, error, unended: ExposedSends::default(), farewell: None }
    }
}

/// Whether the peer has ended a link before the link came up. For example, the peer may have closed
/// its endpoint instead of accepting the link.
fn is_cut_short(link: &Link, error: &OperationError) -> bool {
    let is_ended_by_peer =
        matches!(error, OperationError::Link(LinkError::Closed | LinkError::System(Errno::ECONNRESET)));
    is_ended_by_peer && !link.has_come_up()
}

impl Engine {
    /// Returns the link for messages to `peer`, and opens one if there is none.
    pub(super) fn find_or_open_transmit_link(
        &mut self,
        peer: PeerId,
        transport: &mut impl Transport,
    ) -> LinkId {
        if let Some(link) = self.peers.peer(peer).transmit_link() {
            return link;
        }
        let is_present = |id: &LinkId| self.links.get(*id).is_some_and(|link| !link.is_replaced());
        let existing = self.peers.peer(peer).links().iter().copied().find(is_present);
        let link = existing.unwrap_or_else(|| {
            let (to, is_retry) = (self.peers.address_of(peer), self.peers.peer(peer).is_retrying_connect());
            let link = if is_retry { transport.connect_again(to) } else { transport.connect(to) };
            self.add_link(link, peer);
            link
        });
        self.peers.peer_mut(peer).set_transmit_link(link);
        link
    }

    /// Adds a link to a peer, and tells the receiver and the target of it.
    pub(super) fn add_link(&mut self, id: LinkId, peer: PeerId) {
        self.peers.peer_mut(peer).link_begun(id);
        self.links.insert(id, peer);
        self.receive_side.link_added(id, peer, self.peers.address_of(peer));
        self.target.link_added(id, peer);
    }

    /// Handles a link that has come up. Ends the link if the receiver does not admit it. Retires the
    /// link if it has ended or leads to a former instance of the peer: what was sent on the link before
    /// may be unread. If the link leads to a new instance, retires the peer's other links.
    pub(super) fn link_up(
        &mut self,
        id: LinkId,
        address: Address,
        instance: u64,
        proof: AddressProof,
        has_ended: bool,
        sink: &mut impl Sink,
    ) {
        if !self.receive_side.try_admit_link(address, proof) {
            debug!(%address, ?proof, "refusing a link: links that have ended left too much behind");
            return self.abort_link(id, &LinkError::System(Errno::ENOBUFS), sink);
        }
        let peer = match self.links.get_mut(id) {
            Some(link) => link.peer(),
            None => {
                self.forget_unused_peers_if_due(sink);
                let peer = self.peers.intern_introduced(address);
                self.add_link(id, peer);
                peer
            }
        };
        self.initiator.unblock(peer);
        self.receive_side.link_up(id, address, proof);
        let created_count = self.links.created_count();
        let Some(link) = self.links.get_mut(id) else { return };
        link.mark_up(proof.is_claim());
        if has_ended {
            // It takes nothing, and does not show which of two endpoints at the address came later.
            debug!(address = %self.peers.address_of(peer), "a link comes up that has ended");
            return self.retire_link(id, Standing::Replaced, sink);
        }
        let creation_number = link.creation_number();
        match self.peers.peer_mut(peer).link_up(instance, creation_number, created_count) {
            PeerLinkUp::Current if self.current_links_len(peer) > PEER_MAX_LINKS => {
                debug!(address = %self.peers.address_of(peer), "refusing a link: the peer has too many");
                return self.abort_link(id, &LinkError::System(Errno::ENOBUFS), sink);
            }
            PeerLinkUp::Current => {}
            PeerLinkUp::Predecessor => {
                debug!(address = %self.peers.address_of(peer), "a link seems to lead to a former instance");
                return self.retire_link(id, Standing::Doubtful { instance }, sink);
            }
            PeerLinkUp::Successor => {
                debug!(address = %self.peers.address_of(peer), "the peer was replaced by a new instance");
                self.retire_links_to_former_instance(peer, id, sink);
                self.reinstate_doubtful_link(peer, |doubtful| doubtful == instance);
            }
        }
        self.prefer_transmit_link(peer, id);
    }

    /// Sends on this link from now on, which is up, unless another one has taken something. A link that is
    /// still connecting may take long, or fail.
    pub(super) fn prefer_transmit_link(&mut self, peer: PeerId, id: LinkId) {
        let current = self.peers.peer(peer).transmit_link();
        if current
            .and_then(|current| self.links.get_mut(current))
            .is_none_or(|link| link.is_unused_connecting())
        {
            self.peers.peer_mut(peer).set_transmit_link(id);
        }
    }

    /// Lists the peer of a link as active if it is blocked: an event of the link may let its work go on.
    #[cold]
    pub(super) fn unblock_peer_of(&mut self, id: LinkId) {
        if let Some(link) = self.links.get(id) {
            self.initiator.unblock(link.peer());
        }
    }

    /// Returns how many links are up to the endpoint that is now at a peer's address.
    fn current_links_len(&self, peer: PeerId) -> usize {
        let links = self.peers.peer(peer).links().iter().filter_map(|id| self.links.get(*id));
        links.filter(|link| link.is_current()).count()
    }

    /// Handles a link that has ended by itself. If the error is not [`LinkError::Closed`], messages
    /// of the link may be missing. In that case the peer's other current links end too, so that no
    /// later message arrives without the missing ones. The others stay if the link was only
    /// claimed: a stranger may have made it. If the peer has made it, the peer ends the others.
    pub(super) fn link_lost(&mut self, id: LinkId, error: &LinkError, sink: &mut impl Sink) {
        // The link needs no closing any more. The transport may give its number to a new link,
        // which must not be closed.
        let place = self.condemned.iter().position(|condemned| condemned.link == id);
        if let Some(ClosingLink { error, unended, .. }) = place.and_then(|place| self.condemned.remove(place))
        {
            self.fail_exposed_sends(unended, &error, sink);
            return self.report_connection_if_ended(sink);
        }
        let is_proven = self.links.get(id).is_some_and(|link| link.is_current() && !link.is_claim());
        let others =
            if is_proven && *error != LinkError::Closed { self.other_current_links(id) } else { Vec::new() };
        let operation_error = OperationError::Link(error.clone());
        let unended = self.end_link(id, &operation_error, sink);
        self.fail_exposed_sends(unended, &operation_error, sink);
        self.report_connection_if_ended(sink);
        for other in others {
            self.abort_link(other, error, sink);
        }
    }

    /// Returns the other links to the endpoint to which this link leads.
    fn other_current_links(&self, id: LinkId) -> Vec<LinkId> {
        let Some(link) = self.links.get(id) else { return Vec::new() };
        let links = self.peers.peer(link.peer()).links().iter().copied();
        let is_current = |other: &LinkId| self.links.get(*other).is_some_and(Link::is_current);
        links.filter(|other| *other != id).filter(is_current).collect()
    }

    /// Removes a link and ends its operations. Returns the operations whose memory the peer may
    /// still read, without ending them. The caller ends them when the peer can no longer read the
    /// memory.
    pub(super) fn end_link(
        &mut self,
        id: LinkId,
        error: &OperationError,
        sink: &mut impl Sink,
    ) -> ExposedSends {
        let Some(link) = self.links.remove(id) else { return ExposedSends::default() };
        if link.is_replaced() {
            self.replaced.remove(id);
        }
        let is_cut_short = is_cut_short(&link, error);
        let is_unused = link.is_unused_connecting();
        let peer = link.peer();
        self.initiator.unblock(peer);
        let was_current = link.is_current();
        let PendingSends { sends, exposed, counted_writes } = link.tx.into_pending_sends();
        let PeerLinkEnd { was_last, was_met, carried_sends } = self.peers.peer_mut(peer).link_ended(id);
        let should_retry =
            carried_sends && is_cut_short && is_unused && self.has_operations_waiting_for(peer);
        let is_retried = should_retry && self.peers.peer_mut(peer).try_count_connect_retry();
        if is_cut_short && !is_retried && (should_retry || !is_unused) {
            warn!(
                address = %self.peers.address_of(peer),
                "the process at this address ends connections before its hello: it may not speak homespun's \
                 protocol"
            );
        }
        if let OperationError::Link(
            error @ (LinkError::OtherVersion { .. } | LinkError::LoopbackOnly { .. }),
        ) = error
        {
            warn!(address = %self.peers.address_of(peer), %error, "no link to a peer");
        }
        if was_last && is_retried {
            // Queued operations would open the next link, but may be cancelled before. Receives
            // from the peer need the link, too.
            self.add_awaited_source(peer);
        }
        self.target.link_ended(id);
        let is_connection = self.connection.end_connection_if_on_link(id, error);
        let is_lost = was_last && (was_met || !is_retried);
        if is_lost {
            self.peers.peer_mut(peer).mark_lost();
        }
        let address = self.peers.address_of(peer);
        let (receiver, mut effects) = self.receive_side_and_effects(sink);
        receiver.link_ended(id, error, &mut effects);
        // Receives fail before sends. A program that reads that its request has failed cancels the receive of
        // the answer, and may ignore the failure of a receive that it has cancelled.
        if is_lost {
            receiver.peer_lost(peer, address, error, &mut effects);
        }
        self.fail_sends(sends, Some(peer), error, sink);
        let (initiator, mut effects) = self.initiator_and_effects(sink);
        initiator.fail_counted_writes(counted_writes, peer, error, &mut effects);
        if carried_sends && !is_retried {
            self.drop_transmit_link_and_fail_queued(peer, error, sink);
        }
        if was_current && !was_last && self.current_links_len(peer) == 0 {
            let other = self.reinstate_doubtful_link(peer, |_| true);
            self.peers.peer_mut(peer).instance_left(other);
        }
        let (receiver, mut effects) = self.receive_side_and_effects(sink);
        match (is_connection, error) {
            (false, _) => {}
            // A send has failed at the peer, no receive of this side.
            (true, OperationError::PeerReceive) => {
                let error = OperationError::Link(LinkError::Closed);
                receiver.fail_all_and_close_in_next_pass(Some(peer), &error, &mut effects);
            }
            // These ends may come from a call or late in a pass, and no other pass may follow.
            (true, OperationError::Cancelled | OperationError::Flushed) => {
                receiver.fail_all_and_close(Some(peer), error, &mut effects);
            }
            (true, _) => receiver.fail_all_and_close_in_next_pass(Some(peer), error, &mut effects),
        }
        ExposedSends { peer: Some(peer), exposed }
    }

    /// Whether the peer has queued sends or accesses, which wait for a link. If the peer is lost,
    /// also whether a posted receive names the peer as its only source.
    fn has_operations_waiting_for(&self, peer: PeerId) -> bool {
        let is_lost = self.peers.peer(peer).is_lost();
        !self.initiator.has_none_queued(peer)
            || is_lost && self.receive_side.has_receive_only_from(peer, self.peers.address_of(peer))
    }

    /// Stops using the link on which this side sends to a peer. All operations that are queued for
    /// the peer fail.
    pub(super) fn drop_transmit_link_and_fail_queued(
        &mut self,
        peer: PeerId,
        error: &OperationError,
        sink: &mut impl Sink,
    ) {
        self.peers.peer_mut(peer).clear_transmit_link();
        let (initiator, mut effects) = self.initiator_and_effects(sink);
        initiator.fail_queued(peer, error, &mut effects);
    }

    /// Fails the offers and accesses of an ended link. The peer must no longer be able to read
    /// them.
    pub(super) fn fail_exposed_sends(
        &mut self,
        unended: ExposedSends,
        error: &OperationError,
        sink: &mut impl Sink,
    ) {
        self.fail_sends(unended.exposed, unended.peer, error, sink);
    }

    fn fail_sends(
        &mut self,
        sends: impl IntoIterator<Item = SendId>,
        target: Option<PeerId>,
        error: &OperationError,
        sink: &mut impl Sink,
    ) {
        let (initiator, mut effects) = self.initiator_and_effects(sink);
        initiator.fail_sends(sends, target, error, &mut effects);
    }

    /// Ends a link whose peer broke the protocol.
    #[cold]
    pub(super) fn abort_breached_link(&mut self, id: LinkId, reason: &'static str, sink: &mut impl Sink) {
        self.abort_faulty_link(id, ProtocolViolation(reason).into(), sink);
    }

    /// Ends a link for which there is no memory, or whose peer broke the protocol.
    #[cold]
    pub(super) fn abort_faulty_link(&mut self, id: LinkId, fault: LinkFault, sink: &mut impl Sink) {
        debug!(?id, reason = fault.reason(), "ending a link");
        self.abort_link(id, &fault.link_error(), sink);
    }

    /// Ends a link that has not ended by itself. A later [`transmit`](Engine::transmit) closes it
    /// at the transport. Until then the engine ignores frames of the link.
    pub(super) fn abort_link(&mut self, id: LinkId, error: &LinkError, sink: &mut impl Sink) {
        self.end_link_and_close_later(id, Close::Abort, OperationError::Link(error.clone()), sink);
    }

    /// As [`abort_link`](Self::abort_link). The link is closed in this way, and its operations end with this
    /// error.
    pub(super) fn end_link_and_close_later(
        &mut self,
        id: LinkId,
        how: Close,
        error: OperationError,
        sink: &mut impl Sink,
    ) {
        let unended = self.end_link(id, &error, sink);
        self.condemned.push_back(ClosingLink { link: id, how, error, unended, farewell: None });
    }

    /// Closes some of the links that the engine has ended, in the order in which they have ended. Then
    /// fails the offers and accesses that the peers could read until now. The next pass closes more.
    pub(super) fn close_condemned(&mut self, transport: &mut impl Transport, sink: &mut impl Sink) {
        for _ in 0..self.condemned.len().min(STEP_MAX_CLOSES) {
            let Some(closing) = self.condemned.pop_front() else { break };
            let ClosingLink { link, how, error, unended, farewell } = closing;
            if let Some(header) = farewell {
                let _may_be_full = transport.send(link, &header, &[]);
            }
            transport.close(link, how);
            self.fail_exposed_sends(unended, &error, sink);
        }
        self.report_connection_if_ended(sink);
    }
}
