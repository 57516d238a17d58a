//! Random programs in which the queues of members get full, and members leave.

use proptest::prelude::*;

use super::*;

#[derive(Debug, Clone)]
enum Step {
    Arrive { at: usize, len_bytes: usize },
    Post,
    PostBuffer { len_bytes: usize },
    Cancel { which: u64 },
    Read { at: usize, count: usize },
    Pass { at: usize },
    Leave { at: usize },
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        10 => (0..3_usize, 1..40_usize).prop_map(|(at, len_bytes)| Step::Arrive { at, len_bytes }),
        6 => Just(Step::Post),
        3 => (1..200_usize).prop_map(|len_bytes| Step::PostBuffer { len_bytes }),
        1 => any::<u64>().prop_map(|which| Step::Cancel { which }),
        4 => (0..3_usize, 1..4_usize).prop_map(|(at, count)| Step::Read { at, count }),
        6 => (0..3_usize).prop_map(|at| Step::Pass { at }),
        1 => (0..3_usize).prop_map(|at| Step::Leave { at }),
    ]
}

/// What a random program knows of one member.
struct Observed {
    member: Option<Member>,
    /// The messages that were sent to the member and were not read yet.
    due: VecDeque<Vec<u8>>,
}

/// Three members whose queues have room for two entries, and what the application has done so far.
struct Run {
    shared: Arc<SharedReceiver>,
    observed: Vec<Observed>,
    posted: u64,
    sent: u64,
    cancelled: Vec<u64>,
    /// The contexts in `cancelled` that a member has reported.
    told_cancelled: Vec<u64>,
}

impl Run {
    fn new() -> Run {
        let shared = SharedReceiver::new(1000, BUDGET_BYTES);
        let observe = |_| {
            let mut member = Member::join(&shared);
            member.sink.room = 2;
            Observed { member: Some(member), due: VecDeque::new() }
        };
        let observed = (0..3).map(observe).collect();
        Run { observed, shared, posted: 0, sent: 0, cancelled: Vec::new(), told_cancelled: Vec::new() }
    }

    fn run_step(&mut self, step: &Step) {
        match *step {
            Step::Arrive { at, len_bytes } => {
                let Observed { member: Some(member), due } = &mut self.observed[at] else { return };
                self.sent += 1;
                let mut message = self.sent.to_le_bytes().to_vec();
                message.resize(8 + len_bytes, self.sent as u8);
                member.receive_frame(&untagged_header(message.len() as u64), &message);
                due.push_back(message);
            }
            Step::Post => {
                self.posted += 1;
                let _ = self.shared.post_receive(None, receive_request(64, self.posted));
            }
            Step::PostBuffer { len_bytes } => {
                self.posted += 1;
                let _ = self.shared.post_multi_receive(
                    None,
                    receive_request(64 + len_bytes, self.posted),
                    1,
                    None,
                );
            }
            Step::Cancel { which } => {
                let context = which % (self.posted + 1);
                if self.shared.cancel(context) {
                    self.cancelled.push(context);
                }
            }
            Step::Read { at, count } => (0..count).for_each(|_| self.read_entry(at)),
            Step::Pass { at } => {
                if let Some(member) = &mut self.observed[at].member {
                    member.progress();
                }
            }
            Step::Leave { at } => {
                self.observed[at].due.clear();
                if let Some(mut member) = self.observed[at].member.take() {
                    self.record_cancelled(&member.sink.take_ended());
                    member.engine.leave_shared_receiver(&mut member.sink);
                }
            }
        }
    }

    /// Reads the first entry in a member's queue. If it is a message, it must be the next one that
    /// was sent to this member.
    fn read_entry(&mut self, at: usize) {
        let Observed { member: Some(member), due } = &mut self.observed[at] else { return };
        if member.sink.ended.is_empty() {
            return;
        }
        match member.sink.ended.remove(0) {
            Ok(completion) if completion.flags.contains(CompletionFlags::RECV) => {
                let bytes = match &completion.buffer {
                    Buffer::Received(bytes) => bytes.to_vec(),
                    Buffer::ReceivedLast(last) => last.message.to_vec(),
                    other => panic!("{other:?}"),
                };
                assert_eq!(Some(bytes), due.pop_front());
            }
            // A buffer that is released without a message.
            Ok(completion) => assert_eq!(completion.flags, CompletionFlags::MULTI_RECV),
            failed => self.record_cancelled(&[failed]),
        }
    }

    fn record_cancelled(&mut self, ended: &[Result<EndedOperation, FailedOperation>]) {
        for failure in ended.iter().filter_map(|ended| ended.as_ref().err()) {
            assert_eq!(failure.error, OperationError::Cancelled);
            self.told_cancelled.push(failure.completion.context);
        }
    }
}

proptest! {
    /// Each message to a member that stays is read once, at this member and in order, even if
    /// queues get full. Each cancelled receive is reported once, even if members leave. At the end
    /// the whole budget is free again.
    #[test]
    fn random_messages_complete_once_at_their_member(steps in prop::collection::vec(any_step(), 1..120)) {
        let mut run = Run::new();
        for step in &steps {
            run.run_step(step);
            let (unreported, counted_anew) = run.shared.unreported_counts();
            prop_assert_eq!(unreported, counted_anew);
        }
        // Every member fetches its mail and reads, until nothing more comes.
        for _ in 0..run.sent + run.posted {
            run.run_step(&Step::Post);
            for at in 0..3 {
                run.run_step(&Step::Pass { at });
                run.run_step(&Step::Read { at, count: 2 });
                run.run_step(&Step::Pass { at });
            }
        }
        for Observed { due, .. } in &run.observed {
            prop_assert!(due.is_empty(), "{} messages were not received", due.len());
        }
        for at in 0..3 {
            run.run_step(&Step::Leave { at });
        }
        let mut last = Member::join(&run.shared);
        last.progress();
        run.record_cancelled(&last.sink.take_ended());
        run.cancelled.sort_unstable();
        run.told_cancelled.sort_unstable();
        prop_assert_eq!(run.told_cancelled, run.cancelled);
        prop_assert_eq!(run.shared.unreported_counts(), (0, 0));
        drop(last);
        prop_assert!(run.shared.try_reserve_whole_budget(BUDGET_BYTES as u64));
    }
}
