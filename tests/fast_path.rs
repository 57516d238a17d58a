//! What a small message does not do: allocate memory, and over shared memory call the system. That it takes no lock, where
//! the application promises to use one object at a time, is tested beside the locks (`src/unsynchronised.rs`).

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
use homespun::flags::{BindFlags, InfoFlags};
use homespun::info::{Info, Threading};
use homespun::{
    Address, AddressVector, AvAttr, CompletionQueue, Counter, CounterAttr, CounterEvents, CqAttr, Endpoint,
    Fabric, FabricAddress, Segment, SegmentMut,
};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, apply_filter};
use serde::{Deserialize, Serialize};

use crate::suite::AddressForm;
use crate::suite::process::{Channel, Process};

#[allow(dead_code, unused_imports, reason = "each suite uses a part of it")]
mod suite;

const LEN_BYTES: usize = 8;

/// How many messages bring everything to the size that it then keeps.
const WARM_UP_MESSAGES: u64 = 5000;

/// How many messages are counted, in each direction.
const MESSAGES: u64 = 5000;

/// The system's allocator, which counts what each thread asks of it.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn count_allocation() {
    // A thread that ends has nothing to count with any more.
    let _ = ALLOCATIONS.try_with(|allocations| allocations.set(allocations.get() + 1));
}

// SAFETY: everything is left to the system's allocator, and counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count_allocation();
        // SAFETY: the caller's promise is the one that is asked for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count_allocation();
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
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

/// An endpoint without locks, and the memory of the one message that is on its way in each direction.
struct Party {
    endpoint: Endpoint,
    cq: CompletionQueue,
    av: AddressVector,
    message: [u8; LEN_BYTES],
    room: [u8; LEN_BYTES],
}

impl Party {
    fn open(domain: &str) -> Party {
        Party::open_to_count(domain, None)
    }

    /// Opens one of which everything may be counted.
    fn open_to_count(domain: &str, counter: Option<&mut Option<Counter>>) -> Party {
        let fabric = Fabric::new();
        let mut hints = Info::default();
        hints.domain.name = Some(domain.into());
        hints.domain.threading = Some(Threading::Domain);
        let offered = fabric.getinfo(Some("127.0.0.1"), None, InfoFlags::SOURCE, Some(&hints));
        let info = &offered.expect("a domain of this name")[0];
        // SAFETY: a test, and each process that it starts, uses its parties from one thread.
        let domain = unsafe { fabric.domain_unsynchronised(info) }.expect("a domain");
        let cq = domain.open_cq(&CqAttr::default()).expect("a queue");
        let av = domain.open_av(&AvAttr::default()).expect("an address vector");
        let endpoint = domain.endpoint(info).expect("an endpoint");
        endpoint.bind_cq(&cq, BindFlags::TRANSMIT | BindFlags::RECV).expect("its first queue");
        endpoint.bind_av(&av).expect("its first address vector");
        if let Some(place) = counter {
            let counter = place.insert(domain.open_counter(&CounterAttr::default()).expect("a counter"));
            endpoint.bind_counter(counter, CounterEvents::all()).expect("its first counter");
        }
        endpoint.enable().expect("it has all that it needs");
        Party { endpoint, cq, av, message: [7; LEN_BYTES], room: [0; LEN_BYTES] }
    }

    fn name(&self) -> Address {
        self.endpoint.name().expect("an endpoint in service has a name")
    }

    /// Makes somebody the peer.
    fn meet(&self, peer: Address) {
        let inserted = self.av.insert(&[peer]).remove(0).expect("an endpoint's name can be inserted");
        assert_eq!(inserted, PEER);
    }

    /// Every second message is tagged.
    fn tag(number: u64) -> Option<u64> {
        number.is_multiple_of(2).then_some(number)
    }

    fn post_receive(&mut self, number: u64) {
        let segments = [SegmentMut { address: self.room.as_mut_ptr(), len_bytes: LEN_BYTES }];
        let (from, tagged) = (FabricAddress::UNSPECIFIED, Party::tag(number).map(|tag| (tag, 0)));
        let (buffers, flags) = (&segments[..], self.endpoint.rx_op_flags());
        let receive = RecvMsg { buffers, from, tagged, context: number, flags };
        // SAFETY: the room is used by one receive at a time, and read by nobody. A party is not moved while it is used.
        unsafe { self.endpoint.post_receive(&receive).expect("room for a receive") };
    }

    /// Posts a message, or every other pair of times injects it. How many completions that brings.
    fn send(&self, number: u64) -> u64 {
        let tag = Party::tag(number);
        if number % 4 < 2 {
            self.endpoint.inject(&self.message, PEER, tag, Some(number)).expect("room for a send");
            return 0;
        }
        let segments = [Segment { address: self.message.as_ptr(), len_bytes: LEN_BYTES }];
        let (buffers, flags) = (&segments[..], self.endpoint.tx_op_flags());
        let send = SendMsg { buffers, to: PEER, tag, data: None, context: SEND, flags };
        // SAFETY: the message never changes, and a party is not moved while it is used.
        unsafe { self.endpoint.post_send(&send).expect("room for a send") };
        1
    }
}

/// What a party calls the other one.
const PEER: FabricAddress = FabricAddress(0);

/// The context of sends.
const SEND: u64 = u64::MAX;

/// Moves messages to and fro.
fn exchange(left: &mut Party, right: &mut Party, messages: u64) {
    for number in 0..2 * messages {
        let (from, to) = if number % 2 == 0 { (&mut *left, &mut *right) } else { (&mut *right, &mut *left) };
        to.post_receive(number / 2);
        for _ in 0..from.send(number / 2) {
            assert_eq!(from.cq.read().expect("small messages are sent at once").context, SEND);
        }
        loop {
            match to.cq.read() {
                Ok(received) => {
                    break assert_eq!((received.context, received.len_bytes), (number / 2, LEN_BYTES));
                }
                // Over TCP a message may take its time.
                Err(_) => from.cq.progress(),
            }
        }
    }
}

fn small_messages_allocate_nothing(domain: &str) {
    let (mut left, mut right) = (Party::open(domain), Party::open(domain));
    left.meet(right.name());
    right.meet(left.name());
    exchange(&mut left, &mut right, 1);
    exchange(&mut left, &mut right, WARM_UP_MESSAGES);
    let before = ALLOCATIONS.get();
    exchange(&mut left, &mut right, MESSAGES);
    assert_eq!(ALLOCATIONS.get() - before, 0, "allocations of {} messages", 2 * MESSAGES);
}

#[test]
fn small_messages_that_are_counted_allocate_nothing() {
    let mut counters = [None, None];
    let [mut left, mut right] = counters.each_mut().map(|counter| Party::open_to_count("shm", Some(counter)));
    left.meet(right.name());
    right.meet(left.name());
    exchange(&mut left, &mut right, WARM_UP_MESSAGES);
    let before = ALLOCATIONS.get();
    exchange(&mut left, &mut right, MESSAGES);
    let counted = counters.each_ref().map(|counter| counter.as_ref().map(Counter::read));
    assert_eq!(ALLOCATIONS.get() - before, 0, "allocations of {} messages", 2 * MESSAGES);
    // Each side has sent and received as many.
    assert_eq!(counted, [Some(2 * (WARM_UP_MESSAGES + MESSAGES)); 2]);
}

#[test]
fn small_messages_over_shared_memory_allocate_nothing() {
    small_messages_allocate_nothing("shm");
}

#[test]
fn small_messages_over_tcp_allocate_nothing() {
    small_messages_allocate_nothing("tcp");
}

#[test]
fn what_is_allocated_is_counted() {
    let before = ALLOCATIONS.get();
    drop(hint::black_box(Box::new(before)));
    assert_eq!(ALLOCATIONS.get() - before, 1);
}

/// How many messages one side sends before it is the other's turn.
const TURN_MESSAGES: u64 = 20;

/// How many turns each side has to warm up, and then without a system call. Each takes a pass a message, and it is fewer
/// passes than go by before the kernel is asked, now and then, what else there is.
const TURNS: u64 = 40;

/// How many passes without a message make sure that the kernel was asked just before, and is not to be asked soon.
const IDLE_PASSES: u32 = 96;

/// What one of two processes is told.
#[derive(Debug, Serialize, Deserialize)]
struct Task {
    peer: AddressForm,
    /// The memory in which turns are counted, as a file.
    turns: String,
    goes_first: bool,
    /// Whether it makes a system call, at the wrong time.
    calls: bool,
}

/// A number in memory that processes share.
#[derive(Clone, Copy)]
struct Turns(&'static AtomicU32);

impl Turns {
    fn at(path: &str) -> io::Result<Turns> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        // SAFETY: a new mapping of a file of this size, which is never unmapped.
        let memory = unsafe {
            let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
            libc::mmap(ptr::null_mut(), size_of::<AtomicU32>(), protection, flags, file.as_raw_fd(), 0)
        };
        if memory == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: it is mapped for ever, on a page's border, and used as this by everybody who maps it.
        Ok(Turns(unsafe { &*memory.cast::<AtomicU32>() }))
    }

    /// Waits without the system's help.
    fn wait_for(self, turn: u64) {
        while u64::from(self.0.load(Ordering::Acquire)) != turn {
            hint::spin_loop();
        }
    }

    fn next(self) {
        self.0.fetch_add(1, Ordering::AcqRel);
    }
}

/// One side of a game in which each has a turn after the other: it reads what the other has sent, and sends as much. So
/// nobody looks for a message that is not there, however long the other takes.
struct Player {
    party: Party,
    turns: Turns,
    /// Which turn is its next one.
    turn: u64,
}

impl Player {
    fn take_turn(&mut self) {
        self.take_turn_and(|_| {});
    }

    /// Does something else between reading and sending, when nothing is on its way.
    fn take_turn_and(&mut self, act: impl FnOnce(&mut Party)) {
        let Player { party, turns, turn } = self;
        turns.wait_for(*turn);
        if *turn > 0 {
            for number in 0..TURN_MESSAGES {
                party.post_receive(number);
                let received = party.cq.read().expect("it was sent before");
                assert_eq!((received.context, received.len_bytes), (number, LEN_BYTES));
            }
        }
        act(party);
        for number in 0..TURN_MESSAGES {
            for _ in 0..party.send(number) {
                assert_eq!(party.cq.read().expect("small messages are sent at once").context, SEND);
            }
        }
        *turn += 2;
        turns.next();
    }
}

#[test]
#[ignore = "an entry: other tests run it, in processes of their own"]
fn a_player() {
    let Some(mut channel) = Channel::inherited() else { return };
    let mut party = Party::open("shm");
    channel.tell(&AddressForm(party.name())).expect("a test that listens");
    let Some(task) = channel.hear::<Task>().expect("a test that asks") else { return };
    party.meet(task.peer.0);
    let turns = Turns::at(&task.turns).expect("memory that the test has made");
    // The first messages wait for a connection to be made.
    if task.goes_first {
        party.endpoint.inject(&[7; LEN_BYTES], PEER, None, None).expect("room for a send");
    }
    party.post_receive(1);
    while party.cq.read().is_err() {}
    if !task.goes_first {
        party.endpoint.inject(&[7; LEN_BYTES], PEER, None, None).expect("room for a send");
    }
    turns.next();
    while turns.0.load(Ordering::Acquire) < 2 {
        party.cq.progress();
    }
    channel.tell(&()).expect("a test that listens");
    let Some(()) = channel.hear().expect("a test that goes on") else { return };
    let mut player = Player { party, turns, turn: u64::from(!task.goes_first) };
    (0..TURNS).for_each(|_| player.take_turn());
    player.take_turn_and(|party| {
        (0..IDLE_PASSES).for_each(|_| party.cq.progress());
        allow_only(&[libc::SYS_write, libc::SYS_exit_group]);
    });
    player.take_turn();
    if task.calls {
        hint::black_box(process::id());
    }
    (0..TURNS).for_each(|_| player.take_turn());
    // SAFETY: ends the process at once, without what Rust or the C library would do, for which they call the system.
    unsafe { libc::_exit(0) };
}

/// Has any other system call of this thread kill the process on the spot.
fn allow_only(system_calls: &[i64]) {
    let rules: BTreeMap<i64, _> = system_calls.iter().map(|&number| (number, Vec::new())).collect();
    let architecture = ARCH.try_into().expect("an architecture that filters are made for");
    let filter = SeccompFilter::new(rules, SeccompAction::KillProcess, SeccompAction::Allow, architecture);
    let program = BpfProgram::try_from(filter.expect("a filter")).expect("a small filter");
    apply_filter(&program).expect("a thread may confine itself");
}

/// Has two processes play, and says by which signals they died.
fn game(calls: [bool; 2]) -> [Option<i32>; 2] {
    let memory = memfd_create("turns", MemfdFlags::CLOEXEC).expect("memory");
    ftruncate(&memory, size_of::<AtomicU32>() as u64).expect("a small size");
    let path = format!("/proc/{}/fd/{}", process::id(), memory.as_raw_fd());
    let turns = Turns::at(&path).expect("memory");
    let mut players = [0, 1].map(|_| Process::spawn(concat!(module_path!(), "::a_player")));
    let names: [AddressForm; 2] = players.each_mut().map(Process::hear);
    for (place, player) in players.iter_mut().enumerate() {
        let peer = AddressForm(names[1 - place].0);
        player.tell(&Task { peer, turns: path.clone(), goes_first: place == 0, calls: calls[place] });
    }
    players.iter_mut().for_each(Process::hear::<()>);
    turns.0.store(0, Ordering::Release);
    for player in &mut players {
        player.tell(&());
    }
    // The one that is killed leaves the other waiting for its turn.
    let first = usize::from(calls[1]);
    let status = players[first].died();
    let mut signals = [None; 2];
    signals[first] = status.signal();
    let other = &mut players[1 - first];
    let other_status = if status.success() { other.died() } else { other.kill() };
    signals[1 - first] = other_status.signal();
    if status.success() {
        assert!(other_status.success() || other_status.signal().is_some(), "{other_status}");
    }
    signals
}

#[test]
fn small_messages_over_shared_memory_make_no_system_call() {
    assert_eq!(game([false, false]), [None, None]);
}

#[test]
fn a_system_call_would_be_found() {
    assert_eq!(game([true, false])[0], Some(libc::SIGSYS));
    assert_eq!(game([false, true])[1], Some(libc::SIGSYS));
}
