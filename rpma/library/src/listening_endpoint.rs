//! A listener whose descriptor is readable while there is a request, and only then.
//!
//! The facade's descriptor is readable for anything that arrives, also for the first bytes of a request.
//! Programs of librpma take it for a failure if there is no request then. So a thread reads what arrives,
//! once the application has asked for a descriptor: docs/decisions/rpma-library.md.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::process;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use homespun::signals::{self, with_signals_blocked};
use homespun_rpma::{ConnectionConfig, ConnectionRequest, Endpoint, Error};
use parking_lot::Mutex;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::fs::{OFlags, fcntl_getfl};
use rustix::io::{read, write};

use crate::edge;

/// An endpoint that listens.
#[derive(Debug)]
pub(crate) struct ListeningEndpoint {
    requests: Arc<Requests>,
    /// Started when the application asks for the descriptor.
    watcher: Mutex<Option<Watcher>>,
}

/// The requests of an endpoint, and the descriptor for the application.
#[derive(Debug)]
struct Requests {
    endpoint: Endpoint,
    /// Readable while there is a request.
    descriptor: OwnedFd,
    /// Whether the descriptor is readable. Locked while a thread reads what has arrived, so that the requests
    /// that one thread has seen are not taken by another.
    is_readable: Mutex<bool>,
}

/// The thread that reads what arrives.
#[derive(Debug)]
struct Watcher {
    stop: OwnedFd,
    thread: Option<JoinHandle<()>>,
    /// The process of the thread. A forked child has no such thread.
    process: u32,
}

impl ListeningEndpoint {
    /// # Errors
    ///
    /// The system's error: EMFILE, ENFILE, ENOMEM.
    pub(crate) fn new(endpoint: Endpoint) -> Result<ListeningEndpoint, io::Error> {
        let descriptor = eventfd(0, EventfdFlags::CLOEXEC)?;
        let requests = Arc::new(Requests { endpoint, descriptor, is_readable: Mutex::new(false) });
        Ok(ListeningEndpoint { requests, watcher: Mutex::default() })
    }

    /// Returns the descriptor. The first call starts the thread.
    ///
    /// # Errors
    ///
    /// The system's error: EMFILE, ENFILE, ENOMEM, EAGAIN.
    pub(crate) fn descriptor(&self) -> Result<RawFd, io::Error> {
        let mut watcher = self.watcher.lock();
        if watcher.is_none() {
            *watcher = Some(Watcher::start(&self.requests)?);
        }
        Ok(self.requests.descriptor.as_raw_fd())
    }

    /// Returns the next request. Waits for one, unless the application has set `O_NONBLOCK` on the
    /// descriptor.
    ///
    /// # Errors
    ///
    /// [`Error::NoEvent`] if there is no request, and the call does not wait; [`Error::Interrupted`]; those
    /// of [`Endpoint::next_connection_request`].
    pub(crate) fn next_request(&self, config: Option<&ConnectionConfig>) -> Result<ConnectionRequest, Error> {
        let Requests { endpoint, descriptor, .. } = &*self.requests;
        loop {
            if let Some(next) = self.requests.take(config) {
                return next;
            }
            if is_nonblocking(descriptor.as_fd()) {
                return Err(Error::NoEvent);
            }
            // The thread may read what arrives, or there is none.
            signals::wait_readable(&[descriptor.as_fd(), endpoint.fd()])?;
        }
    }
}

impl Watcher {
    fn start(requests: &Arc<Requests>) -> Result<Watcher, io::Error> {
        let stop = eventfd(0, EventfdFlags::CLOEXEC)?;
        let (watched, ended) = (requests.clone(), stop.try_clone()?);
        let builder = thread::Builder::new().name("rpma-listener".to_owned());
        let thread = with_signals_blocked(|| {
            builder.spawn(move || {
                let watch = || {
                    while !is_readable(ended.as_fd()) {
                        watched.update_descriptor();
                        // The thread blocks all signals.
                        let _ = signals::wait_readable(&[watched.endpoint.fd(), ended.as_fd()]);
                    }
                    Ok(())
                };
                if edge::run(watch) != 0 {
                    // After a panic, each call fails. So the application must make one.
                    watched.set_readable(&mut watched.is_readable.lock(), true);
                }
            })
        })?;
        Ok(Watcher { stop, thread: Some(thread), process: process::id() })
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        if self.process != process::id() {
            // The descriptor is that of the parent, too, and the parent's thread must go on.
            std::mem::forget(self.thread.take());
            return;
        }
        // It fails only if the descriptor is readable already.
        let _ = write(&self.stop, &1_u64.to_le_bytes());
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

impl Requests {
    /// Takes the next request, if there is one.
    fn take(&self, config: Option<&ConnectionConfig>) -> Option<Result<ConnectionRequest, Error>> {
        let mut is_readable = self.is_readable.lock();
        let next = self.endpoint.poll_requests().then(|| self.endpoint.next_connection_request(config));
        self.set_readable(&mut is_readable, self.endpoint.poll_requests());
        next
    }

    /// Makes the descriptor readable if there is a request, and unreadable if there is none.
    fn update_descriptor(&self) {
        let mut is_readable = self.is_readable.lock();
        self.set_readable(&mut is_readable, self.endpoint.poll_requests());
    }

    fn set_readable(&self, is_readable: &mut bool, must_be_readable: bool) {
        if must_be_readable != *is_readable {
            // The counter is 0 or 1, so neither call waits or fails.
            let _ = match must_be_readable {
                true => write(&self.descriptor, &1_u64.to_le_bytes()),
                false => read(&self.descriptor, &mut [0; 8]),
            };
            *is_readable = must_be_readable;
        }
    }
}

fn is_readable(descriptor: BorrowedFd<'_>) -> bool {
    poll(&mut [PollFd::new(&descriptor, PollFlags::IN)], Some(&Default::default()))
        .is_ok_and(|ready| ready > 0)
}

fn is_nonblocking(descriptor: BorrowedFd<'_>) -> bool {
    fcntl_getfl(descriptor).is_ok_and(|flags| flags.contains(OFlags::NONBLOCK))
}
