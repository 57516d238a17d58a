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
    /// The reasons to drive an endpoint.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(crate) struct DriveReason: u8 {
        /// The endpoint is bound to the counter.
        const BOUND = 1 << 0;
        /// Regions are bound to the counter, or works depend on the counter. So the counter drives all
        /// endpoints of its domain that have `RMA_EVENT` or `TRIGGER`.
        const DOMAIN = 1 << 1;
    }
}

/// The endpoints that a counter drives, each listed once with all its reasons.
#[derive(Default)]
pub(super) struct DrivenEndpoints {
    driven: Driven,
    known: Mutex<Vec<DrivenEndpoint>>,
}

struct DrivenEndpoint {
    endpoint: Arc<dyn Drive>,
    reasons: DriveReason,
    /// Whether events of the endpoint wake threads that sleep on the counter. If not, the progress thread
    /// wakes them.
    is_wake_source: bool,
}

impl DrivenEndpoints {
    /// Makes progress at all endpoints.
    #[inline]
    pub(super) fn progress(&self) {
        self.driven.progress_without_reader();
    }

    /// Records that a poll has found something new.
    #[inline]
    pub(super) fn end_wait(&self) {
        self.driven.end_wait();
    }

    /// Counts a poll that has found nothing new. `is_ready` tells whether the next one would.
    #[inline]
    pub(super) fn count_empty_poll(&self, is_ready: &dyn Fn() -> bool) {
        self.driven.count_empty_poll(is_ready);
    }

    /// Runs the due works.
    pub(super) fn fire_due_works(&self) {
        self.driven.fire_due_works();
    }

    /// Arms all endpoints, for a thread that is about to sleep.
    pub(super) fn arm(&self) -> Armed {
        self.driven.arm()
    }

    /// Returns the number of endpoints.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.known.lock().len()
    }
}

impl CounterShared {
    /// Records that the counter drives this endpoint for this reason. From now on, events of the endpoint
    /// wake threads that sleep on the counter. If a progress thread drives the endpoint, the progress
    /// thread wakes them instead. Call this before [`add_endpoint`](Self::add_endpoint).
    ///
    /// # Errors
    ///
    /// The system's error: ENOMEM, ENOSPC.
    pub(crate) fn add_wake_source(
        &self,
        endpoint: &Arc<dyn Drive>,
        reason: DriveReason,
        has_progress_thread: bool,
    ) -> Result<(), Error> {
        let mut known = self.driven_endpoints.known.lock();
        if let Some(tie) = known.iter_mut().find(|tie| Arc::ptr_eq(&tie.endpoint, endpoint)) {
            tie.reasons |= reason;
            return Ok(());
        }
        if let Some(waiter) = &self.waiter
            && !has_progress_thread
        {
            waiter.add_wake_source(&**endpoint)?;
        }
        let is_wake_source = !has_progress_thread;
        known.push(DrivenEndpoint { endpoint: endpoint.clone(), reasons: reason, is_wake_source });
        Ok(())
    }

    /// Makes the counter drive an endpoint. Before that, call [`add_wake_source`](Self::add_wake_source)
    /// and enable the endpoint.
    pub(crate) fn add_endpoint(&self, endpoint: &Arc<dyn Drive>) {
        let _known = self.driven_endpoints.known.lock();
        self.driven_endpoints.driven.add(endpoint.clone());
        self.fence_and_wake_sleepers();
    }

    /// Removes a reason to drive an endpoint. If it was the last reason, the endpoint no longer wakes
    /// sleepers, and the counter no longer drives it. An exception is the first endpoint that was added:
    /// the counter drives it until it closes.
    pub(crate) fn remove_drive_reason(&self, endpoint: &Arc<dyn Drive>, reason: DriveReason) {
        let mut known = self.driven_endpoints.known.lock();
        let Some(place) = known.iter().position(|tie| Arc::ptr_eq(&tie.endpoint, endpoint)) else { return };
        known[place].reasons -= reason;
        if known[place].reasons.is_empty() {
            if let Some(waiter) = &self.waiter
                && known[place].is_wake_source
            {
                waiter.remove_wake_source(&**endpoint);
            }
            known.swap_remove(place);
            self.driven_endpoints.driven.remove_unless_first(endpoint);
        }
    }
}
