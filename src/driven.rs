//! The endpoints that a completion queue drives.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

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
}
