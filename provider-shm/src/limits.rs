//! The limits of this backend. Each name ends in its unit. The limits of the rings are in `line.rs`,
//! `ring.rs` and `segment.rs`.

/// The smallest payload that the receiver may copy from the sender's memory. For smaller payload, two copies
/// through the ring are faster than one copy and a system call. For payload of this length and more, the
/// receiver measures which way is faster.
pub const PULL_MIN_BYTES: usize = 16 * 1024;

/// The largest payload that takes the ring where the receiver can copy it from the sender's memory. While a
/// longer frame fills the ring, no other message of the sender could pass it.
pub const RING_MAX_BYTES: usize = 16 * 1024 * 1024;

/// How many regions of a peer's shareable memory a link maps at most, to copy payload from them. For one
/// more, it unmaps the region that it has used least recently.
pub const PULLED_REGIONS_LINK_MAX: usize = 16;

/// After this many attempts in a row to map a region of the peer have failed, the link tries no more.
pub const MAP_FAILURES_MAX: u32 = 8;

/// How much memory of peers a process maps at most, as a multiple of the host's memory, with swap. One region
/// is at most as long as this memory.
pub const PEER_MEMORY_HOST_MULTIPLE: u64 = 16;

/// How much memory of peers a process maps at most, in bytes: a quarter of the address space of a process on
/// x86-64. It also maps at most half of what RLIMIT_AS allows.
pub const PEER_MEMORY_MAX_BYTES: u64 = 1 << 45;

/// Once in this many polls of the kernel, the transport unmaps regions that their owners have ended. Until
/// then their memory stays allocated.
pub const REGION_SWEEP_KERNEL_POLLS: u32 = 64;

/// The longest payload whose lines are written back to memory after they were copied from a region of the
/// peer, if the peer overwrites the payload between messages. The lines of longer payload leave the reader's
/// cache by themselves.
pub const REGION_WRITE_BACK_MAX_BYTES: u64 = 512 * 1024 - 1;

/// How many large transfers come before the receiver tries another way again, if that way was about as fast.
/// If it was slower, the number doubles with each trial, up to [`TRIAL_MAX_TRANSFERS`].
pub const TRIAL_MIN_TRANSFERS: u32 = 256;

/// How many large transfers come before the receiver tries another way again, at most.
pub const TRIAL_MAX_TRANSFERS: u32 = 4096;

/// The mean time between two forced switches of the receiver's thread, at most, on a crowded processor. On an
/// otherwise idle host, there are less than a hundred a second.
pub const CROWDED_SWITCH_NS: u64 = 2_500_000;

/// The shortest time between two readings of the number of forced switches.
pub const CROWDING_SAMPLE_NS: u64 = 5_000_000;

/// The smallest payload that the receiver pulls if its processor is crowded and the system permits it.
/// Shorter payload still takes the way that is measured to be faster.
pub const CROWDED_PULL_MIN_BYTES: usize = 64 * 1024;

/// How many rings of an endpoint have a large data area at a time, 256 KiB. The further ones have 64 KiB, so
/// that the rings of many peers take less memory.
pub const LARGE_RINGS_MAX: usize = 8;

/// How many connections may wait to be accepted, unless the provider sets another limit. The kernel's own
/// limit `net.core.somaxconn` applies, too.
pub const BACKLOG_CONNECTIONS: u16 = 4096;

/// How many connections the transport accepts before it reads their greetings.
pub const ACCEPT_BATCH_CONNECTIONS: u32 = 8;

/// How many descriptors an accepted link needs at a time: the connection, the ring and the doorbell of each
/// side, and the peer's process.
pub const ACCEPTED_LINK_DESCRIPTORS: usize = 6;

/// How many further descriptors a connected link needs when the peer answers: the peer's ring, doorbell and
/// process.
pub const ANSWER_DESCRIPTORS: usize = 3;

/// How long a connection waits for descriptors before it is refused.
pub const SHORTAGE_MAX_MS: u64 = 5_000;

/// How many accepted connections may wait for the peer's greeting at once. To accept more, the transport
/// drops the oldest one.
pub const HALF_OPEN_MAX_LINKS: usize = 256;

/// How many events one poll of the kernel takes at most. The next poll takes the rest.
pub const EVENTS_MAX: usize = 64;

/// After a frame, this many polls in a row may find none before the kernel is polled. Gaps between the frames
/// of a stream are shorter. A poll is a pass, or a glance in its place.
pub const GAP_MAX_POLLS: u32 = 512;

/// After such a gap, while a ring is hot but no frame arrives, the kernel is polled once in this many polls.
/// While no ring is hot, every poll asks the kernel.
pub const IDLE_POLLS_PER_KERNEL_POLL: u32 = 64;

/// While frames arrive, the kernel is polled at least once in this many polls.
pub const BUSY_POLLS_PER_KERNEL_POLL: u32 = 2048;

/// Idle polls are slow if they are this far apart on average. A poll of the kernel takes a fraction of that.
pub const SLOW_PASS_NS: u64 = 60_000;

/// Idle polls are also slow if they are this far apart on average, and other threads run between them.
pub const CROWDED_PASS_NS: u64 = 2_000;

/// Other threads run between idle polls if the kernel has taken the processor away this often between two
/// readings of the clock.
pub const CROWDED_PASSES_SWITCHES: u64 = 12;

/// If idle polls are slow, a pass polls the kernel if this many have gone by without that.
pub const SLOW_POLLS_PER_KERNEL_POLL: u32 = 4;

/// How many idle polls come between two readings of the clock that tells whether they are slow.
pub const IDLE_POLLS_PER_CLOCK_READ: u32 = 64;

/// After this many glances at the hot rings in a row that found nothing, the next poll makes a pass.
pub const IDLE_GLANCES_MAX: u32 = 31;

/// After a glance that found a frame, the next poll makes a pass if this many glances have come since the
/// last one.
pub const GLANCES_MAX: u32 = 256;

/// A ring becomes cold after this many polls in a row that find it empty. With several hot rings, this
/// number is divided by their number.
pub const COLD_AFTER_EMPTY_POLLS: u32 = 64 * 1024;

/// How many links a waiting endpoint examines at once, to find a peer on its own core. The next time it
/// examines the next ones.
pub const CORE_LOOK_MAX_LINKS: usize = 64;

/// How many links whose rings were full a pass examines for room.
pub const ROOM_LOOK_MAX_LINKS: usize = 16;

/// How many frames a pass takes from one ring before it turns to the next.
pub const RING_TURN_FRAMES: u32 = 64;

/// How soon a sleeping application retries what no event announces. A connect is retried if the peer's
/// backlog was full or too many descriptors were in flight. An accept is retried if the process had no
/// descriptor or memory.
pub const RETRY_MS: u64 = 2;

/// How many ports the transport tries for an endpoint at port 0: the whole dynamic range.
pub const PORTS_MAX: u16 = 16 * 1024;

/// How many threads at most wait for foreign descriptors to be closed. The descriptors of further messages
/// stay open.
pub const CLOSERS_MAX: usize = 4;
