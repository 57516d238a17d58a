//! Reads of an event queue that return the next entry, be it an event or a failure.

use std::time::{Duration, Instant};

use super::{EqReadError, Event, EventError, EventQueue};

/// An entry of an event queue, as [`EventQueue::read_entry`] returns it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EventEntry {
    /// An event has happened.
    Happened(Event),
    /// A control operation has failed.
    Failed(EventError),
}

impl EventEntry {
    /// Returns the event.
    ///
    /// # Errors
    ///
    /// The failure, if the entry is [`Failed`](Self::Failed).
    pub fn into_result(self) -> Result<Event, EventError> {
        match self {
            EventEntry::Happened(event) => Ok(event),
            EventEntry::Failed(failed) => Err(failed),
        }
    }
}

impl EventQueue {
    /// Reads the oldest failure, or the oldest event if there is no failure. Returns `None` if the queue is
    /// empty. Combines [`read`](Self::read) and [`read_error`](Self::read_error).
    ///
    /// ```
    /// use homespun::eq::{EqAttr, EqFlags, Event};
    ///
    /// let attr = EqAttr { flags: EqFlags::WRITE, ..EqAttr::default() };
    /// let eq = homespun::Fabric::new().open_eq(&attr)?;
    /// eq.write(7, b"done")?;
    /// let entry = eq.read_entry().expect("a queue without failures").expect("an entry");
    /// assert_eq!(entry.into_result(), Ok(Event::Written { number: 7, data: b"done"[..].into() }));
    /// # Ok::<(), homespun::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// None today.
    pub fn read_entry(&self) -> Result<Option<EventEntry>, EqReadError> {
        self.read_entry_by(|| self.read())
    }

    /// As [`read_entry`](Self::read_entry), but waits for an entry as [`sread`](Self::sread) does.
    ///
    /// # Errors
    ///
    /// [`EqReadError::NoWaitObject`].
    pub fn sread_entry(&self, timeout: Option<Duration>) -> Result<Option<EventEntry>, EqReadError> {
        let begin = Instant::now();
        self.read_entry_by(|| self.sread(timeout.map(|timeout| timeout.saturating_sub(begin.elapsed()))))
    }

    fn read_entry_by(
        &self,
        read: impl Fn() -> Result<Option<Event>, EqReadError>,
    ) -> Result<Option<EventEntry>, EqReadError> {
        loop {
            match read() {
                Ok(event) => return Ok(event.map(EventEntry::Happened)),
                Err(EqReadError::ErrorAvailable) => {}
                Err(error) => return Err(error),
            }
            // If another thread has read the failure meanwhile, read again.
            if let Some(failed) = self.read_error() {
                return Ok(Some(EventEntry::Failed(failed)));
            }
        }
    }
}
