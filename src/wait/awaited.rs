//! The event that a waiter waits for.

use homespun_engine::transport::Armed;

/// The event that a thread waits for. A completion queue, an event queue, a counter or a wait set describes
/// it to its [`Waiter`](super::Waiter).
pub(crate) trait Awaited {
    /// Makes a pass over the endpoints that may cause the event.
    fn progress(&self);

    /// Arms the endpoints that may cause the event, for a thread that is about to sleep.
    fn arm(&self) -> Armed;

    /// Carries out the works that [`arm`](Self::arm) has made due. The caller must hold no lock of the
    /// sleepers.
    fn fire_due_works(&self) {}

    /// Undoes [`arm`](Self::arm), after the sleep or instead of it.
    fn disarm(&self) {}

    /// Returns whether the event has happened, and may record the result. If the doorbell was armed before
    /// this call, a later event rings it.
    fn poll_ready(&self) -> bool;

    /// Records that the application gets a report of the event. After that, the next check ignores an event
    /// that is reported only once.
    fn mark_reported(&self) {}
}
