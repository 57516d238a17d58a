//! Two endpoints that know each other, opened with an info.

use std::fs::File;

use homespun::endpoint::WriteMsg;
use homespun::eq::{EqAttr, Event};
use homespun::flags::{BindFlags, MrAccess, OpFlags};
use homespun::info::{EndpointType, Info};
use homespun::{
    AddressVector, AvAttr, Bytes, Caps, Completion, CompletionError, CompletionQueue, ConnectionEvent,
    ConnectionRequest, CqAttr, Domain, Endpoint, EqReadError, EventError, EventQueue, Fabric, FabricAddress,
    MemoryRegion, MrAttr, ReadError,
};

use crate::suite::Deadline;
use crate::suite::files::Named;
use crate::suite::payload::{payload, received, room};

pub(crate) const ANY: FabricAddress = FabricAddress::UNSPECIFIED;

/// For how many rounds nothing happens where nothing is to happen.
const SILENT_ROUNDS: usize = 50;

/// What peers may do with a region that they may do everything with.
pub(crate) const REMOTE: MrAccess = MrAccess::REMOTE_READ.union(MrAccess::REMOTE_WRITE);

/// What an actor is opened with, beside an info.
#[derive(Debug, Clone, Default)]
pub(crate) struct Role {
    pub(crate) cq: CqAttr,
    pub(crate) av: AvAttr,
    /// Binds the queue with selective completion.
    pub(crate) is_selective: bool,
}

/// An endpoint in service.
pub(crate) struct Actor {
    pub(crate) endpoint: Endpoint,
    pub(crate) cq: CompletionQueue,
    /// What it calls the other one; over a connection, nothing.
    pub(crate) peer: FabricAddress,
    av: Option<AddressVector>,
}

/// How an operation ended, and who sent what was received.
pub(crate) type Ended = Result<(Completion, FabricAddress), CompletionError>;

/// Two actors in one domain.
pub(crate) struct Stage {
    pub(crate) alice: Actor,
    pub(crate) bob: Actor,
    pub(crate) domain: Domain,
}

impl Stage {
    pub(crate) fn open(info: &Info) -> Stage {
        Stage::of(info, &Role::default())
    }

    /// With nothing but these capabilities.
    pub(crate) fn with_caps(info: &Info, caps: Caps) -> Stage {
        Stage::between(&with_caps(info, caps), &with_caps(info, caps), &Role::default())
    }

    pub(crate) fn of(info: &Info, role: &Role) -> Stage {
        Stage::between(info, info, role)
    }

    /// Alice is opened with the first info, bob with the second; the domain is what the first one says.
    pub(crate) fn between(alice: &Info, bob: &Info, role: &Role) -> Stage {
        let domain = Fabric::new().domain(alice).expect("the domain was answered");
        Stage::within(domain, alice, bob, role)
    }

    pub(crate) fn within(domain: Domain, alice: &Info, bob: &Info, role: &Role) -> Stage {
        let kind = alice.ep.ep_type.expect("an answer has a type");
        let (alice, bob) = match kind {
            EndpointType::Rdm => {
                let open = |info| {
                    let endpoint = domain.endpoint(info).expect("the endpoint was answered");
                    let av = domain.open_av(&role.av).expect("an address vector");
                    endpoint.bind_av(&av).expect("its first address vector");
                    let actor = Actor::new(&domain, endpoint, Some(av), role);
                    actor.endpoint.enable().expect("it has all that it needs");
                    actor
                };
                let (mut alice, mut bob) = (open(alice), open(bob));
                alice.meet(&bob);
                bob.meet(&alice);
                (alice, bob)
            }
            EndpointType::Msg => connected(&domain, alice, bob, role),
            EndpointType::Dgram => {
                panic!("endpoints of type {kind:?} are answered, and nobody brings two of them together")
            }
        };
        Stage { alice, bob, domain }
    }

    /// Lets both make progress.
    pub(crate) fn progress(&self) {
        self.alice.cq.progress();
        self.bob.cq.progress();
    }

    /// The next operation of an actor to end.
    #[track_caller]
    pub(crate) fn ended(&self, actor: &Actor) -> Ended {
        let deadline = Deadline::new();
        loop {
            self.progress();
            if let Some(ended) = actor.poll() {
                return ended;
            }
            deadline.pause("an operation to end");
        }
    }

    /// The next operation of an actor to end, which succeeds.
    #[track_caller]
    pub(crate) fn completion(&self, actor: &Actor) -> Completion {
        self.ended(actor).expect("success").0
    }

    /// Nothing ends at an actor, while both are driven.
    #[track_caller]
    pub(crate) fn silence(&self, actor: &Actor) {
        for _ in 0..SILENT_ROUNDS {
            self.progress();
            if let Some(ended) = actor.poll() {
                panic!("nothing was to end: {ended:?}");
            }
        }
    }

    /// A message from one to the other, which goes well. Both completions are read; the second is returned.
    #[track_caller]
    pub(crate) fn message(&self, from: &Actor, to: &Actor, identity: u64, len_bytes: usize) -> Completion {
        let message = payload(identity, len_bytes);
        to.endpoint.recv(room(len_bytes), ANY, identity).expect("room for a receive");
        from.endpoint.send(message.clone(), from.peer, identity).expect("room for a send");
        assert_eq!(self.completion(from).context, identity);
        let completion = self.completion(to);
        assert_eq!((completion.context, received(&completion.buffer)), (identity, message.to_vec()));
        completion
    }

    /// A message that lets the receives which are posted be, and needs nothing of either actor but to send or to receive.
    #[track_caller]
    pub(crate) fn exchange(&self) {
        for (from, to) in [(&self.alice, &self.bob), (&self.bob, &self.alice)] {
            for len_bytes in [0, 8, 20_000, 400_000] {
                self.message(from, to, len_bytes as u64, len_bytes);
            }
        }
    }

    /// A region of so many bytes that bob's peers may do everything with.
    pub(crate) fn region(&self, len_bytes: usize, key: u64) -> MemoryRegion {
        let attr = MrAttr { access: REMOTE, requested_key: key, ..MrAttr::default() };
        self.domain.register(len_bytes, &attr).expect("a region")
    }

    /// The same, of a file whose pages are all on the device. Alice has the capability to commit.
    #[track_caller]
    pub(crate) fn persistent_region(&self, len_bytes: usize, key: u64) -> (MemoryRegion, Named) {
        let named = Named::unused();
        let file = File::options().read(true).write(true).create_new(true).open(named.path());
        let file = file.expect("a file can be made here");
        file.set_len(len_bytes as u64).expect("there is room for it");
        let attr = MrAttr { access: REMOTE, requested_key: key, ..MrAttr::default() };
        let region = self.domain.register_file(&file, 0, len_bytes, &attr).expect("a region");
        self.write_at_level(&region, &room(len_bytes).freeze(), OpFlags::COMMIT_COMPLETE);
        (region, named)
    }

    /// Alice writes to the beginning of a region, and waits until it completes as these flags have it.
    #[track_caller]
    pub(crate) fn write_at_level(&self, region: &MemoryRegion, message: &Bytes, flags: OpFlags) {
        let (address, key) = (region.address(), region.key());
        let to = self.alice.peer;
        let write =
            WriteMsg { buffers: vec![message.clone()], to, address, key, flags, ..WriteMsg::default() };
        self.alice.endpoint.writemsg(write).expect("room for a write");
        self.completion(&self.alice);
    }

    /// Alice writes to the beginning of a region, and reads it back.
    #[track_caller]
    pub(crate) fn write_and_read(&self, region: &MemoryRegion, message: &Bytes) {
        let Actor { endpoint, peer, .. } = &self.alice;
        endpoint.write(message.clone(), *peer, region.address(), region.key(), 1).expect("room");
        assert_eq!(self.completion(&self.alice).context, 1);
        assert!(content(region, message.len()) == *message);
        endpoint.read(room(message.len()), *peer, region.address(), region.key(), 2).expect("room");
        let read = self.completion(&self.alice);
        assert_eq!((read.context, received(&read.buffer)), (2, message.to_vec()));
    }
}

/// Alice asks bob for a connection, which he accepts.
fn connected(domain: &Domain, alice: &Info, bob: &Info, role: &Role) -> (Actor, Actor) {
    let (alice, eq, request) = asked(domain, alice, bob, role);
    let endpoint = domain.endpoint_for_request(&request.info(), &request).expect("the request is open");
    let bob = Actor::reporting(domain, endpoint, &eq, role);
    bob.endpoint.accept(&[]).expect("nobody has accepted before");
    for _ in 0..2 {
        let event = next_event(&eq).expect("success");
        assert!(matches!(event, ConnectionEvent::Connected { .. }), "{event:?}");
    }
    (alice, bob)
}

/// Alice asks whoever listens with bob's info for a connection, and both have this event queue.
pub(crate) fn asked(
    domain: &Domain,
    alice: &Info,
    bob: &Info,
    role: &Role,
) -> (Actor, EventQueue, ConnectionRequest) {
    let fabric = Fabric::new();
    let eq = fabric.open_eq(&EqAttr::default()).expect("an event queue");
    let passive = fabric.passive_endpoint(bob).expect("the passive endpoint was answered");
    passive.bind_eq(&eq, 0).expect("its first event queue");
    passive.listen().expect("it has all that it needs");
    let endpoint = domain.endpoint(alice).expect("the endpoint was answered");
    let alice = Actor::reporting(domain, endpoint, &eq, role);
    alice.endpoint.connect(passive.name().expect("it listens"), &[]).expect("nobody was asked before");
    match next_event(&eq) {
        Ok(ConnectionEvent::Request(request)) => (alice, eq, request),
        other => panic!("not a request: {other:?}"),
    }
}

/// What becomes of connections next.
pub(crate) fn next_event(eq: &EventQueue) -> Result<ConnectionEvent, EventError> {
    let deadline = Deadline::new();
    loop {
        match eq.read() {
            Ok(Event::Connection(event)) => return Ok(event),
            Err(EqReadError::ErrorAvailable) => return Err(eq.read_error().expect("an error")),
            Err(EqReadError::Empty) => deadline.pause("an event of a connection"),
            other => panic!("{other:?}"),
        }
    }
}

impl Actor {
    /// An endpoint that is bound to a queue of its own.
    fn new(domain: &Domain, endpoint: Endpoint, av: Option<AddressVector>, role: &Role) -> Actor {
        let cq = domain.open_cq(&role.cq).expect("a queue");
        let mut directions = BindFlags::TRANSMIT | BindFlags::RECV;
        directions.set(BindFlags::SELECTIVE_COMPLETION, role.is_selective);
        endpoint.bind_cq(&cq, directions).expect("its first queue");
        Actor { endpoint, cq, peer: ANY, av }
    }

    /// The same, which tells of its connections there.
    fn reporting(domain: &Domain, endpoint: Endpoint, eq: &EventQueue, role: &Role) -> Actor {
        endpoint.bind_eq(eq, 1).expect("its first event queue");
        Actor::new(domain, endpoint, None, role)
    }

    /// The vector of an actor without a connection.
    pub(crate) fn av(&self) -> &AddressVector {
        self.av.as_ref().expect("whoever has no connection has a vector")
    }

    fn meet(&mut self, other: &Actor) {
        let name = other.endpoint.name().expect("an endpoint in service has a name");
        self.peer = self.av().insert_one(name).expect("a name can be inserted");
    }

    /// What has ended, if that can be read.
    #[track_caller]
    pub(crate) fn poll(&self) -> Option<Ended> {
        match self.cq.read_from() {
            Ok(ended) => Some(Ok(ended)),
            Err(ReadError::Empty) => None,
            Err(ReadError::ErrorAvailable) => Some(Err(self.cq.read_error().expect("an error"))),
            Err(error) => panic!("{error}"),
        }
    }
}

/// The same info with nothing but these capabilities.
pub(crate) fn with_caps(info: &Info, caps: Caps) -> Info {
    Info { caps, ..info.clone() }
}

/// The first bytes of a region.
pub(crate) fn content(region: &MemoryRegion, len_bytes: usize) -> Vec<u8> {
    let mut bytes = vec![0; len_bytes];
    region.read_at(0, &mut bytes).expect("it is that long");
    bytes
}
