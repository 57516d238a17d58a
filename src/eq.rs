//! Event queues: `fi_eq(3)`.

mod entry;
mod reporter;
#[cfg(test)]
mod tests;
mod waiting;

use std::collections::VecDeque;
use std::fmt;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bitflags::bitflags;
use homespun_engine::address::Address;
use homespun_engine::connection::RequestId;
use homespun_engine::errno::Errno;
use homespun_engine::error::{Again, Error, InUse, Misuse, ObjectState};
use homespun_engine::rejected::Rejected;
use parking_lot::Mutex;

pub use self::entry::EventEntry;
pub(crate) use self::reporter::{ReportedEndpoint, Reporter};
use crate::clock::Clock;
use crate::connection::{ConnectionEvent, PendingAccept};
use crate::cq::strerror;
use crate::drive::Drive;
use crate::driven::Driven;
use crate::mutated;
use crate::wait::{WaitObject, WaitSet, Waiter};

/// The number of events in a queue whose attributes give none.
pub const EQ_DEPTH_DEFAULT_ENTRIES: usize = 256;

/// The attributes of an event queue: `struct fi_eq_attr`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(default, deny_unknown_fields)
)]
pub struct EqAttr {
    /// The largest number of unread events that the application has written. The same limit holds for
    /// unread errors that it has written. 0 stands for [`EQ_DEPTH_DEFAULT_ENTRIES`].
    ///
    /// Events of connections do not count. Each endpoint reports at most two. A passive endpoint has at
    /// most as many unread requests as its backlog.
    pub size_entries: usize,
    /// The ways in which the application uses the queue.
    pub flags: EqFlags,
    /// The wait object: [`WaitObject`] lists the kinds, and their costs.
    pub wait: WaitObject,
    /// The wait set of the queue, for [`WaitObject::Set`]. Ignored with other wait objects; not serialized.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub wait_set: Option<WaitSet>,
}

bitflags! {
    /// Flags of an event queue: `fi_eq(3)`, "flags" of `fi_eq_open`.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
    #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
    pub struct EqFlags: u64 {
        /// The application inserts events of its own.
        const WRITE = 1 << 9;
        /// The application names a processor for interrupts. Ignored, since homespun has no interrupts.
        const AFFINITY = 1 << 29;
    }
}

/// An event that an event queue reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// An event that the application has written ([`EventQueue::write`]).
    Written {
        /// The application's number of the event.
        number: u32,
        /// The data of the event.
        data: Box<[u8]>,
    },
    /// An event of a connection, or a peer's request for one.
    Connection(ConnectionEvent),
}

/// A control operation that failed: `struct fi_eq_err_entry`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventError {
    /// The object of the operation (`fid`). For an endpoint, the number that it was bound with.
    pub object: u64,
    /// The context of the operation that failed.
    pub context: u64,
    /// Details of the operation, such as the index of the address that could not be inserted.
    pub data: u64,
    /// The error number (`err`).
    pub errno: Errno,
    /// homespun's error number (`prov_errno`), for [`EventQueue::strerror`].
    pub prov_errno: i32,
    /// Data about the error (`err_data`). For a rejected connection, the data that the peer's application
    /// has sent with the rejection.
    pub err_data: Vec<u8>,
    /// The other end of the connection that failed. Not part of `struct fi_eq_err_entry`.
    pub peer: Option<Address>,
}

impl fmt::Display for EventError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.peer {
            Some(peer) => write!(f, "there is no connection to {peer}: {}", strerror(self.prov_errno)),
            None => write!(f, "an operation on object {} failed: {}", self.object, self.errno),
        }
    }
}

impl std::error::Error for EventError {}

/// The error of a read of an event queue. An empty queue is no error: the read returns `Ok(None)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum EqReadError {
    /// An error is in the queue. The application must first read it with [`EventQueue::read_error`].
    #[error("an error is to be read first")]
    ErrorAvailable,
    /// [`EventQueue::read_if`] does not accept the oldest event. The event stays in the queue.
    #[error("the oldest event is not the one that was asked for")]
    Unwanted,
    /// The queue was opened with [`WaitObject::None`] or [`WaitObject::Set`].
    #[error("the event queue was opened without a wait object of its own")]
    NoWaitObject,
    /// A blocking read without a time limit would never end: in the simulation nothing more happens.
    #[error("the read would never end: nothing more happens in the simulation")]
    Deadlock,
}

impl EqReadError {
    /// The error number that a C caller gets, positive.
    pub fn errno(self) -> Errno {
        match self {
            EqReadError::ErrorAvailable => Errno::EAVAIL,
            EqReadError::Unwanted => Errno::ETOOSMALL,
            EqReadError::NoWaitObject => Errno::EINVAL,
            EqReadError::Deadlock => Errno::EDEADLK,
        }
    }
}

/// A queue of events of connections, and of events that the application's threads write to each other.
///
/// Clones are handles to the same queue. Any thread may use the queue at any time. Events leave the queue
/// in the order in which they entered it. Errors leave the queue before all events. The queue is never
/// overrun: it refuses an application's event that does not fit ([`EqAttr::size_entries`]), and has room
/// for all others.
///
/// Connections make progress while a thread reads a queue or a counter to which their endpoint is bound.
/// With automatic progress they need no reader. A passive endpoint always needs a thread that reads its
/// event queue.
///
/// ```
/// use homespun::eq::{EqAttr, EqFlags, Event};
/// use homespun::{Fabric, WaitObject};
///
/// let attr = EqAttr { flags: EqFlags::WRITE, wait: WaitObject::Unspec, ..EqAttr::default() };
/// let eq = Fabric::new().open_eq(&attr)?;
/// let other_thread = std::thread::spawn({
///     let eq = eq.clone();
///     move || eq.write(7, b"done")
/// });
/// let event = eq.sread(None).expect("a wait object");
/// assert_eq!(event, Some(Event::Written { number: 7, data: b"done"[..].into() }));
/// # other_thread.join().unwrap()?;
/// # Ok::<(), homespun::Error>(())
/// ```
#[derive(Clone)]
pub struct EventQueue {
    shared: Arc<EqShared>,
}

/// The part of a queue that endpoints share.
pub(crate) struct EqShared {
    size_entries: usize,
    is_writable: bool,
    queues: Mutex<EventLists>,
    /// The number of bound objects.
    bound: AtomicUsize,
    /// The enabled endpoints.
    driven: Driven,
    /// `None` without a wait object.
    waiter: Option<Waiter>,
    /// The clock of blocking reads.
    clock: Clock,
}

#[derive(Default)]
struct EventLists {
    events: VecDeque<Entry<Event>>,
    errors: VecDeque<Entry<EventError>>,
    /// The number of unread events that the application has written.
    written_events: usize,
    written_errors: usize,
    /// Accepts that the next reader of the queue [settles](PendingAccept), once the reader holds no lock.
    settled: Vec<PendingAccept>,
}

/// The result of a read or a peek: the event, and the accept to [settle](PendingAccept) now that the event
/// is read. `None` if there is no event.
type Taken<R> = Result<Option<(R, Option<PendingAccept>)>, EqReadError>;

/// Identifies the endpoint that has reported an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct EventOrigin(u64);

struct Entry<T> {
    what: T,
    /// `None` for events that the application has written.
    origin: Option<EventOrigin>,
    /// The accept to [settle](PendingAccept) once the application has read this entry.
    pending_accept: Option<PendingAccept>,
}

impl EventQueue {
    /// Opens a queue.
    ///
    /// # Errors
    ///
    /// As [`Fabric::open_eq`](crate::Fabric::open_eq).
    pub(crate) fn open(attr: &EqAttr, clock: &Clock) -> Result<Self, Error> {
        let unknown = attr.flags.difference(EqFlags::all());
        if !unknown.is_empty() {
            return Err(Misuse::Flags(unknown.bits()).into());
        }
        let shared = EqShared {
            size_entries: if attr.size_entries == 0 { EQ_DEPTH_DEFAULT_ENTRIES } else { attr.size_entries },
            is_writable: attr.flags.contains(EqFlags::WRITE),
            queues: Mutex::default(),
            bound: AtomicUsize::new(0),
            driven: Driven::default(),
            waiter: Waiter::new(attr.wait, attr.wait_set.as_ref(), clock)?,
            clock: clock.clone(),
        };
        let shared = Arc::new(shared);
        if let Some(waiter) = &shared.waiter {
            waiter.attach_member(Arc::downgrade(&shared));
        }
        Ok(EventQueue { shared })
    }

    /// Inserts an event of the application: `fi_eq_write(3)`. Returns the length of its data.
    ///
    /// # Errors
    ///
    /// [`Misuse::State`] if the queue was opened without [`EqFlags::WRITE`]. [`Again::QueueFull`] if
    /// [`EqAttr::size_entries`] events of the application are unread.
    pub fn write(&self, number: u32, data: &[u8]) -> Result<usize, Error> {
        self.shared.check_writable()?;
        let mut queues = self.shared.queues.lock();
        if queues.written_events >= self.shared.size_entries {
            return Err(Again::QueueFull.into());
        }
        queues.written_events += 1;
        queues.events.push_back(Entry::written_by_application(Event::Written { number, data: data.into() }));
        drop(queues);
        self.shared.wake_sleepers();
        Ok(data.len())
    }

    /// Inserts an error of the application, for [`read_error`](Self::read_error).
    ///
    /// # Errors
    ///
    /// As [`write`](Self::write).
    pub fn write_error(&self, error: EventError) -> Result<(), Error> {
        self.shared.check_writable()?;
        let mut queues = self.shared.queues.lock();
        if queues.written_errors >= self.shared.size_entries {
            return Err(Again::QueueFull.into());
        }
        queues.written_errors += 1;
        queues.errors.push_back(Entry::written_by_application(error));
        drop(queues);
        self.shared.wake_sleepers();
        Ok(())
    }

    /// Reads the oldest event without waiting: `fi_eq_read(3)`. Returns `None` if the queue is empty.
    ///
    /// # Errors
    ///
    /// [`EqReadError::ErrorAvailable`].
    pub fn read(&self) -> Result<Option<Event>, EqReadError> {
        self.shared.poll(EventLists::take)
    }

    /// As [`read`](Self::read), but reads the oldest event only if `is_wanted` accepts it. The queue is
    /// locked while `is_wanted` runs.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read). Also [`EqReadError::Unwanted`] if `is_wanted` does not accept the event.
    /// The event then stays in the queue.
    pub fn read_if(&self, is_wanted: impl Fn(&Event) -> bool) -> Result<Option<Event>, EqReadError> {
        self.shared.poll(|queues| queues.take_if(&is_wanted))
    }

    /// Returns the oldest event, and leaves it in the queue: `fi_eq_read(3)` with `FI_PEEK`.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read).
    pub fn peek(&self) -> Result<Option<Event>, EqReadError> {
        self.shared.poll(EventLists::peek)
    }

    /// Reads the oldest error, if there is one: `fi_eq_readerr(3)`. Drives no progress.
    pub fn read_error(&self) -> Option<EventError> {
        self.read_error_with(|_| ()).map(|(error, ())| error)
    }

    /// As [`read_error`](Self::read_error), but also calls `look` with the error, and returns the result of
    /// `look`. The queue is locked while `look` runs, so `look` must not use the queue. While `look` runs,
    /// the endpoint that the error names exists.
    pub fn read_error_with<R>(&self, look: impl FnOnce(&EventError) -> R) -> Option<(EventError, R)> {
        let (entry, found) = {
            let mut queues = self.shared.queues.lock();
            let entry = queues.errors.pop_front()?;
            queues.written_errors -= usize::from(entry.origin.is_none());
            let found = look(&entry.what);
            (entry, found)
        };
        Some((entry.what, found))
    }

    /// Returns the oldest error, and leaves it in the queue: `fi_eq_readerr(3)` with `FI_PEEK`.
    pub fn peek_error(&self) -> Option<EventError> {
        self.peek_error_with(|_| ()).map(|(error, ())| error)
    }

    /// As [`peek_error`](Self::peek_error), but also calls `look`. See
    /// [`read_error_with`](Self::read_error_with).
    pub fn peek_error_with<R>(&self, look: impl FnOnce(&EventError) -> R) -> Option<(EventError, R)> {
        let queues = self.shared.queues.lock();
        let error = &queues.errors.front()?.what;
        let found = look(error);
        Some((error.clone(), found))
    }

    /// Drives the bound endpoints, and reads no event.
    pub fn progress(&self) {
        self.shared.driven.progress_without_reader();
    }

    /// Returns the text of an [`EventError::prov_errno`]: `fi_eq_strerror(3)`. For an unknown number, the
    /// text is "Unknown error".
    pub fn strerror(&self, prov_errno: i32) -> &'static str {
        strerror(prov_errno)
    }

    /// Closes the queue: `fi_close`. Dropping the last clone of the handle drops unread entries.
    ///
    /// # Errors
    ///
    /// [`Misuse::Busy`] while an object is bound to the queue. The error returns the handle.
    pub fn close(self) -> Result<(), Rejected<Self>> {
        if self.shared.bound.load(Ordering::Acquire) > 0 && !mutated!("fi_eq/close-eq-ebusy") {
            return Err(Rejected { error: Misuse::Busy(InUse::EventQueue).into(), returned: self });
        }
        Ok(())
    }

    pub(crate) fn shared(&self) -> &Arc<EqShared> {
        &self.shared
    }
}

impl EqShared {
    /// Makes this endpoint wake sleepers on the queue. Call this before
    /// [`add_endpoint`](Self::add_endpoint). Do not call this for an endpoint that a progress thread
    /// drives.
    ///
    /// # Errors
    ///
    /// The system's error: ENOMEM, ENOSPC.
    pub(crate) fn add_wake_source(&self, endpoint: &Arc<dyn Drive>) -> Result<(), Error> {
        self.waiter.as_ref().map_or(Ok(()), |waiter| waiter.add_wake_source(&**endpoint))
    }

    /// Adds an endpoint that reads drive.
    pub(crate) fn add_endpoint(&self, endpoint: &Arc<dyn Drive>) {
        self.driven.add(endpoint.clone());
        if let Some(waiter) = &self.waiter {
            waiter.ring_after_seqcst_fence();
        }
    }

    /// Undoes [`add_wake_source`](Self::add_wake_source) and [`add_endpoint`](Self::add_endpoint). The
    /// caller closes the endpoint next.
    pub(crate) fn remove_endpoint(&self, endpoint: &Arc<dyn Drive>) {
        if let Some(waiter) = &self.waiter {
            waiter.remove_wake_source(&**endpoint);
        }
        self.driven.remove_unless_first(endpoint);
    }

    /// Returns the waiter, if the queue has a wait object.
    pub(crate) fn waiter(&self) -> Option<&Waiter> {
        self.waiter.as_ref()
    }

    /// Counts an object that is bound.
    pub(crate) fn add_binding(&self) {
        self.bound.fetch_add(1, Ordering::AcqRel);
    }

    /// Undoes one [`add_binding`](Self::add_binding).
    pub(crate) fn remove_binding(&self) {
        self.bound.fetch_sub(1, Ordering::AcqRel);
    }

    /// Reports an event, or an error, of an endpoint.
    fn report(
        &self,
        outcome: Result<Event, EventError>,
        origin: EventOrigin,
        pending_accept: Option<PendingAccept>,
    ) {
        let origin = Some(origin);
        let mut queues = self.queues.lock();
        match outcome {
            Ok(event) => queues.events.push_back(Entry { what: event, origin, pending_accept }),
            Err(error) => queues.errors.push_back(Entry { what: error, origin, pending_accept }),
        }
        drop(queues);
        self.wake_sleepers();
    }

    /// Stores an accept that is to be [settled](PendingAccept), but has no event. The next reader of the
    /// queue settles the accept.
    fn defer_settling_accept(&self, pending_accept: Option<PendingAccept>) {
        self.queues.lock().settled.extend(pending_accept);
    }

    /// Drops a request of a passive endpoint, if the application has not read the request. The caller has
    /// the passive endpoint locked.
    fn withdraw_request(&self, origin: EventOrigin, request: RequestId) {
        let mut queues = self.queues.lock();
        let is_it = |entry: &Entry<Event>| match &entry.what {
            Event::Connection(ConnectionEvent::Request(of)) => {
                entry.origin == Some(origin) && of.id() == request
            }
            _ => false,
        };
        let place = queues.events.iter().position(is_it);
        let withdrawn = place.and_then(|place| queues.events.remove(place));
        drop(queues);
        if let Some(Entry { what: Event::Connection(ConnectionEvent::Request(request)), .. }) = withdrawn {
            request.drop_listener();
        }
    }

    /// Drops the entries of a closed endpoint. Dropping a request rejects it. Also [settles](PendingAccept)
    /// the accepts that wait for a reader. If no thread reads the queue any more, these accepts would keep
    /// closed passive endpoints alive.
    fn drop_entries_of_endpoint_and_settle_accepts(&self, origin: EventOrigin) {
        let mut queues = self.queues.lock();
        let is_of_others = |of: Option<EventOrigin>| of != Some(origin);
        // Drop the entries after unlocking the queue: dropping a request calls its passive endpoint.
        let (events, others) = queues.events.drain(..).partition(|entry| !is_of_others(entry.origin));
        queues.events = others;
        let (errors, others) = queues.errors.drain(..).partition(|entry| !is_of_others(entry.origin));
        queues.errors = others;
        let settled = mem::take(&mut queues.settled);
        drop(queues);
        drop::<(VecDeque<_>, VecDeque<_>, Vec<_>)>((events, errors, settled));
    }

    /// Reads without waiting. If the queue is empty, drives the endpoints and reads once more.
    fn poll<R>(&self, take: impl Fn(&mut EventLists) -> Taken<R>) -> Result<Option<R>, EqReadError> {
        let look = || {
            let mut queues = self.queues.lock();
            (take(&mut queues), mem::take(&mut queues.settled))
        };
        let (mut taken, mut settled) = look();
        if matches!(taken, Ok(None)) {
            self.driven.progress_without_reader();
            let (taken_now, settled_now) = look();
            taken = taken_now;
            settled.extend(settled_now);
        }
        // Settling takes other locks, so do it with the queue unlocked.
        drop(settled);
        Ok(taken?.map(|(read, _)| read))
    }

    fn has_entries(&self) -> bool {
        let queues = self.queues.lock();
        !queues.events.is_empty() || !queues.errors.is_empty()
    }

    fn check_writable(&self) -> Result<(), Error> {
        if self.is_writable || mutated!("fi_eq/write-needs-flag") {
            Ok(())
        } else {
            Err(Misuse::State(ObjectState::EventQueueNotWritable).into())
        }
    }

    /// Wakes all sleepers, not only one: a reader that only peeks leaves the event to the others.
    fn wake_sleepers(&self) {
        if let Some(waiter) = &self.waiter {
            waiter.ring();
        }
    }
}

impl EventLists {
    fn front(&self) -> Result<Option<&Event>, EqReadError> {
        if !self.errors.is_empty() && !mutated!("fi_eq/eq-eavail-means-readerr") {
            return Err(EqReadError::ErrorAvailable);
        }
        Ok(self.events.front().map(|entry| &entry.what))
    }

    fn peek(&mut self) -> Taken<Event> {
        if mutated!("fi_eq/peek-leaves-event") {
            return self.take();
        }
        Ok(self.front()?.map(|event| (event.clone(), None)))
    }

    fn take(&mut self) -> Taken<Event> {
        self.take_if(|_| true)
    }

    fn take_if(&mut self, is_wanted: impl Fn(&Event) -> bool) -> Taken<Event> {
        if self.front()?.is_some_and(|event| !is_wanted(event)) {
            return Err(EqReadError::Unwanted);
        }
        let Some(entry) = self.events.pop_front() else { return Ok(None) };
        if mutated!("fi_eq/one-event-per-read") {
            drop(self.events.pop_front());
        }
        self.written_events -= usize::from(entry.origin.is_none());
        Ok(Some((entry.what, entry.pending_accept)))
    }
}

impl<T> Entry<T> {
    fn written_by_application(what: T) -> Entry<T> {
        Entry { what, origin: None, pending_accept: None }
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
