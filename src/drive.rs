//! An endpoint as the queues, counters and the progress thread that drive it see it.

use std::os::fd::BorrowedFd;

use homespun_engine::transport::Armed;

use crate::cq::Reader;

/// The pump of an endpoint of any transport, as the objects that drive it see it.
pub(crate) trait Drive: Send + Sync {
    /// Moves everything on as far as it goes, on behalf of a reader of a completion queue.
    fn progress(&self, reader: &mut Reader<'_>);
    /// As [`progress`](Self::progress), on behalf of a reader of a counter or an event queue.
    fn progress_without_reader(&self);
    /// Arms the transport. Returns whether the descriptor of [`with_wake_fd`](Self::with_wake_fd)
    /// wakes for the next event. A reader calls it after a pass, when it has armed the doorbell
    /// of its queue and is about to sleep. A thread that then uses the endpoint keeps the transport
    /// armed, or rings. With a progress thread the doorbell is enough, since that thread takes over
    /// at once.
    fn arm(&self) -> Armed;
    /// Carries out the works of its domain that have become due, with the endpoint unlocked: they
    /// may be for it. [`arm`](Self::arm) and the mail of a shared receive context leave that to the
    /// caller.
    fn fire_due_works(&self);
    /// Shows the transport's descriptor, if it has one and is not closed.
    fn with_wake_fd(&self, show: &mut dyn FnMut(BorrowedFd<'_>));
    /// Moves everything on as far as it goes, on behalf of the progress thread, which has armed its doorbell
    /// and is about to sleep: unless the application polls.
    fn progress_for_progress_thread(&self) -> WatchResult;
    /// Waits until a thread that moves the endpoint on has come to the end of its pass. After that no thread
    /// touches regions that were closed before.
    fn wait_for_running_pass(&self);
}

/// The state in which the progress thread finds an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WatchResult {
    /// The application polls. Nothing was done, and no event says when it stops.
    Polled,
    /// Something has happened, so that more may follow.
    Moving,
    /// There was no work, and the transport has answered this when it was armed.
    Resting(Armed),
}
