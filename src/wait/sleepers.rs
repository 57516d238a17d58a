//! The threads that sleep until an event, and the doorbell that wakes them.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use homespun_engine::error::{Error, SystemRequest};
use homespun_engine::fork::ForkGeneration;
use homespun_engine::transport::Armed;
use rustix::event::{EventfdFlags, Timespec, eventfd};
use rustix::io;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};

use super::deadline::Deadline;
use super::epoll_set::{EpollSet, sleep_until_readable, to_timespec};
use super::error::WaitError;
use crate::doorbell::Doorbell;
use crate::drive::Drive;
use crate::mutated;
use crate::sync::Mutex;

const NO_TIME: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// The place where a thread sleeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SleepPlace {
    /// Inside a call of this library.
    Call,
    /// In the application. homespun does not learn when the thread wakes.
    Application,
}

/// The epoll sets and doorbells of the threads that wait for one queue, counter or wait set.
#[derive(Debug)]
pub(super) struct Sleepers {
    /// Wakes threads that sleep inside calls. `None` for a wait set: its calls sleep on `application`, one
    /// at a time.
    calls: Option<Wakeup>,
    /// Wakes an application that sleeps on the wait object itself.
    application: Option<Wakeup>,
    /// A timer that wakes sleepers to check for events that no descriptor announces.
    timer: Option<OwnedFd>,
    state: Mutex<State>,
    /// Held while a call sleeps on `application`, so only one call at a time sleeps there. A second call
    /// would arm the members' doorbells. A doorbell that has rung would fall silent before the first call
    /// wakes. `None` unless these are the sleepers of a wait set.
    turn: Option<Turn>,
    /// Whether a descriptor of a transport has been added.
    has_wake_sources: AtomicBool,
    /// The fork generation of the process that opened the descriptors. A forked child has copies of them, and
    /// its changes would affect the parent.
    generation: ForkGeneration,
}

/// The sources that wake a sleeper, among them a doorbell.
#[derive(Debug)]
struct Wakeup {
    sources: EpollSet,
    doorbell: Doorbell,
}

/// A lock for calls that sleep: a semaphore of `eventfd(2)`. A signal handler ends the wait for it, which no
/// mutex tells.
#[derive(Debug)]
struct Turn(OwnedFd);

struct TurnGuard<'a>(&'a Turn);

#[derive(Debug, Default)]
struct State {
    /// The number of threads that sleep inside calls, or are about to.
    sleeping_calls: usize,
    is_timer_set: bool,
}

/// A thread that may sleep now.
pub(super) struct Sleeper<'a> {
    wakeup: &'a Wakeup,
    /// The state that counts the thread, if it sleeps inside a call.
    counted: Option<&'a Mutex<State>>,
    /// Must be dropped last.
    turn: Option<TurnGuard<'a>>,
}

impl Sleepers {
    /// Opens the descriptors for calls of this library. With `has_application`, also opens those for an
    /// application that sleeps by itself.
    ///
    /// # Errors
    ///
    /// The system's error: EMFILE, ENFILE, ENOMEM, ENOSPC.
    pub(super) fn new(has_application: bool) -> Result<Sleepers, Error> {
        let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)
            .map_err(|error| SystemRequest::Timer.refused(error))?;
        let application = has_application.then(Wakeup::new).transpose()?;
        let sleepers = Sleepers::with_wakeups(Some(Wakeup::new()?), application, None);
        sleepers.wakeups().try_for_each(|wakeup| wakeup.sources.add(&timer))?;
        Ok(Sleepers { timer: Some(timer), ..sleepers })
    }

    /// Creates the sleepers of a wait set. They have no timer, since the members have timers.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    pub(super) fn for_wait_set() -> Result<Sleepers, Error> {
        Ok(Sleepers::with_wakeups(None, Some(Wakeup::new()?), Some(Turn::new()?)))
    }

    fn with_wakeups(calls: Option<Wakeup>, application: Option<Wakeup>, turn: Option<Turn>) -> Sleepers {
        Sleepers {
            calls,
            application,
            timer: None,
            state: Mutex::default(),
            turn,
            has_wake_sources: AtomicBool::new(false),
            generation: ForkGeneration::current(),
        }
    }

    fn wakeups(&self) -> impl Iterator<Item = &Wakeup> {
        [&self.calls, &self.application].into_iter().flatten()
    }

    #[inline]
    pub(super) fn doorbells(&self) -> impl Iterator<Item = &Doorbell> {
        self.wakeups().map(|wakeup| &wakeup.doorbell)
    }

    /// Returns what wakes threads at this place. For a wait set, calls and the application sleep at the same
    /// place.
    fn wakeup_at(&self, place: SleepPlace) -> Option<&Wakeup> {
        let of_application = self.application.as_ref();
        match place {
            SleepPlace::Call => self.calls.as_ref().or(of_application),
            SleepPlace::Application => of_application,
        }
    }

    /// Sleeps as an application does after `try_wait` has returned `true`.
    #[cfg(all(test, loom))]
    pub(super) fn sleep_in_application(&self) {
        self.application.as_ref().expect("something to sleep on").doorbell.wait();
    }

    #[cfg(test)]
    pub(super) fn has_sleeping_call(&self) -> bool {
        self.state.lock().sleeping_calls > 0
    }

    /// Returns the descriptor on which an application sleeps by itself.
    pub(super) fn application_fd(&self) -> Option<BorrowedFd<'_>> {
        match &self.timer {
            Some(timer) if mutated!("fi_cq/wait-object-is-signaled") => Some(timer.as_fd()),
            _ => Some(self.application.as_ref()?.sources.as_fd()),
        }
    }

    /// Whether this process has opened the descriptors. A forked child has not.
    pub(super) fn is_of_this_process(&self) -> bool {
        !self.generation.is_in_forked_child()
    }

    /// Makes events of this endpoint wake sleepers.
    ///
    /// # Errors
    ///
    /// The system's error: ENOMEM, ENOSPC.
    pub(super) fn add_wake_source(&self, endpoint: &dyn Drive) -> Result<(), Error> {
        // In a forked child no thread sleeps, and adding the descriptor would wake the parent's sleepers.
        if !self.is_of_this_process() {
            return Ok(());
        }
        let mut added = Ok(());
        endpoint.with_wake_fd(&mut |fd| {
            self.has_wake_sources.store(true, Ordering::Relaxed);
            added = self.wakeups().try_for_each(|wakeup| wakeup.sources.add(fd));
        });
        added
    }

    /// Whether events of transports wake sleepers. If not, a progress thread does.
    pub(super) fn has_wake_sources(&self) -> bool {
        self.has_wake_sources.load(Ordering::Relaxed)
    }

    /// Undoes [`add_wake_source`](Self::add_wake_source).
    pub(super) fn remove_wake_source(&self, endpoint: &dyn Drive) {
        if self.is_of_this_process() {
            endpoint.with_wake_fd(&mut |fd| self.wakeups().for_each(|wakeup| wakeup.sources.remove(fd)));
        }
    }

    /// Makes events of a member wake the sleepers of its wait set.
    ///
    /// # Errors
    ///
    /// As [`add_wake_source`](Self::add_wake_source).
    pub(super) fn watch_member(&self, member: &Sleepers) -> Result<(), Error> {
        let (true, Some(member)) = (self.is_of_this_process(), &member.application) else { return Ok(()) };
        self.wakeups().try_for_each(|wakeup| wakeup.nest(member))
    }

    /// Undoes [`watch_member`](Self::watch_member). Does nothing in a forked child, since that would change
    /// the parent's set.
    pub(super) fn unwatch_member(&self, member: &Sleepers) {
        if let (true, Some(member)) =
            (self.is_of_this_process() && member.is_of_this_process(), &member.application)
        {
            self.wakeups().for_each(|wakeup| wakeup.unnest(member));
        }
    }

    /// Arms the doorbell, then the endpoints. Returns `None` if the thread must not sleep: an endpoint may
    /// have work, earlier sleepers have not woken yet, or this is a forked child.
    ///
    /// # Errors
    ///
    /// [`WaitError`], if a call must wait for its turn.
    pub(super) fn arm(
        &self,
        place: SleepPlace,
        deadline: Deadline,
        arm_endpoints: impl FnOnce() -> Armed,
    ) -> Result<Option<Sleeper<'_>>, WaitError> {
        let Some(wakeup) = self.wakeup_at(place).filter(|_| self.is_of_this_process()) else {
            return Ok(None);
        };
        let turn = self.turn.as_ref().filter(|_| place == SleepPlace::Call);
        let turn = turn.map(|turn| turn.wait(deadline)).transpose()?;
        // SYNC POINT join. The state stays locked to the end, so the last thread to check sets the timer.
        let mut state = self.state.lock();
        if place == SleepPlace::Application || state.sleeping_calls == 0 {
            wakeup.doorbell.arm();
        } else if !wakeup.doorbell.is_armed() {
            // Arming would silence the doorbell before all sleepers have woken.
            return Ok(None);
        }
        match arm_endpoints() {
            Armed::Ready => {
                wakeup.doorbell.ring();
                Ok(None)
            }
            Armed::Asleep { look_again_after } => {
                self.set_timer(&mut state, look_again_after);
                let is_counted = place == SleepPlace::Call;
                state.sleeping_calls += usize::from(is_counted);
                Ok(Some(Sleeper { wakeup, counted: is_counted.then_some(&self.state), turn }))
            }
        }
    }

    /// Disarms the doorbell, since no thread sleeps at this place any more. While the doorbell is armed,
    /// endpoints do more work, to wake sleepers.
    pub(super) fn disarm(&self, place: SleepPlace) {
        if self.is_of_this_process()
            && let Some(wakeup) = self.wakeup_at(place)
        {
            wakeup.doorbell.ring();
        }
    }

    /// Sets the timer to wake sleepers after this time, or stops it.
    fn set_timer(&self, state: &mut State, after: Option<Duration>) {
        let Some(timer) = self.timer.as_ref().filter(|_| after.is_some() || state.is_timer_set) else {
            return;
        };
        let after_at_least = after.map(|after| after.max(Duration::from_nanos(1)));
        let it_value = after_at_least.map_or(NO_TIME, to_timespec);
        let time = Itimerspec { it_interval: NO_TIME, it_value };
        // The call fails only for invalid times.
        let _ = timerfd_settime(timer, TimerfdTimerFlags::empty(), &time);
        state.is_timer_set = after.is_some();
    }
}

impl Turn {
    fn new() -> Result<Turn, Error> {
        let flags = EventfdFlags::SEMAPHORE | EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC;
        Ok(Turn(eventfd(1, flags).map_err(|error| SystemRequest::EventDescriptor.refused(error))?))
    }

    /// Waits until no other call holds the turn.
    ///
    /// # Errors
    ///
    /// [`WaitError`].
    fn wait(&self, deadline: Deadline) -> Result<TurnGuard<'_>, WaitError> {
        while io::read(&self.0, &mut [0; 8]).is_err() {
            if deadline.has_passed() {
                return Err(WaitError::TimedOut);
            }
            sleep_until_readable(&self.0, deadline.remaining())?;
        }
        Ok(TurnGuard(self))
    }
}

impl Drop for TurnGuard<'_> {
    #[expect(clippy::host_endian_bytes, reason = "the kernel reads a number of this machine")]
    fn drop(&mut self) {
        // The count was 0 while this guard was there, so the write does not fail.
        let _ = io::write(&self.0.0, &1_u64.to_ne_bytes());
    }
}

impl Wakeup {
    fn new() -> Result<Wakeup, Error> {
        let wakeup = Wakeup { sources: EpollSet::new()?, doorbell: Doorbell::new()? };
        wakeup.sources.add(&wakeup.doorbell)?;
        Ok(wakeup)
    }

    /// Makes all sources of a member wake sleepers of this set.
    fn nest(&self, member: &Wakeup) -> Result<(), Error> {
        #[cfg(all(test, loom))]
        self.doorbell.nest(&member.doorbell);
        self.sources.add(&member.sources)
    }

    /// Undoes [`nest`](Self::nest).
    fn unnest(&self, member: &Wakeup) {
        #[cfg(all(test, loom))]
        self.doorbell.unnest(&member.doorbell);
        self.sources.remove(&member.sources);
    }
}

impl Sleeper<'_> {
    /// Sleeps until an event comes or the time has passed. May wake earlier.
    ///
    /// # Errors
    ///
    /// [`WaitError::Interrupted`].
    pub(super) fn sleep(&self, at_most: Option<Duration>) -> Result<(), WaitError> {
        #[cfg(all(test, loom))]
        self.wakeup.doorbell.wait();
        self.wakeup.sources.sleep(at_most)
    }

    /// Ends a thread's attempt to sleep, since the thread has found an event. Disarms the doorbell.
    pub(super) fn cancel(self) {
        self.wakeup.doorbell.ring();
    }
}

impl Drop for Sleeper<'_> {
    fn drop(&mut self) {
        if let Some(state) = self.counted {
            let mut state = state.lock();
            state.sleeping_calls -= 1;
            // The application may sleep on the doorbell of a wait set, too.
            let is_of_calls_alone = self.turn.is_none();
            if state.sleeping_calls == 0 && is_of_calls_alone {
                self.wakeup.doorbell.disarm_silently();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    const QUIET: Armed = Armed::Asleep { look_again_after: None };

    /// Longer than any sleep in a test that succeeds.
    const PATIENCE: Duration = Duration::from_secs(60);

    fn arm(sleepers: &Sleepers, endpoints: Armed) -> Option<Sleeper<'_>> {
        sleepers.arm(SleepPlace::Call, Deadline::after(None), || endpoints).expect("no signal")
    }

    fn sleep(sleeper: Sleeper<'_>, at_most: Duration) {
        sleeper.sleep(Some(at_most)).expect("no signal");
        drop(sleeper);
    }

    #[test]
    fn rung_doorbell_is_not_armed_before_all_sleepers_have_woken() {
        let sleepers = Sleepers::new(false).expect("descriptors");
        let is_armed = || sleepers.doorbells().all(Doorbell::is_armed);
        let first = arm(&sleepers, QUIET).expect("nothing to do");
        let second = arm(&sleepers, QUIET).expect("the first has not been woken");
        sleepers.doorbells().for_each(Doorbell::ring);
        assert!(arm(&sleepers, QUIET).is_none(), "two are yet to wake");
        sleep(first, PATIENCE);
        assert!(arm(&sleepers, QUIET).is_none(), "one is yet to wake");
        sleep(second, PATIENCE);
        let third = arm(&sleepers, QUIET).expect("all have woken");
        let fourth = arm(&sleepers, QUIET).expect("the third sleeps");
        drop(fourth);
        assert!(is_armed(), "the third still sleeps");
        drop(third);
        assert!(!is_armed());
        assert!(arm(&sleepers, Armed::Ready).is_none() && !is_armed());
    }

    #[test]
    fn last_thread_to_arm_sets_the_timer() {
        let sleepers = Sleepers::new(false).expect("descriptors");
        let soon = Armed::Asleep { look_again_after: Some(Duration::from_millis(1)) };
        for _ in 0..3 {
            // Only the timer can end this sleep.
            sleep(arm(&sleepers, soon).expect("nothing to do"), PATIENCE);
            let idle = arm(&sleepers, QUIET).expect("nothing to do");
            let begin = Instant::now();
            sleep(idle, Duration::from_millis(20));
            assert!(begin.elapsed() >= Duration::from_millis(20), "the timer is not set any more");
        }
    }

    #[test]
    fn calls_on_a_set_sleep_one_at_a_time() {
        let sleepers = Sleepers::for_wait_set().expect("descriptors");
        let first = arm(&sleepers, QUIET).expect("nothing to do");
        let soon = Deadline::after(Some(Duration::from_millis(5)));
        let second = sleepers.arm(SleepPlace::Call, soon, || QUIET).map(|armed| armed.is_some());
        assert_eq!(second, Err(WaitError::TimedOut), "the first has not woken");
        assert!(soon.has_passed() && sleepers.doorbells().all(Doorbell::is_armed));
        drop(first);
        assert!(arm(&sleepers, QUIET).is_some());
    }
}
