//! The operations that endpoints post. The pump hands an operation to the engine; an operation with a
//! trigger waits first.

use std::mem;

use homespun_engine::buffer::{Buffer, Destination};
use homespun_engine::error::Error;
use homespun_engine::flags::{Caps, CompletionFlags, CounterEvents};
use homespun_engine::matching::Criteria;
use homespun_engine::operation::{
    PeekAction, ReceiveRequest, Signalled, TransmitOp, TransmitOptions, TransmitRequest,
};
use homespun_engine::rejected::Rejected;

use crate::av::FabricAddress;
use crate::tag::TagMatch;

/// A transmit operation.
#[derive(Debug)]
pub(crate) struct Post {
    /// The destination of the message, or the target of the access.
    pub(crate) peer: FabricAddress,
    pub(crate) request: TransmitRequest,
    /// Whether another operation follows at once, so that transmission may wait for the next one
    /// (`FI_MORE`).
    pub(crate) more: bool,
}

/// A receive, or a call about a message that has already arrived.
#[derive(Debug)]
pub(crate) struct ReceivePost {
    /// The only source to accept; `None` for any source.
    pub(crate) from: Option<FabricAddress>,
    /// The tags that a tagged receive accepts.
    pub(crate) tagged: Option<TagMatch>,
    pub(crate) kind: ReceiveKind,
    /// The memory for the message. A peek and a discard do not use it.
    pub(crate) destination: Destination,
    /// The context of the completion. It also names a claimed message.
    pub(crate) context: u64,
    /// Whether the success of the receive is reported.
    pub(crate) signalled: Signalled,
    /// The number of the deferred work that is being posted, if this is one.
    pub(crate) work: Option<u64>,
}

/// What a receive does, and with which messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReceiveKind {
    /// Receives the next message that matches.
    Single,
    /// Receives one message after another, until a message does not fit or fewer than this many bytes are
    /// free.
    Multi { min_free_bytes: usize },
    /// Looks for a message that arrived before the call. The result is always reported, at once. Then the
    /// endpoint makes a pass, so a loop of peeks finds new messages.
    Peek(PeekAction),
    /// Receives the message that a peek with this context has claimed. Source and tag do not matter.
    Claimed,
    /// Discards the message that a peek with this context has claimed. The end is always reported.
    Discard,
}

impl Post {
    /// Returns an operation without options.
    #[inline(always)]
    pub(crate) fn new(peer: FabricAddress, op: TransmitOp, context: u64) -> Post {
        let request = TransmitRequest { op, options: TransmitOptions::INJECTED, context };
        Post { peer, request, more: false }
    }
}

impl ReceivePost {
    /// Returns the capabilities that an endpoint must have to post this receive, or to have its end reported.
    #[inline(always)]
    pub(crate) fn required_caps(&self) -> Caps {
        if self.from.is_some() { Caps::RECV | Caps::DIRECTED_RECV } else { Caps::RECV }
    }

    /// Returns the flags of its completion.
    pub(crate) fn completion_flags(&self) -> CompletionFlags {
        CompletionFlags::of_receive(self.tagged.is_some())
    }

    /// Returns the events by which an endpoint counts the end of the receive.
    pub(crate) fn counter_events(&self, has_succeeded: bool) -> CounterEvents {
        match self.kind {
            ReceiveKind::Multi { .. } if has_succeeded => CounterEvents::empty(),
            ReceiveKind::Peek(_) | ReceiveKind::Discard => CounterEvents::empty(),
            ReceiveKind::Multi { .. } | ReceiveKind::Single | ReceiveKind::Claimed => {
                CounterEvents::of_completion(self.completion_flags())
            }
        }
    }

    /// Whether the post receives one message that no peek has claimed, and is no deferred work.
    #[inline(always)]
    pub(crate) fn is_plain_single_receive(&self) -> bool {
        self.kind == ReceiveKind::Single && self.work.is_none()
    }

    /// Returns the receive in the form that an engine takes. Moves the memory out of the post.
    #[inline(always)]
    pub(crate) fn take_receive_request(&mut self, criteria: Criteria) -> ReceiveRequest {
        let ReceivePost { tagged, context, signalled, .. } = *self;
        let destination = mem::take(&mut self.destination);
        ReceiveRequest { destination, tagged: tagged.is_some(), criteria, context, signalled }
    }

    /// Takes the application's memory out, to hand it back.
    #[cold]
    pub(crate) fn take_buffer(&mut self) -> Buffer {
        mem::take(&mut self.destination).into_buffer()
    }

    /// Puts the memory of a refused receive back, and returns the reason.
    #[cold]
    pub(crate) fn put_back_rejected_memory(&mut self, rejected: Rejected<Destination>) -> Error {
        self.destination = rejected.returned;
        rejected.error
    }
}

/// Returns the request. If `work` is the number of a deferred work, the request's end will be reported as
/// the end of the work.
#[cold]
pub(crate) fn mark_as_deferred_work(request: ReceiveRequest, work: Option<u64>) -> ReceiveRequest {
    match work {
        None => request,
        Some(number) => ReceiveRequest { context: number, signalled: Signalled::Deferred, ..request },
    }
}

impl ReceiveKind {
    /// Whether the receive writes to its memory.
    pub(crate) fn fills_memory(self) -> bool {
        !matches!(self, ReceiveKind::Peek(_) | ReceiveKind::Discard)
    }
}
