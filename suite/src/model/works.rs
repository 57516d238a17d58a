//! Random programs of deferred work and triggered operations, checked against a [model](reference).
//!
//! The endpoint is in this process. The endpoint's peer is in this process or in one of its own.

mod reference;

use homespun::endpoint::SendMsg;
use homespun::flags::{Caps, OpFlags, Order};
use homespun::trigger::{DeferredAction, DeferredWork, Operation, Trigger};
use homespun::{Counter, CounterAttr, CqAttr, Errno, FabricAddress, OpenEndpoint, OperationError};
use proptest::prelude::*;
use proptest::sample::select;

use self::reference::{Bound, COUNTING, Counted, KNOWN, Reference};
use crate::model::run::close_while_driving;
use crate::model::time_limit::run_with_time_limit;
use crate::payload::{marked_buffer, payload, received_bytes};
use crate::{Deadline, Net, Party, Setup, TransportKind, Turns, poll_completion};

/// A program of deferred work.
#[derive(Debug, Clone)]
pub struct Program {
    /// The seed of the loopback network's faults.
    seed: u64,
    /// The transmit size of the endpoint, or 0 for the default. With a small size, works wait for room.
    depth_ops: usize,
    steps: Vec<Step>,
}

/// A counter, by its number among those of its kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CounterName {
    /// A counter that only the application and works change. So its value is known at every moment.
    Known(usize),
    /// A counter that also counts operations. The value may grow whenever an endpoint makes progress.
    Counting(usize),
}

#[derive(Debug, Clone)]
enum Step {
    /// Queues deferred work or a triggered operation.
    Queue { trigger: CounterName, threshold: u64, effect: WorkEffect },
    /// The application changes a counter.
    Change { counter: CounterName, change: Change },
    /// Cancels a work, whether or not it has run.
    Cancel { which: usize },
    /// Flushes the works that wait for a counter, or all works.
    Flush { counter: Option<CounterName> },
    /// Drives both sides without reading entries.
    Drive { rounds: usize },
    /// Compares all counters with the model.
    Look,
}

/// What a work does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WorkEffect {
    /// Adds to a counter.
    Add { counter: CounterName, value: u64 },
    /// Sends a message. If `completion` names a counting counter, that counter counts the end of the send.
    /// `is_reported` tells whether the endpoint reports the end.
    Send { completion: Option<usize>, is_reported: bool, is_triggered: bool },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change {
    Add(u64),
    AddError(u64),
    /// Sets a known counter; adds to a counting counter.
    Set(u64),
}

/// Returns any program.
pub fn any_program() -> impl Strategy<Value = Program> {
    let steps = prop::collection::vec(any_step(), 1..40);
    (any::<u64>(), select(vec![0, 0, 0, 2]), steps).prop_map(|(seed, depth_ops, steps)| Program {
        seed,
        depth_ops,
        steps,
    })
}

fn any_step() -> impl Strategy<Value = Step> {
    let threshold = prop_oneof![9 => 0..8_u64, 1 => Just(u64::MAX)];
    let change = prop_oneof![
        4 => (1..4_u64).prop_map(Change::Add),
        1 => (1..3_u64).prop_map(Change::AddError),
        2 => (0..8_u64).prop_map(Change::Set),
    ];
    prop_oneof![
        15 => (any_counter(), threshold, any_effect()).prop_map(
            |(trigger, threshold, effect)| Step::Queue { trigger, threshold, effect }
        ),
        7 => (any_counter(), change).prop_map(|(counter, change)| Step::Change { counter, change }),
        2 => any::<usize>().prop_map(|which| Step::Cancel { which }),
        1 => prop::option::of(any_counter()).prop_map(|counter| Step::Flush { counter }),
        3 => (1..4_usize).prop_map(|rounds| Step::Drive { rounds }),
        2 => Just(Step::Look),
    ]
}

fn any_effect() -> impl Strategy<Value = WorkEffect> {
    prop_oneof![
        5 => (any_counter(), 1..8_u64).prop_map(|(counter, value)| WorkEffect::Add { counter, value }),
        7 => (prop::option::of(0..COUNTING), any::<bool>()).prop_map(|(completion, is_reported)| {
            WorkEffect::Send { completion, is_reported, is_triggered: false }
        }),
        3 => Just(WorkEffect::Send { completion: None, is_reported: true, is_triggered: true }),
    ]
}

fn any_counter() -> impl Strategy<Value = CounterName> {
    prop_oneof![(0..KNOWN).prop_map(CounterName::Known), (0..COUNTING).prop_map(CounterName::Counting)]
}

/// Runs a program over a new network of this kind. Panics unless the model explains its results.
pub fn run_and_check(turns: Turns, transport: &TransportKind, program: &Program) {
    let net = Net::new(&transport.with_seed(program.seed), turns);
    run_with_time_limit(program, || {
        let mut runner = Runner::open(&net, program);
        program.steps.iter().for_each(|step| runner.run_step(step));
        runner.wait_for_due_works();
        runner.check_sends();
        close_while_driving(&net, runner.own.endpoint);
    });
}

/// The fabric address of either endpoint in the other's address vector.
const PEER: FabricAddress = FabricAddress(0);

/// The length of a message.
const LEN_BYTES: usize = size_of::<u64>();

/// When all operations have ended, the run goes on until this many rounds bring no event. A work that runs
/// twice would show in these rounds.
const SILENT_ROUNDS: usize = 10;

struct Runner<'a> {
    net: &'a Net,
    own: OpenEndpoint,
    peer: Party,
    known: [Counter; KNOWN],
    counting: [Counter; COUNTING],
    is_shallow: bool,
    reference: Reference,
    /// The reported result of each work.
    reports: Vec<Option<Result<(), OperationError>>>,
    /// The works whose messages the peer has received, in the order of receiving.
    arrived: Vec<usize>,
    /// Triggered operations that were cancelled.
    cancelled: Vec<usize>,
}

impl Runner<'_> {
    fn open<'a>(net: &'a Net, program: &Program) -> Runner<'a> {
        let domain = net.open_other_domain();
        let mut info = net.info().clone();
        info.caps |= Caps::TRIGGER;
        if program.depth_ops > 0 {
            info.tx.size_ops = program.depth_ops;
        }
        info.tx.msg_order |= Order::STRICT;
        info.rx.msg_order |= Order::STRICT;
        let own = domain.endpoint_builder(&info).cq_attr(CqAttr::default()).open().expect("an endpoint");
        let peer = net.open_party_with(Setup { order: Order::STRICT, ..Setup::default() });
        own.av.insert_one(peer.endpoint.name().expect("a name")).expect("the peer's name");
        peer.insert(own.endpoint.name().expect("a name"));
        let counter = || domain.open_counter(&CounterAttr::default()).expect("a counter");
        let runner = Runner {
            net,
            own,
            peer,
            known: [(); KNOWN].map(|()| counter()),
            counting: [(); COUNTING].map(|()| counter()),
            is_shallow: program.depth_ops > 0,
            reference: Reference::default(),
            reports: Vec::new(),
            arrived: Vec::new(),
            cancelled: Vec::new(),
        };
        runner.have_peer_receive();
        runner
    }

    fn counter(&self, name: CounterName) -> &Counter {
        match name {
            CounterName::Known(number) => &self.known[number],
            CounterName::Counting(number) => &self.counting[number],
        }
    }

    fn run_step(&mut self, step: &Step) {
        match *step {
            Step::Queue { trigger, threshold, effect } => self.queue_work(trigger, threshold, effect),
            Step::Change { counter, change } => self.change_counter(counter, change),
            Step::Cancel { which } => {
                if !self.reports.is_empty() {
                    self.cancel_work(which % self.reports.len());
                }
            }
            Step::Flush { counter } => self.flush_works_if_predictable(counter),
            Step::Drive { rounds } => (0..rounds).for_each(|_| {
                self.own.cq.progress();
                self.net.progress();
            }),
            Step::Look => self.check_counters(),
        }
    }

    /// Queues a work.
    fn queue_work(&mut self, trigger: CounterName, threshold: u64, effect: WorkEffect) {
        let (trigger, effect) = match (trigger, effect) {
            // The model cannot know when a work finds room, so none of a known counter needs room.
            (CounterName::Known(number), WorkEffect::Send { .. }) if self.is_shallow => {
                (CounterName::Counting(number), effect)
            }
            // Nor does it know when a work of a counting counter runs.
            (CounterName::Counting(_), WorkEffect::Add { counter: CounterName::Known(number), value }) => {
                (trigger, WorkEffect::Add { counter: CounterName::Counting(number), value })
            }
            fitting => fitting,
        };
        let number = self.reports.len();
        let when = Trigger { counter: self.counter(trigger).clone(), threshold };
        let (action, completion) = match effect {
            WorkEffect::Add { counter, value } => {
                (Some(DeferredAction::Add { counter: self.counter(counter).clone(), value }), None)
            }
            WorkEffect::Send { completion, is_reported, is_triggered } => {
                let mut flags = OpFlags::empty();
                flags.set(OpFlags::COMPLETION, is_reported);
                // The context is small, like the number of a work in the library's queue. So the checks
                // notice if the library confuses the two.
                let context = number as u64;
                let (buffers, data) = (vec![payload(context, LEN_BYTES)], Some(context));
                let operation =
                    Operation::Send(SendMsg { buffers, to: PEER, tag: None, data, context, flags });
                let endpoint = self.own.endpoint.clone();
                if is_triggered {
                    endpoint.trigger(&when, operation).expect("room for a triggered operation");
                    (None, None)
                } else {
                    (Some(DeferredAction::Post { endpoint, operation }), completion)
                }
            }
        };
        if let Some(action) = action {
            let completion = completion.map(|number| self.counting[number].clone());
            let work = DeferredWork { context: number as u64, trigger: when, action, completion };
            self.own.domain.queue_work(work).expect("room for work");
        }
        self.reports.push(None);
        self.reference.queue_work(trigger, threshold, effect);
    }

    fn change_counter(&mut self, name: CounterName, change: Change) {
        let counter = self.counter(name);
        let change = match (name, change) {
            (CounterName::Counting(_), Change::Set(value)) => Change::Add(value),
            _ => change,
        };
        match change {
            Change::Add(value) => counter.add(value),
            Change::AddError(value) => counter.add_error(value),
            Change::Set(value) => counter.set(value),
        }
        self.reference.change_counter(name, change);
        self.reference.run_due_works();
    }

    fn cancel_work(&mut self, number: usize) {
        let is_triggered = self.reference.works[number].is_triggered();
        let result = if is_triggered {
            self.own.endpoint.cancel(number as u64)
        } else {
            self.own.domain.cancel_work(number as u64)
        };
        let certainly_waits =
            self.reference.may_wait(number) && !self.reference.upper_bound().is_done[number];
        if let Err(error) = result {
            assert_eq!(error.errno(), Errno::ENOENT);
            assert!(!certainly_waits, "work {number} waits, and was not cancelled");
            return;
        }
        assert!(!self.reference.is_cancelled(number), "work {number} was taken back twice");
        assert!(self.reports[number].is_none(), "work {number} had ended, and was cancelled");
        if is_triggered {
            // If the operation was already posted, it still ends as cancelled.
            self.cancelled.push(number);
        } else {
            assert!(self.reference.may_wait(number), "work {number} was done, and was cancelled");
        }
        self.reference.cancel_work(number);
    }

    /// Flushes the works of a counter, or all works. Works of counting counters are flushed only while the
    /// model knows which of them wait. For this, no operation may be outstanding.
    fn flush_works_if_predictable(&mut self, counter: Option<CounterName>) {
        let bound = self.reference.upper_bound();
        let is_known = matches!(counter, Some(CounterName::Known(_)));
        if !is_known && (self.is_shallow || values_of(&self.counting) != bound.counted) {
            return;
        }
        self.own.domain.flush_work(counter.map(|counter| self.counter(counter)));
        for number in 0..self.reports.len() {
            let work = &self.reference.works[number];
            let is_meant = counter.is_none_or(|counter| counter == work.trigger) && !work.is_triggered();
            if is_meant && self.reference.may_wait(number) && !bound.is_done[number] {
                self.reference.cancel_work(number);
            }
        }
    }

    /// Compares the counters with the model. A known counter must have the value in the model. A counting
    /// counter must not exceed its bound.
    fn check_counters(&self) {
        let bound = self.reference.upper_bound();
        assert_eq!(values_of(&self.known), self.reference.known, "known counters");
        for (counted, most) in values_of(&self.counting).into_iter().zip(bound.counted) {
            let is_possible = counted.0 <= most.0 && counted.1 <= most.1;
            assert!(is_possible, "a counter is at {counted:?}, and can be no further than {most:?}");
        }
    }

    fn have_peer_receive(&self) {
        let any = FabricAddress::UNSPECIFIED;
        self.peer.endpoint.recv(marked_buffer(LEN_BYTES), any, 0).expect("room for a receive");
    }

    /// Reads all available entries and messages. Returns whether it has read any.
    fn read_all(&mut self) -> bool {
        let mut has_read = false;
        while let Some(ended) = poll_completion(&self.own.cq) {
            has_read = true;
            let (context, result) = match ended {
                Ok((completion, _)) => (completion.context, Ok(())),
                Err(failed) => (failed.completion.context, Err(failed.error)),
            };
            let before = self.reports[context as usize].replace(result);
            assert_eq!(before, None, "work {context} was reported again");
        }
        while let Some(ended) = self.peer.poll_completion() {
            has_read = true;
            let (completion, _) = ended.expect("nothing fails at the peer");
            let work = completion.data as usize;
            let is_possible = self.reference.upper_bound().is_done[work];
            assert!(is_possible, "work {work} was done, and its counter cannot be there");
            assert_eq!(received_bytes(&completion.buffer), payload(completion.data, LEN_BYTES));
            self.arrived.push(work);
            self.have_peer_receive();
        }
        has_read
    }

    /// Waits until all due works have ended.
    fn wait_for_due_works(&mut self) {
        let bound = self.reference.upper_bound();
        let mut deadline = Deadline::new();
        let mut silent_rounds = 0;
        while silent_rounds < SILENT_ROUNDS {
            if self.read_all() {
                deadline = Deadline::new();
                silent_rounds = 0;
            } else if self.has_everything_ended(&bound) {
                silent_rounds += 1;
            } else {
                deadline.yield_or_panic_with(|| {
                    format!("{bound:?} of {:#?} and {:?}", self.reference, self.reports)
                });
            }
            self.check_counters();
        }
    }

    fn has_everything_ended(&self, bound: &Bound) -> bool {
        let is_missing = |number: usize| {
            let WorkEffect::Send { is_reported, .. } = self.reference.works[number].effect else {
                return false;
            };
            let is_unsent = !self.arrived.contains(&number);
            let is_unreported = self.reports[number].is_none();
            bound.is_done[number] && (is_reported && is_unreported || is_unsent)
                || self.cancelled.contains(&number) && is_unreported
        };
        values_of(&self.counting) == bound.counted && !(0..self.reports.len()).any(is_missing)
    }

    /// Checks that each send that was due was done once, that no other one was done, and that those of one
    /// counter were done in the order in which they became due.
    fn check_sends(&self) {
        let works = &self.reference.works;
        let is_done = self.reference.upper_bound().is_done;
        for (number, report) in self.reports.iter().enumerate() {
            let is_right = match report {
                Some(Ok(())) => is_done[number] && works[number].is_reported(),
                Some(Err(OperationError::Cancelled)) => self.cancelled.contains(&number),
                Some(Err(_)) => false,
                None => true,
            };
            assert!(is_right, "work {number}: {report:?}");
        }
        let mut arrived = self.arrived.clone();
        arrived.sort_unstable();
        let sent: Vec<usize> =
            (0..works.len()).filter(|&work| is_done[work] && works[work].sends()).collect();
        assert_eq!(arrived, sent, "the works whose messages have arrived");
        for (place, &later) in self.arrived.iter().enumerate() {
            for &earlier in &self.arrived[..place] {
                let is_late = self.reference.is_done_before(later, earlier);
                assert!(!is_late, "work {earlier} was done before work {later}");
            }
        }
    }
}

fn values_of<const N: usize>(counters: &[Counter; N]) -> [Counted; N] {
    counters.each_ref().map(|counter| (counter.read(), counter.read_error()))
}
