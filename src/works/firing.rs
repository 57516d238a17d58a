//! One thread at a time carries works out. Other threads leave the due works that they find to it.

use std::ops::ControlFlow;

use crate::sync::{AtomicBool, Ordering, ReentrantMutex, fence};

/// How many rounds a call takes at most. Works that make others due, and threads that poll, would
/// keep it for ever.
pub(super) const ROUNDS_MAX: u32 = 16;

/// Whether there may be something to do, and whose turn it is to do it.
#[derive(Debug, Default)]
pub(super) struct Firing {
    /// Whether a counter may be due, or a thread is carrying works out, or works found no room.
    is_due: AtomicBool,
    /// Whether a thread has left due works to the one that carries works out.
    is_left: AtomicBool,
    /// Held while works are carried out: when another thread has it, no work is on its way to an
    /// endpoint. The thread that has it may lock it again, since what is carried out, and memory
    /// that is dropped, may call.
    turn: ReentrantMutex,
}

/// The outcome of a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Round {
    /// Nothing, or what finds no room.
    Finished,
    /// Works that are due.
    Unfinished,
}

impl Firing {
    /// Whether something may be due.
    #[inline(always)]
    pub(super) fn is_due(&self) -> bool {
        self.is_due.load(Ordering::Relaxed)
    }

    /// Says whether something may be due. The caller holds the lock of the list of due counters.
    pub(super) fn set_due(&self, is_due: bool) {
        self.is_due.store(is_due, Ordering::SeqCst);
    }

    /// Takes rounds until nothing is due, or leaves that to the thread that takes some. Breaks off
    /// if there may be more to do after so many rounds that another call has to go on.
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
