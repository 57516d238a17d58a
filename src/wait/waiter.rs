//! The loop in which threads wait, for any kind of event.

use std::mem;
use std::os::fd::BorrowedFd;
use std::sync::{OnceLock, Weak};
use std::time::Duration;

use homespun_engine::error::{Argument, Error, Misuse, Unsupported};

use super::awaited::Awaited;
use super::brief_poll::BriefPoll;
use super::deadline::Deadline;
use super::error::WaitError;
use super::set::{WaitSetMember, WaitSetMembership};
#[cfg(feature = "simulator")]
use super::simulated;
use super::sleepers::{SleepPlace, Sleeper, Sleepers};
use super::watcher::{MutexCond, Watcher};
use super::{WaitObject, WaitSet};
use crate::clock::Clock;
use crate::doorbell::Doorbell;
use crate::drive::Drive;
use crate::mutated;
use crate::sync::yield_now;

/// How threads wait for one queue, counter or wait set.
#[derive(Debug)]
pub(crate) struct Waiter {
    object: WaitObject,
    /// `None` for [`WaitObject::Yield`]: threads poll instead of sleeping.
    sleepers: Option<Sleepers>,
    brief_poll: BriefPoll,
    /// The watcher, once the application has asked for the condition variable.
    watcher: OnceLock<Watcher>,
    /// The membership in a wait set, for [`WaitObject::Set`].
    membership: Option<WaitSetMembership>,
}

/// The result of the last check before a thread sleeps.
enum SleepCheck<'a> {
    /// There is nothing to do. The next event wakes the sleeper.
    Quiet(Sleeper<'a>),
    /// The awaited event has happened.
    Ready,
    /// There may be more to do.
    Busy,
}

/// The waiter for objects without a wait object. A thread polls, and yields the processor between polls.
static POLLING: Waiter = Waiter::with(WaitObject::Yield, None, None);

impl Waiter {
    /// Returns the waiter of a queue or a counter; `None` for [`WaitObject::None`]. With [`WaitObject::Set`]
    /// the object joins `set`. Other wait objects ignore `set`.
    ///
    /// # Errors
    ///
    /// [`Misuse::NotSupported`] for an unsupported wait object. [`Misuse::Invalid`] for [`WaitObject::Set`]
    /// without a set. The system's error: EMFILE, ENFILE, ENOMEM, ENOSPC.
    pub(crate) fn new(
        object: WaitObject,
        set: Option<&WaitSet>,
        clock: &Clock,
    ) -> Result<Option<Waiter>, Error> {
        let set = set.filter(|_| object == WaitObject::Set || mutated!("fi_cq/wait-set-field"));
        check_simulated(object, clock)?;
        let sleepers = match object {
            WaitObject::None => return Ok(None),
            WaitObject::Yield => None,
            WaitObject::Unspec if clock.is_of_simulation() => None,
            WaitObject::Unspec => Some(Sleepers::new(false)?),
            WaitObject::Fd | WaitObject::MutexCond => Some(Sleepers::new(true)?),
            WaitObject::Set => match set.map(WaitSet::wait_object) {
                Some(WaitObject::Yield) => None,
                Some(_) if clock.is_of_simulation() => None,
                Some(_) => Some(Sleepers::new(true)?),
                None => return Err(Misuse::Invalid(Argument::NoWaitSet).into()),
            },
            WaitObject::PollFd => return Err(Misuse::NotSupported(Unsupported::PollFd).into()),
        };
        let membership = set.map(|set| set.add_opening_member(sleepers.as_ref())).transpose()?;
        Ok(Some(Waiter::with(object, sleepers, membership)))
    }

    /// Returns the waiter of a wait set.
    ///
    /// # Errors
    ///
    /// [`Misuse::NotSupported`] and [`Misuse::Invalid`] for a wait object that a wait set cannot have. The
    /// system's error: EMFILE, ENFILE, ENOMEM, ENOSPC.
    pub(super) fn for_wait_set(object: WaitObject, clock: &Clock) -> Result<Waiter, Error> {
        check_simulated(object, clock)?;
        let sleepers = match object {
            WaitObject::Yield => None,
            WaitObject::Unspec if clock.is_of_simulation() => None,
            WaitObject::MutexCond if mutated!("fi_poll/wait-set-objects") => {
                return Err(Misuse::Invalid(Argument::WaitSetObject).into());
            }
            WaitObject::Unspec | WaitObject::Fd | WaitObject::MutexCond => Some(Sleepers::for_wait_set()?),
            WaitObject::PollFd if mutated!("fi_poll/wait-set-pollfd") => Some(Sleepers::for_wait_set()?),
            WaitObject::PollFd => return Err(Misuse::NotSupported(Unsupported::PollFd).into()),
            WaitObject::None | WaitObject::Set => {
                return Err(Misuse::Invalid(Argument::WaitSetObject).into());
            }
        };
        Ok(Waiter::with(object, sleepers, None))
    }

    const fn with(
        object: WaitObject,
        sleepers: Option<Sleepers>,
        membership: Option<WaitSetMembership>,
    ) -> Waiter {
        Waiter { object, sleepers, brief_poll: BriefPoll::new(), watcher: OnceLock::new(), membership }
    }

    /// Returns `waiter`, or a waiter that polls if there is none.
    pub(crate) fn waiter_or_polling_one(waiter: Option<&Waiter>) -> &Waiter {
        waiter.unwrap_or(&POLLING)
    }

    /// Attaches the object of this waiter to its wait set, if it has one.
    pub(crate) fn attach_member(&self, member: Weak<impl WaitSetMember + 'static>) {
        if let Some(membership) = &self.membership {
            membership.attach(member);
        }
    }

    /// Returns this waiter, unless its object is a member of a set.
    pub(crate) fn if_not_set_member(&self) -> Option<&Waiter> {
        Some(self).filter(|waiter| waiter.membership.is_none())
    }

    /// Repeats an attempt until it succeeds, the timeout ends, or a signal handler ends a sleep. After an
    /// error the caller makes a last attempt.
    ///
    /// After the first attempt the thread polls for a short time, if that has helped lately. Between attempts
    /// it sleeps, unless it finds the event first. If two checks in a row forbid a sleep, it yields the
    /// processor, and no signal ends the wait.
    ///
    /// With the clock of a simulation, the thread does not sleep: it drives all endpoints of the simulation.
    ///
    /// # Errors
    ///
    /// [`WaitError`].
    pub(crate) fn wait<R>(
        &self,
        clock: &Clock,
        timeout: Option<Duration>,
        awaited: &impl Awaited,
        mut attempt: impl FnMut() -> Option<R>,
    ) -> Result<R, WaitError> {
        #[cfg(feature = "simulator")]
        if let Clock::Simulation(simulation) = clock {
            return simulated::wait(simulation, timeout, awaited, attempt);
        }
        let _ = clock;
        let deadline = Deadline::after(timeout);
        let mut polls_briefly = self.may_poll_briefly();
        let mut found_busy = false;
        while !deadline.has_passed() {
            if let Some(found) = attempt() {
                return Ok(found);
            }
            if mem::take(&mut polls_briefly)
                && self.brief_poll.finds(awaited, deadline)
                && let Some(found) = attempt()
            {
                return Ok(found);
            }
            match self.prepare_sleep(SleepPlace::Call, awaited, deadline)? {
                SleepCheck::Ready => {
                    if let Some(found) = attempt() {
                        return Ok(found);
                    }
                }
                // What arrived while the thread armed is there now: beside a program that computes, a yield
                // would delay it by milliseconds.
                SleepCheck::Busy if !mem::replace(&mut found_busy, true) => {}
                SleepCheck::Busy => yield_now(),
                SleepCheck::Quiet(sleeper) => {
                    found_busy = false;
                    let slept = sleeper.sleep(deadline.remaining());
                    // Disarm before `sleeper` is dropped: after that another call may sleep.
                    awaited.disarm();
                    slept?;
                }
            }
        }
        Err(WaitError::TimedOut)
    }

    /// Prepares a sleep of the application: `fi_trywait(3)`. Returns whether the application may sleep until
    /// the event. For a member of a set, returns the result of the whole set.
    pub(crate) fn try_wait(&self, awaited: &impl Awaited) -> bool {
        if let Some(membership) = &self.membership {
            return membership.try_wait();
        }
        match self.prepare_sleep(SleepPlace::Application, awaited, Deadline::after(None)) {
            Ok(SleepCheck::Ready) => {
                awaited.mark_reported();
                mutated!("fi_poll/trywait-eagain-for-events")
            }
            Ok(SleepCheck::Busy) | Err(_) => false,
            Ok(SleepCheck::Quiet(_)) => {
                if let Some(watcher) = self.watcher.get() {
                    watcher.begin_broadcasting();
                }
                true
            }
        }
    }

    /// Takes the steps before a sleep, which [`wait`](super) lists.
    ///
    /// # Errors
    ///
    /// [`WaitError`], if a call must wait for its turn.
    fn prepare_sleep(
        &self,
        place: SleepPlace,
        awaited: &impl Awaited,
        deadline: Deadline,
    ) -> Result<SleepCheck<'_>, WaitError> {
        // Look for the event first, since arming costs more.
        awaited.progress();
        if awaited.poll_ready() {
            return Ok(SleepCheck::Ready);
        }
        let Some(sleepers) = &self.sleepers else { return Ok(SleepCheck::Busy) };
        let Some(sleeper) = sleepers.arm(place, deadline, || awaited.arm())? else {
            return Ok(SleepCheck::Busy);
        };
        awaited.fire_due_works();
        if awaited.poll_ready() {
            awaited.disarm();
            sleeper.cancel();
            return Ok(SleepCheck::Ready);
        }
        Ok(SleepCheck::Quiet(sleeper))
    }

    /// Whether polls would take the place of a sleep. While another thread sleeps, or a progress thread does,
    /// they would disturb it. In a model there is no time.
    fn may_poll_briefly(&self) -> bool {
        let has_sources = self.sleepers.as_ref().is_some_and(Sleepers::has_wake_sources);
        has_sources && !self.is_armed() && !cfg!(all(test, loom))
    }

    /// Arms this member of a wait set for a thread that will sleep on all members. Returns whether events of
    /// the member will wake the thread.
    pub(super) fn arm_member(&self, awaited: &dyn Awaited) -> bool {
        let arm = |sleepers: &Sleepers| {
            let armed = sleepers.arm(SleepPlace::Application, Deadline::after(None), || awaited.arm());
            matches!(armed, Ok(Some(_)))
        };
        self.sleepers.as_ref().is_some_and(arm)
    }

    /// Undoes [`arm_member`](Self::arm_member).
    pub(super) fn disarm_member(&self) {
        if let Some(sleepers) = &self.sleepers {
            sleepers.disarm(SleepPlace::Application);
        }
    }

    /// Makes events of this endpoint wake sleepers.
    ///
    /// # Errors
    ///
    /// The system's error: ENOMEM, ENOSPC.
    pub(crate) fn add_wake_source(&self, endpoint: &dyn Drive) -> Result<(), Error> {
        self.sleepers.as_ref().map_or(Ok(()), |sleepers| sleepers.add_wake_source(endpoint))
    }

    /// Undoes [`add_wake_source`](Self::add_wake_source).
    pub(crate) fn remove_wake_source(&self, endpoint: &dyn Drive) {
        if let Some(sleepers) = &self.sleepers {
            sleepers.remove_wake_source(endpoint);
        }
    }

    /// Whether a thread may be asleep.
    pub(crate) fn is_armed(&self) -> bool {
        self.sleepers.as_ref().is_some_and(|sleepers| sleepers.doorbells().any(Doorbell::is_armed))
    }

    /// Wakes sleepers, if there may be any.
    // Not inlined, to keep the callers short: most queues have no wait object.
    #[inline(never)]
    pub(crate) fn ring(&self) {
        if let Some(sleepers) = &self.sleepers {
            sleepers.doorbells().for_each(Doorbell::ring);
        }
    }

    /// As [`ring`](Self::ring), after a change without the lock under which a sleeper checks. A fence orders
    /// the change before the check whether a thread sleeps.
    #[cold]
    pub(crate) fn ring_after_seqcst_fence(&self) {
        if let Some(sleepers) = &self.sleepers {
            sleepers.doorbells().for_each(Doorbell::ring_after_seqcst_fence);
        }
    }

    pub(crate) fn object(&self) -> WaitObject {
        self.object
    }

    /// Returns the descriptor of [`WaitObject::Fd`].
    pub(crate) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.application_fd(WaitObject::Fd)
    }

    /// Returns the mutex and the condition variable of [`WaitObject::MutexCond`].
    ///
    /// # Errors
    ///
    /// The system's error: EMFILE, ENFILE, ENOMEM, EAGAIN.
    pub(crate) fn mutex_cond(&self) -> Result<Option<MutexCond>, Error> {
        let fd = self.application_fd(WaitObject::MutexCond);
        fd.map(|fd| Watcher::mutex_cond_or_start(&self.watcher, fd)).transpose()
    }

    /// Returns the descriptor on which the application sleeps; `None` if the waiter has another wait object.
    fn application_fd(&self, object: WaitObject) -> Option<BorrowedFd<'_>> {
        self.sleepers.as_ref().filter(|_| self.object == object)?.application_fd()
    }

    /// Makes events of a member wake the sleepers of this set.
    ///
    /// # Errors
    ///
    /// As [`add_wake_source`](Self::add_wake_source).
    pub(super) fn watch_member(&self, member: Option<&Sleepers>) -> Result<(), Error> {
        match (&self.sleepers, member) {
            (Some(sleepers), Some(member)) => sleepers.watch_member(member),
            _ => Ok(()),
        }
    }

    /// Undoes [`watch_member`](Self::watch_member).
    pub(super) fn unwatch_member(&self, member: Option<&Sleepers>) {
        if let (Some(sleepers), Some(member)) = (&self.sleepers, member) {
            sleepers.unwatch_member(member);
        }
    }

    /// Takes the steps before a sleep inside a call, but does not sleep.
    #[cfg(all(test, loom))]
    pub(super) fn prepare_sleep_and_abandon(&self, awaited: &impl Awaited) {
        let _ = self.prepare_sleep(SleepPlace::Call, awaited, Deadline::after(None));
    }

    /// Sleeps as an application does after `try_wait` has returned `true`.
    #[cfg(all(test, loom))]
    pub(super) fn sleep_in_application(&self) {
        self.sleepers.as_ref().expect("something to sleep on").sleep_in_application();
    }

    /// Whether a thread sleeps inside a call, or is about to.
    #[cfg(test)]
    pub(super) fn has_sleeping_call(&self) -> bool {
        self.sleepers.as_ref().is_some_and(Sleepers::has_sleeping_call)
    }
}

/// Checks that threads can wait by this object.
///
/// # Errors
///
/// [`Misuse::NotSupported`] in a simulation, for the objects on which an application sleeps by itself.
fn check_simulated(object: WaitObject, clock: &Clock) -> Result<(), Misuse> {
    if clock.is_of_simulation() && matches!(object, WaitObject::Fd | WaitObject::MutexCond) {
        return Err(Misuse::NotSupported(Unsupported::SleepInSimulation));
    }
    Ok(())
}

impl Drop for Waiter {
    fn drop(&mut self) {
        if let Some(membership) = &self.membership {
            membership.leave(self.sleepers.as_ref());
        }
        if mutated!("fi_cq/close-releases-resources") {
            mem::forget(self.sleepers.take());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use homespun_engine::transport::Armed;

    use super::*;

    /// An event that `fire_due_works` causes. The call checks that the sleepers are unlocked.
    struct Fired<'a> {
        waiter: &'a Waiter,
        is_armed: Cell<bool>,
        is_fired: Cell<bool>,
    }

    impl Awaited for Fired<'_> {
        fn progress(&self) {}

        fn arm(&self) -> Armed {
            self.is_armed.set(true);
            Armed::Asleep { look_again_after: None }
        }

        fn fire_due_works(&self) {
            // This locks the sleepers.
            assert!(self.waiter.has_sleeping_call());
            self.is_fired.set(self.is_armed.get());
        }

        fn poll_ready(&self) -> bool {
            self.is_fired.get()
        }
    }

    #[test]
    fn works_made_due_by_arming_fire_with_sleepers_unlocked() {
        let waiter =
            Waiter::new(WaitObject::Unspec, None, &Clock::System).expect("descriptors").expect("sleepers");
        let fired = Fired { waiter: &waiter, is_armed: Cell::new(false), is_fired: Cell::new(false) };
        assert_eq!(waiter.wait(&Clock::System, None, &fired, || fired.poll_ready().then_some(())), Ok(()));
    }
}
