//! The limits of this backend. Each name ends in its unit.

/// For an endpoint at port 0, how many times at most the provider asks for a port until it gets one that is
/// free in both transports.
pub const PORT_TRIES: u32 = 64;

/// While far peers are active and rings are hot, one pass in this many polls TCP.
pub const PASSES_PER_FAR_POLL: u32 = 16;

/// While far peers are active and no ring is hot, one pass in this many polls shared memory.
pub const PASSES_PER_NEAR_POLL: u32 = 16;

/// How many polls of TCP in a row find nothing before far peers count as inactive. While they are inactive,
/// an event of the kernel announces what they send.
pub const EMPTY_FAR_POLLS_MAX: u32 = 256;
