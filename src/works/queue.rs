//! The works of a domain: works that wait for counters, and posted deferred works that have not ended.
//!
//! A counter may change while an endpoint is locked, and a due work may be for the same endpoint. So a
//! change only notes that the counter is due. The thread that made the change runs the works after it has
//! released its locks. Only one thread at a time runs works, and other threads leave their due works to it.
//! The works of each counter run in the order of their thresholds. See docs/decisions/due-works.md.

use std::collections::{BTreeSet, HashMap};
use std::mem;
use std::sync::{Arc, Weak};

use homespun_engine::completion::WorkEnd;
use homespun_engine::error::{Error, Missing, Misuse, OperationError};
use homespun_engine::flags::CounterEvents;
use homespun_engine::operation::Signalled;
use homespun_engine::transport::LinkError;

use super::firing::{Firing, Round};
use super::waiting::{TriggerCounter, WaitingWorks};
use super::work::{CounterUse, DeferredPost, Work, WorkAction, WorkKind, WorkName, is_same_endpoint};
use crate::counter::{self, DomainCounters, THRESHOLD_MAX};
use crate::mutated;
use crate::poster::Poster;
use crate::sync::{AtomicU64, Mutex, Ordering};

impl TriggerCounter for Arc<counter::CounterShared> {
    fn sum(&self) -> u64 {
        counter::CounterShared::sum(self)
    }

    fn arm_threshold(&self, threshold: u64) {
        counter::CounterShared::arm_threshold(self, threshold);
    }
}

/// The largest number of works in a round. After a round another thread gets the turn, such as one that
/// cancels a work.
const ROUND_WORKS_MAX: u32 = 64;

/// The works of a domain.
#[derive(Default)]
pub(crate) struct WorkQueue {
    /// A thread that holds this lock takes no other lock.
    due: Mutex<Due>,
    firing: Firing,
    /// The works that wait, by the numbers of their counters. A thread that holds this lock may take only
    /// the lock of `due`.
    waiting: Mutex<WaitingWorks<Arc<counter::CounterShared>, Work>>,
    /// Deferred work that was posted and has not ended, by its number. A thread that holds this lock takes
    /// no other lock.
    posted: Mutex<HashMap<u64, Posted>>,
    /// The next number for a counter or a work.
    numbers: AtomicU64,
    /// The domain's counters. Threads may sleep on them until works are done.
    domain_counters: Arc<DomainCounters>,
    /// The endpoints to which works may be posted. Some of them may be gone. A thread that holds this lock
    /// takes no other lock.
    endpoints: Mutex<Vec<Weak<dyn Poster>>>,
}

/// The numbers of counters with works to run.
#[derive(Default)]
struct Due {
    /// The counters that may be due.
    counters: BTreeSet<u64>,
    /// The counters whose first work has found no room. The next call tries again, since it may have made
    /// room.
    blocked: BTreeSet<u64>,
    /// The counter at which the next round begins, so that no counter delays the others for long.
    resume_at: u64,
}

/// The outcome for the due works of a counter.
enum Fired {
    /// All of them were carried out.
    All,
    /// The endpoint of the first remaining work had no room.
    Blocked,
    /// The round has ended before all of them were carried out.
    Unfinished,
}

/// Deferred work that was posted.
struct Posted {
    endpoint: Arc<dyn Poster>,
    context: u64,
    completion: Option<CounterUse>,
    /// The events by which the endpoint counts the work's success and failure, if `is_reported`.
    success_events: CounterEvents,
    failure_events: CounterEvents,
    is_reported: bool,
}

impl WorkQueue {
    /// Returns the work queue of a domain with these counters.
    pub(crate) fn new(domain_counters: Arc<DomainCounters>) -> WorkQueue {
        WorkQueue { domain_counters, ..WorkQueue::default() }
    }

    /// Adds an endpoint to which works may be posted. If a call leaves due works to the next call, the queue
    /// wakes the endpoint's sleepers.
    pub(crate) fn attach_endpoint(&self, endpoint: Weak<dyn Poster>) {
        let mut endpoints = self.endpoints.lock();
        endpoints.retain(|known| known.strong_count() > 0);
        endpoints.push(endpoint);
    }

    /// Returns a number that no other counter or work has.
    pub(crate) fn allocate_number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    /// Adds a work, and runs it if its counter has already reached the threshold.
    pub(crate) fn add_and_fire(self: &Arc<Self>, mut work: Work) {
        let counter = work.trigger.counter().clone();
        let counter_number = counter.register_work_queue(self);
        work.threshold = work.threshold.min(THRESHOLD_MAX);
        let (is_early, is_late) = match work.kind {
            WorkKind::Triggered => (
                mutated!("fi_trigger/triggered-waits-for-threshold"),
                mutated!("fi_trigger/triggered-at-once"),
            ),
            WorkKind::Deferred { .. } => {
                (mutated!("fi_trigger/work-waits-for-threshold"), mutated!("fi_trigger/work-at-once"))
            }
        };
        if is_early {
            work.threshold = work.threshold.saturating_sub(1);
        } else if is_late && counter.sum() >= work.threshold {
            work.threshold = counter.sum() + 1;
        }
        let reverses = mutated!("fi_trigger/triggered-in-submission-order");
        let number = self.allocate_number() ^ if reverses { u64::MAX } else { 0 };
        let threshold = work.threshold;
        let mut waiting = self.waiting.lock();
        waiting.add((counter_number, counter), threshold, number, work);
        drop(waiting);
        self.fire_due_works();
    }

    /// Notes that a counter may be due.
    #[cold]
    pub(crate) fn mark_counter_due(&self, counter_number: u64) {
        let mut due = self.due.lock();
        due.counters.insert(counter_number);
        self.firing.set_due(true);
    }

    /// Marks works as due if the counter has reached their threshold. The caller is about to set the
    /// counter, and these works must run even if the new value is lower.
    pub(crate) fn mark_reached_works_due(&self, counter_number: u64) {
        if self.waiting.lock().mark_reached_works_due(counter_number) {
            self.mark_counter_due(counter_number);
        }
    }

    /// Changes a counter by calling `change`. If `change` returns true, the counter's value has wrapped, and
    /// all works that wait for the counter become due.
    pub(crate) fn change_and_mark_all_due_if_wrapped(
        &self,
        counter_number: u64,
        change: impl FnOnce() -> bool,
    ) {
        // Keep the works locked, so that no work is added between the change and the marking.
        let mut waiting = self.waiting.lock();
        if change() && waiting.mark_all_works_due(counter_number) {
            self.mark_counter_due(counter_number);
        }
    }

    /// Runs the due works. To be called after anything that may have changed a counter, with no endpoint and
    /// no queue locked.
    #[inline(always)]
    pub(crate) fn fire_due_works(&self) {
        if self.is_due() {
            self.run_due_rounds();
        }
    }

    /// Whether a work may be due.
    #[inline(always)]
    pub(crate) fn is_due(&self) -> bool {
        self.firing.is_due()
    }

    #[cold]
    #[inline(never)]
    fn run_due_rounds(&self) {
        if self.firing.run_rounds(|| self.fire_round()).is_break() {
            self.wake_sleepers();
        }
    }

    /// Wakes the threads that sleep on the domain's counters and endpoints. Their next pass runs the
    /// remaining works.
    #[cold]
    fn wake_sleepers(&self) {
        self.domain_counters.wake_sleepers();
        let endpoints: Vec<_> = self.endpoints.lock().iter().filter_map(Weak::upgrade).collect();
        endpoints.iter().for_each(|endpoint| endpoint.wake_sleepers());
    }

    /// Runs due works, up to [`ROUND_WORKS_MAX`]. If the endpoint of a work has no room, the work and later
    /// works of the same counter wait.
    fn fire_round(&self) -> Round {
        let (mut counters, mut resume_at) = {
            let mut due = self.due.lock();
            let mut counters = mem::take(&mut due.blocked);
            counters.append(&mut due.counters);
            (counters, due.resume_at)
        };
        let mut blocked = BTreeSet::new();
        let mut works_left = ROUND_WORKS_MAX;
        loop {
            while works_left > 0
                && let Some(counter_number) = remove_next_counter(&mut counters, resume_at)
            {
                resume_at = counter_number + 1;
                match self.run_due_works_of_counter(counter_number, &mut works_left) {
                    Fired::All => {}
                    Fired::Blocked => _ = blocked.insert(counter_number),
                    Fired::Unfinished => _ = counters.insert(counter_number),
                }
            }
            let mut due = self.due.lock();
            counters.append(&mut due.counters);
            if counters.is_empty() || works_left == 0 {
                let is_finished = counters.is_empty();
                // Do not clear the flag earlier. While a post fails for lack of room, another call may make
                // room, and must see that a work is due.
                self.firing.set_due(!is_finished || !blocked.is_empty());
                *due = Due { counters, blocked, resume_at };
                return if is_finished { Round::Finished } else { Round::Unfinished };
            }
        }
    }

    /// Runs the due works of a counter, in order.
    fn run_due_works_of_counter(&self, counter_number: u64, works_left: &mut u32) -> Fired {
        while *works_left > 0 {
            let taken = self.waiting.lock().pop_due_or_arm(counter_number);
            let Some((number, work)) = taken else { return Fired::All };
            if let Some(work) = self.carry_out_or_return(number, work) {
                let (counter, threshold) = (work.trigger.counter().clone(), work.threshold);
                self.waiting.lock().put_back((counter_number, counter), threshold, number, work);
                return Fired::Blocked;
            }
            *works_left -= 1;
        }
        Fired::Unfinished
    }

    /// Carries out a work that is due. Returns the work if its endpoint has no room yet.
    fn carry_out_or_return(&self, number: u64, work: Work) -> Option<Work> {
        let Work { trigger, threshold, action, kind } = work;
        let (poster, post) = match action {
            WorkAction::Post { poster, post } => (poster, post),
            WorkAction::Change { counter, change } => {
                if mutated!("fi_trigger/counter-work-counts-nothing") {
                    trigger.counter().count_success();
                }
                // Release the counters first: the application may close both as soon as it sees the change.
                drop(trigger);
                counter.release().apply_change(change);
                return None;
            }
        };
        let (post, kind) = match kind {
            WorkKind::Triggered => {
                post_triggered_or_return(&*poster, post).map(|post| (post, WorkKind::Triggered))
            }
            WorkKind::Deferred { context, completion, is_reported } => self
                .post_deferred_or_return(number, &poster, post, completion, is_reported)
                .map(|(post, completion)| (post, WorkKind::Deferred { context, completion, is_reported })),
        }?;
        Some(Work { trigger, threshold, action: WorkAction::Post { poster, post }, kind })
    }

    /// Posts deferred work. Returns the work if its endpoint has no room yet. Reports any other refusal.
    fn post_deferred_or_return(
        &self,
        number: u64,
        poster: &Arc<dyn Poster>,
        mut post: DeferredPost,
        completion: Option<CounterUse>,
        is_reported: bool,
    ) -> Option<(DeferredPost, Option<CounterUse>)> {
        let context = post.context();
        let posted = Posted {
            endpoint: poster.clone(),
            context,
            completion,
            success_events: post.counter_events(true),
            failure_events: post.counter_events(false),
            is_reported,
        };
        self.posted.lock().insert(number, posted);
        post.set_work_number(number);
        let error = post_deferred(&**poster, &mut post).err()?;
        if let Some(error) = refusal_unless_again(error) {
            poster.report_refused_post(post.into_refused_post(error));
            // An endpoint that is being closed ignores the report, so the work is still in the list.
            drop(self.remove_posted_work(number));
            return None;
        }
        post.clear_work_number(context);
        let completion = self.remove_posted_work(number).and_then(|posted| posted.completion);
        Some((post, completion))
    }

    fn remove_posted_work(&self, number: u64) -> Option<Posted> {
        self.posted.lock().remove(&number)
    }

    /// Counts the end of deferred work. The work's endpoint calls this, perhaps while the endpoint is
    /// locked. `is_counted_by` says whether the endpoint counts the given events with the given counter.
    /// Returns the context of the work, and whether the endpoint must also count and report the end.
    #[cold]
    pub(crate) fn finish_deferred_work(
        &self,
        number: u64,
        has_succeeded: bool,
        is_counted_by: impl Fn(&Arc<counter::CounterShared>, CounterEvents) -> bool,
    ) -> WorkEnd {
        let Some(posted) = self.remove_posted_work(number) else {
            // The endpoint is being closed.
            return WorkEnd { context: number, is_reported: false };
        };
        let Posted { context, completion, success_events, failure_events, is_reported, .. } = posted;
        let is_reported = is_reported && !mutated!("fi_trigger/work-reports-on-request")
            || mutated!("fi_trigger/work-is-silent");
        let events = if has_succeeded { success_events } else { failure_events };
        // If the completion counter is also bound to the endpoint, the end counts once.
        let completion = completion
            .map(CounterUse::release)
            .filter(|counter| !(is_reported && is_counted_by(counter, events)));
        match (completion, has_succeeded) {
            (Some(counter), true) => {
                if mutated!("fi_trigger/work-counts-completion") {
                    counter.count_success();
                }
                counter.count_success();
            }
            (Some(counter), false) => counter.count_error(),
            (None, _) => {}
        }
        WorkEnd { context, is_reported }
    }

    /// Cancels the oldest of the waiting deferred works with this context.
    ///
    /// # Errors
    ///
    /// [`Misuse::NotFound`] if no such work waits.
    pub(crate) fn cancel_deferred_work(&self, context: u64) -> Result<(), Error> {
        if mutated!("fi_trigger/cancel-work") {
            return Ok(());
        }
        match self.call_while_nothing_fires(|| {
            self.waiting.lock().take_oldest(WorkName::Deferred(context), |_| true)
        }) {
            Some(_) => Ok(()),
            None => Err(Misuse::NotFound(Missing::Work).into()),
        }
    }

    /// Cancels all waiting deferred work, or only the work that waits for `counter`.
    pub(crate) fn cancel_all_deferred_work(&self, counter: Option<&Arc<counter::CounterShared>>) {
        let is_meant = |work: &Work| {
            !mutated!("fi_trigger/flush-work")
                && work.is_deferred()
                && counter.is_none_or(|counter| Arc::ptr_eq(work.trigger.counter(), counter))
        };
        drop(self.call_while_nothing_fires(|| self.take_waiting_where(is_meant)));
    }

    /// Cancels an operation of this endpoint with this context. Tries a waiting triggered operation first,
    /// then the operation of posted deferred work, then the endpoint itself.
    ///
    /// # Errors
    ///
    /// [`Misuse::NotFound`] if there is no such operation.
    pub(crate) fn cancel_operation_of_endpoint(
        &self,
        endpoint: &dyn Poster,
        context: u64,
    ) -> Result<(), Error> {
        self.call_while_nothing_fires(|| {
            let name = WorkName::Triggered(context);
            let waiting = self.waiting.lock().take_oldest(name, |work| work.posts_to(endpoint));
            if let Some(Work { action: WorkAction::Post { poster, post }, .. }) = waiting {
                poster.report_refused_post(post.into_refused_post(OperationError::Cancelled));
                return Ok(());
            }
            let is_meant =
                |posted: &Posted| posted.context == context && is_same_endpoint(&posted.endpoint, endpoint);
            let number = {
                let posted = self.posted.lock();
                posted.iter().filter(|(_, posted)| is_meant(posted)).map(|(number, _)| *number).min()
            };
            match number {
                Some(number) => endpoint.cancel_work(number),
                // The operation may have been posted since the caller asked the endpoint.
                None => endpoint.cancel(context),
            }
        })
    }

    /// Calls a function while no other thread posts works. Then runs the due works.
    pub(crate) fn call_while_nothing_fires<R>(&self, act: impl FnOnce() -> R) -> R {
        let done = self.firing.call_without_firing(act);
        self.fire_due_works();
        done
    }

    /// Drops the works that wait to be posted to an endpoint that will be closed. They are not reported,
    /// even if another thread is just trying to post one.
    pub(crate) fn drop_waiting_works_of_endpoint(&self, endpoint: &dyn Poster) {
        drop(self.call_while_nothing_fires(|| self.take_waiting_where(|work| work.posts_to(endpoint))));
    }

    /// Drops all works of a closed endpoint, waiting or posted. They are not reported.
    pub(crate) fn drop_all_works_of_endpoint(&self, endpoint: &dyn Poster) {
        let waiting = self.take_waiting_where(|work| work.posts_to(endpoint));
        let posted: Vec<_> = {
            let mut posted = self.posted.lock();
            posted.extract_if(|_, posted| is_same_endpoint(&posted.endpoint, endpoint)).collect()
        };
        drop((waiting, posted));
    }

    /// Drops all waiting works. Some of them may refer back to this queue.
    pub(crate) fn drop_all_waiting_works(&self) {
        drop(self.take_waiting_where(|_| true));
    }

    /// Removes and returns the waiting works that `is_meant` selects. The caller must hold no lock when it
    /// drops them, since that may drop memory of the application.
    fn take_waiting_where(&self, is_meant: impl Fn(&Work) -> bool) -> Vec<Work> {
        self.waiting.lock().take_where(is_meant)
    }
}

/// Removes and returns the lowest number in the set from `number` on; if there is none, the lowest number.
fn remove_next_counter(counters: &mut BTreeSet<u64>, number: u64) -> Option<u64> {
    let next = counters.range(number..).next().or_else(|| counters.first()).copied()?;
    counters.remove(&next);
    Some(next)
}

/// Posts a triggered operation. Returns the operation if its endpoint has no room yet. Reports any other
/// refusal.
fn post_triggered_or_return(poster: &dyn Poster, mut post: DeferredPost) -> Option<DeferredPost> {
    if let DeferredPost::Transmit(post) = &mut post
        && mutated!("fi_cq/reports-ends-of-transfers")
    {
        post.request.options.signalled = Signalled::No;
    }
    let error = post_deferred(poster, &mut post).err()?;
    match refusal_unless_again(error) {
        None => Some(post),
        Some(error) => {
            poster.report_refused_post(post.into_refused_post(error));
            None
        }
    }
}

fn post_deferred(poster: &dyn Poster, post: &mut DeferredPost) -> Result<(), Error> {
    match post {
        DeferredPost::Transmit(post) => poster.post(post),
        DeferredPost::Receive(post) => poster.post_receive(post),
    }
}

/// Returns the error to report for a refused operation; `None` if the operation will be tried again.
fn refusal_unless_again(error: Error) -> Option<OperationError> {
    match error {
        Error::Again(_) => None,
        Error::Misuse(misuse) => Some(OperationError::Deferred(Box::new(misuse))),
        Error::System { errno, .. } | Error::Bind { errno, .. } => Some(LinkError::System(errno).into()),
    }
}

#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(test)]
mod tests;
