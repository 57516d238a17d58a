//! The works of a domain that wait for counters, and those that were posted and have not ended.
//!
//! A counter may change while an endpoint is locked, and work may be for that endpoint. So a change only notes that the
//! counter is due; the works are carried out once the locks were released, by the thread that has made the change. One
//! thread at a time does that, in the order of the thresholds of each counter; others leave it to that thread. See
//! docs/decisions/triggered-operations.md.

use std::collections::{BTreeMap, HashMap};
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};

use homespun_engine::completion::WorkEnd;
use homespun_engine::error::{Error, Misuse, OperationError};
use homespun_engine::transport::LinkError;
use parking_lot::Mutex;

use super::work::{Action, CounterUse, Deferrable, Kind, Work, is_same};
use crate::counter;
use crate::poster::Poster;

/// The works of a domain.
#[derive(Default)]
pub(crate) struct WorkQueue {
    /// Whether a counter may be due.
    is_due: AtomicBool,
    /// The counters that may be due, by their numbers. Nothing else is locked while this is.
    due: Mutex<Vec<u64>>,
    /// Held while works are carried out: when a thread has got it, no work is on its way to an endpoint.
    firing: Mutex<()>,
    /// By the numbers of the counters that are waited for. Only `due` is locked while this is.
    waiting: Mutex<HashMap<u64, Waiting>>,
    /// Deferred work that was posted and has not ended, by its number. Nothing else is locked while this is.
    posted: Mutex<HashMap<u64, Posted>>,
    /// How many numbers were given, to counters and to works.
    numbers: AtomicU64,
}

/// The works that wait for one counter.
struct Waiting {
    counter: Arc<counter::Shared>,
    works: BTreeMap<Place, Work>,
}

/// The threshold of a work, and its number: works with the same threshold keep the order in which they came.
type Place = (u64, u64);

/// Deferred work that was posted.
struct Posted {
    endpoint: Arc<dyn Poster>,
    context: u64,
    completion: Option<CounterUse>,
    is_reported: bool,
}

impl WorkQueue {
    /// A number that nothing else has.
    pub(crate) fn unused_number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    /// Has work wait for its counter, or carries it out if the counter is there already.
    pub(crate) fn add(self: &Arc<Self>, work: Work) {
        let counter = work.trigger.counter().clone();
        let counter_number = counter.triggers(self);
        // The largest number means that nothing waits.
        let place = (work.threshold.min(u64::MAX - 1), self.unused_number());
        {
            let mut waiting = self.waiting.lock();
            let entry = waiting
                .entry(counter_number)
                .or_insert_with(|| Waiting { counter: counter.clone(), works: BTreeMap::new() });
            entry.works.insert(place, work);
            counter.await_threshold(place.0);
        }
        self.fire();
    }

    /// A counter may be due.
    #[cold]
    pub(crate) fn note_due(&self, counter_number: u64) {
        let mut due = self.due.lock();
        if !due.contains(&counter_number) {
            due.push(counter_number);
        }
        self.is_due.store(true, Ordering::SeqCst);
    }

    /// Carries out what is due. To be called with no endpoint or queue locked, after anything that may have changed a
    /// counter.
    #[inline(always)]
    pub(crate) fn fire(&self) {
        if self.is_due() {
            self.fire_due();
        }
    }

    /// Whether something may be due.
    #[inline(always)]
    pub(crate) fn is_due(&self) -> bool {
        self.is_due.load(Ordering::Relaxed)
    }

    #[cold]
    #[inline(never)]
    fn fire_due(&self) {
        loop {
            // The thread that has the lock looks again after it has released it; one of the two sees the other.
            fence(Ordering::SeqCst);
            let Some(firing) = self.firing.try_lock() else { return };
            self.is_due.store(false, Ordering::SeqCst);
            let counters = mem::take(&mut *self.due.lock());
            let mut blocked = counters;
            blocked.retain(|counter_number| self.fire_counter(*counter_number));
            drop(firing);
            fence(Ordering::SeqCst);
            let is_more_due = self.is_due.load(Ordering::SeqCst);
            // What found no room is tried again at the next call, which may have made some.
            blocked.into_iter().for_each(|counter_number| self.note_due(counter_number));
            if !is_more_due {
                return;
            }
        }
    }

    /// Carries out the due works of a counter, in order. Returns whether one of them found no room.
    fn fire_counter(&self, counter_number: u64) -> bool {
        while let Some((place, work)) = self.take_due(counter_number) {
            if let Some(work) = self.carry_out(place.1, work) {
                let counter = work.trigger.counter().clone();
                let mut waiting = self.waiting.lock();
                let works = BTreeMap::new();
                waiting.entry(counter_number).or_insert(Waiting { counter, works }).works.insert(place, work);
                return true;
            }
        }
        false
    }

    /// The first work of a counter, if it is due. If not, the counter tells when it is.
    fn take_due(&self, counter_number: u64) -> Option<(Place, Work)> {
        let mut waiting = self.waiting.lock();
        let Waiting { counter, works } = waiting.get_mut(&counter_number)?;
        let first = works.first_entry()?;
        let threshold = first.key().0;
        if counter.sum() < threshold {
            // It looks once more after it has promised, so nothing that is counted meanwhile is missed.
            counter.await_threshold(threshold);
            return None;
        }
        let taken = first.remove_entry();
        if works.is_empty() {
            waiting.remove(&counter_number);
        }
        Some(taken)
    }

    /// Does a work that is due. Hands it back if its endpoint has no room yet.
    fn carry_out(&self, number: u64, work: Work) -> Option<Work> {
        let Work { trigger, threshold, action, kind } = work;
        // What is done may be what the application waits for before it closes the counter.
        let trigger = trigger.release();
        let (pump, post) = match action {
            Action::Post { pump, post } => (pump, post),
            Action::Change { counter, change } => {
                counter.release().change(change);
                return None;
            }
        };
        let (post, kind) = match kind {
            Kind::Triggered => post_triggered(&*pump, post).map(|post| (post, Kind::Triggered)),
            Kind::Deferred { context, completion, is_reported } => self
                .post_deferred(number, &pump, post, completion, is_reported)
                .map(|(post, completion)| (post, Kind::Deferred { context, completion, is_reported })),
        }?;
        let trigger = CounterUse::new(&trigger);
        Some(Work { trigger, threshold, action: Action::Post { pump, post }, kind })
    }

    /// Posts deferred work. Hands it back if there is no room for it.
    fn post_deferred(
        &self,
        number: u64,
        pump: &Arc<dyn Poster>,
        mut post: Deferrable,
        completion: Option<CounterUse>,
        is_reported: bool,
    ) -> Option<(Deferrable, Option<CounterUse>)> {
        let context = post.context();
        let posted = Posted { endpoint: pump.clone(), context, completion, is_reported };
        self.posted.lock().insert(number, posted);
        post.set_context(number);
        let error = post_to(&**pump, &mut post).err()?;
        post.set_context(context);
        let completion = self.posted.lock().remove(&number).and_then(|posted| posted.completion);
        match refusal(error) {
            None => return Some((post, completion)),
            Some(error) => {
                pump.refuse(post.refused(error, is_reported));
                if let Some(completion) = completion {
                    completion.release().count_error();
                }
            }
        }
        None
    }

    /// Deferred work has ended at its endpoint, which may be locked. Says what is told of it besides.
    #[cold]
    pub(crate) fn ended(&self, number: u64, has_succeeded: bool) -> WorkEnd {
        let Some(posted) = self.posted.lock().remove(&number) else {
            // Its endpoint is being closed.
            return WorkEnd { context: number, is_reported: false };
        };
        let Posted { context, completion, is_reported, .. } = posted;
        match (completion.map(CounterUse::release), has_succeeded) {
            (Some(counter), true) => counter.count(),
            (Some(counter), false) => counter.count_error(),
            (None, _) => {}
        }
        WorkEnd { context, is_reported }
    }

    /// Takes back deferred work that waits, the oldest with this context.
    ///
    /// # Errors
    ///
    /// [`Misuse::NotFound`] if there is none.
    pub(crate) fn cancel(&self, context: u64) -> Result<(), Error> {
        match self.while_nothing_fires(|| self.take_oldest(|work| work.is_deferred_as(context))) {
            Some(_) => Ok(()),
            None => Err(Misuse::NotFound("no such work, or it was carried out").into()),
        }
    }

    /// Takes back all deferred work that waits, or what waits for one counter.
    pub(crate) fn flush(&self, counter: Option<&Arc<counter::Shared>>) {
        let is_meant = |work: &Work| {
            work.is_deferred() && counter.is_none_or(|counter| Arc::ptr_eq(work.trigger.counter(), counter))
        };
        drop(self.while_nothing_fires(|| self.take_all(is_meant)));
    }

    /// Cancels an operation of an endpoint with this context: one that was triggered and waits, or deferred work that
    /// was posted.
    ///
    /// # Errors
    ///
    /// [`Misuse::NotFound`] if there is none.
    pub(crate) fn cancel_operation(&self, endpoint: &dyn Poster, context: u64) -> Result<(), Error> {
        let waiting = self.while_nothing_fires(|| {
            self.take_oldest(|work| work.is_for(endpoint) && work.is_triggered_as(context))
        });
        if let Some(Work { action: Action::Post { pump, post }, trigger, .. }) = waiting {
            drop(trigger);
            pump.refuse(post.refused(OperationError::Cancelled, true));
            return Ok(());
        }
        let is_meant = |posted: &Posted| posted.context == context && is_same(&posted.endpoint, endpoint);
        let posted = {
            let posted = self.posted.lock();
            posted.iter().filter(|(_, posted)| is_meant(posted)).map(|(number, _)| *number).min()
        };
        match posted {
            Some(number) => endpoint.cancel(number),
            None => Err(Misuse::NotFound("no such operation, or it can no longer be cancelled").into()),
        }
    }

    /// Does something while no work is on its way to an endpoint.
    fn while_nothing_fires<R>(&self, act: impl FnOnce() -> R) -> R {
        let firing = self.firing.lock();
        let done = act();
        drop(firing);
        // Another thread may have left to this one what has become due meanwhile.
        fence(Ordering::SeqCst);
        self.fire();
        done
    }

    /// Forgets the works of an endpoint that was closed. None of them is told of.
    pub(crate) fn forget_endpoint(&self, endpoint: &dyn Poster) {
        let waiting = self.take_all(|work| work.is_for(endpoint));
        let posted: Vec<_> = {
            let mut posted = self.posted.lock();
            posted.extract_if(|_, posted| is_same(&posted.endpoint, endpoint)).collect()
        };
        drop((waiting, posted));
    }

    /// Forgets everything, which may refer to the queue in a circle.
    pub(crate) fn clear(&self) {
        drop(self.take_all(|_| true));
    }

    /// Takes out the work that came first of those that wait and are meant.
    fn take_oldest(&self, is_meant: impl Fn(&Work) -> bool) -> Option<Work> {
        let mut waiting = self.waiting.lock();
        let all = waiting.iter().flat_map(|(counter_number, Waiting { works, .. })| {
            works.iter().map(move |(place, work)| (place.1, *counter_number, *place, work))
        });
        let meant =
            all.filter(|(.., work)| is_meant(work)).map(|(age, counter, place, _)| (age, counter, place));
        let (_, counter_number, place) = meant.min()?;
        let works = &mut waiting.get_mut(&counter_number)?.works;
        let taken = works.remove(&place);
        if works.is_empty() {
            waiting.remove(&counter_number);
        }
        taken
    }

    /// Takes out all works that wait and are meant. They are dropped by the caller, with nothing locked: that may drop
    /// memory of the application.
    fn take_all(&self, is_meant: impl Fn(&Work) -> bool) -> Vec<Work> {
        let mut taken = Vec::new();
        self.waiting.lock().retain(|_, Waiting { works, .. }| {
            taken.extend(works.extract_if(.., |_, work| is_meant(work)).map(|(_, work)| work));
            !works.is_empty()
        });
        taken
    }
}

/// Posts a triggered operation. Hands it back if there is no room for it.
fn post_triggered(pump: &dyn Poster, mut post: Deferrable) -> Option<Deferrable> {
    let error = post_to(pump, &mut post).err()?;
    match refusal(error) {
        None => Some(post),
        Some(error) => {
            pump.refuse(post.refused(error, true));
            None
        }
    }
}

fn post_to(pump: &dyn Poster, post: &mut Deferrable) -> Result<(), Error> {
    match post {
        Deferrable::Transmit(post) => pump.post(post),
        Deferrable::Receive(post) => pump.receive(post),
    }
}

/// What the refusal of a due operation is reported as. `None` for one that is to be tried again.
fn refusal(error: Error) -> Option<OperationError> {
    match error {
        Error::Again(_) => None,
        Error::Misuse(misuse) => Some(OperationError::Deferred(misuse)),
        Error::System { errno, .. } => Some(LinkError::System(errno).into()),
    }
}

#[cfg(test)]
mod tests {
    use crate::trigger::{DeferredAction, DeferredWork, Trigger};
    use crate::{Counter, CounterAttr, Domain, Fabric, Hints};

    fn domain() -> Domain {
        let fabric = Fabric::new();
        let info = fabric.info(&Hints::new().domain("tcp")).unwrap();
        fabric.domain(&info).unwrap()
    }

    fn counter(domain: &Domain) -> Counter {
        domain.open_counter(&CounterAttr::default()).unwrap()
    }

    fn add_one(domain: &Domain, trigger: &Counter, threshold: u64, counter: &Counter) {
        let trigger = Trigger { counter: trigger.clone(), threshold };
        let action = DeferredAction::Add { counter: counter.clone(), value: 1 };
        domain.queue_work(DeferredWork { context: 1, trigger, action, completion: None }).unwrap();
    }

    #[test]
    fn work_that_becomes_due_while_another_is_cancelled_is_done_afterwards() {
        let domain = domain();
        let (trigger, changed) = (counter(&domain), counter(&domain));
        add_one(&domain, &trigger, 1, &changed);
        domain.shared.works().while_nothing_fires(|| {
            trigger.add(1);
            assert_eq!(changed.shared().sum(), 0);
        });
        assert_eq!(changed.shared().sum(), 1);
    }

    #[test]
    fn threshold_of_the_largest_number_is_reached() {
        let domain = domain();
        let (trigger, changed) = (counter(&domain), counter(&domain));
        add_one(&domain, &trigger, u64::MAX, &changed);
        trigger.set(u64::MAX - 2);
        assert_eq!(changed.shared().sum(), 0);
        trigger.set(u64::MAX);
        assert_eq!(changed.shared().sum(), 1);
    }

    #[test]
    fn works_that_wait_are_dropped_with_their_domain() {
        let (trigger, changed) = {
            let domain = domain();
            let counters = (counter(&domain), counter(&domain));
            add_one(&domain, &counters.0, 1, &counters.1);
            // A circle: the work keeps the counter that it waits for.
            add_one(&domain, &counters.0, 2, &counters.0);
            counters
        };
        assert!(!trigger.is_in_use() && !changed.is_in_use());
        trigger.add(5);
        assert_eq!((trigger.read(), changed.read()), (5, 0));
    }
}
