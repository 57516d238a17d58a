//! Random numbers, from the system.

use homespun_engine::error::{Error, SystemRequest};

use crate::clock::Clock;

/// Returns 64 random bits, which no peer can guess. In a simulation they come from its seed.
pub(crate) fn draw_u64(clock: &Clock) -> Result<u64, Error> {
    #[cfg(feature = "simulator")]
    if let Clock::Simulation(simulation) = clock {
        return Ok(simulation.draw_u64());
    }
    let _ = clock;
    getrandom::u64().map_err(|error| SystemRequest::RandomNumber.refused(error))
}
