//! Links to endpoints that another endpoint has replaced at the same address.
//!
//! Before such an endpoint closed, it may have sent messages that this side has not read, while its
//! successor has connected already. So this side reads a replaced link to its end, and uses the link
//! for nothing else. A replaced link ends when the peer closes the link. If the peer's host has
//! crashed, the link ends when no byte has arrived on it for a while.

use super::Engine;
use super::receive_side::ReceiveSide;
use crate::completion::Sink;
use crate::errno::Errno;
use crate::error::OperationError;
use crate::limits::REPLACED_LINK_IDLE_MAX_MS;
use crate::link::Link;
use crate::moment::Moment;
use crate::peer_id::PeerId;
use crate::target::Target;
use crate::timeout::Timeout;
use crate::transport::{LinkError, LinkId};

/// A link to a replaced endpoint.
#[derive(Debug)]
pub(super) struct ReplacedLink {
    link: LinkId,
    creation_number: u64,
    /// The progress at the last check.
    progress: ReadProgress,
    silence: Timeout,
}

/// How much has arrived on a link. Any arrival changes it.
#[derive(Debug, PartialEq, Eq)]
struct ReadProgress {
    messages: u64,
    fetches: usize,
    mid_message_bytes: u64,
    fetched_bytes: u64,
}

impl Engine {
    /// Retires the older links to a peer, since a new instance answers at its address. The former
    /// instance is gone, even if its links are still up. From now on the engine only reads these
    /// links, and operations that wait for them fail.
    pub(super) fn retire_links_to_former_instance(
        &mut self,
        peer: PeerId,
        newest: LinkId,
        sink: &mut impl Sink,
    ) {
        for id in self.peers.peer(peer).links().clone() {
            let Some(link) = self.links.get_mut(id).filter(|link| link.is_current()) else { continue };
            if id == newest {
                continue;
            }
            link.mark_replaced();
            let former = ReplacedLink {
                link: id,
                creation_number: link.creation_number(),
                progress: ReadProgress::of(id, link, &self.receive_side, &self.target),
                silence: Timeout::default(),
            };
            self.replaced.push(former);
            self.has_timeouts = true;
            if self.peers.peer(peer).transmit_link() == Some(id) {
                let error = OperationError::Link(LinkError::System(Errno::ECONNRESET));
                self.drop_transmit_link_and_fail_queued(peer, &error, sink);
            }
        }
    }

    /// Ends replaced links on which nothing has arrived for a while.
    pub(super) fn end_idle_replaced_links(&mut self, now: Moment, sink: &mut impl Sink) {
        let mut overdue = Vec::new();
        let (links, receiver, target) = (&mut self.links, &self.receive_side, &self.target);
        self.replaced.retain_mut(|former| {
            let Some(link) =
                links.get_mut(former.link).filter(|link| link.creation_number() == former.creation_number)
            else {
                return false;
            };
            let progress = ReadProgress::of(former.link, link, receiver, target);
            if progress != former.progress {
                former.silence = Timeout::default();
                former.progress = progress;
            }
            let is_overdue = former.silence.poll_expired(now, REPLACED_LINK_IDLE_MAX_MS);
            overdue.extend(is_overdue.then_some(former.link));
            !is_overdue
        });
        for link in overdue {
            self.abort_link(link, &LinkError::System(Errno::ECONNRESET), sink);
        }
    }
}

impl ReplacedLink {
    /// Returns when the link ends if nothing arrives until then.
    pub(super) fn deadline(&self) -> Option<Moment> {
        self.silence.deadline()
    }
}

impl ReadProgress {
    fn of(id: LinkId, link: &Link, receiver: &ReceiveSide, target: &Target) -> ReadProgress {
        let (messages, offers, reading_bytes, fetched_bytes) = receiver.progress_counts(id);
        let (offered_writes, writing_bytes, written_bytes) = target.progress_counts(id);
        ReadProgress {
            messages,
            fetches: offers + offered_writes,
            mid_message_bytes: reading_bytes + writing_bytes + link.rx.arrived_bytes(),
            fetched_bytes: fetched_bytes + written_bytes,
        }
    }
}
