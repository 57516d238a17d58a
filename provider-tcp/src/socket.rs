//! Sockets: creating them, setting their options, and writing to them.

use std::io::{self, IoSlice};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::time::Duration;

use homespun_engine::errno::Errno;
use mio::net::{TcpListener, TcpStream};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{SendAncillaryBuffer, SendFlags};
use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};

use crate::limits::{
    BACKLOG_CONNECTIONS, KEEPALIVE_IDLE_S, KEEPALIVE_INTERVAL_S, KEEPALIVE_PROBES, USER_TIMEOUT_MS,
};

/// The congestion control of connections within this host. It has no pace of its own, exists in every kernel,
/// and needs no privilege.
const SAME_HOST_CONGESTION_CONTROL: &[u8] = b"reno";

const USER_TIMEOUT: Duration = Duration::from_millis(USER_TIMEOUT_MS);

/// The requested sizes of the kernel's buffers of each socket. `None` keeps the kernel's default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct KernelBuffers {
    pub(crate) send_bytes: Option<usize>,
    pub(crate) receive_bytes: Option<usize>,
}

impl KernelBuffers {
    fn apply(self, socket: &Socket) -> io::Result<()> {
        if let Some(bytes) = self.send_bytes {
            socket.set_send_buffer_size(bytes)?;
        }
        if let Some(bytes) = self.receive_bytes {
            socket.set_recv_buffer_size(bytes)?;
        }
        Ok(())
    }
}

/// Creates a socket that is bound to an address, to listen there.
///
/// SO_REUSEADDR lets the socket bind a port that old connections (TIME_WAIT) still hold. On Linux, two
/// listeners can nevertheless not share a port, because SO_REUSEPORT stays off.
pub(crate) fn bind_listener(at: SocketAddr, buffers: KernelBuffers) -> io::Result<Socket> {
    let socket = open_stream_socket(at)?;
    socket.set_reuse_address(true)?;
    if at.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    // Accepted sockets inherit the buffer sizes. A later change would miss the first window of a connection.
    buffers.apply(&socket)?;
    socket.bind(&at.into())?;
    Ok(socket)
}

/// Makes a bound socket listen. Fails with EADDRINUSE if another socket already listens at the port.
pub(crate) fn listen(bound: Socket) -> io::Result<TcpListener> {
    bound.listen(BACKLOG_CONNECTIONS)?;
    Ok(TcpListener::from_std(bound.into()))
}

/// Creates a socket and starts to connect it. If there is a `source`, the connection comes from its IP
/// address and any port. If the peer's host has answered none of the kernel's tries by the `timeout`, the
/// connect fails with ETIMEDOUT; Linux gives a host at least a second.
pub(crate) fn start_connect(
    to: SocketAddr,
    source: Option<SocketAddr>,
    buffers: KernelBuffers,
    timeout: Option<Duration>,
) -> io::Result<TcpStream> {
    let socket = open_stream_socket(to)?;
    if to.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    buffers.apply(&socket)?;
    set_connection_options(&SockRef::from(&socket))?;
    if timeout.is_some() {
        socket.set_tcp_user_timeout(timeout)?;
    }
    if let Some(mut source) = source {
        source.set_port(0);
        socket.bind(&source.into())?;
    }
    match socket.connect(&to.into()) {
        Err(error) if error.raw_os_error() != Some(Errno::EINPROGRESS.raw()) => return Err(error),
        _ => {}
    }
    choose_congestion_control(&SockRef::from(&socket), to);
    Ok(TcpStream::from_std(socket.into()))
}

/// Whether this host has the address. Says yes if the system cannot tell.
pub(crate) fn is_address_of_this_host(ip: IpAddr) -> bool {
    !matches!(UdpSocket::bind((ip, 0)), Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable)
}

/// Sets the limit of an established connection in place of that of its connect.
pub(crate) fn end_connect_timeout(stream: &TcpStream) -> io::Result<()> {
    SockRef::from(stream).set_tcp_user_timeout(Some(USER_TIMEOUT))
}

/// Sets the options of an accepted connection.
pub(crate) fn set_accepted_options(stream: &TcpStream, remote: SocketAddr) -> io::Result<()> {
    let socket = SockRef::from(stream);
    choose_congestion_control(&socket, remote);
    set_connection_options(&socket)
}

/// Sets the options that every connection has, on both sides.
fn set_connection_options(socket: &SockRef<'_>) -> io::Result<()> {
    socket.set_tcp_nodelay(true)?;
    socket.set_tcp_keepalive(
        &TcpKeepalive::new()
            .with_time(Duration::from_secs(KEEPALIVE_IDLE_S))
            .with_interval(Duration::from_secs(KEEPALIVE_INTERVAL_S))
            .with_retries(KEEPALIVE_PROBES),
    )?;
    socket.set_tcp_user_timeout(Some(USER_TIMEOUT))
}

/// Chooses the congestion control of a connection whose two ends are on this host, if the connection is
/// one. Between hosts, the system's choice stays.
fn choose_congestion_control(socket: &SockRef<'_>, remote: SocketAddr) {
    let Some(local) = socket.local_addr().ok().and_then(|address| address.as_socket()) else { return };
    if local.ip() == remote.ip()
        && let Err(error) = socket.set_tcp_congestion(SAME_HOST_CONGESTION_CONTROL)
    {
        tracing::debug!(%remote, %error, "the system's congestion control stays");
    }
}

/// When the kernel sends what a write hands over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Departure {
    /// At once, together with all bytes that it has held back.
    Now,
    /// Together with the next bytes. The kernel holds the bytes back for at most 200 ms (`MSG_MORE` in
    /// `send(2)`).
    WithNext,
}

/// A socket to which a link writes.
pub(crate) trait SendSocket {
    /// Writes as much of the slices as the kernel takes, in one system call.
    fn send(&self, slices: &[IoSlice<'_>], departure: Departure) -> io::Result<usize>;

    /// Makes the kernel send the bytes that it holds back.
    fn push(&self) -> io::Result<()>;
}

impl SendSocket for TcpStream {
    /// Uses `send` with `MSG_NOSIGNAL`: `writev(2)` raises SIGPIPE if the peer is gone. A Rust program
    /// ignores SIGPIPE, but a C program that loads homespun as a plugin may die of it.
    fn send(&self, slices: &[IoSlice<'_>], departure: Departure) -> io::Result<usize> {
        let flags = match departure {
            Departure::Now => SendFlags::NOSIGNAL,
            Departure::WithNext => SendFlags::NOSIGNAL | SendFlags::MORE,
        };
        let sent = match slices {
            [one] => rustix::net::send(self.as_fd(), one, flags),
            many => rustix::net::sendmsg(self.as_fd(), many, &mut SendAncillaryBuffer::default(), flags),
        };
        sent.map_err(io::Error::from)
    }

    /// Setting `TCP_NODELAY` sends what the kernel holds back, even if the option was set before (`tcp(7)`).
    fn push(&self) -> io::Result<()> {
        self.set_nodelay(true)
    }
}

/// Whether the peer's stream has ended or has an error, even if bytes before that are unread.
pub(crate) fn has_hung_up(socket: impl AsFd) -> bool {
    let mut polled = [PollFd::new(&socket, PollFlags::RDHUP)];
    let ends = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR;
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut polled, Some(&now)).is_ok() && polled[0].revents().intersects(ends)
}

/// The error number of a failed call.
pub(crate) fn to_errno(error: &io::Error) -> Errno {
    error.raw_os_error().map_or(Errno::EIO, Errno::new)
}

/// A non-blocking stream socket of the address's family, closed on exec.
fn open_stream_socket(family_of: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(family_of), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn loopback(host: u8) -> SocketAddr {
        (Ipv4Addr::new(127, 0, 0, host), 0).into()
    }

    /// The congestion control of the two ends of a connection between two addresses.
    fn ends_congestion_control(to: SocketAddr, from: SocketAddr) -> [Vec<u8>; 2] {
        let listener = bind_listener(to, KernelBuffers::default()).unwrap();
        listener.listen(1).unwrap();
        let address = listener.local_addr().unwrap().as_socket().unwrap();
        let connecting = start_connect(address, Some(from), KernelBuffers::default(), None).unwrap();
        listener.set_nonblocking(false).unwrap();
        let (accepted, remote) = listener.accept().unwrap();
        let accepted = TcpStream::from_std(accepted.into());
        set_accepted_options(&accepted, remote.as_socket().unwrap()).unwrap();
        [connecting, accepted].map(|stream| {
            let name = SockRef::from(&stream).tcp_congestion().unwrap();
            name.into_iter().take_while(|byte| *byte != 0).collect()
        })
    }

    #[test]
    fn connection_within_one_address_has_its_own_congestion_control() {
        let ends = ends_congestion_control(loopback(1), loopback(1));
        assert_eq!(ends, [SAME_HOST_CONGESTION_CONTROL; 2]);
    }

    #[test]
    fn connection_between_addresses_keeps_the_congestion_control_of_the_system() {
        let of_system = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap().tcp_congestion().unwrap();
        let of_system: Vec<u8> = of_system.into_iter().take_while(|byte| *byte != 0).collect();
        let ends = ends_congestion_control(loopback(1), loopback(2));
        assert_eq!(ends, [of_system.clone(), of_system]);
    }
}
