//! The choice of the way by which large payload comes in on a link. The receiving side measures each way,
//! prefers the fastest, and now and then tries the others.
//!
//! Which way is the fastest depends on the processor, on the cores where the two processes run, and on what
//! the processes do. It also changes while a link lives. So there are no fixed limits, but measurements for
//! each link and each [class](class_of) of lengths.
//!
//! ```text
//!            every sample of the best way                  a few samples of another way
//!  +-- best ------------------------------+   it is due   +-- trial -----------------------+
//!  |  cost := median of the last samples  | ------------> |  cost := median of the samples |
//!  +--------------------------------------+ <------------ +--------------------------------+
//!       best := the way with the lowest cost        or too few samples came
//! ```
//!
//! If the processor is [crowded](crate::crowding), long payload is pulled whatever was measured.
//!
//! The sender exposes payload for a pull, or writes the payload into the ring. So this side publishes for
//! which classes it wants to pull. The sender may disregard this, and payload may be under way when the
//! choice changes. So each sample counts for the way that the payload has really taken.

#[cfg(all(test, not(loom)))]
mod tests;

use homespun_engine::address::Address;

use crate::clock::Clock;
use crate::crowding::Crowding;
use crate::limits::{
    CROWDED_PULL_MIN_BYTES, PULL_MIN_BYTES, RING_MAX_BYTES, TRIAL_MAX_TRANSFERS, TRIAL_MIN_TRANSFERS,
};
use crate::segment::DataArea;

/// How many ways there are.
const WAYS: usize = 3;

/// How many classes of lengths there are. The lengths in a class differ by a factor of up to 4.
pub(crate) const CLASSES: usize = 5;

/// A bit beside those of the classes: this side cannot map shareable memory of the sender.
const MAPS_NOTHING: u32 = 1 << 31;

/// A bit beside those of the classes: this side cannot read the memory of the sender's process.
const READS_NOTHING: u32 = 1 << 30;

/// The median of this many samples is the cost of a way. So a single delay of either process does not count.
const SAMPLES: usize = 5;

/// While no trial is on, one transfer in this many is timed. Reading the clock takes about 2 % of the
/// shortest transfers.
const TRANSFERS_PER_SAMPLE: u32 = 8;

/// A trial ends without a result after this many transfers by other ways. The sender then cannot follow, for
/// example since its application injects all messages.
const TRIAL_PATIENCE_TRANSFERS: u32 = 256;

/// A way by which payload comes in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// Through the ring. This side writes the lines that it has read back to memory. On many processors,
    /// the sender can then overwrite these lines sooner.
    WrittenBackRing,
    /// Through the ring, with plain copies.
    Ring,
    /// This side copies the payload from the sender's memory.
    Pull,
}

impl Way {
    const ALL: [Way; WAYS] = [Way::WrittenBackRing, Way::Ring, Way::Pull];

    /// The way of payload on a new link, before anything was measured.
    fn first(can_write_back: bool) -> Way {
        if can_write_back { Way::WrittenBackRing } else { Way::Ring }
    }
}

/// The measurements and choices of a link, for payload that comes in.
#[derive(Debug)]
pub(crate) struct Ways {
    /// The address of the peer's endpoint, for the log.
    peer: Address,
    clock: Clock,
    /// Whether each way is possible.
    possible: [bool; WAYS],
    /// Whether this side may be able to map shareable memory of the sender. Payload from such memory is
    /// always pulled.
    can_map: bool,
    classes: [Class; CLASSES],
    /// The large frame that is being read from the ring.
    frame: Option<Frame>,
    /// When this side asked for payload that the peer has not begun to send.
    asked_ns: Option<u64>,
    crowding: Crowding,
    /// Whether [`pulled_classes`](Self::pulled_classes) may have changed.
    is_changed: bool,
}

/// A large frame that is being read from the ring.
#[derive(Debug)]
struct Frame {
    way: Way,
    len_bytes: u64,
    /// `None` if the frame is not timed.
    begun_ns: Option<u64>,
}

/// The choice for payload of one class of lengths.
#[derive(Debug, Clone, Copy)]
struct Class {
    best: Way,
    /// The better way through the ring.
    ring: Way,
    samples: Samples,
    untimed_transfers: u32,
    trial: Option<Trial>,
    ways: [Candidate; WAYS],
}

/// What a class knows about a way.
#[derive(Debug, Clone, Copy)]
struct Candidate {
    /// The time for 64 KiB, in ns. `None` if the way was not measured yet.
    cost_ns: Option<u64>,
    /// How many transfers by the best way come before the next trial of this way.
    transfers_to_trial: u32,
    /// The value from which `transfers_to_trial` starts after the next trial.
    interval_transfers: u32,
}

/// A trial of a way that is not the best so far.
#[derive(Debug, Clone, Copy)]
struct Trial {
    way: Way,
    samples: Samples,
    /// How many bytes must come in by this way before a sample counts. How fast the sender can overwrite the
    /// ring depends on how this side has read it in the last lap.
    unsettled_bytes: u64,
    patience_transfers: u32,
}

#[derive(Debug, Clone, Copy, Default)]
struct Samples {
    costs_ns: [u64; SAMPLES],
    count: usize,
}

impl Ways {
    /// With `can_pull`, this process may be able to read the memory of the peer's process.
    pub(crate) fn new(peer: Address, clock: Clock, can_write_back: bool, can_pull: bool) -> Ways {
        Ways {
            peer,
            clock,
            possible: [can_write_back, true, can_pull],
            can_map: can_pull,
            classes: [Class::new(Way::first(can_write_back)); CLASSES],
            frame: None,
            asked_ns: None,
            crowding: Crowding::default(),
            is_changed: false,
        }
    }

    /// The ways of a ring in a test that does not time transfers.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn ring_only() -> Ways {
        let peer = homespun_engine::address::AddressFormat::SockaddrIn.wildcard();
        Ways::new(peer, Clock::system(), crate::write_back::can_write_back(), false)
    }

    /// Returns the classes for which the sender should expose payload, one bit for each class. Further bits
    /// say what this side cannot do: see [`is_mapped_memory_pulled`] and [`is_pulled`].
    pub(crate) fn pulled_classes(&self) -> u32 {
        let is_pulled = |n, class: &Class| class.present_way() == Way::Pull || self.is_pulled_in_crowd(n);
        let pulled = |(n, class)| u32::from(is_pulled(n, class)) << n;
        let classes = self.classes.iter().enumerate().map(pulled).fold(0, |bits, bit| bits | bit);
        let maps_nothing = if self.can_map { 0 } else { MAPS_NOTHING };
        let reads_nothing = if self.possible[Way::Pull as usize] { 0 } else { READS_NOTHING };
        classes | maps_nothing | reads_nothing
    }

    /// Returns the [classes](Self::pulled_classes) if they may have changed since the last call.
    #[inline]
    pub(crate) fn take_changed_pulled_classes(&mut self) -> Option<u32> {
        std::mem::take(&mut self.is_changed).then(|| self.pulled_classes())
    }

    /// Records that this side asks for payload that the peer has offered. The time until the payload comes
    /// counts: a pull would not have to wait until the peer makes a pass.
    pub(crate) fn payload_asked(&mut self) {
        self.asked_ns.get_or_insert_with(|| self.clock.now_ns());
    }

    /// Records that payload for which this side has asked was short, and has arrived whole. Short payload is
    /// not timed.
    #[inline]
    pub(crate) fn short_payload_arrived(&mut self) {
        self.asked_ns = None;
    }

    /// Records the beginning of a frame. Returns whether this side should write the lines of the payload
    /// back. With `is_asked`, this side has asked for the payload.
    #[inline]
    pub(crate) fn frame_begun(&mut self, len_bytes: u64, is_asked: bool) -> bool {
        let asked_ns = if is_asked { self.asked_ns.take() } else { None };
        let Some(class) = class_of(len_bytes) else { return self.classes[0].has_gained_by_write_back() };
        let way = self.classes[class].present_ring_way();
        let is_timed = self.classes[class].count_transfer_and_check_timed();
        let begun_ns = is_timed.then(|| {
            let now_ns = self.clock.now_ns();
            self.sample_crowding(class, now_ns);
            asked_ns.unwrap_or(now_ns)
        });
        self.frame = Some(Frame { way, len_bytes, begun_ns });
        way == Way::WrittenBackRing
    }

    /// Records that some of the frame's payload had no place yet. Such a frame is not timed: the cost of an
    /// unexpected message says little about the ring.
    #[inline]
    pub(crate) fn payload_unplaced(&mut self) {
        if let Some(frame) = &mut self.frame {
            frame.begun_ns = None;
        }
    }

    /// Records the end of a frame.
    #[inline]
    pub(crate) fn frame_ended(&mut self) {
        if let Some(Frame { way, len_bytes, begun_ns }) = self.frame.take() {
            let elapsed_ns = begun_ns.map(|begun_ns| self.clock.now_ns().saturating_sub(begun_ns));
            self.record_transfer(way, len_bytes, elapsed_ns);
        }
    }

    /// Calls `pull`, which pulls `len_bytes`, and records how long this took.
    pub(crate) fn time_pull<T>(
        &mut self,
        len_bytes: u64,
        is_done: impl FnOnce(&T) -> bool,
        pull: impl FnOnce() -> T,
    ) -> T {
        let timed_class =
            class_of(len_bytes).filter(|class| self.classes[*class].count_transfer_and_check_timed());
        let begun_ns = timed_class.map(|class| {
            let now_ns = self.clock.now_ns();
            self.sample_crowding(class, now_ns);
            now_ns
        });
        let pulled = pull();
        if is_done(&pulled) {
            let elapsed_ns = begun_ns.map(|begun_ns| self.clock.now_ns().saturating_sub(begun_ns));
            self.record_transfer(Way::Pull, len_bytes, elapsed_ns);
        }
        pulled
    }

    /// Records that the system does not let this process read the peer's memory.
    pub(crate) fn pull_refused(&mut self) {
        if self.possible[Way::Pull as usize] {
            tracing::trace!(peer = %self.peer, "the system lets no large payload be pulled");
        }
        self.possible[Way::Pull as usize] = false;
        for class in &mut self.classes {
            class.drop_way(Way::Pull);
        }
        self.is_changed = true;
    }

    /// Records that this side cannot map shareable memory of the sender.
    pub(crate) fn mapping_failed(&mut self) {
        self.is_changed |= self.can_map;
        self.can_map = false;
    }

    /// Whether this side may be able to map shareable memory of the sender.
    pub(crate) fn can_map(&self) -> bool {
        self.can_map
    }

    /// Whether this process may be able to read the memory of the peer's process.
    pub(crate) fn can_pull(&self) -> bool {
        self.possible[Way::Pull as usize]
    }

    /// Whether writing lines back seems to pay on this machine, for payload of this length.
    pub(crate) fn prefers_write_back(&self, len_bytes: u64) -> bool {
        class_of(len_bytes).is_some_and(|class| self.classes[class].ring == Way::WrittenBackRing)
    }

    /// Whether payload of a class is pulled since the processor is crowded.
    fn is_pulled_in_crowd(&self, class: usize) -> bool {
        self.crowding.is_crowded() && self.can_pull() && class >= FIRST_CROWDED_CLASS
    }

    /// Checks whether the processor is crowded, if this matters for the class.
    fn sample_crowding(&mut self, class: usize, now_ns: u64) {
        if class >= FIRST_CROWDED_CLASS && self.crowding.sample_if_due(&self.clock, now_ns) {
            self.is_changed = true;
            tracing::trace!(
                peer = %self.peer, is_crowded = self.crowding.is_crowded(),
                "other threads want this processor, or no longer do"
            );
        }
    }

    fn record_transfer(&mut self, way: Way, len_bytes: u64, elapsed_ns: Option<u64>) {
        let Some(class) = class_of(len_bytes) else { return };
        if self.is_pulled_in_crowd(class) {
            // The measurements are of another situation. A trial of the ring would never end.
            self.classes[class].trial = None;
            return;
        }
        let cost_ns = elapsed_ns.map(|elapsed_ns| cost_of_64_kib_ns(elapsed_ns, len_bytes));
        let (before, ways) = (self.classes[class].present_way(), &mut self.classes[class]);
        ways.record_transfer(way, len_bytes, cost_ns, &self.possible);
        let now = ways.present_way();
        if now != before {
            self.is_changed = true;
            let costs_ns = ways.ways.map(|way| way.cost_ns);
            let lengths_kib = class_begin_bytes(class) >> 10..class_begin_bytes(class + 1) >> 10;
            tracing::trace!(
                peer = %self.peer, ?lengths_kib, best = ?ways.best, ?now, ?costs_ns,
                "large payload takes another way"
            );
        }
    }
}

impl Class {
    fn new(best: Way) -> Class {
        let candidate = Candidate {
            cost_ns: None,
            transfers_to_trial: TRANSFERS_PER_SAMPLE,
            interval_transfers: TRIAL_MIN_TRANSFERS,
        };
        Class {
            best,
            ring: best,
            samples: Samples::default(),
            untimed_transfers: 0,
            trial: None,
            ways: [candidate; WAYS],
        }
    }

    /// The way that payload should take now.
    #[inline]
    fn present_way(&self) -> Way {
        self.trial.map_or(self.best, |trial| trial.way)
    }

    /// How this side should read payload that comes through the ring now, whatever the best way is.
    #[inline]
    fn present_ring_way(&self) -> Way {
        match self.present_way() {
            Way::Pull => self.ring,
            way => way,
        }
    }

    /// Whether both ways through the ring were measured, and the one with lines written back is faster.
    fn has_gained_by_write_back(&self) -> bool {
        self.ring == Way::WrittenBackRing && self.ways[Way::Ring as usize].cost_ns.is_some()
    }

    #[inline]
    fn count_transfer_and_check_timed(&mut self) -> bool {
        self.untimed_transfers += 1;
        let is_timed = self.trial.is_some()
            || self.untimed_transfers >= TRANSFERS_PER_SAMPLE
            || self.ways[self.best as usize].cost_ns.is_none();
        if is_timed {
            self.untimed_transfers = 0;
        }
        is_timed
    }

    fn record_transfer(&mut self, way: Way, len_bytes: u64, cost_ns: Option<u64>, possible: &[bool; WAYS]) {
        if let Some(trial) = &mut self.trial {
            if trial.way != way {
                trial.patience_transfers -= 1;
                let (tried, is_over) = (trial.way, trial.patience_transfers == 0);
                if is_over {
                    self.end_trial(tried);
                }
            } else if trial.unsettled_bytes > 0 {
                trial.unsettled_bytes = trial.unsettled_bytes.saturating_sub(len_bytes);
            } else if let Some(median_ns) = cost_ns.and_then(|cost_ns| trial.samples.add(cost_ns)) {
                self.ways[way as usize].cost_ns = Some(median_ns);
                self.end_trial(way);
                self.choose();
            }
            return;
        }
        if way != self.best {
            return;
        }
        if let Some(median_ns) = cost_ns.and_then(|cost_ns| self.samples.add(cost_ns)) {
            self.ways[way as usize].cost_ns = Some(median_ns);
            self.choose();
        }
        self.begin_trial_if_due(possible);
    }

    /// Makes the way with the lowest cost the best way. Does nothing for a small difference.
    fn choose(&mut self) {
        let Some(best_ns) = self.ways[self.best as usize].cost_ns else { return };
        let cost_of = |way: &Way| self.ways[*way as usize].cost_ns.unwrap_or(u64::MAX);
        let Some(lowest) = Way::ALL.into_iter().min_by_key(cost_of) else { return };
        if cost_of(&lowest) < best_ns - best_ns / 8 {
            self.samples = Samples::default();
            self.ways[self.best as usize].interval_transfers = TRIAL_MIN_TRANSFERS;
            self.ways[self.best as usize].transfers_to_trial = TRIAL_MIN_TRANSFERS;
            self.best = lowest;
        }
        if self.best != Way::Pull {
            self.ring = self.best;
        }
    }

    fn begin_trial_if_due(&mut self, possible: &[bool; WAYS]) {
        if self.ways[self.best as usize].cost_ns.is_none() {
            return;
        }
        for way in Way::ALL {
            let candidate = &mut self.ways[way as usize];
            if way == self.best || !possible[way as usize] {
                continue;
            }
            candidate.transfers_to_trial = candidate.transfers_to_trial.saturating_sub(1);
            if candidate.transfers_to_trial == 0 && self.trial.is_none() {
                let unsettled_bytes = if way == Way::Pull { 0 } else { DataArea::LARGE.bytes() as u64 };
                self.trial = Some(Trial {
                    way,
                    samples: Samples::default(),
                    unsettled_bytes,
                    patience_transfers: TRIAL_PATIENCE_TRANSFERS,
                });
            }
        }
    }

    /// Ends the trial of a way. The next trial comes the later, the more often the way was clearly worse.
    fn end_trial(&mut self, way: Way) {
        self.trial = None;
        self.samples = Samples::default();
        let best_ns = self.ways[self.best as usize].cost_ns.unwrap_or(0);
        let candidate = &mut self.ways[way as usize];
        let is_worse = candidate.cost_ns.is_none_or(|cost_ns| cost_ns > best_ns + best_ns / 4);
        candidate.interval_transfers = if is_worse {
            (2 * candidate.interval_transfers).min(TRIAL_MAX_TRANSFERS)
        } else {
            TRIAL_MIN_TRANSFERS
        };
        candidate.transfers_to_trial = candidate.interval_transfers;
    }

    /// Stops using a way that has become impossible.
    fn drop_way(&mut self, way: Way) {
        self.ways[way as usize].cost_ns = None;
        if self.trial.is_some_and(|trial| trial.way == way) {
            self.trial = None;
        }
        if self.best == way {
            self.best = self.ring;
            self.samples = Samples::default();
        }
    }
}

impl Samples {
    /// Adds a sample. Returns the median when there are enough samples, and begins anew.
    fn add(&mut self, cost_ns: u64) -> Option<u64> {
        self.costs_ns[self.count] = cost_ns;
        self.count += 1;
        if self.count < SAMPLES {
            return None;
        }
        self.count = 0;
        self.costs_ns.sort_unstable();
        Some(self.costs_ns[SAMPLES / 2])
    }
}

/// Returns the class of a length. `None` for payload that always takes the ring, since it is short, and for
/// payload that is always pulled if possible, since it is longer than [`RING_MAX_BYTES`].
#[inline]
pub(crate) fn class_of(len_bytes: u64) -> Option<usize> {
    if len_bytes < PULL_MIN_BYTES as u64 || len_bytes > RING_MAX_BYTES as u64 {
        return None;
    }
    let class = (len_bytes.ilog2() - PULL_MIN_BYTES.ilog2()) as usize / 2;
    Some(class.min(CLASSES - 1))
}

/// Whether the receiver that has published these classes would rather pull payload of this length.
#[inline]
pub(crate) fn is_pulled(classes: u32, len_bytes: u64) -> bool {
    match class_of(len_bytes) {
        Some(class) => classes >> class & 1 != 0,
        None => len_bytes > RING_MAX_BYTES as u64 && classes & READS_NOTHING == 0,
    }
}

/// Whether the receiver that has published these classes would pull payload from memory that it can map.
#[inline]
pub(crate) fn is_mapped_memory_pulled(classes: u32) -> bool {
    classes & MAPS_NOTHING == 0
}

const _: () = assert!(class_begin_bytes(CLASSES - 1) < RING_MAX_BYTES);

/// The first class that is pulled if the processor is crowded.
const FIRST_CROWDED_CLASS: usize = 1;

const _: () = assert!(class_begin_bytes(FIRST_CROWDED_CLASS) == CROWDED_PULL_MIN_BYTES);

/// Returns the shortest length of a class. For the number [`CLASSES`], returns the end of the last class.
const fn class_begin_bytes(class: usize) -> usize {
    if class < CLASSES { PULL_MIN_BYTES << (2 * class) } else { RING_MAX_BYTES }
}

/// Says in one sentence which ways there are, and how each link chooses.
pub(crate) fn describe_choice(can_write_back: bool) -> String {
    let name = |way: Way| match way {
        Way::WrittenBackRing => "through the ring, with lines written back",
        Way::Ring => "through the ring, with plain copies",
        Way::Pull => "as one copy from the sender's memory, where the system permits it",
    };
    let ways = Way::ALL.into_iter().filter(|way| can_write_back || *way != Way::WrittenBackRing);
    let ways: Vec<&str> = ways.map(name).collect();
    let begins: Vec<String> = (0..CLASSES).map(|class| format_size(class_begin_bytes(class))).collect();
    format!(
        "messages from {} to {} take the way that their receiver measures to be the fastest: {}; each link \
         measures for itself, for lengths from {} on, and begins with the way {}; while other threads want \
         the receiver's processor, messages from {} on are copied once; the trace log names each change",
        format_size(PULL_MIN_BYTES),
        format_size(RING_MAX_BYTES),
        ways.join("; "),
        begins.join(", "),
        name(Way::first(can_write_back)),
        format_size(CROWDED_PULL_MIN_BYTES),
    )
}

fn format_size(bytes: usize) -> String {
    if bytes < 1 << 20 { format!("{} KiB", bytes >> 10) } else { format!("{} MiB", bytes >> 20) }
}

fn cost_of_64_kib_ns(elapsed_ns: u64, len_bytes: u64) -> u64 {
    elapsed_ns.saturating_mul(64 << 10) / len_bytes.max(1)
}
