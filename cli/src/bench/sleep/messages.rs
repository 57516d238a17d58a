//! Messages one at a time, and the two ways to wait for one: to look again and again, and to sleep.

use std::io;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use homespun_host::{Accepted, CallError, Completion, Lockstep};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::peer::Wait;

/// How many looks at an empty queue there are between two at the clock.
const LOOKS_PER_CLOCK: u32 = 4096;

/// How late a sleep in a call may end.
const TIMEOUT_GRACE: Duration = Duration::from_millis(100);

/// An endpoint with what is known of its messages.
#[derive(Debug)]
pub(super) struct Messages {
    endpoint: Lockstep,
    wait: Wait,
    /// How long no message may come.
    patience: Duration,
    has_send_in_flight: bool,
    /// The length and the tag of the message that has come.
    received: Option<(usize, u64)>,
}

/// Why messages stop.
#[derive(Debug, thiserror::Error)]
pub(super) enum Trouble {
    /// A call failed.
    #[error("{0}")]
    Call(#[from] CallError),
    /// Nothing came.
    #[error("no message came for {} s", .0.as_secs_f64())]
    Silence(Duration),
    /// A completion was in the queue and did not wake the process.
    #[error("a message came and did not wake the process for {} s", .0.as_secs_f64())]
    Overslept(Duration),
    /// Another message came than the one that is due.
    #[error("a message of {len_bytes} bytes with tag {tag} came that was not due")]
    NotDue {
        /// Its length.
        len_bytes: usize,
        /// Its tag.
        tag: u64,
    },
    /// The system did not let the process sleep.
    #[error("poll(2): {0}")]
    System(io::Error),
}

/// The time since the queue was found empty.
#[derive(Debug)]
struct Emptiness {
    patience: Duration,
    looks: u32,
    since: Option<Instant>,
}

impl Messages {
    pub(super) fn new(endpoint: Lockstep, wait: Wait, patience: Duration) -> Messages {
        Messages { endpoint, wait, patience, has_send_in_flight: false, received: None }
    }

    /// Makes the endpoint of this address the partner.
    pub(super) fn meet(&mut self, address: &[u8]) -> Result<(), Trouble> {
        Ok(self.endpoint.meet(address)?)
    }

    /// Posts a receive of the message with this tag.
    pub(super) fn post_receive(&mut self, tag: u64) -> Result<(), Trouble> {
        let mut emptiness = Emptiness::new(self.patience);
        while !self.endpoint.post_receive(tag)? {
            self.look(&mut emptiness)?;
        }
        Ok(())
    }

    /// Sends a message.
    pub(super) fn send(&mut self, len_bytes: usize, tag: u64) -> Result<(), Trouble> {
        let mut emptiness = Emptiness::new(self.patience);
        loop {
            match self.endpoint.send(len_bytes, tag)? {
                Some(accepted) => {
                    self.has_send_in_flight = accepted == Accepted::Posted;
                    return Ok(());
                }
                None => self.look(&mut emptiness)?,
            }
        }
    }

    /// Waits until the message with this tag has come, and what was sent has gone.
    pub(super) fn await_message(&mut self, len_bytes: usize, tag: u64) -> Result<(), Trouble> {
        let mut emptiness = Emptiness::new(self.patience);
        loop {
            if !self.has_send_in_flight
                && let Some(received) = self.received.take()
            {
                return if received == (len_bytes, tag) { Ok(()) } else { Err(not_due(received)) };
            }
            if let Some(completion) = self.endpoint.read()? {
                self.take_in(completion);
                continue;
            }
            match self.wait {
                Wait::Polled => emptiness.require_patience()?,
                Wait::Descriptor => self.sleep_until_woken(&mut emptiness)?,
                Wait::Blocking => match self.endpoint.read_blocking(self.patience)? {
                    Some(completion) => self.take_in(completion),
                    None => emptiness.require_patience()?,
                },
            }
        }
    }

    /// Waits until what was sent has gone.
    pub(super) fn flush(&mut self) -> Result<(), Trouble> {
        let mut emptiness = Emptiness::new(self.patience);
        while self.has_send_in_flight {
            self.look(&mut emptiness)?;
        }
        Ok(())
    }

    /// Sleeps although nothing comes. Returns how often the process was woken, or was not allowed to sleep.
    pub(super) fn sleep(&mut self, duration: Duration) -> Result<u64, Trouble> {
        let end = Instant::now() + duration;
        let mut wake_ups = 0;
        loop {
            if let Some(completion) = self.endpoint.read()? {
                self.take_in(completion);
            }
            if let Some(received) = self.received {
                return Err(not_due(received));
            }
            let left = end.saturating_duration_since(Instant::now());
            let is_over = match self.wait {
                _ if left.is_zero() => return Ok(wake_ups),
                Wait::Descriptor => self.endpoint.try_wait()? && self.sleep_on_descriptor(left)?,
                Wait::Polled | Wait::Blocking => {
                    if let Some(completion) = self.read_blocking(left)? {
                        self.take_in(completion);
                    }
                    Instant::now() >= end
                }
            };
            wake_ups += u64::from(!is_over);
        }
    }

    /// Sleeps in a call of the provider, and not much longer than `timeout`, which some providers disregard.
    fn read_blocking(&mut self, timeout: Duration) -> Result<Option<Completion>, CallError> {
        let signal = self.endpoint.signal();
        let (awake, is_awake) = mpsc::channel::<()>();
        thread::scope(|scope| {
            scope.spawn(move || {
                if is_awake.recv_timeout(timeout + TIMEOUT_GRACE) == Err(RecvTimeoutError::Timeout) {
                    // Where this fails too the process sleeps on, until it is ended for its silence.
                    let _ = signal.send();
                }
            });
            let completion = self.endpoint.read_blocking(timeout);
            drop(awake);
            completion
        })
    }

    /// Looks for completions while something else cannot go on.
    fn look(&mut self, emptiness: &mut Emptiness) -> Result<(), Trouble> {
        match self.endpoint.read()? {
            Some(completion) => self.take_in(completion),
            None => emptiness.require_patience()?,
        }
        Ok(())
    }

    /// Sleeps on the descriptor if that is safe.
    fn sleep_until_woken(&mut self, emptiness: &mut Emptiness) -> Result<(), Trouble> {
        if !self.endpoint.try_wait()? {
            return emptiness.require_patience();
        }
        if self.sleep_on_descriptor(self.patience)? {
            return Err(match self.endpoint.read()? {
                Some(_) => Trouble::Overslept(self.patience),
                None => Trouble::Silence(self.patience),
            });
        }
        Ok(())
    }

    /// Sleeps until the descriptor is readable. True if that was not so for as long as `timeout`.
    fn sleep_on_descriptor(&self, timeout: Duration) -> Result<bool, Trouble> {
        let unsupported = || Trouble::System(io::ErrorKind::Unsupported.into());
        let descriptor = self.endpoint.descriptor().ok_or_else(unsupported)?;
        let mut polled = [PollFd::new(&descriptor, PollFlags::IN)];
        let timeout = Timespec::try_from(timeout).map_err(|_| unsupported())?;
        match poll(&mut polled, Some(&timeout)) {
            Ok(count) => Ok(count == 0),
            Err(Errno::INTR) => Ok(false),
            Err(errno) => Err(Trouble::System(errno.into())),
        }
    }

    fn take_in(&mut self, completion: Completion) {
        match completion {
            Completion::Sent => self.has_send_in_flight = false,
            Completion::Received { len_bytes, tag } => self.received = Some((len_bytes, tag)),
        }
    }
}

impl Emptiness {
    fn new(patience: Duration) -> Emptiness {
        Emptiness { patience, looks: 0, since: None }
    }

    /// Counts a look at the empty queue. Fails if there were some for longer than the patience.
    fn require_patience(&mut self) -> Result<(), Trouble> {
        self.looks += 1;
        if self.looks.is_multiple_of(LOOKS_PER_CLOCK) {
            let since = *self.since.get_or_insert_with(Instant::now);
            if since.elapsed() > self.patience {
                return Err(Trouble::Silence(self.patience));
            }
        }
        Ok(())
    }
}

fn not_due((len_bytes, tag): (usize, u64)) -> Trouble {
    Trouble::NotDue { len_bytes, tag }
}
