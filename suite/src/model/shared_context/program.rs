//! Random programs of endpoints that share a receive context, and of peers that send to the endpoints.

use proptest::prelude::*;
use proptest::sample::select;

use crate::model::history::Level;
use crate::model::program::{any_buffer_bytes, any_len_bytes, any_tag, any_tag_match};

/// The disruptions of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Disruption {
    /// None.
    None,
    /// Members leave, and links end.
    Any,
}

/// A program for endpoints that share a receive context, and for their peers.
#[derive(Debug, Clone)]
pub struct Program {
    /// The seed of the loopback network's faults.
    pub(super) seed: u64,
    /// Whether each member has a connection, with a peer of its own.
    pub(super) connected: bool,
    /// The number of endpoints that receive from the context.
    pub(super) members: usize,
    /// How many endpoints send to the members, if there are no connections.
    pub(super) peers: usize,
    /// The depth of every completion queue; 0 for the default.
    pub(super) cq_depth_entries: usize,
    /// The number of receives that the context takes; 0 for the default.
    pub(super) depth_ops: usize,
    /// The budget for unexpected messages; 0 for the default.
    pub(super) unexpected_bytes: usize,
    pub(super) steps: Vec<Step>,
}

impl Program {
    /// The seed of the loopback network's faults.
    pub fn seed(&self) -> u64 {
        self.seed
    }
}

/// A step. Every operand is taken modulo the number of objects to choose from.
#[derive(Debug, Clone)]
pub(super) enum Step {
    /// A peer sends to a member.
    Send { from: usize, to: usize, tag: Option<u64>, len_bytes: usize, level: Level },
    /// Posts a receive to the context, for messages of one peer or of all.
    Receive { tagged: Option<(u64, u64)>, from: Option<usize>, len_bytes: usize, in_pieces: bool },
    /// Posts a multi-receive buffer.
    ReceiveMany { from: Option<usize>, len_bytes: usize, min_free_bytes: usize },
    /// Cancels one of the receives, whether or not it has ended.
    Cancel { which: usize },
    /// Drives a member without reading its queue.
    Drive { at: usize, rounds: usize },
    /// Reads up to `count` completions of a member.
    Read { at: usize, count: usize },
    /// Reads all entries of a peer.
    ReadPeer { at: usize },
    /// Closes a member, perhaps after reading its queue until it is empty.
    Leave { at: usize, reads_first: bool },
    /// Ends the link between a peer and a member. With `in_order`, shuts down the connection, if the link is
    /// one. Otherwise breaks the link.
    EndLink { from: usize, to: usize, in_order: bool },
}

/// Returns a program of members with connections, or without.
pub fn any_program(disruption: Disruption) -> impl Strategy<Value = Program> {
    any::<bool>().prop_flat_map(move |connected| any_program_of_kind(connected, disruption))
}

/// Returns a program of members that have connections, or of members that have none.
pub fn any_program_of_kind(connected: bool, disruption: Disruption) -> impl Strategy<Value = Program> {
    let depths = (select(vec![0, 0, 2, 5]), select(vec![0, 0, 3, 8]), select(vec![0, 20_000, 400_000]));
    let steps = prop::collection::vec(any_step(disruption), 1..50);
    (any::<u64>(), 1..=3_usize, 1..=2_usize, depths, steps).prop_map(
        move |(seed, members, peers, (cq_depth_entries, depth_ops, unexpected_bytes), steps)| Program {
            seed,
            connected,
            members,
            peers,
            cq_depth_entries,
            depth_ops,
            unexpected_bytes,
            steps,
        },
    )
}

fn any_step(disruption: Disruption) -> impl Strategy<Value = Step> {
    let weight = if disruption == Disruption::None { 0 } else { 2 };
    let at = || 0..3_usize;
    let from = || prop::option::weighted(0.25, 0..2_usize);
    let level = select(vec![Level::Inject, Level::Inject, Level::Delivery, Level::Match]);
    prop_oneof![
        9 => (at(), at(), any_tag(), any_len_bytes(), level).prop_map(
            |(from, to, tag, len_bytes, level)| Step::Send { from, to, tag, len_bytes, level }
        ),
        8 => (any_tag_match(), from(), any_len_bytes(), any::<bool>()).prop_map(
            |(tagged, from, len_bytes, in_pieces)| Step::Receive { tagged, from, len_bytes, in_pieces }
        ),
        2 => (from(), any_buffer_bytes(), 0..100_usize).prop_map(
            |(from, len_bytes, min_free_bytes)| Step::ReceiveMany { from, len_bytes, min_free_bytes }
        ),
        2 => any::<usize>().prop_map(|which| Step::Cancel { which }),
        4 => (at(), 1..4_usize).prop_map(|(at, rounds)| Step::Drive { at, rounds }),
        4 => (at(), 1..4_usize).prop_map(|(at, count)| Step::Read { at, count }),
        2 => at().prop_map(|at| Step::ReadPeer { at }),
        weight => (at(), any::<bool>()).prop_map(|(at, reads_first)| Step::Leave { at, reads_first }),
        weight => (at(), at(), any::<bool>()).prop_map(
            |(from, to, in_order)| Step::EndLink { from, to, in_order }
        ),
    ]
}
