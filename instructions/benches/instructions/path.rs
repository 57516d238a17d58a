//! The paths whose instructions are counted.

use std::fmt;
use std::str::FromStr;

/// The counted operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    /// Posts a send, and reads its completion.
    Send,
    /// Posts a receive and, once a message has arrived, reads its completion.
    Receive,
    /// The same as [`Send`](Self::Send) with a tag.
    TaggedSend,
    /// The same as [`Receive`](Self::Receive) with a tag.
    TaggedReceive,
    /// Injects a message.
    Inject,
    /// Writes to the peer's memory. Counts three calls: the post, one read of the target's completion queue
    /// by the target, and the read of the completion.
    Write,
    /// Reads the peer's memory. Counts the same three calls as [`Write`](Self::Write).
    Read,
    /// Adds to a number in the peer's memory, and fetches its former value. Counts the same three calls as
    /// [`Write`](Self::Write).
    FetchAdd,
    /// Writes to mapped memory of the peer, and reads the completion.
    WriteShareable,
    /// Reads a completion queue that is empty.
    ReadEmptyQueue,
    /// Reads a completion that the queue holds.
    ReadFullQueue,
}

/// One operation through one interface in one domain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Path {
    pub(crate) domain: &'static str,
    pub(crate) interface: Interface,
    pub(crate) operation: Operation,
}

/// The interface through which operations are called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Interface {
    /// The Rust API, with owned buffers.
    Native,
    /// The C interface of the plugin.
    Plugin,
    /// The C interface of libfabric's own provider `shm`.
    Libfabric,
}

const DOMAINS: [&str; 3] = ["shm", "auto", "tcp"];

const INTERFACES: [(Interface, &str); 3] =
    [(Interface::Native, "native"), (Interface::Plugin, "plugin"), (Interface::Libfabric, "libfabric")];

const OPERATIONS: [(Operation, &str); 11] = [
    (Operation::Send, "send"),
    (Operation::Receive, "receive"),
    (Operation::TaggedSend, "tagged-send"),
    (Operation::TaggedReceive, "tagged-receive"),
    (Operation::Inject, "inject"),
    (Operation::Write, "write"),
    (Operation::Read, "read"),
    (Operation::FetchAdd, "fetch-add"),
    (Operation::WriteShareable, "write-shareable"),
    (Operation::ReadEmptyQueue, "cq-read-empty"),
    (Operation::ReadFullQueue, "cq-read-full"),
];

impl Path {
    /// All paths of homespun.
    pub(crate) fn all() -> Vec<Path> {
        let mut paths = Vec::new();
        for domain in DOMAINS {
            for interface in [Interface::Native, Interface::Plugin] {
                paths.extend(Path::all_through(interface, domain));
            }
        }
        paths
    }

    /// The paths of libfabric's provider `shm`.
    pub(crate) fn all_of_libfabric() -> Vec<Path> {
        Path::all_through(Interface::Libfabric, "shm").collect()
    }

    fn all_through(interface: Interface, domain: &'static str) -> impl Iterator<Item = Path> {
        let paths = OPERATIONS.map(|(operation, _)| Path { domain, interface, operation });
        paths.into_iter().filter(Path::is_available)
    }

    /// Whether the path is counted. The domain `auto`, with a near peer, is counted only for the Rust
    /// interface: the plugin adds as many instructions as in the domain `shm`. Writes to shareable memory
    /// are counted only for the Rust interface over shared memory.
    fn is_available(&self) -> bool {
        let is_native = self.interface == Interface::Native;
        let has_shareable = self.domain != "tcp" && is_native;
        (self.domain != "auto" || is_native) && (self.operation != Operation::WriteShareable || has_shareable)
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let interface = INTERFACES.iter().find(|(interface, _)| *interface == self.interface);
        let operation = OPERATIONS.iter().find(|(operation, _)| *operation == self.operation);
        let (Some((_, interface)), Some((_, operation))) = (interface, operation) else {
            return Err(fmt::Error);
        };
        write!(f, "{}/{interface}/{operation}", self.domain)
    }
}

impl FromStr for Path {
    type Err = &'static str;

    fn from_str(name: &str) -> Result<Path, &'static str> {
        let mut paths = Path::all().into_iter().chain(Path::all_of_libfabric());
        paths.find(|path| path.to_string() == name).ok_or("no path has this name")
    }
}
