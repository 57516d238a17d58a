//! The descriptors of this process.

use std::iter;
use std::os::fd::OwnedFd;

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::fcntl_dupfd_cloexec;
use rustix::process::{Resource, getrlimit};
use smallvec::SmallVec;

/// Whether this process can open this many descriptors now. Opens and closes them to find out. Another thread
/// may take some of them before the caller does.
pub(crate) fn has_spare(count: usize) -> bool {
    let Ok(first) = eventfd(0, EventfdFlags::CLOEXEC) else { return false };
    let another = || fcntl_dupfd_cloexec(&first, 0).ok();
    let further: SmallVec<[OwnedFd; 16]> =
        iter::repeat_with(another).take(count - 1).map_while(|copy| copy).collect();
    further.len() == count - 1
}

/// How many descriptors this process may have at present (RLIMIT_NOFILE).
pub(crate) fn max_count() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}
