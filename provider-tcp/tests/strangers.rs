//! Strangers that take connections neither keep a peer out nor take the last descriptors of the process. The
//! test limits and counts the descriptors of its process, so it is the only test in its binary. Strangers
//! and peers run in other processes.

mod side;

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::{env, fs};

use homespun_engine::transport::{Close, LinkId, Transport};
use homespun_engine::wire::hello::Hello;
use homespun_engine::wire::{Header, Message};
use homespun_tcp::TcpProvider;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use socket2::{Domain, Socket, Type};

use side::{Side, drive_until};

/// How many descriptors this process may have.
const LIMIT_DESCRIPTORS: usize = 120;

/// How many of the [`LIMIT_DESCRIPTORS`] are in the reserve. Strangers may take at most one more than all
/// others.
const RESERVE_DESCRIPTORS: usize = 14;

/// How many connections without a hello the endpoint may have.
const SILENT_MAX: usize = LIMIT_DESCRIPTORS / 4;

/// How many links of one host the endpoint accepts.
const HOST_MAX_LINKS: usize = ((LIMIT_DESCRIPTORS - RESERVE_DESCRIPTORS) * 75).div_ceil(100);

/// How many connections the strangers of each host make.
const STRANGERS: usize = 400;

/// The hosts from which strangers connect. The peers connect from another one.
const HOSTS: [&str; 2] = ["127.0.0.2", "127.0.0.3"];

/// How many peers connect beside the strangers, and how many frames each peer exchanges.
const PEERS: usize = 3;
const FRAMES: usize = 10;

/// The arguments of [`process_entry`] in the environment: its role, the host from which strangers connect,
/// and the address of the endpoint.
const ROLE: &str = "HOMESPUN_STRANGERS_ROLE";
const HOST: &str = "HOMESPUN_STRANGERS_HOST";
const ADDRESS: &str = "HOMESPUN_STRANGERS_ADDRESS";

impl Side {
    fn drive_until(&mut self, what: &str, mut done: impl FnMut(&mut Side) -> bool) {
        drive_until(what, &mut [self], |sides| done(sides[0]));
    }

    fn send(&mut self, link: LinkId) {
        let header = Header::Message(Message { tag: Some(1), ..Message::of_len(3) });
        self.drive_until("room for a frame", |side| {
            side.transport.send_inline(link, &header, b"abc").is_ok()
        });
    }
}

/// A process that connects to the endpoint. Dropping this value kills it.
struct Visitor {
    process: Child,
    output: BufReader<ChildStdout>,
}

impl Visitor {
    fn spawn(role: &str, address: SocketAddr) -> Visitor {
        Visitor::spawn_on(HOSTS[0], role, address)
    }

    fn spawn_on(host: &str, role: &str, address: SocketAddr) -> Visitor {
        let mut process = Command::new(env::current_exe().unwrap())
            .args(["--exact", "process_entry", "--ignored", "--nocapture"])
            .env(ROLE, role)
            .env(HOST, host)
            .env(ADDRESS, address.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(process.stdout.take().unwrap());
        Visitor { process, output }
    }

    /// Reads the output of the process up to a line with this word. Returns the rest of that line.
    fn read_line_with(&mut self, word: &str) -> String {
        let mut lines = (&mut self.output).lines().map_while(Result::ok);
        let found = lines.find_map(|line| line.split_once(word).map(|(_, rest)| rest.trim().to_owned()));
        found.expect("a visitor has failed")
    }

    /// Waits until the process has made all its connections. The endpoint need not make passes for that.
    fn wait_until_connected(&mut self) {
        self.read_line_with("connected");
    }

    /// How many of its connections the endpoint has ended.
    fn count_ended(&mut self) -> usize {
        self.process.stdin.as_mut().unwrap().write_all(b"count\n").unwrap();
        self.read_line_with("ended").parse().unwrap()
    }

    fn has_succeeded(&mut self) -> bool {
        let status = self.process.try_wait().unwrap();
        assert!(status.is_none_or(|status| status.success()), "a peer has failed");
        status.is_some()
    }
}

impl Drop for Visitor {
    fn drop(&mut self) {
        let _already_ended = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
#[ignore = "runs in a process of its own"]
#[expect(clippy::print_stdout, reason = "its parent reads it")]
fn process_entry() {
    let Ok(role) = env::var(ROLE) else { return };
    let address: SocketAddr = env::var(ADDRESS).unwrap().parse().unwrap();
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).unwrap();
    match role.as_str() {
        "peer" => return exchange_frames_as_peer(address, 1),
        "peer with two links" => return exchange_frames_as_peer(address, 2),
        _ => {}
    }
    let host: IpAddr = env::var(HOST).unwrap().parse().unwrap();
    let mut kept = Vec::new();
    for _ in 0..STRANGERS {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.bind(&SocketAddr::new(host, 0).into()).unwrap();
        if socket.connect(&address.into()).is_err() {
            continue;
        }
        let mut stream = TcpStream::from(socket);
        let own = stream.local_addr().unwrap();
        if role == "speaking" {
            // The endpoint may have refused the connection by now.
            let _refused = stream.write_all(&Hello { address: own.into(), instance: 7 }.to_bytes());
        }
        kept.push(stream);
    }
    println!("connected");
    // Keep the connections until the test ends.
    for _count in std::io::stdin().lines() {
        println!("ended {}", kept.iter_mut().filter_map(|stream| has_ended(stream).then_some(())).count());
    }
}

/// Whether the endpoint has ended this connection.
fn has_ended(stream: &mut TcpStream) -> bool {
    stream.set_nonblocking(true).unwrap();
    match stream.read(&mut [0; 256]) {
        Ok(read_bytes) => read_bytes == 0,
        Err(error) => error.kind() != ErrorKind::WouldBlock,
    }
}

/// Makes links to the endpoint, and exchanges frames over the last of them. The claims of all but the first
/// are contested.
fn exchange_frames_as_peer(address: SocketAddr, link_count: usize) {
    let mut side = Side::open(&TcpProvider::new());
    let links: Vec<LinkId> = (0..link_count).map(|_| side.transport.connect(address.into())).collect();
    let link = *links.last().unwrap();
    for number in 0..FRAMES {
        side.send(link);
        side.drive_until("the echo", |side| {
            assert_eq!(side.events.down, [], "the peer was thrown out");
            side.events.frames.len() == number + 1
        });
    }
    side.transport.close(link, Close::Drain);
    side.drive_until("the close", |side| side.transport.draining_count() == 0);
}

/// The descriptors of this process, by number, except the one that lists them.
fn list_descriptors() -> Vec<(usize, String)> {
    let entries = fs::read_dir("/proc/self/fd").unwrap().map(|entry| entry.unwrap().path());
    let listed = entries.filter_map(|path| {
        let number = path.file_name()?.to_str()?.parse().ok()?;
        Some((number, fs::read_link(&path).ok()?.to_string_lossy().into_owned()))
    });
    listed.filter(|(_, target)| !target.ends_with("/fd")).collect()
}

fn count_sockets() -> usize {
    list_descriptors().iter().filter(|(_, target)| target.starts_with("socket:")).count()
}

/// How many sockets are in the reserve.
fn count_sockets_in_reserve() -> usize {
    let reserve = LIMIT_DESCRIPTORS - RESERVE_DESCRIPTORS..LIMIT_DESCRIPTORS;
    let is_reserved =
        |(number, target): &&(usize, String)| reserve.contains(number) && target.starts_with("socket:");
    list_descriptors().iter().filter(is_reserved).count()
}

/// Asserts that at most one socket more is in the reserve than descriptors are free below it. The endpoint
/// may have accepted one connection there, from whose descriptor it knows that no lower number is free.
#[track_caller]
fn assert_reserve_is_free() {
    let first = LIMIT_DESCRIPTORS - RESERVE_DESCRIPTORS;
    let free_count = first - list_descriptors().iter().filter(|(number, _)| *number < first).count();
    assert!(count_sockets_in_reserve() <= 1 + free_count, "{:?}", list_descriptors());
}

/// Echoes the frames of the peers until all peers have succeeded.
fn serve(server: &mut Side, peers: &mut [Visitor]) {
    let mut echoed = server.events.frames.len();
    server.drive_until("the peers to succeed", |server| {
        assert_reserve_is_free();
        while let Some(&link) = server.events.frames.get(echoed) {
            let header = Header::Message(Message { tag: Some(1), ..Message::of_len(3) });
            server.transport.send_inline(link, &header, b"abc").unwrap();
            echoed += 1;
        }
        peers.iter_mut().map(Visitor::has_succeeded).filter(|succeeded| !succeeded).count() == 0
    });
}

fn peers_get_in_beside_silent_strangers() {
    let mut server = Side::open(&TcpProvider::new());
    let address = server.transport.address().socket_addr();
    let before = count_sockets();
    let mut strangers = Visitor::spawn("silent", address);
    strangers.wait_until_connected();
    let mut peers: Vec<Visitor> = (0..PEERS).map(|_| Visitor::spawn("peer", address)).collect();
    serve(&mut server, &mut peers);
    assert_eq!(server.events.up.len(), PEERS, "a stranger was reported");
    // The endpoint accepts all strangers. Later strangers displace earlier ones, since strangers get only
    // their share of the descriptors.
    server.drive_until("all strangers but the last to be displaced", |_| {
        strangers.count_ended() >= STRANGERS - SILENT_MAX
    });
    server.drive_until("the end of the peers' links", |server| server.events.down.len() == PEERS);
    let taken = count_sockets() - before;
    // A peer may have displaced a stranger.
    assert!((SILENT_MAX - PEERS..=SILENT_MAX).contains(&taken), "{taken} connections without a hello");
}

fn strangers_of_one_host_that_say_hello_leave_room_for_peers() {
    let mut server = Side::open(&TcpProvider::new());
    let address = server.transport.address().socket_addr();
    let mut strangers = Visitor::spawn("speaking", address);
    strangers.wait_until_connected();
    server.drive_until("the strangers to take their share", |_| {
        assert_reserve_is_free();
        strangers.count_ended() > 0
    });
    let mut peers: Vec<Visitor> = (0..PEERS).map(|_| Visitor::spawn("peer", address)).collect();
    serve(&mut server, &mut peers);
    server.drive_until("the other strangers to be refused", |server| {
        let live_count = server.events.up.len() - server.events.down.len();
        assert!(live_count <= HOST_MAX_LINKS + PEERS, "{live_count}");
        strangers.count_ended() == STRANGERS - HOST_MAX_LINKS
    });
}

/// Lets strangers on two hosts take all descriptors but the reserve.
fn take_all_descriptors(server: &mut Side) -> [Visitor; 2] {
    let address = server.transport.address().socket_addr();
    let mut strangers = HOSTS.map(|host| Visitor::spawn_on(host, "speaking", address));
    strangers.iter_mut().for_each(Visitor::wait_until_connected);
    server.drive_until("the strangers to take what they can", |_| {
        assert_reserve_is_free();
        count_sockets_in_reserve() > 0
    });
    strangers
}

fn strangers_that_say_hello_leave_the_reserve() {
    let mut server = Side::open(&TcpProvider::new());
    let _strangers = take_all_descriptors(&mut server);
    for _ in 0..1_000 {
        server.transport.receive(64, &mut server.events);
    }
    assert_reserve_is_free();
    // So this process can still connect, and open another endpoint.
    let mut own = Side::open(&TcpProvider::new());
    let link = server.transport.connect(own.transport.address());
    own.drive_until("a link of its own", |own| {
        server.transport.receive(64, &mut server.events);
        server.transport.flush();
        !own.events.up.is_empty() || server.events.down.iter().any(|(down, _)| *down == link)
    });
    assert_eq!(own.events.up.len(), 1, "{:?}", server.events.down);
}

fn peers_get_in_beside_strangers_that_have_taken_all_descriptors() {
    let mut server = Side::open(&TcpProvider::new());
    let _strangers = take_all_descriptors(&mut server);
    let address = server.transport.address().socket_addr();
    for role in ["peer", "peer with two links"] {
        let mut peers: Vec<Visitor> = (0..PEERS).map(|_| Visitor::spawn(role, address)).collect();
        serve(&mut server, &mut peers);
    }
}

#[test]
fn strangers_neither_keep_peers_out_nor_take_the_last_descriptors() {
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: Some(LIMIT_DESCRIPTORS as u64), maximum }).unwrap();
    peers_get_in_beside_silent_strangers();
    strangers_of_one_host_that_say_hello_leave_room_for_peers();
    strangers_that_say_hello_leave_the_reserve();
    peers_get_in_beside_strangers_that_have_taken_all_descriptors();
}
