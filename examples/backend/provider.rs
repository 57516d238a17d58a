//! A backend in about two hundred lines. It connects endpoints of one process by channels.
//!
//! The file shows what a backend has to implement. A [`Provider`] opens a [`Transport`] for each endpoint. A
//! transport makes links. A link carries frames both ways:
//!
//! ```text
//!   connect --> the acceptor of the peer           a link has two ends; the peer's acceptor takes one
//!   send    --> channel --> receive                in parcels, so a long frame needs no buffer of its length
//!   close   --> the channels are dropped           the peer reads the remaining parcels, and then the reason
//! ```
//!
//! The backend leaves out two features, for which the trait has defaults. It does not wake a sleeping reader
//! ([`Transport::wake_fd`], [`Transport::arm`]). Its peers do not read payload from the sender's memory
//! ([`Transport::expose`], [`Transport::pull`]).
//!
//! To start your own backend, copy this file into a crate. The file needs the crate `homespun-engine`, for
//! the two traits, and the crate `parking_lot`. `tests/backend.rs` checks this backend against the contract
//! of a transport, by one call of the crate `homespun-conformance`. Check your backend in the same way. The
//! tests in `suite/src/semantics/` run over this backend, too.

use std::collections::{BTreeMap, VecDeque};
use std::io::IoSlice;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::mpsc::{Receiver, Sender, SyncSender, TryRecvError, channel, sync_channel};
use std::sync::{Arc, OnceLock};

use homespun_engine::address::{Address, AddressFormat};
use homespun_engine::errno::Errno;
use homespun_engine::limits::MESSAGE_MAX_BYTES;
use homespun_engine::link_table::LinkTable;
use homespun_engine::transport::{
    self, Close, Full, LinkCaps, LinkError, LinkEvent, LinkId, Provider, ProviderAttr, Sent, Transport,
};
use homespun_engine::wire::Header;
use parking_lot::Mutex;

/// The capacity of a link in each direction.
const LINK_DEPTH_PARCELS: usize = 64;

/// The largest payload of a parcel.
const PARCEL_MAX_BYTES: usize = 16 * 1024;

/// The first port that an endpoint without a requested port gets.
const FIRST_PORT: u16 = 49_152;

/// Opens endpoints that reach each other over channels. A clone opens endpoints of the same network.
#[derive(Debug, Clone, Default)]
pub struct ChannelProvider {
    acceptors: Arc<Mutex<Acceptors>>,
}

/// The acceptors of all endpoints, by address. A connecting endpoint keeps one end of a new link, and sends
/// the other end to its peer's acceptor.
type Acceptors = BTreeMap<Address, Sender<Link>>;

/// A message on a link.
#[derive(Debug)]
enum Parcel {
    /// The first parcel of each side: the sender's address and instance.
    Hello(Address, u64),
    /// A frame, or its first part if it is longer than a parcel.
    Start(Header, Vec<u8>),
    /// The next part of that frame.
    More(Vec<u8>),
}

/// One end of a link.
#[derive(Debug)]
struct Link {
    outbound: SyncSender<Parcel>,
    inbound: Receiver<Parcel>,
    /// Whether a frame has been sent in part. If so, only the rest of that frame may be sent.
    is_mid_frame: bool,
    /// Why the link is over. Both sides share this value. The side that closes the link sets the value
    /// before it drops its channels. Nothing sets the value of a link that is lost.
    end: Arc<OnceLock<LinkError>>,
}

/// One endpoint.
#[derive(Debug)]
pub struct ChannelTransport {
    acceptors: Arc<Mutex<Acceptors>>,
    address: Address,
    instance: u64,
    /// Links made by peers.
    incoming: Receiver<Link>,
    links: LinkTable<Link>,
    /// The number of links polled so far, which decides the next one to poll.
    polls: usize,
}

impl ChannelProvider {
    /// A network without endpoints.
    pub fn new() -> ChannelProvider {
        ChannelProvider::default()
    }
}

impl Provider for ChannelProvider {
    type Transport = ChannelTransport;

    /// The engine derives the domain's `getinfo` answers from these attributes.
    fn attr(&self) -> ProviderAttr {
        ProviderAttr {
            domain: "channel".into(),
            formats: vec![AddressFormat::SockaddrIn, AddressFormat::SockaddrIn6],
            local: true,
            remote: false,
            max_message_bytes: MESSAGE_MAX_BYTES,
        }
    }

    fn open(&self, bind: Address, instance: u64) -> Result<ChannelTransport, Errno> {
        // An endpoint may bind to a wildcard. Peers need a real address to connect to.
        let ip = match bind.ip() {
            ip if !ip.is_unspecified() => ip,
            IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        };
        let mut acceptors = self.acceptors.lock();
        let ports = if bind.port() == 0 { FIRST_PORT..=u16::MAX } else { bind.port()..=bind.port() };
        let mut addresses = ports.map(|port| Address::from(SocketAddr::new(ip, port)));
        let address = addresses.find(|address| !acceptors.contains_key(address)).ok_or(Errno::EADDRINUSE)?;
        let (acceptor, incoming) = channel();
        acceptors.insert(address, acceptor);
        let (acceptors, links) = (self.acceptors.clone(), LinkTable::default());
        Ok(ChannelTransport { acceptors, address, instance, incoming, links, polls: 0 })
    }
}

impl Transport for ChannelTransport {
    fn address(&self) -> Address {
        self.address
    }

    fn caps(&self, _: LinkId) -> LinkCaps {
        LinkCaps { inline_max_bytes: PARCEL_MAX_BYTES, pull_min_bytes: usize::MAX }
    }

    /// A connect never fails. If no endpoint accepts the link, the next `receive` finds that the link was
    /// dropped.
    fn connect(&mut self, to: Address) -> LinkId {
        let [ours, theirs] = Link::make_pair();
        let end = ours.end.clone();
        // The hello must be in the channel before the peer can look for it.
        let id = self.insert_link_and_send_hello(ours);
        let is_taken = self.acceptors.lock().get(&to).is_some_and(|acceptor| acceptor.send(theirs).is_ok());
        if !is_taken {
            end.get_or_init(|| LinkError::System(Errno::ECONNREFUSED));
        }
        id
    }

    /// A payload up to `inline_max_bytes` fits into one parcel. So the link takes all of it or nothing.
    fn send_inline(&mut self, link: LinkId, header: &Header, payload: &[u8]) -> Result<(), Full> {
        if self.send(link, header, &[IoSlice::new(payload)]) == Sent::Whole { Ok(()) } else { Err(Full) }
    }

    /// Takes as many bytes as the channel has room for. The engine keeps the payload, and later sends the
    /// rest by `resume`.
    fn send(&mut self, link: LinkId, header: &Header, payload: &[IoSlice<'_>]) -> Sent {
        let link = self.links.get_mut(link).filter(|link| !link.is_mid_frame);
        let Some(link) = link else { return Sent::Full };
        let first = copy_parcel(payload, 0);
        let first_bytes = first.len();
        // If the other end is gone, the link counts as full until `receive` reports that it is down.
        if link.outbound.try_send(Parcel::Start(*header, first)).is_err() {
            return Sent::Full;
        }
        link.send_rest(payload, first_bytes)
    }

    fn resume(&mut self, link: LinkId, rest: &[IoSlice<'_>]) -> Sent {
        self.links.get_mut(link).map_or(Sent::Full, |link| link.send_rest(rest, 0))
    }

    /// Does nothing, since the channels already hold all accepted frames.
    fn flush(&mut self) {}

    /// Receives one parcel from each link in turn. A call starts behind the link at which the last call
    /// stopped, so a busy link does not starve the others. A backend for thousands of links would list the
    /// active ones.
    fn receive(&mut self, budget_frames: u32, receiver: &mut impl transport::FrameHandler) -> u32 {
        let mut reported = 0;
        while reported < budget_frames
            && let Ok(link) = self.incoming.try_recv()
        {
            // The channel of a new link holds the peer's hello. Receive it now: the link of an endpoint that
            // has closed meanwhile must come up before a link to the next endpoint at its address.
            let id = self.insert_link_and_send_hello(link);
            reported += u32::from(self.receive_parcel(id, receiver));
        }
        let mut ids: VecDeque<LinkId> = self.links.ids().collect();
        let next = self.polls % ids.len().max(1);
        ids.rotate_left(next);
        while reported < budget_frames
            && let Some(id) = ids.pop_front()
        {
            self.polls += 1;
            if self.receive_parcel(id, receiver) {
                reported += 1;
                ids.push_back(id);
            }
        }
        reported
    }

    /// Drops this end. The other end still reads all accepted frames.
    fn close(&mut self, link: LinkId, how: Close) {
        let Some(link) = self.links.remove(link) else { return };
        if how == Close::Drain && !link.is_mid_frame {
            link.end.get_or_init(|| LinkError::Closed);
        }
    }

    /// Drops the receiver of new links, but keeps the acceptor. So the address stays in use until the
    /// endpoint is dropped.
    fn stop_accepting(&mut self) {
        self.incoming = channel().1;
    }

    /// Returns 0, since accepted frames no longer need this endpoint.
    fn draining_count(&self) -> usize {
        0
    }
}

impl ChannelTransport {
    /// Adds a link, and sends the hello on it.
    fn insert_link_and_send_hello(&mut self, link: Link) -> LinkId {
        // A new channel has room. If the peer is gone, `receive` finds out.
        let _ = link.outbound.try_send(Parcel::Hello(self.address, self.instance));
        self.links.insert(link)
    }

    /// Reports the next parcel of a link. Returns whether there was one.
    fn receive_parcel(&mut self, id: LinkId, receiver: &mut impl transport::FrameHandler) -> bool {
        let Some(link) = self.links.get(id) else { return false };
        match link.inbound.try_recv() {
            Ok(Parcel::Hello(peer, instance)) => receiver.link_event(id, LinkEvent::up(peer, instance)),
            Ok(Parcel::Start(header, payload)) if payload.len() as u64 == header.payload_len_bytes() => {
                receiver.frame(id, &header, &payload);
            }
            Ok(Parcel::Start(header, payload)) => {
                receiver.frame_begun(id, &header);
                receiver.payload_arrived(id, &payload);
            }
            Ok(Parcel::More(payload)) => receiver.payload_arrived(id, &payload),
            Err(TryRecvError::Empty) => return false,
            Err(TryRecvError::Disconnected) => {
                let end = link.end.get_or_init(|| LinkError::System(Errno::ECONNRESET)).clone();
                self.links.remove(id);
                receiver.link_event(id, LinkEvent::Down(end));
            }
        }
        true
    }
}

impl Drop for ChannelTransport {
    fn drop(&mut self) {
        self.acceptors.lock().remove(&self.address);
    }
}

impl Link {
    /// The two ends of a new link.
    fn make_pair() -> [Link; 2] {
        let (there, back) = (sync_channel(LINK_DEPTH_PARCELS), sync_channel(LINK_DEPTH_PARCELS));
        let end = Arc::new(OnceLock::new());
        [(there.0, back.1), (back.0, there.1)].map(|(outbound, inbound)| Link {
            outbound,
            inbound,
            is_mid_frame: false,
            end: end.clone(),
        })
    }

    /// Sends the payload without its first `taken_bytes`, as far as there is room.
    fn send_rest(&mut self, payload: &[IoSlice<'_>], mut taken_bytes: usize) -> Sent {
        loop {
            let piece = copy_parcel(payload, taken_bytes);
            let piece_bytes = piece.len();
            self.is_mid_frame = piece_bytes > 0;
            if !self.is_mid_frame {
                return Sent::Whole;
            }
            if self.outbound.try_send(Parcel::More(piece)).is_err() {
                return if taken_bytes == 0 { Sent::Full } else { Sent::Partial(taken_bytes) };
            }
            taken_bytes += piece_bytes;
        }
    }
}

/// A copy of the payload from an offset on, at most one parcel.
fn copy_parcel(payload: &[IoSlice<'_>], mut skip_bytes: usize) -> Vec<u8> {
    let mut piece = Vec::new();
    for slice in payload {
        let rest = &slice[skip_bytes.min(slice.len())..];
        skip_bytes -= slice.len() - rest.len();
        piece.extend_from_slice(&rest[..rest.len().min(PARCEL_MAX_BYTES - piece.len())]);
    }
    piece
}
