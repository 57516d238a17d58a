//! Injected writes: `fi_inject_write`, `fi_rma(3)`.
//!
//! An injected write reports no success, and the application may reuse its memory at once. So the
//! initiator need not keep anything of a write that the link has taken as a whole, except its place
//! in the count. The target answers such writes by count, in the order in which they arrive:
//!
//! ```text
//!  initiator                              target
//!    CountedWrite, CountedWrite, ... -->    carries each out as it arrives
//!                                  <--    Written(count), when the pass that has read them ends
//! ```

use super::Engine;
use crate::error::Again;
use crate::limits::COUNTED_WRITE_MAX_BYTES;
use crate::link::Link;
use crate::peer_id::PeerId;
use crate::remote_memory::RemoteMemory;
use crate::transport::Transport;
use crate::wire::{CountedWrite, Header};

/// The result of an [attempt](Engine::try_inject_write) to inject a write at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InjectedWrite {
    /// The bytes were written to mapped memory. The caller counts the write, and the engine does not
    /// report it.
    Ended,
    /// The link has taken the write. The engine counts or reports it when it ends. The caller
    /// [hands the frame over](Transport::hand_over).
    Sent,
    /// The write must wait, so the caller posts it.
    Declined,
}

impl Engine {
    /// Injects a write of a few bytes, if possible at once: writes the bytes to mapped memory, or
    /// sends them.
    ///
    /// # Errors
    ///
    /// [`Again::QueueFull`] if the link is up and an earlier injected write waits for room on it, or
    /// if [`INJECT_QUEUE_MAX_OPS`](crate::limits::INJECT_QUEUE_MAX_OPS) operations are queued for the
    /// peer. The engine then keeps no copy of the bytes, and the caller tries again after progress.
    /// Also when [`Config::tx_depth_ops`](super::Config::tx_depth_ops) operations are outstanding.
    #[inline]
    pub fn try_inject_write(
        &mut self,
        to: PeerId,
        bytes: &[u8],
        memory: RemoteMemory,
        data: Option<u64>,
        transport: &mut impl Transport,
    ) -> Result<InjectedWrite, Again> {
        if self.outstanding_transmits() >= self.config.tx_depth_ops {
            return Err(Again::QueueFull);
        }
        if !self.initiator.has_none_queued(to) {
            return self.decline_unless_queue_is_full(to);
        }
        if self.config.completes_in_order {
            return Ok(InjectedWrite::Declined);
        }
        if data.is_none() {
            if self.has_offered_regions {
                self.map_region_if_offered(to, memory.key, transport);
            }
            if self.try_inject_write_directly(to, bytes, memory) {
                return Ok(InjectedWrite::Ended);
            }
        }
        let Some(id) = self.peers.peer(to).transmit_link() else { return Ok(InjectedWrite::Declined) };
        let Some(link) = self.links.get_mut(id) else { return Ok(InjectedWrite::Declined) };
        let max_bytes = transport.caps(id).inline_max_bytes.min(COUNTED_WRITE_MAX_BYTES);
        if bytes.len() > max_bytes
            || !link.tx.may_begin_counted_write(data.is_some(), self.config.transmit_order)
        {
            return Ok(InjectedWrite::Declined);
        }
        let RemoteMemory { key, address } = memory;
        let write = CountedWrite { key, address, len_bytes: bytes.len() as u64, data };
        if transport.send_inline(id, &Header::CountedWrite(write), bytes).is_ok() {
            link.tx.record_counted_write(data.is_some());
            self.initiator.record_counted_write();
            return Ok(InjectedWrite::Sent);
        }
        Ok(InjectedWrite::Declined)
    }

    /// Declines an injected write that must wait behind queued operations. Refuses the write if these
    /// are too many, or if another injected write already waits for room on the link.
    #[cold]
    fn decline_unless_queue_is_full(&self, to: PeerId) -> Result<InjectedWrite, Again> {
        let link = self.peers.peer(to).transmit_link().and_then(|id| self.links.get(id));
        let is_link_full =
            link.is_some_and(Link::has_come_up) && self.initiator.is_injected_write_first_queued(to);
        if is_link_full || self.initiator.has_no_room_to_inject(to) {
            return Err(Again::QueueFull);
        }
        Ok(InjectedWrite::Declined)
    }
}
