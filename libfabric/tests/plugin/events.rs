//! Events that an application writes to an event queue.

use std::mem;
use std::ptr;

use homespun_fi::abi::FI_PEEK;
use homespun_fi::abi::eq::FiEqErrEntry;

use crate::host::{EAGAIN, EOPBADSTATE, ETOOSMALL, Node, PATIENCE_MS, call, eq_attr};

/// Shows fi_eq/write-needs-flag, fi_eq/one-event-per-read, fi_eq/peek-leaves-event, fi_eq/eq-eagain.
#[test]
fn events_are_read_as_written() {
    const FI_WRITE: u64 = 1 << 9;
    let node = Node::open_disabled();
    let eq = node.fabric.open_eq(eq_attr(FI_WRITE)).expect("an event queue");
    let mut buf = [0_u8; 8];
    let room = buf.as_mut_ptr();
    let read = |len_bytes, flags| {
        let mut event = 0;
        (call!(eq, ops.read, &raw mut event, room.cast(), len_bytes, flags) as i32, event)
    };
    let sread = |timeout| {
        let mut event = 0;
        (call!(eq, ops.sread, &raw mut event, room.cast(), 8, timeout, 0) as i32, event)
    };
    assert_eq!((read(8, 0).0, sread(1).0), (EAGAIN, EAGAIN));
    assert_eq!(call!(eq, ops.write, 1, b"event".as_ptr().cast(), 5, 0), 5);
    // `fi_eq_write` has no flags: this one is ignored.
    assert_eq!(call!(eq, ops.write, 2, ptr::null(), 0, 1), 0);
    assert_eq!(read(4, 0).0, ETOOSMALL);
    assert_eq!((read(8, FI_PEEK), sread(PATIENCE_MS)), ((5, 1), (5, 1)));
    assert_eq!((read(0, 0), read(8, 0).0), ((0, 2), EAGAIN));
    assert_eq!(&buf[..5], b"event");
    // SAFETY: all zeroes are an entry.
    let mut entry: FiEqErrEntry = unsafe { mem::zeroed() };
    assert_eq!(call!(eq, ops.readerr, &raw mut entry, 0), EAGAIN as isize);
    let refused = call!(node.eq, ops.write, 1, b"event".as_ptr().cast(), 5, 0);
    assert_eq!(refused, EOPBADSTATE as isize, "it was not opened for writing");
}
