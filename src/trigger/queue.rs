//! The works of a domain that wait for counters, and those that were posted and have not ended.
//!
//! A counter may change while an endpoint is locked, and work may be for that endpoint. So a change only notes that the
//! counter is due; the works are carried out once the locks were released, by the thread that has made the change. One
//! thread at a time does that, in the order of the thresholds of each counter; others leave it to that thread. See
//! docs/decisions/triggered-operations.md.

use std::collections::{BTreeSet, HashMap};
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};

use homespun_engine::completion::WorkEnd;
use homespun_engine::error::{Error, Misuse, OperationError};
use homespun_engine::transport::LinkError;
use parking_lot::{Mutex, ReentrantMutex};

use super::waiting::{Threshold, Waiting};
use super::work::{Action, CounterUse, Deferrable, Kind, Work, is_same};
use crate::counter;
use crate::poster::Poster;

/// The works that wait for one counter.
type CounterWorks = Waiting<Arc<counter::Shared>, Work>;

impl Threshold for Arc<counter::Shared> {
    fn reached(&self) -> u64 {
        self.sum()
    }

    fn await_threshold(&self, threshold: u64) {
        counter::Shared::await_threshold(self, threshold);
    }
}

/// How often a call tries again what has found no room because another call, which may have made some, left that to it.
const ROUNDS_MAX: u32 = 16;

/// The works of a domain.
#[derive(Default)]
pub(crate) struct WorkQueue {
    /// Whether a counter may be due, or a thread is carrying works out, or works found no room.
    is_due: AtomicBool,
    /// Nothing else is locked while this is.
    due: Mutex<Due>,
    /// Held while works are carried out: when another thread has got it, no work is on its way to an endpoint. The thread
    /// that has it may lock it again, since what is carried out, and memory that is dropped, may call.
    firing: ReentrantMutex<()>,
    /// Whether a thread leaves what it has found to the one that carries works out.
    is_left: AtomicBool,
    /// By the numbers of the counters that are waited for. Only `due` is locked while this is.
    waiting: Mutex<HashMap<u64, CounterWorks>>,
    /// Deferred work that was posted and has not ended, by its number. Nothing else is locked while this is.
    posted: Mutex<HashMap<u64, Posted>>,
    /// How many numbers were given, to counters and to works.
    numbers: AtomicU64,
}

/// Counters, by their numbers.
#[derive(Default)]
struct Due {
    /// Those that may be due.
    counters: BTreeSet<u64>,
    /// Those whose first work has found no room. It is tried again at the next call, which may have made some.
    blocked: BTreeSet<u64>,
}

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
        let (threshold, number) = (work.threshold.min(u64::MAX - 1), self.unused_number());
        let mut waiting = self.waiting.lock();
        waiting.entry(counter_number).or_insert_with(|| Waiting::new(counter)).add(threshold, number, work);
        drop(waiting);
        self.fire();
    }

    /// A counter may be due.
    #[cold]
    pub(crate) fn note_due(&self, counter_number: u64) {
        let mut due = self.due.lock();
        due.counters.insert(counter_number);
        self.is_due.store(true, Ordering::SeqCst);
    }

    /// A counter is about to be set to another value: the works that are due by now are carried out all the same.
    pub(crate) fn keep_reached(&self, counter_number: u64) {
        if self.waiting.lock().get_mut(&counter_number).is_some_and(Waiting::keep_reached) {
            self.note_due(counter_number);
        }
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
        if self.firing.is_owned_by_current_thread() {
            // The call that carries works out looks for more before it returns.
            return;
        }
        let mut rounds = 0;
        loop {
            self.is_left.store(true, Ordering::SeqCst);
            // The thread that has the lock looks again after it has released it; one of the two sees the other.
            fence(Ordering::SeqCst);
            let Some(firing) = self.firing.try_lock() else { return };
            self.is_left.store(false, Ordering::SeqCst);
            let is_blocked = self.fire_all();
            drop(firing);
            fence(Ordering::SeqCst);
            rounds += 1;
            // A thread that polls would otherwise have this one try again for ever.
            if !self.is_left.load(Ordering::SeqCst) || is_blocked && rounds == ROUNDS_MAX {
                return;
            }
        }
    }

    /// Carries out what is due, until nothing is left but what finds no room. Returns whether there is some of that.
    fn fire_all(&self) -> bool {
        let mut counters = {
            let mut due = self.due.lock();
            let mut counters = mem::take(&mut due.blocked);
            counters.append(&mut due.counters);
            counters
        };
        let mut blocked = BTreeSet::new();
        loop {
            for counter_number in counters {
                if self.fire_counter(counter_number) {
                    blocked.insert(counter_number);
                }
            }
            let mut due = self.due.lock();
            counters = mem::take(&mut due.counters);
            if counters.is_empty() {
                // Not before: a call that makes room while a work finds none has to see that there is something to do.
                self.is_due.store(!blocked.is_empty(), Ordering::SeqCst);
                due.blocked = blocked;
                return !due.blocked.is_empty();
            }
        }
    }

    /// Carries out the due works of a counter, in order. Returns whether one of them found no room.
    fn fire_counter(&self, counter_number: u64) -> bool {
        while let Some((number, work)) = self.take_due(counter_number) {
            if let Some(work) = self.carry_out(number, work) {
                let counter = work.trigger.counter().clone();
                let mut waiting = self.waiting.lock();
                waiting.entry(counter_number).or_insert_with(|| Waiting::new(counter)).put_back(number, work);
                return true;
            }
        }
        false
    }

    /// The first work of a counter, if it is due.
    fn take_due(&self, counter_number: u64) -> Option<(u64, Work)> {
        let mut waiting = self.waiting.lock();
        let works = waiting.get_mut(&counter_number)?;
        let taken = works.take_due();
        if works.is_empty() {
            waiting.remove(&counter_number);
        }
        taken
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
                    completion.release().count_refusal();
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
        self.while_nothing_fires(|| {
            let waiting = self.take_oldest(|work| work.is_for(endpoint) && work.is_triggered_as(context));
            if let Some(Work { action: Action::Post { pump, post }, .. }) = waiting {
                pump.refuse(post.refused(OperationError::Cancelled, true));
                return Ok(());
            }
            let is_meant = |posted: &Posted| posted.context == context && is_same(&posted.endpoint, endpoint);
            let number = {
                let posted = self.posted.lock();
                posted.iter().filter(|(_, posted)| is_meant(posted)).map(|(number, _)| *number).min()
            };
            match number {
                Some(number) => endpoint.cancel_work(number),
                // It may have been posted since the endpoint was asked.
                None => endpoint.cancel(context),
            }
        })
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

    /// Forgets the works that wait to be posted to an endpoint, which is about to be closed. None of them is told of,
    /// also if another thread is trying just now to post it.
    pub(crate) fn forget_waiting(&self, endpoint: &dyn Poster) {
        drop(self.while_nothing_fires(|| self.take_all(|work| work.is_for(endpoint))));
    }

    /// Forgets the works of an endpoint that was closed, also those that were posted. None of them is told of.
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
        let oldest = |(counter_number, works): (&u64, &CounterWorks)| {
            Some((works.oldest(&is_meant)?, *counter_number))
        };
        let (number, counter_number) = waiting.iter().filter_map(oldest).min()?;
        let works = waiting.get_mut(&counter_number)?;
        let taken = works.take(number);
        if works.is_empty() {
            waiting.remove(&counter_number);
        }
        taken
    }

    /// Takes out all works that wait and are meant. They are dropped by the caller, with nothing locked: that may drop
    /// memory of the application.
    fn take_all(&self, is_meant: impl Fn(&Work) -> bool) -> Vec<Work> {
        let mut taken = Vec::new();
        self.waiting.lock().retain(|_, works| {
            works.take_all(&is_meant, &mut taken);
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
    use std::sync::atomic::AtomicU32;
    use std::thread;

    use homespun_engine::buffer::Source;
    use homespun_engine::error::Again;

    use super::*;
    use crate::av::FabricAddress;
    use crate::post::{Op, Post, ReceivePost};
    use crate::poster::Refused;
    use crate::trigger::{DeferredAction, DeferredWork, Trigger};
    use crate::{Counter, CounterAttr, Domain, Fabric, Hints};

    /// An endpoint that finds no room for the first post. While it does, another thread makes some.
    #[derive(Default)]
    struct Crowded {
        works: Arc<WorkQueue>,
        posts: AtomicU32,
        cancelled: Mutex<Vec<u64>>,
    }

    impl Poster for Crowded {
        fn post(&self, _: &mut Post) -> Result<(), Error> {
            // As a pump does it at the end of each call.
            self.works.fire();
            if self.posts.fetch_add(1, Ordering::SeqCst) > 0 {
                return Ok(());
            }
            thread::scope(|scope| _ = scope.spawn(|| self.works.fire()));
            Err(Again::QueueFull.into())
        }

        fn receive(&self, _: &mut ReceivePost) -> Result<(), Error> {
            Ok(())
        }

        fn cancel(&self, context: u64) -> Result<(), Error> {
            self.cancelled.lock().push(context);
            Ok(())
        }

        fn cancel_work(&self, _: u64) -> Result<(), Error> {
            Err(Misuse::NotFound("no work is posted here").into())
        }

        fn refuse(&self, _: Refused) {}
    }

    fn triggered(trigger: &Counter, endpoint: &Arc<Crowded>) -> Work {
        let send = Op::Send { source: Source::default(), tag: None, data: None };
        let post = Deferrable::Transmit(Post::new(FabricAddress(0), send, 5));
        Work {
            trigger: CounterUse::new(trigger.shared()),
            threshold: 1,
            action: Action::Post { pump: endpoint.clone(), post },
            kind: Kind::Triggered,
        }
    }

    #[test]
    fn work_is_tried_again_when_another_thread_makes_room_meanwhile() {
        let domain = domain();
        let trigger = counter(&domain);
        let endpoint = Arc::new(Crowded { works: domain.shared.works().clone(), ..Crowded::default() });
        endpoint.works.add(triggered(&trigger, &endpoint));
        trigger.add(1);
        assert_eq!(endpoint.posts.load(Ordering::SeqCst), 2, "no other call may come");
        assert!(!trigger.is_in_use());
    }

    #[test]
    fn operation_that_is_posted_before_it_is_cancelled_is_cancelled_at_its_endpoint() {
        let domain = domain();
        let (trigger, endpoint) = (counter(&domain), Arc::new(Crowded::default()));
        let works = domain.shared.works();
        endpoint.posts.store(1, Ordering::SeqCst);
        works.add(triggered(&trigger, &endpoint));
        // The endpoint was asked, and said that it has none. Then it gets it.
        trigger.add(1);
        works.cancel_operation(&*endpoint, 5).unwrap();
        assert_eq!(*endpoint.cancelled.lock(), [5]);
    }

    #[test]
    fn counter_that_is_set_back_while_another_thread_carries_works_out_has_triggered() {
        let domain = domain();
        let (trigger, changed) = (counter(&domain), counter(&domain));
        add_one(&domain, &trigger, 1, &changed);
        domain.shared.works().while_nothing_fires(|| {
            trigger.add(1);
            trigger.set(0);
        });
        assert_eq!((trigger.read(), changed.read()), (0, 1));
    }

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
