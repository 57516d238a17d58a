//! Tests of how connections are made, and of how the engine refuses peers that break the protocol.

mod failures;
mod half_frames;
mod over_loopback;
mod shutdowns;

use std::mem;

use super::*;

/// The number that names each request in these tests.
const NUMBER: u64 = 0x5eed;

const OWN: LinkId = LinkId(0);
const OTHER: LinkId = LinkId(7);

fn engine_with_role(role: EndpointRole) -> Node {
    Node::new(Config { role, ..untimed_config() })
}

fn handshake_header(step: HandshakeStep, number: u64, data: &[u8]) -> Header {
    Header::Connection(HandshakeHeader { step, number, data_bytes: data.len() as u16 })
}

impl Node {
    /// Delivers a step of the handshake of these tests.
    fn step(&mut self, link: LinkId, step: HandshakeStep, data: &[u8]) {
        self.frame(link, &handshake_header(step, NUMBER, data), data);
    }

    /// Asks the passive endpoint at port 2 for a connection.
    fn connect(&mut self, data: &[u8], deadline: Option<Moment>) {
        let Node { engine, transport, sink } = self;
        engine.connect(address(2), NUMBER, data, deadline, transport, sink).unwrap();
    }

    fn reject(&mut self, id: RequestId, data: &[u8]) -> Result<(), Error> {
        self.engine.reject(id, data, &mut self.transport, &mut self.sink)
    }

    fn end_accepted_request(&mut self, id: RequestId) {
        self.engine.end_accepted_request(id, &mut self.transport, &mut self.sink);
    }

    fn shutdown(&mut self) -> Result<(), Error> {
        self.engine.shutdown(&mut self.transport, &mut self.sink)
    }
}

/// Returns an endpoint that has asked the passive endpoint at port 2 for a connection. The link has
/// taken the request.
fn asking_engine() -> Node {
    let mut node = engine_with_role(EndpointRole::Connected);
    node.connect(b"please", None);
    node.link_up(OWN, 2, 1);
    node
}

/// As [`asking_engine`], but link 7 to the acceptor at port 3 is up, too.
fn asking_engine_with_acceptor() -> Node {
    let mut node = asking_engine();
    node.link_up(OTHER, 3, 1);
    node
}

/// Returns an endpoint that link 7 connects with the endpoint at port 3.
fn connected_engine() -> (Node, PeerId) {
    let mut node = asking_engine_with_acceptor();
    node.step(OTHER, HandshakeStep::Accept, b"welcome");
    node.transmit();
    let connected = ConnectionReport::Connected { data: b"welcome"[..].into() };
    assert_eq!(mem::take(&mut node.sink.events), [connected]);
    assert_eq!(mem::take(&mut node.transport.closed), [(OWN, Close::Drain)]);
    let peer = node.engine.connected_peer().expect("it is for connections").expect("it is connected");
    node.transport.sent.clear();
    (node, peer)
}

/// Returns an endpoint that accepts a request of the endpoint at port 4.
fn accepting_engine() -> Node {
    let mut node = engine_with_role(EndpointRole::Connected);
    let requester = Requester { address: address(4), instance: 9, number: NUMBER };
    node.engine.accept(requester, b"welcome", &mut node.transport).unwrap();
    node.transmit();
    assert!(node.transport.sent.is_empty(), "the instance at the address is not known yet");
    node
}

/// As [`accepting_engine`], but the link to the requester is up, and has not taken the acceptance.
fn accepting_engine_with_link() -> Node {
    let mut node = accepting_engine();
    node.link_up(OWN, 4, 9);
    node
}

/// Returns a listening passive endpoint. The endpoint at port 4 has sent it a request over link 7.
fn passive_engine_with_request() -> (Node, Request) {
    let mut node = engine_with_role(EndpointRole::Passive);
    node.engine.listen(Some(1)).unwrap();
    node.link_up(OTHER, 4, 9);
    node.step(OTHER, HandshakeStep::Request, b"please");
    let [ConnectionReport::Requested(request)] = &mem::take(&mut node.sink.events)[..] else {
        panic!("it was asked");
    };
    let request = request.clone();
    (node, request)
}

fn take_failure(sink: &mut Recorder) -> ConnectionError {
    match &mem::take(&mut sink.events)[..] {
        [ConnectionReport::Failed(error)] => error.clone(),
        other => panic!("not one failure: {other:?}"),
    }
}

#[test]
fn acceptor_is_connected_once_its_accept_is_sent() {
    let mut node = accepting_engine_with_link();
    assert_eq!(node.transport.connected, [address(4)]);
    node.transport.answers = [Sent::Partial(1)].into();
    node.transmit();
    assert!(node.sink.events.is_empty());
    node.transmit();
    let accept = handshake_header(HandshakeStep::Accept, NUMBER, b"welcome");
    assert_eq!(node.transport.sent, [(OWN, accept, b"welcome".to_vec())]);
    assert_eq!(mem::take(&mut node.sink.events), [ConnectionReport::Connected { data: Box::default() }]);
    node.step(OWN, HandshakeStep::Confirm, b"");
    assert_eq!(node.sink.events, [ConnectionReport::Confirmed]);
    node.post_receive(receive_request(8, 1));
    node.frame(OWN, &untagged_header(5), b"hello");
    assert_eq!(received_bytes(&node.sink.ended[0]), b"hello");
    node.transmit();
    assert!(node.transport.closed.is_empty());
    node.step(OWN, HandshakeStep::Confirm, b"");
    node.transmit();
    assert_eq!(node.transport.closed, [(OWN, Close::Abort)], "it was confirmed already");
}

#[test]
fn rdm_endpoint_rejects_request_and_keeps_its_link() {
    let (mut node, _) = engine_with_peer();
    let request = handshake_header(HandshakeStep::Request, NUMBER, b"please");
    node.frame_begun(OTHER, &request);
    node.payload_arrived(OTHER, b"please");
    node.transmit();
    assert_eq!(node.sent_since(0), [handshake_header(HandshakeStep::Reject, NUMBER, b"")]);
    assert!(node.transport.closed.is_empty());
    node.post_receive(receive_request(8, 1));
    node.frame(OTHER, &untagged_header(5), b"still");
    assert_eq!(received_bytes(&node.sink.ended[0]), b"still");
    // A peer that asks again before it has read the answer breaks the protocol.
    node.frame(OTHER, &request, b"please");
    node.pass_with_frame(OTHER, &request, b"please");
    assert_eq!(node.transport.closed, [(OTHER, Close::Abort)]);
}

#[test]
fn request_of_gone_requester_is_withdrawn_unless_being_accepted() {
    for error in [LinkError::Closed, RESET] {
        let (mut node, request) = passive_engine_with_request();
        node.link_down(OTHER, error.clone());
        assert_eq!(mem::take(&mut node.sink.events), [ConnectionReport::Withdrawn(request.id)]);
        // To answer the request has no effect, and is no error.
        node.engine.mark_request_being_accepted(request.id);
        node.end_accepted_request(request.id);
        node.reject(request.id, b"no").unwrap();
        assert!(node.sink.events.is_empty() && node.sent_since(0).is_empty());
        assert!(node.transport.closed.is_empty());

        let (mut node, request) = passive_engine_with_request();
        node.engine.mark_request_being_accepted(request.id);
        node.link_down(OTHER, error);
        assert!(node.sink.events.is_empty(), "the acceptor finds out by itself");
    }
    // A requester must send nothing after its request. If it does, its request is withdrawn.
    let (mut node, request) = passive_engine_with_request();
    node.frame(OTHER, &untagged_header(1), b"x");
    assert_eq!(node.sink.events, [ConnectionReport::Withdrawn(request.id)]);
    node.transmit();
    assert_eq!(node.transport.closed, [(OTHER, Close::Abort)]);
}

#[test]
fn request_link_stays_open_until_settled() {
    let (mut node, request) = passive_engine_with_request();
    node.engine.mark_request_being_accepted(request.id);
    node.transmit();
    assert!(node.transport.closed.is_empty());
    node.end_accepted_request(request.id);
    assert_eq!((node.transport.sent.len(), &node.transport.closed[..]), (0, &[(OTHER, Close::Drain)][..]));
}

#[test]
fn connect_attempt_ends_with_its_link() {
    let cases = [
        (REFUSED, Errno::ECONNREFUSED),
        (LinkError::System(Errno::ETIMEDOUT), Errno::ETIMEDOUT),
        (LinkError::Closed, Errno::ECONNREFUSED),
        (LinkError::Denied(Denial::OtherUser), Errno::EACCES),
    ];
    for (error, errno) in cases {
        let mut node = asking_engine();
        node.link_down(OWN, error);
        assert_eq!(take_failure(&mut node.sink).errno(), errno);
    }
    // If the link ends before it has come up, the engine concludes that no endpoint listens.
    let mut node = engine_with_role(EndpointRole::Connected);
    node.connect(b"", None);
    node.link_down(OWN, RESET);
    assert_eq!(take_failure(&mut node.sink), ConnectionError::NotListening);
    let mut node = asking_engine();
    node.link_down(OWN, RESET);
    assert_eq!(take_failure(&mut node.sink), ConnectionError::Link(RESET));
    // The acceptor may still connect after the passive endpoint is gone.
    let mut node = asking_engine();
    for (link, port) in [(LinkId(20), 20), (LinkId(21), 21)] {
        node.link_up(link, port, 1);
    }
    node.link_down(OWN, LinkError::Closed);
    node.link_down(LinkId(20), RESET);
    assert!(node.sink.events.is_empty());
    // The transport gives the number of an ended link to another link.
    node.link_up(OWN, 22, 1);
    node.frame(LinkId(21), &untagged_header(1), b"x");
    assert!(node.sink.events.is_empty());
    node.link_down(OWN, RESET);
    assert_eq!(take_failure(&mut node.sink), ConnectionError::NotListening);
    node.transmit();
    assert_eq!(node.transport.closed, [(LinkId(21), Close::Abort)]);
    let mut node = asking_engine_with_acceptor();
    node.link_down(OWN, LinkError::Closed);
    node.step(OTHER, HandshakeStep::Accept, b"");
    assert_eq!(node.sink.events, [ConnectionReport::Connected { data: Box::default() }]);
    for error in [REFUSED, LinkError::Closed, RESET] {
        let mut node = accepting_engine();
        node.link_down(OWN, error);
        assert_eq!(take_failure(&mut node.sink), ConnectionError::RequesterGone);
    }
    for errno in [Errno::EMFILE, Errno::ENETUNREACH, Errno::EHOSTUNREACH, Errno::ETIMEDOUT] {
        let mut node = accepting_engine();
        let error = LinkError::System(errno);
        node.link_down(OWN, error.clone());
        assert_eq!(take_failure(&mut node.sink), ConnectionError::Link(error));
    }
}

#[test]
fn accept_fails_if_another_instance_has_the_requesters_address() {
    let mut node = accepting_engine();
    node.link_up(OWN, 4, 8);
    assert_eq!(take_failure(&mut node.sink), ConnectionError::RequesterGone);
    node.transmit();
    assert_eq!(node.transport.closed, [(OWN, Close::Abort)]);
}

#[test]
fn unexpected_frame_aborts_a_handshake_link() {
    let all = |number: u64| {
        HandshakeStep::ALL.map(|of| handshake_header(of, number, b"")).into_iter().chain([
            untagged_header(0),
            Header::Ack { received: 0 },
            Header::Credit { granted_bytes: u64::MAX },
            Header::Fence { matched: false },
            Header::Data { op: 1, len_bytes: 0 },
        ])
    };
    // Each case has a link that is no connection yet, the step that may arrive on the link, and
    // whether the attempt to connect ends with the link.
    type Case = (fn() -> Node, LinkId, Option<HandshakeStep>, bool);
    let cases: [Case; 4] = [
        (asking_engine, OWN, Some(HandshakeStep::Reject), true),
        (asking_engine_with_acceptor, OTHER, Some(HandshakeStep::Accept), false),
        (accepting_engine_with_link, OWN, None, true),
        (|| passive_engine_with_request().0, OTHER, None, false),
    ];
    for (case, (make, link, proper, is_attempt)) in cases.into_iter().enumerate() {
        for number in [NUMBER, NUMBER ^ 1, 0] {
            for header in all(number) {
                if proper.is_some_and(|of| header == handshake_header(of, NUMBER, b"")) {
                    continue;
                }
                let mut node = make();
                node.pass_with_frame(link, &header, b"");
                assert!(node.transport.closed.contains(&(link, Close::Abort)), "{case}: {header:?}");
                let events = mem::take(&mut node.sink.events);
                let is_failed = matches!(events[..], [ConnectionReport::Failed(_)]);
                assert!(is_failed == is_attempt && events.len() <= 1, "{case}: {header:?}: {events:?}");
                // The engine ignores later frames of the link.
                node.frame(link, &untagged_header(1), b"x");
                node.frame_begun(link, &untagged_header(9));
                node.payload_arrived(link, b"abc");
                node.transmit();
                assert!(node.sink.events.is_empty() && node.sink.ended.is_empty(), "{case}: {header:?}");
            }
        }
    }
}

#[test]
fn unexpected_link_is_aborted_by_endpoint_that_is_not_listening() {
    type Make = fn() -> Node;
    let makes: [Make; 4] = [
        || engine_with_role(EndpointRole::Connected),
        accepting_engine,
        || connected_engine().0,
        || {
            let mut node = asking_engine();
            node.link_down(OWN, RESET);
            node.sink.events.clear();
            node
        },
    ];
    for make in makes {
        let mut node = make();
        node.link_up(LinkId(30), 5, 1);
        node.frame(LinkId(30), &untagged_header(1), b"x");
        node.step(LinkId(30), HandshakeStep::Accept, b"");
        node.transmit();
        assert_eq!(node.transport.closed, [(LinkId(30), Close::Abort)]);
        assert!(node.sink.events.is_empty() && node.sink.ended.is_empty());
    }
}

#[test]
fn connected_requester_closes_other_links_and_aborts_a_second_accept() {
    let mut node = asking_engine();
    for link in [20, 21, 22] {
        node.link_up(LinkId(link), link as u16, 1);
    }
    node.step(LinkId(21), HandshakeStep::Accept, b"");
    node.step(LinkId(20), HandshakeStep::Accept, b"");
    node.transmit();
    assert_eq!(node.sink.events, [ConnectionReport::Connected { data: Box::default() }]);
    let peer = node.engine.connected_peer().unwrap().unwrap();
    assert_eq!(node.engine.peers().address_of(peer), address(21));
    node.transport.closed.sort_unstable_by_key(|(link, _)| *link);
    let expected = [(OWN, Close::Drain), (LinkId(20), Close::Abort), (LinkId(22), Close::Drain)];
    // Each link is closed once.
    assert_eq!(node.transport.closed, expected);
}

#[test]
fn connect_times_out_if_no_acceptor_answers() {
    for answers in [false, true] {
        let mut node = asking_engine_with_acceptor();
        assert!(!node.awaits_timeout(), "the passive endpoint may answer");
        node.link_down(OWN, LinkError::Closed);
        assert!(node.awaits_timeout());
        let first_ms = 90_000 + REQUESTER_WAIT_MAX_MS;
        let last_ms = first_ms + TIMEOUT_GRACE_MS;
        let looks =
            [(90_000, first_ms), (first_ms - 1, first_ms), (first_ms, last_ms), (last_ms - 1, last_ms)];
        for (now_ms, deadline_ms) in looks {
            node.advance_time(Moment::from_ms(now_ms));
            node.transmit();
            assert_eq!(node.next_deadline(), Some(Moment::from_ms(deadline_ms)));
        }
        assert!(node.sink.events.is_empty() && !node.has_unsent());
        assert!(node.awaits_timeout() && !node.has_work_without_arrivals(), "the time is waited for asleep");
        if answers {
            node.step(OTHER, HandshakeStep::Accept, b"");
            node.transmit();
            assert_eq!(node.sink.events, [ConnectionReport::Connected { data: Box::default() }]);
            node.advance_time(Moment::from_ms(last_ms));
            node.transmit();
            assert!(node.transport.closed.is_empty() && node.sink.events.len() == 1);
        } else {
            node.advance_time(Moment::from_ms(last_ms));
            assert_eq!(take_failure(&mut node.sink), ConnectionError::NotListening);
            node.transmit();
            assert_eq!(node.transport.closed, [(OTHER, Close::Drain)]);
        }
        assert!(!node.has_work_without_arrivals());
        assert!(!node.awaits_timeout() && node.next_deadline().is_none());
    }
}

#[test]
fn shorter_of_two_limits_counts() {
    const LIMIT_MS: u64 = 50;
    let mut node = engine_with_role(EndpointRole::Connected);
    node.connect(b"please", Some(Moment::from_ms(LIMIT_MS)));
    node.link_up(OWN, 2, 1);
    node.link_up(OTHER, 3, 1);
    node.advance_time(Moment::from_ms(0));
    node.link_down(OWN, LinkError::Closed);
    node.advance_time(Moment::from_ms(1));
    assert_eq!(node.next_deadline(), Some(Moment::from_ms(LIMIT_MS)));
    for ms in [LIMIT_MS, LIMIT_MS + TIMEOUT_GRACE_MS] {
        node.advance_time(Moment::from_ms(ms));
    }
    assert_eq!(take_failure(&mut node.sink), ConnectionError::TimedOut);
}

#[test]
fn accept_of_a_request_known_to_be_gone_fails_at_once() {
    let (mut node, request) = passive_engine_with_request();
    assert!(node.engine.mark_request_being_accepted(request.id));
    let (mut node, request) = passive_engine_with_request();
    node.link_down(OTHER, RESET);
    assert!(!node.engine.mark_request_being_accepted(request.id));
    let mut node = engine_with_role(EndpointRole::Connected);
    node.engine.accept_withdrawn(&mut node.sink).unwrap();
    assert_eq!(take_failure(&mut node.sink), ConnectionError::RequesterGone);
    node.transmit();
    assert!(node.transport.sent.is_empty(), "the requester is not asked");
    let again = node.engine.accept_withdrawn(&mut node.sink).unwrap_err();
    assert_eq!(again.errno(), Errno::EOPBADSTATE);
}

#[test]
fn links_of_strangers_keep_no_acceptor_out() {
    let (claimed, confirmed) = (AddressProof::Claimed, AddressProof::Confirmed);
    // The proofs of the strangers' addresses, and how many strangers come before the acceptor. The others
    // come after it.
    let all = REQUESTER_MAX_LINKS as u32;
    for (proof, before) in [(claimed, all), (claimed, 0), (confirmed, all), (confirmed, 0)] {
        let mut node = asking_engine();
        let add_stranger = |node: &mut Node, link| {
            let peer = SocketAddr::from(([127, 0, 0, 2], link as u16)).into();
            node.link_event(LinkId(link), LinkEvent::Up { peer, instance: 1, proof, has_ended: false });
        };
        (10..10 + before).for_each(|link| add_stranger(&mut node, link));
        node.link_event(
            OTHER,
            LinkEvent::Up { peer: address(3), instance: 1, proof: claimed, has_ended: false },
        );
        node.link_event(OTHER, LinkEvent::Confirmed);
        (10 + before..10 + all).for_each(|link| add_stranger(&mut node, link));
        node.transmit();
        // Of the strangers the first have ended: one for the acceptor, and one for this side's own link.
        assert_eq!(node.transport.closed, [10, 11].map(|link| (LinkId(link), Close::Abort)), "{proof:?}");
        node.step(OTHER, HandshakeStep::Accept, b"");
        assert_eq!(node.sink.events, [ConnectionReport::Connected { data: Box::default() }], "{proof:?}");
    }
}
