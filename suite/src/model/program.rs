//! Random programs.
//!
//! The test takes each operand modulo the number of choices. So any part of a program is a program, too,
//! and a failing program can be shrunk.

use std::ops::Range;

use proptest::prelude::*;
use proptest::sample::select;
use serde::{Deserialize, Serialize};

use crate::model::prelude::*;

/// The length of the longest message, and of a buffer with room for any. The sender only announces a message
/// of this length, even over TCP.
pub(crate) const LEN_MAX_BYTES: usize = 300_000;

/// The largest alignment of messages in a buffer.
const ALIGNMENT_MAX_BYTES: usize = 64;

/// A program for a few endpoints.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Program {
    /// The seed of the loopback network's faults.
    pub(crate) seed: u64,
    pub(crate) parties: usize,
    /// Whether messages carry remote data. If not, each message has at least 8 bytes.
    pub(crate) with_data: bool,
    /// The depth of every completion queue; 0 for the default.
    pub(crate) cq_depth_entries: usize,
    /// The depth of every endpoint in both directions; 0 for the default.
    pub(crate) depth_ops: usize,
    /// The budget of every endpoint for unexpected messages; 0 for the default.
    pub(crate) unexpected_bytes: usize,
    /// Whether sends may use the match level. If not, they use the delivery level instead.
    pub(crate) with_matches: bool,
    /// Whether fence flags are set.
    pub(crate) with_fences: bool,
    /// The message order of all endpoints.
    pub(crate) order: Order,
    /// Whether sends and accesses complete in posting order.
    pub(crate) completes_in_order: bool,
    /// The memory of regions.
    pub(crate) memory: MemoryKind,
    #[serde(default)]
    pub(crate) topology: Topology,
    /// Whether all receives are posted before the first message is sent.
    #[serde(default)]
    pub(crate) receives_first: bool,
    /// What its steps may disrupt.
    #[serde(default)]
    pub(crate) disruption: Disruption,
    pub(crate) steps: Vec<Step>,
}

impl Program {
    /// Returns the part of the program that asks for nothing but what is offered.
    #[must_use]
    pub fn within(mut self, offer: &Offer) -> Program {
        if offer.is_native {
            return self;
        }
        // An application may ask for a budget or a depth, but which it gets is up to the provider.
        (self.cq_depth_entries, self.depth_ops, self.unexpected_bytes) = (0, 0, 0);
        self.memory = MemoryKind::Owned;
        self.order &= offer.order;
        self.with_data &= offer.has_data;
        self.with_fences &= offer.has_fences;
        self.with_matches &= offer.has_matches;
        self.completes_in_order &= offer.completes_in_order;
        // No buffer is too short for a message after others: the man pages do not say what it receives then.
        // Nor does a buffer come near the least free length that a provider has by default.
        let room_bytes = LEN_MAX_BYTES + self.steps.iter().map(Step::room_for_message).sum::<usize>();
        let steps = self.steps.into_iter();
        self.steps = steps.filter_map(|step| offer.restrict_step(step, room_bytes)).collect();
        self
    }

    /// The number of its steps.
    pub fn steps_len(&self) -> usize {
        self.steps.len()
    }
}

/// Which endpoints of a program send to which.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Topology {
    #[default]
    Any,
    /// One endpoint sends untagged messages to another, and no receive is cancelled. Then only one matching
    /// is possible.
    Stream,
    /// Two endpoints have a connection.
    Connected,
}

/// A step of a program.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) enum Step {
    /// Sends a message.
    Send(SendStep),
    /// Posts a receive.
    Receive(ReceiveStep),
    /// Posts a multi-receive buffer.
    ReceiveMany { at: usize, from: Option<usize>, len_bytes: usize, min_free_bytes: usize },
    /// Peeks at a tagged message that has arrived. Only programs with remote data peek, to identify the
    /// message.
    Peek { at: usize, tagged: (u64, u64), from: Option<usize>, then: PeekAction },
    /// Receives or discards one of the claimed messages.
    Claim { at: usize, which: usize, len_bytes: usize, discards: bool },
    /// Accesses the region of an endpoint.
    Access(AccessStep),
    /// Accesses elements of a region, atomically or not.
    Elements(ElementsStep),
    /// The owner of a region reads or writes it directly.
    Touch { at: usize, part: (usize, usize), writes: bool },
    /// Drives an endpoint without reading its queue.
    Drive { at: usize, rounds: usize },
    /// Reads up to `count` completions.
    Read { at: usize, count: usize },
    /// Cancels one of the endpoint's posted operations, which may have ended already.
    Cancel { at: usize, which: usize },
    /// Closes an endpoint in order.
    Close { at: usize },
    /// Ends an endpoint as if its process had died.
    Kill { at: usize },
    /// Opens another endpoint at a vacant address.
    Reopen { at: usize },
    /// Breaks the link between two endpoints.
    Break { between: (usize, usize) },
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct SendStep {
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) tag: Option<u64>,
    pub(crate) len_bytes: usize,
    pub(crate) call: SendCall,
    pub(crate) fenced: bool,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct ReceiveStep {
    pub(crate) at: usize,
    /// The tag, and the bits to ignore.
    pub(crate) tagged: Option<(u64, u64)>,
    pub(crate) from: Option<usize>,
    pub(crate) len_bytes: usize,
    pub(crate) in_pieces: bool,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct AccessStep {
    pub(crate) from: usize,
    pub(crate) to: usize,
    /// Offset and length.
    pub(crate) part: (usize, usize),
    pub(crate) call: AccessCall,
    pub(crate) fenced: bool,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct ElementsStep {
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) row: usize,
    /// The index of the first element, and the number of elements.
    pub(crate) part: (usize, usize),
    pub(crate) call: ElementsCall,
    /// The number of the operation, or `None` for the most common one.
    pub(crate) op: Option<usize>,
    pub(crate) fenced: bool,
}

impl Step {
    pub(crate) fn is_receive(&self) -> bool {
        matches!(self, Step::Receive(_) | Step::ReceiveMany { .. })
    }

    /// The room that the step's message takes in a buffer with others, at most.
    fn room_for_message(&self) -> usize {
        match self {
            Step::Send(send) => send.len_bytes + ALIGNMENT_MAX_BYTES,
            _ => 0,
        }
    }
}

/// The call that sends a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum SendCall {
    /// At the default level.
    Plain,
    InPieces,
    Inject,
    /// At a level that waits for the receiver.
    Transmit,
    Delivery,
    Match,
}

impl SendCall {
    /// The level of its completion.
    pub(crate) fn level(self, with_matches: bool) -> Level {
        match self {
            SendCall::Plain | SendCall::InPieces | SendCall::Inject => Level::Inject,
            SendCall::Transmit => Level::Transmit,
            SendCall::Match if with_matches => Level::Match,
            SendCall::Delivery | SendCall::Match => Level::Delivery,
        }
    }
}

/// The call that accesses a region.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum AccessCall {
    Write,
    /// A write with remote data, which produces a completion at the target.
    WriteData,
    InjectWrite,
    Read,
    /// A write at the match level, which matters for preceding sends.
    WriteMatched,
    ReadMatched,
    /// Flushes for visibility.
    Flush,
}

impl AccessCall {
    /// The level of its completion.
    pub(crate) fn level(self, with_matches: bool) -> Level {
        let is_matched = matches!(self, AccessCall::ReadMatched | AccessCall::WriteMatched);
        if is_matched && with_matches { Level::Match } else { Level::Delivery }
    }
}

/// The call that accesses elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ElementsCall {
    Base,
    Inject,
    Fetch,
    Compare,
    /// Plain accesses, which are not atomic.
    Write,
    Read,
    /// A read of all rows, and of the bytes before them.
    ReadAll,
}

/// What a peek does with the message that it finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum PeekAction {
    Leave,
    Claim,
    Discard,
}

impl PeekAction {
    /// The flags of such a peek.
    pub(crate) fn flags(self) -> OpFlags {
        match self {
            PeekAction::Leave => OpFlags::PEEK,
            PeekAction::Claim => OpFlags::PEEK | OpFlags::CLAIM,
            PeekAction::Discard => OpFlags::PEEK | OpFlags::DISCARD,
        }
    }
}

/// The kinds of disruptions of endpoints and links.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Disruption {
    /// None. All messages arrive, in order.
    #[default]
    None,
    /// Endpoints close in order, and others open at their addresses. All messages to receivers that were not
    /// closed arrive, in order.
    Closing,
    /// Endpoints end as if their processes had died, and links of a simulated network break. All acknowledged
    /// messages arrive, and all between endpoints that live, unless links break.
    Killing,
}

/// Returns any program with these disruptions.
pub fn any_program(disruption: Disruption) -> impl Strategy<Value = Program> {
    any_program_of(any_step(disruption), disruption)
}

/// Returns any program of such steps.
pub(crate) fn any_program_of(
    step: impl Strategy<Value = Step>,
    disruption: Disruption,
) -> impl Strategy<Value = Program> {
    let depths = (select(vec![0, 0, 2, 5]), select(vec![0, 0, 3, 8]));
    let kinds = (prop::bool::weighted(0.7), prop::bool::weighted(0.3));
    let steps = prop::collection::vec(step, 1..60);
    let memory = select([MemoryKind::ALL.to_vec(), vec![MemoryKind::Raw, MemoryKind::Shareable]].concat());
    let orders = (any_order(), any::<bool>(), memory);
    (any::<u64>(), 2..=3_usize, kinds, depths, any_budget_matches_and_fences(disruption), orders, steps)
        .prop_map(move |(seed, parties, kinds, depths, waits, orders, steps)| {
            let (with_data, is_stream) = kinds;
            let (cq_depth_entries, depth_ops) = depths;
            let (unexpected_bytes, with_matches, with_fences) = waits;
            let (order, completes_in_order, memory) = orders;
            Program {
                seed,
                parties,
                with_data,
                cq_depth_entries,
                depth_ops,
                unexpected_bytes,
                with_matches,
                with_fences,
                order,
                completes_in_order,
                memory,
                topology: if is_stream { Topology::Stream } else { Topology::Any },
                receives_first: false,
                disruption,
                steps,
            }
        })
}

/// Returns any program of two connected endpoints.
pub fn any_connected_program() -> impl Strategy<Value = Program> {
    (any_program(Disruption::None), any::<bool>()).prop_map(|(program, receives_first)| {
        // Receives that are posted before all sends get the default depth. A small depth would let tagged
        // messages overtake untagged ones that wait for room.
        let depth_ops = if receives_first { 0 } else { program.depth_ops };
        Program { parties: 2, topology: Topology::Connected, receives_first, depth_ops, ..program }
    })
}

/// Returns the budget for unexpected messages, whether sends use the match level, and whether there are
/// fences.
///
/// A small budget and the match level keep messages at their sender. Closing an endpoint waits only a
/// limited time for such messages, and then they are lost. So programs that close endpoints use neither.
fn any_budget_matches_and_fences(disruption: Disruption) -> BoxedStrategy<(usize, bool, bool)> {
    match disruption {
        Disruption::Closing => any::<bool>().prop_map(|with_fences| (0, false, with_fences)).boxed(),
        Disruption::None | Disruption::Killing => {
            (select(vec![0, 0, 20_000, 64_000]), any::<bool>(), any::<bool>()).boxed()
        }
    }
}

/// Returns any step that sends or receives messages.
pub(crate) fn any_step_of_messages() -> impl Strategy<Value = Step> {
    let (tag, tag_match) = (prop::option::of(0..4_u64), prop::option::of(any_tag_and_mask()));
    let few_messages = prop_oneof![4 => 0..300_usize, 2 => 300..9000_usize, 1 => 60_000..2 * LEN_MAX_BYTES];
    prop_oneof![
        8 => (any_place(), any_place(), tag, any_len_bytes(), any_send_call(), any_fence()).prop_map(
            |(from, to, tag, len_bytes, call, fenced)| {
                Step::Send(SendStep { from, to, tag, len_bytes, call, fenced })
            }
        ),
        7 => (any_place(), tag_match, any_source(), any_len_bytes(), any::<bool>()).prop_map(
            |(at, tagged, from, len_bytes, in_pieces)| {
                Step::Receive(ReceiveStep { at, tagged, from, len_bytes, in_pieces })
            }
        ),
        3 => (any_place(), any_source(), few_messages, 0..100_usize).prop_map(
            |(at, from, len_bytes, min_free_bytes)| Step::ReceiveMany { at, from, len_bytes, min_free_bytes }
        ),
        3 => (any_place(), 1..4_usize).prop_map(|(at, rounds)| Step::Drive { at, rounds }),
        4 => (any_place(), 1..6_usize).prop_map(|(at, count)| Step::Read { at, count }),
        1 => (any_place(), any::<usize>()).prop_map(|(at, which)| Step::Cancel { at, which }),
    ]
}

fn any_step(disruption: Disruption) -> BoxedStrategy<Step> {
    let peek_actions = vec![PeekAction::Leave, PeekAction::Claim, PeekAction::Discard];
    let op_and_fence = (prop::option::of(0..20_usize), any_fence());
    let usual = prop_oneof![
        26 => any_step_of_messages(),
        4 => (any_place(), any_tag_and_mask(), any_source(), select(peek_actions)).prop_map(
            |(at, tagged, from, then)| Step::Peek { at, tagged, from, then }
        ),
        2 => (any_place(), any::<usize>(), any_len_bytes(), prop::bool::weighted(0.3)).prop_map(
            |(at, which, len_bytes, discards)| Step::Claim { at, which, len_bytes, discards }
        ),
        7 => (any_place(), any_place(), any_region_part(), any_access_call(), any_fence()).prop_map(
            |(from, to, part, call, fenced)| Step::Access(AccessStep { from, to, part, call, fenced })
        ),
        9 => (any_place(), any_place(), any_elements(), any_elements_call(), op_and_fence).prop_map(
            |(from, to, (row, part), call, (op, fenced))| {
                Step::Elements(ElementsStep { from, to, row, part, call, op, fenced })
            }
        ),
        2 => (any_place(), any_region_part(), prop::bool::weighted(0.3)).prop_map(
            |(at, part, writes)| Step::Touch { at, part, writes }
        ),
    ];
    match disruption {
        Disruption::None => usual.boxed(),
        Disruption::Closing => prop_oneof![
            60 => usual,
            2 => any_place().prop_map(|at| Step::Close { at }),
            1 => any_place().prop_map(|at| Step::Reopen { at }),
        ]
        .boxed(),
        Disruption::Killing => prop_oneof![
            60 => usual,
            2 => any_place().prop_map(|at| Step::Kill { at }),
            2 => (any_place(), any_place()).prop_map(|between| Step::Break { between }),
            1 => any_place().prop_map(|at| Step::Reopen { at }),
        ]
        .boxed(),
    }
}

fn any_place() -> Range<usize> {
    0..3
}

/// Returns the only source that a receive accepts, or `None` for any source.
fn any_source() -> impl Strategy<Value = Option<usize>> {
    prop::option::weighted(0.3, any_place())
}

fn any_fence() -> impl Strategy<Value = bool> {
    prop::bool::weighted(0.1)
}

/// Returns the tag of a receive and a mask of the bits that it ignores. Many masks ignore some bits in use.
fn any_tag_and_mask() -> impl Strategy<Value = (u64, u64)> {
    (0..4_u64, select(vec![0, 0, 1, 2, 3]))
}

fn any_send_call() -> impl Strategy<Value = SendCall> {
    use SendCall::{Delivery, InPieces, Inject, Match, Plain, Transmit};
    select(vec![Plain, Plain, InPieces, Inject, Transmit, Delivery, Match, Match])
}

/// Returns all orders, none, or a random choice.
fn any_order() -> impl Strategy<Value = Order> {
    prop_oneof![
        2 => Just(Order::STRICT),
        1 => Just(Order::empty()),
        2 => any::<u64>().prop_map(Order::from_bits_truncate),
    ]
}

/// Returns a part of a region, from few offsets, so that accesses overlap.
fn any_region_part() -> impl Strategy<Value = (usize, usize)> {
    (select(vec![0, 0, 8, 100, 3001, 20_000, 50_000]), any_len_bytes())
}

fn any_access_call() -> impl Strategy<Value = AccessCall> {
    use AccessCall::{Flush, InjectWrite, Read, ReadMatched, Write, WriteData, WriteMatched};
    select(vec![Write, Write, WriteData, InjectWrite, WriteMatched, Flush, Read, Read, ReadMatched])
}

/// Returns a row and a part of it, from few choices, so that accesses overlap.
fn any_elements() -> impl Strategy<Value = (usize, (usize, usize))> {
    let row = prop_oneof![4 => Just(0), 5 => 0..ROWS.len()];
    let count = prop_oneof![6 => 1..4_usize, 2 => 4..20_usize, 1 => 20..1100_usize];
    (row, (select(vec![0, 0, 0, 1, 5]), count))
}

fn any_elements_call() -> impl Strategy<Value = ElementsCall> {
    use ElementsCall::{Base, Compare, Fetch, Inject, Read, ReadAll, Write};
    select(vec![Base, Base, Inject, Fetch, Fetch, Fetch, Compare, Compare, Read, ReadAll, Write])
}

/// Returns mostly short lengths, often around a limit between protocols.
fn any_len_bytes() -> impl Strategy<Value = usize> {
    prop_oneof![
        16 => 0..64_usize,
        6 => 64..3000_usize,
        2 => 4090..4102_usize,
        2 => 8186..8198_usize,
        2 => 60_000..100_000_usize,
        1 => 250_000..LEN_MAX_BYTES,
    ]
}
