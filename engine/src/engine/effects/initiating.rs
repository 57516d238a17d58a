//! What carries out the effects of an engine's initiator.

use super::super::Engine;
use crate::completion::{Completion, Failure, Sink, WorkEnd};
use crate::flags::CounterEvents;
use crate::initiator::{Initiator, InitiatorEffects};
use crate::peers::Peers;

/// The sink of an engine, while its initiator is at work.
#[derive(Debug)]
pub(in super::super) struct InitiatorCarrier<'a, S> {
    peers: &'a Peers,
    sink: &'a mut S,
}

impl Engine {
    /// The initiator, and what carries out its effects.
    #[inline(always)]
    pub(in super::super) fn initiating<'a, S: Sink>(
        &'a mut self,
        sink: &'a mut S,
    ) -> (&'a mut Initiator, InitiatorCarrier<'a, S>) {
        (&mut self.initiator, InitiatorCarrier { peers: &self.peers, sink })
    }
}

impl<S: Sink> InitiatorEffects for InitiatorCarrier<'_, S> {
    #[inline(always)]
    fn complete(&mut self, completion: Completion) -> Result<(), Completion> {
        self.sink.complete(completion, self.peers)
    }

    fn fail(&mut self, failure: Failure) -> Result<(), Failure> {
        self.sink.fail(failure, self.peers)
    }

    #[inline(always)]
    fn counts(&self) -> bool {
        self.sink.counts()
    }

    #[inline(always)]
    fn count(&mut self, events: CounterEvents) {
        self.sink.count(events);
    }

    fn count_error(&mut self, events: CounterEvents) {
        self.sink.count_error(events);
    }

    #[cold]
    fn work_ended(&mut self, number: u64, has_succeeded: bool) -> WorkEnd {
        self.sink.work_ended(number, has_succeeded)
    }
}
