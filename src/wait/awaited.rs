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
        awaited.progress();
        if awaited.is_there() {
            return false;
        }
        // Whoever has nothing to sleep on is told to go on polling.
        let prepared = self.bed().and_then(|bed| bed.prepare_application(|| awaited.arm()));
        let Some(doorbell) = prepared else { return false };
        if awaited.is_there() {
            doorbell.ring();
            return false;
        }
        self.attend();
        true
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
