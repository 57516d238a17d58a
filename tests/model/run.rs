//! Runs a program, to its end and until nothing happens any more, and writes its history.

use std::collections::BTreeSet;
use std::mem;

use homespun::endpoint::{Receive, Send};
use homespun::flags::{CompletionFlags, OpFlags};
use homespun::{
    Again, Buffer, Completion, CompletionError, Errno, Error, FabricAddress, OperationError, ReadError,
};
use homespun_engine::loopback::Network;

use crate::history::{Arrived, Fate, History, Operation, ReceiveEnd, ReceiveOp, SendOp};
use crate::program::{LEN_MAX_BYTES, Program, SendCall, Step};
use crate::suite::payload::{payload, pieces, received, room, room_in_pieces};
use crate::suite::{Deadline, Ended, Net, Party, Setup};

/// The bit that tells messages of the runner from those of the program.
const RUNNERS_TAG: u64 = 1 << 63;

/// Contexts from here on are the runner's.
const RUNNERS_CONTEXT: u64 = 1 << 32;

/// How many bytes a message needs to say who it is, if it carries no data.
const IDENTITY_BYTES: usize = 8;

/// How many rounds without any event mean that there will be none. More than the longest delay of any network inside
/// the process; on the others everything has arrived before this counts.
const SILENT_ROUNDS: usize = 40;

struct Runner<'a> {
    net: &'a Net,
    program: &'a Program,
    /// `None` for those that were closed or killed.
    parties: Vec<Option<Party>>,
    history: History,
    /// How many injected messages of each party may still fail.
    injected: Vec<usize>,
    /// Contexts of the runner's own operations that have not ended.
    own_pending: BTreeSet<u64>,
    next_own: u64,
    /// What the runner's own receive took.
    own_taken: Option<(Completion, FabricAddress)>,
    /// How many events there were.
    events: usize,
}

pub(crate) fn run(net: &Net, program: &Program) -> History {
    let parties: Vec<Party> = (0..program.parties)
        .map(|_| {
            net.open(Setup {
                cq_depth_entries: program.cq_depth_entries,
                tx_depth_ops: program.depth_ops,
                rx_depth_ops: program.depth_ops,
                ..Setup::default()
            })
        })
        .collect();
    for party in &parties {
        for (n, other) in parties.iter().enumerate() {
            assert_eq!(party.meet(other), FabricAddress(n as u64));
        }
    }
    let history = History { fates: vec![Fate::Lives; parties.len()], ..History::default() };
    let mut runner = Runner {
        net,
        program,
        injected: vec![0; parties.len()],
        parties: parties.into_iter().map(Some).collect(),
        history,
        own_pending: BTreeSet::new(),
        next_own: RUNNERS_CONTEXT,
        own_taken: None,
        events: 0,
    };
    for step in &program.steps {
        runner.step(step);
    }
    runner.come_to_rest();
    runner.take_back_receives();
    runner.look_for_what_waits();
    runner.history
}

impl Runner<'_> {
    fn step(&mut self, step: &Step) {
        let count = self.parties.len();
        match *step {
            Step::Send { from, to, tag, len_bytes, call } => {
                self.send(from % count, to % count, tag, len_bytes, call);
            }
            Step::Receive { at, tagged, from, len_bytes, in_pieces } => {
                self.receive(at % count, tagged, from.map(|from| from % count), len_bytes, in_pieces);
            }
            Step::Drive { at, rounds } => {
                if let Some(party) = &self.parties[at % count] {
                    (0..rounds).for_each(|_| party.cq.progress());
                }
            }
            Step::Read { at, count: entries } => {
                for _ in 0..entries {
                    self.read(at % count);
                }
            }
            Step::Cancel { at, which } => self.cancel(at % count, which),
            Step::Close { at } => self.close(at % count),
            Step::Kill { at } => self.kill(at % count),
            Step::Break { between: (a, b) } => {
                if let (Some(a), Some(b)) = (&self.parties[a % count], &self.parties[b % count])
                    && let Some(network) = &self.net.network
                {
                    network.break_link(a.endpoint.name().unwrap(), b.endpoint.name().unwrap());
                }
            }
        }
    }

    /// The least that a message, and room for it, must have.
    fn at_least(&self, len_bytes: usize) -> usize {
        if self.program.with_data { len_bytes } else { len_bytes.max(IDENTITY_BYTES) }
    }

    fn send(&mut self, from: usize, to: usize, tag: Option<u64>, len_bytes: usize, call: SendCall) {
        let Some(party) = &self.parties[from] else { return };
        let mut len_bytes = self.at_least(len_bytes);
        if call == SendCall::Inject {
            len_bytes = len_bytes.min(party.endpoint.info().tx.inject_size_bytes);
        }
        let identity = self.history.sends.len();
        let context = Operation::Send(identity).context();
        let data = self.program.with_data.then_some(identity as u64);
        let message = payload(identity as u64, len_bytes);
        let to_address = FabricAddress(to as u64);
        let (buffers, flags) = match call {
            SendCall::InPieces => (pieces(&message, 3), OpFlags::empty()),
            SendCall::Transmit => (vec![message.clone()], OpFlags::TRANSMIT_COMPLETE),
            SendCall::Delivery => (vec![message.clone()], OpFlags::DELIVERY_COMPLETE),
            SendCall::Plain | SendCall::Inject => (vec![message.clone()], OpFlags::empty()),
        };
        let accepted = if call == SendCall::Inject {
            party.endpoint.inject(&message, to_address, tag, data)
        } else {
            party.endpoint.sendmsg(Send { buffers, to: to_address, tag, data, context, flags })
        };
        if !is_accepted(accepted) {
            return;
        }
        let injected = call == SendCall::Inject;
        self.injected[from] += usize::from(injected);
        self.history.sends.push(SendOp {
            from,
            to,
            tag,
            len_bytes,
            injected,
            acknowledged: matches!(call, SendCall::Transmit | SendCall::Delivery),
            cancelled: false,
            ended: None,
            arrived: None,
        });
    }

    fn receive(
        &mut self,
        at: usize,
        tagged: Option<(u64, u64)>,
        from: Option<usize>,
        len_bytes: usize,
        in_pieces: bool,
    ) {
        let Some(party) = &self.parties[at] else { return };
        let len_bytes = self.at_least(len_bytes);
        let context = Operation::Receive(self.history.receives.len()).context();
        let buffers = if in_pieces { room_in_pieces(len_bytes, 3) } else { vec![room(len_bytes)] };
        let source = from.map_or(FabricAddress::UNSPECIFIED, |from| FabricAddress(from as u64));
        let receive = Receive { buffers, from: source, tagged, context, flags: OpFlags::empty() };
        if !is_accepted(party.endpoint.recvmsg(receive)) {
            return;
        }
        self.history.receives.push(ReceiveOp {
            at,
            tagged,
            from,
            len_bytes,
            cancelled: false,
            too_late_to_cancel: false,
            ended: None,
        });
    }

    fn cancel(&mut self, at: usize, which: usize) {
        let Some(party) = &self.parties[at] else { return };
        let sends = self.history.sends.iter().enumerate();
        let sends = sends.filter(|(_, send)| send.from == at && !send.injected);
        let receives = self.history.receives.iter().enumerate().filter(|(_, receive)| receive.at == at);
        let posted: Vec<Operation> = sends
            .map(|(send, _)| Operation::Send(send))
            .chain(receives.map(|(receive, _)| Operation::Receive(receive)))
            .collect();
        if posted.is_empty() {
            return;
        }
        let operation = posted[which % posted.len()];
        let result = party.endpoint.cancel(operation.context());
        self.history.cancel_attempted(operation, &result);
    }

    fn close(&mut self, at: usize) {
        let Some(party) = self.parties[at].take() else { return };
        self.history.fates[at] = Fate::Closed;
        let cq = party.cq.clone();
        drop(party);
        // What ended before can still be read.
        loop {
            match cq.read_from() {
                Ok(completed) => self.ended(at, Ok(completed)),
                Err(ReadError::Empty) => return,
                Err(ReadError::ErrorAvailable) => {
                    let failed = cq.read_error().expect("an error was announced");
                    self.ended(at, Err(failed));
                }
                Err(ReadError::Overrun) => panic!("the queue was overrun"),
            }
        }
    }

    fn kill(&mut self, at: usize) {
        let Some(party) = self.parties[at].take() else { return };
        self.history.fates[at] = Fate::Killed;
        match &self.net.network {
            Some(network) => {
                assert!(network.kill(party.endpoint.name().unwrap()), "nobody has died before");
                // What a dead process does not do either is to close in order.
                mem::forget(party.endpoint);
            }
            None => party.kill(),
        }
    }

    /// Reads one completion, if there is one. Returns whether there was.
    fn read(&mut self, at: usize) -> bool {
        let Some(ended) = self.parties[at].as_ref().and_then(Party::poll) else { return false };
        self.ended(at, ended);
        true
    }

    fn read_all(&mut self) {
        for at in 0..self.parties.len() {
            while self.read(at) {}
        }
    }

    fn ended(&mut self, at: usize, ended: Ended) {
        self.events += 1;
        let context = match &ended {
            Ok((completion, _)) => completion.context,
            Err(failed) => failed.completion.context,
        };
        if context >= RUNNERS_CONTEXT {
            return self.own_ended(context, ended);
        }
        if context == 0 {
            let failed = ended.expect_err("the success of an injected message is silent");
            self.injected[at] = self.injected[at].checked_sub(1).expect("an injected message that failed");
            assert!(failed.completion.flags.contains(CompletionFlags::SEND), "{failed:?}");
            return;
        }
        match Operation::from_context(context) {
            Operation::Send(send) => self.send_ended(at, send, ended),
            Operation::Receive(receive) => self.receive_ended(at, receive, &ended),
        }
    }

    fn send_ended(&mut self, at: usize, identity: usize, ended: Ended) {
        let send = self.history.sends.get_mut(identity).expect("a send that was posted");
        assert_eq!(send.from, at, "the send of another endpoint");
        let kind = if send.tag.is_some() { CompletionFlags::TAGGED } else { CompletionFlags::MSG };
        let (completion, result) = match ended {
            Ok((completion, source)) => {
                assert_eq!(source, FabricAddress::UNSPECIFIED);
                (completion, Ok(()))
            }
            Err(CompletionError { completion, error, .. }) => (completion, Err(error.errno())),
        };
        assert_eq!(completion.flags, CompletionFlags::SEND | kind);
        assert_eq!((completion.len_bytes, completion.data, completion.tag), (0, 0, 0));
        let Buffer::SentVector(sent) = completion.buffer else { panic!("sendmsg takes and gives a vector") };
        assert!(sent.concat() == payload(identity as u64, send.len_bytes), "another buffer comes back");
        let before = send.ended.replace(result);
        assert_eq!(before, None, "send {identity} ended again, with {result:?}");
    }

    fn receive_ended(&mut self, at: usize, receive: usize, ended: &Ended) {
        let Some(posted) = self.history.receives.get(receive) else { panic!("receive {receive} is unknown") };
        assert_eq!((posted.at, posted.ended), (at, None), "receive {receive} ended again, with {ended:?}");
        let room_bytes = posted.len_bytes;
        let end = match ended {
            Ok((completion, source)) => {
                ReceiveEnd::Took(self.identify(at, room_bytes, completion, *source, 0))
            }
            Err(failed) => match failed.error {
                OperationError::Truncated { overflow_bytes } => {
                    assert!(overflow_bytes > 0);
                    let (completion, source) = (&failed.completion, failed.source);
                    ReceiveEnd::Took(self.identify(at, room_bytes, completion, source, overflow_bytes))
                }
                OperationError::Cancelled => ReceiveEnd::Cancelled,
                OperationError::NoMessage | OperationError::Fault | OperationError::Link(_) => {
                    ReceiveEnd::Broken(failed.errno())
                }
            },
        };
        self.history.receives[receive].ended = Some(end);
        if let ReceiveEnd::Took(message) = end {
            self.history.arrived(message, Arrived::Received(receive));
        }
    }

    /// Finds out which message was received, and checks everything that the completion says of it.
    fn identify(
        &self,
        at: usize,
        room_bytes: usize,
        completion: &Completion,
        source: FabricAddress,
        overflow_bytes: u64,
    ) -> usize {
        let bytes = received(&completion.buffer);
        let with_data = self.program.with_data;
        let identity = if with_data {
            completion.data
        } else {
            u64::from_le_bytes(bytes[..IDENTITY_BYTES].try_into().expect("that many bytes"))
        };
        let identity = usize::try_from(identity).expect("a small number");
        let send =
            self.history.sends.get(identity).unwrap_or_else(|| panic!("{completion:?} was never sent"));
        let mut flags = CompletionFlags::RECV;
        flags |= if send.tag.is_some() { CompletionFlags::TAGGED } else { CompletionFlags::MSG };
        flags.set(CompletionFlags::REMOTE_CQ_DATA, with_data);
        assert_eq!(completion.flags, flags);
        assert_eq!(completion.tag, send.tag.unwrap_or(0));
        assert_eq!(completion.data, if with_data { identity as u64 } else { 0 });
        assert_eq!(send.to, at, "message {identity} was for somebody else");
        assert_eq!(source, FabricAddress(send.from as u64));
        assert_eq!(completion.len_bytes, send.len_bytes.min(room_bytes));
        assert_eq!(overflow_bytes, (send.len_bytes - completion.len_bytes) as u64);
        assert!(
            bytes == payload(identity as u64, completion.len_bytes),
            "message {identity} has other bytes"
        );
        identity
    }

    fn own_ended(&mut self, context: u64, ended: Ended) {
        assert!(self.own_pending.remove(&context), "the runner's operation {context:#x} ended again");
        if let Ok((completion, source)) = ended
            && completion.flags.contains(CompletionFlags::RECV)
        {
            self.own_taken = Some((completion, source));
        }
    }

    fn own_context(&mut self) -> u64 {
        self.next_own += 1;
        self.own_pending.insert(self.next_own);
        self.next_own
    }

    /// Waits until every send has ended and everything that was sent has arrived or is lost.
    ///
    /// Behind all of its messages each endpoint sends one more to each other, which completes when it was received, or
    /// was lost; so nothing that was sent before it is still on its way to it, save on a network that breaks links,
    /// which knows itself when it is quiet.
    fn come_to_rest(&mut self) {
        let deadline = Deadline::new();
        for from in 0..self.parties.len() {
            for to in 0..self.parties.len() {
                if self.parties[from].is_none() {
                    continue;
                }
                let context = self.own_context();
                let last = Send {
                    to: FabricAddress(to as u64),
                    tag: Some(RUNNERS_TAG),
                    context,
                    flags: OpFlags::DELIVERY_COMPLETE,
                    ..Send::default()
                };
                while let Some(party) = &self.parties[from]
                    && !is_accepted(party.endpoint.sendmsg(last.clone()))
                {
                    self.read_all();
                    deadline.pause("room for the last messages");
                }
            }
        }
        let mut deadline = Deadline::new();
        let mut silent_rounds = 0;
        while silent_rounds < SILENT_ROUNDS {
            let before = self.events;
            self.read_all();
            let network_is_quiet = self.net.network.as_ref().is_none_or(Network::is_quiet);
            if self.events > before {
                deadline = Deadline::new();
                silent_rounds = 0;
            } else if network_is_quiet && self.own_pending.is_empty() && self.sends_have_ended() {
                silent_rounds += 1;
            } else {
                silent_rounds = 0;
                deadline.pause_for(|| self.what_is_missing(network_is_quiet));
            }
        }
    }

    fn what_is_missing(&self, network_is_quiet: bool) -> String {
        let has_not_ended =
            |send: &&SendOp| !send.injected && send.ended.is_none() && self.history.lives(send.from);
        let missing: Vec<&SendOp> = self.history.sends.iter().filter(has_not_ended).collect();
        let network = if network_is_quiet { "quiet" } else { "busy" };
        format!(
            "the end of {missing:?} and the runner's own {:?}; the network is {network}",
            self.own_pending
        )
    }

    fn sends_have_ended(&self) -> bool {
        let History { sends, .. } = &self.history;
        sends.iter().all(|send| send.injected || send.ended.is_some() || !self.history.lives(send.from))
    }

    /// Cancels what is still posted, which must be possible for all of it: nothing is in the middle of a message.
    fn take_back_receives(&mut self) {
        let deadline = Deadline::new();
        for receive in 0..self.history.receives.len() {
            let posted = &self.history.receives[receive];
            let Some(party) = &self.parties[posted.at] else { continue };
            if posted.ended.is_some() {
                continue;
            }
            assert!(!posted.too_late_to_cancel, "receive {receive} could not be cancelled, and never ended");
            let cancelled = party.endpoint.cancel(Operation::Receive(receive).context());
            cancelled.unwrap_or_else(|error| panic!("receive {receive} is stuck: {error}"));
            while self.history.receives[receive].ended.is_none() {
                self.read_all();
                deadline.pause("a cancelled receive");
            }
            let end = self.history.receives[receive].ended.take();
            assert_eq!(end, Some(ReceiveEnd::Cancelled));
        }
    }

    /// Receives what waits at each endpoint, in order, and writes it down.
    fn look_for_what_waits(&mut self) {
        for at in 0..self.parties.len() {
            for tagged in [None, Some((0, !RUNNERS_TAG))] {
                let mut count = 0;
                while let Some(message) = self.take_waiting(at, tagged) {
                    self.history.arrived(message, Arrived::Waiting(count));
                    count += 1;
                }
            }
        }
    }

    /// The first message that waits; a receive takes it at once if there is one.
    fn take_waiting(&mut self, at: usize, tagged: Option<(u64, u64)>) -> Option<usize> {
        self.parties[at].as_ref()?;
        let deadline = Deadline::new();
        let context = self.own_context();
        let buffers = vec![room(LEN_MAX_BYTES)];
        let receive = Receive { buffers, tagged, context, ..Receive::default() };
        let party = self.parties[at].as_ref()?;
        party.endpoint.recvmsg(receive).expect("nothing else is posted");
        // If it is still posted it can be cancelled.
        let _taken_or_cancelled = party.endpoint.cancel(context);
        while self.own_pending.contains(&context) {
            self.read_all();
            deadline.pause("a receive of the runner");
        }
        let (completion, source) = self.own_taken.take()?;
        Some(self.identify(at, LEN_MAX_BYTES, &completion, source, 0))
    }
}

/// Whether an operation was accepted; that there is no room for it now is the only reason not to.
fn is_accepted(result: Result<(), Error>) -> bool {
    match result {
        Ok(()) => true,
        Err(Error::Again(Again::QueueFull | Again::CompletionQueueFull)) => false,
        Err(error) => panic!("an operation was refused: {error}"),
    }
}

/// How a send that was taken back ends.
pub(crate) const CANCELLED: Result<(), Errno> = Err(Errno::ECANCELED);
