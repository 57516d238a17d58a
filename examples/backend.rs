//! A backend in some two hundred lines: endpoints of one process that reach each other over channels.
//!
//! ```text
//! cargo run --example backend
//! ```
//!
//! It shows what somebody who writes a backend has to do. A [`Provider`] opens a [`Transport`] for each endpoint, a
//! transport makes links, and a link carries frames both ways:
//!
//! ```text
//!   connect --> the door of the other endpoint     a link has two ends; one is handed in there
//!   send    --> channel --> receive                in parcels, so that a long frame needs no buffer of its length
//!   close   --> the channels are dropped           the other end reads what is in them, and then why they were
//! ```
//!
//! Two things it leaves to the defaults of the trait: it has to be polled ([`Transport::wake_fd`], [`Transport::arm`]), and
//! no peer can fetch payload from where it lies ([`Transport::expose`], [`Transport::pull`]).
//!
//! `tests/backend.rs` holds it against the contract of a transport in one line, as you would yours. The semantic suite in
//! `tests/` runs over it as well.

#![expect(clippy::print_stdout, reason = "an example says what happened")]

use std::collections::{BTreeMap, VecDeque};
use std::io::IoSlice;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::mpsc::{Receiver, Sender, SyncSender, TryRecvError, channel, sync_channel};
use std::sync::{Arc, OnceLock};

use homespun::flags::{BindFlags, InfoFlags};
use homespun::info::Info;
use homespun::{
    Address, AddressFormat, AvAttr, Buffer, Bytes, BytesMut, CqAttr, Errno, Error, Fabric, FabricAddress,
    ReadError,
};
use homespun_engine::limits::MESSAGE_MAX_BYTES;
use homespun_engine::link_table::LinkTable;
use homespun_engine::transport::{
    self, Close, Full, LinkCaps, LinkError, LinkEvent, LinkId, Provider, ProviderAttr, Sent, Transport,
};
use homespun_engine::wire::Header;
use parking_lot::Mutex;

/// How many parcels a link holds in each direction before it is full.
const LINK_DEPTH_PARCELS: usize = 64;

/// The most payload that a parcel holds.
const PARCEL_MAX_BYTES: usize = 16 * 1024;

/// Where ports begin that nobody has asked for.
const FIRST_PORT: u16 = 49_152;

/// Opens endpoints that reach each other over channels. Clones open endpoints for the same neighbourhood.
#[derive(Debug, Clone, Default)]
pub(crate) struct ChannelProvider {
    doors: Arc<Mutex<Doors>>,
}

/// Where a link to an endpoint is handed in, by the endpoint's address.
type Doors = BTreeMap<Address, Sender<Link>>;

/// What travels on a link.
#[derive(Debug)]
enum Parcel {
    /// What either side says first: its address and its instance.
    Hello(Address, u64),
    /// A frame, or as much of it as a parcel holds.
    Start(Header, Vec<u8>),
    /// More of that frame.
    More(Vec<u8>),
}

/// One end of a link.
#[derive(Debug)]
struct Link {
    outbound: SyncSender<Parcel>,
    inbound: Receiver<Parcel>,
    /// Whether a frame was taken in part. Nothing else may be sent then but the rest of it.
    is_mid_frame: bool,
    /// Why the link ended, if it is not just lost. Both ends have this; who ends the link says so before dropping its own.
    end: Arc<OnceLock<LinkError>>,
}

/// One endpoint.
#[derive(Debug)]
pub(crate) struct ChannelTransport {
    doors: Arc<Mutex<Doors>>,
    address: Address,
    instance: u64,
    /// Links that others have made.
    callers: Receiver<Link>,
    links: LinkTable<Link>,
    /// How many looks at links there were: whose turn it is next.
    looks: usize,
}

impl ChannelProvider {
    /// A neighbourhood with nobody in it.
    pub(crate) fn new() -> ChannelProvider {
        ChannelProvider::default()
    }
}

impl Provider for ChannelProvider {
    type Transport = ChannelTransport;

    /// Everything that `getinfo` says about the domain follows from this.
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
        // A wildcard will do to bind to, but others need an address that they can connect to.
        let ip = match bind.ip() {
            ip if !ip.is_unspecified() => ip,
            IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        };
        let mut doors = self.doors.lock();
        let ports = if bind.port() == 0 { FIRST_PORT..=u16::MAX } else { bind.port()..=bind.port() };
        let mut addresses = ports.map(|port| Address::from(SocketAddr::new(ip, port)));
        let address = addresses.find(|address| !doors.contains_key(address)).ok_or(Errno::EADDRINUSE)?;
        let (door, callers) = channel();
        doors.insert(address, door);
        let (doors, links) = (self.doors.clone(), LinkTable::default());
        Ok(ChannelTransport { doors, address, instance, callers, links, looks: 0 })
    }
}

impl Transport for ChannelTransport {
    fn address(&self) -> Address {
        self.address
    }

    fn caps(&self, _: LinkId) -> LinkCaps {
        LinkCaps { inline_max_bytes: PARCEL_MAX_BYTES, pull_min_bytes: usize::MAX }
    }

    /// To connect cannot fail. Where nobody takes the other end of the link, the next `receive` finds it dropped.
    fn connect(&mut self, to: Address) -> LinkId {
        let [ours, theirs] = Link::pair();
        let end = ours.end.clone();
        // The hello goes in before anybody can look for it.
        let id = self.begin(ours);
        let is_taken = self.doors.lock().get(&to).is_some_and(|door| door.send(theirs).is_ok());
        if !is_taken {
            end.get_or_init(|| LinkError::System(Errno::ECONNREFUSED));
        }
        id
    }

    /// What is small enough fits into one parcel, and so is taken in whole or not at all.
    fn send_inline(&mut self, link: LinkId, header: &Header, payload: &[u8]) -> Result<(), Full> {
        if self.send(link, header, &[IoSlice::new(payload)]) == Sent::Whole { Ok(()) } else { Err(Full) }
    }

    /// Takes as much as there is room for. The engine keeps the payload, and comes back with the rest.
    fn send(&mut self, link: LinkId, header: &Header, payload: &[IoSlice<'_>]) -> Sent {
        let link = self.links.get_mut(link).filter(|link| !link.is_mid_frame);
        let Some(link) = link else { return Sent::Full };
        let first = cut(payload, 0);
        let first_bytes = first.len();
        // A link whose other end is gone counts as full until `receive` reports it.
        if link.outbound.try_send(Parcel::Start(*header, first)).is_err() {
            return Sent::Full;
        }
        link.send_rest(payload, first_bytes)
    }

    fn resume(&mut self, link: LinkId, rest: &[IoSlice<'_>]) -> Sent {
        self.links.get_mut(link).map_or(Sent::Full, |link| link.send_rest(rest, 0))
    }

    /// Nothing is held back: what was taken is in the channel.
    fn flush(&mut self) {}

    /// Takes one parcel from each link in turn, and goes on where it stopped the last time, so that no link has to wait for
    /// ever for a busy one. A backend for thousands of links would keep a list of those that have something.
    fn receive(&mut self, budget_frames: u32, receiver: &mut impl transport::FrameHandler) -> u32 {
        let mut reported = 0;
        while reported < budget_frames
            && let Ok(link) = self.callers.try_recv()
        {
            // Its maker's hello is in it, so the link is reported in the same call that says hello back.
            let id = self.begin(link);
            reported += u32::from(self.receive_parcel(id, receiver));
        }
        let mut ids: VecDeque<LinkId> = self.links.ids().collect();
        let next = self.looks % ids.len().max(1);
        ids.rotate_left(next);
        while reported < budget_frames
            && let Some(id) = ids.pop_front()
        {
            self.looks += 1;
            if self.receive_parcel(id, receiver) {
                reported += 1;
                ids.push_back(id);
            }
        }
        reported
    }

    /// Drops this end. The other end still reads everything that was taken.
    fn close(&mut self, link: LinkId, how: Close) {
        let Some(link) = self.links.remove(link) else { return };
        if how == Close::Drain && !link.is_mid_frame {
            link.end.get_or_init(|| LinkError::Closed);
        }
    }

    /// Leaves a door that leads nowhere: the address is not free before the endpoint is gone.
    fn stop_accepting(&mut self) {
        self.callers = channel().1;
    }

    /// What was taken needs this endpoint no more.
    fn draining(&self) -> usize {
        0
    }
}

impl ChannelTransport {
    /// Enters a link, and says hello on it.
    fn begin(&mut self, link: Link) -> LinkId {
        // A new channel has room. Whether anybody listens is for `receive` to find out.
        let _ = link.outbound.try_send(Parcel::Hello(self.address, self.instance));
        self.links.insert(link)
    }

    /// Reports what a link brings next. Returns whether it brought anything.
    fn receive_parcel(&mut self, id: LinkId, receiver: &mut impl transport::FrameHandler) -> bool {
        let Some(link) = self.links.get(id) else { return false };
        match link.inbound.try_recv() {
            Ok(Parcel::Hello(peer, instance)) => receiver.link(id, LinkEvent::Up { peer, instance }),
            Ok(Parcel::Start(header, payload)) if payload.len() as u64 == header.payload_len_bytes() => {
                receiver.frame(id, &header, &payload);
            }
            Ok(Parcel::Start(header, payload)) => {
                receiver.begin(id, &header);
                receiver.chunk(id, &payload);
            }
            Ok(Parcel::More(payload)) => receiver.chunk(id, &payload),
            Err(TryRecvError::Empty) => return false,
            Err(TryRecvError::Disconnected) => {
                let end = link.end.get_or_init(|| LinkError::System(Errno::ECONNRESET)).clone();
                self.links.remove(id);
                receiver.link(id, LinkEvent::Down(end));
            }
        }
        true
    }
}

impl Drop for ChannelTransport {
    fn drop(&mut self) {
        self.doors.lock().remove(&self.address);
    }
}

impl Link {
    /// Both ends of a link.
    fn pair() -> [Link; 2] {
        let (there, back) = (sync_channel(LINK_DEPTH_PARCELS), sync_channel(LINK_DEPTH_PARCELS));
        let end = Arc::new(OnceLock::new());
        [(there.0, back.1), (back.0, there.1)].map(|(outbound, inbound)| Link {
            outbound,
            inbound,
            is_mid_frame: false,
            end: end.clone(),
        })
    }

    /// Sends what is left of a frame, as far as there is room: the payload but for the bytes that were taken before.
    fn send_rest(&mut self, payload: &[IoSlice<'_>], mut taken_bytes: usize) -> Sent {
        loop {
            let piece = cut(payload, taken_bytes);
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

/// A copy of payload from an offset on, as much as a parcel holds.
fn cut(payload: &[IoSlice<'_>], mut skip_bytes: usize) -> Vec<u8> {
    let mut piece = Vec::new();
    for slice in payload {
        let rest = &slice[skip_bytes.min(slice.len())..];
        skip_bytes -= slice.len() - rest.len();
        piece.extend_from_slice(&rest[..rest.len().min(PARCEL_MAX_BYTES - piece.len())]);
    }
    piece
}

/// Sends two messages over the backend. All of it is what an application does over any backend, but for the first line.
pub(crate) fn main() -> Result<(), Error> {
    let fabric = Fabric::new().with_provider(ChannelProvider::new());
    let mut hints = Info::default();
    hints.domain.name = Some("channel".into());
    let info = &fabric.getinfo(None, None, InfoFlags::empty(), Some(&hints))?[0];
    let domain = fabric.domain(info)?;
    let cq = domain.open_cq(&CqAttr::default())?;
    let av = domain.open_av(&AvAttr::default())?;
    let open_endpoint = || {
        let endpoint = domain.endpoint(info)?;
        endpoint.bind_cq(&cq, BindFlags::TRANSMIT | BindFlags::RECV)?;
        endpoint.bind_av(&av)?;
        endpoint.enable()?;
        Ok::<_, Error>(endpoint)
    };
    let (alice, bob) = (open_endpoint()?, open_endpoint()?);
    println!("alice is at {}, bob at {}", alice.name()?, bob.name()?);
    let to_bob = av.insert_one(bob.name()?)?;

    // The second message is longer than what a link holds, and is taken in parts.
    let long = vec![7; 4 * LINK_DEPTH_PARCELS * PARCEL_MAX_BYTES];
    for message in [Bytes::from_static(b"hello"), Bytes::from(long)] {
        bob.recv(BytesMut::zeroed(message.len()), FabricAddress::UNSPECIFIED, 1)?;
        alice.send(message.clone(), to_bob, 2)?;
        // Reading the queue is what moves messages, at both endpoints since both report to it.
        let received = loop {
            match cq.read().map(|completion| completion.buffer) {
                Ok(Buffer::Received(received)) => break received,
                Ok(_) | Err(ReadError::Empty) => {}
                Err(error) => panic!("{error}: {:?}", cq.read_error()),
            }
        };
        assert_eq!(received, message);
        println!("bob has received {} bytes from alice", received.len());
    }
    Ok(())
}
