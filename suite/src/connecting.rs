//! Endpoints with connections, and the queues to which they report.

use homespun::eq::{EqAttr, Event};
use homespun::flags::{Caps, InfoFlags};
use homespun::info::{EndpointType, Info};
use homespun::{
    Completion, ConnectionEnd, CqAttr, Domain, EqReadError, EventError, EventQueue, Fabric, SimulatedClock,
    WaitObject, WaitSet,
};

use super::call::{ConnectionCall, RemoteAnswer, RemoteCall};
use super::deadline::{PATIENCE, poll_until, run_while_driving};
use super::driven_queues::Driver;
use super::ended::Ended;
use super::handle::{Endpoint, Handle, Queue};
use super::net::Net;
use super::payload::received_bytes;
use super::setup::BOTH;
pub use super::sides::{ConnectionEvent, ConnectionRequest, PassiveEndpoint};
use super::sleeping::sleep_on_wait_object;
use super::transport::Turns;

/// A client or a server: a domain, an event queue and a completion queue. The context of each endpoint is a
/// number. The objects are the library's own, or behind the C interface.
#[derive(Debug)]
pub struct Side {
    // Dropped first: it shares the queues.
    /// The thread that drives both queues. Exists with [`Turns::Threads`] if the queues are the library's
    /// own, and have no wait objects.
    _driver: Option<Driver>,
    /// The fabric of the network.
    pub fabric: Handle<Fabric>,
    /// The domain of the side's endpoints.
    pub domain: Handle<Domain>,
    /// The info of the side's endpoints.
    pub info: Info,
    /// The queue of events of connections.
    pub eq: Handle<EventQueue>,
    /// The queue of completions.
    pub cq: Queue,
}

/// An event, or an error entry, of an event queue.
pub type EventResult = Result<ConnectionEvent, EventError>;

impl Side {
    /// Opens a side whose queues have no wait objects.
    pub fn new(net: &Net) -> Side {
        let Some((remote, info, cq)) = net.open_answering_side() else {
            return Side::open_with_wait_objects(net, WaitObject::None, WaitObject::None);
        };
        Side {
            fabric: Handle::There(remote.clone()),
            domain: Handle::There(remote.clone()),
            info,
            eq: Handle::There(remote),
            cq,
            _driver: None,
        }
    }

    /// Opens a side with queues that have these wait objects.
    pub fn open_with_wait_objects(net: &Net, eq: WaitObject, cq: WaitObject) -> Side {
        Side::open(net, net.fabric.clone(), Caps::empty(), eq, cq, None)
    }

    /// Opens a side whose endpoints read this clock. Its event queue has this wait object.
    pub fn open_with_clock(net: &Net, clock: &SimulatedClock, eq: WaitObject) -> Side {
        let fabric = net.fabric.clone().with_clock(clock);
        Side::open(net, fabric, Caps::empty(), eq, WaitObject::None, None)
    }

    /// Opens a side whose endpoints have these capabilities and the default ones: those of an application
    /// that asks for none.
    pub fn open_with_added_caps(net: &Net, added: Caps) -> Side {
        Side::open(net, net.fabric.clone(), added, WaitObject::None, WaitObject::None, None)
    }

    /// Opens a side with queues that are members of a wait set.
    pub fn open_with_wait_set(net: &Net, set: &WaitSet) -> Side {
        Side::open(net, net.fabric.clone(), Caps::empty(), WaitObject::Set, WaitObject::Set, Some(set))
    }

    fn open(
        net: &Net,
        fabric: Fabric,
        added: Caps,
        eq: WaitObject,
        cq: WaitObject,
        set: Option<&WaitSet>,
    ) -> Side {
        let offer = |caps| {
            let mut hints = net.info().clone();
            (hints.caps, hints.tx.caps, hints.rx.caps) = (caps, Caps::empty(), Caps::empty());
            hints.ep.ep_type = Some(EndpointType::Msg);
            let found = fabric.getinfo(None, None, InfoFlags::empty(), Some(&hints)).expect("it is offered");
            found.into_iter().next().expect("an answer is never empty")
        };
        let mut info = offer(Caps::empty());
        if !added.is_empty() {
            info = offer(info.caps | added);
        }
        let domain = fabric.domain(&info).expect("the domain was offered");
        let is_driven = net.turns == Turns::Threads && (eq, cq) == (WaitObject::None, WaitObject::None);
        let eq = fabric.open_eq(&EqAttr { wait: eq, wait_set: set.cloned(), ..EqAttr::default() });
        let cq = domain.open_cq(&CqAttr { wait: cq, wait_set: set.cloned(), ..CqAttr::default() });
        let (eq, cq) = (eq.expect("an event queue"), cq.expect("a completion queue"));
        let (driven_eq, driven_cq) = (eq.clone(), cq.clone());
        let progress = move || {
            driven_eq.progress();
            driven_cq.progress();
        };
        Side {
            fabric: Handle::Here(fabric),
            domain: Handle::Here(domain),
            info,
            eq: Handle::Here(eq),
            cq: Queue::Here(cq),
            _driver: is_driven.then(|| Driver::spawn(progress)),
        }
    }

    /// Opens an endpoint bound to both queues. Its context is `name`.
    pub fn open_endpoint(&self, name: u64) -> Endpoint {
        self.bind_endpoint(self.domain.endpoint(&self.info).expect("an endpoint"), name)
    }

    /// Opens an endpoint for a connection request.
    pub fn open_endpoint_for_request(&self, request: &ConnectionRequest, name: u64) -> Endpoint {
        let endpoint = self.domain.endpoint_for_request(&request.info(), request);
        self.bind_endpoint(endpoint.expect("the request is open"), name)
    }

    /// Accepts a connection request with an endpoint whose context is [`SERVER`].
    pub fn accept(&self, request: &ConnectionRequest, data: &[u8]) -> Endpoint {
        let accepting = self.open_endpoint_for_request(request, SERVER);
        accepting.accept(data).expect("an open request can be accepted");
        accepting
    }

    /// Binds an endpoint to both queues. Its context is `name`.
    pub fn bind_endpoint(&self, endpoint: Endpoint, name: u64) -> Endpoint {
        let bind = |here: &homespun::Endpoint| {
            here.bind_eq(&self.eq, name)?;
            here.bind_cq(&self.cq, BOTH)
        };
        endpoint.handle().connection_call(bind, ConnectionCall::Bind(name)).expect("its first queues");
        endpoint
    }

    /// Opens an endpoint with this context, and requests a connection.
    pub fn connect(&self, name: u64, to: &PassiveEndpoint, data: &[u8]) -> Endpoint {
        let connecting = self.open_endpoint(name);
        connecting.connect(to.name().expect("it listens"), data).expect("a new endpoint can connect");
        connecting
    }

    /// Opens a passive endpoint, and has it listen.
    pub fn open_listener(&self, name: u64) -> PassiveEndpoint {
        let passive = self.fabric.passive_endpoint(&self.info).expect("a passive endpoint");
        passive.bind_eq(&self.eq, name).expect("its first event queue");
        passive.listen().expect("it has all that it needs");
        passive
    }

    /// Reads an event, if there is one.
    pub fn poll_event(&self) -> Option<EventResult> {
        let eq = match &self.eq {
            Handle::Here(eq) => eq,
            Handle::There(remote) => {
                return match remote.call(RemoteCall::Connection(ConnectionCall::ReadEvent)) {
                    RemoteAnswer::Event(event) => event.map(|event| event.into_result(remote, &self.info)),
                    other => panic!("{other:?}"),
                };
            }
        };
        match eq.read() {
            Ok(Some(Event::Connection(event))) => Some(Ok(event.into())),
            Ok(Some(other)) => panic!("an event that is not of a connection: {other:?}"),
            Ok(None) => None,
            Err(EqReadError::ErrorAvailable) => eq.read_error().map(Err),
            Err(error) => panic!("{error}"),
        }
    }

    /// The request that the next read of the library's own event queue finds.
    pub fn peek_request(&self) -> Option<ConnectionRequest> {
        match self.eq.peek() {
            Ok(Some(Event::Connection(homespun::ConnectionEvent::Request(request)))) => Some(request.into()),
            _ => None,
        }
    }

    /// Drives both queues, without reading them.
    pub fn progress(&self) {
        match &self.eq {
            Handle::Here(eq) => {
                eq.progress();
                self.cq.progress();
            }
            Handle::There(remote) => remote.progress_if_idle(),
        }
    }
}

/// Waits for the first side's next event, while all sides make progress.
#[track_caller]
pub fn next_event_of_first_side(sides: &[&Side]) -> EventResult {
    wait_at_first_side(sides, "an event of a connection", Side::poll_event)
}

/// Waits until an operation of the first side has ended. Drives all sides meanwhile.
#[track_caller]
pub fn next_operation_end_of_first_side(sides: &[&Side]) -> Ended {
    wait_at_first_side(sides, "the end of an operation", |side| side.cq.poll_completion())
}

#[track_caller]
fn wait_at_first_side<T>(sides: &[&Side], what: &str, poll: impl Fn(&Side) -> Option<T>) -> T {
    poll_until(what, || {
        let found = poll(sides[0]);
        if found.is_none() {
            sides[1..].iter().for_each(|side| side.progress());
        }
        found
    })
}

/// As [`next_operation_end_of_first_side`], but the operation must succeed.
#[track_caller]
pub fn next_completion_of_first_side(sides: &[&Side]) -> Completion {
    next_operation_end_of_first_side(sides).unwrap_or_else(|failure| panic!("{failure:?}")).0
}

/// As [`next_completion_of_first_side`], but returns the message that a receive has taken.
#[track_caller]
pub fn next_message_of_first_side(sides: &[&Side]) -> Vec<u8> {
    received_bytes(&next_completion_of_first_side(sides).buffer)
}

/// As [`next_event_of_first_side`], but the event must be a connection request.
#[track_caller]
pub fn next_request_of_first_side(sides: &[&Side]) -> ConnectionRequest {
    match next_event_of_first_side(sides) {
        Ok(ConnectionEvent::Request(request)) => request,
        other => panic!("not a request: {other:?}"),
    }
}

/// The context of the endpoint that connects, in a [`connect_pair`].
pub const CLIENT: u64 = 1;
/// The context of the endpoint that accepts.
pub const SERVER: u64 = 2;
/// The context of the passive endpoint.
pub const LISTENER: u64 = 3;

/// As [`next_completion_of_first_side`], for operations with these contexts, in any order.
#[track_caller]
pub fn expect_each_of_first_side<const N: usize>(sides: &[&Side], contexts: [u64; N]) {
    let mut ended = [(); N].map(|()| next_completion_of_first_side(sides).context);
    ended.sort_unstable();
    assert_eq!(ended, contexts);
}

/// Requests a connection. Returns the endpoint and the request, which has arrived.
#[track_caller]
pub fn ask(
    client: &Side,
    server: &Side,
    listener: &PassiveEndpoint,
    data: &[u8],
) -> (Endpoint, ConnectionRequest) {
    let connecting = client.connect(CLIENT, listener, data);
    (connecting, next_request_of_first_side(&[server, client]))
}

/// Waits for the event of a new connection at both sides. The server's data is for the client.
#[track_caller]
pub fn expect_connected(client: &Side, server: &Side, data: &[u8]) {
    let connected = |endpoint, data: &[u8]| ConnectionEvent::Connected { endpoint, data: data.into() };
    assert_eq!(next_event_of_first_side(&[server, client]), Ok(connected(SERVER, b"")));
    assert_eq!(next_event_of_first_side(&[client, server]), Ok(connected(CLIENT, data)));
}

/// Waits at both sides for the event that the connection has ended.
#[track_caller]
pub fn expect_shut_down(client: &Side, server: &Side) {
    for (sides, endpoint) in [([client, server], CLIENT), ([server, client], SERVER)] {
        let end = ConnectionEvent::Shutdown { endpoint, end: ConnectionEnd::Closed };
        assert_eq!(next_event_of_first_side(&sides), Ok(end));
    }
}

/// Opens a client, and a server with a passive endpoint that listens.
pub fn open_sides(net: &Net) -> (Side, Side, PassiveEndpoint) {
    let (client, server) = (Side::new(net), Side::new(net));
    let listener = server.open_listener(LISTENER);
    (client, server, listener)
}

/// Opens two sides with a connection. Returns each side with its endpoint.
#[track_caller]
pub fn open_connection(net: &Net) -> ((Side, Endpoint), (Side, Endpoint)) {
    let (client, server) = (Side::new(net), Side::new(net));
    let (one, other) = connect_pair(&client, &server);
    ((client, one), (server, other))
}

/// Connects an endpoint of one side to an endpoint of the other.
#[track_caller]
pub fn connect_pair(client: &Side, server: &Side) -> (Endpoint, Endpoint) {
    let listener = server.open_listener(LISTENER);
    let (connecting, request) = ask(client, server, &listener, b"may I?");
    let accepting = server.accept(&request, b"you may");
    expect_connected(client, server, b"you may");
    (connecting, accepting)
}

/// Closes endpoints. Drives all sides meanwhile, since a close may wait until messages have left.
#[track_caller]
pub fn close_with_progress<T: Send + 'static>(endpoints: T, sides: &[&Side]) {
    run_while_driving(move || drop(endpoints), || sides.iter().for_each(|side| side.progress()));
}

/// Sleeps on the wait object of the side's event queue until the next event.
#[track_caller]
pub fn sleep_until_event(side: &Side) -> EventResult {
    let wait = side.eq.wait_object();
    poll_until(&format!("an event to wake {wait:?}"), || match wait {
        WaitObject::Fd | WaitObject::MutexCond => side.poll_event().or_else(|| {
            sleep_on_wait_object(side.eq.expect_local(), PATIENCE);
            side.poll_event()
        }),
        _ if side.eq.speek(Some(PATIENCE)) == Ok(None) => None,
        _ => side.poll_event(),
    })
}
