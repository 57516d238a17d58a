//! Flushes: an operation of homespun's own, which `fi_rma(3)` does not have.

use homespun_engine::error::Error;
use homespun_engine::flags::OpFlags;
use homespun_engine::operation::{FlushKind, TransmitOp};
use homespun_engine::remote_memory::RemoteMemory;

use super::Endpoint;
use crate::av::FabricAddress;
use crate::post::Post;

/// A flush with all options, for [`flushmsg`](Endpoint::flushmsg).
#[derive(Debug, Clone, Copy, Default)]
pub struct FlushMsg {
    /// What the flush makes sure of.
    pub kind: FlushKind,
    /// The peer's endpoint through which the flush reaches the region: an address of this endpoint's
    /// vector. A connected endpoint ignores it.
    pub to: FabricAddress,
    /// The start of the range, in the peer's memory.
    pub memory: RemoteMemory,
    /// The length of the range.
    pub len_bytes: u64,
    /// The context of the completion.
    pub context: u64,
    /// Flags, as [`SendMsg::flags`](super::SendMsg::flags). With [`OpFlags::FENCE`] the flush also waits for
    /// all other earlier operations on the peer. The [kind](Self::kind) says what the flush makes sure of:
    /// a persistent flush ignores `COMMIT_COMPLETE`, as injection and remote data, and the other refuses it.
    pub flags: OpFlags,
}

/// Flushes: for programs that write to a peer's memory and need to know when the peer, or its device, has
/// it.
impl Endpoint {
    /// Flushes a range of a region of a peer.
    ///
    /// A flush is ordered after all earlier writes and atomic operations of this endpoint on the peer, with
    /// or without a message order. When it completes, all of these have been carried out, and are visible to
    /// the peer's processors. With [`FlushKind::Persistent`] the range is durable, too, including the bytes
    /// that others have written to it: the peer has called `msync(2)` for it, or flushed the processor's
    /// caches, as for [`COMMIT_COMPLETE`](OpFlags::COMMIT_COMPLETE). Nothing outside the range becomes
    /// durable, except other bytes of the same pages or cache lines. Messages, reads, writes and atomic
    /// operations that the endpoint posts later on the peer are carried out after the flush, unless the
    /// peer's endpoint is replaced meanwhile by one with the same address.
    ///
    /// The peer makes a long range durable in parts, so that it can serve others in between. Until it has
    /// answered the flush, later operations on the peer other than flushes wait.
    ///
    /// A write completes anyway when the peer has answered it, so a flush for visibility says nothing more
    /// than the completions of all earlier writes. But with it, these need not be reported. If the region is
    /// [mapped](crate::MrAttr::shareable), and the peer has answered all earlier accesses, the flush needs no
    /// round trip and completes at once.
    ///
    /// The completion has the flag [`FLUSH`](crate::CompletionFlags::FLUSH), the
    /// [kind](crate::Completion::kind) [`Flush`](crate::OperationKind::Flush), and the length of the range.
    /// Counters of writes count the flush. The peer's counters do not.
    ///
    /// ```
    /// use homespun::flags::{BindFlags, InfoFlags, MrAccess};
    /// use homespun::{AvAttr, CqAttr, Fabric, FlushKind, MrAttr, OperationKind};
    ///
    /// # let fabric = Fabric::new();
    /// # let info = &fabric.getinfo(Some("127.0.0.1"), None, InfoFlags::SOURCE, None)?[0];
    /// # let domain = fabric.domain(info)?;
    /// # let (cq, av) = (domain.open_cq(&CqAttr::default())?, domain.open_av(&AvAttr::default())?);
    /// # let endpoint = domain.endpoint(info)?;
    /// # endpoint.bind_cq(&cq, BindFlags::TRANSMIT | BindFlags::RECV)?;
    /// # endpoint.bind_av(&av)?;
    /// # endpoint.enable()?;
    /// # let to = av.insert(&[endpoint.name()?]).remove(0)?;
    /// # let path = std::env::temp_dir().join(format!("homespun-flush-{}", std::process::id()));
    /// let file = std::fs::File::options().read(true).write(true).create_new(true).open(&path)?;
    /// file.set_len(4096)?;
    /// let log = domain.register_file(&file, 0, 4096, &MrAttr::granting(MrAccess::REMOTE_WRITE))?;
    ///
    /// // Here the endpoint writes to itself. The injected writes report nothing, and the flush makes both
    /// // durable.
    /// endpoint.inject_write(b"first, ", to, log.remote(), None)?;
    /// endpoint.inject_write(b"second", to, log.remote().offset(7), None)?;
    /// endpoint.flush(13, to, log.remote(), FlushKind::Persistent, 1)?;
    /// let completion = loop {
    ///     if let Some(completion) = cq.read().expect("no failure") {
    ///         break completion;
    ///     }
    /// };
    /// assert_eq!((completion.kind(), completion.len_bytes), (OperationKind::Flush, 13));
    /// assert!(std::fs::read(&path)?.starts_with(b"first, second"));
    /// # std::fs::remove_file(&path)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`post_send`](Self::post_send). For a persistent flush the endpoint needs the capability
    /// `RMA_PMEM`.
    ///
    /// The flush ends with an error if the region does not exist, is shorter than the range, or does not
    /// allow peers to write; if a region is to be persistent and is not; if the range could not be made
    /// durable; and if the link to the peer ends. A flush for visibility of no bytes may name any key.
    pub fn flush(
        &self,
        len_bytes: u64,
        to: FabricAddress,
        memory: RemoteMemory,
        kind: FlushKind,
        context: u64,
    ) -> Result<(), Error> {
        self.flushmsg(FlushMsg { kind, to, memory, len_bytes, context, flags: self.uncommitted_op_flags() })
    }

    /// Flushes a range of a region of a peer, as [`flush`](Self::flush), with all options.
    ///
    /// # Errors
    ///
    /// As [`flush`](Self::flush).
    pub fn flushmsg(&self, flush: FlushMsg) -> Result<(), Error> {
        let FlushMsg { kind, to, memory, len_bytes, context, flags } = flush;
        let op = TransmitOp::Flush { kind, memory, len_bytes };
        self.post_with_flags(&mut Post::new(to, op, context), flags)
    }
}
