//! Hand-made peers, which can send anything to an endpoint.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU16, Ordering};

use homespun_engine::address::Address;
use homespun_engine::wire::hello::{Hello, VERSION};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, connect,
    listen, recvmsg, sendmsg, socket_with,
};

/// The size of a ring's segment.
pub(crate) const SEGMENT_BYTES: u64 = 192 + 512 * 64 + (256 + 8) * 1024;

/// The most descriptors that a message of these tests carries.
const FDS_MAX: usize = 16;

/// The control socket of a handwritten peer.
#[derive(Debug)]
pub(crate) struct RawSocket(pub(crate) OwnedFd);

/// A message of an endpoint, with its descriptors.
#[derive(Debug)]
pub(crate) struct RawMessage {
    pub(crate) bytes: Vec<u8>,
    pub(crate) descriptors: Vec<OwnedFd>,
}

/// An address without an endpoint. The port is new in this process. It is outside the dynamic range, so no
/// endpoint at port 0 gets it.
pub(crate) fn vacant_address() -> Address {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let port = 1024 + (std::process::id() % 4096) as u16 * 8 + NEXT.fetch_add(1, Ordering::Relaxed);
    SocketAddr::from((Ipv4Addr::new(127, 0, 0, 3), port)).into()
}

/// The name of the endpoint at an address that speaks this version of the protocol.
fn socket_name(version: u16, address: Address) -> SocketAddrUnix {
    let name = format!("homespun/shm/{version}/{}", address.socket_addr());
    SocketAddrUnix::new_abstract_name(name.as_bytes()).expect("short enough")
}

fn open_socket() -> OwnedFd {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).expect("a socket")
}

/// Listens at the address of an endpoint. The kernel lets `backlog + 1` connections wait.
pub(crate) fn listen_at(address: Address, backlog: i32) -> OwnedFd {
    listen_with_version(VERSION, address, backlog)
}

/// As [`listen_at`], at the address of an endpoint that speaks this version of the protocol.
pub(crate) fn listen_with_version(version: u16, address: Address, backlog: i32) -> OwnedFd {
    let socket = open_socket();
    bind(&socket, &socket_name(version, address)).expect("the address is vacant");
    listen(&socket, backlog).expect("the socket is bound");
    socket
}

/// Accepts a connection, if one is waiting.
pub(crate) fn try_accept(listener: impl AsFd) -> Option<RawSocket> {
    accept_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK).ok().map(RawSocket)
}

impl RawSocket {
    pub(crate) fn connect(to: Address) -> RawSocket {
        let socket = open_socket();
        connect(&socket, &socket_name(VERSION, to)).expect("an endpoint is there");
        RawSocket(socket)
    }

    /// Sends any message. The message is lost if the endpoint has already ended the link.
    pub(crate) fn send(&self, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() {
            assert!(ancillary.push(SendAncillaryMessage::ScmRights(descriptors)), "too many");
        }
        match sendmsg(&self.0, &[IoSlice::new(bytes)], &mut ancillary, SendFlags::NOSIGNAL) {
            Ok(_) | Err(rustix::io::Errno::PIPE | rustix::io::Errno::CONNRESET) => {}
            Err(error) => panic!("{error}"),
        }
    }

    /// The next message of the endpoint, if there is one. The message is empty if the endpoint has hung up.
    pub(crate) fn try_receive(&self) -> Option<RawMessage> {
        let mut bytes = [0; 256];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut into = [IoSliceMut::new(&mut bytes)];
        let count = match recvmsg(&self.0, &mut into, &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
            Ok(received) => received.bytes,
            Err(rustix::io::Errno::AGAIN) => return None,
            Err(_) => 0,
        };
        let mut descriptors = Vec::new();
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = message {
                descriptors.extend(rights);
            }
        }
        Some(RawMessage { bytes: bytes[..count].to_vec(), descriptors })
    }
}

/// A greeting of an endpoint at this address.
pub(crate) fn encode_greeting(address: Address, instance: u64) -> Vec<u8> {
    let cookie = [16_u64, 7].map(u64::to_le_bytes).concat();
    [Hello { address, instance }.to_bytes().as_slice(), &cookie].concat()
}

/// An anonymous file.
pub(crate) fn make_memfd(len_bytes: u64, seals: SealFlags) -> OwnedFd {
    let file = memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).expect("memory");
    ftruncate(&file, len_bytes).expect("room");
    fcntl_add_seals(&file, seals).expect("a file that allows seals");
    file
}

/// An empty ring, as a correct peer creates it.
pub(crate) fn make_ring_memfd() -> OwnedFd {
    make_memfd(SEGMENT_BYTES, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)
}

pub(crate) fn make_doorbell() -> OwnedFd {
    eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).expect("a descriptor")
}
