//! Endpoints with connections, and the queues to which they report.

use std::borrow::Borrow;
use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use homespun::eq::{EqAttr, Event};
use homespun::flags::{BindFlags, Caps, InfoFlags};
use homespun::info::{EndpointType, Info};
use homespun::{
    Completion, CompletionQueue, ConnectionEnd, ConnectionEvent, ConnectionRequest, CqAttr, Domain, Endpoint,
    EqReadError, EventError, EventQueue, Fabric, PassiveEndpoint, SimulatedClock, WaitObject, WaitSet,
};
use rustix::event::{PollFd, PollFlags, Timespec};

use super::deadline::{Deadline, PATIENCE};
use super::ended::{Ended, poll_completion};
use super::net::Net;
use super::payload::received_bytes;
use super::posix;
pub(super) use super::sides::open_sides;
use super::transport::Turns;

/// A client or a server: a domain, an event queue and a completion queue. The context of each endpoint is a
/// number.
#[derive(Debug)]
pub struct Side {
    /// The fabric of the network.
    pub fabric: Fabric,
    /// The domain of the side's endpoints.
    pub domain: Domain,
    /// The info of the side's endpoints.
    pub info: Info,
    /// The queue of events of connections.
    pub eq: EventQueue,
    /// The queue of completions.
    pub cq: CompletionQueue,
    /// The thread that drives both queues. Exists with [`Turns::Threads`] if the queues have no wait
    /// objects.
    driver: Option<(Arc<AtomicBool>, JoinHandle<()>)>,
}

/// A side, whatever library its objects are of.
pub trait ConnectionSide: Sync {
    /// An endpoint that connects.
    type Endpoint;
    /// A passive endpoint.
    type Listener;
    /// A request for a connection.
    type Request;
    /// An event of a connection.
    type Event: Debug + PartialEq + From<ConnectionEvent>;

    /// Opens a passive endpoint with this context, and has it listen.
    fn open_listener(&self, name: u64) -> Self::Listener;

    /// Opens an endpoint with this context, which requests a connection.
    fn connect(&self, name: u64, to: &Self::Listener, data: &[u8]) -> Self::Endpoint;

    /// Accepts a request with an endpoint whose context is [`SERVER`].
    fn accept(&self, request: &Self::Request, data: &[u8]) -> Self::Endpoint;

    /// Reads an event, if there is one.
    fn poll_event(&self) -> Option<Result<Self::Event, EventError>>;

    /// The request that an event brings, or the event if it is another.
    fn request_of(event: Self::Event) -> Result<Self::Request, Self::Event>;

    /// Reads the end of an operation, if there is one.
    fn poll_operation_end(&self) -> Option<Ended>;

    /// Drives the queues, without reading them.
    fn progress(&self);
}

fn side_of<T: Borrow<Side>>(it: &T) -> &Side {
    it.borrow()
}

impl<T: Borrow<Side> + Sync> ConnectionSide for T {
    type Endpoint = Endpoint;
    type Listener = PassiveEndpoint;
    type Request = ConnectionRequest;
    type Event = ConnectionEvent;

    fn open_listener(&self, name: u64) -> PassiveEndpoint {
        side_of(self).open_listener(name)
    }

    fn connect(&self, name: u64, to: &PassiveEndpoint, data: &[u8]) -> Endpoint {
        let connecting = side_of(self).open_endpoint(name);
        connecting.connect(to.name().expect("it listens"), data).expect("a new endpoint can connect");
        connecting
    }

    fn accept(&self, request: &ConnectionRequest, data: &[u8]) -> Endpoint {
        side_of(self).accept(request, data)
    }

    fn poll_event(&self) -> Option<EventResult> {
        side_of(self).poll_event()
    }

    fn request_of(event: ConnectionEvent) -> Result<ConnectionRequest, ConnectionEvent> {
        if let ConnectionEvent::Request(request) = event { Ok(request) } else { Err(event) }
    }

    fn poll_operation_end(&self) -> Option<Ended> {
        poll_completion(&side_of(self).cq)
    }

    fn progress(&self) {
        side_of(self).progress();
    }
}

/// An event, or an error entry, of an event queue.
pub type EventResult = Result<ConnectionEvent, EventError>;

pub(super) const BOTH: BindFlags = BindFlags::TRANSMIT.union(BindFlags::RECV);

impl Side {
    /// Opens a side whose queues have no wait objects.
    pub fn new(net: &Net) -> Side {
        Side::open_with_wait_objects(net, WaitObject::None, WaitObject::None)
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
        let driver = is_driven.then(|| spawn_driver(&eq, &cq));
        Side { fabric, domain, info, eq, cq, driver }
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
        endpoint.bind_eq(&self.eq, name).expect("its first event queue");
        endpoint.bind_cq(&self.cq, BOTH).expect("its first queue");
        endpoint
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
        match self.eq.read() {
            Ok(Some(Event::Connection(event))) => Some(Ok(event)),
            Ok(Some(other)) => panic!("an event that is not of a connection: {other:?}"),
            Ok(None) => None,
            Err(EqReadError::ErrorAvailable) => self.eq.read_error().map(Err),
            Err(error) => panic!("{error}"),
        }
    }

    /// Drives both queues, without reading them.
    pub fn progress(&self) {
        self.eq.progress();
        self.cq.progress();
    }
}

impl Drop for Side {
    fn drop(&mut self) {
        if let Some((is_over, driver)) = self.driver.take() {
            is_over.store(true, Ordering::Relaxed);
            let ended = driver.join();
            assert!(thread::panicking() || ended.is_ok(), "driving endpoints does not panic");
        }
    }
}

fn spawn_driver(eq: &EventQueue, cq: &CompletionQueue) -> (Arc<AtomicBool>, JoinHandle<()>) {
    let is_over = Arc::new(AtomicBool::new(false));
    let (eq, cq, until) = (eq.clone(), cq.clone(), is_over.clone());
    let driver = thread::spawn(move || {
        while !until.load(Ordering::Relaxed) {
            eq.progress();
            cq.progress();
            thread::yield_now();
        }
    });
    (is_over, driver)
}

/// Waits for the first side's next event, while all sides make progress.
#[track_caller]
pub fn next_event_of_first_side<S: ConnectionSide>(sides: &[&S]) -> Result<S::Event, EventError> {
    let deadline = Deadline::new();
    loop {
        if let Some(heard) = sides[0].poll_event() {
            return heard;
        }
        sides.iter().skip(1).for_each(|side| side.progress());
        deadline.yield_or_panic("an event of a connection");
    }
}

/// Waits until an operation of the first side has ended. Drives all sides meanwhile.
#[track_caller]
pub fn next_operation_end_of_first_side<S: ConnectionSide>(sides: &[&S]) -> Ended {
    let deadline = Deadline::new();
    loop {
        if let Some(ended) = sides[0].poll_operation_end() {
            return ended;
        }
        sides.iter().skip(1).for_each(|side| side.progress());
        deadline.yield_or_panic("the end of an operation");
    }
}

/// As [`next_operation_end_of_first_side`], but the operation must succeed.
#[track_caller]
pub fn next_completion_of_first_side<S: ConnectionSide>(sides: &[&S]) -> Completion {
    next_operation_end_of_first_side(sides).unwrap_or_else(|failure| panic!("{failure:?}")).0
}

/// As [`next_completion_of_first_side`], but returns the message that a receive has taken.
#[track_caller]
pub fn next_message_of_first_side<S: ConnectionSide>(sides: &[&S]) -> Vec<u8> {
    received_bytes(&next_completion_of_first_side(sides).buffer)
}

/// As [`next_event_of_first_side`], but the event must be a connection request.
#[track_caller]
pub fn next_request_of_first_side<S: ConnectionSide>(sides: &[&S]) -> S::Request {
    let event = next_event_of_first_side(sides).unwrap_or_else(|error| panic!("not a request: {error:?}"));
    S::request_of(event).unwrap_or_else(|event| panic!("not a request: {event:?}"))
}

/// The context of the endpoint that connects, in a [`connect_pair`].
pub const CLIENT: u64 = 1;
/// The context of the endpoint that accepts.
pub const SERVER: u64 = 2;
/// The context of the passive endpoint.
pub const LISTENER: u64 = 3;

/// As [`next_completion_of_first_side`], for operations with these contexts, in any order.
#[track_caller]
pub fn expect_each_of_first_side<S: ConnectionSide, const N: usize>(sides: &[&S], contexts: [u64; N]) {
    let mut ended = [(); N].map(|()| next_completion_of_first_side(sides).context);
    ended.sort_unstable();
    assert_eq!(ended, contexts);
}

/// Requests a connection. Returns the endpoint and the request, which has arrived.
#[track_caller]
pub fn ask<S: ConnectionSide>(
    client: &S,
    server: &S,
    listener: &S::Listener,
    data: &[u8],
) -> (S::Endpoint, S::Request) {
    let connecting = client.connect(CLIENT, listener, data);
    (connecting, next_request_of_first_side(&[server, client]))
}

/// Waits for the event of a new connection at both sides. The server's data is for the client.
#[track_caller]
pub fn expect_connected<S: ConnectionSide>(client: &S, server: &S, data: &[u8]) {
    let connected = |endpoint, data: &[u8]| ConnectionEvent::Connected { endpoint, data: data.into() }.into();
    assert_eq!(next_event_of_first_side(&[server, client]), Ok(connected(SERVER, b"")));
    assert_eq!(next_event_of_first_side(&[client, server]), Ok(connected(CLIENT, data)));
}

/// Waits at both sides for the event that the connection has ended.
#[track_caller]
pub fn expect_shut_down<S: ConnectionSide>(client: &S, server: &S) {
    for (sides, endpoint) in [([client, server], CLIENT), ([server, client], SERVER)] {
        let end = ConnectionEvent::Shutdown { endpoint, end: ConnectionEnd::Closed };
        assert_eq!(next_event_of_first_side(&sides), Ok(end.into()));
    }
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
pub fn connect_pair<S: ConnectionSide>(client: &S, server: &S) -> (S::Endpoint, S::Endpoint) {
    let listener = server.open_listener(LISTENER);
    let (connecting, request) = ask(client, server, &listener, b"may I?");
    let accepting = server.accept(&request, b"you may");
    expect_connected(client, server, b"you may");
    (connecting, accepting)
}

/// Closes endpoints. Drives all sides meanwhile, since a close may wait until messages have left.
pub fn close_with_progress<T: Send, S: ConnectionSide>(endpoints: T, sides: &[&S]) {
    thread::scope(|scope| {
        let closing = scope.spawn(|| drop(endpoints));
        while !closing.is_finished() {
            sides.iter().for_each(|side| side.progress());
            thread::yield_now();
        }
    });
}

/// Sleeps on the wait object of the side's event queue until the next event.
#[track_caller]
pub fn sleep_until_event(side: &Side) -> EventResult {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let heard = match side.eq.wait_object() {
            WaitObject::Fd | WaitObject::MutexCond => side.poll_event().or_else(|| {
                sleep_on_wait_object_if_allowed(&side.eq, PATIENCE);
                side.poll_event()
            }),
            _ => match side.eq.speek(Some(PATIENCE)) {
                Ok(None) => None,
                _ => side.poll_event(),
            },
        };
        match heard {
            Some(heard) => return heard,
            None => {
                let is_in_time = Instant::now() < deadline;
                assert!(
                    is_in_time,
                    "no event has woken the reader that waits by {:?}",
                    side.eq.wait_object()
                );
            }
        }
    }
}

/// Sleeps on the queue's descriptor or condition variable, if the queue allows it.
fn sleep_on_wait_object_if_allowed(eq: &EventQueue, at_most: Duration) {
    let may_sleep = || {
        let may = eq.try_wait().expect("a queue with a wait object");
        if !may {
            // Over a transport without a descriptor, `try_wait` always returns false, and the caller loops.
            thread::yield_now();
        }
        may
    };
    if let Some(of) = eq.wait_mutex_cond().expect("a thread") {
        posix::wait_on_condition_variable(of, at_most, may_sleep);
    } else if may_sleep() {
        let fd = eq.wait_fd().expect("a queue with a wait object of the application's");
        let at_most = Timespec::try_from(at_most).expect("not so long");
        // A signal may end the sleep early; the caller checks again.
        let _ = rustix::event::poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&at_most));
    }
}
