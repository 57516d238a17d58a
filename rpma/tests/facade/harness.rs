//! What the tests have in common: peers over a transport, connected pairs, and memory.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU8, Ordering};

use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

use crate::prelude::*;

/// How long a test waits for something that must come.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A transport under test.
pub(crate) struct Net {
    domain: DomainName,
}

impl Net {
    pub(crate) fn new(domain: DomainName) -> Net {
        Net { domain }
    }

    pub(crate) fn open_peer(&self) -> Peer {
        self.open_peer_with(PeerAttr::default().format)
    }

    pub(crate) fn open_peer_with(&self, format: AddressFormat) -> Peer {
        Peer::open(&PeerAttr { domain: self.domain, format }).expect("the domain is offered")
    }
}

/// Two connected peers.
pub(crate) struct Pair {
    pub(crate) client: Connection,
    pub(crate) server: Connection,
    pub(crate) client_peer: Peer,
    pub(crate) server_peer: Peer,
}

impl Pair {
    /// Connects two peers with the default configuration.
    pub(crate) fn connect(net: &Net) -> Pair {
        Pair::connect_with(net, &ConnectionConfig::default(), &ConnectionConfig::default())
    }

    pub(crate) fn connect_with(net: &Net, client: &ConnectionConfig, server: &ConnectionConfig) -> Pair {
        let (client_peer, server_peer) = (net.open_peer(), net.open_peer());
        let endpoint = listen(&server_peer);
        let client = request(&client_peer, &endpoint, Some(client)).connect(b"").expect("a valid request");
        let server = next_request(&endpoint, Some(server)).connect(b"").expect("a request that waits");
        expect_event(&server, ConnectionEvent::Established);
        expect_event(&client, ConnectionEvent::Established);
        Pair { client, server, client_peer, server_peer }
    }

    /// Connects two peers with queues for many operations.
    pub(crate) fn connect_deep(net: &Net) -> Pair {
        Pair::connect_with(net, &deep_config(), &deep_config())
    }
}

/// Returns a configuration with queues for many operations.
pub(crate) fn deep_config() -> ConnectionConfig {
    ConnectionConfig {
        completion_queue_size: 100,
        send_queue_size: 100,
        receive_queue_size: 100,
        ..ConnectionConfig::default()
    }
}

/// Listens at a port that the system chooses.
pub(crate) fn listen(peer: &Peer) -> Endpoint {
    Endpoint::listen(peer, "127.0.0.1", 0).expect("an address of this host")
}

/// Prepares a request to an endpoint. It waits as long as a test does, since the machine may be busy.
pub(crate) fn request(
    peer: &Peer,
    endpoint: &Endpoint,
    config: Option<&ConnectionConfig>,
) -> ConnectionRequest {
    let config = config.cloned().unwrap_or_default();
    request_with_timeout(peer, endpoint, &config, PATIENCE)
}

/// Prepares a request that waits no longer than `timeout` for its answer.
pub(crate) fn request_with_timeout(
    peer: &Peer,
    endpoint: &Endpoint,
    config: &ConnectionConfig,
    timeout: Duration,
) -> ConnectionRequest {
    let config = ConnectionConfig { timeout, ..config.clone() };
    let address = endpoint.address();
    ConnectionRequest::new(peer, &address.ip().to_string(), address.port(), Some(&config))
        .expect("a valid address")
}

/// Waits until the request of `client` can be read, or is given up.
pub(crate) fn next_request_unless_given_up(
    endpoint: &Endpoint,
    client: &Connection,
    private_data: &[u8],
) -> Option<ConnectionRequest> {
    set_nonblocking(endpoint.fd());
    while !is_readable(client.event_fd()) {
        match endpoint.next_connection_request(None) {
            Ok(request) if request.private_data() == private_data => return Some(request),
            _ => thread::yield_now(),
        }
    }
    None
}

/// Waits for the next request.
#[track_caller]
pub(crate) fn next_request(endpoint: &Endpoint, config: Option<&ConnectionConfig>) -> ConnectionRequest {
    set_nonblocking(endpoint.fd());
    loop {
        match endpoint.next_connection_request(config) {
            Err(Error::NoEvent) => wait_readable(endpoint.fd()),
            request => return request.expect("a request with a valid configuration"),
        }
    }
}

#[track_caller]
pub(crate) fn expect_event(connection: &Connection, expected: ConnectionEvent) {
    wait_readable(connection.event_fd());
    assert_eq!(connection.next_event(), Ok(expected));
}

/// Waits for the next completion, on the descriptor of the queue.
#[track_caller]
pub(crate) fn next_completion(queue: &CompletionQueue) -> Completion {
    loop {
        match queue.next() {
            Err(Error::NoCompletion) => wait_readable(queue.fd().expect("a descriptor")),
            completion => return completion.expect("a queue has no other errors"),
        }
    }
}

/// Waits for the next completion, and checks that it has succeeded.
#[track_caller]
pub(crate) fn expect_success(queue: &CompletionQueue, op: Operation, op_context: u64) -> Completion {
    let completion = next_completion(queue);
    assert_eq!(
        (completion.status, completion.op, completion.op_context),
        (Status::Success, op, op_context),
        "{completion:?}"
    );
    completion
}

/// Waits for the next completion, and checks that it has failed.
#[track_caller]
pub(crate) fn expect_failure(queue: &CompletionQueue, status: Status, op_context: u64) {
    let completion = next_completion(queue);
    assert_eq!((completion.status, completion.op_context), (status, op_context), "{completion:?}");
}

#[track_caller]
pub(crate) fn expect_no_completion(queue: &CompletionQueue) {
    assert_eq!(queue.next(), Err(Error::NoCompletion));
}

/// Waits until a descriptor is readable.
#[track_caller]
pub(crate) fn wait_readable(descriptor: BorrowedFd<'_>) {
    assert!(is_readable_within(descriptor, PATIENCE), "nothing has come");
    // An epoll(7) is readable if its descriptor is.
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).expect("an epoll");
    let anything = epoll::EventData::new_u64(0);
    epoll::add(&epoll, descriptor, anything, epoll::EventFlags::IN).expect("a descriptor that it takes");
    assert!(is_readable(epoll.as_fd()), "epoll(7) does not see it");
}

pub(crate) fn is_readable(descriptor: BorrowedFd<'_>) -> bool {
    is_readable_within(descriptor, Duration::ZERO)
}

pub(crate) fn is_readable_within(descriptor: BorrowedFd<'_>, at_most: Duration) -> bool {
    let at_most = Timespec::try_from(at_most).expect("not so long");
    poll(&mut [PollFd::new(&descriptor, PollFlags::IN)], Some(&at_most)).expect("a descriptor") > 0
}

pub(crate) fn set_nonblocking(descriptor: BorrowedFd<'_>) {
    let flags = fcntl_getfl(descriptor).expect("a descriptor");
    fcntl_setfl(descriptor, flags | OFlags::NONBLOCK).expect("a descriptor");
}

/// Memory, and its region.
pub(crate) struct Memory {
    /// Dropped before the memory.
    region: MemoryRegion,
    bytes: *mut [u8],
}

// SAFETY: the object is an address; its methods access single bytes, and a test lets no two threads change
// the same bytes.
unsafe impl Send for Memory {}
// SAFETY: as for `Send`.
unsafe impl Sync for Memory {}

impl Memory {
    /// Registers memory of zeros.
    pub(crate) fn zeroed(peer: &Peer, size_bytes: usize, usage: Usage) -> Memory {
        // Aligned to 8 bytes, for atomic writes.
        let words: Box<[u64]> = vec![0; size_bytes.div_ceil(8)].into();
        let address = Box::into_raw(words).cast::<u8>();
        // SAFETY: the memory is leaked, so it stays, and only this object uses it besides the operations.
        let region = unsafe { MemoryRegion::register(peer, address, size_bytes, usage) };
        let bytes = std::ptr::slice_from_raw_parts_mut(address, size_bytes);
        Memory { region: region.expect("a valid region"), bytes }
    }

    /// Registers memory with this content.
    pub(crate) fn with(peer: &Peer, content: &[u8], usage: Usage) -> Memory {
        let memory = Memory::zeroed(peer, content.len().max(1), usage);
        memory.write(0, content);
        memory
    }

    /// Registers the same memory once more.
    pub(crate) fn register_again(&self, peer: &Peer, usage: Usage) -> MemoryRegion {
        // SAFETY: as for the first region.
        let region = unsafe { MemoryRegion::register(peer, self.bytes.cast(), self.bytes.len(), usage) };
        region.expect("a valid region")
    }

    pub(crate) fn region(&self) -> &MemoryRegion {
        &self.region
    }

    pub(crate) fn slice(&self, offset_bytes: usize, len_bytes: usize) -> LocalSlice<'_> {
        self.region.slice(offset_bytes, len_bytes).expect("a range of the region")
    }

    pub(crate) fn all(&self) -> LocalSlice<'_> {
        self.region.as_slice()
    }

    /// Returns the region as a peer sees it, by way of its descriptor.
    pub(crate) fn remote(&self) -> RemoteMemoryRegion {
        RemoteMemoryRegion::from_descriptor(&self.region.descriptor()).expect("a descriptor")
    }

    pub(crate) fn write(&self, offset_bytes: usize, content: &[u8]) {
        assert!(offset_bytes + content.len() <= self.bytes.len());
        for (index, byte) in content.iter().enumerate() {
            // SAFETY: the index lies in the memory, which no operation uses at this time.
            unsafe { self.bytes.cast::<u8>().add(offset_bytes + index).write_volatile(*byte) };
        }
    }

    pub(crate) fn read(&self, offset_bytes: usize, len_bytes: usize) -> Vec<u8> {
        assert!(offset_bytes + len_bytes <= self.bytes.len());
        let byte = |index| {
            // SAFETY: the index lies in the memory. Peers may change the byte, so it is read atomically.
            let byte = unsafe { AtomicU8::from_ptr(self.bytes.cast::<u8>().add(offset_bytes + index)) };
            byte.load(Ordering::Relaxed)
        };
        (0..len_bytes).map(byte).collect()
    }
}

/// Returns bytes that differ by their place and by `identity`.
pub(crate) fn payload(identity: u64, len_bytes: usize) -> Vec<u8> {
    (0..len_bytes as u64)
        .map(|index| (index.wrapping_mul(0x9e37_79b9).wrapping_add(identity * 101) >> 5) as u8)
        .collect()
}
