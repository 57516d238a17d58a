//! Blocking calls, and the wait objects of queues, counters and sets; poll sets.

use homespun::wait::MutexCond;
use homespun_suite::posix;

use crate::prelude::*;

/// The wait objects of the calls that block.
const OBJECTS: [u32; 4] = [FI_WAIT_UNSPEC, FI_WAIT_FD, FI_WAIT_MUTEX_COND, FI_WAIT_YIELD];

/// An object of each class that has a wait object, all with the same one. A counter is in the set.
struct Waitables {
    cntr: Object<FidCntr>,
    eq: Object<FidEq>,
    member: Object<FidCntr>,
    set: Object<FidWait>,
    node: Node,
}

/// The classes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    Cq,
    Cntr,
    Eq,
    Set,
}

const CLASSES: [Class; 4] = [Class::Cq, Class::Cntr, Class::Eq, Class::Set];

fn open_set(node: &Node, wait_obj: u32) -> Object<FidWait> {
    let mut attr = FiWaitAttr { wait_obj, flags: 0 };
    Object::open(|set| call!(node.fabric, ops.wait_open, &raw mut attr, set)).expect("a wait set")
}

fn open_member(node: &Node, set: &Object<FidWait>) -> Object<FidCntr> {
    let attr = FiCntrAttr { wait_set: set.as_ptr(), ..counter_attr(FI_WAIT_SET) };
    node.domain.open_counter(attr).expect("a counter")
}

impl Waitables {
    fn open(wait_obj: u32) -> Waitables {
        let node = Node::open_with(|setup| setup.cq.wait_obj = wait_obj);
        let cntr = node.domain.open_counter(counter_attr(wait_obj)).expect("a counter");
        let eq = node.fabric.open_eq(FiEqAttr { wait_obj, ..eq_attr(WRITE) }).expect("an event queue");
        // There is no set without a wait object.
        let set = open_set(&node, if wait_obj == FI_WAIT_NONE { FI_WAIT_YIELD } else { wait_obj });
        Waitables { cntr, eq, member: open_member(&node, &set), set, node }
    }

    fn fid(&self, class: Class) -> *mut Fid {
        match class {
            Class::Cq => self.node.cq.fid(),
            Class::Cntr => self.cntr.fid(),
            Class::Eq => self.eq.fid(),
            Class::Set => self.set.fid(),
        }
    }

    /// `fi_control`, with an argument that fits the command.
    fn control<A>(&self, class: Class, command: c_int, arg: *mut A) -> c_int {
        let fid = self.fid(class);
        // SAFETY: the object is open.
        unsafe { ((*(*fid).ops).control)(fid, command, arg.cast()) }
    }

    fn trywait(&self, class: Class) -> c_int {
        self.node.fabric.trywait(&mut [self.fid(class)])
    }

    /// Makes an event that ends waits.
    fn report(&self, class: Class) {
        match class {
            Class::Cq => self.node.write_error(1),
            Class::Cntr => self.cntr.add(1),
            Class::Eq => assert_eq!(call!(self.eq, ops.write, 7, ptr::null(), 0, 0), 0),
            Class::Set => self.member.add(1),
        }
    }

    /// The call that blocks until [`report`](Self::report), and what it answers then.
    fn wait(&self, class: Class, timeout_ms: c_int) -> c_int {
        let (mut room, mut event) = ([0_u64; 6], 0);
        let room = room.as_mut_ptr().cast::<c_void>();
        match class {
            // The queue has no condition, so the argument is ignored.
            Class::Cq => call!(self.node.cq, ops.sread, room, 1, numbered_context(99), timeout_ms) as c_int,
            Class::Cntr => call!(self.cntr, ops.wait, 1, timeout_ms),
            Class::Eq => call!(self.eq, ops.sread, &raw mut event, room, 48, timeout_ms, 0) as c_int,
            Class::Set => call!(self.set, ops.wait, timeout_ms),
        }
    }

    /// Takes the event away, so that the next wait blocks.
    fn forget(&self, class: Class) {
        match class {
            Class::Cq => assert!(self.node.cq.read_error().is_ok()),
            Class::Cntr => assert_eq!(call!(self.cntr, ops.set, 0), 0),
            Class::Eq | Class::Set => {}
        }
    }
}

impl Class {
    /// The answer of a wait that ends by an event, and at its time-out.
    fn answers(self) -> (c_int, c_int) {
        match self {
            Class::Cq => (EAVAIL, EAGAIN),
            Class::Eq => (0, EAGAIN),
            Class::Cntr | Class::Set => (0, ETIMEDOUT),
        }
    }
}

/// Shows fi_cq/timeout-in-milliseconds, fi_cq/cond-none, fi_cq/sread-blocks, fi_cq/sread-ends-on-signal,
/// fi_cq/open-signal-return, fi_cq/sread-return, fi_cq-1.4/read-counts, fi_cntr/wait-etimedout,
/// fi_cq/wait-unspec-blocks, fi_eq/eq-sread-ends-on-signal.
#[test]
fn blocking_calls_end_for_events_at_the_timeout_and_by_signals() {
    for wait_obj in OBJECTS {
        let all = &Waitables::open(wait_obj);
        for class in CLASSES {
            let (event, nothing) = class.answers();
            for timeout_ms in [0, 1, 20] {
                let begin = Instant::now();
                assert_eq!(all.wait(class, timeout_ms), nothing, "{class:?}");
                let waited = begin.elapsed();
                let least = Duration::from_millis(timeout_ms.unsigned_abs().into());
                // A wait of twenty seconds would show a timeout in the wrong unit.
                assert!((least..Duration::from_secs(20)).contains(&waited), "{class:?}: {waited:?}");
            }
            thread::scope(|scope| {
                let waits = scope.spawn(move || all.wait(class, PATIENCE_MS));
                thread::sleep(Duration::from_millis(5));
                assert!(!waits.is_finished(), "{class:?}: nothing has happened");
                all.report(class);
                assert_eq!(join("an event", waits), event, "{class:?} with {wait_obj}");
            });
            all.forget(class);
            // A set may tell once more of a report that has ended a wait in another thread.
            wait_until("a wait that nothing ends", || all.wait(class, 1) == nothing);
            // With FI_WAIT_YIELD no thread sleeps.
            for restarts in [false, true].into_iter().filter(|_| wait_obj != FI_WAIT_YIELD) {
                let wait = || all.wait(class, 2 * PATIENCE_MS);
                assert_eq!(posix::interrupt_wait(restarts, wait), EAGAIN, "{class:?} with {wait_obj}");
            }
        }
        assert_eq!(call!(all.node.cq, ops.signal), 0);
        assert_eq!(all.wait(Class::Cq, PATIENCE_MS), EAGAIN, "the signal came before");
        assert_eq!(call!(all.node.cq, ops.sread, NULL, 0, ptr::null(), 0), EAGAIN as isize);
    }
}

/// Shows fi_cq/wait-object-is-retrievable, fi_cq/wait-default-is-none,
/// fi_cq/wait-unspec-may-not-be-retrievable, fi_cq/wait-yield, fi_cq/getwait, fi_cntr/counter-wait-objects,
/// fi_poll/poll-getwait.
#[test]
fn getwait_returns_the_wait_object() {
    for wait_obj in OBJECTS.into_iter().chain([FI_WAIT_NONE]) {
        let all = Waitables::open(wait_obj);
        for class in CLASSES.into_iter().filter(|class| (wait_obj, *class) != (FI_WAIT_NONE, Class::Set)) {
            let mut said = 99_u32;
            assert_eq!((all.control(class, FI_GETWAITOBJ, &raw mut said), said), (0, wait_obj), "{class:?}");
            // Large enough for every wait object.
            let (mut room, is_had) = ([0_u64; 2], ![FI_WAIT_NONE, FI_WAIT_YIELD].contains(&wait_obj));
            let answer = all.control(class, FI_GETWAIT, room.as_mut_ptr());
            // A descriptor, or a mutex and a condition variable.
            let is_written = [is_had, wait_obj == FI_WAIT_MUTEX_COND];
            let expected = (if is_had { 0 } else { ENODATA }, is_written);
            assert_eq!((answer, room.map(|word| word != 0)), expected, "{class:?} with {wait_obj}");
            for command in [FI_GETWAIT, FI_GETWAITOBJ] {
                assert_eq!(all.control(class, command, NULL), EINVAL);
            }
        }
    }
}

/// Shows fi_cq/wait-none-refuses-sread, fi_cq/sread-needs-wait-object, fi_cq/signal-needs-wait-object,
/// fi_cq/open-signal-return, fi_eq/eq-wait-objects.
#[test]
fn queue_without_a_wait_object_refuses_waits() {
    let all = Waitables::open(FI_WAIT_NONE);
    assert_eq!([Class::Cq, Class::Eq].map(|class| all.wait(class, PATIENCE_MS)), [EINVAL; 2]);
    assert_eq!(all.wait(Class::Cq, 0), EAGAIN, "it need not wait");
    assert_eq!(call!(all.node.cq, ops.signal), 0);
    assert_eq!([Class::Cq, Class::Cntr, Class::Eq].map(|class| all.trywait(class)), [EINVAL; 3]);
}

fn poll_until_readable(fd: c_int, millis: c_int) -> bool {
    let mut asked = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    // SAFETY: there is one `pollfd`.
    unsafe { libc::poll(&raw mut asked, 1, millis) == 1 && asked.revents == libc::POLLIN }
}

/// Shows fi_cq/wait-object-is-signaled, fi_cq/wait-object-is-retrievable, fi_cq/wait-fd,
/// fi_cq/wait-fd-readiness, fi_cq/getwait, fi_cq/read-does-not-block, fi_eq/eq-descriptor,
/// fi_cntr/counter-descriptor,
/// fi_poll/trywait-before-native-wait.
#[test]
fn descriptor_wakes_a_polling_thread() {
    for wait_obj in [FI_WAIT_UNSPEC, FI_WAIT_FD] {
        let all = Waitables::open(wait_obj);
        for class in CLASSES {
            let mut fd: c_int = -1;
            assert_eq!(all.control(class, FI_GETWAIT, &raw mut fd), 0);
            for _ in 0..2 {
                wait_until("leave to sleep", || all.trywait(class) == 0);
                assert!(!poll_until_readable(fd, 0), "{class:?}: nothing has happened");
                all.report(class);
                assert!(poll_until_readable(fd, PATIENCE_MS), "{class:?}: it was not woken");
                assert_eq!(all.trywait(class), EAGAIN, "{class:?}: there is an event");
                all.wait(class, 0);
                all.forget(class);
            }
        }
    }
}

/// Shows fi_cq/wait-object-is-signaled, fi_cq/wait-object-is-retrievable, fi_cq/wait-mutex-cond,
/// fi_cq/getwait.
#[test]
fn mutex_and_condition_wake_a_waiting_thread() {
    let all = &Waitables::open(FI_WAIT_MUTEX_COND);
    let patience = Duration::from_millis(PATIENCE_MS.unsigned_abs().into());
    for class in CLASSES {
        let mut of = FiMutexCond { mutex: ptr::null_mut(), cond: ptr::null_mut() };
        assert_eq!(all.control(class, FI_GETWAIT, &raw mut of), 0);
        let pair = MutexCond { mutex: of.mutex, cond: of.cond };
        thread::scope(|scope| {
            // The mutex is held from `fi_trywait` until the wait, so the report is not missed.
            let needs_wait = || {
                wait_until("leave to sleep", || all.trywait(class) == 0);
                scope.spawn(move || all.report(class));
                true
            };
            assert!(posix::wait_on_condition_variable(pair, patience, needs_wait), "{class:?} was not woken");
        });
        assert_eq!(all.wait(class, 0), class.answers().0, "{class:?}");
    }
}

/// Shows fi_poll/trywait-before-native-wait, fi_poll/trywait-eagain-for-events.
#[test]
fn trywait_checks_every_object() {
    let (all, polled) = (Waitables::open(FI_WAIT_FD), Node::open());
    let Node { cq, av, ep, eq, domain, fabric } = &all.node;
    assert_eq!(fabric.trywait(&mut []), 0);
    wait_until("leave to sleep", || fabric.trywait(&mut [cq.fid(), cq.fid(), all.cntr.fid()]) == 0);
    for wrong in [ptr::null_mut(), av.fid(), ep.fid(), domain.fid(), polled.cq.fid()] {
        assert_eq!(fabric.trywait(&mut [cq.fid(), wrong]), EINVAL);
    }
    assert_eq!(fabric.trywait(&mut [cq.fid(), eq.fid()]), 0, "its wait object is unspecified");
    all.cntr.add(1);
    assert_eq!(fabric.trywait(&mut [cq.fid(), all.cntr.fid()]), EAGAIN, "the counter has changed");
    assert_eq!(fabric.trywait(&mut [cq.fid(), all.cntr.fid()]), 0, "it was told of");
    for (count, answer) in [(1, EINVAL), (-1, EINVAL), (0, 0)] {
        assert_eq!(call!(fabric, ops.trywait, ptr::null_mut(), count), answer);
    }
}

/// Shows fi_cq/wait-set, fi_cq/wait-set-is-signaled, fi_cq/sread-needs-wait-object,
/// fi_cntr/counter-in-wait-set, fi_poll/trywait-of-wait-set.
#[test]
fn wait_set_has_the_waits_of_its_members() {
    for wait_obj in OBJECTS {
        let node = Node::open_disabled();
        let set = open_set(&node, wait_obj);
        // Only blocking reads take a threshold. A queue in a wait set has no blocking reads.
        let (wait_set, wait_cond) = (set.as_ptr(), FI_CQ_COND_THRESHOLD);
        let attr = FiCqAttr { wait_obj: FI_WAIT_SET, wait_set, wait_cond, ..cq_attr(FI_CQ_FORMAT_TAGGED) };
        let cq = node.domain.open_cq(attr).expect("a completion queue");
        let attr = FiEqAttr { wait_obj: FI_WAIT_SET, wait_set, ..eq_attr(WRITE) };
        let eq = node.fabric.open_eq(attr).expect("an event queue");
        let (cntr, wait) = (open_member(&node, &set), |timeout_ms| call!(set, ops.wait, timeout_ms));
        let (mut said, mut event, mut room) = (0_u32, 0, [0_u64; 2]);
        assert_eq!((cq.control(FI_GETWAITOBJ, &raw mut said), said), (0, FI_WAIT_SET));
        assert_eq!(cq.control(FI_GETWAIT, room.as_mut_ptr()), ENODATA);
        assert_eq!(call!(cq, ops.sread, NULL, 0, ptr::null(), PATIENCE_MS), EINVAL as isize);
        assert_eq!(call!(eq, ops.sread, &raw mut event, NULL, 0, 0, 0), EINVAL as isize);
        assert_eq!((wait(0), call!(eq, ops.write, 7, ptr::null(), 0, 0)), (ETIMEDOUT, 0));
        assert_eq!((wait(PATIENCE_MS), call!(eq, ops.read, &raw mut event, NULL, 0, 0)), (0, 0));
        assert_eq!((event, wait(0)), (7, ETIMEDOUT));
        if wait_obj != FI_WAIT_YIELD {
            wait_until("leave to sleep", || node.fabric.trywait(&mut [cq.fid()]) == 0);
            cntr.add(1);
            assert_eq!(node.fabric.trywait(&mut [cq.fid()]), EAGAIN, "it speaks for all members");
        }
        let set = set.assert_busy();
        drop((cq, cntr, eq, set));
    }
}

/// Shows fi_poll/poll-drives-and-reports, fi_poll/poll-returns-nonempty-queues,
/// fi_poll/poll-returns-changed-counters, fi_poll/poll-count.
#[test]
fn poll_returns_the_members_with_events() {
    let node = Node::open();
    let waits = open_set(&node, FI_WAIT_YIELD);
    let cntr = node.domain.counter();
    let mut attr = FiPollAttr { flags: 0 };
    let set: Object<FidPoll> =
        Object::open(|set| call!(node.domain, ops.poll_open, &raw mut attr, set)).expect("a poll set");
    for fid in [node.cq.fid(), cntr.fid()] {
        let added = [1, 0, 0].map(|flags| call!(set, ops.poll_add, fid, flags));
        assert_eq!(added, [EBADFLAGS, 0, EINVAL], "at last it is there already");
    }
    let mut contexts = [NULL; 2];
    let mut poll = |room| (call!(set, ops.poll, contexts.as_mut_ptr(), room), contexts);
    let (of_cq, of_cntr) = (node.cq.context(), cntr.context());
    assert_eq!(poll(2).0, 0);
    node.write_error(1);
    assert_eq!(poll(2), (1, [of_cq, NULL]));
    cntr.add(1);
    let (found, mut both) = poll(2);
    both.sort_unstable();
    assert_eq!((found, both), (2, [of_cq, of_cntr]));
    cntr.add(1);
    assert_eq!(poll(1).0, 1, "there is room for one");
    assert!(node.cq.read_error().is_ok());
    assert_eq!(poll(-1).0, EINVAL);
    assert_eq!([0, 1].map(|room| call!(set, ops.poll, ptr::null_mut(), room)), [0, EINVAL]);
    for wrong in [ptr::null_mut(), node.av.fid(), node.ep.fid(), waits.fid()] {
        assert_eq!([call!(set, ops.poll_add, wrong, 0), call!(set, ops.poll_del, wrong, 0)], [EINVAL; 2]);
    }
    // Neither a member nor its set can be closed.
    let (set, cntr) = (set.assert_busy(), cntr.assert_busy());
    let removed = [cntr.fid(), cntr.fid(), node.cq.fid()].map(|fid| call!(set, ops.poll_del, fid, 0));
    assert_eq!(removed, [0, ENOENT, 0]);
    drop(set);
}

/// Shows fi_cntr/set-and-add, fi_cntr/counter-op-flags.
#[test]
fn counter_values_may_be_added_and_set() {
    let node = Node::open_disabled();
    let cntr = node.domain.counter();
    assert_eq!(cntr.values(), (0, 0));
    assert_eq!([call!(cntr, ops.add, 5), call!(cntr, ops.adderr, 2)], [0; 2]);
    assert_eq!(cntr.values(), (5, 2));
    assert_eq!([call!(cntr, ops.set, 1), call!(cntr, ops.seterr, 9), call!(cntr, ops.add, 1)], [0; 3]);
    assert_eq!(cntr.values(), (2, 9));
    // An error during the wait is the subject of `src/counter/tests.rs`; this one is of before.
    assert_eq!(call!(cntr, ops.wait, 2, PATIENCE_MS), 0);
    assert_eq!(cntr.control_flags(FI_GETOPSFLAG, u64::MAX), (0, 0));
    assert_eq!([0, 1].map(|flags| cntr.control_flags(FI_SETOPSFLAG, flags).0), [0, EBADFLAGS]);
    assert_eq!([FI_GETOPSFLAG, FI_SETOPSFLAG].map(|command| cntr.control(command, NULL)), [EINVAL; 2]);
    assert_eq!(cntr.control(1000, NULL), ENOSYS);
}
