//! Limits and policies of a host, which a test imposes on the process of a party.

use std::fs;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde::{Deserialize, Serialize};

use super::seccomp::{COPIES_ACROSS, fail_system_calls_of_process};

/// A limit or a policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum HostLimit {
    /// Copies between processes fail with this error.
    ProcessCopies {
        /// The error's number.
        errno: i32,
    },
    /// Creating a memory file fails with this error.
    MemoryFiles {
        /// The error's number.
        errno: i32,
    },
    /// No file may grow beyond this size (RLIMIT_FSIZE).
    FileBytes(u64),
    /// The process can open this many more descriptors (RLIMIT_NOFILE); with `None`, as many as it likes.
    SpareDescriptors(Option<u64>),
}

impl HostLimit {
    /// Imposes the limit on this process.
    pub(super) fn impose(self) {
        match self {
            HostLimit::ProcessCopies { errno } => fail_system_calls_of_process(&COPIES_ACROSS, errno),
            HostLimit::MemoryFiles { errno } => {
                fail_system_calls_of_process(&[libc::SYS_memfd_create], errno);
            }
            HostLimit::FileBytes(max_bytes) => set_soft_limit(Resource::Fsize, Some(max_bytes)),
            HostLimit::SpareDescriptors(spare) => {
                set_soft_limit(Resource::Nofile, spare.map(limit_that_leaves));
            }
        }
    }
}

/// Returns the limit of descriptors that leaves this many free. The kernel gives the lowest free numbers.
fn limit_that_leaves(spare: u64) -> u64 {
    // The listing itself has a descriptor.
    let listing = fs::read_dir("/proc/self/fd").expect("this is Linux");
    let mut open: Vec<u64> =
        listing.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect();
    open.retain(|number| fs::read_link(format!("/proc/self/fd/{number}")).is_ok());
    (0..).filter(|number| !open.contains(number)).nth(spare as usize).expect("there are more numbers")
}

/// Sets the limit that a process may raise again. Without a value, raises it as far as it goes.
fn set_soft_limit(resource: Resource, value: Option<u64>) {
    let Rlimit { maximum, .. } = getrlimit(resource);
    setrlimit(resource, Rlimit { current: value.or(maximum), maximum }).expect("a process may limit itself");
}
