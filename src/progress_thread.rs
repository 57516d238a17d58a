//! Automatic progress: a thread that drives the endpoints of a domain while the application does not.
//!
//! The thread sleeps on an [`EpollSet`] until a transport has work. An application that polls is faster than
//! the thread, and the two would slow each other down. So the thread *mutes* an endpoint that the
//! application polls: the thread makes no passes over the endpoint, and checks now and then whether the
//! application still polls. [`WatchResult`] lists the states in which the thread finds an endpoint.
//!
//! The thread waits for no particular condition, so it has no [`Waiter`](crate::wait::Waiter). Each round
//! has three steps. If an event comes during a step, a later step finds the event, or the sleep ends at
//! once:
//!
//! 1. arm the doorbell: from now on it rings when a thread adds an endpoint, or leaves work to an endpoint;
//! 2. visit the endpoints: make a pass over each, and arm its transport if the pass has found no work;
//! 3. sleep, unless there was work.

use std::mem;
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use homespun_engine::error::{Error, SystemRequest};
use homespun_engine::transport::Armed;
use parking_lot::Mutex;

use crate::doorbell::Doorbell;
use crate::drive::{Drive, WatchResult};
use crate::signals::with_signals_blocked;
use crate::wait::EpollSet;

/// The time after which the thread revisits an endpoint that cannot wake it: the application polls the
/// endpoint, or the transport has no descriptor.
const REVISIT_AFTER_MS: u64 = 1;

/// The progress thread of a domain. It starts when the first endpoint is enabled, and ends with the domain.
#[derive(Default)]
pub(crate) struct ProgressThread {
    running: Mutex<Option<Running>>,
}

struct Running {
    shared: Arc<ThreadShared>,
    thread: JoinHandle<()>,
    /// The process in which the thread runs. A forked child has a copy of this structure, but no thread.
    process: u32,
}

/// State that the progress thread shares with the application's threads.
struct ThreadShared {
    doorbell: Arc<Doorbell>,
    /// The descriptors that the thread sleeps on: that of the doorbell, and those of the transports.
    sources: EpollSet,
    endpoints: Mutex<Vec<Arc<Endpoint>>>,
    is_ending: AtomicBool,
}

/// An endpoint that the thread watches.
struct Endpoint {
    drive: Arc<dyn Drive>,
    /// Whether its transport has a descriptor.
    can_wake: bool,
    /// Whether the thread ignores the endpoint's descriptor, since the application polls. Only the thread
    /// uses this.
    is_muted: AtomicBool,
}

impl ProgressThread {
    /// Starts the thread if it does not run yet. Returns the doorbell that wakes it.
    ///
    /// # Errors
    ///
    /// The system's error: EMFILE, ENFILE, ENOMEM, EAGAIN.
    pub(crate) fn start(&self) -> Result<Arc<Doorbell>, Error> {
        let mut running = self.running.lock();
        if let Some(parents) = running.take_if(|running| !running.is_of_this_process()) {
            parents.forget_after_fork();
        }
        let running = match &mut *running {
            Some(running) => running,
            none => none.insert(Running::start()?),
        };
        Ok(running.shared.doorbell.clone())
    }

    /// Makes events of this endpoint wake the thread. The caller enables the endpoint next.
    ///
    /// # Errors
    ///
    /// The system's error: ENOMEM, ENOSPC.
    pub(crate) fn add_wake_source(&self, drive: &Arc<dyn Drive>) -> Result<(), Error> {
        self.shared().map_or(Ok(()), |shared| shared.add_wake_source(drive))
    }

    /// Adds an endpoint that the thread drives. The caller has called [`start`](Self::start) and
    /// [`add_wake_source`](Self::add_wake_source), and has enabled the endpoint with the doorbell from
    /// `start`.
    pub(crate) fn add_endpoint(&self, drive: &Arc<dyn Drive>) {
        if let Some(shared) = self.shared() {
            shared.add_endpoint(drive);
        }
    }

    /// Removes an endpoint, so the thread no longer drives it. The caller must close the endpoint next.
    pub(crate) fn remove_endpoint(&self, drive: &Arc<dyn Drive>) {
        if let Some(shared) = self.shared() {
            shared.remove_endpoint(drive);
        }
    }

    /// Returns the state that the thread shares. Returns `None` if this process has no progress thread, as
    /// in a forked child. `running` is unlocked on return, so the caller may wait for an endpoint.
    fn shared(&self) -> Option<Arc<ThreadShared>> {
        let running = self.running.lock();
        running.as_ref().filter(|running| running.is_of_this_process()).map(|running| running.shared.clone())
    }
}

impl Drop for ProgressThread {
    /// Ends the thread, and waits for its end.
    fn drop(&mut self) {
        let Some(running) = self.running.get_mut().take() else { return };
        if !running.is_of_this_process() {
            return running.forget_after_fork();
        }
        running.shared.is_ending.store(true, Ordering::SeqCst);
        running.shared.doorbell.ring();
        // The progress thread itself may run this, if it drops a completion whose buffer holds the last
        // handle of the domain. It cannot wait for itself, and ends after its pass.
        if running.thread.thread().id() != thread::current().id() && running.thread.join().is_err() {
            tracing::error!("internal error: the progress thread has panicked");
        }
    }
}

impl Running {
    fn start() -> Result<Running, Error> {
        let sources = EpollSet::new()?;
        let doorbell = Arc::new(Doorbell::new()?);
        sources.add(&*doorbell)?;
        let shared = Arc::new(ThreadShared {
            doorbell,
            sources,
            endpoints: Mutex::default(),
            is_ending: AtomicBool::new(false),
        });
        let threads = shared.clone();
        let spawned = with_signals_blocked(|| {
            thread::Builder::new().name("homespun".into()).spawn(move || threads.run())
        });
        let thread = spawned.map_err(|error| SystemRequest::Thread.refused(error))?;
        Ok(Running { shared, thread, process: process::id() })
    }

    fn is_of_this_process(&self) -> bool {
        self.process == process::id()
    }

    /// Leaks this, in a forked child. The child has no thread to wait for, and shares the descriptors with
    /// the parent.
    fn forget_after_fork(self) {
        mem::forget(self);
    }
}

impl ThreadShared {
    fn add_wake_source(&self, drive: &Arc<dyn Drive>) -> Result<(), Error> {
        let mut added = Ok(());
        drive.with_wake_fd(&mut |fd| added = self.sources.add(fd));
        added
    }

    fn add_endpoint(&self, drive: &Arc<dyn Drive>) {
        let mut can_wake = false;
        drive.with_wake_fd(&mut |_| can_wake = true);
        let endpoint = Endpoint { drive: drive.clone(), can_wake, is_muted: AtomicBool::new(false) };
        self.endpoints.lock().push(Arc::new(endpoint));
        self.doorbell.ring();
    }

    fn remove_endpoint(&self, drive: &Arc<dyn Drive>) {
        self.endpoints.lock().retain(|endpoint| !Arc::ptr_eq(&endpoint.drive, drive));
        drive.with_wake_fd(&mut |fd| self.sources.remove(fd));
    }

    /// The thread's loop.
    fn run(&self) {
        // Do not lock the list during a pass: a pass may drop buffers of the application, and their
        // destructors may call anything.
        let mut endpoints = Vec::new();
        loop {
            self.doorbell.arm();
            if self.is_ending.load(Ordering::SeqCst) {
                return;
            }
            endpoints.extend(self.endpoints.lock().iter().cloned());
            let pauses = endpoints.drain(..).map(|endpoint: Arc<Endpoint>| endpoint.make_pass(&self.sources));
            // Make a pass over every endpoint, even if an earlier endpoint already forbids sleep.
            let pause = pauses.fold(None, |one, other| [one, other].into_iter().flatten().min());
            if pause != Some(Duration::ZERO) {
                // All signals are blocked in this thread.
                let _ = self.sources.sleep(pause);
            }
        }
    }
}

impl Endpoint {
    /// Makes a pass. Returns the time after which the thread must visit the endpoint again; `None` if the
    /// endpoint's descriptor will wake the thread.
    fn make_pass(&self, sources: &EpollSet) -> Option<Duration> {
        let found = self.drive.progress_for_progress_thread();
        if let WatchResult::Polled | WatchResult::Resting(_) = found {
            self.set_muted(sources, found == WatchResult::Polled);
        }
        match found {
            WatchResult::Polled => Some(REVISIT_AFTER),
            WatchResult::Resting(Armed::Asleep { look_again_after }) => look_again_after,
            // The transport has no descriptor to announce work.
            WatchResult::Resting(Armed::Ready) if !self.can_wake => Some(REVISIT_AFTER),
            WatchResult::Resting(Armed::Ready) | WatchResult::Moving => Some(Duration::ZERO),
        }
    }

    /// Sets whether the thread ignores the transport's descriptor. A transport that is not armed may keep
    /// its descriptor readable.
    fn set_muted(&self, sources: &EpollSet, is_muted: bool) {
        if !self.can_wake || self.is_muted.load(Ordering::Relaxed) == is_muted {
            return;
        }
        self.is_muted.store(is_muted, Ordering::Relaxed);
        self.drive.with_wake_fd(&mut |fd| sources.set_muted(fd, is_muted));
    }
}

const REVISIT_AFTER: Duration = Duration::from_millis(REVISIT_AFTER_MS);
