//! The counters of a domain to which memory regions are bound, or on which works depend. A peer may access
//! a region through any endpoint of the domain. So these counters drive all endpoints of the domain that
//! may count accesses by peers (`RMA_EVENT`) or may have works (`TRIGGER`).

use std::sync::Arc;

use homespun_engine::error::Error;
use parking_lot::Mutex;

use super::{CounterShared, DriveReason};
use crate::drive::Drive;
use crate::wait::Waiter;

/// The counters of one domain to which regions are bound, or on which works depend; and the endpoints that
/// these counters drive.
#[derive(Default)]
pub(crate) struct DomainCounters {
    members: Mutex<CountersAndEndpoints>,
    /// The counters of `members` again, for a caller that has an endpoint locked. The order of locks allows
    /// this caller to lock this list, but not `members`.
    sleeper_counters: Mutex<Vec<Arc<CounterShared>>>,
}

#[derive(Default)]
struct CountersAndEndpoints {
    counters: Vec<UsedCounter>,
    endpoints: Vec<CountingEndpoint>,
}

/// An endpoint that the counters drive.
struct CountingEndpoint {
    endpoint: Arc<dyn Drive>,
    /// Whether the progress thread drives it, too. In one domain it may drive some endpoints and others not.
    has_progress_thread: bool,
}

struct UsedCounter {
    counter: Arc<CounterShared>,
    /// The number of regions bound to the counter, plus 1 if works depend on it.
    uses: usize,
}

impl DomainCounters {
    /// Adds a use of a counter: a region was bound to it, or a work depends on it. The counter drives the
    /// endpoints from its first use on.
    ///
    /// # Errors
    ///
    /// The system's error if an endpoint cannot wake sleepers: ENOMEM, ENOSPC.
    pub(crate) fn add_counter_use(&self, counter: &Arc<CounterShared>) -> Result<(), Error> {
        let CountersAndEndpoints { counters, endpoints } = &mut *self.members.lock();
        if let Some(known) = counters.iter_mut().find(|known| Arc::ptr_eq(&known.counter, counter)) {
            known.uses += 1;
            return Ok(());
        }
        let watched = endpoints.iter().try_for_each(|CountingEndpoint { endpoint, has_progress_thread }| {
            counter.add_wake_source(endpoint, DriveReason::DOMAIN, *has_progress_thread)
        });
        let endpoints = endpoints.iter().map(|counting| &counting.endpoint);
        if watched.is_err() {
            endpoints.for_each(|endpoint| counter.remove_drive_reason(endpoint, DriveReason::DOMAIN));
            return watched;
        }
        self.sleeper_counters.lock().push(counter.clone());
        endpoints.for_each(|endpoint| counter.add_endpoint(endpoint));
        counters.push(UsedCounter { counter: counter.clone(), uses: 1 });
        Ok(())
    }

    /// Undoes one [`add_counter_use`](Self::add_counter_use). After the last use, the counter no longer
    /// drives the endpoints.
    pub(crate) fn remove_counter_use(&self, counter: &Arc<CounterShared>) {
        let CountersAndEndpoints { counters, endpoints } = &mut *self.members.lock();
        let place = counters.iter().position(|known| Arc::ptr_eq(&known.counter, counter));
        let Some(place) = place else { return };
        counters[place].uses -= 1;
        if counters[place].uses == 0 {
            counters.swap_remove(place);
            self.sleeper_counters.lock().retain(|known| !Arc::ptr_eq(known, counter));
            endpoints
                .iter()
                .for_each(|known| counter.remove_drive_reason(&known.endpoint, DriveReason::DOMAIN));
        }
    }

    /// Enables an endpoint by `enable`. The counters drive the endpoint from then on. `has_progress_thread`
    /// says whether the progress thread drives it, too.
    ///
    /// # Errors
    ///
    /// The system's error if the endpoint cannot wake sleepers: ENOMEM, ENOSPC. And the errors of `enable`.
    pub(crate) fn enable_and_add_endpoint(
        &self,
        endpoint: &Arc<dyn Drive>,
        has_progress_thread: bool,
        enable: impl FnOnce() -> Result<(), Error>,
    ) -> Result<(), Error> {
        // Keep the members locked until the end. A counter that was added meanwhile would miss the
        // endpoint.
        let CountersAndEndpoints { counters, endpoints } = &mut *self.members.lock();
        counters.iter().try_for_each(|known| {
            known.counter.add_wake_source(endpoint, DriveReason::DOMAIN, has_progress_thread)
        })?;
        enable()?;
        counters.iter().for_each(|known| known.counter.add_endpoint(endpoint));
        endpoints.push(CountingEndpoint { endpoint: endpoint.clone(), has_progress_thread });
        Ok(())
    }

    /// Removes an endpoint: the counters no longer drive it.
    pub(crate) fn remove_endpoint(&self, endpoint: &Arc<dyn Drive>) {
        let CountersAndEndpoints { counters, endpoints } = &mut *self.members.lock();
        counters.iter().for_each(|known| known.counter.remove_drive_reason(endpoint, DriveReason::DOMAIN));
        endpoints.retain(|known| !Arc::ptr_eq(&known.endpoint, endpoint));
    }

    /// Whether a thread may be asleep on one of the counters.
    pub(crate) fn has_sleepers(&self) -> bool {
        self.sleeper_counters.lock().iter().filter_map(|counter| counter.waiter()).any(Waiter::is_armed)
    }

    /// Wakes the threads that sleep on the counters.
    pub(crate) fn wake_sleepers(&self) {
        self.sleeper_counters.lock().iter().filter_map(|counter| counter.waiter()).for_each(Waiter::ring);
    }
}
