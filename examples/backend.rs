//! A backend in some two hundred lines: endpoints of one process that reach each other over channels.
//!
//! ```text
//! cargo run --example backend
//! ```
//!
//! It has everything that a backend needs, and no more: it must be polled ([`Transport::wake_fd`] is left out), and
//! nothing is pulled ([`Transport::expose`] is left out). `tests/backend.rs` holds it against the contract of a transport,
//! and the suites of `tests/` run over it.

#![expect(clippy::print_stdout, reason = "an example says what happened")]

use std::collections::BTreeMap;
use std::io::IoSlice;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::mpsc::{Receiver, Sender, SyncSender, TryRecvError, TrySendError, channel, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use homespun::flags::{BindFlags, InfoFlags};
use homespun::info::Info;
use homespun::{
    Address, AddressFormat, AddressVector, AvAttr, Buffer, Bytes, BytesMut, CompletionQueue, CqAttr,
    Endpoint, Errno, Error, Fabric, FabricAddress, ReadError,
};
use homespun_engine::limits::MESSAGE_MAX_BYTES;
use homespun_engine::link_table::LinkTable;
use homespun_engine::transport::{
    self, Close, Full, LinkCaps, LinkError, LinkEvent, LinkId, Provider, ProviderAttr, Sent, Transport,
};
use homespun_engine::wire::Header;

/// How many parcels a link holds in each direction before it is full.
const LINK_DEPTH_PARCELS: usize = 64;

/// The most payload that a parcel holds; a longer frame is cut into several, so that it needs no buffer of its length.
const PARCEL_MAX_BYTES: usize = 16 * 1024;

/// Where ports begin that nobody has asked for.
const FIRST_PORT: u16 = 49_152;

/// Opens endpoints that reach each other over channels. Clones open endpoints for the same neighbourhood.
#[derive(Debug, Clone, Default)]
pub(crate) struct ChannelProvider {
    doors: Arc<Mutex<Doors>>,
}

/// The door of every endpoint, by its address; none if it is open and accepts nobody any more.
type Doors = BTreeMap<Address, Option<Sender<Caller>>>;

/// Somebody who connects: who it is, and its ends of two channels for the endpoint to keep.
#[derive(Debug)]
struct Caller {
    who: LinkEvent,
    outbound: SyncSender<Parcel>,
    inbound: Receiver<Parcel>,
}

/// What travels on a link.
#[derive(Debug)]
enum Parcel {
    /// The acceptor's answer to a connect: its instance.
    Hello(u64),
    Frame(Header, Vec<u8>),
    /// The start of a frame that is too long for one parcel; pieces of its payload follow.
    Begin(Header),
    Piece(Vec<u8>),
    /// The sender has closed in order.
    Bye,
}

/// One endpoint.
#[derive(Debug)]
pub(crate) struct ChannelTransport {
    doors: Arc<Mutex<Doors>>,
    address: Address,
    instance: u64,
    callers: Option<Receiver<Caller>>,
    links: LinkTable<Link>,
    /// Whose turn it is to be read first.
    turn: usize,
    /// Links that were closed and had no room to say so.
    draining: Vec<SyncSender<Parcel>>,
}

#[derive(Debug)]
struct Link {
    /// Whom it was connected to.
    peer: Address,
    outbound: SyncSender<Parcel>,
    inbound: Receiver<Parcel>,
    /// Whether a frame was taken in part only.
    is_mid_frame: bool,
    /// What it means if the peer's ends of the channels are dropped and it did not say bye.
    lost: Errno,
}

impl ChannelProvider {
    /// A neighbourhood with nobody in it.
    pub(crate) fn new() -> ChannelProvider {
        ChannelProvider::default()
    }
}

impl Provider for ChannelProvider {
    type Transport = ChannelTransport;

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
        let ip = match bind.ip() {
            ip if !ip.is_unspecified() => ip,
            IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        };
        let mut doors = lock(&self.doors);
        let ports = if bind.port() == 0 { FIRST_PORT..=u16::MAX } else { bind.port()..=bind.port() };
        let mut addresses = ports.map(|port| Address::from(SocketAddr::new(ip, port)));
        let address = addresses.find(|address| !doors.contains_key(address)).ok_or(Errno::EADDRINUSE)?;
        let (door, callers) = channel();
        doors.insert(address, Some(door));
        Ok(ChannelTransport {
            doors: self.doors.clone(),
            address,
            instance,
            callers: Some(callers),
            links: LinkTable::default(),
            turn: 0,
            draining: Vec::new(),
        })
    }
}

impl Transport for ChannelTransport {
    fn address(&self) -> Address {
        self.address
    }

    fn caps(&self, _: LinkId) -> LinkCaps {
        LinkCaps { inline_max_bytes: PARCEL_MAX_BYTES, pull_min_bytes: usize::MAX }
    }

    /// Where nobody listens the peer's ends of the channels are dropped here and now, and the next `receive` finds that out.
    fn connect(&mut self, to: Address) -> LinkId {
        let (outbound, peers_inbound) = sync_channel(LINK_DEPTH_PARCELS);
        let (peers_outbound, inbound) = sync_channel(LINK_DEPTH_PARCELS);
        let who = LinkEvent::Up { peer: self.address, instance: self.instance };
        let caller = Caller { who, outbound: peers_outbound, inbound: peers_inbound };
        let door = lock(&self.doors).get(&to).cloned().flatten();
        let is_heard = door.is_some_and(|door| door.send(caller).is_ok());
        let lost = if is_heard { Errno::ECONNRESET } else { Errno::ECONNREFUSED };
        self.links.insert(Link { peer: to, outbound, inbound, is_mid_frame: false, lost })
    }

    fn send_inline(&mut self, link: LinkId, header: &Header, payload: &[u8]) -> Result<(), Full> {
        match self.send(link, header, &[IoSlice::new(payload)]) {
            Sent::Whole => Ok(()),
            Sent::Full | Sent::Partial(_) => Err(Full),
        }
    }

    fn send(&mut self, link: LinkId, header: &Header, payload: &[IoSlice<'_>]) -> Sent {
        let Some(link) = self.links.get_mut(link).filter(|link| !link.is_mid_frame) else {
            return Sent::Full;
        };
        if header.payload_len_bytes() <= PARCEL_MAX_BYTES as u64 {
            let parcel = Parcel::Frame(*header, cut(payload, 0));
            return if link.outbound.try_send(parcel).is_ok() { Sent::Whole } else { Sent::Full };
        }
        if link.outbound.try_send(Parcel::Begin(*header)).is_err() {
            return Sent::Full;
        }
        link.is_mid_frame = true;
        match link.send_pieces(payload) {
            Sent::Full => Sent::Partial(0),
            sent => sent,
        }
    }

    fn resume(&mut self, link: LinkId, rest: &[IoSlice<'_>]) -> Sent {
        self.links.get_mut(link).map_or(Sent::Full, |link| link.send_pieces(rest))
    }

    /// Frames are on their way as soon as they were taken.
    fn flush(&mut self) {
        self.draining.retain(|outbound| matches!(outbound.try_send(Parcel::Bye), Err(TrySendError::Full(_))));
    }

    fn receive(&mut self, budget_frames: u32, receiver: &mut impl transport::Receiver) -> u32 {
        self.flush();
        let mut reported = 0;
        while reported < budget_frames
            && let Some(Ok(caller)) = self.callers.as_ref().map(Receiver::try_recv)
        {
            let Caller { who, outbound, inbound } = caller;
            let hello = outbound.try_send(Parcel::Hello(self.instance));
            debug_assert!(!matches!(hello, Err(TrySendError::Full(_))), "a new channel has room");
            let LinkEvent::Up { peer, .. } = who else { continue };
            let link = Link { peer, outbound, inbound, is_mid_frame: false, lost: Errno::ECONNRESET };
            receiver.link(self.links.insert(link), who);
            reported += 1;
        }
        // One parcel of each link in turn. A backend for thousands of links would list those that have something.
        let mut ids: Vec<LinkId> = self.links.ids().collect();
        let first = self.turn % ids.len().max(1);
        ids.rotate_left(first);
        while reported < budget_frames && !ids.is_empty() {
            ids.retain(|&id| {
                let has_turn = reported < budget_frames;
                let has_more = has_turn && self.read_parcel(id, receiver);
                self.turn += usize::from(has_turn);
                reported += u32::from(has_more);
                has_more
            });
        }
        reported
    }

    /// Drops the channels. A peer that was not told bye sees that the link is lost, after it has read everything.
    fn close(&mut self, link: LinkId, how: Close) {
        let Some(link) = self.links.remove(link) else { return };
        if how == Close::Drain && !link.is_mid_frame {
            self.draining.push(link.outbound);
            self.flush();
        }
    }

    fn stop_accepting(&mut self) {
        lock(&self.doors).insert(self.address, None);
        self.callers = None;
    }

    fn draining(&self) -> usize {
        self.draining.len()
    }
}

impl ChannelTransport {
    /// Reports the next thing that a link has brought. Whether there was any.
    fn read_parcel(&mut self, id: LinkId, receiver: &mut impl transport::Receiver) -> bool {
        let Some(link) = self.links.get_mut(id) else { return false };
        let end = match link.inbound.try_recv() {
            Ok(Parcel::Hello(instance)) => {
                receiver.link(id, LinkEvent::Up { peer: link.peer, instance });
                return true;
            }
            Ok(Parcel::Frame(header, payload)) => {
                receiver.frame(id, &header, &payload);
                return true;
            }
            Ok(Parcel::Begin(header)) => {
                receiver.begin(id, &header);
                return true;
            }
            Ok(Parcel::Piece(bytes)) => {
                receiver.chunk(id, &bytes);
                return true;
            }
            Err(TryRecvError::Empty) => return false,
            Ok(Parcel::Bye) => LinkError::Closed,
            Err(TryRecvError::Disconnected) => LinkError::System(link.lost),
        };
        self.links.remove(id);
        receiver.link(id, LinkEvent::Down(end));
        true
    }
}

impl Drop for ChannelTransport {
    fn drop(&mut self) {
        lock(&self.doors).remove(&self.address);
    }
}

impl Link {
    /// Sends payload of a frame that was begun, as much as there is room for.
    fn send_pieces(&mut self, payload: &[IoSlice<'_>]) -> Sent {
        let mut taken_bytes = 0;
        loop {
            let piece = cut(payload, taken_bytes);
            let piece_bytes = piece.len();
            if piece_bytes == 0 {
                self.is_mid_frame = false;
                return Sent::Whole;
            }
            if self.outbound.try_send(Parcel::Piece(piece)).is_err() {
                return if taken_bytes == 0 { Sent::Full } else { Sent::Partial(taken_bytes) };
            }
            taken_bytes += piece_bytes;
        }
    }
}

/// A copy of what a parcel holds of payload, from an offset on.
fn cut(payload: &[IoSlice<'_>], mut skip_bytes: usize) -> Vec<u8> {
    let mut piece = Vec::new();
    for slice in payload {
        let skipped_bytes = skip_bytes.min(slice.len());
        skip_bytes -= skipped_bytes;
        let rest = &slice[skipped_bytes..];
        piece.extend_from_slice(&rest[..rest.len().min(PARCEL_MAX_BYTES - piece.len())]);
    }
    piece
}

fn lock(doors: &Mutex<Doors>) -> MutexGuard<'_, Doors> {
    doors.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An endpoint over the backend, with the queue and the addresses that it needs.
struct Party {
    endpoint: Endpoint,
    cq: CompletionQueue,
    av: AddressVector,
}

impl Party {
    fn open(fabric: &Fabric, info: &Info) -> Result<Party, Error> {
        let domain = fabric.domain(info)?;
        let cq = domain.open_cq(&CqAttr::default())?;
        let av = domain.open_av(&AvAttr::default())?;
        let endpoint = domain.endpoint(info)?;
        endpoint.bind_cq(&cq, BindFlags::TRANSMIT | BindFlags::RECV)?;
        endpoint.bind_av(&av)?;
        endpoint.enable()?;
        Ok(Party { endpoint, cq, av })
    }

    /// Makes progress; returns the message that was received, if there is one.
    fn poll(&self) -> Option<BytesMut> {
        match self.cq.read() {
            Ok(completion) => match completion.buffer {
                Buffer::Received(message) => Some(message),
                _ => None,
            },
            Err(ReadError::Empty) => None,
            Err(ReadError::ErrorAvailable) => panic!("{:?}", self.cq.read_error()),
        }
    }
}

/// Sends two messages over the backend and says what became of them.
pub(crate) fn main() -> Result<(), Error> {
    let fabric = Fabric::new().with_provider(ChannelProvider::new());
    let mut hints = Info::default();
    hints.domain.name = Some("channel".into());
    let info = &fabric.getinfo(None, None, InfoFlags::empty(), Some(&hints))?[0];
    let (alice, bob) = (Party::open(&fabric, info)?, Party::open(&fabric, info)?);
    println!("alice is at {}, bob at {}", alice.endpoint.name()?, bob.endpoint.name()?);
    let to_bob = alice.av.insert(&[bob.endpoint.name()?]).remove(0)?;

    // The second does not fit into the channel; it is taken in parts.
    for message in
        [Bytes::from_static(b"hello"), Bytes::from(vec![7; 4 * LINK_DEPTH_PARCELS * PARCEL_MAX_BYTES])]
    {
        bob.endpoint.recv(BytesMut::zeroed(message.len()), FabricAddress::UNSPECIFIED, 1)?;
        alice.endpoint.send(message.clone(), to_bob, 2)?;
        let received = loop {
            alice.poll();
            if let Some(received) = bob.poll() {
                break received;
            }
        };
        assert_eq!(received, message);
        println!("bob has received {} bytes from alice", received.len());
    }
    Ok(())
}
