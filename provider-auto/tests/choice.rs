//! Which transport carries a link.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU16, Ordering};

use homespun_auto::{AutoProvider, AutoTransport};
use homespun_conformance::transport::{
    BUDGET_FRAMES, Deadline, TestEndpoint, drive_until, pseudo_random_payload,
};
use homespun_engine::address::{Address, AddressFormat};
use homespun_engine::errno::Errno;
use homespun_engine::transport::{Armed, Close, LinkError, LinkId, Provider, Transport};
use homespun_engine::wire::hello::{Hello, VERSION};
use homespun_shm::ShmProvider;
use homespun_tcp::TcpProvider;
use rustix::fd::OwnedFd;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with,
};

type Endpoint = TestEndpoint<AutoTransport>;

fn auto() -> AutoProvider {
    AutoProvider::new(ShmProvider::new(), TcpProvider::new())
}

/// A loopback address that no other test uses, with port 0.
fn unused_ip() -> Address {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let [high, low] = NEXT.fetch_add(1, Ordering::Relaxed).to_be_bytes();
    let [.., process] = std::process::id().to_be_bytes();
    SocketAddr::from(([127, 101 + high, process, 1 + low], 0)).into()
}

/// A loopback address that no other test uses, with a port that is free.
fn unused_address() -> Address {
    let held = TcpListener::bind(unused_ip().socket_addr()).expect("a free port");
    held.local_addr().expect("it is bound").into()
}

/// Whether a link shares memory: payload is pulled only over such a link.
fn is_near(endpoint: &Endpoint, link: LinkId) -> bool {
    endpoint.transport.caps(link).pull_min_bytes != usize::MAX
}

/// Drives two endpoints until a condition holds.
#[track_caller]
fn drive_both<A: Transport, B: Transport>(
    a: &mut TestEndpoint<A>,
    b: &mut TestEndpoint<B>,
    what: &str,
    done: impl Fn(&TestEndpoint<A>, &TestEndpoint<B>) -> bool,
) {
    let deadline = Deadline::new();
    while !done(a, b) {
        a.transmit();
        b.transmit();
        a.receive(BUDGET_FRAMES);
        b.receive(BUDGET_FRAMES);
        deadline.yield_or_panic(what);
    }
}

/// Sends messages of several sizes both ways over a link that `a` has connected and `b` has accepted. Checks
/// that each side knows the address and instance of the other.
#[track_caller]
fn exchange_messages<B: Transport>(
    a: &mut Endpoint,
    b: &mut TestEndpoint<B>,
    link: LinkId,
    instances: [u64; 2],
) {
    const SIZES_BYTES: [usize; 4] = [0, 100, 5000, 300_000];
    let payloads: Vec<Vec<u8>> = SIZES_BYTES.iter().map(|&bytes| pseudo_random_payload(bytes, 3)).collect();
    // An earlier link may have had this number.
    let earlier = a.recorder.frame_count(link);
    for payload in &payloads {
        a.post(link, payload.clone());
    }
    let of = |b: &TestEndpoint<B>, address| {
        let ups = b.recorder.up_events();
        ups.iter().rev().find(|(_, peer, _)| *peer == address).map(|&(link, _, instance)| (link, instance))
    };
    let address = a.address();
    drive_both(a, b, "the messages", |_, b| {
        of(b, address).is_some_and(|(at_b, _)| b.recorder.frame_count(at_b) == payloads.len())
    });
    let (at_b, instance) = of(b, address).expect("it is up");
    assert_eq!(instance, instances[0]);
    assert_eq!(b.recorder.payloads_of(at_b), payloads);
    for payload in &payloads {
        b.post(at_b, payload.clone());
    }
    drive_both(a, b, "the answers", |a, _| a.recorder.frame_count(link) == earlier + payloads.len());
    assert_eq!(a.recorder.payloads_of(link)[earlier..], payloads);
    assert!(a.recorder.up_events().contains(&(link, b.address(), instances[1])));
}

#[test]
fn near_peer_shares_memory_and_peer_of_another_neighbourhood_does_not() {
    let [mut a, mut b] = [11, 22].map(|instance| TestEndpoint::open_at(&auto(), unused_ip(), instance));
    let elsewhere = auto().with_neighbourhood("elsewhere");
    let mut c = TestEndpoint::open_at(&elsewhere, unused_ip(), 33);
    let [to_b, to_c] = [a.connect(b.address()), a.connect(c.address())];
    assert_eq!([to_b, to_c].map(|link| is_near(&a, link)), [true, false]);
    exchange_messages(&mut a, &mut b, to_b, [11, 22]);
    exchange_messages(&mut a, &mut c, to_c, [11, 33]);
}

#[test]
fn endpoint_over_tcp_alone_is_a_far_peer() {
    let mut a = TestEndpoint::open_at(&auto(), unused_ip(), 11);
    let mut b = TestEndpoint::open_at(&TcpProvider::new(), unused_ip(), 22);
    let link = a.connect(b.address());
    assert!(!is_near(&a, link));
    exchange_messages(&mut a, &mut b, link, [11, 22]);
    // The endpoint over TCP connects to the `auto` endpoint, too.
    let link = b.connect(a.address());
    b.post(link, pseudo_random_payload(100, 1));
    drive_both(&mut a, &mut b, "its message", |a, b| {
        let ups = a.recorder.up_events();
        ups.iter().any(|&(at_a, peer, _)| peer == b.address() && a.recorder.frame_count(at_a) == 1)
    });
}

#[test]
fn stranger_over_tcp_cannot_claim_the_address_of_a_near_peer() {
    let [mut a, mut b] = [11, 22].map(|instance| TestEndpoint::open_at(&auto(), unused_ip(), instance));
    let link = a.connect(b.address());
    exchange_messages(&mut a, &mut b, link, [11, 22]);
    let known_at_b = b.recorder.up_events();
    let mut stranger = TcpStream::connect(b.address().socket_addr()).expect("it listens");
    stranger.set_nonblocking(true).expect("a socket");
    stranger.write_all(&Hello { address: a.address(), instance: 33 }.to_bytes()).expect("room");
    // `b` has a link over shared memory to the claimed address. So `b` asks the endpoint there, which is
    // `a`, and `a` denies the claim.
    let deadline = Deadline::new();
    let ended = loop {
        a.transmit();
        b.transmit();
        a.receive(BUDGET_FRAMES);
        b.receive(BUDGET_FRAMES);
        match stranger.read(&mut [0; 256]) {
            Ok(0) => break true,
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => deadline.yield_or_panic("the refusal"),
            Err(error) => break error.kind() == ErrorKind::ConnectionReset,
        }
    };
    assert!(ended && b.recorder.up_events() == known_at_b, "{:?}", b.recorder.up_events());
    exchange_messages(&mut a, &mut b, link, [11, 22]);
}

#[test]
fn shm_endpoint_at_the_same_address_is_no_near_peer() {
    let address = unused_address();
    let mut b = TestEndpoint::open_at(&TcpProvider::new(), address, 22);
    let stranger = TestEndpoint::open_at(&ShmProvider::new(), address, 33);
    let mut a = TestEndpoint::open_at(&auto(), unused_ip(), 11);
    let link = a.connect(address);
    assert!(!is_near(&a, link));
    exchange_messages(&mut a, &mut b, link, [11, 22]);
    assert_eq!(stranger.recorder.log(), []);
    // Nor does an endpoint of the domain `shm` find an `auto` endpoint.
    let address = a.address();
    let mut stranger = TestEndpoint::open_at(&ShmProvider::new(), unused_ip(), 33);
    let link = stranger.connect(address);
    drive_both(&mut a, &mut stranger, "the refusal", |_, b| b.recorder.down_error(link).is_some());
}

#[test]
fn endpoints_of_one_port_and_several_addresses_are_told_apart() {
    let address = unused_address();
    let other = Address::from(SocketAddr::new(unused_ip().ip(), address.port()));
    let mut a = TestEndpoint::open_at(&auto(), unused_ip(), 11);
    let mut both = [(address, 22), (other, 33)]
        .map(|(bind, instance)| (TestEndpoint::open_at(&auto(), bind, instance), instance));
    for (b, instance) in &mut both {
        let link = a.connect(b.address());
        assert!(is_near(&a, link));
        exchange_messages(&mut a, b, link, [11, *instance]);
    }
}

#[test]
fn endpoint_bound_to_a_wildcard_is_near_at_every_address_of_the_host() {
    for format in [AddressFormat::SockaddrIn, AddressFormat::SockaddrIn6] {
        let Ok(transport) = auto().open(format.wildcard(), 33) else {
            assert_eq!(format, AddressFormat::SockaddrIn6, "the host has IPv4");
            continue;
        };
        drop(transport);
        let mut b = TestEndpoint::open_at(&auto(), format.wildcard(), 22);
        let mut a = TestEndpoint::open_at(&auto(), format.wildcard(), 11);
        let loopback: SocketAddr = match format {
            AddressFormat::SockaddrIn => "127.9.9.9:0".parse().unwrap(),
            AddressFormat::SockaddrIn6 => "[::1]:0".parse().unwrap(),
        };
        let elsewhere = Address::from(loopback).with_port(b.address().port());
        for to in [b.address(), elsewhere] {
            let link = a.connect(to);
            assert!(is_near(&a, link), "{to}");
            drive_both(&mut a, &mut b, "the link", |a, _| a.recorder.up_events().contains(&(link, to, 22)));
        }
    }
}

#[test]
fn address_of_another_host_is_far() {
    let mut a = TestEndpoint::open_at(&auto(), AddressFormat::SockaddrIn.wildcard(), 11);
    // TEST-NET-3 is for documentation; no host has it.
    let link = a.connect("203.0.113.77:7".parse().unwrap());
    assert!(!is_near(&a, link));
    a.close(link, Close::Abort);
}

#[test]
fn port_in_use_by_either_transport_is_refused() {
    let address = unused_address();
    let listener = TcpListener::bind(address.socket_addr()).unwrap();
    assert_eq!(auto().open(address, 1).err(), Some(Errno::EADDRINUSE));
    drop(listener);
    // The failure has left no name behind.
    drop(auto().open(address, 2).expect("the address is free"));

    let listener = SilentListener::bind(address, 0);
    assert_eq!(auto().open(address, 3).err(), Some(Errno::EADDRINUSE));
    drop(listener);
    let endpoint = auto().open(address, 4).expect("the address is free");
    assert_eq!(auto().open(address, 5).err(), Some(Errno::EADDRINUSE));
    assert_eq!(TcpProvider::new().open(address, 6).err(), Some(Errno::EADDRINUSE));
    drop(endpoint);
}

/// A socket that listens at the name of an `auto` endpoint and never answers.
struct SilentListener {
    _listener: OwnedFd,
    name: SocketAddrUnix,
}

fn open_seqpacket_socket() -> OwnedFd {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).expect("a socket")
}

impl SilentListener {
    /// The kernel lets `backlog` connections and one more wait.
    fn bind(address: Address, backlog: i32) -> SilentListener {
        let name = format!("homespun/auto/{VERSION}//{address}");
        let name = SocketAddrUnix::new_abstract_name(name.as_bytes()).expect("short enough");
        let listener = open_seqpacket_socket();
        bind(&listener, &name).expect("the name is free");
        listen(&listener, backlog).expect("the socket is bound");
        SilentListener { _listener: listener, name }
    }

    /// Connects, and so takes a place in the backlog.
    fn connect(&self) -> OwnedFd {
        let socket = open_seqpacket_socket();
        connect(&socket, &self.name).expect("room in the backlog");
        socket
    }
}

/// Opens an `auto` endpoint whose links wait: the backlog at the name of this address is full.
fn open_with_waiting_links<const N: usize>(address: Address) -> (Endpoint, [LinkId; N], SilentListener) {
    let listener = SilentListener::bind(address, 0);
    let _first = listener.connect();
    let mut a = TestEndpoint::open_at(&auto(), unused_ip(), 11);
    let links = [(); N].map(|()| a.connect(address));
    for link in links {
        a.post(link, pseudo_random_payload(100, 7));
        for _ in 0..100 {
            a.transmit();
            assert_eq!(a.receive(BUDGET_FRAMES), 0);
        }
        assert_eq!(a.queued_frame_count(link), 1, "a link that waits has taken a frame");
    }
    let armed = a.transport.arm();
    assert!(matches!(armed, Armed::Asleep { look_again_after: Some(_) }), "{armed:?}");
    (a, links, listener)
}

#[test]
fn waiting_link_moves_to_tcp_when_its_name_is_given_up() {
    let address = unused_address();
    let mut b = TestEndpoint::open_at(&TcpProvider::new(), address, 22);
    let (mut a, [first, second, third], listener) = open_with_waiting_links(address);
    a.close(third, Close::Drain);
    drop(listener);
    for link in [first, second] {
        drive_both(&mut a, &mut b, "the link", |a, _| a.recorder.up_events().contains(&(link, address, 22)));
        assert!(!is_near(&a, link));
    }
    let frames = |b: &TestEndpoint<_>| -> usize {
        b.recorder.up_events().iter().map(|(link, ..)| b.recorder.frame_count(*link)).sum()
    };
    drive_both(&mut a, &mut b, "the frames that waited", |_, b| frames(b) == 2);
    // Exchange large frames, of which a link takes only a part at a time.
    a.post(first, pseudo_random_payload(3 << 20, 8));
    let links = b.recorder.up_events();
    for (link, ..) in &links {
        b.post(*link, pseudo_random_payload(1 << 20, 9));
    }
    drive_both(&mut a, &mut b, "large frames", |a, b| {
        frames(b) == 3 && [first, second].iter().all(|link| a.recorder.frame_count(*link) == 1)
    });
    for link in [first, second] {
        assert_eq!(a.recorder.payloads_of(link), [pseudo_random_payload(1 << 20, 9)]);
    }
    // This side closes one link, and the peer ends the other link. Then both numbers are free.
    a.close(first, Close::Drain);
    drive_both(&mut a, &mut b, "the end at the peer", |_, b| {
        links.iter().filter(|(link, ..)| b.recorder.down_error(*link).is_some()).count() == 1
    });
    drop(b);
    let deadline = Deadline::new();
    while a.recorder.down_error(second).is_none() {
        a.receive(BUDGET_FRAMES);
        deadline.yield_or_panic("the end of the other link");
    }
    let c = TestEndpoint::open_at(&auto(), address, 33);
    let again = [a.connect(address), a.connect(address)];
    assert!(again.iter().all(|link| [first, second, third].contains(link)), "{again:?}");
    assert!(again.iter().all(|link| is_near(&a, *link)));
    drive_until(&mut [a, c], "new links of these numbers", |[a, _]| {
        again.iter().all(|link| a.recorder.up_events().contains(&(*link, address, 33)))
    });
}

#[test]
fn waiting_link_without_any_endpoint_ends() {
    let address = unused_address();
    let (mut a, [link], listener) = open_with_waiting_links(address);
    drop(listener);
    let deadline = Deadline::new();
    while a.recorder.down_error(link).is_none() {
        // Receive only when the transport would not let its caller sleep.
        if a.transport.arm() == Armed::Ready {
            a.receive(BUDGET_FRAMES);
        }
        deadline.yield_or_panic("the end of the link");
    }
    assert_eq!(a.recorder.down_error(link).map(LinkError::errno), Some(Errno::ECONNREFUSED));
}
