//! The state of a counter that was reported to an application.

use crate::sync::{AtomicU64, Ordering};

/// The state of a counter at its last report to the application. All zero before the first report.
#[derive(Debug, Default)]
pub(crate) struct Reported([AtomicU64; 3]);

impl Reported {
    /// Whether the counter has changed since the last report.
    pub(crate) fn is_outdated(&self, state: [u64; 3]) -> bool {
        self.0.iter().zip(state).any(|(reported, number)| reported.load(Ordering::SeqCst) != number)
    }

    /// Records the counter's current state as reported. Returns whether the state has changed since the
    /// last report.
    pub(crate) fn update_if_outdated(&self, state: [u64; 3]) -> bool {
        let mut has_changed = false;
        for (reported, number) in self.0.iter().zip(state) {
            has_changed |= reported.swap(number, Ordering::SeqCst) != number;
        }
        has_changed
    }
}
