//! Random programs of endpoints that share a receive context, checked against a model of matching. If a
//! member leaves or a link ends, the model does not predict which messages are lost. Instead the model
//! limits how many receives may fail, and checks that each receive ends once and that no credit is lost.
//!
//! The members of the context are in this process. The peers are in this process or in processes of their
//! own.

mod check;
mod ending;
mod run;

use proptest::prelude::*;

use crate::model::prelude::*;
use crate::model::program;
use crate::model::time_limit::run_with_time_limit;

/// A program for endpoints that share a receive context, and for peers that send to them.
#[derive(Debug, Clone)]
pub struct Program {
    /// The seed of the loopback network's faults.
    seed: u64,
    /// The depth of every completion queue; 0 for the default.
    cq_depth_entries: usize,
    /// The depth of the context; 0 for the default.
    depth_ops: usize,
    /// The budget of the context for unexpected messages; 0 for the default.
    unexpected_bytes: usize,
    /// Whether each member has a connection, with a peer of its own.
    connected: bool,
    /// The number of endpoints that receive from the context.
    members: usize,
    /// How many endpoints send to the members, if there are no connections.
    peers: usize,
    /// The steps. A receive is one of the context, each `from` is a peer, and every other place a member.
    steps: Vec<Step>,
}

/// Returns a program of members with connections, or without. If it has disruptions, members leave, and links
/// end.
pub fn any_program(is_disrupted: bool) -> impl Strategy<Value = Program> {
    any::<bool>().prop_flat_map(move |connected| any_program_of_kind(connected, is_disrupted))
}

/// Returns a program of members that have connections, or of members that have none.
pub fn any_program_of_kind(connected: bool, is_disrupted: bool) -> impl Strategy<Value = Program> {
    let (at, weight) = (|| 0..3_usize, u32::from(is_disrupted));
    let step = prop_oneof![
        36 => program::any_step_of_messages(),
        weight => at().prop_map(|at| Step::Close { at }),
        weight => at().prop_map(|at| Step::Kill { at }),
        2 * weight => (at(), at()).prop_map(|between| Step::Break { between }),
    ];
    let common = program::any_program_of(step, Disruption::Killing);
    (common, 1..=3_usize, 1..=2_usize).prop_map(move |(common, members, peers)| {
        let program::Program { seed, cq_depth_entries, depth_ops, unexpected_bytes, steps, .. } = common;
        Program { seed, cq_depth_entries, depth_ops, unexpected_bytes, connected, members, peers, steps }
    })
}

/// Runs a program over a new network of this kind. Panics unless the model explains its history. `faults`, if
/// given, are the faults of a loopback network during the steps.
pub fn run_and_check(turns: Turns, transport: &TransportKind, faults: Option<&Faults>, program: &Program) {
    let net = Net::new(&transport.with_seed(program.seed), turns);
    let observed = run_with_time_limit(program, || run::run_program(&net, program, faults));
    check::check_history(&observed, program.connected);
}

/// A history, and what has disrupted it. The sources are the numbers of peers, and the destinations are those
/// of members.
#[derive(Debug, Default)]
struct Observed {
    history: History,
    /// What each receive has lost, and who reported its end.
    receives: Vec<ReceiveLosses>,
    /// The members that have left. The flag tells whether the test had read all entries of the member's
    /// queue.
    left: BTreeSet<(usize, bool)>,
    /// The time after which the first link between a peer and a member had ended.
    ended_links: BTreeMap<(usize, usize), u64>,
    /// Whether the network ends links by itself.
    is_violent: bool,
}

#[derive(Debug, Default)]
struct ReceiveLosses {
    /// The member from whose queue the last entry of the receive was read.
    ended_at: Option<usize>,
    /// How many matched messages the receive lost because their member left.
    with_member: usize,
    /// How many matched messages the receive lost because their link ended. A directed receive that fails
    /// because its peer's link ended counts one.
    with_link: usize,
    /// Whether the end of the receive is lost: it was in the queue of a member that left with unread
    /// entries.
    is_unheard: bool,
}

impl Observed {
    fn has_left(&self, member: usize) -> bool {
        self.left.iter().any(|(left, _)| *left == member)
    }

    /// Whether a message may be lost although its member has not left.
    fn can_lose(&self, send: &SendOp) -> bool {
        self.is_violent || self.ended_links.contains_key(&link_of(send))
    }

    /// Whether a message must be received, since no event can have lost it.
    fn is_certain_to_arrive(&self, send: &SendOp) -> bool {
        !send.post.has_failed() && !self.has_left(send.post.to) && !self.can_lose(send)
    }

    fn has_ended(&self, receive: usize) -> bool {
        self.receives[receive].ended_at.is_some() || self.receives[receive].is_unheard
    }

    /// Returns each received message, the receive that matched it, and the time at which the completion was
    /// read.
    fn taken_messages(&self) -> impl Iterator<Item = (usize, &SendOp, usize, u64)> {
        self.history.sends.iter().enumerate().filter_map(|(number, send)| {
            let Operation::Receive(receive) = send.taker? else { return None };
            Some((number, send, receive, send.seen_at?))
        })
    }

    /// Returns the last time at which the receive was certainly posted: when its last message was sent, or
    /// when it was cancelled. Returns `u64::MAX` for a receive that has not ended.
    fn certainly_posted_until(&self, receive: usize) -> u64 {
        if !self.has_ended(receive) {
            return u64::MAX;
        }
        let took = self.taken_messages().filter(|(.., by, _)| *by == receive);
        let last_sent_at = took.map(|(_, send, ..)| send.post.posted_at).max();
        last_sent_at.max(self.history.receives[receive].cancel_asked_at).unwrap_or(0)
    }
}

/// Returns the peer and the member of a message.
fn link_of(send: &SendOp) -> (usize, usize) {
    (send.post.by.place, send.post.to)
}

/// Whether the test posted this receive at the end. No receive of a program has as much room.
fn is_drain_receive(receive: &ReceiveOp) -> bool {
    receive.buffer.is_none() && receive.len_bytes == program::LEN_MAX_BYTES
}
