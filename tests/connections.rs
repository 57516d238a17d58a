//! Connections between processes, which leave in good order or are killed at any moment.

#[allow(dead_code, unused_imports, reason = "each suite uses a part of it")]
mod suite;

use std::net::SocketAddr;
use std::time::Duration;

use homespun::endpoint::SendMsg;
use homespun::flags::OpFlags;
use homespun::{
    ConnectionEvent, ConnectionRequest, Endpoint, Errno, Error, FabricAddress, Misuse, PassiveEndpoint,
};
use serde::{Deserialize, Serialize};

use crate::suite::connecting::{CLIENT, Heard, LISTENER, SERVER, Side, completion, end, hear};
use crate::suite::form;
use crate::suite::payload::{payload, received, room};
use crate::suite::process::{Channel, Process};
use crate::suite::{Deadline, Net, Transport, Turns};

const NOWHERE: FabricAddress = FabricAddress::UNSPECIFIED;

const TRANSPORTS: [Transport; 4] = [Transport::Tcp4, Transport::Tcp6, Transport::Shm4, Transport::Shm6];

/// Lengths of messages that travel in every way that there is.
const LENS_BYTES: [usize; 7] = [0, 8, 5000, 100_000, 300_000, (5 << 20) + 1, 1];

/// What another process is asked to do. It answers each with [`Told`].
#[derive(Debug, Serialize, Deserialize)]
enum Ask {
    /// Over this transport from now on.
    Begin(#[serde(with = "form::transport")] Transport),
    Listen,
    Connect(SocketAddr, Vec<u8>),
    /// What its event queue tells next.
    Hear,
    /// Accepts the request that it has heard last.
    Accept(Vec<u8>),
    Reject(Vec<u8>),
    /// A message of this identity and length, until the other side has it.
    Send(u64, usize),
    Receive(usize),
    Shutdown,
    Close,
    StopListening,
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Told {
    Done,
    Name(SocketAddr),
    Request(Vec<u8>),
    Connected(Vec<u8>),
    ShutDown,
    /// With its number, and what the other side had to say.
    Failed(i32, Vec<u8>),
    Message(Vec<u8>),
}

/// The other process's end of a connection.
#[derive(Default)]
struct Other {
    net: Option<(Net, Side)>,
    listener: Option<PassiveEndpoint>,
    request: Option<ConnectionRequest>,
    endpoint: Option<Endpoint>,
}

impl Other {
    fn side(&self) -> &Side {
        &self.net.as_ref().expect("it has begun").1
    }

    fn endpoint(&self) -> &Endpoint {
        self.endpoint.as_ref().expect("it has an endpoint")
    }

    fn answer(&mut self, ask: Ask) -> Told {
        match ask {
            Ask::Begin(transport) => {
                let net = Net::new(&transport, Turns::Alternate);
                let side = Side::new(&net);
                self.net = Some((net, side));
            }
            Ask::Listen => {
                let listener = self.side().listener(LISTENER);
                let name = listener.name().expect("it listens").socket_addr();
                self.listener = Some(listener);
                return Told::Name(name);
            }
            Ask::Connect(to, data) => {
                let endpoint = self.side().endpoint(CLIENT);
                endpoint.connect(to.into(), &data).expect("nobody was asked before");
                self.endpoint = Some(endpoint);
            }
            Ask::Hear => return self.hear(),
            Ask::Accept(data) => {
                let request = self.request.take().expect("a request was heard");
                let endpoint = self.side().endpoint_for(&request, SERVER);
                endpoint.accept(&data).expect("nobody has accepted before");
                self.endpoint = Some(endpoint);
            }
            Ask::Reject(data) => {
                let request = self.request.take().expect("a request was heard");
                request.reject(&data).expect("nobody has decided before");
            }
            Ask::Send(identity, len_bytes) => {
                let deadline = Deadline::new();
                while try_send(self.endpoint(), identity, len_bytes) == Err(Misuse::NotConnected.into()) {
                    self.side().progress();
                    deadline.pause("a connection");
                }
                completion(&[self.side()]);
            }
            Ask::Receive(len_bytes) => {
                self.endpoint().recv(room(len_bytes), NOWHERE, 0).expect("room for a receive");
                return Told::Message(received(&completion(&[self.side()]).buffer));
            }
            Ask::Shutdown => self.endpoint().shutdown().expect("it is connected"),
            Ask::Close => self.endpoint = None,
            Ask::StopListening => self.listener = None,
        }
        Told::Done
    }

    fn hear(&mut self) -> Told {
        match hear(&[self.side()]) {
            Ok(ConnectionEvent::Request(request)) => {
                let data = request.data().to_vec();
                self.request = Some(request);
                Told::Request(data)
            }
            heard => told(heard),
        }
    }
}

fn told(heard: Heard) -> Told {
    match heard {
        Ok(ConnectionEvent::Connected { data, .. }) => Told::Connected(data.into()),
        Ok(ConnectionEvent::Shutdown { .. }) => Told::ShutDown,
        Err(error) => Told::Failed(error.errno.raw(), error.err_data),
        Ok(ConnectionEvent::Request(_)) => panic!("nobody listens here"),
    }
}

fn send(endpoint: &Endpoint, identity: u64, len_bytes: usize) {
    try_send(endpoint, identity, len_bytes).expect("room for a send");
}

fn try_send(endpoint: &Endpoint, identity: u64, len_bytes: usize) -> Result<(), Error> {
    let (buffers, flags) = (vec![payload(identity, len_bytes)], OpFlags::DELIVERY_COMPLETE);
    let send = SendMsg { buffers, context: identity, flags, ..SendMsg::default() };
    Ok(endpoint.sendmsg(send)?)
}

/// What the other process does.
#[test]
#[ignore = "other tests start it in a process of its own"]
fn other_process() {
    let Some(mut channel) = Channel::inherited() else { return };
    let mut other = Other::default();
    loop {
        while !channel.has_news(Duration::ZERO) {
            if let Some((_, side)) = &other.net {
                side.progress();
            }
        }
        match channel.hear::<Ask>().expect("the test speaks") {
            Some(ask) => {
                let told = other.answer(ask);
                channel.tell(&told).expect("the test listens");
            }
            None => return,
        }
    }
}

/// The other process, over a transport.
struct Elsewhere(Process);

impl Elsewhere {
    fn over(transport: &Transport) -> Elsewhere {
        let mut elsewhere = Elsewhere(Process::spawn(concat!(module_path!(), "::other_process")));
        elsewhere.ask(&Ask::Begin(transport.clone()));
        elsewhere
    }

    #[track_caller]
    fn ask(&mut self, ask: &Ask) -> Told {
        self.begin(ask);
        self.0.hear()
    }

    fn begin(&mut self, ask: &Ask) {
        self.0.tell(ask);
    }

    /// What it answers to what was begun, while this side goes on.
    #[track_caller]
    fn end(&mut self, side: &Side) -> Told {
        let deadline = Deadline::new();
        while !self.0.is_silent() {
            side.progress();
            deadline.pause("an answer");
        }
        self.0.hear()
    }

    #[track_caller]
    fn listen(&mut self) -> SocketAddr {
        match self.ask(&Ask::Listen) {
            Told::Name(name) => name,
            other => panic!("not a name: {other:?}"),
        }
    }

    /// Connects an endpoint of this side with one of the other process, which accepts.
    #[track_caller]
    fn connect(&mut self, side: &Side) -> Endpoint {
        let name = self.listen();
        let endpoint = side.endpoint(CLIENT);
        endpoint.connect(name.into(), b"may I?").expect("nobody was asked before");
        self.begin(&Ask::Hear);
        assert_eq!(self.end(side), Told::Request(b"may I?".into()));
        self.ask(&Ask::Accept(b"you may".into()));
        self.begin(&Ask::Hear);
        assert_eq!(self.end(side), Told::Connected(vec![]));
        assert_eq!(told(hear(&[side])), Told::Connected(b"you may".into()));
        endpoint
    }
}

fn sides() -> impl Iterator<Item = (Net, Side, Elsewhere)> {
    TRANSPORTS.iter().map(|transport| {
        let net = Net::new(transport, Turns::Alternate);
        let side = Side::new(&net);
        (net, side, Elsewhere::over(transport))
    })
}

#[test]
fn messages_travel_both_ways_and_arrive_before_the_end() {
    for (_net, side, mut other) in sides() {
        let endpoint = other.connect(&side);
        for (identity, len_bytes) in (0..).zip(LENS_BYTES) {
            other.begin(&Ask::Receive(len_bytes));
            send(&endpoint, identity, len_bytes);
            completion(&[&side]);
            assert!(other.end(&side) == Told::Message(payload(identity, len_bytes).into()));
            other.begin(&Ask::Send(identity, len_bytes));
            endpoint.recv(room(len_bytes), NOWHERE, 1).unwrap();
            assert!(received(&completion(&[&side]).buffer) == payload(identity, len_bytes));
            assert_eq!(other.end(&side), Told::Done);
        }
        other.begin(&Ask::Send(7, 1000));
        assert_eq!(other.end(&side), Told::Done);
        other.ask(&Ask::Shutdown);
        assert_eq!(told(hear(&[&side])), Told::ShutDown);
        endpoint.recv(room(1000), NOWHERE, 1).unwrap();
        assert_eq!(received(&completion(&[&side]).buffer), payload(7, 1000));
        other.begin(&Ask::Hear);
        assert_eq!(other.end(&side), Told::ShutDown);
    }
}

#[test]
fn another_process_rejects_and_stops_listening() {
    for (_net, side, mut other) in sides() {
        let name = other.listen();
        for data in [vec![], vec![7; 256]] {
            let endpoint = side.endpoint(CLIENT);
            endpoint.connect(name.into(), &data).unwrap();
            other.begin(&Ask::Hear);
            assert_eq!(other.end(&side), Told::Request(data.clone()));
            other.ask(&Ask::Reject(data.clone()));
            assert_eq!(told(hear(&[&side])), Told::Failed(Errno::ECONNREFUSED.raw(), data));
        }
        let waiting = side.endpoint(CLIENT);
        waiting.connect(name.into(), b"").unwrap();
        other.begin(&Ask::Hear);
        assert_eq!(other.end(&side), Told::Request(vec![]));
        // It is rejected together with the request that it keeps, by the next one that is heard.
        let second = side.endpoint(SERVER);
        second.connect(name.into(), b"second").unwrap();
        other.begin(&Ask::Hear);
        assert_eq!(other.end(&side), Told::Request(b"second".into()));
        assert_eq!(told(hear(&[&side])), Told::Failed(Errno::ECONNREFUSED.raw(), vec![]));
        other.ask(&Ask::StopListening);
        let late = side.endpoint(LISTENER);
        late.connect(name.into(), b"").unwrap();
        assert_eq!(told(hear(&[&side])), Told::Failed(Errno::ECONNREFUSED.raw(), vec![]));
    }
}

#[test]
fn the_death_of_either_side_ends_the_connection() {
    for (_net, side, mut other) in sides() {
        let endpoint = other.connect(&side);
        endpoint.recv(room(8), NOWHERE, 1).unwrap();
        endpoint.recv(room(8), NOWHERE, 2).unwrap();
        // What was transmitted before arrives.
        other.begin(&Ask::Send(7, 8));
        assert_eq!(other.end(&side), Told::Done);
        other.0.kill();
        assert_eq!(received(&completion(&[&side]).buffer), payload(7, 8));
        assert_eq!(end(&[&side]).expect_err("nobody sends any more").completion.context, 2);
        assert_eq!(told(hear(&[&side])), Told::ShutDown);
        assert!(side.look().is_none());
    }
    // The one who has asked.
    for (_net, side, mut other) in sides() {
        let listener = side.listener(LISTENER);
        other.ask(&Ask::Connect(listener.name().unwrap().socket_addr(), vec![1]));
        let Ok(ConnectionEvent::Request(request)) = hear(&[&side]) else { panic!("it was asked") };
        let endpoint = side.endpoint_for(&request, SERVER);
        endpoint.accept(b"welcome").unwrap();
        assert_eq!(told(hear(&[&side])), Told::Connected(vec![]));
        other.begin(&Ask::Hear);
        assert_eq!(other.end(&side), Told::Connected(b"welcome".into()));
        other.0.kill();
        assert_eq!(told(hear(&[&side])), Told::ShutDown);
    }
}

#[test]
fn a_death_before_the_connection_is_made_is_told_as_well() {
    for (_net, side, mut other) in sides() {
        let name = other.listen();
        let asked = side.endpoint(CLIENT);
        asked.connect(name.into(), b"").unwrap();
        other.begin(&Ask::Hear);
        assert_eq!(other.end(&side), Told::Request(vec![]));
        // Another one has asked, and was not heard.
        let unheard = side.endpoint(SERVER);
        unheard.connect(name.into(), b"").unwrap();
        other.0.kill();
        for _ in 0..2 {
            let Told::Failed(errno, data) = told(hear(&[&side])) else { panic!("nobody has accepted") };
            assert!([Errno::ECONNREFUSED, Errno::ECONNRESET].contains(&Errno::new(errno)) && data.is_empty());
        }
    }
    for (_net, side, mut other) in sides() {
        let listener = side.listener(LISTENER);
        other.ask(&Ask::Connect(listener.name().unwrap().socket_addr(), vec![1]));
        let Ok(ConnectionEvent::Request(request)) = hear(&[&side]) else { panic!("it was asked") };
        other.0.kill();
        let endpoint = side.endpoint_for(&request, SERVER);
        endpoint.accept(b"").unwrap();
        assert_eq!(told(hear(&[&side])), Told::Failed(Errno::ECONNABORTED.raw(), vec![]));
    }
}

#[test]
fn a_death_at_any_moment_leaves_nobody_waiting() {
    for (round, (_net, side, mut other)) in (0..6).flat_map(|round| sides().map(move |of| (round, of))) {
        let name = other.listen();
        let endpoint = side.endpoint(CLIENT);
        endpoint.enable().unwrap();
        endpoint.recv(room(300_000), NOWHERE, 1).unwrap();
        endpoint.connect(name.into(), b"").unwrap();
        other.begin(&Ask::Hear);
        assert_eq!(other.end(&side), Told::Request(vec![]));
        other.begin(&Ask::Accept(b"welcome".into()));
        other.begin(&Ask::Send(7, 300_000));
        for _ in 0..round * 3 {
            side.progress();
        }
        other.0.kill();
        // It hears that it is connected, or not, and in any case that it is not any more.
        let mut heard = told(hear(&[&side]));
        if heard == Told::Connected(b"welcome".into()) {
            heard = told(hear(&[&side]));
            assert_eq!(heard, Told::ShutDown);
        } else {
            assert!(matches!(heard, Told::Failed(..)), "{heard:?}");
        }
        if let Ok((completion, _)) = end(&[&side]) {
            assert!(received(&completion.buffer) == payload(7, 300_000));
        }
        assert!(side.look().is_none());
    }
}

#[test]
fn a_process_that_leaves_in_good_order_has_said_everything() {
    for (_net, side, mut other) in sides() {
        let name = other.listen();
        let endpoint = side.endpoint(CLIENT);
        endpoint.connect(name.into(), b"").unwrap();
        other.begin(&Ask::Hear);
        assert_eq!(other.end(&side), Told::Request(vec![]));
        other.ask(&Ask::Accept(b"welcome".into()));
        // It is connected at the latest when it has something to send.
        other.begin(&Ask::Hear);
        assert_eq!(other.end(&side), Told::Connected(vec![]));
        other.begin(&Ask::Send(7, 100));
        assert_eq!(other.end(&side), Told::Done);
        drop(other);
        assert_eq!(told(hear(&[&side])), Told::Connected(b"welcome".into()));
        assert_eq!(told(hear(&[&side])), Told::ShutDown);
        endpoint.recv(room(100), NOWHERE, 1).unwrap();
        assert_eq!(received(&completion(&[&side]).buffer), payload(7, 100));
    }
}
