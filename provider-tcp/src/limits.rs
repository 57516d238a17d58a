//! The limits of this backend. Each name ends in its unit.

/// The largest payload that a link copies to its staging buffer. The link writes longer payload to the
/// socket without a copy.
pub const INLINE_MAX_BYTES: usize = 8 * 1024;

/// The capacity of a link's staging buffer. It holds the hello, headers and small frames until they are
/// written. An empty staging buffer takes no memory.
pub const STAGING_MAX_BYTES: usize = 64 * 1024;

/// How many empty staging buffers an endpoint keeps for reuse.
pub const STAGING_SPARE_BUFFERS: usize = 16;

/// The size of a transport's read buffer, which all its links share. If the receiver has space for payload,
/// the payload bypasses this buffer.
pub const READ_BUFFER_BYTES: usize = 64 * 1024;

/// How many connections may wait in the kernel to be accepted. The kernel's own limit `net.core.somaxconn`
/// applies, too.
pub const BACKLOG_CONNECTIONS: i32 = 4096;

/// How many connections one pass accepts at most. An accept takes some ten system calls, and messages of
/// peers have to wait meanwhile.
pub const ACCEPT_BATCH_CONNECTIONS: u32 = 16;

/// How many addresses of peers of another version an endpoint remembers, to send them nothing.
pub const OTHER_VERSIONS_MAX_ADDRESSES: usize = 1024;

/// How many passes a transport waits before it accepts again, after a lack of descriptors or memory, or if
/// too many connections have not said hello. The wait ends early if a link of this endpoint ends, or when
/// the application is about to sleep (`arm`).
pub const ACCEPT_RETRY_PASSES: u32 = 64;

/// How soon a sleeping application accepts again after a lack of descriptors, memory or places. No event
/// announces the end of the lack.
pub const ACCEPT_RETRY_MS: u64 = 20;

/// How long connections of peers, and held links, wait for descriptors before they are refused.
pub const SHORTAGE_MAX_MS: u64 = 5_000;

/// How many descriptors a link of an endpoint to itself needs: both ends of the link, and of the check of its
/// claim.
pub const OWN_LINK_DESCRIPTORS: usize = 4;

/// How soon a sleeping application checks whether a peer's kernel has acknowledged what a closed link sent.
/// No event announces the acknowledgement.
pub const RETRY_MS: u64 = 2;

/// How many accepted connections of an endpoint may lack the peer's hello at once. Then a new connection
/// displaces the oldest of these. If the process may have few descriptors, [`HALF_OPEN_SHARE_PERCENT`]
/// allows fewer.
pub const HALF_OPEN_MAX_LINKS: usize = 1024;

/// How much of the process's descriptor limit accepted connections without a hello may take, in percent, for
/// each endpoint.
pub const HALF_OPEN_SHARE_PERCENT: u64 = 25;

/// For how long no new connection may displace an accepted connection without a hello. A peer that makes
/// progress says hello within this time. New connections without a place wait in the kernel meanwhile.
pub const HALF_OPEN_GRACE_MS: u64 = 100;

/// How many of the process's last descriptors the transport reserves for connects, files and other
/// endpoints. When only these are left, the transport accepts one more connection. After that, each new
/// connection must displace a connection without a hello, or a link whose claim is unproven.
pub const RESERVE_MAX_DESCRIPTORS: u64 = 32;

/// How much of the process's descriptor limit the transport reserves at most, in percent. If the limit is
/// low, this is fewer than [`RESERVE_MAX_DESCRIPTORS`].
pub const RESERVE_SHARE_PERCENT: u64 = 12;

/// How long an acceptor waits by default for the peer's hello. A peer with manual progress connects in one
/// pass and says hello in the next. If the peer computes for longer than this time between the two, the
/// acceptor drops the connection, and the peer connects again.
pub const HELLO_TIMEOUT_MS: u64 = 30_000;

/// While a connection lacks its hello, one pass in this many reads the clock.
pub const HELLO_CHECK_PASSES: u32 = 16;

/// How many accepted links an endpoint has at most, by default. If the process may have few descriptors,
/// these allow fewer. Accepted connections on which the peer has not said hello do not count, nor do links
/// that the endpoint has connected.
pub const ACCEPTED_DEFAULT_LINKS: usize = 16_384;

/// The percentage of the accepted links that may come from one host: from one IPv4 address, or one IPv6
/// network of 64 bits.
pub const HOST_LINKS_PERCENT: usize = 75;

/// How long, by default, an accepted link whose claim is unproven is safe from being displaced by another
/// link. A peer that makes progress confirms its claim within this time.
pub const UNPROVEN_GRACE_MS: u64 = 500;

/// How many checks of claimed addresses an endpoint makes at a time. Each check is a connection.
pub const CHECKS_MAX: usize = 16;

/// How many of the [`CHECKS_MAX`] checks may be of addresses without a held link.
pub const CHECKS_BACKGROUND_MAX: usize = 8;

/// How many of the [`CHECKS_MAX`] checks may be of addresses with a held link.
pub const CHECKS_CONTESTED_MAX: usize = 12;

/// How many checks of each of these two kinds may be of addresses of one host.
pub const CHECKS_OF_HOST_MAX: usize = 4;

/// How long a check may take from the start of its connection to the last answer.
pub const CHECK_TIMEOUT_MS: u64 = 2_000;

/// The delay after a check that leaves a claim of an address unproven, until the next check of the address.
/// The delay doubles with each check, [`CHECK_DELAY_DOUBLINGS`] times at most.
pub const CHECK_RETRY_MS: u64 = 50;

/// How often the delay of [`CHECK_RETRY_MS`] doubles at most.
pub const CHECK_DELAY_DOUBLINGS: u32 = 7;

/// How many unclear answers the claim of an accepted link may get that is up. After that, the claim is not
/// checked any more, and the link stays up, unproven. If another link to the claimed address is proven, the
/// unproven link ends.
pub const CHECK_UNCLEAR_MAX: u32 = 3;

/// If an address has no held or proven link, its claims are not checked any more after this many checks
/// without an answer. If no connection to the address can be made, one check is enough.
pub const CHECK_SILENT_MAX: u32 = 4;

/// If an address has a held or proven link, the claims of its other accepted links are not checked any more
/// after this many checks without an answer. Claims of held links are always checked.
pub const CHECK_CONTESTED_FAILURES_MAX: u32 = 100;

/// How many questions a connection may carry.
pub const QUESTIONS_MAX: usize = 128;

/// How many ended links that it has connected an endpoint remembers. It can still confirm these links when a
/// peer asks.
pub const PAST_TOKENS_MAX: usize = 1024;

/// How long a link with a contested claim is held, by default, before it ends. The time is long, because a
/// peer with manual progress answers no questions while it computes.
pub const HOLD_TIMEOUT_MS: u64 = 600_000;

/// How many links that claim the same address are held at once. Further links are refused.
pub const HELD_MAX_LINKS: usize = 64;

/// How many accepted links that claim the same address may be up at a time, without those whose peers have
/// hung up. An engine connects one link to each peer, and after its host has vanished and come back, another.
pub const UNHELD_MAX_LINKS_OF_ADDRESS: usize = 64;

const _: () = assert!(UNHELD_MAX_LINKS_OF_ADDRESS < homespun_engine::limits::PEER_MAX_LINKS);

/// How many links may lead to one address or claim it, including those whose peers have hung up. Further
/// claims are refused.
pub const LINKS_TO_ADDRESS_MAX: usize = 256;

/// How many held links that claim the same address the transport keeps after their peers have hung up.
/// Beyond this number it drops one: of the host with the most of these links, the one whose peer was the
/// first to hang up. It keeps such links because an honest peer may have sent a message and left. It keeps
/// few, because an honest peer seldom leaves while another link to its address lives.
pub const HELD_HUNG_UP_MAX_LINKS_OF_ADDRESS: usize = 4;

/// Like [`HELD_HUNG_UP_MAX_LINKS_OF_ADDRESS`], for the held links of all addresses together.
pub const HELD_HUNG_UP_MAX_LINKS: usize = 64;

/// How much later than its rivals a claim may have arrived and still count as older. The kernel tells the
/// time of arrival only in ticks, of up to 10 ms.
pub const ARRIVAL_TOLERANCE_MS: u64 = 20;

/// While a check of a claim is running or due later, at least one pass in this many reads the clock.
pub const CLAIM_TIME_CHECK_PASSES: u32 = 16;

/// How long the list of this host's addresses counts as current. The transport uses it only to judge claimed
/// addresses.
pub const ADDRESS_LIST_FRESH_MS: u64 = 1_000;

/// After this many ends of links, a pass reads no further links and no further answers of checks. Each end
/// costs some system calls, and the engine up to a thousand accesses of the peer.
pub const PASS_MAX_ENDS: u32 = 4;

/// How many of these [`PASS_MAX_ENDS`] a pass keeps for the checks of claims when it accepts connections,
/// each of which may end a link.
pub const CHECKS_MIN_ENDS: u32 = 1;

/// How many of these [`PASS_MAX_ENDS`] a pass keeps for the links that it reads.
pub const READS_MIN_ENDS: u32 = 1;

/// How many readiness events one poll of the kernel takes at most. The next poll takes the rest.
pub const EVENTS_MAX: usize = 256;

/// How long a connection is silent before the kernel sends a keepalive probe.
pub const KEEPALIVE_IDLE_S: u64 = 30;

/// The time between keepalive probes.
pub const KEEPALIVE_INTERVAL_S: u64 = 10;

/// How many keepalive probes may go unanswered, where the system does not apply [`USER_TIMEOUT_MS`] to
/// probes.
pub const KEEPALIVE_PROBES: u32 = 6;

/// How long a peer's host may leave data or keepalive probes unacknowledged before the kernel ends the
/// connection.
///
/// Linux also counts the time during which the peer's window is closed. The limit is long, because a peer
/// with manual progress may compute for minutes while its window is closed. This side notices the end of a
/// peer's process at once, but the loss of a host or of the network only after this time.
pub const USER_TIMEOUT_MS: u64 = 600_000;

/// If the frames of a read have at least this length on average, with what is outstanding of the last, the
/// link expects that the next frames are large, too.
pub const LARGE_FRAME_BYTES: u64 = 64 * 1024;

/// After so many reads that bring only small frames, the link expects no large frame any more. Between two
/// large frames often comes a small one, such as credit.
pub const LARGE_EXPECTED_READS: u32 = 4;

/// How much one read takes into the shared buffer at most while the link expects a large frame. The limit is
/// small because payload that comes in one read with its header must be copied. It does not apply if the
/// receiver has no space for the payload.
pub const READ_AHEAD_BYTES: usize = 4 * 1024;

/// After this many successful reads in a row from one link, passes read that link without first polling the
/// kernel. Such passes are called blind.
pub const BUSY_LINK_READS_MIN: u32 = 4;

/// After this many blind passes in a row, one pass polls the kernel about all links.
pub const BLIND_PASSES_MAX: u32 = 7;

/// A post that follows another on the same link within this time belongs to a burst. Frames of a burst share
/// packets.
pub const BURST_GAP_US: u64 = 100;

/// If frames of a burst were held back for longer than this, the next bursts are sent without a delay.
pub const HOLD_MAX_US: u64 = 500;

/// After this many posts, what is held back leaves, even if more posts follow.
pub const HOLD_MAX_POSTS: u32 = 32;

/// After this many bytes, what is held back leaves, even if more posts follow.
pub const HOLD_MAX_BYTES: usize = 16 * 1024;

/// How many bursts are sent without a delay after the first one that was held back for too long.
pub const HOLD_PAUSE_MIN_BURSTS: u32 = 16;

/// How many bursts at most are sent without a delay after one that was held back for too long.
pub const HOLD_PAUSE_MAX_BURSTS: u32 = 65_536;

/// After this many bursts in a row that were not held back for too long, the next pause is half as long.
pub const PUNCTUAL_BURSTS: u32 = 256;

/// How many peers an endpoint remembers the cores of, to find a peer on its own core while it waits: those
/// whose frames ended its latest long waits.
pub const RECENT_CORES_MAX_PEERS: usize = 4;
