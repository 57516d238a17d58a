//! The limits of the engine. The name of each ends with its unit.

/// How many segments one operation may gather from or scatter to (`iov_limit`).
pub const IOV_LIMIT: usize = 4;

/// The largest message that may be injected (`inject_size`). The call copies its bytes before it
/// returns.
pub const INJECT_MAX_BYTES: usize = 4096;

/// How many transmit operations an endpoint may have outstanding by default (`tx_attr.size`). Only
/// outstanding operations take memory, some 200 bytes each.
///
/// Some programs post until a post is refused, and receive nothing until all their operations are
/// accepted. If the depth is too small for two such programs, such as MPI ranks, they wait for each
/// other for ever.
pub const TX_DEPTH_DEFAULT_OPS: usize = 1 << 16;

/// How many receives an endpoint may have posted by default (`rx_attr.size`).
pub const RX_DEPTH_DEFAULT_OPS: usize = 1 << 16;

/// The largest depth that an application may ask for, in either direction.
pub const DEPTH_MAX_OPS: usize = 1 << 20;

/// The alignment of messages in a multi-receive buffer, in bytes, so that the application can read
/// records in place. A message that does not fit at an aligned address may begin at any address.
pub const MULTI_RECV_ALIGN_BYTES: usize = 8;

/// The default of `FI_OPT_MIN_MULTI_RECV`, in bytes: a multi-receive buffer with less free room is
/// released. More room than this may still be too little for a message, which then goes to the next
/// receive.
pub const MIN_MULTI_RECV_DEFAULT_BYTES: usize = 64;

/// The largest message in bytes (`max_msg_size`): 1 TiB. It exceeds any buffer, but is small enough
/// that a frame header with a garbage length is recognised, and that sums of lengths cannot
/// overflow.
pub const MESSAGE_MAX_BYTES: u64 = 1 << 40;

/// The longest description of exposed payload ([`RemotePayload`](crate::transport::RemotePayload)):
/// an address and a length for each segment.
pub const REMOTE_MAX_BYTES: usize = IOV_LIMIT * 16;

/// How many bytes of one message one step pulls, before another message has its turn.
pub const PULL_STEP_MAX_BYTES: usize = 4 << 20;

/// How many bytes of messages one pass pulls before the engine reads frames again. The data of
/// writes has a limit of the same size. The step that reaches the limit is the last of the pass.
pub const PULL_PASS_MAX_BYTES: usize = 16 << 20;

/// How many unmatched offers one pass checks for room in the budget.
pub const DEFERRED_STEP_MAX_FETCHES: usize = 16;

/// The default memory of an endpoint for all its unexpected messages, in bytes
/// (`rx_attr.total_buffered_recv`).
pub const UNEXPECTED_BUDGET_DEFAULT_BYTES: usize = 64 << 20;

/// The least memory of an endpoint for unexpected messages, in bytes: the initial credit of one
/// link.
pub const UNEXPECTED_BUDGET_MIN_BYTES: usize = CREDIT_INITIAL_BYTES as usize;

/// The most memory of an endpoint for unexpected messages, in bytes. This is practically no limit,
/// but sums of such values cannot overflow.
pub const UNEXPECTED_BUDGET_MAX_BYTES: usize = usize::MAX / 4;

/// How much of the budget for unexpected messages the peers of one host may use together, in percent.
/// The initial credit of their links counts toward this share, but every link gets it, even beyond the
/// share. Peers that are proven by [credentials](crate::transport::AddressProof::Credentials) have no
/// such limit.
///
/// Of the default budget this is 48 MiB, the initial credit of 1536 links. One host runs fewer MPI ranks
/// than that. If all ranks of a laptop use TCP, they are peers of one host.
pub const HOST_SHARE_PERCENT: u64 = 75;

/// The most part of the budget, in percent, for payload that the peers of one host have offered and
/// that the receiver fetches before a receive matches it. It is less than [`HOST_SHARE_PERCENT`],
/// so that one such payload leaves credit for the other peers of the host.
pub const HOST_FETCH_PERCENT: u64 = 50;

/// How much a host may have left behind, so that its links are accepted although the budget is
/// overdrawn.
pub const HOST_RESERVE_BYTES: u64 = 1 << 20;

/// How many messages of peers that have left are dropped at most in one pass to make room, and how many offers
/// of links that have ended. A peer chooses how many messages it sends and offers, and dropping one takes some
/// 0.3 us.
pub const STEP_MAX_DROPS: usize = 1024;

/// How many links that wait for credit try again at most in one pass.
pub const STEP_MAX_RETRIES: usize = 64;

/// The credit that a message costs its sender besides its payload, in bytes. This is the memory
/// that the receiver needs for the message until a receive takes it. An offered message costs only
/// this, and nothing for its payload.
pub const MESSAGE_COST_BYTES: u64 = 768;

/// The credit that each link has at first, in bytes, before the receiver has granted any.
pub const CREDIT_INITIAL_BYTES: u64 = 32 << 10;

/// The largest message that travels eagerly, in bytes. A longer message is offered, and its payload
/// waits for the receiver.
pub const EAGER_MAX_BYTES: usize = 256 << 10;

/// How many accesses to regions may be unanswered on one link, in each direction. Further accesses
/// wait at the initiator. This bounds the memory that a target needs for accesses: some 150 bytes
/// each.
pub const RMA_LINK_MAX_OPS: usize = 1024;

/// The most bytes of a read that travel in one frame. After such a frame, other frames have their
/// turn on the link.
pub const READ_PIECE_MAX_BYTES: usize = 1 << 20;

/// How many regions of its peer an endpoint may map on one link, and how many of its own regions it
/// offers there. Accesses to other regions go by frames. A mapped region takes up address space of
/// its length, and its memory stays allocated until it is unmapped.
pub const MAPPED_LINK_MAX_REGIONS: usize = 64;

/// After this many passes an endpoint looks for regions that have ended among the mapped regions of
/// its peers, and unmaps them. Until then the memory of these regions stays allocated, even if
/// passes are rare.
pub const MAPPED_SWEEP_PASSES: u32 = 4096;

/// The most bytes of a region that one atomic operation covers. [`fi_atomicvalid`](crate::atomic)
/// gives this as a count of elements. While operands arrive, a target keeps up to twice as many
/// bytes for them, for one operation at a time on each link.
pub const ATOMIC_MAX_BYTES: usize = 16 << 10;

/// How many bytes of results the atomic operations on one link may have under way, in each
/// direction. Further operations wait at the initiator. This bounds the results that a target
/// keeps.
pub const ATOMIC_LINK_MAX_BYTES: usize = 16 * ATOMIC_MAX_BYTES;

/// The longest read, in bytes, that a target copies when the request arrives. The target copies a
/// read if later operations must not change the data. The copies of one link take at most
/// [`RMA_LINK_MAX_OPS`] times this.
pub const READ_COPIED_MAX_BYTES: usize = 4096;

/// The most bytes of application data with a connection request, and with its answer
/// (`FI_OPT_CM_DATA_SIZE`).
pub const CONNECTION_DATA_MAX_BYTES: usize = 256;

/// How many connection requests may wait for an answer at a passive endpoint by default
/// (`FI_BACKLOG`). The endpoint rejects further requests. A request that waits takes some 300 bytes
/// and its data, besides the memory of its link.
pub const BACKLOG_DEFAULT_REQUESTS: usize = 1024;

/// How long a requester waits for an answer, in milliseconds, after its link to the passive
/// endpoint has ended. It waits only if a link of an accepting endpoint is up, since the answer is
/// then on its way. The time is enough for TCP to send it again after 0.2 and 0.6 s.
pub const REQUESTER_WAIT_MAX_MS: u64 = 1_000;

/// How long silence may last, in milliseconds, after the engine first finds a deadline exceeded. In
/// this time an application that was late can receive the frames that arrived meanwhile.
pub const TIMEOUT_GRACE_MS: u64 = 100;

/// How many links an endpoint with a pending connection request keeps, since any of them may bring
/// the answer. The endpoint ends further links.
pub const REQUESTER_MAX_LINKS: usize = 64;

/// How often the engine repeats an attempt to connect that was cut short. If the last attempt is
/// cut short too, the operations that wait for the link fail.
pub const CONNECT_RETRIES_MAX: u32 = 3;

/// The least number of new peers, introduced by links, after which the engine looks for unused peers to
/// forget. It forgets only peers that two such searches in a row have found unused.
pub const PEER_SWEEP_MIN_PEERS: usize = 1024;

/// How many links a peer may have besides those to endpoints that were replaced. Each side opens one, and
/// opens another only when it has none. When a link of a peer is lost, all of these links end in one step.
pub const PEER_MAX_LINKS: usize = 64;

/// How many links that the engine has ended are closed at most in one pass. Closing one costs a transport
/// some system calls.
pub const STEP_MAX_CLOSES: usize = 16;

/// How long a link to a replaced endpoint may be silent, in milliseconds, before the engine ends
/// it. Frames of that endpoint may be on their way. The time is enough for TCP to send them again
/// after 0.2, 0.6, 1.4 and 3 s.
pub const REPLACED_LINK_IDLE_MAX_MS: u64 = 5_000;

/// How many silent links to replaced endpoints the engine ends at most in one step.
pub const STEP_MAX_REPLACED_ENDS: usize = 16;

/// How often the engine looks, in milliseconds, whether anything has arrived on links to replaced
/// endpoints, of which there may be many.
pub const REPLACED_LINK_CHECK_MS: u64 = 250;
