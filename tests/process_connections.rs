//! Connections between processes that exit in order, or that are killed at any moment.

use std::net::SocketAddr;
use std::time::Duration;

use homespun::endpoint::SendMsg;
use homespun::flags::OpFlags;
use homespun::{ConnectionEnd, Errno, Error, FabricAddress, Misuse};
use serde::{Deserialize, Serialize};

use homespun_suite::TransportKind::{self, Auto4, Shm4, Shm6, Tcp4, Tcp6};
use homespun_suite::connecting::{
    CLIENT, ConnectionEvent, ConnectionRequest, EventResult, LISTENER, PassiveEndpoint, SERVER, Side,
    next_completion_of_first_side, next_event_of_first_side, next_message_of_first_side,
    next_operation_end_of_first_side, next_request_of_first_side,
};
use homespun_suite::payload::{marked_buffer, payload, received_bytes};
use homespun_suite::process::{Channel, Process};
use homespun_suite::{Deadline, Endpoint, Net, Turns};

const NOWHERE: FabricAddress = FabricAddress::UNSPECIFIED;

const TRANSPORTS: [TransportKind; 6] = [Tcp4, Tcp6, Shm4, Shm6, Auto4, TransportKind::MIXED4];

/// A command to the other process. The process answers each command with an [`Outcome`].
#[derive(Debug, Serialize, Deserialize)]
enum Command {
    /// Opens endpoints with this transport.
    Begin(TransportKind),
    Listen,
    Connect(SocketAddr, Vec<u8>),
    /// Waits for the next event of its queue.
    NextEvent,
    /// Accepts the request that the process read last.
    Accept(Vec<u8>),
    /// Sends a message of this identity and length, and waits until it is delivered.
    Send(u64, usize),
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Outcome {
    Done,
    Name(SocketAddr),
    Request(Vec<u8>),
    Connected(Vec<u8>),
    /// The connection has ended in order.
    Closed,
    /// The connection has ended without a word of the peer.
    Lost,
    /// The error number, and the data of the rejection.
    Failed(i32, Vec<u8>),
}

/// The state of the other process: its end of a connection.
#[derive(Default)]
struct RemoteSide {
    net: Option<(Net, Side)>,
    listener: Option<PassiveEndpoint>,
    request: Option<ConnectionRequest>,
    endpoint: Option<Endpoint>,
}

impl RemoteSide {
    fn side(&self) -> &Side {
        &self.net.as_ref().expect("it has begun").1
    }

    fn execute_command(&mut self, command: Command) -> Outcome {
        match command {
            Command::Begin(transport) => {
                let net = Net::new(&transport, Turns::Alternate);
                let side = Side::new(&net);
                self.net = Some((net, side));
            }
            Command::Listen => {
                let listener = self.side().open_listener(LISTENER);
                let name = listener.name().expect("it listens").socket_addr();
                self.listener = Some(listener);
                return Outcome::Name(name);
            }
            Command::Connect(to, data) => {
                let endpoint = self.side().open_endpoint(CLIENT);
                endpoint.connect(to.into(), &data).expect("a first request");
                self.endpoint = Some(endpoint);
            }
            Command::NextEvent => return self.next_event_outcome(),
            Command::Accept(data) => {
                let request = self.request.take().expect("a request was read");
                self.endpoint = Some(self.side().accept(&request, &data));
            }
            Command::Send(identity, len_bytes) => {
                let endpoint = self.endpoint.as_ref().expect("it has an endpoint");
                let deadline = Deadline::new();
                while try_send(endpoint, identity, len_bytes) == Err(Misuse::NotConnected.into()) {
                    self.side().progress();
                    deadline.yield_or_panic("a connection");
                }
                next_completion_of_first_side(&[self.side()]);
            }
        }
        Outcome::Done
    }

    fn next_event_outcome(&mut self) -> Outcome {
        match next_event_of_first_side(&[self.side()]) {
            Ok(ConnectionEvent::Request(request)) => {
                let data = request.data().to_vec();
                self.request = Some(request);
                Outcome::Request(data)
            }
            event => outcome_of_event(event),
        }
    }
}

fn outcome_of_event(event: EventResult) -> Outcome {
    match event {
        Ok(ConnectionEvent::Connected { data, .. }) => Outcome::Connected(data.into()),
        Ok(ConnectionEvent::Shutdown { end: ConnectionEnd::Closed, .. }) => Outcome::Closed,
        Ok(ConnectionEvent::Shutdown { .. }) => Outcome::Lost,
        Err(error) => Outcome::Failed(error.errno.raw(), error.err_data),
        Ok(ConnectionEvent::Request(_)) => panic!("a request without a listener"),
    }
}

/// Waits for the next event of this side.
#[track_caller]
fn next_outcome(side: &Side) -> Outcome {
    outcome_of_event(next_event_of_first_side(&[side]))
}

fn try_send(endpoint: &Endpoint, identity: u64, len_bytes: usize) -> Result<(), Error> {
    let (buffers, flags) = (vec![payload(identity, len_bytes)], OpFlags::DELIVERY_COMPLETE);
    let send = SendMsg { buffers, context: identity, flags, ..SendMsg::default() };
    endpoint.sendmsg(send)
}

/// The entry of the other process.
#[test]
#[ignore = "other tests start it in a process of its own"]
fn other_process_entry() {
    let Some(mut channel) = Channel::from_parent() else { return };
    let mut other = RemoteSide::default();
    loop {
        while !channel.wait_readable(Duration::ZERO) {
            if let Some((_, side)) = &other.net {
                side.progress();
            }
        }
        match channel.receive_message::<Command>().expect("the test speaks") {
            Some(command) => {
                let outcome = other.execute_command(command);
                channel.send_message(&outcome).expect("the test listens");
            }
            None => return,
        }
    }
}

/// The other process.
struct SideProcess(Process);

impl SideProcess {
    fn spawn_over(transport: &TransportKind) -> SideProcess {
        let mut elsewhere = SideProcess(Process::spawn(concat!(module_path!(), "::other_process_entry")));
        elsewhere.execute(&Command::Begin(transport.clone()));
        elsewhere
    }

    #[track_caller]
    fn execute(&mut self, command: &Command) -> Outcome {
        self.0.send_message(command);
        self.0.receive_message()
    }

    /// Executes a command while this side makes progress.
    #[track_caller]
    fn execute_with(&mut self, side: &Side, command: &Command) -> Outcome {
        self.0.send_message(command);
        let deadline = Deadline::new();
        while !self.0.is_channel_readable() {
            side.progress();
            deadline.yield_or_panic("an answer");
        }
        self.0.receive_message()
    }

    #[track_caller]
    fn listen(&mut self) -> SocketAddr {
        match self.execute(&Command::Listen) {
            Outcome::Name(name) => name,
            other => panic!("not a name: {other:?}"),
        }
    }

    /// Asks for a connection from an endpoint of this side to the other process, which reads the request.
    /// Returns the endpoint, and the name of the passive endpoint.
    #[track_caller]
    fn ask(&mut self, side: &Side) -> (Endpoint, SocketAddr) {
        let name = self.listen();
        let endpoint = side.open_endpoint(CLIENT);
        endpoint.enable().expect("it has its queues");
        endpoint.connect(name.into(), b"may I?").expect("a first request");
        let heard = self.execute_with(side, &Command::NextEvent);
        assert_eq!(heard, Outcome::Request(b"may I?".into()));
        (endpoint, name)
    }

    /// Connects an endpoint of this side to the other process, which has read that it is connected. The
    /// event of this side is unread.
    #[track_caller]
    fn connect(&mut self, side: &Side) -> Endpoint {
        let (endpoint, _) = self.ask(side);
        self.execute(&Command::Accept(b"welcome".into()));
        assert_eq!(self.execute_with(side, &Command::NextEvent), Outcome::Connected(vec![]));
        endpoint
    }

    /// Has the other process ask a listener of this side for a connection.
    #[track_caller]
    fn ask_from_there(&mut self, side: &Side) -> (PassiveEndpoint, ConnectionRequest) {
        let listener = side.open_listener(LISTENER);
        self.execute(&Command::Connect(listener.name().unwrap().socket_addr(), vec![1]));
        (listener, next_request_of_first_side(&[side]))
    }
}

fn open_sides() -> impl Iterator<Item = (Net, Side, SideProcess)> {
    TRANSPORTS.iter().map(|transport| {
        let net = Net::new(transport, Turns::Alternate);
        let side = Side::new(&net);
        (net, side, SideProcess::spawn_over(transport))
    })
}

#[test]
fn silent_peer_fails_the_request_with_etimedout() {
    for (_net, side, mut other) in open_sides() {
        let name = other.listen();
        // The passive endpoint is there, but its process makes no more passes.
        other.0.stop();
        let endpoint = side.open_endpoint(CLIENT);
        endpoint.set_connect_timeout(Some(Duration::from_millis(30)));
        endpoint.connect(name.into(), b"").unwrap();
        assert_eq!(next_outcome(&side), Outcome::Failed(Errno::ETIMEDOUT.raw(), vec![]));
        other.0.resume();
        // The process reads only the request of an endpoint that still waits.
        let patient = side.open_endpoint(SERVER);
        patient.connect(name.into(), b"second").unwrap();
        let mut heard = other.execute_with(&side, &Command::NextEvent);
        while heard == Outcome::Request(vec![]) {
            heard = other.execute_with(&side, &Command::NextEvent);
        }
        assert_eq!(heard, Outcome::Request(b"second".into()));
    }
}

/// Shows fi_cm/shutdown-event.
#[test]
fn death_of_either_process_ends_the_connection() {
    for (_net, side, mut other) in open_sides() {
        let endpoint = other.connect(&side);
        assert_eq!(next_outcome(&side), Outcome::Connected(b"welcome".into()));
        endpoint.recv(marked_buffer(8), NOWHERE, 1).unwrap();
        endpoint.recv(marked_buffer(8), NOWHERE, 2).unwrap();
        // Messages that were transmitted before the death arrive.
        assert_eq!(other.execute_with(&side, &Command::Send(7, 8)), Outcome::Done);
        other.0.kill();
        assert_eq!(next_message_of_first_side(&[&side]), payload(7, 8));
        let failed = next_operation_end_of_first_side(&[&side]).expect_err("no sender is left");
        assert_eq!(failed.completion.context, 2);
        assert_eq!(next_outcome(&side), Outcome::Lost);
        assert!(side.poll_event().is_none());
    }
    // The requester dies.
    for (_net, side, mut other) in open_sides() {
        let (_listener, request) = other.ask_from_there(&side);
        let _endpoint = side.accept(&request, b"welcome");
        assert_eq!(next_outcome(&side), Outcome::Connected(vec![]));
        let heard = other.execute_with(&side, &Command::NextEvent);
        assert_eq!(heard, Outcome::Connected(b"welcome".into()));
        other.0.kill();
        assert_eq!(next_outcome(&side), Outcome::Lost);
    }
}

#[test]
fn death_before_accept_fails_the_request() {
    for (_net, side, mut other) in open_sides() {
        let (_asked, name) = other.ask(&side);
        // Another request arrives that the process does not read.
        let unread = side.open_endpoint(SERVER);
        unread.connect(name.into(), b"").unwrap();
        other.0.kill();
        for _ in 0..2 {
            let Outcome::Failed(errno, data) = next_outcome(&side) else {
                panic!("connected without an accept")
            };
            assert!([Errno::ECONNREFUSED, Errno::ECONNRESET].contains(&Errno::new(errno)) && data.is_empty());
        }
    }
    for (_net, side, mut other) in open_sides() {
        let (_listener, request) = other.ask_from_there(&side);
        other.0.kill();
        let _endpoint = side.accept(&request, b"");
        assert_eq!(next_outcome(&side), Outcome::Failed(Errno::ECONNABORTED.raw(), vec![]));
    }
}

#[test]
fn death_at_any_moment_ends_every_wait() {
    for (round, (_net, side, mut other)) in (0..6).flat_map(|round| open_sides().map(move |of| (round, of))) {
        let (endpoint, _) = other.ask(&side);
        endpoint.recv(marked_buffer(300_000), NOWHERE, 1).unwrap();
        other.0.send_message(&Command::Accept(b"welcome".into()));
        other.0.send_message(&Command::Send(7, 300_000));
        for _ in 0..round * 3 {
            side.progress();
        }
        other.0.kill();
        // The requester may first read that it is connected. In any case it reads that the connection has
        // ended.
        let outcome = next_outcome(&side);
        if outcome == Outcome::Connected(b"welcome".into()) {
            assert_eq!(next_outcome(&side), Outcome::Lost);
        } else {
            assert!(matches!(outcome, Outcome::Failed(..)), "{outcome:?}");
        }
        if let Ok((completion, _)) = next_operation_end_of_first_side(&[&side]) {
            assert!(received_bytes(&completion.buffer) == payload(7, 300_000));
        }
        assert!(side.poll_event().is_none());
    }
}

#[test]
fn closing_process_delivers_everything_it_sent() {
    for (_net, side, mut other) in open_sides() {
        let endpoint = other.connect(&side);
        assert_eq!(other.execute_with(&side, &Command::Send(7, 100)), Outcome::Done);
        drop(other);
        assert_eq!(next_outcome(&side), Outcome::Connected(b"welcome".into()));
        assert_eq!(next_outcome(&side), Outcome::Closed);
        endpoint.recv(marked_buffer(100), NOWHERE, 1).unwrap();
        assert_eq!(next_message_of_first_side(&[&side]), payload(7, 100));
    }
}
