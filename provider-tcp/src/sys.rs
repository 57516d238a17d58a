//! System calls without a safe interface. A port to another system replaces this file.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

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

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};

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
    fn unacknowledged_bytes_of_a_listener_is_an_error() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        assert!(unacknowledged_bytes(&listener).is_err());
    }
}
