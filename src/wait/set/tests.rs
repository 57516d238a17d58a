use std::sync::mpsc;
use std::thread;

use homespun_engine::errno::Errno;

use super::*;
use crate::counter::CounterWaitError;
use crate::eq::{EqAttr, EqFlags};
use crate::{
    CompletionQueue, Counter, CounterAttr, CqAttr, Domain, EqReadError, EventQueue, Fabric, Hints, ReadError,
};

/// The timeout of waits that must time out, and the timeout of all other waits. No test depends on the exact
/// time.
const MOMENT: Option<Duration> = Some(Duration::from_millis(10));
const PATIENCE: Option<Duration> = Some(Duration::from_secs(60));

const TIMED_OUT: Result<(), WaitError> = Err(WaitError::TimedOut);

const ASLEEP: [WaitObject; 3] = [WaitObject::Unspec, WaitObject::Fd, WaitObject::MutexCond];

fn open_domain() -> Domain {
    let fabric = Fabric::new();
    fabric.domain(&fabric.info(&Hints::new()).expect("there is always one")).expect("a domain")
}

fn open_set(object: WaitObject) -> WaitSet {
    WaitSet::open(object, &Clock::System).expect("a wait set")
}

fn open_counter(set: &WaitSet) -> Counter {
    let attr = CounterAttr { wait: WaitObject::Set, wait_set: Some(set.clone()) };
    open_domain().open_counter(&attr).expect("a counter")
}

fn open_cq(set: &WaitSet) -> CompletionQueue {
    let attr = CqAttr { wait: WaitObject::Set, wait_set: Some(set.clone()), ..CqAttr::default() };
    open_domain().open_cq(&attr).expect("a completion queue")
}

fn open_eq(set: &WaitSet) -> EventQueue {
    let (wait, wait_set) = (WaitObject::Set, Some(set.clone()));
    let attr = EqAttr { wait, wait_set, flags: EqFlags::WRITE, ..EqAttr::default() };
    EventQueue::open(&attr, &Clock::System).expect("an event queue")
}

/// Waits until a thread sleeps. With [`WaitObject::Yield`] no thread sleeps, so this returns at once.
fn wait_until_sleeping(set: &WaitSet) {
    while set.wait_object() != WaitObject::Yield && !set.shared.waiter.has_sleeping_call() {
        thread::yield_now();
    }
}

#[test]
fn set_wait_ends_when_any_member_reports() {
    for object in ASLEEP.into_iter().chain([WaitObject::Yield]) {
        let set = open_set(object);
        assert_eq!(set.wait(MOMENT), TIMED_OUT, "there is no member");
        let (counter, cq, eq) = (open_counter(&set), open_cq(&set), open_eq(&set));
        assert_eq!(set.wait(MOMENT), TIMED_OUT, "no member has anything to report");
        assert_eq!(set.wait(Some(Duration::ZERO)), TIMED_OUT);
        counter.add(1);
        assert_eq!(set.wait(None), Ok(()), "{object:?}");
        assert_eq!(set.wait(MOMENT), TIMED_OUT, "that was reported");
        counter.add_error(1);
        assert_eq!((counter.read(), counter.read_error()), (1, 1));
        assert_eq!(set.wait(None), Ok(()), "it was read before it was reported");
        counter.set(0);
        counter.add(1);
        assert_eq!(set.wait(None), Ok(()), "it is what it was, but has changed");
        assert_eq!(counter.read_error(), 1);
        eq.write(1, b"").expect("room");
        assert_eq!([set.wait(None), set.wait(None)], [Ok(()); 2], "until it is read");
        eq.read().expect("no error").expect("an event");
        assert_eq!(set.wait(MOMENT), TIMED_OUT);
        cq.signal();
        assert_eq!(set.wait(None), Ok(()));
        assert_eq!(set.wait(MOMENT), TIMED_OUT, "a signal ends one wait");
    }
}

#[test]
fn wait_set_wakes_for_members_added_while_waiting() {
    for object in ASLEEP {
        let set = open_set(object);
        let last = open_counter(&set);
        let (waits, woken) = mpsc::channel();
        thread::scope(|scope| {
            let sleeper = &set;
            // The loop ends when the receiver is dropped.
            scope.spawn(move || while waits.send(sleeper.wait(PATIENCE)).is_ok() {});
            for round in 0..10 {
                let counter = open_counter(&set);
                if round % 2 == 0 {
                    wait_until_sleeping(&set);
                }
                counter.add(1);
                assert_eq!(woken.recv(), Ok(Ok(())), "{object:?}");
            }
            drop(woken);
            last.add(1);
        });
    }
}

#[test]
fn report_of_a_member_ends_the_waits_of_all_threads() {
    for object in ASLEEP.into_iter().chain([WaitObject::Yield]) {
        let set = open_set(object);
        let (cq, counter) = (open_cq(&set), open_counter(&set));
        let change: [&dyn Fn(); 2] = [&|| cq.signal(), &|| counter.add(1)];
        for change in change {
            // Every wait begins with this count, even if the system starts its thread later.
            let reports = set.shared.report_count();
            let wait = |timeout| set.wait_after_report_count(reports, timeout);
            thread::scope(|scope| {
                let waits: Vec<_> = (0..4).map(|_| scope.spawn(|| wait(PATIENCE))).collect();
                assert_eq!(wait(MOMENT), TIMED_OUT);
                wait_until_sleeping(&set);
                change();
                // The reader of the counter is not one of the waiting threads.
                counter.read();
                for wait in waits {
                    assert_eq!(wait.join().expect("no panic"), Ok(()), "{object:?}");
                }
            });
        }
    }
}

#[test]
fn wait_mutex_cond_of_a_set_returns_its_pair() {
    let set = open_set(WaitObject::MutexCond);
    assert!(set.wait_fd().is_none());
    let (eq, counter) = (open_eq(&set), open_counter(&set));
    let pair = set.wait_mutex_cond().expect("a thread").expect("it was opened so");
    assert!(!pair.mutex.is_null() && !pair.cond.is_null());
    assert!(eq.wait_mutex_cond().expect("nothing to start").is_none());
    assert_eq!(set.try_wait(), Ok(true));
    counter.add(1);
    assert_eq!(set.try_wait(), Ok(false));
}

/// Shows fi_cq/sread-needs-wait-object.
#[test]
fn set_member_refuses_blocking_reads_but_not_counter_waits() {
    let set = open_set(WaitObject::Unspec);
    let (cq, eq, counter) = (open_cq(&set), open_eq(&set), open_counter(&set));
    assert_eq!(cq.sread(None), Err(ReadError::NoWaitObject));
    assert_eq!(eq.sread(None), Err(EqReadError::NoWaitObject));
    assert_eq!(counter.wait(1, MOMENT), Err(CounterWaitError::TimedOut));
    counter.add(1);
    assert_eq!(counter.wait(1, None), Ok(()));
    assert_eq!(cq.wait_object(), WaitObject::Set);
}

#[test]
fn wait_set_cannot_be_opened_with_none_set_or_pollfd() {
    let errno = |object| WaitSet::open(object, &Clock::System).expect_err("it is refused").errno();
    assert_eq!(errno(WaitObject::None), Errno::EINVAL);
    assert_eq!(errno(WaitObject::Set), Errno::EINVAL);
    assert_eq!(errno(WaitObject::PollFd), Errno::ENOSYS);
    // Other wait objects ignore the set.
    let (set, other) = (open_set(WaitObject::Unspec), open_set(WaitObject::Unspec));
    let attr = CounterAttr { wait: WaitObject::None, wait_set: Some(set.clone()) };
    let counter = open_domain().open_counter(&attr).expect("a counter");
    assert_eq!(counter.wait_object(), WaitObject::None);
    assert_ne!(set, other);
    assert_eq!(attr.wait_set, Some(set.clone()));
    set.close().expect("it has no members");
}
