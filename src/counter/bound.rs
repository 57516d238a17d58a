//! The counters of an endpoint.

use std::sync::Arc;

use homespun_engine::error::{Error, InUse, Misuse};
use homespun_engine::flags::CounterEvents;

use super::{Counter, CounterShared};

/// The counters that are bound to an endpoint, each with what it counts of it, which is nothing
/// that another counts.
#[derive(Default, Clone)]
pub(crate) struct BoundCounters(Vec<(Arc<CounterShared>, CounterEvents)>);

impl BoundCounters {
    /// Adds one, or more events to one.
    ///
    /// # Errors
    ///
    /// [`Misuse::Busy`] if one of these events is counted already.
    pub(crate) fn bind(&mut self, counter: &Counter, events: CounterEvents) -> Result<(), Error> {
        self.check_events_free(events)?;
        match self.0.iter_mut().find(|(bound, _)| Arc::ptr_eq(bound, counter.shared())) {
            Some((_, counted)) => *counted |= events,
            None => {
                counter.shared().add_binding();
                self.0.push((counter.shared().clone(), events));
            }
        }
        Ok(())
    }

    /// Whether none of these events is counted yet.
    ///
    /// # Errors
    ///
    /// [`Misuse::Busy`] if one is.
    pub(crate) fn check_events_free(&self, events: CounterEvents) -> Result<(), Misuse> {
        if self.counted_events().intersects(events) {
            return Err(Misuse::Busy(InUse::CounterBound));
        }
        Ok(())
    }

    /// All that is counted.
    pub(crate) fn counted_events(&self) -> CounterEvents {
        self.0.iter().fold(CounterEvents::empty(), |all, (_, events)| all | *events)
    }

    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Each of the counters, once.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<CounterShared>> {
        self.0.iter().map(|(counter, _)| counter)
    }

    /// Counts an event that has succeeded.
    #[cold]
    pub(crate) fn count_success(&self, events: CounterEvents) {
        self.counters_of(events).for_each(CounterShared::count_success);
    }

    /// Counts an operation that has failed.
    #[cold]
    pub(crate) fn count_error(&self, events: CounterEvents) {
        self.counters_of(events).for_each(CounterShared::count_error);
    }

    /// Whether this counter counts some of these events.
    pub(crate) fn is_counted_by(&self, counter: &Arc<CounterShared>, events: CounterEvents) -> bool {
        self.0.iter().any(|(bound, counted)| counted.intersects(events) && Arc::ptr_eq(bound, counter))
    }

    /// The counters of some events.
    fn counters_of(&self, events: CounterEvents) -> impl Iterator<Item = &CounterShared> {
        self.0.iter().filter(move |(_, counted)| counted.intersects(events)).map(|(counter, _)| &**counter)
    }
}
