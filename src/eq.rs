//! Event queues: `fi_eq(3)`.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bitflags::bitflags;
use homespun_engine::errno::Errno;
use homespun_engine::error::{Again, Error, Misuse};
use parking_lot::{Condvar, Mutex};

use crate::cq::WaitObject;

/// How many events a queue holds if its attributes do not say.
pub const EQ_DEPTH_DEFAULT_ENTRIES: usize = 256;

/// What an event queue is opened with: `struct fi_eq_attr`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(default, deny_unknown_fields)
)]
pub struct EqAttr {
    /// How many events it holds, and as many errors; 0 for [`EQ_DEPTH_DEFAULT_ENTRIES`]. Only what is in the queue
    /// takes memory.
    pub size_entries: usize,
    /// What the queue is used for.
    pub flags: EqFlags,
    /// How the application waits: [`WaitObject::None`], not at all, or [`WaitObject::Unspec`], by
    /// [`sread`](EventQueue::sread). Others cannot be had.
    pub wait: WaitObject,
}

bitflags! {
    /// Flags of an event queue: `fi_eq(3)`, "flags" of `fi_eq_open`.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
    #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
    pub struct EqFlags: u64 {
        /// The application inserts events of its own.
        const WRITE = 1 << 9;
        /// The application has a wish for the processor that interrupts go to. There are none, so it is ignored.
        const AFFINITY = 1 << 29;
    }
}

bitflags! {
    /// Flags of a read from an event queue.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
    #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
    pub struct EqReadFlags: u64 {
        /// The event stays in the queue.
        const PEEK = 1 << 19;
    }
}

/// An event that was read; its data is in the buffer given to the read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// Which event it is.
    pub number: u32,
    /// How many bytes of the buffer it takes.
    pub len_bytes: usize,
}

/// A control operation that failed: `struct fi_eq_err_entry`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventError {
    /// Whatever names the object that is concerned (`fid`).
    pub object: u64,
    /// The context of the operation that failed.
    pub context: u64,
    /// What the operation says more exactly, such as the index of the address that could not be inserted.
    pub data: u64,
    /// Why it failed (`err`).
    pub errno: Errno,
    /// The same in terms of the provider (`prov_errno`), for [`EventQueue::strerror`].
    pub prov_errno: i32,
    /// More about the error, as the operation defines it.
    pub err_data: Vec<u8>,
}

/// Why a read from an event queue brought nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum EqReadError {
    /// There is nothing to read, or there was not until the timeout.
    #[error("nothing to read yet")]
    Empty,
    /// An error has to be read first, with [`EventQueue::read_error`].
    #[error("an error is to be read first")]
    ErrorAvailable,
    /// The event does not fit into the buffer. It stays in the queue.
    #[error("the event has {len_bytes} bytes, which the buffer has not")]
    TooSmall {
        /// The length of the event's data.
        len_bytes: usize,
    },
    /// The queue was opened with [`WaitObject::None`].
    #[error("the event queue was opened without a wait object")]
    NoWaitObject,
    /// A flag that is not known.
    #[error("flags {0:#x} are not supported here")]
    Flags(u64),
}

impl EqReadError {
    /// The error number that a C caller gets, positive.
    pub fn errno(self) -> Errno {
        match self {
            EqReadError::Empty => Errno::EAGAIN,
            EqReadError::ErrorAvailable => Errno::EAVAIL,
            EqReadError::TooSmall { .. } => Errno::ETOOSMALL,
            EqReadError::NoWaitObject => Errno::EINVAL,
            EqReadError::Flags(_) => Errno::EBADFLAGS,
        }
    }
}

/// Reports control operations, and carries events of the application's own between its threads.
///
/// A handle: clones refer to the same queue, which any thread may use at any time. Events come out in the order in
/// which they went in; an error comes before all of them. The queue is bounded, and a write that does not fit is
/// refused, so it is never overrun.
///
/// ```
/// use homespun::eq::{EqAttr, EqFlags, EqReadFlags};
/// use homespun::{Fabric, WaitObject};
///
/// let attr = EqAttr { flags: EqFlags::WRITE, wait: WaitObject::Unspec, ..EqAttr::default() };
/// let eq = Fabric::new().open_eq(&attr)?;
/// let other_thread = std::thread::spawn({
///     let eq = eq.clone();
///     move || eq.write(7, b"done")
/// });
/// let mut data = [0; 16];
/// let event = eq.sread(&mut data, None, EqReadFlags::empty()).expect("an event, since there is no timeout");
/// assert_eq!((event.number, &data[..event.len_bytes]), (7, &b"done"[..]));
/// # other_thread.join().unwrap()?;
/// # Ok::<(), homespun::Error>(())
/// ```
#[derive(Clone)]
pub struct EventQueue {
    shared: Arc<Shared>,
}

struct Shared {
    size_entries: usize,
    writable: bool,
    waitable: bool,
    queues: Mutex<Queues>,
    /// Notified when something was put into `queues`.
    filled: Condvar,
    /// How many [`EqBinding`]s exist.
    bound: AtomicUsize,
}

#[derive(Default)]
struct Queues {
    events: VecDeque<Entry>,
    errors: VecDeque<EventError>,
}

struct Entry {
    number: u32,
    data: Box<[u8]>,
}

impl EventQueue {
    /// Opens a queue.
    ///
    /// # Errors
    ///
    /// [`Misuse::NotSupported`] for a wait object other than [`EqAttr::wait`] names, [`Misuse::Flags`] for a flag that
    /// is not known.
    pub(crate) fn open(attr: &EqAttr) -> Result<Self, Error> {
        let unknown = attr.flags.difference(EqFlags::all());
        if !unknown.is_empty() {
            return Err(Misuse::Flags(unknown.bits()).into());
        }
        if !matches!(attr.wait, WaitObject::None | WaitObject::Unspec) {
            return Err(Misuse::NotSupported("event queues with this wait object").into());
        }
        let shared = Shared {
            size_entries: if attr.size_entries == 0 { EQ_DEPTH_DEFAULT_ENTRIES } else { attr.size_entries },
            writable: attr.flags.contains(EqFlags::WRITE),
            waitable: attr.wait == WaitObject::Unspec,
            queues: Mutex::default(),
            filled: Condvar::new(),
            bound: AtomicUsize::new(0),
        };
        Ok(EventQueue { shared: Arc::new(shared) })
    }

    /// Inserts an event of the application's own: `fi_eq_write(3)`. Returns the length of its data.
    ///
    /// # Errors
    ///
    /// [`Misuse::State`] if the queue was opened without [`EqFlags::WRITE`], [`Again::QueueFull`] if it is full.
    pub fn write(&self, number: u32, data: &[u8]) -> Result<usize, Error> {
        self.insert(|queues| &mut queues.events, Entry { number, data: data.into() })?;
        Ok(data.len())
    }

    /// Inserts an error of the application's own, for [`read_error`](Self::read_error).
    ///
    /// # Errors
    ///
    /// As [`write`](Self::write).
    pub fn write_error(&self, error: EventError) -> Result<(), Error> {
        self.insert(|queues| &mut queues.errors, error)
    }

    /// Reads the oldest event into `buffer`, without waiting: `fi_eq_read(3)`.
    ///
    /// # Errors
    ///
    /// [`EqReadError::Empty`], [`EqReadError::ErrorAvailable`], [`EqReadError::TooSmall`], [`EqReadError::Flags`].
    pub fn read(&self, buffer: &mut [u8], flags: EqReadFlags) -> Result<Event, EqReadError> {
        let peek = is_peek(flags)?;
        self.shared.queues.lock().read(buffer, peek)
    }

    /// Reads the oldest event into `buffer` and waits for one if need be, for ever if there is no timeout:
    /// `fi_eq_sread(3)`.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read), [`EqReadError::Empty`] only after the timeout; and [`EqReadError::NoWaitObject`].
    pub fn sread(
        &self,
        buffer: &mut [u8],
        timeout: Option<Duration>,
        flags: EqReadFlags,
    ) -> Result<Event, EqReadError> {
        let peek = is_peek(flags)?;
        if !self.shared.waitable {
            return Err(EqReadError::NoWaitObject);
        }
        // A timeout too long for the clock is no timeout.
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let mut queues = self.shared.queues.lock();
        loop {
            match (queues.read(buffer, peek), deadline) {
                (Err(EqReadError::Empty), None) => self.shared.filled.wait(&mut queues),
                (Err(EqReadError::Empty), Some(deadline)) => {
                    if self.shared.filled.wait_until(&mut queues, deadline).timed_out() {
                        return queues.read(buffer, peek);
                    }
                }
                (result, _) => return result,
            }
        }
    }

    /// Reads the oldest error, without waiting: `fi_eq_readerr(3)`.
    ///
    /// # Errors
    ///
    /// [`EqReadError::Empty`] if there is none, [`EqReadError::Flags`].
    pub fn read_error(&self, flags: EqReadFlags) -> Result<EventError, EqReadError> {
        let peek = is_peek(flags)?;
        let errors = &mut self.shared.queues.lock().errors;
        let error = if peek { errors.front().cloned() } else { errors.pop_front() };
        error.ok_or(EqReadError::Empty)
    }

    /// What [`EventError::prov_errno`] means: `fi_eq_strerror(3)`. homespun's own are error numbers of the fabric.
    pub fn strerror(&self, prov_errno: i32) -> &'static str {
        Errno::new(prov_errno).description()
    }

    /// Closes the queue: `fi_close`. What is in it is lost when the last clone of the handle is gone.
    ///
    /// # Errors
    ///
    /// [`Misuse::Busy`] while an object is bound to it; the handle is handed back.
    pub fn close(self) -> Result<(), (Self, Error)> {
        if self.shared.bound.load(Ordering::Acquire) > 0 {
            return Err((self, Misuse::Busy("objects are bound to the event queue").into()));
        }
        Ok(())
    }

    /// Binds an object to the queue, which cannot be closed while the binding exists. It is for the object to keep.
    pub fn bind(&self) -> EqBinding {
        self.shared.bound.fetch_add(1, Ordering::AcqRel);
        EqBinding { eq: self.clone() }
    }

    fn insert<T>(&self, queue: impl FnOnce(&mut Queues) -> &mut VecDeque<T>, entry: T) -> Result<(), Error> {
        if !self.shared.writable {
            return Err(Misuse::State("the event queue was not opened for writing").into());
        }
        let mut queues = self.shared.queues.lock();
        let queue = queue(&mut queues);
        if queue.len() >= self.shared.size_entries {
            return Err(Again::QueueFull.into());
        }
        queue.push_back(entry);
        drop(queues);
        // One that only peeks leaves the event to the others, so all have to look.
        self.shared.filled.notify_all();
        Ok(())
    }
}

/// That an object is bound to an [`EventQueue`]. Dropping it unbinds the object.
#[derive(Debug)]
#[must_use = "the object is bound only as long as this exists"]
pub struct EqBinding {
    eq: EventQueue,
}

impl EqBinding {
    /// The queue that the object is bound to.
    pub fn event_queue(&self) -> &EventQueue {
        &self.eq
    }
}

impl Drop for EqBinding {
    fn drop(&mut self) {
        self.eq.shared.bound.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Queues {
    fn read(&mut self, buffer: &mut [u8], peek: bool) -> Result<Event, EqReadError> {
        if !self.errors.is_empty() {
            return Err(EqReadError::ErrorAvailable);
        }
        let entry = self.events.front().ok_or(EqReadError::Empty)?;
        let len_bytes = entry.data.len();
        let place = buffer.get_mut(..len_bytes).ok_or(EqReadError::TooSmall { len_bytes })?;
        place.copy_from_slice(&entry.data);
        let event = Event { number: entry.number, len_bytes };
        if !peek {
            self.events.pop_front();
        }
        Ok(event)
    }
}

fn is_peek(flags: EqReadFlags) -> Result<bool, EqReadError> {
    let unknown = flags.difference(EqReadFlags::all());
    if unknown.is_empty() {
        Ok(flags.contains(EqReadFlags::PEEK))
    } else {
        Err(EqReadError::Flags(unknown.bits()))
    }
}

impl fmt::Debug for EventQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let queues = self.shared.queues.lock();
        f.debug_struct("EventQueue")
            .field("size_entries", &self.shared.size_entries)
            .field("events", &queues.events.len())
            .field("errors", &queues.errors.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    const NOW: EqReadFlags = EqReadFlags::empty();

    /// Longer than any wait that ends as it should, so that one that does not is a failure and no hang.
    const PATIENCE: Duration = Duration::from_secs(30);

    fn queue(size_entries: usize) -> EventQueue {
        let attr = EqAttr { size_entries, flags: EqFlags::WRITE, wait: WaitObject::Unspec };
        EventQueue::open(&attr).expect("a queue")
    }

    fn failure(context: u64) -> EventError {
        EventError {
            object: 1,
            context,
            data: 3,
            errno: Errno::EADDRNOTAVAIL,
            prov_errno: Errno::EADDRNOTAVAIL.raw(),
            err_data: vec![4, 5],
        }
    }

    #[test]
    fn events_come_out_as_they_went_in() {
        let eq = queue(0);
        let mut buffer = [0; 8];
        assert_eq!(eq.read(&mut buffer, NOW), Err(EqReadError::Empty));
        assert_eq!(eq.write(7, b"seven"), Ok(5));
        assert_eq!(eq.write(8, b""), Ok(0));
        for _ in 0..2 {
            assert_eq!(eq.read(&mut buffer, EqReadFlags::PEEK), Ok(Event { number: 7, len_bytes: 5 }));
        }
        assert_eq!(eq.read(&mut buffer, NOW), Ok(Event { number: 7, len_bytes: 5 }));
        assert_eq!(&buffer[..5], b"seven");
        assert_eq!(eq.read(&mut buffer, NOW), Ok(Event { number: 8, len_bytes: 0 }));
        assert_eq!(eq.read(&mut buffer, NOW), Err(EqReadError::Empty));
    }

    #[test]
    fn an_event_too_long_for_the_buffer_stays() {
        let eq = queue(0);
        eq.write(1, b"12345").expect("room");
        let refused = eq.read(&mut [0; 4], NOW).unwrap_err();
        assert_eq!((refused, refused.errno()), (EqReadError::TooSmall { len_bytes: 5 }, Errno::ETOOSMALL));
        assert!(eq.read(&mut [0; 5], NOW).is_ok());
    }

    #[test]
    fn a_full_queue_refuses_and_loses_nothing() {
        let eq = queue(2);
        eq.write(1, b"").expect("room");
        eq.write(2, b"").expect("room");
        assert_eq!(eq.write(3, b"").unwrap_err().errno(), Errno::EAGAIN);
        assert!(eq.write_error(failure(1)).is_ok(), "errors have room of their own");
        assert!(eq.read_error(NOW).is_ok());
        assert_eq!(eq.read(&mut [], NOW).map(|event| event.number), Ok(1));
        assert!(eq.write(3, b"").is_ok());
        let rest = [(); 2].map(|()| eq.read(&mut [], NOW).map(|event| event.number));
        assert_eq!(rest, [Ok(2), Ok(3)]);
    }

    #[test]
    fn errors_are_read_before_events() {
        let eq = queue(0);
        eq.write(1, b"").expect("room");
        assert_eq!(eq.read_error(NOW), Err(EqReadError::Empty));
        eq.write_error(failure(1)).expect("room");
        eq.write_error(failure(2)).expect("room");
        assert_eq!(eq.read(&mut [], NOW).unwrap_err().errno(), Errno::EAVAIL);
        assert_eq!(eq.sread(&mut [], None, NOW), Err(EqReadError::ErrorAvailable));
        assert_eq!(eq.read_error(EqReadFlags::PEEK), Ok(failure(1)));
        assert_eq!(eq.read_error(NOW), Ok(failure(1)));
        assert_eq!(eq.read_error(NOW), Ok(failure(2)));
        assert_eq!(eq.read(&mut [], NOW).map(|event| event.number), Ok(1));
        assert_eq!(eq.strerror(failure(1).prov_errno), "Cannot assign requested address");
    }

    #[test]
    fn a_reader_waits_for_a_writer() {
        let eq = queue(0);
        let reader = eq.clone();
        let (ready, started) = mpsc::channel();
        let thread = thread::spawn(move || {
            let mut buffer = [0; 4];
            ready.send(()).expect("the test is there");
            let peeked = reader.sread(&mut buffer, Some(PATIENCE), EqReadFlags::PEEK);
            (peeked, reader.sread(&mut buffer, Some(PATIENCE), NOW), buffer)
        });
        started.recv().expect("the reader starts");
        eq.write(9, b"nine").expect("room");
        let event = Ok(Event { number: 9, len_bytes: 4 });
        assert_eq!(thread.join().expect("the reader ends"), (event, event, *b"nine"));
    }

    #[test]
    fn waiting_ends_with_the_timeout() {
        let eq = queue(0);
        assert_eq!(eq.sread(&mut [], Some(Duration::ZERO), NOW), Err(EqReadError::Empty));
        assert_eq!(eq.sread(&mut [], Some(Duration::from_millis(1)), NOW), Err(EqReadError::Empty));
        eq.write(1, b"").expect("room");
        assert!(eq.sread(&mut [], Some(Duration::MAX), NOW).is_ok());
    }

    #[test]
    fn what_the_queue_was_not_opened_for_is_refused() {
        let plain = EventQueue::open(&EqAttr::default()).expect("a queue");
        assert_eq!(plain.write(1, b"").unwrap_err().errno(), Errno::EOPBADSTATE);
        assert_eq!(plain.write_error(failure(1)).unwrap_err().errno(), Errno::EOPBADSTATE);
        assert_eq!(plain.sread(&mut [], None, NOW), Err(EqReadError::NoWaitObject));
        assert_eq!(plain.read(&mut [], EqReadFlags::from_bits_retain(1)), Err(EqReadError::Flags(1)));
        for wait in [WaitObject::Set, WaitObject::Fd, WaitObject::MutexCond, WaitObject::Yield] {
            let refused = EventQueue::open(&EqAttr { wait, ..EqAttr::default() });
            assert_eq!(refused.unwrap_err().errno(), Errno::ENOSYS, "{wait:?}");
        }
        let flags = EqFlags::from_bits_retain(1);
        assert_eq!(
            EventQueue::open(&EqAttr { flags, ..EqAttr::default() }).unwrap_err().errno(),
            Errno::EBADFLAGS
        );
    }

    #[test]
    fn a_bound_queue_cannot_be_closed() {
        let eq = queue(0);
        let binding = eq.bind();
        let (eq, error) = eq.close().expect_err("an object is bound");
        assert_eq!(error.errno(), Errno::EBUSY);
        drop(binding);
        assert!(eq.close().is_ok());
    }
}
