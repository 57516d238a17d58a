//! The object for which a waiter waits.

use homespun_engine::transport::Armed;

/// Something that a thread waits for: all that a completion queue, an event queue, a counter or a wait set
/// says of itself to a [`Waiter`](super::Waiter).
pub(crate) trait Awaited {
    /// Makes a pass over the endpoints that may bring it about.
    fn progress(&self);

    /// Arms those endpoints for a thread that is about to sleep.
    fn arm(&self) -> Armed;

    /// Carries out the works that [`arm`](Self::arm) has made due, with no lock of the sleepers held.
    fn fire_due_works(&self) {}

    /// Ends what [`arm`](Self::arm) has begun, after the sleep or instead of it.
    fn disarm(&self) {}

    /// Looks whether it is there. If it comes later, the doorbell rings, provided that it was armed before
    /// the look.
    fn check_ready(&self) -> bool;

    /// The application learns that it is there. What is to be reported once is not there for the next look.
    fn mark_reported(&self) {}
}
