//! Reads that bring any entry of an event queue, be it an event or a failure.

use std::time::Duration;

use super::{EqReadError, Event, EventError, EventQueue};

impl EventQueue {
    /// Reads the oldest failure, or else the oldest event; `None` if the queue is empty. It is
    /// [`read`](Self::read) and [`read_error`](Self::read_error) in one.
    ///
    /// ```
    /// use homespun::eq::{EqAttr, EqFlags, Event};
    ///
    /// let attr = EqAttr { flags: EqFlags::WRITE, ..EqAttr::default() };
    /// let eq = homespun::Fabric::new().open_eq(&attr)?;
    /// eq.write(7, b"done")?;
    /// match eq.read_entry().expect("errors are entries, too") {
    ///     Some(Ok(event)) => assert_eq!(event, Event::Written { number: 7, data: b"done"[..].into() }),
    ///     Some(Err(failed)) => panic!("{failed}"),
    ///     None => println!("the queue is empty"),
    /// }
    /// # Ok::<(), homespun::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// None today.
    pub fn read_entry(&self) -> Result<Option<Result<Event, EventError>>, EqReadError> {
        self.read_entry_by(|| self.read())
    }

    /// As [`read_entry`](Self::read_entry), and waits for an entry if need be, as [`sread`](Self::sread)
    /// does.
    ///
    /// # Errors
    ///
    /// [`EqReadError::NoWaitObject`].
    pub fn sread_entry(
        &self,
        timeout: Option<Duration>,
    ) -> Result<Option<Result<Event, EventError>>, EqReadError> {
        self.read_entry_by(|| self.sread(timeout))
    }

    fn read_entry_by(
        &self,
        read: impl Fn() -> Result<Option<Event>, EqReadError>,
    ) -> Result<Option<Result<Event, EventError>>, EqReadError> {
        loop {
            match read() {
                Ok(event) => return Ok(event.map(Ok)),
                Err(EqReadError::ErrorAvailable) => {}
                Err(error) => return Err(error),
            }
            // Another thread may have read the failure meanwhile.
            if let Some(failed) = self.read_error() {
                return Ok(Some(Err(failed)));
            }
        }
    }
}
