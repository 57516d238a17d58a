//! A domain as the objects see it whose operations wait in its work queue.

use std::sync::Arc;

use homespun_engine::error::Error;

use super::queue::WorkQueue;
use crate::counter::Counter;

/// A domain with a work queue.
pub(crate) trait WorkDomain: Send + Sync {
    fn work_queue(&self) -> &Arc<WorkQueue>;

    /// Has a counter that work is about to depend on drive the endpoints that may have work. From the
    /// first work on, endpoints carry out the works that they make due; until then works cost them
    /// nothing.
    ///
    /// # Errors
    ///
    /// The system's error if an endpoint cannot wake sleepers: ENOMEM, ENOSPC.
    fn enlist_work_counter(&self, counter: &Counter) -> Result<(), Error>;
}
