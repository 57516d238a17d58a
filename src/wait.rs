//! Waiting: wait objects, and sleeping until a queue or a counter, or any member of a set of them, has something to tell.
//! `fi_poll(3)`.
//!
//! What can be slept on has one descriptor, an `epoll(7)` instance, in which everything is nested that can give
//! it something to tell: the descriptors of its endpoints' transports, its doorbell, and a timer. Going to sleep takes
//! these steps, in this order, and whatever happens meanwhile is found by a later one or wakes the sleeper:
//!
//! 1. arm the doorbell: from now on whoever inserts an entry, or counts, or has the endpoints make progress, rings it;
//! 2. arm each endpoint, whose transport looks once more for frames;
//! 3. look at the ring of entries, or at the counter;
//! 4. sleep on the descriptor.
//!
//! To arm the doorbell is to silence it, so that it must not be done while others have not heard it yet. Whoever comes
//! when others sleep finds it armed, and joins them; or finds that it was rung, and waits until they have woken. An application
//! that sleeps by itself says nothing when it wakes, so it has a descriptor and a doorbell of its own, which those who sleep
//! inside calls of this library leave alone.

mod awaited;
mod epoll_set;
#[cfg(all(test, loom))]
mod loom_tests;
mod object;
mod set;
mod trywait;
#[expect(unsafe_code, reason = "a mutex of the C library is used by its own functions; see watcher.rs")]
mod watcher;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{OnceLock, Weak};
use std::time::Duration;
use std::{mem, process};

use homespun_engine::error::{Error, Misuse};
use homespun_engine::transport::Armed;
use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use rustix::io;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};

pub(crate) use self::awaited::{Awaited, Outlook, wait_until};
pub(crate) use self::epoll_set::EpollSet;
pub use self::object::WaitObject;
pub(crate) use self::set::Member;
use self::set::Membership;
pub use self::set::WaitSet;
pub use self::trywait::Waitable;
pub use self::watcher::MutexCond;
use self::watcher::Watcher;
use crate::doorbell::{Doorbell, system};
use crate::pump::Drive;
use crate::sync::Mutex;

/// The longest time that one look at the descriptor lasts, so that any timeout fits into what the system takes.
const NAP_MAX: Duration = Duration::from_secs(3600);

const NO_TIME: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// What an application waits by.
#[derive(Debug)]
pub(crate) struct Wait {
    object: WaitObject,
    signals: Signals,
    /// `None` for [`WaitObject::Yield`], under which nobody sleeps.
    bed: Option<Bed>,
    /// Sleeps for an application that has asked for a condition variable.
    watcher: OnceLock<Watcher>,
    /// That of a [`WaitObject::Set`].
    membership: Option<Membership>,
}

/// What sleepers sleep on.
#[derive(Debug)]
pub(crate) struct Bed {
    /// For calls of this library.
    own: Spot,
    /// For an application that sleeps by itself.
    application: Option<Spot>,
    /// For what announces itself to nobody, and is to be looked at after a while.
    timer: OwnedFd,
    occupancy: Mutex<Occupancy>,
    /// The process that it belongs to. A child has copies of the descriptors, and would turn them off for its parent.
    process: u32,
}

/// A descriptor to sleep on, and the doorbell that is nested in it.
#[derive(Debug)]
struct Spot {
    epoll: OwnedFd,
    doorbell: Doorbell,
}

#[derive(Debug, Default)]
struct Occupancy {
    /// How many threads sleep inside calls of this library, or are about to.
    sleepers: usize,
    is_timer_set: bool,
}

/// Somebody who may sleep.
#[derive(Debug)]
pub(crate) struct Sleeper<'a> {
    bed: &'a Bed,
}

impl Wait {
    /// What it takes to wait so; nothing, where the application does not. A [`WaitObject::Set`] has a set to be a member of;
    /// with other objects that is ignored.
    ///
    /// # Errors
    ///
    /// [`Misuse::NotSupported`] for the wait object that is not there, [`Misuse::Invalid`] for a member without a set; what the
    /// system says: EMFILE, ENFILE, ENOMEM, ENOSPC.
    pub(crate) fn new(object: WaitObject, set: Option<&WaitSet>) -> Result<Option<Wait>, Error> {
        let set = set.filter(|_| object == WaitObject::Set);
        let bed = match object {
            WaitObject::None => return Ok(None),
            WaitObject::Yield => None,
            WaitObject::Unspec => Some(Bed::new(false)?),
            WaitObject::Fd | WaitObject::MutexCond => Some(Bed::new(true)?),
            WaitObject::Set => match set.map(WaitSet::wait_object) {
                Some(WaitObject::Yield) => None,
                Some(_) => Some(Bed::new(true)?),
                None => return Err(Misuse::Invalid("a member of a wait set without the set").into()),
            },
            WaitObject::PollFd => return Err(Misuse::NotSupported("this wait object").into()),
        };
        let spot = bed.as_ref().and_then(|bed| bed.application.as_ref());
        let membership = set.map(|set| set.admit(spot)).transpose()?;
        let (signals, watcher) = (Signals::default(), OnceLock::new());
        Ok(Some(Wait { object, signals, bed, watcher, membership }))
    }

    /// Lets the set know the member that waits by this, if it is one of a set.
    pub(crate) fn attach(&self, member: Weak<impl Member + 'static>) {
        if let Some(membership) = &self.membership {
            membership.attach(member);
        }
    }

    /// This, unless it is waited for through a set alone.
    pub(crate) fn by_itself(&self) -> Option<&Wait> {
        Some(self).filter(|wait| wait.membership.is_none())
    }

    pub(crate) fn object(&self) -> WaitObject {
        self.object
    }

    pub(crate) fn bed(&self) -> Option<&Bed> {
        self.bed.as_ref()
    }

    /// The descriptor of [`WaitObject::Fd`].
    pub(crate) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.applications_fd().filter(|_| self.object == WaitObject::Fd)
    }

    fn applications_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.bed.as_ref()?.application.as_ref()?.epoll.as_fd())
    }

    /// Whether somebody may be asleep.
    pub(crate) fn is_armed(&self) -> bool {
        self.bed.as_ref().is_some_and(|bed| bed.doorbells().any(Doorbell::is_armed))
    }

    /// Wakes those who sleep, if there may be any.
    // Not inlined: it is called where most queues have no wait object.
    #[inline(never)]
    pub(crate) fn ring(&self) {
        if let Some(bed) = &self.bed {
            bed.doorbells().for_each(Doorbell::ring);
        }
    }

    /// As [`ring`](Self::ring), after something was done without a lock that whoever has gone to sleep takes for their look.
    #[cold]
    pub(crate) fn ring_after(&self) {
        if let Some(bed) = &self.bed {
            bed.doorbells().for_each(Doorbell::ring_after);
        }
    }

    /// The mutex and the condition variable of [`WaitObject::MutexCond`].
    ///
    /// # Errors
    ///
    /// What the system says: EMFILE, ENFILE, ENOMEM, EAGAIN.
    pub(crate) fn mutex_cond(&self) -> Result<Option<MutexCond>, Error> {
        let Some(fd) = self.applications_fd().filter(|_| self.object == WaitObject::MutexCond) else {
            return Ok(None);
        };
        Watcher::pair(&self.watcher, fd).map(Some)
    }

    /// What unblocks readers that wait.
    pub(crate) fn signals(&self) -> &Signals {
        &self.signals
    }

    /// Unblocks the readers that wait, or if there are none, the next one that would.
    pub(crate) fn signal(&self) {
        self.signals.raise();
        self.ring();
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        if let Some(membership) = &self.membership {
            // In a forked child it is the parent's set that would be changed.
            let bed = self.bed.as_ref().filter(|bed| !bed.is_elsewhere());
            membership.leave(bed.and_then(|bed| bed.application.as_ref()));
        }
    }
}

impl Spot {
    fn new() -> Result<Spot, Error> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)
            .map_err(|error| system("making an epoll descriptor", error))?;
        let spot = Spot { epoll, doorbell: Doorbell::new()? };
        spot.add(spot.doorbell.as_fd())?;
        Ok(spot)
    }

    /// Wakes sleepers for this descriptor too.
    fn add(&self, fd: BorrowedFd<'_>) -> Result<(), Error> {
        // Nobody looks at which descriptor it was that woke a sleeper.
        let data = epoll::EventData::new_u64(0);
        match epoll::add(&self.epoll, fd, data, epoll::EventFlags::IN) {
            // Enabling an endpoint has failed further on, and is tried again.
            Ok(()) | Err(io::Errno::EXIST) => Ok(()),
            Err(error) => Err(system("watching a descriptor", error)),
        }
    }

    fn remove(&self, fd: BorrowedFd<'_>) {
        let _ = epoll::delete(&self.epoll, fd);
    }
}

impl Bed {
    fn new(has_application: bool) -> Result<Bed, Error> {
        let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)
            .map_err(|error| system("making a timer", error))?;
        let application = if has_application { Some(Spot::new()?) } else { None };
        let (own, occupancy) = (Spot::new()?, Mutex::default());
        let bed = Bed { own, application, timer, occupancy, process: process::id() };
        bed.spots().try_for_each(|spot| spot.add(bed.timer.as_fd()))?;
        Ok(bed)
    }

    fn spots(&self) -> impl Iterator<Item = &Spot> {
        [Some(&self.own), self.application.as_ref()].into_iter().flatten()
    }

    #[inline]
    fn doorbells(&self) -> impl Iterator<Item = &Doorbell> {
        self.spots().map(|spot| &spot.doorbell)
    }

    /// Wakes sleepers for what happens at this endpoint.
    ///
    /// # Errors
    ///
    /// What the system says: ENOMEM, ENOSPC.
    pub(crate) fn watch(&self, endpoint: &dyn Drive) -> Result<(), Error> {
        // Nobody sleeps in a forked child, and the parent's sleepers would wake.
        if self.is_elsewhere() {
            return Ok(());
        }
        let mut added = Ok(());
        endpoint.with_wake_fd(&mut |fd| added = self.spots().try_for_each(|spot| spot.add(fd)));
        added
    }

    /// No longer. A child process may have a copy of the descriptor, which would go on waking.
    pub(crate) fn unwatch(&self, endpoint: &dyn Drive) {
        if self.is_elsewhere() {
            return;
        }
        endpoint.with_wake_fd(&mut |fd| self.spots().for_each(|spot| spot.remove(fd)));
    }

    /// What wakes those who sleep inside calls of this library.
    pub(crate) fn doorbell(&self) -> &Doorbell {
        &self.own.doorbell
    }

    /// Takes the first two steps towards sleep, inside a call of this library. `None` if there may be something to do, or others have not woken yet.
    pub(crate) fn prepare(&self, arm: impl FnOnce() -> Armed) -> Option<Sleeper<'_>> {
        if self.is_elsewhere() {
            return None;
        }
        // SYNC POINT bed. Held all the while, so that the timer is set as the one says who has looked last.
        let mut occupancy = self.occupancy.lock();
        if occupancy.sleepers == 0 {
            self.own.doorbell.arm();
        } else if !self.own.doorbell.is_armed() {
            return None;
        }
        match arm() {
            Armed::Ready => {
                self.own.doorbell.ring();
                None
            }
            Armed::Asleep { look_again_after } => {
                self.set_timer(&mut occupancy, look_again_after);
                occupancy.sleepers += 1;
                Some(Sleeper { bed: self })
            }
        }
    }

    /// Takes the first two steps towards a sleep that is the application's. Whether it may be.
    pub(crate) fn prepare_application(&self, arm: impl FnOnce() -> Armed) -> bool {
        let Some(doorbell) = self.applications_doorbell() else { return false };
        let mut occupancy = self.occupancy.lock();
        doorbell.arm();
        match arm() {
            Armed::Ready => {
                doorbell.ring();
                false
            }
            Armed::Asleep { look_again_after } => {
                self.set_timer(&mut occupancy, look_again_after);
                true
            }
        }
    }

    /// What wakes an application that sleeps by itself, in the process that it belongs to.
    pub(crate) fn applications_doorbell(&self) -> Option<&Doorbell> {
        self.application.as_ref().filter(|_| !self.is_elsewhere()).map(|spot| &spot.doorbell)
    }

    /// Has sleepers wake after a while, or no longer.
    fn set_timer(&self, occupancy: &mut Occupancy, after: Option<Duration>) {
        if after.is_none() && !occupancy.is_timer_set {
            return;
        }
        let after_at_least = after.map(|after| after.max(Duration::from_nanos(1)));
        let it_value = after_at_least.map_or(NO_TIME, timespec);
        let time = Itimerspec { it_interval: NO_TIME, it_value };
        // It fails only for times that make no sense.
        let _ = timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &time);
        occupancy.is_timer_set = after.is_some();
    }

    /// Whether this is a forked child of the process that it belongs to.
    fn is_elsewhere(&self) -> bool {
        self.process != process::id()
    }
}

impl Sleeper<'_> {
    /// Sleeps until something happens, or the time is over, or for no reason at all.
    pub(crate) fn sleep(self, at_most: Option<Duration>) {
        #[cfg(all(test, loom))]
        self.bed.own.doorbell.wait();
        nap(&self.bed.own.epoll, at_most);
    }
}

/// Sleeps until a descriptor is readable, or the time is over, or for no reason at all.
fn nap(fd: &OwnedFd, at_most: Option<Duration>) {
    let at_most = timespec(at_most.map_or(NAP_MAX, |time| time.min(NAP_MAX)));
    // A signal of the system ends it early, which does no harm.
    let _ = poll(&mut [PollFd::new(fd, PollFlags::IN)], Some(&at_most));
}

impl Drop for Sleeper<'_> {
    fn drop(&mut self) {
        self.bed.occupancy.lock().sleepers -= 1;
    }
}

fn timespec(time: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(time.subsec_nanos()),
    }
}

/// Who waits, and how often they were asked to stop waiting.
#[derive(Debug, Default)]
pub(crate) struct Signals(Mutex<Raised>);

#[derive(Debug, Default)]
struct Raised {
    waiters: usize,
    /// How often those who waited were asked to stop.
    count: u64,
    /// Whether there was a signal that nobody was there for.
    is_pending: bool,
}

impl Signals {
    fn raise(&self) {
        let mut raised = self.0.lock();
        if raised.waiters > 0 {
            raised.count += 1;
        } else {
            raised.is_pending = true;
        }
    }

    /// Whether there was a signal that nobody was there for, and has not been told of.
    fn is_pending(&self) -> bool {
        self.0.lock().is_pending
    }

    /// It is told of.
    fn take_pending(&self) {
        self.0.lock().is_pending = false;
    }

    /// How many wait.
    #[cfg(test)]
    pub(crate) fn waiters(&self) -> usize {
        self.0.lock().waiters
    }

    /// Somebody waits from now on.
    pub(crate) fn enter(&self) -> Waiter<'_> {
        let mut raised = self.0.lock();
        raised.waiters += 1;
        Waiter { signals: self, seen: raised.count }
    }
}

/// Somebody who waits.
#[derive(Debug)]
pub(crate) struct Waiter<'a> {
    signals: &'a Signals,
    /// How often others were signalled before it came.
    seen: u64,
}

impl Waiter<'_> {
    /// Whether it is to wait no longer.
    pub(crate) fn is_signalled(&self) -> bool {
        let mut raised = self.signals.0.lock();
        mem::take(&mut raised.is_pending) || raised.count != self.seen
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        self.signals.0.lock().waiters -= 1;
    }
}
