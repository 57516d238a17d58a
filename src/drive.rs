//! The interface of an endpoint to the queues, the counters and the progress thread that drive it.

use std::os::fd::BorrowedFd;

use homespun_engine::transport::Armed;

use crate::cq::Reader;

/// The part of an endpoint's pump, over any transport, that the objects that drive the endpoint call.
pub(crate) trait Drive: Send + Sync {
    /// Makes all progress that is possible now, for a reader of a completion queue.
    fn progress(&self, reader: &mut Reader<'_>);
    /// As [`progress`](Self::progress), for a reader of a counter or an event queue.
    fn progress_without_reader(&self);
    /// Arms the transport. Returns whether the descriptor of [`with_wake_fd`](Self::with_wake_fd) wakes for
    /// the next event. A reader that goes to sleep makes a pass, then arms the doorbell of its queue, then
    /// calls this function. The reader misses no event: every other thread that uses the endpoint from then
    /// on leaves the transport armed, or rings the doorbell. If the endpoint has a progress thread, this
    /// function arms nothing: it only makes that thread drive the endpoint.
    fn arm(&self) -> Armed;
    /// Runs the due works of the domain. The caller has the endpoint unlocked, since a work may post to it.
    /// [`arm`](Self::arm) and [`process_mail`](crate::endpoint_pump::EndpointPump::process_mail) do not run
    /// due works: call this function after them.
    fn fire_due_works(&self);
    /// Calls `show` with the transport's descriptor, if the transport has one and the endpoint is not
    /// closed.
    fn with_wake_fd(&self, show: &mut dyn FnMut(BorrowedFd<'_>));
    /// Makes all progress that is possible now, on the progress thread, and then runs the due works. The
    /// progress thread has armed its doorbell and is about to sleep. While the application polls, this makes
    /// no progress.
    fn progress_for_progress_thread(&self) -> WatchResult;
    /// Waits until the running pass of another thread over the endpoint, if any, has ended. After that no
    /// thread touches regions that were closed before the call.
    fn wait_for_running_pass(&self);
}

/// The state in which the progress thread finds an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WatchResult {
    /// The application polls. Nothing was done, and no event will announce that the application stops
    /// polling.
    Polled,
    /// There was progress, and there may be more to do.
    Moving,
    /// There was nothing to do, so the transport was armed, with this result.
    Resting(Armed),
}
