//! Exchanges messages one at a time, and waits for each by polling or by sleeping.

use std::io;
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{RecvTimeoutError, unbounded};
use homespun_host::{Accepted, CallError, Completion, Lockstep};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::peer::Wait;

/// The number of reads of an empty queue between two reads of the clock.
const LOOKS_PER_CLOCK: u32 = 4096;

/// How long a blocking call may sleep beyond its time-out before another thread ends the call.
const TIMEOUT_GRACE: Duration = Duration::from_millis(100);

/// An endpoint with the state of its messages.
#[derive(Debug)]
pub(super) struct Messages {
    endpoint: Lockstep,
    wait: Wait,
    /// The longest wait for a message.
    timeout: Duration,
    has_send_in_flight: bool,
    /// The length and the tag of the message that has arrived.
    received: Option<(usize, u64)>,
}

/// The reason why the exchange of messages fails.
#[derive(Debug, thiserror::Error)]
pub(super) enum ExchangeError {
    /// A call failed.
    #[error("{0}")]
    Call(#[from] CallError),
    /// No message arrived.
    #[error("no message came for {} s", .0.as_secs_f64())]
    TimedOut(Duration),
    /// A completion was in the queue, but the provider did not wake the process.
    #[error("a message arrived, but the process was not woken for {} s", .0.as_secs_f64())]
    MissedWakeUp(Duration),
    /// An unexpected message arrived.
    #[error("an unexpected message arrived: {len_bytes} bytes with tag {tag}")]
    Unexpected {
        /// The length of the message.
        len_bytes: usize,
        /// The tag of the message.
        tag: u64,
    },
    /// `poll(2)` failed.
    #[error("poll(2): {0}")]
    System(io::Error),
}

/// Measures how long the queue has been empty.
#[derive(Debug)]
struct EmptyTimer {
    timeout: Duration,
    looks: u32,
    since: Option<Instant>,
}

impl Messages {
    pub(super) fn new(endpoint: Lockstep, wait: Wait, timeout: Duration) -> Messages {
        Messages { endpoint, wait, timeout, has_send_in_flight: false, received: None }
    }

    /// Makes the endpoint at this address the peer.
    pub(super) fn set_peer(&mut self, address: &[u8]) -> Result<(), ExchangeError> {
        Ok(self.endpoint.set_peer(address)?)
    }

    /// Posts a receive for the message with this tag.
    pub(super) fn post_receive(&mut self, tag: u64) -> Result<(), ExchangeError> {
        let mut timer = EmptyTimer::new(self.timeout);
        while !self.endpoint.try_post_receive(tag)? {
            self.poll_or_check_timeout(&mut timer)?;
        }
        Ok(())
    }

    /// Sends a message.
    pub(super) fn send(&mut self, len_bytes: usize, tag: u64) -> Result<(), ExchangeError> {
        let mut timer = EmptyTimer::new(self.timeout);
        loop {
            match self.endpoint.try_send(len_bytes, tag)? {
                Some(accepted) => {
                    self.has_send_in_flight = accepted == Accepted::Posted;
                    return Ok(());
                }
                None => self.poll_or_check_timeout(&mut timer)?,
            }
        }
    }

    /// Waits until the message with this tag has arrived and the last send has completed.
    pub(super) fn await_message_and_send_completion(
        &mut self,
        len_bytes: usize,
        tag: u64,
    ) -> Result<(), ExchangeError> {
        let mut timer = EmptyTimer::new(self.timeout);
        loop {
            if !self.has_send_in_flight
                && let Some(received) = self.received.take()
            {
                return if received == (len_bytes, tag) {
                    Ok(())
                } else {
                    Err(unexpected_message_error(received))
                };
            }
            if let Some(completion) = self.endpoint.read()? {
                self.record_completion(completion);
                continue;
            }
            match self.wait {
                Wait::Polled => timer.check_timeout()?,
                Wait::Descriptor => self.try_wait_and_sleep(&mut timer)?,
                Wait::Blocking => match self.endpoint.sread_one(self.timeout)? {
                    Some(completion) => self.record_completion(completion),
                    None => timer.check_timeout()?,
                },
            }
        }
    }

    /// Waits until the last send has completed.
    pub(super) fn await_send_completion(&mut self) -> Result<(), ExchangeError> {
        let mut timer = EmptyTimer::new(self.timeout);
        while self.has_send_in_flight {
            self.poll_or_check_timeout(&mut timer)?;
        }
        Ok(())
    }

    /// Sleeps for this long. Fails if a message arrives meanwhile. Returns how often the process woke or
    /// could not sleep.
    pub(super) fn sleep_counting_wake_ups(&mut self, duration: Duration) -> Result<u64, ExchangeError> {
        let end = Instant::now() + duration;
        let mut wake_ups = 0;
        loop {
            if let Some(completion) = self.endpoint.read()? {
                self.record_completion(completion);
            }
            if let Some(received) = self.received {
                return Err(unexpected_message_error(received));
            }
            let left = end.saturating_duration_since(Instant::now());
            let is_over = match self.wait {
                _ if left.is_zero() => return Ok(wake_ups),
                Wait::Descriptor => {
                    self.endpoint.try_wait()? && self.sleep_on_descriptor_or_time_out(left)?
                }
                Wait::Polled | Wait::Blocking => {
                    if let Some(completion) = self.read_blocking(left)? {
                        self.record_completion(completion);
                    }
                    Instant::now() >= end
                }
            };
            wake_ups += u64::from(!is_over);
        }
    }

    /// Sleeps in a blocking call of the provider. Some providers ignore `timeout`. So another thread
    /// ends the call if it sleeps longer than `timeout` and [`TIMEOUT_GRACE`].
    fn read_blocking(&mut self, timeout: Duration) -> Result<Option<Completion>, CallError> {
        let wake_handle = self.endpoint.wake_handle();
        let (awake, is_awake) = unbounded::<()>();
        thread::scope(|scope| {
            scope.spawn(move || {
                if is_awake.recv_timeout(timeout + TIMEOUT_GRACE) == Err(RecvTimeoutError::Timeout) {
                    // If this call fails, the process sleeps until the controlling process gives up and
                    // kills it.
                    let _ = wake_handle.wake();
                }
            });
            let completion = self.endpoint.sread_one(timeout);
            drop(awake);
            completion
        })
    }

    /// Reads a completion, or checks the time-out if there is none. The caller has an operation that
    /// cannot proceed.
    fn poll_or_check_timeout(&mut self, timer: &mut EmptyTimer) -> Result<(), ExchangeError> {
        match self.endpoint.read()? {
            Some(completion) => self.record_completion(completion),
            None => timer.check_timeout()?,
        }
        Ok(())
    }

    /// Sleeps on the descriptor, if `fi_trywait` permits it.
    fn try_wait_and_sleep(&mut self, timer: &mut EmptyTimer) -> Result<(), ExchangeError> {
        if !self.endpoint.try_wait()? {
            return timer.check_timeout();
        }
        if self.sleep_on_descriptor_or_time_out(self.timeout)? {
            return Err(match self.endpoint.read()? {
                Some(_) => ExchangeError::MissedWakeUp(self.timeout),
                None => ExchangeError::TimedOut(self.timeout),
            });
        }
        Ok(())
    }

    /// Sleeps until the descriptor is readable. Returns true after the time-out.
    fn sleep_on_descriptor_or_time_out(&self, timeout: Duration) -> Result<bool, ExchangeError> {
        let unsupported = || ExchangeError::System(io::ErrorKind::Unsupported.into());
        let descriptor = self.endpoint.cq_wait_fd().ok_or_else(unsupported)?;
        let mut polled = [PollFd::new(&descriptor, PollFlags::IN)];
        let timeout = Timespec::try_from(timeout).map_err(|_| unsupported())?;
        match poll(&mut polled, Some(&timeout)) {
            Ok(count) => Ok(count == 0),
            Err(Errno::INTR) => Ok(false),
            Err(errno) => Err(ExchangeError::System(errno.into())),
        }
    }

    fn record_completion(&mut self, completion: Completion) {
        match completion {
            Completion::Sent => self.has_send_in_flight = false,
            Completion::Received { len_bytes, tag } => self.received = Some((len_bytes, tag)),
        }
    }
}

impl EmptyTimer {
    fn new(timeout: Duration) -> EmptyTimer {
        EmptyTimer { timeout, looks: 0, since: None }
    }

    /// Counts a read of the empty queue. Fails if the queue has been empty for too long.
    fn check_timeout(&mut self) -> Result<(), ExchangeError> {
        self.looks += 1;
        if self.looks.is_multiple_of(LOOKS_PER_CLOCK) {
            let since = *self.since.get_or_insert_with(Instant::now);
            if since.elapsed() > self.timeout {
                return Err(ExchangeError::TimedOut(self.timeout));
            }
        }
        Ok(())
    }
}

fn unexpected_message_error((len_bytes, tag): (usize, u64)) -> ExchangeError {
    ExchangeError::Unexpected { len_bytes, tag }
}
