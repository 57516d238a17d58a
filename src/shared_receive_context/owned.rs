//! The owned tier of posting to a context: buffers are handed over, and come back with the completion.
//!
//! The calls are those of [`Endpoint`](crate::Endpoint) that receive, and fail as they do; what was to be
//! filled comes back with the error.

use bytes::BytesMut;
use homespun_engine::buffer::ReusableBuffer;
use homespun_engine::flags::OpFlags;
use homespun_engine::rejected::Rejected;

use super::SharedReceiveContext;
use crate::av::FabricAddress;
use crate::receives::{ReceivePoster, RecvMsg};
use crate::tag::TagMatch;

impl SharedReceiveContext {
    /// Receives a message into `buffer[..buffer.len()]`: `fi_recv`. A source other than
    /// [`FabricAddress::UNSPECIFIED`] needs [`Caps::DIRECTED_RECV`](crate::Caps::DIRECTED_RECV); among
    /// endpoints with connections it is ignored. Where the default flags have [`OpFlags::MULTI_RECV`], as
    /// [`recv_multi`](Self::recv_multi).
    ///
    /// # Errors
    ///
    /// [`Again`](crate::Again) when [`size_ops`](crate::info::RxAttr::size_ops) receives are outstanding;
    /// [`Misuse`](crate::Misuse) for a capability that the context lacks, and for a directed receive from an
    /// unknown address, or while no endpoint is enabled whose address vector could name it
    /// ([`Misuse::NoAddressVector`](crate::Misuse::NoAddressVector)).
    pub fn recv(
        &self,
        buffer: BytesMut,
        from: FabricAddress,
        context: u64,
    ) -> Result<(), Rejected<BytesMut>> {
        self.receive_owned(buffer, from, None, context, self.rx_op_flags())
    }

    /// Receives a message into several buffers in order: `fi_recvv`.
    ///
    /// # Errors
    ///
    /// As [`recv`](Self::recv).
    pub fn recvv(
        &self,
        buffers: Vec<BytesMut>,
        from: FabricAddress,
        context: u64,
    ) -> Result<(), Rejected<Vec<BytesMut>>> {
        self.receive_owned(buffers, from, None, context, self.rx_op_flags())
    }

    /// Receives messages into `buffer[..buffer.len()]` until little room is left there: `fi_recvmsg` with
    /// `FI_MULTI_RECV`, described at [`RecvMsg`]. Messages of all endpoints share the buffer.
    ///
    /// # Errors
    ///
    /// As [`recv`](Self::recv).
    pub fn recv_multi(
        &self,
        buffer: BytesMut,
        from: FabricAddress,
        context: u64,
    ) -> Result<(), Rejected<BytesMut>> {
        self.receive_owned(buffer, from, None, context, self.rx_op_flags() | OpFlags::MULTI_RECV)
    }

    /// Receives a message with one of these tags, a [`Tag`](crate::Tag) or a [`TagMatch`]: `fi_trecv`.
    ///
    /// # Errors
    ///
    /// As [`recv`](Self::recv).
    pub fn trecv(
        &self,
        buffer: BytesMut,
        from: FabricAddress,
        tags: impl Into<TagMatch>,
        context: u64,
    ) -> Result<(), Rejected<BytesMut>> {
        self.receive_owned(buffer, from, Some(tags.into()), context, self.rx_op_flags())
    }

    /// Receives a tagged message into several buffers in order: `fi_trecvv`.
    ///
    /// # Errors
    ///
    /// As [`recv`](Self::recv).
    pub fn trecvv(
        &self,
        buffers: Vec<BytesMut>,
        from: FabricAddress,
        tags: impl Into<TagMatch>,
        context: u64,
    ) -> Result<(), Rejected<Vec<BytesMut>>> {
        self.receive_owned(buffers, from, Some(tags.into()), context, self.rx_op_flags())
    }

    /// Receives a message into all the room of a buffer that can be posted again: `fi_recv`. See
    /// [`Endpoint::recv_into`](crate::Endpoint::recv_into).
    ///
    /// # Errors
    ///
    /// As [`recv`](Self::recv), and as there.
    pub fn recv_into(
        &self,
        buffer: ReusableBuffer,
        from: FabricAddress,
        context: u64,
    ) -> Result<(), Rejected<ReusableBuffer>> {
        self.receive_owned(buffer, from, None, context, self.rx_op_flags())
    }

    /// As [`recv_into`](Self::recv_into), for a message with one of these tags: `fi_trecv`.
    ///
    /// # Errors
    ///
    /// As [`recv`](Self::recv).
    pub fn trecv_into(
        &self,
        buffer: ReusableBuffer,
        from: FabricAddress,
        tags: impl Into<TagMatch>,
        context: u64,
    ) -> Result<(), Rejected<ReusableBuffer>> {
        self.receive_owned(buffer, from, Some(tags.into()), context, self.rx_op_flags())
    }

    /// Receives with every choice: `fi_recvmsg`, `fi_trecvmsg`. A peek looks among the messages that any
    /// endpoint of the context has received, and makes progress at all of them.
    ///
    /// # Errors
    ///
    /// As [`recv`](Self::recv), with the fields of [`RecvMsg`].
    pub fn recvmsg(&self, receive: RecvMsg) -> Result<(), Rejected<RecvMsg>> {
        let RecvMsg { buffers, from, tagged, context, flags } = receive;
        self.receive_owned(buffers, from, tagged, context, flags)
            .map_err(|rejected| rejected.map(|buffers| RecvMsg { buffers, from, tagged, context, flags }))
    }
}
