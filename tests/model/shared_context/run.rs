//! Runs a program, receives everything that was sent, and takes back the receives that nothing has matched.

use homespun::endpoint::{RecvMsg, SendMsg};
use homespun::flags::{CompletionFlags, OpFlags};
use homespun::{Completion, Error, FabricAddress, OperationError};

use super::hall::Hall;
use super::history::{History, Message, Receive};
use super::program::{Program, Step};
use crate::history::Level;
use crate::program::LEN_MAX_BYTES;
use crate::run::{is_accepted, source};
use crate::suite::party::poll;
use crate::suite::payload::{payload, received, room, room_in_pieces};
use crate::suite::{Deadline, Ended, Net};

/// How many rounds without an event show that no message is reported twice.
const SILENT_ROUNDS: usize = 10;

struct Runner<'a> {
    hall: Hall<'a>,
    history: History,
}

pub(super) fn run(net: &Net, program: &Program) -> History {
    let mut runner = Runner { hall: Hall::open(net, program), history: History::default() };
    for step in &program.steps {
        runner.step(step);
    }
    runner.receive_everything();
    runner.take_back_receives();
    runner.check_counters();
    runner.history
}

impl Runner<'_> {
    fn step(&mut self, step: &Step) {
        let (members, peers) = (self.hall.members.len(), self.hall.peers.len());
        match *step {
            Step::Send { from, to, tag, len_bytes, level } => {
                self.send(from % peers, to % members, tag, len_bytes, level);
            }
            Step::Receive { tagged, from, len_bytes, in_pieces } => {
                let buffers = if in_pieces { room_in_pieces(len_bytes, 3) } else { vec![room(len_bytes)] };
                let from = from.map(|from| from % peers);
                let context = self.history.receives.len() as u64;
                let receive = RecvMsg { buffers, from: source(from), tagged, context, ..RecvMsg::default() };
                if is_accepted(self.hall.context.recvmsg(receive).map_err(Error::from)) {
                    self.posted(tagged, from, len_bytes, None);
                }
            }
            Step::ReceiveMany { from, len_bytes, min_free_bytes } => {
                let from = from.map(|from| from % peers);
                let context = self.history.receives.len() as u64;
                self.hall.context.set_min_multi_recv_bytes(min_free_bytes);
                let posted = self.hall.context.recv_multi(room(len_bytes), source(from), context);
                if is_accepted(posted.map_err(Error::from)) {
                    self.posted(None, from, len_bytes, Some(min_free_bytes));
                }
            }
            Step::Cancel { which } => {
                if !self.history.receives.is_empty() {
                    self.cancel(which % self.history.receives.len());
                }
            }
            Step::Drive { at, rounds } => {
                (0..rounds).for_each(|_| self.hall.members[at % members].cq.progress());
            }
            Step::Read { at, count } => {
                for _ in 0..count {
                    self.read(at % members);
                }
            }
            Step::ReadPeer { at } => while self.read_peer(at % peers) {},
        }
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
            to: FabricAddress(to as u64),
            tag,
            data: Some(identity),
            context: identity,
            flags,
        };
        if !is_accepted(self.hall.peers[from].endpoint.sendmsg(message)) {
            return;
        }
        let sent_at = self.history.tick();
        let message = Message { from, to, tag, len_bytes, level, sent_at, ended_at: None, taken: None };
        self.history.messages.push(message);
    }

    fn posted(
        &mut self,
        tagged: Option<(u64, u64)>,
        from: Option<usize>,
        len_bytes: usize,
        min_free_bytes: Option<usize>,
    ) {
        let posted_at = self.history.tick();
        self.history.receives.push(Receive {
            tagged,
            from,
            len_bytes,
            min_free_bytes,
            posted_at,
            took: Vec::new(),
            cancelled_at: None,
            ended_at: None,
        });
    }

    /// Returns whether the receive could be cancelled.
    fn cancel(&mut self, receive: usize) -> bool {
        let result = self.hall.context.cancel(receive as u64);
        let now = self.history.tick();
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

    /// Reads one completion of a member, if there is one. Returns whether there was.
    fn read(&mut self, member: usize) -> bool {
        let Some(ended) = poll(&self.hall.members[member].cq) else { return false };
        self.receive_told(member, &ended);
        true
    }

    fn read_peer(&mut self, peer: usize) -> bool {
        let Some(ended) = self.hall.peers[peer].poll() else { return false };
        let (completion, _) = ended.expect("no send fails");
        let now = self.history.tick();
        let sent = &mut self.history.messages[completion.context as usize];
        assert_eq!(sent.from, peer, "the send of another peer");
        assert!(completion.flags.contains(CompletionFlags::SEND), "{completion:?}");
        let before = sent.ended_at.replace(now);
        assert_eq!(before, None, "message {} ended again", completion.context);
        true
    }

    /// Reads everything that can be read. Returns whether there was anything.
    fn read_all(&mut self) -> bool {
        let mut has_read = false;
        for member in 0..self.hall.members.len() {
            while self.read(member) {
                has_read = true;
            }
        }
        for peer in 0..self.hall.peers.len() {
            while self.read_peer(peer) {
                has_read = true;
            }
        }
        has_read
    }

    fn receive_told(&mut self, member: usize, ended: &Ended) {
        let (completion, source, error) = match ended {
            Ok((completion, source)) => (completion, *source, None),
            Err(failed) => (&failed.completion, failed.source, Some(&failed.error)),
        };
        let number = completion.context as usize;
        let receive = &self.history.receives[number];
        let is_buffer = receive.min_free_bytes.is_some();
        let is_release = completion.flags.contains(CompletionFlags::MULTI_RECV);
        // The release of a buffer may be read before messages that are reported to other queues.
        let may_follow = is_buffer && !is_release && receive.ended_at != Some(member);
        assert!(!receive.has_ended() || may_follow, "receive {number} ended again, with {ended:?}");
        assert!(is_buffer || !is_release, "no buffer is released: {ended:?}");
        match error {
            None if completion.flags == CompletionFlags::MULTI_RECV => {}
            None => self.message_told(member, completion, source, 0),
            Some(OperationError::Truncated { overflow_bytes }) => {
                assert!(*overflow_bytes > 0);
                self.message_told(member, completion, source, *overflow_bytes as usize);
            }
            Some(OperationError::Cancelled) => {
                assert!(receive.cancelled_at.is_some(), "receive {number} was not cancelled: {ended:?}");
                // A buffer that a message was filling ends where that message came to.
                assert!(member == 0 || is_buffer, "cancelled receives are reported to the first member");
            }
            Some(error) => panic!("receive {number} failed: {error}"),
        }
        let receive = &mut self.history.receives[number];
        let is_cancelled = matches!(error, Some(OperationError::Cancelled));
        if !is_buffer || is_release {
            receive.ended_at = Some(member);
            let was_cancelled = receive.cancelled_at.is_some();
            assert_eq!(is_cancelled, was_cancelled, "{receive:?} ended with {ended:?}");
        }
    }

    /// Checks everything that is told of a message, and notes it.
    fn message_told(
        &mut self,
        member: usize,
        completion: &Completion,
        source: FabricAddress,
        overflow_bytes: usize,
    ) {
        let (number, identity) = (completion.context as usize, completion.data as usize);
        let (receive, message) = (&self.history.receives[number], &self.history.messages[identity]);
        assert_eq!(message.to, member, "message {identity} is reported at another endpoint than it came to");
        assert_eq!(source, FabricAddress(message.from as u64));
        assert_eq!(completion.tag, message.tag.unwrap_or(0));
        let kind = if message.tag.is_some() { CompletionFlags::TAGGED } else { CompletionFlags::MSG };
        let flags = CompletionFlags::RECV | CompletionFlags::REMOTE_CQ_DATA | kind;
        assert_eq!(completion.flags - CompletionFlags::MULTI_RECV, flags);
        assert_eq!(completion.len_bytes, message.len_bytes.min(receive.len_bytes));
        assert_eq!(completion.len_bytes + overflow_bytes, message.len_bytes);
        let expected = payload(identity as u64, completion.len_bytes);
        assert!(received(&completion.buffer) == expected, "message {identity} has other bytes");
        self.history.take(number, identity);
    }

    /// Posts receives for all that waits, of either kind, until every message was taken and every send has
    /// ended.
    fn receive_everything(&mut self) {
        let mut deadline = Deadline::new();
        let mut silent_rounds = 0;
        while silent_rounds < SILENT_ROUNDS {
            let is_waiting = self.history.messages.iter().any(|message| message.taken.is_none());
            if is_waiting {
                self.post_last_receives();
            }
            let is_over = self
                .history
                .messages
                .iter()
                .all(|message| message.taken.is_some() && message.ended_at.is_some());
            if self.read_all() {
                deadline = Deadline::new();
                silent_rounds = 0;
            } else if is_over {
                silent_rounds += 1;
            } else {
                deadline.pause_for(|| format!("all messages of {:#?}", self.history));
            }
        }
    }

    /// Posts a receive for any tagged message and one for any other, unless such receives are posted. If the
    /// context has no room for them, takes back the receive of the program that was posted last.
    fn post_last_receives(&mut self) {
        for tagged in [None, Some((0, u64::MAX))] {
            let receives = &self.history.receives;
            let is_there =
                |receive: &Receive| is_last(receive) && receive.tagged == tagged && !receive.has_ended();
            if receives.iter().any(is_there) {
                continue;
            }
            let context = receives.len() as u64;
            let buffers = vec![room(LEN_MAX_BYTES)];
            let receive = RecvMsg { buffers, tagged, context, ..RecvMsg::default() };
            if is_accepted(self.hall.context.recvmsg(receive).map_err(Error::from)) {
                self.posted(tagged, None, LEN_MAX_BYTES, None);
                continue;
            }
            for number in (0..self.history.receives.len()).rev() {
                let receive = &self.history.receives[number];
                let is_open = !receive.has_ended() && receive.cancelled_at.is_none();
                if is_open && !is_last(receive) && self.cancel(number) {
                    break;
                }
            }
        }
    }

    /// Cancels what is still posted, which is possible for all of it: every message was taken.
    fn take_back_receives(&mut self) {
        let deadline = Deadline::new();
        for receive in 0..self.history.receives.len() {
            let posted = &self.history.receives[receive];
            if posted.has_ended() {
                continue;
            }
            if posted.cancelled_at.is_none() {
                assert!(self.cancel(receive), "receive {receive} is stuck");
            }
            while !self.history.receives[receive].has_ended() {
                self.read_all();
                deadline.pause("a cancelled receive");
            }
        }
    }

    /// Each receive is counted by the endpoint that it is reported to: as a success if all of a message was
    /// received.
    fn check_counters(&self) {
        let History { messages, receives, .. } = &self.history;
        for (number, member) in self.hall.members.iter().enumerate() {
            let mut expected = (0, 0);
            for message in messages.iter().filter(|message| message.to == number) {
                let (receive, _) = message.taken.expect("every message was taken");
                let receive = &receives[receive];
                let is_truncated = receive.len_bytes < message.len_bytes;
                *(if is_truncated { &mut expected.1 } else { &mut expected.0 }) += 1;
            }
            let is_cancelled_here =
                |receive: &&Receive| receive.cancelled_at.is_some() && receive.ended_at == Some(number);
            expected.1 += receives.iter().filter(is_cancelled_here).count() as u64;
            let counted = (member.received.read(), member.received.read_error());
            assert_eq!(counted, expected, "successes and failures of member {number}");
        }
    }
}

/// Whether a receive was posted to empty the context: no receive of a program has so much room.
fn is_last(receive: &Receive) -> bool {
    receive.min_free_bytes.is_none() && receive.len_bytes == LEN_MAX_BYTES
}
