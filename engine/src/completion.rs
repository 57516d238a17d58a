//! The engine's reports of ended operations.

use crate::buffer::Buffer;
use crate::connection::ConnectionReport;
use crate::error::OperationError;
use crate::flags::{CompletionFlags, CounterEvents};
use crate::mutated;
use crate::operation::RmaLocal;
use crate::peer_id::PeerId;
use crate::peers::Peers;
use crate::reassembly::clamp_to_usize;

/// An ended operation: the contents of a completion queue entry, `fi_cq(3)`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndedOperation {
    /// The context that the operation was posted with.
    pub context: u64,
    /// The kind of operation.
    pub flags: CompletionFlags,
    /// For a receive, the number of bytes placed. For a write of a peer, and for a read, a write or a flush
    /// that has succeeded, its length. 0 for sends and atomic operations.
    pub len_bytes: usize,
    /// The remote data, if [`CompletionFlags::REMOTE_CQ_DATA`] is set.
    pub data: u64,
    /// The tag of a received tagged message.
    pub tag: u64,
    /// The sender of a received message.
    pub source: Option<PeerId>,
    /// The buffer that the operation was posted with. The completion hands it back.
    pub buffer: Buffer,
}

/// A receive that has succeeded and hands no buffer back. The fields are those of [`EndedOperation`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "`EndedOperation` documents them")]
pub struct Received {
    pub context: u64,
    pub flags: CompletionFlags,
    pub len_bytes: usize,
    pub data: u64,
    pub tag: u64,
    pub source: PeerId,
}

impl From<Received> for EndedOperation {
    #[inline(always)]
    fn from(received: Received) -> EndedOperation {
        let Received { context, flags, len_bytes, data, tag, source } = received;
        EndedOperation { context, flags, len_bytes, data, tag, source: Some(source), buffer: Buffer::None }
    }
}

impl EndedOperation {
    /// Returns the completion of an operation on a peer, without a length.
    #[inline(always)]
    pub fn of_transmit(context: u64, flags: CompletionFlags, buffer: Buffer) -> EndedOperation {
        EndedOperation { context, flags, len_bytes: 0, data: 0, tag: 0, source: None, buffer }
    }

    /// Returns the completion of a send.
    #[inline(always)]
    pub fn of_send(context: u64, is_tagged: bool, buffer: Buffer) -> EndedOperation {
        let mut flags = CompletionFlags::of_send(is_tagged);
        if mutated!("fi_cq/flag-msg") {
            flags.remove(CompletionFlags::MSG);
        }
        EndedOperation::of_transmit(context, flags, buffer)
    }

    /// Takes the application's memory out of a read or a write that has succeeded. Returns the completion.
    #[inline(always)]
    pub fn of_rma(context: u64, local: &mut RmaLocal) -> EndedOperation {
        let (flags, len_bytes) = (local.completion_flags(), local.len_bytes());
        EndedOperation { len_bytes, ..EndedOperation::of_transmit(context, flags, local.take_buffer()) }
    }

    /// Returns the completion of a flush of a range of this length.
    pub fn of_flush(context: u64, len_bytes: u64) -> EndedOperation {
        let len_bytes = clamp_to_usize(len_bytes);
        let completion = EndedOperation::of_transmit(context, CompletionFlags::OF_FLUSH, Buffer::None);
        EndedOperation { len_bytes, ..completion }
    }
}

/// A failed operation: `struct fi_cq_err_entry`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailedOperation {
    /// The operation, as far as it got.
    pub completion: EndedOperation,
    /// Why it failed.
    pub error: OperationError,
    /// The target of a send or an access, if the engine knows it when the operation ends. `None` for a
    /// receive: `completion` names its source.
    pub target: Option<PeerId>,
}

impl FailedOperation {
    /// Returns the operation's peer, if the engine knows it. For a send or an access, this is the target.
    /// For a receive, this is the sender of its message. For a receive without a message, this is the only
    /// source that the receive accepts.
    pub fn peer(&self) -> Option<PeerId> {
        self.target.or(self.completion.source)
    }

    /// Whether this is a receive that its message has made fail: the receive was too short, or the payload
    /// could not be read.
    pub(crate) fn is_receive_failed_by_message(&self) -> bool {
        self.completion.flags.contains(CompletionFlags::RECV)
            && matches!(self.error, OperationError::Truncated { .. } | OperationError::Fault)
    }
}

/// How to report an ended operation that was deferred work. The end of the work itself is already recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkEnd {
    /// The application's context.
    pub context: u64,
    /// Whether to count the operation and report its success. A failure is always reported.
    pub is_reported: bool,
}

/// The destination of completions: an endpoint's completion queues, counters, and event queue.
///
/// A sink without room hands the entry back to the engine. The engine keeps the entry and offers it again,
/// in order, in [`Engine::deliver_held`](crate::Engine::deliver_held).
pub trait Sink {
    /// Takes the completion of an operation that succeeded.
    ///
    /// # Errors
    ///
    /// Hands the completion back if there is no room.
    fn complete(&mut self, completion: EndedOperation, peers: &Peers) -> Result<(), EndedOperation>;

    /// Takes the completion of a receive that has succeeded and hands no buffer back, if the sink has a
    /// shorter way for it than [`complete`](Self::complete). Returns whether it has taken the completion.
    #[inline(always)]
    fn complete_receive(&mut self, received: Received, peers: &Peers) -> bool {
        let _ = (received, peers);
        false
    }

    /// Takes the completion of an operation that failed.
    ///
    /// # Errors
    ///
    /// Hands the failure back if there is no room.
    fn fail(&mut self, failure: FailedOperation, peers: &Peers) -> Result<(), FailedOperation>;

    /// Whether the sink counts operations. If not, the engine need not call [`count`](Self::count) or
    /// [`count_error`](Self::count_error).
    #[inline(always)]
    fn has_counters(&self) -> bool {
        false
    }

    /// Counts an operation that has succeeded. The engine calls this once for each operation, even if the
    /// operation is not reported or the completion is held. If completions keep an order, the engine waits
    /// for the operation's turn.
    fn count(&mut self, _events: CounterEvents) {}

    /// As [`count`](Self::count), for an operation that has failed.
    fn count_error(&mut self, _events: CounterEvents) {}

    /// Records the end of deferred work: an operation posted as
    /// [`Signalled::Deferred`](crate::operation::Signalled). The engine calls this once, when the work ends.
    /// By default, the operation is then counted and reported like any other.
    fn record_deferred_work_end(&mut self, number: u64, _has_succeeded: bool) -> WorkEnd {
        WorkEnd { context: number, is_reported: true }
    }

    /// Drops whatever the sink keeps for each [`PeerId`]. The engine calls this after it has forgotten
    /// peers, because their ids may now stand for other peers. Between two calls, an id always stands for
    /// the same peer.
    fn clear_peer_cache(&mut self) {}

    /// Takes an event of a connection. The sink must always have room for the event. Little room suffices: an
    /// unconnected endpoint has no events, and a connected endpoint has few. A passive endpoint has at most
    /// one event for each request in its backlog, if the sink drops the events of withdrawn requests.
    fn report_connection_event(&mut self, event: ConnectionReport) {
        let _ = event;
    }
}
