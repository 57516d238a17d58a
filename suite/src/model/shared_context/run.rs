//! Runs a program, and records its history.

use homespun::endpoint::SendMsg;
use homespun::flags::CompletionFlags;
use homespun::{Error, FabricAddress, Misuse, OperationError, Tag};
use homespun_engine::loopback::Faults;

use super::fixture::ContextFixture;
use super::{Observed, Program, ReceiveLosses};
use crate::model::Offer;
use crate::model::history::{BufferOp, Event, Incarnation, Operation};
use crate::model::program::{SendCall, Step};
use crate::model::run::{Told, expect_accepted_or_full, make_receive, source_address};
use crate::payload::{marked_buffer, payload, split_unevenly};
use crate::poll_completion;
use crate::{Ended, Net};

/// Where receives of the context are in the history.
const CONTEXT: Incarnation = Incarnation { place: 0, life: 0 };

pub(super) struct Runner<'a> {
    pub(super) net: &'a Net,
    pub(super) fixture: ContextFixture<'a>,
    pub(super) observed: Observed,
    is_connected: bool,
}

/// Runs a program. `faults`, if given, are the faults of the network during the steps.
pub(super) fn run_program(net: &Net, program: &Program, faults: Option<Faults>) -> Observed {
    let fixture = ContextFixture::open(net, program);
    let mut observed = Observed { is_violent: faults.is_some(), ..Observed::default() };
    observed.history.is_connected = program.connected;
    let mut runner = Runner { net, fixture, observed, is_connected: program.connected };
    if let (Some(network), Some(faults)) = (&net.network, faults) {
        network.set_faults(faults);
    }
    for step in &program.common.steps {
        runner.run_step(step);
    }
    if let (Some(network), true) = (&net.network, runner.observed.is_violent) {
        network.set_faults(Faults::choppy());
    }
    runner.receive_everything();
    runner.cancel_remaining_receives();
    runner.check_counters();
    runner.close_members_and_check_credit(program.common.unexpected_bytes);
    runner.observed
}

impl Runner<'_> {
    fn run_step(&mut self, step: &Step) {
        let (members, peers) = (self.fixture.members.len(), self.fixture.peers.len());
        // The peer of a connection has the number of its member.
        let peer = |from: usize, to: usize| if self.is_connected { to % members } else { from % peers };
        match *step {
            Step::Send { from, to, tag, len_bytes, call, .. } => {
                self.send(peer(from, to), to % members, tag, len_bytes, call);
            }
            Step::Receive { tagged, from, len_bytes, in_pieces, .. } => {
                self.post_receive(tagged, self.choose_source(from), len_bytes, in_pieces);
            }
            Step::ReceiveMany { from, len_bytes, min_free_bytes, .. } => {
                let from = self.choose_source(from);
                self.fixture.context.set_min_multi_recv_bytes(min_free_bytes);
                let (buffer, context) = (marked_buffer(len_bytes), self.next_receive_context());
                let posted = self.fixture.context.recv_multi(buffer, source_address(from), context);
                if expect_accepted_or_full(posted.map_err(Error::from)) {
                    let buffer = BufferOp { min_free_bytes, took: Vec::new(), has_lost: false };
                    self.record_posted_receive(None, from, len_bytes, Some(buffer));
                }
            }
            Step::Cancel { which, .. } => {
                if !self.observed.receives.is_empty() {
                    self.cancel_receive(which % self.observed.receives.len());
                }
            }
            Step::Close { at } => self.close_member(at % members, true),
            Step::Kill { at } => self.close_member(at % members, false),
            Step::Break { between: (from, to) } => {
                let link = (peer(from, to), to % members);
                if self.fixture.end_link(link.0, link.1, from <= to) {
                    let now = self.observed.history.events.len() as u64 + 1;
                    self.observed.ended_links.entry(link).or_insert(now);
                }
            }
            Step::Drive { at, rounds } => {
                (0..rounds).for_each(|_| self.fixture.members[at % members].cq.progress());
            }
            Step::Read { at, count } => {
                for _ in 0..count {
                    self.read_member_completion(at % members);
                    self.read_peer_completion(at % peers);
                }
            }
            Step::Peek { .. }
            | Step::Claim { .. }
            | Step::Access { .. }
            | Step::Elements { .. }
            | Step::Touch { .. }
            | Step::Reopen { .. } => unreachable!("no program of a shared context has this step: {step:?}"),
        }
    }

    /// Returns the only source that a receive accepts, or `None` for any source. A receive over connections
    /// has no source. Without a member there is no address vector to look up a source.
    fn choose_source(&self, from: Option<usize>) -> Option<usize> {
        from.filter(|_| !self.is_connected && self.fixture.oldest_member().is_some())
            .map(|from| from % self.fixture.peers.len())
    }

    /// Closes a member.
    fn close_member(&mut self, member: usize, reads_first: bool) {
        if !self.fixture.is_member(member) {
            return;
        }
        while reads_first && self.read_member_completion(member) {}
        self.fixture.close_members([member]);
        self.observed.left.insert((member, reads_first));
    }

    fn send(&mut self, from: usize, to: usize, tag: Option<u64>, len_bytes: usize, call: SendCall) {
        let identity = self.observed.history.sends.len() as u64;
        let level = call.level(true);
        let pieces = if call == SendCall::InPieces { 3 } else { 1 };
        let message = SendMsg {
            buffers: split_unevenly(&payload(identity, len_bytes), pieces),
            to: if self.is_connected { FabricAddress::UNSPECIFIED } else { FabricAddress(to as u64) },
            tag: tag.map(Tag),
            data: Some(identity),
            context: identity,
            flags: level.flags(),
        };
        let posted = self.fixture.peers[from].endpoint.sendmsg(message);
        if self.is_connected && matches!(posted, Err(Error::Misuse(Misuse::NotConnected))) {
            let has_ended = self.observed.has_left(to) || self.observed.can_lose_messages(from, to);
            assert!(has_ended, "the connection of member {to} has ended by itself");
        } else if expect_accepted_or_full(posted) {
            let from = Incarnation { place: from, life: 0 };
            self.observed.history.post_send((from, to), tag, len_bytes, level);
        }
    }

    fn next_receive_context(&self) -> u64 {
        self.observed.receives.len() as u64
    }

    /// Posts a receive to the context. Returns whether it was accepted.
    pub(super) fn post_receive(
        &mut self,
        tagged: Option<(u64, u64)>,
        from: Option<usize>,
        len_bytes: usize,
        in_pieces: bool,
    ) -> bool {
        let receive = make_receive(tagged, from, len_bytes, in_pieces, self.next_receive_context());
        let accepted = expect_accepted_or_full(self.fixture.context.recvmsg(receive).map_err(Error::from));
        if accepted {
            self.record_posted_receive(tagged, from, len_bytes, None);
        }
        accepted
    }

    fn record_posted_receive(
        &mut self,
        tagged: Option<(u64, u64)>,
        from: Option<usize>,
        len_bytes: usize,
        buffer: Option<BufferOp>,
    ) {
        let posted = self.observed.history.post_receive(CONTEXT, tagged, len_bytes);
        (posted.from, posted.buffer) = (from, buffer);
        self.observed.receives.push(ReceiveLosses::default());
    }

    /// Cancels a receive. Returns whether that was possible.
    pub(super) fn cancel_receive(&mut self, receive: usize) -> bool {
        let result = self.fixture.context.cancel(receive as u64);
        if result.is_ok() {
            assert!(!self.observed.has_ended(receive), "receive {receive} had ended, and was cancelled");
            let now = self.observed.history.events.len() as u64 + 1;
            let before = self.observed.history.receives[receive].cancel_asked_at.replace(now);
            assert_eq!(before, None, "receive {receive} was cancelled twice");
        }
        result.is_ok()
    }

    /// Reads one completion of a member, and records it. Returns false if there was none.
    fn read_member_completion(&mut self, member: usize) -> bool {
        let Some(ended) = poll_completion(&self.fixture.members[member].cq) else { return false };
        self.record_receive_end(member, &ended);
        true
    }

    fn read_peer_completion(&mut self, peer: usize) -> bool {
        let Some(ended) = self.fixture.peers[peer].poll_completion() else { return false };
        let (completion, result) = match ended {
            Ok((completion, _)) => (completion, Ok(())),
            Err(failed) => (failed.completion, Err(failed.error.errno())),
        };
        let identity = completion.context as usize;
        let now = self.observed.history.record(Event::Ended(Operation::Send(identity)));
        let send = &mut self.observed.history.sends[identity];
        // Connected peers have one queue.
        assert!(self.is_connected || send.from.place == peer, "the send of another peer");
        assert!(completion.flags.contains(CompletionFlags::SEND), "{completion:?}");
        let before = send.ended.replace(result);
        assert_eq!(before, None, "message {identity} ended again");
        send.ended_at = now;
        true
    }

    /// Reads and records all entries. Returns false if there was none.
    pub(super) fn read_all(&mut self) -> bool {
        let before = self.observed.history.events.len();
        (0..self.fixture.members.len()).for_each(|member| while self.read_member_completion(member) {});
        (0..self.fixture.peers.len()).for_each(|peer| while self.read_peer_completion(peer) {});
        self.observed.history.events.len() > before
    }

    fn record_receive_end(&mut self, member: usize, ended: &Ended) {
        let (completion, error) = match ended {
            Ok((completion, _)) => (completion, None),
            Err(failed) => (&failed.completion, Some(&failed.error)),
        };
        let number = completion.context as usize;
        self.fixture.members[member].failures += u64::from(error.is_some());
        let op = &self.observed.history.receives[number];
        let (is_buffer, was_cancelled) = (op.buffer.is_some(), op.cancel_asked_at.is_some());
        let is_release = completion.flags.contains(CompletionFlags::MULTI_RECV);
        // The release of a buffer may be read before completions of messages in the buffer. These
        // completions may be in the queues of other members.
        let may_follow = is_buffer && !is_release && self.observed.receives[number].ended_at != Some(member);
        let has_ended = self.observed.has_ended(number);
        assert!(!has_ended || may_follow, "receive {number} ended again, with {ended:?}");
        assert!(is_buffer || !is_release, "no buffer is released: {ended:?}");
        let is_cancelled = matches!(error, Some(OperationError::Cancelled));
        match error {
            None if completion.flags == CompletionFlags::MULTI_RECV => {
                self.observed.history.record(Event::Ended(Operation::Receive(number)));
            }
            None | Some(OperationError::Truncated { .. }) => {
                let history = &self.observed.history;
                let told = Told { history, offer: &Offer::NATIVE, with_data: true };
                let message = told.check_received_message(member, op.len_bytes, ended).expect("a message");
                self.observed.history.record_taken(number, message);
            }
            Some(error) => {
                self.observed.history.record(Event::Ended(Operation::Receive(number)));
                let has_left = !self.observed.left.is_empty();
                match error {
                    OperationError::Cancelled => {
                        let is_expected = was_cancelled && (!is_buffer || is_release);
                        assert!(is_expected || has_left, "receive {number} was not cancelled: {ended:?}");
                        // A released buffer is reported by the endpoint of its last message.
                        let is_oldest = self.fixture.oldest_member() == Some(member);
                        let may_report = is_oldest || !self.fixture.is_member(member) || is_buffer;
                        assert!(may_report, "cancelled receives are reported to the oldest member");
                        self.observed.receives[number].with_member += usize::from(!is_expected);
                    }
                    OperationError::Fault | OperationError::Link(_) => {
                        let may_break = self.observed.is_violent || !self.observed.ended_links.is_empty();
                        assert!(may_break, "receive {number} failed: {ended:?}");
                        self.observed.receives[number].with_link += 1;
                    }
                    _ => panic!("receive {number} failed: {error}"),
                }
            }
        }
        let losses = &mut self.observed.receives[number];
        if !is_buffer || is_release {
            losses.ended_at = Some(member);
            let is_lost = losses.with_member > 0 && !is_buffer;
            assert_eq!(is_cancelled && !is_lost, was_cancelled, "receive {number} ended with {ended:?}");
        }
    }
}
