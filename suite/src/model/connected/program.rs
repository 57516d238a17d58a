//! Random programs of two connected endpoints.

use proptest::prelude::*;
use proptest::sample::select;

use crate::model::history::Level;
use crate::model::program::{any_buffer_bytes, any_len_bytes, any_tag, any_tag_match};

/// The length of the longest message, and of a buffer with room for any message. The sender only announces a
/// message of this length, even over TCP.
pub(super) const LONGEST_BYTES: usize = 300_000;

/// A program for two connected endpoints.
#[derive(Debug, Clone)]
pub struct Program {
    /// The seed of the loopback network's faults.
    pub(super) seed: u64,
    /// The depth of both endpoints in both directions; 0 for the default.
    pub(super) depth_ops: usize,
    /// The budget of both endpoints for unexpected messages; 0 for the default.
    pub(super) unexpected_bytes: usize,
    /// Whether all receives are posted before the first message is sent.
    pub(super) receives_first: bool,
    pub(super) steps: Vec<Step>,
}

impl Program {
    /// The seed of the loopback network's faults.
    pub fn seed(&self) -> u64 {
        self.seed
    }
}

#[derive(Debug, Clone)]
pub(super) enum Step {
    /// Sends to the other endpoint.
    Send {
        from: usize,
        tag: Option<u64>,
        len_bytes: usize,
        level: Level,
    },
    Receive {
        at: usize,
        tagged: Option<(u64, u64)>,
        len_bytes: usize,
    },
    /// Posts a buffer that takes many messages.
    ReceiveMany {
        at: usize,
        len_bytes: usize,
        min_free_bytes: usize,
    },
    /// Drives an endpoint without reading its queue.
    Drive {
        at: usize,
        rounds: usize,
    },
    /// Reads up to `count` completions.
    Read {
        at: usize,
        count: usize,
    },
}

impl Step {
    pub(super) fn is_receive(&self) -> bool {
        matches!(self, Step::Receive { .. } | Step::ReceiveMany { .. })
    }
}

/// Returns any program.
pub fn any_program() -> impl Strategy<Value = Program> {
    let bounds = (select(vec![0, 0, 3, 8]), select(vec![0, 0, 40_000, 100_000]), any::<bool>());
    (any::<u64>(), bounds, prop::collection::vec(any_step(), 1..60)).prop_map(
        |(seed, (depth_ops, unexpected_bytes, receives_first), steps)| {
            // Receives that are posted before all sends get the default depth. A small depth would let
            // tagged messages overtake untagged ones that wait for room.
            let depth_ops = if receives_first { 0 } else { depth_ops };
            Program { seed, depth_ops, unexpected_bytes, receives_first, steps }
        },
    )
}

fn any_step() -> impl Strategy<Value = Step> {
    let at = || 0..2_usize;
    let sent_bytes = prop_oneof![12 => any_len_bytes(), 1 => 250_000..LONGEST_BYTES];
    let level = select(vec![Level::Inject, Level::Inject, Level::Transmit, Level::Delivery, Level::Match]);
    prop_oneof![
        9 => (at(), any_tag(), sent_bytes, level).prop_map(
            |(from, tag, len_bytes, level)| Step::Send { from, tag, len_bytes, level }
        ),
        5 => (at(), any_tag_match(), any_len_bytes()).prop_map(
            |(at, tagged, len_bytes)| Step::Receive { at, tagged, len_bytes }
        ),
        3 => (at(), any_buffer_bytes(), 0..100_usize).prop_map(
            |(at, len_bytes, min_free_bytes)| Step::ReceiveMany { at, len_bytes, min_free_bytes }
        ),
        3 => (at(), 1..4_usize).prop_map(|(at, rounds)| Step::Drive { at, rounds }),
        3 => (at(), 1..6_usize).prop_map(|(at, count)| Step::Read { at, count }),
    ]
}
