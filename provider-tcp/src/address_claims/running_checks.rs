//! How many checks are under way, and whether another may begin.

use std::collections::HashMap;

use homespun_engine::source_host::SourceHost;

use crate::limits::{CHECKS_BACKGROUND_MAX, CHECKS_CONTESTED_MAX, CHECKS_MAX, CHECKS_OF_HOST_MAX};

/// Whether a held link waits for a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum CheckKind {
    Contested,
    /// No held link waits for the check.
    Background,
}

/// The checks that are running. A check of a silent address takes its place for seconds. So neither one kind
/// of check nor one host may take all places.
#[derive(Debug, Default)]
pub(super) struct RunningChecks {
    contested: usize,
    background: usize,
    by_host: HashMap<(SourceHost, CheckKind), usize>,
}

impl RunningChecks {
    pub(super) fn is_empty(&self) -> bool {
        self.count() == 0
    }

    /// Whether a check of this kind may begin. [`has_room_for_host`](Self::has_room_for_host) must also hold
    /// for its host.
    pub(super) fn has_room(&self, kind: CheckKind) -> bool {
        let (count, max) = match kind {
            CheckKind::Contested => (self.contested, CHECKS_CONTESTED_MAX),
            CheckKind::Background => (self.background, CHECKS_BACKGROUND_MAX),
        };
        count < max && self.count() < CHECKS_MAX
    }

    pub(super) fn has_room_for_host(&self, host: SourceHost, kind: CheckKind) -> bool {
        self.by_host.get(&(host, kind)).is_none_or(|count| *count < CHECKS_OF_HOST_MAX)
    }

    pub(super) fn add(&mut self, host: SourceHost, kind: CheckKind) {
        *self.count_of_kind(kind) += 1;
        *self.by_host.entry((host, kind)).or_default() += 1;
    }

    pub(super) fn remove(&mut self, host: SourceHost, kind: CheckKind) {
        *self.count_of_kind(kind) -= 1;
        if let Some(count) = self.by_host.get_mut(&(host, kind)) {
            *count -= 1;
            if *count == 0 {
                self.by_host.remove(&(host, kind));
            }
        }
    }

    fn count(&self) -> usize {
        self.contested + self.background
    }

    fn count_of_kind(&mut self, kind: CheckKind) -> &mut usize {
        match kind {
            CheckKind::Contested => &mut self.contested,
            CheckKind::Background => &mut self.background,
        }
    }
}
