//! The engine's reports of ended operations.

use crate::buffer::Buffer;
use crate::connection::ConnectionReport;
use crate::error::OperationError;
use crate::flags::{CompletionFlags, CounterEvents};
use crate::peer_id::PeerId;
use crate::peers::Peers;

/// An ended operation: the contents of a completion queue entry, `fi_cq(3)`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndedOperation {
    /// The context that the operation was posted with.
    pub context: u64,
    /// The kind of operation.
    pub flags: CompletionFlags,
    /// For a receive, the number of bytes placed.
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

impl EndedOperation {
    /// Returns the completion of an operation on a peer.
    #[inline(always)]
    pub fn of_transmit(context: u64, flags: CompletionFlags, buffer: Buffer) -> EndedOperation {
        EndedOperation { context, flags, len_bytes: 0, data: 0, tag: 0, source: None, buffer }
    }
}

/// A failed operation: `struct fi_cq_err_entry`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailedOperation {
    /// The operation, as far as it got.
    pub completion: EndedOperation,
    /// Why it failed.
    pub error: OperationError,
    /// The target of a send or an access, if it is known when the operation ends. If the peer of a
    /// receive is known, it is the source in `completion`.
    pub target: Option<PeerId>,
}

impl FailedOperation {
    /// Returns the operation's peer, if it is known. For a send or an access, this is the target. For a
    /// receive, this is the sender of its message or, without a message, the only source that the
    /// receive names.
    pub fn peer(&self) -> Option<PeerId> {
        self.target.or(self.completion.source)
    }
}

/// How to report an ended operation that was deferred work. The end of the work is recorded in any case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkEnd {
    /// The application's context.
    pub context: u64,
    /// Whether to count the operation, and to report its success, like any other. Failure is always
    /// reported.
    pub is_reported: bool,
}

/// The destination of completions: an endpoint's completion queues, counters, and event queue.
///
/// A sink without room hands the entry back. The engine keeps such entries in order until
/// [`Engine::deliver_held`](crate::Engine::deliver_held).
pub trait Sink {
    /// Takes the completion of an operation that succeeded.
    ///
    /// # Errors
    ///
    /// Hands the completion back if there is no room.
    fn complete(&mut self, completion: EndedOperation, peers: &Peers) -> Result<(), EndedOperation>;

    /// Takes the completion of an operation that failed.
    ///
    /// # Errors
    ///
    /// Hands the failure back if there is no room.
    fn fail(&mut self, failure: FailedOperation, peers: &Peers) -> Result<(), FailedOperation>;

    /// Whether the sink counts operations. If not, the engine need not call [`count`](Self::count) and
    /// [`count_error`](Self::count_error).
    #[inline(always)]
    fn has_counters(&self) -> bool {
        false
    }

    /// Counts an operation that has succeeded. The engine calls this once, even if the operation is
    /// not reported or its completion has to wait for room. If completions keep an order, the
    /// engine makes the call when it is the operation's turn.
    fn count(&mut self, _events: CounterEvents) {}

    /// As [`count`](Self::count), for an operation that has failed.
    fn count_error(&mut self, _events: CounterEvents) {}

    /// Records the end of deferred work, that is, of an operation that was posted as
    /// [`Signalled::Deferred`](crate::operation::Signalled). The engine calls this once, when the
    /// work ends. By default, the operation is then counted and reported like any other.
    fn record_deferred_work_end(&mut self, number: u64, _has_succeeded: bool) -> WorkEnd {
        WorkEnd { context: number, is_reported: true }
    }

    /// Drops whatever the sink has kept for each [`PeerId`]. The engine has forgotten some peers, and
    /// may give their ids to other peers from now on. Between two such calls, an id always stands for
    /// the same peer.
    fn clear_peer_cache(&mut self) {}

    /// Takes an event of a connection. The sink must always have room for it. A connected endpoint has
    /// few such events in its life. At a passive endpoint, the sink holds at most one event for each
    /// request that the backlog has room for, if the sink forgets withdrawn requests. An unconnected
    /// endpoint has no such events.
    fn report_connection_event(&mut self, event: ConnectionReport) {
        let _ = event;
    }
}
