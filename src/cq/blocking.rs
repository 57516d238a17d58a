//! Blocking reads, and what they and an application's own waiting are made of: `fi_cq_sread(3)`, `fi_trywait(3)`.

use std::os::fd::{AsFd, BorrowedFd};
use std::thread;
use std::time::{Duration, Instant};

use homespun_engine::error::{Error, Misuse};
use homespun_engine::transport::Armed;

use super::wait::{Bed, Wait};
use super::{Completion, CompletionQueue, ReadError, Reader, Shared, WaitObject};
use crate::av::FabricAddress;

impl CompletionQueue {
    /// Reads one completion, and waits for one if need be, for ever if there is no timeout: `fi_cq_sread(3)` with a count
    /// of 1.
    ///
    /// # Errors
    ///
    /// [`ReadError`]; [`ReadError::Empty`] only after the timeout, or when the wait was ended by
    /// [`signal`](Self::signal).
    pub fn sread(&self, timeout: Option<Duration>) -> Result<Completion, ReadError> {
        self.sread_from(timeout).map(|(completion, _)| completion)
    }

    /// As [`sread`](Self::sread), with the source: `fi_cq_sreadfrom(3)` with a count of 1.
    ///
    /// # Errors
    ///
    /// As [`sread`](Self::sread).
    pub fn sread_from(&self, timeout: Option<Duration>) -> Result<(Completion, FabricAddress), ReadError> {
        let mut read = None;
        self.sread_each(1, 1, timeout, |completion, source| read = Some((completion, source)))?;
        read.ok_or(ReadError::Empty)
    }

    /// Reads up to `max` completions as [`read_each`](Self::read_each) does, once there are `threshold_entries`
    /// (`FI_CQ_COND_THRESHOLD`), or as many as the queue holds, or an error. After the timeout it reads what there is.
    ///
    /// # Errors
    ///
    /// As [`sread`](Self::sread).
    pub fn sread_each(
        &self,
        max: usize,
        threshold_entries: usize,
        timeout: Option<Duration>,
        mut take: impl FnMut(Completion, FabricAddress),
    ) -> Result<usize, ReadError> {
        let wait = self.shared.wait().ok_or(ReadError::NoWaitObject)?;
        // A timeout too long for the clock is no timeout.
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let waiter = wait.signals().enter();
        loop {
            let is_over = deadline.is_some_and(|deadline| Instant::now() >= deadline);
            if is_over || threshold_entries <= 1 || self.shared.holds(threshold_entries) {
                match self.read_each(max, &mut take) {
                    Err(ReadError::Empty) if !is_over => {}
                    read => return read,
                }
            }
            let can_sleep = wait.bed().map(|bed| self.shared.lie_down(bed, threshold_entries));
            // After the doorbell was armed, which a signal rings.
            if waiter.is_signalled() {
                return self.read_each(max, take);
            }
            match (can_sleep, wait.bed()) {
                (Some(true), Some(bed)) => {
                    bed.sleep(deadline.map(|deadline| deadline.saturating_duration_since(Instant::now())));
                }
                (Some(_), _) => {}
                (None, _) => thread::yield_now(),
            }
        }
    }

    /// Ends the waits of [`sread`](Self::sread) and its like that are going on, or if there are none, the next one:
    /// `fi_cq_signal(3)`. What is there to be read is read first.
    ///
    /// # Errors
    ///
    /// [`Misuse::Invalid`] for a queue that was opened without a wait object.
    pub fn signal(&self) -> Result<(), Error> {
        self.shared.wait().ok_or(NO_WAIT_OBJECT)?.signal();
        Ok(())
    }

    /// Whether the application may now sleep on [`wait_fd`](Self::wait_fd): `fi_trywait(3)`. If not, there may be
    /// something to read. To be called before each time; what happens after it makes the descriptor readable.
    ///
    /// # Errors
    ///
    /// [`Misuse::Invalid`] for a queue that was opened without a wait object.
    pub fn try_wait(&self) -> Result<bool, Error> {
        let wait = self.shared.wait().ok_or(NO_WAIT_OBJECT)?;
        match wait.bed() {
            Some(bed) => Ok(self.shared.lie_down(bed, 1)),
            None => {
                self.progress();
                Ok(!self.shared.has_unread())
            }
        }
    }

    /// The descriptor to sleep on, for a queue that was opened with [`WaitObject::Fd`]: `FI_GETWAIT`. It becomes readable
    /// when there may be something to read, provided that [`try_wait`](Self::try_wait) has just said that sleeping is
    /// safe. Only that it is readable matters; nobody but the queue reads it.
    pub fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        let wait = self.shared.wait().filter(|wait| wait.object() == WaitObject::Fd)?;
        wait.bed().map(AsFd::as_fd)
    }

    /// How the application waits.
    pub fn wait_object(&self) -> WaitObject {
        self.shared.wait().map_or(WaitObject::None, Wait::object)
    }
}

impl Shared {
    /// Prepares to sleep: see [`wait`](super::wait). Whether it is safe, and the queue holds fewer entries than these.
    fn lie_down(&self, bed: &Bed, threshold_entries: usize) -> bool {
        // Most of what there may be to do is found without asking anybody to wake anybody.
        self.driven.progress(&mut Reader::new(self, 0));
        if self.has_enough(threshold_entries) {
            return false;
        }
        bed.doorbell().arm();
        if let Armed::Asleep { look_again_after } = self.driven.arm() {
            bed.set_timer(look_again_after);
            if !self.has_enough(threshold_entries) {
                return true;
            }
        }
        bed.doorbell().ring();
        false
    }

    /// Whether there are so many entries, after a pass over the endpoints.
    fn holds(&self, threshold_entries: usize) -> bool {
        self.driven.progress(&mut Reader::new(self, 0));
        self.has_enough(threshold_entries)
    }

    /// Whether a wait for so many entries is over. Asked under the ring's lock, so that whoever inserts later finds the
    /// doorbell armed if it was armed before.
    fn has_enough(&self, threshold_entries: usize) -> bool {
        let ring = self.lock();
        ring.unread() >= threshold_entries.min(self.depth_entries) || ring.has_failed()
    }
}

const NO_WAIT_OBJECT: Error =
    Error::Misuse(Misuse::Invalid("the completion queue was opened without a wait object"));
