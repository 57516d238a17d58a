//! Completions: what a completion queue tells of an operation.

use std::fmt;

use bitflags::bitflags;
use homespun::{CompletionError, OperationError, OperationKind, Refusal, mutated};

/// What a completion queue tells of an operation: `struct rpma_completion` of `rpma_cq_get_completion(3)`.
///
/// If the [status](Self::status) is not [`Status::Success`], then only the context and the number of the
/// queue pair are valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Completion {
    /// The number that the application has passed with the operation.
    pub op_context: u64,
    /// The kind of the operation.
    pub op: Operation,
    /// The number of bytes that were transferred: the length of the message, or of the access. For a flush,
    /// the length of the range. [`u32::MAX`] for more bytes than that.
    pub byte_len: u32,
    /// Whether the operation has succeeded, or why not.
    pub status: Status,
    /// Whether there is immediate data.
    pub flags: CompletionFlags,
    /// The immediate data of the peer, in the byte order of this host. 0 unless `flags` has
    /// [`CompletionFlags::WITH_IMM`].
    pub imm: u32,
    /// The [number of the queue pair](crate::Connection::qp_number) of the operation's connection. Not part
    /// of `struct rpma_completion`, but of `struct ibv_wc`.
    pub qp_number: u32,
}

/// The kind of an operation: `enum rpma_op`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operation {
    /// A read of a peer's memory.
    Read,
    /// A write to a peer's memory, with or without immediate data, or an atomic write.
    Write,
    /// A flush of writes to a peer's memory.
    Flush,
    /// A message that was sent, with or without immediate data.
    Send,
    /// A message that was received, with or without immediate data.
    Recv,
    /// A receive that a peer's write with immediate data has taken.
    RecvRdmaWithImm,
}

bitflags! {
    /// Flags of a completion: those of `ibv_poll_cq(3)` that this crate reports, with their bits.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub struct CompletionFlags: u32 {
        /// `IBV_WC_WITH_IMM`: the completion of a receive has immediate data.
        const WITH_IMM = 1 << 1;
    }
}

/// Whether an operation has succeeded, or why it has failed: the values of `enum ibv_wc_status` that this
/// crate reports.
///
/// The first operation that fails ends its connection, except for a receive whose region was deregistered.
/// All others that have not ended fail with [`Flushed`](Self::Flushed), or with
/// [`RetryExceeded`](Self::RetryExceeded) if the peer was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Status {
    /// The operation has succeeded (`IBV_WC_SUCCESS`).
    Success,
    /// A message was longer than the memory of its receive (`IBV_WC_LOC_LEN_ERR`).
    LocalLength,
    /// The memory of this side could not be read (`IBV_WC_LOC_PROT_ERR`).
    LocalProtection,
    /// Another operation of the connection has failed first, or the connection has ended, or the region of
    /// the receive was deregistered (`IBV_WC_WR_FLUSH_ERR`).
    Flushed,
    /// The peer's memory does not support the operation: a persistent flush of memory that is not persistent,
    /// or a message that is longer than the memory of its receive (`IBV_WC_REM_INV_REQ_ERR`).
    RemoteInvalidRequest,
    /// The peer has no memory region with this key, or the access exceeds the region or its rights
    /// (`IBV_WC_REM_ACCESS_ERR`).
    RemoteAccess,
    /// The peer could not carry out the operation: its device could not make memory durable
    /// (`IBV_WC_REM_OP_ERR`).
    RemoteOperation,
    /// The peer was lost before it answered (`IBV_WC_RETRY_EXC_ERR`).
    RetryExceeded,
    /// Any other failure (`IBV_WC_GENERAL_ERR`).
    General,
}

/// Whether an operation reports its success: the flags of the operations of librpma. A failure is always
/// reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Report {
    /// Report success and failure: `RPMA_F_COMPLETION_ALWAYS`.
    Always,
    /// Report only a failure: `RPMA_F_COMPLETION_ON_ERROR`. The completion of a later operation of the same
    /// connection tells that this one has succeeded.
    OnError,
}

impl Operation {
    /// Whether the operation is a receive, which a message or a write with immediate data has taken.
    pub(crate) fn is_receive(self) -> bool {
        matches!(self, Operation::Recv | Operation::RecvRdmaWithImm)
    }
}

impl Completion {
    /// Returns the immediate data, if there is any.
    pub fn immediate(&self) -> Option<u32> {
        self.flags.contains(CompletionFlags::WITH_IMM).then_some(self.imm)
    }

    /// Returns the completion of an operation that has succeeded. `sent_bytes` is called for a send, and
    /// returns the length of its message.
    pub(crate) fn from_success(
        native: &homespun::Completion,
        qp_number: u32,
        sent_bytes: impl FnOnce() -> u32,
    ) -> Completion {
        let len_bytes = u32::try_from(native.len_bytes).unwrap_or(u32::MAX);
        let (op, byte_len) = match native.kind() {
            OperationKind::Read if mutated!("rpma_cq_get_completion/op-read") => {
                (Operation::Write, len_bytes)
            }
            OperationKind::Read => (Operation::Read, len_bytes),
            OperationKind::Atomic if mutated!("rpma_cq_get_completion/op-is-type") => {
                (Operation::Read, ATOMIC_WRITE_BYTES)
            }
            OperationKind::Atomic | OperationKind::FetchAtomic => (Operation::Write, ATOMIC_WRITE_BYTES),
            OperationKind::Flush if mutated!("rpma_cq_get_completion/op-flush") => {
                (Operation::Write, len_bytes)
            }
            OperationKind::Flush => (Operation::Flush, len_bytes),
            OperationKind::Send if mutated!("rpma_cq_get_completion/op-send") => {
                (Operation::Write, sent_bytes())
            }
            OperationKind::Send if mutated!("rpma_cq_get_completion/byte-len-of-message") => {
                (Operation::Send, sent_bytes().saturating_add(1))
            }
            OperationKind::Send => (Operation::Send, sent_bytes()),
            OperationKind::Receive if mutated!("rpma_cq_get_completion/op-recv") => {
                (Operation::RecvRdmaWithImm, len_bytes)
            }
            OperationKind::Receive => (Operation::Recv, len_bytes),
            OperationKind::RemoteWrite if mutated!("rpma_cq_get_completion/op-recv-with-imm") => {
                (Operation::Recv, len_bytes)
            }
            OperationKind::RemoteWrite if mutated!("rpma_cq_get_completion/byte-len-of-taken-receive") => {
                (Operation::RecvRdmaWithImm, 0)
            }
            OperationKind::RemoteWrite => (Operation::RecvRdmaWithImm, len_bytes),
            _ if mutated!("rpma_cq_get_completion/op-write") => (Operation::Read, len_bytes),
            _ if mutated!("rpma_cq_get_completion/byte-len-of-access") => (Operation::Write, 0),
            _ => (Operation::Write, len_bytes),
        };
        let mut flags = CompletionFlags::empty();
        // Immediate data has 32 bits. The upper ones are 0, unless the peer uses the native interface.
        let imm = native.remote_data().filter(|_| op.is_receive()).map(|data| data as u32);
        flags.set(
            CompletionFlags::WITH_IMM,
            imm.is_some() && !mutated!("rpma_cq_get_completion/flags-of-verbs"),
        );
        let imm =
            if mutated!("rpma_cq_get_completion/imm-in-host-order") { imm.map(u32::swap_bytes) } else { imm };
        let qp_number = if mutated!("rpma_cq_get_wc/queue-pair-number") { 0 } else { qp_number };
        let (op_context, status) = (native.context, Status::Success);
        Completion { op_context, op, byte_len, status, flags, imm: imm.unwrap_or(0), qp_number }
    }

    /// Returns the completion of an operation that has failed.
    pub(crate) fn from_failure(failed: &CompletionError, qp_number: u32) -> Completion {
        let native = &failed.completion;
        let success = Completion::from_success(native, qp_number, || 0);
        let status = Status::from_failure(&failed.error, success.op);
        Completion { status, byte_len: 0, flags: CompletionFlags::empty(), imm: 0, ..success }
    }
}

/// The length of an atomic write.
pub(crate) const ATOMIC_WRITE_BYTES: u32 = 8;

impl Status {
    /// Returns the number of `enum ibv_wc_status`.
    pub fn ibv_wc_status(self) -> u32 {
        match self {
            Status::RemoteAccess if mutated!("rpma_cq_get_completion/status-of-verbs") => 9,
            Status::Success => 0,
            Status::LocalLength => 1,
            Status::LocalProtection => 4,
            Status::Flushed => 5,
            Status::RemoteInvalidRequest => 9,
            Status::RemoteAccess => 10,
            Status::RemoteOperation => 11,
            Status::RetryExceeded => 12,
            Status::General => 21,
        }
    }

    fn from_failure(error: &OperationError, op: Operation) -> Status {
        match error {
            OperationError::PeerReceive if op == Operation::Send => Status::RemoteInvalidRequest,
            OperationError::PeerReceive => Status::Flushed,
            OperationError::Truncated { .. } => Status::LocalLength,
            OperationError::Fault => Status::LocalProtection,
            OperationError::Flushed | OperationError::Cancelled => Status::Flushed,
            OperationError::Refused(Refusal::Volatile) => Status::RemoteInvalidRequest,
            OperationError::Refused(_) => Status::RemoteAccess,
            OperationError::NotDurable => Status::RemoteOperation,
            // A receive does not await the peer's answer: it ends with its connection.
            OperationError::Link(_) if op.is_receive() => Status::Flushed,
            OperationError::Link(_) => Status::RetryExceeded,
            _ => Status::General,
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Status::Success => "success",
            Status::LocalLength => "the message was longer than the memory of the receive",
            Status::LocalProtection => "the local memory could not be read",
            Status::Flushed => {
                "flushed: another operation failed first, or the connection or the memory region ended"
            }
            Status::RemoteInvalidRequest => "the peer's memory does not support the operation",
            Status::RemoteAccess => "the peer refused the access",
            Status::RemoteOperation => "the peer could not carry out the operation",
            Status::RetryExceeded => "the peer was lost before it answered",
            Status::General => "the operation failed",
        })
    }
}

#[cfg(test)]
mod tests {
    use homespun::transport::LinkError;
    use homespun::{CompletionFlags as Native, FabricAddress};

    use super::*;

    fn native(flags: Native, len_bytes: usize, data: u64) -> homespun::Completion {
        homespun::Completion { context: 7, flags, len_bytes, data, ..homespun::Completion::default() }
    }

    /// Shows rpma_cq_get_completion/operations, rpma_cq_get_completion/fields,
    /// rpma_cq_get_completion/op-is-type.
    #[test]
    fn success_has_its_operation_and_length() {
        let of = |flags| {
            let Completion { op, byte_len, status, .. } =
                Completion::from_success(&native(flags, 40, 0), 3, || 50);
            assert_eq!(status, Status::Success);
            (op, byte_len)
        };
        assert_eq!(of(Native::RMA | Native::READ), (Operation::Read, 40));
        assert_eq!(of(Native::RMA | Native::WRITE), (Operation::Write, 40));
        assert_eq!(of(Native::OF_FLUSH), (Operation::Flush, 40));
        assert_eq!(of(Native::ATOMIC | Native::WRITE), (Operation::Write, 8));
        assert_eq!(of(Native::MSG | Native::SEND), (Operation::Send, 50));
        assert_eq!(of(Native::MSG | Native::RECV), (Operation::Recv, 40));
        let remote_write = Native::RMA | Native::REMOTE_WRITE | Native::REMOTE_CQ_DATA;
        assert_eq!(of(remote_write), (Operation::RecvRdmaWithImm, 40));
        let long = native(Native::RMA | Native::READ, 1 << 33, 0);
        assert_eq!(Completion::from_success(&long, 3, || 0).byte_len, u32::MAX);
    }

    /// Shows rpma_cq_get_completion/imm-in-host-order.
    #[test]
    fn immediate_data_of_a_receive_keeps_its_value() {
        let flags = Native::MSG | Native::RECV | Native::REMOTE_CQ_DATA;
        let received = Completion::from_success(&native(flags, 0, 0x1234_5678), 3, || 0);
        assert_eq!((received.immediate(), received.imm), (Some(0x1234_5678), 0x1234_5678));
        let received = Completion::from_success(&native(Native::MSG | Native::RECV, 0, 9), 3, || 0);
        assert_eq!((received.immediate(), received.imm), (None, 0));
    }

    /// Shows rpma_cq_get_completion/status-of-verbs, rpma_cq_get_completion/failed-status-leaves-context.
    #[test]
    fn failures_have_the_status_of_verbs() {
        let status = |flags, error| {
            let completion = native(flags, 3, 3);
            let source = FabricAddress::UNSPECIFIED;
            let failed = CompletionError { completion, error, source, peer: None };
            let failed = Completion::from_failure(&failed, 9);
            assert_eq!((failed.op_context, failed.qp_number), (7, 9));
            failed.status
        };
        let (send, receive) = (Native::MSG | Native::SEND, Native::MSG | Native::RECV);
        let truncated = OperationError::Truncated { overflow_bytes: 1 };
        assert_eq!(status(receive, truncated), Status::LocalLength);
        assert_eq!(status(send, OperationError::Fault), Status::LocalProtection);
        assert_eq!(status(send, OperationError::Flushed), Status::Flushed);
        assert_eq!(status(send, OperationError::Cancelled), Status::Flushed);
        for refusal in [Refusal::Key, Refusal::Range, Refusal::Access] {
            assert_eq!(status(send, OperationError::Refused(refusal)), Status::RemoteAccess);
        }
        let volatile = OperationError::Refused(Refusal::Volatile);
        assert_eq!(status(send, volatile), Status::RemoteInvalidRequest);
        assert_eq!(status(send, OperationError::NotDurable), Status::RemoteOperation);
        let lost = || OperationError::Link(LinkError::Closed);
        assert_eq!(status(send, lost()), Status::RetryExceeded);
        assert_eq!(status(receive, lost()), Status::Flushed);
        assert_eq!(status(send, OperationError::PeerReceive), Status::RemoteInvalidRequest);
        assert_eq!(status(Native::RMA | Native::WRITE, OperationError::PeerReceive), Status::Flushed);
        assert_eq!(status(send, OperationError::NoMessage), Status::General);
    }

    /// Shows rpma_cq_get_completion/status-of-verbs, rpma_cq_get_completion/flags-of-verbs.
    #[test]
    fn statuses_have_the_numbers_of_verbs() {
        let numbers = [
            (Status::Success, 0),
            (Status::LocalLength, 1),
            (Status::LocalProtection, 4),
            (Status::Flushed, 5),
            (Status::RemoteInvalidRequest, 9),
            (Status::RemoteAccess, 10),
            (Status::RemoteOperation, 11),
            (Status::RetryExceeded, 12),
            (Status::General, 21),
        ];
        for (status, number) in numbers {
            assert_eq!(status.ibv_wc_status(), number, "{status}");
        }
        assert_eq!(CompletionFlags::WITH_IMM.bits(), 2);
    }
}
