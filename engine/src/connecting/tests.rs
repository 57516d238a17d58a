//! Tests of a connection alone, without endpoint, transport and engine.

use std::net::SocketAddr;

use super::*;
use crate::connection::{ConnectionEnd, ConnectionError, Request, RequestId, Requester};
use crate::error::OperationError;
use crate::limits::{REQUESTER_MAX_LINKS, REQUESTER_WAIT_MAX_MS, TIMEOUT_GRACE_MS};
use crate::moment::Moment;
use crate::transport::AddressProof;

const ASKED: LinkId = LinkId(1);
const OTHER: LinkId = LinkId(2);
const PEER: PeerId = PeerId(7);
const INSTANCE: u64 = 70;
const NUMBER: u64 = 700;

/// Records the effects that a connection asks for.
#[derive(Debug, Default)]
struct EffectsRecorder {
    events: Vec<ConnectionReport>,
    established: Vec<(LinkId, u64)>,
    queued: Vec<Header>,
    dismissed: Vec<LinkId>,
    has_ended_receives: bool,
    awaits_timeout: bool,
}

impl ConnectionEffects for EffectsRecorder {
    fn report(&mut self, event: ConnectionReport) {
        self.events.push(event);
    }

    fn add_message_link(&mut self, link: LinkId, _: Address, instance: u64, _: AddressProof) -> PeerId {
        self.established.push((link, instance));
        PEER
    }

    fn queue_header(&mut self, _: LinkId, header: Header) {
        self.queued.push(header);
    }

    fn abort_handshake_link(&mut self, link: LinkId, _: &'static str) {
        self.dismissed.push(link);
    }

    fn fail_all_receives(&mut self, _: &OperationError) {
        self.has_ended_receives = true;
    }

    fn arm_timeout(&mut self) {
        self.awaits_timeout = true;
    }
}

fn address() -> Address {
    SocketAddr::from(([127, 0, 0, 1], 1)).into()
}

fn requester() -> Requester {
    Requester { address: address(), instance: INSTANCE, number: NUMBER }
}

fn make_handshake(step: HandshakeStep, data: &[u8]) -> HandshakeHeader {
    HandshakeHeader { step, number: NUMBER, data_bytes: data.len() as u16 }
}

fn receive_handshake(
    connection: &mut Connection,
    link: LinkId,
    of: HandshakeStep,
    data: &[u8],
    asked: &mut EffectsRecorder,
) {
    connection.frame_arrived(link, &Header::Connection(make_handshake(of, data)), data, asked);
}

/// Returns the steps that a connection sends on links with unlimited room, and the links to close.
fn take_sent_handshakes(
    connection: &mut Connection,
    asked: &mut EffectsRecorder,
) -> (Vec<(LinkId, HandshakeStep)>, Vec<LinkId>) {
    let mut said = Vec::new();
    let send = |link, header: Option<&Header>, _: &[u8]| {
        if let Some(Header::Connection(handshake)) = header {
            said.push((link, handshake.step));
        }
        Sent::Whole
    };
    let served = connection.transmit_and_take_links_to_close(send, asked);
    (said, served)
}

/// Returns a requester that has sent its request on a link that is up.
fn asking_requester() -> (Connection, EffectsRecorder) {
    let (mut connection, mut asked) = (Connection::new(EndpointRole::Connected), EffectsRecorder::default());
    connection.connect(NUMBER, b"please", None, || ASKED).unwrap();
    connection.link_up(ASKED, address(), INSTANCE, AddressProof::Credentials, &mut asked);
    assert_eq!(take_sent_handshakes(&mut connection, &mut asked).0, [(ASKED, HandshakeStep::Request)]);
    (connection, asked)
}

/// Returns a passive endpoint that has received a request.
fn passive_with_request() -> (Connection, EffectsRecorder, RequestId) {
    let (mut connection, mut asked) = (Connection::new(EndpointRole::Passive), EffectsRecorder::default());
    connection.listen(Some(1)).unwrap();
    connection.link_up(ASKED, address(), INSTANCE, AddressProof::Credentials, &mut asked);
    receive_handshake(&mut connection, ASKED, HandshakeStep::Request, b"please", &mut asked);
    let Some(ConnectionReport::Requested(Request { id, from, data })) = asked.events.pop() else {
        panic!("it is not told of the request");
    };
    assert_eq!((from, &*data), (requester(), &b"please"[..]));
    (connection, asked, id)
}

#[test]
fn requester_connects_by_accept_on_another_link() {
    let (mut connection, mut asked) = asking_requester();
    assert!(connection.connect(NUMBER, b"", None, || panic!("it asks once")).is_err());
    connection.link_up(OTHER, address(), INSTANCE + 1, AddressProof::Credentials, &mut asked);
    connection.frame_begun(
        OTHER,
        &Header::Connection(make_handshake(HandshakeStep::Accept, b"yes")),
        &mut asked,
    );
    connection.chunk_arrived(OTHER, b"y", &mut asked);
    assert!(asked.events.is_empty());
    connection.chunk_arrived(OTHER, b"es", &mut asked);
    assert_eq!(asked.established, [(OTHER, INSTANCE + 1)]);
    assert_eq!(asked.events, [ConnectionReport::Connected { data: (*b"yes").into() }]);
    assert_eq!(asked.queued, [Header::Connection(make_handshake(HandshakeStep::Confirm, b""))]);
    assert_eq!(take_sent_handshakes(&mut connection, &mut asked), (vec![], vec![ASKED]));
    assert_eq!(connection.peer().unwrap().unwrap(), PEER);
}

#[test]
fn links_of_strangers_keep_no_acceptor_out() {
    let (claimed, confirmed) = (AddressProof::Claimed, AddressProof::Confirmed);
    // The proofs of the strangers' addresses, and how many strangers come before the acceptor and after it.
    let all = REQUESTER_MAX_LINKS as u32;
    for (proof, before, after) in
        [(claimed, all, 0), (claimed, 0, all), (confirmed, all, 0), (confirmed, 0, all)]
    {
        let (mut connection, mut asked) = asking_requester();
        let add_strangers = |connection: &mut Connection, asked: &mut EffectsRecorder, first, count| {
            for id in first..first + count {
                let host = SocketAddr::from(([127, 0, 0, 2], id as u16)).into();
                connection.link_up(LinkId(id), host, 1, proof, asked);
            }
        };
        add_strangers(&mut connection, &mut asked, 10, before);
        connection.link_up(OTHER, address(), INSTANCE, claimed, &mut asked);
        connection.confirm_link(OTHER);
        add_strangers(&mut connection, &mut asked, 10 + before, after);
        // Of the strangers the first have ended: one for the acceptor, and one for this side's own link.
        assert_eq!(asked.dismissed, [LinkId(10), LinkId(11)], "{proof:?}");
        receive_handshake(&mut connection, OTHER, HandshakeStep::Accept, b"", &mut asked);
        assert_eq!(asked.established, [(OTHER, INSTANCE)], "{proof:?}");
    }
}

#[test]
fn accept_with_wrong_number_ends_only_its_link() {
    let (mut connection, mut asked) = asking_requester();
    connection.link_up(OTHER, address(), INSTANCE, AddressProof::Credentials, &mut asked);
    let stranger = HandshakeHeader { number: NUMBER + 1, ..make_handshake(HandshakeStep::Accept, b"") };
    connection.frame_arrived(OTHER, &Header::Connection(stranger), b"", &mut asked);
    assert_eq!((&asked.dismissed[..], asked.events.len()), (&[OTHER][..], 0));
    receive_handshake(&mut connection, ASKED, HandshakeStep::Reject, b"no", &mut asked);
    let rejected = ConnectionError::Rejected { data: (*b"no").into() };
    assert_eq!(asked.events, [ConnectionReport::Failed(rejected)]);
    assert!(asked.has_ended_receives);
}

#[test]
fn requester_awaits_accept_for_a_while_after_its_link_ended() {
    let (mut connection, mut asked) = asking_requester();
    connection.link_up(OTHER, address(), INSTANCE, AddressProof::Credentials, &mut asked);
    assert!(connection.end_if_handshake_link(ASKED, &LinkError::Closed, &mut asked));
    assert!(asked.awaits_timeout && connection.awaits_timeout() && asked.events.is_empty());
    connection.advance_time(Moment::from_ms(0), &mut asked);
    assert_eq!(connection.deadline(), Some(Moment::from_ms(REQUESTER_WAIT_MAX_MS)));
    connection.advance_time(Moment::from_ms(REQUESTER_WAIT_MAX_MS), &mut asked);
    assert!(asked.events.is_empty(), "it was not looked at meanwhile");
    connection.advance_time(Moment::from_ms(REQUESTER_WAIT_MAX_MS + TIMEOUT_GRACE_MS), &mut asked);
    assert_eq!(asked.events, [ConnectionReport::Failed(ConnectionError::NotListening)]);
    assert!(!connection.awaits_timeout());
}

#[test]
fn acceptor_connects_when_the_link_takes_its_accept() {
    let (mut connection, mut asked) = (Connection::new(EndpointRole::Connected), EffectsRecorder::default());
    connection.accept(requester(), b"yes", || ASKED).unwrap();
    assert_eq!(
        take_sent_handshakes(&mut connection, &mut asked),
        (vec![], vec![]),
        "the requester may be gone"
    );
    connection.link_up(ASKED, address(), INSTANCE, AddressProof::Credentials, &mut asked);
    assert!(asked.established.is_empty());
    assert_eq!(take_sent_handshakes(&mut connection, &mut asked).0, [(ASKED, HandshakeStep::Accept)]);
    assert_eq!(asked.established, [(ASKED, INSTANCE)]);
    assert_eq!(asked.events, [ConnectionReport::Connected { data: Box::default() }]);
    let confirm = make_handshake(HandshakeStep::Confirm, b"");
    let confirmed = connection.handle_step_on_message_link(ASKED, confirm, false, &mut asked);
    assert_eq!(
        (confirmed, asked.events.pop()),
        (Ok(HandshakeResult::Nothing), Some(ConnectionReport::Confirmed))
    );
    assert!(connection.handle_step_on_message_link(ASKED, confirm, false, &mut asked).is_err(), "again");
}

#[test]
fn acceptor_refuses_new_instance_of_the_requester() {
    let (mut connection, mut asked) = (Connection::new(EndpointRole::Connected), EffectsRecorder::default());
    connection.accept(requester(), b"", || ASKED).unwrap();
    connection.link_up(ASKED, address(), INSTANCE + 1, AddressProof::Credentials, &mut asked);
    assert_eq!(asked.dismissed, [ASKED]);
    assert_eq!(asked.events, [ConnectionReport::Failed(ConnectionError::RequesterGone)]);
}

#[test]
fn passive_endpoint_sends_reject_for_the_application_and_beyond_backlog() {
    let (mut connection, mut asked, request) = passive_with_request();
    connection.link_up(OTHER, address(), INSTANCE, AddressProof::Credentials, &mut asked);
    receive_handshake(&mut connection, OTHER, HandshakeStep::Request, b"", &mut asked);
    assert!(asked.events.is_empty());
    assert_eq!(
        take_sent_handshakes(&mut connection, &mut asked),
        (vec![(OTHER, HandshakeStep::Reject)], vec![OTHER])
    );
    connection.reject(request, b"no").unwrap();
    assert_eq!(
        take_sent_handshakes(&mut connection, &mut asked),
        (vec![(ASKED, HandshakeStep::Reject)], vec![ASKED])
    );
}

#[test]
fn request_of_lost_requester_is_withdrawn_unless_being_accepted() {
    for is_being_accepted in [false, true] {
        let (mut connection, mut asked, request) = passive_with_request();
        if is_being_accepted {
            connection.mark_request_being_accepted(request);
        }
        assert!(connection.end_if_handshake_link(ASKED, &LinkError::Closed, &mut asked));
        let withdrawn = [ConnectionReport::Withdrawn(request)];
        assert_eq!(asked.events, if is_being_accepted { &[][..] } else { &withdrawn });
    }
}

#[test]
fn rdm_endpoint_queues_one_reject_at_a_time() {
    let (mut connection, mut asked) =
        (Connection::new(EndpointRole::Unconnected), EffectsRecorder::default());
    let request = make_handshake(HandshakeStep::Request, b"");
    assert_eq!(
        connection.handle_step_on_message_link(ASKED, request, false, &mut asked),
        Ok(HandshakeResult::Nothing)
    );
    assert_eq!(asked.queued, [Header::Connection(make_handshake(HandshakeStep::Reject, b""))]);
    assert!(connection.handle_step_on_message_link(ASKED, request, true, &mut asked).is_err());
    assert!(connection.peer().is_none() && !connection.is_connection_oriented());
}

#[test]
fn shutdown_is_reported_when_the_link_ends() {
    let (mut connection, mut asked) = asking_requester();
    assert!(connection.connection_to_shut_down().is_err(), "there is none yet");
    connection.link_up(OTHER, address(), INSTANCE, AddressProof::Credentials, &mut asked);
    receive_handshake(&mut connection, OTHER, HandshakeStep::Accept, b"", &mut asked);
    let established = connection.connection_to_shut_down().unwrap().unwrap();
    assert!(connection.end_connection_if_on_link(OTHER, &OperationError::Cancelled));
    connection.queue_shutdown(
        established,
        (address(), INSTANCE),
        Some((*b"rest").into()),
        vec![Header::Fenced],
    );
    let mut sent = Vec::new();
    let send = |_, header: Option<&Header>, data: &[u8]| {
        sent.push((header.copied(), data.to_vec()));
        Sent::Whole
    };
    connection.transmit_and_take_links_to_close(send, &mut asked);
    let shutdown = Header::Connection(make_handshake(HandshakeStep::Shutdown, b""));
    assert_eq!(sent, [(None, b"rest".to_vec()), (Some(Header::Fenced), vec![]), (Some(shutdown), vec![])]);
    asked.events.clear();
    connection.frame_arrived(OTHER, &Header::Fenced, b"", &mut asked);
    assert!(asked.events.is_empty() && asked.dismissed.is_empty(), "the peer may not have heard it");
    connection.end_if_handshake_link(OTHER, &LinkError::Closed, &mut asked);
    assert_eq!(asked.events, [ConnectionReport::Shutdown(ConnectionEnd::Closed)]);
    assert!(matches!(connection.connection_to_shut_down(), Ok(None)));
}
