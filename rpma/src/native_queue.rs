//! The native completion queues of connections.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use homespun::{
    CompletionQueue, CqAttr, CqFormat, Entry, OperationError, OperationKind, WaitObject, mutated,
};
use parking_lot::{Mutex, MutexGuard};

use crate::completion::Completion;
use crate::error::Error;
use crate::peer::Peer;

/// A native completion queue of one connection.
#[derive(Debug)]
pub(crate) struct NativeQueue {
    queue: CompletionQueue,
    qp_number: u32,
    /// The lengths of the messages whose sends will report their success, the oldest first. Sends complete in
    /// the order of posting, and a native completion has no length for them.
    sent_bytes: Mutex<VecDeque<u32>>,
    /// Whether the connection is gone, so that no more completions come.
    has_ended: AtomicBool,
}

impl NativeQueue {
    /// # Errors
    ///
    /// The system's error: EMFILE, ENFILE, ENOMEM.
    pub(crate) fn open(peer: &Peer, size_entries: usize, qp_number: u32) -> Result<Arc<NativeQueue>, Error> {
        let format = Some(CqFormat::Data);
        let attr = CqAttr { size_entries, format, wait: WaitObject::Fd, ..CqAttr::default() };
        Ok(Arc::new(NativeQueue {
            queue: peer.domain().open_cq(&attr)?,
            qp_number,
            sent_bytes: Mutex::default(),
            has_ended: AtomicBool::new(false),
        }))
    }

    pub(crate) fn queue(&self) -> &CompletionQueue {
        &self.queue
    }

    /// Locks the lengths of sends, while a call posts one. Readers hold the lock of the channel when they
    /// lock the lengths, so the caller must not lock the channel meanwhile.
    pub(crate) fn lock_sent_bytes(&self) -> MutexGuard<'_, VecDeque<u32>> {
        self.sent_bytes.lock()
    }

    pub(crate) fn read(&self) -> Option<Completion> {
        let entry = self.queue.read_entry().expect("the queue of a domain that protects it from overruns")?;
        if let Entry::Failed(failed) = &entry {
            let is_lost = match failed.completion.kind() {
                OperationKind::Read | OperationKind::Write => {
                    mutated!("rpma_cq_get_completion/access-error-completes")
                }
                OperationKind::Atomic => mutated!("rpma_cq_get_completion/atomic-write-error-completes"),
                OperationKind::Flush => mutated!("rpma_cq_get_completion/flush-error-completes"),
                OperationKind::Send => mutated!("rpma_cq_get_completion/send-error-completes"),
                OperationKind::Receive => mutated!("rpma_cq_get_completion/receive-error-completes"),
                _ => false,
            };
            if is_lost
                || mutated!("rpma_cq_get_completion/later-operations-complete-after-error")
                    && failed.error == OperationError::Flushed
                || mutated!("rpma_cq_wait/end-of-connection-ends-wait")
                    && failed.completion.kind() == OperationKind::Receive
            {
                return None;
            }
        }
        Some(match entry {
            Entry::Completed(completion, _) | Entry::UnknownSource(completion, _) => {
                Completion::from_success(&completion, self.qp_number, || {
                    self.sent_bytes.lock().pop_front().expect("each send that reports has left its length")
                })
            }
            Entry::Failed(failed) => Completion::from_failure(&failed, self.qp_number),
        })
    }

    /// Makes the next completion wake the threads that wait for the descriptor. Returns false, and leaves the
    /// descriptor readable, if there may be one already, or the connection is gone.
    pub(crate) fn try_wait(&self) -> bool {
        if self.has_ended() {
            return false;
        }
        let may_wait = self.queue.try_wait().expect("the queue has a wait object");
        // The end may have come between the two calls. Then `try_wait` has silenced the descriptor.
        if may_wait && self.has_ended() {
            self.wake_waiting_threads();
            return false;
        }
        may_wait
    }

    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.queue.wait_fd().expect("the queue has a descriptor as its wait object")
    }

    /// Says that the connection is gone, and wakes the threads that wait.
    pub(crate) fn end(&self) {
        // Either this call finds the queue armed, or the thread that arms it finds the connection gone.
        self.has_ended.store(true, Ordering::SeqCst);
        self.wake_waiting_threads();
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::SeqCst)
    }

    fn wake_waiting_threads(&self) {
        self.queue.signal();
    }
}
