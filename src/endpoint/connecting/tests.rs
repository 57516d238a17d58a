use std::time::Duration;

use homespun_engine::errno::Errno;
use homespun_engine::flags::BindFlags;

use super::*;
use crate::eq::{EqAttr, Event};
use crate::info::{EndpointType, Info};
use crate::{CompletionQueue, ConnectionEvent, CqAttr, Domain, Fabric, Hints, PassiveEndpoint, WaitObject};

const CLIENT: u64 = 1;
const SERVER: u64 = 2;
const STRANGER: u64 = 3;

/// The time limit for an event.
const PATIENCE: Duration = Duration::from_secs(60);

/// Both sides of a connection, which share their queues.
struct Pair {
    fabric: Fabric,
    domain: Domain,
    info: Info,
    eq: EventQueue,
    cq: CompletionQueue,
    passive: PassiveEndpoint,
}

impl Pair {
    /// Opens a pair whose passive endpoint listens.
    fn open(domain: &str) -> Pair {
        let fabric = Fabric::new();
        // No other test binds to this address.
        let hints = Hints::new().ep_type(EndpointType::Msg).domain(domain).node("127.83.14.20").source();
        let info = fabric.info(&hints).unwrap();
        let domain = fabric.domain(&info).unwrap();
        let eq = fabric.open_eq(&EqAttr { wait: WaitObject::Unspec, ..EqAttr::default() }).unwrap();
        let cq = domain.open_cq(&CqAttr::default()).unwrap();
        let passive = fabric.passive_endpoint(&info).unwrap();
        passive.bind_eq(&eq, 0).unwrap();
        passive.listen().unwrap();
        Pair { fabric, domain, info, eq, cq, passive }
    }

    fn bind(&self, endpoint: Endpoint, name: u64) -> Endpoint {
        endpoint.bind_eq(&self.eq, name).unwrap();
        endpoint.bind_cq(&self.cq, BindFlags::TRANSMIT | BindFlags::RECV).unwrap();
        endpoint
    }

    fn next_event(&self) -> Option<ConnectionEvent> {
        match self.eq.sread(Some(PATIENCE)) {
            Ok(Some(Event::Connection(event))) => Some(event),
            Ok(other) => panic!("an event of a connection is due: {other:?}"),
            Err(_) => None,
        }
    }

    /// Opens an endpoint that asks `to` for a connection.
    fn ask(&self, to: Address, name: u64) -> Endpoint {
        let asking = self.bind(self.domain.endpoint(&self.info).unwrap(), name);
        asking.connect(to, b"").unwrap();
        asking
    }

    /// Opens an endpoint for a new request, and enables it. Returns the requester, the endpoint, and the
    /// endpoint's own address.
    fn open_acceptor(&self) -> (Endpoint, Endpoint, Address) {
        let client = self.ask(self.passive.name().unwrap(), CLIENT);
        let Some(ConnectionEvent::Request(request)) = self.next_event() else { panic!("a request is due") };
        let server = self.domain.endpoint_for_request(&request.info(), &request).unwrap();
        let server = self.bind(server, SERVER);
        server.enable().unwrap();
        let own = server.shared.pump.get().expect("it is enabled").address();
        assert_ne!(own, self.passive.name().unwrap());
        (client, server, own)
    }

    /// Whether another endpoint can get this address.
    fn is_free(&self, address: Address) -> bool {
        let other = self.fabric.passive_endpoint(&self.info).unwrap();
        other.set_name(address).unwrap();
        match other.name() {
            Ok(_) => true,
            Err(error) if error.errno() == Errno::EADDRINUSE => false,
            Err(error) => panic!("{error}"),
        }
    }

    /// Asks an acceptor for a connection, although it takes none.
    fn check_stranger_refused(&self, acceptor: Address) {
        let _stranger = self.ask(acceptor, STRANGER);
        assert_eq!(self.next_event(), None, "an error");
        let refused = self.eq.read_error().expect("the error of the stranger");
        assert_eq!(refused.object, STRANGER);
        assert!([Errno::ECONNREFUSED, Errno::ECONNRESET].contains(&refused.errno), "{refused}");
    }
}

/// The requester asks at the acceptor's own address whether the acceptor has made the link. If another
/// endpoint got the address meanwhile, it would deny this.
#[test]
fn acceptor_over_tcp_keeps_its_address_until_its_link_ends() {
    let pair = Pair::open("tcp");
    let (client, server, own) = pair.open_acceptor();
    assert!(!pair.is_free(own), "before the accept");
    pair.check_stranger_refused(own);
    server.accept(b"").unwrap();
    assert!(!pair.is_free(own), "while the link is connecting");
    for _ in 0..2 {
        assert!(matches!(pair.next_event(), Some(ConnectionEvent::Connected { .. })));
        assert!(!pair.is_free(own), "while the requester may ask");
    }
    pair.check_stranger_refused(own);
    drop(client);
    assert!(matches!(pair.next_event(), Some(ConnectionEvent::Shutdown { endpoint: SERVER, .. })));
    assert!(pair.is_free(own), "the endpoint is open, but has no link");
}

/// Over shared memory, the kernel vouches for the acceptor, which needs no address once it connects.
#[test]
fn acceptor_over_shared_memory_keeps_its_address_until_the_accept() {
    for domain in ["shm", "auto"] {
        let pair = Pair::open(domain);
        let (_client, server, own) = pair.open_acceptor();
        assert!(!pair.is_free(own), "{domain}");
        pair.check_stranger_refused(own);
        server.accept(b"").unwrap();
        assert!(pair.is_free(own), "{domain}");
        for _ in 0..2 {
            assert!(matches!(pair.next_event(), Some(ConnectionEvent::Connected { .. })), "{domain}");
        }
    }
}

#[test]
fn acceptor_releases_its_address_if_the_requester_is_gone() {
    for domain in ["tcp", "shm", "auto"] {
        let pair = Pair::open(domain);
        let (client, server, own) = pair.open_acceptor();
        drop(client);
        server.accept(b"").unwrap();
        assert_eq!(pair.next_event(), None, "an error");
        let failed = pair.eq.read_error().expect("the error of the acceptor");
        assert_eq!((failed.object, failed.errno), (SERVER, Errno::ECONNABORTED), "{domain}");
        assert!(pair.is_free(own), "{domain}");
    }
}
