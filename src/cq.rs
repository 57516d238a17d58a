//! Completion queues: `fi_cq(3)`.

mod blocking;
mod completion;
mod entry;
mod reader;
mod ring;
mod signals;
mod strerror;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::{fmt, mem};

use homespun_engine::buffer::Buffer;
use homespun_engine::errno::Errno;
use homespun_engine::error::{Argument, Error, InUse, Misuse};
use homespun_engine::flags::CompletionFlags;
use homespun_engine::rejected::Rejected;

pub use self::completion::{Completion, CompletionError, CqFormat, OperationKind};
pub use self::entry::Entry;
pub(crate) use self::reader::Reader;
pub(crate) use self::ring::RingGuard;
use self::ring::{Batch, EntryKind, Ring};
use self::signals::Signals;
pub(crate) use self::strerror::prov_errno;
pub use self::strerror::strerror;
use crate::av::FabricAddress;
use crate::clock::Clock;
use crate::domain_id::DomainId;
use crate::drive::Drive;
use crate::driven::Driven;
use crate::info::ResourceManagement;
use crate::lock::{Lock, Locking};
use crate::mutated;
pub use crate::wait::{MutexCond, WaitObject};
use crate::wait::{WaitSet, Waiter};

/// The number of entries in a completion queue whose attributes give none.
pub const CQ_DEPTH_DEFAULT_ENTRIES: usize = 2048;

/// The largest completion queue that can be opened.
pub const CQ_DEPTH_MAX_ENTRIES: usize = 1 << 24;

/// After this many reads in a row that found an entry, the next read drives progress in any case.
const IDLE_READS_MAX: u32 = 15;

/// The attributes of a completion queue: `struct fi_cq_attr`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(default, deny_unknown_fields)
)]
pub struct CqAttr {
    /// The number of entries. 0 stands for the parameter [`CQ_SIZE`](crate::params::CQ_SIZE), or for
    /// [`CQ_DEPTH_DEFAULT_ENTRIES`] if the parameter is not set. The queue takes about 100 bytes for each
    /// place that has been filled, and keeps this memory until the queue is closed.
    pub size_entries: usize,
    /// The format of entries; `None` for the default.
    pub format: Option<CqFormat>,
    /// The wait object: [`WaitObject`] lists the kinds.
    pub wait: WaitObject,
    /// The wait set of the queue, for [`WaitObject::Set`]. Ignored with other wait objects; not serialized.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub wait_set: Option<WaitSet>,
}

/// The error of a read of a completion queue. An empty queue is no error: the read returns `Ok(None)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// The oldest entry is a failed operation. [`CompletionQueue::read_error`] reads it.
    /// [`CompletionQueue::read_entry`] reads successes and failures.
    #[error("the next completion is an error")]
    ErrorAvailable,
    /// The queue is empty and was overrun. Completions were lost, and all later ones will be lost, too.
    /// Only in a domain without resource management: see [`CompletionQueue`].
    #[error("the completion queue was overrun")]
    Overrun,
    /// A blocking read would have to wait, but the queue has no wait object or is a member of a wait set.
    #[error("the completion queue was opened without a wait object of its own")]
    NoWaitObject,
    /// A blocking read without a time limit would never end: in the simulation nothing more happens.
    #[error("the read would never end: nothing more happens in the simulation")]
    Deadlock,
}

impl ReadError {
    /// Returns the error number that a C caller gets, positive.
    pub fn errno(self) -> Errno {
        match self {
            ReadError::ErrorAvailable => Errno::EAVAIL,
            ReadError::Overrun => Errno::EOVERRUN,
            ReadError::NoWaitObject => Errno::EINVAL,
            ReadError::Deadlock => Errno::EDEADLK,
        }
    }
}

/// A queue of completed operations: `fi_cq(3)`.
///
/// Reads make passes of the endpoints that are bound to the queue. With manual progress, an endpoint
/// receives messages and sends queued ones only during these and other calls. With [automatic
/// progress](crate::info::Progress::Auto), a thread of the domain drives the endpoints, too.
///
/// The queue has a fixed size. [`resource_mgmt`](crate::info::DomainAttr::resource_mgmt) of the domain
/// decides what happens when the queue is full:
///
/// - [`ResourceManagement::Enabled`], the default: the queue never overruns. The completion waits at its
///   endpoint, in order, until the queue has room. Until then, the operation counts as outstanding. If too
///   many operations are outstanding, posts fail with [`Again::QueueFull`](crate::Again).
/// - [`ResourceManagement::Disabled`]: the first completion or error that finds the queue full overruns the
///   queue for good. This completion and all later ones are lost, and their buffers are dropped. The
///   entries in the queue can still be read; after them, every read returns [`ReadError::Overrun`]. The
///   operations are not affected, and reads still drive progress. An application that needs a new queue
///   needs a new endpoint, too.
///
/// Any thread may clone and use a handle.
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
/// With a wait object, a thread can wait for the queue instead. Here another thread ends the wait:
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
///     cq.signal();
///     assert_eq!(waiting.join().unwrap(), Ok(None));
/// });
/// # Ok::<(), homespun::Error>(())
/// ```
#[derive(Clone)]
pub struct CompletionQueue {
    shared: Arc<CqShared>,
}

/// The part of a queue that endpoints share.
pub(crate) struct CqShared {
    domain: DomainId,
    format: CqFormat,
    depth_entries: usize,
    /// Whether a completion waits at its endpoint if the queue is full. If not, the completion overruns the
    /// queue.
    is_protected: bool,
    ring: Lock<Ring>,
    /// [`Ring::unread_entries`], readable without the ring's lock.
    unread: AtomicUsize,
    /// The number of reads in a row that found enough entries and drove no progress.
    idle_reads: AtomicU32,
    /// The number of users: bound endpoints, enabled or not, and poll sets.
    users: AtomicUsize,
    /// The enabled endpoints.
    driven: Driven,
    /// `None` without a wait object.
    waiter: Option<Waiter>,
    /// The signals that end waits when there is nothing to read.
    signals: Signals,
    /// The clock of blocking reads.
    clock: Clock,
}

impl CompletionQueue {
    pub(crate) fn open(
        attr: &CqAttr,
        domain: DomainId,
        resource_mgmt: ResourceManagement,
        locking: Locking,
        clock: &Clock,
    ) -> Result<CompletionQueue, Error> {
        let depth_entries = match attr.size_entries {
            0 => CQ_DEPTH_DEFAULT_ENTRIES,
            2.. if mutated!("fi_cq/size-is-a-minimum") => attr.size_entries - 1,
            asked if asked <= CQ_DEPTH_MAX_ENTRIES => asked,
            _ => {
                return Err(
                    Misuse::Invalid(Argument::QueueDepth { max_entries: CQ_DEPTH_MAX_ENTRIES }).into()
                );
            }
        };
        let wait = match attr.wait {
            WaitObject::None if mutated!("fi_cq/wait-default-is-none") => WaitObject::Unspec,
            WaitObject::Fd if mutated!("fi_cq/wait-fd") => WaitObject::Yield,
            wait => wait,
        };
        let waiter = Waiter::new(wait, attr.wait_set.as_ref(), clock)?;
        let format = match attr.format.unwrap_or_default() {
            CqFormat::Data if mutated!("fi_cq/format-selects-structure") => CqFormat::Msg,
            format => format,
        };
        let cq = CompletionQueue {
            shared: Arc::new(CqShared {
                domain,
                format,
                depth_entries,
                is_protected: resource_mgmt == ResourceManagement::Enabled,
                ring: locking.new_lock(Ring::new(depth_entries)),
                unread: AtomicUsize::new(0),
                idle_reads: AtomicU32::new(0),
                users: AtomicUsize::new(0),
                driven: Driven::default(),
                waiter,
                signals: Signals::default(),
                clock: clock.clone(),
            }),
        };
        if let Some(waiter) = cq.shared.waiter()
            && !mutated!("fi_cq/wait-set")
        {
            waiter.attach_member(Arc::downgrade(&cq.shared));
        }
        Ok(cq)
    }

    /// Returns the format of the queue's entries.
    pub fn format(&self) -> CqFormat {
        self.shared.format
    }

    /// Returns the number of entries that fit.
    pub fn depth_entries(&self) -> usize {
        self.shared.depth_entries
    }

    /// Reads one completion, or returns `None` if the queue is empty: `fi_cq_read(3)` with a count of 1.
    ///
    /// # Errors
    ///
    /// [`ReadError::ErrorAvailable`], [`ReadError::Overrun`].
    #[inline]
    pub fn read(&self) -> Result<Option<Completion>, ReadError> {
        Ok(self.read_from()?.map(|(completion, _)| completion))
    }

    /// Reads one completion and its source: `fi_cq_readfrom(3)` with a count of 1.
    ///
    /// The source of a receive is the sender's fabric address in the endpoint's address vector, looked up
    /// when the completion entered the queue. The source is [`FabricAddress::UNSPECIFIED`]
    /// (`FI_ADDR_NOTAVAIL`) for sends, for a sender that the vector did not hold, and for an endpoint
    /// without [`Caps::SOURCE`](crate::Caps::SOURCE).
    ///
    /// If the endpoint also has [`Caps::SOURCE_ERR`](crate::Caps::SOURCE_ERR), a receive from a sender that
    /// the vector does not hold is reported as an error with the sender's address.
    /// [`read_entry`](Self::read_entry) returns this error as [`Entry::UnknownSource`].
    ///
    /// # Errors
    ///
    /// [`ReadError::ErrorAvailable`], [`ReadError::Overrun`].
    #[inline]
    pub fn read_from(&self) -> Result<Option<(Completion, FabricAddress)>, ReadError> {
        let mut reader = Reader::new(self.shared.unread_entries(), 1);
        if !self.shared.progress_and_find_entry(&mut reader, 1) {
            if mutated!("fi_cq/read-does-not-block") {
                return self.sread_from(None);
            }
            return Ok(None);
        }
        match reader.taken {
            Some(read) => Ok(Some(read)),
            None => self.read_one_from_ring(),
        }
    }

    /// Reads the oldest entry of the ring, if its operation has succeeded.
    #[inline]
    fn read_one_from_ring(&self) -> Result<Option<(Completion, FabricAddress)>, ReadError> {
        let mut ring = self.shared.lock_ring();
        let was_full = !ring.has_room();
        let Some(read) = ring.pop_one_completed() else {
            return match ring.front() {
                Some(_) if mutated!("fi_cq/read-eavail") => Ok(None),
                Some(_) => Err(ReadError::ErrorAvailable),
                None if ring.is_overrun() => {
                    self.shared.mark_progress_due();
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

    /// Reads up to `max` completions, oldest first, and passes each to `take`. Returns their number, or
    /// `None` if the queue is empty. Stops before the entry of a failed operation. With a `max` of 0,
    /// drives progress, reads nothing, and returns `Some(0)` if the queue has an entry. No lock is held
    /// while `take` runs, so `take` may use the queue.
    ///
    /// # Errors
    ///
    /// [`ReadError::ErrorAvailable`] if the oldest entry is a failure. [`ReadError::Overrun`] if the queue
    /// is empty and was overrun.
    #[inline(always)]
    pub fn read_each(
        &self,
        max: usize,
        mut take: impl FnMut(Completion, FabricAddress),
    ) -> Result<Option<usize>, ReadError> {
        let max = if mutated!("fi_cq/read-several") { max.min(1) } else { max };
        let mut reader = Reader::new(self.shared.unread_entries(), max);
        if !self.shared.progress_and_find_entry(&mut reader, max) {
            return Ok(None);
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

    /// As [`read_each`](Self::read_each), but shows each completion to `look` in its place, with its number
    /// in this read, and then drops the completion. This saves moving it.
    ///
    /// The queue is locked while `look` runs. So `look` must not use the queue, nor an endpoint that is
    /// bound to it: the call would never return.
    ///
    /// # Errors
    ///
    /// As [`read_each`](Self::read_each).
    #[inline(always)]
    pub fn look_at_each(
        &self,
        max: usize,
        mut look: impl FnMut(usize, &Completion, FabricAddress),
    ) -> Result<Option<usize>, ReadError> {
        if self.shared.count_read_if_ring_suffices(max) {
            let count = self.look_at_ring(0, max, &mut look);
            if count > 0 {
                self.shared.driven.end_wait();
                return Ok(Some(count));
            }
        }
        let mut reader = Reader::new(self.shared.unread_entries(), max);
        if !self.shared.pass_and_find_entry(&mut reader, max) {
            return Ok(None);
        }
        self.look_at_found(&mut reader, max, look)
    }

    /// Shows what a read has found after its passes.
    #[inline(always)]
    fn look_at_found(
        &self,
        reader: &mut Reader<'_>,
        max: usize,
        mut look: impl FnMut(usize, &Completion, FabricAddress),
    ) -> Result<Option<usize>, ReadError> {
        let mut count = 0;
        if let Some((completion, source)) = reader.taken.take() {
            count = 1;
            look(0, &completion, source);
            // Most completions of the raw tier have no buffer. Then nothing is dropped.
            if matches!(completion.buffer, Buffer::None) {
                mem::forget(completion);
            }
        }
        if self.shared.has_unread() && (count < max || max == 0) {
            count += self.look_at_ring(count, max, &mut look);
            if count == 0 {
                return self.read_and_look(max, look);
            }
        }
        Ok((count > 0).then_some(count))
    }

    /// As [`look_at_each`](Self::look_at_each), for a ring that begins with a failure, or was overrun.
    /// Another thread may have changed that meanwhile.
    #[cold]
    fn read_and_look(
        &self,
        max: usize,
        mut look: impl FnMut(usize, &Completion, FabricAddress),
    ) -> Result<Option<usize>, ReadError> {
        let mut shown = 0;
        self.read_rest_from_ring(max, 0, |completion, source| {
            look(shown, &completion, source);
            shown += 1;
        })
    }

    /// Shows completions of the ring to `look`, and removes them, until the read has `max`. It has `found`
    /// before. Stops before the entry of a failed operation. Returns the number of completions shown.
    #[inline(always)]
    fn look_at_ring(
        &self,
        found: usize,
        max: usize,
        look: &mut impl FnMut(usize, &Completion, FabricAddress),
    ) -> usize {
        let mut ring = self.shared.ring.lock();
        let was_full = !ring.has_room();
        let mut count = found;
        while count < max
            && ring.drop_front_if_completed(|completion, source| look(count, completion, source))
        {
            count += 1;
        }
        self.shared.note_unread(&ring);
        drop(ring);
        if was_full {
            // As in `read_rest_from_ring`.
            self.shared.wake_sleepers();
        }
        count - found
    }

    /// Reads the rest of a read from the ring. The read has already found `count` entries.
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
                    Some(_) if max == 0 => return Ok(Some(0)),
                    Some(EntryKind::Failed) if count == 0 => return Err(ReadError::ErrorAvailable),
                    None if count == 0 && ring.is_overrun() => {
                        self.shared.mark_progress_due();
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
                // The ring has room again. A woken sleeper makes passes, and these report the completions
                // that wait for room.
                self.shared.wake_sleepers();
            }
            // The ring is unlocked here, since `take` may use the queue, or an endpoint that is bound to
            // the queue.
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

    /// Reads the oldest entry if its operation has failed: `fi_cq_readerr(3)`. Returns `None` if the queue
    /// is empty, or if the operation of the oldest entry has succeeded. Drives no progress.
    ///
    /// # Errors
    ///
    /// [`ReadError::Overrun`] if the queue was overrun and has no entry left.
    pub fn read_error(&self) -> Result<Option<CompletionError>, ReadError> {
        let mut ring = self.shared.lock_ring();
        let was_full = !ring.has_room();
        let read = match ring.pop_failed() {
            Some(_) if mutated!("fi_cq/eavail-means-readerr") => Ok(None),
            Some(error) => Ok(Some(*error)),
            None if ring.front().is_none() && ring.is_overrun() => Err(ReadError::Overrun),
            None => Ok(None),
        };
        drop(ring);
        if was_full {
            self.shared.wake_sleepers();
        }
        if mutated!("fi_cq/readerr-does-not-block") && read == Ok(None) {
            self.sread(None)?;
        }
        read
    }

    /// Drives the bound endpoints, and reads no entry.
    pub fn progress(&self) {
        self.shared.progress();
    }

    /// Describes a [`CompletionError::prov_errno`]: `fi_cq_strerror(3)`. For an unknown number, the text is
    /// "Unknown error".
    pub fn strerror(&self, prov_errno: i32) -> &'static str {
        strerror(prov_errno)
    }

    /// Closes this handle of the queue: `fi_close`. Dropping the last clone of the handle drops unread
    /// entries.
    ///
    /// # Errors
    ///
    /// [`Misuse::Busy`] while an endpoint is bound to the queue, or the queue is in a poll set. The error
    /// returns the queue.
    pub fn close(self) -> Result<(), Rejected<CompletionQueue>> {
        match self.shared.users.load(Ordering::Acquire) {
            0 if !mutated!("fi_cq/close-loses-unread") || !self.shared.has_unread() => Ok(()),
            _ if mutated!("fi_cq/close-ebusy-for-endpoint") || mutated!("fi_poll/close-poll-set-ebusy") => {
                Ok(())
            }
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

    /// Appends the completion of a send that ended while it was posted. If there is no room, returns the
    /// buffer.
    #[inline(always)]
    pub(crate) fn try_push_send(
        &self,
        context: u64,
        flags: CompletionFlags,
        buffer: Buffer,
    ) -> Result<(), Buffer> {
        let mut ring = self.ring.lock();
        if !ring.has_room() {
            return Err(buffer);
        }
        ring.push_send(context, flags, self.format, buffer);
        self.note_unread(&ring);
        Ok(())
    }

    /// Stores how many entries are unread, for readers without the lock, and wakes the sleepers if there are
    /// any. The caller is about to unlock the ring.
    #[inline(always)]
    fn note_unread(&self, ring: &Ring) {
        let unread = ring.unread_entries();
        self.unread.store(unread, Ordering::Release);
        if unread > 0
            && let Some(waiter) = self.waiter()
        {
            waiter.ring();
        }
    }

    /// Returns the waiter, if the queue has a wait object.
    #[inline]
    pub(crate) fn waiter(&self) -> Option<&Waiter> {
        self.waiter.as_ref()
    }

    /// Wakes sleepers. A read calls this before its passes: a pass may leave an endpoint unarmed, so
    /// sleepers must arm the endpoint again.
    #[inline]
    fn wake_sleepers(&self) {
        if let Some(waiter) = self.waiter() {
            waiter.ring();
        }
    }

    /// Makes this endpoint wake sleepers on the queue. Call this before
    /// [`add_endpoint`](Self::add_endpoint). Do not call this for an endpoint that a progress thread
    /// drives: the progress thread wakes the sleepers itself.
    ///
    /// # Errors
    ///
    /// The system's error: ENOMEM, ENOSPC.
    pub(crate) fn add_wake_source(&self, endpoint: &Arc<dyn Drive>) -> Result<(), Error> {
        self.waiter().map_or(Ok(()), |waiter| waiter.add_wake_source(&**endpoint))
    }

    /// Adds an endpoint that reads drive.
    pub(crate) fn add_endpoint(&self, endpoint: &Arc<dyn Drive>) {
        self.driven.add(endpoint.clone());
        if let Some(waiter) = self.waiter() {
            waiter.ring_after_seqcst_fence();
        }
    }

    /// Undoes [`add_wake_source`](Self::add_wake_source) and [`add_endpoint`](Self::add_endpoint). The
    /// caller closes the endpoint next.
    pub(crate) fn remove_endpoint(&self, endpoint: &Arc<dyn Drive>) {
        if let Some(waiter) = self.waiter() {
            waiter.remove_wake_source(&**endpoint);
        }
        self.driven.remove_unless_first(endpoint);
    }

    /// Whether the ring has an entry to read, or was overrun. Other threads may change the ring meanwhile.
    #[inline]
    pub(crate) fn has_unread(&self) -> bool {
        self.unread.load(Ordering::Acquire) > 0
    }

    /// Returns the number of unread entries. In a [`Reader`], the address of this number identifies the
    /// queue.
    #[inline(always)]
    pub(crate) fn unread_entries(&self) -> &AtomicUsize {
        &self.unread
    }

    /// Drives progress for a read of up to `max` entries, if that is due. Returns whether the read finds an
    /// entry or an overrun. If not, the thread may have given its core away for a while.
    #[inline(always)]
    fn progress_and_find_entry(&self, reader: &mut Reader<'_>, max: usize) -> bool {
        if self.count_read_if_ring_suffices(max) {
            self.driven.end_wait();
            return true;
        }
        self.pass_and_find_entry(reader, max)
    }

    /// As [`progress_and_find_entry`](Self::progress_and_find_entry), for a read that drives progress.
    #[inline(always)]
    fn pass_and_find_entry(&self, reader: &mut Reader<'_>, max: usize) -> bool {
        self.wake_sleepers();
        self.idle_reads.store(0, Ordering::Relaxed);
        if max > 0 || !mutated!("fi_cq/read-zero-drives-progress") {
            self.driven.progress(reader);
        }
        if mutated!("fi_cq/count-limits-entries") && (1..self.unread.load(Ordering::Acquire)).contains(&max) {
            self.lock_ring().pop_one_completed();
        }
        let is_found = reader.taken.is_some() || self.has_unread();
        if is_found {
            self.driven.end_wait();
        } else {
            self.driven.count_empty_poll(&|| self.has_unread());
        }
        is_found
    }

    /// Whether the ring has as many entries as a read asks for, and the read need not drive progress. If so,
    /// counts the read. After [`IDLE_READS_MAX`] such reads in a row, the next one drives progress: otherwise
    /// an application that always finds enough entries would never drive it.
    #[inline(always)]
    fn count_read_if_ring_suffices(&self, max: usize) -> bool {
        // Concurrent readers lose counts; the number need not be exact.
        let idle_reads = self.idle_reads.load(Ordering::Relaxed);
        let suffices = self.unread.load(Ordering::Acquire) >= max && idle_reads < IDLE_READS_MAX && max > 0;
        if suffices {
            self.idle_reads.store(idle_reads + 1, Ordering::Relaxed);
            self.wake_sleepers();
        }
        suffices
    }

    #[cfg(test)]
    pub(crate) fn driven(&self) -> &Driven {
        &self.driven
    }

    /// Locks the list of endpoints. A test then checks that other threads do not need the lock.
    #[cfg(test)]
    pub(crate) fn lock_endpoint_list_for_test(&self) -> impl Sized + '_ {
        self.driven.lock_for_test()
    }

    /// Makes the next read drive progress. Reads of an overrun queue call this. An overrun queue never
    /// looks empty, so without this call its reads would seldom drive progress.
    fn mark_progress_due(&self) {
        self.idle_reads.store(IDLE_READS_MAX, Ordering::Relaxed);
    }

    pub(crate) fn domain(&self) -> DomainId {
        self.domain
    }

    pub(crate) fn format(&self) -> CqFormat {
        self.format
    }

    /// Whether a completion waits at its endpoint if the queue is full. If not, the completion overruns the
    /// queue.
    #[inline]
    pub(crate) fn is_overrun_protected(&self) -> bool {
        self.is_protected
    }

    /// Drives the endpoints, and reads no entry.
    pub(crate) fn progress(&self) {
        self.driven.progress(&mut Reader::new(self.unread_entries(), 0));
    }

    /// Counts an endpoint or a poll set that is bound.
    pub(crate) fn add_binding(&self) {
        self.users.fetch_add(1, Ordering::AcqRel);
    }

    /// Undoes one [`add_binding`](Self::add_binding).
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
