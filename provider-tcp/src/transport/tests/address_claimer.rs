//! Strangers that claim the address of an endpoint, and what their tests need.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use homespun_engine::address::Address;
use homespun_engine::transport::Transport;
use homespun_engine::wire::address_claim::{ClaimRecord, ClaimStatus};
use homespun_engine::wire::frame::{self, HEADER_MAX_BYTES};
use homespun_engine::wire::hello::{HELLO_BYTES, Hello};
use socket2::{Domain, Socket, Type};

use crate::TcpProvider;
use crate::testing::{Pair, Side, drive_until, make_message};

/// How long an endpoint of [`hasty_provider`] holds a link.
const SHORT_HOLD: Duration = Duration::from_millis(200);

pub(super) const LOOPBACK: &str = "127.0.0.1:0";

/// A stranger that connects, and claims the address of an endpoint.
pub(super) struct AddressClaimer {
    pub(super) stream: TcpStream,
    pub(super) received: Vec<u8>,
}

impl AddressClaimer {
    pub(super) fn connect(to: &Side) -> AddressClaimer {
        AddressClaimer::connect_from(LOOPBACK, to)
    }

    /// Connects from this address of loopback. Addresses with different IP addresses count as hosts.
    pub(super) fn connect_from(source: &str, to: &Side) -> AddressClaimer {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        let source: SocketAddr = source.parse().unwrap();
        socket.bind(&source.into()).unwrap();
        socket.connect(&to.transport.address().socket_addr().into()).unwrap();
        let stream = TcpStream::from(socket);
        stream.set_nonblocking(true).unwrap();
        AddressClaimer { stream, received: Vec::new() }
    }

    /// Connects, claims an address, and sends a frame.
    pub(super) fn claim(to: &Side, address: Address, instance: u64) -> AddressClaimer {
        let mut hostile = AddressClaimer::connect(to);
        hostile.say_hello(address, instance);
        hostile.send(&encode_frame());
        hostile
    }

    pub(super) fn say_hello(&mut self, address: Address, instance: u64) {
        self.send(&Hello { address, instance }.to_bytes());
    }

    pub(super) fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    /// Reads what has arrived. Returns whether the connection has ended.
    pub(super) fn read(&mut self) -> bool {
        let mut buffer = [0; 1024];
        loop {
            match self.stream.read(&mut buffer) {
                Ok(0) => return true,
                Ok(count) => self.received.extend(&buffer[..count]),
                Err(error) => return error.kind() != ErrorKind::WouldBlock,
            }
        }
    }

    /// The records that have arrived after a hello.
    pub(super) fn records(&mut self) -> Vec<ClaimRecord> {
        self.read();
        let (records, _) = self.received.get(HELLO_BYTES..).unwrap_or_default().as_chunks();
        records.iter().map(|bytes| ClaimRecord::parse(bytes).unwrap()).collect()
    }

    pub(super) fn has(&mut self, status: ClaimStatus) -> bool {
        self.records().iter().any(|record| record.status == status)
    }
}

/// Returns an address at which no socket listens, another one each time. Only this function hands out
/// addresses with this IP address.
pub(super) fn vacant_address() -> Address {
    // The kernel might choose a port twice. Then two strangers would claim one address.
    static NEXT_PORT: AtomicU16 = AtomicU16::new(10_000);
    loop {
        let port = NEXT_PORT.fetch_add(1, Ordering::Relaxed);
        if let Ok(listener) = TcpListener::bind(("127.77.0.1", port)) {
            return listener.local_addr().unwrap().into();
        }
    }
}

pub(super) fn encode_frame() -> Vec<u8> {
    let mut head = [0; HEADER_MAX_BYTES];
    let head_bytes = frame::emit(&make_message(0, 666), &mut head);
    head[..head_bytes].to_vec()
}

pub(super) fn provider() -> TcpProvider {
    TcpProvider::new()
}

pub(super) fn hasty_provider() -> TcpProvider {
    TcpProvider::new().with_hold_timeout(SHORT_HOLD)
}

/// Opens two endpoints with a link whose checks are over.
pub(super) fn open_checked_pair(provider: &TcpProvider) -> Pair {
    let mut pair = Pair::open_connected(provider, LOOPBACK);
    pair.drive_until("the checks to end", |client, server| {
        !client.transport.address_claims.is_busy() && !server.transport.address_claims.is_busy()
    });
    pair
}

/// Has a stranger claim the client's address. The server holds the link, and the client makes no progress.
pub(super) fn hold_stranger(pair: &mut Pair) -> AddressClaimer {
    let mut stranger = AddressClaimer::claim(&pair.server, pair.client.transport.address(), 1);
    drive_until("a held link", &mut [&mut pair.server], |_| stranger.has(ClaimStatus::Held));
    stranger
}

/// How many links were reported and have not ended.
pub(super) fn live_count(side: &Side) -> usize {
    side.recorder.inboxes.values().filter(|inbox| inbox.up.is_some() && inbox.down.is_none()).count()
}

pub(super) fn exchange_frames(pair: &mut Pair) {
    let (out, into) = (pair.out, pair.into);
    let before = (pair.client.received_frames(out).len(), pair.server.received_frames(into).len());
    pair.client.transport.send_inline(out, &make_message(0, 1), b"").unwrap();
    pair.server.transport.send_inline(into, &make_message(0, 2), b"").unwrap();
    pair.drive_until("a frame each way", |client, server| {
        (client.received_frames(out).len(), server.received_frames(into).len())
            == (before.0 + 1, before.1 + 1)
    });
}
