//! Automatic progress: a thread that moves the endpoints of a domain on while the application does not.
//!
//! It sleeps on an [`EpollSet`] until a transport has something to do, and takes no processor time before
//! that. An application that polls is faster than any thread could be, and the two would only be in each
//! other's way: rings of shared memory that a sleeper has armed cost the peer a system call a message. So the
//! thread stands down at an endpoint that is polled, and looks now and then whether it still is.
//! [`Watched`](crate::drive::WatchResult) says what it finds at an endpoint.
//!
//! It awaits nothing in particular, so it has no [`Waiter`](crate::wait::Waiter). Each round takes these
//! steps, in this order, and whatever happens meanwhile is found by a later one or ends the sleep:
//!
//! 1. arm the doorbell: from now on a thread rings it that leaves an endpoint with something to do, or
//!    changes what there is to watch;
//! 2. go through the endpoints: make a pass, and arm the transport if the pass has found nothing;
//! 3. sleep, unless there was something to do.

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
use crate::signals::without_signals;
use crate::wait::EpollSet;

/// How soon the thread looks again at what it is not woken for: an endpoint that the application
/// polls, or one whose transport has to be polled.
const REVISIT_AFTER_MS: u64 = 1;

/// The progress thread of a domain, which begins with the first endpoint.
#[derive(Default)]
pub(crate) struct ProgressThread {
    running: Mutex<Option<Running>>,
}

struct Running {
    shared: Arc<ThreadShared>,
    thread: JoinHandle<()>,
    /// The process that it runs in: a forked child has this structure, and no thread.
    process: u32,
}

/// State that the progress thread shares with the application's threads.
struct ThreadShared {
    doorbell: Arc<Doorbell>,
    /// The thread sleeps on these: the doorbell, and the descriptors of the transports.
    sources: EpollSet,
    endpoints: Mutex<Vec<Arc<Endpoint>>>,
    is_ending: AtomicBool,
}

/// An endpoint that the thread watches.
struct Endpoint {
    drive: Arc<dyn Drive>,
    /// Whether its transport has a descriptor.
    can_wake: bool,
    /// Whether its descriptor does not wake the thread for now, since the application polls. Of concern to
    /// the thread alone.
    is_muted: AtomicBool,
}

impl ProgressThread {
    /// Starts the thread if there is none yet, and says what wakes it.
    ///
    /// # Errors
    ///
    /// The system's error: EMFILE, ENFILE, ENOMEM, EAGAIN.
    pub(crate) fn start(&self) -> Result<Arc<Doorbell>, Error> {
        let mut running = self.running.lock();
        if let Some(parents) = running.take_if(|running| !running.is_own_process()) {
            parents.forget_after_fork();
        }
        let running = match &mut *running {
            Some(running) => running,
            none => none.insert(Running::start()?),
        };
        Ok(running.shared.doorbell.clone())
    }

    /// Has the thread wake for this endpoint, which is to be enabled next.
    ///
    /// # Errors
    ///
    /// The system's error: ENOMEM, ENOSPC.
    pub(crate) fn watch_endpoint(&self, drive: &Arc<dyn Drive>) -> Result<(), Error> {
        self.shared().map_or(Ok(()), |shared| shared.watch_endpoint(drive))
    }

    /// Moves this endpoint on from now on. It must be enabled, with the doorbell that
    /// [`start`](Self::start) has given, after [`watch_endpoint`](Self::watch_endpoint).
    pub(crate) fn drive_endpoint(&self, drive: &Arc<dyn Drive>) {
        if let Some(shared) = self.shared() {
            shared.drive_endpoint(drive);
        }
    }

    /// Lets go of an endpoint, which must be closed next.
    pub(crate) fn forget_endpoint(&self, drive: &Arc<dyn Drive>) {
        if let Some(shared) = self.shared() {
            shared.forget_endpoint(drive);
        }
    }

    /// Returns the state that the thread shares, if there is a thread. A forked child gets `None`, since the
    /// thread is its parent's. The lock is not held on return: the caller may wait for an endpoint.
    fn shared(&self) -> Option<Arc<ThreadShared>> {
        let running = self.running.lock();
        running.as_ref().filter(|running| running.is_own_process()).map(|running| running.shared.clone())
    }
}

impl Drop for ProgressThread {
    /// Ends the thread, and waits for that.
    fn drop(&mut self) {
        let Some(running) = self.running.get_mut().take() else { return };
        if !running.is_own_process() {
            return running.forget_after_fork();
        }
        running.shared.is_ending.store(true, Ordering::SeqCst);
        running.shared.doorbell.ring();
        // It may itself have dropped the last handle of the domain, in a buffer that a completion
        // owned. Then it ends when it gets back from there.
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
        let spawned =
            without_signals(|| thread::Builder::new().name("homespun".into()).spawn(move || threads.run()));
        let thread = spawned.map_err(|error| SystemRequest::Thread.refused(error))?;
        Ok(Running { shared, thread, process: process::id() })
    }

    fn is_own_process(&self) -> bool {
        self.process == process::id()
    }

    /// In a forked child: there is no thread to wait for, and its descriptors are those of the parent's.
    fn forget_after_fork(self) {
        mem::forget(self);
    }
}

impl ThreadShared {
    fn watch_endpoint(&self, drive: &Arc<dyn Drive>) -> Result<(), Error> {
        let mut added = Ok(());
        drive.with_wake_fd(&mut |fd| added = self.sources.add(fd));
        added
    }

    fn drive_endpoint(&self, drive: &Arc<dyn Drive>) {
        let mut can_wake = false;
        drive.with_wake_fd(&mut |_| can_wake = true);
        let endpoint = Endpoint { drive: drive.clone(), can_wake, is_muted: AtomicBool::new(false) };
        self.endpoints.lock().push(Arc::new(endpoint));
        self.doorbell.ring();
    }

    fn forget_endpoint(&self, drive: &Arc<dyn Drive>) {
        self.endpoints.lock().retain(|endpoint| !Arc::ptr_eq(&endpoint.drive, drive));
        drive.with_wake_fd(&mut |fd| self.sources.remove(fd));
    }

    /// The thread's loop.
    fn run(&self) {
        // The list is not locked during a pass, which may drop buffers of the application's that do
        // whatever they like.
        let mut endpoints = Vec::new();
        loop {
            self.doorbell.arm();
            if self.is_ending.load(Ordering::SeqCst) {
                return;
            }
            endpoints.extend(self.endpoints.lock().iter().cloned());
            let pauses = endpoints.drain(..).map(|endpoint: Arc<Endpoint>| endpoint.make_pass(&self.sources));
            // The first that sees no reason to sleep does not keep the others from their pass.
            let pause = pauses.fold(None, |one, other| [one, other].into_iter().flatten().min());
            if pause != Some(Duration::ZERO) {
                self.sources.sleep(pause);
            }
        }
    }
}

impl Endpoint {
    /// Makes progress. Returns after how long the endpoint needs another visit; `None`: only when
    /// it is woken.
    fn make_pass(&self, sources: &EpollSet) -> Option<Duration> {
        let found = self.drive.progress_for_progress_thread();
        if let WatchResult::Polled | WatchResult::Resting(_) = found {
            self.set_muted(sources, found == WatchResult::Polled);
        }
        match found {
            WatchResult::Polled => Some(REVISIT_AFTER),
            WatchResult::Resting(Armed::Asleep { look_again_after }) => look_again_after,
            // No descriptor would announce work.
            WatchResult::Resting(Armed::Ready) if !self.can_wake => Some(REVISIT_AFTER),
            WatchResult::Resting(Armed::Ready) | WatchResult::Moving => Some(Duration::ZERO),
        }
    }

    /// Sets whether the transport's descriptor wakes the thread: without arming it may be readable
    /// for ever.
    fn set_muted(&self, sources: &EpollSet, is_muted: bool) {
        if !self.can_wake || self.is_muted.load(Ordering::Relaxed) == is_muted {
            return;
        }
        self.is_muted.store(is_muted, Ordering::Relaxed);
        self.drive.with_wake_fd(&mut |fd| sources.set_muted(fd, is_muted));
    }
}

const REVISIT_AFTER: Duration = Duration::from_millis(REVISIT_AFTER_MS);
