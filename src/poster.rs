//! Posts operations to an endpoint, or receives to a shared receive context. The posts come from the
//! application, or from works that waited for a counter.

use homespun_engine::buffer::{Buffer, SegmentMut};
use homespun_engine::error::{Error, OperationError};
use homespun_engine::flags::{CompletionFlags, CounterEvents};

use crate::post::{Post, ReceivePost};

/// Posts operations to an endpoint, or receives to a shared receive context.
pub(crate) trait Poster: Send + Sync {
    /// Posts an operation. Moves the memory out of `post`, unless the operation is refused.
    fn post(&self, post: &mut Post) -> Result<(), Error>;
    /// Posts a receive, peek, claim or discard. Moves the memory out of `post`, unless the call is refused.
    fn post_receive(&self, post: &mut ReceivePost) -> Result<(), Error>;
    /// Cancels an operation of the application with this context.
    fn cancel(&self, context: u64) -> Result<(), Error>;
    /// Cancels the operation of the deferred work with this number.
    fn cancel_work(&self, number: u64) -> Result<(), Error>;
    /// Cancels all receives whose memory overlaps `memory`, except those that a message has matched, and
    /// those that wait for a counter.
    fn cancel_receives_into(&self, memory: &SegmentMut);
    /// Reports that an operation that waited for a counter was refused or cancelled.
    fn report_refused_post(&self, refused: RefusedPost);
    /// Wakes the threads that rely on the endpoint to wake them.
    fn wake_sleepers(&self);
}

/// An operation that waited for a counter, and was refused or cancelled.
pub(crate) struct RefusedPost {
    pub(crate) context: u64,
    pub(crate) flags: CompletionFlags,
    /// The events by which an endpoint counts the failure of the operation.
    pub(crate) events: CounterEvents,
    pub(crate) error: OperationError,
    pub(crate) buffer: Buffer,
    /// Whether the operation is deferred work. Then `context` is the number of the work.
    pub(crate) is_work: bool,
}
