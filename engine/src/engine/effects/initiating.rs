//! Carries out the effects that an engine's initiator asks for.

use super::super::Engine;
use crate::completion::{EndedOperation, FailedOperation, Sink, WorkEnd};
use crate::flags::CounterEvents;
use crate::initiator::{Initiator, InitiatorEffects};
use crate::peers::Peers;

/// An engine's sink, which carries out the effects of its initiator.
#[derive(Debug)]
pub(in super::super) struct InitiatorCarrier<'a, S> {
    peers: &'a Peers,
    sink: &'a mut S,
}

impl Engine {
    /// Returns the initiator, and the value that carries out its effects.
    #[inline(always)]
    pub(in super::super) fn initiator_and_effects<'a, S: Sink>(
        &'a mut self,
        sink: &'a mut S,
    ) -> (&'a mut Initiator, InitiatorCarrier<'a, S>) {
        (&mut self.initiator, InitiatorCarrier { peers: &self.peers, sink })
    }
}

impl<S: Sink> InitiatorEffects for InitiatorCarrier<'_, S> {
    #[inline(always)]
    fn complete(&mut self, completion: EndedOperation) -> Result<(), EndedOperation> {
        self.sink.complete(completion, self.peers)
    }

    fn fail(&mut self, failure: FailedOperation) -> Result<(), FailedOperation> {
        self.sink.fail(failure, self.peers)
    }

    #[inline(always)]
    fn has_counters(&self) -> bool {
        self.sink.has_counters()
    }

    #[inline(always)]
    fn count(&mut self, events: CounterEvents) {
        self.sink.count(events);
    }

    fn count_error(&mut self, events: CounterEvents) {
        self.sink.count_error(events);
    }

    #[cold]
    fn record_deferred_work_end(&mut self, number: u64, has_succeeded: bool) -> WorkEnd {
        self.sink.record_deferred_work_end(number, has_succeeded)
    }
}
