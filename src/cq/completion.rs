//! The entries of completion queues as applications read them.

use std::{fmt, mem};

use homespun_engine::address::Address;
use homespun_engine::buffer::Buffer;
use homespun_engine::completion;
use homespun_engine::errno::Errno;
use homespun_engine::error::OperationError;
use homespun_engine::flags::CompletionFlags;

use super::strerror;
use crate::av::FabricAddress;
use crate::mutated;
use crate::tag::Tag;

/// The fields that a completion queue reports of an operation: `enum fi_cq_format`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "SCREAMING_SNAKE_CASE")
)]
pub enum CqFormat {
    /// The operation's context alone.
    Context,
    /// The context, the flags, and the length of a received message, a read, a write or a flush.
    Msg,
    /// All fields of [`Msg`](Self::Msg), remote data, and the place of a message in a multi-receive buffer.
    Data,
    /// All fields of [`Data`](Self::Data), and the tag. This is the default.
    #[default]
    Tagged,
}

/// A successful operation: the entry of a completion queue.
///
/// Fields that the queue's [`CqFormat`] excludes are 0 or empty. The application's [`buffer`](Self::buffer)
/// comes back with every format. Only [`Buffer::Within`], a place in a multi-receive buffer, needs
/// [`CqFormat::Data`] or [`CqFormat::Tagged`].
///
/// ```
/// use homespun::{Completion, CompletionFlags};
///
/// fn describe(completion: Completion) -> String {
///     let data = completion.remote_data();
///     let Completion { context, flags, len_bytes, tag, buffer, .. } = completion;
///     if !flags.contains(CompletionFlags::RECV) {
///         return format!("operation {context} is done");
///     }
///     format!("{len_bytes} bytes, tag {tag}, data {data:?}: {:?}", buffer.into_received())
/// }
/// # assert_eq!(describe(Completion { context: 7, ..Completion::default() }), "operation 7 is done");
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Completion {
    /// The context that the operation was posted with.
    pub context: u64,
    /// The kind of the operation.
    pub flags: CompletionFlags,
    /// For a receive, the length of the message. For a read, a write or a flush, also for a write of a peer,
    /// its length. 0 for sends and atomic operations, and for an access that has failed.
    pub len_bytes: usize,
    /// The remote data, if [`CompletionFlags::REMOTE_CQ_DATA`] is set. See
    /// [`remote_data`](Self::remote_data).
    pub data: u64,
    /// The tag, for a received tagged message.
    pub tag: Tag,
    /// The buffer that the application has passed with the operation, or the place of a message in a
    /// multi-receive buffer.
    pub buffer: Buffer,
}

/// The kind of a completed operation, as [`Completion::kind`] derives it from the flags.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OperationKind {
    /// A send, or an injected message that has failed.
    Send,
    /// A receive, tagged or not.
    Receive,
    /// A write to a peer's memory.
    Write,
    /// A read of a peer's memory.
    Read,
    /// A [flush](crate::Endpoint::flush) of a peer's memory.
    Flush,
    /// An atomic access to a peer's memory that fetches nothing.
    Atomic,
    /// An atomic access to a peer's memory that fetches the previous elements.
    FetchAtomic,
    /// A peer has written to this endpoint's memory, with remote data.
    RemoteWrite,
    /// A peer has read this endpoint's memory. homespun never reports this.
    RemoteRead,
    /// The queue's format has no flags ([`CqFormat::Context`]), or the flags fit no other kind.
    Unknown,
}

/// A failed operation: `struct fi_cq_err_entry`. Also a receive that has succeeded, from a sender that the
/// address vector does not hold: see [`unknown_source`](Self::unknown_source).
///
/// A failure is reported even if a success of the operation would not be. Unknown fields of
/// [`completion`](Self::completion) are 0 or empty.
///
/// The text of the error names the peer, also when `main` returns the error:
///
/// ```
/// # use homespun::transport::LinkError;
/// # use homespun::{Completion, CompletionError, CompletionFlags, Errno, FabricAddress, OperationError};
/// # let flags = CompletionFlags::SEND | CompletionFlags::MSG;
/// # let failed = CompletionError {
/// #     completion: Completion { context: 7, flags, ..Completion::default() },
/// #     error: OperationError::Link(LinkError::System(Errno::ECONNREFUSED)),
/// #     source: FabricAddress::UNSPECIFIED,
/// #     peer: Some(Box::new("127.0.0.1:4711".parse()?)),
/// # };
/// let text = "the send with context 7 failed: the link to 127.0.0.1:4711 ended: Connection refused";
/// assert_eq!(failed.to_string(), text);
/// # Ok::<(), std::net::AddrParseError>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct CompletionError {
    /// The completion of the operation. For a truncated message, `len_bytes` counts the bytes that fitted.
    pub completion: Completion,
    /// Why it failed.
    pub error: OperationError,
    /// The sender of the message, if a receive has failed.
    pub source: FabricAddress,
    /// The peer of the operation, if known: the target of a send or an access, the sender of a received
    /// message, or the only sender from which a receive accepts messages. Boxed to keep an [`Entry`] small.
    ///
    /// [`Entry`]: super::Entry
    pub peer: Option<Box<Address>>,
}

impl Completion {
    /// Returns the data that the peer sent with a message or a write (`FI_REMOTE_CQ_DATA`), or `None` if
    /// the peer sent none. With [`CqFormat::Msg`], which excludes the data, returns `Some(0)` instead of
    /// the data. With [`CqFormat::Context`], returns `None`.
    pub fn remote_data(&self) -> Option<u64> {
        self.flags.contains(CompletionFlags::REMOTE_CQ_DATA).then_some(self.data)
    }

    /// Returns the kind of the operation. The kind distinguishes sends from receives if both report to one
    /// queue.
    ///
    /// ```
    /// use homespun::{Completion, CompletionFlags, OperationKind};
    ///
    /// let flags = CompletionFlags::RECV | CompletionFlags::MSG;
    /// assert_eq!(Completion { flags, ..Completion::default() }.kind(), OperationKind::Receive);
    /// ```
    pub fn kind(&self) -> OperationKind {
        let has = |flag| self.flags.contains(flag);
        if has(CompletionFlags::REMOTE_WRITE) {
            OperationKind::RemoteWrite
        } else if has(CompletionFlags::REMOTE_READ) {
            OperationKind::RemoteRead
        } else if has(CompletionFlags::ATOMIC) {
            if has(CompletionFlags::READ) { OperationKind::FetchAtomic } else { OperationKind::Atomic }
        } else if has(CompletionFlags::RECV) {
            OperationKind::Receive
        } else if has(CompletionFlags::SEND) {
            OperationKind::Send
        } else if has(CompletionFlags::FLUSH) {
            OperationKind::Flush
        } else if has(CompletionFlags::WRITE) {
            OperationKind::Write
        } else if has(CompletionFlags::READ) {
            OperationKind::Read
        } else {
            OperationKind::Unknown
        }
    }
}

impl fmt::Display for OperationKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            OperationKind::Send => "send",
            OperationKind::Receive => "receive",
            OperationKind::Write => "write",
            OperationKind::Read => "read",
            OperationKind::Flush => "flush",
            OperationKind::Atomic => "atomic operation",
            OperationKind::FetchAtomic => "fetching atomic operation",
            OperationKind::RemoteWrite => "write of a peer",
            OperationKind::RemoteRead => "read of a peer",
            OperationKind::Unknown => "operation",
        })
    }
}

impl fmt::Display for CompletionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let CompletionError { completion, error, peer, .. } = self;
        write!(f, "the {} with context {}", completion.kind(), completion.context)?;
        match (peer, error) {
            (Some(peer), OperationError::Link(error)) => {
                write!(f, " failed: the link to {peer} ended: {error}")
            }
            (Some(peer), OperationError::UnknownSource) => {
                write!(f, " has a message from {peer}, which is not in the address vector")
            }
            (Some(peer), _) => {
                let takes = matches!(completion.kind(), OperationKind::Receive | OperationKind::Read);
                let direction = if takes { "from" } else { "to" };
                write!(f, " {direction} {peer} failed: {error}")
            }
            (None, _) => write!(f, " failed: {error}"),
        }
    }
}

/// Begins with the error's text: if `main` returns an error, Rust prints the error's `Debug` form. Leaves
/// out the buffer, which may be long.
impl fmt::Debug for CompletionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompletionError")
            .field("message", &self.to_string())
            .field("error", &self.error)
            .field("peer", &self.peer)
            .field("context", &self.completion.context)
            .field("flags", &self.completion.flags)
            .field("len_bytes", &self.completion.len_bytes)
            .finish_non_exhaustive()
    }
}

/// Has no `source`: the text of the error contains the cause.
impl std::error::Error for CompletionError {}

impl CompletionError {
    /// Returns the positive error number (`err`).
    pub fn errno(&self) -> Errno {
        if mutated!("fi_cq/err-is-general-reason") { Errno::EOTHER } else { self.error.errno() }
    }

    /// Returns how many bytes of the message did not fit (`olen`).
    pub fn overflow_bytes(&self) -> u64 {
        match self.error {
            OperationError::Truncated { overflow_bytes } if !mutated!("fi_cq/olen-field") => overflow_bytes,
            _ => 0,
        }
    }

    /// Returns the sender's address if a receive has succeeded and the address vector does not hold the
    /// sender (`FI_EADDRNOTAVAIL`, `err_data`). Otherwise returns `None`. The application may
    /// [insert](crate::AddressVector::insert) the address.
    pub fn unknown_source(&self) -> Option<Address> {
        match self.error {
            OperationError::UnknownSource if mutated!("fi_cq/eaddrnotavail-address") => None,
            OperationError::UnknownSource if mutated!("fi_cq/eaddrnotavail-insertable") => {
                self.peer.as_deref().map(|peer| peer.with_port(0))
            }
            OperationError::UnknownSource => self.peer.as_deref().copied(),
            _ => None,
        }
    }

    /// Returns homespun's own error number (`prov_errno`), for
    /// [`CompletionQueue::strerror`](super::CompletionQueue::strerror).
    pub fn prov_errno(&self) -> i32 {
        if mutated!("fi_cq/prov-errno-field") { 0 } else { strerror::prov_errno(&self.error) }
    }
}

impl From<completion::EndedOperation> for Completion {
    #[inline(always)]
    fn from(completion: completion::EndedOperation) -> Self {
        let completion::EndedOperation { context, flags, len_bytes, data, tag, buffer, .. } = completion;
        Completion { context, flags, len_bytes, data, tag: Tag(tag), buffer }
    }
}

impl Completion {
    /// Makes an empty completion the completion of `ended`, for a queue of this format.
    // In place, and field by field: a move would read fields that are still in the processor's store buffer.
    #[inline(always)]
    pub(super) fn fill(&mut self, ended: completion::EndedOperation, format: CqFormat) {
        let completion::EndedOperation { context, flags, len_bytes, data, tag, buffer, .. } = ended;
        self.context = match context {
            _ if mutated!("fi_cq/context-of-operation") => 0,
            0 if mutated!("fi_cq/context-null-without-operation") => 1,
            context => context,
        };
        self.flags = if mutated!("fi_cq/flags-field") { CompletionFlags::empty() } else { flags };
        if mutated!("fi_cq/flag-send") {
            self.flags.remove(CompletionFlags::SEND);
        }
        self.len_bytes = len_bytes;
        self.data = data;
        self.tag = Tag(if mutated!("fi_cq/format-tagged") { 0 } else { tag });
        // Most completions of the raw tier have no buffer. Then nothing is written or dropped.
        if matches!(buffer, Buffer::None) {
            mem::forget(buffer);
        } else {
            self.buffer = buffer;
        }
        if format != CqFormat::Tagged {
            let format = if mutated!("fi_cq/read-has-opened-format") { CqFormat::Context } else { format };
            format.clear_excluded_fields(self);
        }
    }
}

impl CqFormat {
    /// Clears the fields that this format excludes.
    pub(super) fn clear_excluded_fields(self, completion: &mut Completion) {
        if self == CqFormat::Tagged {
            return;
        }
        completion.tag = Tag(0);
        if self == CqFormat::Data {
            if mutated!("fi_cq/format-data") {
                completion.data = 0;
            }
            if mutated!("fi_cq/fields-mean-the-same") {
                completion.len_bytes = 0;
            }
            return;
        }
        completion.data = 0;
        if matches!(completion.buffer, Buffer::Within(_)) {
            completion.buffer = Buffer::None;
        }
        if self == CqFormat::Msg && !mutated!("fi_cq/format-msg") {
            return;
        }
        if self == CqFormat::Context && mutated!("fi_cq/format-context") {
            completion.context = 0;
        }
        completion.flags = CompletionFlags::empty();
        completion.len_bytes = 0;
    }
}
