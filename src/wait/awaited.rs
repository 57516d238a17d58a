//! Going to sleep until something is there, whatever that is.

use std::time::{Duration, Instant};

use homespun_engine::transport::Armed;

use super::{Bed, Sleeper, Wait};
use crate::sync::yield_now;

/// Something that is waited for.
pub(crate) trait Awaited {
    /// Makes a pass over the endpoints that may bring it about.
    fn progress(&self);

    /// Arms those endpoints, for somebody who is about to sleep.
    fn arm(&self) -> Armed;

    /// Whether it is there. Whoever brings it about after that rings the doorbell, if it was armed before.
    fn is_there(&self) -> bool;

    /// An application that asked was told that it is there.
    fn tell(&self) {}
}

/// What is to be expected of the endpoints.
pub(crate) enum Outlook<'a> {
    /// Nothing that would not wake the sleeper.
    Quiet(Sleeper<'a>),
    /// What is waited for is there.
    Enough,
    /// There may be more to do.
    Busy,
}

/// What an application that sleeps by itself has to expect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Prospect {
    /// Nothing that would not wake it.
    Quiet,
    /// There is something to tell.
    Something,
    /// There may be more to do.
    Busy,
}

impl Bed {
    /// Prepares to sleep until something is there: see [`wait`](super).
    pub(crate) fn lie_down(&self, awaited: &impl Awaited) -> Outlook<'_> {
        // Most of what there may be to do is found without asking anybody to wake anybody.
        awaited.progress();
        if awaited.is_there() {
            return Outlook::Enough;
        }
        let Some(sleeper) = self.prepare(|| awaited.arm()) else { return Outlook::Busy };
        if awaited.is_there() {
            self.doorbell().ring();
            return Outlook::Enough;
        }
        Outlook::Quiet(sleeper)
    }
}

impl Wait {
    /// Whether the application may sleep by itself until something is there. If not, it may be there.
    pub(crate) fn try_wait(&self, awaited: &impl Awaited) -> bool {
        if let Some(membership) = &self.membership {
            return membership.try_wait();
        }
        let is_quiet = self.prospect(awaited) == Prospect::Quiet;
        if is_quiet && let Some(watcher) = self.watcher.get() {
            watcher.attend();
        }
        is_quiet
    }

    /// Prepares for a sleep of the application's until something is there: see [`wait`](super).
    fn prospect(&self, awaited: &dyn Awaited) -> Prospect {
        awaited.progress();
        if self.is_told(awaited) {
            return Prospect::Something;
        }
        if !self.arm(awaited) {
            return Prospect::Busy;
        }
        if self.is_told(awaited) {
            self.disarm();
            return Prospect::Something;
        }
        Prospect::Quiet
    }

    /// Arms what wakes an application that sleeps by itself. Whether there is such, and it will: whoever has nothing to sleep on
    /// goes on polling.
    pub(super) fn arm(&self, awaited: &dyn Awaited) -> bool {
        self.bed().is_some_and(|bed| bed.prepare_application(|| awaited.arm()))
    }

    /// Nobody is going to sleep, or not any more.
    pub(super) fn disarm(&self) {
        if let Some(doorbell) = self.bed().and_then(Bed::applications_doorbell) {
            doorbell.ring();
        }
    }

    /// Whether there is something to tell the application, which is told of it.
    pub(super) fn is_told(&self, awaited: &dyn Awaited) -> bool {
        let Some(membership) = &self.membership else {
            let is_there = awaited.is_there();
            if is_there {
                awaited.tell();
            }
            return is_there;
        };
        // Of a member nobody waits but through its set, so that is whom a signal is for.
        let is_told = awaited.is_there() || self.signals.is_pending();
        if is_told {
            // First, so that nobody finds that it was told and does not find this.
            membership.end_waits();
            awaited.tell();
            self.signals.take_pending();
        }
        is_told
    }
}

/// Waits until something is there, for ever if there is no timeout. Who has nothing to sleep on yields the processor between
/// looks. Returns whether it is there.
pub(crate) fn wait_until(wait: Option<&Wait>, awaited: &impl Awaited, timeout: Option<Duration>) -> bool {
    // A timeout too long for the clock is no timeout.
    let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    let bed = wait.and_then(Wait::bed);
    loop {
        let outlook = match bed {
            Some(bed) => bed.lie_down(awaited),
            None => {
                awaited.progress();
                if awaited.is_there() { Outlook::Enough } else { Outlook::Busy }
            }
        };
        if matches!(outlook, Outlook::Enough) {
            return true;
        }
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        if left == Some(Duration::ZERO) {
            return false;
        }
        match outlook {
            Outlook::Quiet(sleeper) => sleeper.sleep(left),
            Outlook::Enough | Outlook::Busy => yield_now(),
        }
    }
}
