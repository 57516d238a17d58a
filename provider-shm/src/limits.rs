//! The limits of this backend, each with its unit last. Those of the rings are in the module of the ring.

/// From this size on the peer copies payload across by itself. Below about this size the two copies through the ring are
/// faster than the system call that saves one.
pub const PULL_MIN_BYTES: usize = 16 * 1024;

/// How many connections wait to be accepted (the kernel's own limit is `net.core.somaxconn`).
pub const BACKLOG_CONNECTIONS: i32 = 4096;

/// How many connections are accepted at most before their greetings are taken, each of which brings two more descriptors:
/// what is accepted beyond what there are descriptors for is lost, while it could have waited.
pub const ACCEPT_BATCH_CONNECTIONS: u32 = 8;

/// How many accepted connections may owe their hello at once. Beyond that the one that owes it longest is dropped.
pub const HALF_OPEN_MAX_LINKS: usize = 256;

/// How many events are taken from the kernel at once; what is left comes next time.
pub const EVENTS_MAX: usize = 64;

/// How many passes in a row find nothing before the kernel is asked what else has happened, and again and again.
pub const IDLE_PASSES_PER_KERNEL_POLL: u32 = 16;

/// How many passes go by at most before the kernel is asked, however busy the rings are.
pub const BUSY_PASSES_PER_KERNEL_POLL: u32 = 2048;

/// How many times an empty ring is looked at before it goes cold, shared by all rings that are hot.
pub const COLD_AFTER_EMPTY_POLLS: u32 = 16 * 1024;

/// How many frames are taken from one ring before the next one has its turn.
pub const RING_TURN_FRAMES: u32 = 64;

/// How soon something that nobody announces is tried again while the application sleeps: a peer whose backlog was full, a
/// connection for which there was no descriptor.
pub const RETRY_MS: u64 = 2;

/// How many ports are tried for an endpoint that may have any: all of the dynamic range.
pub const PORTS_MAX: u16 = 16 * 1024;
