//! Passes of a simulated endpoint.

use homespun_engine::transport::Transport;

use super::Pump;
use crate::clock::since_origin;
use crate::simulation::{SimulatedEndpoint, SimulatedPass};

impl<T: Transport> SimulatedEndpoint for Pump<T> {
    fn pass(&self) -> SimulatedPass {
        // The guard carries out the duties when it is dropped.
        let Some(mut endpoint) = self.try_lock_for_poll() else { return SimulatedPass::default() };
        let Some(state) = endpoint.guard.as_mut() else { return SimulatedPass::default() };
        state.timekeeper.make_next_pass_read_clock();
        let received = state.pass_without_reader();
        // As in a pass of the progress thread: the application of this endpoint does not run meanwhile.
        state.engine.end_fetch_delays();
        SimulatedPass {
            is_busy: received > 0 || state.engine.has_work_without_arrivals(),
            next_timeout: state.engine.next_deadline().map(since_origin),
        }
    }
}
