//! What the engine reports of operations that have ended.

use crate::buffer::Buffer;
use crate::connection::ConnectionReport;
use crate::error::OperationError;
use crate::flags::{CompletionFlags, CounterEvents};
use crate::peer_id::PeerId;
use crate::peers::Peers;

/// An operation that has ended: what a completion queue entry is made of, `fi_cq(3)`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndedOperation {
    /// The context that the operation was posted with.
    pub context: u64,
    /// What kind of operation it was.
    pub flags: CompletionFlags,
    /// For a receive, how many bytes were placed.
    pub len_bytes: usize,
    /// The remote data, if [`CompletionFlags::REMOTE_CQ_DATA`] is set.
    pub data: u64,
    /// The tag of a received tagged message.
    pub tag: u64,
    /// The sender of a received message.
    pub source: Option<PeerId>,
    /// The buffer that the operation was posted with, on its way back.
    pub buffer: Buffer,
}

/// An operation that has ended without success: `struct fi_cq_err_entry`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailedOperation {
    /// The operation, as far as it got.
    pub completion: EndedOperation,
    /// Why it failed.
    pub error: OperationError,
    /// The peer that a send or an access was meant for, where it is known as that ends. A receive
    /// has its peer, if one is known, as the source of its completion.
    pub target: Option<PeerId>,
}

impl FailedOperation {
    /// The other end of the operation, if it is known: its target, its sender, or the only sender that it
    /// would have accepted a message of.
    pub fn peer(&self) -> Option<PeerId> {
        self.target.or(self.completion.source)
    }
}

/// What to report of deferred work that has ended, beside its end itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkEnd {
    /// The application's context.
    pub context: u64,
    /// Whether it is counted, and its success reported, as that of any operation. Failure is always reported.
    pub is_reported: bool,
}

/// Where completions go: the completion queues of an endpoint, its counters, and its event queue.
///
/// A sink without room hands the entry back, and the engine keeps it, in order, until
/// [`Engine::deliver_held`](crate::Engine::deliver_held).
pub trait Sink {
    /// Takes the completion of an operation that succeeded.
    ///
    /// # Errors
    ///
    /// Hands it back if there is no room.
    fn complete(&mut self, completion: EndedOperation, peers: &Peers) -> Result<(), EndedOperation>;

    /// Takes the completion of an operation that failed.
    ///
    /// # Errors
    ///
    /// Hands it back if there is no room.
    fn fail(&mut self, failure: FailedOperation, peers: &Peers) -> Result<(), FailedOperation>;

    /// Whether anything is counted. If not, [`count`](Self::count) and
    /// [`count_error`](Self::count_error) need not be called.
    #[inline(always)]
    fn has_counters(&self) -> bool {
        false
    }

    /// Counts an operation that has succeeded: once, as it succeeds, whether it is also reported or
    /// not, and whether there is room for its completion.
    fn count(&mut self, _events: CounterEvents) {}

    /// Counts an operation that has failed; otherwise as [`count`](Self::count).
    fn count_error(&mut self, _events: CounterEvents) {}

    /// Deferred work has ended: an operation that was posted as
    /// [`Signalled::Deferred`](crate::operation::Signalled). The engine calls this once, as the
    /// work ends. By default it is an operation like any other.
    fn deferred_work_ended(&mut self, number: u64, _has_succeeded: bool) -> WorkEnd {
        WorkEnd { context: number, is_reported: true }
    }

    /// Takes what has happened to a connection. There is always room for it: an endpoint has few
    /// such events in its life, and of a passive endpoint no more requests are unanswered than its
    /// backlog says, if those that are withdrawn are forgotten. Endpoints without connections have
    /// none.
    fn report_connection_event(&mut self, event: ConnectionReport) {
        let _ = event;
    }
}
