//! A mutex and a condition variable, for applications that wait for the condition: `FI_WAIT_MUTEX_COND`.
//!
//! While the application sleeps on a condition, no call of the library runs. So a watcher thread sleeps on
//! the epoll set of the queue, counter or wait set. The thread only wakes the application, which then makes
//! progress itself.
//!
//! The application calls `fi_trywait(3)`, and then waits for the condition. If it holds the mutex during
//! both, no broadcast can come between them. Without the mutex, such a broadcast is lost. So the watcher
//! thread repeats the broadcast, less and less often, while the descriptor is readable.

use std::cell::UnsafeCell;
use std::mem;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::pin::Pin;
use std::process;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use homespun_engine::error::{Error, SystemRequest};
use libc::{pthread_cond_t, pthread_mutex_t};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io;

use crate::mutated;
use crate::signals::with_signals_blocked;

/// The first and the longest pause before the thread repeats a broadcast.
const REPEAT_MIN: Duration = Duration::from_millis(1);
const REPEAT_MAX: Duration = Duration::from_secs(1);

/// The time for which the thread waits for the mutex. Then it checks whether it must stop.
const MUTEX_PATIENCE: Duration = Duration::from_millis(50);

/// The mutex and condition of [`WaitObject::MutexCond`](super::WaitObject::MutexCond): `struct
/// fi_mutex_cond`. Both live as long as the object on which the application sleeps.
#[derive(Debug, Clone, Copy)]
pub struct MutexCond {
    /// The watcher thread holds it while it broadcasts the condition.
    pub mutex: *mut pthread_mutex_t,
    /// The watcher thread broadcasts this when there may be an entry to read, or when a counter may have
    /// changed.
    pub cond: *mut pthread_cond_t,
}

/// The watcher thread, and the condition that it broadcasts.
#[derive(Debug)]
pub(super) struct Watcher {
    shared: Arc<Watched>,
    /// `None` only while this is being dropped.
    thread: Option<JoinHandle<()>>,
    /// The process in which the thread runs.
    process: u32,
}

struct Watched {
    pair: Pin<Box<Pair>>,
    /// The descriptor of the queue.
    queue: OwnedFd,
    /// Readable when the thread must wake and check its state.
    notify_fd: OwnedFd,
    is_stopping: AtomicBool,
    /// Whether `begin_broadcasting` must notify the thread. False while the thread sleeps on the queue's
    /// descriptor, since the descriptor then wakes the thread.
    needs_notification: AtomicBool,
}

struct Pair {
    mutex: UnsafeCell<pthread_mutex_t>,
    cond: UnsafeCell<pthread_cond_t>,
}

// SAFETY: any thread may use the mutex and the condition, and only functions of the C library access
// them.
unsafe impl Send for Pair {}
// SAFETY: as above.
unsafe impl Sync for Pair {}

impl Watcher {
    /// Starts to watch a queue's descriptor.
    ///
    /// # Errors
    ///
    /// The system's error: EMFILE, ENFILE, ENOMEM, EAGAIN.
    pub(super) fn start(queue: BorrowedFd<'_>) -> Result<Watcher, Error> {
        let notify_fd = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)
            .map_err(|error| SystemRequest::EventDescriptor.refused(error))?;
        let queue = io::fcntl_dupfd_cloexec(queue, 0)
            .map_err(|error| SystemRequest::DescriptorCopy.refused(error))?;
        let shared = Arc::new(Watched {
            pair: Pair::new()?,
            queue,
            notify_fd,
            is_stopping: AtomicBool::new(false),
            needs_notification: AtomicBool::new(true),
        });
        let watched = shared.clone();
        let thread = with_signals_blocked(|| {
            thread::Builder::new().name("homespun-watcher".into()).spawn(move || watched.run())
        });
        let thread = thread.map_err(|error| SystemRequest::Thread.refused(error))?;
        Ok(Watcher { shared, thread: Some(thread), process: process::id() })
    }

    /// Returns the mutex and condition of this watcher. The first call starts the watcher.
    ///
    /// # Errors
    ///
    /// As [`start`](Self::start).
    pub(super) fn mutex_cond_or_start(
        watcher: &OnceLock<Watcher>,
        queue: BorrowedFd<'_>,
    ) -> Result<MutexCond, Error> {
        if let Some(watcher) = watcher.get() {
            return Ok(watcher.mutex_cond());
        }
        let started = Watcher::start(queue)?;
        // If another thread was faster, use its watcher.
        let watcher = watcher.get_or_init(|| started);
        // `try_wait` may have allowed the application to sleep before the watcher existed.
        watcher.begin_broadcasting();
        Ok(watcher.mutex_cond())
    }

    fn mutex_cond(&self) -> MutexCond {
        let Pair { mutex, cond } = &*self.shared.pair;
        MutexCond { mutex: mutex.get(), cond: cond.get() }
    }

    /// Makes the thread broadcast whenever the descriptor is readable. `try_wait` calls this when it has
    /// allowed the application to sleep.
    pub(super) fn begin_broadcasting(&self) {
        if self.shared.needs_notification.load(Ordering::SeqCst) {
            self.shared.notify_thread();
        }
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        if self.process != process::id() {
            // The thread belongs to the parent process.
            return mem::forget(thread);
        }
        self.shared.is_stopping.store(true, Ordering::SeqCst);
        self.shared.notify_thread();
        // The thread does not panic.
        let _ = thread.join();
    }
}

impl Watched {
    #[expect(clippy::host_endian_bytes, reason = "the kernel reads a number of this machine")]
    fn notify_thread(&self) {
        // The write fails only if the count is at its maximum, and then the descriptor is readable.
        let _ = io::write(&self.notify_fd, &1_u64.to_ne_bytes());
    }

    fn run(&self) {
        // The thread has nothing to do before `try_wait` allows the application to sleep for the first time.
        self.sleep_and_take_notification(&self.notify_fd, None);
        while !self.is_stopping() {
            self.sleep_and_take_notification(&self.queue, None);
            self.needs_notification.store(true, Ordering::SeqCst);
            self.broadcast_until_read();
            self.needs_notification.store(false, Ordering::SeqCst);
        }
    }

    /// Broadcasts until the descriptor is no longer readable, or `try_wait` allows the application to sleep
    /// again.
    fn broadcast_until_read(&self) {
        let mut pause = REPEAT_MIN;
        while !self.is_stopping() && is_readable(&self.queue) {
            self.broadcast();
            if self.sleep_and_take_notification(&self.notify_fd, Some(pause)) {
                return;
            }
            pause = (pause * 2).min(REPEAT_MAX);
        }
    }

    /// Sleeps until a descriptor is readable, the thread is notified, or the time has passed. Clears a
    /// notification, and returns whether there was one.
    fn sleep_and_take_notification(&self, until: &OwnedFd, at_most: Option<Duration>) -> bool {
        let mut fds = [PollFd::new(&self.notify_fd, PollFlags::IN), PollFd::new(until, PollFlags::IN)];
        let at_most = at_most.and_then(|time| Timespec::try_from(time).ok());
        // A failure returns early, which does no harm.
        let _ = poll(&mut fds, at_most.as_ref());
        io::read(&self.notify_fd, &mut [0; 8]).is_ok()
    }

    fn broadcast(&self) {
        let Pair { mutex, cond } = &*self.pair;
        loop {
            let deadline = realtime_deadline(MUTEX_PATIENCE);
            // SAFETY: the mutex is initialised, and is destroyed only after this thread has ended.
            match unsafe { libc::pthread_mutex_timedlock(mutex.get(), &raw const deadline) } {
                0 => break,
                // The application may hold the mutex while it closes the queue. Then this thread must stop.
                libc::ETIMEDOUT if !self.is_stopping() => {}
                _ => return,
            }
        }
        // SAFETY: as above, and this thread holds the mutex.
        unsafe {
            if !mutated!("fi_cq/wait-mutex-cond") {
                libc::pthread_cond_broadcast(cond.get());
            }
            libc::pthread_mutex_unlock(mutex.get());
        }
    }

    fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::SeqCst)
    }
}

impl Pair {
    fn new() -> Result<Pin<Box<Pair>>, Error> {
        let pair = Box::pin(Pair {
            mutex: UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER),
            cond: UnsafeCell::new(libc::PTHREAD_COND_INITIALIZER),
        });
        // SAFETY: both are at their final address, and no other thread has a pointer to them yet.
        let failed = unsafe {
            match libc::pthread_mutex_init(pair.mutex.get(), ptr::null()) {
                0 => libc::pthread_cond_init(pair.cond.get(), ptr::null()),
                failed => failed,
            }
        };
        match failed {
            0 => Ok(pair),
            raw => Err(SystemRequest::ConditionVariable.refused(std::io::Error::from_raw_os_error(raw))),
        }
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        // SAFETY: the thread has ended, and no application may wait for the condition of a queue that it
        // closes. A mutex that is still locked stays as it is.
        unsafe {
            libc::pthread_cond_destroy(self.cond.get());
            libc::pthread_mutex_destroy(self.mutex.get());
        }
    }
}

impl std::fmt::Debug for Watched {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watched").field("queue", &self.queue).finish_non_exhaustive()
    }
}

fn is_readable(fd: &OwnedFd) -> bool {
    let mut fds = [PollFd::new(fd, PollFlags::IN)];
    poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|ready| ready > 0)
}

/// Returns the time after `after`, by the clock of `pthread_mutex_timedlock(3)`.
fn realtime_deadline(after: Duration) -> libc::timespec {
    let then = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default() + after;
    libc::timespec {
        tv_sec: libc::time_t::try_from(then.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: then.subsec_nanos().into(),
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    fn make_eventfd(count: u32) -> OwnedFd {
        eventfd(count, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC).expect("a descriptor")
    }

    /// Locks the mutex, calls `then`, and waits for the condition. Only a failing test reaches the time
    /// limit.
    fn wait_on_cond(pair: MutexCond, then: impl FnOnce()) -> bool {
        let deadline = realtime_deadline(Duration::from_secs(30));
        // SAFETY: the watcher, which owns the pair, is alive.
        unsafe {
            libc::pthread_mutex_lock(pair.mutex);
            then();
            let waited = libc::pthread_cond_timedwait(pair.cond, pair.mutex, &raw const deadline);
            libc::pthread_mutex_unlock(pair.mutex);
            waited == 0
        }
    }

    #[test]
    fn readable_descriptor_is_broadcast_repeatedly() {
        let queue = make_eventfd(1);
        let watcher = Watcher::start(queue.as_fd()).expect("a thread");
        watcher.begin_broadcasting();
        for _ in 0..3 {
            assert!(wait_on_cond(watcher.mutex_cond(), || {}));
        }
    }

    #[test]
    fn descriptor_that_becomes_readable_is_broadcast() {
        let queue = make_eventfd(0);
        let watcher = Watcher::start(queue.as_fd()).expect("a thread");
        for round in 0..20 {
            watcher.begin_broadcasting();
            assert!(wait_on_cond(watcher.mutex_cond(), || {
                io::write(&queue, &[1; 8]).expect("room");
            }));
            if round % 2 == 0 {
                // Long enough for the thread to repeat its broadcast.
                thread::sleep(REPEAT_MIN * 8);
            }
            io::read(&queue, &mut [0; 8]).expect("it was written");
        }
    }

    #[test]
    fn watcher_ends_while_the_mutex_is_held() {
        let queue = make_eventfd(1);
        let watcher = Watcher::start(queue.as_fd()).expect("a thread");
        watcher.begin_broadcasting();
        let pair = watcher.mutex_cond();
        // SAFETY: the watcher, which owns the mutex, is alive.
        unsafe { libc::pthread_mutex_lock(pair.mutex) };
        let shared = watcher.shared.clone();
        drop(watcher);
        // SAFETY: `shared` keeps the mutex.
        unsafe { libc::pthread_mutex_unlock(pair.mutex) };
        drop(shared);
    }
}
