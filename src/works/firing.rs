//! Lets one thread at a time run works. Other threads leave their due works to it.

use std::ops::ControlFlow;

use crate::sync::{AtomicBool, Ordering, ReentrantMutex, fence};

/// The largest number of rounds in one call. Works can make other works due, so without a limit the call
/// might never return.
pub(super) const ROUNDS_MAX: u32 = 16;

/// Whether works may be due, and which thread runs them.
#[derive(Debug, Default)]
pub(super) struct Firing {
    /// Set while a counter may be due, a thread runs works, or works wait for room.
    is_due: AtomicBool,
    /// Set when a thread has left due works to the thread that has the turn.
    is_left: AtomicBool,
    /// The turn: held while a thread runs works. Holding it ensures that no other thread posts a work. The
    /// holder may lock it again: a destructor of the application's memory may call this library.
    turn: ReentrantMutex,
}

/// The outcome of a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Round {
    /// No work is due, except works that wait for room.
    Finished,
    /// Works are still due.
    Unfinished,
}

impl Firing {
    /// Whether a work may be due.
    #[inline(always)]
    pub(super) fn is_due(&self) -> bool {
        self.is_due.load(Ordering::Relaxed)
    }

    /// Sets whether a work may be due. The caller holds the lock of the list of due counters.
    pub(super) fn set_due(&self, is_due: bool) {
        self.is_due.store(is_due, Ordering::SeqCst);
    }

    /// Runs rounds until no work is due. If another thread has the turn, leaves the works to it. Returns
    /// `Break` if works may still be due after [`ROUNDS_MAX`] rounds: the next call must continue.
    #[cold]
    #[inline(never)]
    pub(super) fn run_rounds(&self, mut round: impl FnMut() -> Round) -> ControlFlow<()> {
        if self.turn.is_owned_by_current_thread() {
            // An outer call on this thread is running works. It checks for due works before it returns.
            return ControlFlow::Continue(());
        }
        for _ in 0..ROUNDS_MAX {
            // SYNC POINT turn. The thread that has the turn checks `is_left` after it has given the turn
            // back.
            self.is_left.store(true, Ordering::SeqCst);
            fence(Ordering::SeqCst);
            let Some(turn) = self.turn.try_lock() else { return ControlFlow::Continue(()) };
            self.is_left.store(false, Ordering::SeqCst);
            let found = round();
            drop(turn);
            // SYNC POINT turn.
            fence(Ordering::SeqCst);
            if found == Round::Finished && !self.is_left.load(Ordering::SeqCst) {
                return ControlFlow::Continue(());
            }
        }
        ControlFlow::Break(())
    }

    /// Calls a function while no other thread runs works. The caller must then run the works that other
    /// threads have left meanwhile.
    pub(super) fn call_without_firing<R>(&self, act: impl FnOnce() -> R) -> R {
        let turn = self.turn.lock();
        let done = act();
        drop(turn);
        // SYNC POINT turn.
        fence(Ordering::SeqCst);
        done
    }
}
