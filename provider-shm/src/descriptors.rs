//! The descriptors of this process.

use std::iter;
use std::os::fd::OwnedFd;

use rustix::event::{EventfdFlags, eventfd};
use rustix::process::{Resource, getrlimit};
use smallvec::SmallVec;

/// Whether this process can open this many descriptors now. Opens and closes them to find out. Another thread
/// may take some of them before the caller does.
pub(crate) fn has_spare(count: usize) -> bool {
    let open = || eventfd(0, EventfdFlags::CLOEXEC).ok();
    let opened: SmallVec<[OwnedFd; 16]> = iter::repeat_with(open).take(count).map_while(|new| new).collect();
    opened.len() == count
}

/// How many descriptors this process may have at present (RLIMIT_NOFILE).
pub(crate) fn max_count() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}
