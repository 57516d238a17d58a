//! Requests for operations on a peer: sends, accesses to the peer's regions, and atomic operations.

use std::mem;

use super::{AtomicLocal, FlushKind, Level, RmaLocal, Signalled};
use crate::atomic::{AtomicOp, Datatype};
use crate::buffer::{Buffer, Source};
use crate::flags::{Caps, CompletionFlags};
use crate::remote_memory::RemoteMemory;

/// The request for an operation on a peer.
#[derive(Debug)]
pub struct TransmitRequest {
    /// The operation. An engine that accepts the request takes the memory out of the operation.
    pub op: TransmitOp,
    /// How the engine carries the operation out.
    pub options: TransmitOptions,
    /// The completion hands this back.
    pub context: u64,
}

/// An operation on a peer, with its memory.
#[derive(Debug)]
pub enum TransmitOp {
    /// Sends a message: `fi_msg(3)`, `fi_tagged(3)`.
    Send {
        /// The message.
        source: Source,
        /// The tag, if the message is tagged.
        tag: Option<u64>,
        /// Remote data for the receiver's completion.
        data: Option<u64>,
    },
    /// Reads or writes a region of the peer: `fi_rma(3)`.
    Rma {
        /// The memory on this side. Its length is that of the access.
        local: RmaLocal,
        /// Where the access begins.
        memory: RemoteMemory,
    },
    /// Changes elements of a region of the peer: `fi_atomic(3)`.
    Atomic {
        /// The memory on this side. Its variant selects the set of calls.
        local: AtomicLocal,
        /// Where the elements begin.
        memory: RemoteMemory,
        /// The operation on each element.
        op: AtomicOp,
        /// The type of the elements.
        datatype: Datatype,
    },
    /// Makes earlier writes to the peer visible, or a range of a region of the peer durable.
    Flush {
        /// What the flush makes sure of.
        kind: FlushKind,
        /// Where the range begins.
        memory: RemoteMemory,
        /// The length of the range.
        len_bytes: u64,
    },
}

/// The options of an operation on a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TransmitOptions {
    /// When a send completes at the earliest. If the send has a [fence](Self::fence), earlier operations
    /// must reach this level, too, before the send starts.
    ///
    /// An access to memory that the initiator has mapped completes when it is posted. Any other access
    /// completes when the target has answered, whatever the level. The target answers a write of
    /// [`Level::Commit`] when the data is durable. If the write has a fence, too, the target answers when
    /// all earlier writes to persistent memory are also durable.
    pub level: Level,
    /// Whether and where success is reported. Failure is always reported.
    pub signalled: Signalled,
    /// Whether the application may reuse the source memory once the engine has accepted the request
    /// (`FI_INJECT`).
    pub inject: bool,
    /// Whether this operation and all later operations on the same peer wait for the earlier ones
    /// (`FI_FENCE`). The wait ends when all earlier operations on that peer have completed and have reached
    /// this operation's level.
    pub fence: bool,
}

impl TransmitOptions {
    /// The options of a call that injects, and reports nothing.
    pub const INJECTED: TransmitOptions =
        TransmitOptions { level: Level::Inject, signalled: Signalled::No, inject: true, fence: false };
}

impl TransmitOp {
    /// Returns the capabilities that an endpoint must have to post this operation at this level, or to have
    /// its end reported. None is for the kind of the operation.
    #[inline(always)]
    pub fn required_caps(&self, level: Level) -> Caps {
        match self {
            TransmitOp::Send { .. } => Caps::SEND,
            TransmitOp::Rma { local: RmaLocal::Read(_), .. } => Caps::READ,
            TransmitOp::Rma { local: RmaLocal::Write { .. }, .. } if level == Level::Commit => {
                Caps::WRITE | Caps::RMA_PMEM
            }
            TransmitOp::Rma { local: RmaLocal::Write { .. }, .. } => Caps::WRITE,
            TransmitOp::Atomic { local, op, .. } => {
                let mut needed = Caps::empty();
                needed.set(Caps::READ, local.kind().fetches());
                needed.set(Caps::WRITE, op.can_write());
                needed
            }
            TransmitOp::Flush { kind: FlushKind::Visibility, .. } => Caps::WRITE,
            TransmitOp::Flush { kind: FlushKind::Persistent, .. } => Caps::WRITE | Caps::RMA_PMEM,
        }
    }

    /// Returns the length of the longest memory that the call copies if this operation is injected.
    #[inline(always)]
    pub fn longest_injected_bytes(&self) -> usize {
        match self {
            TransmitOp::Send { source, .. }
            | TransmitOp::Rma { local: RmaLocal::Write { source, .. }, .. } => source.len_bytes(),
            TransmitOp::Rma { local: RmaLocal::Read(_), .. } => 0,
            TransmitOp::Atomic { local, op, .. } if op.has_operand() => local.longest_source_bytes(),
            TransmitOp::Atomic { .. } | TransmitOp::Flush { .. } => 0,
        }
    }

    /// Returns the flags of the operation's completion.
    pub fn completion_flags(&self) -> CompletionFlags {
        match self {
            TransmitOp::Send { tag, .. } => CompletionFlags::of_send(tag.is_some()),
            TransmitOp::Rma { local, .. } => local.completion_flags(),
            TransmitOp::Atomic { local, .. } => CompletionFlags::of_access(true, local.kind().fetches()),
            TransmitOp::Flush { .. } => CompletionFlags::OF_FLUSH,
        }
    }

    /// Copies the memory that the operation only reads, if the memory is borrowed. The application may then
    /// reuse the memory.
    pub fn copy_borrowed_memory(&mut self) {
        match self {
            TransmitOp::Send { source, .. }
            | TransmitOp::Rma { local: RmaLocal::Write { source, .. }, .. } => {
                source.copy_borrowed_memory();
            }
            TransmitOp::Rma { local: RmaLocal::Read(_), .. } => {}
            TransmitOp::Atomic { local, op, .. } if op.has_operand() => match local {
                AtomicLocal::Base { operand } | AtomicLocal::Fetch { operand, .. } => {
                    operand.copy_borrowed_memory();
                }
                AtomicLocal::Compare { operand, compare, .. } => {
                    operand.copy_borrowed_memory();
                    compare.copy_borrowed_memory();
                }
            },
            TransmitOp::Atomic { .. } | TransmitOp::Flush { .. } => {}
        }
    }

    /// Removes and returns the application's memory, to be handed back.
    #[cold]
    pub fn take_buffer(&mut self) -> Buffer {
        match self {
            TransmitOp::Send { source, .. } => mem::take(source).into_buffer(),
            TransmitOp::Rma { local, .. } => local.take().into_buffer(),
            TransmitOp::Atomic { local, .. } => local.take().into_buffer(),
            TransmitOp::Flush { .. } => Buffer::None,
        }
    }
}
