//! Tests of an endpoint with connections. Whatever frames arrive in whatever order, nothing panics,
//! each operation ends once, and only possible events of the connection are reported.

use std::time::Duration;

use proptest::prelude::*;

use super::*;

/// The link that the endpoint makes, and two links that others make.
const LINKS: [(LinkId, u16); 3] = [(OWN, 2), (LinkId(7), 3), (LinkId(8), 4)];

#[derive(Debug, Clone)]
enum Step {
    /// Asks for a connection, with a deadline in this many milliseconds.
    Connect(Option<u64>),
    Accept,
    Listen(Option<usize>),
    /// Rejects the reported request with this index. The oldest request has the index 0.
    Reject(usize),
    Settle(usize),
    Shutdown,
    Up(usize, u64),
    Down(usize, LinkError),
    Frame(usize, Header),
    Begin(usize, Header),
    Chunk(usize, usize),
    Send(Level, usize),
    Receive(usize),
    Pass(Vec<Sent>),
    /// Lets this many milliseconds pass.
    Time(u64),
}

fn any_header() -> impl Strategy<Value = Header> {
    let data_bytes = |of: HandshakeStep| if of.data_max_bytes() > 0 { 0..20_u16 } else { 0..1 };
    let handshake = prop::sample::select(HandshakeStep::ALL.to_vec()).prop_flat_map(move |of| {
        (Just(of), prop_oneof![3 => Just(NUMBER), 1 => any::<u64>()], data_bytes(of))
    });
    let message = (
        0..20_u64,
        prop_oneof![Just(AwaitedReply::Nothing), Just(AwaitedReply::Arrival), Just(AwaitedReply::Match)],
    );
    prop_oneof![
        6 => handshake.prop_map(|(step, number, data_bytes)| {
            Header::Connection(HandshakeHeader { step, number, data_bytes })
        }),
        4 => message.prop_map(|(len_bytes, awaits)| {
            Header::Message(Message { len_bytes, tag: None, data: None, awaits })
        }),
        2 => (0..3_u64).prop_map(|received| Header::Ack { received }),
        1 => (0..3_u64).prop_map(|number| Header::Matched { number }),
        1 => Just(Header::Credit { granted_bytes: 1 << 20 }),
        1 => Just(Header::Fence { matched: true }),
        1 => Just(Header::Data { op: 1, len_bytes: 3 }),
        2 => header_of_any_form(0..20),
    ]
}

fn any_step() -> impl Strategy<Value = Step> {
    let link = || 0..LINKS.len();
    let error = prop_oneof![Just(LinkError::Closed), Just(RESET), Just(LinkError::Protocol("nonsense"))];
    let answer = prop_oneof![6 => Just(Sent::Whole), 2 => Just(Sent::Full), 1 => Just(Sent::Partial(1))];
    let level = prop_oneof![Just(Level::Inject), Just(Level::Transmit), Just(Level::Match)];
    prop_oneof![
        2 => prop::option::of(0..2000_u64).prop_map(Step::Connect),
        2 => Just(Step::Accept),
        1 => prop::option::of(0..3_usize).prop_map(Step::Listen),
        1 => (0..3_usize).prop_map(Step::Reject),
        1 => (0..3_usize).prop_map(Step::Settle),
        1 => Just(Step::Shutdown),
        4 => (link(), prop_oneof![4 => Just(9_u64), 1 => 1..3_u64])
            .prop_map(|(link, instance)| Step::Up(link, instance)),
        1 => (link(), error).prop_map(|(link, error)| Step::Down(link, error)),
        8 => (link(), any_header()).prop_map(|(link, header)| Step::Frame(link, header)),
        3 => (link(), any_header()).prop_map(|(link, header)| Step::Begin(link, header)),
        3 => (link(), 1..30_usize).prop_map(|(link, len_bytes)| Step::Chunk(link, len_bytes)),
        3 => (level, 0..20_usize).prop_map(|(level, len_bytes)| Step::Send(level, len_bytes)),
        3 => (0..20_usize).prop_map(Step::Receive),
        5 => prop::collection::vec(answer, 0..6).prop_map(Step::Pass),
        3 => prop_oneof![Just(1), Just(REQUESTER_WAIT_MAX_MS)].prop_map(Step::Time),
    ]
}

struct Run {
    engine: Engine,
    transport: Scripted,
    sink: Recorder,
    /// Which links the transport has.
    is_there: [bool; LINKS.len()],
    is_up: [bool; LINKS.len()],
    left_bytes: [u64; LINKS.len()],
    heard: Vec<Request>,
    events: Vec<ConnectionReport>,
    next_context: u64,
    now: Moment,
    accepted: usize,
}

impl Run {
    /// Records which links the engine has closed, and which events it has reported.
    fn collect_engine_output(&mut self) {
        for (link, _) in self.transport.closed.drain(..) {
            let place = LINKS.iter().position(|(known, _)| *known == link).expect("a link that there is");
            assert!(self.is_there[place], "{link:?} is closed, which is not there");
            (self.is_there[place], self.is_up[place], self.left_bytes[place]) = (false, false, 0);
        }
        for event in self.sink.events.drain(..) {
            if let ConnectionReport::Requested(request) = &event {
                self.heard.push(request.clone());
            }
            self.events.push(event);
        }
    }

    fn run_step(&mut self, step: Step) {
        let Run { engine, transport, sink, .. } = self;
        match step {
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
                if let Some(request) = self.heard.get(which) {
                    engine.reject(request.id, b"no", transport, sink).unwrap();
                }
            }
            Step::Settle(which) => {
                if let Some(request) = self.heard.get(which) {
                    engine.mark_request_being_accepted(request.id);
                    engine.end_accepted_request(request.id, transport, sink);
                }
            }
            Step::Shutdown => {
                let _was_connected = engine.shutdown(transport, sink);
            }
            Step::Up(link, instance) if !self.is_up[link] && (link > 0 || self.is_there[0]) => {
                (self.is_there[link], self.is_up[link]) = (true, true);
                let (id, port) = LINKS[link];
                engine.arrivals(sink).link_event(id, LinkEvent::up(address(port), instance));
            }
            Step::Down(link, error) if self.is_there[link] && (link == 0 || self.is_up[link]) => {
                (self.is_there[link], self.is_up[link], self.left_bytes[link]) = (false, false, 0);
                engine.arrivals(sink).link_event(LINKS[link].0, LinkEvent::Down(error));
            }
            Step::Frame(link, header) if self.is_up[link] && self.left_bytes[link] == 0 => {
                let payload = vec![7; header.payload_len_bytes() as usize];
                engine.arrivals(sink).frame(LINKS[link].0, &header, &payload);
            }
            Step::Begin(link, header)
                if self.is_up[link] && self.left_bytes[link] == 0 && header.payload_len_bytes() > 0 =>
            {
                self.left_bytes[link] = header.payload_len_bytes();
                engine.arrivals(sink).frame_begun(LINKS[link].0, &header);
            }
            Step::Chunk(link, len_bytes) if self.left_bytes[link] > 0 => {
                let len_bytes = self.left_bytes[link].min(len_bytes as u64);
                self.left_bytes[link] -= len_bytes;
                engine.arrivals(sink).payload_arrived(LINKS[link].0, &vec![7; len_bytes as usize]);
            }
            Step::Send(level, len_bytes) => {
                if let Some(Ok(peer)) = engine.connected_peer() {
                    self.next_context += 1;
                    let source = Source::owned(Bytes::from(vec![7; len_bytes]));
                    let request = send_request(peer, b"", self.next_context).source(source).level(level);
                    self.accepted += usize::from(engine.post_request(request, transport, sink).is_ok());
                }
            }
            Step::Receive(len_bytes) => {
                self.next_context += 1;
                let posted = engine.post_receive(receive_request(len_bytes, self.next_context), sink);
                self.accepted += usize::from(posted.is_ok());
            }
            Step::Pass(answers) => {
                engine.deliver_held(sink);
                transport.answers = answers.into();
                engine.transmit(transport, sink);
                transport.answers.clear();
            }
            Step::Time(ms) => {
                self.now = self.now + Duration::from_millis(ms);
                engine.advance_time(self.now, sink);
            }
            // A transport would not report this now.
            Step::Up(..) | Step::Down(..) | Step::Frame(..) | Step::Begin(..) | Step::Chunk(..) => {}
        }
        self.collect_engine_output();
    }
}

/// Whether `outcome` reports a write by the peer. There is no region, but an empty write needs
/// none.
fn is_access_of_peer(outcome: &Result<EndedOperation, FailedOperation>) -> bool {
    outcome.as_ref().is_ok_and(|completion| completion.flags.contains(CompletionFlags::REMOTE_WRITE))
}

proptest! {
    #[test]
    fn random_frames_never_panic_and_operations_end_once(
        steps in prop::collection::vec(any_step(), 1..100),
        is_passive in prop_oneof![1 => Just(true), 3 => Just(false)],
        ends_on_failure in any::<bool>(),
    ) {
        let role = if is_passive { EndpointRole::Passive } else { EndpointRole::Connected };
        let Node { mut engine, transport, sink } = engine_with_role(role);
        if ends_on_failure && !is_passive {
            engine.end_connection_on_failure();
        }
        // The memory from which the engine pulls offered messages.
        let transport = Scripted { memory: vec![7; 100], ..transport };
        let mut run = Run {
            engine,
            transport,
            sink,
            is_there: [false; LINKS.len()],
            is_up: [false; LINKS.len()],
            left_bytes: [0; LINKS.len()],
            heard: Vec::new(),
            events: Vec::new(),
            next_context: 0,
            now: Moment::from_ms(0),
            accepted: 0,
        };
        steps.into_iter().for_each(|step| run.run_step(step));
        for link in 0..LINKS.len() {
            run.run_step(Step::Pass(Vec::new()));
            run.run_step(Step::Down(link, RESET));
        }
        run.run_step(Step::Pass(Vec::new()));

        let is_request = |event: &ConnectionReport| {
            matches!(event, ConnectionReport::Requested(_) | ConnectionReport::Withdrawn(_))
        };
        let is_sound = match &run.events[..] {
            events if is_passive => events.iter().all(is_request),
            [] | [ConnectionReport::Failed(_)] => true,
            [ConnectionReport::Connected { .. }, between @ .., ConnectionReport::Shutdown(_)] => {
                matches!(between, [] | [ConnectionReport::Confirmed])
            }
            _ => false,
        };
        prop_assert!(is_sound, "{:?}", run.events);
        prop_assert_eq!(run.engine.outstanding_transmits(), 0);
        if is_passive || run.events.is_empty() {
            for context in 0..=run.next_context {
                let _is_posted = run.engine.cancel(context, &mut run.sink);
            }
        }
        prop_assert_eq!(run.engine.outstanding_receives(), 0);
        let ended = run.sink.ended.iter().filter(|outcome| !is_access_of_peer(outcome)).count();
        prop_assert_eq!(ended, run.accepted, "each operation ends once");
        prop_assert!(!run.engine.has_unsent() && !run.engine.has_work_without_arrivals());
        run.run_step(Step::Time(0));
        prop_assert!(!run.engine.awaits_timeout() && run.engine.next_deadline().is_none());
    }
}
