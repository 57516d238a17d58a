//! System calls without a safe interface. They read a peer's credentials, open a descriptor of the peer's
//! process, copy from the peer's memory, let other processes read this process's memory, and read how often a
//! thread has lost its processor.

use std::io::{self, IoSliceMut};
use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use smallvec::SmallVec;

/// The credentials of the process at the other end of a UNIX socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Credentials {
    /// The process id in the PID namespace of the calling process; 0 if the process has no id there.
    pub(crate) pid: i32,
    pub(crate) uid: u32,
}

/// A slice of another process's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RemoteSlice {
    pub(crate) address: u64,
    pub(crate) len_bytes: u64,
}

/// `SO_PEERPIDFD`, a socket option since Linux 6.5 that the `libc` crate lacks.
const SO_PEERPIDFD: libc::c_int = 77;

/// The credentials of the process that connected, or that called `listen(2)`.
pub(crate) fn peer_credentials(socket: impl AsFd) -> io::Result<Credentials> {
    // Not by rustix: its type cannot hold the id 0 of a process in another PID namespace.
    let mut raw = libc::ucred { pid: 0, uid: 0, gid: 0 };
    read_socket_option(socket.as_fd(), libc::SO_PEERCRED, &mut raw)?;
    Ok(Credentials { pid: raw.pid, uid: raw.uid })
}

/// A descriptor of the peer's process. It becomes readable when that process ends.
pub(crate) fn peer_pidfd(socket: impl AsFd) -> io::Result<OwnedFd> {
    let mut raw: libc::c_int = -1;
    read_socket_option(socket.as_fd(), SO_PEERPIDFD, &mut raw)?;
    if raw < 0 {
        return Err(io::ErrorKind::InvalidData.into());
    }
    // SAFETY: the kernel has just opened this descriptor for the caller, so nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(raw) })
}

/// Reads a socket option into `value`. `T` must consist of integers only.
fn read_socket_option<T: Copy>(socket: BorrowedFd<'_>, name: libc::c_int, value: &mut T) -> io::Result<()> {
    let mut len_bytes = mem::size_of::<T>() as libc::socklen_t;
    let place = (&raw mut *value).cast();
    // SAFETY: the kernel writes at most `len_bytes` bytes to `place`, which is an exclusively borrowed `T` of
    // that size. The two callers' types consist of integers, for which all bit patterns are valid.
    let result =
        unsafe { libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, name, place, &raw mut len_bytes) };
    match result {
        0 if len_bytes as usize == mem::size_of::<T>() => Ok(()),
        0 => Err(io::ErrorKind::InvalidData.into()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Copies slices of the memory of process `pid`, one after the other, to `into`. Returns how many bytes were
/// copied: fewer than all if some of the memory is not readable.
pub(crate) fn read_process_memory(
    pid: i32,
    from: &[RemoteSlice],
    into: &mut [IoSliceMut<'_>],
) -> io::Result<usize> {
    let remote: SmallVec<[libc::iovec; 8]> = from
        .iter()
        .map(|piece| libc::iovec {
            iov_base: piece.address as *mut libc::c_void,
            iov_len: usize::try_from(piece.len_bytes).unwrap_or(usize::MAX),
        })
        .collect();
    // SAFETY: an `IoSliceMut` has the layout of an `iovec` and borrows its memory exclusively. The kernel
    // writes only within `into`. It uses the remote addresses only in the other process.
    let copied = unsafe {
        libc::process_vm_readv(
            pid,
            into.as_mut_ptr().cast::<libc::iovec>(),
            into.len() as libc::c_ulong,
            remote.as_ptr(),
            remote.len() as libc::c_ulong,
            0,
        )
    };
    usize::try_from(copied).map_err(|_| io::Error::last_os_error())
}

/// Lets every process of this user read this process's memory (`PR_SET_PTRACER` in `prctl(2)`). Otherwise
/// Yama may allow this only to the ancestors of this process.
pub(crate) fn allow_any_tracer() -> io::Result<()> {
    // SAFETY: this operation takes a number and touches no memory of the caller.
    match unsafe { libc::prctl(libc::PR_SET_PTRACER, libc::PR_SET_PTRACER_ANY, 0, 0, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;
    use std::process;

    use super::*;

    #[test]
    fn credentials_of_a_socket_pair_are_this_process() {
        let (left, _right) = UnixStream::pair().unwrap();
        let credentials = peer_credentials(&left).unwrap();
        assert_eq!(credentials.pid, i32::try_from(process::id()).unwrap());
        assert_eq!(credentials.uid, rustix::process::geteuid().as_raw());
    }

    #[test]
    fn read_memory_stops_at_unmapped_memory() {
        let pid = i32::try_from(process::id()).unwrap();
        let memory = *b"hello, world";
        let piece = |range: std::ops::Range<usize>| RemoteSlice {
            address: memory[range.clone()].as_ptr() as u64,
            len_bytes: range.len() as u64,
        };
        let (mut first, mut second) = ([0; 3], [0; 4]);
        let mut into = [IoSliceMut::new(&mut first), IoSliceMut::new(&mut second)];
        assert_eq!(read_process_memory(pid, &[piece(7..12), piece(0..2)], &mut into).unwrap(), 7);
        assert_eq!((&first, &second), (b"wor", b"ldhe"));

        let nowhere = RemoteSlice { address: 8, len_bytes: 4 };
        let mut into = [IoSliceMut::new(&mut first), IoSliceMut::new(&mut second)];
        assert_eq!(read_process_memory(pid, &[piece(0..3), nowhere], &mut into).unwrap(), 3);
        let mut into = [IoSliceMut::new(&mut second)];
        let error = read_process_memory(pid, &[nowhere], &mut into).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EFAULT));
    }
}
