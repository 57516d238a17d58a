//! Two endpoints that reach each other, opened with an info.

use std::fs::File;

use homespun::endpoint::WriteMsg;
use homespun::eq::{EqAttr, Event};
use homespun::flags::{BindFlags, MrAccess, OpFlags};
use homespun::info::{EndpointType, Info};
use homespun::{
    AddressVector, AvAttr, Bytes, Caps, Completion, CompletionError, CompletionQueue, ConnectionEvent,
    ConnectionRequest, CqAttr, Domain, Endpoint, EqReadError, EventError, EventQueue, Fabric, FabricAddress,
    MemoryRegion, MrAttr, ReadError, RemoteMemory,
};

use homespun_suite::Deadline;
use homespun_suite::files::NamedFile;
use homespun_suite::payload::{marked_buffer, payload, received_bytes};

pub(crate) const ANY: FabricAddress = FabricAddress::UNSPECIFIED;

/// After this many rounds without an event, none is expected any more.
const SILENT_ROUNDS: usize = 50;

/// All access rights of peers.
pub(crate) const REMOTE: MrAccess = MrAccess::REMOTE_READ.union(MrAccess::REMOTE_WRITE);

/// The attributes of an endpoint's objects, besides its info.
#[derive(Debug, Clone, Default)]
pub(crate) struct OpenAttr {
    pub(crate) cq: CqAttr,
    pub(crate) av: AvAttr,
    /// Binds the queue with selective completion.
    pub(crate) is_selective: bool,
}

/// An enabled endpoint.
pub(crate) struct TestEndpoint {
    pub(crate) endpoint: Endpoint,
    pub(crate) cq: CompletionQueue,
    /// The fabric address of the other endpoint in this endpoint's address vector. A connected endpoint
    /// ignores it.
    pub(crate) peer: FabricAddress,
    av: Option<AddressVector>,
}

/// The result of an operation; for a received message, with its source.
pub(crate) type Ended = Result<(Completion, FabricAddress), CompletionError>;

/// Two endpoints of one domain that reach each other.
pub(crate) struct EndpointPair {
    pub(crate) alice: TestEndpoint,
    pub(crate) bob: TestEndpoint,
    pub(crate) domain: Domain,
}

impl EndpointPair {
    pub(crate) fn open(info: &Info) -> EndpointPair {
        EndpointPair::open_with_attr(info, &OpenAttr::default())
    }

    /// Opens both endpoints with only these capabilities.
    pub(crate) fn open_with_caps(info: &Info, caps: Caps) -> EndpointPair {
        EndpointPair::open_with_infos(&with_caps(info, caps), &with_caps(info, caps), &OpenAttr::default())
    }

    pub(crate) fn open_with_attr(info: &Info, attr: &OpenAttr) -> EndpointPair {
        EndpointPair::open_with_infos(info, info, attr)
    }

    /// Opens a domain with alice's info, and the endpoints of both infos in this domain.
    pub(crate) fn open_with_infos(alice: &Info, bob: &Info, attr: &OpenAttr) -> EndpointPair {
        let domain = Fabric::new().domain(alice).expect("the domain was answered");
        EndpointPair::open_in_domain(domain, alice, bob, attr)
    }

    pub(crate) fn open_in_domain(domain: Domain, alice: &Info, bob: &Info, attr: &OpenAttr) -> EndpointPair {
        let kind = alice.ep.ep_type.expect("an answer has a type");
        let (alice, bob) = match kind {
            EndpointType::Rdm => {
                let open = |info| {
                    let endpoint = domain.endpoint(info).expect("the endpoint was answered");
                    let av = domain.open_av(&attr.av).expect("an address vector");
                    endpoint.bind_av(&av).expect("its first address vector");
                    let actor = TestEndpoint::new(&domain, endpoint, Some(av), attr);
                    actor.endpoint.enable().expect("it has all that it needs");
                    actor
                };
                let (mut alice, mut bob) = (open(alice), open(bob));
                alice.insert_peer(&bob);
                bob.insert_peer(&alice);
                (alice, bob)
            }
            EndpointType::Msg => open_connected_pair(&domain, alice, bob, attr),
            EndpointType::Dgram => {
                panic!("getinfo offers endpoints of type {kind:?}, which this test cannot connect")
            }
        };
        EndpointPair { alice, bob, domain }
    }

    /// Drives both endpoints.
    pub(crate) fn progress(&self) {
        self.alice.cq.progress();
        self.bob.cq.progress();
    }

    /// Waits for the end of an endpoint's next operation.
    #[track_caller]
    pub(crate) fn next_operation_end(&self, actor: &TestEndpoint) -> Ended {
        let deadline = Deadline::new();
        loop {
            self.progress();
            if let Some(ended) = actor.poll_completion() {
                return ended;
            }
            deadline.yield_or_panic("an operation to end");
        }
    }

    /// Waits for the end of an endpoint's next operation, which must succeed.
    #[track_caller]
    pub(crate) fn next_completion(&self, actor: &TestEndpoint) -> Completion {
        self.next_operation_end(actor).expect("success").0
    }

    /// Drives both endpoints for a while. Panics if an operation of `actor` ends meanwhile.
    #[track_caller]
    pub(crate) fn assert_no_completion(&self, actor: &TestEndpoint) {
        for _ in 0..SILENT_ROUNDS {
            self.progress();
            if let Some(ended) = actor.poll_completion() {
                panic!("nothing was to end: {ended:?}");
            }
        }
    }

    /// Sends a message, and reads the completions of both endpoints. Returns the completion of the receive.
    #[track_caller]
    pub(crate) fn send_and_receive(
        &self,
        from: &TestEndpoint,
        to: &TestEndpoint,
        identity: u64,
        len_bytes: usize,
    ) -> Completion {
        let message = payload(identity, len_bytes);
        to.endpoint.recv(marked_buffer(len_bytes), ANY, identity).expect("room for a receive");
        from.endpoint.send(message.clone(), from.peer, identity).expect("room for a send");
        assert_eq!(self.next_completion(from).context, identity);
        let completion = self.next_completion(to);
        assert_eq!((completion.context, received_bytes(&completion.buffer)), (identity, message.to_vec()));
        completion
    }

    /// Exchanges messages of several lengths in both directions.
    #[track_caller]
    pub(crate) fn exchange_messages(&self) {
        for (from, to) in [(&self.alice, &self.bob), (&self.bob, &self.alice)] {
            for len_bytes in [0, 8, 20_000, 400_000] {
                self.send_and_receive(from, to, len_bytes as u64, len_bytes);
            }
        }
    }

    /// Registers a region of bob's with all remote access rights.
    pub(crate) fn register_region(&self, len_bytes: usize, key: u64) -> MemoryRegion {
        let attr = MrAttr { access: REMOTE, requested_key: Some(key), ..MrAttr::default() };
        self.domain.register(len_bytes, &attr).expect("a region")
    }

    /// Registers a region in a new file. Then alice overwrites the whole region at the commit level, so all
    /// pages of the file are on the device. Alice must have the capability to commit.
    #[track_caller]
    pub(crate) fn register_persistent_region(&self, len_bytes: usize, key: u64) -> (MemoryRegion, NamedFile) {
        let named = NamedFile::with_unused_name();
        let file = File::options().read(true).write(true).create_new(true).open(named.path());
        let file = file.expect("a file can be made here");
        file.set_len(len_bytes as u64).expect("there is room for it");
        let attr = MrAttr { access: REMOTE, requested_key: Some(key), ..MrAttr::default() };
        let region = self.domain.register_file(&file, 0, len_bytes, &attr).expect("a region");
        self.write_with_flags_and_wait(&region, &marked_buffer(len_bytes).freeze(), OpFlags::COMMIT_COMPLETE);
        (region, named)
    }

    /// Alice writes a message to the start of a region, and waits for the completion.
    #[track_caller]
    pub(crate) fn write_with_flags_and_wait(&self, region: &MemoryRegion, message: &Bytes, flags: OpFlags) {
        let (address, key) = (region.address(), region.key());
        let to = self.alice.peer;
        let write = WriteMsg {
            buffers: vec![message.clone()],
            to,
            memory: RemoteMemory { address, key },
            flags,
            ..WriteMsg::default()
        };
        self.alice.endpoint.writemsg(write).expect("room for a write");
        self.next_completion(&self.alice);
    }

    /// Alice writes to the start of a region, and reads it back.
    #[track_caller]
    pub(crate) fn write_and_read(&self, region: &MemoryRegion, message: &Bytes) {
        let TestEndpoint { endpoint, peer, .. } = &self.alice;
        endpoint.write(message.clone(), *peer, region.remote(), 1).expect("room");
        assert_eq!(self.next_completion(&self.alice).context, 1);
        assert!(read_content(region, message.len()) == *message);
        endpoint.read(marked_buffer(message.len()), *peer, region.remote(), 2).expect("room");
        let read = self.next_completion(&self.alice);
        assert_eq!((read.context, received_bytes(&read.buffer)), (2, message.to_vec()));
    }
}

/// Requests a connection for alice, which bob accepts.
fn open_connected_pair(
    domain: &Domain,
    alice: &Info,
    bob: &Info,
    attr: &OpenAttr,
) -> (TestEndpoint, TestEndpoint) {
    let (alice, eq, request) = request_connection(domain, alice, bob, attr);
    let endpoint = domain.endpoint_for_request(&request.info(), &request).expect("the request is open");
    let bob = TestEndpoint::new_with_event_queue(domain, endpoint, &eq, attr);
    bob.endpoint.accept(&[]).expect("an undecided request");
    for _ in 0..2 {
        let event = next_event(&eq).expect("success");
        assert!(matches!(event, ConnectionEvent::Connected { .. }), "{event:?}");
    }
    (alice, bob)
}

/// Has alice request a connection from a passive endpoint that is opened with bob's info. Both sides report
/// to one event queue.
pub(crate) fn request_connection(
    domain: &Domain,
    alice: &Info,
    bob: &Info,
    attr: &OpenAttr,
) -> (TestEndpoint, EventQueue, ConnectionRequest) {
    let fabric = Fabric::new();
    let eq = fabric.open_eq(&EqAttr::default()).expect("an event queue");
    let passive = fabric.passive_endpoint(bob).expect("the passive endpoint was answered");
    passive.bind_eq(&eq, 0).expect("its first event queue");
    passive.listen().expect("it has all that it needs");
    let endpoint = domain.endpoint(alice).expect("the endpoint was answered");
    let alice = TestEndpoint::new_with_event_queue(domain, endpoint, &eq, attr);
    alice.endpoint.connect(passive.name().expect("it listens"), &[]).expect("a first request");
    match next_event(&eq) {
        Ok(ConnectionEvent::Request(request)) => (alice, eq, request),
        other => panic!("not a request: {other:?}"),
    }
}

/// Waits for the next connection event.
pub(crate) fn next_event(eq: &EventQueue) -> Result<ConnectionEvent, EventError> {
    let deadline = Deadline::new();
    loop {
        match eq.read() {
            Ok(Some(Event::Connection(event))) => return Ok(event),
            Err(EqReadError::ErrorAvailable) => return Err(eq.read_error().expect("an error")),
            Ok(None) => deadline.yield_or_panic("an event of a connection"),
            other => panic!("{other:?}"),
        }
    }
}

impl TestEndpoint {
    /// Binds an endpoint to a queue of its own.
    fn new(domain: &Domain, endpoint: Endpoint, av: Option<AddressVector>, attr: &OpenAttr) -> TestEndpoint {
        let cq = domain.open_cq(&attr.cq).expect("a queue");
        let mut directions = BindFlags::TRANSMIT | BindFlags::RECV;
        directions.set(BindFlags::SELECTIVE_COMPLETION, attr.is_selective);
        endpoint.bind_cq(&cq, directions).expect("its first queue");
        TestEndpoint { endpoint, cq, peer: ANY, av }
    }

    /// Binds an endpoint to a completion queue of its own. Connection events go to the given event queue.
    fn new_with_event_queue(
        domain: &Domain,
        endpoint: Endpoint,
        eq: &EventQueue,
        attr: &OpenAttr,
    ) -> TestEndpoint {
        endpoint.bind_eq(eq, 1).expect("its first event queue");
        TestEndpoint::new(domain, endpoint, None, attr)
    }

    /// Returns the address vector of an unconnected endpoint.
    pub(crate) fn av(&self) -> &AddressVector {
        self.av.as_ref().expect("an unconnected endpoint has a vector")
    }

    fn insert_peer(&mut self, other: &TestEndpoint) {
        let name = other.endpoint.name().expect("an endpoint in service has a name");
        self.peer = self.av().insert_one(name).expect("a name can be inserted");
    }

    /// Returns the end of the next operation, if one has ended.
    #[track_caller]
    pub(crate) fn poll_completion(&self) -> Option<Ended> {
        match self.cq.read_from() {
            Ok(ended) => ended.map(Ok),
            Err(ReadError::ErrorAvailable) => self.cq.read_error().expect("no overrun").map(Err),
            Err(error) => panic!("{error}"),
        }
    }
}

/// Returns the same info with only these capabilities.
pub(crate) fn with_caps(info: &Info, caps: Caps) -> Info {
    Info { caps, ..info.clone() }
}

/// Reads the first bytes of a region.
pub(crate) fn read_content(region: &MemoryRegion, len_bytes: usize) -> Vec<u8> {
    let mut bytes = vec![0; len_bytes];
    region.read_at(0, &mut bytes).expect("it is that long");
    bytes
}
