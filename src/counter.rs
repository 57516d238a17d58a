//! Counters: `fi_cntr(3)`.

mod bound;
mod domain_counters;
mod driven_endpoints;
mod reported;
mod triggered_works;

use std::cell::Cell;
use std::fmt;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use homespun_engine::errno::Errno;
use homespun_engine::error::{Argument, Error, InUse, Misuse};
use homespun_engine::flags::CounterEvents;
use homespun_engine::region::CountAccess;
use homespun_engine::rejected::Rejected;
use homespun_engine::transport::Armed;

pub(crate) use self::bound::BoundCounters;
pub(crate) use self::domain_counters::DomainCounters;
pub(crate) use self::driven_endpoints::DriveReason;
use self::driven_endpoints::DrivenEndpoints;
pub(crate) use self::reported::Reported;
pub(crate) use self::triggered_works::THRESHOLD_MAX;
use self::triggered_works::{TriggeredWorks, WorkCounter};
use crate::clock::Clock;
use crate::domain_id::DomainId;
use crate::mutated;
use crate::sync::{AtomicU64, Ordering};
use crate::wait::{Awaited, MutexCond, WaitError, WaitObject, WaitSet, WaitSetMember, Waiter};
use crate::works::work::CounterChange;

/// The attributes of a counter: `struct fi_cntr_attr`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(default, deny_unknown_fields)
)]
pub struct CounterAttr {
    /// The wait object: [`WaitObject`] lists the kinds, and their costs.
    pub wait: WaitObject,
    /// The wait set of the counter, for [`WaitObject::Set`]. Ignored with other wait objects; not
    /// serialized.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub wait_set: Option<WaitSet>,
}

/// The reason why a wait has ended before the counter reached the threshold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CounterWaitError {
    /// The error value has changed. [`Counter::read_error`] reads it.
    #[error("the error value of the counter has changed")]
    ErrorAvailable,
    /// The timeout has passed.
    #[error("the counter was not high enough in time")]
    TimedOut,
    /// A signal handler (`signal(7)`) has run in the waiting thread.
    #[error("a signal handler has run before the counter was high enough")]
    Interrupted,
    /// The wait has no time limit and would never end: in the simulation nothing more happens.
    #[error("the wait would never end: nothing more happens in the simulation")]
    Deadlock,
}

impl From<WaitError> for CounterWaitError {
    fn from(ended: WaitError) -> CounterWaitError {
        match ended {
            WaitError::TimedOut if mutated!("fi_cntr/wait-etimedout") => CounterWaitError::Interrupted,
            WaitError::TimedOut => CounterWaitError::TimedOut,
            WaitError::Interrupted => CounterWaitError::Interrupted,
            WaitError::Deadlock => CounterWaitError::Deadlock,
        }
    }
}

impl CounterWaitError {
    /// Returns the error number that a C caller gets, positive.
    pub fn errno(self) -> Errno {
        match self {
            CounterWaitError::ErrorAvailable => Errno::EAVAIL,
            CounterWaitError::TimedOut => Errno::ETIMEDOUT,
            CounterWaitError::Interrupted => Errno::EAGAIN,
            CounterWaitError::Deadlock => Errno::EDEADLK,
        }
    }
}

/// Counts operations that have succeeded or failed: `fi_cntr(3)`.
///
/// A successful operation increments the *value* of the counter, and a failed operation increments its
/// *error value*. A counter counts an operation even if no completion is reported, or if the completion
/// queue is full.
///
/// A counter can be bound to any number of endpoints
/// ([`Endpoint::bind_counter`](crate::Endpoint::bind_counter)) and memory regions
/// ([`MemoryRegion::bind_counter`](crate::MemoryRegion::bind_counter)). The counter counts the events of
/// all of them. Reads and waits make passes of the bound endpoints.
///
/// Any thread may clone and use a handle. A counter takes about 200 bytes. [`WaitObject`] lists what
/// sleeping on a counter costs in addition.
///
/// ```
/// use homespun::flags::CounterEvents;
/// use homespun::{AvAttr, BindFlags, Bytes, BytesMut, CounterAttr, CqAttr, Fabric, FabricAddress, Hints};
///
/// # let fabric = Fabric::new();
/// # let info = &fabric.info(&Hints::new().node("127.0.0.1").source())?;
/// # let domain = fabric.domain(info)?;
/// # let (cq, av) = (domain.open_cq(&CqAttr::default())?, domain.open_av(&AvAttr::default())?);
/// let endpoint = domain.endpoint(info)?;
/// # endpoint.bind_av(&av)?;
/// // Successes are counted, and only failures are reported in the completion queue.
/// let received = domain.open_counter(&CounterAttr::default())?;
/// endpoint.bind_counter(&received, CounterEvents::RECV)?;
/// let both = BindFlags::TRANSMIT | BindFlags::RECV;
/// endpoint.bind_cq(&cq, both | BindFlags::SELECTIVE_COMPLETION)?;
/// endpoint.enable()?;
/// # let own = av.insert_one(endpoint.name()?)?;
///
/// for context in 0..3 {
///     endpoint.recv(BytesMut::zeroed(16), FabricAddress::UNSPECIFIED, context)?;
///     endpoint.send(Bytes::from_static(b"hello"), own, context)?;
/// }
/// received.wait(3, None).expect("no operation fails");
/// assert_eq!((received.read(), received.read_error()), (3, 0));
/// # Ok::<(), homespun::Error>(())
/// ```
#[derive(Clone)]
pub struct Counter {
    shared: Arc<CounterShared>,
    work_counter: Arc<WorkCounter>,
}

/// The part of a counter that endpoints and regions share.
pub(crate) struct CounterShared {
    domain: DomainId,
    value: AtomicU64,
    errors: AtomicU64,
    /// The value that the last read returned.
    last_read: AtomicU64,
    /// How often the application has changed a value.
    changes: AtomicU64,
    /// The state at the last report: by [`try_wait`](Counter::try_wait), or by a wait for the counter's
    /// wait set. Reads of the counter do not change this field.
    reported: Reported,
    /// The number of users: endpoints and regions to which the counter is bound, poll sets, and works. A
    /// work uses the counter that triggers it and the counter that it changes.
    users: AtomicUsize,
    /// The endpoints that the counter drives.
    driven_endpoints: DrivenEndpoints,
    /// The works that wait for the counter.
    triggering: TriggeredWorks,
    /// `None` without a wait object: a wait for the counter then polls.
    waiter: Option<Waiter>,
    /// The clock of waits.
    clock: Clock,
}

impl Counter {
    pub(crate) fn open(attr: &CounterAttr, domain: DomainId, clock: &Clock) -> Result<Counter, Error> {
        let wait = match attr.wait {
            WaitObject::MutexCond if mutated!("fi_cntr/counter-wait-objects") => WaitObject::Fd,
            wait => wait,
        };
        let shared = Arc::new(CounterShared {
            domain,
            value: AtomicU64::new(0),
            errors: AtomicU64::new(0),
            last_read: AtomicU64::new(0),
            changes: AtomicU64::new(0),
            reported: Reported::default(),
            users: AtomicUsize::new(0),
            driven_endpoints: DrivenEndpoints::default(),
            triggering: TriggeredWorks::default(),
            waiter: Waiter::new(wait, attr.wait_set.as_ref(), clock)?,
            clock: clock.clone(),
        });
        let counter = Counter { work_counter: WorkCounter::new(shared.clone()), shared };
        if let Some(waiter) = &counter.shared.waiter {
            waiter.attach_member(Arc::downgrade(&counter.shared));
        }
        Ok(counter)
    }

    /// Makes passes of the endpoints, then returns the value: `fi_cntr_read`. The value counts successful
    /// operations. [`add`](Self::add) and [`set`](Self::set) also change the value.
    pub fn read(&self) -> u64 {
        self.progress();
        let value = self.shared.value.load(Ordering::SeqCst);
        self.shared.count_poll(value);
        value
    }

    /// Makes passes of the endpoints, then returns the error value: `fi_cntr_readerr`. The error value
    /// counts failed operations. [`add_error`](Self::add_error) and [`set_error`](Self::set_error) also
    /// change the error value. If a completion queue is bound for an operation, the queue also reports the
    /// failure.
    pub fn read_error(&self) -> u64 {
        self.progress();
        self.shared.errors.load(Ordering::SeqCst)
    }

    /// Adds to the value, and wakes sleepers: `fi_cntr_add`. The value wraps around to 0 after `u64::MAX`.
    pub fn add(&self, value: u64) {
        let value = value.wrapping_add(u64::from(mutated!("fi_cntr/set-and-add")));
        self.shared.apply_change(CounterChange::Add(value));
    }

    /// Adds to the error value: `fi_cntr_adderr`. Waits end if the error value changes.
    pub fn add_error(&self, value: u64) {
        self.shared.add_to_value(&self.shared.errors, value);
        self.shared.count_change_wake_and_fire();
    }

    /// Sets the value, and wakes sleepers: `fi_cntr_set`. An operation that ends during this call may not
    /// be counted.
    pub fn set(&self, value: u64) {
        self.shared.apply_change(CounterChange::Set(value));
    }

    /// Sets the error value: `fi_cntr_seterr`. Waits end if the error value changes. An operation that
    /// fails during this call may not be counted.
    pub fn set_error(&self, value: u64) {
        self.shared.mark_reached_works_due();
        self.shared.errors.store(value, Ordering::SeqCst);
        self.shared.count_change_wake_and_fire();
    }

    /// Waits until the value is at least `threshold`: `fi_cntr_wait`. If `timeout` is `None`, waits without
    /// limit.
    ///
    /// The thread polls and sleeps as in [`CompletionQueue::sread`](crate::CompletionQueue::sread). Without a
    /// wait object, the thread polls the counter and yields the processor after each poll, as with
    /// [`WaitObject::Yield`]. (`fi_cntr(3)` allows no wait for a counter without a wait object.)
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use homespun::counter::CounterWaitError;
    /// use homespun::{CounterAttr, Fabric, Hints, WaitObject};
    ///
    /// # let fabric = Fabric::new();
    /// # let domain = fabric.domain(&fabric.info(&Hints::new())?)?;
    /// let attr = CounterAttr { wait: WaitObject::Unspec, ..CounterAttr::default() };
    /// let counter = domain.open_counter(&attr)?;
    /// let waiter = std::thread::spawn({
    ///     let counter = counter.clone();
    ///     move || counter.wait(3, None)
    /// });
    /// counter.add(3);
    /// assert_eq!(waiter.join().unwrap(), Ok(()));
    /// assert_eq!(counter.wait(4, Some(Duration::from_millis(1))), Err(CounterWaitError::TimedOut));
    /// # Ok::<(), homespun::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`CounterWaitError::ErrorAvailable`] if the error value changes during the wait.
    /// [`CounterWaitError::TimedOut`] if the timeout passes first. [`CounterWaitError::Interrupted`], as
    /// [`CompletionQueue::sread`](crate::CompletionQueue::sread) returns `None`.
    /// [`CounterWaitError::Deadlock`] if nothing more happens in a simulation.
    pub fn wait(&self, threshold: u64, timeout: Option<Duration>) -> Result<(), CounterWaitError> {
        let errors_before = self.shared.errors.load(Ordering::SeqCst);
        let goal = Goal { counter: &self.shared, threshold, errors_before, found: Cell::new(None) };
        let waiter = Waiter::waiter_or_polling_one(self.shared.waiter.as_ref());
        let waited = waiter.wait(&self.shared.clock, timeout, &goal, || goal.found.take());
        waited.unwrap_or_else(|ended| goal.progress_and_check().unwrap_or(Err(ended.into())))
    }

    /// Prepares to sleep on [`wait_fd`](Self::wait_fd) or [`wait_mutex_cond`](Self::wait_mutex_cond):
    /// `fi_trywait(3)`. Makes progress first. Call it before each sleep. Only one thread at a time may
    /// sleep this way.
    ///
    /// Returns `true` if the application may sleep: a later change will wake it. Returns `false` if a value
    /// has changed since the last call that returned `false`, even if another thread has read the value
    /// meanwhile. Also returns `false` with [`WaitObject::Yield`], or if a transport must be polled. If the
    /// counter is in a wait set, the result is that of the [whole set](WaitSet::try_wait).
    ///
    /// # Errors
    ///
    /// [`Misuse::Invalid`] for a counter that was opened without a wait object.
    pub fn try_wait(&self) -> Result<bool, Error> {
        let waiter = self.shared.waiter.as_ref().ok_or(NO_WAIT_OBJECT)?;
        Ok(waiter.try_wait(&Change(&self.shared)))
    }

    /// Returns the descriptor to sleep on: `FI_GETWAIT`. `None` unless the counter was opened with
    /// [`WaitObject::Fd`]. If the last [`try_wait`](Self::try_wait) returned `true`, the descriptor becomes
    /// readable when a value may have changed.
    /// [`CompletionQueue::wait_fd`](crate::CompletionQueue::wait_fd) says more.
    pub fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        let waiter = self.shared.waiter.as_ref().filter(|_| !mutated!("fi_cntr/counter-descriptor"));
        waiter.and_then(Waiter::fd)
    }

    /// Returns the mutex and the condition variable to sleep on: `FI_GETWAIT`. `None` unless the counter
    /// was opened with [`WaitObject::MutexCond`]. See
    /// [`CompletionQueue::wait_mutex_cond`](crate::CompletionQueue::wait_mutex_cond).
    ///
    /// # Errors
    ///
    /// The system's error: EMFILE, ENFILE, ENOMEM, EAGAIN.
    pub fn wait_mutex_cond(&self) -> Result<Option<MutexCond>, Error> {
        self.shared.waiter.as_ref().map_or(Ok(None), Waiter::mutex_cond)
    }

    /// Returns the wait object.
    pub fn wait_object(&self) -> WaitObject {
        self.shared.waiter.as_ref().map_or(WaitObject::None, Waiter::object)
    }

    /// Drives the endpoints, and reads no value.
    pub fn progress(&self) {
        self.shared.progress();
    }

    /// Closes the counter.
    ///
    /// # Errors
    ///
    /// [`Misuse::Busy`] while the counter [is in use](Self::is_in_use). The error returns the counter.
    pub fn close(self) -> Result<(), Rejected<Counter>> {
        if self.is_in_use() {
            let error = Misuse::Busy(InUse::Counter).into();
            return Err(Rejected { error, returned: self });
        }
        Ok(())
    }

    /// Whether the counter is bound to an endpoint or a memory region, is in a poll set, or is used by a
    /// [deferred work](crate::trigger) or a triggered operation. A counter in use cannot be
    /// [closed](Self::close).
    pub fn is_in_use(&self) -> bool {
        // A work that another thread is posting may be about to release the counter. So check again while
        // no thread posts a work.
        !mutated!("fi_cntr/close-counter-ebusy")
            && self.shared.has_users()
            && self.shared.call_while_nothing_fires(CounterShared::has_users)
    }

    pub(crate) fn shared(&self) -> &Arc<CounterShared> {
        &self.shared
    }
}

impl CounterShared {
    pub(crate) fn domain(&self) -> DomainId {
        self.domain
    }

    /// Counts a success, and wakes sleepers.
    #[inline]
    pub(crate) fn count_success(&self) {
        if mutated!("fi_cntr/counts-completions") {
            self.increment(&self.value);
        }
        self.increment(&self.value);
    }

    /// Counts a failure.
    #[inline]
    pub(crate) fn count_error(&self) {
        let is_mixed = mutated!("fi_cntr/errors-are-counted-apart");
        self.increment(if is_mixed { &self.value } else { &self.errors });
    }

    #[inline]
    fn increment(&self, number: &AtomicU64) {
        if number.fetch_add(1, Ordering::SeqCst) == u64::MAX {
            // The number wraps to 0, so every waiting work has reached its threshold.
            self.mark_all_works_due();
        }
        self.mark_due_if_threshold_reached();
        self.wake_sleepers();
    }

    /// Whether an endpoint, a region, a poll set or a work uses the counter. If another thread is posting
    /// the work, the work may be about to release the counter.
    pub(crate) fn has_users(&self) -> bool {
        self.users.load(Ordering::Acquire) > 0
    }

    /// Counts a user that is bound.
    pub(crate) fn add_binding(&self) {
        self.users.fetch_add(1, Ordering::AcqRel);
    }

    /// Undoes one [`add_binding`](Self::add_binding).
    pub(crate) fn remove_binding(&self) {
        self.users.fetch_sub(1, Ordering::AcqRel);
    }

    /// Returns the waiter, if the counter has a wait object.
    #[inline]
    pub(crate) fn waiter(&self) -> Option<&Waiter> {
        self.waiter.as_ref()
    }

    #[inline]
    fn wake_sleepers(&self) {
        if let Some(waiter) = &self.waiter {
            waiter.ring();
        }
    }

    /// Records that the application has changed a value, wakes sleepers, and runs the due works.
    fn count_change_wake_and_fire(&self) {
        self.changes.fetch_add(1, Ordering::SeqCst);
        self.mark_due_if_threshold_reached();
        self.fence_and_wake_sleepers();
        self.fire_due_works();
    }

    /// Wakes sleepers after a change that was made without the lock under which sleepers check the counter.
    /// With the fence, either the sleeper's check sees the change, or this call sees the doorbell armed.
    fn fence_and_wake_sleepers(&self) {
        if let Some(waiter) = &self.waiter {
            waiter.ring_after_seqcst_fence();
        }
    }

    /// Drives the endpoints.
    pub(crate) fn progress(&self) {
        self.driven_endpoints.progress();
        self.fire_due_works();
    }

    /// Counts a read that returns this value, as an empty poll if the value has not changed.
    fn count_poll(&self, value: u64) {
        if self.last_read.load(Ordering::Relaxed) == value {
            self.driven_endpoints.count_empty_poll(&|| self.value.load(Ordering::Relaxed) != value);
        } else {
            self.last_read.store(value, Ordering::Relaxed);
            self.driven_endpoints.end_wait();
        }
    }

    /// Runs the due works: those that this counter triggers, and those of the domain of the driven
    /// endpoints.
    fn fire_all_due_works(&self) {
        self.driven_endpoints.fire_due_works();
        self.fire_due_works();
    }

    /// Returns the value, the error value, and the number of changes by the application. The third number
    /// reveals a change that set a value to the same number again.
    pub(crate) fn values_and_change_count(&self) -> [u64; 3] {
        [&self.value, &self.errors, &self.changes].map(|number| number.load(Ordering::SeqCst))
    }
}

impl CountAccess for CounterShared {
    fn count(&self, _: CounterEvents) {
        self.count_success();
    }
}

/// A condition to wait for: the counter has reached a threshold, or its error value has changed.
struct Goal<'a> {
    counter: &'a CounterShared,
    threshold: u64,
    errors_before: u64,
    /// The result of the last check. The result is kept, since the application may lower the value after
    /// the check.
    found: Cell<Option<Result<(), CounterWaitError>>>,
}

impl Goal<'_> {
    fn progress_and_check(&self) -> Option<Result<(), CounterWaitError>> {
        self.progress();
        self.poll_ready();
        self.found.take()
    }
}

impl Awaited for Goal<'_> {
    fn progress(&self) {
        self.counter.progress();
    }

    fn arm(&self) -> Armed {
        self.counter.driven_endpoints.arm()
    }

    fn fire_due_works(&self) {
        self.counter.fire_all_due_works();
    }

    fn poll_ready(&self) -> bool {
        let [value, errors, _] = self.counter.values_and_change_count();
        let value = value.saturating_add(u64::from(mutated!("fi_cntr/wait-reaches-threshold")));
        let found = if value >= self.threshold {
            Some(Ok(()))
        } else {
            let ended = match mutated!("fi_cntr/error-ends-wait") {
                true => Ok(()),
                false => Err(CounterWaitError::ErrorAvailable),
            };
            (errors != self.errors_before).then_some(ended)
        };
        self.found.set(found);
        found.is_some()
    }
}

/// A condition to wait for: the counter has changed since its last report to the application.
struct Change<'a>(&'a CounterShared);

impl Awaited for Change<'_> {
    fn progress(&self) {
        self.0.progress();
    }

    fn arm(&self) -> Armed {
        self.0.driven_endpoints.arm()
    }

    fn fire_due_works(&self) {
        self.0.fire_all_due_works();
    }

    fn poll_ready(&self) -> bool {
        self.0.reported.is_outdated(self.0.values_and_change_count())
    }

    fn mark_reported(&self) {
        self.0.reported.update_if_outdated(self.0.values_and_change_count());
    }
}

impl WaitSetMember for CounterShared {
    fn with_awaited(&self, show: &mut dyn FnMut(&Waiter, &dyn Awaited)) {
        if let Some(waiter) = &self.waiter
            && !mutated!("fi_cntr/counter-in-wait-set")
        {
            show(waiter, &Change(self));
        }
    }
}

impl fmt::Debug for Counter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [value, errors, _] = self.shared.values_and_change_count();
        f.debug_struct("Counter").field("value", &value).field("errors", &errors).finish_non_exhaustive()
    }
}

const NO_WAIT_OBJECT: Error = Error::Misuse(Misuse::Invalid(Argument::NoWaitObject));

#[cfg(test)]
mod tests;
