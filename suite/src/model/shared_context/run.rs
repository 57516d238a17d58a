//! Runs a program, and records its history.

use homespun::endpoint::{RecvMsg, SendMsg};
use homespun::flags::{CompletionFlags, OpFlags};
use homespun::{Completion, Error, FabricAddress, Misuse, OperationError, Tag};
use homespun_engine::loopback::Faults;

use super::fixture::ContextFixture;
use super::history::{History, Message, Receive};
use super::program::{Program, Step};
use crate::model::history::Level;
use crate::model::run::{expect_accepted_or_full, source_address};
use crate::payload::{marked_buffer, marked_buffers, payload, received_bytes};
use crate::poll_completion;
use crate::{Ended, Net};

pub(super) struct Runner<'a> {
    pub(super) net: &'a Net,
    pub(super) fixture: ContextFixture<'a>,
    pub(super) history: History,
    is_connected: bool,
}

/// Runs a program. `faults`, if given, are the faults of the network during the steps.
pub(super) fn run_program(net: &Net, program: &Program, faults: Option<Faults>) -> History {
    let fixture = ContextFixture::open(net, program);
    let history = History::new(faults.is_some());
    let mut runner = Runner { net, fixture, history, is_connected: program.connected };
    if let (Some(network), Some(faults)) = (&net.network, faults) {
        network.set_faults(faults);
    }
    for step in &program.steps {
        runner.run_step(step);
    }
    if let (Some(network), true) = (&net.network, runner.history.is_violent) {
        network.set_faults(Faults::choppy());
    }
    runner.receive_everything();
    runner.cancel_remaining_receives();
    runner.check_counters();
    runner.close_members_and_check_credit(program.unexpected_bytes);
    runner.history
}

impl Runner<'_> {
    fn run_step(&mut self, step: &Step) {
        let (members, peers) = (self.fixture.members.len(), self.fixture.peers.len());
        // The peer of a connection has the number of its member.
        let peer = |from: usize, to: usize| if self.is_connected { to % members } else { from % peers };
        match *step {
            Step::Send { from, to, tag, len_bytes, level } => {
                self.send(peer(from, to), to % members, tag, len_bytes, level);
            }
            Step::Receive { tagged, from, len_bytes, in_pieces } => {
                let buffers =
                    if in_pieces { marked_buffers(len_bytes, 3) } else { vec![marked_buffer(len_bytes)] };
                let from = self.choose_source(from);
                let context = self.history.receives.len() as u64;
                let receive = RecvMsg {
                    buffers,
                    from: source_address(from),
                    tagged: tagged.map(|(tag, ignore)| Tag(tag).ignoring(ignore)),
                    context,
                    ..RecvMsg::default()
                };
                if expect_accepted_or_full(self.fixture.context.recvmsg(receive).map_err(Error::from)) {
                    self.record_posted_receive(tagged, from, len_bytes, None);
                }
            }
            Step::ReceiveMany { from, len_bytes, min_free_bytes } => {
                let from = self.choose_source(from);
                let context = self.history.receives.len() as u64;
                self.fixture.context.set_min_multi_recv_bytes(min_free_bytes);
                let posted =
                    self.fixture.context.recv_multi(marked_buffer(len_bytes), source_address(from), context);
                if expect_accepted_or_full(posted.map_err(Error::from)) {
                    self.record_posted_receive(None, from, len_bytes, Some(min_free_bytes));
                }
            }
            Step::Cancel { which } => {
                if !self.history.receives.is_empty() {
                    self.cancel_receive(which % self.history.receives.len());
                }
            }
            Step::Leave { at, reads_first } => self.close_member(at % members, reads_first),
            Step::EndLink { from, to, in_order } => {
                let (from, to) = (peer(from, to), to % members);
                let has_ended = in_order && self.fixture.shut_down_connection_if_any(from)
                    || self.fixture.break_link_if_possible(from, to);
                if has_ended {
                    let now = self.history.advance_time();
                    self.history.ended_links.entry((from, to)).or_insert(now);
                }
            }
            Step::Drive { at, rounds } => {
                (0..rounds).for_each(|_| self.fixture.members[at % members].cq.progress());
            }
            Step::Read { at, count } => {
                for _ in 0..count {
                    self.read_member_completion(at % members);
                }
            }
            Step::ReadPeer { at } => while self.read_peer_completion(at % peers) {},
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
        self.history.left.insert((member, reads_first));
    }

    fn send(&mut self, from: usize, to: usize, tag: Option<u64>, len_bytes: usize, level: Level) {
        let identity = self.history.messages.len() as u64;
        let flags = match level {
            Level::Inject => OpFlags::empty(),
            Level::Transmit => OpFlags::TRANSMIT_COMPLETE,
            Level::Delivery => OpFlags::DELIVERY_COMPLETE,
            Level::Match => OpFlags::MATCH_COMPLETE,
        };
        let message = SendMsg {
            buffers: vec![payload(identity, len_bytes)],
            to: if self.is_connected { FabricAddress::UNSPECIFIED } else { FabricAddress(to as u64) },
            tag: tag.map(Tag),
            data: Some(identity),
            context: identity,
            flags,
        };
        let posted = self.fixture.peers[from].send(message);
        if self.is_connected && matches!(posted, Err(Error::Misuse(Misuse::NotConnected))) {
            let has_ended = self.history.has_left(to) || self.history.can_lose_messages(from, to);
            assert!(has_ended, "the connection of member {to} has ended by itself");
            return;
        }
        if !expect_accepted_or_full(posted) {
            return;
        }
        let sent_at = self.history.advance_time();
        let message = Message {
            from,
            to,
            tag,
            len_bytes,
            level,
            sent_at,
            ended_at: None,
            has_failed: false,
            taken: None,
        };
        self.history.messages.push(message);
    }

    pub(super) fn record_posted_receive(
        &mut self,
        tagged: Option<(u64, u64)>,
        from: Option<usize>,
        len_bytes: usize,
        min_free_bytes: Option<usize>,
    ) {
        let posted_at = self.history.advance_time();
        self.history.receives.push(Receive {
            tagged,
            from,
            len_bytes,
            min_free_bytes,
            posted_at,
            took: Vec::new(),
            cancelled_at: None,
            ended_at: None,
            lost_with_member: 0,
            lost_with_link: 0,
            is_unheard: false,
        });
    }

    /// Cancels a receive. Returns whether that was possible.
    pub(super) fn cancel_receive(&mut self, receive: usize) -> bool {
        let result = self.fixture.context.cancel(receive as u64);
        let now = self.history.advance_time();
        let posted = &mut self.history.receives[receive];
        if result.is_ok() {
            assert!(
                !posted.has_ended() && posted.cancelled_at.is_none(),
                "receive {receive} had ended, and was cancelled nevertheless: {posted:?}"
            );
            posted.cancelled_at = Some(now);
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
        let Some(ended) = self.fixture.peers[peer].poll_send_end() else { return false };
        let (completion, error) = match ended {
            Ok((completion, _)) => (completion, None),
            Err(failed) => (failed.completion, Some(failed.error)),
        };
        let now = self.history.advance_time();
        let sent = &mut self.history.messages[completion.context as usize];
        assert_eq!(sent.from, peer, "the send of another peer");
        assert!(completion.flags.contains(CompletionFlags::SEND), "{completion:?}");
        let before = sent.ended_at.replace(now);
        assert_eq!(before, None, "message {} ended again", completion.context);
        sent.has_failed = error.is_some();
        true
    }

    /// Reads and records all entries. Returns false if there was none.
    pub(super) fn read_all(&mut self) -> bool {
        let mut has_read = false;
        for member in 0..self.fixture.members.len() {
            while self.read_member_completion(member) {
                has_read = true;
            }
        }
        for peer in 0..self.fixture.peers.len() {
            while self.read_peer_completion(peer) {
                has_read = true;
            }
        }
        has_read
    }

    fn record_receive_end(&mut self, member: usize, ended: &Ended) {
        let (completion, source, error) = match ended {
            Ok((completion, source)) => (completion, *source, None),
            Err(failed) => (&failed.completion, failed.source, Some(&failed.error)),
        };
        let number = completion.context as usize;
        self.fixture.members[member].failures += u64::from(error.is_some());
        let receive = &self.history.receives[number];
        let is_buffer = receive.min_free_bytes.is_some();
        let is_release = completion.flags.contains(CompletionFlags::MULTI_RECV);
        // The release of a buffer may be read before completions of messages in the buffer. These
        // completions may be in the queues of other members.
        let may_follow = is_buffer && !is_release && receive.ended_at != Some(member);
        assert!(!receive.has_ended() || may_follow, "receive {number} ended again, with {ended:?}");
        assert!(is_buffer || !is_release, "no buffer is released: {ended:?}");
        match error {
            None if completion.flags == CompletionFlags::MULTI_RECV => {}
            None => self.record_message(member, completion, source, 0),
            Some(OperationError::Truncated { overflow_bytes }) => {
                assert!(*overflow_bytes > 0);
                self.record_message(member, completion, source, *overflow_bytes as usize);
            }
            Some(OperationError::Cancelled) => {
                let is_cancelled = receive.cancelled_at.is_some() && (!is_buffer || is_release);
                assert!(
                    is_cancelled || !self.history.left.is_empty(),
                    "receive {number} was not cancelled: {ended:?}"
                );
                // A released buffer is reported by the endpoint of its last message.
                let may_report =
                    self.fixture.oldest_member() == Some(member) || !self.fixture.is_member(member);
                assert!(may_report || is_buffer, "cancelled receives are reported to the oldest member");
                self.history.receives[number].lost_with_member += usize::from(!is_cancelled);
            }
            Some(OperationError::Fault | OperationError::Link(_)) => {
                let may_break = self.history.is_violent || !self.history.ended_links.is_empty();
                assert!(may_break, "receive {number} failed: {ended:?}");
                self.history.receives[number].lost_with_link += 1;
            }
            Some(error) => panic!("receive {number} failed: {error}"),
        }
        let receive = &mut self.history.receives[number];
        let is_cancelled = matches!(error, Some(OperationError::Cancelled));
        if !is_buffer || is_release {
            receive.ended_at = Some(member);
            let was_cancelled = receive.cancelled_at.is_some();
            let is_lost = receive.lost_with_member > 0 && !is_buffer;
            assert_eq!(is_cancelled && !is_lost, was_cancelled, "{receive:?} ended with {ended:?}");
        }
    }

    /// Checks the completion of a message, and records it.
    fn record_message(
        &mut self,
        member: usize,
        completion: &Completion,
        source: FabricAddress,
        overflow_bytes: usize,
    ) {
        let (number, identity) = (completion.context as usize, completion.data as usize);
        let (receive, message) = (&self.history.receives[number], &self.history.messages[identity]);
        assert_eq!(message.to, member, "message {identity} is reported at another endpoint than it came to");
        let known =
            if self.is_connected { FabricAddress::UNSPECIFIED } else { FabricAddress(message.from as u64) };
        assert_eq!(source, known);
        assert_eq!(completion.tag, message.tag.unwrap_or(0));
        let kind = if message.tag.is_some() { CompletionFlags::TAGGED } else { CompletionFlags::MSG };
        let flags = CompletionFlags::RECV | CompletionFlags::REMOTE_CQ_DATA | kind;
        assert_eq!(completion.flags - CompletionFlags::MULTI_RECV, flags);
        assert_eq!(completion.len_bytes, message.len_bytes.min(receive.len_bytes));
        assert_eq!(completion.len_bytes + overflow_bytes, message.len_bytes);
        let expected = payload(identity as u64, completion.len_bytes);
        assert!(received_bytes(&completion.buffer) == expected, "message {identity} has other bytes");
        self.history.record_taken(number, identity);
    }
}
