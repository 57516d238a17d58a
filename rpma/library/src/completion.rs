//! Completions, in the forms of librpma 1 and of librpma 0.10.

use std::mem::offset_of;
use std::ptr;

use homespun_rpma::{Completion, CompletionQueue, Operation, Status};
use libc::{c_int, c_uint, c_void};

use crate::edge::Failure;
use crate::handle::OutParam;
use crate::ibv::{IbvWc, opcode};

/// `struct rpma_completion` of librpma 0.9.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct EarlyCompletion {
    op_context: *mut c_void,
    op: c_int,
    byte_len: u32,
    op_status: c_uint,
}

/// `struct rpma_completion` of librpma 0.10.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct LegacyCompletion {
    op_context: *mut c_void,
    op: c_int,
    byte_len: u32,
    op_status: c_uint,
    flags: c_uint,
    /// In host byte order.
    imm: u32,
}

const _: () = {
    assert!(size_of::<EarlyCompletion>() == 24 && offset_of!(EarlyCompletion, op_status) == 16);
    assert!(size_of::<LegacyCompletion>() == 32);
    assert!(offset_of!(LegacyCompletion, op) == 8);
    assert!(offset_of!(LegacyCompletion, byte_len) == 12);
    assert!(offset_of!(LegacyCompletion, op_status) == 16);
    assert!(offset_of!(LegacyCompletion, flags) == 20);
    assert!(offset_of!(LegacyCompletion, imm) == 24);
};

/// Reads a completion in the form of librpma 0.9 or 0.10.
///
/// # Errors
///
/// [`Error::NoCompletion`](homespun_rpma::Error::NoCompletion).
pub(crate) fn read_legacy<T>(queue: &CompletionQueue, place: OutParam<T>) -> Result<(), Failure>
where
    T: Copy + for<'a> From<&'a Completion>,
{
    let completion = queue.next()?;
    log_failure(&completion);
    place.write(T::from(&completion));
    Ok(())
}

/// Logs a completion that says that its operation has failed.
pub(crate) fn log_failure(completion: &Completion) {
    let (qp_number, op_context) = (completion.qp_number, completion.op_context);
    match completion.status {
        Status::Success => {}
        // Each connection ends with some of these.
        status @ Status::Flushed => {
            tracing::debug!("connection {qp_number}: operation {op_context:#x}: {status}");
        }
        status => tracing::warn!("connection {qp_number}: operation {op_context:#x} failed: {status}"),
    }
}

impl From<&Completion> for EarlyCompletion {
    fn from(completion: &Completion) -> EarlyCompletion {
        let LegacyCompletion { op_context, op, byte_len, op_status, .. } = completion.into();
        EarlyCompletion { op_context, op, byte_len, op_status }
    }
}

impl From<&Completion> for IbvWc {
    fn from(completion: &Completion) -> IbvWc {
        let named = IbvWc {
            wr_id: completion.op_context,
            status: completion.status.ibv_wc_status(),
            qp_num: completion.qp_number,
            ..IbvWc::default()
        };
        if completion.status != Status::Success {
            return named;
        }
        let opcode = match completion.op {
            // librpma carries out a flush by a read.
            Operation::Read | Operation::Flush => opcode::RDMA_READ,
            Operation::Write => opcode::RDMA_WRITE,
            Operation::Send => opcode::SEND,
            Operation::Recv => opcode::RECV,
            Operation::RecvRdmaWithImm => opcode::RECV_RDMA_WITH_IMM,
        };
        IbvWc {
            opcode,
            byte_len: completion.byte_len,
            imm_data: completion.imm.to_be(),
            wc_flags: completion.flags.bits(),
            ..named
        }
    }
}

impl From<&Completion> for LegacyCompletion {
    fn from(completion: &Completion) -> LegacyCompletion {
        let op = match completion.op {
            // librpma 0.10 reports flushes as the reads by which it carries them out.
            Operation::Read | Operation::Flush => 0,
            Operation::Write => 1,
            Operation::Send => 3,
            Operation::Recv => 4,
            Operation::RecvRdmaWithImm => 5,
        };
        LegacyCompletion {
            // The number is the pointer that the application has passed, and only it may use it.
            op_context: ptr::without_provenance_mut(completion.op_context as usize),
            op,
            byte_len: completion.byte_len,
            op_status: completion.status.ibv_wc_status(),
            flags: completion.flags.bits(),
            imm: completion.imm,
        }
    }
}

#[cfg(test)]
mod tests {
    use homespun_rpma::CompletionFlags;

    use super::*;

    fn completion(op: Operation, status: Status) -> Completion {
        let flags = CompletionFlags::WITH_IMM;
        Completion { op_context: 7, op, byte_len: 40, status, flags, imm: 0x0102_0304, qp_number: 9 }
    }

    #[test]
    fn immediate_data_has_the_byte_order_of_its_structure() {
        let received = completion(Operation::Recv, Status::Success);
        let wc = IbvWc::from(&received);
        assert_eq!(u32::from_be(wc.imm_data), 0x0102_0304);
        assert_eq!(
            (wc.wr_id, wc.status, wc.opcode, wc.byte_len, wc.qp_num, wc.wc_flags),
            (7, 0, 128, 40, 9, 2)
        );
        let legacy = LegacyCompletion::from(&received);
        assert_eq!((legacy.op_context.addr(), legacy.op, legacy.imm), (7, 4, 0x0102_0304));
    }

    #[test]
    fn flush_is_reported_as_a_read() {
        let flushed = completion(Operation::Flush, Status::Success);
        assert_eq!(IbvWc::from(&flushed).opcode, 2);
        assert_eq!(LegacyCompletion::from(&flushed).op, 0);
    }

    #[test]
    fn failure_has_context_status_and_number_alone() {
        let wc = IbvWc::from(&completion(Operation::Recv, Status::Flushed));
        assert_eq!((wc.wr_id, wc.status, wc.qp_num), (7, 5, 9));
        assert_eq!((wc.opcode, wc.byte_len, wc.imm_data, wc.wc_flags), (0, 0, 0, 0));
        let failed = completion(Operation::Write, Status::RemoteAccess);
        let (legacy, early) = (LegacyCompletion::from(&failed), EarlyCompletion::from(&failed));
        assert_eq!((legacy.op_status, early.op_status), (10, 10));
    }
}
