//! Runs a program to its end, and records its history.

use crate::connecting::Side;
use crate::deadline::run_while_driving;
use crate::model::accesses::plain_part;
use crate::model::connected::open_connected_parties;
use crate::model::ends::EVERY_END;
use crate::model::prelude::*;
use crate::model::receives::{IDENTITY_BYTES, Told, record_receive_entry};
use crate::model::rest::RUNNERS_CONTEXT;

pub(crate) struct Runner<'a> {
    /// The sides of the connection, if there is one.
    pub(crate) sides: Option<[Side; 2]>,
    pub(crate) net: &'a Net,
    pub(crate) offer: &'a Offer,
    pub(crate) program: &'a Program,
    /// The addresses of the parties.
    names: Vec<Address>,
    /// The region of each party.
    pub(crate) regions: Vec<Option<Region>>,
    /// The party of each place, `None` if it is closed or killed.
    pub(crate) parties: Vec<Option<Party>>,
    /// The endpoints that were killed inside this process. Closing one would tell its peers.
    killed: Vec<crate::Endpoint>,
    pub(crate) history: History,
    /// The receives that the test has posted itself, for messages that no receive of the program gets.
    pub(crate) drains: BTreeSet<usize>,
    /// How many injected messages and writes of each party may still fail.
    pub(crate) injected: Vec<usize>,
    /// The contexts of operations whose cancel was accepted, if that promises nothing (`fi_cancel(3)`).
    pub(crate) asked_to_cancel: BTreeSet<u64>,
    /// The number of the test's own outstanding sends.
    pub(crate) own_pending: usize,
    /// The number of events so far.
    pub(crate) events: usize,
}

pub(crate) fn run_program(net: &Net, offer: &Offer, program: &Program) -> History {
    let setup = party_setup(program);
    let is_connected = program.topology == Topology::Connected;
    let (sides, parties) = if is_connected {
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
        sides,
        net,
        offer,
        program,
        names,
        injected: vec![0; parties.len()],
        regions: Vec::new(),
        parties: parties.into_iter().map(Some).collect(),
        killed: Vec::new(),
        history,
        drains: BTreeSet::new(),
        asked_to_cancel: BTreeSet::new(),
        own_pending: 0,
        events: 0,
    };
    let has_regions = offer.caps.contains(Caps::RMA);
    let region_of = |at: usize| {
        let party = runner.parties[at].as_ref().filter(|_| has_regions)?;
        Some(runner.open_region(party, at))
    };
    runner.regions = (0..program.parties).map(region_of).collect();
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
    net.close_dead(runner.killed);
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
            Step::Send(step) => {
                let (from, to) = self.ends_of_operation(step.from, step.to);
                self.send(SendStep { from, to, tag: step.tag.filter(|_| !is_stream), ..step });
            }
            Step::Receive(step) => {
                let (at, from) = self.receiver_and_source(step.at, step.from);
                let tagged = step.tagged.filter(|_| !is_stream);
                self.post_receive(ReceiveStep { at, from, tagged, ..step });
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
            Step::Access(step) => {
                let (from, to) = self.ends_of_operation(step.from, step.to);
                self.post_access(AccessStep { from, to, part: plain_part(step.part), ..step });
            }
            Step::Elements(step) => {
                let (from, to) = self.ends_of_operation(step.from, step.to);
                self.post_elements_access(ElementsStep { from, to, ..step });
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

    fn post_multi_receive_buffer(
        &mut self,
        at: usize,
        from: Option<usize>,
        len_bytes: usize,
        min_free_bytes: usize,
    ) {
        let Some(party) = &self.parties[at] else { return };
        let buffer = marked_buffer(self.raise_to_min_len(len_bytes));
        let len_bytes = buffer.len();
        let context = Operation::Receive(self.history.receives.len()).context();
        party.endpoint.set_min_multi_recv_bytes(min_free_bytes);
        if expect_accepted_or_full(party.endpoint.recv_multi(buffer, source_address(from), context)) {
            let at = self.history.incarnation_at(at);
            let buffer = BufferOp { min_free_bytes, took: Vec::new(), has_lost: false };
            self.history.post_receive(at, None, from, len_bytes).buffer = Some(buffer);
        }
    }

    /// Raises a length to the least length of messages and buffers.
    pub(crate) fn raise_to_min_len(&self, len_bytes: usize) -> usize {
        if self.program.with_data { len_bytes } else { len_bytes.max(IDENTITY_BYTES) }
    }

    /// Returns the post of an operation, whose fence counts only where the program has fences.
    pub(crate) fn make_post(
        &self,
        (from, to): (usize, usize),
        level: Level,
        fenced: bool,
        injected: bool,
    ) -> Post {
        let fenced = fenced && self.program.with_fences && !injected;
        Post { by: self.history.incarnation_at(from), to, level, fenced, injected, ..Post::default() }
    }

    fn send(&mut self, SendStep { from, to, tag, len_bytes, call, fenced }: SendStep) {
        let Some(party) = &self.parties[from] else { return };
        if self.history.may_wait_forever_for(to) {
            return;
        }
        let injected = call == SendCall::Inject;
        let post = self.make_post((from, to), call.level(self.program.with_matches), fenced, injected);
        let len_bytes = self.raise_to_min_len(len_bytes).min(most_bytes(party, injected));
        let identity = self.history.sends.len();
        let data = self.program.with_data.then_some(identity as u64);
        let message = payload(identity as u64, len_bytes);
        let peer = FabricAddress(to as u64);
        let accepted = if injected {
            party.endpoint.inject(&message, peer, tag.map(Tag), data)
        } else {
            party.endpoint.sendmsg(SendMsg {
                buffers: split_unevenly(&message, if call == SendCall::InPieces { 3 } else { 1 }),
                to: peer,
                tag: tag.map(Tag),
                data,
                context: Operation::Send(identity).context(),
                flags: post.flags(),
            })
        };
        if expect_accepted_or_full(accepted) {
            self.injected[from] += usize::from(injected);
            self.history.post_send(post, tag, len_bytes);
        }
    }

    /// Posts a receive. Returns false if there was no room for it.
    pub(crate) fn post_receive(&mut self, step: ReceiveStep) -> bool {
        let Some(party) = &self.parties[step.at] else { return true };
        let step = ReceiveStep { len_bytes: self.raise_to_min_len(step.len_bytes), ..step };
        let context = Operation::Receive(self.history.receives.len()).context();
        if !expect_accepted_or_full(party.endpoint.recvmsg(make_receive(step, context))) {
            return false;
        }
        let at = self.history.incarnation_at(step.at);
        self.history.post_receive(at, step.tagged, step.from, step.len_bytes);
        true
    }

    fn cancel_one_operation(&mut self, at: usize, which: usize) {
        let Some(party) = &self.parties[at] else { return };
        let History { sends, receives, peeks, accesses, .. } = &self.history;
        let who = self.history.incarnation_at(at);
        let is_own = |operation: &Operation| match *operation {
            Operation::Receive(receive) => receives[receive].at == who,
            // The receive of the peek's claimed message has the same context. Each cancel with this context
            // must fail.
            Operation::Peek(peek) => peeks[peek].at == who,
            _ => self
                .history
                .post_of(*operation)
                .is_some_and(|post| post.by == who && !post.injected && !post.is_direct_by_owner()),
        };
        let posted = (0..sends.len())
            .map(Operation::Send)
            .chain((0..receives.len()).map(Operation::Receive))
            .chain((0..peeks.len()).map(Operation::Peek))
            .chain((0..accesses.len()).map(Operation::Access));
        let posted: Vec<Operation> = posted.filter(is_own).collect();
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
        let deadline = Deadline::new();
        while let Some(ended) = cq.poll_completion() {
            self.record_entry(at, ended);
            deadline.yield_or_panic("the last entry of a closed endpoint");
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
                self.killed.push(party.endpoint);
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
        if context == RUNNERS_CONTEXT {
            self.own_pending = self.own_pending.checked_sub(1).expect("one of the runner's own sends");
            return;
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
        assert_eq!(send.post.by, who, "the send of another endpoint");
        let kind = if send.tag.is_some() { CompletionFlags::TAGGED } else { CompletionFlags::MSG };
        let (completion, result) = self.offer.split_transmit_end(ended);
        self.offer.check_flags(&completion, CompletionFlags::SEND | kind);
        self.offer.check_transmit_fields(&completion, 0);
        let Buffer::SentVector(sent) = completion.buffer else { panic!("sendmsg takes and gives a vector") };
        assert!(sent.concat() == payload(identity as u64, send.len_bytes), "another buffer comes back");
        send.post.end(result.map_err(|error| error.errno()), now);
    }

    fn record_receive_end(&mut self, who: Incarnation, receive: usize, ended: &Ended) {
        let Some(posted) = self.history.receives.get(receive) else { panic!("receive {receive} is unknown") };
        let is_first = (posted.at, posted.ended) == (who, None);
        assert!(is_first, "{EVERY_END} is violated: receive {receive} ended again, with {ended:?}");
        let (at, with_data) = (who.place, self.program.with_data);
        let end = record_receive_entry(&mut self.history, self.offer, with_data, at, receive, ended);
        let is_over = self.history.receives[receive].ended.is_some();
        assert!(is_over || end != ReceiveEnd::Cancelled, "it takes no more: {ended:?}");
    }
}

/// Returns the most bytes of an operation: an injected one is cut to the inject size.
pub(crate) fn most_bytes(party: &Party, injected: bool) -> usize {
    if injected { party.endpoint.info().tx.inject_size_bytes } else { usize::MAX }
}

/// Returns the source of a directed receive.
pub(crate) fn source_address(from: Option<usize>) -> FabricAddress {
    from.map_or(FabricAddress::UNSPECIFIED, |from| FabricAddress(from as u64))
}

/// Closes endpoints. Drives the parties meanwhile, since closing waits for peers.
pub(crate) fn close_while_driving<T: Send + 'static>(net: &Net, endpoints: T) {
    run_while_driving(move || drop(endpoints), || net.progress());
}

/// Makes a receive.
pub(crate) fn make_receive(step: ReceiveStep, context: u64) -> RecvMsg {
    RecvMsg {
        buffers: marked_buffers(step.len_bytes, if step.in_pieces { 3 } else { 1 }),
        from: source_address(step.from),
        tagged: step.tagged.map(|(tag, ignore)| Tag(tag).ignoring(ignore)),
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
