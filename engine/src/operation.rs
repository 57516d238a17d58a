//! Operations: the application's requests, and the engine's state of each operation until it ends.

mod id;
mod level;
mod transmit;

use std::mem;

pub(crate) use self::id::{FetchId, PeerWriteId, ReceiveId, SendId, UnexpectedId};
pub use self::level::{FlushKind, Level, Signalled};
pub use self::transmit::{TransmitOp, TransmitOptions, TransmitRequest};
use crate::atomic::{AtomicKind, AtomicOp, Datatype};
use crate::buffer::{Buffer, Destination, Fetched, Source};
use crate::completion::{EndedOperation, FailedOperation, Received};
use crate::error::{BadMemory, Misuse, OperationError};
use crate::flags::{CompletionFlags, CounterEvents};
use crate::initiator::Turn;
use crate::link::BegunAccess;
use crate::matching::Criteria;
use crate::mutated;
use crate::peer_id::PeerId;
use crate::reassembly::clamp_to_usize;
use crate::remote_memory::RemoteMemory;
use crate::wire::{AtomicForm, Durable, Message};

/// The key by which an operation to cancel is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CancelKey {
    /// The context of an operation of the application.
    Context(u64),
    /// The number of deferred work. An operation of the application may have a context of the same
    /// value.
    Work(u64),
}

impl CancelKey {
    /// Whether the key names an operation with this context and this kind of report.
    pub(crate) fn matches_operation(self, context: u64, signalled: Signalled) -> bool {
        match self {
            CancelKey::Context(key) => context == key && signalled != Signalled::Deferred,
            CancelKey::Work(key) => context == key && signalled == Signalled::Deferred,
        }
    }
}

/// The initiator's memory of an access to a region.
#[derive(Debug)]
pub enum RmaLocal {
    /// The memory for the data that is read.
    Read(Destination),
    /// The data to write.
    Write {
        /// The bytes.
        source: Source,
        /// Remote data for a completion at the target.
        data: Option<u64>,
    },
}

impl RmaLocal {
    /// Returns the length of the access.
    #[inline]
    pub fn len_bytes(&self) -> usize {
        match self {
            RmaLocal::Read(destination) => destination.len_bytes(),
            RmaLocal::Write { source, .. } => source.len_bytes(),
        }
    }

    /// Removes and returns the memory. Leaves an empty write in its place.
    pub fn take(&mut self) -> RmaLocal {
        mem::replace(self, RmaLocal::Write { source: Source::default(), data: None })
    }

    /// Takes the application's memory out of an access that has ended. Returns the memory for the
    /// completion.
    #[inline]
    pub fn take_buffer(&mut self) -> Buffer {
        match self {
            RmaLocal::Read(destination) => destination.take_buffer(destination.len_bytes()),
            RmaLocal::Write { source, .. } => source.take_buffer(),
        }
    }

    /// Returns the flags of the access's completion.
    #[inline]
    pub fn completion_flags(&self) -> CompletionFlags {
        CompletionFlags::of_access(false, matches!(self, RmaLocal::Read(_)))
    }

    /// Returns the application's memory, to hand it back.
    pub fn into_buffer(self) -> Buffer {
        match self {
            RmaLocal::Read(destination) => destination.into_buffer(),
            RmaLocal::Write { source, .. } => source.into_buffer(),
        }
    }
}

/// The initiator's memory of an atomic operation. Each buffer has room for all elements.
#[derive(Debug)]
pub enum AtomicLocal {
    /// No elements come back.
    Base {
        /// The operands.
        operand: Source,
    },
    /// The previous elements come back.
    Fetch {
        /// The operands. [`AtomicOp::Read`] ignores them.
        operand: Source,
        /// The memory for the previous elements.
        result: Destination,
    },
    /// The target compares each element with a value of the initiator, and returns the old
    /// elements.
    Compare {
        /// The operands.
        operand: Source,
        /// The values that the elements are compared with.
        compare: Source,
        /// The memory for the previous elements.
        result: Destination,
    },
}

impl AtomicLocal {
    /// Returns the set of calls that this memory is for.
    pub fn kind(&self) -> AtomicKind {
        match self {
            AtomicLocal::Base { .. } => AtomicKind::Base,
            AtomicLocal::Fetch { .. } => AtomicKind::Fetch,
            AtomicLocal::Compare { .. } => AtomicKind::Compare,
        }
    }

    /// Removes and returns the memory. Leaves an operation without elements behind.
    pub fn take(&mut self) -> AtomicLocal {
        mem::replace(self, AtomicLocal::Base { operand: Source::default() })
    }

    /// Returns the length of the longest buffer that the operation reads, in bytes.
    pub fn longest_source_bytes(&self) -> usize {
        match self {
            AtomicLocal::Base { operand } | AtomicLocal::Fetch { operand, .. } => operand.len_bytes(),
            AtomicLocal::Compare { operand, compare, .. } => operand.len_bytes().max(compare.len_bytes()),
        }
    }

    /// Checks the operation, and returns its form.
    ///
    /// # Errors
    ///
    /// [`Misuse::NoAtomic`] for an unsupported operation; [`Misuse::TooLong`] for too many
    /// elements; [`Misuse::Memory`] for a part of an element, or for buffers of different lengths.
    pub(crate) fn checked_form(&self, op: AtomicOp, datatype: Datatype) -> Result<AtomicForm, Misuse> {
        let kind = self.kind();
        let refusal = match mutated!("fi_atomic/unsupported-atomic-eopnotsupp") {
            true => Misuse::Memory(BadMemory::PartialElement),
            false => Misuse::NoAtomic { kind, op, datatype },
        };
        let count_max = kind.count_max(op, datatype).ok_or(refusal)?;
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

    /// Returns the application's memory for the completion. For a fetching operation, this is
    /// [`Buffer::Fetched`], or [`Buffer::None`] if all memory was posted through the raw tier.
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

/// Returns the memory of a fetching operation for the completion: [`Buffer::None`] if all memory
/// was posted through the raw tier.
fn fetched_buffer(operand: Source, compare: Option<Source>, result: Buffer) -> Buffer {
    let compare = compare.map_or(Buffer::None, Source::into_buffer);
    let fetched = Fetched { result, operand: operand.into_buffer(), compare };
    if fetched == Fetched::default() { Buffer::None } else { Buffer::Fetched(Box::new(fetched)) }
}

/// The request for a receive: `fi_msg(3)`, `fi_tagged(3)`.
#[derive(Debug)]
pub struct ReceiveRequest {
    /// The memory for the message.
    pub destination: Destination,
    /// Whether the receive takes tagged messages. Otherwise it takes untagged messages.
    pub tagged: bool,
    /// The messages that the receive accepts. For untagged messages only the source counts.
    pub criteria: Criteria,
    /// The completion hands this back.
    pub context: u64,
    /// Whether and how success is reported. Failure is always reported.
    pub signalled: Signalled,
}

/// The request for a peek at the unexpected messages: `FI_PEEK`, `fi_tagged(3)`.
#[derive(Debug)]
pub struct PeekRequest {
    /// Whether the peek looks for a tagged message.
    pub tagged: bool,
    /// The messages that the peek looks for. For untagged messages only the source counts.
    pub criteria: Criteria,
    /// The context, which the completion hands back. If the peek claims a message, the context also
    /// names the message.
    pub context: u64,
    /// The number of the deferred work, if the peek is deferred work. The peek's result then goes
    /// to [`Sink::record_deferred_work_end`](crate::completion::Sink::record_deferred_work_end).
    pub work: Option<u64>,
    /// What happens to the message.
    pub then: PeekAction,
}

/// What happens to the message that a peek finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PeekAction {
    /// The message stays where it is.
    Keep,
    /// The message is claimed for the caller, and no other receive takes it (`FI_CLAIM`).
    Claim,
    /// The message is discarded (`FI_DISCARD`).
    Discard,
}

/// A send that has not ended.
#[derive(Debug)]
pub(crate) struct Send {
    pub(crate) source: Source,
    pub(crate) message: Message,
    pub(crate) context: u64,
    pub(crate) signalled: Signalled,
    /// Whether the peer may fetch the payload from the source, long after the post.
    pub(crate) may_be_fetched: bool,
    /// Whether the send waits for all earlier sends to its peer.
    pub(crate) fence: bool,
    /// The turn in which the send is reported, if completions keep an order.
    pub(crate) turn: Option<Turn>,
    /// The access, if this is an access and not a message. For an access, `message` holds the
    /// length and the remote data.
    pub(crate) one_sided: Option<Box<OneSided>>,
}

/// An access to a region of a peer that has not ended.
#[derive(Debug)]
pub(crate) struct OneSided {
    pub(crate) key: u64,
    pub(crate) address: u64,
    pub(crate) kind: AccessKind,
    /// How the access began on its link.
    pub(crate) begun: BegunAccess,
}

/// What an access does at its target.
#[derive(Debug)]
pub(crate) enum AccessKind {
    /// Reads the region into this memory.
    Read(IncomingData),
    /// Writes the send's source to the region.
    Write {
        /// Which writes must be durable before the target answers.
        durable: Durable,
    },
    /// Changes elements of the region. The operands and comparands are in the send's source.
    Atomic {
        form: AtomicForm,
        /// The memory for the previous elements, if the target returns them.
        fetched: Option<IncomingData>,
    },
    /// Makes earlier writes visible or durable. A flush has neither data nor memory on this side.
    Flush(FlushKind),
}

/// The memory for data that the target returns.
#[derive(Debug)]
pub(crate) struct IncomingData {
    pub(crate) destination: Destination,
    /// How many bytes have arrived.
    pub(crate) arrived_bytes: u64,
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

/// The relation of a receive to a multi-receive buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReceiveRole {
    /// None: the receive is an ordinary one.
    Single,
    /// The receive is a multi-receive buffer. Its destination is the unused room of the buffer.
    Buffer,
    /// The receive stands for one message in a multi-receive buffer. Its destination is the
    /// message's place in the buffer. The buffer decides whether the message is reported, so
    /// [`signalled`](Receive::signalled) is [`Signalled::No`] here.
    Part,
    /// The receive has a turn in completion order. Without the turn it would be a single receive or
    /// a part of a buffer. The turn keeps that role, and whether the receive is signalled.
    InTurn,
}

impl Send {
    /// Returns how many bytes an atomic operation fetches; 0 for any other send.
    pub(crate) fn atomic_fetch_len_bytes(&self) -> usize {
        match self.access_kind() {
            Some(AccessKind::Atomic { form, fetched: Some(_) }) => form.len_bytes(),
            _ => 0,
        }
    }

    /// Returns the kind of the access; `None` for a message.
    #[inline(always)]
    pub(crate) fn access_kind(&self) -> Option<&AccessKind> {
        self.one_sided.as_ref().map(|one_sided| &one_sided.kind)
    }

    /// Returns the counter event of the send's end.
    #[cold]
    pub(crate) fn counter_event(&self) -> CounterEvents {
        self.one_sided.as_ref().map_or(CounterEvents::SEND, |one_sided| {
            CounterEvents::of_completion(one_sided.kind.completion_flags())
        })
    }

    /// Returns the completion of a send or an access that has succeeded.
    pub(crate) fn into_completion(self) -> EndedOperation {
        if let Some(one_sided) = self.one_sided {
            return one_sided.kind.into_completion(self.context, self.source, self.message.len_bytes);
        }
        EndedOperation::of_send(self.context, self.message.tag.is_some(), self.source.into_buffer())
    }
}

impl OneSided {
    /// Returns the state of a read or a write, together with its source and its remote data.
    #[inline(always)]
    pub(crate) fn of_rma(
        local: RmaLocal,
        memory: RemoteMemory,
        level: Level,
        fence: bool,
    ) -> (Source, Option<u64>, OneSided) {
        let (source, data, kind) = match local {
            RmaLocal::Write { source, data } => {
                let durable = match level {
                    Level::Commit if fence => Durable::Everything,
                    Level::Commit if mutated!("fi_cq/persistent-memory") => Durable::Nothing,
                    Level::Commit => Durable::Written,
                    _ => Durable::Nothing,
                };
                (source, data, AccessKind::Write { durable })
            }
            RmaLocal::Read(destination) => {
                (Source::default(), None, AccessKind::Read(IncomingData::new(destination)))
            }
        };
        (source, data, OneSided::new(memory, kind))
    }

    /// Returns the state of an atomic operation, together with one source that has the operands and
    /// comparands.
    #[inline(always)]
    pub(crate) fn of_atomic(
        local: AtomicLocal,
        memory: RemoteMemory,
        form: AtomicForm,
    ) -> (Source, OneSided) {
        let (source, result) = match local {
            AtomicLocal::Base { operand } => (operand, None),
            AtomicLocal::Fetch { operand, result } => (operand, Some(result)),
            AtomicLocal::Compare { operand, compare, result } => {
                (Source::pair(operand, compare), Some(result))
            }
        };
        let kind = AccessKind::Atomic { form, fetched: result.map(IncomingData::new) };
        (source, OneSided::new(memory, kind))
    }

    /// Returns the state of a flush.
    pub(crate) fn of_flush(memory: RemoteMemory, kind: FlushKind) -> OneSided {
        OneSided::new(memory, AccessKind::Flush(kind))
    }

    #[inline(always)]
    fn new(memory: RemoteMemory, kind: AccessKind) -> OneSided {
        let RemoteMemory { key, address } = memory;
        OneSided { key, address, kind, begun: BegunAccess::default() }
    }
}

impl AccessKind {
    /// Returns the memory for the data that the target returns, if it returns any.
    pub(crate) fn incoming_data(&self) -> Option<&IncomingData> {
        match self {
            AccessKind::Read(incoming) | AccessKind::Atomic { fetched: Some(incoming), .. } => Some(incoming),
            AccessKind::Write { .. } | AccessKind::Atomic { fetched: None, .. } | AccessKind::Flush(_) => {
                None
            }
        }
    }

    /// As [`incoming_data`](Self::incoming_data), but mutable.
    pub(crate) fn incoming_data_mut(&mut self) -> Option<&mut IncomingData> {
        match self {
            AccessKind::Read(incoming) | AccessKind::Atomic { fetched: Some(incoming), .. } => Some(incoming),
            AccessKind::Write { .. } | AccessKind::Atomic { fetched: None, .. } | AccessKind::Flush(_) => {
                None
            }
        }
    }

    /// Whether the access is an atomic operation.
    pub(crate) fn is_atomic(&self) -> bool {
        matches!(self, AccessKind::Atomic { .. })
    }

    /// Returns which writes must be durable before the target answers.
    #[inline(always)]
    pub(crate) fn durable(&self) -> Durable {
        match self {
            AccessKind::Write { durable } => *durable,
            AccessKind::Flush(FlushKind::Persistent) => Durable::Written,
            AccessKind::Flush(FlushKind::Visibility) | AccessKind::Read(_) | AccessKind::Atomic { .. } => {
                Durable::Nothing
            }
        }
    }

    fn completion_flags(&self) -> CompletionFlags {
        match self {
            AccessKind::Read(_) => CompletionFlags::of_access(false, true),
            AccessKind::Write { .. } => CompletionFlags::of_access(false, false),
            AccessKind::Atomic { fetched, .. } => CompletionFlags::of_access(true, fetched.is_some()),
            AccessKind::Flush(_) => CompletionFlags::OF_FLUSH,
        }
    }

    /// Returns the completion of an access of `len_bytes` with this source.
    fn into_completion(self, context: u64, source: Source, len_bytes: u64) -> EndedOperation {
        let mut flags = self.completion_flags();
        if mutated!("fi_cq/flag-rma") {
            flags.remove(CompletionFlags::RMA);
        }
        if mutated!("fi_cq/flag-atomic") {
            flags.remove(CompletionFlags::ATOMIC);
        }
        if mutated!("fi_cq/flag-read-write") {
            flags.toggle(CompletionFlags::READ | CompletionFlags::WRITE);
        }
        let is_lost = mutated!("fi_cq/context-is-always-there") && self.is_atomic();
        let context = if is_lost { 0 } else { context };
        let (buffer, len_bytes) = match self {
            AccessKind::Read(incoming) => (incoming.into_buffer(), len_bytes),
            AccessKind::Write { .. } => (source.into_buffer(), len_bytes),
            AccessKind::Atomic { fetched: Some(incoming), .. } => {
                let (operand, compare) = source.into_pair();
                (fetched_buffer(operand, compare, incoming.into_buffer()), 0)
            }
            AccessKind::Atomic { fetched: None, .. } => (source.into_buffer(), 0),
            AccessKind::Flush(_) => return EndedOperation::of_flush(context, len_bytes),
        };
        let has_lost_context = match flags.contains(CompletionFlags::ATOMIC) {
            true => mutated!("fi_atomic/atomic-context-comes-back"),
            false => mutated!("fi_rma/rma-context-comes-back"),
        };
        let context = if has_lost_context { 0 } else { context };
        let completion = EndedOperation::of_transmit(context, flags, buffer);
        EndedOperation { len_bytes: clamp_to_usize(len_bytes), ..completion }
    }
}

impl IncomingData {
    /// Returns the memory for data of which nothing has arrived.
    #[inline(always)]
    pub(crate) fn new(destination: Destination) -> IncomingData {
        IncomingData { destination, arrived_bytes: 0 }
    }

    /// Returns the memory for the completion. All requested bytes have arrived, unless the access has failed.
    fn into_buffer(mut self) -> Buffer {
        self.destination.take_buffer(clamp_to_usize(self.arrived_bytes))
    }
}

impl Receive {
    /// A receive without room, for a peek.
    pub(crate) const VACANT: Receive = Receive {
        destination: Destination::empty(),
        tagged: false,
        context: 0,
        signalled: Signalled::No,
        role: ReceiveRole::Single,
    };

    /// Returns the completion of a receive that took `message`, or of a peek that found `message`.
    /// The first `placed_bytes` of the message are in the destination.
    pub(crate) fn take_completion(
        &mut self,
        source: PeerId,
        message: &Message,
        placed_bytes: usize,
    ) -> EndedOperation {
        let buffer = self.destination.take_buffer(placed_bytes);
        EndedOperation { buffer, ..self.without_buffer(source, message, placed_bytes).into() }
    }

    /// As [`take_completion`](Self::take_completion), for a destination that gives no buffer.
    // Inlined, like all functions that pass completions on: to move a completion costs more than to make it.
    #[inline(always)]
    pub(crate) fn without_buffer(&self, source: PeerId, message: &Message, placed_bytes: usize) -> Received {
        let mut flags = CompletionFlags::of_receive(self.tagged);
        flags.set(
            CompletionFlags::REMOTE_CQ_DATA,
            message.data.is_some() && !mutated!("fi_cq/flag-remote-data"),
        );
        if mutated!("fi_cq/flag-recv") {
            flags.remove(CompletionFlags::RECV);
        }
        if mutated!("fi_cq/flag-tagged") {
            flags.remove(CompletionFlags::TAGGED);
        }
        let (is_cut, has_lost_data) = match self.tagged {
            true => {
                (mutated!("fi_tagged/tagged-message-boundaries"), mutated!("fi_tagged/tagged-remote-data"))
            }
            false => (mutated!("fi_msg/message-boundaries"), mutated!("fi_msg/remote-data-arrives")),
        };
        let (data, tag) = (message.data.unwrap_or(0), message.tag.unwrap_or(0));
        Received {
            context: if mutated!("fi_msg/context-comes-back") { 0 } else { self.context },
            flags,
            len_bytes: match placed_bytes {
                _ if mutated!("fi_cq/len-field") => 0,
                len_bytes => len_bytes - usize::from(is_cut && len_bytes > 0),
            },
            data: match data {
                _ if has_lost_data || mutated!("fi_cq/data-field") => 0,
                data if mutated!("fi_cq/data-host-order") => data.swap_bytes(),
                data => data,
            },
            tag: match tag {
                _ if mutated!("fi_cq/tag-field") => 0,
                tag if mutated!("fi_cq/tag-host-order") => tag.swap_bytes(),
                tag => tag,
            },
            source,
        }
    }

    /// Returns the failure of a receive that got nothing, or only the first `placed_bytes` of a
    /// message.
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
