//! The automatic backend of homespun. Its endpoints have one address, and two transports behind it: shared
//! memory for *near* peers, TCP for *far* ones.
//!
//! [`AutoProvider`] opens an [`AutoTransport`] for each endpoint: a
//! [`TcpTransport`](homespun_tcp::TcpTransport) that listens at the address, and a
//! [`ShmTransport`](homespun_shm::ShmTransport) that listens at an abstract name (`unix(7)`) made of the
//! same address. Both send the same hello. So an endpoint of the domain `tcp` is a peer, too: a far one.
//!
//! ```text
//!                              connect
//!                                 |
//!        is the address one of this host's?  -- no -----------------------+
//!                                 | yes                                   |
//!        does an endpoint of this user answer at its name?  -- no --------+
//!                  | yes                    | its backlog is full         |
//!                  v                        v                             v
//!             shared memory           asked again later                  TCP
//! ```
//!
//! The choice is made for each link, when it is connected, before its first frame. If the address is one of
//! this host's, only four answers lead to TCP: no socket has the name, a socket of another type has it,
//! another user has it, or a security policy forbids the connect. An endpoint whose own name a policy
//! forbids reaches all peers over TCP. A lack of descriptors is no reason to choose TCP: the link fails.
//! While the name's backlog is full, the link waits, and takes no frames. An abstract name belongs to a
//! network namespace, so endpoints of other namespaces are far, even if they have the same address.
//!
//! The numbers of near links are even and those of far links odd. So a frame to a near peer costs only a
//! shift more than over shared memory alone. The epoll descriptor of TCP is nested in that of shared memory.
//! So one poll of the kernel covers both, and as long as no far peer is active, polls are as frequent as
//! over shared memory alone.
//!
//! # Memory
//!
//! An idle endpoint has four descriptors: an epoll instance and a listener of each transport. It also has a
//! buffer of 64 KiB for reads from TCP sockets. A link costs what it costs in the transport that carries it.

#![forbid(unsafe_code)]

pub mod limits;

mod carried_link;
mod handler;
mod interfaces;
mod moved_links;
mod poll_plan;
mod proven_peers;
mod provider;
mod transport;

pub use provider::AutoProvider;
pub use transport::AutoTransport;
