//! The counters that drive all endpoints of a domain that can be targets, or have works: those of
//! memory regions, which peers access through any endpoint, and those that works depend on.

use std::sync::Arc;

use homespun_engine::error::Error;
use parking_lot::Mutex;

use super::{CounterShared, DriveReason};
use crate::drive::Drive;
use crate::wait::Waiter;

/// The counters of a domain that regions are bound to or works depend on, and the endpoints that they drive.
#[derive(Default)]
pub(crate) struct DomainCounters {
    /// Whether endpoints are moved on by a thread.
    by_itself: bool,
    members: Mutex<Members>,
    /// The same counters, for endpoints that are locked. This is an innermost lock.
    waited_for: Mutex<Vec<Arc<CounterShared>>>,
}

#[derive(Default)]
struct Members {
    counters: Vec<Member>,
    endpoints: Vec<Arc<dyn Drive>>,
}

struct Member {
    counter: Arc<CounterShared>,
    /// How many regions are bound to it, and one for its works.
    reasons: usize,
}

impl DomainCounters {
    pub(crate) fn new(by_itself: bool) -> DomainCounters {
        DomainCounters { by_itself, ..DomainCounters::default() }
    }

    /// A region is bound to a counter, or works depend on it.
    ///
    /// # Errors
    ///
    /// What the system says, where an endpoint cannot wake sleepers: ENOMEM, ENOSPC.
    pub(crate) fn add(&self, counter: &Arc<CounterShared>) -> Result<(), Error> {
        let Members { counters, endpoints } = &mut *self.members.lock();
        if let Some(known) = counters.iter_mut().find(|known| Arc::ptr_eq(&known.counter, counter)) {
            known.reasons += 1;
            return Ok(());
        }
        let watched = endpoints
            .iter()
            .try_for_each(|endpoint| counter.watch_endpoint(endpoint, DriveReason::DOMAIN, self.by_itself));
        if watched.is_err() {
            endpoints.iter().for_each(|endpoint| counter.forget_endpoint(endpoint, DriveReason::DOMAIN));
            return watched;
        }
        self.waited_for.lock().push(counter.clone());
        endpoints.iter().for_each(|endpoint| counter.drive_endpoint(endpoint));
        counters.push(Member { counter: counter.clone(), reasons: 1 });
        Ok(())
    }

    /// Undoes [`add`](Self::add).
    pub(crate) fn remove(&self, counter: &Arc<CounterShared>) {
        let Members { counters, endpoints } = &mut *self.members.lock();
        let place = counters.iter().position(|known| Arc::ptr_eq(&known.counter, counter));
        let Some(place) = place else { return };
        counters[place].reasons -= 1;
        if counters[place].reasons == 0 {
            counters.swap_remove(place);
            self.waited_for.lock().retain(|known| !Arc::ptr_eq(known, counter));
            endpoints.iter().for_each(|endpoint| counter.forget_endpoint(endpoint, DriveReason::DOMAIN));
        }
    }

    /// Takes an endpoint into service, as `enable` does it, and has it driven from then on.
    ///
    /// # Errors
    ///
    /// What the system says, where it cannot wake sleepers: ENOMEM, ENOSPC; and what `enable` says.
    pub(crate) fn enable_endpoint(
        &self,
        endpoint: &Arc<dyn Drive>,
        enable: impl FnOnce() -> Result<(), Error>,
    ) -> Result<(), Error> {
        // Held all the while, so that no counter is missed.
        let Members { counters, endpoints } = &mut *self.members.lock();
        counters.iter().try_for_each(|known| {
            known.counter.watch_endpoint(endpoint, DriveReason::DOMAIN, self.by_itself)
        })?;
        enable()?;
        counters.iter().for_each(|known| known.counter.drive_endpoint(endpoint));
        endpoints.push(endpoint.clone());
        Ok(())
    }

    /// Lets go of an endpoint.
    pub(crate) fn forget_endpoint(&self, endpoint: &Arc<dyn Drive>) {
        let Members { counters, endpoints } = &mut *self.members.lock();
        counters.iter().for_each(|known| known.counter.forget_endpoint(endpoint, DriveReason::DOMAIN));
        endpoints.retain(|known| !Arc::ptr_eq(known, endpoint));
    }

    /// Whether a thread may be asleep that waits for one of the counters.
    pub(crate) fn has_sleepers(&self) -> bool {
        self.waited_for.lock().iter().filter_map(|counter| counter.waiter()).any(Waiter::is_armed)
    }

    /// Wakes them.
    pub(crate) fn wake_sleepers(&self) {
        self.waited_for.lock().iter().filter_map(|counter| counter.waiter()).for_each(Waiter::ring);
    }
}
