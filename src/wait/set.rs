//! Wait sets: sleeping until any of several queues and counters has something to tell. `fi_poll(3)`.
//!
//! A member has a descriptor and a doorbell as if the application slept on it by itself, and the set has a descriptor in which
//! those are nested. Going to sleep takes the steps of [`wait`](super), each of them for all members before the next. The set's own
//! doorbell is rung by members that come.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::thread;
use std::time::{Duration, Instant};

use homespun_engine::error::{Error, Misuse};
use parking_lot::Mutex;

use super::awaited::Prospect;
use super::watcher::Watcher;
use super::{Awaited, MutexCond, Spot, Wait, WaitObject, nap};

/// Waits for several completion queues, counters and event queues at once: `fi_wait_open` of `fi_poll(3)`.
///
/// Members are opened with [`WaitObject::Set`] and with the set in their attributes, and remain members until they are closed.
/// One that is closed while a thread waits for the set is freed when that thread wakes.
/// They may belong to different domains. They are not waited for one by one any more, except counters.
///
/// A handle: clones refer to the same set, which any thread may use at any time. It takes two file descriptors, and each
/// member five; with [`WaitObject::Yield`] none at all.
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
/// let cq = domain.open_cq(&CqAttr { wait: WaitObject::Set, wait_set: member.clone(), ..CqAttr::default() })?;
/// let sent = domain.open_counter(&CounterAttr { wait: WaitObject::Set, wait_set: member })?;
/// # let (av, endpoint) = (domain.open_av(&AvAttr::default())?, domain.endpoint(info)?);
/// # endpoint.bind_av(&av)?;
/// # endpoint.bind_cq(&cq, BindFlags::TRANSMIT | BindFlags::RECV)?;
/// # endpoint.bind_counter(&sent, CounterEvents::SEND)?;
/// # endpoint.enable()?;
/// # let own = av.insert_one(endpoint.name()?)?;
/// # endpoint.recv(BytesMut::zeroed(16), FabricAddress::UNSPECIFIED, 1)?;
/// # endpoint.send(Bytes::from_static(b"hello"), own, 2)?;
/// // Wakes for whichever of the two has something to tell.
/// let mut ended = Vec::new();
/// while ended.len() < 2 || sent.read() < 1 {
///     assert!(set.wait(None));
///     while let Ok(completion) = cq.read() {
///         ended.push(completion.context);
///     }
/// }
/// # Ok::<(), homespun::Error>(())
/// ```
#[derive(Clone)]
pub struct WaitSet {
    shared: Arc<Shared>,
}

struct Shared {
    object: WaitObject,
    /// `None` for [`WaitObject::Yield`], under which nobody sleeps.
    spot: Option<Spot>,
    /// Sleeps for an application that has asked for a condition variable.
    watcher: OnceLock<Watcher>,
    members: Mutex<Members>,
    /// Held by whoever sleeps inside a call of this library: others would silence the doorbells that it listens to.
    turn: Mutex<()>,
    /// How often somebody was told of something. Whoever waits meanwhile is told so too, since they may not find it any more.
    news: AtomicU64,
    /// The process that it belongs to. A child has copies of the descriptors, and would turn them off for its parent.
    process: u32,
}

#[derive(Default)]
struct Members {
    next: u64,
    /// Each with its number. It is there as soon as it has been opened.
    all: Vec<(u64, Option<Weak<dyn Member>>)>,
}

/// What can be a member of a set.
pub(crate) trait Member: Send + Sync {
    /// Shows what it waits by, and for what.
    fn with_awaited(&self, show: &mut dyn FnMut(&Wait, &dyn Awaited));
}

/// Held by a member's [`Wait`].
pub(super) struct Membership {
    set: Arc<Shared>,
    number: u64,
}

impl WaitSet {
    /// Opens a set without members.
    ///
    /// # Errors
    ///
    /// As [`Fabric::open_wait_set`](crate::Fabric::open_wait_set).
    pub(crate) fn open(object: WaitObject) -> Result<WaitSet, Error> {
        let spot = match object {
            WaitObject::Yield => None,
            WaitObject::Unspec | WaitObject::Fd | WaitObject::MutexCond => Some(Spot::new()?),
            WaitObject::PollFd => return Err(Misuse::NotSupported("this wait object").into()),
            WaitObject::None | WaitObject::Set => {
                return Err(Misuse::Invalid("not a wait object of a wait set").into());
            }
        };
        let (watcher, members, turn) = (OnceLock::new(), Mutex::default(), Mutex::default());
        let (news, process) = (AtomicU64::new(0), process::id());
        Ok(WaitSet { shared: Arc::new(Shared { object, spot, watcher, members, turn, news, process }) })
    }

    /// Waits until a member has something to tell, for ever if there is no timeout: `fi_wait`. Whether one may have; if not, the
    /// time is over.
    ///
    /// A queue has something to tell for as long as it is not empty, a counter once after it has changed.
    /// [`CompletionQueue::signal`](crate::CompletionQueue::signal) of a member ends a wait, too. What one thread is told of ends
    /// the waits of all that wait at that moment. Whoever comes later is not told of it; threads that wait for different counters
    /// have sets of their own, or know what value they wait for ([`Counter::wait`](crate::Counter::wait)).
    ///
    /// The thread sleeps, and makes progress whenever something happens at an endpoint of a member; it yields the processor
    /// between polls with [`WaitObject::Yield`], and for transports that have to be polled. Threads that wait at once take
    /// turns at it: while the first one sleeps, the others sleep until it wakes. A signal of the system does not end the wait.
    #[must_use]
    pub fn wait(&self, timeout: Option<Duration>) -> bool {
        self.wait_since(self.shared.news.load(Ordering::SeqCst), timeout)
    }

    /// The same for whoever came when there was so much news.
    fn wait_since(&self, news: u64, timeout: Option<Duration>) -> bool {
        // A timeout too long for the clock is no timeout.
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let set = &*self.shared;
        loop {
            // Most of what there may be to do is found without asking anybody to wake anybody.
            let members = set.members();
            if members.have_something() || set.has_told_since(news) {
                return true;
            }
            let left = || deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if left() == Some(Duration::ZERO) {
                return false;
            }
            let Some(spot) = set.spot_here() else {
                thread::yield_now();
                continue;
            };
            let turn = match deadline {
                Some(deadline) => set.turn.try_lock_until(deadline),
                None => Some(set.turn.lock()),
            };
            if turn.is_none() {
                continue;
            }
            let prospect = members.lie_down(spot);
            if prospect == Prospect::Quiet && !set.has_told_since(news) {
                nap(&spot.epoll, left());
            }
            members.get_up();
            drop(turn);
            match prospect {
                Prospect::Something => return true,
                Prospect::Busy => thread::yield_now(),
                Prospect::Quiet => {}
            }
        }
    }

    /// Whether the application may now sleep on [`wait_fd`](Self::wait_fd) or [`wait_mutex_cond`](Self::wait_mutex_cond):
    /// `fi_trywait(3)`. If not, a member may have something to tell. To be called before each time; it speaks for all members, and
    /// so does `try_wait` of any of them. One thread at a time sleeps so, and none waits by [`wait`](Self::wait) meanwhile.
    ///
    /// Never, where an endpoint's transport has to be polled, nor for [`WaitObject::Yield`].
    ///
    /// # Errors
    ///
    /// None. It has the form of the question that other [`Waitable`](super::Waitable) objects may refuse.
    pub fn try_wait(&self) -> Result<bool, Error> {
        Ok(self.shared.try_wait())
    }

    /// The descriptor to sleep on, for a set that was opened with [`WaitObject::Fd`], as
    /// [`CompletionQueue::wait_fd`](crate::CompletionQueue::wait_fd): `FI_GETWAIT`.
    pub fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        self.shared.fd().filter(|_| self.shared.object == WaitObject::Fd)
    }

    /// The mutex and the condition variable to sleep on, for a set that was opened with [`WaitObject::MutexCond`], as
    /// [`CompletionQueue::wait_mutex_cond`](crate::CompletionQueue::wait_mutex_cond): `FI_GETWAIT`.
    ///
    /// # Errors
    ///
    /// What the system says: EMFILE, ENFILE, ENOMEM, EAGAIN.
    pub fn wait_mutex_cond(&self) -> Result<Option<MutexCond>, Error> {
        match self.shared.fd().filter(|_| self.shared.object == WaitObject::MutexCond) {
            Some(fd) => Watcher::pair(&self.shared.watcher, fd).map(Some),
            None => Ok(None),
        }
    }

    /// How the application waits.
    pub fn wait_object(&self) -> WaitObject {
        self.shared.object
    }

    /// Closes the set.
    ///
    /// # Errors
    ///
    /// [`Misuse::Busy`], with the set, while it has members. One that has just been closed may be a member for a moment more, if
    /// another thread waits for the set.
    pub fn close(self) -> Result<(), (WaitSet, Error)> {
        if self.shared.members.lock().all.is_empty() {
            return Ok(());
        }
        Err((self, Misuse::Busy("queues or counters are members of the wait set").into()))
    }

    /// Makes room for a member, which sleeps as this spot has it.
    pub(super) fn admit(&self, spot: Option<&Spot>) -> Result<Membership, Error> {
        if let (Some(own), Some(spot)) = (self.shared.spot_here(), spot) {
            own.add(spot.epoll.as_fd())?;
        }
        let mut members = self.shared.members.lock();
        let number = members.next;
        members.next += 1;
        members.all.push((number, None));
        Ok(Membership { set: self.shared.clone(), number })
    }
}

impl Shared {
    fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.spot.as_ref().map(|spot| spot.epoll.as_fd())
    }

    /// What is slept on, in the process that it belongs to.
    fn spot_here(&self) -> Option<&Spot> {
        self.spot.as_ref().filter(|_| self.process == process::id())
    }

    /// Whether somebody was told of something after there was so much news.
    fn has_told_since(&self, news: u64) -> bool {
        self.news.load(Ordering::SeqCst) != news
    }

    /// Those who are there now. They are asked with nothing locked, since they may do whatever the application's buffers do when
    /// they are dropped.
    fn members(&self) -> Present {
        let members = self.members.lock();
        let mut present = Present { members: Vec::with_capacity(members.all.len()), somebody_comes: false };
        for (_, member) in &members.all {
            match member {
                Some(member) => present.members.extend(member.upgrade()),
                None => present.somebody_comes = true,
            }
        }
        present
    }

    /// Takes the steps towards a sleep of the application's. Whether it may be.
    fn try_wait(&self) -> bool {
        let members = self.members();
        if members.have_something() {
            return false;
        }
        let Some(spot) = self.spot_here() else { return false };
        let is_quiet = members.lie_down(spot) == Prospect::Quiet;
        if !is_quiet {
            members.get_up();
        } else if let Some(watcher) = self.watcher.get() {
            watcher.attend();
        }
        is_quiet
    }
}

/// The members of a set, while they are asked.
struct Present {
    members: Vec<Arc<dyn Member>>,
    /// Whether there is one whose descriptor is watched, and which is not there yet.
    somebody_comes: bool,
}

impl Present {
    fn for_each(&self, mut act: impl FnMut(&Wait, &dyn Awaited)) {
        self.members.iter().for_each(|member| member.with_awaited(&mut act));
    }

    /// Makes progress at all of them. Whether one has something to tell.
    fn have_something(&self) -> bool {
        self.for_each(|_, awaited| awaited.progress());
        self.are_told()
    }

    /// Whether one has something to tell.
    fn are_told(&self) -> bool {
        let mut are_told = false;
        self.for_each(|wait, awaited| are_told |= wait.is_told(awaited));
        are_told
    }

    /// Arms everything, and then looks once more. Not for one after the other: progress for one may be that of an endpoint that
    /// was armed for another.
    fn lie_down(&self, spot: &Spot) -> Prospect {
        spot.doorbell.arm();
        let mut is_armed = !self.somebody_comes;
        self.for_each(|wait, awaited| is_armed &= wait.arm(awaited));
        match (self.are_told(), is_armed) {
            (true, _) => Prospect::Something,
            (false, true) => Prospect::Quiet,
            (false, false) => Prospect::Busy,
        }
    }

    /// Nobody sleeps any more. Endpoints that find a doorbell armed would go on doing what whoever may be asleep needs.
    fn get_up(&self) {
        self.for_each(|wait, _| wait.disarm());
    }
}

impl Membership {
    /// The member is open.
    pub(super) fn attach(&self, member: Weak<dyn Member>) {
        let mut members = self.set.members.lock();
        if let Some((_, vacant)) = members.all.iter_mut().find(|(number, _)| *number == self.number) {
            *vacant = Some(member);
        }
        drop(members);
        if let Some(spot) = &self.set.spot {
            spot.doorbell.ring_after();
        }
    }

    /// Something is told to somebody, and so to all who wait.
    pub(super) fn end_waits(&self) {
        self.set.news.fetch_add(1, Ordering::SeqCst);
    }

    /// As [`WaitSet::try_wait`].
    pub(super) fn try_wait(&self) -> bool {
        self.set.try_wait()
    }

    /// The member is closed, which slept as this spot has it. A child process may have a copy of its descriptor, which would go on
    /// waking.
    pub(super) fn leave(&self, spot: Option<&Spot>) {
        if let (Some(own), Some(spot)) = (self.set.spot_here(), spot) {
            own.remove(spot.epoll.as_fd());
        }
        self.set.members.lock().all.retain(|(number, _)| *number != self.number);
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
            .field("object", &self.shared.object)
            .field("members", &self.shared.members.lock().all.len())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Membership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Membership").field("number", &self.number).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
