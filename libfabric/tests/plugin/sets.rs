//! Wait sets and poll sets: `fi_poll(3)`.

use std::{ptr, thread};

use homespun_fi::abi::eq::{
    FiCntrAttr, FiCqAttr, FiCqErrEntry, FiCqTaggedEntry, FiEqAttr, FiMutexCond, FiPollAttr, FiWaitAttr,
    FidCntr, FidCq, FidEq, FidPoll, FidWait,
};
use homespun_fi::abi::fid::Fid;
use homespun_fi::abi::{
    FI_ADDR_UNSPEC, FI_CQ_COND_THRESHOLD, FI_CQ_FORMAT_TAGGED, FI_ENABLE, FI_GETWAIT, FI_GETWAITOBJ, FI_RECV,
    FI_TRANSMIT, FI_WAIT_FD, FI_WAIT_MUTEX_COND, FI_WAIT_NONE, FI_WAIT_POLLFD, FI_WAIT_SET, FI_WAIT_UNSPEC,
    FI_WAIT_YIELD,
};
use homespun_suite::posix;
use libc::{c_int, c_void};

use crate::host::{
    API_VERSION, CqEntry, Node, Object, counter_attr, cq_attr, eq_attr, numbered_context, wait_until,
};

const EAGAIN: c_int = -11;
const EBUSY: c_int = -16;
const EINVAL: c_int = -22;
const ENOENT: c_int = -2;
const ENOSYS: c_int = -38;
const ENODATA: c_int = -61;
const ETIMEDOUT: c_int = -110;
const EBADFLAGS: c_int = -260;

/// The time-out of every wait, in milliseconds.
const PATIENCE_MS: c_int = 60_000;

macro_rules! call {
    ($object:expr, $slot:ident $(, $arg:expr)*) => {{
        let object = $object.as_ptr();
        // SAFETY: the object is open.
        unsafe { ((*(*object).ops).$slot)(object $(, $arg)*) }
    }};
}

/// `fi_wait_open`.
fn open_wait_set(node: &Node, wait_obj: u32, flags: u64) -> Result<Object<FidWait>, c_int> {
    let mut attr = FiWaitAttr { wait_obj, flags };
    Object::open(|set| call!(node.fabric, wait_open, &raw mut attr, set))
}

/// `fi_poll_open`.
fn open_poll_set(node: &Node) -> Object<FidPoll> {
    let mut attr = FiPollAttr { flags: 0 };
    Object::open(|set| call!(node.domain, poll_open, &raw mut attr, set)).expect("a poll set")
}

/// Opens a queue and a counter as members of a set, with these contexts.
fn open_members(
    node: &Node,
    set: &Object<FidWait>,
    contexts: [usize; 2],
) -> (Object<FidCq>, Object<FidCntr>) {
    let wait_set = set.as_ptr();
    let mut cq = FiCqAttr { wait_obj: FI_WAIT_SET, wait_set, ..cq_attr(FI_CQ_FORMAT_TAGGED) };
    let mut cntr = FiCntrAttr { wait_set, ..counter_attr(FI_WAIT_SET) };
    let [of_cq, of_cntr] = contexts.map(numbered_context);
    let cq = Object::open(|opened| call!(node.domain, cq_open, &raw mut cq, opened, of_cq));
    let cntr = Object::open(|opened| call!(node.domain, cntr_open, &raw mut cntr, opened, of_cntr));
    (cq.expect("a completion queue"), cntr.expect("a counter"))
}

/// Writes the error of a cancelled receive to the queue of an endpoint.
fn write_cq_error(node: &Node) {
    let ep = node.ep.as_ptr();
    // SAFETY: the endpoint is open, and the receive has no memory.
    unsafe {
        let posted =
            ((*(*ep).msg).recv)(ep, ptr::null_mut(), 0, ptr::null_mut(), FI_ADDR_UNSPEC, numbered_context(1));
        assert_eq!((posted, ((*(*ep).ops).cancel)(ep.cast(), numbered_context(1))), (0, 0));
    }
}

/// Makes the endpoint send a message to itself and receive it. Only the receive writes an entry.
fn send_to_itself_with_one_entry(node: &Node) {
    let (ep, to) = (node.ep.as_ptr(), node.insert(&node.name()));
    // SAFETY: the endpoint is open, and the message has no memory.
    unsafe {
        let posted =
            ((*(*ep).msg).recv)(ep, ptr::null_mut(), 0, ptr::null_mut(), FI_ADDR_UNSPEC, numbered_context(1));
        assert_eq!((posted, ((*(*ep).msg).inject)(ep, ptr::null(), 0, to)), (0, 0));
    }
}

fn read_cq_error(cq: &Object<FidCq>) {
    // SAFETY: zeros are an entry.
    let mut entry: FiCqErrEntry = unsafe { std::mem::zeroed() };
    assert_eq!(call!(cq, readerr, &raw mut entry, 0), 1);
}

/// Binds the node's endpoint to this queue, and enables it.
fn bind_and_enable(node: &Node, cq: &Object<FidCq>) {
    assert_eq!(node.ep.bind(&node.av, 0), 0);
    assert_eq!(node.ep.bind(cq, FI_TRANSMIT | FI_RECV), 0);
    assert_eq!(node.ep.control::<c_void>(FI_ENABLE, ptr::null_mut()), 0);
}

fn trywait(node: &Node, fid: *mut Fid) -> c_int {
    let mut fids = [fid];
    call!(node.fabric, trywait, fids.as_mut_ptr(), 1)
}

/// Closes all objects in order of dependence, the endpoint before its queue.
fn close_all(node: Node, cq: Object<FidCq>, cntr: Option<Object<FidCntr>>, set: Object<FidWait>) {
    let Node { ep, cq: unused, av, eq, domain, fabric } = node;
    drop(ep);
    drop((cq, cntr, set, unused, av, eq, domain, fabric));
}

/// A wait set that any thread may use.
struct SharedSet<'a>(&'a Object<FidWait>);

// SAFETY: the plugin's functions may be called from any thread.
unsafe impl Send for SharedSet<'_> {}

impl SharedSet<'_> {
    fn wait(&self, timeout_ms: c_int) -> c_int {
        call!(self.0, wait, timeout_ms)
    }
}

#[test]
fn wait_ends_for_an_event_of_any_member() {
    for wait_obj in [FI_WAIT_UNSPEC, FI_WAIT_FD, FI_WAIT_MUTEX_COND, FI_WAIT_YIELD] {
        let node = Node::open_disabled(API_VERSION, FI_CQ_FORMAT_TAGGED);
        let set = open_wait_set(&node, wait_obj, 0).expect("a wait set");
        let (cq, cntr) = open_members(&node, &set, [1, 2]);
        bind_and_enable(&node, &cq);
        assert_eq!(call!(set, wait, 0), ETIMEDOUT);
        assert_eq!(call!(set, wait, 5), ETIMEDOUT);
        thread::scope(|scope| {
            let shared = SharedSet(&set);
            let waits = scope.spawn(move || shared.wait(PATIENCE_MS));
            assert_eq!(call!(cntr, add, 1), 0);
            assert_eq!(waits.join().expect("no panic"), 0);
        });
        assert_eq!(call!(set, wait, 0), ETIMEDOUT, "that was told");
        write_cq_error(&node);
        assert_eq!(call!(set, wait, -1), 0);
        read_cq_error(&cq);
        assert_eq!(call!(set, wait, 0), ETIMEDOUT);
        let mut entry = [0_u64; 8];
        assert_eq!(call!(cq, sread, entry.as_mut_ptr().cast(), 1, ptr::null(), -1), EINVAL as isize);
        let Err((set, error)) = set.close() else { panic!("it has members") };
        assert_eq!(error, EBUSY);
        close_all(node, cq, Some(cntr), set);
    }
}

/// Objects on which any thread may wait.
struct SharedObjects<'a> {
    set: &'a Object<FidWait>,
    cntr: &'a Object<FidCntr>,
    eq: &'a Object<FidEq>,
}

// SAFETY: the plugin's functions may be called from any thread.
unsafe impl Sync for SharedObjects<'_> {}

impl SharedObjects<'_> {
    fn wait_for_set(&self) -> c_int {
        call!(self.set, wait, 2 * PATIENCE_MS)
    }

    fn wait_for_counter(&self) -> c_int {
        call!(self.cntr, wait, 1, 2 * PATIENCE_MS)
    }

    fn read_event(&self) -> isize {
        let (mut event, mut room) = (0_u32, [0_u64; 1]);
        call!(self.eq, sread, &raw mut event, room.as_mut_ptr().cast(), 8, 2 * PATIENCE_MS, 0)
    }
}

#[test]
fn signal_handler_ends_waits_for_sets_counters_and_events() {
    let node = Node::open_disabled(API_VERSION, FI_CQ_FORMAT_TAGGED);
    let set = open_wait_set(&node, FI_WAIT_UNSPEC, 0).expect("a wait set");
    let (cq, cntr) = open_members(&node, &set, [1, 2]);
    let eq = node.fabric.open_eq(&mut eq_attr(0)).expect("an event queue");
    let shared = SharedObjects { set: &set, cntr: &cntr, eq: &eq };
    for restarts in [false, true] {
        assert_eq!(posix::interrupt_wait(restarts, || shared.wait_for_set()), EAGAIN);
        assert_eq!(posix::interrupt_wait(restarts, || shared.wait_for_counter()), EAGAIN);
        assert_eq!(posix::interrupt_wait(restarts, || shared.read_event()), EAGAIN as isize);
    }
    drop(eq);
    close_all(node, cq, Some(cntr), set);
}

#[test]
fn set_wait_ignores_the_wait_condition_of_a_member() {
    for wait_obj in [FI_WAIT_UNSPEC, FI_WAIT_FD, FI_WAIT_MUTEX_COND, FI_WAIT_YIELD] {
        let node = Node::open_disabled(API_VERSION, FI_CQ_FORMAT_TAGGED);
        let set = open_wait_set(&node, wait_obj, 0).expect("a wait set");
        // Only blocking reads take a threshold. A queue in a wait set has no blocking reads.
        let (wait_set, wait_cond) = (set.as_ptr(), FI_CQ_COND_THRESHOLD);
        let mut attr =
            FiCqAttr { wait_obj: FI_WAIT_SET, wait_set, wait_cond, ..cq_attr(FI_CQ_FORMAT_TAGGED) };
        let cq = node.domain.open_cq(&mut attr).expect("a completion queue");
        bind_and_enable(&node, &cq);
        assert_eq!(call!(set, wait, 5), ETIMEDOUT);
        send_to_itself_with_one_entry(&node);
        // The completion is a success. An error would end even a wait for several entries.
        assert_eq!(call!(set, wait, PATIENCE_MS), 0, "one entry is enough");
        let mut entries = [FiCqTaggedEntry::EMPTY; 2];
        assert_eq!(call!(cq, read, entries.as_mut_ptr().cast(), 2), 1, "there is only one");
        assert_eq!(entries[0].op_context, numbered_context(1));
        assert_eq!(call!(set, wait, 0), ETIMEDOUT);
        close_all(node, cq, None, set);
    }
}

#[test]
fn wait_object_of_a_set_signals_events_of_members() {
    for wait_obj in [FI_WAIT_FD, FI_WAIT_MUTEX_COND, FI_WAIT_UNSPEC] {
        let node = Node::open_disabled(API_VERSION, FI_CQ_FORMAT_TAGGED);
        let set = open_wait_set(&node, wait_obj, 0).expect("a wait set");
        let (cq, cntr) = open_members(&node, &set, [1, 2]);
        bind_and_enable(&node, &cq);
        let mut said = 0_u32;
        assert_eq!((set.control(FI_GETWAITOBJ, &raw mut said), said), (0, wait_obj));
        assert_eq!((cq.control(FI_GETWAITOBJ, &raw mut said), said), (0, FI_WAIT_SET));
        let mut room = [0_u64; 2];
        assert_eq!(set.control(FI_GETWAIT, room.as_mut_ptr()), 0);
        assert_eq!(cq.control(FI_GETWAIT, room.as_mut_ptr()), ENODATA);
        assert_eq!(set.control::<c_void>(FI_GETWAIT, ptr::null_mut()), EINVAL);
        wait_until(|| trywait(&node, set.fid()) == 0);
        assert_eq!(trywait(&node, cq.fid()), 0);
        call!(cntr, add, 1);
        assert_eq!(trywait(&node, cq.fid()), EAGAIN, "it speaks for all members");
        if wait_obj != FI_WAIT_MUTEX_COND {
            let mut fd: c_int = -1;
            assert_eq!(set.control(FI_GETWAIT, &raw mut fd), 0);
            let is_readable = |at_most_ms| {
                let mut pollfd = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
                // SAFETY: there is one `pollfd`.
                unsafe { libc::poll(&raw mut pollfd, 1, at_most_ms) == 1 }
            };
            assert_eq!(call!(cntr, read), 1);
            wait_until(|| trywait(&node, set.fid()) == 0);
            assert!(!is_readable(0));
            write_cq_error(&node);
            assert!(is_readable(PATIENCE_MS));
            assert_eq!(trywait(&node, set.fid()), EAGAIN);
        } else {
            let mut pair = FiMutexCond { mutex: ptr::null_mut(), cond: ptr::null_mut() };
            assert_eq!(set.control(FI_GETWAIT, &raw mut pair), 0);
            assert!(!pair.mutex.is_null() && !pair.cond.is_null());
        }
        close_all(node, cq, Some(cntr), set);
    }
}

#[test]
fn wait_set_accepts_an_event_queue() {
    const FI_WRITE: u64 = 1 << 9;
    let node = Node::open_disabled(API_VERSION, FI_CQ_FORMAT_TAGGED);
    let set = open_wait_set(&node, FI_WAIT_UNSPEC, 0).expect("a wait set");
    let mut attr = FiEqAttr { wait_obj: FI_WAIT_SET, wait_set: set.as_ptr(), ..eq_attr(FI_WRITE) };
    let eq = node.fabric.open_eq(&mut attr).expect("an event queue");
    assert_eq!(call!(set, wait, 0), ETIMEDOUT);
    assert_eq!(call!(eq, write, 7, ptr::null(), 0, 0), 0);
    assert_eq!(call!(set, wait, -1), 0);
    let mut event = 0;
    assert_eq!(call!(eq, sread, &raw mut event, ptr::null_mut(), 0, 0, 0), EINVAL as isize);
    assert_eq!(call!(eq, read, &raw mut event, ptr::null_mut(), 0, 0), 0);
    assert_eq!(event, 7);
    assert_eq!(call!(set, wait, 0), ETIMEDOUT);
    drop(eq);
    drop(set);
}

#[test]
fn invalid_wait_set_attributes_are_refused() {
    let node = Node::open_disabled(API_VERSION, FI_CQ_FORMAT_TAGGED);
    let refused = |wait_obj, flags| open_wait_set(&node, wait_obj, flags).err();
    assert_eq!(refused(FI_WAIT_NONE, 0), Some(EINVAL));
    assert_eq!(refused(FI_WAIT_SET, 0), Some(EINVAL));
    assert_eq!(refused(99, 0), Some(EINVAL));
    assert_eq!(refused(FI_WAIT_POLLFD, 0), Some(ENOSYS));
    assert_eq!(refused(FI_WAIT_UNSPEC, 1), Some(EBADFLAGS));
    let null: Result<Object<FidWait>, _> =
        Object::open(|set| call!(node.fabric, wait_open, ptr::null_mut(), set));
    assert_eq!(null.err(), Some(EINVAL));
    // An object of another class is no wait set.
    let mut attr = FiCntrAttr { wait_set: node.av.as_ptr().cast(), ..counter_attr(FI_WAIT_SET) };
    assert_eq!(node.domain.open_counter(&mut attr).err(), Some(EINVAL));
    let mut attr = FiCntrAttr { wait_set: node.av.as_ptr().cast(), ..counter_attr(FI_WAIT_NONE) };
    assert!(node.domain.open_counter(&mut attr).is_ok(), "it is ignored otherwise");
    let wait_set = node.av.as_ptr().cast();
    for (wait_obj, refused) in
        [(FI_WAIT_SET, Some(EINVAL)), (FI_WAIT_NONE, None), (FI_WAIT_UNSPEC, None), (FI_WAIT_FD, None)]
    {
        let mut attr = FiCqAttr { wait_obj, wait_set, ..cq_attr(FI_CQ_FORMAT_TAGGED) };
        assert_eq!(node.domain.open_cq(&mut attr).err(), refused);
    }
}

#[test]
fn poll_returns_the_members_with_events() {
    let node = Node::open_disabled(API_VERSION, FI_CQ_FORMAT_TAGGED);
    let waits = open_wait_set(&node, FI_WAIT_YIELD, 0).expect("a wait set");
    let (cq, cntr) = open_members(&node, &waits, [11, 12]);
    bind_and_enable(&node, &cq);
    let set = open_poll_set(&node);
    for fid in [cq.fid(), cntr.fid()] {
        assert_eq!(call!(set, poll_add, fid, 1), EBADFLAGS);
        assert_eq!(call!(set, poll_add, fid, 0), 0);
        assert_eq!(call!(set, poll_add, fid, 0), EINVAL, "it is there already");
    }
    let mut contexts = [ptr::null_mut(); 2];
    let mut poll = |room| (call!(set, poll, contexts.as_mut_ptr(), room), contexts);
    assert_eq!(poll(2).0, 0);
    write_cq_error(&node);
    assert_eq!(poll(2), (1, [numbered_context(11), ptr::null_mut()]));
    call!(cntr, add, 1);
    let (found, mut both) = poll(2);
    both.sort_unstable();
    assert_eq!((found, both), (2, [numbered_context(11), numbered_context(12)]));
    assert_eq!(poll(2).0, 1, "a counter that has not changed since has nothing to tell");
    read_cq_error(&cq);
    assert_eq!(poll(2).0, 0);
    assert_eq!(poll(-1).0, EINVAL);
    assert_eq!(call!(set, poll, ptr::null_mut(), 0), 0);
    assert_eq!(call!(set, poll, ptr::null_mut(), 1), EINVAL);
    for wrong in [ptr::null_mut(), node.av.fid(), node.ep.fid(), waits.fid()] {
        assert_eq!(call!(set, poll_add, wrong, 0), EINVAL);
        assert_eq!(call!(set, poll_del, wrong, 0), EINVAL);
    }
    // Neither a member nor its set can be closed.
    let Err((set, error)) = set.close() else { panic!("it has members") };
    assert_eq!(error, EBUSY);
    let Err((cntr, error)) = cntr.close() else { panic!("it is in a set") };
    assert_eq!(error, EBUSY);
    assert_eq!(call!(set, poll_del, cntr.fid(), 0), 0);
    assert_eq!(call!(set, poll_del, cntr.fid(), 0), ENOENT);
    assert_eq!(call!(set, poll_del, cq.fid(), 0), 0);
    drop(cntr);
    drop(set);
    close_all(node, cq, None, waits);
}
