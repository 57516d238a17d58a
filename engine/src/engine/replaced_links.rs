//! Links to replaced endpoints. A replaced endpoint has a successor at the same address.
//!
//! When the successor connects, this side may not have read all messages of the replaced endpoint.
//! So this side reads a replaced link to its end, and uses the link for nothing else. A replaced
//! link ends when the peer closes it. If the peer's host has crashed, the link ends after a period
//! without arrivals.
//!
//! A link that has ended when it comes up is treated likewise, whichever endpoint has made it.
//!
//! A link that this side begins may come up after a link that the replaced endpoint has made. Then it seems
//! to lead to the replaced endpoint. If it turns out to lead to the successor, this side uses it again.

use std::collections::BTreeMap;
use std::mem;
use std::time::Duration;

use tracing::debug;

use super::Engine;
use super::receive_side::ReceiveSide;
use crate::completion::Sink;
use crate::errno::Errno;
use crate::error::OperationError;
use crate::limits::{REPLACED_LINK_CHECK_MS, REPLACED_LINK_IDLE_MAX_MS, STEP_MAX_REPLACED_ENDS};
use crate::link::{Link, Standing};
use crate::moment::Moment;
use crate::peer_id::PeerId;
use crate::target::Target;
use crate::timeout::Timeout;
use crate::transport::{LinkError, LinkId};

/// The links to replaced endpoints. Peers decide how many such links there are, so the engine
/// checks them rarely.
#[derive(Debug, Default)]
pub(super) struct ReplacedLinks {
    by_id: BTreeMap<LinkId, ReplacedLink>,
    /// When the next regular check is due; `None` until the first check. A check is also due at
    /// `deadline`.
    next_check: Option<Moment>,
    /// When the first link times out, as of the last check.
    deadline: Option<Moment>,
    /// Whether links have been added since the last check.
    has_unchecked: bool,
}

/// A link to a replaced endpoint.
#[derive(Debug)]
struct ReplacedLink {
    /// The progress at the last check.
    progress: ReadProgress,
    silence: Timeout,
}

/// How much has arrived on a link. Any arrival changes it.
#[derive(Debug, PartialEq, Eq)]
struct ReadProgress {
    messages: u64,
    offer_changes: u64,
    access_changes: u64,
    mid_message_bytes: u64,
}

impl ReplacedLinks {
    pub(super) fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    /// Removes a link that has ended.
    pub(super) fn remove(&mut self, link: LinkId) {
        self.by_id.remove(&link);
    }

    /// Returns when the next check is due at the latest.
    pub(super) fn deadline(&self) -> Option<Moment> {
        let unchecked = self.next_check.filter(|_| self.has_unchecked);
        self.deadline.into_iter().chain(unchecked).min().filter(|_| !self.is_empty())
    }

    fn add(&mut self, link: LinkId, progress: ReadProgress) {
        if self.is_empty() {
            (self.next_check, self.deadline) = (None, None);
        }
        self.by_id.insert(link, ReplacedLink { progress, silence: Timeout::default() });
        self.has_unchecked = true;
    }

    fn is_check_due(&self, now: Moment) -> bool {
        !self.is_empty()
            && (self.next_check.is_none_or(|due| now >= due) || self.deadline.is_some_and(|due| now >= due))
    }
}

impl Engine {
    /// Retires the older links to a peer, since a new instance answers at the peer's address. The
    /// former instance is gone, even if its links are still up.
    pub(super) fn retire_links_to_former_instance(
        &mut self,
        peer: PeerId,
        newest: LinkId,
        sink: &mut impl Sink,
    ) {
        for id in self.peers.peer(peer).links().clone() {
            if id != newest {
                self.retire_link(id, Standing::Replaced, sink);
            }
        }
    }

    /// Retires a link that is up, and that leads to a former instance of the peer. From now on the
    /// engine only reads the link. If operations are queued for the link, they fail.
    pub(super) fn retire_link(&mut self, id: LinkId, standing: Standing, sink: &mut impl Sink) {
        let Some(link) = self.links.get_mut(id).filter(|link| link.is_current()) else { return };
        let peer = link.peer();
        link.set_standing(standing);
        self.replaced.add(id, ReadProgress::of(id, link, &self.receive_side, &self.target));
        self.has_timeouts = true;
        if self.peers.peer(peer).transmit_link() == Some(id) {
            let error = OperationError::Link(LinkError::System(Errno::ECONNRESET));
            self.drop_transmit_link_and_fail_queued(peer, &error, sink);
        }
    }

    /// Uses the newest link again that only seemed to be replaced, if it leads to the `right` endpoint.
    /// Returns that endpoint.
    pub(super) fn reinstate_doubtful_link(
        &mut self,
        peer: PeerId,
        right: impl Fn(u64) -> bool,
    ) -> Option<u64> {
        let links = self.peers.peer(peer).links().iter();
        let doubtful = links.filter_map(|id| {
            let link = self.links.get(*id)?;
            Some((link.creation_number(), *id, link.doubtful_instance()?))
        });
        let (_, id, instance) = doubtful.filter(|(.., instance)| right(*instance)).max()?;
        debug!(address = %self.peers.address_of(peer), "a link leads to no former instance after all");
        self.links.get_mut(id)?.set_standing(Standing::Current);
        self.replaced.remove(id);
        self.prefer_transmit_link(peer, id);
        self.initiator.activate(peer);
        Some(instance)
    }

    /// Whether accesses on links that carried operations to a peer before the present one have no answer yet.
    pub(super) fn has_unanswered_accesses_on_former_links(&self, peer: PeerId) -> bool {
        let peer = self.peers.peer(peer);
        let others = peer.links().iter().filter(|other| peer.transmit_link() != Some(**other));
        others.filter_map(|other| self.links.get(*other)).any(|other| !other.tx.has_no_unanswered_accesses())
    }

    /// Ends replaced links on which nothing has arrived for a while: some of them now, and others when the
    /// time is told again.
    pub(super) fn abort_silent_replaced_links(&mut self, now: Moment, sink: &mut impl Sink) {
        if !self.replaced.is_check_due(now) {
            return;
        }
        let mut overdue = Vec::new();
        let mut deadline = None;
        let mut by_id = mem::take(&mut self.replaced.by_id);
        by_id.retain(|&id, former| {
            let Some(link) = self.links.get_mut(id) else { return false };
            let progress = ReadProgress::of(id, link, &self.receive_side, &self.target);
            if progress != former.progress {
                former.silence = Timeout::default();
                former.progress = progress;
            }
            let is_overdue = former.silence.poll_expired(now, REPLACED_LINK_IDLE_MAX_MS)
                && overdue.len() < STEP_MAX_REPLACED_ENDS;
            if is_overdue {
                overdue.push(id);
            } else {
                deadline = deadline.into_iter().chain(former.silence.deadline()).min();
            }
            !is_overdue
        });
        self.replaced = ReplacedLinks {
            by_id,
            next_check: Some(now + Duration::from_millis(REPLACED_LINK_CHECK_MS)),
            deadline,
            has_unchecked: false,
        };
        for link in overdue {
            self.abort_link(link, &LinkError::System(Errno::ECONNRESET), sink);
        }
    }
}

impl ReadProgress {
    fn of(id: LinkId, link: &Link, receiver: &ReceiveSide, target: &Target) -> ReadProgress {
        let (messages, offer_changes, reading_bytes) = receiver.progress_counts(id);
        let (access_changes, writing_bytes) = target.progress_counts(id);
        let mid_message_bytes = reading_bytes + writing_bytes + link.rx.arrived_bytes();
        ReadProgress { messages, offer_changes, access_changes, mid_message_bytes }
    }
}
