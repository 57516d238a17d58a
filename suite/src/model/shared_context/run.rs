//! Opens a receive context, its members and the peers that send to them, runs a program, and records its
//! history.

use std::mem;

use super::{Observed, Program, ReceiveLosses};
use crate::connecting::{self, CLIENT, ConnectionEvent, LISTENER, SERVER, Side};
use crate::model::prelude::*;
use crate::model::receives::record_receive_entry;
use crate::model::run::{close_while_driving, expect_accepted_or_full, make_receive, source_address};

/// Where receives of the context are in the history.
const CONTEXT: Incarnation = Incarnation { place: 0, life: 0 };

pub(super) struct Runner<'a> {
    pub(super) net: &'a Net,
    pub(super) observed: Observed,
    cq_depth_entries: usize,
    domain: Domain,
    /// The address vector of the members, if they have no connections.
    av: AddressVector,
    /// The sides of the peers and of the members, if each member has a connection to the peer with the same
    /// number.
    sides: Option<[Side; 2]>,
    pub(super) members: Vec<Member>,
    /// The peers. In a peer's address vector, a member has the member's index as its address. In the
    /// members' vector, a peer has the peer's index.
    pub(super) peers: Vec<Party>,
    pub(super) context: SharedReceiveContext,
}

/// An endpoint of the context, with its own completion queue and a counter of its receives.
pub(super) struct Member {
    /// `None` once it has left.
    endpoint: Option<Endpoint>,
    pub(super) cq: CompletionQueue,
    pub(super) received: Counter,
    /// The number of failures that were read from the member's queue.
    pub(super) failures: u64,
}

/// Runs a program. `faults`, if given, are the faults of the network during the steps.
pub(super) fn run_program(net: &Net, program: &Program, faults: Option<&Faults>) -> Observed {
    let mut observed = Observed { is_violent: faults.is_some(), ..Observed::default() };
    observed.history.is_connected = program.connected;
    let mut runner = Runner::open(net, program, observed);
    if let (Some(network), Some(faults)) = (&net.network, faults) {
        network.set_faults(faults.clone());
    }
    for step in &program.steps {
        runner.run_step(step);
    }
    if let (Some(network), true) = (&net.network, runner.observed.is_violent) {
        network.set_faults(Faults::choppy());
    }
    runner.receive_everything();
    runner.cancel_remaining_receives();
    runner.check_counters();
    runner.close_members_and_check_credit(program.unexpected_bytes);
    mem::take(&mut runner.observed)
}

impl<'a> Runner<'a> {
    /// Opens the objects of a program. The members are in this process. The net decides where the peers are.
    fn open(net: &'a Net, program: &Program, observed: Observed) -> Runner<'a> {
        let sides = program.connected.then(|| [Side::new(net), Side::new(net)]);
        let (domain, caps) = match &sides {
            Some([_, server]) => (server.domain.clone(), server.info.rx.caps),
            None => (net.open_other_domain(), net.info().rx.caps),
        };
        let mut attr = RxAttr { caps, ..RxAttr::default() };
        if program.depth_ops > 0 {
            attr.size_ops = program.depth_ops;
        }
        if program.unexpected_bytes > 0 {
            attr.total_buffered_recv_bytes = program.unexpected_bytes;
        }
        let mut runner = Runner {
            net,
            observed,
            cq_depth_entries: program.cq_depth_entries,
            av: domain.open_av(&AvAttr::default()).expect("an address vector"),
            context: domain.shared_receive_context(&attr).expect("a context"),
            domain,
            sides,
            members: Vec::new(),
            peers: Vec::new(),
        };
        (0..program.members).for_each(|_| runner.add_member());
        if !program.connected {
            for _ in 0..program.peers {
                runner.add_unconnected_peer();
            }
        }
        runner
    }

    /// Adds a member. If members have connections, also adds its peer.
    pub(super) fn add_member(&mut self) {
        let attr = CqAttr { size_entries: self.cq_depth_entries, ..CqAttr::default() };
        let cq = self.domain.open_cq(&attr).expect("a queue of this size");
        let received = self.domain.open_counter(&CounterAttr::default()).expect("a counter");
        let endpoint = match &self.sides {
            None => {
                let info = with_shared_receive_context(self.net.info().clone());
                let endpoint = self.domain.endpoint(&info).expect("an endpoint");
                endpoint.bind_av(&self.av).expect("the first address vector");
                self.bind_member(&endpoint, &cq, &received);
                endpoint.enable().expect("nothing is missing");
                endpoint
            }
            Some([client, server]) => {
                let listener = server.open_listener(LISTENER);
                let (connecting, request) = connecting::ask(client, server, &listener, b"");
                let info = with_shared_receive_context(request.info());
                let accepting = server.domain.endpoint_for_request(&info, &request).expect("it is open");
                accepting.bind_eq(&server.eq, SERVER).expect("the first event queue");
                self.bind_member(&accepting, &cq, &received);
                accepting.accept(b"").expect("it can be accepted");
                for (sides, endpoint) in [([server, client], SERVER), ([client, server], CLIENT)] {
                    wait_until_connected(&sides, endpoint);
                }
                self.peers.push(self.net.party_of_connection(client, connecting));
                accepting.expect_local().clone()
            }
        };
        self.members.push(Member { endpoint: Some(endpoint), cq, received, failures: 0 });
    }

    /// Adds an unconnected peer, and inserts all members into its address vector. Returns the peer's fabric
    /// address for the newest member, or `None` if the peers have connections.
    pub(super) fn add_unconnected_peer(&mut self) -> Option<FabricAddress> {
        if self.sides.is_some() {
            return None;
        }
        let setup = Setup { cq_depth_entries: self.cq_depth_entries, ..Setup::default() };
        let peer = self.net.open_party_with(setup);
        let mut known = None;
        for endpoint in self.members.iter().filter_map(|member| member.endpoint.as_ref()) {
            known = Some(peer.insert(endpoint.name().expect("a name")));
        }
        self.av.insert_one(peer.endpoint.name().expect("a name")).expect("a peer's name");
        self.peers.push(peer);
        known
    }

    fn bind_member(&self, endpoint: &Endpoint, cq: &CompletionQueue, received: &Counter) {
        endpoint.bind_cq(cq, BindFlags::TRANSMIT | BindFlags::RECV).expect("the first queue");
        endpoint.bind_counter(received, CounterEvents::RECV).expect("the first counter");
        endpoint.bind_shared_receive_context(&self.context).expect("the first context");
    }

    /// Reads all connection events, since some connections have ended.
    pub(super) fn discard_connection_events(&self) {
        self.sides.iter().flatten().for_each(|side| while side.poll_event().is_some() {});
    }

    pub(super) fn is_member(&self, member: usize) -> bool {
        self.members[member].endpoint.is_some()
    }

    /// Returns the oldest member. The queue of the oldest member gets the entries that belong to no member,
    /// for example of cancelled receives.
    pub(super) fn oldest_member(&self) -> Option<usize> {
        (0..self.members.len()).find(|member| self.is_member(*member))
    }

    /// Closes members, but keeps their queues. Drives the peers meanwhile, since closing waits for peers.
    /// Members are not driven: their queues may be full.
    pub(super) fn close_members(&mut self, members: impl IntoIterator<Item = usize>) {
        let members = members.into_iter();
        let closed: Vec<_> = members.filter_map(|member| self.members[member].endpoint.take()).collect();
        close_while_driving(self.net, closed);
    }

    /// Ends the link between a peer and a member: breaks it if the network can, and otherwise shuts down a
    /// connection. Returns whether it has done so.
    pub(super) fn end_link(&self, peer: usize, member: usize, in_order: bool) -> bool {
        let peer = &self.peers[peer];
        match (&self.net.network, &self.members[member].endpoint) {
            _ if in_order && self.sides.is_some() => {
                // The connection may have ended before.
                let _ = peer.endpoint.expect_local().shutdown();
                true
            }
            (Some(network), Some(endpoint)) => {
                let names = [peer.endpoint.name(), endpoint.name()];
                let [peer, member] = names.map(|name| name.expect("an endpoint in service has a name"));
                network.break_links_between(peer, member);
                true
            }
            _ => false,
        }
    }
}

impl Runner<'_> {
    fn run_step(&mut self, step: &Step) {
        let (members, peers) = (self.members.len(), self.peers.len());
        // The peer of a connection has the number of its member.
        let peer = |from: usize, to: usize| if self.sides.is_some() { to % members } else { from % peers };
        match *step {
            Step::Send(step) => {
                let (from, to) = (peer(step.from, step.to), step.to % members);
                self.send(SendStep { from, to, ..step });
            }
            Step::Receive(step) => {
                let from = self.choose_source(step.from);
                self.post_receive(ReceiveStep { from, ..step });
            }
            Step::ReceiveMany { from, len_bytes, min_free_bytes, .. } => {
                let from = self.choose_source(from);
                self.context.set_min_multi_recv_bytes(min_free_bytes);
                let (buffer, context) = (marked_buffer(len_bytes), self.next_receive_context());
                let posted = self.context.recv_multi(buffer, source_address(from), context);
                if expect_accepted_or_full(posted.map_err(Error::from)) {
                    let buffer = BufferOp { min_free_bytes, took: Vec::new(), has_lost: false };
                    self.observed.history.post_receive(CONTEXT, None, from, len_bytes).buffer = Some(buffer);
                    self.observed.receives.push(ReceiveLosses::default());
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
                if self.end_link(link.0, link.1, from <= to) {
                    let now = self.observed.history.events.len() as u64 + 1;
                    self.observed.ended_links.entry(link).or_insert(now);
                }
            }
            Step::Drive { at, rounds } => {
                (0..rounds).for_each(|_| self.members[at % members].cq.progress());
            }
            Step::Read { at, count } => {
                for _ in 0..count {
                    self.read_member_completion(at % members);
                    self.read_peer_completion(at % peers);
                }
            }
            Step::Peek { .. }
            | Step::Claim { .. }
            | Step::Access(_)
            | Step::Elements(_)
            | Step::Touch { .. }
            | Step::Reopen { .. } => unreachable!("no program of a shared context has this step: {step:?}"),
        }
    }

    /// Returns the only source that a receive accepts, or `None` for any source. A receive over connections
    /// has no source. Without a member there is no address vector to look up a source.
    fn choose_source(&self, from: Option<usize>) -> Option<usize> {
        from.filter(|_| self.sides.is_none() && self.oldest_member().is_some())
            .map(|from| from % self.peers.len())
    }

    /// Closes a member.
    fn close_member(&mut self, member: usize, reads_first: bool) {
        if !self.is_member(member) {
            return;
        }
        while reads_first && self.read_member_completion(member) {}
        self.close_members([member]);
        self.observed.left.insert((member, reads_first));
    }

    fn send(&mut self, SendStep { from, to, tag, len_bytes, call, .. }: SendStep) {
        let identity = self.observed.history.sends.len() as u64;
        let by = Incarnation { place: from, life: 0 };
        let post = Post { by, to, level: call.level(true), ..Post::default() };
        let pieces = if call == SendCall::InPieces { 3 } else { 1 };
        let message = SendMsg {
            buffers: split_unevenly(&payload(identity, len_bytes), pieces),
            to: if self.sides.is_some() { FabricAddress::UNSPECIFIED } else { FabricAddress(to as u64) },
            tag: tag.map(Tag),
            data: Some(identity),
            context: identity,
            flags: post.flags(),
        };
        let posted = self.peers[from].endpoint.sendmsg(message);
        if self.sides.is_some() && matches!(posted, Err(Error::Misuse(Misuse::NotConnected))) {
            let may_lose = self.observed.is_violent || self.observed.ended_links.contains_key(&(from, to));
            let has_ended = self.observed.has_left(to) || may_lose;
            assert!(has_ended, "the connection of member {to} has ended by itself");
        } else if expect_accepted_or_full(posted) {
            self.observed.history.post_send(post, tag, len_bytes);
        }
    }

    fn next_receive_context(&self) -> u64 {
        self.observed.receives.len() as u64
    }

    /// Posts a receive to the context. Returns whether it was accepted.
    pub(super) fn post_receive(&mut self, step: ReceiveStep) -> bool {
        let receive = make_receive(step, self.next_receive_context());
        let accepted = expect_accepted_or_full(self.context.recvmsg(receive).map_err(Error::from));
        if accepted {
            self.observed.history.post_receive(CONTEXT, step.tagged, step.from, step.len_bytes);
            self.observed.receives.push(ReceiveLosses::default());
        }
        accepted
    }

    /// Cancels a receive. Returns whether that was possible.
    pub(super) fn cancel_receive(&mut self, receive: usize) -> bool {
        let result = self.context.cancel(receive as u64);
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
        let Some(ended) = poll_completion(&self.members[member].cq) else { return false };
        self.record_receive_end(member, &ended);
        true
    }

    fn read_peer_completion(&mut self, peer: usize) -> bool {
        let Some(ended) = self.peers[peer].poll_completion() else { return false };
        let (completion, result) = match ended {
            Ok((completion, _)) => (completion, Ok(())),
            Err(failed) => (failed.completion, Err(failed.error.errno())),
        };
        let identity = completion.context as usize;
        let now = self.observed.history.record(Event::Ended(Operation::Send(identity)));
        let send = &mut self.observed.history.sends[identity];
        // Connected peers have one queue.
        assert!(self.sides.is_some() || send.post.by.place == peer, "the send of another peer");
        assert!(completion.flags.contains(CompletionFlags::SEND), "{completion:?}");
        send.post.end(result, now);
        true
    }

    /// Reads and records all entries. Returns false if there was none.
    pub(super) fn read_all(&mut self) -> bool {
        let mut has_read = false;
        for member in 0..self.members.len() {
            while self.read_member_completion(member) {
                has_read = true;
            }
        }
        for peer in 0..self.peers.len() {
            while self.read_peer_completion(peer) {
                has_read = true;
            }
        }
        has_read
    }

    fn record_receive_end(&mut self, member: usize, ended: &Ended) {
        let (completion, is_failed) = match ended {
            Ok((completion, _)) => (completion, false),
            Err(failed) => (&failed.completion, true),
        };
        let number = completion.context as usize;
        self.members[member].failures += u64::from(is_failed);
        let op = &self.observed.history.receives[number];
        let (is_buffer, was_cancelled) = (op.buffer.is_some(), op.cancel_asked_at.is_some());
        let is_release = completion.flags.contains(CompletionFlags::MULTI_RECV);
        // The release of a buffer may be read before completions of messages in the buffer. These
        // completions may be in the queues of other members.
        let may_follow = is_buffer && !is_release && self.observed.receives[number].ended_at != Some(member);
        let has_ended = self.observed.has_ended(number);
        assert!(!has_ended || may_follow, "receive {number} ended again, with {ended:?}");
        assert!(is_buffer || !is_release, "no buffer is released: {ended:?}");
        let history = &mut self.observed.history;
        let end = record_receive_entry(history, &Offer::NATIVE, true, member, number, ended);
        match end {
            ReceiveEnd::Took(_) | ReceiveEnd::Released => {}
            ReceiveEnd::Cancelled => {
                let is_expected = was_cancelled && (!is_buffer || is_release);
                let has_left = !self.observed.left.is_empty();
                assert!(is_expected || has_left, "receive {number} was not cancelled: {ended:?}");
                // A released buffer is reported by the endpoint of its last message.
                let is_oldest = self.oldest_member() == Some(member);
                let may_report = is_oldest || !self.is_member(member) || is_buffer;
                assert!(may_report, "cancelled receives are reported to the oldest member");
                self.observed.receives[number].with_member += usize::from(!is_expected);
            }
            ReceiveEnd::Broken(_) => {
                let may_break = self.observed.is_violent || !self.observed.ended_links.is_empty();
                assert!(may_break, "receive {number} failed: {ended:?}");
                self.observed.receives[number].with_link += 1;
            }
        }
        let losses = &mut self.observed.receives[number];
        if !is_buffer || is_release {
            losses.ended_at = Some(member);
            let is_lost = losses.with_member > 0 && !is_buffer;
            assert_eq!(
                end == ReceiveEnd::Cancelled && !is_lost,
                was_cancelled,
                "receive {number} ended with {ended:?}"
            );
        }
    }
}

/// Waits until the first side hears that an endpoint is connected. Discards the shutdowns of others.
fn wait_until_connected(sides: &[&Side], expected: u64) {
    loop {
        match connecting::next_event_of_first_side(sides).expect("the network is not violent now") {
            ConnectionEvent::Shutdown { .. } => {}
            ConnectionEvent::Connected { endpoint, .. } if endpoint == expected => return,
            other => panic!("{other:?}"),
        }
    }
}

fn with_shared_receive_context(mut info: Info) -> Info {
    info.ep.rx_ctx_cnt = SHARED_CONTEXT;
    info
}

impl Drop for Runner<'_> {
    fn drop(&mut self) {
        self.close_members(0..self.members.len());
    }
}
