//! The layout of the memory that the two processes share.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use super::sys::{self, BareSegment};
use crate::failure::CommandFailure;

/// The size of a cache line.
pub(super) const LINE_BYTES: usize = 64;

/// The distance between two numbers in shared memory: two cache lines, because some processors fetch
/// cache lines in pairs.
const SPACING_BYTES: usize = 2 * LINE_BYTES;

/// The length of the ring in one direction. It fits into the cache of a core.
pub(super) const RING_BYTES: usize = 256 * 1024;

/// The numbers that each process writes and the other process reads.
#[derive(Debug, Clone, Copy)]
pub(super) enum SharedNumber {
    /// How many messages the process has offered for copying.
    Offered,
    /// How many messages, or slots of the ring, the process has received.
    Taken,
    /// How many signals the process has sent.
    Signals,
    /// The address of the offered message in the memory of the process.
    Address,
    /// The address of [`PROBE`] in the memory of the process.
    Probe,
}

const NUMBERS: usize = 5;

/// The length of the part of the memory that one process writes.
const SIDE_BYTES: usize = NUMBERS * SPACING_BYTES + RING_BYTES;

const SEGMENT_BYTES: usize = 2 * SIDE_BYTES;

/// The bytes at the address [`SharedNumber::Probe`]. A process that can read these bytes in the memory of the
/// other process can read all of that memory.
static PROBE: [u8; 8] = *b"homespun";

/// One of the two processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Leader,
    Follower,
}

/// The shared memory, as one of the two processes uses it.
#[derive(Debug)]
pub(in crate::bench) struct BareMemory {
    segment: BareSegment,
    side: Side,
}

impl BareMemory {
    /// Creates the shared memory, in the leader.
    pub(in crate::bench) fn create() -> Result<BareMemory, CommandFailure> {
        let segment =
            BareSegment::create(SEGMENT_BYTES).map_err(bare_failure_while("making shared memory"))?;
        Ok(BareMemory { segment, side: Side::Leader }.publish_probe())
    }

    /// Opens the shared memory, in the follower.
    pub(in crate::bench) fn open(path: &Path) -> Result<BareMemory, CommandFailure> {
        let segment = BareSegment::open(path, SEGMENT_BYTES)
            .map_err(bare_failure_while("opening the shared memory"))?;
        Ok(BareMemory { segment, side: Side::Follower }.publish_probe())
    }

    /// Publishes the address of [`PROBE`] to the other process.
    fn publish_probe(self) -> BareMemory {
        self.number_of_own_side(SharedNumber::Probe).store((&raw const PROBE) as u64, Ordering::Release);
        self
    }

    /// The path at which another process of this user can open the shared memory.
    pub(in crate::bench) fn proc_fd_path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.segment.descriptor())
    }

    /// Checks that this process can read the memory of the other process, whose process id is `pid`.
    ///
    /// # Errors
    ///
    /// The reason why this process cannot read that memory.
    pub(in crate::bench) fn check_readv_access(&self, pid: i32) -> io::Result<()> {
        let mut found = [0; PROBE.len()];
        sys::read_process_memory(
            pid,
            self.number_of_other_side(SharedNumber::Probe).load(Ordering::Acquire),
            &mut found,
        )?;
        if found == PROBE { Ok(()) } else { Err(io::ErrorKind::InvalidData.into()) }
    }

    /// Zeroes the shared memory if this process is the leader. The follower must be waiting for its next
    /// step.
    pub(super) fn clear_if_leader(&self) {
        if self.side == Side::Leader {
            self.segment.clear();
        }
    }

    /// A number that this process writes.
    #[inline]
    pub(super) fn number_of_own_side(&self, number: SharedNumber) -> &AtomicU64 {
        self.number_of_side(self.side, number)
    }

    /// A number that the other process writes.
    #[inline]
    pub(super) fn number_of_other_side(&self, number: SharedNumber) -> &AtomicU64 {
        self.number_of_side(self.side.opposite(), number)
    }

    /// The offset of the ring that this process writes.
    pub(super) fn outgoing_ring_offset(&self) -> usize {
        self.side.offset() + NUMBERS * SPACING_BYTES
    }

    /// The offset of the ring that the other process writes.
    pub(super) fn incoming_ring_offset(&self) -> usize {
        self.side.opposite().offset() + NUMBERS * SPACING_BYTES
    }

    /// The whole segment.
    #[inline]
    pub(super) fn segment(&self) -> &BareSegment {
        &self.segment
    }

    #[inline]
    fn number_of_side(&self, side: Side, number: SharedNumber) -> &AtomicU64 {
        self.segment.atomic_at(side.offset() + number as usize * SPACING_BYTES)
    }
}

impl Side {
    fn opposite(self) -> Side {
        match self {
            Side::Leader => Side::Follower,
            Side::Follower => Side::Leader,
        }
    }

    fn offset(self) -> usize {
        match self {
            Side::Leader => 0,
            Side::Follower => SIDE_BYTES,
        }
    }
}

fn bare_failure_while(doing: &'static str) -> impl FnOnce(io::Error) -> CommandFailure {
    move |error| CommandFailure::Bare { doing, error }
}
