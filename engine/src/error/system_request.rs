//! The requests that the system may refuse.

use std::io;

use crate::error::Error;

/// What homespun asked of the system when the system refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum SystemRequest {
    /// A random number (`getrandom(2)`).
    #[error("drawing a random number")]
    RandomNumber,
    /// A thread (`pthread_create(3)`).
    #[error("starting a thread")]
    Thread,
    /// A descriptor that wakes a thread (`eventfd(2)`).
    #[error("making an event descriptor")]
    EventDescriptor,
    /// A descriptor that stands for many (`epoll_create(2)`).
    #[error("making an epoll descriptor")]
    EpollDescriptor,
    /// A place in the list of an epoll descriptor (`epoll_ctl(2)`).
    #[error("watching a descriptor")]
    Watch,
    /// A second number for a descriptor (`fcntl(2)`).
    #[error("copying a descriptor")]
    DescriptorCopy,
    /// A timer (`timerfd_create(2)`).
    #[error("making a timer")]
    Timer,
    /// A mutex or a condition variable (`pthread_cond_init(3)`).
    #[error("making a condition variable")]
    ConditionVariable,
    /// Memory that other processes may map (`memfd_create(2)`).
    #[error("allocating memory to be shared")]
    ShareableMemory,
    /// The memory of a file (`mmap(2)`).
    #[error("mapping a file")]
    FileMapping,
    /// The list of the process's mappings (`/proc/self/smaps`).
    #[error("reading how memory is mapped")]
    MappingList,
    /// The list of the host's network interfaces (`getifaddrs(3)`).
    #[error("listing network interfaces")]
    InterfaceList,
    /// A socket (`socket(2)`).
    #[error("opening a socket")]
    Socket,
}

impl SystemRequest {
    /// Returns the error of a call that has failed because the system refused this request.
    ///
    /// ```
    /// # use homespun_engine::error::{Error, SystemRequest};
    /// # use std::io;
    /// let error = SystemRequest::Socket.refused(io::Error::from_raw_os_error(24));
    /// assert_eq!(error.to_string(), "opening a socket: Too many open files");
    /// ```
    pub fn refused(self, why: impl Into<io::Error>) -> Error {
        Error::System { request: self, errno: why.into().into() }
    }

    /// All requests.
    pub const ALL: &[SystemRequest] = &[
        SystemRequest::RandomNumber,
        SystemRequest::Thread,
        SystemRequest::EventDescriptor,
        SystemRequest::EpollDescriptor,
        SystemRequest::Watch,
        SystemRequest::DescriptorCopy,
        SystemRequest::Timer,
        SystemRequest::ConditionVariable,
        SystemRequest::ShareableMemory,
        SystemRequest::FileMapping,
        SystemRequest::MappingList,
        SystemRequest::InterfaceList,
        SystemRequest::Socket,
    ];
}
