//! Every order in which those who sleep and those who wake them may see what the other does, as far as loom explores it.
//! Whoever is slept through never wakes, which loom finds.
//!
//! Loom takes accesses that are sequentially consistent for an acquire and a release, so that fences alone are in one order
//! for all.

use loom::model::Builder;
use loom::sync::Arc;
use loom::thread::{self, JoinHandle};

use super::*;
use crate::counter::CounterWaitError;
use crate::cq::{CompletionQueue, CqAttr, ReadError};
use crate::domain::DomainId;
use crate::info::ResourceManagement;
use crate::lock::Locking;
use crate::sync::{AtomicU64, Ordering};
use crate::{Counter, CounterAttr};

/// How often a thread is interrupted at most where it could have gone on. Known mistakes of such algorithms need two.
const PREEMPTIONS_MAX: usize = 3;

const QUIET: Armed = Armed::Asleep { look_again_after: None };

fn explore(test: impl Fn() + Sync + Send + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(PREEMPTIONS_MAX);
    builder.check(test);
}

fn counter(wait: WaitObject) -> Counter {
    Counter::open(&CounterAttr { wait, ..CounterAttr::default() }, DomainId::unused()).expect("a counter")
}

fn waiter(counter: &Counter, threshold: u64) -> JoinHandle<Result<(), CounterWaitError>> {
    let counter = counter.clone();
    thread::spawn(move || counter.wait(threshold, None))
}

/// What there is of an endpoint whose counts are waited for.
struct Counted {
    wait: Wait,
    /// Taken by whoever counts, and by whoever arms.
    endpoint: Mutex<()>,
    value: AtomicU64,
}

impl Counted {
    fn new(wait: WaitObject) -> Arc<Counted> {
        let wait = Wait::new(wait, None).expect("descriptors").expect("something to wait by");
        Arc::new(Counted { wait, endpoint: Mutex::new(()), value: AtomicU64::new(0) })
    }

    /// Counts as a pass of an endpoint does.
    fn count(&self) {
        let _pass = self.endpoint.lock();
        self.value.fetch_add(1, Ordering::Relaxed);
        self.wait.ring();
    }

    /// Sleeps as an application does, until there are so many.
    fn sleep_by_oneself(&self, threshold: u64) {
        let reached = Reached(self, threshold);
        while !reached.is_there() {
            if self.wait.try_wait(&reached) {
                let bed = self.wait.bed().expect("something to sleep on");
                bed.application.as_ref().expect("a spot").doorbell.wait();
            }
        }
    }
}

struct Reached<'a>(&'a Counted, u64);

impl Awaited for Reached<'_> {
    fn progress(&self) {}

    fn arm(&self) -> Armed {
        drop(self.0.endpoint.lock());
        QUIET
    }

    fn is_there(&self) -> bool {
        self.0.value.load(Ordering::Relaxed) >= self.1
    }
}

/// The entries of a queue: whoever inserts one rings before they give the lock back.
struct Inserted {
    wait: Wait,
    entries: Mutex<usize>,
}

impl Inserted {
    fn insert(&self) {
        let mut entries = self.entries.lock();
        *entries += 1;
        self.wait.ring();
    }
}

struct Holds<'a>(&'a Inserted, usize);

impl Awaited for Holds<'_> {
    fn progress(&self) {}

    fn arm(&self) -> Armed {
        QUIET
    }

    fn is_there(&self) -> bool {
        *self.0.entries.lock() >= self.1
    }
}

#[test]
fn a_doorbell_is_armed_or_readable() {
    explore(|| {
        let doorbell = Arc::new(Doorbell::new().expect("a descriptor"));
        let others = [Doorbell::arm, Doorbell::ring].map(|act| {
            let doorbell = doorbell.clone();
            thread::spawn(move || act(&doorbell))
        });
        doorbell.arm();
        doorbell.ring();
        for other in others {
            other.join().unwrap();
        }
        assert_ne!(doorbell.is_armed(), doorbell.is_readable());
    });
}

#[test]
fn nobody_sleeps_through_what_is_counted_without_a_lock() {
    explore(|| {
        let counter = counter(WaitObject::Unspec);
        let waiter = waiter(&counter, 1);
        counter.add(1);
        assert_eq!(waiter.join().unwrap(), Ok(()));
    });
}

#[test]
fn one_ring_wakes_all_who_sleep() {
    explore(|| {
        let counter = counter(WaitObject::Unspec);
        let waiters = [1, 1].map(|threshold| waiter(&counter, threshold));
        counter.add(1);
        for waiter in waiters {
            assert_eq!(waiter.join().unwrap(), Ok(()));
        }
    });
}

/// As they go, nobody rings.
#[test]
fn whoever_comes_and_goes_does_not_silence_what_others_have_not_heard() {
    explore(|| {
        let counter = counter(WaitObject::Unspec);
        let waiter = waiter(&counter, 1);
        let passer_by = thread::spawn({
            let counter = counter.clone();
            move || counter.wait(2, Some(Duration::ZERO))
        });
        counter.add(1);
        assert_eq!(passer_by.join().unwrap(), Err(CounterWaitError::TimedOut));
        assert_eq!(waiter.join().unwrap(), Ok(()));
    });
}

/// Who waits for more wakes for less, and goes to sleep again while others may not have woken yet.
#[test]
fn whoever_is_woken_for_less_is_woken_again() {
    explore(|| {
        let counter = counter(WaitObject::Unspec);
        let waiters = [1, 2].map(|threshold| waiter(&counter, threshold));
        counter.add(1);
        counter.add(1);
        for waiter in waiters {
            assert_eq!(waiter.join().unwrap(), Ok(()));
        }
    });
}

#[test]
fn nobody_sleeps_through_what_an_endpoint_counts() {
    explore(|| {
        let counted = Counted::new(WaitObject::Unspec);
        let waiters = [1, 2].map(|threshold| {
            let counted = counted.clone();
            thread::spawn(move || wait_until(Some(&counted.wait), &Reached(&counted, threshold), None))
        });
        counted.count();
        counted.count();
        for waiter in waiters {
            assert!(waiter.join().unwrap());
        }
    });
}

#[test]
fn nobody_sleeps_through_what_is_inserted() {
    explore(|| {
        let wait = Wait::new(WaitObject::Unspec, None).expect("descriptors").expect("something to wait by");
        let inserted = Arc::new(Inserted { wait, entries: Mutex::new(0) });
        let waiters = [1, 2].map(|threshold| {
            let inserted = inserted.clone();
            thread::spawn(move || wait_until(Some(&inserted.wait), &Holds(&inserted, threshold), None))
        });
        inserted.insert();
        inserted.insert();
        for waiter in waiters {
            assert!(waiter.join().unwrap());
        }
    });
}

#[test]
fn those_inside_calls_and_one_who_sleeps_by_itself_wake_alike() {
    explore(|| {
        let counted = Counted::new(WaitObject::Fd);
        let waiters = [
            thread::spawn({
                let counted = counted.clone();
                move || assert!(wait_until(Some(&counted.wait), &Reached(&counted, 2), None))
            }),
            thread::spawn({
                let counted = counted.clone();
                move || counted.sleep_by_oneself(2)
            }),
        ];
        counted.count();
        counted.count();
        for waiter in waiters {
            waiter.join().unwrap();
        }
    });
}

#[test]
fn nobody_sleeps_through_a_signal() {
    explore(|| {
        let attr = CqAttr { wait: WaitObject::Unspec, ..CqAttr::default() };
        let (mgmt, locking) = (ResourceManagement::Enabled, Locking::Taken);
        let cq = CompletionQueue::open(&attr, DomainId::unused(), mgmt, locking).expect("a queue");
        let reader = thread::spawn({
            let cq = cq.clone();
            move || cq.sread(None)
        });
        cq.signal().expect("a queue that can be waited for");
        assert_eq!(reader.join().unwrap(), Err(ReadError::Empty));
    });
}
