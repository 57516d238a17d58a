//! Too few descriptors for the links of peers.
//!
//! A connection waits in the kernel, and a held link for its check, until there are descriptors. If that
//! takes too long, the peer is told so.

use std::mem;
use std::time::{Duration, Instant};

use crate::limits::SHORTAGE_MAX_MS;

/// A lack of descriptors that delays links at present.
#[derive(Debug, Default)]
pub(crate) struct Shortage {
    /// Since when links wait, and none has been taken.
    since: Option<Instant>,
    has_warned: bool,
}

impl Shortage {
    /// Records that a link waits. Returns whether links have waited too long.
    pub(crate) fn note_wait(&mut self) -> bool {
        let waited = self.since.get_or_insert_with(Instant::now).elapsed();
        let is_too_long = waited > Duration::from_millis(SHORTAGE_MAX_MS);
        if is_too_long && !mem::replace(&mut self.has_warned, true) {
            tracing::warn!(
                "refused a link of a peer: too few descriptors for {} s: raise RLIMIT_NOFILE (ulimit -n); \
                 further refusals are not reported",
                SHORTAGE_MAX_MS / 1000
            );
        }
        is_too_long
    }

    /// Records that a link waits no longer.
    pub(crate) fn end(&mut self) {
        self.since = None;
    }
}
