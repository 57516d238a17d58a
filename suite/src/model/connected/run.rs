//! Runs a program, and receives all messages.

use homespun::endpoint::{RecvMsg, SendMsg};
use homespun::flags::{CompletionFlags, OpFlags};
use homespun::{Completion, Endpoint, Error, FabricAddress, OperationError, Tag};

use super::program::{LONGEST_BYTES, Program, Step};
use crate::connecting::{self, Side};
use crate::model::history::{BufferOp, Event, History, Level, Operation, ReceiveEnd, ReceiveOp};
use crate::model::run::expect_accepted_or_full;
use crate::payload::{marked_buffer, payload, received_bytes};
use crate::poll_completion;
use crate::{Deadline, Ended, Net};

/// The peer address of posts, which connected endpoints ignore.
const NOWHERE: FabricAddress = FabricAddress(0x5eed);

/// When all operations have ended, the run goes on until this many rounds bring no event. A message that is
/// reported twice would show in these rounds.
const SILENT_ROUNDS: usize = 10;

/// The history of a run, and its completions.
#[derive(Debug, Default)]
pub(super) struct Observed {
    pub(super) history: History,
    /// The number of receives that were posted before the first send.
    pub(super) posted_first: usize,
}

struct Runner {
    sides: [Side; 2],
    endpoints: [Endpoint; 2],
    observed: Observed,
}

pub(super) fn run_program(net: &Net, program: &Program) -> Observed {
    let sides = [open_side(net, program), open_side(net, program)];
    let endpoints = connect(&sides);
    let observed = Observed { history: History::of_places(2), ..Observed::default() };
    let mut runner = Runner { sides, endpoints, observed };
    if program.receives_first {
        program.steps.iter().filter(|step| step.is_receive()).for_each(|step| runner.run_step(step));
        runner.observed.posted_first = runner.observed.history.receives.len();
    }
    let is_left = |step: &&Step| !(program.receives_first && step.is_receive());
    program.steps.iter().filter(is_left).for_each(|step| runner.run_step(step));
    runner.receive_everything();
    runner.observed.history.record(Event::Finished);
    let Runner { sides: [one, other], endpoints, observed, .. } = runner;
    connecting::close_with_progress(endpoints, &[&one, &other]);
    observed
}

fn open_side(net: &Net, program: &Program) -> Side {
    let mut side = Side::new(net);
    let info = &mut side.info;
    if program.depth_ops > 0 {
        (info.tx.size_ops, info.rx.size_ops) = (program.depth_ops, program.depth_ops);
    }
    if program.unexpected_bytes > 0 {
        info.rx.total_buffered_recv_bytes = program.unexpected_bytes;
    }
    side
}

/// Connects two endpoints as [`connecting::connect_pair`] does, but each endpoint has the attributes of its
/// own side.
fn connect([client, server]: &[Side; 2]) -> [Endpoint; 2] {
    let listener = server.open_listener(connecting::LISTENER);
    let connecting = client.open_endpoint(connecting::CLIENT);
    connecting.connect(listener.name().unwrap(), b"").unwrap();
    let request = connecting::next_request_of_first_side(&[server, client]);
    let mut info = request.info();
    (info.tx, info.rx) = (server.info.tx.clone(), server.info.rx.clone());
    let accepting = server.domain.endpoint_for_request(&info, &request).unwrap();
    let accepting = server.bind_endpoint(accepting, connecting::SERVER);
    accepting.accept(b"").unwrap();
    for sides in [[server, client], [client, server]] {
        connecting::next_event_of_first_side(&sides).unwrap();
    }
    [connecting, accepting]
}

impl Runner {
    fn run_step(&mut self, step: &Step) {
        match *step {
            Step::Send { from, tag, len_bytes, level } => self.send(from, tag, len_bytes, level),
            Step::Receive { at, tagged, len_bytes } => drop(self.post_receive(at, tagged, len_bytes)),
            Step::ReceiveMany { at, len_bytes, min_free_bytes } => {
                let context = self.next_receive_context();
                self.endpoints[at].set_min_multi_recv_bytes(min_free_bytes);
                let posted = self.endpoints[at].recv_multi(marked_buffer(len_bytes), NOWHERE, context);
                if expect_accepted_or_full(posted.map_err(Error::from)) {
                    let buffer = BufferOp { min_free_bytes, took: Vec::new(), has_lost: false };
                    self.record_posted_receive(at, None, len_bytes, Some(buffer));
                }
            }
            Step::Drive { at, rounds } => (0..rounds).for_each(|_| self.sides[at].progress()),
            Step::Read { at, count } => {
                for _ in 0..count {
                    self.read_completion(at);
                }
            }
        }
    }

    fn send(&mut self, from: usize, tag: Option<u64>, len_bytes: usize, level: Level) {
        let identity = self.observed.history.sends.len();
        let flags = match level {
            Level::Inject => OpFlags::empty(),
            Level::Transmit => OpFlags::TRANSMIT_COMPLETE,
            Level::Delivery => OpFlags::DELIVERY_COMPLETE,
            Level::Match => OpFlags::MATCH_COMPLETE,
        };
        let message = SendMsg {
            buffers: vec![payload(identity as u64, len_bytes)],
            to: NOWHERE,
            tag: tag.map(Tag),
            data: Some(identity as u64),
            context: Operation::Send(identity).context(),
            flags,
        };
        if !expect_accepted_or_full(self.endpoints[from].sendmsg(message).map_err(Error::from)) {
            return;
        }
        let who = self.observed.history.incarnation_at(from);
        self.observed.history.post_send((who, 1 - from), tag, len_bytes, level);
    }

    /// Returns the context of the next receive.
    fn next_receive_context(&self) -> u64 {
        Operation::Receive(self.observed.history.receives.len()).context()
    }

    /// Posts a receive. Returns whether it was accepted.
    fn post_receive(&mut self, at: usize, tagged: Option<(u64, u64)>, len_bytes: usize) -> bool {
        let buffers = vec![marked_buffer(len_bytes)];
        let receive = RecvMsg {
            buffers,
            from: NOWHERE,
            tagged: tagged.map(|(tag, ignore)| Tag(tag).ignoring(ignore)),
            context: self.next_receive_context(),
            ..RecvMsg::default()
        };
        let accepted = expect_accepted_or_full(self.endpoints[at].recvmsg(receive).map_err(Error::from));
        if accepted {
            self.record_posted_receive(at, tagged, len_bytes, None);
        }
        accepted
    }

    fn record_posted_receive(
        &mut self,
        at: usize,
        tagged: Option<(u64, u64)>,
        len_bytes: usize,
        buffer: Option<BufferOp>,
    ) {
        let at = self.observed.history.incarnation_at(at);
        self.observed.history.post_receive(at, tagged, len_bytes).buffer = buffer;
    }

    /// Reads and records one completion. Returns false if there was none.
    fn read_completion(&mut self, at: usize) -> bool {
        let Some(ended) = poll_completion(&self.sides[at].cq) else { return false };
        let context = match &ended {
            Ok((completion, _)) => completion.context,
            Err(failed) => failed.completion.context,
        };
        match Operation::from_context(context) {
            Operation::Send(send) => self.record_send_end(at, send, &ended),
            Operation::Receive(receive) => self.record_receive_end(at, receive, &ended),
            other => panic!("{other:?} was never posted"),
        }
        true
    }

    fn record_send_end(&mut self, at: usize, identity: usize, ended: &Ended) {
        let now = self.observed.history.record(Event::Ended(Operation::Send(identity)));
        let send = &mut self.observed.history.sends[identity];
        assert!(ended.is_ok(), "send {identity} failed: {ended:?}");
        assert_eq!((send.from.place, send.ended), (at, None), "send {identity} ended again");
        (send.ended, send.ended_at) = (Some(Ok(())), now);
    }

    fn record_receive_end(&mut self, at: usize, number: usize, ended: &Ended) {
        let receive = &self.observed.history.receives[number];
        assert_eq!((receive.at.place, receive.ended), (at, None), "receive {number} ended again: {ended:?}");
        let (room_bytes, is_buffer) = (receive.len_bytes, receive.buffer.is_some());
        let (completion, overflow_bytes) = match ended {
            Ok((completion, _)) => (completion, 0),
            Err(failed) => match failed.error {
                OperationError::Truncated { overflow_bytes } => (&failed.completion, overflow_bytes),
                OperationError::Cancelled => {
                    self.observed.history.receives[number].ended = Some(ReceiveEnd::Cancelled);
                    return;
                }
                ref error => panic!("receive {number} failed: {error}"),
            },
        };
        let is_release = completion.flags.contains(CompletionFlags::MULTI_RECV);
        let message = (completion.flags != CompletionFlags::MULTI_RECV)
            .then(|| self.record_message(at, number, room_bytes, completion, overflow_bytes));
        let receive = &mut self.observed.history.receives[number];
        match &mut receive.buffer {
            Some(buffer) => buffer.took.extend(message),
            None => receive.ended = message.map(ReceiveEnd::Took),
        }
        if is_release {
            assert!(is_buffer, "receive {number} is released: {completion:?}");
            receive.ended = Some(ReceiveEnd::Released);
        }
    }

    /// Checks the message of a receive, and records its arrival.
    fn record_message(
        &mut self,
        at: usize,
        receive: usize,
        room_bytes: usize,
        completion: &Completion,
        overflow_bytes: u64,
    ) -> usize {
        let identity = usize::try_from(completion.data).expect("a small number");
        let send = &self.observed.history.sends[identity];
        assert_eq!((send.to, completion.tag.0), (at, send.tag.unwrap_or(0)));
        let placed_bytes = completion.len_bytes;
        assert_eq!(placed_bytes as u64 + overflow_bytes, send.len_bytes as u64);
        assert!(overflow_bytes == 0 || placed_bytes == room_bytes, "receive {receive} has room left");
        let bytes = received_bytes(&completion.buffer);
        assert!(bytes == payload(identity as u64, placed_bytes), "message {identity} has other bytes");
        self.observed.history.record_taken(receive, identity);
        identity
    }

    /// Posts receives for the messages that match no receive of the program. Returns when all messages have
    /// arrived and all sends have ended.
    fn receive_everything(&mut self) {
        let mut deadline = Deadline::new();
        let mut silent_rounds = 0;
        while silent_rounds < SILENT_ROUNDS {
            let has_read = (0..2).any(|at| self.read_completion(at));
            let sends = &self.observed.history.sends;
            let is_over = sends.iter().all(|send| send.ended.is_some() && send.arrived.is_some());
            silent_rounds = if is_over && !has_read { silent_rounds + 1 } else { 0 };
            if has_read {
                deadline = Deadline::new();
            } else if !is_over {
                (0..2).for_each(|at| self.post_drain_receives(at));
                deadline.yield_or_panic("the end of a message");
            }
        }
    }

    /// Posts a receive for any tagged message if a tagged message is missing. Does the same for untagged
    /// messages. Earlier receives of the program match first.
    fn post_drain_receives(&mut self, at: usize) {
        for tagged in [None, Some((0, u64::MAX))] {
            let History { sends, receives, .. } = &self.observed.history;
            let is_missing = sends.iter().any(|send| {
                send.to == at && send.tag.is_some() == tagged.is_some() && send.arrived.is_none()
            });
            let is_posted = receives.iter().any(|receive| {
                let takes_these = is_drain_receive(receive) && receive.tagged == tagged;
                receive.at.place == at && takes_these && receive.ended.is_none()
            });
            if is_missing && !is_posted && !self.post_receive(at, tagged, LONGEST_BYTES) {
                self.cancel_last_open_receive(at);
            }
        }
    }

    /// Cancels the last of the program's receives that has no message.
    fn cancel_last_open_receive(&mut self, at: usize) {
        for number in (0..self.observed.history.receives.len()).rev() {
            let receive = &mut self.observed.history.receives[number];
            let is_open = receive.at.place == at && receive.ended.is_none() && !receive.cancelled;
            // Cancel no drain receive. Otherwise the tagged and the untagged one would take turns in one
            // slot for ever.
            if is_open
                && !is_drain_receive(receive)
                && self.endpoints[at].cancel(Operation::Receive(number).context()).is_ok()
            {
                receive.cancelled = true;
                receive.cancel_asked_at = Some(self.observed.history.events.len() as u64);
                return;
            }
        }
    }
}

/// Whether the test posted this receive. Only the test's receives are this long.
fn is_drain_receive(receive: &ReceiveOp) -> bool {
    receive.len_bytes == LONGEST_BYTES
}
