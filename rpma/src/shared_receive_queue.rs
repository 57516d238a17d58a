//! Receives that connections share.

use std::sync::Arc;

use homespun::flags::OpFlags;
use homespun::{FabricAddress, RecvMsg, SharedReceiveContext, mutated};

use crate::channel::{Channel, Role, Sharing};
use crate::completion_queue::CompletionQueue;
use crate::error::Error;
use crate::kept_completions::KeptReceives;
use crate::memory_region::LocalSlice;
use crate::native_queue::NativeQueue;
use crate::peer::Peer;
use crate::usage::Usage;

/// The configuration of a [`SharedReceiveQueue`]: `rpma_srq_cfg_new(3)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SharedReceiveQueueConfig {
    /// The number of receives that may be posted: `rpma_srq_cfg_set_rq_size(3)`. 20 by default. 0 counts as
    /// 1.
    pub receive_queue_size: u32,
    /// The number of completions that the queue holds for each connection: `rpma_srq_cfg_set_rcq_size(3)`. 20
    /// by default. With 0, the shared receive queue has no completion queue.
    pub receive_completion_queue_size: u32,
}

impl Default for SharedReceiveQueueConfig {
    fn default() -> SharedReceiveQueueConfig {
        SharedReceiveQueueConfig { receive_queue_size: 20, receive_completion_queue_size: 20 }
    }
}

/// Receives for several connections: `rpma_srq_new(3)`.
///
/// A connection uses it if its [configuration](crate::ConnectionConfig::shared_receive_queue) has it. A
/// message, or a write with immediate data, that reaches one of the connections takes the receive that was
/// posted first. Receives complete in the [queue](Self::completion_queue) of the shared receive queue, or, if
/// it has none, in that of the connection. The completion has the [number](crate::Completion::qp_number) of
/// the connection. If a connection ends, the receives stay posted for the others.
///
/// Clones are handles to the same queue.
///
/// ```
/// use homespun_rpma::{ConnectionConfig, LocalSlice, Peer, SharedReceiveQueue};
///
/// let peer = Peer::new()?;
/// let queue = SharedReceiveQueue::new(&peer, None)?;
/// queue.recv(LocalSlice::EMPTY, 1)?;
/// let config = ConnectionConfig { shared_receive_queue: Some(queue), ..ConnectionConfig::default() };
/// # Ok::<(), homespun_rpma::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct SharedReceiveQueue {
    context: SharedReceiveContext,
    completions: Option<SharedCompletions>,
    kept: Arc<KeptReceives>,
}

#[derive(Debug, Clone)]
struct SharedCompletions {
    channel: Arc<Channel>,
    queue: CompletionQueue,
    size_entries: usize,
}

impl SharedReceiveQueue {
    /// How many bytes the completions of receives may take that are kept because the application has not read
    /// them: those of connections that it has dropped, and those for the receive queue of a [shared
    /// channel](crate::ConnectionConfig::shared_completion_channel) while it reads the main queue. Then
    /// [`recv`](Self::recv) posts no more.
    pub const KEPT_COMPLETIONS_MAX_BYTES: usize = 1 << 20;

    /// Opens a shared receive queue. Without a configuration, the default one applies.
    ///
    /// # Errors
    ///
    /// [`Error::Fabric`] if more receives are asked for than a queue can have.
    pub fn new(peer: &Peer, config: Option<&SharedReceiveQueueConfig>) -> Result<SharedReceiveQueue, Error> {
        let SharedReceiveQueueConfig { receive_queue_size, receive_completion_queue_size } =
            config.copied().unwrap_or_default();
        let mut attr = peer.fabric().info(&peer.hints())?.rx;
        attr.size_ops = receive_queue_size.max(1) as usize;
        let context = peer.domain().shared_receive_context(&attr)?;
        let kept = Arc::new(KeptReceives::default());
        let completions = (receive_completion_queue_size > 0).then(|| {
            let channel = Channel::new(Sharing::AcrossConnections, Some(kept.clone()));
            let queue = CompletionQueue::new(&channel, Role::Main);
            SharedCompletions { channel, queue, size_entries: receive_completion_queue_size as usize }
        });
        Ok(SharedReceiveQueue { context, completions, kept })
    }

    /// Posts a receive into `dst`: `rpma_srq_recv(3)`. With [`LocalSlice::EMPTY`], the receive has room for
    /// no bytes.
    ///
    /// # Errors
    ///
    /// - [`Invalid::LocalUsage`](crate::Invalid::LocalUsage) if the region lacks [`Usage::RECV`].
    /// - [`Error::QueueFull`] if as many receives are posted as the queue holds, or if the application has
    ///   left [too many completions](Self::KEPT_COMPLETIONS_MAX_BYTES) unread.
    pub fn recv(&self, dst: LocalSlice<'_>, op_context: u64) -> Result<(), Error> {
        if !self.kept.take_less_than(Self::KEPT_COMPLETIONS_MAX_BYTES)
            && !mutated!("rpma_srq_new/unread-completions-are-limited")
        {
            return Err(Error::QueueFull);
        }
        let receive = RecvMsg {
            buffers: &[dst.destination(Usage::RECV)?][..],
            from: FabricAddress::UNSPECIFIED,
            context: op_context,
            flags: OpFlags::empty(),
            ..RecvMsg::default()
        };
        // SAFETY: the caller who registered the region has promised that its memory is there, and that
        // nothing else uses the slice, until the receive has ended.
        unsafe { self.context.post_receive(&receive) }.map_err(Error::from)
    }

    /// Returns the queue in which the receives of all connections complete: `rpma_srq_get_rcq(3)`.
    pub fn completion_queue(&self) -> Option<&CompletionQueue> {
        self.completions.as_ref().map(|completions| &completions.queue)
    }

    /// Takes note of a connection that has begun or ended.
    pub(crate) fn update_connections(&self) {
        if let Some(completions) = &self.completions {
            completions.channel.update_queues();
        }
    }

    /// Returns the counter of the receives that are kept.
    pub(crate) fn kept_receives(&self) -> Arc<KeptReceives> {
        self.kept.clone()
    }

    /// Returns the native context.
    pub(crate) fn context(&self) -> &SharedReceiveContext {
        &self.context
    }

    /// Opens the native queue of a connection's receives, if they complete in the queue of this object.
    pub(crate) fn open_queue(&self, peer: &Peer, qp_number: u32) -> Result<Option<Arc<NativeQueue>>, Error> {
        let open =
            |completions: &SharedCompletions| NativeQueue::open(peer, completions.size_entries, qp_number);
        let completions = self.completions.as_ref();
        let is_broken = mutated!("rpma_srq_new/completions-of-shared-receives");
        completions.filter(|_| !is_broken).map(open).transpose()
    }

    /// Adds the native queue of a connection to the queue of this object, if it has one.
    pub(crate) fn add_queue(&self, queue: &Arc<NativeQueue>) -> Result<(), Error> {
        self.completions.as_ref().map_or(Ok(()), |completions| completions.channel.add_queue(queue))
    }
}
