#![doc = include_str!("../docs/simulator.md")]
//!
//! [`CompletionQueue::read`]: crate::CompletionQueue::read
//! [`Counter::wait`]: crate::Counter::wait
//! [`Fabric::simulated`]: crate::Fabric::simulated
//! [`WaitObject::Fd`]: crate::WaitObject::Fd
//! [`WaitObject::MutexCond`]: crate::WaitObject::MutexCond
//! [`WaitSet::wait`]: crate::WaitSet::wait

use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use homespun_engine::address::Address;
use homespun_engine::loopback::Network;
use parking_lot::Mutex;

pub use homespun_engine::loopback::{CAPACITY_MIN_BYTES, Faults, TraceAction, TraceEvent};

/// After this many busy rounds in a row the clock moves, by [`BUSY_TIME`]. So each run ends at its time
/// limit, even if the faults let no message through.
const BUSY_ROUNDS: u32 = 1000;

const BUSY_TIME: Duration = Duration::from_millis(1);

/// The network, the clock and the faults of a [simulated fabric](crate::Fabric::simulated). Clones are
/// handles to the same simulation.
#[derive(Clone)]
pub struct Simulation(Arc<Shared>);

struct Shared {
    network: Network,
    /// The endpoints, in the order in which they were opened. Some of them may be gone.
    endpoints: Mutex<Vec<Weak<dyn SimulatedEndpoint>>>,
    /// The number of busy rounds since the clock last moved.
    busy_rounds: AtomicU32,
}

/// An endpoint that a simulation drives.
pub(crate) trait SimulatedEndpoint: Send + Sync {
    /// Makes a pass, unless the endpoint is in use further up the stack.
    fn pass(&self) -> SimulatedPass;
}

/// The result of a pass.
#[derive(Default)]
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
        Simulation(Arc::new(Shared { network, endpoints: Mutex::default(), busy_rounds: AtomicU32::new(0) }))
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

    /// Separates each group of addresses from all other addresses. Replaces an earlier partition.
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
    pub(crate) fn add_endpoint(&self, endpoint: Weak<dyn SimulatedEndpoint>) {
        self.0.endpoints.lock().push(endpoint);
    }

    /// Draws a number from the simulation's seed.
    pub(crate) fn draw_u64(&self) -> u64 {
        self.0.network.draw_u64()
    }

    /// Makes a pass of every endpoint. If none had anything to do, moves the clock to the next event, or to
    /// the end of the run if that comes first.
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
        if end.is_some_and(|end| self.elapsed() > end) {
            return Step::Ended;
        }
        let SimulatedPass { is_busy, next_timeout } = self.pass_all();
        let now = self.elapsed();
        let next = [self.0.network.next_arrival(), next_timeout].into_iter().flatten().min();
        if is_busy || next.is_some_and(|next| next <= now) {
            if self.0.busy_rounds.fetch_add(1, Ordering::Relaxed) + 1 >= BUSY_ROUNDS {
                self.advance_to(now.saturating_add(BUSY_TIME));
            }
            return Step::Moved;
        }
        let Some(next) = next else { return Step::Idle };
        if let Some(end) = end.filter(|end| next > *end) {
            self.advance_to(end);
            return Step::Ended;
        }
        self.advance_to(next);
        Step::Moved
    }

    fn advance_to(&self, time: Duration) {
        self.0.busy_rounds.store(0, Ordering::Relaxed);
        self.0.network.advance_to(time);
    }

    fn pass_all(&self) -> SimulatedPass {
        // Not locked during a pass: a pass may drop buffers of the application, and their destructors may
        // open and close endpoints.
        let mut present = Vec::new();
        self.0.endpoints.lock().retain(|endpoint| endpoint.upgrade().map(|it| present.push(it)).is_some());
        present.iter().map(|endpoint| endpoint.pass()).fold(SimulatedPass::default(), |all, one| {
            let timeouts = [all.next_timeout, one.next_timeout];
            SimulatedPass {
                is_busy: all.is_busy || one.is_busy,
                next_timeout: timeouts.into_iter().flatten().min(),
            }
        })
    }
}

impl fmt::Debug for Simulation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Simulation").field("elapsed", &self.elapsed()).finish_non_exhaustive()
    }
}
