//! The limits of this backend. Each name ends in its unit. The limits of the rings are in `line.rs`,
//! `ring.rs` and `segment.rs`.

/// The smallest payload that the receiver copies from the sender's memory. Smaller payload travels through
/// the ring: its two copies are faster than one copy and a system call.
pub const PULL_MIN_BYTES: usize = 16 * 1024;

/// How many connections may wait to be accepted, unless the provider sets another limit. The kernel lowers a
/// larger number to its own limit, `net.core.somaxconn`.
pub const BACKLOG_CONNECTIONS: u16 = 4096;

/// How many connections the transport accepts at most before it reads their greetings. Each greeting brings
/// two descriptors. If the process runs out of descriptors, an accepted connection fails, while a connection
/// in the backlog waits.
pub const ACCEPT_BATCH_CONNECTIONS: u32 = 8;

/// How many accepted connections may lack the peer's greeting at once. To accept more, the transport drops
/// the oldest of them.
pub const HALF_OPEN_MAX_LINKS: usize = 256;

/// How many events one poll of the kernel takes at most. The next poll takes the rest.
pub const EVENTS_MAX: usize = 64;

/// While a ring is hot but no frame arrives, the transport polls the kernel once in this many passes. While
/// no ring is hot, the transport polls the kernel in every pass.
pub const IDLE_PASSES_PER_KERNEL_POLL: u32 = 16;

/// While frames arrive, the transport polls the kernel after this many passes at the latest.
pub const BUSY_PASSES_PER_KERNEL_POLL: u32 = 2048;

/// How many polls in a row find a ring empty before the ring becomes cold. With several hot rings, each ring
/// gets an equal share of this number.
pub const COLD_AFTER_EMPTY_POLLS: u32 = 16 * 1024;

/// How many frames a pass takes from one ring before it turns to the next.
pub const RING_TURN_FRAMES: u32 = 64;

/// How soon a sleeping application retries a connect for which the peer's backlog was full or too many
/// descriptors were in flight, or an accept for which the process had no descriptor or memory. No event
/// announces when a retry may succeed.
pub const RETRY_MS: u64 = 2;

/// How many ports the transport tries for an endpoint that asks for port 0: the whole dynamic range.
pub const PORTS_MAX: u16 = 16 * 1024;
