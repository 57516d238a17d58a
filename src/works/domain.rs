//! How objects reach the work queue of their domain.

use std::sync::Arc;

use homespun_engine::error::Error;

use super::queue::WorkQueue;
use crate::counter::Counter;

/// A domain with a work queue.
pub(crate) trait WorkDomain: Send + Sync {
    fn work_queue(&self) -> &Arc<WorkQueue>;

    /// Prepares a counter for works that wait for it. From now on, reads of the counter drive the endpoints
    /// that may have works, and calls at any endpoint of the domain run due works.
    ///
    /// # Errors
    ///
    /// The system's error if an endpoint cannot wake sleepers: ENOMEM, ENOSPC.
    fn enlist_work_counter(&self, counter: &Counter) -> Result<(), Error>;
}
