//! The sleeping threads that rely on the transport of an endpoint to wake them.

use crate::endpoint_pump::Bindings;
use crate::wait::Waiter;

impl Bindings {
    /// Returns the waiters of the queues and counters that are bound to this endpoint.
    fn waiters(&self) -> impl Iterator<Item = &Waiter> {
        let queues = self.transmit_cq.iter().chain(&self.receive_cq).filter_map(|cq| cq.waiter());
        let events = self.reporter.iter().filter_map(|reporter| reporter.waiter());
        queues.chain(events).chain(self.counters.iter().filter_map(|counter| counter.waiter()))
    }

    /// Whether a thread may sleep until the transport wakes it: the progress thread, or in a domain without
    /// one, a thread that waits for a queue or a counter.
    pub(super) fn has_sleepers(&self) -> bool {
        match &self.progress_doorbell {
            Some(doorbell) => doorbell.is_armed(),
            None => {
                self.waiters().any(Waiter::is_armed)
                    || self.domain_counters.as_ref().is_some_and(|counters| counters.has_sleepers())
            }
        }
    }

    /// Wakes the threads that rely on the transport.
    pub(super) fn wake_sleepers(&self) {
        match &self.progress_doorbell {
            Some(doorbell) => doorbell.ring(),
            None => {
                self.waiters().for_each(Waiter::ring);
                self.domain_counters.iter().for_each(|counters| counters.wake_sleepers());
            }
        }
    }
}
