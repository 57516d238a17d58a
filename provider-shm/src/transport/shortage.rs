//! Too few descriptors for further links.
//!
//! The peer may have sent messages with its connection already. So a connection waits until there are enough
//! descriptors to take it with all that it needs. If that takes too long, the peer is told so.

use std::mem;

use homespun_engine::transport::{Denial, LinkId};

use super::ShmTransport;
use crate::descriptors;
use crate::limits::{ACCEPT_BATCH_CONNECTIONS, ACCEPTED_LINK_DESCRIPTORS, RETRY_MS, SHORTAGE_MAX_MS};
use crate::link::{Origin, Slot};
use crate::listener::Listener;

/// The lack of descriptors that delays links at present.
#[derive(Debug, Default)]
pub(super) struct Shortage {
    /// Links whose peer's greeting waits until there are descriptors for it.
    links: Vec<LinkId>,
    /// Since when links or connections wait, and none has been taken.
    since_ns: Option<u64>,
    retry_at_ns: u64,
    has_warned: bool,
    has_warned_of_refusal: bool,
}

/// What becomes of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Admission {
    Accept,
    Wait,
    Refuse,
}

impl Shortage {
    /// Decides about a connection that needs this many descriptors.
    fn admit(&mut self, needed: usize, now_ns: impl FnOnce() -> u64) -> Admission {
        if descriptors::has_spare(needed) {
            self.since_ns = None;
            return Admission::Accept;
        }
        self.warn_once();
        let now_ns = now_ns();
        self.retry_at_ns = now_ns + RETRY_MS * 1_000_000;
        let since_ns = *self.since_ns.get_or_insert(now_ns);
        if now_ns.saturating_sub(since_ns) > SHORTAGE_MAX_MS * 1_000_000 {
            return Admission::Refuse;
        }
        Admission::Wait
    }

    /// Logs a warning, the first time that there are too few descriptors.
    pub(super) fn warn_once(&mut self) {
        if !mem::replace(&mut self.has_warned, true) {
            tracing::warn!(
                limit = descriptors::max_count(),
                needed = ACCEPTED_LINK_DESCRIPTORS,
                "too few descriptors for another link over shared memory: raise RLIMIT_NOFILE (ulimit -n); \
                 links of peers wait for {} s, others fail",
                SHORTAGE_MAX_MS / 1000
            );
        }
    }

    /// Logs a warning, the first time that a peer refuses a link. Sends that have ended already may be lost.
    pub(super) fn warn_of_refusal_once(&mut self, link: LinkId, origin: Origin, reason: Denial) {
        if !mem::replace(&mut self.has_warned_of_refusal, true) {
            tracing::warn!(
                link = link.0, ?origin, %reason,
                "a peer has refused a link: messages sent on it are lost; further refusals are not reported"
            );
        }
    }

    /// Makes the next poll of the kernel try again: descriptors have become free.
    pub(super) fn retry_soon(&mut self) {
        self.retry_at_ns = 0;
    }

    pub(super) fn forget_link(&mut self, link: LinkId) {
        self.links.retain(|short| *short != link);
    }
}

impl ShmTransport {
    /// Decides about the next connection at the listener. Greetings that have not been read need descriptors,
    /// too.
    pub(super) fn admit_connection(&mut self) -> Admission {
        let Some(listener) = &mut self.listener else { return Admission::Wait };
        if !listener.has_connection() {
            return Admission::Wait;
        }
        let unread = self.control_ready.len().min(ACCEPT_BATCH_CONNECTIONS as usize);
        if unread > 0 {
            let has_spare = descriptors::has_spare(ACCEPTED_LINK_DESCRIPTORS * (unread + 1));
            return if has_spare { Admission::Accept } else { Admission::Wait };
        }
        let admission = self.shortage.admit(ACCEPTED_LINK_DESCRIPTORS, || self.clock.now_ns());
        if admission == Admission::Wait {
            listener.mark_starved();
        }
        admission
    }

    /// Decides whether this side now reads the peer's greeting, if the link still lacks it.
    pub(super) fn admit_greeting(&mut self, id: LinkId) -> Admission {
        let needed = match self.links.get(id) {
            Some(Slot::Made(link)) if link.incoming.is_none() && !self.generation.is_in_forked_child() => {
                link.origin.greeting_descriptors()
            }
            _ => return Admission::Accept,
        };
        let admission = self.shortage.admit(needed, || self.clock.now_ns());
        if admission == Admission::Wait {
            self.shortage.links.push(id);
        }
        admission
    }

    /// Whether connections or links wait for descriptors.
    pub(super) fn awaits_descriptors(&self) -> bool {
        !self.shortage.links.is_empty() || self.listener.as_ref().is_some_and(Listener::is_starved)
    }

    /// Tries again to take what waits for descriptors, from time to time.
    pub(super) fn retry_shortage_if_due(&mut self) {
        if !self.awaits_descriptors() {
            self.shortage.since_ns = None;
            return;
        }
        if self.shortage.retry_at_ns > 0 && self.clock.now_ns() < self.shortage.retry_at_ns {
            return;
        }
        self.control_ready.append(&mut self.shortage.links);
        if let Some(listener) = &mut self.listener {
            listener.clear_starved();
        }
    }
}
