//! Poll sets drive several queues and counters at once: `fi_poll(3)`.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use homespun_engine::error::{Argument, Error, InUse, Missing, Misuse};
use homespun_engine::rejected::Rejected;
use parking_lot::Mutex;

use crate::counter::{self, Counter};
use crate::cq::{self, CompletionQueue};
use crate::domain_id::DomainId;
use crate::mutated;

/// Makes progress for several completion queues and counters of a domain, and finds the ready ones:
/// `fi_poll(3)`.
///
/// Any thread may use a poll set at any time. A member takes some 50 bytes.
///
/// ```
/// use homespun::{CounterAttr, CqAttr, Fabric, Hints};
///
/// let fabric = Fabric::new();
/// let domain = fabric.domain(&fabric.info(&Hints::new())?)?;
/// let (cq, counter) = (domain.open_cq(&CqAttr::default())?, domain.open_counter(&CounterAttr::default())?);
/// let set = domain.open_poll_set();
/// set.add(&cq, 7)?;
/// set.add(&counter, 8)?;
///
/// let mut contexts = [0; 2];
/// assert_eq!(set.poll(&mut contexts), 0);
/// counter.add(1);
/// assert_eq!(set.poll(&mut contexts), 1);
/// assert_eq!(contexts[0], 8);
/// # Ok::<(), homespun::Error>(())
/// ```
pub struct PollSet {
    domain: DomainId,
    /// Replaced as a whole when a member is added or removed. Polls run without the lock: they may drop
    /// buffers of the application, and destructors of buffers may call anything.
    members: Mutex<Arc<[Arc<Polled>]>>,
    /// The index of the member that the next poll checks first. A poll that runs out of room sets this to
    /// the member at which it stopped, so every member has its turn.
    first: AtomicUsize,
}

/// An object that a [`PollSet`] can poll.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum PollObject<'a> {
    /// A completion queue. It is ready while it is not empty.
    Queue(&'a CompletionQueue),
    /// A counter. It is ready if its values have changed, or the application has set it, since this set last
    /// reported it.
    Counter(&'a Counter),
}

struct Polled {
    object: Object,
    context: u64,
}

enum Object {
    Queue(Arc<cq::CqShared>),
    Counter { counter: Arc<counter::CounterShared>, reported: counter::Reported },
}

impl PollSet {
    pub(crate) fn new(domain: DomainId) -> PollSet {
        PollSet { domain, members: Mutex::new(Arc::default()), first: AtomicUsize::new(0) }
    }

    /// Adds a queue or a counter: `fi_poll_add`. [`poll`](Self::poll) returns `context` when the object is
    /// ready. The application cannot close the object before it [removes](Self::remove) the object or drops
    /// the set.
    ///
    /// # Errors
    ///
    /// [`Misuse::OtherDomain`] for an object of another domain. [`Misuse::Invalid`] for an object that is
    /// already in the set.
    pub fn add<'a>(&self, object: impl Into<PollObject<'a>>, context: u64) -> Result<(), Error> {
        let object = object.into();
        if object.domain() != self.domain {
            return Err(Misuse::OtherDomain.into());
        }
        let mut members = self.members.lock();
        if members.iter().any(|member| member.object.is_same_object(object)) {
            return Err(Misuse::Invalid(Argument::PollSetMember).into());
        }
        let added = Arc::new(Polled { object: Object::new(object), context });
        *members = members.iter().cloned().chain([added]).collect();
        Ok(())
    }

    /// Removes a queue or a counter: `fi_poll_del`.
    ///
    /// # Errors
    ///
    /// [`Misuse::NotFound`] for an object that is not in the set.
    pub fn remove<'a>(&self, object: impl Into<PollObject<'a>>) -> Result<(), Error> {
        let object = object.into();
        let mut members = self.members.lock();
        let Some(removed) = members.iter().find(|member| member.object.is_same_object(object)) else {
            return Err(Misuse::NotFound(Missing::PollSetMember).into());
        };
        removed.object.release();
        *members = members.iter().filter(|member| !member.object.is_same_object(object)).cloned().collect();
        Ok(())
    }

    /// Makes progress at all members, and writes the contexts of ready members into `contexts`: `fi_poll`.
    /// Returns the number of contexts written. If there is not enough room, the next call starts with the
    /// members left out.
    pub fn poll(&self, contexts: &mut [u64]) -> usize {
        let mut places = contexts.iter_mut();
        self.poll_each(places.len(), |context| {
            if let Some(place) = places.next() {
                *place = context;
            }
        })
    }

    /// As [`poll`](Self::poll), but calls `tell` with each of at most `max` contexts.
    pub fn poll_each(&self, max: usize, mut tell: impl FnMut(u64)) -> usize {
        let members = self.members.lock().clone();
        if !mutated!("fi_poll/poll-drives-and-reports") {
            members.iter().for_each(|member| member.object.progress());
        }
        let first = self.first.load(Ordering::Relaxed) % members.len().max(1);
        let (behind, ahead) = members.split_at(first);
        let mut count = 0;
        for (place, member) in ahead.iter().chain(behind).enumerate() {
            let overfills = mutated!("fi_poll/poll-count");
            if count == max && !overfills {
                self.first.store(first + place, Ordering::Relaxed);
                break;
            }
            if member.object.check_ready_and_mark_reported() {
                if !overfills || count < max {
                    tell(member.context);
                }
                count += 1;
            }
        }
        count
    }

    /// Closes the set.
    ///
    /// # Errors
    ///
    /// [`Misuse::Busy`], with the set, while it has members.
    pub fn close(self) -> Result<(), Rejected<PollSet>> {
        if self.members.lock().is_empty() {
            return Ok(());
        }
        Err(Rejected { error: Misuse::Busy(InUse::PollSet).into(), returned: self })
    }
}

impl PollObject<'_> {
    fn domain(self) -> DomainId {
        match self {
            PollObject::Queue(cq) => cq.shared().domain(),
            PollObject::Counter(counter) => counter.shared().domain(),
        }
    }
}

impl<'a> From<&'a CompletionQueue> for PollObject<'a> {
    fn from(cq: &'a CompletionQueue) -> Self {
        PollObject::Queue(cq)
    }
}

impl<'a> From<&'a Counter> for PollObject<'a> {
    fn from(counter: &'a Counter) -> Self {
        PollObject::Counter(counter)
    }
}

impl Object {
    /// Keeps the object open until it is [released](Self::release).
    fn new(object: PollObject<'_>) -> Object {
        match object {
            PollObject::Queue(cq) => {
                cq.shared().add_binding();
                Object::Queue(cq.shared().clone())
            }
            PollObject::Counter(counter) => {
                let counter = counter.shared().clone();
                counter.add_binding();
                Object::Counter { counter, reported: Default::default() }
            }
        }
    }

    /// Allows the object to be closed. Another thread may still poll it.
    fn release(&self) {
        match self {
            Object::Queue(cq) => cq.remove_binding(),
            Object::Counter { counter, .. } => counter.remove_binding(),
        }
    }

    fn is_same_object(&self, object: PollObject<'_>) -> bool {
        match (self, object) {
            (Object::Queue(own), PollObject::Queue(cq)) => Arc::ptr_eq(own, cq.shared()),
            (Object::Counter { counter: own, .. }, PollObject::Counter(counter)) => {
                Arc::ptr_eq(own, counter.shared())
            }
            _ => false,
        }
    }

    fn progress(&self) {
        match self {
            Object::Queue(cq) => cq.progress(),
            Object::Counter { counter, .. } => counter.progress(),
        }
    }

    /// Returns whether the object is ready. Records the values of a counter as reported, so a counter is
    /// ready only once after a change.
    fn check_ready_and_mark_reported(&self) -> bool {
        match self {
            Object::Queue(cq) => cq.has_unread() && !mutated!("fi_poll/poll-returns-nonempty-queues"),
            Object::Counter { counter, reported } => {
                reported.update_if_outdated(counter.values_and_change_count())
                    && !mutated!("fi_poll/poll-returns-changed-counters")
            }
        }
    }
}

impl Drop for PollSet {
    fn drop(&mut self) {
        self.members.get_mut().iter().for_each(|member| member.object.release());
    }
}

impl fmt::Debug for PollSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PollSet").field("members", &self.members.lock().len()).finish_non_exhaustive()
    }
}
