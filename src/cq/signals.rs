//! Signals that end waits: `fi_cq_signal` of `fi_cq(3)`.

use crate::mutated;
use crate::sync::Mutex;

/// The number of readers that wait, and the signals that they got.
#[derive(Debug, Default)]
pub(super) struct Signals(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    readers: usize,
    /// The number of signals that were raised while readers waited.
    raised: u64,
    /// Whether a signal was raised while no reader waited. The signal ends the next wait of a reader, or
    /// the next wait for the queue's wait set.
    is_pending: bool,
}

/// A reader that waits.
#[derive(Debug)]
pub(super) struct WaitingReader<'a> {
    signals: &'a Signals,
    /// The value of `raised` when the reader began to wait.
    raised_before: u64,
}

impl Signals {
    /// Records a signal. The caller then rings the waiter.
    pub(super) fn record_signal(&self) {
        let mut state = self.0.lock();
        if state.readers > 0 && !mutated!("fi_cq/signal-unblocks-sread") {
            state.raised += 1;
        } else {
            state.is_pending = true;
        }
    }

    /// Whether a signal is pending: it was raised while no reader waited, and has not ended a wait yet.
    pub(super) fn is_pending(&self) -> bool {
        self.0.lock().is_pending
    }

    pub(super) fn clear_pending(&self) {
        self.0.lock().is_pending = false;
    }

    /// Registers a reader that waits from now on.
    pub(super) fn begin_wait(&self) -> WaitingReader<'_> {
        let mut state = self.0.lock();
        state.readers += 1;
        WaitingReader { signals: self, raised_before: state.raised }
    }
}

impl WaitingReader<'_> {
    /// Whether a signal ends the wait.
    pub(super) fn has_signal(&self) -> bool {
        let state = self.signals.0.lock();
        state.is_pending || state.raised != self.raised_before
    }

    /// Returns whether a signal ends the wait. Clears a pending signal.
    pub(super) fn take_signal(&self) -> bool {
        let mut state = self.signals.0.lock();
        std::mem::take(&mut state.is_pending) || state.raised != self.raised_before
    }
}

impl Drop for WaitingReader<'_> {
    fn drop(&mut self) {
        self.signals.0.lock().readers -= 1;
    }
}
