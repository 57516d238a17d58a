//! The owned tier of posting: buffers are handed over, and come back with the completion.
//!
//! The calls have the names of their C counterparts in `fi_msg(3)` and `fi_tagged(3)`. All of them fail as
//! [`Endpoint::post_send`] does; what was to be sent or filled is dropped then.

use bytes::{Bytes, BytesMut};
use homespun_engine::buffer::{Destination, Source};
use homespun_engine::error::Error;
use homespun_engine::flags::OpFlags;

use super::Endpoint;
use crate::av::FabricAddress;

/// A send with every choice: what `fi_sendmsg` and `fi_tsendmsg` take.
#[derive(Debug, Clone, Default)]
pub struct Send {
    /// The message, in up to [`iov_limit`](crate::info::TxAttr::iov_limit) pieces.
    pub buffers: Vec<Bytes>,
    /// The receiver, from the endpoint's address vector.
    pub to: FabricAddress,
    /// The tag of a tagged message.
    pub tag: Option<u64>,
    /// Remote data for the receiver's completion.
    pub data: Option<u64>,
    /// Given back in the completion.
    pub context: u64,
    /// Flags, in place of the endpoint's default ones.
    pub flags: OpFlags,
}

/// A receive with every choice: what `fi_recvmsg` and `fi_trecvmsg` take.
#[derive(Debug, Clone, Default)]
pub struct Receive {
    /// Where the message goes, in up to [`iov_limit`](crate::info::RxAttr::iov_limit) pieces, each up to its length.
    pub buffers: Vec<BytesMut>,
    /// The only sender to accept, with `FI_DIRECTED_RECV`.
    pub from: FabricAddress,
    /// The tag and the mask of its bits to ignore, for a tagged message.
    pub tagged: Option<(u64, u64)>,
    /// Given back in the completion.
    pub context: u64,
    /// Flags, in place of the endpoint's default ones.
    pub flags: OpFlags,
}

impl Endpoint {
    /// Sends a message: `fi_send`.
    pub fn send(&self, message: Bytes, to: FabricAddress, context: u64) -> Result<(), Error> {
        self.send_source(Source::owned(message), to, None, None, context, None)
    }

    /// Sends a message in pieces: `fi_sendv`.
    pub fn sendv(&self, pieces: Vec<Bytes>, to: FabricAddress, context: u64) -> Result<(), Error> {
        self.send_source(Source::owned_vector(pieces)?, to, None, None, context, None)
    }

    /// Sends a message with remote data for the receiver's completion: `fi_senddata`.
    pub fn senddata(&self, message: Bytes, data: u64, to: FabricAddress, context: u64) -> Result<(), Error> {
        self.send_source(Source::owned(message), to, None, Some(data), context, None)
    }

    /// Sends a tagged message: `fi_tsend`.
    pub fn tsend(&self, message: Bytes, to: FabricAddress, tag: u64, context: u64) -> Result<(), Error> {
        self.send_source(Source::owned(message), to, Some(tag), None, context, None)
    }

    /// Sends a tagged message in pieces: `fi_tsendv`.
    pub fn tsendv(&self, pieces: Vec<Bytes>, to: FabricAddress, tag: u64, context: u64) -> Result<(), Error> {
        self.send_source(Source::owned_vector(pieces)?, to, Some(tag), None, context, None)
    }

    /// Sends a tagged message with remote data for the receiver's completion: `fi_tsenddata`.
    pub fn tsenddata(
        &self,
        message: Bytes,
        data: u64,
        to: FabricAddress,
        tag: u64,
        context: u64,
    ) -> Result<(), Error> {
        self.send_source(Source::owned(message), to, Some(tag), Some(data), context, None)
    }

    /// Sends with every choice: `fi_sendmsg`, `fi_tsendmsg`.
    pub fn sendmsg(&self, send: Send) -> Result<(), Error> {
        let Send { buffers, to, tag, data, context, flags } = send;
        self.send_source(Source::owned_vector(buffers)?, to, tag, data, context, Some(flags))
    }

    /// Receives a message into `buffer[..buffer.len()]`: `fi_recv`. `from` matters with `FI_DIRECTED_RECV` alone.
    pub fn recv(&self, buffer: BytesMut, from: FabricAddress, context: u64) -> Result<(), Error> {
        self.receive_destination(Destination::owned(buffer), from, None, context, None)
    }

    /// Receives a message into several buffers in order: `fi_recvv`.
    pub fn recvv(&self, buffers: Vec<BytesMut>, from: FabricAddress, context: u64) -> Result<(), Error> {
        self.receive_destination(Destination::owned_vector(buffers)?, from, None, context, None)
    }

    /// Receives a message whose tag equals `tag` in all bits that are not set in `ignore`: `fi_trecv`.
    pub fn trecv(
        &self,
        buffer: BytesMut,
        from: FabricAddress,
        tag: u64,
        ignore: u64,
        context: u64,
    ) -> Result<(), Error> {
        self.receive_destination(Destination::owned(buffer), from, Some((tag, ignore)), context, None)
    }

    /// Receives a tagged message into several buffers in order: `fi_trecvv`.
    pub fn trecvv(
        &self,
        buffers: Vec<BytesMut>,
        from: FabricAddress,
        tag: u64,
        ignore: u64,
        context: u64,
    ) -> Result<(), Error> {
        let destination = Destination::owned_vector(buffers)?;
        self.receive_destination(destination, from, Some((tag, ignore)), context, None)
    }

    /// Receives with every choice: `fi_recvmsg`, `fi_trecvmsg`.
    pub fn recvmsg(&self, receive: Receive) -> Result<(), Error> {
        let Receive { buffers, from, tagged, context, flags } = receive;
        let destination = Destination::owned_vector(buffers)?;
        self.receive_destination(destination, from, tagged, context, Some(flags))
    }
}
