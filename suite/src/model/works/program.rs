//! Random programs of deferred work.

use proptest::prelude::*;
use proptest::sample::select;

use super::reference::{COUNTING, KNOWN};

/// A program of deferred work.
#[derive(Debug, Clone)]
pub struct Program {
    /// The seed of the loopback network's faults.
    pub(super) seed: u64,
    /// The transmit size of the endpoint, or 0 for the default. With a small size, works wait for room.
    pub(super) depth_ops: usize,
    /// Whether the endpoint's receives are those of a shared receive context.
    pub(super) shares_receives: bool,
    /// Whether the endpoint has a shared transmit context.
    pub(super) shares_transmits: bool,
    /// Whether the program closes the endpoint at the end, while works still wait for their counters.
    pub(super) closes_endpoint: bool,
    pub(super) steps: Vec<Step>,
}

impl Program {
    /// The seed of the loopback network's faults.
    pub fn seed(&self) -> u64 {
        self.seed
    }
}

/// A counter, by its number among those of its kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CounterName {
    /// A counter that only the application and works change. So its value is known at every moment.
    Known(usize),
    /// A counter that also counts operations. The value may grow whenever an endpoint makes progress.
    Counting(usize),
}

#[derive(Debug, Clone)]
pub(super) enum Step {
    /// Queues deferred work or a triggered operation.
    Queue {
        trigger: CounterName,
        threshold: u64,
        effect: WorkEffect,
    },
    /// The application changes a counter.
    Change {
        counter: CounterName,
        change: Change,
    },
    /// Cancels a work, whether or not it has run.
    Cancel {
        which: usize,
    },
    /// Flushes the works that wait for a counter, or all works.
    Flush {
        counter: Option<CounterName>,
    },
    Drive {
        rounds: usize,
    },
    /// Compares all counters with the model.
    Look,
}

/// What a work does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WorkEffect {
    Change {
        counter: CounterName,
        change: Change,
    },
    /// Posts an operation. If `completion` names a counting counter, that counter counts the end of the
    /// operation. `is_reported` tells whether the endpoint reports the end.
    Post {
        action: Action,
        completion: Option<usize>,
        is_reported: bool,
        is_triggered: bool,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    Add(u64),
    AddError(u64),
    /// Sets a known counter; adds to a counting counter.
    Set(u64),
}

/// The operation of a work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    /// Sends a message, tagged or not.
    Send { is_tagged: bool },
    /// Receives a message, tagged or not.
    Receive { is_tagged: bool },
    /// Writes to its own number.
    Write,
    /// Writes with a key that no region has, which fails.
    WriteInVain,
    /// Reads the constant.
    Read,
    /// Adds one to a number that all works of this kind share.
    Add,
    /// Adds one to the element that [`Action::Add`] changes, and fetches the former value.
    FetchAdd,
    /// Swaps the work's own number if that number is zero.
    CompareSwap,
}

/// Returns any program.
pub fn any_program() -> impl Strategy<Value = Program> {
    let depth_ops = select(vec![0, 0, 0, 2]);
    let steps = prop::collection::vec(any_step(), 1..40);
    (any::<u64>(), depth_ops, any::<bool>(), any::<bool>(), any::<bool>(), steps).prop_map(
        |(seed, depth_ops, shares_receives, shares_transmits, closes_endpoint, steps)| Program {
            seed,
            depth_ops,
            shares_receives,
            shares_transmits,
            closes_endpoint,
            steps,
        },
    )
}

fn any_step() -> impl Strategy<Value = Step> {
    let threshold = prop_oneof![9 => 0..8_u64, 1 => Just(u64::MAX)];
    prop_oneof![
        15 => (any_counter(), threshold, any_effect()).prop_map(
            |(trigger, threshold, effect)| Step::Queue { trigger, threshold, effect }
        ),
        7 => (any_counter(), any_change()).prop_map(|(counter, change)| Step::Change { counter, change }),
        2 => any::<usize>().prop_map(|which| Step::Cancel { which }),
        1 => prop::option::of(any_counter()).prop_map(|counter| Step::Flush { counter }),
        3 => (1..4_usize).prop_map(|rounds| Step::Drive { rounds }),
        2 => Just(Step::Look),
    ]
}

fn any_effect() -> impl Strategy<Value = WorkEffect> {
    prop_oneof![
        5 => (any_counter(), any_change()).prop_map(
            |(counter, change)| WorkEffect::Change { counter, change }
        ),
        7 => (any_action(), prop::option::of(0..COUNTING), any::<bool>()).prop_map(
            |(action, completion, is_reported)| {
                WorkEffect::Post { action, completion, is_reported, is_triggered: false }
            }
        ),
        3 => any_action().prop_map(|action| {
            WorkEffect::Post { action, completion: None, is_reported: true, is_triggered: true }
        }),
    ]
}

/// Returns a counter that may be a trigger.
fn any_counter() -> impl Strategy<Value = CounterName> {
    prop_oneof![(0..KNOWN / 2).prop_map(CounterName::Known), (0..COUNTING).prop_map(CounterName::Counting),]
}

fn any_change() -> impl Strategy<Value = Change> {
    prop_oneof![
        4 => (1..4_u64).prop_map(Change::Add),
        1 => (1..3_u64).prop_map(Change::AddError),
        2 => (0..8_u64).prop_map(Change::Set),
    ]
}

fn any_action() -> impl Strategy<Value = Action> {
    prop_oneof![
        3 => any::<bool>().prop_map(|is_tagged| Action::Send { is_tagged }),
        3 => any::<bool>().prop_map(|is_tagged| Action::Receive { is_tagged }),
        8 => select(vec![
            Action::Write,
            Action::WriteInVain,
            Action::Read,
            Action::Add,
            Action::FetchAdd,
            Action::FetchAdd,
            Action::CompareSwap,
            Action::CompareSwap,
        ]),
    ]
}
