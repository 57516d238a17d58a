//! Lets a thread that polls in vain give its core away, if another thread needs that core.
//!
//! With more threads than cores, a thread that polls until its time slice ends keeps the peer from running
//! that is to answer. A thread with a core of its own must not yield: each time costs as much as some
//! messages. So a thread yields only if it has polled in vain for some microseconds, and one of these has
//! last waited on the same core:
//!
//! - a peer: see `Transport::publish_core_and_find_peer`;
//! - another thread of this process. It waits for a peer, too, and that peer may be next on this core.
//!
//! Beside a program that computes ([`Company`]), a yield takes that program's time slice, and polling uses up
//! the time that this thread may run. So there it sleeps on the descriptors of the endpoints, after
//! [`SLEEP_AFTER_NS`] or in place of a yield: the kernel soon runs a woken thread in place of one that
//! computes. The application may wait for something else, too, so a sleep takes about as long as the thread
//! has waited, at most [`SLEEP_MAX_NS`], and a thread does not sleep if it polls several queues or counters
//! about as often, or does other things between its polls.

mod company;

use std::cell::Cell;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use homespun_engine::thread::forced_switches;
use rustix::thread::sched_getcpu;

use crate::driven::Driven;
use crate::empty_polls::company::{Company, SLICE_NS};

/// For how long a thread polls in vain before it looks for a peer on its core, and between two looks. Most
/// peers on other cores answer sooner.
const LOOK_AFTER_NS: u64 = 4_000;

/// The number of empty polls between two readings of the clock.
const POLLS_PER_CLOCK_READ: u32 = 32;

/// An application that takes longer for [`POLLS_PER_CLOCK_READ`] polls does other things meanwhile.
const TIGHT_POLLS_MAX_NS: u64 = 100_000;

/// For how long a thread polls in vain before it sleeps beside a program that computes. A peer that runs
/// answers sooner, even to a message of some 100 KiB.
const SLEEP_AFTER_NS: u64 = 100_000;

/// How long a thread sleeps between polls, at most. A yield costs up to 4 ms there.
const SLEEP_MAX_NS: u64 = 1_000_000;

/// The number of cores in [`LAST_THREADS`]. On a core beyond them, a thread finds no other thread.
const CORES: usize = 1024;

/// For each core, the thread of this process that waited there last, named by the address of its [`POLLS`];
/// 0 for none. A thread writes here only if another thread of its core has written before.
static LAST_THREADS: [AtomicUsize; CORES] = [const { AtomicUsize::new(0) }; CORES];

thread_local! {
    static POLLS: ThreadPolls = const { ThreadPolls::new() };
}

/// The polls in a row that found nothing in a queue or a counter. Kept there, since it takes time to find
/// what belongs to the thread. Threads that share a queue lose counts; the number need not be exact.
#[derive(Default)]
pub(crate) struct EmptyPolls(AtomicU32);

impl EmptyPolls {
    /// See [`Driven::end_wait`].
    #[inline(always)]
    pub(crate) fn end_wait(&self) {
        self.0.store(0, Ordering::Relaxed);
        POLLS.with(|polls| polls.clock_reads.set(0));
    }

    /// See [`Driven::count_empty_poll`].
    #[inline(always)]
    pub(crate) fn count(&self, endpoints: &Driven, is_ready: &dyn Fn() -> bool) {
        let empty = self.0.load(Ordering::Relaxed).wrapping_add(1);
        self.0.store(empty, Ordering::Relaxed);
        if empty.is_multiple_of(POLLS_PER_CLOCK_READ) {
            POLLS.with(|polls| polls.look_or_begin_wait(endpoints, is_ready));
        }
    }
}

/// The waits of a thread.
struct ThreadPolls {
    /// How often the clock was read since the thread last found something in any queue or counter.
    clock_reads: Cell<u32>,
    /// When the wait has begun.
    since_ns: Cell<u64>,
    /// When the thread last looked for a peer on its core, or has begun to wait.
    looked_at_ns: Cell<u64>,
    /// When the clock was last read.
    read_at_ns: Cell<u64>,
    /// Before this time the thread does not try to sleep.
    awake_until_ns: Cell<u64>,
    /// The address of the endpoints that were driven when the clock was last read. It only tells them from
    /// others.
    polled: Cell<usize>,
    company: Company,
}

impl ThreadPolls {
    const fn new() -> ThreadPolls {
        ThreadPolls {
            clock_reads: Cell::new(0),
            since_ns: Cell::new(0),
            looked_at_ns: Cell::new(0),
            read_at_ns: Cell::new(0),
            awake_until_ns: Cell::new(0),
            polled: Cell::new(0),
            company: Company::new(),
        }
    }

    #[cold]
    #[inline(never)]
    fn look_or_begin_wait(&self, endpoints: &Driven, is_ready: &dyn Fn() -> bool) {
        let polled = (&raw const *endpoints).addr();
        let has_polled_others = self.polled.replace(polled) != polled;
        let clock_reads = self.clock_reads.get().wrapping_add(1);
        self.clock_reads.set(clock_reads);
        if clock_reads == 1 {
            let now_ns = read_clock_ns();
            for begin in [&self.since_ns, &self.looked_at_ns, &self.read_at_ns] {
                begin.set(now_ns);
            }
            return;
        }
        let (now_ns, polled_ns) = self.read_clock_and_note_pause();
        if now_ns.saturating_sub(self.looked_at_ns.get()) < LOOK_AFTER_NS {
            return;
        }
        let is_shared = self.note_core_and_check_shared(sched_getcpu(), endpoints);
        let waits_only_here = polled_ns <= TIGHT_POLLS_MAX_NS && !has_polled_others;
        let has_slept = waits_only_here
            && self.company.is_present(now_ns)
            && self.sleep_if_due(now_ns, is_shared, endpoints, is_ready);
        if !has_slept && is_shared {
            thread::yield_now();
            self.read_clock_and_note_pause();
        }
        self.looked_at_ns.set(self.read_at_ns.get());
    }

    /// Sleeps beside a program that computes, if the thread has waited for long enough or another thread
    /// needs the core. Returns whether the thread has slept, or has found out that a poll would find
    /// something.
    fn sleep_if_due(
        &self,
        now_ns: u64,
        is_shared: bool,
        endpoints: &Driven,
        is_ready: &dyn Fn() -> bool,
    ) -> bool {
        let waited_ns = now_ns.saturating_sub(self.since_ns.get());
        if now_ns < self.awake_until_ns.get() || !is_shared && waited_ns < SLEEP_AFTER_NS {
            return false;
        }
        let has_slept = endpoints.try_sleep(is_ready, Duration::from_nanos(waited_ns.min(SLEEP_MAX_NS)));
        let after_ns = read_clock_ns();
        self.read_at_ns.set(after_ns);
        if !has_slept {
            self.awake_until_ns.set(after_ns + SLEEP_AFTER_NS);
        }
        has_slept
    }

    /// Returns the time, and how long ago the clock was read before. A long time may be a pause in which the
    /// thread did not run.
    fn read_clock_and_note_pause(&self) -> (u64, u64) {
        let now_ns = read_clock_ns();
        let elapsed_ns = now_ns.saturating_sub(self.read_at_ns.replace(now_ns));
        if elapsed_ns >= SLICE_NS {
            self.company.note_pause(now_ns, forced_switches());
        }
        (now_ns, elapsed_ns)
    }

    /// Records that this thread waits on this core. Returns whether a peer, or another thread of this
    /// process, has last waited there, too.
    fn note_core_and_check_shared(&self, core: usize, endpoints: &Driven) -> bool {
        let has_peer = u32::try_from(core).is_ok_and(|core| endpoints.publish_core_and_check_shared(core));
        let last_thread = LAST_THREADS.get(core);
        has_peer | last_thread.is_some_and(|last_thread| self.note_and_find_other_thread(last_thread))
    }

    /// Returns whether another thread has waited on a core since this thread last did.
    fn note_and_find_other_thread(&self, last_thread: &AtomicUsize) -> bool {
        let this_thread = (&raw const *self).addr();
        let last = last_thread.load(Ordering::Relaxed);
        if last == this_thread {
            return false;
        }
        last_thread.store(this_thread, Ordering::Relaxed);
        last != 0
    }
}

fn read_clock_ns() -> u64 {
    static FIRST: LazyLock<Instant> = LazyLock::new(Instant::now);
    u64::try_from(FIRST.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::fd::BorrowedFd;
    use std::sync::Arc;
    use std::sync::atomic::AtomicU32;
    use std::time::Duration;

    use homespun_engine::transport::Armed;
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    use super::*;
    use crate::cq::Reader;
    use crate::drive::{Drive, WatchResult};
    use crate::wait::EpollSet;
    use crate::{
        AvAttr, BindFlags, Bytes, BytesMut, Caps, CqAttr, Fabric, FabricAddress, Hints, OpenEndpoint,
        WaitObject,
    };

    /// Longer than any sleep between polls, and than any message takes.
    const PATIENCE: Duration = Duration::from_secs(60);

    /// Counts the looks for a peer.
    #[derive(Default)]
    struct Looks(AtomicU32);

    impl Drive for Looks {
        fn progress(&self, _: &mut Reader<'_>) {}
        fn progress_without_reader(&self) {}
        fn arm(&self) -> Armed {
            Armed::Ready
        }
        fn arm_for_short_sleep(&self, _: &EpollSet) -> Armed {
            Armed::Ready
        }
        fn fire_due_works(&self) {}
        fn with_wake_fd(&self, _: &mut dyn FnMut(BorrowedFd<'_>)) {}
        fn publish_core_and_check_shared(&self, _: u32) -> bool {
            self.0.fetch_add(1, Ordering::Relaxed);
            false
        }
        fn progress_for_progress_thread(&self) -> WatchResult {
            WatchResult::Polled
        }
        fn wait_for_running_pass(&self) {}
    }

    fn poll_in_vain(endpoints: &Driven, polls: u32) {
        (0..polls).for_each(|_| endpoints.count_empty_poll(&|| false));
    }

    #[test]
    fn thread_looks_for_peers_only_after_a_long_wait() {
        let looks = Arc::new(Looks::default());
        let endpoints = Driven::default();
        endpoints.add(looks.clone());
        let count = || looks.0.load(Ordering::Relaxed);
        endpoints.end_wait();
        for _ in 0..10 {
            poll_in_vain(&endpoints, 2 * POLLS_PER_CLOCK_READ - 1);
            thread::sleep(Duration::from_nanos(2 * LOOK_AFTER_NS));
            endpoints.end_wait();
        }
        assert_eq!(count(), 0, "the clock was read only once in each wait");
        for look in 1..=3 {
            poll_in_vain(&endpoints, POLLS_PER_CLOCK_READ);
            thread::sleep(Duration::from_nanos(2 * LOOK_AFTER_NS));
            poll_in_vain(&endpoints, POLLS_PER_CLOCK_READ);
            assert_eq!(count(), look);
            endpoints.end_wait();
        }
    }

    /// How often this thread has gone to sleep.
    fn sleeps() -> u64 {
        let status = fs::read_to_string("/proc/thread-self/status").expect("the kernel's count");
        let count = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        count.expect("a line").trim().parse().expect("a number")
    }

    fn pretend_company() {
        POLLS.with(|polls| {
            let now_ns = read_clock_ns();
            polls.company.note_pause(now_ns, 1);
            polls.company.note_pause(now_ns + SLICE_NS, 2);
        });
    }

    #[test]
    fn polling_reader_sleeps_beside_company_until_its_message() {
        for domain in ["shm", "tcp", "auto"] {
            let open = || {
                let hints = Hints::new().caps(Caps::MSG).domain(domain);
                Fabric::new().open_endpoint(&hints).expect("an endpoint")
            };
            let (OpenEndpoint { endpoint, cq, .. }, sender) = (open(), open());
            let to = sender.av.insert_one(endpoint.name().expect("an address")).expect("room");
            for context in 1..=3 {
                endpoint.recv(BytesMut::zeroed(8), FabricAddress::UNSPECIFIED, context).expect("room");
                let (before, deadline) = (sleeps(), Instant::now() + PATIENCE);
                while sleeps() == before {
                    pretend_company();
                    // The count takes time: it is read only now and then, so that polls are close together.
                    for _ in 0..10_000 {
                        assert!(cq.read_entry().expect("no error").is_none(), "nothing was sent");
                    }
                    assert!(Instant::now() < deadline, "the reader does not sleep over {domain}");
                }
                sender.endpoint.send(Bytes::from_static(b"morning!"), to, context).expect("room");
                while cq.read_entry().expect("no error").is_none() {
                    pretend_company();
                    sender.cq.progress();
                    assert!(Instant::now() < deadline, "no message over {domain}");
                }
            }
        }
    }

    #[test]
    fn thread_does_not_sleep_while_an_endpoint_or_the_queue_is_ready() {
        let endpoints = Driven::default();
        assert!(endpoints.try_sleep(|| true, PATIENCE), "there is something to read");
        endpoints.add(Arc::new(Looks::default()));
        assert!(!endpoints.try_sleep(|| false, PATIENCE), "the endpoint would not wake the thread");
    }

    #[test]
    fn thread_leaves_an_endpoint_that_is_armed_for_another_thread() {
        for domain in ["shm", "tcp", "auto"] {
            let fabric = Fabric::new();
            let hints = Hints::new().caps(Caps::MSG).domain(domain);
            let info = fabric.info(&hints.clone().node("127.0.0.1").source()).expect("an info");
            let opened = fabric.domain(&info).expect("a domain");
            let waits = CqAttr { wait: WaitObject::Fd, ..CqAttr::default() };
            let blocking = opened.open_cq(&waits).expect("a queue");
            let polled = opened.open_cq(&CqAttr::default()).expect("a queue");
            let endpoint = opened.endpoint(&info).expect("an endpoint");
            endpoint.bind_cq(&blocking, BindFlags::RECV).expect("not bound before");
            endpoint.bind_cq(&polled, BindFlags::TRANSMIT).expect("not bound before");
            endpoint
                .bind_av(&opened.open_av(&AvAttr::default()).expect("a vector"))
                .expect("not bound before");
            endpoint.enable().expect("all is bound");
            endpoint.recv(BytesMut::zeroed(8), FabricAddress::UNSPECIFIED, 1).expect("room");
            let sender = fabric.open_endpoint(&hints).expect("an endpoint");
            let to = sender.av.insert_one(endpoint.name().expect("an address")).expect("room");
            let deadline = Instant::now() + PATIENCE;
            // Links come up meanwhile.
            let send =
                |context| sender.endpoint.send(Bytes::from_static(b"morning!"), to, context).expect("room");
            send(1);
            while blocking.read_entry().expect("no error").is_none() {
                sender.cq.progress();
                assert!(Instant::now() < deadline, "no message over {domain}");
            }
            while !blocking.try_wait().expect("it has a wait object") {
                assert!(Instant::now() < deadline, "the endpoint does not come to rest over {domain}");
            }
            send(2);
            sender.cq.progress();
            assert!(!polled.shared().driven().try_sleep(|| false, PATIENCE));
            let waiter = blocking.wait_fd().expect("it has a descriptor");
            let limit = Timespec { tv_sec: 60, tv_nsec: 0 };
            let readable = poll(&mut [PollFd::new(&waiter, PollFlags::IN)], Some(&limit));
            assert_eq!(readable, Ok(1), "the message wakes no thread over {domain}");
        }
    }

    #[test]
    fn core_is_shared_while_another_thread_waits_there() {
        let new_thread = ThreadPolls::new;
        let (one, other) = (new_thread(), new_thread());
        let core = AtomicUsize::new(0);
        assert!(!one.note_and_find_other_thread(&core), "no other thread was here");
        assert!(!one.note_and_find_other_thread(&core));
        assert!(other.note_and_find_other_thread(&core));
        assert!(one.note_and_find_other_thread(&core), "both wait in turn");
        assert!(!one.note_and_find_other_thread(&core), "the other has left");
    }
}
