//! Accesses to the memory of peers: `rpma_read(3)`, `rpma_write(3)`, `rpma_atomic_write(3)`.

use homespun::atomic::{AtomicOp, Datatype};
use homespun::endpoint::{AtomicMsg, AtomicTarget, ReadMsg, WriteMsg};
use homespun::flags::OpFlags;
use homespun::{Bytes, RemoteMemory, mutated};

use super::Connection;
use crate::completion::{ATOMIC_WRITE_BYTES, Report};
use crate::error::{Error, Invalid};
use crate::memory_region::LocalSlice;
use crate::queue_pair::PEER;
use crate::remote_region::RemotePlace;
use crate::usage::Usage;

/// Accesses to the memory of peers. The calls have the names of their C counterparts. The length of an access
/// is that of the local slice. An access of no bytes may name no memory: [`LocalSlice::EMPTY`] and
/// [`RemotePlace::NONE`].
///
/// The peer refuses an access beyond its region or without its rights. The operation then fails with
/// [`Status::RemoteAccess`](crate::Status::RemoteAccess), changes nothing, and ends the connection.
impl Connection {
    /// Reads from the peer's memory: `rpma_read(3)`. Completes as
    /// [`Operation::Read`](crate::Operation::Read), once the bytes are in `dst`.
    ///
    /// # Errors
    ///
    /// - [`Invalid::LocalUsage`] if the local region lacks [`Usage::READ_DST`].
    /// - [`Invalid::MissingMemory`] if only one of the sides names memory.
    /// - [`Error::QueueFull`], [`Error::NotConnected`]: as [`send`](Self::send).
    pub fn read(
        &self,
        dst: LocalSlice<'_>,
        src: RemotePlace,
        report: Report,
        op_context: u64,
    ) -> Result<(), Error> {
        let memory = both_sides(dst, src)?;
        let op_context = if mutated!("rpma_cq_get_completion/context-of-read") { 0 } else { op_context };
        let buffers = &[dst.destination(Usage::READ_DST)?][..];
        self.queue_pair.post(report, |endpoint, flags| {
            // SAFETY: the caller who registered the region has promised that its memory is there, and that
            // nothing else uses the slice, until the read has ended.
            unsafe {
                endpoint.post_read(&ReadMsg { buffers, from: PEER, memory, context: op_context, flags })
            }
        })
    }

    /// Writes to the peer's memory: `rpma_write(3)`. Completes as
    /// [`Operation::Write`](crate::Operation::Write), once the bytes are in the peer's memory.
    ///
    /// # Errors
    ///
    /// - [`Invalid::LocalUsage`] if the local region lacks [`Usage::WRITE_SRC`].
    /// - [`Invalid::MissingMemory`] if only one of the sides names memory.
    /// - [`Error::QueueFull`], [`Error::NotConnected`]: as [`send`](Self::send).
    pub fn write(
        &self,
        dst: RemotePlace,
        src: LocalSlice<'_>,
        report: Report,
        op_context: u64,
    ) -> Result<(), Error> {
        self.post_write(dst, src, None, report, op_context)
    }

    /// Writes to the peer's memory, and tells the peer: `rpma_write_with_imm(3)`. The write takes a receive
    /// of the peer, which completes as [`Operation::RecvRdmaWithImm`](crate::Operation::RecvRdmaWithImm),
    /// with the context of the receive, the length of the write and `imm`. If the peer has posted none, the
    /// notice waits for one; the write completes here.
    ///
    /// # Errors
    ///
    /// As [`write`](Self::write).
    pub fn write_with_imm(
        &self,
        dst: RemotePlace,
        src: LocalSlice<'_>,
        report: Report,
        imm: u32,
        op_context: u64,
    ) -> Result<(), Error> {
        self.post_write(dst, src, Some(imm), report, op_context)
    }

    /// Writes 8 bytes to the peer's memory atomically: `rpma_atomic_write(3)`. A processor of the peer that
    /// loads them sees all of them or none, and if it sees them, also everything that was written before. The
    /// write takes effect only after all earlier operations of the connection, also flushes, have succeeded.
    /// Completes as [`Operation::Write`](crate::Operation::Write).
    ///
    /// # Errors
    ///
    /// - [`Invalid::MissingMemory`] for [`RemotePlace::NONE`].
    /// - [`Invalid::Misaligned`] if the address in the peer's process is not a multiple of 8.
    /// - [`Error::QueueFull`], [`Error::NotConnected`]: as [`send`](Self::send).
    pub fn atomic_write(
        &self,
        dst: RemotePlace,
        src: [u8; ATOMIC_WRITE_BYTES as usize],
        report: Report,
        op_context: u64,
    ) -> Result<(), Error> {
        let memory = dst.memory().ok_or(Invalid::MissingMemory)?;
        if !memory.address.is_multiple_of(ATOMIC_WRITE_BYTES.into()) {
            return Err(Invalid::Misaligned.into());
        }
        let target = AtomicTarget { peer: PEER, memory, datatype: Datatype::Uint64, op: AtomicOp::Write };
        self.queue_pair.post(report, |endpoint, flags| {
            let operands = vec![Bytes::copy_from_slice(&src)];
            let flags = flags | OpFlags::FENCE;
            Ok(endpoint.atomicmsg(AtomicMsg { operands, target, context: op_context, flags })?)
        })
    }

    fn post_write(
        &self,
        dst: RemotePlace,
        src: LocalSlice<'_>,
        imm: Option<u32>,
        report: Report,
        op_context: u64,
    ) -> Result<(), Error> {
        let memory = both_sides(src, dst)?;
        let op_context = if mutated!("rpma_cq_get_completion/context-of-write") { 0 } else { op_context };
        let buffers = &[src.source(Usage::WRITE_SRC)?][..];
        self.queue_pair.post(report, |endpoint, flags| {
            let data = imm.map(u64::from);
            // SAFETY: the caller who registered the region has promised that its memory is there, and that
            // nothing writes to the slice, until the write has ended.
            unsafe {
                endpoint.post_write(&WriteMsg { buffers, to: PEER, memory, data, context: op_context, flags })
            }
        })
    }
}

/// Returns the remote side of an access. An access of no bytes may name no memory at all.
fn both_sides(local: LocalSlice<'_>, remote: RemotePlace) -> Result<RemoteMemory, Invalid> {
    match (local.has_no_region(), remote.memory()) {
        (false, Some(memory)) => Ok(memory),
        (true, None) => Ok(RemoteMemory { address: 0, key: 0 }),
        _ => Err(Invalid::MissingMemory),
    }
}
