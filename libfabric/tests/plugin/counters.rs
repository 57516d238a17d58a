//! Counters, and their bindings.

use std::{mem, ptr, thread};

use homespun_fi::abi::domain::FidMr;
use homespun_fi::abi::eq::{FiCntrAttr, FiCqErrEntry, FiCqTaggedEntry, FiMutexCond, FidCntr};
use homespun_fi::abi::{
    FI_ADDR_UNSPEC, FI_CQ_FORMAT_TAGGED, FI_ENABLE, FI_GETOPSFLAG, FI_GETWAIT, FI_GETWAITOBJ, FI_SETOPSFLAG,
    FI_WAIT_FD, FI_WAIT_MUTEX_COND, FI_WAIT_NONE, FI_WAIT_POLLFD, FI_WAIT_SET, FI_WAIT_UNSPEC, FI_WAIT_YIELD,
};
use libc::{c_int, c_void};

use crate::host::{API_VERSION, Node, Object, Pair, counter_attr, cq_attr, numbered_context, wait_until};
use crate::rma::reg;

const READ: u64 = 1 << 8;
const WRITE: u64 = 1 << 9;
const RECV: u64 = 1 << 10;
const SEND: u64 = 1 << 11;
const REMOTE_READ: u64 = 1 << 12;
const REMOTE_WRITE: u64 = 1 << 13;
const RMA_EVENT: u64 = 1 << 56;

const EVENTS: [u64; 6] = [SEND, RECV, READ, WRITE, REMOTE_READ, REMOTE_WRITE];
const OBJECTS: [u32; 5] = [FI_WAIT_NONE, FI_WAIT_UNSPEC, FI_WAIT_FD, FI_WAIT_MUTEX_COND, FI_WAIT_YIELD];

const EAGAIN: c_int = -11;
const EBUSY: c_int = -16;
const EINVAL: c_int = -22;
const ENOSYS: c_int = -38;
const ENODATA: c_int = -61;
const ETIMEDOUT: c_int = -110;
const EOPBADSTATE: c_int = -258;
const EAVAIL: c_int = -259;
const EBADFLAGS: c_int = -260;
const EKEYREJECTED: c_int = 129;

const KEY: u64 = 77;

/// The time-out of every wait, in milliseconds.
const PATIENCE_MS: c_int = 60_000;

/// A counter, which another thread may use too.
struct Counter(Object<FidCntr>);

// SAFETY: the plugin's functions may be called from any thread.
unsafe impl Send for Counter {}
// SAFETY: as above.
unsafe impl Sync for Counter {}

macro_rules! call {
    ($object:expr, $slot:ident $(, $arg:expr)*) => {{
        let object = $object.as_ptr();
        // SAFETY: the object is open.
        unsafe { ((*(*object).ops).$slot)(object $(, $arg)*) }
    }};
}

impl Counter {
    fn open(node: &Node, wait_obj: u32) -> Counter {
        Counter(node.domain.open_counter(&mut counter_attr(wait_obj)).expect("a counter"))
    }

    /// `fi_cntr_read`, `fi_cntr_readerr`.
    fn read_values(&self) -> (u64, u64) {
        (call!(self.0, read), call!(self.0, readerr))
    }

    /// `fi_cntr_wait`.
    fn wait(&self, threshold: u64, timeout_ms: c_int) -> c_int {
        call!(self.0, wait, threshold, timeout_ms)
    }
}

/// Opens a node with a counter for each event.
fn open_counting_node(wait_obj: u32) -> (Node, Vec<Counter>) {
    let node = Node::open_disabled(API_VERSION, FI_CQ_FORMAT_TAGGED);
    let counters = EVENTS.map(|event| {
        let counter = Counter::open(&node, wait_obj);
        assert_eq!(node.ep.bind(&counter.0, event), 0);
        counter
    });
    (node.bind_and_enable(), counters.into())
}

/// Closes a node, its endpoint before the counters.
fn close_node(node: Node, counters: Vec<Counter>) {
    let Node { ep, cq, av, eq, domain, fabric } = node;
    drop(ep);
    drop(counters);
    drop((cq, av, eq, domain, fabric));
}

/// Posts a receive without a buffer, for a message without payload.
fn post_empty_recv(node: &Node, number: usize) {
    let ep = node.ep.as_ptr();
    // SAFETY: the endpoint is open, and the receive has no memory.
    let posted = unsafe {
        let recv = (*(*ep).msg).recv;
        recv(ep, ptr::null_mut(), 0, ptr::null_mut(), FI_ADDR_UNSPEC, numbered_context(number))
    };
    assert_eq!(posted, 0);
}

fn cancel(node: &Node, number: usize) {
    let ep = node.ep.as_ptr();
    // SAFETY: the endpoint is open.
    assert_eq!(unsafe { ((*(*ep).ops).cancel)(ep.cast(), numbered_context(number)) }, 0);
}

/// `fi_write` of static bytes.
fn post_write(node: &Node, to: u64, key: u64) {
    let ep = node.ep.as_ptr();
    // SAFETY: the endpoint is open.
    let posted = unsafe {
        let write = (*(*ep).rma).write;
        write(ep, b"1234".as_ptr().cast(), 4, ptr::null_mut(), to, 0, key, numbered_context(1))
    };
    assert_eq!(posted, 0);
}

/// Waits for the next error of a node's queue.
fn await_error(node: &Node) -> c_int {
    // SAFETY: all zeroes are an entry.
    let mut entry: FiCqErrEntry = unsafe { mem::zeroed() };
    wait_until(|| {
        let _: Result<(FiCqTaggedEntry, u64), isize> = node.try_read();
        node.read_error(&mut entry) == 1
    });
    entry.err
}

#[test]
fn every_kind_of_event_is_counted() {
    let ((left, of_left), (right, of_right)) =
        (open_counting_node(FI_WAIT_NONE), open_counting_node(FI_WAIT_NONE));
    let pair: Pair = Pair::from_nodes(left, right);
    let mut memory = [0u8; 64];
    let region = reg(&pair.right.domain, &mut memory, KEY, 0).expect("a region");
    let of_region = Counter::open(&pair.right, FI_WAIT_NONE);
    assert_eq!(region.bind(&of_region.0, REMOTE_WRITE | REMOTE_READ), 0);
    post_empty_recv(&pair.right, 1);
    post_empty_recv(&pair.right, 2);
    let (ep, to) = (pair.left.ep.as_ptr(), pair.to_right);
    let mut room = [0u8; 4];
    // SAFETY: the endpoint is open, and the test uses `room` only after all events are counted.
    unsafe {
        let msg = &*(*ep).msg;
        assert_eq!((msg.send)(ep, ptr::null(), 0, ptr::null_mut(), to, numbered_context(3)), 0);
        assert_eq!((msg.inject)(ep, ptr::null(), 0, to), 0);
        let read = (*(*ep).rma).read;
        assert_eq!(
            read(ep, room.as_mut_ptr().cast(), 4, ptr::null_mut(), to, 0, KEY, numbered_context(4)),
            0
        );
    }
    post_write(&pair.left, to, KEY);
    let values = |counters: &[Counter]| counters.iter().map(Counter::read_values).collect::<Vec<_>>();
    wait_until(|| {
        let (left, right) = (values(&of_left), values(&of_right));
        left == [(2, 0), (0, 0), (1, 0), (1, 0), (0, 0), (0, 0)]
            && right == [(0, 0), (2, 0), (0, 0), (0, 0), (1, 0), (1, 0)]
            && of_region.read_values() == (2, 0)
    });
    post_write(&pair.left, to, KEY + 1);
    wait_until(|| [of_left[3].read_values(), of_right[5].read_values()] == [(1, 1), (1, 0)]);
    post_empty_recv(&pair.right, 9);
    cancel(&pair.right, 9);
    assert_eq!(of_right[1].read_values(), (2, 1));
    drop((region, of_region));
    let Pair { left, right, .. } = pair;
    close_node(left, of_left);
    close_node(right, of_right);
}

#[test]
fn values_may_be_added_and_set() {
    let node = Node::open();
    let counter = Counter::open(&node, FI_WAIT_UNSPEC);
    assert_eq!(counter.read_values(), (0, 0));
    assert_eq!([call!(counter.0, add, 5), call!(counter.0, adderr, 2)], [0; 2]);
    assert_eq!(counter.read_values(), (5, 2));
    assert_eq!([call!(counter.0, set, 1), call!(counter.0, seterr, 9), call!(counter.0, add, 1)], [0; 3]);
    assert_eq!(counter.read_values(), (2, 9));
}

#[test]
fn waits_end_for_value_timeout_and_error() {
    for wait_obj in OBJECTS {
        let (node, counters) = open_counting_node(wait_obj);
        let counter = &counters[1];
        assert_eq!(counter.wait(0, -1), 0);
        for timeout_ms in [0, 1, 20] {
            assert_eq!(counter.wait(1, timeout_ms), ETIMEDOUT);
        }
        thread::scope(|scope| {
            let waits = scope.spawn(|| counter.wait(3, -1));
            assert_eq!(call!(counter.0, add, 3), 0);
            assert_eq!(waits.join().expect("no panic"), 0);
            let waits = scope.spawn(|| counter.wait(4, PATIENCE_MS));
            // Only an error during the wait ends it.
            wait_until(|| {
                post_empty_recv(&node, 1);
                cancel(&node, 1);
                waits.is_finished()
            });
            assert_eq!(waits.join().expect("no panic"), EAVAIL);
        });
        assert!(counter.read_values().1 > 0);
        assert_eq!(counter.wait(3, -1), 0, "an error of before");
        close_node(node, counters);
    }
}

#[test]
fn getwait_returns_the_wait_object_of_a_counter() {
    let node = Node::open();
    for wait_obj in OBJECTS {
        let counter = Counter::open(&node, wait_obj);
        let mut got = u32::MAX;
        assert_eq!(counter.0.control(FI_GETWAITOBJ, &raw mut got), 0);
        assert_eq!(got, wait_obj);
        let mut fd: c_int = -1;
        let mut pair = FiMutexCond { mutex: ptr::null_mut(), cond: ptr::null_mut() };
        match wait_obj {
            FI_WAIT_FD | FI_WAIT_UNSPEC => {
                assert_eq!(counter.0.control(FI_GETWAIT, &raw mut fd), 0);
                assert!(fd >= 0);
            }
            FI_WAIT_MUTEX_COND => {
                assert_eq!(counter.0.control(FI_GETWAIT, &raw mut pair), 0);
                assert!(!pair.mutex.is_null() && !pair.cond.is_null());
            }
            _ => assert_eq!(counter.0.control(FI_GETWAIT, &raw mut fd), ENODATA),
        }
        for command in [FI_GETWAIT, FI_GETWAITOBJ, FI_GETOPSFLAG, FI_SETOPSFLAG] {
            assert_eq!(counter.0.control::<c_void>(command, ptr::null_mut()), EINVAL);
        }
        let mut flags = u64::MAX;
        assert_eq!(counter.0.control(FI_GETOPSFLAG, &raw mut flags), 0);
        assert_eq!((flags, counter.0.control(FI_SETOPSFLAG, &raw mut flags)), (0, 0));
        flags = 1;
        assert_eq!(counter.0.control(FI_SETOPSFLAG, &raw mut flags), EBADFLAGS);
        assert_eq!(counter.0.control(1000, &raw mut flags), ENOSYS);
    }
}

#[test]
fn descriptors_of_counter_and_queue_are_polled_together() {
    let attr = homespun_fi::abi::eq::FiCqAttr { wait_obj: FI_WAIT_FD, ..cq_attr(FI_CQ_FORMAT_TAGGED) };
    let node = Node::open_with_cq_attr(&mut { attr });
    let counter = Counter::open(&node, FI_WAIT_FD);
    let trywait = |fids: &mut [_]| {
        let fabric = node.fabric.as_ptr();
        let count = c_int::try_from(fids.len()).expect("few");
        // SAFETY: the fabric and the `count` objects are open.
        unsafe { ((*(*fabric).ops).trywait)(fabric, fids.as_mut_ptr(), count) }
    };
    let mut both = [node.cq.fid(), counter.0.fid()];
    wait_until(|| trywait(&mut both) == 0);
    let mut fd: c_int = -1;
    assert_eq!(counter.0.control(FI_GETWAIT, &raw mut fd), 0);
    let is_readable = || {
        let mut fds = [libc::pollfd { fd, events: libc::POLLIN, revents: 0 }];
        // SAFETY: there is one `pollfd`.
        unsafe { libc::poll(fds.as_mut_ptr(), 1, 0) == 1 }
    };
    assert!(!is_readable());
    assert_eq!(call!(counter.0, add, 1), 0);
    assert!(is_readable());
    assert_eq!(trywait(&mut both), EAGAIN);
    assert_eq!(trywait(&mut both), 0, "it was told of");
    let polled = Counter::open(&node, FI_WAIT_NONE);
    assert_eq!(trywait(&mut [polled.0.fid()]), EINVAL);
    assert_eq!(trywait(&mut [node.domain.fid()]), EINVAL);
}

#[test]
fn unsupported_attributes_are_refused() {
    let node = Node::open();
    let refused = |attr: FiCntrAttr| node.domain.open_counter(&mut { attr }).err();
    let attr = || counter_attr(FI_WAIT_NONE);
    assert_eq!(refused(FiCntrAttr { events: 1, ..attr() }), Some(ENOSYS));
    assert_eq!(refused(FiCntrAttr { flags: 1, ..attr() }), Some(EBADFLAGS));
    assert_eq!(refused(FiCntrAttr { wait_obj: FI_WAIT_POLLFD, ..attr() }), Some(ENOSYS));
    assert_eq!(refused(FiCntrAttr { wait_obj: FI_WAIT_SET, ..attr() }), Some(EINVAL), "there is no set");
    assert_eq!(refused(FiCntrAttr { wait_obj: 99, ..attr() }), Some(EINVAL));
}

#[test]
fn bound_counter_is_not_closed() {
    let node = Node::open_disabled(API_VERSION, FI_CQ_FORMAT_TAGGED);
    let (counter, other) = (Counter::open(&node, FI_WAIT_NONE), Counter::open(&node, FI_WAIT_NONE));
    assert_eq!(node.ep.bind(&counter.0, SEND | WRITE), 0);
    assert_eq!(node.ep.bind(&other.0, READ | WRITE), EBUSY);
    assert_eq!(node.ep.bind(&other.0, 1 << 40), EBADFLAGS);
    assert_eq!(node.ep.bind(&other.0, 0), 0, "it counts nothing");
    let node = node.bind_and_enable();
    assert_eq!(node.ep.bind(&other.0, WRITE), EBUSY);
    assert_eq!(node.ep.bind(&other.0, READ), 0, "an event without a counter may get one at any time");
    let mut memory = [0u8; 8];
    let region: Object<FidMr> = reg(&node.domain, &mut memory, KEY, 0).expect("a region");
    assert_eq!(region.bind(&counter.0, SEND), EBADFLAGS);
    assert_eq!(region.bind(&counter.0, 0), EBADFLAGS);
    assert_eq!(region.bind(&counter.0, REMOTE_WRITE), 0);
    assert_eq!(region.bind(&other.0, REMOTE_WRITE), EBUSY);
    let closed = |counter: Counter| counter.0.close().map_err(|(counter, error)| (Counter(counter), error));
    let Err((counter, EBUSY)) = closed(counter) else { panic!("it is bound") };
    let Err((other, EBUSY)) = closed(other) else { panic!("it is bound") };
    let Node { ep, cq, av, eq, domain, fabric } = node;
    assert!(ep.close().is_ok());
    assert!(closed(other).is_ok());
    let Err((counter, EBUSY)) = closed(counter) else { panic!("the region is bound to it") };
    assert!(region.close().is_ok() && closed(counter).is_ok());
    drop((cq, av, eq, domain, fabric));
}

#[test]
fn region_with_events_is_accessible_after_it_is_enabled() {
    let pair: Pair = Pair::open(API_VERSION, FI_CQ_FORMAT_TAGGED);
    let mut memory = [0u8; 8];
    let region = reg(&pair.right.domain, &mut memory, KEY, RMA_EVENT).expect("a region");
    let counter = Counter::open(&pair.right, FI_WAIT_NONE);
    post_write(&pair.left, pair.to_right, KEY);
    wait_until(|| {
        let _: Result<(FiCqTaggedEntry, u64), isize> = pair.right.try_read();
        matches!(pair.left.try_read::<FiCqTaggedEntry>(), Err(error) if error == EAVAIL as isize)
    });
    assert_eq!(await_error(&pair.left), EKEYREJECTED);
    assert_eq!((region.bind(&pair.right.ep, 0), region.bind(&counter.0, REMOTE_WRITE)), (0, 0));
    assert_eq!(region.control::<c_void>(FI_ENABLE, ptr::null_mut()), 0);
    assert_eq!(region.bind(&counter.0, REMOTE_READ), EOPBADSTATE);
    post_write(&pair.left, pair.to_right, KEY);
    // Reads of the counter drive the endpoint, although only the region is bound to the counter.
    wait_until(|| pair.left.try_read::<FiCqTaggedEntry>().is_ok() | (counter.read_values().0 > 1));
    wait_until(|| counter.read_values() == (1, 0));
    assert!(region.close().is_ok());
    assert_eq!(&memory, b"1234\0\0\0\0");
}
