//! Events that an application writes to an event queue.

use std::ptr;

use homespun_fi::abi::FI_CQ_FORMAT_TAGGED;
use homespun_fi::abi::eq::{FiEqErrEntry, FidEq};

use crate::host::{API_VERSION, Node, Object, eq_attr, read_c_str};

const FI_WRITE: u64 = 1 << 9;
const FI_PEEK: u64 = 1 << 19;
const EAGAIN: isize = -11;

struct Reader<'a>(&'a Object<FidEq>);

impl Reader<'_> {
    fn write(&self, event: u32, data: &[u8], flags: u64) -> isize {
        let eq = self.0.as_ptr();
        // SAFETY: the queue is open, and the length is the data's.
        unsafe { ((*(*eq).ops).write)(eq, event, data.as_ptr().cast(), data.len(), flags) }
    }

    fn read(&self, buf: &mut [u8], flags: u64) -> (isize, u32) {
        let eq = self.0.as_ptr();
        let mut event = 0;
        // SAFETY: the queue is open, and the length is the buffer's.
        let result =
            unsafe { ((*(*eq).ops).read)(eq, &raw mut event, buf.as_mut_ptr().cast(), buf.len(), flags) };
        (result, event)
    }

    fn sread(&self, buf: &mut [u8], timeout: i32) -> (isize, u32) {
        let eq = self.0.as_ptr();
        let mut event = 0;
        // SAFETY: the queue is open, and the length is the buffer's.
        let result = unsafe {
            ((*(*eq).ops).sread)(eq, &raw mut event, buf.as_mut_ptr().cast(), buf.len(), timeout, 0)
        };
        (result, event)
    }
}

#[test]
fn events_are_read_as_written() {
    let node = Node::open_disabled(API_VERSION, FI_CQ_FORMAT_TAGGED);
    let eq = node.fabric.open_eq(&mut eq_attr(FI_WRITE)).expect("an event queue");
    let queue = Reader(&eq);
    let mut buf = [0; 8];
    assert_eq!(queue.read(&mut buf, 0).0, EAGAIN);
    assert_eq!(queue.sread(&mut buf, 1).0, EAGAIN);
    assert_eq!(queue.write(1, b"event", 0), 5);
    // `fi_eq_write` has no flags: this one is ignored.
    assert_eq!(queue.write(2, b"", 1), 0);
    assert_eq!(queue.read(&mut buf[..4], 0).0, -257);
    assert_eq!(queue.read(&mut buf, FI_PEEK), (5, 1));
    assert_eq!(queue.sread(&mut buf, -1), (5, 1));
    assert_eq!(&buf[..5], b"event");
    assert_eq!(queue.read(&mut [], 0), (0, 2));
    assert_eq!(queue.read(&mut buf, 0).0, EAGAIN);
}

#[test]
fn read_only_queue_refuses_writes() {
    let node = Node::open_disabled(API_VERSION, FI_CQ_FORMAT_TAGGED);
    assert_eq!(Reader(&node.eq).write(1, b"event", 0), -258);
}

#[test]
fn readerr_of_an_empty_queue_answers_eagain() {
    let node = Node::open_disabled(API_VERSION, FI_CQ_FORMAT_TAGGED);
    let eq = node.eq.as_ptr();
    // SAFETY: all zeroes are an entry; the queue is open.
    unsafe {
        let mut entry: FiEqErrEntry = std::mem::zeroed();
        assert_eq!(((*(*eq).ops).readerr)(eq, &raw mut entry, 0), EAGAIN);
        let described = ((*(*eq).ops).strerror)(eq, 125, ptr::null(), ptr::null_mut(), 0);
        assert_eq!(read_c_str(described), "Operation canceled");
    }
}
