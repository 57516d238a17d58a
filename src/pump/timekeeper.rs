//! Advances the time of an engine, without a look at the clock in every pass.

use homespun_engine::completion::Sink;
use homespun_engine::engine::Engine;
use homespun_engine::moment::Moment;
use homespun_engine::transport::Armed;

use crate::clock::Clock;

/// The number of passes between two readings of the clock while a time limit runs.
const PASSES_PER_LOOK: u32 = 16;

/// Reads the clock for one engine.
pub(super) struct Timekeeper {
    clock: Clock,
    /// How many passes go by before the next look.
    passes_to_look: u32,
    /// When the threads that sleep look again by themselves.
    alarm: Option<Moment>,
}

impl Timekeeper {
    pub(super) fn new(clock: Clock) -> Timekeeper {
        Timekeeper { clock, passes_to_look: 0, alarm: None }
    }

    pub(super) fn clock(&self) -> &Clock {
        &self.clock
    }

    /// To be called in every pass while something [may time out](Engine::awaits_timeout), when the
    /// transport has received.
    #[cold]
    #[inline(never)]
    pub(super) fn count_pass_or_advance(&mut self, engine: &mut Engine, sink: &mut impl Sink) {
        if self.passes_to_look == 0 {
            self.advance_engine_time(engine, sink);
        } else {
            self.passes_to_look -= 1;
        }
    }

    /// Has the next pass look at the clock.
    pub(super) fn check_clock_next_pass(&mut self) {
        self.passes_to_look = 0;
    }

    /// Advances the engine's time. A pass must have come before.
    pub(super) fn advance_engine_time(&mut self, engine: &mut Engine, sink: &mut impl Sink) {
        engine.advance_time(self.clock.now(), sink);
        self.passes_to_look = if engine.awaits_timeout() { PASSES_PER_LOOK - 1 } else { 0 };
    }

    /// Called before a thread sleeps for as long as `armed` allows. Shortens that to the time when the
    /// next time-out is due.
    pub(super) fn set_alarm(&mut self, armed: Armed, engine: &Engine) -> Armed {
        self.alarm = engine.next_deadline();
        match self.alarm {
            Some(deadline) => armed.look_again_within(deadline.saturating_duration_since(self.clock.now())),
            None => armed,
        }
    }

    /// Whether a thread that went to sleep some time ago looks again before the next time-out is due.
    pub(super) fn has_alarm_for(&self, engine: &Engine) -> bool {
        let Some(deadline) = engine.next_deadline() else { return true };
        self.alarm.is_some_and(|alarm| alarm <= deadline)
    }
}

#[cfg(test)]
mod tests;
