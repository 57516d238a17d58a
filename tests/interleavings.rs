//! Threads sleep, poll, read, post and signal in random order. A sleeping thread must wake for each entry.
//!
//! Each of two endpoints has threads that sleep on its queue. Other threads post, poll, signal and make
//! progress. The tests run once for each wait object on which threads can sleep. A seed determines the
//! random delays. A test fails if a wait times out although a message was sent.

use std::env;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fastrand::Rng;
use homespun::flags::{CompletionFlags, OpFlags};
use homespun::{CounterEvents, WaitObject};

use homespun_suite::sleeping::{self, PATIENCE};
use homespun_suite::{Net, Party, Setup, TransportKind, Turns};

/// The number of messages in each direction, for each transport and wait object.
const ROUNDS: u64 = 1000;

/// Lengths of messages; most are small.
const LENS_BYTES: [usize; 8] = [8, 0, 8, 100, 8, 3000, 8, 20_000];

/// The number of receives, and of sends, that may be outstanding.
const WINDOW: u64 = 4;

fn read_round_count() -> u64 {
    env::var("HOMESPUN_INTERLEAVINGS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(ROUNDS)
}

/// Delays a thread for a short random time.
fn delay_randomly(random: &mut Rng) {
    match random.u32(0..16) {
        0 => thread::sleep(Duration::from_micros(random.u64(0..200))),
        1..4 => thread::yield_now(),
        4..8 => (0..random.u32(0..2000)).for_each(|_| std::hint::spin_loop()),
        _ => {}
    }
}

/// Sends a message of this identity to the party's peer, with a random length and level.
fn send_random_message(party: &Party, identity: u64, random: &mut Rng) {
    let len_bytes = LENS_BYTES[random.usize(0..LENS_BYTES.len())];
    let flags = match random.u32(0..4) {
        0 => OpFlags::INJECT_COMPLETE,
        1 => OpFlags::MATCH_COMPLETE,
        _ => OpFlags::DELIVERY_COMPLETE,
    };
    party.post_send(identity, len_bytes, flags);
}

/// Counts of one party's completed operations.
#[derive(Default, Debug)]
struct Tally {
    taken: AtomicU64,
    sent: AtomicU64,
}

impl Tally {
    fn count_completion(&self, flags: CompletionFlags) {
        let side = if flags.contains(CompletionFlags::SEND) { &self.sent } else { &self.taken };
        side.fetch_add(1, Ordering::SeqCst);
    }

    fn total(&self) -> u64 {
        self.taken.load(Ordering::SeqCst) + self.sent.load(Ordering::SeqCst)
    }
}

/// Posts all operations of a party. Other threads read the completions, and count them in `tally`.
fn post_operations(party: &Party, tally: &Tally, is_over: &AtomicBool, rounds: u64, mut random: Rng) {
    let (mut received, mut sent) = (0, 0);
    while (received < rounds || sent < rounds) && !is_over.load(Ordering::SeqCst) {
        delay_randomly(&mut random);
        let may_receive = received < rounds && received < tally.taken.load(Ordering::SeqCst) + WINDOW;
        let may_send = sent < rounds && sent < tally.sent.load(Ordering::SeqCst) + WINDOW;
        if may_receive && (random.bool() || !may_send) {
            party.post_receives([received], 20_000);
            received += 1;
        } else if may_send {
            send_random_message(party, sent, &mut random);
            sent += 1;
        } else {
            thread::yield_now();
        }
    }
}

/// Sleeps and reads until all operations have completed.
fn sleep_and_read(party: &Party, tally: &Tally, is_over: &AtomicBool, mut random: Rng) {
    let cq = party.local_cq();
    let mut deadline = Instant::now() + PATIENCE;
    while !is_over.load(Ordering::SeqCst) {
        let before = tally.total();
        delay_randomly(&mut random);
        let by_itself = matches!(cq.wait_object(), WaitObject::Fd | WaitObject::MutexCond);
        let read = if by_itself && random.u32(0..3) > 0 {
            let woken = sleeping::sleep_on_wait_object(cq, PATIENCE);
            assert!(woken || tally.total() != before || is_over.load(Ordering::SeqCst), "it was not woken");
            delay_randomly(&mut random);
            cq.read()
        } else {
            cq.sread(Some(PATIENCE))
        };
        match read {
            Ok(Some(completion)) => tally.count_completion(completion.flags),
            Ok(None) if tally.total() == before => {
                // Another thread has signalled this one, or has read the entry for which this thread woke.
                assert!(Instant::now() < deadline, "it was not woken");
                continue;
            }
            Ok(None) => {}
            Err(error) => panic!("{error}: {:?}", cq.read_error()),
        }
        deadline = Instant::now() + PATIENCE;
    }
}

/// Disturbs the sleeping threads: polls, signals and reads.
fn disturb_by_polling(party: &Party, tally: &Tally, is_over: &AtomicBool, mut random: Rng) {
    let cq = party.local_cq();
    while !is_over.load(Ordering::SeqCst) {
        thread::sleep(Duration::from_micros(random.u64(0..2000)));
        match random.u32(0..8) {
            0 => cq.signal(),
            1 => cq.progress(),
            2 => _ = cq.try_wait().expect("a wait object"),
            3..6 => {
                // One read in three blocks, at random.
                let timeout = Some(Duration::from_micros(random.u64(0..500)));
                let read = if random.u32(0..3) == 0 { cq.sread(timeout) } else { cq.read() };
                if let Ok(Some(completion)) = read {
                    tally.count_completion(completion.flags);
                }
            }
            _ => {}
        }
    }
}

fn check_every_sleeper_wakes(
    transport: &TransportKind,
    wait: WaitObject,
    sleepers: usize,
    disturbs: bool,
    seed: u64,
) {
    let net = Net::new(transport, Turns::Alternate);
    let setup = || Setup { asleep: true, wait, ..Setup::default() };
    let (alice, bob) = net.open_pair_with(setup(), setup());
    let mut seeds = Rng::with_seed(seed);
    let tallies = [Tally::default(), Tally::default()];
    let (is_over, running, rounds) = (AtomicBool::new(false), AtomicUsize::new(0), read_round_count());
    thread::scope(|scope| {
        for (party, tally) in [&alice, &bob].into_iter().zip(&tallies) {
            let (is_over, running) = (&is_over, &running);
            let random = seeds.fork();
            scope.spawn(move || post_operations(party, tally, is_over, rounds, random));
            for _ in 0..sleepers {
                let random = seeds.fork();
                running.fetch_add(1, Ordering::SeqCst);
                scope.spawn(move || {
                    sleep_and_read(party, tally, is_over, random);
                    running.fetch_sub(1, Ordering::SeqCst);
                });
            }
            if disturbs {
                let random = seeds.fork();
                scope.spawn(move || disturb_by_polling(party, tally, is_over, random));
            }
        }
        let mut last = (0, Instant::now());
        while tallies.iter().any(|tally| tally.total() < 2 * rounds) {
            let sum = tallies.iter().map(Tally::total).sum();
            if sum != last.0 {
                last = (sum, Instant::now());
            }
            if last.1.elapsed() > 2 * PATIENCE {
                is_over.store(true, Ordering::SeqCst);
                panic!("{transport:?} {wait:?}: {tallies:?} of {rounds}, and no thread wakes; seed {seed}");
            }
            thread::sleep(Duration::from_millis(1));
        }
        is_over.store(true, Ordering::SeqCst);
        // Signal repeatedly. A thread that does not wait yet misses a signal, and a thread that polls the
        // descriptor may clear a signal.
        while running.load(Ordering::SeqCst) > 0 {
            for party in [&alice, &bob] {
                party.local_cq().signal();
            }
            thread::sleep(Duration::from_millis(1));
        }
    });
    net.start_driving(&alice);
    net.start_driving(&bob);
}

const TRANSPORTS: [TransportKind; 3] = [TransportKind::Tcp4, TransportKind::MIXED4, TransportKind::Shm4];

#[test]
fn messages_wake_every_sleeper() {
    let seed = fastrand::u64(..);
    for transport in TRANSPORTS {
        for wait in sleeping::BLOCKING_WAIT_OBJECTS {
            for (sleepers, disturbs) in [(1, false), (1, true), (3, false), (3, true)] {
                check_every_sleeper_wakes(&transport, wait, sleepers, disturbs, seed);
            }
        }
    }
}

/// In each round, posts a receive and a send that report no success. Then sleeps on the counters until all
/// but the last few operations have ended.
fn post_and_sleep_on_counters(party: &Party, rounds: u64, mut random: Rng) {
    let [received, sent] = [CounterEvents::RECV, CounterEvents::SEND].map(|event| party.local_counter(event));
    for round in 0..rounds {
        delay_randomly(&mut random);
        party.post_receives([round], 20_000);
        send_random_message(party, round, &mut random);
        delay_randomly(&mut random);
        let counters = if random.bool() { [received, sent] } else { [sent, received] };
        for counter in counters {
            sleeping::wait_for_threshold(counter, (round + 1).saturating_sub(random.u64(0..WINDOW)));
        }
    }
    sleeping::wait_for_threshold(received, rounds);
    sleeping::wait_for_threshold(sent, rounds);
}

/// Disturbs the threads that wait for counters: reads and signals.
fn disturb_counter_waiters(party: &Party, is_over: &AtomicBool, mut random: Rng) {
    let counters = [CounterEvents::RECV, CounterEvents::SEND].map(|event| party.local_counter(event));
    while !is_over.load(Ordering::SeqCst) {
        thread::sleep(Duration::from_micros(random.u64(0..2000)));
        let counter = counters[random.usize(0..2)];
        match random.u32(0..6) {
            0 => party.local_cq().progress(),
            1 => counter.add(0),
            2 => _ = counter.read_error(),
            3 => _ = counter.wait(u64::MAX, Some(Duration::from_micros(random.u64(0..500)))),
            4 => _ = party.local_cq().sread(Some(Duration::from_micros(random.u64(0..500)))),
            _ => {}
        }
    }
}

fn check_counter_sleepers_wake_over(transport: &TransportKind) {
    let mut seeds = Rng::with_seed(fastrand::u64(..));
    let rounds = read_round_count();
    for wait in sleeping::BLOCKING_WAIT_OBJECTS {
        for disturbs in [false, true] {
            let net = Net::new(transport, Turns::Alternate);
            let setup = || Setup { asleep: true, wait, counts: true, selective: true, ..Setup::default() };
            let (alice, bob) = net.open_pair_with(setup(), setup());
            let (is_over, is_counted) = (AtomicBool::new(false), AtomicU64::new(0));
            thread::scope(|scope| {
                for party in [&alice, &bob] {
                    let (is_over, is_counted) = (&is_over, &is_counted);
                    let random = seeds.fork();
                    scope.spawn(move || {
                        post_and_sleep_on_counters(party, rounds, random);
                        is_counted.fetch_add(1, Ordering::SeqCst);
                        // Make progress, so that the peer gets the acknowledgements that it needs.
                        while is_counted.load(Ordering::SeqCst) < 2 {
                            party.local_counter(CounterEvents::RECV).progress();
                            thread::yield_now();
                        }
                        is_over.store(true, Ordering::SeqCst);
                    });
                    // Two more threads wait for the counter of receives, by blocking calls. A thread that
                    // polls the descriptor instead may miss an event that another thread has read.
                    for _ in 0..2 {
                        let mut random = seeds.fork();
                        scope.spawn(move || {
                            let counter = party.local_counter(CounterEvents::RECV);
                            for round in 1..=rounds {
                                delay_randomly(&mut random);
                                assert_eq!(counter.wait(round, Some(PATIENCE)), Ok(()), "it was not woken");
                            }
                        });
                    }
                    if disturbs {
                        let random = seeds.fork();
                        scope.spawn(move || disturb_counter_waiters(party, is_over, random));
                    }
                }
            });
            net.start_driving(&alice);
            net.start_driving(&bob);
        }
    }
}

#[test]
fn counter_events_wake_every_sleeper() {
    TRANSPORTS.iter().for_each(check_counter_sleepers_wake_over);
}
