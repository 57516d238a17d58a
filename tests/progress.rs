//! Tests automatic progress: the progress thread of a domain drives posted operations without calls of the
//! application. The thread lives while the application holds the domain or an endpoint of the domain. The
//! thread sleeps while it has no work.
//!
//! The tests count the threads of the whole process, so they run one at a time.

use std::fs;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use homespun::endpoint::SendMsg;
use homespun::flags::OpFlags;
use homespun::info::Progress;
use homespun::{
    AddressVector, Completion, CompletionQueue, CqAttr, Domain, Endpoint, Fabric, FabricAddress, Hints,
    OpenEndpoint, Tag, WaitObject,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use homespun_suite::Deadline;
use homespun_suite::payload::{marked_buffer, payload};

const ANY: FabricAddress = FabricAddress::UNSPECIFIED;

/// The fabric address of the other party.
const PEER: FabricAddress = FabricAddress(0);

const DOMAINS: [&str; 3] = ["auto", "shm", "tcp"];

fn lock_for_exclusive_run() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An endpoint in its own domain with automatic progress.
struct Party {
    endpoint: Endpoint,
    cq: CompletionQueue,
    av: AddressVector,
    domain: Domain,
}

impl Party {
    fn open(domain: &str) -> Party {
        let fabric = Fabric::new();
        let hints = Hints::new().domain(domain).node("127.0.0.1").source();
        let hints = hints.with(|info| info.domain.data_progress = Some(Progress::Auto));
        let info = fabric.info(&hints).expect("automatic progress");
        assert_eq!(info.domain.data_progress, Some(Progress::Auto));
        let attr = CqAttr { wait: WaitObject::Fd, ..CqAttr::default() };
        let builder = fabric.domain(&info).expect("a domain").endpoint_builder(&info).cq_attr(attr);
        let OpenEndpoint { endpoint, cq, av, domain } = builder.open().expect("an endpoint");
        assert_eq!(endpoint.info().domain.data_progress, Some(Progress::Auto));
        Party { endpoint, cq, av, domain }
    }

    fn open_pair(domain: &str) -> (Party, Party) {
        let (alice, bob) = (Party::open(domain), Party::open(domain));
        for (one, other) in [(&alice, &bob), (&bob, &alice)] {
            let name = other.endpoint.name().expect("an endpoint in service has a name");
            assert_eq!(one.av.insert_one(name).expect("a name can be inserted"), PEER);
        }
        (alice, bob)
    }

    fn post_send(&self, number: u64, len_bytes: usize, flags: OpFlags) {
        let (buffers, tag) = (vec![payload(number, len_bytes)], Some(Tag(number)));
        let send = SendMsg { buffers, to: PEER, tag, context: number, flags, ..SendMsg::default() };
        self.endpoint.sendmsg(send).expect("room for a send");
    }

    fn post_receive(&self, number: u64, len_bytes: usize) {
        self.endpoint.trecv(marked_buffer(len_bytes), ANY, Tag(number), number).expect("room for a receive");
    }

    /// Waits for the next completion.
    #[track_caller]
    fn next_completion(&self) -> Completion {
        match self.cq.sread(Some(PATIENCE)) {
            Ok(Some(completion)) => completion,
            Ok(None) => panic!("nothing has arrived"),
            Err(error) => panic!("{error}: {:?}", self.cq.read_error()),
        }
    }

    /// Polls the descriptor until the queue has an entry, without calling the library. The caller has called
    /// `try_wait`, which returned `true`.
    #[track_caller]
    fn wait_until_descriptor_is_readable(&self) {
        let fd = self.cq.wait_fd().expect("the queue was opened with a descriptor");
        let timeout = Timespec::try_from(PATIENCE).expect("a short time");
        let ready = poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&timeout));
        assert_eq!(ready.expect("a descriptor that can be polled"), 1, "nothing moves on");
    }
}

/// How long a test waits for an event. No test depends on how soon the event comes.
const PATIENCE: Duration = Duration::from_secs(60);

/// Returns the context switches of each progress thread of this process.
fn count_progress_thread_switches() -> Vec<u64> {
    let tasks = fs::read_dir("/proc/self/task").expect("Linux lists them");
    let status = tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("status")).ok());
    let ours = status.filter(|status| status.lines().next() == Some("Name:\thomespun"));
    ours.map(|status| {
        let counts = status.lines().filter(|line| line.contains("ctxt_switches:"));
        counts
            .map(|line| line.rsplit('\t').next().and_then(|count| count.parse::<u64>().ok()))
            .sum::<Option<u64>>()
    })
    .map(|count| count.expect("Linux counts them"))
    .collect()
}

/// Waits until the process has this many progress threads. The system lists a joined thread a moment longer.
#[track_caller]
fn wait_for_progress_thread_count(count: usize) {
    let deadline = Deadline::new();
    while count_progress_thread_switches().len() != count {
        deadline.yield_or_panic_with(|| {
            format!("{count} progress threads, of which there are {}", count_progress_thread_switches().len())
        });
    }
}

#[test]
fn progress_thread_takes_over_when_polling_stops() {
    let _turn = lock_for_exclusive_run();
    for domain in DOMAINS {
        let (alice, bob) = Party::open_pair(domain);
        bob.post_receive(1, 100_000);
        assert!(alice.cq.try_wait().expect("the queue has a descriptor"));
        for _ in 0..2000 {
            assert!(matches!(bob.cq.read(), Ok(None)));
        }
        alice.post_send(1, 100_000, OpFlags::MATCH_COMPLETE);
        alice.wait_until_descriptor_is_readable();
        assert_eq!(alice.next_completion().context, 1);
    }
}

#[test]
fn idle_progress_thread_sleeps() {
    let _turn = lock_for_exclusive_run();
    for domain in DOMAINS {
        let (alice, bob) = Party::open_pair(domain);
        bob.post_receive(1, 8);
        alice.post_send(1, 8, OpFlags::DELIVERY_COMPLETE);
        assert_eq!((alice.next_completion().context, bob.next_completion().context), (1, 1));
        // The last acknowledgements arrive soon. Then the threads are idle.
        let deadline = Deadline::new();
        let mut before = count_progress_thread_switches();
        loop {
            thread::sleep(Duration::from_millis(300));
            let after = count_progress_thread_switches();
            if before == after {
                break;
            }
            before = after;
            deadline.yield_or_panic("progress threads to fall asleep");
        }
        assert_eq!(before.len(), 2);
    }
}

#[test]
fn progress_thread_lives_as_long_as_its_domain() {
    let _turn = lock_for_exclusive_run();
    for domain in DOMAINS {
        wait_for_progress_thread_count(0);
        let (alice, bob) = Party::open_pair(domain);
        // A progress thread sets its own name, so it is counted only once it runs.
        wait_for_progress_thread_count(2);
        let second = alice.domain.endpoint(alice.endpoint.info());
        assert_eq!(count_progress_thread_switches().len(), 2, "one for each domain");
        let Party { endpoint, domain, cq, av } = alice;
        drop(endpoint);
        drop(second);
        assert_eq!(count_progress_thread_switches().len(), 2, "there may be another endpoint");
        drop(domain);
        wait_for_progress_thread_count(1);
        drop((cq, av));
        // Drop the handles in another order, and the last one inside a call.
        let Party { endpoint, domain, cq, av } = bob;
        let to_itself = av.insert_one(endpoint.name().expect("it has a name")).expect("a name");
        endpoint.recv(marked_buffer(8), ANY, 1).expect("room for a receive");
        endpoint.inject(b"hello", to_itself, None, None).expect("room for a send");
        drop(domain);
        let mut last = Some(endpoint);
        let deadline = Deadline::new();
        while last.is_some() {
            if cq.read_each(1, |_, _| drop(last.take())).unwrap().is_none() {
                deadline.yield_or_panic("a message to oneself");
            }
        }
        wait_for_progress_thread_count(0);
    }
}

#[test]
fn manual_progress_starts_no_thread() {
    let _turn = lock_for_exclusive_run();
    let hints = Hints::new().with(|info| info.domain.control_progress = Some(Progress::Auto));
    let opened = Fabric::new().open_endpoint(&hints).expect("an endpoint");
    assert_eq!(opened.endpoint.info().domain.data_progress, Some(Progress::Manual));
    wait_for_progress_thread_count(0);
}
