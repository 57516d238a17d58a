//! Operations as endpoints post them: values that the pump hands to the engine, and that can wait until they
//! are due.

use std::mem;

use homespun_engine::atomic::{AtomicOp, Datatype};
use homespun_engine::buffer::{Buffer, Destination, Source};
use homespun_engine::error::{Error, Misuse, Unsupported};
use homespun_engine::flags::{Caps, CompletionFlags};
use homespun_engine::matching::Criteria;
use homespun_engine::operation::{AtomicLocal, Level, PeekAction, ReceiveRequest, RmaLocal, Signalled};
use homespun_engine::rejected::Rejected;
use homespun_engine::remote_memory::RemoteMemory;

use crate::av::FabricAddress;
use crate::tag::TagMatch;

/// A transmit operation.
#[derive(Debug)]
pub(crate) struct Post {
    /// The endpoint that the message, or the access, is for.
    pub(crate) peer: FabricAddress,
    pub(crate) op: Op,
    pub(crate) options: Options,
    /// Given back in the completion.
    pub(crate) context: u64,
}

/// A transmit operation, with its memory.
#[derive(Debug)]
pub(crate) enum Op {
    /// Sends a message.
    Send { source: Source, tag: Option<u64>, data: Option<u64> },
    /// Reads or writes a region of the peer's.
    Rma { local: RmaLocal, memory: RemoteMemory },
    /// Changes elements of a region of the peer's.
    Atomic { local: AtomicLocal, memory: RemoteMemory, op: AtomicOp, datatype: Datatype },
}

/// The options of a transmit operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Options {
    /// The soonest that it completes.
    pub(crate) level: Level,
    /// Whether its success is reported.
    pub(crate) signalled: Signalled,
    /// Whether its memory may be reused as soon as it is posted.
    pub(crate) inject: bool,
    /// Whether it waits for all before it to the same peer, and all after it wait for it.
    pub(crate) fence: bool,
    /// Whether another operation follows at once, so that transmission may wait for it.
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
    /// Where the message goes. A peek and a discard leave it alone.
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
    pub(crate) fn new(peer: FabricAddress, op: Op, context: u64) -> Post {
        Post { peer, op, options: Options::INJECTED, context }
    }
}

impl Op {
    /// Returns the capabilities that an endpoint needs to post this at this level.
    #[inline(always)]
    pub(crate) fn needed_caps(&self, level: Level) -> Caps {
        match self {
            Op::Send { tag: Some(_), .. } => Caps::TAGGED | Caps::SEND,
            Op::Send { tag: None, .. } => Caps::MSG | Caps::SEND,
            Op::Rma { local: RmaLocal::Read(_), .. } => Caps::RMA | Caps::READ,
            Op::Rma { local: RmaLocal::Write { .. }, .. } if level == Level::Commit => {
                Caps::RMA | Caps::WRITE | Caps::RMA_PMEM
            }
            Op::Rma { local: RmaLocal::Write { .. }, .. } => Caps::RMA | Caps::WRITE,
            Op::Atomic { local, op, .. } => {
                let mut needed = Caps::ATOMIC;
                needed.set(Caps::READ, local.kind().fetches());
                needed.set(Caps::WRITE, op.can_write());
                needed
            }
        }
    }

    /// The length of the longest piece of memory that is copied if the operation is injected.
    #[inline(always)]
    pub(crate) fn longest_injected_bytes(&self) -> usize {
        match self {
            Op::Send { source, .. } | Op::Rma { local: RmaLocal::Write { source, .. }, .. } => {
                source.len_bytes()
            }
            Op::Rma { local: RmaLocal::Read(_), .. } => 0,
            Op::Atomic { local, op, .. } if op.has_operand() => local.longest_source_bytes(),
            Op::Atomic { .. } => 0,
        }
    }

    /// The flags of its completion.
    pub(crate) fn completion_flags(&self) -> CompletionFlags {
        match self {
            Op::Send { tag, .. } => CompletionFlags::of_send(tag.is_some()),
            Op::Rma { local, .. } => local.completion_flags(),
            Op::Atomic { local, .. } => CompletionFlags::of_access(true, local.kind().fetches()),
        }
    }

    /// Stops depending on memory that is only read: copies it, unless it is owned.
    pub(crate) fn copy_borrowed_memory(&mut self) {
        match self {
            Op::Send { source, .. } | Op::Rma { local: RmaLocal::Write { source, .. }, .. } => {
                source.detach();
            }
            Op::Rma { local: RmaLocal::Read(_), .. } => {}
            Op::Atomic { local, op, .. } if op.has_operand() => match local {
                AtomicLocal::Base { operand } | AtomicLocal::Fetch { operand, .. } => operand.detach(),
                AtomicLocal::Compare { operand, compare, .. } => {
                    operand.detach();
                    compare.detach();
                }
            },
            Op::Atomic { .. } => {}
        }
    }

    /// Takes the application's memory out, to be handed back.
    #[cold]
    pub(crate) fn take_buffer(&mut self) -> Buffer {
        match self {
            Op::Send { source, .. } => mem::take(source).into_buffer(),
            Op::Rma { local, .. } => local.take().into_buffer(),
            Op::Atomic { local, .. } => local.take().into_buffer(),
        }
    }
}

impl Options {
    /// Those of a call that injects and reports nothing.
    pub(crate) const INJECTED: Options =
        Options { level: Level::Inject, signalled: Signalled::No, inject: true, fence: false, more: false };
}

impl ReceivePost {
    /// Returns the capabilities that an endpoint needs to post this.
    #[inline(always)]
    pub(crate) fn needed_caps(&self) -> Caps {
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
