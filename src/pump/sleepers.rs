//! Those who rely on the transport of an endpoint to wake them.

use super::Wiring;
use crate::wait::Wait;

impl Wiring {
    /// What those are woken by who sleep until a queue or a counter of this endpoint has something to tell. Those who wait for
    /// what happens to regions are not among them.
    fn sleepers(&self) -> impl Iterator<Item = &Wait> {
        let queues = self.transmit_cq.iter().chain(&self.receive_cq).filter_map(|cq| cq.sleepers());
        let events = self.reporter.iter().filter_map(|reporter| reporter.sleepers());
        queues.chain(events).chain(self.counters.iter().filter_map(|counter| counter.sleepers()))
    }

    /// Whether anybody may be asleep who relies on the transport to wake them: the progress thread, or if there is none, those
    /// who wait for what it would do.
    pub(super) fn has_sleepers(&self) -> bool {
        match &self.progress_doorbell {
            Some(doorbell) => doorbell.is_armed(),
            None => {
                self.sleepers().any(Wait::is_armed)
                    || self.regional_counters.as_ref().is_some_and(|counters| counters.have_sleepers())
            }
        }
    }

    /// Wakes them.
    pub(super) fn wake_sleepers(&self) {
        match &self.progress_doorbell {
            Some(doorbell) => doorbell.ring(),
            None => {
                self.sleepers().for_each(Wait::ring);
                self.regional_counters.iter().for_each(|counters| counters.wake());
            }
        }
    }
}
