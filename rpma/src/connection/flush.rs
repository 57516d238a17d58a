//! Flushes: `rpma_flush(3)`.

use std::sync::atomic::Ordering;

use homespun::endpoint::FlushMsg;
use homespun::{FlushKind, mutated};

use super::Connection;
use crate::completion::Report;
use crate::error::{Error, Unsupported};
use crate::queue_pair::PEER;
use crate::remote_region::RemoteMemoryRegion;
use crate::usage::Usage;

/// What a flush makes sure of: `enum rpma_flush_type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FlushType {
    /// The writes are durable: a loss of power at the peer does not lose them.
    Persistent,
    /// The writes are visible to all processors of the peer.
    Visibility,
}

impl Connection {
    /// Flushes earlier writes to a range of the peer's memory: `rpma_flush(3)`. Completes as
    /// [`Operation::Flush`](crate::Operation::Flush), once all earlier writes of the connection are visible
    /// to the peer, and with [`FlushType::Persistent`] the range is durable.
    ///
    /// The peer's region needs [`Usage::WRITE_DST`], too.
    ///
    /// # Errors
    ///
    /// - [`Unsupported::FlushType`] if the region lacks [`Usage::FLUSH_TYPE_PERSISTENT`] or
    ///   [`Usage::FLUSH_TYPE_VISIBILITY`].
    /// - [`Unsupported::DirectWrite`] for a persistent flush, unless the peer's
    ///   [`direct_write_to_pmem`](crate::PeerConfig::direct_write_to_pmem) was
    ///   [applied](Self::apply_remote_peer_config).
    /// - [`Error::QueueFull`], [`Error::NotConnected`]: as [`send`](Self::send).
    pub fn flush(
        &self,
        dst: &RemoteMemoryRegion,
        dst_offset_bytes: u64,
        len_bytes: u64,
        flush_type: FlushType,
        report: Report,
        op_context: u64,
    ) -> Result<(), Error> {
        let (kind, needed) = match flush_type {
            FlushType::Persistent => (FlushKind::Persistent, Usage::FLUSH_TYPE_PERSISTENT),
            FlushType::Visibility => (FlushKind::Visibility, Usage::FLUSH_TYPE_VISIBILITY),
        };
        let is_direct = self.has_direct_write_to_pmem.load(Ordering::SeqCst);
        if flush_type == FlushType::Persistent && !is_direct {
            return Err(Unsupported::DirectWrite.into());
        }
        if !dst.flush_types().contains(needed) {
            return Err(Unsupported::FlushType.into());
        }
        let op_context = if mutated!("rpma_cq_get_completion/context-of-flush") { 0 } else { op_context };
        let memory = dst.memory_at(dst_offset_bytes);
        self.queue_pair.post(report, |endpoint, flags| {
            endpoint.flushmsg(FlushMsg { kind, to: PEER, memory, len_bytes, context: op_context, flags })
        })
    }
}
