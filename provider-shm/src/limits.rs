//! The limits of this backend, each with its unit last. Those of the rings are in the module of the ring.

/// From this size on the receiver copies payload from the sender's memory. Below about this size two copies
/// through the ring are faster than one copy and a system call.
pub const PULL_MIN_BYTES: usize = 16 * 1024;

/// How many connections may wait to be accepted, unless the provider sets another limit (the kernel's own
/// limit is `net.core.somaxconn`).
pub const BACKLOG_CONNECTIONS: u16 = 4096;

/// How many connections are accepted at most before their greetings are read. Each greeting brings two
/// descriptors; if the process runs out of them, an accepted connection fails, while one in the backlog
/// waits.
pub const ACCEPT_BATCH_CONNECTIONS: u32 = 8;

/// How many accepted connections may be without the peer's hello at once. Beyond that the oldest is dropped.
pub const HALF_OPEN_MAX_LINKS: usize = 256;

/// How many events one poll of the kernel takes at most; the rest comes with the next.
pub const EVENTS_MAX: usize = 64;

/// After this many passes without a frame the transport polls the kernel, and again after as many.
pub const IDLE_PASSES_PER_KERNEL_POLL: u32 = 16;

/// After this many passes the transport polls the kernel, however busy the rings are.
pub const BUSY_PASSES_PER_KERNEL_POLL: u32 = 2048;

/// How many polls find a ring empty before it becomes cold. The hot rings share this number.
pub const COLD_AFTER_EMPTY_POLLS: u32 = 16 * 1024;

/// How many frames a pass takes from one ring before it turns to the next.
pub const RING_TURN_FRAMES: u32 = 64;

/// How soon a sleeping application retries what no event announces: a connect to a peer whose backlog was
/// full, an accept for which there was no descriptor.
pub const RETRY_MS: u64 = 2;

/// How many ports an endpoint without a fixed port tries: the whole dynamic range.
pub const PORTS_MAX: u16 = 16 * 1024;
