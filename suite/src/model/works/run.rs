//! Runs a program, and waits until all due work has run.

use homespun::endpoint::ReadMsg;
use homespun::flags::{CompletionFlags, OpFlags};
use homespun::trigger::{DeferredAction, DeferredWork, Trigger};
use homespun::{Again, Errno, Error, OperationError, RemoteMemory};

use super::fixture::{CONSTANT_AT, PEER, WorkFixture};
use super::operations::{LEN_BYTES, make_operation, make_receive, make_send};
use super::program::{Action, Change, CounterName, Program, Step, WorkEffect};
use super::reference::{COUNTING, KNOWN, Reference};
use crate::payload::{marked_buffer, received_bytes};
use crate::poll_completion;
use crate::{Deadline, Net};

/// The first context of the test's own operations.
const RUNNERS_CONTEXT: u64 = 1 << 32;

/// The context of the read that ends a program.
const FENCE_CONTEXT: u64 = RUNNERS_CONTEXT + 2;

/// When all operations have ended, the run goes on until this many rounds bring no event. A work that runs
/// twice would show in these rounds.
const SILENT_ROUNDS: usize = 10;

/// The observed results.
#[derive(Debug, Default)]
pub(super) struct Observed {
    /// The reported result of each work: a fetched value, the number of a received message, or 0.
    pub(super) reports: Vec<Option<Result<u64, OperationError>>>,
    /// The works whose messages the peer has received, in the order of receiving. The first list has
    /// untagged messages, the second has tagged ones.
    pub(super) sent: [Vec<usize>; 2],
    /// The messages of the peer that no work has received.
    pub(super) left_over: [usize; 2],
    /// Works that were cancelled as operations of their endpoint.
    pub(super) cancelled: Vec<usize>,
    pub(super) region: Vec<u8>,
}

pub(super) struct Runner<'a> {
    fixture: WorkFixture<'a>,
    is_shallow: bool,
    pub(super) reference: Reference,
    pub(super) seen: Observed,
    /// The number of messages of each kind that the peer has sent.
    messages: [usize; 2],
    /// Whether the read that ends the program has completed.
    is_past_fence: bool,
}

pub(super) fn run_program<'a>(net: &'a Net, program: &Program) -> Runner<'a> {
    let mut runner = Runner {
        fixture: WorkFixture::open(net, program),
        is_shallow: program.depth_ops > 0,
        reference: Reference::default(),
        seen: Observed::default(),
        messages: [0; 2],
        is_past_fence: false,
    };
    for is_tagged in [false, true] {
        runner.have_peer_receive(is_tagged);
    }
    for step in &program.steps {
        runner.run_step(step);
    }
    runner.wait_for_due_works();
    runner.receive_leftover_messages();
    runner.seen.region = runner.fixture.region.content();
    if program.closes_endpoint {
        runner.close_endpoint_and_reach_thresholds();
    }
    runner
}

/// Returns the result counter of a known counter that may be a trigger. Only works of that known counter
/// change its result counter. So the result counter shows the order in which those works ran.
fn result_counter_of(trigger: usize) -> CounterName {
    CounterName::Known(KNOWN / 2 + trigger)
}

impl Runner<'_> {
    fn run_step(&mut self, step: &Step) {
        match *step {
            Step::Queue { trigger, threshold, effect: WorkEffect::Change { counter, change } } => {
                self.queue_change_work(trigger, threshold, counter, change);
            }
            Step::Queue { trigger, threshold, effect } => self.queue_post_work(trigger, threshold, effect),
            Step::Change { counter, change } => self.change_counter(counter, change),
            Step::Cancel { which } => {
                if !self.reference.works.is_empty() {
                    self.cancel_work(which % self.reference.works.len());
                }
            }
            Step::Flush { counter } => self.flush_works_if_predictable(counter),
            Step::Drive { rounds } => (0..rounds).for_each(|_| self.fixture.progress()),
            Step::Look => self.check_counters(),
        }
    }

    /// Queues work that changes a counter. A work of a known counter may add to any trigger counter, and may
    /// set only its result counter. A work of a counting counter only adds to counting counters. After a
    /// set, the value would depend on the order of works of different counters, and no such order is
    /// promised.
    fn queue_change_work(
        &mut self,
        trigger: CounterName,
        threshold: u64,
        counter: CounterName,
        change: Change,
    ) {
        let (counter, change) = match (trigger, counter, change) {
            (CounterName::Known(number), _, Change::Set(_)) => (result_counter_of(number), change),
            (CounterName::Known(_), _, Change::Add(value) | Change::AddError(value)) => {
                (counter, Change::Add(value))
            }
            (
                CounterName::Counting(_),
                CounterName::Known(number) | CounterName::Counting(number),
                Change::Add(value) | Change::AddError(value) | Change::Set(value),
            ) => (CounterName::Counting(number), Change::Add(value)),
        };
        let target = self.fixture.counter(counter).clone();
        let action = match change {
            Change::Set(value) => DeferredAction::Set { counter: target, value },
            Change::Add(value) | Change::AddError(value) => DeferredAction::Add { counter: target, value },
        };
        let context = self.reference.works.len() as u64;
        let trigger_counter = Trigger { counter: self.fixture.counter(trigger).clone(), threshold };
        let work = DeferredWork { context, trigger: trigger_counter, action, completion: None };
        self.fixture.domain.queue_work(work).expect("room for work");
        self.seen.reports.push(None);
        self.reference.queue_work(trigger, threshold, WorkEffect::Change { counter, change });
    }

    /// Queues work that posts an operation. If the endpoint has a small transmit size, the model cannot know
    /// when the work runs. Then the work waits for a counting counter.
    fn queue_post_work(&mut self, trigger: CounterName, threshold: u64, effect: WorkEffect) {
        let WorkEffect::Post { action, completion, is_reported, is_triggered } = effect else { return };
        let trigger = match trigger {
            CounterName::Known(number) if self.is_shallow => CounterName::Counting(number),
            trigger => trigger,
        };
        if let Action::Receive { is_tagged } = action {
            self.have_peer_send(is_tagged);
        }
        let work = self.reference.works.len();
        let mut flags = OpFlags::empty();
        flags.set(OpFlags::COMPLETION, is_reported);
        // Some triggered operations copy their payload when they are posted.
        let may_copy = matches!(action, Action::Send { .. } | Action::Write | Action::Add);
        flags.set(OpFlags::INJECT, is_triggered && may_copy && threshold.is_multiple_of(2));
        let operation = make_operation(&self.fixture, work, action, flags);
        let when = Trigger { counter: self.fixture.counter(trigger).clone(), threshold };
        if is_triggered {
            self.fixture.post_triggered(&when, operation);
        } else {
            let completion = completion.map(CounterName::Counting);
            let completion = completion.map(|counter| self.fixture.counter(counter).clone());
            let action = self.fixture.make_post_action(operation);
            let work = DeferredWork { context: work as u64, trigger: when, action, completion };
            self.fixture.domain.queue_work(work).expect("room for work");
        }
        self.seen.reports.push(None);
        self.reference.queue_work(trigger, threshold, effect);
    }

    fn change_counter(&mut self, name: CounterName, change: Change) {
        let counter = self.fixture.counter(name);
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
        let work = &self.reference.works[number];
        let is_triggered = matches!(work.effect, WorkEffect::Post { is_triggered: true, .. });
        let is_receive = matches!(work.effect, WorkEffect::Post { action: Action::Receive { .. }, .. });
        let result = if is_triggered {
            self.fixture.cancel(is_receive, number as u64)
        } else {
            self.fixture.domain.cancel_work(number as u64)
        };
        let certainly_waits =
            self.reference.may_wait(number) && !self.reference.upper_bound().is_done[number];
        if let Err(error) = result {
            assert_eq!(error.errno(), Errno::ENOENT);
            assert!(!certainly_waits, "work {number} waits, and was not cancelled");
            return;
        }
        assert!(!self.reference.is_cancelled(number), "work {number} was taken back twice");
        assert!(self.seen.reports[number].is_none(), "work {number} had ended, and was cancelled");
        if is_triggered {
            // If the operation was already posted, it still ends as cancelled.
            self.seen.cancelled.push(number);
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
        if !is_known && (self.is_shallow || self.fixture.values_of_counting_counters() != bound.counted) {
            return;
        }
        self.fixture.domain.flush_work(counter.map(|counter| self.fixture.counter(counter)));
        for number in 0..self.reference.works.len() {
            let work = &self.reference.works[number];
            let is_triggered = matches!(work.effect, WorkEffect::Post { is_triggered: true, .. });
            let is_meant = counter.is_none_or(|counter| counter == work.trigger) && !is_triggered;
            if is_meant && self.reference.may_wait(number) && !bound.is_done[number] {
                self.reference.cancel_work(number);
            }
        }
    }

    /// Compares the counters with the model. A known counter must have the value in the model. A counting
    /// counter must not exceed its bound.
    fn check_counters(&mut self) {
        let bound = self.reference.upper_bound();
        assert_eq!(self.fixture.values_of_known_counters(), self.reference.known, "known counters");
        for (counted, most) in self.fixture.values_of_counting_counters().into_iter().zip(bound.counted) {
            let is_possible = counted.0 <= most.0 && counted.1 <= most.1;
            assert!(is_possible, "a counter is at {counted:?}, and can be no further than {most:?}");
        }
    }

    fn have_peer_send(&mut self, is_tagged: bool) {
        let number = &mut self.messages[usize::from(is_tagged)];
        let message = make_send(is_tagged, *number, RUNNERS_CONTEXT, OpFlags::empty());
        self.fixture.peer.endpoint.sendmsg(message).expect("room for a send");
        *number += 1;
    }

    fn have_peer_receive(&mut self, is_tagged: bool) {
        let context = u64::from(is_tagged);
        let receive = make_receive(is_tagged, context, OpFlags::empty());
        self.fixture.peer.endpoint.recvmsg(receive).expect("room for a receive");
    }

    /// Reads all available entries and messages. Returns whether it has read any.
    fn read_all(&mut self) -> bool {
        let mut has_read = false;
        while let Some(ended) = poll_completion(&self.fixture.cq) {
            has_read = true;
            self.record_report(ended);
        }
        while let Some(ended) = self.fixture.peer.poll_completion() {
            has_read = true;
            let (completion, _) = ended.expect("nothing fails at the peer");
            if completion.flags.contains(CompletionFlags::RECV) {
                let (kind, work) = (completion.context as usize, completion.data as usize);
                let is_possible = self.reference.upper_bound().is_done[work];
                assert!(is_possible, "work {work} was done, and its counter cannot be there");
                self.seen.sent[kind].push(work);
                self.have_peer_receive(kind == 1);
            }
        }
        has_read
    }

    fn record_report(&mut self, ended: crate::Ended) {
        let (context, result) = match ended {
            Ok((completion, _)) => {
                let is_receive = completion.flags.contains(CompletionFlags::RECV);
                let is_fetch = completion.flags.contains(CompletionFlags::READ);
                let returned = match is_receive {
                    true => completion.data,
                    false if is_fetch => {
                        let bytes = received_bytes(&completion.buffer);
                        u64::from_le_bytes(bytes.try_into().expect("a word"))
                    }
                    false => 0,
                };
                (completion.context, Ok(returned))
            }
            Err(failed) => (failed.completion.context, Err(failed.error)),
        };
        if context == FENCE_CONTEXT {
            result.expect("everything before it has ended");
            self.is_past_fence = true;
            return;
        }
        if context >= RUNNERS_CONTEXT {
            // The test posted this receive for a message that no work has received. The receive has
            // completed or failed.
            if result.is_ok() {
                self.seen.left_over[(context - RUNNERS_CONTEXT) as usize] += 1;
            }
            return;
        }
        let before = self.seen.reports[context as usize].replace(result);
        assert_eq!(before, None, "work {context} was reported again");
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
                    format!("{bound:?} of {:#?} and {:?}", self.reference, self.seen)
                });
            }
            self.check_counters();
        }
    }

    fn has_everything_ended(&self, bound: &super::reference::Bound) -> bool {
        let is_missing = |number: usize| {
            let WorkEffect::Post { action, is_reported, .. } = self.reference.works[number].effect else {
                return false;
            };
            let is_cancelled = self.seen.cancelled.contains(&number);
            let is_due = bound.is_done[number] && !self.reference.is_cancelled(number);
            let must_report = is_reported || action == Action::WriteInVain;
            let is_unsent = match action {
                Action::Send { is_tagged } => !self.seen.sent[usize::from(is_tagged)].contains(&number),
                _ => false,
            };
            let is_unreported = self.seen.reports[number].is_none();
            is_due && (must_report && is_unreported || is_unsent) || is_cancelled && is_unreported
        };
        self.fixture.values_of_counting_counters() == bound.counted
            && !(0..self.reference.works.len()).any(is_missing)
    }

    /// Receives the peer's messages that no work has received.
    fn receive_leftover_messages(&mut self) {
        let bound = self.reference.upper_bound();
        for is_tagged in [false, true] {
            let kind = usize::from(is_tagged);
            let action = Action::Receive { is_tagged };
            let taken = (0..self.reference.works.len()).filter(|&number| {
                let is_receive = matches!(self.reference.works[number].effect,
                    WorkEffect::Post { action: posted, .. } if posted == action);
                is_receive && bound.is_done[number] && !self.reference.is_cancelled(number)
            });
            let left = self.messages[kind] - taken.count();
            let context = RUNNERS_CONTEXT + kind as u64;
            let deadline = Deadline::new();
            while self.seen.left_over[kind] < left {
                let before = self.seen.left_over[kind];
                let receive = make_receive(is_tagged, context, OpFlags::COMPLETION);
                self.fixture.post_receive(receive);
                while self.seen.left_over[kind] == before {
                    self.read_all();
                    deadline.yield_or_panic_with(|| format!("{left} messages, of {:?}", self.seen));
                }
            }
        }
        self.fence_and_wait();
        self.check_counters();
    }

    /// Closes the endpoint, then raises the counters past most thresholds. Works that post operations need
    /// the endpoint. So only works that change counters still run.
    fn close_endpoint_and_reach_thresholds(&mut self) {
        self.fixture.close_endpoint();
        let is_done = self.reference.upper_bound().is_done;
        for (number, is_done) in is_done.into_iter().enumerate() {
            let is_post = matches!(self.reference.works[number].effect, WorkEffect::Post { .. });
            if is_post && self.reference.may_wait(number) && !is_done {
                self.reference.cancel_work(number);
            }
        }
        for number in 0..KNOWN / 2 {
            self.change_counter(CounterName::Known(number), Change::Add(10));
        }
        for number in 0..COUNTING {
            self.change_counter(CounterName::Counting(number), Change::Add(10));
        }
        self.wait_for_due_works();
    }

    /// Posts a fenced read, and waits for its completion. The read completes after all earlier operations.
    fn fence_and_wait(&mut self) {
        let region = &self.fixture.region;
        let memory = RemoteMemory { address: region.address_at(CONSTANT_AT), key: region.key() };
        let make_read = || ReadMsg {
            buffers: vec![marked_buffer(LEN_BYTES)],
            from: PEER,
            memory,
            context: FENCE_CONTEXT,
            flags: OpFlags::FENCE | OpFlags::COMPLETION,
        };
        let deadline = Deadline::new();
        // Works that have become due are posted first, and may fill the queue.
        while let Err(refused) = self.fixture.endpoint().readmsg(make_read()) {
            assert_eq!(refused.error, Error::Again(Again::QueueFull));
            self.read_all();
            deadline.yield_or_panic("room for the read behind a fence");
        }
        while !self.is_past_fence {
            self.read_all();
            deadline.yield_or_panic("the read behind a fence");
        }
    }
}
