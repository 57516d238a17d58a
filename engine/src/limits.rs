//! The limits of the engine, each with its unit last.

/// How many segments one operation may gather from or scatter to (`iov_limit`).
pub const IOV_LIMIT: usize = 4;

/// The largest message that may be injected (`inject_size`): its bytes are copied before the call returns.
pub const INJECT_MAX_BYTES: usize = 4096;

/// How many transmit operations an endpoint may have outstanding by default (`tx_attr.size`).
/// Memory is taken by those that are outstanding, some 200 bytes each.
///
/// There are programs that post until they are refused, and receive nothing until all of it was
/// taken: two such programs, as ranks of MPI may be, wait for each other for ever where the depth
/// is too small for them.
pub const TX_DEPTH_DEFAULT_OPS: usize = 1 << 16;

/// How many receives an endpoint may have posted by default (`rx_attr.size`).
pub const RX_DEPTH_DEFAULT_OPS: usize = 1 << 16;

/// The largest depth that an application may ask for, in either direction.
pub const DEPTH_MAX_OPS: usize = 1 << 20;

/// Where messages begin in a multi-receive buffer, in bytes: at addresses that are multiples of
/// this, so that records can be read where they lie. Only a message that would not fit for that
/// begins elsewhere.
pub const MULTI_RECV_ALIGN_BYTES: usize = 8;

/// How much room a multi-receive buffer has at least, by default, until it is released
/// (`FI_OPT_MIN_MULTI_RECV`), in bytes. It need not be enough for a message: one that does not fit
/// goes to the next receive.
pub const MIN_MULTI_RECV_DEFAULT_BYTES: usize = 64;

/// The largest message in bytes (`max_msg_size`): 1 TiB, more than any buffer, so that the length
/// in a frame's header can be distinguished from garbage and sums of lengths cannot overflow.
pub const MESSAGE_MAX_BYTES: u64 = 1 << 40;

/// The longest description of exposed payload ([`Remote`](crate::transport::RemotePayload)): an address
/// and a length for each segment.
pub const REMOTE_MAX_BYTES: usize = IOV_LIMIT * 16;

/// How much of one message is pulled at a time, in bytes, before it is another's turn.
pub const PULL_STEP_MAX_BYTES: usize = 4 << 20;

/// How much is pulled in one pass, in bytes, before frames are looked at again: of messages, and
/// again of writes. The step that goes beyond is the last.
pub const PULL_PASS_MAX_BYTES: usize = 16 << 20;

/// How many offered messages without a receive one pass checks for room in the budget.
pub const DEFERRED_STEP_MAX_FETCHES: usize = 16;

/// How much memory of an endpoint unexpected messages may take in all by default, in bytes
/// (`rx_attr.total_buffered_recv`).
pub const UNEXPECTED_BUDGET_DEFAULT_BYTES: usize = 64 << 20;

/// The least that an endpoint has for unexpected messages, in bytes: what every link begins with.
pub const UNEXPECTED_BUDGET_MIN_BYTES: usize = CREDIT_INITIAL_BYTES as usize;

/// The most that an endpoint may set aside for unexpected messages, in bytes: as good as no limit,
/// but sums of it cannot overflow.
pub const UNEXPECTED_BUDGET_MAX_BYTES: usize = usize::MAX / 4;

/// What a message costs its sender in credit beside its payload, in bytes: what the receiver needs
/// to keep it until it is received. A request costs this much, and its payload nothing.
pub const MESSAGE_COST_BYTES: u64 = 768;

/// How much credit a link begins with, in bytes, before the receiver has said anything.
pub const CREDIT_INITIAL_BYTES: u64 = 32 << 10;

/// The largest message that travels eagerly, in bytes; a longer one waits for the receiver to ask for it.
pub const EAGER_MAX_BYTES: usize = 256 << 10;

/// How many accesses to regions may be unanswered on one link, in each direction. Those beyond wait
/// at the initiator; what a target keeps for them is bounded by it, some 150 bytes each.
pub const RMA_LINK_MAX_OPS: usize = 1024;

/// How much of a region travels in one frame when it is read, in bytes, before others have their
/// turn on the link.
pub const READ_PIECE_MAX_BYTES: usize = 1 << 20;

/// How many regions of a peer may be mapped on one link, and how many of its own an endpoint shows
/// on one. Others are accessed by frames. Each takes as much of the address space as it is long,
/// and its memory stays until it is unmapped.
pub const SHOWN_LINK_MAX_REGIONS: usize = 64;

/// After how many passes an endpoint that has mapped regions of peers gives those back that have
/// ended. Until then, or until it makes passes again, their memory stays.
pub const MAPPED_SWEEP_PASSES: u32 = 4096;

/// How much of a region one atomic operation covers, in bytes: what
/// [`fi_atomicvalid`](crate::atomic) gives as a count of elements. A target keeps up to twice as
/// much while operands arrive, for each link one operation at a time.
pub const ATOMIC_MAX_BYTES: usize = 16 << 10;

/// How many bytes of results one link may have under way, in each direction. Operations that would
/// bring more wait at the initiator; what a target keeps of results is bounded by it.
pub const ATOMIC_LINK_MAX_BYTES: usize = 16 * ATOMIC_MAX_BYTES;

/// The longest read that its target copies as it arrives, in bytes, where what comes after must not
/// change what is read. The copies of one link take no more than [`RMA_LINK_MAX_OPS`] times this.
pub const READ_COPIED_MAX_BYTES: usize = 4096;

/// How much data of the application's travels with a request for a connection, and with its answer, in bytes
/// (`FI_OPT_CM_DATA_SIZE`).
pub const CONNECTION_DATA_MAX_BYTES: usize = 256;

/// How many requests for a connection wait for an answer at a passive endpoint by default
/// (`FI_BACKLOG`). Those beyond are rejected. Each takes some 300 bytes, and its data, beside what
/// its link takes.
pub const BACKLOG_DEFAULT_REQUESTS: usize = 1024;

/// For how long a requester of a connection waits, in milliseconds, for an accepting endpoint that
/// has reached it when the passive endpoint that it asked has ended its link, or was lost. The
/// answer is on its way by then: this is time for TCP to send it again after 0.2 and 0.6 s.
pub const UNANSWERED_MAX_MS: u64 = 1_000;

/// For how long nothing may come, in milliseconds, after a limit of time was found exceeded for the
/// first time: time for an application that was late to receive what arrived meanwhile.
pub const TIMEOUT_GRACE_MS: u64 = 100;

/// How many links an endpoint that has asked for a connection has until one of them brings the
/// answer. Those beyond are ended.
pub const ASKING_MAX_LINKS: usize = 64;

/// How often a connection attempt that was cut short is repeated before what waits for it fails.
pub const CONNECT_RETRIES_MAX: u32 = 3;

/// For how long a link to an endpoint that was replaced may bring nothing, in milliseconds, before
/// it is ended. What that endpoint sent is on its way: this is time for TCP to send it again after
/// 0.2, 0.6, 1.4 and 3 s.
pub const REPLACED_LINK_IDLE_MAX_MS: u64 = 5_000;
