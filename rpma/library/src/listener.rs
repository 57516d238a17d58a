//! A listener whose descriptor is readable while there is a request, and only then.
//!
//! The facade's descriptor is readable for anything that arrives, also for the first bytes of a request.
//! Programs of librpma take it for a failure if there is no request then. So a thread reads what arrives,
//! once the application has asked for a descriptor: docs/decisions/rpma-library.md.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle};

use homespun_rpma::{ConnectionConfig, ConnectionRequest, Endpoint, Error};
use parking_lot::Mutex;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::fs::{OFlags, fcntl_getfl};
use rustix::io::{read, write};

/// An endpoint that listens.
#[derive(Debug)]
pub(crate) struct Listener {
    endpoint: Arc<Endpoint>,
    /// Opened when the application asks for a descriptor.
    watched: OnceLock<Watched>,
    /// Locked while a thread opens the descriptor.
    opening: Mutex<()>,
}

/// What a listener has once it has a descriptor.
#[derive(Debug)]
struct Watched {
    signal: Arc<Signal>,
    stop: OwnedFd,
    thread: Option<JoinHandle<()>>,
}

/// The descriptor for the application.
#[derive(Debug)]
struct Signal {
    descriptor: OwnedFd,
    /// Whether the descriptor is readable.
    is_readable: Mutex<bool>,
}

impl Listener {
    pub(crate) fn new(endpoint: Endpoint) -> Listener {
        Listener { endpoint: Arc::new(endpoint), watched: OnceLock::new(), opening: Mutex::default() }
    }

    /// Returns the descriptor. The first call starts the thread.
    ///
    /// # Errors
    ///
    /// The system's error: EMFILE, ENFILE, ENOMEM, EAGAIN.
    pub(crate) fn descriptor(&self) -> Result<RawFd, io::Error> {
        let _opening = self.opening.lock();
        if self.watched.get().is_none() {
            let watched = Watched::start(&self.endpoint)?;
            self.watched.get_or_init(|| watched);
        }
        let watched = self.watched.get().expect("it was just opened");
        Ok(watched.signal.descriptor.as_raw_fd())
    }

    /// Returns the next request. Waits for one, unless the application has set `O_NONBLOCK` on the
    /// descriptor.
    ///
    /// # Errors
    ///
    /// [`Error::NoEvent`] if there is no request, and the call does not wait; those of
    /// [`Endpoint::next_connection_request`].
    pub(crate) fn next_request(&self, config: Option<&ConnectionConfig>) -> Result<ConnectionRequest, Error> {
        let Some(Watched { signal, .. }) = self.watched.get() else {
            return self.endpoint.next_connection_request(config);
        };
        loop {
            if let Some(next) = signal.take(&self.endpoint, config) {
                return next;
            }
            if is_nonblocking(signal.descriptor.as_fd()) {
                return Err(Error::NoEvent);
            }
            wait_readable(&[signal.descriptor.as_fd()]);
        }
    }
}

impl Watched {
    fn start(endpoint: &Arc<Endpoint>) -> Result<Watched, io::Error> {
        let descriptor = eventfd(0, EventfdFlags::CLOEXEC)?;
        let signal = Arc::new(Signal { descriptor, is_readable: Mutex::new(false) });
        let stop = eventfd(0, EventfdFlags::CLOEXEC)?;
        let (of_thread, stop_of_thread, endpoint) = (signal.clone(), stop.try_clone()?, endpoint.clone());
        let thread = thread::Builder::new().name("rpma-listener".to_owned()).spawn(move || {
            loop {
                of_thread.update(&endpoint);
                wait_readable(&[endpoint.fd(), stop_of_thread.as_fd()]);
                if is_readable(stop_of_thread.as_fd()) {
                    return;
                }
            }
        })?;
        Ok(Watched { signal, stop, thread: Some(thread) })
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        // It fails only if the descriptor is readable already.
        let _ = write(&self.stop, &1_u64.to_le_bytes());
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

impl Signal {
    /// Makes the descriptor readable if there is a request, and unreadable if there is none.
    fn update(&self, endpoint: &Endpoint) {
        self.update_locked(endpoint, &mut self.is_readable.lock());
    }

    fn update_locked(&self, endpoint: &Endpoint, is_readable: &mut bool) {
        let has_request = endpoint.poll_requests();
        if has_request != *is_readable {
            // The counter is 0 or 1, so neither call waits or fails.
            let _ = match has_request {
                true => write(&self.descriptor, &1_u64.to_le_bytes()),
                false => read(&self.descriptor, &mut [0; 8]),
            };
            *is_readable = has_request;
        }
    }

    /// Takes the next request, if there is one.
    fn take(
        &self,
        endpoint: &Endpoint,
        config: Option<&ConnectionConfig>,
    ) -> Option<Result<ConnectionRequest, Error>> {
        let mut is_readable = self.is_readable.lock();
        let next = endpoint.poll_requests().then(|| endpoint.next_connection_request(config));
        self.update_locked(endpoint, &mut is_readable);
        next
    }
}

/// Waits until one of the descriptors is readable. May return earlier.
fn wait_readable(descriptors: &[BorrowedFd<'_>]) {
    let mut descriptors: Vec<_> = descriptors.iter().map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
    // A signal may end the wait; the caller checks again.
    let _ = poll(&mut descriptors, None);
}

fn is_readable(descriptor: BorrowedFd<'_>) -> bool {
    poll(&mut [PollFd::new(&descriptor, PollFlags::IN)], Some(&Default::default()))
        .is_ok_and(|ready| ready > 0)
}

fn is_nonblocking(descriptor: BorrowedFd<'_>) -> bool {
    fcntl_getfl(descriptor).is_ok_and(|flags| flags.contains(OFlags::NONBLOCK))
}
