//! Sends random eager and offered messages of one sender into random receives and buffers. The
//! receives complete in order. If payload cannot be read or the link ends, messages are lost. Even
//! then each receive ends once, and no credit is lost.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use super::*;

const DEPTH_OPS: usize = 6;
/// The contexts of all receives and of all buffers.
const POSTED: u64 = 1;
const BUFFER: u64 = 2;

#[derive(Debug, Clone, Copy)]
enum Step {
    Post {
        len: usize,
    },
    PostBuffer {
        len: usize,
        min_free: usize,
    },
    /// An eager message, whole, or with its first `begun` bytes.
    Send {
        len: usize,
        begun: Option<usize>,
    },
    Offer {
        len: usize,
    },
    /// Delivers the next bytes of the message that is being read.
    GoOn {
        count: usize,
    },
    /// The sender sends a payload that was requested.
    Answer {
        which: usize,
    },
    Pull {
        can_pull: bool,
    },
    /// The next pull faults.
    Fault,
    /// Cancels a receive, or a buffer, with this context.
    Cancel {
        context: u64,
    },
    /// The application reads this many completions.
    Read {
        count: usize,
    },
}

/// Generates a step, or sometimes one that loses messages and receives.
fn any_step_or_accident() -> impl Strategy<Value = Step> {
    prop_oneof![
        20 => any_step(),
        1 => Just(Step::Fault),
        1 => (POSTED..=BUFFER).prop_map(|context| Step::Cancel { context }),
    ]
}

fn any_step() -> impl Strategy<Value = Step> {
    let len = || prop_oneof![2 => Just(0usize), 8 => 1..40usize];
    prop_oneof![
        4 => len().prop_map(|len| Step::Post { len }),
        2 => (8..80usize, 0..24usize).prop_map(|(len, min_free)| Step::PostBuffer { len, min_free }),
        6 => (len(), option::weighted(0.4, 0..40usize)).prop_map(|(len, begun)| Step::Send { len, begun }),
        3 => len().prop_map(|len| Step::Offer { len }),
        3 => (1..40usize).prop_map(|count| Step::GoOn { count }),
        2 => (0..4usize).prop_map(|which| Step::Answer { which }),
        3 => any::<bool>().prop_map(|can_pull| Step::Pull { can_pull }),
        3 => (1..5usize).prop_map(|count| Step::Read { count }),
    ]
}

fn message_content(number: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (number * 37 + at) as u8).collect()
}

/// A connection's receiver, its peer, and the application.
struct Scene {
    receiver: Receiver,
    asked: EffectsRecorder,
    /// The lengths of the messages that were sent.
    lens: Vec<usize>,
    /// The message that is being read, and how many of its bytes have arrived.
    reading: Option<(usize, usize)>,
    /// Payloads that the receiver has requested.
    asked_for: Vec<usize>,
    /// The number of the message whose completion is read next.
    read: usize,
    /// How many messages were read.
    received: usize,
    /// How many receives and buffers were posted, and how many of them have ended.
    posted: usize,
    ended: usize,
    /// How many messages were lost with a failed receive.
    lost: usize,
    /// Whether messages may be lost.
    may_lose: bool,
}

impl Scene {
    fn new(may_lose: bool) -> Scene {
        let (mut receiver, mut asked) = receiver_in_order();
        receiver.set_depth_ops(DEPTH_OPS);
        receiver.set_pull_step_max_bytes(8);
        asked.room = 3;
        Scene {
            receiver,
            asked,
            lens: Vec::new(),
            reading: None,
            asked_for: Vec::new(),
            read: 0,
            received: 0,
            posted: 0,
            ended: 0,
            lost: 0,
            may_lose,
        }
    }

    fn run_step(&mut self, step: Step) {
        let Scene { receiver, asked, .. } = self;
        match step {
            // Once as many receives are outstanding as the depth allows, the receiver refuses a
            // receive or a buffer.
            Step::Post { len } => {
                self.posted += usize::from(receiver.post(receive_request(len, POSTED), asked).is_ok());
            }
            Step::PostBuffer { len, min_free } => {
                let posted = receiver.post_multi_receive(receive_request(len, BUFFER), min_free, None, asked);
                self.posted += usize::from(posted.is_ok());
            }
            Step::Fault => receiver.pull_payloads(|_| true, |_, _, _, _| Pull::Fault, asked),
            Step::Cancel { context } => {
                receiver.cancel(CancelKey::Context(context), asked);
            }
            Step::Send { .. } | Step::Offer { .. } | Step::Answer { .. } if self.reading.is_some() => {}
            Step::Send { len, begun } => {
                let number = self.lens.len();
                let message =
                    Message { data: Some(number as u64), ..make_message(len, AwaitedReply::Nothing) };
                match begun.filter(|_| len > 0) {
                    None => receiver
                        .message_arrived(LINK, &message, &message_content(number, len), asked)
                        .unwrap(),
                    Some(_) => receiver.begin_message(LINK, &message, asked).unwrap(),
                }
                self.lens.push(len);
                if let Some(begun) = begun.filter(|_| len > 0) {
                    self.reading = Some((number, 0));
                    self.continue_message(begun);
                }
            }
            Step::Offer { len } => {
                let number = self.lens.len();
                let message =
                    Message { data: Some(number as u64), ..make_message(len, AwaitedReply::Nothing) };
                receiver
                    .message_offered(LINK, &message, number as u64, &number.to_le_bytes(), asked)
                    .unwrap();
                self.lens.push(len);
            }
            Step::GoOn { count } => self.continue_message(count),
            Step::Answer { which } => {
                if !self.asked_for.is_empty() {
                    let number = self.asked_for.remove(which % self.asked_for.len());
                    assert!(receiver.begin_data_if_requested(LINK, number as u64, self.lens[number] as u64));
                    self.reading = Some((number, 0));
                    self.continue_message(0);
                }
            }
            Step::Pull { can_pull } => self.pull_payloads(can_pull),
            Step::Read { count } => self.read_completions(count),
        }
        self.receiver.credit_sent(LINK);
        for (_, header) in self.asked.queued.drain(..) {
            if let Header::Clear { op, .. } = header {
                self.asked_for.push(op as usize);
            }
        }
    }

    fn continue_message(&mut self, count: usize) {
        let Some((number, at)) = self.reading else { return };
        let content = message_content(number, self.lens[number]);
        let end = (at + count).min(content.len());
        self.receiver.put_payload(LINK, &content[at..end], &mut self.asked);
        self.reading = (end < content.len()).then_some((number, end));
    }

    fn pull_payloads(&mut self, can_pull: bool) {
        let lens = &self.lens;
        let give = |_, remote: &RemotePayload, at_bytes: u64, into: &mut [IoSliceMut<'_>]| {
            if !can_pull {
                return Pull::Refused;
            }
            let number = usize::from_le_bytes(remote.as_bytes().try_into().unwrap());
            copy_from_offset(&message_content(number, lens[number]), at_bytes as usize, into);
            Pull::Done
        };
        self.receiver.pull_payloads(|_| true, give, &mut self.asked);
    }

    /// Reads completions. They must be those of the next messages.
    fn read_completions(&mut self, count: usize) {
        let count = count.min(self.asked.ended.len());
        for ended in self.asked.ended.drain(..count).collect::<Vec<_>>() {
            let (completion, error) = match ended {
                Ok(completion) => (completion, None),
                Err(failure) => (failure.completion, Some(failure.error)),
            };
            let is_release = completion.flags.contains(CompletionFlags::MULTI_RECV);
            self.ended += usize::from(is_release || completion.context == POSTED);
            if !completion.flags.contains(CompletionFlags::RECV) {
                continue; // A buffer is released, apart from any message.
            }
            match error {
                Some(OperationError::Cancelled) => continue,
                // The message of the receive is lost. The error does not say which message.
                Some(OperationError::Fault | OperationError::Link(_)) => {
                    self.lost += usize::from(!is_release);
                    continue;
                }
                _ => {}
            }
            // The messages in between were lost.
            assert!(completion.data >= self.read as u64, "{} comes after {}", completion.data, self.read);
            assert!(self.may_lose || completion.data == self.read as u64, "a message is missing");
            self.read = completion.data as usize;
            let len = self.lens[self.read];
            match error {
                None => assert_eq!(received_bytes(completion.buffer), message_content(self.read, len)),
                Some(OperationError::Truncated { overflow_bytes }) => {
                    let placed = completion.len_bytes;
                    assert_eq!(placed + overflow_bytes as usize, len);
                    assert_eq!(received_bytes(completion.buffer), message_content(self.read, len)[..placed]);
                }
                Some(error) => panic!("{error}"),
            }
            self.read += 1;
            self.received += 1;
        }
        self.receiver.deliver_held_reports(&mut self.asked);
    }

    /// Runs until every message that was sent is received.
    fn receive_all_sent(&mut self) {
        for _ in 0..100 * (self.lens.len() + 1) {
            if self.read == self.lens.len() {
                break;
            }
            for step in [
                Step::GoOn { count: 100 },
                Step::Answer { which: 0 },
                Step::GoOn { count: 100 },
                Step::Pull { can_pull: true },
                Step::Read { count: 3 },
                Step::Post { len: 40 },
            ] {
                self.run_step(step);
            }
        }
        assert_eq!(self.read, self.lens.len(), "a message is not received");
        assert!(!self.receiver.turns.has_turns());
    }

    fn read_all_completions(&mut self) {
        while !self.asked.ended.is_empty() {
            self.read_completions(usize::MAX);
        }
    }

    /// Ends the link, and checks that no receive is left.
    fn end_link_and_check(&mut self) {
        self.receiver.link_ended(LINK, &RESET, &mut self.asked);
        self.read_all_completions();
        assert!(self.lost + self.received <= self.lens.len(), "a message has ended twice");
        self.receiver.fail_all_and_close(Some(PEER), &RESET, &mut self.asked);
        self.read_all_completions();
        assert_eq!(self.receiver.outstanding_receives(), 0);
        assert_eq!(self.ended, self.posted, "each receive ends once");
        assert_eq!((self.receiver.fetches_len(), self.receiver.turns.has_turns()), (0, false));
        assert!(!self.receiver.has_unmatched_untagged());
        self.receiver.discard_all_unexpected(&mut self.asked);
        assert!(self.receiver.try_reserve_budget(BUDGET_BYTES as u64), "credit is lost");
    }
}

fn copy_from_offset(content: &[u8], mut at: usize, into: &mut [IoSliceMut<'_>]) {
    for place in into {
        let end = at + place.len();
        place.copy_from_slice(&content[at..end]);
        at = end;
    }
}

fn received_bytes(buffer: Buffer) -> Vec<u8> {
    match buffer {
        Buffer::Received(bytes) => bytes.to_vec(),
        Buffer::ReceivedLast(last) => last.message.to_vec(),
        other => panic!("not the buffer of a receive: {other:?}"),
    }
}

proptest! {
    #[test]
    fn messages_complete_in_the_order_of_their_arrival(steps in vec(any_step(), 0..80)) {
        let mut scene = Scene::new(false);
        for step in steps {
            scene.run_step(step);
        }
        scene.receive_all_sent();
    }

    /// Each receive ends once and in order, even if payload cannot be read, receives are cancelled,
    /// or the link ends.
    #[test]
    fn receives_end_once_whatever_is_lost(steps in vec(any_step_or_accident(), 0..80)) {
        let mut scene = Scene::new(true);
        for step in steps {
            scene.run_step(step);
        }
        scene.end_link_and_check();
    }
}
