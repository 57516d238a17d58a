//! The transport closes every descriptor that it has opened. The test counts the descriptors of the process,
//! so it is the only test in its binary.

mod side;

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use homespun_engine::errno::Errno;
use homespun_engine::transport::{Close, Denial, LinkError, LinkId, Provider, Transport};
use homespun_engine::wire::hello::Hello;
use homespun_tcp::TcpProvider;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use side::{Events, Side, drive_until};

const LINKS: usize = 20;

fn count_open_fds() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Connections without a hello, and connects to a vacant address.
fn failed_links_close_their_descriptors() {
    let (mut client, mut server) = (Side::open(&TcpProvider::new()), Side::open(&TcpProvider::new()));
    let begin = count_open_fds();
    let mut stranger = TcpStream::connect(server.transport.address().socket_addr()).unwrap();
    stranger.write_all(b"hello?").unwrap();
    let vacant = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    client.transport.connect(vacant.into());
    drive_until("both to end", &mut [&mut client, &mut server], |sides| {
        sides[0].events.down.len() == 1 && count_open_fds() == begin + 1
    });
    drop(stranger);
    assert_eq!(count_open_fds(), begin);
}

fn descriptor_exhaustion_delays_links_and_loses_none() {
    // Without descriptors no claim is checked, so the links would displace each other.
    let provider = TcpProvider::new().with_unproven_grace(Duration::MAX);
    let (mut client, mut server) = (Side::open(&provider), Side::open(&provider));
    let address = server.transport.address();
    let before = getrlimit(Resource::Nofile);
    let room = (count_open_fds() + LINKS + 10) as u64;
    setrlimit(Resource::Nofile, Rlimit { current: Some(room), maximum: before.maximum }).unwrap();
    let mut links: Vec<LinkId> = (0..LINKS).map(|_| client.transport.connect(address)).collect();
    // The application takes all the descriptors that are left.
    let mut files: Vec<File> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
    let is_exhausted = TcpProvider::new().open(address.with_port(0), 1).err() == Some(Errno::EMFILE);
    assert!(is_exhausted);

    // One more connect fails at once.
    let extra = client.transport.connect(address);
    drive_until("its failure", &mut [&mut client, &mut server], |sides| !sides[0].events.down.is_empty());
    assert_eq!(client.events.down, [(extra, LinkError::System(Errno::EMFILE))]);
    assert!(server.events.up.is_empty());

    // The application gives a few back.
    files.truncate(files.len() - 5);
    drive_until("a link", &mut [&mut client, &mut server], |sides| !sides[1].events.up.is_empty());
    let accepted = server.events.up.len();
    assert!((1..LINKS).contains(&accepted), "{accepted} links were accepted");

    // When links end, the listener accepts the waiting connections, although no kernel event announces them.
    let mut ended = 0;
    drive_until("every link to have been up", &mut [&mut client, &mut server], |sides| {
        if ended < LINKS - 1 && sides[0].events.up.len() > ended {
            let link = sides[0].events.up[ended];
            links.retain(|other| *other != link);
            sides[0].transport.close(link, Close::Drain);
            ended += 1;
        }
        sides[0].events.up.len() == LINKS
    });
    assert_eq!(client.events.down.len(), 1, "no other link failed");

    // Once descriptors are available again, the listener accepts new connections.
    setrlimit(Resource::Nofile, before).unwrap();
    let up = server.events.up.len();
    client.transport.connect(address);
    drive_until("a new link", &mut [&mut client, &mut server], |sides| sides[1].events.up.len() > up);
}

/// Takes all descriptors that are left, and waits until a link is up that needs one. Then gives them back.
fn await_link_without_spare_descriptors(link: LinkId, client: &mut Side, server: &mut Side) {
    let (before, files) = leave_free_fds(0);
    drive_until("a peer in its place", &mut [client, server], |sides| sides[0].events.up.contains(&link));
    drop(files);
    setrlimit(Resource::Nofile, before).unwrap();
}

fn exhausted_accept_displaces_a_silent_connection() {
    let (mut client, mut server) = (Side::open(&TcpProvider::new()), Side::open(&TcpProvider::new()));
    let address = server.transport.address();
    let begin = count_open_fds();
    let mut stranger = TcpStream::connect(address.socket_addr()).unwrap();
    drive_until("the stranger to be accepted", &mut [&mut server], |_| count_open_fds() == begin + 2);
    let link = client.transport.connect(address);
    await_link_without_spare_descriptors(link, &mut client, &mut server);
    stranger.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    assert_eq!(stranger.read(&mut [0; 1]).unwrap(), 0, "the stranger was not dropped");
}

fn exhausted_accept_displaces_an_unproven_link() {
    let provider = TcpProvider::new().with_unproven_grace(Duration::ZERO);
    let (mut client, mut server) = (Side::open(&provider), Side::open(&provider));
    let address = server.transport.address();
    let vacant = TcpListener::bind("127.77.0.3:0").unwrap().local_addr().unwrap();
    let mut stranger = TcpStream::connect(address.socket_addr()).unwrap();
    stranger.write_all(&Hello { address: vacant.into(), instance: 7 }.to_bytes()).unwrap();
    drive_until("the end of the check", &mut [&mut server], |sides| {
        sides[0].events.up.len() == 1 && !sides[0].transport.has_timed_work()
    });
    let link = client.transport.connect(address);
    await_link_without_spare_descriptors(link, &mut client, &mut server);
    let down = &server.events.down[..];
    assert!(matches!(down, [(_, LinkError::System(Errno::ENOBUFS))]), "{down:?}");
}

/// Lowers the limit, and takes all descriptors but so many. Returns the limit before, and what takes them.
fn leave_free_fds(free: usize) -> (Rlimit, Vec<File>) {
    let before = getrlimit(Resource::Nofile);
    let room = (count_open_fds() + 10) as u64;
    setrlimit(Resource::Nofile, Rlimit { current: Some(room), maximum: before.maximum }).unwrap();
    let mut files: Vec<File> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
    files.truncate(files.len() - free);
    (before, files)
}

/// Connects without a spare descriptor, and then waits for the end of the link. The acceptor holds the link
/// if its address is reserved.
fn connect_in_lasting_shortage(client: &mut Side, server: &mut Side, is_held: bool) -> LinkError {
    if is_held {
        server.transport.reserve_address(client.transport.address());
    }
    let (before, files) = leave_free_fds(1 + usize::from(is_held));
    let link = client.transport.connect(server.transport.address());
    drive_until("the refusal", &mut [client, server], |sides| !sides[0].events.down.is_empty());
    drop(files);
    setrlimit(Resource::Nofile, before).unwrap();
    assert!(server.events.up.is_empty() && client.events.up.is_empty());
    let (down, error) = client.events.down.remove(0);
    assert_eq!(down, link);
    server.transport.release_address(client.transport.address());
    error
}

fn lasting_exhaustion_refuses_links() {
    for is_held in [false, true] {
        let (mut client, mut server) = (Side::open(&TcpProvider::new()), Side::open(&TcpProvider::new()));
        let error = connect_in_lasting_shortage(&mut client, &mut server, is_held);
        assert_eq!(error, LinkError::Denied(Denial::NoDescriptors), "held: {is_held}");
        client.transport.connect(server.transport.address());
        drive_until("a link", &mut [&mut client, &mut server], |sides| !sides[1].events.up.is_empty());
    }
}

/// A link of an endpoint to itself needs descriptors at both ends: while it waits, no peer closes any.
fn link_to_itself_without_descriptors_fails_at_once() {
    let mut side = Side::open(&TcpProvider::new());
    for free in 1..4 {
        let (before, files) = leave_free_fds(free);
        let link = side.transport.connect(side.transport.address());
        drive_until("its failure", &mut [&mut side], |sides| !sides[0].events.down.is_empty());
        drop(files);
        setrlimit(Resource::Nofile, before).unwrap();
        assert_eq!(side.events.down, [(link, LinkError::System(Errno::EMFILE))]);
        side.events = Events::default();
    }
    let link = side.transport.connect(side.transport.address());
    drive_until("both ends", &mut [&mut side], |sides| sides[0].events.up.len() == 2);
    assert!(side.events.up.contains(&link));
}

#[test]
fn descriptors_are_closed_and_exhaustion_delays_links() {
    let begin = count_open_fds();
    failed_links_close_their_descriptors();
    descriptor_exhaustion_delays_links_and_loses_none();
    exhausted_accept_displaces_a_silent_connection();
    exhausted_accept_displaces_an_unproven_link();
    lasting_exhaustion_refuses_links();
    link_to_itself_without_descriptors_fails_at_once();
    assert_eq!(count_open_fds(), begin, "something outlived its transport");
}
