//! Wait sets: a thread sleeps until one of several queues and counters has an event. `fi_poll(3)`.
//!
//! Each member has an epoll set and a doorbell, as for an application that sleeps by itself. The wait set's
//! epoll set contains those of its members. A thread goes to sleep in the steps of [`wait`](super), and
//! takes each step for all members before the next step. Adding a member rings the wait set's own doorbell.

mod members;
#[cfg(test)]
mod tests;

use std::fmt;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Weak};
use std::time::Duration;

use homespun_engine::error::{Error, InUse, Misuse};
use homespun_engine::rejected::Rejected;

use self::members::{AnyMember, SetMembers};
use super::sleepers::Sleepers;
use super::{Awaited, MutexCond, WaitError, WaitObject, Waiter};
use crate::clock::Clock;
use crate::mutated;
use crate::sync::{AtomicU64, Mutex, Ordering};

/// Waits for several completion queues, counters and event queues at once: `fi_wait_open` of `fi_poll(3)`.
///
/// An application opens a member with [`WaitObject::Set`] and with the set in the member's attributes. The
/// member leaves the set when it is closed. If a thread waits for the set meanwhile, the closed member is
/// freed when the thread wakes. Members may belong to different domains. A thread cannot wait for a single
/// member, unless the member is a counter.
///
/// Clones of a handle refer to the same set. Any thread may use a set at any time. A set takes three file
/// descriptors, and each member five. With [`WaitObject::Yield`] they take none.
///
/// ```
/// use homespun::{CounterAttr, CqAttr, Fabric, Hints, WaitObject};
/// # use homespun::{AvAttr, BindFlags, Bytes, BytesMut, CounterEvents, FabricAddress};
///
/// let fabric = Fabric::new();
/// # let info = &fabric.info(&Hints::new().node("127.0.0.1").source())?;
/// # let domain = fabric.domain(info)?;
/// let set = fabric.open_wait_set(WaitObject::Unspec)?;
/// let member = Some(set.clone());
/// let cq_attr = CqAttr { wait: WaitObject::Set, wait_set: member.clone(), ..CqAttr::default() };
/// let cq = domain.open_cq(&cq_attr)?;
/// let sent = domain.open_counter(&CounterAttr { wait: WaitObject::Set, wait_set: member })?;
/// # let (av, endpoint) = (domain.open_av(&AvAttr::default())?, domain.endpoint(info)?);
/// # endpoint.bind_av(&av)?;
/// # endpoint.bind_cq(&cq, BindFlags::TRANSMIT | BindFlags::RECV)?;
/// # endpoint.bind_counter(&sent, CounterEvents::SEND)?;
/// # endpoint.enable()?;
/// # let own = av.insert_one(endpoint.name()?)?;
/// # endpoint.recv(BytesMut::zeroed(16), FabricAddress::UNSPECIFIED, 1)?;
/// # endpoint.send(Bytes::from_static(b"hello"), own, 2)?;
/// // Wakes for either of the two.
/// let mut ended = Vec::new();
/// while ended.len() < 2 || sent.read() < 1 {
///     set.wait(None)?;
///     while let Some(completion) = cq.read().expect("no failure") {
///         ended.push(completion.context);
///     }
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct WaitSet {
    shared: Arc<WaitSetShared>,
}

struct WaitSetShared {
    waiter: Waiter,
    members: Mutex<SetMembers>,
    /// How often a member was reported to a thread. A report ends the waits of all other threads, even if
    /// they do not find the event.
    reports: AtomicU64,
    /// The clock of waits.
    clock: Clock,
}

/// An object that can be a member of a set.
pub(crate) trait WaitSetMember: Send + Sync {
    /// Calls `show` with the object's waiter and awaited event. Does not call `show` without a wait object.
    fn with_awaited(&self, show: &mut dyn FnMut(&Waiter, &dyn Awaited));
}

/// The membership of one member in a set. The member's [`Waiter`] holds it.
pub(super) struct WaitSetMembership {
    set: Arc<WaitSetShared>,
    number: u64,
}

impl WaitSet {
    /// Opens a set without members.
    ///
    /// # Errors
    ///
    /// As [`Fabric::open_wait_set`](crate::Fabric::open_wait_set).
    pub(crate) fn open(object: WaitObject, clock: &Clock) -> Result<WaitSet, Error> {
        let (waiter, members) = (Waiter::for_wait_set(object, clock)?, Mutex::default());
        let (reports, clock) = (AtomicU64::new(0), clock.clone());
        Ok(WaitSet { shared: Arc::new(WaitSetShared { waiter, members, reports, clock }) })
    }

    /// Waits until a member has an event: `fi_wait`. Without a timeout there is no limit.
    ///
    /// A queue has an event while it is not empty. A counter has one event after each change.
    /// [`CompletionQueue::signal`](crate::CompletionQueue::signal) of a member ends a wait, too.
    ///
    /// An event of a counter ends only waits that have already begun. So threads that wait for different
    /// counters need different sets, or wait for a value ([`Counter::wait`](crate::Counter::wait)).
    ///
    /// The thread sleeps, and makes a pass at each event of an endpoint of a member. With
    /// [`WaitObject::Yield`], and for transports that must be polled, it polls and yields the processor
    /// between polls. If several threads wait, only one does this, and the others sleep until it wakes.
    ///
    /// # Errors
    ///
    /// [`WaitError::TimedOut`]. [`WaitError::Interrupted`], as
    /// [`CompletionQueue::sread`](crate::CompletionQueue::sread) returns `None`. [`WaitError::Deadlock`].
    pub fn wait(&self, timeout: Option<Duration>) -> Result<(), WaitError> {
        self.wait_after_report_count(self.shared.report_count(), timeout)
    }

    /// As [`wait`](Self::wait), for a thread that began to wait when the count of reports was `reports`.
    fn wait_after_report_count(&self, reports: u64, timeout: Option<Duration>) -> Result<(), WaitError> {
        let any = AnyMember::new(&self.shared, Some(reports));
        let WaitSetShared { waiter, clock, .. } = &*self.shared;
        waiter.wait(clock, timeout, &any, || any.take_found_flag()).or_else(|ended| {
            any.progress();
            any.poll_ready().then_some(()).ok_or(ended)
        })
    }

    /// Prepares to sleep on [`wait_fd`](Self::wait_fd) or [`wait_mutex_cond`](Self::wait_mutex_cond):
    /// `fi_trywait(3)`. Makes progress first. The application must call this before each sleep. Only one
    /// thread at a time may sleep this way, and no thread may [`wait`](Self::wait) meanwhile.
    ///
    /// Returns `true` if the application may sleep: a later change at a member will wake the application.
    /// Returns `false` if a member may have an event, if a transport must be polled, or for
    /// [`WaitObject::Yield`]. `try_wait` of a member returns the same.
    ///
    /// # Errors
    ///
    /// None. The `Result` is only for the signature of [`Waitable`](super::Waitable).
    pub fn try_wait(&self) -> Result<bool, Error> {
        Ok(self.shared.try_wait())
    }

    /// Returns the descriptor to sleep on: `FI_GETWAIT`. Returns `None` unless the set was opened with
    /// [`WaitObject::Fd`]. See [`CompletionQueue::wait_fd`](crate::CompletionQueue::wait_fd).
    pub fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(&self.shared.waiter).filter(|_| !mutated!("fi_poll/wait-set-descriptor"))?.fd()
    }

    /// Returns the mutex and the condition variable to sleep on: `FI_GETWAIT`. Returns `None` unless the set
    /// was opened with [`WaitObject::MutexCond`]. See
    /// [`CompletionQueue::wait_mutex_cond`](crate::CompletionQueue::wait_mutex_cond).
    ///
    /// # Errors
    ///
    /// The system's error: EMFILE, ENFILE, ENOMEM, EAGAIN.
    pub fn wait_mutex_cond(&self) -> Result<Option<MutexCond>, Error> {
        self.shared.waiter.mutex_cond()
    }

    /// Returns the wait object that the set was opened with.
    pub fn wait_object(&self) -> WaitObject {
        self.shared.waiter.object()
    }

    /// Closes the set.
    ///
    /// # Errors
    ///
    /// [`Misuse::Busy`], with the set, while it has members. If another thread waits for the set, an object
    /// that was just closed may remain a member for a moment.
    pub fn close(self) -> Result<(), Rejected<WaitSet>> {
        if self.shared.members.lock().is_empty() || mutated!("fi_poll/close-wait-set-ebusy") {
            return Ok(());
        }
        Err(Rejected { error: Misuse::Busy(InUse::WaitSet).into(), returned: self })
    }

    /// Adds a member that is being opened. From now on events of the member wake the sleepers of this set.
    ///
    /// # Errors
    ///
    /// The system's error: ENOMEM, ENOSPC.
    pub(super) fn add_opening_member(&self, sleepers: Option<&Sleepers>) -> Result<WaitSetMembership, Error> {
        let number = self.shared.members.lock().add_opening_member();
        // List the member first. A sleeper that the member's descriptor wakes must find the member in the
        // list, and yield until the member is open.
        let watched = self.shared.waiter.watch_member(sleepers);
        if watched.is_err() {
            self.shared.members.lock().remove(number);
        }
        watched.map(|()| WaitSetMembership { set: self.shared.clone(), number })
    }
}

impl WaitSetShared {
    /// Returns the number of reports of members to threads.
    fn report_count(&self) -> u64 {
        self.reports.load(Ordering::SeqCst)
    }

    fn try_wait(&self) -> bool {
        self.waiter.try_wait(&AnyMember::new(self, None)) || mutated!("fi_poll/trywait-of-wait-set")
    }
}

impl WaitSetMembership {
    /// Attaches the member, once it is open, and wakes the set's sleepers.
    pub(super) fn attach(&self, member: Weak<dyn WaitSetMember>) {
        self.set.members.lock().attach(self.number, member);
        self.set.waiter.ring_after_seqcst_fence();
    }

    /// As [`WaitSet::try_wait`].
    pub(super) fn try_wait(&self) -> bool {
        self.set.try_wait()
    }

    /// Removes a member that is being closed. Its events no longer wake the sleepers of this set.
    pub(super) fn leave(&self, sleepers: Option<&Sleepers>) {
        self.set.waiter.unwatch_member(sleepers);
        self.set.members.lock().remove(self.number);
    }
}

/// Whether both are the same set.
impl PartialEq for WaitSet {
    fn eq(&self, other: &WaitSet) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }
}

impl Eq for WaitSet {}

impl fmt::Debug for WaitSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WaitSet")
            .field("object", &self.shared.waiter.object())
            .field("members", &self.shared.members.lock().len())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for WaitSetMembership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WaitSetMembership").field("number", &self.number).finish_non_exhaustive()
    }
}
