//! Waits in a simulation: they take simulated time, and drive all its endpoints.

use std::time::Duration;

use super::awaited::Awaited;
use super::error::WaitError;
use crate::simulation::{Simulation, Step};

/// Repeats an attempt until it succeeds, the timeout ends, or nothing more can happen. Until the event, it
/// drives all endpoints of the simulation, and moves the clock from event to event.
///
/// # Errors
///
/// [`WaitError::TimedOut`], [`WaitError::Deadlock`].
pub(super) fn wait<R>(
    simulation: &Simulation,
    timeout: Option<Duration>,
    awaited: &impl Awaited,
    mut attempt: impl FnMut() -> Option<R>,
) -> Result<R, WaitError> {
    if timeout == Some(Duration::ZERO) {
        return Err(WaitError::TimedOut);
    }
    let end = timeout.map(|timeout| simulation.elapsed().saturating_add(timeout));
    // The attempt makes a pass of its own, and each pass outside the rounds makes another round due.
    let mut is_ready = true;
    loop {
        if is_ready && let Some(found) = attempt() {
            return Ok(found);
        }
        match simulation.step(end) {
            Step::Moved => is_ready = awaited.poll_ready(),
            Step::Ended => return Err(WaitError::TimedOut),
            Step::Idle => return Err(WaitError::Deadlock),
        }
    }
}
