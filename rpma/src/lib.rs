//! The object model of [librpma](https://pmem.io/rpma/) in Rust, over [`homespun`]: shared memory (`shm`),
//! TCP (`tcp`), or whichever reaches a peer faster (`auto`), without RDMA hardware.
//!
//! Names follow those of librpma 0.10 to 1.3, and its man pages describe them: [`Connection::write`] is
//! `rpma_write(3)`.
//!
//! | object | what it is | man page |
//! | --- | --- | --- |
//! | [`Peer`] | one way to reach others; what everything else is opened from | `rpma_peer_new(3)` |
//! | [`Endpoint`] | listens for connections | `rpma_ep_listen(3)` |
//! | [`ConnectionRequest`] | a request of this side, or of a peer | `rpma_conn_req_new(3)` |
//! | [`Connection`] | reads, writes, flushes, messages, events | `rpma_conn_req_connect(3)` |
//! | [`ConnectionConfig`] | sizes of queues, the time for connecting | `rpma_conn_cfg_new(3)` |
//! | [`CompletionQueue`], [`Completion`] | operations that have ended | `rpma_cq_get_completion(3)` |
//! | [`SharedReceiveQueue`] | receives for several connections | `rpma_srq_new(3)` |
//! | [`MemoryRegion`] | memory of this process, for operations and for peers | `rpma_mr_reg(3)` |
//! | [`RemoteMemoryRegion`] | memory of a peer | `rpma_mr_remote_from_descriptor(3)` |
//! | [`PeerConfig`] | what a peer tells others about itself | `rpma_peer_cfg_new(3)` |
//!
//! # A write, a flush, and a message
//!
//! A server offers memory, and a client writes to it. Here both are in one thread.
//!
//! ```
//! use homespun_rpma::{
//!     Completion, CompletionQueue, ConnectionEvent, ConnectionRequest, Endpoint, Error, FlushType,
//!     LocalSlice, MemoryRegion, Operation, Peer, RemoteMemoryRegion, Report, Status, Usage,
//! };
//!
//! fn next(queue: &CompletionQueue) -> Result<Completion, Error> {
//!     queue.wait()?;
//!     queue.next()
//! }
//!
//! # fn main() -> Result<(), Error> {
//! // The server listens, and registers memory that peers may write to.
//! let server_peer = Peer::new()?;
//! let endpoint = Endpoint::listen(&server_peer, "127.0.0.1", 0)?;
//! let mut log = vec![0_u8; 4096];
//! let usage = Usage::WRITE_DST | Usage::FLUSH_TYPE_VISIBILITY;
//! // SAFETY: `log` outlives the region, and is read only after the region is dropped.
//! let log_region = unsafe { MemoryRegion::register(&server_peer, log.as_mut_ptr(), log.len(), usage)? };
//!
//! // The client connects. With its answer, the server describes the memory.
//! let client_peer = Peer::new()?;
//! let port = endpoint.address().port();
//! let client = ConnectionRequest::new(&client_peer, "127.0.0.1", port, None)?.connect(b"")?;
//! let request = endpoint.next_connection_request(None)?;
//! // The message that tells of the write takes this receive, which has the context 1.
//! request.recv(LocalSlice::EMPTY, 1)?;
//! let server = request.connect(&log_region.descriptor())?;
//! assert_eq!(client.next_event()?, ConnectionEvent::Established);
//! let remote_log = RemoteMemoryRegion::from_descriptor(client.private_data())?;
//!
//! // A write and a flush that report only failures, and a message without bytes. Its completion says that
//! // the two others have succeeded.
//! let mut entry = *b"hello";
//! // SAFETY: `entry` outlives the region and its operations, and does not change.
//! let entry = unsafe { MemoryRegion::register(&client_peer, entry.as_mut_ptr(), 5, Usage::WRITE_SRC)? };
//! client.write(remote_log.at(100), entry.as_slice(), Report::OnError, 2)?;
//! client.flush(&remote_log, 100, 5, FlushType::Visibility, Report::OnError, 3)?;
//! client.send_with_imm(LocalSlice::EMPTY, Report::Always, 100, 4)?;
//! let sent = next(client.completion_queue())?;
//! assert_eq!((sent.op, sent.op_context, sent.status), (Operation::Send, 4, Status::Success));
//!
//! let received = next(server.completion_queue())?;
//! assert_eq!((received.op, received.op_context, received.imm), (Operation::Recv, 1, 100));
//! client.disconnect()?;
//! assert_eq!(client.next_event()?, ConnectionEvent::Closed);
//! drop(log_region);
//! assert_eq!(&log[100..105], b"hello");
//! # Ok(())
//! # }
//! ```
//!
//! A complete program is `rpma/examples/remote_log.rs`, a log in a file that another process has mapped:
//! `cargo run -p homespun-rpma --example remote_log`.
//!
//! # Before you start
//!
//! - Progress is automatic: the thread of a peer serves the other side, also while the application waits for
//!   something else. The thread starts with the first connection of the peer, so a process may fork before.
//! - A listener makes no progress of its own. A request waits until the application asks for it, but not
//!   longer than the [time](ConnectionConfig::timeout) of the requester.
//! - The first operation that fails ends its connection. All others complete with [`Status::Flushed`], or
//!   with [`Status::RetryExceeded`] if the peer was lost.
//! - A call that posts an operation fails with [`Error::QueueFull`] if the queues of the
//!   [configuration](ConnectionConfig) are full. The default ones are short, as in librpma.
//! - Every [`Error`] has the number that a C caller gets ([`Error::code`]).
//! - Every connection takes about 15 descriptors, and over TCP 130 KiB of memory.

#![deny(unsafe_code)]

mod channel;
mod completion;
mod completion_queue;
mod connection;
mod connection_config;
mod connection_event;
mod connection_request;
mod endpoint;
mod error;
mod events;
mod kept_completions;
#[expect(unsafe_code, reason = "registration takes the address of the caller's memory")]
mod memory_region;
mod native_queue;
mod peer;
mod peer_config;
#[expect(unsafe_code, reason = "receives take the memory of registered regions")]
mod queue_pair;
mod receive_regions;
mod remote_region;
#[expect(unsafe_code, reason = "receives take the memory of registered regions")]
mod shared_receive_queue;
mod usage;
mod wait_descriptor;

pub use homespun::AddressFormat;

pub use self::completion::{Completion, CompletionFlags, Operation, Report, Status};
pub use self::completion_queue::CompletionQueue;
pub use self::connection::{Connection, FlushType, ReadyQueue};
pub use self::connection_config::ConnectionConfig;
pub use self::connection_event::ConnectionEvent;
pub use self::connection_request::{ConnectionRequest, PRIVATE_DATA_MAX_BYTES};
pub use self::endpoint::Endpoint;
pub use self::error::{Error, ErrorCode, Invalid, Unsupported};
pub use self::memory_region::{LocalSlice, MemoryRegion};
pub use self::peer::{DomainName, Peer, PeerAttr};
pub use self::peer_config::PeerConfig;
pub use self::remote_region::{RemoteMemoryRegion, RemotePlace};
pub use self::shared_receive_queue::{SharedReceiveQueue, SharedReceiveQueueConfig};
pub use self::usage::Usage;

/// Any thread may use any object.
const fn assert_shareable<T: Send + Sync>() {}
const _: () = {
    assert_shareable::<Peer>();
    assert_shareable::<Endpoint>();
    assert_shareable::<ConnectionRequest>();
    assert_shareable::<Connection>();
    assert_shareable::<CompletionQueue>();
    assert_shareable::<SharedReceiveQueue>();
    assert_shareable::<MemoryRegion>();
};
