//! The limits of the engine. The name of each ends with its unit.

/// How many segments of memory one operation may have (`iov_limit`).
pub const IOV_LIMIT: usize = 4;

/// The largest message that may be injected, in bytes (`inject_size`). The call copies an injected message
/// before it returns.
pub const INJECT_MAX_BYTES: usize = 4096;

/// How many transmit operations an endpoint may have outstanding by default (`tx_attr.size`). Only
/// outstanding operations take memory, some 200 bytes each.
///
/// Some programs, such as MPI ranks, post until all their operations are accepted, and only then receive. If
/// the depth is too small, two such programs wait for each other for ever.
pub const TX_DEPTH_DEFAULT_OPS: usize = 1 << 16;

/// How many receives an endpoint may have posted by default (`rx_attr.size`).
pub const RX_DEPTH_DEFAULT_OPS: usize = 1 << 16;

/// The largest depth that an application may ask for, in either direction.
pub const DEPTH_MAX_OPS: usize = 1 << 20;

/// The alignment of messages in a multi-receive buffer, in bytes. An application can then read records in
/// place. A message that does not fit at an aligned address may begin at any address.
pub const MULTI_RECV_ALIGN_BYTES: usize = 8;

/// The default of `FI_OPT_MIN_MULTI_RECV`, in bytes. A multi-receive buffer with less free room is released.
/// A buffer with more free room may still be too small for a message. That message goes to the next receive.
pub const MIN_MULTI_RECV_DEFAULT_BYTES: usize = 64;

/// The largest message in bytes (`max_msg_size`): 1 TiB. A larger length in a frame header is recognised as
/// garbage, and sums of lengths cannot overflow.
pub const MESSAGE_MAX_BYTES: u64 = 1 << 40;

/// The longest description of exposed payload ([`RemotePayload`](crate::transport::RemotePayload)), in
/// bytes: an address and a length for each segment.
pub const REMOTE_MAX_BYTES: usize = IOV_LIMIT * 16;

/// How many bytes of one message one step pulls, before a step of another message.
pub const PULL_STEP_MAX_BYTES: usize = 4 << 20;

/// After this many pulled bytes of messages, a pass ends pulling. The data of writes has a separate limit of
/// the same size. The step that reaches the limit still runs to its end. A pass that pulls long keeps the
/// application from completions that it already has, and so keeps it from posting the next operations.
pub const PULL_PASS_MAX_BYTES: usize = 64 << 10;

/// How many passes an unmatched offer waits, at least, before the receiver pulls its payload. Meanwhile, the
/// application may post the receive, which saves a copy. If it does not, it may be waiting for another
/// message, which the sender sends only after this one.
pub const FETCH_DELAY_PASSES: u32 = 1024;

/// If so many passes take longer than this, the offer waits only for this time.
pub const FETCH_DELAY_MS: u64 = 2;

/// How many unmatched offers one pass checks for room in the budget.
pub const DEFERRED_STEP_MAX_FETCHES: usize = 16;

/// The default budget of an endpoint, in bytes (`rx_attr.total_buffered_recv`).
pub const UNEXPECTED_BUDGET_DEFAULT_BYTES: usize = 64 << 20;

/// The smallest budget of an endpoint, in bytes: the initial credit of one link.
pub const UNEXPECTED_BUDGET_MIN_BYTES: usize = CREDIT_INITIAL_BYTES as usize;

/// The largest budget of an endpoint, in bytes. Sums of such values cannot overflow.
pub const UNEXPECTED_BUDGET_MAX_BYTES: usize = usize::MAX / 4;

/// How much of the budget all peers on one host may use together, in percent. The initial credit of links
/// counts toward this share, but a link gets its initial credit even beyond the share. Peers that are proven
/// by [credentials](crate::transport::AddressProof::Credentials) have no such limit.
///
/// Of the default budget this is 48 MiB, the initial credit of 1536 links. One host runs fewer MPI ranks.
pub const HOST_SHARE_PERCENT: u64 = 75;

/// The part of the budget, in percent, that early fetches from one host may use at most: payload that the
/// receiver fetches before a receive matches it. Less than [`HOST_SHARE_PERCENT`], so early fetches leave
/// credit for the host's other peers.
pub const HOST_FETCH_PERCENT: u64 = 50;

/// While the budget is overdrawn, an endpoint refuses links from a TCP host that has left behind more than
/// this many bytes of messages.
pub const HOST_RESERVE_BYTES: u64 = 1 << 20;

/// How many messages of peers that have left are dropped at most in one pass to make room, and how many
/// offers of links that have ended. A peer chooses how many messages it sends and offers, and dropping one
/// takes some 0.3 us.
pub const STEP_MAX_DROPS: usize = 1024;

/// How many links that wait for credit try again at most in one pass.
pub const STEP_MAX_RETRIES: usize = 64;

/// The credit that a message costs its sender besides its payload, in bytes: the memory that the receiver
/// needs for the message until a receive takes it. An offered message costs only this.
pub const MESSAGE_COST_BYTES: u64 = 768;

/// The credit that a new link has, in bytes, before the receiver grants any.
pub const CREDIT_INITIAL_BYTES: u64 = 32 << 10;

/// The largest message that is sent at once with its payload, in bytes. A longer message is offered.
pub const EAGER_MAX_BYTES: usize = 256 << 10;

/// How many accesses to regions may be unanswered on one link, in each direction. Further accesses wait at
/// the initiator. A target needs some 150 bytes for each access.
pub const RMA_LINK_MAX_OPS: usize = 1024;

/// The longest write that is answered by count, in bytes. A link takes such a write as a whole, or not at
/// all.
pub const COUNTED_WRITE_MAX_BYTES: usize = INJECT_MAX_BYTES;

/// How many writes that are answered by count may be unanswered on one link, in each direction. Further
/// injected writes have an answer each, like other writes. A target keeps nothing of a counted write, except
/// the answer to one that it refuses, some 80 bytes.
pub const COUNTED_WRITES_LINK_MAX_OPS: u64 = 4096;

/// If this many operations are queued for a peer, an injected write to the peer is refused: the caller may
/// try again after progress. So the copies of injected writes to one peer take at most this many times
/// [`INJECT_MAX_BYTES`].
pub const INJECT_QUEUE_MAX_OPS: usize = 16;

/// The longest persistent flush, in bytes, that a target carries out when the request arrives. It carries
/// out a longer one in parts, over several passes, and the initiator holds later operations on the target,
/// other than flushes, back until it has the answer. Both sides rely on it, so another value needs another
/// version of the protocol.
pub const FLUSH_AT_ONCE_MAX_BYTES: usize = 64 << 10;

/// The most bytes of regions that one pass makes durable for flushes that are carried out in parts. The links
/// take turns.
pub const FLUSH_PASS_MAX_BYTES: usize = 4 << 20;

/// How many bytes a part of a flush counts as at least, since each part costs system calls: a pass carries
/// out at most eight parts.
pub const FLUSH_PART_MIN_BYTES: usize = 512 << 10;

/// The most bytes of read data in one frame. Other frames can travel on the link between two such frames.
pub const READ_PIECE_MAX_BYTES: usize = 1 << 20;

/// The size of a region's key in bytes, unless the application asks for shorter keys.
pub const KEY_MAX_BYTES: usize = 8;

/// The smallest size of a region's key in bytes. Shorter keys would be used again soon, and be easy to guess.
pub const KEY_MIN_BYTES: usize = 4;

/// How many regions of its peer an endpoint may map on one link. Also how many of its own regions an
/// endpoint lets the peer map. Accesses to other regions go by frames. The memory of a mapped region stays
/// allocated until it is unmapped.
pub const MAPPED_LINK_MAX_REGIONS: usize = 64;

/// Once in this many passes, an endpoint looks among its mapped regions for regions that have
/// ended, and unmaps them. Until then their memory stays allocated.
pub const MAPPED_SWEEP_PASSES: u32 = 4096;

/// The most bytes of a region that one atomic operation covers. [`fi_atomicvalid`](crate::atomic) returns
/// this limit as a number of elements. While operands arrive, a target keeps up to twice as many bytes for
/// one operation at a time on each link.
pub const ATOMIC_MAX_BYTES: usize = 16 << 10;

/// How many bytes of results the unfinished atomic operations on one link may have, in each direction.
/// Further operations wait at the initiator.
pub const ATOMIC_LINK_MAX_BYTES: usize = 16 * ATOMIC_MAX_BYTES;

/// The longest read, in bytes, that a target copies when the request arrives. The target copies the data if
/// later operations must not change it. The copies of one link take at most [`RMA_LINK_MAX_OPS`] times this
/// length.
pub const READ_COPIED_MAX_BYTES: usize = 4096;

/// The most application data with a connection request or with its answer, in bytes (`FI_OPT_CM_DATA_SIZE`).
pub const CONNECTION_DATA_MAX_BYTES: usize = 256;

/// How many connection requests may wait at a passive endpoint by default (`FI_BACKLOG`). The endpoint
/// rejects further requests. A waiting request takes some 300 bytes and its data, besides the memory of its
/// link.
pub const BACKLOG_DEFAULT_REQUESTS: usize = 1024;

/// How long a requester waits for an acceptor's answer, in milliseconds, after the link to the passive
/// endpoint has ended. The requester waits only if an acceptor's link is up. The time is enough for TCP to
/// send a lost answer again after 0.2 and 0.6 s.
pub const REQUESTER_WAIT_MAX_MS: u64 = 1_000;

/// When the engine first finds a deadline exceeded, it waits this long before it acts, in milliseconds. An
/// application that was late can meanwhile receive the frames that have arrived.
pub const TIMEOUT_GRACE_MS: u64 = 100;

/// How many links an endpoint with a pending connection request keeps. Any of these links may bring the
/// answer. A further link takes the place of another one, but not of the link that carries the request.
pub const REQUESTER_MAX_LINKS: usize = 64;

/// How often the engine repeats an attempt to connect that was cut short. After the last attempt, the
/// operations that wait for the link fail.
pub const CONNECT_RETRIES_MAX: u32 = 3;

/// The engine looks for unused peers to forget once links have introduced at least this many new peers. It
/// forgets only peers that two searches in a row have found unused.
pub const PEER_SWEEP_MIN_PEERS: usize = 1024;

/// How many links a peer may have besides those to endpoints that were replaced. Each side opens one, and
/// opens another only when it has none. When a link of a peer is lost, all of these links end in one step.
/// A transport that accepts several links of one address accepts fewer than this number, so that the link
/// that this side opens is never refused.
pub const PEER_MAX_LINKS: usize = 72;

/// How many links that the engine has ended are closed at most in one pass. Closing one costs a transport
/// some system calls.
pub const STEP_MAX_CLOSES: usize = 16;

/// How many ended links an engine can keep until they are closed without allocating. More links may end in
/// one pass.
pub const CONDEMNED_ROOM_LINKS: usize = 4 * STEP_MAX_CLOSES;

/// How long a link to a replaced endpoint may be silent, in milliseconds, before the engine ends the link.
/// The time is enough for TCP to send lost frames again after 0.2, 0.6, 1.4 and 3 s.
pub const REPLACED_LINK_IDLE_MAX_MS: u64 = 5_000;

/// How many silent links to replaced endpoints the engine ends at most in one step.
pub const STEP_MAX_REPLACED_ENDS: usize = 16;

/// How often the engine checks whether anything has arrived on links to replaced endpoints, in milliseconds.
pub const REPLACED_LINK_CHECK_MS: u64 = 250;
