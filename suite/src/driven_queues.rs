//! The queues of all parties of a network, to be driven.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use homespun::CompletionQueue;

use super::call::RemoteCall;
use super::handle::Queue;
use super::remote_party::RemoteParty;

/// The queues of all parties. A test that waits for one queue drives all queues.
#[derive(Debug, Default)]
pub(super) struct DrivenQueues {
    all: Mutex<Vec<Driven>>,
    stopped: AtomicBool,
}

/// A queue that tests drive.
#[derive(Debug, Clone)]
pub(super) enum Driven {
    Here(CompletionQueue),
    /// The queues of a party that answers calls. The reference is weak, because a party's process ends with
    /// the last strong reference to the party.
    There(Weak<RemoteParty>),
}

impl Driven {
    pub(super) fn progress(&self) {
        match self {
            Driven::Here(cq) => cq.progress(),
            Driven::There(party) => {
                if let Some(party) = party.upgrade() {
                    party.progress_if_idle();
                }
            }
        }
    }
}

impl DrivenQueues {
    /// Adds a queue, and has the process of a party in another one drive it.
    pub(super) fn add(&self, queue: &Queue) -> Driven {
        let driven = match queue {
            Queue::Here(cq) => Driven::Here(cq.clone()),
            Queue::There { remote, .. } => {
                remote.call(RemoteCall::StartDriving).result().expect("this call is not refused");
                Driven::There(Arc::downgrade(remote))
            }
        };
        self.lock_all().push(driven.clone());
        driven
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
        all.iter().for_each(Driven::progress);
    }

    fn lock_all(&self) -> MutexGuard<'_, Vec<Driven>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
