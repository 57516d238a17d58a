//! The queues of all parties of a network, to be driven.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::{self, JoinHandle};

use homespun::CompletionQueue;

use super::call::RemoteCall;
use super::handle::Queue;
use super::remote_party::RemoteParty;

/// The queues of all parties. A test that waits for one queue drives all queues.
#[derive(Debug, Default)]
pub(super) struct DrivenQueues {
    all: Mutex<Vec<Driven>>,
}

/// A thread that makes progress until this is dropped.
#[derive(Debug)]
pub(super) struct Driver {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Driver {
    pub(super) fn spawn(progress: impl Fn() + Send + 'static) -> Driver {
        let is_over = Arc::new(AtomicBool::new(false));
        let until = is_over.clone();
        let thread = thread::spawn(move || {
            while !until.load(Ordering::Relaxed) {
                progress();
                thread::yield_now();
            }
        });
        Driver { is_over, thread: Some(thread) }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        let has_panicked = self.thread.take().is_some_and(|thread| thread.join().is_err());
        assert!(thread::panicking() || !has_panicked, "driving endpoints does not panic");
    }
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

    /// Drives all queues once.
    pub(super) fn progress(&self) {
        let all = self.lock_all().clone();
        all.iter().for_each(Driven::progress);
    }

    fn lock_all(&self) -> MutexGuard<'_, Vec<Driven>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
