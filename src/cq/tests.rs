use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::Duration;

use homespun_engine::address::Address;
use homespun_engine::buffer::Buffer;
use homespun_engine::completion::EndedOperation;
use homespun_engine::error::OperationError;
use homespun_engine::flags::CompletionFlags;
use homespun_engine::transport::LinkError;

use super::*;

const DEPTH_ENTRIES: usize = 3;

fn open_cq(resource_mgmt: ResourceManagement) -> CompletionQueue {
    open_cq_with(resource_mgmt, WaitObject::None)
}

fn open_with_wait(wait: WaitObject) -> CompletionQueue {
    open_cq_with(ResourceManagement::Enabled, wait)
}

fn open_cq_with(resource_mgmt: ResourceManagement, wait: WaitObject) -> CompletionQueue {
    let attr = CqAttr { size_entries: DEPTH_ENTRIES, wait, ..CqAttr::default() };
    CompletionQueue::open(&attr, DomainId::allocate(), resource_mgmt, Locking::Taken, &Clock::System)
        .expect("a queue of this size")
}

fn make_completion(context: u64) -> Completion {
    Completion { context, ..Completion::default() }
}

fn make_failure(context: u64) -> CompletionError {
    let (error, source) = (OperationError::Cancelled, FabricAddress::UNSPECIFIED);
    CompletionError { completion: make_completion(context), error, source, peer: None }
}

fn push_context(cq: &CompletionQueue, context: u64) {
    let ended = EndedOperation::of_transmit(context, CompletionFlags::empty(), Buffer::None);
    cq.shared().lock_ring().push_completed(ended, CqFormat::Tagged, FabricAddress::UNSPECIFIED);
}

/// An overrun queue that holds a success, an error and a success.
fn make_overrun_cq() -> CompletionQueue {
    let cq = open_cq(ResourceManagement::Disabled);
    push_context(&cq, 1);
    cq.shared().lock_ring().push_failed(make_failure(2));
    push_context(&cq, 3);
    cq.shared().lock_ring().mark_overrun();
    cq
}

#[test]
fn look_at_each_shows_completions_up_to_a_failure() {
    let cq = make_overrun_cq();
    assert_eq!(cq.look_at_each(0, |_, _, _| panic!("none was asked for")), Ok(Some(0)));
    let before_failure = cq.look_at_each(8, |_, entry, _| assert_eq!(*entry, make_completion(1)));
    assert_eq!(before_failure, Ok(Some(1)), "the failure ends the read");
    assert_eq!(cq.look_at_each(8, |_, _, _| panic!("a failure is next")), Err(ReadError::ErrorAvailable));
    assert_eq!(cq.look_at_each(0, |_, _, _| panic!("none was asked for")), Ok(Some(0)));
    assert_eq!(cq.read_error(), Ok(Some(make_failure(2))));
    assert_eq!(cq.look_at_each(1, |_, entry, _| assert_eq!(*entry, make_completion(3))), Ok(Some(1)));
    assert_eq!(cq.look_at_each(1, |_, _, _| panic!("there is none")), Err(ReadError::Overrun));
}

#[test]
fn look_at_each_numbers_the_completions_of_a_read() {
    let cq = open_cq(ResourceManagement::Enabled);
    let mut shown = Vec::new();
    // The second read finds another ring than it has looked at, since another thread has used it.
    for is_changed in [false, true] {
        (1..=3).for_each(|context| push_context(&cq, context));
        let look = |index, entry: &Completion, _| shown.push((index, entry.context));
        let read = if is_changed { cq.read_and_look(8, look) } else { cq.look_at_each(8, look) };
        assert_eq!(read, Ok(Some(3)));
    }
    assert_eq!(shown, [(0, 1), (1, 2), (2, 3), (0, 1), (1, 2), (2, 3)]);
}

#[test]
fn overrun_ring_forbids_hand_over_to_a_reader() {
    let (cq, other) = (open_cq(ResourceManagement::Disabled), open_cq(ResourceManagement::Disabled));
    let mut reader = Reader::new(cq.shared().unread_entries(), 1);
    reader.allow_hand_over_if_ring_empty();
    assert!(
        reader.can_hand_over_from(cq.shared().unread_entries())
            && !reader.can_hand_over_from(other.shared().unread_entries())
    );
    // An overrun ring prevents the hand-over even if it is empty.
    cq.shared().lock_ring().mark_overrun();
    reader.allow_hand_over_if_ring_empty();
    assert!(!reader.can_hand_over_from(cq.shared().unread_entries()));
}

#[test]
fn read_of_more_entries_than_the_queue_holds_drives_progress() {
    let cq = open_cq(ResourceManagement::Enabled);
    push_context(&cq, 1);
    assert!(cq.shared().count_read_if_ring_suffices(1));
    assert!(!cq.shared().count_read_if_ring_suffices(2));
}

#[test]
fn reading_below_the_threshold_leaves_the_doorbell_armed() {
    let cq = open_with_wait(WaitObject::Unspec);
    push_context(&cq, 1);
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            assert_eq!(cq.sread_each(3, 2, None, |_, _| {}), Ok(Some(1)));
            is_over.store(true, Ordering::SeqCst);
        });
        let waiter = cq.shared().waiter().expect("a wait object");
        while !waiter.is_armed() {
            thread::yield_now();
        }
        for _ in 0..50 {
            thread::sleep(Duration::from_millis(1));
            assert!(waiter.is_armed(), "it has rung, and there is no other entry");
        }
        assert!(!is_over.load(Ordering::SeqCst));
        cq.signal();
    });
}

#[test]
fn error_behind_successes_ends_a_wait_below_its_threshold() {
    let cq = open_with_wait(WaitObject::Unspec);
    push_context(&cq, 1);
    cq.shared().lock_ring().push_failed(make_failure(2));
    assert_eq!(cq.sread_each(3, 3, None, |entry, _| assert_eq!(entry, make_completion(1))), Ok(Some(1)));
    assert_eq!(cq.sread(None), Err(ReadError::ErrorAvailable));
    assert_eq!(cq.read_error(), Ok(Some(make_failure(2))));
    assert_eq!(cq.sread(Some(Duration::ZERO)), Ok(None));
}

/// Shows fi_cq/wait-mutex-cond, fi_cq/getwait.
#[test]
fn wait_mutex_cond_creates_its_pair_once() {
    let cq = open_with_wait(WaitObject::MutexCond);
    let pair = cq.wait_mutex_cond().expect("a thread").expect("what it was opened with");
    let again = cq.wait_mutex_cond().expect("no other thread").expect("the same");
    assert_eq!((pair.mutex, pair.cond), (again.mutex, again.cond));
    assert!(open_with_wait(WaitObject::Fd).wait_mutex_cond().expect("nothing is started").is_none());
}

#[test]
fn read_entry_returns_successes_unknown_sources_and_failures() {
    let cq = open_cq(ResourceManagement::Enabled);
    assert_eq!(cq.read_entry(), Ok(None));
    push_context(&cq, 1);
    let sender: Address = "127.0.0.1:7".parse().expect("an address");
    let (error, peer) = (OperationError::UnknownSource, Some(Box::new(sender)));
    let unknown = CompletionError { error, peer, ..make_failure(2) };
    cq.shared().lock_ring().push_failed(unknown);
    cq.shared().lock_ring().push_failed(make_failure(3));
    let entries = [(); 3].map(|()| cq.read_entry().expect("no overrun").expect("an entry"));
    assert_eq!(entries[0], Entry::Completed(make_completion(1), FabricAddress::UNSPECIFIED));
    assert_eq!(entries[1], Entry::UnknownSource(make_completion(2), sender));
    assert_eq!(entries[2], Entry::Failed(make_failure(3)));
    let contexts = entries.map(|entry| entry.into_result().map(|completion| completion.context));
    assert_eq!(contexts, [Ok(1), Ok(2), Err(make_failure(3))]);
    let polled = make_overrun_cq();
    assert!([(); 3].iter().all(|()| polled.read_entry().is_ok_and(|entry| entry.is_some())));
    assert_eq!(polled.read_entry(), Err(ReadError::Overrun));
    assert_eq!(polled.sread_entry(None), Err(ReadError::Overrun));
    assert_eq!(open_cq(ResourceManagement::Enabled).sread_entry(None), Err(ReadError::NoWaitObject));
}

#[test]
fn failure_text_names_the_operation_and_its_peer() {
    let text = |flags, error, peer: Option<&str>| {
        let peer = peer.map(|peer| Box::new(peer.parse().expect("an address")));
        let completion = Completion { flags, ..make_completion(7) };
        CompletionError { completion, error, peer, ..make_failure(7) }.to_string()
    };
    let (send, receive) = (CompletionFlags::SEND | CompletionFlags::MSG, CompletionFlags::RECV);
    let (read, peer) = (CompletionFlags::READ | CompletionFlags::RMA, Some("127.0.0.1:4711"));
    let texts = [
        text(send, OperationError::Link(LinkError::Closed), peer),
        text(send, OperationError::Cancelled, peer),
        text(read, OperationError::Fault, peer),
        text(receive, OperationError::Cancelled, None),
        text(receive, OperationError::UnknownSource, peer),
    ];
    let expected = [
        "the send with context 7 failed: the link to 127.0.0.1:4711 ended: the peer closed the connection",
        "the send with context 7 to 127.0.0.1:4711 failed: cancelled",
        "the read with context 7 from 127.0.0.1:4711 failed: the sender's memory could not be read",
        "the receive with context 7 failed: cancelled",
        "the receive with context 7 has a message from 127.0.0.1:4711, which is not in the address vector",
    ];
    assert_eq!(texts, expected);
}
