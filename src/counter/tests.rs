use std::thread;
use std::time::Instant;

use homespun_engine::flags::{Caps, MrAccess};

use super::*;
use crate::info::{Info, Progress};
use crate::{Domain, Endpoint, Fabric, Hints, MrAttr};

/// How long tests wait for an event that must happen.
const PATIENCE: Duration = Duration::from_secs(60);

const OBJECTS: [WaitObject; 5] =
    [WaitObject::None, WaitObject::Unspec, WaitObject::Fd, WaitObject::MutexCond, WaitObject::Yield];

fn try_open_counter(wait: WaitObject) -> Result<Counter, Error> {
    Counter::open(&CounterAttr { wait, ..CounterAttr::default() }, DomainId::allocate(), &Clock::System)
}

fn open_counter(wait: WaitObject) -> Counter {
    try_open_counter(wait).expect("a counter")
}

/// Waits until a thread sleeps. Returns at once if the counter has nothing to sleep on.
fn wait_until_sleeping(counter: &Counter) {
    let waiter = counter.shared.waiter().filter(|waiter| waiter.object() != WaitObject::Yield);
    while waiter.is_some_and(|waiter| !waiter.is_armed()) {
        thread::yield_now();
    }
}

#[test]
fn success_and_error_values_are_read_added_to_and_set() {
    let counter = open_counter(WaitObject::None);
    assert_eq!((counter.read(), counter.read_error()), (0, 0));
    counter.add(5);
    counter.add(2);
    counter.add_error(3);
    assert_eq!((counter.read(), counter.read_error()), (7, 3));
    counter.set(1);
    counter.set_error(u64::MAX);
    counter.add_error(2);
    assert_eq!((counter.read(), counter.read_error()), (1, 1));
    counter.shared.count_success();
    counter.shared.count_error();
    assert_eq!((counter.read(), counter.read_error()), (2, 2));
    assert_eq!(format!("{counter:?}"), "Counter { value: 2, errors: 2, .. }");
}

/// Shows fi_cntr/wait-etimedout.
#[test]
fn wait_ends_at_the_threshold_or_after_the_timeout() {
    for wait in OBJECTS {
        let counter = open_counter(wait);
        counter.set(3);
        counter.set_error(9);
        for threshold in 0..=3 {
            assert_eq!(counter.wait(threshold, None), Ok(()), "{wait:?}: an error of before does not count");
        }
        for millis in [0, 1, 20] {
            let (begin, timeout) = (Instant::now(), Duration::from_millis(millis));
            assert_eq!(counter.wait(4, Some(timeout)), Err(CounterWaitError::TimedOut));
            assert!(begin.elapsed() >= timeout, "it has given up too soon");
        }
        assert_eq!(counter.read_error(), 9, "a timeout is no error");
    }
}

#[test]
fn every_change_of_a_value_wakes_all_waits() {
    type Change = fn(&Counter, u64);
    const FAILED: Result<(), CounterWaitError> = Err(CounterWaitError::ErrorAvailable);
    let changes: [(Change, Result<(), CounterWaitError>); 6] = [
        (|counter, _| counter.add(10), Ok(())),
        (|counter, _| counter.set(10), Ok(())),
        (|counter, _| (0..10).for_each(|_| counter.shared.count_success()), Ok(())),
        (|counter, _| counter.add_error(1), FAILED),
        (|counter, round| counter.set_error(7 + round), FAILED),
        (|counter, _| counter.shared.count_error(), FAILED),
    ];
    for wait in OBJECTS {
        for (change, outcome) in changes {
            let counter = open_counter(wait);
            thread::scope(|scope| {
                let waits = [(); 3].map(|()| scope.spawn(|| counter.wait(10, Some(PATIENCE))));
                wait_until_sleeping(&counter);
                // Repeat the change: a change of the error value does not end waits that begin later.
                let mut round = 0;
                while !waits.iter().all(thread::ScopedJoinHandle::is_finished) {
                    change(&counter, round);
                    round += 1;
                    thread::sleep(Duration::from_millis(1));
                }
                for waiting in waits {
                    assert_eq!(waiting.join().expect("no panic"), outcome, "{wait:?}");
                }
            });
        }
    }
}

#[test]
fn counter_errors_have_their_errno() {
    assert_eq!(CounterWaitError::ErrorAvailable.errno(), Errno::EAVAIL);
    assert_eq!(CounterWaitError::TimedOut.errno(), Errno::ETIMEDOUT);
    for (wait, errno) in [(WaitObject::Set, Errno::EINVAL), (WaitObject::PollFd, Errno::ENOSYS)] {
        assert_eq!(try_open_counter(wait).expect_err("it is refused").errno(), errno);
    }
    assert_eq!(open_counter(WaitObject::None).try_wait().expect_err("it is refused").errno(), Errno::EINVAL);
}

#[test]
fn try_wait_refuses_sleep_once_after_a_change() {
    for wait in [WaitObject::Fd, WaitObject::MutexCond] {
        let counter = open_counter(wait);
        assert_eq!(counter.try_wait(), Ok(true));
        for change in [Counter::add, Counter::add_error, Counter::set, Counter::set_error] {
            change(&counter, 7);
            assert_eq!(counter.try_wait(), Ok(false), "it has not been read");
            assert_eq!(counter.try_wait(), Ok(true), "it was reported");
            change(&counter, 8);
            counter.read();
            counter.read_error();
            assert_eq!(counter.try_wait(), Ok(false), "another read does not count");
            assert_eq!(counter.try_wait(), Ok(true), "it was reported");
        }
        assert_eq!(counter.wait_object(), wait);
        assert_eq!(counter.wait_fd().is_some(), wait == WaitObject::Fd);
        let pair = counter.wait_mutex_cond().expect("a thread at most");
        assert_eq!(pair.is_some(), wait == WaitObject::MutexCond);
    }
    for wait in [WaitObject::Unspec, WaitObject::Yield] {
        assert_eq!(open_counter(wait).try_wait(), Ok(false), "there is nothing to sleep on");
    }
    assert_eq!(open_counter(WaitObject::None).wait_object(), WaitObject::None);
}

#[test]
fn bound_counter_cannot_be_closed() {
    let counter = open_counter(WaitObject::None);
    let mut bound = BoundCounters::default();
    bound.bind(&counter, CounterEvents::SEND).expect("nothing counts it yet");
    bound.bind(&counter, CounterEvents::RECV | CounterEvents::READ).expect("nothing counts them yet");
    let other = open_counter(WaitObject::None);
    let refused = bound.bind(&other, CounterEvents::READ | CounterEvents::WRITE).expect_err("it is counted");
    assert_eq!(refused.errno(), Errno::EBUSY);
    bound.bind(&other, CounterEvents::empty()).expect("it counts nothing");
    assert_eq!(bound.counted_events(), CounterEvents::SEND | CounterEvents::RECV | CounterEvents::READ);
    for events in [CounterEvents::SEND, CounterEvents::RECV, CounterEvents::WRITE] {
        bound.count_success(events);
        bound.count_error(events);
    }
    assert_eq!(counter.shared.values_and_change_count(), [2, 2, 0]);
    assert_eq!(other.shared.values_and_change_count(), [0; 3]);
    let Rejected { error, returned: counter } = counter.close().expect_err("it is bound");
    assert_eq!(error.errno(), Errno::EBUSY);
    bound.iter().for_each(|counter| counter.remove_binding());
    assert!(counter.close().is_ok() && other.close().is_ok());
}

/// Opens and enables an endpoint of a domain.
fn open_enabled_endpoint(domain: &Domain, info: &Info, bound: Option<&Counter>) -> Endpoint {
    let mut builder = domain.endpoint_builder(info);
    if let Some(counter) = bound {
        builder = builder.counter(counter, CounterEvents::SEND);
    }
    builder.open().expect("an endpoint").endpoint
}

#[test]
fn counter_drives_endpoint_while_it_or_a_region_is_bound() {
    for data_progress in [Progress::Manual, Progress::Auto] {
        let fabric = Fabric::new();
        let hints = Hints::new().domain("shm").node("127.0.0.1").source();
        let hints = hints.with(|info| info.domain.data_progress = Some(data_progress));
        let info = fabric.info(&hints).expect("an offer");
        let domain = fabric.domain(&info).expect("a domain");
        let attr = CounterAttr { wait: WaitObject::Unspec, ..CounterAttr::default() };
        let counter = domain.open_counter(&attr).expect("a counter");
        let driven = || counter.shared.driven_endpoints.len();
        let region = |key| {
            let access = MrAccess::REMOTE_READ | MrAccess::REMOTE_WRITE;
            let attr = MrAttr { access, requested_key: Some(key), ..MrAttr::default() };
            let region = domain.register(8, &attr).expect("a free key");
            region.bind_counter(&counter, CounterEvents::REMOTE_WRITE).expect("its first counter");
            region
        };
        let before = open_enabled_endpoint(&domain, &info, None);
        assert_eq!(driven(), 0);
        let bound = open_enabled_endpoint(&domain, &info, Some(&counter));
        assert_eq!(driven(), 1);
        let first = region(1);
        assert_eq!(driven(), 2);
        let second = region(2);
        let after = open_enabled_endpoint(&domain, &info, None);
        assert_eq!(driven(), 3);
        let uncounted = open_enabled_endpoint(&domain, &Info { caps: Caps::MSG, ..info.clone() }, None);
        assert_eq!(driven(), 3, "it is the target of nothing");
        drop(before);
        assert_eq!(driven(), 2);
        second.bind_counter(&counter, CounterEvents::REMOTE_READ).expect("reads are not counted yet");
        drop(second);
        assert_eq!(driven(), 2, "there is another region");
        drop(first);
        assert_eq!(driven(), 1, "one is bound itself");
        let third = region(3);
        assert_eq!(driven(), 2);
        drop(bound);
        assert_eq!(driven(), 1);
        let error = counter.clone().close().expect_err("a region is bound").error;
        assert_eq!(error.errno(), Errno::EBUSY);
        drop((third, after, uncounted));
        assert_eq!(driven(), 0);
        counter.close().expect("nothing is bound");
    }
}
