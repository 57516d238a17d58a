//! The counters of an endpoint.

use crate::mutated;
use std::sync::Arc;

use homespun_engine::error::{Error, InUse, Misuse};
use homespun_engine::flags::CounterEvents;

use super::{Counter, CounterShared};

/// The counters that are bound to an endpoint, each with the events that it counts. No event has two
/// counters.
#[derive(Default, Clone)]
pub(crate) struct BoundCounters(Vec<(Arc<CounterShared>, CounterEvents)>);

impl BoundCounters {
    /// Binds a counter for these events. If the counter is bound already, adds the events to its own.
    ///
    /// # Errors
    ///
    /// [`Misuse::Busy`] if a counter counts one of these events already.
    pub(crate) fn bind(&mut self, counter: &Counter, events: CounterEvents) -> Result<(), Error> {
        self.check_events_uncounted(events)?;
        match self.0.iter_mut().find(|(bound, _)| Arc::ptr_eq(bound, counter.shared())) {
            Some((_, counted)) => *counted |= events,
            None => {
                counter.shared().add_binding();
                self.0.push((counter.shared().clone(), events));
            }
        }
        Ok(())
    }

    /// Checks that no counter counts any of these events.
    ///
    /// # Errors
    /// [`Misuse::Busy`] if a counter counts one of them.
    pub(crate) fn check_events_uncounted(&self, events: CounterEvents) -> Result<(), Misuse> {
        let is_single = mutated!("fi_endpoint/counter-bindings") && !self.is_empty();
        if self.counted_events().intersects(events) || is_single {
            return Err(Misuse::Busy(InUse::CounterBound));
        }
        Ok(())
    }

    /// Returns all counted events.
    pub(crate) fn counted_events(&self) -> CounterEvents {
        self.0.iter().fold(CounterEvents::empty(), |all, (_, events)| all | *events)
    }

    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Iterates over the counters, each once.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<CounterShared>> {
        self.0.iter().map(|(counter, _)| counter)
    }

    /// Counts the events of an operation that has succeeded.
    #[cold]
    pub(crate) fn count_success(&self, events: CounterEvents) {
        self.counters_of(events).for_each(CounterShared::count_success);
    }

    /// Counts the events of an operation that has failed.
    #[cold]
    pub(crate) fn count_error(&self, events: CounterEvents) {
        self.counters_of(events).for_each(CounterShared::count_error);
    }

    /// Whether this counter counts some of these events.
    pub(crate) fn has_counter_for(&self, counter: &Arc<CounterShared>, events: CounterEvents) -> bool {
        self.0.iter().any(|(bound, counted)| counted.intersects(events) && Arc::ptr_eq(bound, counter))
    }

    /// Iterates over the counters of these events.
    fn counters_of(&self, events: CounterEvents) -> impl Iterator<Item = &CounterShared> {
        self.0.iter().filter(move |(_, counted)| counted.intersects(events)).map(|(counter, _)| &**counter)
    }
}
