//! Duties: what each call does after it has used an endpoint.

use std::thread;

use bitflags::bitflags;
use homespun_engine::engine::Engine;
use homespun_engine::error::Error;
use homespun_engine::transport::Transport;

use super::{NOT_ENABLED, Pump, State, Wired, receive_context};
use crate::drive::Drive;
use crate::lock::LockGuard;

bitflags! {
    /// Duties of each call after it has used an endpoint. Most endpoints have no duties, and check
    /// one number for that.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(super) struct Duties: u8 {
        /// A thread may be asleep that relies on the transport to wake it, which has to be armed again.
        const WATCH = 1 << 0;
        /// Other endpoints share its receive context, and are to hear what it has left to them.
        /// Only passes do that, unless a thread may be asleep.
        const NOTIFY_OTHERS = 1 << 1;
        /// It may have changed a counter that works wait for.
        const FIRE = 1 << 2;
    }
}

/// The use that a call made of an endpoint, which decides how its [`Duties`] are done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// A call of the application.
    Call,
    /// A pass on behalf of an application that polls.
    Poll,
    /// The mail of a shared receive context: the thread that delivers it fires the works.
    Mail,
}

/// An endpoint while a call uses it. When the call is done with it, its [`Duties`] are done.
pub(super) struct PumpGuard<'a, T: Transport> {
    pub(super) guard: LockGuard<'a, Option<State<T>>>,
    pump: &'a Pump<T>,
    purpose: Purpose,
}

impl<T: Transport> PumpGuard<'_, T> {
    #[inline(always)]
    pub(super) fn enabled_parts(&mut self) -> Result<(&mut Engine, &mut T, &mut Wired), Error> {
        let State { engine, transport, wired, .. } = self.guard.as_mut().ok_or(NOT_ENABLED)?;
        Ok((engine, transport, wired.as_mut().ok_or(NOT_ENABLED)?))
    }
}

impl<T: Transport> Drop for PumpGuard<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        self.pump.run_duties_if_any(&mut self.guard, self.purpose);
    }
}

impl<T: Transport> Pump<T> {
    /// Locks the endpoint for a call of the application.
    #[inline(always)]
    pub(super) fn lock_for_call(&self) -> PumpGuard<'_, T> {
        self.lock_for_purpose(Purpose::Call)
    }

    /// Locks the endpoint for use.
    #[inline(always)]
    pub(super) fn lock_for_purpose(&self, purpose: Purpose) -> PumpGuard<'_, T> {
        PumpGuard { guard: self.state.lock(), pump: self, purpose }
    }

    /// Sees to the duties of an endpoint that was used, if it has any.
    #[inline(always)]
    fn run_duties_if_any(&self, guard: &mut LockGuard<'_, Option<State<T>>>, purpose: Purpose) {
        if let Some(state) = &**guard
            && !state.duties.is_empty()
        {
            self.run_duties(guard, purpose);
        }
    }

    /// Sees to the duties of an endpoint.
    #[cold]
    #[inline(never)]
    pub(super) fn run_duties(&self, guard: &mut LockGuard<'_, Option<State<T>>>, purpose: Purpose) {
        // An engine that has panicked is left alone.
        if thread::panicking() {
            return;
        }
        let Some(state) = &mut **guard else { return };
        let duties = state.duties;
        if duties.contains(Duties::WATCH) {
            match purpose {
                Purpose::Poll => state.rearm_or_stand_down(),
                Purpose::Call | Purpose::Mail => state.rearm_or_wake(),
            }
        }
        if duties.contains(Duties::WATCH)
            || duties.contains(Duties::NOTIFY_OTHERS) && purpose == Purpose::Poll
        {
            receive_context::deliver_mail_to_others(guard);
        }
        if duties.contains(Duties::FIRE) && purpose != Purpose::Mail {
            LockGuard::unlocked(guard, || self.fire_due_works());
        }
    }
}
