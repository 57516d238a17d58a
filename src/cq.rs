//! Completion queues: `fi_cq(3)`.

use std::collections::VecDeque;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use homespun_engine::buffer::Buffer;
use homespun_engine::completion;
use homespun_engine::errno::Errno;
use homespun_engine::error::{Error, Misuse, OperationError};
use homespun_engine::flags::CompletionFlags;
use smallvec::SmallVec;

use crate::av::FabricAddress;
use crate::domain::DomainId;
use crate::driven::Driven;
use crate::lock::{Lock, LockGuard};

/// How many entries a completion queue has if its attributes do not say.
pub const CQ_DEPTH_DEFAULT_ENTRIES: usize = 2048;

/// The largest completion queue that can be opened.
pub const CQ_DEPTH_MAX_ENTRIES: usize = 1 << 24;

/// How many entries a read takes under one lock.
const READ_BATCH_ENTRIES: usize = 4;

/// How many reads in a row may find an entry before one drives progress all the same.
const IDLE_READS_MAX: u32 = 15;

/// How much a completion queue tells of an operation: `enum fi_cq_format`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CqFormat {
    /// The operation's context alone.
    Context,
    /// Also its flags and the length of what was received.
    Msg,
    /// Also remote data.
    Data,
    /// Also the tag. The default.
    #[default]
    Tagged,
}

/// How an application may wait on a queue: `enum fi_wait_obj`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WaitObject {
    /// It does not wait: it polls.
    #[default]
    None,
    /// By blocking calls of this library, which choose the means.
    Unspec,
    /// Through a wait set.
    Set,
    /// By a file descriptor.
    Fd,
    /// By a mutex and a condition variable.
    MutexCond,
    /// By yielding the processor between polls.
    Yield,
    /// By a set of file descriptors.
    PollFd,
}

/// What a completion queue is opened with: `struct fi_cq_attr`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CqAttr {
    /// How many entries it holds; 0 for [`CQ_DEPTH_DEFAULT_ENTRIES`]. An entry takes about 100 bytes, once it was used.
    pub size_entries: usize,
    /// What an entry tells; `None` for the default.
    pub format: Option<CqFormat>,
    /// How the application waits. Only [`WaitObject::None`] can be had.
    pub wait: WaitObject,
}

/// A successful operation: the entry of a completion queue.
///
/// Fields that the queue's [`CqFormat`] does not include are 0 or empty, except [`buffer`](Self::buffer), which every
/// format hands back.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Completion {
    /// The context that the operation was posted with.
    pub context: u64,
    /// What kind of operation it was.
    pub flags: CompletionFlags,
    /// For a receive, the length of the message.
    pub len_bytes: usize,
    /// The remote data, if [`CompletionFlags::REMOTE_CQ_DATA`] is set.
    pub data: u64,
    /// The tag, for a received tagged message.
    pub tag: u64,
    /// The application's buffer, if the operation was posted with one of its own.
    pub buffer: Buffer,
}

/// A failed operation: `struct fi_cq_err_entry`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompletionError {
    /// The operation, as far as it got: `len_bytes` bytes of a truncated message were placed.
    pub completion: Completion,
    /// Why it failed.
    pub error: OperationError,
    /// The sender of a message that a receive failed on.
    pub source: FabricAddress,
}

impl CompletionError {
    /// The positive error number (`err`).
    pub fn errno(&self) -> Errno {
        self.error.errno()
    }

    /// How many bytes of the message did not fit (`olen`).
    pub fn overflow_bytes(&self) -> u64 {
        match self.error {
            OperationError::Truncated { overflow_bytes } => overflow_bytes,
            _ => 0,
        }
    }

    /// The provider's own error number (`prov_errno`), for [`CompletionQueue::strerror`].
    pub fn provider_errno(&self) -> i32 {
        self.errno().raw()
    }
}

/// Why nothing was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// There is no completion. Not an error.
    #[error("no completion is available")]
    Empty,
    /// The topmost completion is that of a failed operation; [`CompletionQueue::read_error`] reads it.
    #[error("the next completion is an error")]
    ErrorAvailable,
}

impl ReadError {
    /// The error number that a C caller gets, positive.
    pub fn errno(self) -> Errno {
        match self {
            ReadError::Empty => Errno::EAGAIN,
            ReadError::ErrorAvailable => Errno::EAVAIL,
        }
    }
}

/// A queue of completed operations: `fi_cq(3)`.
///
/// Reading drives the endpoints that are bound to the queue: with manual progress nothing is received, and nothing
/// that had to be queued is sent, except inside such calls. The queue is bounded and never overrun: a send whose
/// completion would not fit gets [`Again::CompletionQueueFull`](homespun_engine::error::Again), and a receive that
/// finds no room waits, outside the queue, until there is.
///
/// A handle may be cloned and used from any thread.
///
/// A loop that polls a queue has three cases to handle:
///
/// ```
/// use homespun::{CompletionQueue, ReadError};
///
/// fn poll(cq: &CompletionQueue) {
///     match cq.read() {
///         Ok(completion) => println!("operation {} is done", completion.context),
///         Err(ReadError::Empty) => {}
///         Err(ReadError::ErrorAvailable) => {
///             if let Ok(failed) = cq.read_error() {
///                 println!("operation {} failed: {}", failed.completion.context, failed.error);
///             }
///         }
///     }
/// }
/// # let fabric = homespun::Fabric::new();
/// # let domain = fabric.domain(&fabric.getinfo(None, None, Default::default(), None)?[0])?;
/// # poll(&domain.open_cq(&Default::default())?);
/// # Ok::<(), homespun::Error>(())
/// ```
#[derive(Clone)]
pub struct CompletionQueue {
    shared: Arc<Shared>,
}

/// The queue as endpoints see it.
pub(crate) struct Shared {
    domain: DomainId,
    format: CqFormat,
    ring: Lock<Ring>,
    /// How many entries the ring has: what there is to know without its lock.
    len_entries: AtomicUsize,
    /// How many reads in a row found an entry and so drove no progress.
    idle_reads: AtomicU32,
    /// How many endpoints are bound, enabled or not.
    users: AtomicUsize,
    /// The endpoints that are enabled.
    driven: Driven,
}

/// The entries. The sum of `entries` and `reserved` never exceeds `depth_entries`.
pub(crate) struct Ring {
    entries: VecDeque<Entry>,
    depth_entries: usize,
    reserved: usize,
}

/// A ring that is locked.
pub(crate) struct RingGuard<'a> {
    ring: LockGuard<'a, Ring>,
    len_entries: &'a AtomicUsize,
}

/// Somebody who reads a queue and drives its endpoints for that. What completes when the queue is empty is handed over at
/// once, without a detour through the ring.
pub(crate) struct Reader<'a> {
    cq: &'a Shared,
    /// What was handed over. One is enough: most reads ask for one, and whoever asks for more finds the rest in the ring.
    taken: Option<(Completion, FabricAddress)>,
    wants_one: bool,
    /// Whether nothing is in the ring that would have to be read first. Only what is behind the lock of the endpoint
    /// that is being driven counts: what another endpoint reports has no order with this one's.
    is_next: bool,
}

type Batch = SmallVec<[(Completion, FabricAddress); READ_BATCH_ENTRIES]>;

enum Entry {
    Completed(Completion, FabricAddress),
    Failed(Box<CompletionError>),
}

impl CompletionQueue {
    pub(crate) fn open(attr: &CqAttr, domain: DomainId) -> Result<CompletionQueue, Error> {
        if attr.wait != WaitObject::None {
            return Err(Misuse::NotSupported("waiting on a completion queue").into());
        }
        let depth_entries = match attr.size_entries {
            0 => CQ_DEPTH_DEFAULT_ENTRIES,
            asked if asked <= CQ_DEPTH_MAX_ENTRIES => asked,
            _ => return Err(Misuse::Invalid("completion queue larger than CQ_DEPTH_MAX_ENTRIES").into()),
        };
        let ring = Ring { entries: VecDeque::new(), depth_entries, reserved: 0 };
        Ok(CompletionQueue {
            shared: Arc::new(Shared {
                domain,
                format: attr.format.unwrap_or_default(),
                ring: Lock::new(ring),
                len_entries: AtomicUsize::new(0),
                idle_reads: AtomicU32::new(0),
                users: AtomicUsize::new(0),
                driven: Driven::default(),
            }),
        })
    }

    /// What entries of this queue tell.
    pub fn format(&self) -> CqFormat {
        self.shared.format
    }

    /// How many entries fit.
    pub fn depth_entries(&self) -> usize {
        self.shared.ring.lock().depth_entries
    }

    /// Reads one completion: `fi_cq_read(3)` with a count of 1.
    ///
    /// # Errors
    ///
    /// [`ReadError`].
    pub fn read(&self) -> Result<Completion, ReadError> {
        self.read_from().map(|(completion, _)| completion)
    }

    /// Reads one completion and its source: `fi_cq_readfrom(3)` with a count of 1.
    ///
    /// The source of a receive is an address that the endpoint's address vector holds, or
    /// [`FabricAddress::UNSPECIFIED`] if the endpoint was opened without `FI_SOURCE` or the sender was not inserted.
    ///
    /// # Errors
    ///
    /// [`ReadError`].
    pub fn read_from(&self) -> Result<(Completion, FabricAddress), ReadError> {
        let mut read = None;
        self.read_each(1, |completion, source| read = Some((completion, source)))?;
        read.ok_or(ReadError::Empty)
    }

    /// Reads up to `max` completions, oldest first, and returns how many. A `max` of 0 only drives progress. An error
    /// ends the batch before it. `take` is called without any lock, and may use the queue.
    ///
    /// # Errors
    ///
    /// [`ReadError`], when there is none to begin with.
    #[inline(always)]
    pub fn read_each(
        &self,
        max: usize,
        mut take: impl FnMut(Completion, FabricAddress),
    ) -> Result<usize, ReadError> {
        let mut reader = Reader::new(&self.shared, max);
        if max == 0 || self.shared.is_progress_due() {
            self.shared.driven.progress(&mut reader);
        }
        let mut count = 0;
        if let Some((completion, source)) = reader.taken {
            count = 1;
            take(completion, source);
        }
        if self.shared.len_entries() > 0 && (count < max || max == 0) {
            return self.read_ring(max, count, take);
        }
        if count == 0 { Err(ReadError::Empty) } else { Ok(count) }
    }

    /// Goes on with a read that has read `count` entries, from the ring.
    fn read_ring(
        &self,
        max: usize,
        mut count: usize,
        mut take: impl FnMut(Completion, FabricAddress),
    ) -> Result<usize, ReadError> {
        let mut batch = Batch::new();
        loop {
            {
                let mut ring = self.shared.lock();
                match ring.entries.front() {
                    Some(Entry::Failed(_)) if count == 0 => return Err(ReadError::ErrorAvailable),
                    Some(Entry::Completed(..)) if max == 0 => return Ok(0),
                    _ => {}
                }
                ring.pop_completed(max - count, &mut batch);
            }
            // What is called may itself use the queue, or an endpoint that reports to it, so the lock is gone.
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
        if count == 0 { Err(ReadError::Empty) } else { Ok(count) }
    }

    /// Reads the failed operation that is on top of the queue: `fi_cq_readerr(3)`. Drives no progress.
    ///
    /// # Errors
    ///
    /// [`ReadError::Empty`] if the queue is empty or a successful operation is on top.
    pub fn read_error(&self) -> Result<CompletionError, ReadError> {
        let mut ring = self.shared.lock();
        match ring.entries.pop_front() {
            Some(Entry::Failed(error)) => Ok(*error),
            Some(completed) => {
                ring.entries.push_front(completed);
                Err(ReadError::Empty)
            }
            None => Err(ReadError::Empty),
        }
    }

    /// Drives the bound endpoints without reading anything.
    pub fn progress(&self) {
        self.shared.driven.progress(&mut Reader::new(&self.shared, 0));
    }

    /// Says what a [`CompletionError::provider_errno`] means: `fi_cq_strerror(3)`.
    pub fn strerror(&self, provider_errno: i32) -> &'static str {
        Errno::new(provider_errno).description()
    }

    /// Closes the queue; entries that were not read are lost.
    ///
    /// # Errors
    ///
    /// [`Misuse::Busy`], with the queue, while an endpoint is bound to it.
    pub fn close(self) -> Result<(), (CompletionQueue, Error)> {
        match self.shared.users.load(Ordering::Acquire) {
            0 => Ok(()),
            _ => Err((self, Misuse::Busy("endpoints are bound to the completion queue").into())),
        }
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }
}

impl Shared {
    pub(crate) fn lock(&self) -> RingGuard<'_> {
        RingGuard { ring: self.ring.lock(), len_entries: &self.len_entries }
    }

    /// How many entries there are. Exact for whoever has written or read last.
    #[inline]
    fn len_entries(&self) -> usize {
        self.len_entries.load(Ordering::Acquire)
    }

    /// Whether a read is to drive progress: if there is nothing to read, and now and then all the same, for an
    /// application that always finds something, such as completions of its own sends.
    #[inline]
    fn is_progress_due(&self) -> bool {
        // Readers that count at the same time lose counts; it need not be exact.
        let idle_reads = self.idle_reads.load(Ordering::Relaxed);
        let is_due = self.len_entries() == 0 || idle_reads >= IDLE_READS_MAX;
        self.idle_reads.store(if is_due { 0 } else { idle_reads + 1 }, Ordering::Relaxed);
        is_due
    }

    pub(crate) fn domain(&self) -> DomainId {
        self.domain
    }

    pub(crate) fn format(&self) -> CqFormat {
        self.format
    }

    /// Counts an endpoint that is bound from now on.
    pub(crate) fn bind(&self) {
        self.users.fetch_add(1, Ordering::AcqRel);
    }

    /// Counts an endpoint that is bound no longer. To be called once for each [`bind`](Self::bind).
    pub(crate) fn unbind(&self) {
        self.users.fetch_sub(1, Ordering::AcqRel);
    }

    /// The endpoints that reading the queue drives.
    pub(crate) fn driven(&self) -> &Driven {
        &self.driven
    }
}

impl Deref for RingGuard<'_> {
    type Target = Ring;

    fn deref(&self) -> &Ring {
        &self.ring
    }
}

impl DerefMut for RingGuard<'_> {
    fn deref_mut(&mut self) -> &mut Ring {
        &mut self.ring
    }
}

impl Drop for RingGuard<'_> {
    fn drop(&mut self) {
        self.len_entries.store(self.ring.entries.len(), Ordering::Release);
    }
}

impl<'a> Reader<'a> {
    #[inline(always)]
    fn new(cq: &'a Shared, max: usize) -> Reader<'a> {
        Reader { cq, taken: None, wants_one: max > 0, is_next: false }
    }

    /// An endpoint's lock was taken, and with it all that it has reported before is known.
    #[inline(always)]
    pub(crate) fn begin(&mut self) {
        self.is_next = self.cq.len_entries() == 0;
    }

    /// Whether the next completion that is for this queue can be handed over.
    #[inline(always)]
    pub(crate) fn takes_from(&self, cq: &Shared) -> bool {
        self.is_next && self.wants_one && std::ptr::eq(self.cq, cq)
    }

    #[inline(always)]
    pub(crate) fn hand_over(&mut self, completion: Completion, source: FabricAddress) {
        self.taken = Some((completion, source));
        self.wants_one = false;
    }

    /// Something went into this queue's ring, so that the rest has to queue behind it.
    #[inline]
    pub(crate) fn overtaken(&mut self, cq: &Shared) {
        self.is_next &= !std::ptr::eq(self.cq, cq);
    }
}

impl Ring {
    /// Moves successful operations from the front to `batch`, up to its size and to `max` of them.
    fn pop_completed(&mut self, max: usize, batch: &mut Batch) {
        while batch.len() < max.min(READ_BATCH_ENTRIES)
            && matches!(self.entries.front(), Some(Entry::Completed(..)))
            && let Some(Entry::Completed(completion, source)) = self.entries.pop_front()
        {
            batch.push((completion, source));
        }
    }

    /// Sets a place aside for a completion to come. Returns whether there was one.
    pub(crate) fn reserve(&mut self) -> bool {
        let has_room = self.has_room();
        self.reserved += usize::from(has_room);
        has_room
    }

    /// Gives a place back that was set aside in vain.
    pub(crate) fn unreserve(&mut self) {
        self.reserved -= 1;
    }

    pub(crate) fn has_room(&self) -> bool {
        self.entries.len() + self.reserved < self.depth_entries
    }

    /// Appends a completion. There must be room, or a reserved place that was just given back.
    pub(crate) fn push_completed(&mut self, completion: Completion, source: FabricAddress) {
        debug_assert!(self.has_room());
        self.entries.push_back(Entry::Completed(completion, source));
    }

    /// Appends an error. There must be room, or a reserved place that was just given back.
    pub(crate) fn push_failed(&mut self, error: CompletionError) {
        debug_assert!(self.has_room());
        self.entries.push_back(Entry::Failed(Box::new(error)));
    }
}

impl From<completion::Completion> for Completion {
    #[inline(always)]
    fn from(completion: completion::Completion) -> Self {
        let completion::Completion { context, flags, len_bytes, data, tag, buffer, .. } = completion;
        Completion { context, flags, len_bytes, data, tag, buffer }
    }
}

impl CqFormat {
    /// Leaves in an entry what this format includes.
    #[inline(always)]
    pub(crate) fn trim(self, completion: &mut Completion) {
        if self == CqFormat::Tagged {
            return;
        }
        completion.tag = 0;
        if self == CqFormat::Data {
            return;
        }
        completion.data = 0;
        if self == CqFormat::Msg {
            return;
        }
        completion.flags = CompletionFlags::empty();
        completion.len_bytes = 0;
    }
}

impl fmt::Debug for CompletionQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ring = self.shared.ring.lock();
        f.debug_struct("CompletionQueue")
            .field("format", &self.shared.format)
            .field("entries", &ring.entries.len())
            .field("reserved", &ring.reserved)
            .field("depth_entries", &ring.depth_entries)
            .finish()
    }
}
