use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::Duration;

use homespun_engine::connection::ConnectionEnd;

use super::*;

/// The timeout of waits that must end by an event. If the event does not come, the test fails instead of
/// hanging.
const PATIENCE: Option<Duration> = Some(Duration::from_secs(60));

const WAITABLE: [WaitObject; 4] =
    [WaitObject::Unspec, WaitObject::Fd, WaitObject::MutexCond, WaitObject::Yield];

fn open_queue(size_entries: usize) -> EventQueue {
    let attr = EqAttr { size_entries, flags: EqFlags::WRITE, wait: WaitObject::Unspec, ..EqAttr::default() };
    EventQueue::open(&attr, &Clock::System).expect("a queue")
}

fn written(number: u32, data: &[u8]) -> Event {
    Event::Written { number, data: data.into() }
}

fn make_failure(context: u64) -> EventError {
    let (errno, err_data) = (Errno::EADDRNOTAVAIL, vec![4, 5]);
    EventError { object: 1, context, data: 3, errno, prov_errno: errno.raw(), err_data, peer: None }
}

#[test]
fn events_are_read_in_order() {
    let eq = open_queue(0);
    assert_eq!(eq.read(), Ok(None));
    assert_eq!(eq.write(7, b"seven"), Ok(5));
    assert_eq!(eq.write(8, b""), Ok(0));
    for read in [eq.peek(), eq.speek(None), eq.peek(), eq.speek(None), eq.read()] {
        assert_eq!(read, Ok(Some(written(7, b"seven"))));
    }
    assert_eq!(eq.read(), Ok(Some(written(8, b""))));
    assert_eq!((eq.read(), eq.peek()), (Ok(None), Ok(None)));
}

#[test]
fn read_entry_returns_failures_before_events() {
    let eq = open_queue(0);
    assert_eq!(eq.read_entry(), Ok(None));
    eq.write(7, b"seven").expect("room");
    eq.write_error(make_failure(2)).expect("room");
    eq.write(8, b"").expect("room");
    assert_eq!(eq.read_entry(), Ok(Some(EventEntry::Failed(make_failure(2)))));
    assert_eq!(eq.sread_entry(PATIENCE), Ok(Some(EventEntry::Happened(written(7, b"seven")))));
    let last = eq.sread_entry(None).expect("no failure of the read").expect("an entry");
    assert_eq!(last.into_result(), Ok(written(8, b"")));
    assert_eq!(eq.sread_entry(Some(Duration::from_millis(1))), Ok(None));
    let without_wait_object = EventQueue::open(&EqAttr::default(), &Clock::System).expect("a queue");
    assert_eq!(without_wait_object.sread_entry(None), Err(EqReadError::NoWaitObject));
}

#[test]
fn event_that_fails_the_filter_stays_queued() {
    let eq = open_queue(0);
    eq.write(1, b"12345").expect("room");
    let is_short = |event: &Event| matches!(event, Event::Written { data, .. } if data.len() < 5);
    let unwanted = Err(EqReadError::Unwanted);
    assert_eq!((eq.read_if(is_short), eq.sread_if(None, is_short)), (unwanted.clone(), unwanted));
    assert_eq!(eq.read_if(|event| !is_short(event)), Ok(Some(written(1, b"12345"))));
    assert_eq!(eq.read_if(|_| true), Ok(None));
}

#[test]
fn full_event_queue_refuses_writes_and_loses_nothing() {
    let eq = open_queue(2);
    eq.write(1, b"").expect("room");
    eq.write(2, b"").expect("room");
    assert_eq!(eq.write(3, b"").unwrap_err().errno(), Errno::EAGAIN);
    assert!(eq.write_error(make_failure(1)).is_ok(), "errors have room of their own");
    assert!(eq.read_error().is_some());
    assert_eq!(eq.read(), Ok(Some(written(1, b""))));
    assert!(eq.write(3, b"").is_ok());
    assert_eq!([(); 2].map(|()| eq.read()), [2, 3].map(|number| Ok(Some(written(number, b"")))));
}

#[test]
fn endpoint_events_are_queued_even_if_the_queue_is_full() {
    let eq = open_queue(1);
    eq.write(1, b"").expect("room");
    eq.write_error(make_failure(1)).expect("room");
    let shutdown =
        |endpoint| Event::Connection(ConnectionEvent::Shutdown { endpoint, end: ConnectionEnd::Closed });
    for endpoint in 0..5 {
        eq.shared().report(Ok(shutdown(endpoint)), EventOrigin(endpoint), None);
        eq.shared().report(Err(make_failure(10 + endpoint)), EventOrigin(endpoint), None);
    }
    assert_eq!(eq.write(2, b"").unwrap_err().errno(), Errno::EAGAIN);
    assert_eq!(eq.write_error(make_failure(2)).unwrap_err().errno(), Errno::EAGAIN);
    // The entries of a closed endpoint are removed from the queue.
    eq.shared().drop_entries_of_endpoint_and_settle_accepts(EventOrigin(3));
    let errors: Vec<u64> = [(); 5].map(|()| eq.read_error().expect("an error").context).into();
    assert_eq!(errors, [1, 10, 11, 12, 14]);
    assert_eq!(eq.read(), Ok(Some(written(1, b""))));
    assert_eq!(eq.write(2, b""), Ok(0), "its own room is free");
    assert_eq!([0, 1, 2, 4].map(|_| eq.read()), [0, 1, 2, 4].map(|endpoint| Ok(Some(shutdown(endpoint)))));
    assert_eq!(eq.read(), Ok(Some(written(2, b""))));
}

#[test]
fn errors_are_read_before_events() {
    let eq = open_queue(0);
    eq.write(1, b"").expect("room");
    assert_eq!(eq.read_error(), None);
    eq.write_error(make_failure(1)).expect("room");
    eq.write_error(make_failure(2)).expect("room");
    assert_eq!(eq.read().unwrap_err().errno(), Errno::EAVAIL);
    for read in [eq.sread(None), eq.peek()] {
        assert_eq!(read, Err(EqReadError::ErrorAvailable));
    }
    let errors = [eq.peek_error(), eq.read_error(), eq.read_error()];
    assert_eq!(errors, [1, 1, 2].map(|context| Some(make_failure(context))));
    assert_eq!(eq.read(), Ok(Some(written(1, b""))));
    assert_eq!(eq.strerror(make_failure(1).prov_errno), "Cannot assign requested address");
}

#[test]
fn drop_entries_waits_for_a_running_read_of_an_error() {
    type Read = fn(&EventQueue, &mut dyn FnMut()) -> EventError;
    let reads: [Read; 2] = [
        |eq, look| eq.peek_error_with(|_| look()).expect("an error").0,
        |eq, look| eq.read_error_with(|_| look()).expect("an error").0,
    ];
    for read in reads {
        let eq = open_queue(0);
        eq.shared().report(Err(make_failure(1)), EventOrigin(1), None);
        let is_forgotten = AtomicBool::new(false);
        thread::scope(|scope| {
            let error = read(&eq, &mut || {
                scope.spawn(|| {
                    eq.shared().drop_entries_of_endpoint_and_settle_accepts(EventOrigin(1));
                    is_forgotten.store(true, Ordering::SeqCst);
                });
                thread::sleep(Duration::from_millis(20));
                assert!(!is_forgotten.load(Ordering::SeqCst));
            });
            assert_eq!(error, make_failure(1));
        });
        assert!(is_forgotten.into_inner());
        assert_eq!(eq.read_error(), None);
    }
}

#[test]
fn try_wait_allows_sleep_only_on_empty_queue() {
    for wait in WAITABLE {
        let attr = EqAttr { flags: EqFlags::WRITE, wait, ..EqAttr::default() };
        let eq = EventQueue::open(&attr, &Clock::System).expect("a queue");
        let is_the_applications = matches!(wait, WaitObject::Fd | WaitObject::MutexCond);
        assert_eq!(eq.try_wait(), Ok(is_the_applications));
        for at_most in [Duration::ZERO, Duration::from_millis(1)] {
            assert_eq!(eq.sread(Some(at_most)), Ok(None));
        }
        eq.write(1, b"").expect("room");
        assert_eq!(eq.try_wait(), Ok(false));
        eq.write_error(make_failure(1)).expect("room");
        assert!(eq.read_error().is_some());
        assert!(eq.sread(Some(Duration::MAX)).is_ok_and(|event| event.is_some()));
        assert_eq!(eq.try_wait(), Ok(is_the_applications));
        assert_eq!(eq.wait_fd().is_some(), wait == WaitObject::Fd);
        let pair = eq.wait_mutex_cond().expect("enough descriptors");
        assert_eq!(pair.is_some(), wait == WaitObject::MutexCond);
    }
}

#[test]
fn call_without_matching_attribute_is_refused() {
    let plain = EventQueue::open(&EqAttr::default(), &Clock::System).expect("a queue");
    assert_eq!(plain.write(1, b"").unwrap_err().errno(), Errno::EOPBADSTATE);
    assert_eq!(plain.write_error(make_failure(1)).unwrap_err().errno(), Errno::EOPBADSTATE);
    assert_eq!(plain.sread(None), Err(EqReadError::NoWaitObject));
    assert_eq!(plain.try_wait().unwrap_err().errno(), Errno::EINVAL);
    assert_eq!((plain.wait_object(), plain.wait_fd().is_none()), (WaitObject::None, true));
    for (wait, errno) in [(WaitObject::Set, Errno::EINVAL), (WaitObject::PollFd, Errno::ENOSYS)] {
        let refused = EventQueue::open(&EqAttr { wait, ..EqAttr::default() }, &Clock::System);
        assert_eq!(refused.unwrap_err().errno(), errno, "{wait:?}");
    }
    let flags = EqFlags::from_bits_retain(1);
    let refused = EventQueue::open(&EqAttr { flags, ..EqAttr::default() }, &Clock::System);
    assert_eq!(refused.unwrap_err().errno(), Errno::EBADFLAGS);
}
