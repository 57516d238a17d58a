//! Tests that any frames in any order cause no panic, that each operation ends once, and that the
//! whole budget is free at the end.

use proptest::prelude::*;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use super::atomics::atomic_request;
use super::*;

const BUDGET_BYTES: usize = 200_000;

/// Two links of one peer, and one link of another peer.
const LINKS: [(LinkId, u16); 3] = [(LINK, 2), (LinkId(8), 2), (LinkId(9), 3)];

#[derive(Debug, Clone)]
enum Step {
    Up {
        link: usize,
        instance: u64,
    },
    Down {
        link: usize,
        error: LinkError,
    },
    /// A whole frame.
    Frame {
        link: usize,
        header: Header,
    },
    /// The beginning of a frame, and some bytes of its payload.
    Begin {
        link: usize,
        header: Header,
    },
    Chunk {
        link: usize,
        len_bytes: usize,
    },
    Send {
        to: u16,
        level: Level,
        len_bytes: usize,
        fence: bool,
        inject: bool,
    },
    Access {
        to: u16,
        /// Whether the access is a write of `len_bytes`, or a read of as many.
        is_write: bool,
        data: Option<u64>,
        len_bytes: usize,
        fence: bool,
        inject: bool,
    },
    Atomic {
        to: u16,
        kind: AtomicKind,
        len_bytes: usize,
        fence: bool,
        inject: bool,
    },
    Register {
        key: u64,
    },
    CloseRegion,
    Receive {
        tagged: bool,
        from: Option<u16>,
        len_bytes: usize,
    },
    Peek {
        tagged: bool,
        then: PeekAction,
    },
    Claim {
        context: u64,
        discard: bool,
    },
    Cancel {
        context: u64,
    },
    Pass {
        answers: Vec<Sent>,
        pulls: Vec<Pull>,
    },
    Time {
        ms: u64,
    },
}

fn any_level() -> impl Strategy<Value = Level> {
    prop_oneof![Just(Level::Inject), Just(Level::Transmit), Just(Level::Delivery), Just(Level::Match)]
}

fn any_message() -> impl Strategy<Value = Message> {
    let awaits =
        prop_oneof![Just(AwaitedReply::Nothing), Just(AwaitedReply::Arrival), Just(AwaitedReply::Match)];
    let len_bytes = prop_oneof![4 => 0..20_u64, 1 => 10_000..300_000_u64, 1 => Just(1_u64 << 40)];
    (len_bytes, prop::option::of(0..2_u64), awaits).prop_map(|(len_bytes, tag, awaits)| Message {
        len_bytes,
        tag,
        data: None,
        awaits,
    })
}

/// Generates headers. Operation numbers and counts are small, so that some match real operations.
fn any_header() -> impl Strategy<Value = Header> {
    // The engine's own numbers have bits above bit 31 set: see `op_number_of`.
    let op = || {
        prop_oneof![
            0..4_u64,
            (0..4_u64).prop_map(|slot| 1 << 32 | slot),
            (1..3_u64).prop_map(|v| v << 32 | 1)
        ]
    };
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
        3 => (op(), 0..5_u8)
            .prop_map(|(op, number)| Header::Answer { op, outcome: Outcome::from_number(number).unwrap() }),
        4 => (0..3_u64, 0..20_u64, 0..40_u64, prop::option::of(0..2_u64)).prop_map(
            |(key, address, len_bytes, data)| {
                Header::CountedWrite(CountedWrite { key, address, len_bytes, data })
            }
        ),
        2 => (0..5_u64, 0..5_u8).prop_map(|(count, number)| Header::Written {
            count,
            outcome: Outcome::from_number(number).unwrap(),
        }),
        3 => header_of_any_form(0..40),
    ]
}

/// Generates a header of any form from a number in `numbers`. The payload has at most this number
/// of bytes.
pub(super) fn header_of_any_form(numbers: std::ops::Range<u64>) -> impl Strategy<Value = Header> {
    (prop::sample::select(Form::all().collect::<Vec<_>>()), numbers, 0..samples::PAIRS)
        .prop_map(|(form, number, end)| samples::fitting_header(form, number, end))
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

fn any_step() -> impl Strategy<Value = Step> {
    let link = || 0..LINKS.len();
    let error = prop_oneof![Just(LinkError::Closed), Just(RESET), Just(LinkError::Protocol("nonsense"))];
    let found = prop_oneof![Just(PeekAction::Keep), Just(PeekAction::Claim), Just(PeekAction::Discard)];
    let answer = prop_oneof![6 => Just(Sent::Whole), 2 => Just(Sent::Full), 1 => Just(Sent::Partial(1))];
    let pull = prop_oneof![
        4 => Just(Pull::Done),
        1 => Just(Pull::Refused),
        1 => Just(Pull::Declined),
        1 => Just(Pull::Fault),
        1 => Just(Pull::Gone),
    ];
    let operand_bytes = prop_oneof![4 => 1..20_usize, 1 => 1..10_000_usize];
    prop_oneof![
        3 => (link(), 1..3_u64).prop_map(|(link, instance)| Step::Up { link, instance }),
        1 => (link(), error).prop_map(|(link, error)| Step::Down { link, error }),
        12 => (link(), any_header()).prop_map(|(link, header)| Step::Frame { link, header }),
        3 => (link(), any_header()).prop_map(|(link, header)| Step::Begin { link, header }),
        3 => (link(), 1..30_usize).prop_map(|(link, len_bytes)| Step::Chunk { link, len_bytes }),
        6 => (2..4_u16, any_level(), 0..20_usize, any::<bool>(), any::<bool>()).prop_map(
            |(to, level, len_bytes, fence, inject)| Step::Send { to, level, len_bytes, fence, inject }
        ),
        4 => (2..4_u16, any::<bool>(), prop::option::of(0..2_u64), 0..20_usize, any::<bool>(), any::<bool>())
            .prop_map(|(to, is_write, data, len_bytes, fence, inject)| {
                Step::Access { to, is_write, data, len_bytes, fence, inject }
            }),
        4 => (2..4_u16, any_atomic_kind(), operand_bytes, any::<bool>(), any::<bool>()).prop_map(
            |(to, kind, len_bytes, fence, inject)| Step::Atomic { to, kind, len_bytes, fence, inject }
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
        3 => prop_oneof![Just(1), Just(REPLACED_LINK_IDLE_MAX_MS)].prop_map(|ms| Step::Time { ms }),
    ]
}

struct Run {
    engine: Engine,
    transport: Scripted,
    sink: Recorder,
    /// Which links the transport has. It reports nothing about other links.
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
    fn new_context(&mut self) -> u64 {
        self.next_context += 1;
        self.next_context
    }

    /// Records which links the engine has closed.
    fn transmit_and_note_closed(&mut self) {
        self.engine.transmit(&mut self.transport, &mut self.sink);
        for (link, _) in self.transport.closed.drain(..) {
            if let Some(place) = LINKS.iter().position(|(known, _)| *known == link) {
                (self.is_up[place], self.left_bytes[place]) = (false, 0);
            }
        }
    }

    fn run_step(&mut self, step: Step) {
        let Run { engine, sink, transport, .. } = self;
        match step {
            Step::Up { link, instance } if !self.is_up[link] => {
                self.is_up[link] = true;
                let (id, peer) = LINKS[link];
                engine.arrivals(sink).link_event(id, LinkEvent::up(address(peer), instance));
            }
            Step::Down { link, error } if self.is_up[link] => {
                (self.is_up[link], self.left_bytes[link]) = (false, 0);
                engine.arrivals(sink).link_event(LINKS[link].0, LinkEvent::Down(error));
            }
            Step::Frame { link, header }
                if self.is_up[link] && self.left_bytes[link] == 0 && header.payload_len_bytes() < 1000 =>
            {
                let payload = vec![7; header.payload_len_bytes() as usize];
                engine.arrivals(sink).frame(LINKS[link].0, &header, &payload);
            }
            Step::Begin { link, header }
                if self.is_up[link] && self.left_bytes[link] == 0 && header.payload_len_bytes() > 0 =>
            {
                self.left_bytes[link] = header.payload_len_bytes();
                engine.arrivals(sink).frame_begun(LINKS[link].0, &header);
            }
            Step::Chunk { link, len_bytes } if self.left_bytes[link] > 0 => {
                let len_bytes = self.left_bytes[link].min(len_bytes as u64);
                self.left_bytes[link] -= len_bytes;
                engine.arrivals(sink).payload_arrived(LINKS[link].0, &vec![7; len_bytes as usize]);
            }
            Step::Send { to, level, len_bytes, fence, inject } => {
                let context = self.new_context();
                let peer = self.engine.intern_peer(address(to));
                let source = Source::owned(Bytes::from(vec![7; len_bytes]));
                let request =
                    send_request(peer, b"", context).source(source).level(level).fence(fence).inject(inject);
                let posted = self.engine.post_request(request, &mut self.transport, &mut self.sink);
                self.accepted += usize::from(posted.is_ok());
            }
            Step::Access { to, is_write, data, len_bytes, fence, inject } => {
                let context = self.new_context();
                let peer = self.engine.intern_peer(address(to));
                let local = if is_write {
                    RmaLocal::Write { source: Source::owned(Bytes::from(vec![7; len_bytes])), data }
                } else {
                    RmaLocal::Read(Destination::owned(BytesMut::zeroed(len_bytes)))
                };
                let request = rma_request(peer, local, context).fence(fence).inject(inject);
                let posted = self.engine.post_request(request, &mut self.transport, &mut self.sink);
                self.accepted += usize::from(posted.is_ok());
            }
            Step::Atomic { to, kind, len_bytes, fence, inject } => {
                let context = self.new_context();
                let peer = self.engine.intern_peer(address(to));
                let source = || Source::owned(Bytes::from(vec![7; len_bytes]));
                let result = Destination::owned(BytesMut::zeroed(len_bytes));
                let (local, op) = match kind {
                    AtomicKind::Base => (AtomicLocal::Base { operand: source() }, AtomicOp::Sum),
                    AtomicKind::Fetch => (AtomicLocal::Fetch { operand: source(), result }, AtomicOp::Bxor),
                    AtomicKind::Compare => (
                        AtomicLocal::Compare { operand: source(), compare: source(), result },
                        AtomicOp::Cswap,
                    ),
                };
                let request = atomic_request(peer, local, op, context).fence(fence).inject(inject);
                let posted = self.engine.post_request(request, &mut self.transport, &mut self.sink);
                self.accepted += usize::from(posted.is_ok());
            }
            Step::Register { key } => {
                let attr = RegionAttr { key, access: MrAccess::all(), base_address: 0 };
                let mut memory = vec![0; 30];
                let region = match key {
                    0 => Region::owned(30, attr),
                    1 => raw_region(&mut memory, attr),
                    _ => {
                        let memory = Network::new(0, Faults::default()).allocate_shareable(30).unwrap();
                        Region::shareable(memory.unwrap(), 30, attr)
                    }
                };
                if let Ok(region) = self.engine.target.regions().add(region.unwrap()) {
                    self.regions.push_back((region, memory));
                }
            }
            Step::CloseRegion => {
                if let Some((region, mut memory)) = self.regions.pop_front() {
                    self.engine.target.regions().close(&region);
                    // The comparison at the end detects any later access to this memory.
                    memory.fill(0xee);
                    self.closed.push(memory);
                }
            }
            Step::Receive { tagged, from, len_bytes } => {
                let context = self.new_context();
                let source = from.map(|from| self.engine.intern_peer(address(from)));
                let criteria = Criteria { source, tag: 0, ignore: 1 };
                let request = ReceiveRequest { tagged, criteria, ..receive_request(len_bytes, context) };
                let posted = self.engine.post_receive(request, &mut self.sink);
                self.accepted += usize::from(posted.is_ok());
            }
            Step::Peek { tagged, then } => {
                let context = self.new_context();
                let criteria = Criteria { source: None, tag: 0, ignore: 1 };
                let posted = self
                    .engine
                    .peek(PeekRequest { tagged, criteria, context, work: None, then }, &mut self.sink);
                self.accepted += usize::from(posted.is_ok());
            }
            Step::Claim { context, discard } => {
                for tagged in [true, false] {
                    let claimed = if discard {
                        self.engine.discard_claimed(tagged, context, None, &mut self.sink)
                    } else {
                        let request = ReceiveRequest { tagged, ..receive_request(20, context) };
                        self.engine.receive_claimed(request, context, &mut self.sink).map_err(Error::from)
                    };
                    self.accepted += usize::from(claimed.is_ok());
                }
            }
            Step::Cancel { context } => {
                let _taken_back_or_not = self.engine.cancel(context, &mut self.sink);
            }
            Step::Pass { answers, pulls } => {
                transport.answers = answers.into();
                transport.pulls = pulls.into();
                self.transmit_and_note_closed();
            }
            Step::Time { ms } => {
                self.now = self.now + Duration::from_millis(ms);
                engine.advance_time(self.now, sink);
            }
            // A transport would not report this now.
            Step::Up { .. }
            | Step::Down { .. }
            | Step::Frame { .. }
            | Step::Begin { .. }
            | Step::Chunk { .. } => {}
        }
    }
}

proptest! {
    #[test]
    fn random_frames_never_panic_and_operations_end_once(
        steps in prop::collection::vec(any_step(), 1..150),
        can_pull in any::<bool>(),
        remote_data_takes_receives in any::<bool>(),
    ) {
        let config = Config {
            unexpected_budget_bytes: BUDGET_BYTES,
            eager_max_bytes: 10,
            remote_data_takes_receives,
            ..untimed_config()
        };
        let mut run = Run {
            engine: Engine::new(config),
            transport: Scripted {
                pull_min_bytes: can_pull.then_some(5),
                memory: vec![7; 300_000],
                ..Scripted::default()
            },
            sink: Recorder::default(),
            is_up: [false; LINKS.len()],
            left_bytes: [0; LINKS.len()],
            next_context: 0,
            now: Moment::from_ms(0),
            accepted: 0,
            closed: Vec::new(),
            regions: VecDeque::new(),
        };
        steps.into_iter().for_each(|step| run.run_step(step));

        // The links to all peers end, and new ones are refused.
        run.transmit_and_note_closed();
        for link in 0..LINKS.len() {
            run.run_step(Step::Down { link, error: RESET });
        }
        let refused = LinkError::System(Errno::ECONNREFUSED);
        for link in 0..run.transport.connected.len() as u32 {
            run.engine.arrivals(&mut run.sink).link_event(LinkId(link), LinkEvent::Down(refused.clone()));
        }
        run.transmit_and_note_closed();
        prop_assert_eq!(run.engine.outstanding_transmits(), 0);
        for context in 0..=run.next_context {
            while run.engine.cancel(context, &mut run.sink).is_ok() {}
        }
        prop_assert_eq!(run.engine.outstanding_receives(), 0);
        run.engine.deliver_held(&mut run.sink);
        run.sink.ended.retain(|ended| match ended {
            Ok(completion) => {
                remote_data_takes_receives || !completion.flags.contains(CompletionFlags::REMOTE_WRITE)
            }
            Err(_) => true,
        });
        prop_assert_eq!(run.sink.ended.len(), run.accepted, "each operation ends once");
        for memory in &run.closed {
            prop_assert!(memory.iter().all(|byte| *byte == 0xee), "a region was written to after its end");
        }

        // Whole messages are still there. Once they are discarded, the whole budget is free.
        run.engine.discard_all_unexpected(&mut run.sink);
        prop_assert!(run.engine.receive_side.try_reserve_budget(BUDGET_BYTES as u64), "all of it is free");
        prop_assert!(run.engine.fetches_len() == 0 && run.engine.target.inbounds_len() == 0);
        run.run_step(Step::Time { ms: 0 });
        prop_assert!(!run.engine.awaits_timeout() && run.engine.next_deadline().is_none());
    }
}
