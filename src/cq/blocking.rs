//! Blocking reads of a completion queue, and the calls for applications that sleep by themselves:
//! `fi_cq_sread(3)`, `fi_trywait(3)`.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use homespun_engine::error::{Argument, Error, Misuse};
use homespun_engine::transport::Armed;

use super::signals::WaitingReader;
use super::{Completion, CompletionQueue, CqShared, MutexCond, ReadError, WaitObject};
use crate::av::FabricAddress;
use crate::mutated;
use crate::wait::{Awaited, WaitError, WaitSetMember, Waiter};

impl CompletionQueue {
    /// Reads one completion, and waits if the queue is empty: `fi_cq_sread(3)` with a count of 1. If
    /// `timeout` is `None`, waits without limit. Returns `None` after the timeout, or if
    /// [`signal`](Self::signal) or a signal handler (`signal(7)`) ends the wait.
    ///
    /// The thread polls for 50 us, unless that has been in vain lately. Then it sleeps, and makes progress at
    /// every event of the queue's endpoints. A handler ends the wait if it runs in this thread while it
    /// sleeps, with `SA_RESTART` or without. No handler ends the wait while the thread polls, as it does
    /// throughout with [`WaitObject::Yield`], and for transports that must be polled.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use homespun::{CqAttr, WaitObject};
    ///
    /// # let fabric = homespun::Fabric::new();
    /// # let domain = fabric.domain(&fabric.getinfo(None, None, Default::default(), None)?[0])?;
    /// let cq = domain.open_cq(&CqAttr { wait: WaitObject::Unspec, ..CqAttr::default() })?;
    /// // No endpoint is bound that could complete an operation.
    /// assert_eq!(cq.sread(Some(Duration::from_millis(5))), Ok(None));
    ///
    /// let sleeper = std::thread::spawn({
    ///     let cq = cq.clone();
    ///     move || cq.sread(None)
    /// });
    /// cq.signal();
    /// assert_eq!(sleeper.join().unwrap(), Ok(None));
    /// # Ok::<(), homespun::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`ReadError`].
    pub fn sread(&self, timeout: Option<Duration>) -> Result<Option<Completion>, ReadError> {
        Ok(self.sread_from(timeout)?.map(|(completion, _)| completion))
    }

    /// As [`sread`](Self::sread), with the source: `fi_cq_sreadfrom(3)` with a count of 1.
    ///
    /// # Errors
    ///
    /// As [`sread`](Self::sread).
    pub fn sread_from(
        &self,
        timeout: Option<Duration>,
    ) -> Result<Option<(Completion, FabricAddress)>, ReadError> {
        let mut read = None;
        self.sread_each(1, 1, timeout, |completion, source| read = Some((completion, source)))?;
        Ok(read)
    }

    /// Waits until the queue has `threshold_entries` entries (`FI_CQ_COND_THRESHOLD`), is full, or has an
    /// error. Then reads up to `max` completions as [`read_each`](Self::read_each) does. After the timeout
    /// or a signal of either kind, reads the entries that the queue has. A threshold of 0 counts as 1. With
    /// a `max` of 0, waits and reads nothing.
    ///
    /// If the queue has no wait object of its own, this call reads without waiting.
    ///
    /// # Errors
    ///
    /// As [`sread`](Self::sread). [`ReadError::NoWaitObject`] only if the queue has no entry and the
    /// timeout is not 0.
    pub fn sread_each(
        &self,
        max: usize,
        threshold_entries: usize,
        timeout: Option<Duration>,
        mut take: impl FnMut(Completion, FabricAddress),
    ) -> Result<Option<usize>, ReadError> {
        let least = if mutated!("fi_cq/wait-condition") { 2 } else { 1 };
        let threshold_entries =
            if mutated!("fi_cq/cond-threshold") { 1 } else { threshold_entries.max(least) };
        let Some(waiter) = self.shared.waiter().and_then(Waiter::if_not_set_member) else {
            return match self.read_each(max, take) {
                Ok(None) if mutated!("fi_cq/wait-none-refuses-sread") && self.shared.waiter.is_none() => {
                    Ok(None)
                }
                Ok(None) if mutated!("fi_cq/sread-needs-wait-object") && self.shared.waiter.is_some() => {
                    Ok(None)
                }
                Ok(None) if timeout != Some(Duration::ZERO) => Err(ReadError::NoWaitObject),
                read => read,
            };
        };
        let is_cut_short = match waiter.object() {
            WaitObject::Yield => mutated!("fi_cq/wait-yield"),
            WaitObject::Unspec | WaitObject::Fd => mutated!("fi_cq/wait-unspec-blocks"),
            _ => false,
        };
        let timeout = if is_cut_short { Some(Duration::ZERO) } else { timeout };
        let timeout = if mutated!("fi_cq/sread-blocks") { Some(Duration::ZERO) } else { timeout };
        let reader = self.shared.signals.begin_wait();
        let signal = Signal::Of(&reader);
        let entries = Entries { cq: &self.shared, threshold: threshold_entries, signal };
        let found = waiter.wait(&self.shared.clock, timeout, &entries, || {
            if threshold_entries == 1 || self.shared.progress_and_check_enough_entries(threshold_entries) {
                match self.read_each(max, &mut take) {
                    Ok(None) => {}
                    read => return Some(read),
                }
            }
            reader.take_signal().then(|| self.read_each(max, &mut take))
        });
        found.unwrap_or_else(|ended| match (self.read_each(max, take), ended) {
            (Ok(None), WaitError::Deadlock) => Err(ReadError::Deadlock),
            (Ok(None), WaitError::Interrupted) if mutated!("fi_cq/sread-ends-on-signal") => {
                Err(ReadError::Deadlock)
            }
            (read, _) => read,
        })
    }

    /// Ends all waits of [`sread`](Self::sread) and its variants: `fi_cq_signal(3)`. If no thread waits,
    /// ends the next wait. A read whose wait ends still returns the entries that the queue has.
    ///
    /// If the queue is a member of a wait set, the signal ends all waits for the set. If no thread waits
    /// for the set, the signal ends the next wait for it. No thread waits for a queue without a wait object,
    /// so there is nothing to end.
    pub fn signal(&self) {
        if let Some(waiter) = self.shared.waiter() {
            self.shared.signals.record_signal();
            waiter.ring();
        }
    }

    /// Prepares to sleep on [`wait_fd`](Self::wait_fd) or [`wait_mutex_cond`](Self::wait_mutex_cond):
    /// `fi_trywait(3)`. Makes progress first. Call it before each sleep.
    ///
    /// Returns `true` if the application may sleep: a later entry or signal will wake it. Returns `false`
    /// if an entry may be ready, if a transport must be polled, or with [`WaitObject::Yield`]. If the queue
    /// is in a wait set, the result is that of the [whole set](crate::WaitSet::try_wait).
    ///
    /// # Errors
    ///
    /// [`Misuse::Invalid`] for a queue that was opened without a wait object.
    pub fn try_wait(&self) -> Result<bool, Error> {
        let waiter = self.shared.waiter().ok_or(NO_WAIT_OBJECT)?;
        Ok(waiter.try_wait(&Entries { cq: &self.shared, threshold: 1, signal: Signal::Ignored }))
    }

    /// Returns the descriptor to sleep on: `FI_GETWAIT`. `None` unless the queue was opened with
    /// [`WaitObject::Fd`]. If the last [`try_wait`](Self::try_wait) returned `true`, the descriptor becomes
    /// readable when there may be an entry to read. The application may watch the descriptor with an
    /// `epoll(7)` of its own, but must not read from it. The descriptor is closed with the queue.
    ///
    /// ```
    /// use homespun::{CompletionQueue, Entry, ReadError};
    /// use rustix::event::{PollFd, PollFlags, poll};
    ///
    /// /// The next entry of a queue that was opened with `WaitObject::Fd`.
    /// fn next(cq: &CompletionQueue) -> Result<Entry, ReadError> {
    ///     loop {
    ///         if let Some(entry) = cq.read_entry()? {
    ///             return Ok(entry);
    ///         }
    ///         if cq.try_wait().expect("a wait object") {
    ///             let fd = cq.wait_fd().expect("a descriptor");
    ///             poll(&mut [PollFd::new(&fd, PollFlags::IN)], None).expect("a descriptor");
    ///         }
    ///     }
    /// }
    ///
    /// # use homespun::flags::{BindFlags, InfoFlags};
    /// # use homespun::{AvAttr, Bytes, BytesMut, CqAttr, Fabric, FabricAddress, WaitObject};
    /// # let fabric = Fabric::new();
    /// # let info = &fabric.getinfo(Some("127.0.0.1"), None, InfoFlags::SOURCE, None)?[0];
    /// # let domain = fabric.domain(info)?;
    /// let cq = domain.open_cq(&CqAttr { wait: WaitObject::Fd, ..CqAttr::default() })?;
    /// # let (av, endpoint) = (domain.open_av(&AvAttr::default())?, domain.endpoint(info)?);
    /// # endpoint.bind_cq(&cq, BindFlags::TRANSMIT | BindFlags::RECV)?;
    /// # endpoint.bind_av(&av)?;
    /// # endpoint.enable()?;
    /// # let own = av.insert(&[endpoint.name()?]).remove(0)?;
    /// endpoint.recv(BytesMut::zeroed(16), FabricAddress::UNSPECIFIED, 1)?;
    /// endpoint.send(Bytes::from_static(b"hello"), own, 2)?;
    /// let ended = [(); 2].map(|()| next(&cq).unwrap().into_result().unwrap().context);
    /// assert!(ended.contains(&1) && ended.contains(&2));
    /// # Ok::<(), homespun::Error>(())
    /// ```
    pub fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        self.shared.waiter().filter(|_| !mutated!("fi_cq/wait-object-is-retrievable")).and_then(Waiter::fd)
    }

    /// Returns the mutex and the condition variable to sleep on: `FI_GETWAIT`. `None` unless the queue was
    /// opened with [`WaitObject::MutexCond`]. If the last [`try_wait`](Self::try_wait) returned `true`, the
    /// queue broadcasts the condition when there may be an entry to read. The queue may also broadcast when
    /// there is no entry.
    ///
    /// The application must lock the mutex before `try_wait`, and hold the mutex until the wait begins.
    /// Otherwise the application may sleep for up to a second although there is an entry to read.
    ///
    /// The first call starts a thread and opens two descriptors. The thread sleeps while the application
    /// sleeps.
    ///
    /// # Errors
    ///
    /// The system's error: EMFILE, ENFILE, ENOMEM, EAGAIN.
    pub fn wait_mutex_cond(&self) -> Result<Option<MutexCond>, Error> {
        self.shared.waiter().filter(|_| !mutated!("fi_cq/getwait")).map_or(Ok(None), Waiter::mutex_cond)
    }

    /// Returns the wait object.
    pub fn wait_object(&self) -> WaitObject {
        self.shared.waiter().map_or(WaitObject::None, Waiter::object)
    }
}

/// A condition to wait for: the queue has `threshold` entries, is full, has an error, or was signalled.
struct Entries<'a> {
    cq: &'a CqShared,
    threshold: usize,
    signal: Signal<'a>,
}

/// The signals that end a wait.
enum Signal<'a> {
    /// For a wait of one reader: signals that were raised while the reader waited, and a pending signal.
    Of(&'a WaitingReader<'a>),
    /// For a wait for the queue's wait set: the pending signal, which was raised while no reader waited.
    Pending,
    Ignored,
}

impl Awaited for Entries<'_> {
    fn progress(&self) {
        self.cq.progress();
    }

    fn arm(&self) -> Armed {
        self.cq.driven.arm()
    }

    fn fire_due_works(&self) {
        self.cq.driven.fire_due_works();
    }

    fn poll_ready(&self) -> bool {
        self.cq.has_enough_entries(self.threshold)
            || match self.signal {
                Signal::Of(reader) => reader.has_signal(),
                Signal::Pending => self.cq.signals.is_pending(),
                Signal::Ignored => false,
            }
    }

    fn mark_reported(&self) {
        if matches!(self.signal, Signal::Pending) {
            self.cq.signals.clear_pending();
        }
    }
}

impl WaitSetMember for CqShared {
    fn with_awaited(&self, show: &mut dyn FnMut(&Waiter, &dyn Awaited)) {
        if let Some(waiter) = self.waiter() {
            let threshold = if mutated!("fi_cq/wait-set-is-signaled") { 2 } else { 1 };
            show(waiter, &Entries { cq: self, threshold, signal: Signal::Pending });
        }
    }
}

impl CqShared {
    /// Makes a pass over the endpoints. Returns whether a wait for this many entries can end.
    fn progress_and_check_enough_entries(&self, threshold_entries: usize) -> bool {
        self.progress();
        self.has_enough_entries(threshold_entries)
    }

    /// Whether a wait for this many entries can end. Checks while the ring is locked: if the caller has
    /// armed the doorbell before, a thread that inserts an entry after this check sees the doorbell armed.
    fn has_enough_entries(&self, threshold_entries: usize) -> bool {
        // Do not call `lock_ring` here: its guard would ring the doorbell if the ring has entries.
        let ring = self.ring.lock();
        ring.unread_entries() >= threshold_entries.min(self.depth_entries) || ring.has_failed()
    }
}

const NO_WAIT_OBJECT: Error = Error::Misuse(Misuse::Invalid(Argument::NoWaitObject));
