//! Tests with loom: threads make works due, queue works and cancel works. Loom runs a test with all orders
//! in which the threads may see each other's changes. A test fails if a work is never done because each
//! thread leaves it to another.

use homespun_engine::buffer::{SegmentMut, Source};
use homespun_engine::error::Again;
use homespun_engine::operation::TransmitOp;
use loom::model::Builder;
use loom::thread;

use super::*;
use crate::av::FabricAddress;
use crate::clock::Clock;
use crate::domain_id::DomainId;
use crate::post::{Post, ReceivePost};
use crate::poster::RefusedPost;
use crate::works::work::CounterChange;
use crate::{Counter, CounterAttr};

/// The largest number of preemptions in one execution. Two are enough to show the known mistakes in code by
/// which threads leave work to each other.
const PREEMPTIONS_MAX: usize = 2;

fn explore_interleavings(test: impl Fn() + Sync + Send + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(PREEMPTIONS_MAX);
    builder.check(test);
}

/// A work queue, a counter that triggers works, and a counter that works add to.
#[derive(Clone)]
struct WorkFixture {
    works: Arc<WorkQueue>,
    trigger: Counter,
    changed: Counter,
}

impl WorkFixture {
    fn new() -> WorkFixture {
        let [trigger, changed] = [(); 2].map(|()| {
            Counter::open(&CounterAttr::default(), DomainId::allocate(), &Clock::System).expect("a counter")
        });
        WorkFixture { works: Arc::default(), trigger, changed }
    }

    fn queue_add_one(&self, threshold: u64) {
        let (trigger, counter) =
            (CounterUse::new(self.trigger.shared()), CounterUse::new(self.changed.shared()));
        let action = WorkAction::Change { counter, change: CounterChange::Add(1) };
        let kind = WorkKind::Deferred { context: 1, completion: None, is_reported: false };
        self.works.add_and_fire(Work { trigger, threshold, action, kind });
    }

    /// Starts another thread that calls a function.
    fn spawn_meanwhile(&self, act: impl FnOnce(&WorkFixture) + 'static) -> thread::JoinHandle<()> {
        let fixture = self.clone();
        thread::spawn(move || act(&fixture))
    }

    /// Calls a function while another thread adds 1 to the trigger. Returns the function's result.
    fn call_while_counter_changes<T>(&self, act: impl FnOnce(&WorkFixture) -> T) -> T {
        let other = self.spawn_meanwhile(|fixture| fixture.trigger.add(1));
        let result = act(self);
        other.join().unwrap();
        result
    }

    fn works_done(&self) -> u64 {
        self.changed.shared().sum()
    }
}

#[test]
fn work_that_two_threads_make_due_is_done_once() {
    explore_interleavings(|| {
        let fixture = WorkFixture::new();
        fixture.queue_add_one(2);
        fixture.call_while_counter_changes(|fixture| fixture.trigger.add(1));
        assert_eq!(fixture.works_done(), 1);
    });
}

#[test]
fn work_that_is_queued_while_its_counter_changes_is_done() {
    explore_interleavings(|| {
        let fixture = WorkFixture::new();
        fixture.call_while_counter_changes(|fixture| fixture.queue_add_one(1));
        assert_eq!(fixture.works_done(), 1);
    });
}

#[test]
fn work_that_becomes_due_while_nothing_fires_is_done_afterwards() {
    explore_interleavings(|| {
        let fixture = WorkFixture::new();
        fixture.queue_add_one(1);
        fixture.call_while_counter_changes(|fixture| fixture.works.call_while_nothing_fires(|| {}));
        assert_eq!(fixture.works_done(), 1);
    });
}

#[test]
fn cancelled_work_is_not_done_and_other_work_is_done() {
    explore_interleavings(|| {
        let fixture = WorkFixture::new();
        fixture.queue_add_one(1);
        let cancelled = fixture.call_while_counter_changes(|fixture| fixture.works.cancel_deferred_work(1));
        let was_cancelled = cancelled.is_ok();
        assert_eq!(fixture.works_done(), u64::from(!was_cancelled));
    });
}

/// An endpoint that has no room until another thread makes room.
#[derive(Default)]
struct Room {
    has_room: Mutex<bool>,
    posted: Mutex<u32>,
}

impl Poster for Room {
    fn post(&self, _: &mut Post) -> Result<(), Error> {
        if !*self.has_room.lock() {
            return Err(Again::QueueFull.into());
        }
        *self.posted.lock() += 1;
        Ok(())
    }

    fn post_receive(&self, _: &mut ReceivePost) -> Result<(), Error> {
        unreachable!("nothing receives")
    }

    fn cancel(&self, _: u64) -> Result<(), Error> {
        unreachable!("nothing is cancelled")
    }

    fn cancel_work(&self, _: u64) -> Result<(), Error> {
        unreachable!("nothing is cancelled")
    }

    fn cancel_receives_into(&self, _: &SegmentMut) {
        unreachable!("nothing is cancelled")
    }

    fn report_refused_post(&self, _: RefusedPost) {}

    fn wake_sleepers(&self) {}
}

#[test]
fn work_is_posted_when_another_thread_makes_room_meanwhile() {
    explore_interleavings(|| {
        let fixture = WorkFixture::new();
        let endpoint = Arc::new(Room::default());
        let send = TransmitOp::Send { source: Source::default(), tag: None, data: None };
        let post = DeferredPost::Transmit(Post::new(FabricAddress(0), send, 5));
        let trigger = CounterUse::new(fixture.trigger.shared());
        let action = WorkAction::Post { poster: endpoint.clone(), post };
        fixture.works.add_and_fire(Work { trigger, threshold: 1, action, kind: WorkKind::Triggered });
        let other = fixture.spawn_meanwhile({
            let endpoint = endpoint.clone();
            move |fixture| {
                *endpoint.has_room.lock() = true;
                fixture.works.fire_due_works();
            }
        });
        fixture.trigger.add(1);
        other.join().unwrap();
        assert_eq!(*endpoint.posted.lock(), 1);
    });
}
