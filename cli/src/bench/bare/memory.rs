//! The shared memory of the two processes: what lies where.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use super::sys::{self, Segment};
use crate::failure::Failure;

/// A cache line.
pub(super) const LINE_BYTES: usize = 64;

/// How far numbers that different processes write are apart: processors fetch lines in pairs.
const SPACING_BYTES: usize = 2 * LINE_BYTES;

/// How long the ring of one direction is: it stays in the cache of a core.
pub(super) const RING_BYTES: usize = 256 * 1024;

/// The numbers that one process writes and the other reads.
#[derive(Debug, Clone, Copy)]
pub(super) enum Number {
    /// How many messages wait to be fetched.
    Offered,
    /// How many messages, or slots of the ring, were taken.
    Taken,
    /// How many signals were given.
    Signals,
    /// Where the message lies in the memory of its sender.
    Address,
    /// Where [`PROBE`] lies in the memory of a process.
    Probe,
}

const NUMBERS: usize = 5;

/// What belongs to one process.
const SIDE_BYTES: usize = NUMBERS * SPACING_BYTES + RING_BYTES;

const SEGMENT_BYTES: usize = 2 * SIDE_BYTES;

/// What a process finds if it can read the memory of the other.
static PROBE: [u8; 8] = *b"homespun";

/// Which of the two processes this is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Leader,
    Follower,
}

/// The shared memory, seen from one of the two processes.
#[derive(Debug)]
pub(in crate::bench) struct Memory {
    segment: Segment,
    side: Side,
}

impl Memory {
    /// Makes it, in the process that leads.
    pub(in crate::bench) fn create() -> Result<Memory, Failure> {
        let segment = Segment::create(SEGMENT_BYTES).map_err(failure("making shared memory"))?;
        Ok(Memory { segment, side: Side::Leader }.with_probe())
    }

    /// Opens it, in the process that follows.
    pub(in crate::bench) fn open(path: &Path) -> Result<Memory, Failure> {
        let segment = Segment::open(path, SEGMENT_BYTES).map_err(failure("opening the shared memory"))?;
        Ok(Memory { segment, side: Side::Follower }.with_probe())
    }

    /// Lets the other process find [`PROBE`].
    fn with_probe(self) -> Memory {
        self.own(Number::Probe).store((&raw const PROBE) as u64, Ordering::Release);
        self
    }

    /// Where another process of this user finds it.
    pub(in crate::bench) fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.segment.descriptor())
    }

    /// Whether this process may read the memory of the other, which has this number.
    ///
    /// # Errors
    ///
    /// Why it may not.
    pub(in crate::bench) fn probe(&self, pid: i32) -> io::Result<()> {
        let mut found = [0; PROBE.len()];
        sys::read_memory(pid, self.other(Number::Probe).load(Ordering::Acquire), &mut found)?;
        if found == PROBE { Ok(()) } else { Err(io::ErrorKind::InvalidData.into()) }
    }

    /// Makes it as it was in the beginning. Only the process that leads may do that, while the other waits to
    /// be told something.
    pub(super) fn clear(&self) {
        if self.side == Side::Leader {
            self.segment.clear();
        }
    }

    /// A number that this process writes.
    #[inline]
    pub(super) fn own(&self, number: Number) -> &AtomicU64 {
        self.number(self.side, number)
    }

    /// A number that the other process writes.
    #[inline]
    pub(super) fn other(&self, number: Number) -> &AtomicU64 {
        self.number(self.side.opposite(), number)
    }

    /// Where the ring begins that this process writes.
    pub(super) fn outgoing_offset(&self) -> usize {
        self.side.offset() + NUMBERS * SPACING_BYTES
    }

    /// Where the ring begins that the other process writes.
    pub(super) fn incoming_offset(&self) -> usize {
        self.side.opposite().offset() + NUMBERS * SPACING_BYTES
    }

    /// All of it.
    #[inline]
    pub(super) fn segment(&self) -> &Segment {
        &self.segment
    }

    #[inline]
    fn number(&self, side: Side, number: Number) -> &AtomicU64 {
        self.segment.number(side.offset() + number as usize * SPACING_BYTES)
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

fn failure(doing: &'static str) -> impl FnOnce(io::Error) -> Failure {
    move |error| Failure::Bare { doing, error }
}
