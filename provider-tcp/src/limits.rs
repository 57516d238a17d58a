//! The limits of this backend, each with its unit last.

/// The largest payload that is copied to a link's staging buffer. Longer payload is never copied on its way
/// to the socket.
pub const INLINE_MAX_BYTES: usize = 8 * 1024;

/// How much a link's staging buffer holds: hello, headers and small frames that were not yet written. It
/// takes memory only while it holds something.
pub const STAGING_MAX_BYTES: usize = 64 * 1024;

/// How many empty staging buffers an endpoint keeps for reuse.
pub const STAGING_SPARE_BUFFERS: usize = 16;

/// The size of the buffer that a transport reads into, shared by its links. Payload with a place of its own
/// bypasses it.
pub const READ_BUFFER_BYTES: usize = 64 * 1024;

/// How many connections wait in the kernel to be accepted (the kernel's own limit is `net.core.somaxconn`).
pub const BACKLOG_CONNECTIONS: i32 = 4096;

/// How many connections are accepted in one pass at most.
pub const ACCEPT_BATCH_CONNECTIONS: u32 = 64;

/// How many passes the transport waits before it accepts again after descriptors or memory ran out, unless a
/// link of this endpoint ends before.
pub const ACCEPT_RETRY_PASSES: u32 = 64;

/// How soon a sleeping application checks again what no event announces: whether descriptors are available
/// again, whether a peer's kernel has acknowledged what a closed link sent.
pub const RETRY_MS: u64 = 2;

/// How many accepted connections may be without the peer's hello at once. Beyond that the oldest is dropped.
pub const HALF_OPEN_MAX_LINKS: usize = 1024;

/// How many readiness events one pass takes from the kernel; the rest comes in the next.
pub const EVENTS_MAX: usize = 256;

/// How long a connection is silent before the kernel sends a keepalive probe.
pub const KEEPALIVE_IDLE_S: u64 = 30;

/// The time between keepalive probes.
pub const KEEPALIVE_INTERVAL_S: u64 = 10;

/// How many keepalive probes may go unanswered, on systems that do not apply [`USER_TIMEOUT_MS`] to them.
pub const KEEPALIVE_PROBES: u32 = 6;

/// How long a peer's host may leave data or keepalive probes unacknowledged before the connection is given
/// up.
///
/// Linux also counts the time in which the peer's window stays closed. A peer with manual progress may
/// compute for minutes with its window closed, and is not dead. So this is long. The end of a process is
/// noticed at once; only the loss of a host or of the network takes this long.
pub const USER_TIMEOUT_MS: u64 = 600_000;

/// A frame with at least this much payload outstanding after its first read makes the link expect more such
/// frames.
pub const LARGE_FRAME_BYTES: u64 = 64 * 1024;

/// How much is read into the shared buffer when a large frame is expected: payload that arrives together with
/// its header has to be copied.
pub const PROBE_BYTES: usize = 4 * 1024;

/// After this many reads in a row that brought something from one link and from no other, passes read that
/// link without asking the kernel first.
pub const FOCUS_READS_MIN: u32 = 4;

/// After this many such passes in a row, one asks the kernel about all links again.
pub const BLIND_PASSES_MAX: u32 = 7;
