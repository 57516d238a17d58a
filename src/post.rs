//! Operations as endpoints post them: values that the pump hands to the engine, and that can wait until they
//! are due.

use std::mem;

use homespun_engine::buffer::{Buffer, Destination};
use homespun_engine::error::{Error, Misuse, Unsupported};
use homespun_engine::flags::{Caps, CompletionFlags};
use homespun_engine::matching::Criteria;
use homespun_engine::operation::{
    PeekAction, ReceiveRequest, Signalled, TransmitOp, TransmitOptions, TransmitRequest,
};
use homespun_engine::rejected::Rejected;

use crate::av::FabricAddress;
use crate::tag::TagMatch;

/// An operation on a peer.
#[derive(Debug)]
pub(crate) struct Post {
    /// The endpoint that the message, or the access, is for.
    pub(crate) peer: FabricAddress,
    pub(crate) request: TransmitRequest,
    /// Whether another operation follows at once, so that transmission may wait for it (`FI_MORE`).
    pub(crate) more: bool,
}

/// A receive, or a call about a message that has arrived already.
#[derive(Debug)]
pub(crate) struct ReceivePost {
    /// The only source to accept. `None` for any.
    pub(crate) from: Option<FabricAddress>,
    /// The tags that a tagged receive accepts.
    pub(crate) tagged: Option<TagMatch>,
    pub(crate) kind: ReceiveKind,
    /// The memory for the message. A peek and a discard leave it alone.
    pub(crate) destination: Destination,
    /// Given back in the completion.
    pub(crate) context: u64,
    /// Whether its success is reported.
    pub(crate) signalled: Signalled,
}

/// The kind of messages that a receive takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReceiveKind {
    /// The next message that matches.
    Single,
    /// One message after another, until less than this is free or a message does not fit.
    Multi { min_free_bytes: usize },
    /// Nothing: it looks for a message that had been received before the call, and reports at once, signalled
    /// or not. Then everything moves on as if a queue had been read, so a loop of peeks finds what arrives.
    Peek(PeekAction),
    /// The message that a peek with this context has claimed, from any source and with any tag.
    Claimed,
    /// Nothing: it throws that message away, which is always reported.
    Discard,
}

impl Post {
    /// An operation without options yet.
    #[inline(always)]
    pub(crate) fn new(peer: FabricAddress, op: TransmitOp, context: u64) -> Post {
        let request = TransmitRequest { op, options: TransmitOptions::INJECTED, context };
        Post { peer, request, more: false }
    }
}

impl ReceivePost {
    /// Returns the capabilities that an endpoint needs to post this.
    #[inline(always)]
    pub(crate) fn required_caps(&self) -> Caps {
        let mut needed = if self.tagged.is_some() { Caps::TAGGED } else { Caps::MSG };
        if self.from.is_some() {
            needed |= Caps::DIRECTED_RECV;
        }
        match self.kind {
            ReceiveKind::Multi { .. } => needed | Caps::RECV | Caps::MULTI_RECV,
            _ => needed | Caps::RECV,
        }
    }

    /// Makes it deferred work, which is reported by its number.
    ///
    /// # Errors
    ///
    /// [`Misuse::NotSupported`] unless it receives one message.
    pub(crate) fn defer(&mut self) -> Result<(), Misuse> {
        match self.kind {
            ReceiveKind::Single => self.signalled = Signalled::Deferred,
            ReceiveKind::Multi { .. } => {
                return Err(Misuse::NotSupported(Unsupported::DeferredMultiReceive));
            }
            ReceiveKind::Peek(_) | ReceiveKind::Claimed | ReceiveKind::Discard => {
                return Err(Misuse::NotSupported(Unsupported::DeferredPeek));
            }
        }
        Ok(())
    }

    /// The flags of its completion.
    pub(crate) fn completion_flags(&self) -> CompletionFlags {
        CompletionFlags::of_receive(self.tagged.is_some())
    }

    /// The receive for an engine. It takes the memory out of the post.
    #[inline(always)]
    pub(crate) fn take_receive_request(&mut self, criteria: Criteria) -> ReceiveRequest {
        let ReceivePost { tagged, context, signalled, .. } = *self;
        let destination = mem::take(&mut self.destination);
        ReceiveRequest { destination, tagged: tagged.is_some(), criteria, context, signalled }
    }

    /// Takes the application's memory out, to be handed back.
    #[cold]
    pub(crate) fn take_buffer(&mut self) -> Buffer {
        mem::take(&mut self.destination).into_buffer()
    }

    /// Puts the memory of a receive back that was refused, and says why it was.
    #[cold]
    pub(crate) fn put_back_rejected(&mut self, rejected: Rejected<Destination>) -> Error {
        self.destination = rejected.returned;
        rejected.error
    }
}

impl ReceiveKind {
    /// Whether memory is filled.
    pub(crate) fn fills_memory(self) -> bool {
        !matches!(self, ReceiveKind::Peek(_) | ReceiveKind::Discard)
    }
}
