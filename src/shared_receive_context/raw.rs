//! The raw tier of posting to a context: addresses and lengths, as C callers have them.

use homespun_engine::buffer::SegmentMut;
use homespun_engine::error::Error;

use super::SharedReceiveContext;
use crate::receives::{ReceivePoster, RecvMsg};

impl SharedReceiveContext {
    /// Posts a receive into the caller's memory, as
    /// [`Endpoint::post_receive`](crate::Endpoint::post_receive) does.
    ///
    /// # Errors
    ///
    /// As [`recvmsg`](Self::recvmsg).
    ///
    /// # Safety
    ///
    /// Every segment must be initialised memory that nothing else reads or writes until the operation's
    /// completion was read, or the last handle of the context was dropped and no endpoint is bound to it. A
    /// receive that reports no success, or whose completion was not read from the queue of an endpoint that
    /// was closed, keeps its memory for as long. Of a multi-receive buffer the same holds as of an
    /// endpoint's.
    pub unsafe fn post_receive(&self, receive: &RecvMsg<&[SegmentMut]>) -> Result<(), Error> {
        // SAFETY: the caller promises what is asked for: the receiver is dropped with the last handle and the
        // last endpoint.
        unsafe { self.receive_raw(receive) }
    }
}
