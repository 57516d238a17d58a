//! One thread at a time carries works out. Other threads leave the due works that they find to it.

use std::ops::ControlFlow;

use crate::sync::{AtomicBool, Ordering, ReentrantMutex, fence};

/// The limit of the rounds of a call. Works that make others due, and threads that poll, could keep it
/// without end.
pub(super) const ROUNDS_MAX: u32 = 16;

/// Whether works may be due, and which thread carries them out.
#[derive(Debug, Default)]
pub(super) struct Firing {
    /// Set while a counter may be due, a thread carries works out, or works have found no room.
    is_due: AtomicBool,
    /// Set when a thread leaves due works to the thread that carries works out.
    is_left: AtomicBool,
    /// Held while works are carried out: a thread that gets it knows that no work is on its way to an
    /// endpoint. Its owner may lock it again: an operation, or memory that is dropped, may call back.
    turn: ReentrantMutex,
}

/// The outcome of a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Round {
    /// No work is due, except works that find no room.
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

    /// Takes rounds until no work is due, or leaves the rest to the thread that is taking rounds. Returns
    /// `Break` if works may be due after [`ROUNDS_MAX`] rounds; another call then goes on.
    #[cold]
    #[inline(never)]
    pub(super) fn run_rounds(&self, mut round: impl FnMut() -> Round) -> ControlFlow<()> {
        if self.turn.is_owned_by_current_thread() {
            // The call that carries works out looks for more before it returns.
            return ControlFlow::Continue(());
        }
        for _ in 0..ROUNDS_MAX {
            // SYNC POINT turn. The thread that has the turn looks again after it has given it back.
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

    /// Calls a function while no thread carries works out. The caller then fires the works that others left
    /// to it meanwhile.
    pub(super) fn run_without_firing<R>(&self, act: impl FnOnce() -> R) -> R {
        let turn = self.turn.lock();
        let done = act();
        drop(turn);
        // SYNC POINT turn.
        fence(Ordering::SeqCst);
        done
    }
}
