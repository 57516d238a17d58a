//! The endpoints that a completion queue drives.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use homespun_engine::transport::Armed;
use parking_lot::RwLock;

use crate::cq::Reader;
use crate::pump::Drive;

/// A list of endpoints. Most queues have one, which is found without a lock in every poll.
#[derive(Default)]
pub(crate) struct Driven {
    /// The first endpoint that there ever was. It stays here when it is closed, and then does nothing.
    first: OnceLock<Arc<dyn Drive>>,
    others: RwLock<Vec<Arc<dyn Drive>>>,
    has_others: AtomicBool,
}

impl Driven {
    /// Drives this endpoint from now on.
    pub(crate) fn add(&self, endpoint: Arc<dyn Drive>) {
        let mut rejected = Some(endpoint);
        self.first.get_or_init(|| rejected.take().expect("this runs once"));
        if let Some(endpoint) = rejected {
            let mut others = self.others.write();
            others.push(endpoint);
            self.has_others.store(true, Ordering::Release);
        }
    }

    /// Drives this endpoint no longer. If it is the first one, it must be closed next.
    pub(crate) fn remove(&self, endpoint: &Arc<dyn Drive>) {
        let mut others = self.others.write();
        others.retain(|driven| !Arc::ptr_eq(driven, endpoint));
        self.has_others.store(!others.is_empty(), Ordering::Release);
    }

    /// Keeps everybody from the lock of the list.
    #[cfg(test)]
    pub(crate) fn hold(&self) -> impl Sized + '_ {
        self.others.write()
    }

    /// Makes progress at all of them, on behalf of a reader of the queue.
    #[inline(always)]
    pub(crate) fn progress(&self, reader: &mut Reader<'_>) {
        if let Some(first) = self.first.get() {
            first.progress(reader);
        }
        if self.has_others.load(Ordering::Acquire) {
            for endpoint in self.others.read().iter() {
                endpoint.progress(reader);
            }
        }
    }

    /// Arms all of them, for somebody who is about to sleep.
    pub(crate) fn arm(&self) -> Armed {
        let first = self.first.get().map_or(NOTHING_TO_DO, |first| first.arm());
        self.others.read().iter().map(|endpoint| endpoint.arm()).fold(first, soonest)
    }
}

/// What an endpoint answers that nothing can happen to.
const NOTHING_TO_DO: Armed = Armed::Asleep { look_again_after: None };

/// When to look again, of two endpoints.
fn soonest(one: Armed, other: Armed) -> Armed {
    match (one, other) {
        (Armed::Asleep { look_again_after: one }, Armed::Asleep { look_again_after: other }) => {
            Armed::Asleep { look_again_after: [one, other].into_iter().flatten().min() }
        }
        _ => Armed::Ready,
    }
}
