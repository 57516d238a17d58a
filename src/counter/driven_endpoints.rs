//! The endpoints that a counter drives.

use std::sync::Arc;

use bitflags::bitflags;
use homespun_engine::error::Error;
use homespun_engine::transport::Armed;
use parking_lot::Mutex;

use super::CounterShared;
use crate::drive::Drive;
use crate::driven::Driven;

bitflags! {
    /// Why an endpoint is driven.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(crate) struct DriveReason: u8 {
        /// It is bound to the counter.
        const BOUND = 1 << 0;
        /// The counter drives all endpoints of its domain that can be targets, or have works.
        const DOMAIN = 1 << 1;
    }
}

/// The endpoints that a counter drives, each once, however many reasons there are for it.
#[derive(Default)]
pub(super) struct DrivenEndpoints {
    driven: Driven,
    known: Mutex<Vec<DrivenEndpoint>>,
}

struct DrivenEndpoint {
    endpoint: Arc<dyn Drive>,
    reasons: DriveReason,
}

impl DrivenEndpoints {
    /// Makes progress at all of them.
    #[inline]
    pub(super) fn progress(&self) {
        self.driven.progress_without_reader();
    }

    /// Carries out the works that are due.
    pub(super) fn fire_due_works(&self) {
        self.driven.fire_due_works();
    }

    /// Arms all of them, for a thread that is about to sleep.
    pub(super) fn arm(&self) -> Armed {
        self.driven.arm()
    }

    /// How many there are.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.known.lock().len()
    }
}

impl CounterShared {
    /// Wakes sleepers for this endpoint, before any counter drives it; not where a thread moves it on.
    ///
    /// # Errors
    ///
    /// What the system says: ENOMEM, ENOSPC.
    pub(crate) fn watch_endpoint(
        &self,
        endpoint: &Arc<dyn Drive>,
        reason: DriveReason,
        by_itself: bool,
    ) -> Result<(), Error> {
        let mut known = self.ties.known.lock();
        if let Some(tie) = known.iter_mut().find(|tie| Arc::ptr_eq(&tie.endpoint, endpoint)) {
            tie.reasons |= reason;
            return Ok(());
        }
        if let Some(waiter) = &self.waiter
            && !by_itself
        {
            waiter.watch_endpoint(&**endpoint)?;
        }
        known.push(DrivenEndpoint { endpoint: endpoint.clone(), reasons: reason });
        Ok(())
    }

    /// Drives this endpoint from now on, which is watched and enabled.
    pub(crate) fn drive_endpoint(&self, endpoint: &Arc<dyn Drive>) {
        let _known = self.ties.known.lock();
        self.ties.driven.add(endpoint.clone());
        self.fence_and_wake();
    }

    /// Undoes [`watch`](Self::watch) and [`join`](Self::join), unless there is another reason to drive it.
    pub(crate) fn forget_endpoint(&self, endpoint: &Arc<dyn Drive>, reason: DriveReason) {
        let mut known = self.ties.known.lock();
        let Some(place) = known.iter().position(|tie| Arc::ptr_eq(&tie.endpoint, endpoint)) else { return };
        known[place].reasons -= reason;
        if known[place].reasons.is_empty() {
            if let Some(waiter) = &self.waiter {
                waiter.unwatch_endpoint(&**endpoint);
            }
            known.swap_remove(place);
            self.ties.driven.remove(endpoint);
        }
    }
}
