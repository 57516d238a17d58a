//! Receives that take many messages: `FI_MULTI_RECV` of `fi_msg(3)`.
//!
//! What they do is told at [`RecvMsg`](super::RecvMsg). The manual page of tagged messages, `fi_tagged(3)`, does not have
//! them: there the flag has no meaning.

use std::sync::atomic::Ordering;

use homespun_engine::buffer::Destination;
use homespun_engine::error::Error;
use homespun_engine::flags::{Caps, OpFlags};
use homespun_engine::rejected::Rejected;

use super::Endpoint;
use crate::av::FabricAddress;
use crate::pump::{Drive, ReceivePost};

impl Endpoint {
    /// With less room than this a multi-receive buffer takes no more messages and is released: the endpoint option
    /// `FI_OPT_MIN_MULTI_RECV`, `fi_endpoint(3)`. By default
    /// [`MIN_MULTI_RECV_DEFAULT_BYTES`](crate::limits::MIN_MULTI_RECV_DEFAULT_BYTES).
    pub fn min_multi_recv_bytes(&self) -> usize {
        self.shared.min_multi_recv_bytes.load(Ordering::Relaxed)
    }

    /// Changes [`min_multi_recv_bytes`](Self::min_multi_recv_bytes), for buffers that are posted from now on. Any number
    /// will do: with 0 a buffer is released only when a message does not fit, and a buffer that is shorter than this takes a
    /// single message.
    pub fn set_min_multi_recv_bytes(&self, min_multi_recv_bytes: usize) {
        self.shared.min_multi_recv_bytes.store(min_multi_recv_bytes, Ordering::Relaxed);
    }

    /// Posts an untagged receive with the endpoint's default flags.
    pub(super) fn receive_by_default(
        &self,
        destination: Destination,
        from: FabricAddress,
        context: u64,
    ) -> Result<(), Rejected<Destination>> {
        let flags = self.rx_op_flags();
        if flags.contains(OpFlags::MULTI_RECV) {
            return self.receive_multi(destination, from, context, flags);
        }
        self.receive_destination(destination, from, None, context, Some(flags))
    }

    /// Posts a buffer that takes many messages.
    pub(super) fn receive_multi(
        &self,
        destination: Destination,
        from: FabricAddress,
        context: u64,
        flags: OpFlags,
    ) -> Result<(), Rejected<Destination>> {
        match self.multi_receive(from, context, flags) {
            Ok((pump, post)) => pump.post_multi_receive(post, destination, self.min_multi_recv_bytes()),
            Err(error) => Err(Rejected { error, buffer: destination }),
        }
    }

    /// What is to be posted for such a buffer, and where, if the endpoint may receive so.
    fn multi_receive(
        &self,
        from: FabricAddress,
        context: u64,
        flags: OpFlags,
    ) -> Result<(&dyn Drive, ReceivePost), Error> {
        let receive = self.receive(from, None, context, flags)?;
        self.shared.check_caps(Caps::MULTI_RECV)?;
        Ok(receive)
    }
}
