//! The interface of a domain to the objects whose operations wait in its work queue.

use std::sync::Arc;

use homespun_engine::error::Error;

use super::queue::WorkQueue;
use crate::counter::Counter;

/// A domain with a work queue.
pub(crate) trait WorkDomain: Send + Sync {
    fn work_queue(&self) -> &Arc<WorkQueue>;

    /// Prepares a counter for works that wait for it. From now on reads of the counter drive the endpoints
    /// of the domain that may have works, and calls at any endpoint of the domain run due works. A domain
    /// spends nothing on works before its first one.
    ///
    /// # Errors
    ///
    /// The system's error if an endpoint cannot wake sleepers: ENOMEM, ENOSPC.
    fn enlist_work_counter(&self, counter: &Counter) -> Result<(), Error>;
}
