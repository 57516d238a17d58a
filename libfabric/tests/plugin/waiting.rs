//! Blocking reads, signals, and the wait objects of completion queues.

use std::mem::{self, MaybeUninit};
use std::time::{Duration, Instant};
use std::{ptr, thread};

use homespun_fi::abi::eq::{FiCqAttr, FiCqErrEntry, FiCqTaggedEntry, FiMutexCond};
use homespun_fi::abi::fid::Fid;
use homespun_fi::abi::{
    FI_ADDR_UNSPEC, FI_AFFINITY, FI_CQ_COND_NONE, FI_CQ_COND_THRESHOLD, FI_CQ_FORMAT_TAGGED, FI_GETWAIT,
    FI_GETWAITOBJ, FI_WAIT_FD, FI_WAIT_MUTEX_COND, FI_WAIT_NONE, FI_WAIT_POLLFD, FI_WAIT_SET, FI_WAIT_UNSPEC,
    FI_WAIT_YIELD,
};
use homespun_suite::posix;
use libc::{c_int, c_void};

use crate::host::{API_VERSION, CqEntry, Node, Pair, cq_attr, numbered_context, wait_until};

const EAGAIN: isize = -11;
const EINVAL: isize = -22;
const ENODATA: c_int = -61;
const EAVAIL: isize = -259;

/// The time-out of every wait, in milliseconds.
const PATIENCE_MS: c_int = 60_000;

/// The time-out of waits that a signal must end.
const SIGNAL_PATIENCE_MS: c_int = 2 * PATIENCE_MS;

const OBJECTS: [u32; 4] = [FI_WAIT_UNSPEC, FI_WAIT_FD, FI_WAIT_MUTEX_COND, FI_WAIT_YIELD];

fn make_cq_attr(wait_obj: u32, wait_cond: u32) -> FiCqAttr {
    FiCqAttr { wait_obj, wait_cond, ..cq_attr(FI_CQ_FORMAT_TAGGED) }
}

fn open_pair(wait_obj: u32, wait_cond: u32) -> Pair {
    let node = || Node::open_with_cq_attr(&mut make_cq_attr(wait_obj, wait_cond));
    Pair::from_nodes(node(), node())
}

/// Objects that another thread may use too.
struct SharedNode<'a>(&'a Node);

// SAFETY: the plugin's functions may be called from any thread.
unsafe impl Sync for SharedNode<'_> {}

impl SharedNode<'_> {
    /// `fi_cq_sread`. Returns its result and the contexts.
    fn sread(&self, count: usize, threshold: usize, timeout_ms: c_int) -> (isize, Vec<usize>) {
        let mut entries = [FiCqTaggedEntry::EMPTY; 8];
        assert!(count <= entries.len());
        let cq = self.0.cq.as_ptr();
        let cond = ptr::without_provenance(threshold);
        // SAFETY: the queue is open, and there is room for `count` entries.
        let read = unsafe { ((*(*cq).ops).sread)(cq, entries.as_mut_ptr().cast(), count, cond, timeout_ms) };
        let count = usize::try_from(read).unwrap_or(0);
        (read, entries[..count].iter().map(|entry| entry.op_context.addr()).collect())
    }

    /// Calls `fi_cq_sreadfrom` for one entry, without a time limit. Returns the entry's context and
    /// source.
    fn sread_one_from(&self) -> (usize, u64) {
        let (mut entry, mut source) = (FiCqTaggedEntry::EMPTY, 0);
        let cq = self.0.cq.as_ptr();
        // SAFETY: the queue is open, and there is room for one entry and its source.
        let read = unsafe {
            let sreadfrom = (*(*cq).ops).sreadfrom;
            sreadfrom(cq, (&raw mut entry).cast(), 1, &raw mut source, ptr::null(), -1)
        };
        assert_eq!(read, 1);
        (entry.op_context.addr(), source)
    }

    /// `fi_cq_signal`.
    fn signal(&self) -> c_int {
        let cq = self.0.cq.as_ptr();
        // SAFETY: the queue is open.
        unsafe { ((*(*cq).ops).signal)(cq) }
    }

    /// `fi_trywait` of the queue.
    fn trywait(&self) -> c_int {
        trywait(self.0, &mut [self.0.cq.fid()])
    }
}

fn trywait(node: &Node, fids: &mut [*mut Fid]) -> c_int {
    let fabric = node.fabric.as_ptr();
    let count = c_int::try_from(fids.len()).expect("few");
    // SAFETY: the fabric and the `count` objects are open.
    unsafe { ((*(*fabric).ops).trywait)(fabric, fids.as_mut_ptr(), count) }
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

/// Sends a message without payload to the right endpoint.
fn send_empty(pair: &Pair, number: usize) {
    let ep = pair.left.ep.as_ptr();
    // SAFETY: the endpoint is open, and the message has no memory.
    let posted = unsafe {
        ((*(*ep).msg).send)(ep, ptr::null(), 0, ptr::null_mut(), pair.to_right, numbered_context(number))
    };
    assert_eq!(posted, 0);
}

fn cancel(node: &Node, number: usize) {
    let ep = node.ep.as_ptr();
    // SAFETY: the endpoint is open.
    assert_eq!(unsafe { ((*(*ep).ops).cancel)(ep.cast(), numbered_context(number)) }, 0);
}

#[test]
fn blocking_reads_wake_for_messages_and_errors() {
    for wait_obj in OBJECTS {
        let pair = open_pair(wait_obj, FI_CQ_COND_NONE);
        let right = SharedNode(&pair.right);
        (1..=3).for_each(|number| post_empty_recv(&pair.right, number));
        thread::scope(|scope| {
            // The queue has no condition, so the argument is ignored.
            let read = scope.spawn(|| right.sread(8, 99, -1));
            send_empty(&pair, 7);
            assert_eq!(SharedNode(&pair.left).sread(1, 0, -1), (1, vec![7]));
            assert_eq!(read.join().expect("no panic"), (1, vec![1]));
            let read = scope.spawn(|| right.sread_one_from());
            send_empty(&pair, 8);
            assert_eq!(SharedNode(&pair.left).sread(1, 0, -1), (1, vec![8]));
            assert_eq!(read.join().expect("no panic"), (2, pair.to_left));
            // Every negative timeout waits without limit.
            let read = scope.spawn(|| right.sread(8, 99, c_int::MIN));
            thread::sleep(Duration::from_millis(5));
            assert!(!read.is_finished(), "there is nothing to be read");
            cancel(&pair.right, 3);
            assert_eq!(read.join().expect("no panic").0, EAVAIL);
        });
        // SAFETY: all zeroes are an entry.
        let mut entry: FiCqErrEntry = unsafe { mem::zeroed() };
        assert_eq!((pair.right.read_error(&mut entry), entry.op_context), (1, numbered_context(3)));
    }
}

#[test]
fn blocking_reads_end_at_the_timeout_or_a_signal() {
    for wait_obj in OBJECTS {
        let node = Node::open_with_cq_attr(&mut make_cq_attr(wait_obj, FI_CQ_COND_NONE));
        let node = SharedNode(&node);
        for timeout_ms in [0, 1, 20] {
            let begin = Instant::now();
            assert_eq!(node.sread(1, 0, timeout_ms), (EAGAIN, vec![]));
            let waited_ms = begin.elapsed().as_millis();
            assert!(waited_ms >= timeout_ms.unsigned_abs().into(), "it has given up too soon");
            // A wait of twenty seconds would show a timeout in the wrong unit.
            assert!(waited_ms < 20_000, "it has waited too long");
        }
        assert_eq!(node.sread(0, 0, 0).0, EAGAIN);
        assert_eq!(node.signal(), 0);
        assert_eq!(node.sread(1, 0, -1).0, EAGAIN, "the signal came before");
        thread::scope(|scope| {
            let read = scope.spawn(|| node.sread(1, 0, -1).0);
            assert_eq!(node.signal(), 0);
            assert_eq!(read.join().expect("no panic"), EAGAIN);
        });
    }
}

#[test]
fn signal_handler_ends_a_blocking_read() {
    // With FI_WAIT_YIELD no thread sleeps.
    for wait_obj in &OBJECTS[..3] {
        let pair = open_pair(*wait_obj, FI_CQ_COND_NONE);
        let right = SharedNode(&pair.right);
        for restarts in [false, true] {
            let read = || right.sread(1, 0, SIGNAL_PATIENCE_MS);
            assert_eq!(posix::interrupt_wait(restarts, read), (EAGAIN, vec![]));
        }
        post_empty_recv(&pair.right, 1);
        send_empty(&pair, 7);
        assert_eq!(SharedNode(&pair.left).sread(1, 0, -1), (1, vec![7]));
        assert_eq!(right.sread(1, 0, -1), (1, vec![1]));
    }
}

#[test]
fn sread_takes_its_threshold_from_the_condition_argument() {
    for wait_obj in OBJECTS {
        let pair = open_pair(wait_obj, FI_CQ_COND_THRESHOLD);
        let right = SharedNode(&pair.right);
        (1..=4).for_each(|number| post_empty_recv(&pair.right, number));
        thread::scope(|scope| {
            let read = scope.spawn(|| right.sread(8, 3, PATIENCE_MS));
            (1..=2).for_each(|number| send_empty(&pair, number));
            let mut sent = 0;
            wait_until(|| {
                sent += usize::from(pair.left.try_read::<FiCqTaggedEntry>().is_ok());
                sent == 2
            });
            thread::sleep(Duration::from_millis(5));
            assert!(!read.is_finished(), "two entries are below the threshold");
            (3..=4).for_each(|number| send_empty(&pair, number));
            wait_until(|| {
                let _ = pair.left.try_read::<FiCqTaggedEntry>();
                read.is_finished()
            });
            let (count, mut all) = read.join().expect("no panic");
            assert!(count >= 3, "{count}");
            if count < 4 {
                all.extend(right.sread(8, 0, -1).1);
            }
            assert_eq!(all, [1, 2, 3, 4]);
        });
    }
}

#[test]
fn queue_without_a_wait_object_refuses_waits() {
    let node = Node::open();
    let shared = SharedNode(&node);
    assert_eq!((shared.sread(1, 0, -1).0, shared.sread(1, 0, 1).0), (EINVAL, EINVAL));
    assert_eq!(shared.sread(1, 0, 0).0, EAGAIN, "it need not wait");
    assert_eq!((shared.signal(), shared.trywait()), (0, -22));
    let mut fd: c_int = -1;
    assert_eq!((node.cq.control(FI_GETWAIT, &raw mut fd), fd), (ENODATA, -1));
}

fn poll_until_readable(fd: c_int, millis: c_int) -> bool {
    let mut asked = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    // SAFETY: there is one `pollfd`.
    unsafe { libc::poll(&raw mut asked, 1, millis) == 1 && asked.revents == libc::POLLIN }
}

fn select_until_readable(fd: c_int, millis: c_int) -> bool {
    let mut at_most =
        libc::timeval { tv_sec: (millis / 1000).into(), tv_usec: (millis % 1000 * 1000).into() };
    // SAFETY: zeros are a set, and the descriptor is below `FD_SETSIZE`.
    unsafe {
        let mut asked: libc::fd_set = mem::zeroed();
        assert!(usize::try_from(fd).is_ok_and(|fd| fd < libc::FD_SETSIZE));
        libc::FD_SET(fd, &raw mut asked);
        libc::select(fd + 1, &raw mut asked, ptr::null_mut(), ptr::null_mut(), &raw mut at_most) == 1
            && libc::FD_ISSET(fd, &raw const asked)
    }
}

fn epoll_until_readable(fd: c_int, millis: c_int) -> bool {
    // SAFETY: there is room for one event, and only this test uses the descriptor that it closes.
    unsafe {
        let epoll = libc::epoll_create1(libc::EPOLL_CLOEXEC);
        assert!(epoll >= 0);
        let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 7 };
        assert_eq!(libc::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, fd, &raw mut event), 0);
        event.u64 = 0;
        let count = libc::epoll_wait(epoll, &raw mut event, 1, millis);
        libc::close(epoll);
        count == 1 && { event.u64 } == 7 && { event.events } == libc::EPOLLIN as u32
    }
}

#[test]
fn descriptor_wakes_a_polling_thread() {
    let pair = open_pair(FI_WAIT_FD, FI_CQ_COND_NONE);
    let mut fd: c_int = -1;
    assert_eq!(pair.right.cq.control(FI_GETWAIT, &raw mut fd), 0);
    let calls: [fn(c_int, c_int) -> bool; 3] =
        [poll_until_readable, select_until_readable, epoll_until_readable];
    for number in 1..20 {
        let is_readable = |millis| calls[number % 3](fd, millis);
        post_empty_recv(&pair.right, number);
        wait_until(|| SharedNode(&pair.right).trywait() == 0);
        assert!(!is_readable(0), "nothing has happened");
        send_empty(&pair, number);
        let left = SharedNode(&pair.left);
        thread::scope(|scope| {
            scope.spawn({
                let left = &left;
                move || assert_eq!(left.sread(1, 0, -1), (1, vec![number]))
            });
            // Since `fi_trywait` no call has driven the right endpoint. So only the descriptor can
            // announce the message.
            assert!(is_readable(PATIENCE_MS), "it was not woken");
            let mut read = pair.right.try_read::<FiCqTaggedEntry>();
            while let Err(error) = read {
                assert_eq!(error, EAGAIN);
                if SharedNode(&pair.right).trywait() == 0 {
                    assert!(is_readable(PATIENCE_MS), "it was not woken");
                }
                read = pair.right.try_read();
            }
            assert_eq!(read.expect("an entry").0.op_context, numbered_context(number));
        });
    }
}

#[test]
fn mutex_and_condition_wake_a_waiting_thread() {
    let pair = open_pair(FI_WAIT_MUTEX_COND, FI_CQ_COND_NONE);
    let mut of = MaybeUninit::<FiMutexCond>::uninit();
    assert_eq!(pair.right.cq.control(FI_GETWAIT, of.as_mut_ptr()), 0);
    // SAFETY: the call has filled it in.
    let FiMutexCond { mutex, cond } = unsafe { of.assume_init() };
    for number in 1..20 {
        post_empty_recv(&pair.right, number);
        let left = SharedNode(&pair.left);
        // SAFETY: the queue is open, and so its mutex and condition are valid.
        unsafe {
            assert_eq!(libc::pthread_mutex_lock(mutex), 0);
            wait_until(|| SharedNode(&pair.right).trywait() == 0);
        }
        // This thread locks the mutex before the send and unlocks it by waiting, so it misses no
        // signal.
        send_empty(&pair, number);
        thread::scope(|scope| {
            scope.spawn({
                let left = &left;
                move || assert_eq!(left.sread(1, 0, -1), (1, vec![number]))
            });
            let deadline = realtime_clock_after(PATIENCE_MS);
            // SAFETY: as above, and this thread holds the mutex.
            unsafe {
                assert_eq!(
                    libc::pthread_cond_timedwait(cond, mutex, &raw const deadline),
                    0,
                    "it was not woken"
                );
                assert_eq!(libc::pthread_mutex_unlock(mutex), 0);
            }
            let mut entry = None;
            wait_until(|| {
                entry = pair.right.try_read::<FiCqTaggedEntry>().ok();
                entry.is_some()
            });
            assert_eq!(entry.expect("an entry").0.op_context, numbered_context(number));
        });
    }
}

/// Returns the time of the real-time clock after this many milliseconds.
fn realtime_clock_after(millis: c_int) -> libc::timespec {
    // SAFETY: zeros are a time, and the clock exists.
    unsafe {
        let mut time: libc::timespec = mem::zeroed();
        assert_eq!(libc::clock_gettime(libc::CLOCK_REALTIME, &raw mut time), 0);
        time.tv_sec += libc::time_t::from(millis / 1000);
        time
    }
}

#[test]
fn getwait_returns_the_wait_object_of_a_queue() {
    for wait_obj in OBJECTS {
        let node = Node::open_with_cq_attr(&mut make_cq_attr(wait_obj, FI_CQ_COND_NONE));
        let mut found = 99_u32;
        assert_eq!((node.cq.control(FI_GETWAITOBJ, &raw mut found), found), (0, wait_obj));
        // Large enough for both wait objects.
        let mut room = [0_u64; 2];
        let is_had = wait_obj != FI_WAIT_YIELD;
        let answer = node.cq.control(FI_GETWAIT, room.as_mut_ptr());
        assert_eq!(answer, if is_had { 0 } else { ENODATA });
        assert_eq!(node.cq.control::<c_void>(FI_GETWAIT, ptr::null_mut()), -22);
    }
}

#[test]
fn unsupported_wait_attributes_are_refused() {
    let node = Node::open_disabled(API_VERSION, FI_CQ_FORMAT_TAGGED);
    let refused = |mut attr| node.domain.open_cq(&mut attr).err();
    assert_eq!(refused(make_cq_attr(FI_WAIT_POLLFD, FI_CQ_COND_NONE)), Some(-38));
    assert_eq!(refused(make_cq_attr(FI_WAIT_SET, FI_CQ_COND_NONE)), Some(-22), "there is no set");
    assert_eq!(refused(make_cq_attr(FI_WAIT_FD, 2)), Some(-22));
    assert_eq!(refused(make_cq_attr(FI_WAIT_NONE, 2)), None, "it is ignored without a wait object");
    let hinted =
        FiCqAttr { flags: FI_AFFINITY, signaling_vector: 1, ..make_cq_attr(FI_WAIT_FD, FI_CQ_COND_NONE) };
    assert_eq!(refused(hinted), None);
}

#[test]
fn trywait_checks_every_object() {
    let node = Node::open_with_cq_attr(&mut make_cq_attr(FI_WAIT_FD, FI_CQ_COND_NONE));
    let polled = Node::open();
    assert_eq!(trywait(&node, &mut []), 0);
    wait_until(|| trywait(&node, &mut [node.cq.fid(), node.cq.fid()]) == 0);
    for wrong in [ptr::null_mut(), node.av.fid(), node.ep.fid(), polled.cq.fid()] {
        assert_eq!(trywait(&node, &mut [node.cq.fid(), wrong]), -22);
    }
    assert_eq!(trywait(&node, &mut [node.cq.fid(), node.eq.fid()]), 0, "its wait object is unspecified");
    post_empty_recv(&node, 1);
    cancel(&node, 1);
    assert_eq!(trywait(&node, &mut [node.cq.fid()]), -11, "there is an error to be read");
    let fabric = node.fabric.as_ptr();
    // SAFETY: the fabric is open, and wrong arguments are refused before they are used.
    unsafe {
        let trywait = (*(*fabric).ops).trywait;
        assert_eq!(trywait(fabric, ptr::null_mut(), 1), -22);
        assert_eq!(trywait(fabric, ptr::null_mut(), -1), -22);
        assert_eq!(trywait(fabric, ptr::null_mut(), 0), 0);
    }
}
