//! The interface of an endpoint to the queues, the counters and the progress thread that drive it.

use std::os::fd::BorrowedFd;

use homespun_engine::transport::Armed;

use crate::cq::Reader;
use crate::wait::EpollSet;

/// The pump of an endpoint, over any transport, as the objects that drive the endpoint call it.
pub(crate) trait Drive: Send + Sync {
    /// Makes all progress that is possible now, for a reader of a completion queue. Makes no pass while
    /// another thread uses the endpoint.
    fn progress(&self, reader: &mut Reader<'_>);
    /// As [`progress`](Self::progress), for a reader of a counter or an event queue.
    fn progress_without_reader(&self);
    /// Arms the transport for a reader that is about to sleep: the next event makes the descriptor of
    /// [`with_wake_fd`](Self::with_wake_fd) readable. Returns [`Armed::Ready`] if the reader must not
    /// sleep. With a progress thread, arms nothing, but makes the progress thread drive the endpoint.
    ///
    /// The reader first makes a pass, then arms the doorbell of its queue, then calls this function. The
    /// reader misses no event: every other thread that uses the endpoint after that leaves the transport
    /// armed, or rings the doorbell.
    fn arm(&self) -> Armed;
    /// Arms the transport for a thread that polls, and adds its descriptor to `sources`, on which the thread
    /// sleeps for a short time. Returns [`Armed::Ready`] if the thread must not sleep: the endpoint has work,
    /// a progress thread or another thread that sleeps on it, or its transport has no descriptor.
    ///
    /// While the thread sleeps, other threads that use the endpoint may disarm the transport.
    fn arm_for_short_sleep(&self, sources: &EpollSet) -> Armed;
    /// Runs the due works of the domain. The caller has the endpoint unlocked, since a work may post to the
    /// endpoint. Call this after [`arm`](Self::arm) and
    /// [`process_mail`](crate::endpoint_pump::EndpointPump::process_mail), which run no works.
    fn fire_due_works(&self);
    /// Calls `show` with the transport's descriptor. Does nothing if the transport has none, or if the
    /// endpoint is closed.
    fn with_wake_fd(&self, show: &mut dyn FnMut(BorrowedFd<'_>));
    /// Tells peers the core on which a reader waits. Returns whether another thread may need the core: a peer
    /// has last run there, or a thread waits for the endpoint.
    fn publish_core_and_check_shared(&self, core: u32) -> bool;
    /// Makes all progress that is possible now, then runs the due works. The progress thread calls this
    /// after it has armed its doorbell, before it sleeps. While the application polls, this makes no
    /// progress.
    fn progress_for_progress_thread(&self) -> WatchResult;
    /// If another thread is making a pass of the endpoint, waits until the pass has ended. After this call,
    /// no thread touches regions that were closed before the call.
    fn wait_for_running_pass(&self);
}

/// The state in which the progress thread finds an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WatchResult {
    /// The application polls, so nothing was done. No event will tell when the application stops polling.
    Polled,
    /// There was progress, and there may be more to do.
    Moving,
    /// There was nothing to do, so the transport was armed. The field is the result.
    Resting(Armed),
}
