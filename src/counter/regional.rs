//! The counters of a domain's memory regions. Peers access a region through any endpoint of its domain, so each endpoint is
//! driven by each of these counters.

use std::sync::Arc;

use homespun_engine::error::Error;
use parking_lot::Mutex;

use super::{Reason, Shared};
use crate::drive::Drive;
use crate::wait::Waiter;

/// The counters that regions of a domain are bound to, and the endpoints that are in service.
#[derive(Default)]
pub(crate) struct RegionalCounters {
    /// Whether endpoints are moved on by a thread.
    by_itself: bool,
    members: Mutex<Members>,
    /// The same counters, for endpoints that are locked: nothing else is locked while this is.
    waited_for: Mutex<Vec<Arc<Shared>>>,
}

#[derive(Default)]
struct Members {
    counters: Vec<Regional>,
    endpoints: Vec<Arc<dyn Drive>>,
}

struct Regional {
    counter: Arc<Shared>,
    /// How many regions are bound to it.
    regions: usize,
}

impl RegionalCounters {
    pub(crate) fn new(by_itself: bool) -> RegionalCounters {
        RegionalCounters { by_itself, ..RegionalCounters::default() }
    }

    /// A region is bound to a counter.
    ///
    /// # Errors
    ///
    /// What the system says, where an endpoint cannot wake sleepers: ENOMEM, ENOSPC.
    pub(crate) fn add(&self, counter: &Arc<Shared>) -> Result<(), Error> {
        let Members { counters, endpoints } = &mut *self.members.lock();
        if let Some(known) = counters.iter_mut().find(|known| Arc::ptr_eq(&known.counter, counter)) {
            known.regions += 1;
            return Ok(());
        }
        let watched =
            endpoints.iter().try_for_each(|endpoint| counter.watch(endpoint, Reason::REGION, self.by_itself));
        if watched.is_err() {
            endpoints.iter().for_each(|endpoint| counter.leave(endpoint, Reason::REGION));
            return watched;
        }
        self.waited_for.lock().push(counter.clone());
        endpoints.iter().for_each(|endpoint| counter.join(endpoint));
        counters.push(Regional { counter: counter.clone(), regions: 1 });
        Ok(())
    }

    /// Undoes [`add`](Self::add).
    pub(crate) fn remove(&self, counter: &Arc<Shared>) {
        let Members { counters, endpoints } = &mut *self.members.lock();
        let place = counters.iter().position(|known| Arc::ptr_eq(&known.counter, counter));
        let Some(place) = place else { return };
        counters[place].regions -= 1;
        if counters[place].regions == 0 {
            counters.swap_remove(place);
            self.waited_for.lock().retain(|known| !Arc::ptr_eq(known, counter));
            endpoints.iter().for_each(|endpoint| counter.leave(endpoint, Reason::REGION));
        }
    }

    /// Takes an endpoint into service, as `enable` does it, and has it driven from then on.
    ///
    /// # Errors
    ///
    /// What the system says, where it cannot wake sleepers: ENOMEM, ENOSPC; and what `enable` says.
    pub(crate) fn enable(
        &self,
        endpoint: &Arc<dyn Drive>,
        enable: impl FnOnce() -> Result<(), Error>,
    ) -> Result<(), Error> {
        // Held all the while, so that no counter is missed.
        let Members { counters, endpoints } = &mut *self.members.lock();
        counters
            .iter()
            .try_for_each(|known| known.counter.watch(endpoint, Reason::REGION, self.by_itself))?;
        enable()?;
        counters.iter().for_each(|known| known.counter.join(endpoint));
        endpoints.push(endpoint.clone());
        Ok(())
    }

    /// Lets go of an endpoint.
    pub(crate) fn forget(&self, endpoint: &Arc<dyn Drive>) {
        let Members { counters, endpoints } = &mut *self.members.lock();
        counters.iter().for_each(|known| known.counter.leave(endpoint, Reason::REGION));
        endpoints.retain(|known| !Arc::ptr_eq(known, endpoint));
    }

    /// Whether a thread may be asleep that waits for one of the counters.
    pub(crate) fn have_sleepers(&self) -> bool {
        self.waited_for.lock().iter().filter_map(|counter| counter.waiter()).any(Waiter::is_armed)
    }

    /// Wakes them.
    pub(crate) fn wake(&self) {
        self.waited_for.lock().iter().filter_map(|counter| counter.waiter()).for_each(Waiter::ring);
    }
}
