//! Cross-memory copies: this process copies exposed payload directly from the memory of a peer's process.

use std::io::{self, IoSliceMut};

use homespun_engine::limits::IOV_LIMIT;
use homespun_engine::transport::Pull;
use smallvec::SmallVec;

use crate::cookie::CookieLocation;
use crate::exposed::Exposed;
use crate::sys::{self, RemoteSlice};

/// The memory of a peer's process.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PeerMemory {
    /// The peer's process id in the PID namespace of this process. 0 if the peer has no id there: then this
    /// process cannot read the peer's memory.
    pub(crate) pid: i32,
    pub(crate) cookie: CookieLocation,
}

impl PeerMemory {
    /// Fills `into` with payload that the peer has exposed, starting at `offset_bytes`.
    pub(crate) fn pull(self, from: &Exposed, offset_bytes: u64, into: &mut [IoSliceMut<'_>]) -> Pull {
        if self.pid == 0 {
            return Pull::Refused;
        }
        let wanted_bytes: usize = into.iter().map(|slice| slice.len()).sum();
        let Some(mut pieces) = from.slices_of_range(offset_bytes, wanted_bytes as u64) else {
            return Pull::Fault;
        };
        pieces.push(RemoteSlice { address: self.cookie.address, len_bytes: size_of::<u64>() as u64 });

        let mut cookie = [0; size_of::<u64>()];
        let mut places: SmallVec<[IoSliceMut<'_>; IOV_LIMIT + 2]> =
            into.iter_mut().map(|slice| IoSliceMut::new(slice)).collect();
        places.push(IoSliceMut::new(&mut cookie));
        let all_bytes = wanted_bytes + size_of::<u64>();
        let read = sys::read_process_memory(self.pid, &pieces, &mut places);
        drop(places);
        match read {
            Ok(copied) if copied == all_bytes && u64::from_le_bytes(cookie) == self.cookie.value => {
                Pull::Done
            }
            // The cookie is missing or different, so the payload is no longer exposed.
            Ok(copied) if copied >= wanted_bytes => Pull::Gone,
            Ok(_) => self.classify_failed_read(),
            Err(error) => match error.raw_os_error() {
                Some(libc::EFAULT) => self.classify_failed_read(),
                Some(libc::EINVAL) => Pull::Fault,
                Some(libc::ESRCH) => Pull::Gone,
                // EPERM and ENOSYS mean that the system forbids cross-memory copies. A lack of memory is
                // temporary. In all these cases the peer sends the payload instead. It may still be possible
                // to map other memory of the peer.
                _ => Pull::Declined,
            },
        }
    }

    /// Finds out why a slice cannot be read. Either its description is wrong ([`Pull::Fault`]), or the peer
    /// no longer exposes it ([`Pull::Gone`]).
    fn classify_failed_read(self) -> Pull {
        let mut cookie = [0; size_of::<u64>()];
        let at = RemoteSlice { address: self.cookie.address, len_bytes: size_of::<u64>() as u64 };
        match sys::read_process_memory(self.pid, &[at], &mut [IoSliceMut::new(&mut cookie)]) {
            Ok(_) if u64::from_le_bytes(cookie) == self.cookie.value => Pull::Fault,
            _ => Pull::Gone,
        }
    }
}

/// Tries `process_vm_readv` on this process itself. This fails only if the system forbids the call
/// altogether.
pub(crate) fn probe_process_vm_readv() -> io::Result<()> {
    let (there, mut here) = ([7_u8; 1], [0_u8; 1]);
    let pid = rustix::process::getpid().as_raw_pid();
    let piece = RemoteSlice { address: there.as_ptr() as u64, len_bytes: 1 };
    match sys::read_process_memory(pid, &[piece], &mut [IoSliceMut::new(&mut here)])? {
        1 => Ok(()),
        _ => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::io::IoSlice;
    use std::process;

    use homespun_engine::transport::RemotePayload;

    use super::*;
    use crate::cookie::Cookie;
    use crate::exposed;

    fn make_own_memory(cookie: CookieLocation) -> PeerMemory {
        PeerMemory { pid: i32::try_from(process::id()).unwrap(), cookie }
    }

    #[test]
    fn pull_succeeds_while_the_cookie_is_in_place() {
        let cookie = Cookie::generate().unwrap();
        let peer_memory = make_own_memory(cookie.location());
        let (first, second) = (vec![1_u8; 100], vec![2_u8; 50]);
        let remote = exposed::describe_addresses(&[IoSlice::new(&first), IoSlice::new(&second)]).unwrap();
        let remote = Exposed::parse(&remote).unwrap();
        let pull = |peer_memory: PeerMemory, offset_bytes| {
            let (mut left, mut right) = ([0; 30], [0; 40]);
            let into = &mut [IoSliceMut::new(&mut left), IoSliceMut::new(&mut right)];
            (peer_memory.pull(&remote, offset_bytes, into), [&left[..], &right].concat())
        };
        assert_eq!(pull(peer_memory, 80), (Pull::Done, [[1; 20].as_slice(), &[2; 50]].concat()));
        assert_eq!(pull(peer_memory, 81).0, Pull::Fault, "the range ends one byte beyond the payload");

        drop(cookie);
        assert_eq!(pull(peer_memory, 80).0, Pull::Gone);
        assert_eq!(pull(PeerMemory { pid: 0, ..peer_memory }, 0).0, Pull::Refused);
    }

    #[test]
    fn pull_of_unmapped_memory_is_fault_with_cookie_and_gone_without() {
        let cookie = Cookie::generate().unwrap();
        let nowhere = [16_u64.to_le_bytes(), 8_u64.to_le_bytes()].concat();
        let remote = Exposed::parse(&RemotePayload::new(&nowhere).unwrap()).unwrap();
        let mut into = [0; 8];
        assert_eq!(
            make_own_memory(cookie.location()).pull(&remote, 0, &mut [IoSliceMut::new(&mut into)]),
            Pull::Fault
        );
        let elsewhere = CookieLocation { address: 8, value: 7 };
        assert_eq!(
            make_own_memory(elsewhere).pull(&remote, 0, &mut [IoSliceMut::new(&mut into)]),
            Pull::Gone
        );
    }

    #[test]
    fn probe_reads_memory_of_this_process() {
        probe_process_vm_readv().unwrap();
    }
}
