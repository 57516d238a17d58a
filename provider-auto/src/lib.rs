//! The automatic backend of homespun. Each endpoint has one address and two transports: shared memory for
//! *near* peers, and TCP for *far* peers.
//!
//! [`AutoProvider`] opens an [`AutoTransport`] for each endpoint. It consists of a
//! [`TcpTransport`](homespun_tcp::TcpTransport) that listens at the address, and a
//! [`ShmTransport`](homespun_shm::ShmTransport) that listens at an abstract name (`unix(7)`) made of the
//! same address. Both send the same hello. So an endpoint of the domain `tcp` can be a far peer.
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
//! The connecting transport chooses for each link, before the first frame. If the address is on this host,
//! only four answers lead to TCP: no socket has the name, a socket of another type has it, another user has
//! it, or a security policy forbids the connect. If a policy forbids an endpoint's own name, the endpoint
//! reaches all peers over TCP. If the process lacks descriptors, the link fails. If the name's backlog is
//! full, the link waits, and takes no frames. An abstract name belongs to a network namespace, so endpoints
//! of other namespaces are far.
//!
//! Near links have even numbers, and far links have odd numbers. So a frame to a near peer costs only one
//! shift more than over shared memory alone. The epoll descriptor of shared memory contains the epoll
//! descriptor of TCP. So one poll of the kernel covers both.
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
