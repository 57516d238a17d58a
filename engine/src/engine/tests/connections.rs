//! Tests of how connections are made, and of how the engine refuses peers that break the protocol.

mod failures;
mod half_frames;
mod over_loopback;
mod random_frames;
mod shutdowns;
mod timeouts;

use std::mem;

use super::*;
use crate::connection::{ConnectionEnd, ConnectionError, Request, RequestId, Requester};
use crate::limits::{
    CONNECTION_DATA_MAX_BYTES, EAGER_MAX_BYTES, REQUESTER_MAX_LINKS, REQUESTER_WAIT_MAX_MS, TIMEOUT_GRACE_MS,
};
use crate::wire::{HandshakeHeader, HandshakeStep};

/// The number that names each request in these tests.
const NUMBER: u64 = 0x5eed;

const OWN: LinkId = LinkId(0);
const OTHER: LinkId = LinkId(7);

fn engine_with_role(role: EndpointRole) -> (Engine, Scripted, Recorder) {
    let engine = Engine::new(Config { role, ..untimed_config() });
    (engine, Scripted::default(), Recorder::default())
}

fn handshake_header(step: HandshakeStep, number: u64, data: &[u8]) -> Header {
    Header::Connection(HandshakeHeader { step, number, data_bytes: data.len() as u16 })
}

fn bring_link_up(engine: &mut Engine, sink: &mut Recorder, id: LinkId, port: u16, instance: u64) {
    engine.arrivals(sink).link_event(id, LinkEvent::up(address(port), instance));
}

fn receive_frame(engine: &mut Engine, sink: &mut Recorder, id: LinkId, header: Header, data: &[u8]) {
    engine.arrivals(sink).frame(id, &header, data);
}

/// Returns an endpoint that has asked the passive endpoint at port 2 for a connection. The link has
/// taken the request.
fn asking_engine() -> (Engine, Scripted, Recorder) {
    let (mut engine, mut transport, mut sink) = engine_with_role(EndpointRole::Connected);
    engine.connect(address(2), NUMBER, b"please", None, &mut transport, &mut sink).unwrap();
    bring_link_up(&mut engine, &mut sink, OWN, 2, 1);
    (engine, transport, sink)
}

/// Returns an endpoint that link 7 connects with the endpoint at port 3.
fn connected_engine() -> (Engine, PeerId, Scripted, Recorder) {
    let (mut engine, mut transport, mut sink) = asking_engine();
    bring_link_up(&mut engine, &mut sink, OTHER, 3, 1);
    receive_frame(
        &mut engine,
        &mut sink,
        OTHER,
        handshake_header(HandshakeStep::Accept, NUMBER, b"welcome"),
        b"welcome",
    );
    engine.transmit(&mut transport, &mut sink);
    assert_eq!(mem::take(&mut sink.events), [ConnectionReport::Connected { data: b"welcome"[..].into() }]);
    assert_eq!(mem::take(&mut transport.closed), [(OWN, Close::Drain)]);
    let peer = engine.connected_peer().expect("it is for connections").expect("it is connected");
    transport.sent.clear();
    (engine, peer, transport, sink)
}

/// Returns an endpoint that accepts a request of the endpoint at port 4.
fn accepting_engine() -> (Engine, Scripted, Recorder) {
    let (mut engine, mut transport, mut sink) = engine_with_role(EndpointRole::Connected);
    let requester = Requester { address: address(4), instance: 9, number: NUMBER };
    engine.accept(requester, b"welcome", &mut transport).unwrap();
    engine.transmit(&mut transport, &mut sink);
    assert!(transport.sent.is_empty(), "the instance at the address is not known yet");
    (engine, transport, sink)
}

/// Returns a listening passive endpoint. The endpoint at port 4 has sent it a request over link 7.
fn passive_engine_with_request() -> (Engine, Request, Scripted, Recorder) {
    let (mut engine, transport, mut sink) = engine_with_role(EndpointRole::Passive);
    engine.listen(Some(1)).unwrap();
    bring_link_up(&mut engine, &mut sink, OTHER, 4, 9);
    receive_frame(
        &mut engine,
        &mut sink,
        OTHER,
        handshake_header(HandshakeStep::Request, NUMBER, b"please"),
        b"please",
    );
    let [ConnectionReport::Requested(request)] = &mem::take(&mut sink.events)[..] else {
        panic!("it was asked");
    };
    (engine, request.clone(), transport, sink)
}

fn take_failure(sink: &mut Recorder) -> ConnectionError {
    match &mem::take(&mut sink.events)[..] {
        [ConnectionReport::Failed(error)] => error.clone(),
        other => panic!("not one failure: {other:?}"),
    }
}

#[test]
fn requester_sends_request_and_confirms_accept() {
    let (mut engine, mut transport, mut sink) = asking_engine();
    assert_eq!(transport.connected, [address(2)]);
    assert_eq!(
        transport.sent,
        [(OWN, handshake_header(HandshakeStep::Request, NUMBER, b"please"), b"please".to_vec())]
    );
    assert_eq!(engine.connected_peer(), Some(Err(Misuse::NotConnected.into())));
    bring_link_up(&mut engine, &mut sink, OTHER, 3, 1);
    let accept = handshake_header(HandshakeStep::Accept, NUMBER, b"welcome");
    engine.post_receive(receive_request(8, 1), &mut sink).unwrap();
    // The accept arrives in pieces, as over a stream. A message follows at once.
    let mut arrivals = engine.arrivals(&mut sink);
    arrivals.frame_begun(OTHER, &accept);
    arrivals.payload_arrived(OTHER, b"wel");
    assert!(arrivals.payload_space(OTHER).is_empty());
    arrivals.payload_arrived(OTHER, b"come");
    arrivals.frame(OTHER, &untagged_header(5), b"first");
    assert_eq!(sink.events, [ConnectionReport::Connected { data: b"welcome"[..].into() }]);
    assert_eq!(received_bytes(&sink.ended[0]), b"first");
    engine.transmit(&mut transport, &mut sink);
    assert_eq!(
        transport.sent.last(),
        Some(&(OTHER, handshake_header(HandshakeStep::Confirm, NUMBER, b""), vec![]))
    );
    assert_eq!(transport.closed, [(OWN, Close::Drain)]);
    let peer = engine.connected_peer().unwrap().unwrap();
    assert_eq!(engine.peers().address_of(peer), address(3));
    engine.post_request(send_request(peer, b"x", 1), &mut transport, &mut sink).unwrap();
    assert_eq!(transport.sent.last(), Some(&(OTHER, untagged_header(1), b"x".to_vec())));
    assert_eq!(transport.connected.len(), 1);
}

#[test]
fn acceptor_is_connected_once_its_accept_is_sent() {
    let (mut engine, mut transport, mut sink) = accepting_engine();
    assert_eq!(transport.connected, [address(4)]);
    bring_link_up(&mut engine, &mut sink, OWN, 4, 9);
    transport.answers = [Sent::Partial(1)].into();
    engine.transmit(&mut transport, &mut sink);
    assert!(sink.events.is_empty());
    engine.transmit(&mut transport, &mut sink);
    assert_eq!(
        transport.sent,
        [(OWN, handshake_header(HandshakeStep::Accept, NUMBER, b"welcome"), b"welcome".to_vec())]
    );
    assert_eq!(mem::take(&mut sink.events), [ConnectionReport::Connected { data: Box::default() }]);
    receive_frame(&mut engine, &mut sink, OWN, handshake_header(HandshakeStep::Confirm, NUMBER, b""), b"");
    assert_eq!(sink.events, [ConnectionReport::Confirmed]);
    engine.post_receive(receive_request(8, 1), &mut sink).unwrap();
    receive_frame(&mut engine, &mut sink, OWN, untagged_header(5), b"hello");
    assert_eq!(received_bytes(&sink.ended[0]), b"hello");
    engine.transmit(&mut transport, &mut sink);
    assert!(transport.closed.is_empty());
}

#[test]
fn request_is_reported_and_can_be_rejected() {
    let (mut engine, request, mut transport, mut sink) = passive_engine_with_request();
    let from = Requester { address: address(4), instance: 9, number: NUMBER };
    assert_eq!((request.from, &*request.data), (from, &b"please"[..]));
    transport.answers = [Sent::Partial(1)].into();
    engine.reject(request.id, b"no", &mut transport, &mut sink).unwrap();
    assert!(transport.closed.is_empty() && engine.has_unsent());
    engine.transmit(&mut transport, &mut sink);
    assert_eq!(
        transport.sent,
        [(OTHER, handshake_header(HandshakeStep::Reject, NUMBER, b"no"), b"no".to_vec())]
    );
    assert_eq!(transport.closed, [(OTHER, Close::Drain)]);
    assert!(!engine.has_unsent());
    // To reject or settle the request again does nothing.
    engine.reject(request.id, b"no", &mut transport, &mut sink).unwrap();
    engine.end_accepted_request(request.id, &mut transport, &mut sink);
    assert_eq!((transport.sent.len(), transport.closed.len()), (1, 1));
}

#[test]
fn rejected_requester_gets_data_and_fails() {
    let (mut engine, mut transport, mut sink) = asking_engine();
    engine.post_receive(receive_request(8, 5), &mut sink).unwrap();
    receive_frame(&mut engine, &mut sink, OWN, handshake_header(HandshakeStep::Reject, NUMBER, b"no"), b"no");
    let error = take_failure(&mut sink);
    assert_eq!(error, ConnectionError::Rejected { data: b"no"[..].into() });
    assert_eq!(error.errno(), Errno::ECONNREFUSED);
    engine.transmit(&mut transport, &mut sink);
    assert_eq!(transport.closed, [(OWN, Close::Drain)]);
    assert_eq!(sink.ended_contexts(), [5], "nothing will ever arrive for it");
    let again = engine.connect(address(2), 1, b"", None, &mut transport, &mut sink);
    assert_eq!(again.unwrap_err().errno(), Errno::EOPBADSTATE);
}

#[test]
fn passive_endpoint_without_backlog_rejects_requests() {
    for backlog_requests in [None, Some(0)] {
        let (mut engine, mut transport, mut sink) = engine_with_role(EndpointRole::Passive);
        engine.listen(backlog_requests).unwrap();
        bring_link_up(&mut engine, &mut sink, OTHER, 4, 9);
        receive_frame(
            &mut engine,
            &mut sink,
            OTHER,
            handshake_header(HandshakeStep::Request, NUMBER, b""),
            b"",
        );
        engine.transmit(&mut transport, &mut sink);
        assert!(sink.events.is_empty());
        assert_eq!(sent_headers_since(&transport, 0), [handshake_header(HandshakeStep::Reject, NUMBER, b"")]);
        assert_eq!(transport.closed, [(OTHER, Close::Drain)]);
    }
}

#[test]
fn rdm_endpoint_rejects_request_and_keeps_its_link() {
    let (mut engine, _, mut transport, mut sink) = engine_with_peer();
    let request = handshake_header(HandshakeStep::Request, NUMBER, b"please");
    let mut arrivals = engine.arrivals(&mut sink);
    arrivals.frame_begun(OTHER, &request);
    arrivals.payload_arrived(OTHER, b"please");
    engine.transmit(&mut transport, &mut sink);
    assert_eq!(sent_headers_since(&transport, 0), [handshake_header(HandshakeStep::Reject, NUMBER, b"")]);
    assert!(transport.closed.is_empty());
    engine.post_receive(receive_request(8, 1), &mut sink).unwrap();
    receive_frame(&mut engine, &mut sink, OTHER, untagged_header(5), b"still");
    assert_eq!(received_bytes(&sink.ended[0]), b"still");
    // A peer that asks again before it has read the answer breaks the protocol.
    receive_frame(&mut engine, &mut sink, OTHER, request, b"please");
    receive_frame(&mut engine, &mut sink, OTHER, request, b"please");
    engine.transmit(&mut transport, &mut sink);
    assert_eq!(transport.closed, [(OTHER, Close::Abort)]);
}

#[test]
fn backlog_counts_only_waiting_requests() {
    let (mut engine, first, mut transport, mut sink) = passive_engine_with_request();
    let mut ask = |engine: &mut Engine, transport: &mut Scripted, link: u32| {
        bring_link_up(engine, &mut sink, LinkId(link), 100 + link as u16, 1);
        receive_frame(
            engine,
            &mut sink,
            LinkId(link),
            handshake_header(HandshakeStep::Request, u64::from(link), b""),
            b"",
        );
        engine.transmit(transport, &mut sink);
        !mem::take(&mut sink.events).is_empty()
    };
    assert!(!ask(&mut engine, &mut transport, 20), "there is one already");
    engine.mark_request_being_accepted(first.id);
    assert!(ask(&mut engine, &mut transport, 21));
    assert!(!ask(&mut engine, &mut transport, 22));
    engine.arrivals(&mut Recorder::default()).link_event(LinkId(21), LinkEvent::Down(RESET));
    assert!(ask(&mut engine, &mut transport, 23), "a requester that is gone does not wait");
    engine.listen(Some(2)).unwrap();
    assert!(ask(&mut engine, &mut transport, 24));
    engine.listen(None).unwrap();
    assert!(!ask(&mut engine, &mut transport, 25));
}

#[test]
fn request_of_gone_requester_is_withdrawn_unless_being_accepted() {
    for error in [LinkError::Closed, RESET] {
        let (mut engine, request, mut transport, mut sink) = passive_engine_with_request();
        engine.arrivals(&mut sink).link_event(OTHER, LinkEvent::Down(error.clone()));
        assert_eq!(mem::take(&mut sink.events), [ConnectionReport::Withdrawn(request.id)]);
        // To answer the request has no effect, and is no error.
        engine.mark_request_being_accepted(request.id);
        engine.end_accepted_request(request.id, &mut transport, &mut sink);
        engine.reject(request.id, b"no", &mut transport, &mut sink).unwrap();
        assert!(sink.events.is_empty() && transport.sent.is_empty() && transport.closed.is_empty());

        let (mut engine, request, _, mut sink) = passive_engine_with_request();
        engine.mark_request_being_accepted(request.id);
        engine.arrivals(&mut sink).link_event(OTHER, LinkEvent::Down(error));
        assert!(sink.events.is_empty(), "the acceptor finds out by itself");
    }
    // A requester must send nothing after its request. If it does, its request is withdrawn.
    let (mut engine, request, mut transport, mut sink) = passive_engine_with_request();
    receive_frame(&mut engine, &mut sink, OTHER, untagged_header(1), b"x");
    assert_eq!(sink.events, [ConnectionReport::Withdrawn(request.id)]);
    engine.transmit(&mut transport, &mut sink);
    assert_eq!(transport.closed, [(OTHER, Close::Abort)]);
}

#[test]
fn request_link_stays_open_until_settled() {
    let (mut engine, request, mut transport, mut sink) = passive_engine_with_request();
    engine.mark_request_being_accepted(request.id);
    engine.transmit(&mut transport, &mut sink);
    assert!(transport.closed.is_empty());
    engine.end_accepted_request(request.id, &mut transport, &mut sink);
    assert_eq!((transport.sent.len(), &transport.closed[..]), (0, &[(OTHER, Close::Drain)][..]));
}

#[test]
fn connect_attempt_ends_with_its_link() {
    let cases = [
        (LinkError::System(Errno::ECONNREFUSED), Errno::ECONNREFUSED),
        (LinkError::System(Errno::ETIMEDOUT), Errno::ETIMEDOUT),
        (LinkError::Closed, Errno::ECONNREFUSED),
        (LinkError::Denied(Denial::OtherUser), Errno::EACCES),
    ];
    for (error, errno) in cases {
        let (mut engine, _, mut sink) = asking_engine();
        engine.arrivals(&mut sink).link_event(OWN, LinkEvent::Down(error));
        assert_eq!(take_failure(&mut sink).errno(), errno);
    }
    // If the link ends before it has come up, the engine concludes that no endpoint listens.
    let (mut never_up, mut transport, mut sink) = engine_with_role(EndpointRole::Connected);
    never_up.connect(address(2), NUMBER, b"", None, &mut transport, &mut sink).unwrap();
    never_up.arrivals(&mut sink).link_event(OWN, LinkEvent::Down(RESET));
    assert_eq!(take_failure(&mut sink), ConnectionError::NotListening);
    let (mut engine, _, mut sink) = asking_engine();
    engine.arrivals(&mut sink).link_event(OWN, LinkEvent::Down(RESET));
    assert_eq!(take_failure(&mut sink), ConnectionError::Link(RESET));
    // The acceptor may still connect after the passive endpoint is gone.
    let (mut engine, mut transport, mut sink) = asking_engine();
    for (link, port) in [(LinkId(20), 20), (LinkId(21), 21)] {
        bring_link_up(&mut engine, &mut sink, link, port, 1);
    }
    engine.arrivals(&mut sink).link_event(OWN, LinkEvent::Down(LinkError::Closed));
    engine.arrivals(&mut sink).link_event(LinkId(20), LinkEvent::Down(RESET));
    assert!(sink.events.is_empty());
    // The transport gives the number of an ended link to another link.
    bring_link_up(&mut engine, &mut sink, OWN, 22, 1);
    receive_frame(&mut engine, &mut sink, LinkId(21), untagged_header(1), b"x");
    assert!(sink.events.is_empty());
    engine.arrivals(&mut sink).link_event(OWN, LinkEvent::Down(RESET));
    assert_eq!(take_failure(&mut sink), ConnectionError::NotListening);
    engine.transmit(&mut transport, &mut sink);
    assert_eq!(transport.closed, [(LinkId(21), Close::Abort)]);
    let (mut engine, _, mut sink) = asking_engine();
    bring_link_up(&mut engine, &mut sink, OTHER, 3, 1);
    engine.arrivals(&mut sink).link_event(OWN, LinkEvent::Down(LinkError::Closed));
    receive_frame(&mut engine, &mut sink, OTHER, handshake_header(HandshakeStep::Accept, NUMBER, b""), b"");
    assert_eq!(sink.events, [ConnectionReport::Connected { data: Box::default() }]);
    for error in [LinkError::System(Errno::ECONNREFUSED), LinkError::Closed, RESET] {
        let (mut engine, _, mut sink) = accepting_engine();
        engine.arrivals(&mut sink).link_event(OWN, LinkEvent::Down(error));
        assert_eq!(take_failure(&mut sink), ConnectionError::RequesterGone);
    }
}

#[test]
fn accept_fails_with_link_error_if_requester_is_unreachable() {
    for errno in [Errno::EMFILE, Errno::ENETUNREACH, Errno::EHOSTUNREACH, Errno::ETIMEDOUT] {
        let (mut engine, _, mut sink) = accepting_engine();
        let error = LinkError::System(errno);
        engine.arrivals(&mut sink).link_event(OWN, LinkEvent::Down(error.clone()));
        let failure = take_failure(&mut sink);
        assert_eq!((failure.errno(), failure), (errno, ConnectionError::Link(error)));
    }
}

#[test]
fn accept_fails_if_another_instance_has_the_requesters_address() {
    let (mut engine, mut transport, mut sink) = accepting_engine();
    bring_link_up(&mut engine, &mut sink, OWN, 4, 8);
    assert_eq!(take_failure(&mut sink), ConnectionError::RequesterGone);
    engine.transmit(&mut transport, &mut sink);
    assert_eq!(transport.closed, [(OWN, Close::Abort)]);
}

#[test]
fn unexpected_frame_aborts_a_handshake_link() {
    type Made = (Engine, Scripted, Recorder);
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
    type Case = (fn() -> Made, LinkId, Option<HandshakeStep>, bool);
    let cases: [Case; 4] = [
        (|| asking_engine(), OWN, Some(HandshakeStep::Reject), true),
        (
            || {
                let (mut engine, transport, mut sink) = asking_engine();
                bring_link_up(&mut engine, &mut sink, OTHER, 3, 1);
                (engine, transport, sink)
            },
            OTHER,
            Some(HandshakeStep::Accept),
            false,
        ),
        (
            || {
                let (mut engine, transport, mut sink) = accepting_engine();
                bring_link_up(&mut engine, &mut sink, OWN, 4, 9);
                (engine, transport, sink)
            },
            OWN,
            None,
            true,
        ),
        (
            || {
                let (engine, _, transport, sink) = passive_engine_with_request();
                (engine, transport, sink)
            },
            OTHER,
            None,
            false,
        ),
    ];
    for (case, (make, link, proper, is_attempt)) in cases.into_iter().enumerate() {
        for number in [NUMBER, NUMBER ^ 1, 0] {
            for header in all(number) {
                let is_proper = proper.is_some_and(|of| header == handshake_header(of, NUMBER, b""));
                if is_proper {
                    continue;
                }
                let (mut engine, mut transport, mut sink) = make();
                receive_frame(&mut engine, &mut sink, link, header, b"");
                engine.transmit(&mut transport, &mut sink);
                assert!(transport.closed.contains(&(link, Close::Abort)), "{case}: {header:?}");
                let events = mem::take(&mut sink.events);
                let is_failed = matches!(events[..], [ConnectionReport::Failed(_)]);
                assert!(is_failed == is_attempt && events.len() <= 1, "{case}: {header:?}: {events:?}");
                // The engine ignores later frames of the link.
                receive_frame(&mut engine, &mut sink, link, untagged_header(1), b"x");
                engine.arrivals(&mut sink).frame_begun(link, &untagged_header(9));
                engine.arrivals(&mut sink).payload_arrived(link, b"abc");
                engine.transmit(&mut transport, &mut sink);
                assert!(sink.events.is_empty() && sink.ended.is_empty(), "{case}: {header:?}");
            }
        }
    }
}

#[test]
fn unexpected_link_is_aborted_by_endpoint_that_is_not_listening() {
    type Make = fn() -> (Engine, Scripted, Recorder);
    let makes: [Make; 4] = [
        || engine_with_role(EndpointRole::Connected),
        || accepting_engine(),
        || {
            let (engine, _, transport, sink) = connected_engine();
            (engine, transport, sink)
        },
        || {
            let (mut engine, transport, mut sink) = asking_engine();
            engine.arrivals(&mut sink).link_event(OWN, LinkEvent::Down(RESET));
            sink.events.clear();
            (engine, transport, sink)
        },
    ];
    for make in makes {
        let (mut engine, mut transport, mut sink) = make();
        bring_link_up(&mut engine, &mut sink, LinkId(30), 5, 1);
        receive_frame(&mut engine, &mut sink, LinkId(30), untagged_header(1), b"x");
        receive_frame(
            &mut engine,
            &mut sink,
            LinkId(30),
            handshake_header(HandshakeStep::Accept, NUMBER, b""),
            b"",
        );
        engine.transmit(&mut transport, &mut sink);
        assert_eq!(transport.closed, [(LinkId(30), Close::Abort)]);
        assert!(sink.events.is_empty() && sink.ended.is_empty());
    }
}

#[test]
fn connected_requester_closes_other_links_and_aborts_a_second_accept() {
    let (mut engine, mut transport, mut sink) = asking_engine();
    for link in [20, 21, 22] {
        bring_link_up(&mut engine, &mut sink, LinkId(link), link as u16, 1);
    }
    receive_frame(
        &mut engine,
        &mut sink,
        LinkId(21),
        handshake_header(HandshakeStep::Accept, NUMBER, b""),
        b"",
    );
    receive_frame(
        &mut engine,
        &mut sink,
        LinkId(20),
        handshake_header(HandshakeStep::Accept, NUMBER, b""),
        b"",
    );
    engine.transmit(&mut transport, &mut sink);
    assert_eq!(sink.events, [ConnectionReport::Connected { data: Box::default() }]);
    let peer = engine.connected_peer().unwrap().unwrap();
    assert_eq!(engine.peers().address_of(peer), address(21));
    transport.closed.sort_unstable_by_key(|(link, _)| *link);
    let expected = [(OWN, Close::Drain), (LinkId(20), Close::Abort), (LinkId(22), Close::Drain)];
    // Each link is closed once.
    assert_eq!(transport.closed, expected);
}

#[test]
fn connect_times_out_if_no_acceptor_answers() {
    for answers in [false, true] {
        let (mut engine, mut transport, mut sink) = asking_engine();
        bring_link_up(&mut engine, &mut sink, OTHER, 3, 1);
        assert!(!engine.awaits_timeout(), "the passive endpoint may answer");
        engine.arrivals(&mut sink).link_event(OWN, LinkEvent::Down(LinkError::Closed));
        let (first_ms, last_ms) =
            (90_000 + REQUESTER_WAIT_MAX_MS, 90_000 + REQUESTER_WAIT_MAX_MS + TIMEOUT_GRACE_MS);
        let looks =
            [(90_000, first_ms), (first_ms - 1, first_ms), (first_ms, last_ms), (last_ms - 1, last_ms)];
        for (now_ms, deadline_ms) in looks {
            engine.advance_time(Moment::from_ms(now_ms), &mut sink);
            engine.transmit(&mut transport, &mut sink);
            assert_eq!(engine.next_deadline(), Some(Moment::from_ms(deadline_ms)));
        }
        assert!(sink.events.is_empty() && !engine.has_unsent());
        assert!(
            engine.awaits_timeout() && !engine.has_work_without_arrivals(),
            "the time is waited for asleep"
        );
        if answers {
            receive_frame(
                &mut engine,
                &mut sink,
                OTHER,
                handshake_header(HandshakeStep::Accept, NUMBER, b""),
                b"",
            );
            engine.transmit(&mut transport, &mut sink);
            assert_eq!(sink.events, [ConnectionReport::Connected { data: Box::default() }]);
            engine.advance_time(Moment::from_ms(last_ms), &mut sink);
            engine.transmit(&mut transport, &mut sink);
            assert!(transport.closed.is_empty() && sink.events.len() == 1);
        } else {
            engine.advance_time(Moment::from_ms(last_ms), &mut sink);
            assert_eq!(take_failure(&mut sink), ConnectionError::NotListening);
            engine.transmit(&mut transport, &mut sink);
            assert_eq!(transport.closed, [(OTHER, Close::Drain)]);
        }
        assert!(
            !engine.has_work_without_arrivals()
                && !engine.awaits_timeout()
                && engine.next_deadline().is_none()
        );
    }
}

#[test]
fn requester_limits_its_links() {
    let (mut engine, mut transport, mut sink) = asking_engine();
    let links: Vec<LinkId> = (20..).map(LinkId).take(REQUESTER_MAX_LINKS + 3).collect();
    for id in &links {
        bring_link_up(&mut engine, &mut sink, *id, id.0 as u16, 1);
    }
    engine.transmit(&mut transport, &mut sink);
    // One link of the limit is the requester's own.
    let oldest: Vec<(LinkId, Close)> = links[..4].iter().map(|id| (*id, Close::Abort)).collect();
    assert_eq!(transport.closed, oldest);
    let last = links[REQUESTER_MAX_LINKS + 2];
    receive_frame(&mut engine, &mut sink, last, handshake_header(HandshakeStep::Accept, NUMBER, b""), b"");
    assert_eq!(sink.events, [ConnectionReport::Connected { data: Box::default() }]);
}

#[test]
fn invalid_connection_call_is_refused_and_sends_nothing() {
    let too_much = [0; CONNECTION_DATA_MAX_BYTES + 1];
    let (mut engine, mut transport, mut sink) = engine_with_role(EndpointRole::Connected);
    let refused = engine.connect(address(2), 1, &too_much, None, &mut transport, &mut sink);
    assert_eq!(refused.unwrap_err().errno(), Errno::EINVAL);
    let requester = Requester { address: address(4), instance: 9, number: 1 };
    let refused = engine.accept(requester, &too_much, &mut transport);
    assert_eq!(refused.unwrap_err().errno(), Errno::EINVAL);
    assert_eq!(engine.shutdown(&mut transport, &mut sink), Err(Misuse::NotConnected.into()));
    assert_eq!(engine.listen(Some(1)).unwrap_err().errno(), Errno::EOPBADSTATE);
    let refused = engine.reject(RequestId(0), b"", &mut transport, &mut sink);
    assert_eq!(refused.unwrap_err().errno(), Errno::EOPBADSTATE);
    engine.connect(address(2), 1, &too_much[1..], None, &mut transport, &mut sink).unwrap();
    assert_eq!(engine.shutdown(&mut transport, &mut sink), Err(Misuse::NotConnected.into()));
    let refused = engine.accept(requester, b"", &mut transport);
    assert_eq!(refused.unwrap_err().errno(), Errno::EOPBADSTATE);

    let (mut engine, request, mut transport, mut sink) = passive_engine_with_request();
    let refused = engine.reject(request.id, &too_much, &mut transport, &mut sink);
    assert_eq!(refused.unwrap_err().errno(), Errno::EINVAL);
    assert_eq!(engine.shutdown(&mut transport, &mut sink), Err(Misuse::NotConnected.into()));
    assert_eq!(engine.connected_peer(), Some(Err(Misuse::NotConnected.into())));
    assert!(transport.sent.is_empty() && transport.closed.is_empty());
    let (engine, ..) = engine_with_peer();
    assert_eq!(engine.connected_peer(), None);
}
