//! One thread closes endpoints while another reads their errors.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use homespun_fi::abi::eq::FiCqErrEntry;

use super::*;

const ENDPOINTS: usize = 100;

/// The context of every endpoint of the test.
const CONTEXT: usize = 0x5eed;

/// A queue that another thread reads.
struct Errors {
    eq: *mut FidEq,
    count: AtomicUsize,
    is_over: AtomicBool,
}

// SAFETY: the objects have the default `FI_THREAD_SAFE` of `fi_domain(3)`, so any thread may use them.
unsafe impl Sync for Errors {}

impl Errors {
    /// Peeks at and reads errors as fast as possible, until `is_over` is set.
    fn read_errors_until_over(&self) {
        while !self.is_over.load(Ordering::Acquire) {
            for flags in [FI_PEEK, 0] {
                // SAFETY: all zeroes are an entry.
                let mut entry: FiEqErrEntry = unsafe { mem::zeroed() };
                // SAFETY: the queue is open.
                let read = unsafe { ((*(*self.eq).ops).readerr)(self.eq, &raw mut entry, flags) };
                if read != EAGAIN {
                    assert_eq!(read, size_of::<FiEqErrEntry>().cast_signed());
                    assert_eq!((entry.context, entry.err), (numbered_context(CONTEXT), ECONNREFUSED));
                    self.count.fetch_add(usize::from(flags == 0), Ordering::Release);
                }
            }
        }
    }
}

/// Waits until an operation has failed.
fn await_failed_operation(cq: &Object<FidCq>) {
    let (cq, mut entry) = (cq.as_ptr(), FiCqTaggedEntry::EMPTY);
    // SAFETY: the queue is open, and has this format.
    wait_until(|| unsafe { ((*(*cq).ops).read)(cq, (&raw mut entry).cast(), 1) } == EAVAIL);
    // SAFETY: all zeroes are an entry, and the queue is open.
    unsafe {
        let mut entry: FiCqErrEntry = mem::zeroed();
        assert_eq!(((*(*cq).ops).readerr)(cq, &raw mut entry, 0), 1);
    }
}

#[test]
fn event_error_still_names_an_endpoint_that_is_closing() {
    let desk = ConnectionFixture::open();
    let closed = desk.open_listener();
    let mut closed_name = get_name(&closed);
    // Another listener could get the port of the closed one, but none gets a port below the dynamic range.
    closed_name[2..4].copy_from_slice(&9_u16.to_be_bytes());
    drop(closed);
    let errors = Errors { eq: desk.eq.as_ptr(), count: AtomicUsize::new(0), is_over: AtomicBool::new(false) };
    thread::scope(|scope| {
        let reader = scope.spawn(|| errors.read_errors_until_over());
        for round in 0..ENDPOINTS {
            let count = errors.count.load(Ordering::Acquire);
            let endpoint = desk.open_endpoint(desk.info());
            // SAFETY: only this thread uses it yet.
            unsafe { (*endpoint.fid()).context = numbered_context(CONTEXT) };
            // The failed connection first ends the receive with an error, then reports an error event.
            assert_eq!(post_empty_recv(&endpoint, 1), 0);
            assert_eq!(connect(&endpoint, &closed_name, b""), 0);
            await_failed_operation(&desk.cq);
            // Close every second endpoint at once: the reader may or may not have read the endpoint's
            // error.
            if round % 2 == 0 {
                wait_until(|| errors.count.load(Ordering::Acquire) > count || reader.is_finished());
            }
        }
        errors.is_over.store(true, Ordering::Release);
        reader.join().expect("no panic");
    });
}
