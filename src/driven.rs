//! The endpoints that a queue or a counter drives.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use homespun_engine::transport::Armed;
use parking_lot::RwLock;

use crate::cq::Reader;
use crate::drive::Drive;
use crate::empty_polls::EmptyPolls;
use crate::wait::EpollSet;

/// The endpoints that one queue or one counter drives. Usually there is only one, which a poll finds
/// without a lock.
#[derive(Default)]
pub(crate) struct Driven {
    /// The endpoint that was added first. This endpoint is never removed. Once the endpoint is closed,
    /// driving the endpoint does nothing.
    first: OnceLock<Arc<dyn Drive>>,
    others: RwLock<Vec<Arc<dyn Drive>>>,
    has_others: AtomicBool,
    empty_polls: EmptyPolls,
}

impl Driven {
    /// Drives this endpoint from now on, if it is not driven already.
    pub(crate) fn add(&self, endpoint: Arc<dyn Drive>) {
        let mut rejected = Some(endpoint);
        self.first.get_or_init(|| rejected.take().expect("this runs once"));
        if let Some(endpoint) = rejected.filter(|endpoint| !self.is_first_endpoint(endpoint)) {
            let mut others = self.others.write();
            if !others.iter().any(|driven| Arc::ptr_eq(driven, &endpoint)) {
                others.push(endpoint);
            }
            self.has_others.store(true, Ordering::Release);
        }
    }

    /// Stops driving this endpoint, unless it was added first: the first endpoint is driven until it
    /// closes.
    pub(crate) fn remove_unless_first(&self, endpoint: &Arc<dyn Drive>) {
        let mut others = self.others.write();
        others.retain(|driven| !Arc::ptr_eq(driven, endpoint));
        self.has_others.store(!others.is_empty(), Ordering::Release);
    }

    fn is_first_endpoint(&self, endpoint: &Arc<dyn Drive>) -> bool {
        self.first.get().is_some_and(|first| Arc::ptr_eq(first, endpoint))
    }

    /// Locks the list. A test then checks that other threads do not need the lock.
    #[cfg(test)]
    pub(crate) fn lock_for_test(&self) -> impl Sized + '_ {
        self.others.write()
    }

    /// Makes progress at all endpoints, for a reader of the queue.
    #[inline(always)]
    pub(crate) fn progress(&self, reader: &mut Reader<'_>) {
        self.for_each(|endpoint| endpoint.progress(reader));
    }

    /// Records that a poll has found something.
    #[inline(always)]
    pub(crate) fn end_wait(&self) {
        self.empty_polls.end_wait();
    }

    /// Counts a poll that has found nothing, and gives the core away if that helps. `is_ready` tells whether
    /// a poll would find something without a pass. The caller holds no lock.
    #[inline(always)]
    pub(crate) fn count_empty_poll(&self, is_ready: &dyn Fn() -> bool) {
        self.empty_polls.count(self, is_ready);
    }

    /// Makes progress at all endpoints. All completions go to the rings of their queues, none to the
    /// caller.
    pub(crate) fn progress_without_reader(&self) {
        self.for_each(|endpoint| endpoint.progress_without_reader());
    }

    /// Tells peers the core on which a reader waits. Returns whether another thread may need the core.
    pub(crate) fn publish_core_and_check_shared(&self, core: u32) -> bool {
        let mut is_found = false;
        self.for_each(|endpoint| is_found |= endpoint.publish_core_and_check_shared(core));
        is_found
    }

    #[inline(always)]
    fn for_each(&self, mut act: impl FnMut(&dyn Drive)) {
        if let Some(first) = self.first.get() {
            act(&**first);
        }
        if self.has_others.load(Ordering::Acquire) {
            for endpoint in self.others.read().iter() {
                act(&**endpoint);
            }
        }
    }

    /// Runs the due works of the endpoints' domain. The caller must hold no lock of the threads that sleep
    /// on the queue or counter.
    pub(crate) fn fire_due_works(&self) {
        self.for_each(|endpoint| endpoint.fire_due_works());
    }

    /// Sleeps until an endpoint may need a pass, or this time has passed. Does not sleep if `is_ready`
    /// returns
    /// `true` once the endpoints are armed. Returns `false` if the thread must not sleep on the endpoints.
    /// The caller holds no lock.
    #[cold]
    pub(crate) fn try_sleep(&self, is_ready: impl Fn() -> bool, at_most: Duration) -> bool {
        // The set is of this sleep alone: one that stays would take a descriptor of each queue.
        let Ok(sources) = EpollSet::new() else { return false };
        let mut armed = NOTHING_TO_DO;
        self.for_each(|endpoint| {
            if armed != Armed::Ready {
                armed = earlier_of(armed, endpoint.arm_for_short_sleep(&sources));
            }
        });
        self.fire_due_works();
        let Armed::Asleep { look_again_after } = armed else { return false };
        if !is_ready() {
            // Whatever wakes the thread, it polls next.
            let _ = sources.sleep(Some(look_again_after.map_or(at_most, |time| time.min(at_most))));
        }
        true
    }

    /// Arms all endpoints, for a thread that is about to sleep.
    pub(crate) fn arm(&self) -> Armed {
        let first = self.first.get().map_or(NOTHING_TO_DO, |first| first.arm());
        self.others.read().iter().map(|endpoint| endpoint.arm()).fold(first, earlier_of)
    }
}

/// The result of arming no endpoint: the thread may sleep without a time limit.
const NOTHING_TO_DO: Armed = Armed::Asleep { look_again_after: None };

/// Combines the results of arming two endpoints. If both are asleep, the earlier time to look again counts.
/// Otherwise the result is [`Armed::Ready`].
fn earlier_of(one: Armed, other: Armed) -> Armed {
    match (one, other) {
        (Armed::Asleep { look_again_after: one }, Armed::Asleep { look_again_after: other }) => {
            Armed::Asleep { look_again_after: [one, other].into_iter().flatten().min() }
        }
        _ => Armed::Ready,
    }
}
