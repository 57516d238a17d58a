#![doc = include_str!("../docs/simulator.md")]
//!
//! [`CompletionQueue::read`]: crate::CompletionQueue::read
//! [`Counter::wait`]: crate::Counter::wait
//! [`Fabric::simulated`]: crate::Fabric::simulated
//! [`WaitObject::Fd`]: crate::WaitObject::Fd
//! [`WaitObject::MutexCond`]: crate::WaitObject::MutexCond
//! [`WaitSet::wait`]: crate::WaitSet::wait

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;
use std::{fmt, mem};

use homespun_engine::address::Address;
use homespun_engine::loopback::Network;
use parking_lot::Mutex;

pub use homespun_engine::loopback::{CAPACITY_MIN_BYTES, Faults, TraceAction, TraceEvent};

/// After this many rounds at one time the clock moves, by [`BUSY_TIME`]. So each run ends at its time limit,
/// even if the faults let no message through.
const BUSY_ROUNDS: u32 = 1000;

const BUSY_TIME: Duration = Duration::from_millis(1);

/// The network, the clock and the faults of a [simulated fabric](crate::Fabric::simulated). Clones are
/// handles to the same simulation.
#[derive(Clone)]
pub struct Simulation(Arc<Shared>);

struct Shared {
    network: Network,
    agenda: Mutex<Agenda>,
    /// The number of rounds since the clock last moved.
    rounds: AtomicU32,
}

/// What the endpoints are to do, besides receiving what the network has for them.
#[derive(Default)]
struct Agenda {
    /// The endpoints. Some of them may be gone.
    endpoints: BTreeMap<Address, Weak<dyn SimulatedEndpoint>>,
    /// The endpoints that need a pass now.
    active: BTreeSet<Address>,
    /// The endpoints that need a pass once the pass further up the stack has ended.
    in_use: BTreeSet<Address>,
    /// The next timeout of each endpoint that has one, and the endpoints in the order of their timeouts.
    timeouts: BTreeMap<Address, Duration>,
    by_timeout: BTreeSet<(Duration, Address)>,
}

/// An endpoint that a simulation drives.
pub(crate) trait SimulatedEndpoint: Send + Sync {
    /// Makes a pass. Returns `None` if a call further up the stack uses the endpoint.
    fn pass(&self) -> Option<SimulatedPass>;
}

/// The result of a pass.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SimulatedPass {
    /// Whether there was something to do, so that there may be more at once.
    pub(crate) is_busy: bool,
    /// When the next timeout of the endpoint is due.
    pub(crate) next_timeout: Option<Duration>,
}

/// The result of [`Simulation::step`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// Something may have happened.
    Moved,
    /// Nothing more happens until the end of the run. The clock is there.
    Ended,
    /// Nothing more happens at all. The clock has not moved.
    Idle,
}

impl Simulation {
    /// Creates a simulation whose endpoints are on this network.
    pub(crate) fn new(network: Network) -> Simulation {
        network.track_due();
        Simulation(Arc::new(Shared { network, agenda: Mutex::default(), rounds: AtomicU32::new(0) }))
    }

    /// Changes the faults and the latency of the network. Bytes and connections that are already under way
    /// keep their delays.
    pub fn set_faults(&self, faults: Faults) {
        self.0.network.set_faults(faults);
    }

    /// Kills the process of an endpoint. The endpoint's peers get the bytes under way, or a part of them
    /// ([`Faults::lose_per_mille`]). Then their links end with ECONNRESET. The killed endpoint does nothing
    /// any more, and another endpoint may be opened at its address. Returns whether there was an endpoint.
    pub fn kill(&self, address: Address) -> bool {
        self.0.network.kill(address)
    }

    /// Breaks all links between two endpoints. Both get the bytes under way, or a part of them
    /// ([`Faults::lose_per_mille`]). Then their links end with ECONNRESET. Returns the number of the links.
    pub fn break_links(&self, a: Address, b: Address) -> usize {
        self.0.network.break_links_between(a, b)
    }

    /// Separates each group of addresses from all other addresses. Replaces an earlier partition. An
    /// address in several groups belongs to the last of them.
    ///
    /// The network holds what is under way between separated endpoints: bytes, requests for connections, and
    /// ends of links. No link breaks, and no endpoint learns of the partition.
    pub fn partition(&self, groups: &[&[Address]]) {
        self.0.network.partition(groups);
    }

    /// Ends a [partition](Self::partition). What was held goes on, and arrives at once if its latency has
    /// passed.
    pub fn heal(&self) {
        self.0.network.heal();
    }

    /// Returns the time since the simulation began.
    pub fn elapsed(&self) -> Duration {
        self.0.network.elapsed()
    }

    /// Runs all endpoints for this long. Afterwards the clock has moved by exactly this time, or by some
    /// milliseconds more if the endpoints were busy at the end.
    pub fn run_for(&self, time: Duration) {
        let end = self.elapsed().saturating_add(time);
        while self.step(Some(end)) != Step::Ended {}
    }

    /// Runs all endpoints until nothing more happens, but at most for `limit`. Returns whether nothing more
    /// happens: nothing is under way but what a partition holds, and no endpoint has a timeout.
    pub fn run_until_idle(&self, limit: Duration) -> bool {
        let end = self.elapsed().saturating_add(limit);
        loop {
            match self.run_until_next_event(Some(end)) {
                Step::Moved => {}
                Step::Idle => return true,
                Step::Ended => return false,
            }
        }
    }

    /// Records what happens on the network from now on, for [`take_trace`](Self::take_trace). An event takes
    /// about 150 bytes until it is taken.
    pub fn record_trace(&self) {
        self.0.network.record_trace();
    }

    /// Returns what has happened since the last call, or since [`record_trace`](Self::record_trace).
    pub fn take_trace(&self) -> Vec<TraceEvent> {
        self.0.network.take_trace()
    }

    /// Adds an endpoint, which the simulation drives while it exists.
    pub(crate) fn add_endpoint(&self, address: Address, endpoint: Weak<dyn SimulatedEndpoint>) {
        let mut agenda = self.0.agenda.lock();
        agenda.endpoints.insert(address, endpoint);
        agenda.active.insert(address);
    }

    /// Makes the next round pass an endpoint that a call has used.
    pub(crate) fn wake(&self, address: Address) {
        self.0.agenda.lock().active.insert(address);
    }

    /// Draws a number from the simulation's seed.
    pub(crate) fn draw_u64(&self) -> u64 {
        self.0.network.draw_u64()
    }

    /// Makes a round: a pass of each endpoint that may have something to do. If there is none, moves the
    /// clock to the next event, or to the end of the run if that comes first.
    pub(crate) fn step(&self, end: Option<Duration>) -> Step {
        match (self.run_until_next_event(end), end) {
            (Step::Idle, Some(end)) => {
                self.advance_to(end);
                Step::Ended
            }
            (step, _) => step,
        }
    }

    /// As [`step`](Self::step), but leaves the clock where it is if nothing more happens.
    fn run_until_next_event(&self, end: Option<Duration>) -> Step {
        let now = self.elapsed();
        if end.is_some_and(|end| now > end) {
            return Step::Ended;
        }
        if self.make_round(now) {
            if self.0.rounds.fetch_add(1, Ordering::Relaxed) + 1 >= BUSY_ROUNDS {
                self.advance_to(now.saturating_add(BUSY_TIME));
            }
            return Step::Moved;
        }
        let next_timeout = self.0.agenda.lock().by_timeout.first().map(|(time, _)| *time);
        let Some(next) = [self.0.network.next_arrival(), next_timeout].into_iter().flatten().min() else {
            return Step::Idle;
        };
        if let Some(end) = end.filter(|end| next > *end) {
            self.advance_to(end);
            return Step::Ended;
        }
        self.advance_to(next);
        Step::Moved
    }

    fn advance_to(&self, time: Duration) {
        self.0.rounds.store(0, Ordering::Relaxed);
        self.0.network.advance_to(time);
    }

    /// Passes the endpoints that may have something to do, in the order of their addresses. Returns whether
    /// there was one.
    fn make_round(&self, now: Duration) -> bool {
        let due = self.0.network.take_due();
        // Not locked during a pass: a pass may drop buffers of the application, and their destructors may
        // open and close endpoints.
        let endpoints = self.0.agenda.lock().take_active(due, now);
        for (address, endpoint) in &endpoints {
            let pass = endpoint.pass();
            self.0.agenda.lock().note_pass(*address, pass);
        }
        !endpoints.is_empty()
    }
}

impl Agenda {
    /// Returns the endpoints that need a pass: the active ones, those that have a timeout now, and those at
    /// the addresses `due`. Forgets endpoints that are gone.
    fn take_active(
        &mut self,
        due: Vec<Address>,
        now: Duration,
    ) -> Vec<(Address, Arc<dyn SimulatedEndpoint>)> {
        let mut active = mem::take(&mut self.active);
        active.extend(due);
        let timed_out = self.by_timeout.iter().take_while(|(time, _)| *time <= now);
        active.extend(timed_out.map(|(_, address)| *address));
        let mut present = Vec::with_capacity(active.len());
        for address in active {
            match self.endpoints.get(&address).and_then(Weak::upgrade) {
                Some(endpoint) => present.push((address, endpoint)),
                None => {
                    self.endpoints.remove(&address);
                    self.set_timeout(address, None);
                }
            }
        }
        present
    }

    fn note_pass(&mut self, address: Address, pass: Option<SimulatedPass>) {
        let Some(SimulatedPass { is_busy, next_timeout }) = pass else {
            self.in_use.insert(address);
            return self.set_timeout(address, None);
        };
        if self.in_use.remove(&address) || is_busy {
            self.active.insert(address);
        }
        self.set_timeout(address, next_timeout);
    }

    fn set_timeout(&mut self, address: Address, timeout: Option<Duration>) {
        let before = match timeout {
            Some(timeout) => self.timeouts.insert(address, timeout),
            None => self.timeouts.remove(&address),
        };
        if let Some(before) = before {
            self.by_timeout.remove(&(before, address));
        }
        if let Some(timeout) = timeout {
            self.by_timeout.insert((timeout, address));
        }
    }
}

impl fmt::Debug for Simulation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Simulation").field("elapsed", &self.elapsed()).finish_non_exhaustive()
    }
}
