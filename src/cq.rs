//! Completion queues: `fi_cq(3)`.

mod blocking;
mod completion;
mod entry;
mod reader;
mod ring;
mod signals;
mod strerror;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use homespun_engine::errno::Errno;
use homespun_engine::error::{Argument, Error, InUse, Misuse};
use homespun_engine::rejected::Rejected;

pub use self::completion::{Completion, CompletionError, CqFormat, OperationKind};
pub use self::entry::Entry;
pub(crate) use self::reader::Reader;
pub(crate) use self::ring::RingGuard;
use self::ring::{Batch, Ring, RingEntry};
use self::signals::Signals;
pub use self::strerror::strerror;
use crate::av::FabricAddress;
use crate::domain_id::DomainId;
use crate::drive::Drive;
use crate::driven::Driven;
use crate::info::ResourceManagement;
use crate::lock::{Lock, Locking};
pub use crate::wait::{MutexCond, WaitObject};
use crate::wait::{WaitSet, Waiter};

/// How many entries a completion queue has if its attributes do not say.
pub const CQ_DEPTH_DEFAULT_ENTRIES: usize = 2048;

/// The largest completion queue that can be opened.
pub const CQ_DEPTH_MAX_ENTRIES: usize = 1 << 24;

/// How many reads in a row may find an entry before one drives progress all the same.
const IDLE_READS_MAX: u32 = 15;

/// What a completion queue is opened with: `struct fi_cq_attr`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(default, deny_unknown_fields)
)]
pub struct CqAttr {
    /// How many entries it holds; 0 for what [`CQ_SIZE`](crate::params::CQ_SIZE) says, else
    /// [`CQ_DEPTH_DEFAULT_ENTRIES`]. An entry takes about 100 bytes, once it was used.
    pub size_entries: usize,
    /// What an entry tells; `None` for the default.
    pub format: Option<CqFormat>,
    /// How the application waits: [`WaitObject`] says which kinds there are.
    pub wait: WaitObject,
    /// The set that it is a member of, with [`WaitObject::Set`]; ignored otherwise, and not part of
    /// what is serialized.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub wait_set: Option<WaitSet>,
}

/// Why a read of a completion queue fails. An empty queue is no failure: a read of it answers `Ok(None)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// The oldest entry is that of a failed operation; [`CompletionQueue::read_error`] reads it, and
    /// [`CompletionQueue::read_entry`] reads either kind.
    #[error("the next completion is an error")]
    ErrorAvailable,
    /// Everything was read, but completions were lost before that, and all later ones are. Only in
    /// a domain without resource management; see [`CompletionQueue`].
    #[error("the completion queue was overrun")]
    Overrun,
    /// A blocking read that would have to wait, of a queue that was opened without a wait object, or is
    /// waited for through a wait set.
    #[error("the completion queue was opened without a wait object of its own")]
    NoWaitObject,
}

impl ReadError {
    /// The error number that a C caller gets, positive.
    pub fn errno(self) -> Errno {
        match self {
            ReadError::ErrorAvailable => Errno::EAVAIL,
            ReadError::Overrun => Errno::EOVERRUN,
            ReadError::NoWaitObject => Errno::EINVAL,
        }
    }
}

/// A queue of completed operations: `fi_cq(3)`.
///
/// Reading drives the endpoints that are bound to the queue: with manual progress nothing is
/// received, and nothing that had to be queued is sent, except inside such calls. With [automatic
/// progress](crate::info::Progress::Auto) that goes on without them.
///
/// The queue is bounded. What happens when it is full is up to the domain's
/// [`resource_mgmt`](crate::info::DomainAttr::resource_mgmt):
///
/// - [`ResourceManagement::Enabled`], the default: the queue is never overrun. What completes and
///   finds no room waits at its endpoint, in order, until there is. It counts as outstanding there,
///   so that in the end posting gets [`Again::QueueFull`](homespun_engine::error::Again).
/// - [`ResourceManagement::Disabled`]: nothing is held back. A completion or error that finds the
///   queue full overruns it: this one and all later ones are lost, and buffers that they would have
///   handed back are dropped. What the queue holds can still be read. After that every read answers
///   [`ReadError::Overrun`], for good; a new queue needs a new endpoint. The operations themselves
///   are not touched, reads still drive progress, and peers do not notice.
///
/// A handle may be cloned and used from any thread.
///
/// A loop that polls a queue:
///
/// ```
/// use homespun::{CompletionQueue, Entry, ReadError};
///
/// fn poll(cq: &CompletionQueue) -> Result<(), ReadError> {
///     match cq.read_entry()? {
///         None => {}
///         Some(Entry::Completed(completion, _)) => println!("{} is done", completion.context),
///         Some(Entry::UnknownSource(completion, sender)) => {
///             println!("{} is done, sent from {sender}", completion.context);
///         }
///         Some(Entry::Failed(failed)) => println!("{failed}"),
///     }
///     Ok(())
/// }
/// # let fabric = homespun::Fabric::new();
/// # let domain = fabric.domain(&fabric.info(&homespun::Hints::new())?)?;
/// # poll(&domain.open_cq(&Default::default())?).expect("a queue that is not overrun");
/// # Ok::<(), homespun::Error>(())
/// ```
///
/// With a wait object a queue can be waited for instead, here by a thread of its own until another
/// one ends it:
///
/// ```
/// use homespun::{CqAttr, Fabric, Hints, WaitObject};
/// use std::thread;
///
/// # let fabric = Fabric::new();
/// # let domain = fabric.domain(&fabric.info(&Hints::new())?)?;
/// let cq = domain.open_cq(&CqAttr { wait: WaitObject::Unspec, ..CqAttr::default() })?;
/// thread::scope(|scope| {
///     let waiting = scope.spawn(|| cq.sread(None));
///     cq.signal().expect("a queue that can be waited for");
///     assert_eq!(waiting.join().unwrap(), Ok(None));
/// });
/// # Ok::<(), homespun::Error>(())
/// ```
#[derive(Clone)]
pub struct CompletionQueue {
    shared: Arc<CqShared>,
}

/// The queue as endpoints see it.
pub(crate) struct CqShared {
    domain: DomainId,
    format: CqFormat,
    depth_entries: usize,
    /// Whether completions that find no room are kept elsewhere, or are lost and the queue is overrun.
    is_protected: bool,
    ring: Lock<Ring>,
    /// [`Ring::unread_entries`]: what there is to know without the ring's lock.
    unread: AtomicUsize,
    /// How many reads in a row found an entry and so drove no progress.
    idle_reads: AtomicU32,
    /// How many endpoints are bound, enabled or not, and how many poll sets.
    users: AtomicUsize,
    /// The endpoints that are enabled.
    driven: Driven,
    /// `None` where the application does not wait.
    waiter: Option<Waiter>,
    /// What ends waits though there is nothing to read.
    signals: Signals,
}

impl CompletionQueue {
    pub(crate) fn open(
        attr: &CqAttr,
        domain: DomainId,
        resource_mgmt: ResourceManagement,
        locking: Locking,
    ) -> Result<CompletionQueue, Error> {
        let depth_entries = match attr.size_entries {
            0 => CQ_DEPTH_DEFAULT_ENTRIES,
            asked if asked <= CQ_DEPTH_MAX_ENTRIES => asked,
            _ => {
                return Err(
                    Misuse::Invalid(Argument::QueueDepth { max_entries: CQ_DEPTH_MAX_ENTRIES }).into()
                );
            }
        };
        let waiter = Waiter::new(attr.wait, attr.wait_set.as_ref())?;
        let cq = CompletionQueue {
            shared: Arc::new(CqShared {
                domain,
                format: attr.format.unwrap_or_default(),
                depth_entries,
                is_protected: resource_mgmt == ResourceManagement::Enabled,
                ring: locking.new_lock(Ring::new(depth_entries)),
                unread: AtomicUsize::new(0),
                idle_reads: AtomicU32::new(0),
                users: AtomicUsize::new(0),
                driven: Driven::default(),
                waiter,
                signals: Signals::default(),
            }),
        };
        if let Some(waiter) = cq.shared.waiter() {
            waiter.attach_member(Arc::downgrade(&cq.shared));
        }
        Ok(cq)
    }

    /// What entries of this queue tell.
    pub fn format(&self) -> CqFormat {
        self.shared.format
    }

    /// How many entries fit.
    pub fn depth_entries(&self) -> usize {
        self.shared.depth_entries
    }

    /// Reads one completion, or answers `None` if the queue is empty: `fi_cq_read(3)` with a count of 1.
    ///
    /// # Errors
    ///
    /// [`ReadError`].
    #[inline]
    pub fn read(&self) -> Result<Option<Completion>, ReadError> {
        Ok(self.read_from()?.map(|(completion, _)| completion))
    }

    /// Reads one completion and its source: `fi_cq_readfrom(3)` with a count of 1.
    ///
    /// The source of a receive is what the endpoint's address vector called its sender when the
    /// completion was put into the queue. It is [`FabricAddress::UNSPECIFIED`] (`FI_ADDR_NOTAVAIL`)
    /// if the vector did not hold the sender, if the endpoint was opened without
    /// [`Caps::SOURCE`](homespun_engine::flags::Caps::SOURCE), and for sends.
    ///
    /// An endpoint with [`Caps::SOURCE_ERR`](homespun_engine::flags::Caps::SOURCE_ERR) as well
    /// reports a completion whose sender the vector does not hold as an error with the sender's
    /// address: [`read_entry`](Self::read_entry) reads it as [`Entry::UnknownSource`].
    ///
    /// # Errors
    ///
    /// [`ReadError`].
    #[inline]
    pub fn read_from(&self) -> Result<Option<(Completion, FabricAddress)>, ReadError> {
        let mut reader = Reader::new(self.shared.unread_entries(), 1);
        self.shared.wake_sleepers();
        if self.shared.count_read_and_check_progress() {
            self.shared.driven.progress(&mut reader);
        }
        match reader.taken {
            Some(read) => Ok(Some(read)),
            None if self.shared.has_unread() => self.read_one_from_ring(),
            None => Ok(None),
        }
    }

    /// Reads the oldest entry of the ring, if it is one to be read so.
    #[inline]
    fn read_one_from_ring(&self) -> Result<Option<(Completion, FabricAddress)>, ReadError> {
        let mut ring = self.shared.lock_ring();
        let was_full = !ring.has_room();
        let Some(read) = ring.pop_one_completed() else {
            return match ring.front() {
                Some(_) => Err(ReadError::ErrorAvailable),
                None if ring.is_overrun() => {
                    self.shared.make_progress_due();
                    Err(ReadError::Overrun)
                }
                None => Ok(None),
            };
        };
        drop(ring);
        if was_full {
            // As in `read_rest_from_ring`.
            self.shared.wake_sleepers();
        }
        Ok(Some(read))
    }

    /// Reads up to `max` completions, oldest first, and returns how many; `None` if the queue is
    /// empty. A `max` of 0 only drives progress. An error ends the batch before it. `take` is
    /// called without any lock, and may use the queue.
    ///
    /// # Errors
    ///
    /// [`ReadError`], if the oldest entry is no completion.
    #[inline(always)]
    pub fn read_each(
        &self,
        max: usize,
        mut take: impl FnMut(Completion, FabricAddress),
    ) -> Result<Option<usize>, ReadError> {
        let mut reader = Reader::new(self.shared.unread_entries(), max);
        self.shared.wake_sleepers();
        if max == 0 || self.shared.count_read_and_check_progress() {
            self.shared.driven.progress(&mut reader);
        }
        let mut count = 0;
        if let Some((completion, source)) = reader.taken {
            count = 1;
            take(completion, source);
        }
        if self.shared.has_unread() && (count < max || max == 0) {
            return self.read_rest_from_ring(max, count, take);
        }
        Ok((count > 0).then_some(count))
    }

    /// Goes on with a read that has read `count` entries, from the ring.
    fn read_rest_from_ring(
        &self,
        max: usize,
        mut count: usize,
        mut take: impl FnMut(Completion, FabricAddress),
    ) -> Result<Option<usize>, ReadError> {
        let mut batch = Batch::new();
        loop {
            let was_full;
            let last;
            {
                let mut ring = self.shared.lock_ring();
                was_full = !ring.has_room();
                match ring.front() {
                    Some(RingEntry::Failed(_)) if count == 0 => return Err(ReadError::ErrorAvailable),
                    Some(RingEntry::Completed(..)) if max == 0 => return Ok(Some(0)),
                    None if count == 0 && ring.is_overrun() => {
                        self.shared.make_progress_due();
                        return Err(ReadError::Overrun);
                    }
                    _ => {}
                }
                last = if max - count == 1 {
                    ring.pop_one_completed()
                } else {
                    ring.pop_completed(max - count, &mut batch);
                    None
                };
            }
            if was_full {
                // A sleeper that wakes hands in what waits for room.
                self.shared.wake_sleepers();
            }
            // What is called may itself use the queue, or an endpoint that reports to it, so the
            // lock is gone.
            if let Some((completion, source)) = last {
                take(completion, source);
                return Ok(Some(count + 1));
            }
            if batch.is_empty() {
                break;
            }
            count += batch.len();
            for (completion, source) in batch.drain(..) {
                take(completion, source);
            }
            if count == max {
                break;
            }
        }
        Ok((count > 0).then_some(count))
    }

    /// Reads the oldest entry if it is that of a failed operation: `fi_cq_readerr(3)`. Answers
    /// `None` if the queue is empty or the oldest entry is that of a successful operation. Drives
    /// no progress.
    ///
    /// # Errors
    ///
    /// [`ReadError::Overrun`] once an overrun queue is empty. The manual says of such a queue that
    /// "any attempt to read" it gets this error, and `None` would promise that there may be more to
    /// come.
    pub fn read_error(&self) -> Result<Option<CompletionError>, ReadError> {
        let mut ring = self.shared.lock_ring();
        let was_full = !ring.has_room();
        let read = match ring.pop_failed() {
            Some(error) => Ok(Some(*error)),
            None if ring.front().is_none() && ring.is_overrun() => Err(ReadError::Overrun),
            None => Ok(None),
        };
        drop(ring);
        if was_full {
            self.shared.wake_sleepers();
        }
        read
    }

    /// Drives the bound endpoints without reading anything.
    pub fn progress(&self) {
        self.shared.progress();
    }

    /// Says what a [`CompletionError::prov_errno`] means: `fi_cq_strerror(3)`. Of a number that no
    /// error has, it says that it is not known.
    pub fn strerror(&self, prov_errno: i32) -> &'static str {
        strerror(prov_errno)
    }

    /// Closes the queue; entries that were not read are lost.
    ///
    /// # Errors
    ///
    /// [`Misuse::Busy`], with the queue, while an endpoint is bound to it or it is in a poll set.
    pub fn close(self) -> Result<(), Rejected<CompletionQueue>> {
        match self.shared.users.load(Ordering::Acquire) {
            0 => Ok(()),
            _ => Err(Rejected { error: Misuse::Busy(InUse::CompletionQueue).into(), returned: self }),
        }
    }

    pub(crate) fn shared(&self) -> &Arc<CqShared> {
        &self.shared
    }
}

impl CqShared {
    pub(crate) fn lock_ring(&self) -> RingGuard<'_> {
        RingGuard::new(self.ring.lock(), self)
    }

    /// How the application waits.
    #[inline]
    pub(crate) fn waiter(&self) -> Option<&Waiter> {
        self.waiter.as_ref()
    }

    /// Wakes sleepers before a read: endpoints report to the reader from now on, so that sleepers have to arm
    /// them anew.
    #[inline]
    fn wake_sleepers(&self) {
        if let Some(waiter) = self.waiter() {
            waiter.ring();
        }
    }

    /// Wakes sleepers for this endpoint, before any queue drives it; not where a thread moves it on, which
    /// wakes them for what they can read.
    ///
    /// # Errors
    ///
    /// What the system says: ENOMEM, ENOSPC.
    pub(crate) fn watch_endpoint(&self, endpoint: &Arc<dyn Drive>) -> Result<(), Error> {
        self.waiter().map_or(Ok(()), |waiter| waiter.watch_endpoint(&**endpoint))
    }

    /// Has reads drive this endpoint.
    pub(crate) fn drive_endpoint(&self, endpoint: &Arc<dyn Drive>) {
        self.driven.add(endpoint.clone());
        if let Some(waiter) = self.waiter() {
            waiter.fence_and_ring();
        }
    }

    /// Undoes [`watch`](Self::watch) and [`join`](Self::join). The endpoint must be closed next.
    pub(crate) fn forget_endpoint(&self, endpoint: &Arc<dyn Drive>) {
        if let Some(waiter) = self.waiter() {
            waiter.unwatch_endpoint(&**endpoint);
        }
        self.driven.remove(endpoint);
    }

    /// Whether the ring has something to read. Exact for the thread that has written or read last.
    #[inline]
    pub(crate) fn has_unread(&self) -> bool {
        self.unread.load(Ordering::Acquire) > 0
    }

    /// How much the ring has to read, by which a [`Reader`] knows the queue.
    #[inline(always)]
    pub(crate) fn unread_entries(&self) -> &AtomicUsize {
        &self.unread
    }

    /// Counts a read. Returns whether it is to drive progress: if there is nothing to read, and now
    /// and then for an application that always finds something, such as completions of its own
    /// sends.
    #[inline]
    fn count_read_and_check_progress(&self) -> bool {
        // Readers that count at the same time lose counts; it need not be exact.
        let idle_reads = self.idle_reads.load(Ordering::Relaxed);
        let is_due = !self.has_unread() || idle_reads >= IDLE_READS_MAX;
        self.idle_reads.store(if is_due { 0 } else { idle_reads + 1 }, Ordering::Relaxed);
        is_due
    }

    /// Locks the list of endpoints, for a test that no thread asks for it.
    #[cfg(test)]
    pub(crate) fn lock_driven(&self) -> impl Sized + '_ {
        self.driven.lock_for_test()
    }

    /// Has the next read drive progress. An overrun queue never looks empty, but its endpoints'
    /// peers wait for progress.
    fn make_progress_due(&self) {
        self.idle_reads.store(IDLE_READS_MAX, Ordering::Relaxed);
    }

    pub(crate) fn domain(&self) -> DomainId {
        self.domain
    }

    pub(crate) fn format(&self) -> CqFormat {
        self.format
    }

    /// Whether completions that find no room are kept elsewhere, or are lost and the queue is overrun.
    #[inline]
    pub(crate) fn is_overrun_protected(&self) -> bool {
        self.is_protected
    }

    /// Drives the endpoints without reading anything.
    pub(crate) fn progress(&self) {
        self.driven.progress(&mut Reader::new(self.unread_entries(), 0));
    }

    /// Counts an endpoint or a poll set that is bound from now on.
    pub(crate) fn add_binding(&self) {
        self.users.fetch_add(1, Ordering::AcqRel);
    }

    /// Counts an endpoint or a poll set that is bound no longer. To be called once for each
    /// [`bind`](Self::bind).
    pub(crate) fn remove_binding(&self) {
        self.users.fetch_sub(1, Ordering::AcqRel);
    }
}

impl fmt::Debug for CompletionQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ring = self.shared.ring.lock();
        f.debug_struct("CompletionQueue")
            .field("format", &self.shared.format)
            .field("depth_entries", &self.shared.depth_entries)
            .field("ring", &ring)
            .finish()
    }
}

#[cfg(test)]
mod tests;
