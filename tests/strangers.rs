//! Tests what strangers cost an endpoint over TCP. An endpoint, also a passive one, limits how many links
//! strangers open. Each link takes little memory. An endpoint never mistakes a new stranger for a peer that
//! it has forgotten.
//!
//! The test measures the memory of the whole process, so its binary has no other test.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};

use homespun::info::EndpointType;
use homespun::params::Params;
use homespun::{
    BindFlags, BytesMut, Caps, ConnectionEvent, CqAttr, EqAttr, EventQueue, Fabric, FabricAddress, Hints,
    OpenEndpoint,
};
use homespun_engine::limits::{self, MESSAGE_COST_BYTES};
use homespun_engine::wire::frame::{HEADER_MAX_BYTES, emit};
use homespun_engine::wire::hello::Hello;
use homespun_engine::wire::{Header, Message};

use homespun_suite::Deadline;
use homespun_suite::hostile_peer::{HostileAddress, HostilePeer};
use homespun_suite::process_resources::{MemoryUsage, count_descriptors};

/// How many strangers hold a link while memory is measured.
const STRANGERS: usize = 200;

/// After this many strangers, an endpoint has forgotten the first of them, and has reused its peer id.
const FORGETTING_STRANGERS: u16 = 3 * limits::PEER_SWEEP_MIN_PEERS as u16;

/// The most memory of a link to a silent peer. The second constant is the most memory that an endpoint keeps
/// for a peer that has left.
const LINK_MAX_BYTES: u64 = 4 * 1024;
const FORMER_PEER_MAX_BYTES: u64 = 512;

/// How many links offer messages that no receive matches.
const OFFERING_LINKS: u64 = 8;

/// How many percent of the offers' memory may remain in tables after the links have ended. When as many
/// links have come and gone again, [`GROWN_MAX_BYTES`] more may remain.
const LEFT_MAX_PERCENT: u64 = 15;
const GROWN_MAX_BYTES: u64 = 64 * 1024;

fn tcp_fabric(accepted_links: usize) -> Fabric {
    Fabric::with_params(Params { tcp_accepted_links: accepted_links, ..Params::default() })
}

/// Opens an endpoint over TCP. Returns its address, too.
fn open_receiver(fabric: &Fabric) -> (OpenEndpoint, SocketAddr) {
    let hints = Hints::new().domain("tcp").node("127.0.0.1").source().caps(Caps::MSG | Caps::SOURCE);
    let receiver = fabric.open_endpoint(&hints).expect("an endpoint");
    let address = receiver.endpoint.name().expect("an endpoint in service").socket_addr();
    (receiver, address)
}

/// Connects and says hello, as the endpoint at this port.
fn connect_with_hello(address: SocketAddr, port: u16) -> TcpStream {
    let mut stream = TcpStream::connect(address).expect("a listener");
    let claimed = SocketAddr::new(stream.local_addr().expect("it is connected").ip(), port);
    // A listener that has refused the connection has closed it.
    let _refused = stream.write_all(&Hello { address: claimed.into(), instance: 7 }.to_bytes());
    stream
}

/// What the endpoint has done about a connection.
#[derive(Debug, PartialEq, Eq)]
enum Answer {
    None,
    Hello,
    Refusal,
}

/// Reads without waiting.
fn poll_answer(stream: &mut TcpStream) -> Answer {
    stream.set_nonblocking(true).expect("a socket");
    match stream.read(&mut [0; 256]) {
        Ok(0) => Answer::Refusal,
        Ok(_) => Answer::Hello,
        Err(error) if error.kind() == ErrorKind::WouldBlock => Answer::None,
        Err(_) => Answer::Refusal,
    }
}

fn await_answer(stream: &mut TcpStream, progress: impl Fn()) -> Answer {
    let deadline = Deadline::new();
    loop {
        progress();
        match poll_answer(stream) {
            Answer::None => deadline.yield_or_panic("an answer to a hello"),
            answer => return answer,
        }
    }
}

/// Checks that the endpoint has two links at most: further ones are refused, or take the place of an older
/// one. Returns the strangers that have a link.
fn check_two_links_are_accepted(address: SocketAddr, progress: impl Fn()) -> Vec<TcpStream> {
    let mut linked = Vec::new();
    for port in 1001..1007 {
        let mut stranger = connect_with_hello(address, port);
        let answer = await_answer(&mut stranger, &progress);
        assert!(answer == Answer::Hello || linked.len() == 2, "refused although there is room");
        linked.retain_mut(|stranger| poll_answer(stranger) == Answer::None);
        if answer == Answer::Hello {
            linked.push(stranger);
        }
        assert!(linked.len() <= 2, "too many links");
    }
    assert_eq!(linked.len(), 2, "a link has ended for no other one");
    linked
}

fn passive_endpoint_refuses_links_beyond_the_parameter() {
    let fabric = tcp_fabric(2);
    let hints = Hints::new().domain("tcp").ep_type(EndpointType::Msg).node("127.0.0.1").source();
    let info = fabric.info(&hints).expect("tcp is offered");
    let eq: EventQueue = fabric.open_eq(&EqAttr::default()).expect("an event queue");
    let passive = fabric.passive_endpoint(&info).expect("a passive endpoint");
    passive.bind_eq(&eq, 1).expect("its first event queue");
    passive.listen().expect("it has all that it needs");
    let name = passive.name().expect("it listens");
    let _strangers = check_two_links_are_accepted(name.socket_addr(), || eq.progress());

    // A request arrives although strangers have both links, and one holds a connection that says nothing.
    let _silent = TcpStream::connect(name.socket_addr()).expect("a listener");
    let domain = fabric.domain(&info).expect("the domain was offered");
    let cq = domain.open_cq(&CqAttr::default()).expect("a queue");
    let connect = || {
        let client = domain.endpoint(&info).expect("an endpoint");
        client.bind_eq(&eq, 2).expect("its first event queue");
        client.bind_cq(&cq, BindFlags::TRANSMIT | BindFlags::RECV).expect("its first queue");
        client.connect(name, b"may I?").expect("a request");
        client
    };
    let mut client = connect();
    let deadline = Deadline::new();
    let request = loop {
        match eq.read() {
            Ok(Some(homespun::eq::Event::Connection(ConnectionEvent::Request(request)))) => break request,
            Ok(Some(other)) => panic!("{other:?}"),
            // The links of the strangers were too young.
            Err(_refused) => client = connect(),
            Ok(None) => deadline.yield_or_panic("a request"),
        }
    };
    drop(client);
    assert_eq!(request.data(), b"may I?");
}

/// Opens connections with `connect`. After each connection, makes progress until `is_accepted` returns true.
/// `is_accepted` gets the connection and the number of connections so far. Returns the connections, and the
/// heap that the connections take.
fn hold_connections(
    receiver: &OpenEndpoint,
    connect: impl Fn(u16) -> TcpStream,
    is_accepted: impl Fn(&mut TcpStream, usize) -> bool,
) -> (Vec<TcpStream>, u64) {
    let before = MemoryUsage::measure_now().heap_bytes;
    let mut streams = Vec::with_capacity(STRANGERS);
    let listed_bytes = (STRANGERS * size_of::<TcpStream>()) as u64;
    for port in 0..STRANGERS as u16 {
        let mut stream = connect(2000 + port);
        let deadline = Deadline::new();
        receiver.cq.progress();
        while !is_accepted(&mut stream, streams.len() + 1) {
            receiver.cq.progress();
            deadline.yield_or_panic("an accepted connection");
        }
        streams.push(stream);
    }
    (streams, MemoryUsage::measure_now().heap_bytes.saturating_sub(before + listed_bytes))
}

/// Ends connections, and waits until the endpoint has ended them, too.
fn end_connections(receiver: &OpenEndpoint, streams: Vec<TcpStream>) {
    let left = count_descriptors() - 2 * streams.len();
    drop(streams);
    let deadline = Deadline::new();
    while count_descriptors() > left {
        receiver.cq.progress();
        deadline.yield_or_panic("the end of the connections");
    }
}

fn links_of_strangers_take_little_memory() {
    // One host has only a part of the links.
    let (receiver, address) = open_receiver(&tcp_fabric(2 * STRANGERS));
    // The first link brings what the endpoint needs once.
    let mut first = connect_with_hello(address, 1000);
    assert_eq!(await_answer(&mut first, || receiver.cq.progress()), Answer::Hello);

    let silent = |_| TcpStream::connect(address).expect("a listener");
    // Each connection has a descriptor at either end. `open_before` may include one more: the endpoint may
    // have connected to the first peer's address, to check it.
    let open_before = count_descriptors();
    let has_descriptors =
        |_: &mut TcpStream, count: usize| count_descriptors() + 1 >= open_before + 2 * count;
    let (mut streams, taken_bytes) = hold_connections(&receiver, silent, has_descriptors);
    assert!(taken_bytes <= STRANGERS as u64 * LINK_MAX_BYTES, "{taken_bytes} bytes of silent connections");
    let are_silent = streams.iter_mut().all(|stream| poll_answer(stream) == Answer::None);
    assert!(are_silent, "a silent stranger was displaced");
    end_connections(&receiver, streams);

    let has_hello = |stream: &mut TcpStream, _: usize| poll_answer(stream) == Answer::Hello;
    let mut left_bytes = Vec::new();
    for round in 1..=3 {
        let connect = |port| connect_with_hello(address, round * 1000 + port);
        let (streams, taken_bytes) = hold_connections(&receiver, connect, has_hello);
        assert!(taken_bytes <= STRANGERS as u64 * LINK_MAX_BYTES, "{taken_bytes} bytes of links");
        end_connections(&receiver, streams);
        left_bytes.push(MemoryUsage::measure_now().heap_bytes);
    }
    // The first round leaves tables, and later rounds reuse them. A later round leaves only the names of its
    // peers.
    let grown_bytes = left_bytes[2].saturating_sub(left_bytes[0]);
    assert!(grown_bytes <= 2 * STRANGERS as u64 * FORMER_PEER_MAX_BYTES, "{grown_bytes}: {left_bytes:?}");
}

/// Has a stranger claim an endpoint at this port and send a message. Returns the source of the message.
fn receive_from_stranger(receiver: &OpenEndpoint, address: SocketAddr, port: u16) -> FabricAddress {
    let room = BytesMut::zeroed(8);
    receiver.endpoint.recv(room, FabricAddress::UNSPECIFIED, 1).expect("room for a receive");
    let mut stream = connect_with_hello(address, port);
    let mut frame = [0; HEADER_MAX_BYTES];
    let frame_bytes = emit(&Header::Message(Message::of_len(0)), &mut frame);
    stream.write_all(&frame[..frame_bytes]).expect("room for a message");
    let deadline = Deadline::new();
    let source = loop {
        if let Some((_, source)) = receiver.cq.read_from().expect("nothing fails") {
            break source;
        }
        deadline.yield_or_panic("the stranger's message");
    };
    assert_eq!(await_answer(&mut stream, || receiver.cq.progress()), Answer::Hello);
    source
}

fn stranger_with_the_id_of_a_forgotten_peer_is_not_taken_for_it() {
    let (receiver, address) = open_receiver(&tcp_fabric(16));
    let source_of = |port| receive_from_stranger(&receiver, address, port);
    let known_port = 1999;
    let known = SocketAddr::new(address.ip(), known_port);
    let known = receiver.av.insert_one(known.into()).expect("an address");
    assert_eq!(source_of(known_port), known);
    for port in 2000..2000 + FORGETTING_STRANGERS {
        assert_eq!(source_of(port), FabricAddress::UNSPECIFIED, "{port}");
    }
    assert_eq!(source_of(known_port), known);
}

/// Offers messages until the endpoint grants no more credit for many passes. No receive matches them.
/// Returns how many were offered.
fn offer_all(link: &mut HostilePeer, receiver: &OpenEndpoint, mut meanwhile: impl FnMut()) -> u64 {
    let (mut count, mut idle_passes) = (0, 0);
    while idle_passes < 1_000 {
        let sent = link.send_offers((0..u64::MAX / 2 - count).rev()) as u64;
        count += sent;
        idle_passes = if sent == 0 { idle_passes + 1 } else { 0 };
        receiver.cq.progress();
        meanwhile();
    }
    count
}

/// Waits until the heap of the process is this small, and returns its size.
fn await_heap_below(max_bytes: u64, receiver: &OpenEndpoint) -> u64 {
    let deadline = Deadline::new();
    loop {
        receiver.cq.progress();
        let heap_bytes = MemoryUsage::measure_now().heap_bytes;
        if heap_bytes <= max_bytes {
            return heap_bytes;
        }
        deadline.yield_or_panic_with(|| format!("{heap_bytes} bytes to fall below {max_bytes}"));
    }
}

/// Opens links, and makes as many offers on each as the endpoint takes. Returns the links, and the heap that
/// the offers take.
fn offer_on_links(receiver: &OpenEndpoint, address: &mut HostileAddress) -> (Vec<HostilePeer>, u64) {
    let to = receiver.endpoint.name().expect("an endpoint in service").socket_addr();
    let before = MemoryUsage::measure_now().heap_bytes;
    let mut offers: u64 = 0;
    let mut links = Vec::new();
    for instance in 1..=OFFERING_LINKS {
        let claimed = address.address().expect("it listens");
        let mut link = HostilePeer::claim(to, claimed, instance).expect("a listener");
        let deadline = Deadline::new();
        while !link.is_admitted() {
            assert!(link.read(), "the link has ended");
            address.confirm_claims();
            receiver.cq.progress();
            deadline.yield_or_panic("the link to come up");
        }
        offers += offer_all(&mut link, receiver, || address.confirm_claims());
        links.push(link);
    }
    assert!(offers > 1_000, "only {offers} offers were taken");
    let taken_bytes = MemoryUsage::measure_now().heap_bytes.saturating_sub(before);
    assert!(taken_bytes <= offers * MESSAGE_COST_BYTES, "{taken_bytes} bytes of {offers} offers");
    (links, taken_bytes)
}

fn offers_of_reset_and_of_replaced_links_leave_nothing() {
    let (receiver, _) = open_receiver(&Fabric::new());
    let mut address = HostileAddress::listen().expect("a free port");
    let before = MemoryUsage::measure_now().heap_bytes;
    // Each link replaces the one before, since it has another instance.
    let (mut links, taken_bytes) = offer_on_links(&receiver, &mut address);
    let last = links.pop().expect("there are some");
    let deadline = Deadline::new();
    while links.iter_mut().any(HostilePeer::read) {
        receiver.cq.progress();
        deadline.yield_or_panic("the end of the replaced links");
    }
    last.reset();
    let left = await_heap_below(before + taken_bytes * LEFT_MAX_PERCENT / 100, &receiver);

    let (links, _) = offer_on_links(&receiver, &mut address);
    links.into_iter().for_each(HostilePeer::reset);
    await_heap_below(left + GROWN_MAX_BYTES, &receiver);
}

#[test]
fn strangers_get_a_limited_number_of_small_links() {
    passive_endpoint_refuses_links_beyond_the_parameter();
    links_of_strangers_take_little_memory();
    stranger_with_the_id_of_a_forgotten_peer_is_not_taken_for_it();
    offers_of_reset_and_of_replaced_links_leave_nothing();
}
