//! An endpoint as what posts operations to it sees it: the endpoint itself, and work that waits for counters.

use homespun_engine::buffer::Buffer;
use homespun_engine::error::{Error, OperationError};
use homespun_engine::flags::CompletionFlags;

use crate::post::{Post, ReceivePost};

/// The pump of an endpoint as what posts to it sees it.
pub(crate) trait Poster: Send + Sync {
    /// Posts an operation. Takes its memory out of the post, unless it is refused.
    fn post(&self, post: &mut Post) -> Result<(), Error>;
    /// Posts a receive, or does what else it asks for. Takes its memory out of the post, unless it is
    /// refused.
    fn receive(&self, post: &mut ReceivePost) -> Result<(), Error>;
    /// Cancels an operation of the application's with this context.
    fn cancel(&self, context: u64) -> Result<(), Error>;
    /// Cancels the operation of the deferred work with this number.
    fn cancel_work(&self, number: u64) -> Result<(), Error>;
    /// Reports an operation that waited for a counter and is refused, or cancelled.
    fn refuse(&self, refused: Refused);
}

/// An operation that waited and was refused, or cancelled.
pub(crate) struct Refused {
    pub(crate) context: u64,
    pub(crate) flags: CompletionFlags,
    pub(crate) error: OperationError,
    pub(crate) buffer: Buffer,
    /// Whether the endpoint's counters count it.
    pub(crate) is_counted: bool,
}
