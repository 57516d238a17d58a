//! Passes of a simulated endpoint.

use homespun_engine::transport::Transport;

use super::duties::{Duties, Purpose};
use super::{Pump, State};
use crate::clock::{Clock, since_origin};
use crate::simulation::{SimulatedEndpoint, SimulatedPass};

impl<T: Transport> SimulatedEndpoint for Pump<T> {
    fn pass(&self) -> Option<SimulatedPass> {
        // The guard carries out the duties when it is dropped.
        let mut endpoint = self.try_lock_for_purpose(Purpose::Step)?;
        let Some(state) = endpoint.guard.as_mut() else {
            // The endpoint is closed, or is being closed by a thread that makes its passes.
            return Some(SimulatedPass { is_busy: false, next_timeout: None });
        };
        state.timekeeper.make_next_pass_read_clock();
        let received = state.pass_without_reader();
        // As in a pass of the progress thread: the application of this endpoint does not run meanwhile.
        state.engine.end_fetch_delays();
        state.duties.insert(Duties::TELL_SIMULATION);
        Some(SimulatedPass {
            is_busy: received > 0 || state.engine.has_work_without_arrivals(),
            next_timeout: state.engine.next_deadline().map(since_origin),
        })
    }
}

impl<T: Transport> State<T> {
    /// Tells the simulation that a call has used the endpoint, so that the next round passes it.
    pub(super) fn tell_simulation(&mut self) {
        self.duties.remove(Duties::TELL_SIMULATION);
        if let Clock::Simulation(simulation) = self.timekeeper.clock() {
            simulation.wake(self.transport.address());
        }
    }
}
