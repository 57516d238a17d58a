//! Tests that any frames in any order cause no panic, that each operation ends once, that a connection
//! reports only possible events, and that the whole budget is free at the end.

use proptest::prelude::*;

use std::time::Duration;

use super::*;

const BUDGET_BYTES: usize = 200_000;

/// The links of an endpoint without connections, and the ports of its peers: two links of one peer, and one
/// link of another peer.
const LINKS: [(LinkId, u16); 3] = [(LINK, 2), (LinkId(8), 2), (LinkId(9), 3)];

/// The first link that the endpoint makes. An endpoint with connections makes no other.
const OWN: LinkId = LinkId(0);

/// The links of an endpoint with connections.
const CONNECTION_LINKS: [(LinkId, u16); 3] = [(OWN, 2), (LINK, 3), (LinkId(8), 4)];

/// The number of the requests of an endpoint with connections.
const NUMBER: u64 = 0x5eed;

#[derive(Debug, Clone)]
enum Step {
    Up { link: usize, instance: u64 },
    Down { link: usize, error: LinkError },
    // A whole frame.
    Frame { link: usize, header: Header },
    // The beginning of a frame, and some bytes of its payload.
    Begin { link: usize, header: Header },
    Chunk { link: usize, len_bytes: usize },
    Post { to: u16, kind: PostKind, level: Level, len_bytes: usize, fence: bool, inject: bool },
    Register { key: u64 },
    CloseRegion,
    Receive { tagged: bool, from: Option<u16>, len_bytes: usize },
    Peek { tagged: bool, then: PeekAction },
    Claim { context: u64, discard: bool },
    Cancel { context: u64 },
    // Asks for a connection, with a deadline in this many milliseconds.
    Connect(Option<u64>),
    Accept,
    Listen(Option<usize>),
    // Rejects the reported request with this index. The oldest request has the index 0.
    Reject(usize),
    Settle(usize),
    Shutdown,
    Pass { answers: Vec<Sent>, pulls: Vec<Pull> },
    Time { ms: u64 },
}

#[derive(Debug, Clone)]
enum PostKind {
    Send,
    Write(Option<u64>),
    Read,
    Atomic(AtomicKind),
}

fn any_level() -> impl Strategy<Value = Level> {
    prop_oneof![Just(Level::Inject), Just(Level::Transmit), Just(Level::Delivery), Just(Level::Match)]
}

fn any_message() -> impl Strategy<Value = Message> {
    let awaits =
        prop_oneof![Just(AwaitedReply::Nothing), Just(AwaitedReply::Arrival), Just(AwaitedReply::Match)];
    let len_bytes = prop_oneof![4 => 0..20_u64, 1 => 10_000..300_000_u64, 1 => Just(1_u64 << 40)];
    let parts = (len_bytes, prop::option::of(0..2_u64), awaits);
    parts.prop_map(|(len_bytes, tag, awaits)| Message { tag, awaits, ..Message::of_len(len_bytes) })
}

/// Generates headers. Operation numbers and counts are small, so that some match real operations.
fn any_header() -> impl Strategy<Value = Header> {
    // The engine's own numbers have bits above bit 31 set: see `op_number_of`.
    let first = 1_u64 << 32;
    let op = || prop_oneof![0..4_u64, first..first + 4, (1..3_u64).prop_map(|version| version << 32 | 1)];
    prop_oneof![
        6 => any_message().prop_map(Header::Message),
        2 => (0..5_u64).prop_map(|received| Header::Ack { received }),
        4 => (any_message(), op(), 0..=6_u8)
            .prop_map(|(message, op, remote_bytes)| Header::Request { message, op, remote_bytes }),
        2 => (op(), any::<bool>()).prop_map(|(op, cannot_pull)| Header::Clear { op, cannot_pull }),
        2 => (op(), 0..20_u64).prop_map(|(op, len_bytes)| Header::Data { op, len_bytes }),
        2 => (op(), any::<bool>()).prop_map(|(op, fault)| Header::Done { op, fault }),
        2 => (0..5_u64).prop_map(|number| Header::Matched { number }),
        2 => (0..3_u64)
            .prop_map(|more| Header::Credit { granted_bytes: CREDIT_INITIAL_BYTES + more * 1000 - 1 }),
        1 => any::<bool>().prop_map(|matched| Header::Fence { matched }),
        1 => Just(Header::Fenced),
        5 => (op(), 0..3_u64, 0..20_u64, 0..40_u64, any_rma_kind())
            .prop_map(|(op, key, address, len_bytes, kind)| {
                Header::Rma(Rma { op, key, address, len_bytes, kind, durable: Durable::Nothing })
            }),
        4 => (op(), 0..3_u64, 0..20_u64, any_atomic_form())
            .prop_map(|(op, key, address, form)| Header::Atomic(Atomic { op, key, address, form })),
        2 => ([0..3_u64, 0..20, 0..40, 0..1 << 14], 0..=6_u8).prop_map(
            |([key, address, len_bytes, access], remote_bytes)| {
                Header::MappableRegion(MappableRegion { key, address, len_bytes, access, remote_bytes })
            }
        ),
        2 => (op(), 0..20_u64).prop_map(|(op, len_bytes)| Header::ReadData { op, len_bytes }),
        3 => (op(), any_outcome()).prop_map(|(op, outcome)| Header::Answer { op, outcome }),
        4 => (0..3_u64, 0..20_u64, 0..40_u64, prop::option::of(0..2_u64)).prop_map(
            |(key, address, len_bytes, data)| {
                Header::CountedWrite(CountedWrite { key, address, len_bytes, data })
            }
        ),
        2 => (0..5_u64, any_outcome()).prop_map(|(count, outcome)| Header::Written { count, outcome }),
        3 => (prop::sample::select(Form::all().collect::<Vec<_>>()), 0..40_u64, 0..samples::PAIRS)
            .prop_map(|(form, number, end)| samples::fitting_header(form, number, end)),
    ]
}

fn any_outcome() -> impl Strategy<Value = Outcome> {
    (0..5_u8).prop_map(|number| Outcome::from_number(number).unwrap())
}

fn any_rma_kind() -> impl Strategy<Value = RmaKind> {
    let data = || prop::option::of(0..2_u64);
    prop_oneof![
        2 => Just(RmaKind::Read),
        1 => Just(RmaKind::Flush),
        3 => data().prop_map(|data| RmaKind::Write { data }),
        2 => (data(), 0..=6_u8).prop_map(|(data, remote_bytes)| RmaKind::Offer { data, remote_bytes }),
    ]
}

fn any_atomic_form() -> impl Strategy<Value = AtomicForm> {
    let count = prop_oneof![4 => 0..10_usize, 1 => 0..3000_usize];
    let datatypes = prop::sample::select(vec![Datatype::Uint8, Datatype::Int64, Datatype::DoubleComplex]);
    (any_atomic_kind(), prop::sample::select(AtomicOp::ALL.to_vec()), datatypes, count)
        .prop_filter_map("there is no such operation", |(kind, op, datatype, count)| {
            AtomicForm::new(kind, op, datatype, count)
        })
}

fn any_atomic_kind() -> impl Strategy<Value = AtomicKind> {
    prop::sample::select(AtomicKind::ALL.to_vec())
}

/// Generates headers of handshakes.
fn any_handshake_header() -> impl Strategy<Value = Header> {
    let data_bytes = |of: HandshakeStep| if of.data_max_bytes() > 0 { 0..20_u16 } else { 0..1 };
    let parts = prop::sample::select(HandshakeStep::ALL.to_vec()).prop_flat_map(move |of| {
        (Just(of), prop_oneof![3 => Just(NUMBER), 1 => any::<u64>()], data_bytes(of))
    });
    parts.prop_map(|(step, number, data_bytes)| {
        Header::Connection(HandshakeHeader { step, number, data_bytes })
    })
}

fn any_step() -> impl Strategy<Value = Step> {
    let link = || 0..LINKS.len();
    let error = prop_oneof![Just(LinkError::Closed), Just(RESET), Just(LinkError::Protocol("nonsense"))];
    let found = prop_oneof![Just(PeekAction::Keep), Just(PeekAction::Claim), Just(PeekAction::Discard)];
    let answer = prop_oneof![6 => Just(Sent::Whole), 2 => Just(Sent::Full), 1 => Just(Sent::Partial(1))];
    let no_pull = prop::sample::select(vec![Pull::Refused, Pull::Declined, Pull::Fault, Pull::Gone]);
    let pull = prop_oneof![Just(Pull::Done), no_pull];
    let kind = prop_oneof![
        3 => Just(PostKind::Send),
        1 => prop::option::of(0..2_u64).prop_map(PostKind::Write),
        1 => Just(PostKind::Read),
        2 => any_atomic_kind().prop_map(PostKind::Atomic),
    ];
    let len_bytes = prop_oneof![8 => 0..20_usize, 1 => 1..10_000_usize];
    prop_oneof![
        3 => (link(), 1..3_u64).prop_map(|(link, instance)| Step::Up { link, instance }),
        1 => (link(), error).prop_map(|(link, error)| Step::Down { link, error }),
        12 => (link(), any_header()).prop_map(|(link, header)| Step::Frame { link, header }),
        3 => (link(), any_header()).prop_map(|(link, header)| Step::Begin { link, header }),
        3 => (link(), 1..30_usize).prop_map(|(link, len_bytes)| Step::Chunk { link, len_bytes }),
        14 => (2..4_u16, kind, any_level(), len_bytes, any::<bool>(), any::<bool>()).prop_map(
            |(to, kind, level, len_bytes, fence, inject)| {
                Step::Post { to, kind, level, len_bytes, fence, inject }
            }
        ),
        2 => (0..3_u64).prop_map(|key| Step::Register { key }),
        1 => Just(Step::CloseRegion),
        5 => (any::<bool>(), prop::option::of(2..4_u16), 0..20_usize)
            .prop_map(|(tagged, from, len_bytes)| Step::Receive { tagged, from, len_bytes }),
        2 => (any::<bool>(), found).prop_map(|(tagged, then)| Step::Peek { tagged, then }),
        1 => (0..40_u64, any::<bool>()).prop_map(|(context, discard)| Step::Claim { context, discard }),
        1 => (0..40_u64).prop_map(|context| Step::Cancel { context }),
        6 => (prop::collection::vec(answer, 0..6), prop::collection::vec(pull, 0..3))
            .prop_map(|(answers, pulls)| Step::Pass { answers, pulls }),
        3 => prop_oneof![Just(1), Just(REPLACED_LINK_IDLE_MAX_MS), Just(REQUESTER_WAIT_MAX_MS)]
            .prop_map(|ms| Step::Time { ms }),
    ]
}

/// Generates the steps that only an endpoint with connections takes.
fn any_connection_step() -> impl Strategy<Value = Step> {
    let link = || 0..LINKS.len();
    prop_oneof![
        2 => prop::option::of(0..2000_u64).prop_map(Step::Connect),
        2 => Just(Step::Accept),
        1 => prop::option::of(0..3_usize).prop_map(Step::Listen),
        1 => (0..3_usize).prop_map(Step::Reject),
        1 => (0..3_usize).prop_map(Step::Settle),
        1 => Just(Step::Shutdown),
        3 => link().prop_map(|link| Step::Up { link, instance: 9 }),
        5 => (link(), any_handshake_header()).prop_map(|(link, header)| Step::Frame { link, header }),
        1 => (link(), any_handshake_header()).prop_map(|(link, header)| Step::Begin { link, header }),
    ]
}

struct Run {
    node: Node,
    role: EndpointRole,
    links: [(LinkId, u16); LINKS.len()],
    /// Which links the transport has. It reports nothing about other links.
    is_there: [bool; LINKS.len()],
    is_up: [bool; LINKS.len()],
    /// For each link, how many bytes of a begun frame have yet to come.
    left_bytes: [u64; LINKS.len()],
    next_context: u64,
    now: Moment,
    accepted: usize,
    /// The memory of regions that were closed.
    closed: Vec<Vec<u8>>,
    /// The open regions. Each comes with a vector: the memory of a raw region. Other regions do not
    /// use their vector.
    regions: VecDeque<(Arc<Region>, Vec<u8>)>,
}

impl Run {
    fn new(role: EndpointRole, mut config: Config, can_pull: bool) -> Run {
        config.role = role;
        let mut node = Node::new(config);
        node.transport.pull_min_bytes = can_pull.then_some(5);
        node.transport.memory = vec![7; 300_000];
        Run {
            node,
            role,
            links: if role == EndpointRole::Unconnected { LINKS } else { CONNECTION_LINKS },
            is_there: [false; LINKS.len()],
            is_up: [false; LINKS.len()],
            left_bytes: [0; LINKS.len()],
            next_context: 0,
            now: Moment::from_ms(0),
            accepted: 0,
            closed: Vec::new(),
            regions: VecDeque::new(),
        }
    }

    fn new_context(&mut self) -> u64 {
        self.next_context += 1;
        self.next_context
    }

    fn forget_link(&mut self, link: usize) {
        (self.is_there[link], self.is_up[link], self.left_bytes[link]) = (false, false, 0);
    }

    /// Makes a pass.
    fn pass(&mut self) {
        self.node.deliver_held();
        self.node.transmit();
        self.node.transport.answers.clear();
    }

    /// Records which links the engine has closed.
    fn note_closed(&mut self) {
        for (link, _) in std::mem::take(&mut self.node.transport.closed) {
            if let Some(place) = self.links.iter().position(|(known, _)| *known == link) {
                assert!(self.is_there[place], "{link:?} is closed, which is not there");
                self.forget_link(place);
            }
        }
    }

    /// Returns a reported request for a connection.
    fn request(&self, which: usize) -> Option<RequestId> {
        let mut ids = self.node.sink.events.iter().filter_map(|event| match event {
            ConnectionReport::Requested(request) => Some(request.id),
            _ => None,
        });
        ids.nth(which)
    }

    /// Returns the peer at this port, or the connected one.
    fn peer(&mut self, port: u16) -> Option<PeerId> {
        match self.node.engine.connected_peer() {
            None => Some(self.node.engine.intern_peer(address(port))),
            Some(peer) => peer.ok(),
        }
    }

    fn post(&mut self, to: u16, op: TransmitOp, [fence, inject]: [bool; 2], level: Level) {
        let context = self.new_context();
        if let Some(peer) = self.peer(to) {
            let request = AddressedRequest::new(peer, op, context).level(level).fence(fence).inject(inject);
            self.accepted += usize::from(self.node.try_post(request).is_ok());
        }
    }

    fn run_step(&mut self, step: Step) {
        let Node { engine, transport, sink } = &mut self.node;
        match step {
            Step::Up { link, instance }
                if !self.is_up[link] && (self.links[link].0 != OWN || self.is_there[link]) =>
            {
                (self.is_there[link], self.is_up[link]) = (true, true);
                let (id, port) = self.links[link];
                self.node.link_up(id, port, instance);
            }
            Step::Down { link, error } if self.is_there[link] => {
                self.forget_link(link);
                self.node.link_down(self.links[link].0, error);
            }
            Step::Frame { link, header }
                if self.is_up[link] && self.left_bytes[link] == 0 && header.payload_len_bytes() < 1000 =>
            {
                let payload = vec![7; header.payload_len_bytes() as usize];
                self.node.frame(self.links[link].0, &header, &payload);
            }
            Step::Begin { link, header }
                if self.is_up[link] && self.left_bytes[link] == 0 && header.payload_len_bytes() > 0 =>
            {
                self.left_bytes[link] = header.payload_len_bytes();
                self.node.frame_begun(self.links[link].0, &header);
            }
            Step::Chunk { link, len_bytes } if self.left_bytes[link] > 0 => {
                let len_bytes = self.left_bytes[link].min(len_bytes as u64);
                self.left_bytes[link] -= len_bytes;
                self.node.payload_arrived(self.links[link].0, &vec![7; len_bytes as usize]);
            }
            Step::Post { to, kind, level, len_bytes, fence, inject } => {
                let [source, compare] = [(); 2].map(|()| Source::owned(Bytes::from(vec![7; len_bytes])));
                let result = Destination::owned(BytesMut::zeroed(len_bytes));
                let memory = RemoteMemory { key: KEY, address: 3 };
                let access = |local| TransmitOp::Rma { local, memory };
                let atomic = |local, op| TransmitOp::Atomic { local, memory, op, datatype: Datatype::Uint8 };
                let op = match kind {
                    PostKind::Send => TransmitOp::Send { source, tag: None, data: None },
                    PostKind::Write(data) => access(RmaLocal::Write { source, data }),
                    PostKind::Read => access(RmaLocal::Read(result)),
                    PostKind::Atomic(AtomicKind::Base) => {
                        atomic(AtomicLocal::Base { operand: source }, AtomicOp::Sum)
                    }
                    PostKind::Atomic(AtomicKind::Fetch) => {
                        atomic(AtomicLocal::Fetch { operand: source, result }, AtomicOp::Bxor)
                    }
                    PostKind::Atomic(AtomicKind::Compare) => {
                        atomic(AtomicLocal::Compare { operand: source, compare, result }, AtomicOp::Cswap)
                    }
                };
                self.post(to, op, [fence, inject], level);
            }
            Step::Register { key } => {
                let attr = RegionAttr { key, access: MrAccess::all(), base_address: 0 };
                let mut memory = vec![0; 30];
                let region = match key {
                    0 => Region::owned(30, attr),
                    1 => raw_region(&mut memory, attr),
                    _ => Region::shareable(shareable_memory(30), 30, attr),
                };
                if let Ok(region) = engine.target.regions().add(region.unwrap()) {
                    self.regions.push_back((region, memory));
                }
            }
            Step::CloseRegion => {
                if let Some((region, mut memory)) = self.regions.pop_front() {
                    engine.target.regions().close(&region);
                    // The comparison at the end detects any later access to this memory.
                    memory.fill(0xee);
                    self.closed.push(memory);
                }
            }
            Step::Receive { tagged, from, len_bytes } => {
                let context = self.new_context();
                let source = from.and_then(|port| self.peer(port));
                let criteria = Criteria { source, tag: 0, ignore: 1 };
                let request = ReceiveRequest { tagged, criteria, ..receive_request(len_bytes, context) };
                let posted = self.node.engine.post_receive(request, &mut self.node.sink);
                self.accepted += usize::from(posted.is_ok());
            }
            Step::Peek { tagged, then } => {
                let context = self.new_context();
                let criteria = Criteria { source: None, tag: 0, ignore: 1 };
                let request = PeekRequest { tagged, criteria, context, work: None, then };
                let posted = self.node.engine.peek(request, &mut self.node.sink);
                self.accepted += usize::from(posted.is_ok());
            }
            Step::Claim { context, discard } => {
                for tagged in [true, false] {
                    let claimed = if discard {
                        engine.discard_claimed(tagged, context, None, sink)
                    } else {
                        let request = ReceiveRequest { tagged, ..receive_request(20, context) };
                        engine.receive_claimed(request, context, sink).map_err(Error::from)
                    };
                    self.accepted += usize::from(claimed.is_ok());
                }
            }
            Step::Cancel { context } => {
                let _taken_back_or_not = self.node.cancel(context);
            }
            Step::Connect(limit_ms) => {
                let deadline = limit_ms.map(|limit_ms| self.now + Duration::from_millis(limit_ms));
                let asked = engine.connect(address(2), NUMBER, b"please", deadline, transport, sink);
                self.is_there[0] |= asked.is_ok();
            }
            Step::Accept => {
                let requester = Requester { address: address(2), instance: 9, number: NUMBER };
                self.is_there[0] |= engine.accept(requester, b"welcome", transport).is_ok();
            }
            Step::Listen(backlog_requests) => {
                let _is_passive = engine.listen(backlog_requests);
            }
            Step::Reject(which) => {
                if let Some(id) = self.request(which) {
                    let Node { engine, transport, sink } = &mut self.node;
                    engine.reject(id, b"no", transport, sink).unwrap();
                }
            }
            Step::Settle(which) => {
                if let Some(id) = self.request(which) {
                    let Node { engine, transport, sink } = &mut self.node;
                    engine.mark_request_being_accepted(id);
                    engine.end_accepted_request(id, transport, sink);
                }
            }
            Step::Shutdown => {
                let _was_connected = engine.shutdown(transport, sink);
            }
            Step::Pass { answers, pulls } => {
                transport.answers = answers.into();
                transport.pulls = pulls.into();
                self.pass();
            }
            Step::Time { ms } => {
                self.now = self.now + Duration::from_millis(ms);
                self.node.advance_time(self.now);
            }
            // A transport would not report this now.
            Step::Up { .. }
            | Step::Down { .. }
            | Step::Frame { .. }
            | Step::Begin { .. }
            | Step::Chunk { .. } => {}
        }
        self.note_closed();
    }

    /// Takes the steps, ends all links, and checks what is left.
    fn check(mut self, steps: Vec<Step>, counts_remote_data: bool) -> Result<(), TestCaseError> {
        steps.into_iter().for_each(|step| self.run_step(step));
        for link in 0..LINKS.len() {
            self.pass();
            self.note_closed();
            self.run_step(Step::Down { link, error: RESET });
        }
        let is_unconnected = self.role == EndpointRole::Unconnected;
        if is_unconnected {
            for link in 0..self.node.transport.connected.len() as u32 {
                self.node.link_down(LinkId(link), REFUSED);
            }
        }
        self.pass();
        self.note_closed();

        let is_request = |event: &ConnectionReport| {
            matches!(event, ConnectionReport::Requested(_) | ConnectionReport::Withdrawn(_))
        };
        let events = &self.node.sink.events[..];
        let is_sound = match (self.role, events) {
            (EndpointRole::Unconnected, events) => events.is_empty(),
            (EndpointRole::Passive, events) => events.iter().all(is_request),
            (_, [] | [ConnectionReport::Failed(_)]) => true,
            (_, [ConnectionReport::Connected { .. }, between @ .., ConnectionReport::Shutdown(_)]) => {
                matches!(between, [] | [ConnectionReport::Confirmed])
            }
            _ => false,
        };
        prop_assert!(is_sound, "{events:?}");
        prop_assert_eq!(self.node.outstanding_transmits(), 0);
        // The end of a connection ends all receives.
        if self.role != EndpointRole::Connected || events.is_empty() {
            for context in 0..=self.next_context {
                while self.node.cancel(context).is_ok() {}
            }
        }
        prop_assert_eq!(self.node.outstanding_receives(), 0);
        self.node.deliver_held();
        let is_counted = |ended: &&Result<EndedOperation, FailedOperation>| match ended {
            Ok(completion) => counts_remote_data || !completion.flags.contains(CompletionFlags::REMOTE_WRITE),
            Err(_) => true,
        };
        let ended = self.node.sink.ended.iter().filter(is_counted).count();
        prop_assert_eq!(ended, self.accepted, "each operation ends once");
        for memory in &self.closed {
            prop_assert!(memory.iter().all(|byte| *byte == 0xee), "a region was written to after its end");
        }

        // Whole messages are still there. Once they are discarded, the whole budget is free.
        let Node { engine, sink, .. } = &mut self.node;
        engine.discard_all_unexpected(sink);
        prop_assert!(engine.receive_side.try_reserve_budget(BUDGET_BYTES as u64), "all of it is free");
        prop_assert!(engine.fetches_len() == 0 && engine.target.inbounds_len() == 0);
        // Fetches whose links have ended leave the list of delayed ones when they are due.
        for ms in [0, FETCH_DELAY_MS, FETCH_DELAY_MS] {
            self.run_step(Step::Time { ms });
            self.pass();
        }
        let engine = &self.node.engine;
        prop_assert!(is_unconnected || !engine.has_unsent() && !engine.has_work_without_arrivals());
        prop_assert!(!self.node.awaits_timeout() && self.node.next_deadline().is_none());
        Ok(())
    }
}

fn any_config() -> impl Strategy<Value = Config> {
    any::<[bool; 2]>().prop_map(|[remote_data_takes_receives, delays_unmatched_fetches]| Config {
        unexpected_budget_bytes: BUDGET_BYTES,
        eager_max_bytes: 10,
        remote_data_takes_receives,
        delays_unmatched_fetches,
        ..Config::default()
    })
}

proptest! {
    #[test]
    fn random_frames_never_panic_and_operations_end_once(
        steps in prop::collection::vec(any_step(), 1..150),
        config in any_config(),
        can_pull in any::<bool>(),
    ) {
        let counts_remote_data = config.remote_data_takes_receives;
        Run::new(EndpointRole::Unconnected, config, can_pull).check(steps, counts_remote_data)?;
    }

    #[test]
    fn random_frames_to_a_connection_report_possible_events_only(
        steps in prop::collection::vec(prop_oneof![any_step(), any_connection_step()], 1..150),
        role in prop_oneof![1 => Just(EndpointRole::Passive), 3 => Just(EndpointRole::Connected)],
        config in any_config(),
        can_pull in any::<bool>(),
        ends_on_failure in any::<bool>(),
    ) {
        let counts_remote_data = config.remote_data_takes_receives;
        let mut run = Run::new(role, config, can_pull);
        if ends_on_failure && role == EndpointRole::Connected {
            run.node.engine.end_connection_on_failure();
        }
        run.check(steps, counts_remote_data)?;
    }
}
