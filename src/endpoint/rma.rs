//! Access to the memory of peers, with owned memory and with the caller's: `fi_rma(3)`.
//!
//! At every completion level, an access completes when its target has answered. An access to a region that
//! this process has mapped ([`MrAttr::shareable`](crate::MrAttr::shareable)) may complete when it is
//! posted. The target may refuse an access for its key, for its range, or for the rights of the region. A
//! refused access ends with an error and changes nothing.

use std::mem::ManuallyDrop;

use bytes::{Bytes, BytesMut};
use homespun_engine::buffer::{Destination, Segment, SegmentMut, Source};
use homespun_engine::error::Error;
use homespun_engine::flags::{Caps, OpFlags};
use homespun_engine::operation::{RmaLocal, Signalled, TransmitOp};
use homespun_engine::rejected::Rejected;
use homespun_engine::remote_memory::RemoteMemory;

use super::Endpoint;
use crate::av::FabricAddress;
use crate::mutated;
use crate::owned::Owned;
use crate::post::Post;

/// A write with all options: the arguments of `fi_writemsg`.
/// `B` is the type of the memory: `Vec<Bytes>` for [`writemsg`](Endpoint::writemsg), `&[Segment]` for
/// [`post_write`](Endpoint::post_write).
#[derive(Debug, Clone, Copy, Default)]
pub struct WriteMsg<B = Vec<Bytes>> {
    /// The bytes to write, in up to [`iov_limit`](crate::info::TxAttr::iov_limit) pieces.
    pub buffers: B,
    /// The peer's endpoint through which the write reaches the region: an address of this endpoint's
    /// vector.
    pub to: FabricAddress,
    /// The start of the access, in the peer's memory.
    pub memory: RemoteMemory,
    /// Remote data. The target reports the data in the completion queue for its receives, in a completion
    /// with [`REMOTE_WRITE`](crate::flags::CompletionFlags::REMOTE_WRITE) and a context of 0. If the target's
    /// endpoint has the mode [`RX_CQ_DATA`](crate::flags::Mode::RX_CQ_DATA), the write takes a receive of the
    /// target, and the completion has the context of this receive.
    pub data: Option<u64>,
    /// The context of the completion.
    pub context: u64,
    /// Flags, as [`SendMsg::flags`](super::SendMsg::flags). With [`OpFlags::COMMIT_COMPLETE`], the write
    /// completes when it is durable, that is, when the target has written the bytes to its device. The
    /// endpoint then needs the capability `RMA_PMEM`, and the region must be of [persistent
    /// memory](crate::flags::MrFlags::RMA_PMEM).
    ///
    /// If the write also has [`OpFlags::FENCE`], its completion says that all earlier writes of this
    /// endpoint to persistent memory of the target are durable, too. A write of no bytes is enough.
    pub flags: OpFlags,
}

/// A read with all options: the arguments of `fi_readmsg`.
/// `B` is the type of the memory: `Vec<BytesMut>` for [`readmsg`](Endpoint::readmsg), `&[SegmentMut]` for
/// [`post_read`](Endpoint::post_read).
#[derive(Debug, Clone, Copy, Default)]
pub struct ReadMsg<B = Vec<BytesMut>> {
    /// The memory for the data, in up to [`iov_limit`](crate::info::TxAttr::iov_limit) pieces. The sum of
    /// their lengths is the length of the read.
    pub buffers: B,
    /// The peer's endpoint through which the read reaches the region: an address of this endpoint's vector.
    pub from: FabricAddress,
    /// The start of the access, in the peer's memory.
    pub memory: RemoteMemory,
    /// The context of the completion.
    pub context: u64,
    /// Flags, as [`SendMsg::flags`](super::SendMsg::flags). Injection and remote data have no meaning for
    /// reads.
    pub flags: OpFlags,
}

/// The calls have the names of their C counterparts in `fi_rma(3)`, and the errors of
/// [`post_send`](Self::post_send). A call with owned memory returns the memory with the error.
///
/// An access of no bytes may name any key and any address, except a write with `COMMIT_COMPLETE`. Such an
/// access is ordered like any other. If the access names a range of a region that this endpoint may access,
/// the region's counter counts the access.
impl Endpoint {
    /// Writes to a region of a peer: `fi_write`.
    pub fn write(
        &self,
        bytes: Bytes,
        to: FabricAddress,
        memory: RemoteMemory,
        context: u64,
    ) -> Result<(), Rejected<Bytes>> {
        self.write_owned(bytes, None, to, memory, context, self.tx_op_flags())
    }

    /// Writes several buffers, one after the other: `fi_writev`.
    pub fn writev(
        &self,
        buffers: Vec<Bytes>,
        to: FabricAddress,
        memory: RemoteMemory,
        context: u64,
    ) -> Result<(), Rejected<Vec<Bytes>>> {
        self.write_owned(buffers, None, to, memory, context, self.tx_op_flags())
    }

    /// Writes, and makes the target report a completion with remote data: `fi_writedata`.
    pub fn writedata(
        &self,
        bytes: Bytes,
        data: u64,
        to: FabricAddress,
        memory: RemoteMemory,
        context: u64,
    ) -> Result<(), Rejected<Bytes>> {
        self.write_owned(bytes, Some(data), to, memory, context, self.tx_op_flags())
    }

    /// Writes with all options: `fi_writemsg`.
    pub fn writemsg(&self, write: WriteMsg) -> Result<(), Rejected<WriteMsg>> {
        let WriteMsg { buffers, to, memory, data, context, flags } = write;
        self.write_owned(buffers, data, to, memory, context, flags).map_err(|rejected| {
            rejected.map(|buffers| WriteMsg { buffers, to, memory, data, context, flags })
        })
    }

    /// Reads from a region of a peer into `buffer`, whose length is the length of the read: `fi_read`.
    pub fn read(
        &self,
        buffer: BytesMut,
        from: FabricAddress,
        memory: RemoteMemory,
        context: u64,
    ) -> Result<(), Rejected<BytesMut>> {
        self.read_owned(buffer, from, memory, context, self.uncommitted_op_flags())
    }

    /// Reads into several buffers, one after the other: `fi_readv`.
    pub fn readv(
        &self,
        buffers: Vec<BytesMut>,
        from: FabricAddress,
        memory: RemoteMemory,
        context: u64,
    ) -> Result<(), Rejected<Vec<BytesMut>>> {
        self.read_owned(buffers, from, memory, context, self.uncommitted_op_flags())
    }

    /// Reads with all options: `fi_readmsg`.
    pub fn readmsg(&self, read: ReadMsg) -> Result<(), Rejected<ReadMsg>> {
        let ReadMsg { buffers, from, memory, context, flags } = read;
        self.read_owned(buffers, from, memory, context, flags)
            .map_err(|rejected| rejected.map(|buffers| ReadMsg { buffers, from, memory, context, flags }))
    }

    /// Writes a few bytes, and reports no success: `fi_inject_write`, `fi_inject_writedata`. The
    /// application may reuse the bytes at once.
    ///
    /// # Errors
    ///
    /// The errors of [`post_send`](Self::post_send). Also [`Misuse::TooLong`](crate::Misuse::TooLong) for
    /// more bytes than the endpoint's inject size. [`Again::QueueFull`](crate::Again::QueueFull) also if an
    /// earlier write waits for room on the link: the caller makes progress, and tries again.
    pub fn inject_write(
        &self,
        bytes: &[u8],
        to: FabricAddress,
        memory: RemoteMemory,
        data: Option<u64>,
    ) -> Result<(), Error> {
        let pump = self.pump_if_inject_allowed(Caps::WRITE, bytes.len())?;
        let is_reported = mutated!("fi_rma/inject-write-frees-and-hides");
        if !is_reported && pump.try_inject_write(to, bytes, memory, data)? {
            return Ok(());
        }
        let segment = Segment { address: bytes.as_ptr(), len_bytes: bytes.len() };
        // SAFETY: `bytes` is borrowed until this call returns, and the engine copies injected bytes
        // before `post` returns.
        let source = unsafe { Source::raw(&[segment])? };
        let mut post = Post::new(to, make_write_op(source, data, memory), 0);
        if is_reported {
            post.request.options.signalled = Signalled::Yes;
        }
        pump.post(&mut post)
    }

    /// Posts a write from the caller's memory: `fi_writemsg`. The other writes of `fi_rma(3)` are special
    /// cases.
    ///
    /// # Errors
    ///
    /// As [`post_send`](Self::post_send).
    ///
    /// # Safety
    ///
    /// As [`post_send`](Self::post_send).
    pub unsafe fn post_write(&self, write: &WriteMsg<&[Segment]>) -> Result<(), Error> {
        let WriteMsg { buffers, to, memory, data, context, flags } = *write;
        // SAFETY: the caller promises what `Source::raw` requires. The engine ends the operation before the
        // application can read its completion. The engine copies injected bytes before this call returns.
        // Closing the endpoint drops the engine.
        let source = unsafe { Source::raw(buffers)? };
        self.post_with_flags(&mut Post::new(to, make_write_op(source, data, memory), context), flags)
    }

    /// Posts a read into the caller's memory: `fi_readmsg`. The other reads of `fi_rma(3)` are special
    /// cases.
    ///
    /// # Errors
    ///
    /// As [`post_send`](Self::post_send).
    ///
    /// # Safety
    ///
    /// Every segment must be initialised memory. Nothing else may read or write a segment until the read
    /// has ended. [`post_send`](Self::post_send) describes when an operation has ended.
    pub unsafe fn post_read(&self, read: &ReadMsg<&[SegmentMut]>) -> Result<(), Error> {
        let ReadMsg { buffers, from, memory, context, flags } = *read;
        // SAFETY: the caller promises what `Destination::raw` requires. The engine ends the operation
        // before the application can read its completion. Closing the endpoint drops the engine.
        let destination = unsafe { Destination::raw(buffers)? };
        self.post_with_flags(&mut Post::new(from, make_read_op(destination, memory), context), flags)
    }

    #[inline(always)]
    fn write_owned<B: Owned<Lent = Source>>(
        &self,
        buffers: B,
        data: Option<u64>,
        to: FabricAddress,
        memory: RemoteMemory,
        context: u64,
        flags: OpFlags,
    ) -> Result<(), Rejected<B>> {
        let mut post =
            ManuallyDrop::new(Post::new(to, make_write_op(buffers.lend()?, data, memory), context));
        self.submit_owned(&mut post, flags)
    }

    #[inline(always)]
    fn read_owned<B: Owned<Lent = Destination>>(
        &self,
        buffers: B,
        from: FabricAddress,
        memory: RemoteMemory,
        context: u64,
        flags: OpFlags,
    ) -> Result<(), Rejected<B>> {
        let mut post = ManuallyDrop::new(Post::new(from, make_read_op(buffers.lend()?, memory), context));
        self.submit_owned(&mut post, flags)
    }
}

#[inline(always)]
pub(super) fn make_write_op(source: Source, data: Option<u64>, memory: RemoteMemory) -> TransmitOp {
    TransmitOp::Rma { local: RmaLocal::Write { source, data }, memory }
}

#[inline(always)]
pub(super) fn make_read_op(destination: Destination, memory: RemoteMemory) -> TransmitOp {
    TransmitOp::Rma { local: RmaLocal::Read(destination), memory }
}
