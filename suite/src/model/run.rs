//! Runs a program to its end, and records its history.

use std::collections::BTreeSet;
use std::{mem, thread};

use homespun::endpoint::{RecvMsg, SendMsg};
use homespun::flags::{Caps, CompletionFlags, OpFlags};
use homespun::{
    Address, Again, Buffer, Completion, CompletionError, Errno, Error, FabricAddress, OperationError,
    ReadError, Tag,
};

use crate::model::accesses::plain_part;
use crate::model::connected::open_connected_parties;
use crate::model::ends::EVERY_END;
use crate::model::history::{Access, AccessOp, End, Event, History, Incarnation, Operation, ReceiveEnd};
use crate::model::offer::Offer;
use crate::model::program::{Disruption, Program, SendCall, Step, Topology};
use crate::model::rest::RUNNERS_CONTEXT;
use crate::payload::{marked_buffers, payload, received_bytes, split_unevenly};
use crate::{Ended, Net, Party, Region, Setup};

/// The least length of a message that has no remote data: the message itself contains its identity.
const IDENTITY_BYTES: usize = 8;

pub(crate) struct Runner<'a> {
    pub(crate) net: &'a Net,
    pub(crate) offer: &'a Offer,
    pub(crate) program: &'a Program,
    /// The addresses of the parties.
    names: Vec<Address>,
    /// The region of each party.
    pub(crate) regions: Vec<Option<Region>>,
    /// The party of each place, `None` if it is closed or killed.
    pub(crate) parties: Vec<Option<Party>>,
    pub(crate) history: History,
    /// The receives that the test has posted itself, for messages that no receive of the program gets.
    pub(crate) drains: BTreeSet<usize>,
    /// How many injected messages and writes of each party may still fail.
    pub(crate) injected: Vec<usize>,
    /// The contexts of operations whose cancel was accepted, if that promises nothing (`fi_cancel(3)`).
    pub(crate) asked_to_cancel: BTreeSet<u64>,
    /// The contexts of the test's own outstanding sends.
    pub(crate) own_pending: BTreeSet<u64>,
    pub(crate) next_own: u64,
    /// The number of events so far.
    pub(crate) events: usize,
}

pub(crate) fn run_program(net: &Net, offer: &Offer, program: &Program) -> History {
    let setup = party_setup(program);
    let is_connected = program.topology == Topology::Connected;
    let (_sides, parties) = if is_connected {
        let (sides, parties) = open_connected_parties(net, &setup);
        (Some(sides), parties)
    } else {
        (None, (0..program.parties).map(|_| net.open_party_with(setup.clone())).collect())
    };
    let names: Vec<Address> = parties.iter().map(|party| party.endpoint.name().unwrap()).collect();
    if !is_connected {
        parties.iter().for_each(|party| insert_all_addresses(party, &names));
    }
    let mut history = History::of_places(program.parties);
    history.is_connected = is_connected;
    history.breaks_links = net.network.is_some() && program.disruption == Disruption::Killing;
    history.may_wait_for_killed = !offer.is_homespun;
    let mut runner = Runner {
        net,
        offer,
        program,
        names,
        injected: vec![0; parties.len()],
        regions: Vec::new(),
        parties: parties.into_iter().map(Some).collect(),
        history,
        drains: BTreeSet::new(),
        asked_to_cancel: BTreeSet::new(),
        own_pending: BTreeSet::new(),
        next_own: RUNNERS_CONTEXT,
        events: 0,
    };
    let has_regions = offer.caps.contains(Caps::RMA);
    runner.regions = (0..)
        .zip(&runner.parties)
        .map(|(at, party)| {
            let party = party.as_ref().filter(|_| has_regions);
            party.map(|party| runner.open_region(party, at))
        })
        .collect();
    let is_first = |step: &&Step| program.receives_first && step.is_receive();
    let (first, later): (Vec<&Step>, Vec<&Step>) = program.steps.iter().partition(is_first);
    first.into_iter().for_each(|step| runner.run_step(step));
    runner.history.posted_first = runner.history.receives.len();
    later.into_iter().for_each(|step| runner.run_step(step));
    runner.finish_all_operations();
    runner.read_all_regions();
    runner.history.record(Event::Finished);
    runner.check_no_receive_waits_for_a_lost_peer();
    runner.cancel_remaining_receives();
    runner.history
}

fn party_setup(program: &Program) -> Setup {
    Setup {
        cq_depth_entries: program.cq_depth_entries,
        tx_depth_ops: program.depth_ops,
        rx_depth_ops: program.depth_ops,
        unexpected_bytes: program.unexpected_bytes,
        order: program.order,
        completes_in_order: program.completes_in_order,
        ..Setup::default()
    }
}

/// Inserts the names of all places in order. So the fabric address of a place is its number.
fn insert_all_addresses(party: &Party, names: &[Address]) {
    for (n, name) in (0..).zip(names) {
        assert_eq!(party.av.insert(&[*name]).remove(0), Ok(FabricAddress(n)));
    }
}

impl Runner<'_> {
    fn run_step(&mut self, step: &Step) {
        let (count, is_stream) = (self.parties.len(), self.program.topology == Topology::Stream);
        match *step {
            Step::Send { from, to, tag, len_bytes, call, fenced } => {
                let (from, to) = self.ends_of_operation(from, to);
                self.send(from, to, tag.filter(|_| !is_stream), len_bytes, call, fenced);
            }
            Step::Receive { at, tagged, from, len_bytes, in_pieces } => {
                let (at, from) = self.receiver_and_source(at, from);
                self.post_receive(at, tagged.filter(|_| !is_stream), from, len_bytes, in_pieces);
            }
            Step::ReceiveMany { at, from, len_bytes, min_free_bytes } => {
                let (at, from) = self.receiver_and_source(at, from);
                self.post_multi_receive_buffer(at, from, len_bytes, min_free_bytes);
            }
            Step::Peek { at, tagged, from, then } => {
                let (at, from) = self.receiver_and_source(at, from);
                self.post_peek(at, tagged, from, then);
            }
            Step::Claim { at, which, len_bytes, discards } => {
                let claiming = self.peeks_with_unreceived_claims(at % count);
                if !claiming.is_empty() {
                    self.post_claim(claiming[which % claiming.len()], len_bytes, discards);
                }
            }
            Step::Access { from, to, part, call, fenced } => {
                let (from, to) = self.ends_of_operation(from, to);
                self.post_access(from, to, plain_part(part), call, fenced);
            }
            Step::Elements { from, to, .. } => {
                let (from, to) = self.ends_of_operation(from, to);
                self.post_elements_access(from, to, step);
            }
            Step::Touch { at, part, writes } => {
                let access = if writes { Access::Write } else { Access::Read };
                self.access_as_owner(at % count, plain_part(part), access);
            }
            Step::Drive { at, rounds } => {
                if let Some(party) = &self.parties[at % count] {
                    (0..rounds).for_each(|_| party.cq.progress());
                }
            }
            Step::Read { at, count: entries } => {
                for _ in 0..entries {
                    self.read_completion(at % count);
                }
            }
            Step::Cancel { .. } if is_stream => {}
            Step::Cancel { at, which } => self.cancel_one_operation(at % count, which),
            Step::Close { at } => self.close_party(at % count),
            Step::Kill { at } => self.kill_party(at % count),
            Step::Reopen { at } => self.reopen_party(at % count),
            Step::Break { between: (a, b) } => {
                if let (Some(a), Some(b)) = (&self.parties[a % count], &self.parties[b % count])
                    && let Some(network) = &self.net.network
                {
                    network.break_links_between(a.endpoint.name().unwrap(), b.endpoint.name().unwrap());
                }
            }
        }
    }

    /// Returns the places between which an operation goes.
    fn ends_of_operation(&self, from: usize, to: usize) -> (usize, usize) {
        let count = self.parties.len();
        match self.program.topology {
            Topology::Any => (from % count, to % count),
            Topology::Stream => (0, 1),
            Topology::Connected => (from % count, 1 - from % count),
        }
    }

    /// Returns the place of a receive, and the only source that it accepts.
    fn receiver_and_source(&self, at: usize, from: Option<usize>) -> (usize, Option<usize>) {
        let count = self.parties.len();
        match self.program.topology {
            Topology::Any => (at % count, from.map(|from| from % count)),
            Topology::Stream => (1, None),
            Topology::Connected => (at % count, None),
        }
    }

    /// What the completions of received messages tell.
    pub(crate) fn told(&self) -> Told<'_> {
        Told { history: &self.history, offer: self.offer, with_data: self.program.with_data }
    }

    /// Raises a length to the least length of messages and buffers.
    pub(crate) fn raise_to_min_len(&self, len_bytes: usize) -> usize {
        if self.program.with_data { len_bytes } else { len_bytes.max(IDENTITY_BYTES) }
    }

    fn send(
        &mut self,
        from: usize,
        to: usize,
        tag: Option<u64>,
        len_bytes: usize,
        call: SendCall,
        fenced: bool,
    ) {
        let Some(party) = &self.parties[from] else { return };
        if self.history.may_wait_forever_for(to) {
            return;
        }
        let mut len_bytes = self.raise_to_min_len(len_bytes);
        let injected = call == SendCall::Inject;
        if injected {
            len_bytes = len_bytes.min(party.endpoint.info().tx.inject_size_bytes);
        }
        let identity = self.history.sends.len();
        let context = Operation::Send(identity).context();
        let data = self.program.with_data.then_some(identity as u64);
        let message = payload(identity as u64, len_bytes);
        let to_address = FabricAddress(to as u64);
        let buffers =
            if call == SendCall::InPieces { split_unevenly(&message, 3) } else { vec![message.clone()] };
        let level = call.level(self.program.with_matches);
        let mut flags = level.flags();
        let fenced = fenced && self.program.with_fences && !injected;
        flags.set(OpFlags::FENCE, fenced);
        let accepted = if injected {
            party.endpoint.inject(&message, to_address, tag.map(Tag), data)
        } else {
            party.endpoint.sendmsg(SendMsg {
                buffers,
                to: to_address,
                tag: tag.map(Tag),
                data,
                context,
                flags,
            })
        };
        if !expect_accepted_or_full(accepted) {
            return;
        }
        self.injected[from] += usize::from(injected);
        let from = self.history.incarnation_at(from);
        let send = self.history.post_send((from, to), tag, len_bytes, level);
        (send.fenced, send.injected) = (fenced, injected);
    }

    /// Posts a receive. Returns false if there was no room for it.
    pub(crate) fn post_receive(
        &mut self,
        at: usize,
        tagged: Option<(u64, u64)>,
        from: Option<usize>,
        len_bytes: usize,
        in_pieces: bool,
    ) -> bool {
        let Some(party) = &self.parties[at] else { return true };
        let len_bytes = self.raise_to_min_len(len_bytes);
        let context = Operation::Receive(self.history.receives.len()).context();
        let receive = make_receive(tagged, from, len_bytes, in_pieces, context);
        if !expect_accepted_or_full(party.endpoint.recvmsg(receive)) {
            return false;
        }
        let at = self.history.incarnation_at(at);
        self.history.post_receive(at, tagged, len_bytes).from = from;
        true
    }

    fn cancel_one_operation(&mut self, at: usize, which: usize) {
        let Some(party) = &self.parties[at] else { return };
        let History { sends, receives, peeks, accesses, .. } = &self.history;
        let who = self.history.incarnation_at(at);
        let is_posted =
            |access: &AccessOp| access.by == who && !access.injected && !access.is_direct_by_owner();
        let accesses = (0..accesses.len()).filter(|&access| is_posted(&accesses[access]));
        let sends = (0..sends.len()).filter(|&send| sends[send].from == who && !sends[send].injected);
        let receives = (0..receives.len()).filter(|&receive| receives[receive].at == who);
        // A peek is listed, too: the receive of its claimed message has the same context. Each cancel with
        // this context must fail.
        let peeks = (0..peeks.len()).filter(|&peek| peeks[peek].at == who);
        let posted: Vec<Operation> = sends
            .map(Operation::Send)
            .chain(receives.map(Operation::Receive))
            .chain(peeks.map(Operation::Peek))
            .chain(accesses.map(Operation::Access))
            .collect();
        if posted.is_empty() {
            return;
        }
        let operation = posted[which % posted.len()];
        let result = party.endpoint.cancel(operation.context());
        self.record_cancel(operation, &result);
    }

    /// Records what a cancel has answered. Only homespun's own library cancels whatever it accepts.
    pub(crate) fn record_cancel(&mut self, operation: Operation, result: &Result<(), Error>) {
        if self.offer.is_native {
            self.history.record_cancel(operation, result);
        } else if result.is_ok() {
            self.asked_to_cancel.insert(operation.context());
            if let Operation::Receive(receive) = operation {
                let now = self.history.events.len() as u64;
                self.history.receives[receive].cancel_asked_at.get_or_insert(now);
            }
        }
    }

    fn close_party(&mut self, at: usize) {
        let Some(party) = self.parties[at].take() else { return };
        let cq = party.cq.clone();
        drop(party);
        // Entries of earlier completions can still be read.
        loop {
            match cq.read_from() {
                Ok(Some(completed)) => self.record_entry(at, Ok(completed)),
                Ok(None) => break,
                Err(ReadError::ErrorAvailable) => {
                    let failed = cq.read_error().unwrap().expect("an error was announced");
                    self.record_entry(at, Err(failed));
                }
                Err(error) => panic!("{error}"),
            }
        }
        self.history.record_endpoint_end(at, End::Closed);
        self.regions[at] = None;
    }

    fn kill_party(&mut self, at: usize) {
        let Some(party) = self.parties[at].take() else { return };
        self.history.record_endpoint_end(at, End::Killed);
        match &self.net.network {
            Some(network) => {
                assert!(network.kill(self.names[at]), "the endpoint was alive");
                // A process that dies does not close its endpoint in order.
                mem::forget(party.endpoint);
            }
            None => party.kill(),
        }
        self.regions[at] = None;
    }

    fn reopen_party(&mut self, at: usize) {
        if self.parties[at].is_some() || !self.net.probe_address_is_free(self.names[at]) {
            return;
        }
        let party = self.net.open_party_with(Setup { at: Some(self.names[at]), ..party_setup(self.program) });
        insert_all_addresses(&party, &self.names);
        self.regions[at] = Some(self.open_region(&party, at));
        self.parties[at] = Some(party);
        self.history.places[at].is_vacant = false;
        self.injected[at] = 0;
    }

    /// Reads and records one completion. Returns false if there was none.
    fn read_completion(&mut self, at: usize) -> bool {
        let Some(ended) = self.parties[at].as_ref().and_then(Party::poll_completion) else { return false };
        self.record_entry(at, ended);
        true
    }

    pub(crate) fn read_all(&mut self) {
        for at in 0..self.parties.len() {
            while self.read_completion(at) {}
        }
    }

    fn record_entry(&mut self, at: usize, ended: Ended) {
        self.events += 1;
        let context = match &ended {
            Ok((completion, _)) => completion.context,
            Err(failed) => failed.completion.context,
        };
        if context >= RUNNERS_CONTEXT {
            return self.record_own_send_end(context);
        }
        let was_cancelled = matches!(&ended, Err(failed) if failed.error == OperationError::Cancelled);
        if was_cancelled && self.asked_to_cancel.remove(&context) {
            self.history.record_cancel(Operation::from_context(context), &Ok(()));
        }
        let who = self.history.incarnation_at(at);
        if context == 0 {
            let failed = match ended {
                Ok((completion, source)) => return self.record_remote_data(who, &completion, source),
                Err(failed) => failed,
            };
            self.injected[at] = self.injected[at].checked_sub(1).expect("something injected that failed");
            let injected = CompletionFlags::SEND | CompletionFlags::WRITE;
            assert!(failed.completion.flags.intersects(injected), "{failed:?}");
            return;
        }
        match Operation::from_context(context) {
            Operation::Send(send) => self.record_send_end(who, send, ended),
            Operation::Receive(receive) => {
                self.record_receive_end(who, receive, &ended);
                if ended.is_ok() && self.offer.plants_duplicates() {
                    self.record_receive_end(who, receive, &ended);
                }
            }
            Operation::Access(access) => self.record_access_end(who, access, ended),
            Operation::Peek(peek) => match self.history.peeks.get(peek) {
                Some(posted) if posted.claim.is_some() => self.record_claim_end(who, peek, &ended),
                Some(_) => self.record_peek_end(who, peek, &ended),
                None => panic!("peek {peek} is unknown"),
            },
        }
    }

    fn record_send_end(&mut self, who: Incarnation, identity: usize, ended: Ended) {
        let now = self.history.record(Event::Ended(Operation::Send(identity)));
        let send = self.history.sends.get_mut(identity).expect("a send that was posted");
        assert_eq!(send.from, who, "the send of another endpoint");
        let kind = if send.tag.is_some() { CompletionFlags::TAGGED } else { CompletionFlags::MSG };
        let (completion, result) = match ended {
            Ok((completion, source)) => {
                assert!(source == FabricAddress::UNSPECIFIED || !self.offer.is_homespun);
                (completion, Ok(()))
            }
            Err(CompletionError { completion, error, .. }) => (completion, Err(error.errno())),
        };
        self.offer.check_flags(&completion, CompletionFlags::SEND | kind);
        self.offer.check_transmit_fields(&completion, 0);
        let Buffer::SentVector(sent) = completion.buffer else { panic!("sendmsg takes and gives a vector") };
        assert!(sent.concat() == payload(identity as u64, send.len_bytes), "another buffer comes back");
        send.ended_at = now;
        let before = send.ended.replace(result);
        assert_eq!(before, None, "send {identity} ended again, with {result:?}");
    }

    fn record_receive_end(&mut self, who: Incarnation, receive: usize, ended: &Ended) {
        let Some(posted) = self.history.receives.get(receive) else { panic!("receive {receive} is unknown") };
        let is_first = (posted.at, posted.ended) == (who, None);
        assert!(is_first, "{EVERY_END} is violated: receive {receive} ended again, with {ended:?}");
        if posted.buffer.is_some() {
            return self.record_buffer_entry(who, receive, ended);
        }
        let end = match self.told().check_received_message(who.place, posted.len_bytes, ended) {
            Ok(message) => {
                self.history.record_taken(receive, message);
                ReceiveEnd::Took(message)
            }
            Err(OperationError::Cancelled) => ReceiveEnd::Cancelled,
            Err(error) => ReceiveEnd::Broken(expect_lost_sender_errno(&error)),
        };
        if !matches!(end, ReceiveEnd::Took(_)) {
            self.history.record(Event::Ended(Operation::Receive(receive)));
        }
        self.history.receives[receive].ended = Some(end);
    }
}

/// What the completions of messages tell.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Told<'a> {
    pub(crate) history: &'a History,
    pub(crate) offer: &'a Offer,
    /// Whether messages carry their identity as remote data.
    pub(crate) with_data: bool,
}

impl Told<'_> {
    /// Checks the end of a receive. Returns the identity of the received message, or the error.
    pub(crate) fn check_received_message(
        self,
        at: usize,
        room_bytes: usize,
        ended: &Ended,
    ) -> Result<usize, OperationError> {
        let (completion, source, overflow_bytes) = match ended {
            Ok((completion, source)) => (completion, *source, 0),
            Err(failed) => match failed.error {
                OperationError::Truncated { overflow_bytes } => {
                    assert!(overflow_bytes > 0 || !self.offer.is_homespun);
                    (&failed.completion, failed.source, overflow_bytes)
                }
                ref error => return Err(error.clone()),
            },
        };
        let bytes = received_bytes(&completion.buffer);
        let identity = if self.with_data {
            completion.data
        } else {
            u64::from_le_bytes(bytes[..IDENTITY_BYTES].try_into().expect("that many bytes"))
        };
        let identity = usize::try_from(identity).expect("a small number");
        let len_bytes = self.check_completion_fields(at, identity, completion, source);
        // The semantic tests say which fields another provider fills in where it cuts a message off.
        if self.offer.is_homespun || len_bytes <= room_bytes {
            assert_eq!(completion.len_bytes, len_bytes.min(room_bytes));
            assert_eq!(overflow_bytes, (len_bytes - completion.len_bytes) as u64);
        }
        assert!(bytes.len() == completion.len_bytes || !self.offer.is_homespun, "{completion:?}");
        assert!(bytes == payload(identity as u64, bytes.len()), "message {identity} has other bytes");
        Ok(identity)
    }

    /// Checks the fields of a received message's completion. Returns the length that was sent.
    pub(crate) fn check_completion_fields(
        self,
        at: usize,
        identity: usize,
        completion: &Completion,
        source: FabricAddress,
    ) -> usize {
        let with_data = self.with_data;
        let send =
            self.history.sends.get(identity).unwrap_or_else(|| panic!("{completion:?} was never sent"));
        let mut flags = CompletionFlags::RECV;
        flags |= if send.tag.is_some() { CompletionFlags::TAGGED } else { CompletionFlags::MSG };
        flags.set(CompletionFlags::REMOTE_CQ_DATA, with_data);
        self.offer.check_flags(completion, flags);
        if self.offer.is_homespun || send.tag.is_some() {
            assert_eq!(completion.tag, send.tag.unwrap_or(0));
        }
        if self.offer.is_homespun || with_data {
            assert_eq!(completion.data, if with_data { identity as u64 } else { 0 });
        }
        assert_eq!(send.to, at, "message {identity} was for another endpoint");
        if self.offer.caps.contains(Caps::SOURCE) {
            assert_eq!(source, self.history.source_of(send.from.place));
        }
        send.len_bytes
    }
}

/// Returns the errno of a receive that lost its sender. Panics for any other error.
pub(crate) fn expect_lost_sender_errno(error: &OperationError) -> Errno {
    match error {
        OperationError::Fault | OperationError::Link(_) => error.errno(),
        other => panic!("a receive failed: {other}"),
    }
}

/// Returns the source of a directed receive.
pub(crate) fn source_address(from: Option<usize>) -> FabricAddress {
    from.map_or(FabricAddress::UNSPECIFIED, |from| FabricAddress(from as u64))
}

/// Closes endpoints. Drives the parties meanwhile, since closing waits for peers.
pub(crate) fn close_while_driving<T: Send>(net: &Net, endpoints: T) {
    thread::scope(|scope| {
        let closing = scope.spawn(|| drop(endpoints));
        while !closing.is_finished() {
            net.progress();
            thread::yield_now();
        }
    });
}

/// Makes a receive.
pub(crate) fn make_receive(
    tagged: Option<(u64, u64)>,
    from: Option<usize>,
    len_bytes: usize,
    in_pieces: bool,
    context: u64,
) -> RecvMsg {
    RecvMsg {
        buffers: marked_buffers(len_bytes, if in_pieces { 3 } else { 1 }),
        from: source_address(from),
        tagged: tagged.map(|(tag, ignore)| Tag(tag).ignoring(ignore)),
        context,
        ..RecvMsg::default()
    }
}

/// Whether an operation was accepted; the only valid refusal is a full queue.
pub(crate) fn expect_accepted_or_full(result: Result<(), Error>) -> bool {
    match result {
        Ok(()) => true,
        Err(Error::Again(Again::QueueFull)) => false,
        Err(error) => panic!("an operation was refused: {error}"),
    }
}
