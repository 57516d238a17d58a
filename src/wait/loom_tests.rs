//! Tests with loom. Some threads wait by a [`Waiter`], and others wake them. Loom runs a test with all
//! orders in which the threads may see each other's changes. If a thread sleeps through a change, it never
//! wakes, and loom fails the test.
//!
//! Loom models sequentially consistent accesses as acquire and release. Only for fences does loom have one
//! order that all threads agree on.

use homespun_engine::transport::Armed;
use loom::model::Builder;
use loom::sync::Arc;
use loom::thread::{self, JoinHandle};

use super::*;
use crate::clock::Clock;
use crate::counter::CounterWaitError;
use crate::cq::{CompletionQueue, CqAttr};
use crate::domain_id::DomainId;
use crate::doorbell::Doorbell;
use crate::eq::{EqAttr, EqFlags, Event, EventQueue};
use crate::info::ResourceManagement;
use crate::lock::Locking;
use crate::sync::{AtomicU64, Mutex, Ordering};
use crate::{Counter, CounterAttr};

/// The largest number of preemptions in one execution. Two are enough to show the known mistakes in code
/// that puts threads to sleep.
const PREEMPTIONS_MAX: usize = 3;

/// The largest number of preemptions in tests with several doorbells and locks. With more preemptions these
/// tests would take minutes.
const PREEMPTIONS_OF_SETS_MAX: usize = 2;

const QUIET: Armed = Armed::Asleep { look_again_after: None };

fn explore_interleavings(test: impl Fn() + Sync + Send + 'static) {
    explore_interleavings_with(PREEMPTIONS_MAX, test);
}

fn explore_interleavings_with(preemptions_max: usize, test: impl Fn() + Sync + Send + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(preemptions_max);
    builder.check(test);
}

fn open_counter(wait: WaitObject) -> Counter {
    Counter::open(&CounterAttr { wait, ..CounterAttr::default() }, DomainId::allocate(), &Clock::System)
        .expect("a counter")
}

fn open_counter_in_set(set: &WaitSet) -> Counter {
    let attr = CounterAttr { wait: WaitObject::Set, wait_set: Some(set.clone()) };
    Counter::open(&attr, DomainId::allocate(), &Clock::System).expect("a counter")
}

fn open_cq(attr: &CqAttr) -> CompletionQueue {
    let (mgmt, locking) = (ResourceManagement::Enabled, Locking::Taken);
    CompletionQueue::open(attr, DomainId::allocate(), mgmt, locking, &Clock::System).expect("a queue")
}

fn spawn_waiter(counter: &Counter, threshold: u64) -> JoinHandle<Result<(), CounterWaitError>> {
    let counter = counter.clone();
    thread::spawn(move || counter.wait(threshold, None))
}

/// Starts a thread that calls a function with an object of the test.
fn spawn_with<T: 'static>(object: &Arc<T>, act: impl FnOnce(&T) + 'static) -> JoinHandle<()> {
    let object = object.clone();
    thread::spawn(move || act(&object))
}

fn join_all<T>(threads: impl IntoIterator<Item = JoinHandle<T>>) -> Vec<T> {
    threads.into_iter().map(|thread| thread.join().unwrap()).collect()
}

/// Threads wait until a counter reaches these thresholds, while this thread adds 1 so many times.
fn check_counter_waits(thresholds: [u64; 2], additions: usize) {
    explore_interleavings(move || {
        let counter = open_counter(WaitObject::Unspec);
        let waits = thresholds.map(|threshold| spawn_waiter(&counter, threshold));
        (0..additions).for_each(|_| counter.add(1));
        assert_eq!(join_all(waits), [Ok(()); 2]);
    });
}

fn make_waiter(object: WaitObject) -> Waiter {
    Waiter::new(object, None, &Clock::System).expect("descriptors").expect("something to wait by")
}

/// Waits as a blocking call does.
fn wait_until_ready(waiter: &Waiter, awaited: &impl Awaited) {
    waiter
        .wait(&Clock::System, None, awaited, || awaited.poll_ready().then_some(()))
        .expect("there is no timeout");
}

/// The parts of an endpoint that a thread waiting for its counts uses.
struct Counted {
    waiter: Waiter,
    /// Held while the endpoint counts, and while it is armed.
    endpoint: Mutex<()>,
    value: AtomicU64,
}

impl Counted {
    fn new(object: WaitObject) -> Arc<Counted> {
        Arc::new(Counted { waiter: make_waiter(object), endpoint: Mutex::new(()), value: AtomicU64::new(0) })
    }

    /// Counts as a pass of an endpoint does.
    fn count(&self) {
        let _pass = self.endpoint.lock();
        self.value.fetch_add(1, Ordering::Relaxed);
        self.waiter.ring();
    }

    fn wait(&self, threshold: u64) {
        wait_until_ready(&self.waiter, &Reached(self, threshold));
    }

    /// Sleeps as an application does, until the count reaches the threshold.
    fn sleep_in_application(&self, threshold: u64) {
        let reached = Reached(self, threshold);
        while !reached.poll_ready() {
            if self.waiter.try_wait(&reached) {
                self.waiter.sleep_in_application();
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

    fn poll_ready(&self) -> bool {
        self.0.value.load(Ordering::Relaxed) >= self.1
    }
}

/// A model of a queue. A thread that inserts an entry rings the doorbell before it releases the lock.
struct Inserted {
    waiter: Waiter,
    entries: Mutex<usize>,
}

impl Inserted {
    fn insert(&self) {
        let mut entries = self.entries.lock();
        *entries += 1;
        self.waiter.ring();
    }
}

struct Holds<'a>(&'a Inserted, usize);

impl Awaited for Holds<'_> {
    fn progress(&self) {}

    fn arm(&self) -> Armed {
        QUIET
    }

    fn poll_ready(&self) -> bool {
        *self.0.entries.lock() >= self.1
    }
}

#[test]
fn doorbell_is_armed_or_readable() {
    explore_interleavings(|| {
        let doorbell = Arc::new(Doorbell::new().expect("a descriptor"));
        let others = [Doorbell::arm, Doorbell::ring].map(|act| {
            let doorbell = doorbell.clone();
            thread::spawn(move || act(&doorbell))
        });
        doorbell.arm();
        doorbell.ring();
        join_all(others);
        assert_ne!(doorbell.is_armed(), doorbell.is_readable());
    });
}

#[test]
fn counter_wait_wakes_on_unlocked_add() {
    explore_interleavings(|| {
        let counter = open_counter(WaitObject::Unspec);
        let wait = spawn_waiter(&counter, 1);
        counter.add(1);
        assert_eq!(wait.join().unwrap(), Ok(()));
    });
}

#[test]
fn one_ring_wakes_all_sleepers() {
    check_counter_waits([1, 1], 1);
}

/// A thread that gives up its wait, as after a timeout, must not ring the doorbell of other waiters.
#[test]
fn abandoned_wait_keeps_doorbell_of_other_waiters() {
    explore_interleavings(|| {
        let counted = Counted::new(WaitObject::Unspec);
        let others = [
            spawn_with(&counted, |counted| counted.wait(1)),
            spawn_with(&counted, |counted| counted.waiter.prepare_sleep_and_abandon(&Reached(counted, 2))),
        ];
        counted.count();
        join_all(others);
    });
}

/// One thread waits until a counter reaches 1, another until it reaches 2. At 1 both are woken. The second
/// thread sleeps again, perhaps before the first has woken.
#[test]
fn wait_woken_below_its_threshold_wakes_again() {
    check_counter_waits([1, 2], 2);
}

#[test]
fn counter_waits_wake_on_endpoint_events() {
    explore_interleavings(|| {
        let counted = Counted::new(WaitObject::Unspec);
        let waits = [1, 2].map(|threshold| spawn_with(&counted, move |counted| counted.wait(threshold)));
        counted.count();
        counted.count();
        join_all(waits);
    });
}

#[test]
fn queue_waits_wake_on_inserted_entries() {
    explore_interleavings(|| {
        let inserted = Inserted { waiter: make_waiter(WaitObject::Unspec), entries: Mutex::new(0) };
        let inserted = Arc::new(inserted);
        let waits = [1, 2].map(|threshold| {
            spawn_with(&inserted, move |inserted| {
                wait_until_ready(&inserted.waiter, &Holds(inserted, threshold));
            })
        });
        inserted.insert();
        inserted.insert();
        join_all(waits);
    });
}

#[test]
fn threads_in_calls_and_in_application_waits_both_wake() {
    explore_interleavings(|| {
        let counted = Counted::new(WaitObject::Fd);
        let sleepers = [Counted::wait, Counted::sleep_in_application]
            .map(|sleep| spawn_with(&counted, move |counted| sleep(counted, 2)));
        counted.count();
        counted.count();
        join_all(sleepers);
    });
}

#[test]
fn cq_signal_ends_a_blocking_read() {
    explore_interleavings(|| {
        let cq = open_cq(&CqAttr { wait: WaitObject::Unspec, ..CqAttr::default() });
        let reader = thread::spawn({
            let cq = cq.clone();
            move || cq.sread(None)
        });
        cq.signal();
        assert_eq!(reader.join().unwrap(), Ok(None));
    });
}

#[test]
fn event_queue_read_wakes_on_write() {
    explore_interleavings(|| {
        let attr = EqAttr { flags: EqFlags::WRITE, wait: WaitObject::Unspec, ..EqAttr::default() };
        let eq = EventQueue::open(&attr, &Clock::System).expect("a queue");
        let readers = [(); 2].map(|()| {
            let eq = eq.clone();
            thread::spawn(move || eq.sread(None))
        });
        for number in 1..=2 {
            eq.write(number, b"").expect("room");
        }
        for read in join_all(readers) {
            assert!(matches!(read, Ok(Some(Event::Written { number: 1 | 2, .. }))));
        }
    });
}

#[test]
fn set_wait_wakes_on_a_member_of_several() {
    explore_interleavings_with(PREEMPTIONS_OF_SETS_MAX, || {
        let set = WaitSet::open(WaitObject::Unspec, &Clock::System).expect("a set");
        let members = [open_counter_in_set(&set), open_counter_in_set(&set)];
        let wait = thread::spawn(move || assert_eq!(set.wait(None), Ok(())));
        members[1].add(1);
        wait.join().unwrap();
    });
}

#[test]
fn set_wait_wakes_on_a_member_added_meanwhile() {
    explore_interleavings_with(PREEMPTIONS_OF_SETS_MAX, || {
        let set = WaitSet::open(WaitObject::Unspec, &Clock::System).expect("a set");
        let wait = thread::spawn({
            let set = set.clone();
            move || assert_eq!(set.wait(None), Ok(()))
        });
        let member = open_counter_in_set(&set);
        member.add(1);
        wait.join().unwrap();
    });
}

#[test]
fn set_wait_wakes_on_the_signal_of_a_member() {
    explore_interleavings_with(PREEMPTIONS_OF_SETS_MAX, || {
        let set = WaitSet::open(WaitObject::Unspec, &Clock::System).expect("a set");
        let wait_set = Some(set.clone());
        let cq = open_cq(&CqAttr { wait: WaitObject::Set, wait_set, ..CqAttr::default() });
        let wait = thread::spawn(move || assert_eq!(set.wait(None), Ok(())));
        cq.signal();
        wait.join().unwrap();
    });
}
