//! What an application knows of a counter.

use super::Shared;
use crate::sync::{AtomicU64, Ordering};

/// The state of a counter when the application was last told that it has changed. Nothing was counted before
/// that.
#[derive(Debug, Default)]
pub(crate) struct Reported([AtomicU64; 3]);

impl Reported {
    /// Whether the counter has changed since.
    pub(crate) fn is_outdated(&self, counter: &Shared) -> bool {
        self.0.iter().zip(counter.state()).any(|(reported, number)| reported.load(Ordering::SeqCst) != number)
    }

    /// The application is told of the counter's state. Whether it has changed since it was told last.
    pub(crate) fn update(&self, counter: &Shared) -> bool {
        let mut has_changed = false;
        for (reported, number) in self.0.iter().zip(counter.state()) {
            has_changed |= reported.swap(number, Ordering::SeqCst) != number;
        }
        has_changed
    }
}
