//! The queues of all parties of a network, to be driven.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use homespun::CompletionQueue;

use super::call::RemoteCall;
use super::remote_party::RemoteParty;

/// The queues of all parties. A test that waits for one queue drives all queues.
#[derive(Debug, Default)]
pub(super) struct DrivenQueues {
    all: Mutex<Vec<Driven>>,
    stopped: AtomicBool,
}

/// A queue that tests drive.
#[derive(Debug, Clone)]
enum Driven {
    Here(CompletionQueue),
    /// The queues of a party in another process. The reference is weak, because the process ends with the
    /// last strong reference to the party.
    There(Weak<RemoteParty>),
}

impl DrivenQueues {
    /// Adds a queue of this process.
    pub(super) fn add(&self, cq: &CompletionQueue) {
        self.lock_all().push(Driven::Here(cq.clone()));
    }

    /// Adds the queues of a party in another process, and has that process drive them.
    pub(super) fn add_remote_party_and_start_driving(&self, party: &Arc<RemoteParty>) {
        party.call_for_result(&RemoteCall::StartDriving).expect("this call is not refused");
        self.lock_all().push(Driven::There(Arc::downgrade(party)));
    }

    /// Tells the threads that drive queues to end.
    pub(super) fn request_stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }

    /// Whether the threads that drive queues should end.
    pub(super) fn is_stop_requested(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    /// Drives all queues once.
    pub(super) fn progress(&self) {
        let all = self.lock_all().clone();
        for queue in &all {
            match queue {
                Driven::Here(cq) => cq.progress(),
                Driven::There(party) => {
                    if let Some(party) = party.upgrade() {
                        party.call_if_alive(&RemoteCall::Progress);
                    }
                }
            }
        }
    }

    fn lock_all(&self) -> MutexGuard<'_, Vec<Driven>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
