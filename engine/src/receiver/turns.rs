//! Completion order of connections. The receives of a connection must complete in the order in
//! which they match. But a fetched message may arrive later than messages that were sent after it.
//! So once a receive has matched a fetched message, this receive and all later ones get a *turn*. A
//! receive that ends before its turn is held until all earlier turns have ended. Without fetches
//! there are no turns.
//!
//! A receive with a turn has the role [`InTurn`](ReceiveRole::InTurn), and is not signalled. So the
//! code of ordinary receives needs no check for turns. The turn keeps the receive's original role
//! and signalling. See `docs/decisions/connection-order.md`.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use slotmap::SparseSecondaryMap;

use super::links::Arriving;
use super::write_notice::WriteNotice;
use super::{MemberId, PayloadDestination, Receiver, ReceiverEffects};
use crate::error::OperationError;
use crate::operation::{ReceiveId, ReceiveRole, Signalled};
use crate::peer_id::PeerId;
use crate::reassembly::Reassembly;
use crate::wire::Message;

/// The receives that have turns.
#[derive(Debug, Default)]
pub(super) struct ReceiveTurns {
    /// The members whose receives complete in order.
    ordered: BTreeSet<MemberId>,
    /// The receives of these members that have turns, in order. Members without such receives have
    /// no entry.
    by_member: BTreeMap<MemberId, VecDeque<ReceiveId>>,
    by_receive: SparseSecondaryMap<ReceiveId, ReceiveTurn>,
}

/// The turn of a receive, with the receive's original role and signalling.
#[derive(Debug)]
struct ReceiveTurn {
    member: MemberId,
    role: ReceiveRole,
    signalled: Signalled,
    ending: Option<ReceiveEnding>,
}

/// How a receive has ended.
#[derive(Debug)]
enum ReceiveEnding {
    Received { source: PeerId, message: Message },
    Notified { source: PeerId, notice: WriteNotice },
    Abandoned(Box<Abandoned>),
}

/// A receive that fails, and how much of its message has arrived.
#[derive(Debug)]
struct Abandoned {
    source: PeerId,
    filling: Reassembly<Arriving>,
    error: OperationError,
}

impl ReceiveTurns {
    /// Whether any receive has a turn.
    #[inline]
    pub(super) fn has_turns(&self) -> bool {
        !self.by_member.is_empty()
    }

    /// How many receives of a member have turns.
    fn turn_count(&self, member: MemberId) -> usize {
        self.by_member.get(&member).map_or(0, VecDeque::len)
    }

    /// Returns the sources of the messages of receives that have ended before their turn.
    pub(super) fn sources_of_ended(&self) -> impl Iterator<Item = PeerId> {
        self.by_receive.values().filter_map(|turn| turn.ending.as_ref()).map(|ending| match ending {
            ReceiveEnding::Received { source, .. } | ReceiveEnding::Notified { source, .. } => *source,
            ReceiveEnding::Abandoned(abandoned) => abandoned.source,
        })
    }

    /// Removes the first turn of a member, if the receive with this turn has ended. Returns the
    /// receive with its original role and signalling.
    fn take_first_if_ended(
        &mut self,
        member: MemberId,
    ) -> Option<(ReceiveId, ReceiveRole, Signalled, ReceiveEnding)> {
        let receives = self.by_member.get_mut(&member)?;
        let id = *receives.front()?;
        let ending = self.by_receive.get_mut(id)?.ending.take()?;
        let ReceiveTurn { role, signalled, .. } = self.by_receive.remove(id)?;
        receives.pop_front();
        if receives.is_empty() {
            self.by_member.remove(&member);
        }
        Some((id, role, signalled, ending))
    }

    /// Prepares for the end of a member's links, with which its turns end. Receives that have ended before
    /// their turn fail: the member leaves, so no queue is left to report their success to, or an earlier
    /// receive has failed and ends the connection.
    pub(super) fn fail_ended_receives_of_member(&mut self, member: MemberId, error: &OperationError) {
        self.ordered.remove(&member);
        for id in self.by_member.get(&member).into_iter().flatten() {
            if let Some(turn) = self.by_receive.get_mut(*id)
                && let Some(ending) = turn.ending.take()
            {
                turn.ending = Some(ending.into_abandoned(*id, error));
            }
        }
    }
}

impl ReceiveEnding {
    /// Makes the ending a failure.
    fn into_abandoned(self, id: ReceiveId, error: &OperationError) -> ReceiveEnding {
        let whole = |message: &Message| {
            let mut filling = Arriving::new_reassembly(PayloadDestination::Posted(id), message);
            filling.arrived_bytes = filling.len_bytes;
            filling
        };
        let (source, filling) = match self {
            ReceiveEnding::Received { source, message } => (source, whole(&message)),
            ReceiveEnding::Notified { source, notice } => (source, whole(&notice.as_message())),
            ReceiveEnding::Abandoned(abandoned) => (abandoned.source, abandoned.filling),
        };
        ReceiveEnding::Abandoned(Box::new(Abandoned { source, filling, error: error.clone() }))
    }
}

impl Receiver {
    /// Makes the receives of a member complete in the order in which they match. The member has at
    /// most one link.
    pub(crate) fn keep_completion_order(&mut self, member: MemberId) {
        self.turns.ordered.insert(member);
    }

    /// Gives a turn to a receive that has just matched, in two cases. First, other receives of the
    /// member have turns. Second, the message is fetched and the member keeps the order.
    pub(super) fn assign_turn_if_needed(&mut self, id: ReceiveId, member: MemberId, is_fetched: bool) {
        let is_behind = self.turns.by_member.contains_key(&member);
        let is_first = is_fetched && self.turns.ordered.contains(&member);
        if !(is_behind || is_first) || self.has_turn(id) {
            return;
        }
        let Some(receive) = self.receives.get_mut(id) else { return };
        let (role, signalled) = (receive.role, receive.signalled);
        (receive.role, receive.signalled) = (ReceiveRole::InTurn, Signalled::No);
        self.turns.by_receive.insert(id, ReceiveTurn { member, role, signalled, ending: None });
        self.turns.by_member.entry(member).or_default().push_back(id);
        self.update_special_cases();
    }

    pub(super) fn has_turn(&self, id: ReceiveId) -> bool {
        self.receives.get(id).is_some_and(|receive| receive.role == ReceiveRole::InTurn)
    }

    /// Whether as many receives of a member have turns as receives may be outstanding. If so, a
    /// multi-receive buffer takes no message: its parts could make the number of turns grow without
    /// bound.
    pub(super) fn has_max_turns(&self, member: MemberId) -> bool {
        self.turns.turn_count(member) >= self.depth_ops
    }

    /// Ends a receive that has a turn, and has its message or as much of it as fits.
    pub(super) fn end_ordered_receive(
        &mut self,
        id: ReceiveId,
        source: PeerId,
        message: &Message,
        effects: &mut impl ReceiverEffects,
    ) {
        self.end_turn(id, ReceiveEnding::Received { source, message: *message }, effects);
    }

    /// Ends a receive that has a turn and has taken the notice of a write.
    pub(super) fn end_ordered_receive_with_notice(
        &mut self,
        id: ReceiveId,
        source: PeerId,
        notice: &WriteNotice,
        effects: &mut impl ReceiverEffects,
    ) {
        self.end_turn(id, ReceiveEnding::Notified { source, notice: *notice }, effects);
    }

    /// Fails a receive that has a turn and will not get the rest of its message.
    pub(super) fn fail_ordered_receive(
        &mut self,
        id: ReceiveId,
        source: PeerId,
        filling: &Reassembly<Arriving>,
        error: &OperationError,
        effects: &mut impl ReceiverEffects,
    ) {
        let abandoned = Abandoned { source, filling: *filling, error: error.clone() };
        self.end_turn(id, ReceiveEnding::Abandoned(Box::new(abandoned)), effects);
    }

    /// Records that a receive has ended. Once all earlier turns have ended, reports this receive
    /// and later ones that have already ended.
    fn end_turn(&mut self, id: ReceiveId, ending: ReceiveEnding, effects: &mut impl ReceiverEffects) {
        let Some(turn) = self.turns.by_receive.get_mut(id) else { return };
        turn.ending = Some(ending);
        let member = turn.member;
        while let Some((id, role, signalled, ending)) = self.turns.take_first_if_ended(member) {
            if let Some(receive) = self.receives.get_mut(id) {
                (receive.role, receive.signalled) = (role, signalled);
            }
            let ending = match self.has_watched_failure() {
                true => ending.into_abandoned(id, &OperationError::Flushed),
                false => ending,
            };
            match ending {
                ReceiveEnding::Received { source, message } => {
                    self.finish_receive(id, source, &message, member, effects);
                }
                ReceiveEnding::Notified { source, notice } => {
                    self.finish_receive_with_notice(id, source, &notice, member, effects);
                }
                ReceiveEnding::Abandoned(abandoned) => {
                    let Abandoned { source, filling, error } = *abandoned;
                    self.abandon_partial_message(source, &filling, member, &error, effects);
                }
            }
        }
        self.update_special_cases();
        if self.has_kept_aside() && !self.has_max_turns(member) {
            self.match_kept_aside(member, effects);
        }
    }
}
