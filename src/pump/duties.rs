//! Duties: the work that each call does after it has used an endpoint.

use std::thread;

use bitflags::bitflags;
use homespun_engine::engine::Engine;
use homespun_engine::error::Error;
use homespun_engine::transport::Transport;

use super::{BoundObjects, Pump, State, not_enabled_error, receive_context};
use crate::drive::Drive;
use crate::lock::{LockGuard, lock_for_poll};

bitflags! {
    /// The work that each call does after it has used an endpoint. Most endpoints have no duties, so most
    /// calls only check one number.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(super) struct Duties: u8 {
        /// A thread may sleep until the transport wakes it, so the transport must be armed again.
        const WATCH = 1 << 0;
        /// Endpoints that share the receive context must learn of the effects that this endpoint has left to
        /// them. A pass tells them. Another call tells them only if a thread may be asleep.
        const NOTIFY_OTHERS = 1 << 1;
        /// The endpoint may have changed a counter that works wait for.
        const FIRE = 1 << 2;
        /// The simulation must learn that a call has used the endpoint.
        #[cfg(feature = "simulator")]
        const TELL_SIMULATION = 1 << 3;
    }
}

/// How a call has used an endpoint. This decides which of the endpoint's [`Duties`] the call carries out,
/// and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// A call of the application.
    Call,
    /// A pass for an application that polls.
    Poll,
    /// A delivery of mail: this endpoint carries out effects that other endpoints of its receive context
    /// have left to it. The delivering thread runs the due works later.
    Mail,
    /// A pass of a simulation.
    #[cfg(feature = "simulator")]
    Step,
}

impl Purpose {
    /// Whether the endpoint was used for a pass.
    fn is_pass(self) -> bool {
        #[cfg(feature = "simulator")]
        if self == Purpose::Step {
            return true;
        }
        self == Purpose::Poll
    }
}

/// An endpoint while a call uses it. Dropping this carries out the endpoint's [`Duties`].
pub(super) struct PumpGuard<'a, T: Transport> {
    pub(super) guard: LockGuard<'a, Option<State<T>>>,
    pump: &'a Pump<T>,
    purpose: Purpose,
}

impl<T: Transport> PumpGuard<'_, T> {
    #[inline(always)]
    pub(super) fn enabled_parts(&mut self) -> Result<(&mut Engine, &mut T, &mut BoundObjects), Error> {
        let State { engine, transport, bound, is_quiet, .. } =
            self.guard.as_mut().ok_or_else(not_enabled_error)?;
        *is_quiet = false;
        Ok((engine, transport, bound.as_mut().ok_or_else(not_enabled_error)?))
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

    /// Locks the endpoint for a poll. Returns `None` if another thread keeps it locked.
    #[inline(always)]
    pub(super) fn try_lock_for_poll(&self) -> Option<PumpGuard<'_, T>> {
        self.try_lock_for_purpose(Purpose::Poll)
    }

    /// As [`try_lock_for_poll`](Self::try_lock_for_poll), for a pass of this purpose.
    #[inline(always)]
    pub(super) fn try_lock_for_purpose(&self, purpose: Purpose) -> Option<PumpGuard<'_, T>> {
        lock_for_poll(&self.state).map(|guard| PumpGuard { guard, pump: self, purpose })
    }

    /// Carries out the duties of an endpoint after a use, if it has any.
    #[inline(always)]
    fn run_duties_if_any(&self, guard: &mut LockGuard<'_, Option<State<T>>>, purpose: Purpose) {
        if let Some(state) = &**guard
            && !state.duties.is_empty()
        {
            self.run_duties(guard, purpose);
        }
    }

    /// Carries out the duties of an endpoint.
    #[cold]
    #[inline(never)]
    pub(super) fn run_duties(&self, guard: &mut LockGuard<'_, Option<State<T>>>, purpose: Purpose) {
        // Do not touch an engine that has panicked.
        if thread::panicking() {
            return;
        }
        let Some(state) = &mut **guard else { return };
        let duties = state.duties;
        if duties.contains(Duties::WATCH) {
            if purpose.is_pass() {
                state.rearm_transport_or_mute_endpoint();
            } else {
                state.rearm_transport_or_wake_sleepers();
            }
        }
        #[cfg(feature = "simulator")]
        if duties.contains(Duties::TELL_SIMULATION) && purpose != Purpose::Step {
            state.tell_simulation();
        }
        if duties.contains(Duties::WATCH) || duties.contains(Duties::NOTIFY_OTHERS) && purpose.is_pass() {
            receive_context::deliver_mail_to_others(guard);
        }
        if duties.contains(Duties::FIRE) && purpose != Purpose::Mail {
            LockGuard::unlocked(guard, || self.fire_due_works());
        }
    }
}
