//! Works that wait, become due, find no room, and are cancelled.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use homespun_engine::buffer::{SegmentMut, Source};
use homespun_engine::error::{Again, Missing};
use homespun_engine::operation::TransmitOp;

use super::*;
use crate::av::FabricAddress;
use crate::post::{Post, ReceivePost};
use crate::poster::RefusedPost;
use crate::trigger::{DeferredAction, DeferredWork, Trigger};
use crate::wait::{WaitObject, Waiter};
use crate::works::domain::WorkDomain;
use crate::works::firing::ROUNDS_MAX;
use crate::{Counter, CounterAttr, Domain, Fabric, Hints};

/// An endpoint that has no room for the first post. During that post another thread makes room, and runs the
/// due works.
#[derive(Default)]
struct Crowded {
    works: Arc<WorkQueue>,
    posts: AtomicU32,
    cancelled: Mutex<Vec<u64>>,
    wakes: AtomicU32,
    /// If there is one, no post finds room, and each looks at this counter.
    watched: Option<Counter>,
    /// Whether a post has found that the counter could be closed.
    was_free: AtomicBool,
}

impl Poster for Crowded {
    fn post(&self, _: &mut Post) -> Result<(), Error> {
        // A pump does this at the end of each call.
        self.works.fire_due_works();
        if let Some(watched) = &self.watched {
            self.was_free.fetch_or(!watched.shared().has_users(), Ordering::SeqCst);
            return Err(Again::QueueFull.into());
        }
        if self.posts.fetch_add(1, Ordering::SeqCst) > 0 {
            return Ok(());
        }
        thread::scope(|scope| _ = scope.spawn(|| self.works.fire_due_works()));
        Err(Again::QueueFull.into())
    }

    fn post_receive(&self, _: &mut ReceivePost) -> Result<(), Error> {
        Ok(())
    }

    fn cancel(&self, context: u64) -> Result<(), Error> {
        self.cancelled.lock().push(context);
        Ok(())
    }

    fn cancel_work(&self, _: u64) -> Result<(), Error> {
        Err(Misuse::NotFound(Missing::Work).into())
    }

    fn cancel_receives_into(&self, _: &SegmentMut) {}

    fn report_refused_post(&self, _: RefusedPost) {}

    fn wake_sleepers(&self) {
        self.wakes.fetch_add(1, Ordering::SeqCst);
    }
}

fn make_triggered_send(trigger: &Counter, endpoint: Arc<dyn Poster>) -> Work {
    let send = TransmitOp::Send { source: Source::default(), tag: None, data: None };
    let post = DeferredPost::Transmit(Post::new(FabricAddress(0), send, 5));
    Work {
        trigger: CounterUse::new(trigger.shared()),
        threshold: 1,
        action: WorkAction::Post { poster: endpoint, post },
        kind: WorkKind::Triggered,
    }
}

#[test]
fn work_is_tried_again_when_another_thread_makes_room_meanwhile() {
    let domain = open_domain();
    let trigger = open_counter(&domain);
    let endpoint = Arc::new(Crowded { works: domain.shared.work_queue().clone(), ..Crowded::default() });
    endpoint.works.add_and_fire(make_triggered_send(&trigger, endpoint.clone()));
    trigger.add(1);
    assert_eq!(endpoint.posts.load(Ordering::SeqCst), 2, "no other call may come");
    assert!(!trigger.is_in_use());
}

#[test]
fn triggered_operation_posted_before_its_cancel_is_cancelled_by_its_endpoint() {
    let domain = open_domain();
    let (trigger, endpoint) = (open_counter(&domain), Arc::new(Crowded::default()));
    let works = domain.shared.work_queue();
    endpoint.posts.store(1, Ordering::SeqCst);
    works.add_and_fire(make_triggered_send(&trigger, endpoint.clone()));
    // A thread that cancels asks the endpoint first. The endpoint did not have the operation then, but the
    // work was posted since. So the work queue must ask the endpoint again.
    trigger.add(1);
    works.cancel_operation_of_endpoint(&*endpoint, 5).unwrap();
    assert_eq!(*endpoint.cancelled.lock(), [5]);
}

#[test]
fn threshold_that_was_reached_while_another_thread_fires_stays_reached() {
    let changes: [fn(&Counter); 2] = [
        |trigger| {
            trigger.add(1);
            trigger.set(0);
        },
        |trigger| {
            trigger.add(u64::MAX);
            trigger.add(1);
        },
    ];
    for change in changes {
        let domain = open_domain();
        let (trigger, changed) = (open_counter(&domain), open_counter(&domain));
        queue_add_one(&domain, &trigger, 1, &changed);
        domain.shared.work_queue().call_while_nothing_fires(|| change(&trigger));
        assert_eq!((trigger.read(), changed.read()), (0, 1));
    }
}

fn open_domain() -> Domain {
    let fabric = Fabric::new();
    let info = fabric.info(&Hints::new().domain("tcp")).unwrap();
    fabric.domain(&info).unwrap()
}

fn open_counter(domain: &Domain) -> Counter {
    domain.open_counter(&CounterAttr::default()).unwrap()
}

fn queue_add_one(domain: &Domain, trigger: &Counter, threshold: u64, counter: &Counter) {
    let trigger = Trigger { counter: trigger.clone(), threshold };
    let action = DeferredAction::Add { counter: counter.clone(), value: 1 };
    domain.queue_work(DeferredWork { context: 1, trigger, action, completion: None }).unwrap();
}

#[test]
fn works_that_wait_are_dropped_with_their_domain() {
    let (trigger, changed) = {
        let domain = open_domain();
        let counters = (open_counter(&domain), open_counter(&domain));
        queue_add_one(&domain, &counters.0, 1, &counters.1);
        // A reference cycle: the work keeps the counter for which it waits.
        queue_add_one(&domain, &counters.0, 2, &counters.0);
        counters
    };
    assert!(!trigger.is_in_use() && !changed.is_in_use());
    trigger.add(5);
    assert_eq!((trigger.read(), changed.read()), (5, 0));
}

#[test]
fn threshold_that_an_addition_passes_by_wrapping_is_reached() {
    let additions: [fn(&Domain, &Counter, u64); 3] = [
        |_, counter, value| counter.add(value),
        |_, counter, value| counter.add_error(value),
        |domain, counter, value| {
            let action = DeferredAction::Add { counter: counter.clone(), value };
            let trigger = Trigger { counter: open_counter(domain), threshold: 0 };
            domain.queue_work(DeferredWork { context: 1, trigger, action, completion: None }).unwrap();
        },
    ];
    for add in additions {
        let domain = open_domain();
        let (trigger, changed) = (open_counter(&domain), open_counter(&domain));
        let add = |counter, value| add(&domain, counter, value);
        queue_add_one(&domain, &trigger, u64::MAX - 5, &changed);
        queue_add_one(&domain, &trigger, u64::MAX, &changed);
        add(&trigger, u64::MAX - 10);
        assert_eq!(changed.shared().sum(), 0);
        add(&trigger, 20);
        assert_eq!((trigger.shared().sum(), changed.shared().sum()), (9, 2));
        queue_add_one(&domain, &trigger, 10, &changed);
        assert_eq!(changed.shared().sum(), 2, "it waits for the next addition");
        add(&trigger, 1);
        assert_eq!(changed.shared().sum(), 3);
    }
}

#[test]
fn threshold_that_an_endpoint_counts_past_the_largest_number_is_reached() {
    for threshold in [u64::MAX, u64::MAX - 2] {
        let domain = open_domain();
        let (trigger, changed) = (open_counter(&domain), open_counter(&domain));
        queue_add_one(&domain, &trigger, threshold, &changed);
        trigger.set(u64::MAX - 3);
        // The endpoint's counts only mark works as due. The next call of `fire_due_works` runs the works.
        (0..5).for_each(|_| trigger.shared().count_success());
        domain.shared.work_queue().fire_due_works();
        assert_eq!((trigger.read(), changed.read()), (1, 1), "{threshold}");
    }
}

#[test]
fn trigger_counter_cannot_close_while_its_refused_work_is_retried() {
    let domain = open_domain();
    let trigger = open_counter(&domain);
    let endpoint = Arc::new(Crowded { watched: Some(trigger.clone()), ..Crowded::default() });
    let works = domain.shared.work_queue();
    works.add_and_fire(make_triggered_send(&trigger, endpoint.clone()));
    trigger.add(1);
    works.fire_due_works();
    assert!(!endpoint.was_free.load(Ordering::SeqCst));
    assert!(trigger.is_in_use());
    works.drop_all_waiting_works();
    assert!(!trigger.is_in_use());
}

/// More works than one call carries out.
const CHAIN_WORKS: u64 = 3 * (ROUNDS_MAX * ROUND_WORKS_MAX) as u64;

/// Queues works, each of which makes the next one due.
fn queue_work_chain(domain: &Domain, trigger: &Counter) {
    (1..=CHAIN_WORKS).for_each(|threshold| queue_add_one(domain, trigger, threshold, trigger));
}

#[test]
fn rest_of_a_long_work_chain_is_left_to_the_next_progress() {
    let domain = open_domain();
    let (trigger, other, changed) = (open_counter(&domain), open_counter(&domain), open_counter(&domain));
    let endpoint = Arc::new(Crowded::default());
    let weak = Arc::downgrade(&endpoint);
    domain.shared.work_queue().attach_endpoint(weak);
    queue_work_chain(&domain, &trigger);
    queue_add_one(&domain, &other, 1, &changed);
    domain.shared.work_queue().call_while_nothing_fires(|| {
        trigger.add(1);
        other.add(1);
    });
    let done = trigger.shared().sum();
    assert!((1..CHAIN_WORKS).contains(&done), "{done} works in one call");
    assert_eq!(changed.shared().sum(), 1, "one counter does not keep another waiting");
    assert_eq!(endpoint.wakes.load(Ordering::SeqCst), 1);
    for _ in 0..3 {
        other.progress();
    }
    assert_eq!(trigger.shared().sum(), CHAIN_WORKS + 1);
    assert!(!domain.shared.work_queue().is_due());
}

#[test]
fn sleeping_reader_carries_out_the_works_that_are_left() {
    let domain = open_domain();
    let trigger = open_counter(&domain);
    let last = domain.open_counter(&CounterAttr { wait: WaitObject::Unspec, ..CounterAttr::default() });
    let last = last.unwrap();
    queue_work_chain(&domain, &trigger);
    queue_add_one(&domain, &trigger, CHAIN_WORKS + 1, &last);
    let waiting = thread::spawn({
        let last = last.clone();
        move || last.wait(1, Some(Duration::from_secs(60)))
    });
    while !last.shared().waiter().is_some_and(Waiter::is_armed) {
        thread::yield_now();
    }
    trigger.add(1);
    assert_eq!(waiting.join().unwrap(), Ok(()));
}
