//! What is to be done each time that an endpoint was used, other than the use itself.

use std::thread;

use bitflags::bitflags;
use homespun_engine::engine::Engine;
use homespun_engine::error::Error;
use homespun_engine::transport::Transport;

use super::{NOT_ENABLED, Pump, State, Wired, receive_context};
use crate::lock::LockGuard;

bitflags! {
    /// What is to be done each time that an endpoint was used. Most endpoints have nothing of it, and look at one number
    /// for that.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(super) struct Duties: u8 {
        /// A thread may be asleep that relies on the transport to wake it, which has to be armed again.
        const WATCH = 1 << 0;
        /// Other endpoints share its receive context, and are to hear what it has left to them. Only passes do that,
        /// unless a thread may be asleep.
        const TELL_OTHERS = 1 << 1;
        /// It may have changed a counter that works wait for.
        const FIRE = 1 << 2;
    }
}

/// An endpoint while it is used. When that is over, its [`Duties`] are seen to.
pub(super) struct Use<'a, T: Transport> {
    pub(super) guard: LockGuard<'a, Option<State<T>>>,
    pump: &'a Pump<T>,
}

impl<T: Transport> Use<'_, T> {
    #[inline(always)]
    pub(super) fn enabled(&mut self) -> Result<(&mut Engine, &mut T, &mut Wired), Error> {
        let State { engine, transport, wired, .. } = self.guard.as_mut().ok_or(NOT_ENABLED)?;
        Ok((engine, transport, wired.as_mut().ok_or(NOT_ENABLED)?))
    }
}

impl<T: Transport> Drop for Use<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        if let Some(state) = &*self.guard
            && !state.duties.is_empty()
        {
            self.pump.after_use(&mut self.guard);
        }
    }
}

impl<T: Transport> Pump<T> {
    /// The endpoint, to do something with it.
    #[inline(always)]
    pub(super) fn in_use(&self) -> Use<'_, T> {
        Use { guard: self.state.lock(), pump: self }
    }

    /// Does something rare that may change counters, and then what is due by that.
    pub(super) fn firing<R>(&self, act: impl FnOnce(&mut LockGuard<'_, Option<State<T>>>) -> R) -> R {
        let mut guard = self.state.lock();
        let done = act(&mut guard);
        self.fire_unlocked(&mut guard);
        done
    }

    /// Sees to the duties of an endpoint that was used.
    #[cold]
    #[inline(never)]
    fn after_use(&self, guard: &mut LockGuard<'_, Option<State<T>>>) {
        // An engine that has panicked is left alone.
        if thread::panicking() {
            return;
        }
        if let Some(state) = &mut **guard
            && state.duties.contains(Duties::WATCH)
        {
            state.keep_watch();
            receive_context::tell_others(guard);
        }
        self.fire_unlocked(guard);
    }

    /// Sees to the duties of an endpoint after a pass on behalf of an application that polls.
    #[cold]
    #[inline(never)]
    pub(super) fn after_poll(&self, guard: &mut LockGuard<'_, Option<State<T>>>) {
        let Some(state) = &mut **guard else { return };
        if state.duties.contains(Duties::WATCH) {
            state.keep_watch_or_stand_down();
        }
        if state.duties.contains(Duties::TELL_OTHERS) {
            receive_context::tell_others(guard);
        }
        self.fire_unlocked(guard);
    }

    /// Carries out the works that have become due, with the endpoint unlocked: they may be for it.
    #[cold]
    pub(super) fn fire_unlocked(&self, guard: &mut LockGuard<'_, Option<State<T>>>) {
        if let Some(works) = self.works.get().filter(|works| works.is_due()) {
            LockGuard::unlocked(guard, || works.fire());
        }
    }
}
