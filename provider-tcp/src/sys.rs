//! System calls without a safe interface. A port to another system replaces this file.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

/// How many bytes the peer's kernel has not acknowledged (SIOCOUTQ in `tcp(7)`). The end of the stream
/// counts as one byte. If only the end is unacknowledged, the peer's kernel has all written bytes.
pub(crate) fn unacknowledged_bytes(socket: impl AsFd) -> io::Result<usize> {
    let mut count: libc::c_int = 0;
    // SAFETY: the descriptor is open while it is borrowed, and this request writes one int to its argument,
    // which lives until after the call.
    let answer = unsafe { libc::ioctl(socket.as_fd().as_raw_fd(), libc::TIOCOUTQ, &raw mut count) };
    match answer {
        0 => Ok(usize::try_from(count).unwrap_or(0)),
        _ => Err(io::Error::last_os_error()),
    }
}

/// How long ago the last bytes arrived on a TCP connection (`tcpi_last_data_recv` in `tcp(7)`). The kernel
/// counts in ticks of some milliseconds.
pub(crate) fn time_since_last_arrival(socket: impl AsFd) -> io::Result<Duration> {
    let mut info = MaybeUninit::<libc::tcp_info>::zeroed();
    let mut len_bytes = size_of::<libc::tcp_info>() as libc::socklen_t;
    // SAFETY: the descriptor is open while it is borrowed. The kernel writes at most `len_bytes` bytes to
    // `info`, and the new length to `len_bytes`. Both live until after the call.
    let answer = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            info.as_mut_ptr().cast(),
            &raw mut len_bytes,
        )
    };
    if answer != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: all bytes were zero, and the kernel has written some of them. The structure has only integers,
    // for which all bytes are valid.
    let info = unsafe { info.assume_init() };
    Ok(Duration::from_millis(info.tcpi_last_data_recv.into()))
}

/// The core on which the kernel has last received a packet of this connection (SO_INCOMING_CPU in
/// `socket(7)`); `None` before the first packet.
pub(crate) fn incoming_core(socket: impl AsFd) -> io::Result<Option<u32>> {
    let mut core: libc::c_int = -1;
    let mut len_bytes = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the descriptor is open while it is borrowed. The kernel writes at most `len_bytes` bytes to
    // `core`, and the new length to `len_bytes`. Both live until after the call.
    let answer = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_INCOMING_CPU,
            (&raw mut core).cast(),
            &raw mut len_bytes,
        )
    };
    match answer {
        0 => Ok(u32::try_from(core).ok()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream, UdpSocket};
    use std::thread;
    use std::time::Instant;

    use super::*;

    #[test]
    fn unacknowledged_bytes_fall_to_zero() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let mut stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        stream.write_all(&[7; 1000]).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let is_zero = || unacknowledged_bytes(&stream).unwrap() == 0;
        assert!((0..1_000_000).any(|_| is_zero()), "never acknowledged");
    }

    #[test]
    fn time_since_last_arrival_grows_until_bytes_arrive() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let mut stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (accepted, _) = listener.accept().unwrap();
        stream.write_all(b"first").unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        while time_since_last_arrival(&accepted).unwrap() < Duration::from_millis(30) {
            assert!(Instant::now() < deadline, "the time does not grow");
            thread::yield_now();
        }
        stream.write_all(b"second").unwrap();
        let is_recent = || time_since_last_arrival(&accepted).unwrap() < Duration::from_millis(30);
        assert!((0..1_000_000).any(|_| is_recent()), "the bytes never arrive");
        let datagrams = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        assert!(time_since_last_arrival(&datagrams).is_err());
    }

    #[test]
    fn incoming_core_is_known_after_the_first_packet() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let mut stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut accepted, _) = listener.accept().unwrap();
        stream.write_all(b"first").unwrap();
        accepted.read_exact(&mut [0; 5]).unwrap();
        assert!(incoming_core(&accepted).unwrap().is_some());
    }

    #[test]
    fn unacknowledged_bytes_of_a_listener_is_an_error() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        assert!(unacknowledged_bytes(&listener).is_err());
    }
}
