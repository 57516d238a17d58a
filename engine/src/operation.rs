//! Operations: what an application posts, and what the engine keeps of it until it ends.

mod id;
mod level;

use std::mem;

pub(crate) use self::id::{FetchId, InboundId, ReceiveId, SendId, UnexpectedId};
pub use self::level::{Level, Signalled};
use crate::atomic::{AtomicKind, AtomicOp, Datatype};
use crate::buffer::{Buffer, Destination, Fetched, Source};
use crate::completion::{EndedOperation, FailedOperation};
use crate::error::{BadMemory, Misuse, OperationError};
use crate::flags::{CompletionFlags, CounterEvents};
use crate::initiator::Turn;
use crate::link::MessageMark;
use crate::matching::Criteria;
use crate::peer_id::PeerId;
use crate::wire::{AtomicForm, Durable, Message};

/// How an operation that is to be cancelled is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CancelKey {
    /// As an operation of the application's, by its context.
    Context(u64),
    /// As deferred work, by its number, which may be the context of another operation.
    Work(u64),
}

impl CancelKey {
    /// Whether it is an operation with this context, reported in this way.
    pub(crate) fn matches_operation(self, context: u64, signalled: Signalled) -> bool {
        match self {
            CancelKey::Context(meant) => context == meant && signalled != Signalled::Deferred,
            CancelKey::Work(meant) => context == meant && signalled == Signalled::Deferred,
        }
    }
}

/// A send to be posted: `fi_msg(3)`, `fi_tagged(3)`.
#[derive(Debug)]
pub struct SendRequest {
    /// The receiver.
    pub to: PeerId,
    /// The message.
    pub source: Source,
    /// Its tag, if it is a tagged message.
    pub tag: Option<u64>,
    /// Remote data for the receiver's completion.
    pub data: Option<u64>,
    /// Given back in the completion.
    pub context: u64,
    /// When to complete.
    pub level: Level,
    /// Whether success is reported. Failure always is.
    pub signalled: Signalled,
    /// Whether the source may be reused as soon as the request was accepted (`FI_INJECT`).
    pub inject: bool,
    /// Whether this send, and all after it to the same peer, wait until all before it have
    /// completed, and have reached the level of this one (`FI_FENCE`).
    pub fence: bool,
}

/// An access to a region of a peer, to be posted: `fi_rma(3)`.
#[derive(Debug)]
pub struct RmaRequest {
    /// The endpoint through which the region is reached.
    pub to: PeerId,
    /// The memory at this side, as long as the access.
    pub local: RmaLocal,
    /// The region's key.
    pub key: u64,
    /// Where in the region, as its [address](crate::region::RegionAttr::base_address) is known.
    pub address: u64,
    /// Given back in the completion.
    pub context: u64,
    /// What a [fence](Self::fence) waits for. The access itself completes when its target has
    /// answered, whatever its level: until then it may still be refused. For a write of
    /// [`Level::Commit`] the target answers when the result is durable, and if the write is fenced,
    /// all that was written to persistent memory before it.
    pub level: Level,
    /// Whether success is reported. Failure always is.
    pub signalled: Signalled,
    /// Whether the source of a write may be reused as soon as the request was accepted (`FI_INJECT`).
    pub inject: bool,
    /// As [`SendRequest::fence`].
    pub fence: bool,
}

impl RmaRequest {
    /// The completion of an access that ends as soon as it was posted.
    pub(crate) fn into_immediate_completion(self) -> EndedOperation {
        EndedOperation {
            context: self.context,
            flags: self.local.completion_flags(),
            len_bytes: 0,
            data: 0,
            tag: 0,
            source: None,
            buffer: self.local.into_buffer(),
        }
    }
}

/// The initiator's memory of an access to a region.
#[derive(Debug)]
pub enum RmaLocal {
    /// Where what is read goes.
    Read(Destination),
    /// What is to be written.
    Write {
        /// The bytes.
        source: Source,
        /// Remote data for a completion at the target.
        data: Option<u64>,
    },
}

impl RmaLocal {
    /// How long the access is.
    #[inline]
    pub fn len_bytes(&self) -> usize {
        match self {
            RmaLocal::Read(destination) => destination.len_bytes(),
            RmaLocal::Write { source, .. } => source.len_bytes(),
        }
    }

    /// Takes it out, and leaves nothing that is to be written.
    pub fn take(&mut self) -> RmaLocal {
        mem::replace(self, RmaLocal::Write { source: Source::default(), data: None })
    }

    /// Takes the application's memory out of an access that has ended, to hand it back.
    #[inline]
    pub fn take_buffer(&mut self) -> Buffer {
        match self {
            RmaLocal::Read(destination) => destination.take_buffer(destination.len_bytes()),
            RmaLocal::Write { source, .. } => source.take_buffer(),
        }
    }

    /// The flags of the access's completion.
    #[inline]
    pub fn completion_flags(&self) -> CompletionFlags {
        CompletionFlags::of_access(false, matches!(self, RmaLocal::Read(_)))
    }

    /// The application's memory, to be handed back.
    pub fn into_buffer(self) -> Buffer {
        match self {
            RmaLocal::Read(destination) => destination.into_buffer(),
            RmaLocal::Write { source, .. } => source.into_buffer(),
        }
    }
}

/// An atomic operation on a region of a peer, to be posted: `fi_atomic(3)`.
#[derive(Debug)]
pub struct AtomicRequest {
    /// The endpoint through which the region is reached.
    pub to: PeerId,
    /// The memory at this side. Its variant says which set of calls it belongs to.
    pub local: AtomicLocal,
    /// What is done with each element.
    pub op: AtomicOp,
    /// What the elements are.
    pub datatype: Datatype,
    /// The region's key.
    pub key: u64,
    /// Where in the region, as its [address](crate::region::RegionAttr::base_address) is known.
    pub address: u64,
    /// Given back in the completion.
    pub context: u64,
    /// As [`RmaRequest::level`].
    pub level: Level,
    /// Whether success is reported. Failure always is.
    pub signalled: Signalled,
    /// Whether operands, and what elements are compared with, may be reused as soon as the request
    /// was accepted (`FI_INJECT`).
    pub inject: bool,
    /// As [`SendRequest::fence`].
    pub fence: bool,
}

/// The initiator's memory of an atomic operation. Each part is as long as the elements are together.
#[derive(Debug)]
pub enum AtomicLocal {
    /// Nothing comes back.
    Base {
        /// The operands.
        operand: Source,
    },
    /// What the elements were before comes back.
    Fetch {
        /// The operands. [`AtomicOp::Read`] does not look at them.
        operand: Source,
        /// Where the elements go.
        result: Destination,
    },
    /// The elements are compared with something, and what they were before comes back.
    Compare {
        /// The operands.
        operand: Source,
        /// What the elements are compared with.
        compare: Source,
        /// Where the elements go.
        result: Destination,
    },
}

impl AtomicLocal {
    /// Which of the sets of calls it is for.
    pub fn kind(&self) -> AtomicKind {
        match self {
            AtomicLocal::Base { .. } => AtomicKind::Base,
            AtomicLocal::Fetch { .. } => AtomicKind::Fetch,
            AtomicLocal::Compare { .. } => AtomicKind::Compare,
        }
    }

    /// Takes it out, and leaves an operation of nothing.
    pub fn take(&mut self) -> AtomicLocal {
        mem::replace(self, AtomicLocal::Base { operand: Source::default() })
    }

    /// How long the longest buffer is that is read, in bytes.
    pub fn longest_source_bytes(&self) -> usize {
        match self {
            AtomicLocal::Base { operand } | AtomicLocal::Fetch { operand, .. } => operand.len_bytes(),
            AtomicLocal::Compare { operand, compare, .. } => operand.len_bytes().max(compare.len_bytes()),
        }
    }

    /// What is to be done with it.
    ///
    /// # Errors
    ///
    /// [`Misuse::NoAtomic`], [`Misuse::TooLong`], and [`Misuse::Memory`] for a part of an element, or
    /// lengths that differ.
    pub(crate) fn checked_form(&self, op: AtomicOp, datatype: Datatype) -> Result<AtomicForm, Misuse> {
        let kind = self.kind();
        let count_max = kind.count_max(op, datatype).ok_or(Misuse::NoAtomic { kind, op, datatype })?;
        let (operand, others) = match self {
            AtomicLocal::Base { operand } => (operand, [None, None]),
            AtomicLocal::Fetch { operand, result } => (operand, [Some(result.len_bytes()), None]),
            AtomicLocal::Compare { operand, compare, result } => {
                (operand, [Some(result.len_bytes()), Some(compare.len_bytes())])
            }
        };
        let operand_bytes = op.has_operand().then(|| operand.len_bytes());
        let mut lens_bytes = others.into_iter().chain([operand_bytes]).flatten();
        let len_bytes = lens_bytes.next().unwrap_or_default();
        if lens_bytes.any(|other| other != len_bytes) {
            return Err(Misuse::Memory(BadMemory::UnequalOperands));
        }
        let size_bytes = datatype.size_bytes();
        if len_bytes % size_bytes != 0 {
            return Err(Misuse::Memory(BadMemory::PartialElement));
        }
        let max_bytes = (count_max * size_bytes) as u64;
        let too_long = Misuse::TooLong { len_bytes: len_bytes as u64, max_bytes };
        AtomicForm::new(kind, op, datatype, len_bytes / size_bytes).ok_or(too_long)
    }

    /// The application's memory, to be handed back: [`Buffer::Fetched`] where there is room for results.
    pub fn into_buffer(self) -> Buffer {
        match self {
            AtomicLocal::Base { operand } => operand.into_buffer(),
            AtomicLocal::Fetch { operand, result } => fetched_buffer(operand, None, result.into_buffer()),
            AtomicLocal::Compare { operand, compare, result } => {
                fetched_buffer(operand, Some(compare), result.into_buffer())
            }
        }
    }
}

/// What is handed back of an operation that fetches: nothing if all of it was posted through the raw tier.
fn fetched_buffer(operand: Source, compare: Option<Source>, result: Buffer) -> Buffer {
    let compare = compare.map_or(Buffer::None, Source::into_buffer);
    let fetched = Fetched { result, operand: operand.into_buffer(), compare };
    if fetched == Fetched::default() { Buffer::None } else { Buffer::Fetched(Box::new(fetched)) }
}

/// A receive to be posted: `fi_msg(3)`, `fi_tagged(3)`.
#[derive(Debug)]
pub struct ReceiveRequest {
    /// Where the message goes.
    pub destination: Destination,
    /// Whether a tagged message is wanted. Tagged and untagged messages never match each other.
    pub tagged: bool,
    /// Which messages are wanted; for an untagged one only the source counts.
    pub criteria: Criteria,
    /// Given back in the completion.
    pub context: u64,
    /// Whether success is reported. Failure always is.
    pub signalled: Signalled,
}

/// A look at the unexpected messages: `FI_PEEK`, `fi_tagged(3)`.
#[derive(Debug)]
pub struct PeekRequest {
    /// Whether a tagged message is wanted.
    pub tagged: bool,
    /// Which messages are wanted; for an untagged one only the source counts.
    pub criteria: Criteria,
    /// Given back in the completion. It names the message that was claimed.
    pub context: u64,
    /// What to do with the message.
    pub then: PeekAction,
}

/// What a peek does with the message that it has found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PeekAction {
    /// It stays where it is.
    Keep,
    /// It is claimed for the caller, and no other receive takes it (`FI_CLAIM`).
    Claim,
    /// It is thrown away (`FI_DISCARD`).
    Discard,
}

/// A send that has not ended.
#[derive(Debug)]
pub(crate) struct Send {
    pub(crate) source: Source,
    pub(crate) message: Message,
    pub(crate) context: u64,
    pub(crate) signalled: Signalled,
    /// Whether the peer may fetch it from the source, which then is read long after the post.
    pub(crate) may_be_fetched: bool,
    /// Whether it waits for all sends before it.
    pub(crate) fence: bool,
    /// Its turn to be reported, if completions keep an order.
    pub(crate) turn: Option<Turn>,
    /// What it is if it is no message. Its length and its data are those of the message all the same.
    pub(crate) one_sided: Option<Box<OneSided>>,
}

/// An access to a region of a peer that has not ended.
#[derive(Debug)]
pub(crate) struct OneSided {
    pub(crate) key: u64,
    pub(crate) address: u64,
    /// Where what is read or fetched goes, and how much of it is there. `None` for what brings nothing back.
    pub(crate) read: Option<(Destination, u64)>,
    /// What is done with the elements there, if it is an atomic operation. The operands are the
    /// source, together with what the elements are compared with.
    pub(crate) atomic: Option<AtomicForm>,
    /// What is to be durable when it is answered.
    pub(crate) durable: Durable,
    /// Whether its target knows of it and will do it after later operations.
    pub(crate) is_deferred: bool,
    /// What the link had taken of messages before it.
    pub(crate) after: MessageMark,
}

/// A receive that has not ended.
#[derive(Debug)]
pub(crate) struct Receive {
    pub(crate) destination: Destination,
    pub(crate) tagged: bool,
    pub(crate) context: u64,
    pub(crate) signalled: Signalled,
    pub(crate) role: ReceiveRole,
}

/// What a receive is to a multi-receive buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReceiveRole {
    /// Nothing: it is an ordinary one.
    Single,
    /// The buffer, with the room that is left in it.
    Buffer,
    /// A message that the buffer has taken, with its place in it. Whether it is signalled is the
    /// buffer's to say, so it is not as far as the way of ordinary receives is concerned.
    Part,
    /// A single one or a part that has a turn. The turn knows which, and whether it is signalled.
    InTurn,
}

impl Send {
    /// How much it fetches, if it is an atomic operation.
    pub(crate) fn fetch_len_bytes(&self) -> usize {
        let fetching = self.one_sided.as_ref().filter(|access| access.read.is_some());
        fetching.and_then(|access| access.atomic).map_or(0, |form| form.len_bytes())
    }

    /// The counter event that its end is.
    #[cold]
    pub(crate) fn counter_event(&self) -> CounterEvents {
        self.one_sided.as_ref().map_or(CounterEvents::SEND, |one_sided| {
            CounterEvents::of_completion(one_sided.completion_flags())
        })
    }

    pub(crate) fn into_completion(self) -> EndedOperation {
        if let Some(one_sided) = self.one_sided {
            return one_sided.into_completion(self.context, self.source);
        }
        EndedOperation {
            context: self.context,
            flags: CompletionFlags::of_send(self.message.tag.is_some()),
            len_bytes: 0,
            data: 0,
            tag: 0,
            source: None,
            buffer: self.source.into_buffer(),
        }
    }
}

impl OneSided {
    fn completion_flags(&self) -> CompletionFlags {
        CompletionFlags::of_access(self.atomic.is_some(), self.read.is_some())
    }

    fn into_completion(self, context: u64, source: Source) -> EndedOperation {
        let flags = self.completion_flags();
        let buffer = match self.read {
            Some((mut destination, arrived_bytes)) => {
                // As much as there was room for, which is what was asked for, unless it failed.
                let arrived_bytes = usize::try_from(arrived_bytes).unwrap_or(usize::MAX);
                let read = destination.take_buffer(arrived_bytes);
                if self.atomic.is_some() {
                    let (operand, compare) = source.into_pair();
                    fetched_buffer(operand, compare, read)
                } else {
                    read
                }
            }
            None => source.into_buffer(),
        };
        EndedOperation { context, flags, len_bytes: 0, data: 0, tag: 0, source: None, buffer }
    }
}

impl Receive {
    /// Receives nothing.
    #[inline]
    pub(crate) fn vacant() -> Receive {
        Receive {
            destination: Destination::empty(),
            tagged: false,
            context: 0,
            signalled: Signalled::No,
            role: ReceiveRole::Single,
        }
    }

    /// The completion of a receive that was given `message`, of which `placed_bytes` fitted; also of a peek
    /// that has found it.
    // Inlined for good, and so is its way to the application: each time that a completion is moved
    // costs more than it does to make it.
    #[inline(always)]
    pub(crate) fn complete_with_message(
        &mut self,
        source: PeerId,
        message: &Message,
        placed_bytes: usize,
    ) -> EndedOperation {
        let mut flags = CompletionFlags::of_receive(self.tagged);
        flags.set(CompletionFlags::REMOTE_CQ_DATA, message.data.is_some());
        EndedOperation {
            context: self.context,
            flags,
            len_bytes: placed_bytes,
            data: message.data.unwrap_or(0),
            tag: message.tag.unwrap_or(0),
            source: Some(source),
            buffer: self.destination.take_buffer(placed_bytes),
        }
    }

    /// The failure of a receive that was given nothing, or only the first `placed_bytes` of a message.
    pub(crate) fn into_failure(
        mut self,
        source: Option<PeerId>,
        placed_bytes: usize,
        error: OperationError,
    ) -> FailedOperation {
        FailedOperation {
            completion: EndedOperation {
                context: self.context,
                flags: CompletionFlags::of_receive(self.tagged),
                len_bytes: placed_bytes,
                data: 0,
                tag: 0,
                source,
                buffer: self.destination.take_buffer(placed_bytes),
            },
            error,
            target: None,
        }
    }
}
