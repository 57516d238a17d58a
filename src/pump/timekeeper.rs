//! Advances the time of an engine, without reading the clock in every pass.

use homespun_engine::completion::Sink;
use homespun_engine::engine::Engine;
use homespun_engine::moment::Moment;
use homespun_engine::transport::Armed;

use crate::clock::Clock;

/// The number of passes between two readings of the clock while a time limit runs.
const PASSES_PER_LOOK: u32 = 16;

/// Reads the clock for an engine.
pub(super) struct Timekeeper {
    clock: Clock,
    /// The number of passes until the next reading of the clock.
    passes_to_look: u32,
    /// The time at which sleeping threads check again without being woken.
    alarm: Option<Moment>,
}

impl Timekeeper {
    pub(super) fn new(clock: Clock) -> Timekeeper {
        Timekeeper { clock, passes_to_look: 0, alarm: None }
    }

    pub(super) fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Counts a pass, and advances the engine's time in one of [`PASSES_PER_LOOK`] passes, or in each if a
    /// short timeout runs. While an
    /// [operation may time out](Engine::awaits_timeout), every pass calls this after the transport has
    /// received.
    #[cold]
    #[inline(never)]
    pub(super) fn count_pass_or_advance_time(&mut self, engine: &mut Engine, sink: &mut impl Sink) {
        if self.passes_to_look == 0 {
            self.advance_engine_time(engine, sink);
        } else {
            self.passes_to_look -= 1;
        }
    }

    /// Makes the next pass read the clock.
    pub(super) fn make_next_pass_read_clock(&mut self) {
        self.passes_to_look = 0;
    }

    /// Advances the engine's time. The caller must have made a pass before.
    pub(super) fn advance_engine_time(&mut self, engine: &mut Engine, sink: &mut impl Sink) {
        engine.advance_time(self.clock.now(), sink);
        let may_skip_looks = engine.awaits_timeout() && !engine.awaits_short_timeout();
        self.passes_to_look = if may_skip_looks { PASSES_PER_LOOK - 1 } else { 0 };
    }

    /// Records the next timeout. Returns `armed`, shortened so that the thread checks again at the timeout.
    /// A thread calls this before it sleeps for as long as the result allows.
    pub(super) fn limit_sleep_to_next_timeout(&mut self, armed: Armed, engine: &Engine) -> Armed {
        self.alarm = engine.next_deadline();
        match self.alarm {
            Some(deadline) => armed.look_again_within(deadline.saturating_duration_since(self.clock.now())),
            None => armed,
        }
    }

    /// Whether the threads that sleep now will check again by the next timeout.
    pub(super) fn will_sleepers_check_before_timeout(&self, engine: &Engine) -> bool {
        let Some(deadline) = engine.next_deadline() else { return true };
        self.alarm.is_some_and(|alarm| alarm <= deadline)
    }
}

#[cfg(test)]
mod tests;
