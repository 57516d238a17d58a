//! Access to the memory of peers: `fi_rma(3)`.
//!
//! A write or a read completes when its target has answered, whatever its level: until then it may still be refused, for its
//! key, its range, or the rights of the region. It ends with an error then, and nothing else happens.

use bytes::{Bytes, BytesMut};
use homespun_engine::buffer::{Destination, Segment, SegmentMut, Source};
use homespun_engine::error::{Error, Misuse};
use homespun_engine::flags::{Caps, OpFlags};
use homespun_engine::operation::{Level, RmaLocal};
use homespun_engine::rejected::Rejected;

use super::Endpoint;
use super::flags::{SEND_FLAGS, SEND_LEVELS, level_of, transmit_flags};
use crate::av::FabricAddress;
use crate::pump::RmaPost;

/// The flags that a write has.
const WRITE_FLAGS: OpFlags = SEND_FLAGS.union(OpFlags::COMMIT_COMPLETE);

/// The completion levels of writes.
const WRITE_LEVELS: OpFlags = SEND_LEVELS.union(OpFlags::COMMIT_COMPLETE);

/// The flags that a read has. It injects nothing.
const READ_FLAGS: OpFlags = SEND_FLAGS.difference(OpFlags::INJECT.union(OpFlags::REMOTE_CQ_DATA));

/// A write with every choice: what `fi_writemsg` takes.
#[derive(Debug, Clone, Default)]
pub struct WriteMsg {
    /// What is written, in up to [`iov_limit`](crate::info::TxAttr::iov_limit) pieces.
    pub buffers: Vec<Bytes>,
    /// The endpoint through which the region is reached, from the endpoint's address vector.
    pub to: FabricAddress,
    /// Where in the region.
    pub address: u64,
    /// The region's key.
    pub key: u64,
    /// Remote data: it completes at the target, in the queue of its receives, with
    /// [`REMOTE_WRITE`](crate::flags::CompletionFlags::REMOTE_WRITE) and a context of 0.
    pub data: Option<u64>,
    /// Given back in the completion.
    pub context: u64,
    /// Flags, as [`SendMsg::flags`](super::SendMsg::flags). Besides, with [`OpFlags::COMMIT_COMPLETE`], for which the endpoint
    /// needs the capability `RMA_PMEM`, the write completes when it is durable: the target has had it written to its device, for
    /// which the region must be of [persistent memory](crate::flags::MrFlags::RMA_PMEM). With [`OpFlags::FENCE`] too, also
    /// everything is durable that this endpoint has written to the target's persistent memory before; a write of no bytes
    /// will do for that.
    pub flags: OpFlags,
}

/// A read with every choice: what `fi_readmsg` takes.
#[derive(Debug, Clone, Default)]
pub struct ReadMsg {
    /// Where what is read goes, in up to [`iov_limit`](crate::info::TxAttr::iov_limit) pieces. Their lengths say how much is
    /// read.
    pub buffers: Vec<BytesMut>,
    /// The endpoint through which the region is reached, from the endpoint's address vector.
    pub from: FabricAddress,
    /// Where in the region.
    pub address: u64,
    /// The region's key.
    pub key: u64,
    /// Given back in the completion.
    pub context: u64,
    /// Flags, as [`SendMsg::flags`](super::SendMsg::flags). Injection and remote data have no meaning for
    /// reads.
    pub flags: OpFlags,
}

/// A write from the caller's memory: `fi_writemsg` and all that it includes.
#[derive(Debug, Clone, Copy)]
pub struct WriteMsgRaw<'a> {
    /// What is written.
    pub segments: &'a [Segment],
    /// The endpoint through which the region is reached.
    pub to: FabricAddress,
    /// Where in the region.
    pub address: u64,
    /// The region's key.
    pub key: u64,
    /// As [`WriteMsg::data`].
    pub data: Option<u64>,
    /// Given back in the completion.
    pub context: u64,
    /// `None` for the endpoint's default flags, as `fi_write` has them; otherwise exactly these.
    pub flags: Option<OpFlags>,
}

/// A read into the caller's memory: `fi_readmsg` and all that it includes.
#[derive(Debug, Clone, Copy)]
pub struct ReadMsgRaw<'a> {
    /// Where what is read goes.
    pub segments: &'a [SegmentMut],
    /// The endpoint through which the region is reached.
    pub from: FabricAddress,
    /// Where in the region.
    pub address: u64,
    /// The region's key.
    pub key: u64,
    /// Given back in the completion.
    pub context: u64,
    /// `None` for the endpoint's default flags, as `fi_read` has them; otherwise exactly these.
    pub flags: Option<OpFlags>,
}

/// Where an access goes, and what is said of it.
#[derive(Debug, Clone, Copy)]
struct Target {
    peer: FabricAddress,
    address: u64,
    key: u64,
    context: u64,
}

/// The calls have the names of their C counterparts in `fi_rma(3)`. All of them fail as [`post_send`](Self::post_send) does,
/// and hand back then what was handed over.
///
/// An access of no bytes may name any key and any address, but for a write with `COMMIT_COMPLETE`. It
/// completes and takes its place in the order as others do; the counter of a region counts it if it names a
/// range that the peer may access.
impl Endpoint {
    /// Writes to a region of a peer: `fi_write`.
    pub fn write(
        &self,
        bytes: Bytes,
        to: FabricAddress,
        address: u64,
        key: u64,
        context: u64,
    ) -> Result<(), Rejected<Bytes>> {
        let target = Target { peer: to, address, key, context };
        self.write_source(Source::owned(bytes), None, target, None).map_err(unwritten)
    }

    /// Writes several buffers, one after the other: `fi_writev`.
    pub fn writev(
        &self,
        buffers: Vec<Bytes>,
        to: FabricAddress,
        address: u64,
        key: u64,
        context: u64,
    ) -> Result<(), Rejected<Vec<Bytes>>> {
        let target = Target { peer: to, address, key, context };
        self.write_source(Source::owned_vector(buffers)?, None, target, None).map_err(unwritten_vector)
    }

    /// Writes, with remote data for a completion at the target: `fi_writedata`.
    pub fn writedata(
        &self,
        bytes: Bytes,
        data: u64,
        to: FabricAddress,
        address: u64,
        key: u64,
        context: u64,
    ) -> Result<(), Rejected<Bytes>> {
        let target = Target { peer: to, address, key, context };
        self.write_source(Source::owned(bytes), Some(data), target, None).map_err(unwritten)
    }

    /// Writes with every choice: `fi_writemsg`.
    pub fn writemsg(&self, write: WriteMsg) -> Result<(), Rejected<WriteMsg>> {
        let WriteMsg { buffers, to, address, key, data, context, flags } = write;
        let back = |buffers| WriteMsg { buffers, to, address, key, data, context, flags };
        let source = Source::owned_vector(buffers).map_err(|rejected| rejected.map(back))?;
        self.write_source(source, data, Target { peer: to, address, key, context }, Some(flags))
            .map_err(|rejected| unwritten_vector(rejected).map(back))
    }

    /// Reads from a region of a peer, as much as `buffer` is long: `fi_read`.
    pub fn read(
        &self,
        buffer: BytesMut,
        from: FabricAddress,
        address: u64,
        key: u64,
        context: u64,
    ) -> Result<(), Rejected<BytesMut>> {
        let target = Target { peer: from, address, key, context };
        self.read_destination(Destination::owned(buffer), target, None).map_err(unread)
    }

    /// Reads into several buffers, one after the other: `fi_readv`.
    pub fn readv(
        &self,
        buffers: Vec<BytesMut>,
        from: FabricAddress,
        address: u64,
        key: u64,
        context: u64,
    ) -> Result<(), Rejected<Vec<BytesMut>>> {
        let target = Target { peer: from, address, key, context };
        self.read_destination(Destination::owned_vector(buffers)?, target, None).map_err(unread_vector)
    }

    /// Reads with every choice: `fi_readmsg`.
    pub fn readmsg(&self, read: ReadMsg) -> Result<(), Rejected<ReadMsg>> {
        let ReadMsg { buffers, from, address, key, context, flags } = read;
        let back = |buffers| ReadMsg { buffers, from, address, key, context, flags };
        let destination = Destination::owned_vector(buffers).map_err(|rejected| rejected.map(back))?;
        self.read_destination(destination, Target { peer: from, address, key, context }, Some(flags))
            .map_err(|rejected| unread_vector(rejected).map(back))
    }

    /// Writes a few bytes that may be reused at once, and reports nothing if it succeeds: `fi_inject_write`,
    /// `fi_inject_writedata`.
    ///
    /// # Errors
    ///
    /// [`Misuse::TooLong`] beyond the endpoint's inject size; otherwise as [`post_send`](Self::post_send).
    pub fn inject_write(
        &self,
        bytes: &[u8],
        to: FabricAddress,
        address: u64,
        key: u64,
        data: Option<u64>,
    ) -> Result<(), Error> {
        let (pump, _) = self.shared.driven()?;
        self.check_write(bytes.len(), true)?;
        if data.is_none() && pump.inject_write(to, bytes, key, address)? {
            return Ok(());
        }
        let segment = Segment { address: bytes.as_ptr(), len_bytes: bytes.len() };
        // SAFETY: `bytes` is borrowed for the length of this call, and the engine copies what is injected before
        // `post_rma` returns.
        let source = unsafe { Source::raw(&[segment])? };
        pump.post_rma(&mut RmaPost {
            to,
            local: RmaLocal::Write { source, data },
            key,
            address,
            context: 0,
            level: Level::Inject,
            signalled: false,
            inject: true,
            fence: false,
            more: false,
        })
    }

    /// Posts a write from the caller's memory.
    ///
    /// # Errors
    ///
    /// As [`post_send`](Self::post_send).
    ///
    /// # Safety
    ///
    /// As [`post_send`](Self::post_send).
    pub unsafe fn post_write(&self, write: &WriteMsgRaw<'_>) -> Result<(), Error> {
        let WriteMsgRaw { segments, to, address, key, data, context, flags } = *write;
        // SAFETY: the caller promises what `Source::raw` asks for: the engine ends the operation before its completion
        // can be read, copies what is injected before it returns, and is dropped when the endpoint is closed.
        let source = unsafe { Source::raw(segments)? };
        Ok(self.write_source(source, data, Target { peer: to, address, key, context }, flags)?)
    }

    /// Posts a read into the caller's memory.
    ///
    /// # Errors
    ///
    /// As [`post_send`](Self::post_send).
    ///
    /// # Safety
    ///
    /// Every segment must be initialised memory that nothing else reads or writes until the operation has ended, as
    /// [`post_send`](Self::post_send) tells of its segments.
    pub unsafe fn post_read(&self, read: &ReadMsgRaw<'_>) -> Result<(), Error> {
        let ReadMsgRaw { segments, from, address, key, context, flags } = *read;
        // SAFETY: the caller promises what `Destination::raw` asks for: the engine ends the operation before its completion
        // can be read, and is dropped when the endpoint is closed.
        let destination = unsafe { Destination::raw(segments)? };
        Ok(self.read_destination(destination, Target { peer: from, address, key, context }, flags)?)
    }

    #[inline]
    fn write_source(
        &self,
        source: Source,
        data: Option<u64>,
        target: Target,
        flags: Option<OpFlags>,
    ) -> Result<(), Rejected<RmaLocal>> {
        let flags = flags.unwrap_or_else(|| self.tx_op_flags());
        let admitted = transmit_flags(flags, WRITE_FLAGS).and_then(|flags| {
            self.check_write(source.len_bytes(), flags.contains(OpFlags::INJECT))?;
            self.check_durability(flags)?;
            Ok(flags)
        });
        self.post_rma(admitted, RmaLocal::Write { source, data }, target)
    }

    #[inline]
    fn read_destination(
        &self,
        destination: Destination,
        target: Target,
        flags: Option<OpFlags>,
    ) -> Result<(), Rejected<RmaLocal>> {
        let flags = flags.unwrap_or_else(|| self.tx_op_flags());
        let admitted = transmit_flags(flags, READ_FLAGS).and_then(|flags| {
            self.shared.check_caps(Caps::RMA | Caps::READ)?;
            Ok(flags)
        });
        self.post_rma(admitted, RmaLocal::Read(destination), target)
    }

    /// Posts an access with these flags, if it is admitted.
    #[inline]
    fn post_rma(
        &self,
        admitted: Result<OpFlags, Error>,
        local: RmaLocal,
        target: Target,
    ) -> Result<(), Rejected<RmaLocal>> {
        let driven = admitted.and_then(|flags| Ok((flags, self.shared.driven()?)));
        let (flags, (pump, service)) = match driven {
            Ok(driven) => driven,
            Err(error) => return Err(Rejected { error, buffer: local }),
        };
        let Target { peer, address, key, context } = target;
        let levels = if flags.intersects(WRITE_LEVELS) { flags } else { self.tx_op_flags() };
        let mut post = RmaPost {
            to: peer,
            local,
            key,
            address,
            context,
            level: level_of(levels),
            signalled: service.signals_transmit(flags),
            inject: flags.contains(OpFlags::INJECT),
            fence: flags.contains(OpFlags::FENCE),
            more: flags.contains(OpFlags::MORE),
        };
        pump.post_rma(&mut post).map_err(|error| Rejected { error, buffer: post.local })
    }

    /// Whether the endpoint may ask for writes to be durable, if it does.
    fn check_durability(&self, flags: OpFlags) -> Result<(), Error> {
        if flags.contains(OpFlags::COMMIT_COMPLETE) { self.shared.check_caps(Caps::RMA_PMEM) } else { Ok(()) }
    }

    fn check_write(&self, len_bytes: usize, inject: bool) -> Result<(), Error> {
        self.shared.check_caps(Caps::RMA | Caps::WRITE)?;
        let max_bytes = self.shared.info.tx.inject_size_bytes;
        if inject && len_bytes > max_bytes {
            return Err(Misuse::TooLong { len_bytes: len_bytes as u64, max_bytes: max_bytes as u64 }.into());
        }
        Ok(())
    }
}

/// Hands the one piece back that a write was refused with.
#[cold]
fn unwritten(rejected: Rejected<RmaLocal>) -> Rejected<Bytes> {
    rejected.map(|local| local.into_buffer().into_sent().unwrap_or_default())
}

/// Hands the pieces back that a write was refused with.
#[cold]
fn unwritten_vector(rejected: Rejected<RmaLocal>) -> Rejected<Vec<Bytes>> {
    rejected.map(|local| local.into_buffer().into_sent_vector().unwrap_or_default())
}

/// Hands the one buffer back that a read was refused with.
#[cold]
fn unread(rejected: Rejected<RmaLocal>) -> Rejected<BytesMut> {
    rejected.map(|local| local.into_buffer().into_received().unwrap_or_default())
}

/// Hands the buffers back that a read was refused with.
#[cold]
fn unread_vector(rejected: Rejected<RmaLocal>) -> Rejected<Vec<BytesMut>> {
    rejected.map(|local| local.into_buffer().into_received_vector().unwrap_or_default())
}
