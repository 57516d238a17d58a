//! Messages: `rpma_send(3)`, `rpma_recv(3)`.

use homespun::{SendMsg, mutated};

use super::Connection;
use crate::completion::Report;
use crate::error::Error;
use crate::memory_region::LocalSlice;
use crate::queue_pair::PEER;
use crate::usage::Usage;

/// Messages. The calls have the names of their C counterparts. A [`LocalSlice::EMPTY`] stands for a message
/// of no bytes, or a receive with room for none.
impl Connection {
    /// Sends a message: `rpma_send(3)`. Completes as [`Operation::Send`](crate::Operation::Send), once the
    /// peer has the message. If the peer has posted no receive, the message waits.
    ///
    /// # Errors
    ///
    /// - [`Invalid::LocalUsage`](crate::Invalid::LocalUsage) if the region lacks [`Usage::SEND`].
    /// - [`Error::QueueFull`] if as many sends and accesses are outstanding as the
    ///   [configuration](crate::ConnectionConfig::send_queue_size) allows.
    /// - [`Error::NotConnected`] before the connection is established, and after its end.
    pub fn send(&self, src: LocalSlice<'_>, report: Report, op_context: u64) -> Result<(), Error> {
        self.post_message(src, None, report, op_context)
    }

    /// Sends a message with immediate data: `rpma_send_with_imm(3)`. The peer's completion has
    /// [`CompletionFlags::WITH_IMM`](crate::CompletionFlags::WITH_IMM) and `imm`.
    ///
    /// # Errors
    ///
    /// As [`send`](Self::send).
    pub fn send_with_imm(
        &self,
        src: LocalSlice<'_>,
        report: Report,
        imm: u32,
        op_context: u64,
    ) -> Result<(), Error> {
        self.post_message(src, Some(imm), report, op_context)
    }

    /// Posts a receive: `rpma_recv(3)`. Messages, and writes with immediate data, take receives in the order
    /// of posting. Completes as [`Operation::Recv`](crate::Operation::Recv), or as
    /// [`Operation::RecvRdmaWithImm`](crate::Operation::RecvRdmaWithImm) without a change of `dst`. A message
    /// that is longer than `dst` ends the connection, with
    /// [`Status::LocalLength`](crate::Status::LocalLength).
    ///
    /// # Errors
    ///
    /// - [`Invalid::LocalUsage`](crate::Invalid::LocalUsage) if the region lacks [`Usage::RECV`].
    /// - [`Invalid::SharedReceives`](crate::Invalid::SharedReceives) if the connection has a shared receive
    ///   queue.
    /// - [`Error::QueueFull`] if as many receives are posted as the
    ///   [configuration](crate::ConnectionConfig::receive_queue_size) allows.
    /// - [`Error::NotConnected`] after the end of the connection, unless a message that has arrived before
    ///   waits for a receive.
    pub fn recv(&self, dst: LocalSlice<'_>, op_context: u64) -> Result<(), Error> {
        self.queue_pair.recv(dst, op_context)
    }

    fn post_message(
        &self,
        src: LocalSlice<'_>,
        imm: Option<u32>,
        report: Report,
        op_context: u64,
    ) -> Result<(), Error> {
        let op_context = if mutated!("rpma_cq_get_completion/context-of-message") { 0 } else { op_context };
        let buffers = &[src.source(Usage::SEND)?][..];
        self.queue_pair.post_send(src.len_bytes(), report, |endpoint, flags| {
            let data = imm.map(u64::from);
            let send = SendMsg { buffers, to: PEER, data, context: op_context, flags, ..SendMsg::default() };
            // SAFETY: the caller who registered the region has promised that its memory is there, and that
            // nothing writes to the slice, until the send has ended.
            unsafe { endpoint.post_send(&send) }
        })
    }
}
