//! Checks that a small message allocates no memory, and that over shared memory it makes no system call.
//!
//! The file `src/unsynchronised.rs` tests domains without locks.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::env::consts::ARCH;
use std::fs::OpenOptions;
use std::hint;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::process::ExitStatusExt;
use std::process;
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};

use homespun::endpoint::{RecvMsg, SendMsg};
use homespun::info::Threading;
use homespun::{
    Address, AddressVector, CompletionQueue, Counter, CounterAttr, CounterEvents, CqAttr, Endpoint, Fabric,
    FabricAddress, Hints, OpenEndpoint, Segment, SegmentMut, Tag,
};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, apply_filter};
use serde::{Deserialize, Serialize};

use homespun_suite::AddressForm;
use homespun_suite::process::{Channel, Process};

const LEN_BYTES: usize = 8;

/// The number of messages for warming up. After them no table or buffer grows.
const WARM_UP_MESSAGES: u64 = 5000;

/// The number of messages in each direction that the tests measure.
const MESSAGES: u64 = 5000;

/// The system's allocator, with a count of the allocations of each thread.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn count_allocation() {
    // A thread that is ending may have dropped its counter.
    let _ = ALLOCATIONS.try_with(|allocations| allocations.set(allocations.get() + 1));
}

// SAFETY: the system's allocator serves every call, and counting does not allocate.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count_allocation();
        // SAFETY: the caller upholds the contract of the same call.
        unsafe { System.alloc(layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, new_len_bytes: usize) -> *mut u8 {
        count_allocation();
        // SAFETY: as above.
        unsafe { System.realloc(memory, layout, new_len_bytes) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(memory, layout) }
    }
}

/// An endpoint in a domain without locks, with one buffer for sends and one for receives.
struct Party {
    endpoint: Endpoint,
    cq: CompletionQueue,
    av: AddressVector,
    counter: Option<Counter>,
    message: [u8; LEN_BYTES],
    room: [u8; LEN_BYTES],
}

impl Party {
    /// Opens a party, and a counter of all events of the endpoint if one is asked for.
    fn open(domain: &str, has_counter: bool) -> Party {
        let fabric = Fabric::new();
        let hints = Hints::new().domain(domain).threading(Threading::Domain).node("127.0.0.1").source();
        let info = fabric.info(&hints).expect("a domain of this name");
        // SAFETY: a test or a process that it starts uses its parties from one thread only.
        let domain = unsafe { fabric.domain_unsynchronised(&info) }.expect("a domain");
        let counter = has_counter.then(|| domain.open_counter(&CounterAttr::default()).expect("a counter"));
        let mut builder = domain.endpoint_builder(&info).cq_attr(CqAttr::default());
        if let Some(counter) = &counter {
            builder = builder.counter(counter, CounterEvents::all());
        }
        let OpenEndpoint { endpoint, cq, av, .. } = builder.open().expect("an endpoint");
        Party { endpoint, cq, av, counter, message: [7; LEN_BYTES], room: [0; LEN_BYTES] }
    }

    fn name(&self) -> Address {
        self.endpoint.name().expect("an endpoint in service has a name")
    }

    /// Inserts the peer's address.
    fn insert_peer(&self, peer: Address) {
        assert_eq!(self.av.insert_one(peer), Ok(PEER));
    }

    /// Returns the tag of a message: every second one is tagged.
    fn tag_of_message(number: u64) -> Option<u64> {
        number.is_multiple_of(2).then_some(number)
    }

    fn post_receive(&mut self, number: u64) {
        let segments = [SegmentMut { address: self.room.as_mut_ptr(), len_bytes: LEN_BYTES }];
        let (from, tagged) =
            (FabricAddress::UNSPECIFIED, Party::tag_of_message(number).map(|tag| Tag(tag).into()));
        let (buffers, flags) = (&segments[..], self.endpoint.rx_op_flags());
        let receive = RecvMsg { buffers, from, tagged, context: number, flags };
        // SAFETY: only one receive at a time has the buffer, and nothing reads the buffer. A party does not
        // move while an operation uses it.
        unsafe { self.endpoint.post_receive(&receive).expect("room for a receive") };
    }

    /// Sends the message with this number. Of each four messages, injects the first two, and posts the
    /// others. Returns how many completions follow: 0 for an injected message, 1 for a posted one.
    fn send_or_inject(&self, number: u64) -> u64 {
        let tag = Party::tag_of_message(number);
        if number % 4 < 2 {
            self.endpoint.inject(&self.message, PEER, tag.map(Tag), Some(number)).expect("room for a send");
            return 0;
        }
        let segments = [Segment { address: self.message.as_ptr(), len_bytes: LEN_BYTES }];
        let (buffers, flags) = (&segments[..], self.endpoint.tx_op_flags());
        let send = SendMsg { buffers, to: PEER, tag: tag.map(Tag), data: None, context: SEND, flags };
        // SAFETY: the message never changes. A party does not move while an operation uses it.
        unsafe { self.endpoint.post_send(&send).expect("room for a send") };
        1
    }
}

/// The fabric address of the other party.
const PEER: FabricAddress = FabricAddress(0);

/// The context of sends.
const SEND: u64 = u64::MAX;

/// Exchanges messages in both directions.
fn exchange_messages(left: &mut Party, right: &mut Party, messages: u64) {
    for number in 0..2 * messages {
        let (from, to) = if number % 2 == 0 { (&mut *left, &mut *right) } else { (&mut *right, &mut *left) };
        to.post_receive(number / 2);
        for _ in 0..from.send_or_inject(number / 2) {
            assert_eq!(from.cq.read().unwrap().expect("small messages are sent at once").context, SEND);
        }
        loop {
            match to.cq.read() {
                Ok(Some(received)) => {
                    break assert_eq!((received.context, received.len_bytes), (number / 2, LEN_BYTES));
                }
                // While a TCP message travels, the sender makes progress.
                Ok(None) => from.cq.progress(),
                Err(error) => panic!("{error}"),
            }
        }
    }
}

fn check_small_messages_allocate_nothing(domain: &str, has_counters: bool) {
    let [mut left, mut right] = [(); 2].map(|()| Party::open(domain, has_counters));
    left.insert_peer(right.name());
    right.insert_peer(left.name());
    exchange_messages(&mut left, &mut right, WARM_UP_MESSAGES);
    let before = ALLOCATIONS.get();
    exchange_messages(&mut left, &mut right, MESSAGES);
    assert_eq!(ALLOCATIONS.get() - before, 0, "allocations of {} messages", 2 * MESSAGES);
    // Each side has sent and received equally many.
    let counted = [left, right].map(|party| party.counter.as_ref().map(Counter::read));
    assert_eq!(counted, [has_counters.then_some(2 * (WARM_UP_MESSAGES + MESSAGES)); 2]);
}

#[test]
fn small_messages_over_shared_memory_allocate_nothing() {
    for domain in DOMAINS {
        check_small_messages_allocate_nothing(domain, false);
        check_small_messages_allocate_nothing(domain, true);
    }
}

#[test]
fn small_messages_over_tcp_allocate_nothing() {
    check_small_messages_allocate_nothing("tcp", false);
}

#[test]
fn allocations_are_counted() {
    let before = ALLOCATIONS.get();
    drop(hint::black_box(Box::new(before)));
    assert_eq!(ALLOCATIONS.get() - before, 1);
}

/// The number of messages that a side sends in one turn.
const TURN_MESSAGES: u64 = 20;

/// Each side takes this many turns to warm up, and then as many turns without a system call. A turn makes
/// about one pass for each message. A busy transport polls the kernel once in many passes, so the measured
/// turns fit between two polls.
const TURNS: u64 = 40;

/// After this many passes without a message, a transport has just polled the kernel. While messages arrive,
/// the next poll is far away.
const IDLE_PASSES: u32 = 96;

/// The work of one of the two processes.
#[derive(Debug, Serialize, Deserialize)]
struct Task {
    peer: AddressForm,
    /// The file of the shared memory that counts the turns.
    turns: String,
    goes_first: bool,
    /// Whether this process makes a forbidden system call on purpose.
    calls: bool,
}

/// The domains whose endpoints share memory in these tests.
const DOMAINS: [&str; 2] = ["shm", "auto"];

/// The turn counter in shared memory.
#[derive(Clone, Copy)]
struct TurnCounter(&'static AtomicU32);

impl TurnCounter {
    fn map_file(path: &str) -> io::Result<TurnCounter> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        // SAFETY: a new mapping of a file of this size, which is never unmapped.
        let memory = unsafe {
            let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
            libc::mmap(ptr::null_mut(), size_of::<AtomicU32>(), protection, flags, file.as_raw_fd(), 0)
        };
        if memory == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the mapping is never unmapped, begins at the start of a page, and is used as this type by
        // every process that maps it.
        Ok(TurnCounter(unsafe { &*memory.cast::<AtomicU32>() }))
    }

    /// Spins until the counter has this value.
    fn spin_until(self, turn: u64) {
        while u64::from(self.0.load(Ordering::Acquire)) != turn {
            hint::spin_loop();
        }
    }

    fn advance(self) {
        self.0.fetch_add(1, Ordering::AcqRel);
    }
}

/// One of two sides that take turns. In its turn, a side reads the messages of the other side's last turn,
/// and then sends as many. So a side never polls for a message that has not arrived.
struct Player {
    party: Party,
    turns: TurnCounter,
    /// Its next turn.
    turn: u64,
}

impl Player {
    fn take_turn(&mut self) {
        self.take_turn_with(|_| {});
    }

    /// Calls `act` between reading and sending, when no message is in flight.
    fn take_turn_with(&mut self, act: impl FnOnce(&mut Party)) {
        let Player { party, turns, turn } = self;
        turns.spin_until(*turn);
        if *turn > 0 {
            for number in 0..TURN_MESSAGES {
                party.post_receive(number);
                let received = party.cq.read().unwrap().expect("it was sent before");
                assert_eq!((received.context, received.len_bytes), (number, LEN_BYTES));
            }
        }
        act(party);
        for number in 0..TURN_MESSAGES {
            for _ in 0..party.send_or_inject(number) {
                assert_eq!(party.cq.read().unwrap().expect("small messages are sent at once").context, SEND);
            }
        }
        *turn += 2;
        turns.advance();
    }
}

#[test]
#[ignore = "an entry: other tests run it, in processes of their own"]
fn player_process_entry() {
    let Some(mut channel) = Channel::from_parent() else { return };
    let Some(domain) = channel.receive_message::<String>().expect("a test that asks") else { return };
    let mut party = Party::open(&domain, false);
    channel.send_message(&AddressForm(party.name())).expect("a test that listens");
    let Some(task) = channel.receive_message::<Task>().expect("a test that asks") else { return };
    party.insert_peer(task.peer.0);
    let turns = TurnCounter::map_file(&task.turns).expect("memory that the test has made");
    // The first messages wait for the link to come up.
    if task.goes_first {
        party.endpoint.inject(&[7; LEN_BYTES], PEER, None, None).expect("room for a send");
    }
    party.post_receive(1);
    while party.cq.read().unwrap().is_none() {}
    if !task.goes_first {
        party.endpoint.inject(&[7; LEN_BYTES], PEER, None, None).expect("room for a send");
    }
    turns.advance();
    while turns.0.load(Ordering::Acquire) < 2 {
        party.cq.progress();
    }
    channel.send_message(&()).expect("a test that listens");
    let Some(()) = channel.receive_message().expect("a test that goes on") else { return };
    let mut player = Player { party, turns, turn: u64::from(!task.goes_first) };
    (0..TURNS).for_each(|_| player.take_turn());
    player.take_turn_with(|party| {
        (0..IDLE_PASSES).for_each(|_| party.cq.progress());
        // Idle passes that take microseconds, as those of a debug build do, ask now and then how often the
        // kernel has taken the processor away.
        kill_at_other_system_calls(&[libc::SYS_write, libc::SYS_exit_group, libc::SYS_getrusage]);
    });
    player.take_turn();
    if task.calls {
        hint::black_box(process::id());
    }
    (0..TURNS).for_each(|_| player.take_turn());
    // SAFETY: the call ends the process at once. Exit handlers, which might make system calls, do not run.
    unsafe { libc::_exit(0) };
}

/// Makes every other system call of this thread kill the process at once.
fn kill_at_other_system_calls(system_calls: &[i64]) {
    let rules: BTreeMap<i64, _> = system_calls.iter().map(|&number| (number, Vec::new())).collect();
    let architecture = ARCH.try_into().expect("an architecture that filters are made for");
    let filter = SeccompFilter::new(rules, SeccompAction::KillProcess, SeccompAction::Allow, architecture);
    let program = BpfProgram::try_from(filter.expect("a filter")).expect("a small filter");
    apply_filter(&program).expect("a thread may confine itself");
}

/// Runs two players, and returns the signals by which they died.
fn run_players_and_get_signals(domain: &str, calls: [bool; 2]) -> [Option<i32>; 2] {
    let memory = memfd_create("turns", MemfdFlags::CLOEXEC).expect("memory");
    ftruncate(&memory, size_of::<AtomicU32>() as u64).expect("a small size");
    let path = format!("/proc/{}/fd/{}", process::id(), memory.as_raw_fd());
    let turns = TurnCounter::map_file(&path).expect("memory");
    let mut players = [0, 1].map(|_| Process::spawn(concat!(module_path!(), "::player_process_entry")));
    players.iter_mut().for_each(|player| player.send_message(&domain.to_owned()));
    let names: [AddressForm; 2] = players.each_mut().map(Process::receive_message);
    for (place, player) in players.iter_mut().enumerate() {
        let peer = AddressForm(names[1 - place].0);
        player.send_message(&Task { peer, turns: path.clone(), goes_first: place == 0, calls: calls[place] });
    }
    players.iter_mut().for_each(Process::receive_message::<()>);
    turns.0.store(0, Ordering::Release);
    for player in &mut players {
        player.send_message(&());
    }
    // The other player would wait for its turn for ever.
    let first = usize::from(calls[1]);
    let status = players[first].wait_for_exit();
    let mut signals = [None; 2];
    signals[first] = status.signal();
    let other = &mut players[1 - first];
    let other_status = if status.success() { other.wait_for_exit() } else { other.kill() };
    signals[1 - first] = other_status.signal();
    if status.success() {
        assert!(other_status.success() || other_status.signal().is_some(), "{other_status}");
    }
    signals
}

#[test]
fn small_messages_over_shared_memory_make_no_system_call() {
    for domain in DOMAINS {
        assert_eq!(run_players_and_get_signals(domain, [false, false]), [None, None], "{domain}");
    }
}

#[test]
fn player_that_makes_a_system_call_dies_by_sigsys() {
    for domain in DOMAINS {
        assert_eq!(run_players_and_get_signals(domain, [true, false])[0], Some(libc::SIGSYS));
        assert_eq!(run_players_and_get_signals(domain, [false, true])[1], Some(libc::SIGSYS));
    }
}
