use homespun_engine::error::OperationError;

use super::*;

const DEPTH_ENTRIES: usize = 3;

fn open(resource_mgmt: ResourceManagement) -> CompletionQueue {
    let attr = CqAttr { size_entries: DEPTH_ENTRIES, ..CqAttr::default() };
    CompletionQueue::open(&attr, DomainId::unused(), resource_mgmt).expect("a queue of this size")
}

fn completion(context: u64) -> Completion {
    Completion { context, ..Completion::default() }
}

fn failure(context: u64) -> CompletionError {
    let source = FabricAddress::UNSPECIFIED;
    CompletionError { completion: completion(context), error: OperationError::Cancelled, source }
}

fn push(cq: &CompletionQueue, context: u64) {
    cq.shared().lock().push_completed(completion(context), FabricAddress::UNSPECIFIED);
}

/// A queue that holds a success, an error and a success, and was overrun.
fn overrun() -> CompletionQueue {
    let cq = open(ResourceManagement::Disabled);
    push(&cq, 1);
    cq.shared().lock().push_failed(failure(2));
    push(&cq, 3);
    cq.shared().lock().overrun();
    cq
}

#[test]
fn resource_management_protects_a_queue() {
    assert!(open(ResourceManagement::Enabled).shared().is_protected());
    assert!(!open(ResourceManagement::Disabled).shared().is_protected());
}

#[test]
fn an_overrun_queue_is_read_to_its_end_first() {
    let cq = overrun();
    assert_eq!(cq.depth_entries(), DEPTH_ENTRIES);
    assert_eq!(cq.read_error(), Err(ReadError::Empty), "a success is on top");
    assert_eq!(cq.read_each(0, |_, _| panic!("none was asked for")), Ok(0));
    assert_eq!(cq.read(), Ok(completion(1)));
    assert_eq!(cq.read(), Err(ReadError::ErrorAvailable));
    assert_eq!(cq.read_error(), Ok(failure(2)));
    assert_eq!(cq.read_each(8, |entry, _| assert_eq!(entry, completion(3))), Ok(1), "the last of them");
    for _ in 0..2 {
        assert_eq!(cq.read(), Err(ReadError::Overrun));
        assert_eq!(cq.read_each(0, |_, _| panic!("there is none")), Err(ReadError::Overrun));
        assert_eq!(cq.read_error(), Err(ReadError::Overrun));
    }
    assert_eq!(ReadError::Overrun.errno(), Errno::EOVERRUN);
}

#[test]
fn an_overrun_queue_hands_nothing_over() {
    let (cq, other) = (open(ResourceManagement::Disabled), open(ResourceManagement::Disabled));
    let mut reader = Reader::new(cq.shared(), 1);
    reader.begin();
    assert!(reader.takes_from(cq.shared()) && !reader.takes_from(other.shared()));
    // Even when there is nothing to be read before.
    cq.shared().lock().overrun();
    reader.begin();
    assert!(!reader.takes_from(cq.shared()));
}

#[test]
fn every_read_of_an_overrun_queue_drives_progress() {
    let cq = overrun();
    while cq.read() != Err(ReadError::Overrun) {
        let _ = cq.read_error();
    }
    for _ in 0..3 {
        assert!(cq.shared().is_progress_due());
        assert_eq!(cq.read(), Err(ReadError::Overrun));
    }
}
