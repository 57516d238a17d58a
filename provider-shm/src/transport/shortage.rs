//! Too few descriptors for further links.
//!
//! The peer may have sent messages with its connection already. So a connection waits until there are enough
//! descriptors to take it with all that it needs. If that takes too long, the peer is told so, and fails the
//! messages.

use homespun_engine::transport::{Denial, LinkId};

use super::ShmTransport;
use crate::descriptors;
use crate::limits::{ACCEPTED_LINK_DESCRIPTORS, SHORTAGE_MAX_MS};
use crate::link::Slot;
use crate::listener::Listener;

/// The lack of descriptors that delays links at present.
#[derive(Debug, Default)]
pub(super) struct Shortage {
    since_ns: Option<u64>,
    has_warned: bool,
}

impl Shortage {
    /// Records that connections are no longer delayed.
    pub(super) fn end(&mut self) {
        self.since_ns = None;
    }

    /// Records that a connection is delayed, and returns whether it has waited long enough. Logs a warning
    /// once.
    fn record(&mut self, now_ns: u64) -> bool {
        if !self.has_warned {
            self.has_warned = true;
            tracing::warn!(
                limit = descriptors::max_count(),
                needed = ACCEPTED_LINK_DESCRIPTORS,
                "too few descriptors for another link over shared memory: peers wait, and are refused after \
                 {} s; raise RLIMIT_NOFILE (ulimit -n)",
                SHORTAGE_MAX_MS / 1000
            );
        }
        let since_ns = *self.since_ns.get_or_insert(now_ns);
        now_ns.saturating_sub(since_ns) > SHORTAGE_MAX_MS * 1_000_000
    }
}

/// What becomes of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Admission {
    Accept,
    Wait,
    Refuse,
}

impl ShmTransport {
    /// Decides about the next connection at the listener.
    pub(super) fn admit_connection(&mut self) -> Admission {
        let Some(listener) = &mut self.listener else { return Admission::Wait };
        if !listener.can_accept() {
            return Admission::Wait;
        }
        if descriptors::has_spare(ACCEPTED_LINK_DESCRIPTORS) {
            return Admission::Accept;
        }
        if !listener.has_connection() {
            if self.short_of_descriptors.is_empty() {
                self.shortage.end();
            }
            return Admission::Wait;
        }
        if self.shortage.record(self.clock.now_ns()) {
            return Admission::Refuse;
        }
        listener.mark_starved();
        Admission::Wait
    }

    /// Decides about a link that lacks the peer's greeting: whether this side reads the greeting now.
    pub(super) fn admit_greeting(&mut self, id: LinkId) -> Admission {
        let needed = match self.links.get(id) {
            Some(Slot::Made(link)) if link.incoming.is_none() => link.origin.greeting_descriptors(),
            _ => return Admission::Accept,
        };
        if descriptors::has_spare(needed) {
            self.shortage.end();
            return Admission::Accept;
        }
        if self.shortage.record(self.clock.now_ns()) {
            return Admission::Refuse;
        }
        self.short_of_descriptors.push(id);
        Admission::Wait
    }

    /// Whether connections or links wait for descriptors.
    pub(super) fn awaits_descriptors(&self) -> bool {
        !self.short_of_descriptors.is_empty() || self.listener.as_ref().is_some_and(Listener::is_starved)
    }

    /// Logs a warning, the first time that a peer refuses a link for lack of something.
    pub(super) fn warn_of_refusal_once(&mut self, id: LinkId, reason: Denial) {
        let is_lack = matches!(reason, Denial::NoDescriptors | Denial::NoMemoryFiles);
        if is_lack && !std::mem::replace(&mut self.has_warned_of_refusal, true) {
            let peer = self.links.get(id).and_then(Slot::connected_address);
            tracing::warn!(?peer, %reason, "a peer has refused a link; further refusals are not reported");
        }
    }
}
