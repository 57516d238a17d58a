//! The limits of this backend. Each name ends in its unit.

/// The largest payload that a link copies to its staging buffer. It writes longer payload to the socket
/// without a copy.
pub const INLINE_MAX_BYTES: usize = 8 * 1024;

/// The capacity of a link's staging buffer, which holds the hello, headers and small frames that were not
/// yet written. An empty staging buffer takes no memory.
pub const STAGING_MAX_BYTES: usize = 64 * 1024;

/// How many empty staging buffers an endpoint keeps for reuse.
pub const STAGING_SPARE_BUFFERS: usize = 16;

/// The size of a transport's read buffer, which its links share. Payload for which the receiver has space
/// bypasses this buffer.
pub const READ_BUFFER_BYTES: usize = 64 * 1024;

/// How many connections may wait in the kernel to be accepted. The kernel lowers this to its own limit,
/// `net.core.somaxconn`.
pub const BACKLOG_CONNECTIONS: i32 = 4096;

/// How many connections one pass accepts at most. Each connection takes some ten system calls, during which
/// the messages of peers wait.
pub const ACCEPT_BATCH_CONNECTIONS: u32 = 16;

/// If a transport cannot accept a connection for lack of descriptors or memory, or because too many
/// connections have not said hello yet, it waits this many passes before it accepts again. It accepts sooner
/// if a link of this endpoint ends, or when the application is about to sleep (`arm`).
pub const ACCEPT_RETRY_PASSES: u32 = 64;

/// How soon a sleeping application tries again to accept after a lack of descriptors, memory or places. No
/// event announces the end of the lack.
pub const ACCEPT_RETRY_MS: u64 = 20;

/// How soon a sleeping application checks whether a peer's kernel has acknowledged what a closed link sent.
/// No event announces the acknowledgement.
pub const RETRY_MS: u64 = 2;

/// How many accepted connections of an endpoint may lack the peer's hello at once. Beyond this number a new
/// connection displaces the oldest. If the process may have few descriptors, [`HALF_OPEN_SHARE_PERCENT`]
/// allows fewer.
pub const HALF_OPEN_MAX_LINKS: usize = 1024;

/// The percentage of the process's limit of descriptors that the accepted connections of an endpoint without
/// the peer's hello may take.
pub const HALF_OPEN_SHARE_PERCENT: u64 = 25;

/// How long an accepted connection without a hello is safe from being displaced by a new connection. A peer
/// that makes progress says hello within this time. New connections that find no other place wait in the
/// kernel meanwhile.
pub const HALF_OPEN_GRACE_MS: u64 = 100;

/// How many of the last descriptors of the process the transport reserves for connects, files and other
/// endpoints. When only these are left, the transport accepts one more connection, and further ones only in
/// place of a connection without a hello.
pub const RESERVE_MAX_DESCRIPTORS: u64 = 32;

/// The percentage of the process's limit of descriptors that the transport reserves at most. If the limit is
/// low, this is fewer than [`RESERVE_MAX_DESCRIPTORS`].
pub const RESERVE_SHARE_PERCENT: u64 = 12;

/// How long an accepted connection may take, by default, until the peer's hello has arrived. A peer with
/// manual progress says hello in the pass after the one in which it connects. If it computes between these
/// passes for longer than this time, the acceptor drops the connection, and the peer connects again.
pub const HELLO_TIMEOUT_MS: u64 = 30_000;

/// While a connection lacks its hello, one of this many passes reads the clock.
pub const HELLO_CHECK_PASSES: u32 = 16;

/// How many accepted links an endpoint has at most, by default. Accepted connections on which the peer has
/// not said hello do not count, nor do links that the endpoint has connected.
pub const ACCEPTED_DEFAULT_LINKS: usize = 16_384;

/// How many checks of claimed addresses an endpoint makes at a time. Each check is a connection.
pub const CHECKS_MAX: usize = 16;

/// How many of these [`CHECKS_MAX`] checks may be of addresses for which no link is held.
pub const CHECKS_BACKGROUND_MAX: usize = 8;

/// How many of these [`CHECKS_MAX`] checks may be of addresses for which a link is held.
pub const CHECKS_CONTESTED_MAX: usize = 12;

/// How many checks of each of these two kinds may be of addresses of one host.
pub const CHECKS_OF_HOST_MAX: usize = 4;

/// How long a check may take from the start of its connection to the last answer.
pub const CHECK_TIMEOUT_MS: u64 = 2_000;

/// The delay between a check that leaves a claim of an address unproven and the next check of that address.
/// The delay doubles with each check, [`CHECK_DELAY_DOUBLINGS`] times at most.
pub const CHECK_RETRY_MS: u64 = 50;

/// How often the delay of [`CHECK_RETRY_MS`] doubles at most.
pub const CHECK_DELAY_DOUBLINGS: u32 = 7;

/// After this many unclear answers about an accepted link that is not held, its claim is not checked any
/// more. If the address has a proven link, too, the link with the unclear claim ends.
pub const CHECK_UNCLEAR_MAX: u32 = 3;

/// After this many checks that brought no answer, claims of an address without a held or proven link are not
/// checked any more. If no connection to the address can be made, one check is enough.
pub const CHECK_SILENT_MAX: u32 = 4;

/// After this many checks that brought no answer, the claim of an accepted link that is not held is not
/// checked any more, even if the address also has a held or proven link. Held links are always checked.
pub const CHECK_CONTESTED_FAILURES_MAX: u32 = 100;

/// How many questions a connection may carry.
pub const QUESTIONS_MAX: usize = 128;

/// An endpoint remembers this many of the links that it has connected and that have ended, so that it can
/// still confirm them when a peer asks.
pub const PAST_TOKENS_MAX: usize = 1024;

/// How long a link with a contested claim is held, by default, until it ends. The time is long, because a
/// peer with manual progress answers no questions while it computes.
pub const HOLD_TIMEOUT_MS: u64 = 600_000;

/// How many links that claim the same address are held at a time. Further ones are refused.
pub const HELD_MAX_LINKS: usize = 64;

/// How many held links that claim the same address the transport keeps after their peers have hung up.
/// Beyond this number it drops the link whose peer was the first to hang up. It keeps such links because an
/// honest peer may have sent a message and left. It keeps few, because an honest peer seldom leaves while
/// another link to its address lives.
pub const HELD_HUNG_UP_MAX_LINKS_OF_ADDRESS: usize = 4;

/// As [`HELD_HUNG_UP_MAX_LINKS_OF_ADDRESS`], but for the held links of all addresses together.
pub const HELD_HUNG_UP_MAX_LINKS: usize = 64;

/// While checks of claims are under way or due later, at least one of this many passes reads the clock.
pub const CLAIM_TIME_CHECK_PASSES: u32 = 16;

/// How long the list of this host's addresses counts as current. The list serves only to judge addresses
/// that peers claim.
pub const ADDRESS_LIST_FRESH_MS: u64 = 1_000;

/// After this many ends of links a pass reads no further links, and no further answers of checks. Each end costs
/// some system calls, and the engine up to a thousand accesses of the peer.
pub const PASS_MAX_ENDS: u32 = 4;

/// How many readiness events one poll of the kernel takes at most. The next poll takes the rest.
pub const EVENTS_MAX: usize = 256;

/// How long a connection is silent before the kernel sends a keepalive probe.
pub const KEEPALIVE_IDLE_S: u64 = 30;

/// The time between keepalive probes.
pub const KEEPALIVE_INTERVAL_S: u64 = 10;

/// How many keepalive probes may go unanswered, on systems that do not apply [`USER_TIMEOUT_MS`] to probes.
pub const KEEPALIVE_PROBES: u32 = 6;

/// How long a peer's host may leave data or keepalive probes unacknowledged before the kernel ends the
/// connection.
///
/// Linux also counts the time in which the peer's window stays closed. The limit is long, because a peer
/// with manual progress may compute for minutes while its window is closed. This side notices the end of a
/// peer's process at once. Only the loss of a host or of the network takes this long to notice.
pub const USER_TIMEOUT_MS: u64 = 600_000;

/// If at least this much of a frame's payload is outstanding after a read, the link expects that the next
/// frames are large, too.
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
