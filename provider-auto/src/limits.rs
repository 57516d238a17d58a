//! The limits of this backend. Each name ends in its unit.

/// For an endpoint at port 0, how many ports the provider tries at most, to find one that is free in both
/// transports.
pub const PORT_TRIES: u32 = 64;

/// While far peers are active and rings are hot, one pass in this many polls TCP.
pub const PASSES_PER_FAR_POLL: u32 = 16;

/// While far peers are active and no ring is hot, one pass in this many polls shared memory.
pub const PASSES_PER_NEAR_POLL: u32 = 16;

/// After this many polls of TCP in a row that find nothing, far peers count as inactive. From then on, the
/// kernel must announce what far peers send.
pub const EMPTY_FAR_POLLS_MAX: u32 = 256;
