//! Control sockets: the UNIX sockets over which two processes connect. Each process checks the peer's user,
//! passes its ring to the peer, and notices when the peer ends.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use homespun_engine::address::Address;
use homespun_engine::errno::Errno;
use homespun_engine::fork::CloseOnFork;
use homespun_engine::transport::{Denial, LinkError};
use homespun_engine::wire::hello::{self, HELLO_BYTES, Hello, VERSION};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::set_socket_passcred;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, Shutdown, SocketFlags, SocketType, connect, recvmsg, send, sendmsg,
    shutdown, socket_with,
};

use crate::cookie::CookieLocation;
use crate::descriptors::PassedDescriptors;
use crate::greeting::{self, GREETING_BYTES, Greeting};
use crate::name::{self, NameKind};
use crate::sys::{self, Credentials};

/// A greeting and the two descriptors that accompany it: of the sender's ring, and of the doorbell that the
/// sender rings to wake this side.
pub(crate) struct ReceivedGreeting {
    pub(crate) greeting: Greeting,
    pub(crate) ring: OwnedFd,
    pub(crate) doorbell: OwnedFd,
}

/// How many descriptors accompany a greeting.
const GREETING_FDS: usize = 2;

/// How many descriptors may accompany a message (`SCM_MAX_FD` in the kernel).
const MESSAGE_MAX_FDS: usize = 253;

/// The result of reading a control socket.
pub(crate) enum Received {
    /// Nothing yet.
    Nothing,
    /// The peer's greeting.
    Greeting(Box<ReceivedGreeting>),
    /// The peer has closed its end.
    HungUp,
}

/// The error of a link to an address at which no endpoint shares memory.
pub(crate) const NO_ENDPOINT: LinkError = LinkError::NoEndpoint { medium: "shared memory" };

/// Why a connection failed.
pub(crate) enum ConnectError {
    /// The peer's backlog is full, or this user has too many descriptors in flight. The caller may try
    /// again.
    Busy,
    /// No endpoint of this user has the name.
    NoEndpoint(LinkError),
    /// `socket(2)` or `connect(2)` itself failed.
    System(io::Error),
    /// A limit or a policy forbids the memory file of this side's ring.
    NoMemoryFile(io::Error),
    /// Another call failed. Trying again will not help.
    Failed(LinkError),
}

/// One end of a connection between two endpoints.
#[derive(Debug)]
pub(crate) struct Control {
    socket: CloseOnFork<OwnedFd>,
    peer: Credentials,
}

impl Control {
    /// Connects to the endpoint of this kind at an address.
    pub(crate) fn connect(kind: &NameKind, to: Address) -> Result<Control, ConnectError> {
        let mut refused = ConnectError::NoEndpoint(NO_ENDPOINT);
        for candidate in name::possible_bind_addresses(kind, to) {
            let socket = CloseOnFork::new(open_socket()?);
            match connect(&socket, &name::socket_name(kind, VERSION, candidate)?) {
                Ok(()) => match Control::from_socket_of_same_user(socket) {
                    // Another user's process may have this name, while the endpoint has the next name. So
                    // try the next name, too.
                    Err(error @ LinkError::Denied(_)) if !matches!(refused, ConnectError::Busy) => {
                        refused = ConnectError::NoEndpoint(error);
                    }
                    Err(LinkError::Denied(_)) => {}
                    found => return found.map_err(ConnectError::Failed),
                },
                Err(rustix::io::Errno::CONNREFUSED) => {}
                Err(rustix::io::Errno::AGAIN) => refused = ConnectError::Busy,
                // The name belongs to a socket of another type, which is no endpoint.
                Err(rustix::io::Errno::PROTOTYPE) => {
                    let wrong_type = Errno::new(libc::EPROTOTYPE);
                    return Err(ConnectError::NoEndpoint(LinkError::System(wrong_type)));
                }
                Err(error) => return Err(ConnectError::System(error.into())),
            }
        }
        Err(refused)
    }

    /// Looks for an endpoint at an address that speaks another version of the protocol, and tells it which
    /// version this side speaks. Returns the other version if there is such an endpoint.
    pub(crate) fn find_other_version(kind: &NameKind, to: Address, hello: Hello) -> Option<u16> {
        let candidates = name::possible_bind_addresses(kind, to);
        let speaks = |version, candidate| {
            let socket = CloseOnFork::new(open_socket().ok()?);
            connect(&socket, &name::socket_name(kind, version, candidate).ok()?).ok()?;
            Control::from_socket_of_same_user(socket).ok()?.send_own_version(hello);
            Some(version)
        };
        name::other_versions().find_map(|version| candidates.iter().find_map(|&at| speaks(version, at)))
    }

    /// Wraps an accepted connection.
    pub(crate) fn from_accepted(socket: OwnedFd) -> Result<Control, LinkError> {
        Control::from_socket_of_same_user(CloseOnFork::new(socket))
    }

    /// Reads the peer's credentials, and refuses a peer of another user. Any user's process can bind an
    /// abstract name or connect to it.
    fn from_socket_of_same_user(socket: CloseOnFork<OwnedFd>) -> Result<Control, LinkError> {
        let peer = sys::peer_credentials(&socket).map_err(|error| LinkError::System(to_errno(&error)))?;
        let control = Control { socket, peer };
        let uid = rustix::process::geteuid().as_raw();
        if peer.uid != uid {
            tracing::warn!(peer.uid, uid, peer.pid, "refused: the other process belongs to another user");
            return Err(LinkError::Denied(Denial::OtherUser));
        }
        Ok(control)
    }

    pub(crate) fn is_peer_this_process(&self) -> bool {
        self.peer.pid == rustix::process::getpid().as_raw_pid()
    }

    pub(crate) fn peer_credentials(&self) -> Credentials {
        self.peer
    }

    /// Whether the address that the peer claims belongs to another process, as far as this can be told: an
    /// endpoint of this kind listens there, or, beside TCP, the address is one of another host. If the peer
    /// has hung up, its process may have had the address before.
    pub(crate) fn claims_foreign_address(&self, kind: &NameKind, claimed: Address) -> bool {
        if self.is_peer_this_process() || self.has_peer_hung_up() {
            return false;
        }
        match Control::connect(kind, claimed) {
            Ok(owner) => owner.peer.pid != self.peer.pid,
            Err(_) => name::possible_bind_addresses(kind, claimed).is_empty(),
        }
    }

    fn has_peer_hung_up(&self) -> bool {
        let mut polled = [PollFd::new(&*self.socket, PollFlags::empty())];
        let hung_up = poll(&mut polled, Some(&Timespec::default()));
        hung_up.is_ok_and(|ready| ready > 0) && polled[0].revents().contains(PollFlags::HUP)
    }

    /// Opens a descriptor that becomes readable when the peer's process ends. Returns `None` if this fails,
    /// for example because the process has already ended. Then only the control socket announces the peer's
    /// end.
    pub(crate) fn open_peer_pidfd(&self) -> Option<CloseOnFork<OwnedFd>> {
        let opened = sys::peer_pidfd(&self.socket).or_else(|_| {
            let pid = rustix::process::Pid::from_raw(self.peer.pid).ok_or(io::ErrorKind::NotFound)?;
            Ok::<_, io::Error>(rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty())?)
        });
        opened
            .map(CloseOnFork::new)
            .inspect_err(|error| tracing::debug!(%error, "cannot open a pidfd of the peer"))
            .ok()
    }

    /// Sends this side's greeting, whole or not at all.
    pub(crate) fn send_greeting(
        &self,
        greeting: &Greeting,
        ring: BorrowedFd<'_>,
        doorbell: BorrowedFd<'_>,
    ) -> io::Result<()> {
        let descriptors = [ring, doorbell];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(GREETING_FDS))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let has_room = ancillary.push(SendAncillaryMessage::ScmRights(&descriptors));
        debug_assert!(has_room, "the space is for these descriptors");
        let bytes = greeting.emit();
        match sendmsg(&self.socket, &[IoSlice::new(&bytes)], &mut ancillary, SendFlags::NOSIGNAL)? {
            GREETING_BYTES => Ok(()),
            _ => Err(io::ErrorKind::WriteZero.into()),
        }
    }

    /// Tells a peer that speaks another version of the protocol which version this side speaks: sends the
    /// greeting without descriptors.
    pub(crate) fn send_own_version(&self, hello: Hello) {
        let cookie = CookieLocation { address: 0, value: 0 };
        let bytes = Greeting { hello, cookie }.emit();
        if let Err(error) = rustix::net::send(&self.socket, &bytes, SendFlags::NOSIGNAL) {
            tracing::debug!(%error, "the peer does not learn which version this side speaks");
        }
    }

    /// Reads the peer's greeting, if it has arrived.
    ///
    /// # Errors
    ///
    /// The peer violates the protocol, or this process has no free descriptors for those of the greeting.
    pub(crate) fn try_receive_greeting(&self) -> Result<Received, LinkError> {
        // To detect a message that is too long, there is room for one more byte than in a greeting.
        let mut bytes = [0; GREETING_BYTES + 1];
        let received = match receive_message(self.as_fd(), &mut bytes) {
            Ok(received) if received.len_bytes == 0 => return Ok(Received::HungUp),
            Ok(received) => received,
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => return Ok(Received::Nothing),
            Err(rustix::io::Errno::CONNRESET) => return Ok(Received::HungUp),
            Err(error) => return Err(LinkError::System(Errno::new(error.raw_os_error()))),
        };
        let bytes = &bytes[..received.len_bytes];
        if let Some(reason) = greeting::parse_refusal(bytes) {
            return Err(LinkError::Denied(reason));
        }
        hello::check_prefix(&bytes[..bytes.len().min(HELLO_BYTES)])?;
        let greeting = bytes.first_chunk().map(Greeting::parse).filter(|_| bytes.len() == GREETING_BYTES);
        let Some(greeting) = greeting else { return Err(LinkError::Protocol("not a homespun endpoint")) };
        let greeting = greeting?;
        if received.descriptors.count() < GREETING_FDS && received.lost_descriptors {
            return Err(LinkError::System(Errno::EMFILE));
        }
        let (ring, doorbell) = received.descriptors.take_ring_and_doorbell().map_err(LinkError::Protocol)?;
        Ok(Received::Greeting(Box::new(ReceivedGreeting { greeting, ring, doorbell })))
    }

    /// Tells the peer why this side cannot take the link.
    pub(crate) fn refuse(&self, reason: Denial) {
        let Some(refusal) = greeting::emit_refusal(reason) else { return };
        // Were the greeting left unread, the peer would see a reset before the refusal.
        let sent = receive_message(self.as_fd(), &mut [])
            .map(drop)
            .or_else(|error| if error == rustix::io::Errno::AGAIN { Ok(()) } else { Err(error) })
            .and_then(|()| send(&self.socket, &refusal, SendFlags::NOSIGNAL | SendFlags::DONTWAIT));
        if let Err(error) = sent {
            tracing::debug!(%error, "the peer does not learn why it was refused");
        }
    }

    /// Shuts the connection down, even if a forked child holds a copy of this end.
    pub(crate) fn hang_up(&self) {
        if let Err(error) = shutdown(&self.socket, Shutdown::Both) {
            tracing::trace!(%error, "the connection had already ended");
        }
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        if !self.socket.is_in_forked_child() {
            self.hang_up();
            discard_messages(&self.socket);
        }
    }
}

impl AsFd for Control {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Opens a sequenced-packet socket. Over it, a greeting arrives together with its descriptors, or not at
/// all.
pub(crate) fn open_socket() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?)
}

/// A message of a peer.
struct Message {
    len_bytes: usize,
    descriptors: PassedDescriptors,
    /// Whether more descriptors came with it than this process could open.
    lost_descriptors: bool,
}

/// Receives a message, if there is one. There is room for all descriptors that a message may have: the kernel
/// closes those that find no room, and that may wait for ever.
fn receive_message(socket: BorrowedFd<'_>, bytes: &mut [u8]) -> rustix::io::Result<Message> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MESSAGE_MAX_FDS))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let received = recvmsg(socket, &mut [IoSliceMut::new(bytes)], &mut ancillary, flags)?;
    let mut descriptors = PassedDescriptors::default();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            descriptors.extend(rights);
        }
    }
    let lost_descriptors = received.flags.contains(ReturnFlags::CTRUNC);
    Ok(Message { len_bytes: received.bytes, descriptors, lost_descriptors })
}

/// Reads all messages of a socket that has been shut down. Otherwise closing the socket would close their
/// descriptors.
pub(crate) fn discard_messages(socket: impl AsFd) {
    while has_message(&socket) && receive_message(socket.as_fd(), &mut []).is_ok() {}
}

/// Whether a socket has a message, also an empty one.
fn has_message(socket: impl AsFd) -> bool {
    // Each message then has credentials, for which this call has no room. The end of the messages has none.
    let peeked = set_socket_passcred(&socket, true).and_then(|()| {
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        recvmsg(&socket, &mut [], &mut RecvAncillaryBuffer::default(), flags)
    });
    let reset = set_socket_passcred(&socket, false);
    reset.is_ok() && peeked.is_ok_and(|peeked| peeked.flags.contains(ReturnFlags::CTRUNC))
}

pub(crate) fn to_errno(error: &io::Error) -> Errno {
    error.raw_os_error().map_or(Errno::EIO, Errno::new)
}

impl From<io::Error> for ConnectError {
    fn from(error: io::Error) -> ConnectError {
        ConnectError::System(error)
    }
}
