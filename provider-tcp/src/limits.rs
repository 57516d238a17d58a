//! The limits of this backend. Each name ends in its unit.

/// The largest payload that a link copies to its staging buffer. It writes longer payload to the socket
/// without a copy.
pub const INLINE_MAX_BYTES: usize = 8 * 1024;

/// The capacity of a link's staging buffer, which holds the hello, headers and small frames that were not yet
/// written. An empty staging buffer takes no memory.
pub const STAGING_MAX_BYTES: usize = 64 * 1024;

/// How many empty staging buffers an endpoint keeps for reuse.
pub const STAGING_SPARE_BUFFERS: usize = 16;

/// The size of a transport's read buffer, which its links share. Payload for which the receiver has space
/// bypasses this buffer.
pub const READ_BUFFER_BYTES: usize = 64 * 1024;

/// How many connections may wait in the kernel to be accepted. The kernel lowers this to its own limit,
/// `net.core.somaxconn`.
pub const BACKLOG_CONNECTIONS: i32 = 4096;

/// How many connections one pass accepts at most. Each takes some ten system calls, for which the messages of
/// peers have to wait.
pub const ACCEPT_BATCH_CONNECTIONS: u32 = 16;

/// After descriptors or memory ran out, the transport waits this many passes before it accepts again, unless
/// a link of this endpoint ends or the transport is armed sooner.
pub const ACCEPT_RETRY_PASSES: u32 = 64;

/// How soon a sleeping application checks whether descriptors are available again. No event announces it.
pub const ACCEPT_RETRY_MS: u64 = 20;

/// How soon a sleeping application checks whether a peer's kernel has acknowledged what a closed link sent.
/// No event announces it.
pub const RETRY_MS: u64 = 2;

/// How many accepted connections of an endpoint may lack the peer's hello at once, if the process may have
/// enough descriptors. Beyond that a new one displaces the oldest.
pub const HALF_OPEN_MAX_LINKS: usize = 1024;

/// How much of the process's limit of descriptors the connections of [`HALF_OPEN_MAX_LINKS`] may take.
pub const HALF_OPEN_SHARE_PERCENT: u64 = 25;

/// How long a connection without a hello cannot be displaced by a new one. Until then new ones wait in the
/// kernel. In this time the hello of a peer arrives that makes progress.
pub const HALF_OPEN_GRACE_MS: u64 = 100;

/// How many of the last descriptors of the process the transport leaves free for connects, files and other
/// endpoints. When only these are left, a connection is accepted only in place of one without a hello.
pub const RESERVE_MAX_DESCRIPTORS: u64 = 32;

/// The part of the process's limit of descriptors that [`RESERVE_MAX_DESCRIPTORS`] does not exceed.
pub const RESERVE_SHARE_PERCENT: u64 = 12;

/// How long an accepted connection may take, by default, until the peer's hello has arrived. A peer with
/// manual progress says hello in the pass after the one in which it connects. If it computes for longer in
/// between, it connects again.
pub const HELLO_TIMEOUT_MS: u64 = 30_000;

/// While a connection lacks its hello, one of this many passes reads the clock.
pub const HELLO_CHECK_PASSES: u32 = 16;

/// How many accepted links that have said hello an endpoint has at most, by default. Links that the endpoint
/// has connected do not count.
pub const ACCEPTED_DEFAULT_LINKS: usize = 16_384;

/// How many checks of claimed addresses an endpoint makes at a time. Each is a connection.
pub const CHECKS_MAX: usize = 16;

/// How many of [`CHECKS_MAX`] may be of addresses whose claim is not contested.
pub const CHECKS_BACKGROUND_MAX: usize = 8;

/// How long the connection of a check may take, to be made and to bring the answers.
pub const CHECK_TIMEOUT_MS: u64 = 2_000;

/// The delay after a check that proved nothing, until the next one of the same address. It doubles with each
/// check, [`CHECK_DELAY_DOUBLINGS`] times.
pub const CHECK_RETRY_MS: u64 = 50;

/// How often [`CHECK_RETRY_MS`] doubles.
pub const CHECK_DELAY_DOUBLINGS: u32 = 7;

/// After this many unclear answers a claim that nothing contests is not checked any more, and one beside a
/// proven link ends.
pub const CHECK_UNCLEAR_MAX: u32 = 3;

/// After this many checks whose connection was made, but brought no answer, a claim that nothing contests is
/// not checked any more.
pub const CHECK_SILENT_MAX: u32 = 4;

/// After this many checks without an answer a claim beside a proven link is not checked any more.
pub const CHECK_CONTESTED_FAILURES_MAX: u32 = 100;

/// How many questions a connection may carry.
pub const QUESTIONS_MAX: usize = 128;

/// How many links that an endpoint has connected it still confirms after they have ended.
pub const PAST_TOKENS_MAX: usize = 1024;

/// How long a link with a contested claim is held, by default, until it ends. It is long, because a peer with
/// manual progress that computes answers nothing, and is not dead.
pub const HOLD_TIMEOUT_MS: u64 = 600_000;

/// How many links that claim the same address are held at a time. Further ones are refused.
pub const HELD_MAX_LINKS: usize = 64;

/// How many held links that claim the same address are kept after their peers have hung up, and how many of
/// all addresses. Beyond that the one whose peer was the first to hang up is dropped. An honest peer may have
/// sent a message and left, but seldom while another link of its address lives.
pub const HELD_HUNG_UP_MAX_LINKS_OF_ADDRESS: usize = 4;

/// See [`HELD_HUNG_UP_MAX_LINKS_OF_ADDRESS`].
pub const HELD_HUNG_UP_MAX_LINKS: usize = 64;

/// While claims are checked, one of this many passes reads the clock.
pub const CLAIM_TIME_CHECK_PASSES: u32 = 16;

/// How long the list of this host's addresses counts as current. It is read only to check claims.
pub const ADDRESS_LIST_FRESH_MS: u64 = 1_000;

/// How many links one pass ends at most. The end of a link with many offers costs the engine milliseconds.
pub const PASS_MAX_ENDS: u32 = 4;

/// How many readiness events one poll of the kernel takes at most. The next poll takes the rest.
pub const EVENTS_MAX: usize = 256;

/// How long a connection is silent before the kernel sends a keepalive probe.
pub const KEEPALIVE_IDLE_S: u64 = 30;

/// The time between keepalive probes.
pub const KEEPALIVE_INTERVAL_S: u64 = 10;

/// How many keepalive probes may go unanswered, on systems that do not apply [`USER_TIMEOUT_MS`] to them.
pub const KEEPALIVE_PROBES: u32 = 6;

/// How long a peer's host may leave data or keepalive probes unacknowledged before the kernel ends the
/// connection.
///
/// Linux also counts the time in which the peer's window stays closed. A peer with manual progress may
/// compute for minutes while its window is closed, and is not dead. So this time is long. This side notices
/// the end of a peer's process at once. Only the loss of a host or of the network takes this long to notice.
pub const USER_TIMEOUT_MS: u64 = 600_000;

/// If at least this much of a frame's payload is outstanding after the first read, the link expects that the
/// next frames are large, too.
pub const LARGE_FRAME_BYTES: u64 = 64 * 1024;

/// When a link expects a large frame, one read takes at most this much into the shared buffer, unless the
/// receiver has no space for the payload. The limit is small because payload that is read together with its
/// header has to be copied.
pub const READ_AHEAD_BYTES: usize = 4 * 1024;

/// After this many successful reads in a row from the same link, passes read that link blindly, without
/// polling the kernel first.
pub const BUSY_LINK_READS_MIN: u32 = 4;

/// After this many blind passes in a row, one pass polls the kernel about all links.
pub const BLIND_PASSES_MAX: u32 = 7;
