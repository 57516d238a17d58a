//! Completion order of connections. A message that is fetched, or asked for, is there later than shorter
//! ones that were sent behind it, and of two that are fetched either may be there first. Receives over a
//! connection complete in the order in which they are given their messages all the same: from a fetch on,
//! each receive of that endpoint has a *turn* when it is given its message, and one that ends early is kept
//! until all turns before it have come. Where nothing is fetched there are no turns.
//!
//! A receive with a turn has a [role](Role::InTurn) of its own and is not signalled, so that the way of
//! ordinary receives need not look at turns. What it is otherwise is kept with its turn. See
//! `docs/decisions/connection-order.md`.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use slotmap::SparseSecondaryMap;

use super::links::Arriving;
use super::{Effects, MemberId, Receiver};
use crate::error::OperationError;
use crate::filling::Filling;
use crate::operation::{ReceiveId, Role, Signalled};
use crate::peer_id::PeerId;
use crate::wire::Message;

/// The turns that have not come.
#[derive(Debug, Default)]
pub(super) struct ReceiveTurns {
    /// The members whose receives complete in order.
    ordered: BTreeSet<MemberId>,
    /// Their receives that have turns, in order. Members without one are left out.
    by_member: BTreeMap<MemberId, VecDeque<ReceiveId>>,
    by_receive: SparseSecondaryMap<ReceiveId, ReceiveTurn>,
}

/// The turn of a receive, and what the receive is otherwise.
#[derive(Debug)]
struct ReceiveTurn {
    member: MemberId,
    role: Role,
    signalled: Signalled,
    ending: Option<Ending>,
}

/// How a receive has ended.
#[derive(Debug)]
enum Ending {
    Received { source: PeerId, message: Message },
    Abandoned(Box<Abandoned>),
}

/// A receive whose message will never be all there.
#[derive(Debug)]
struct Abandoned {
    source: PeerId,
    filling: Filling<Arriving>,
    error: OperationError,
}

impl ReceiveTurns {
    /// Whether any receive has a turn.
    #[inline]
    pub(super) fn are_pending(&self) -> bool {
        !self.by_member.is_empty()
    }

    /// How many receives of a member have turns.
    fn len_of(&self, member: MemberId) -> usize {
        self.by_member.get(&member).map_or(0, VecDeque::len)
    }

    /// The receive whose turn it is, if it has ended, and what it is otherwise.
    fn next(&mut self, member: MemberId) -> Option<(ReceiveId, Role, Signalled, Ending)> {
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

    /// A member has left. Its links, and with them its turns, have ended before.
    pub(super) fn member_ended(&mut self, member: MemberId) {
        self.ordered.remove(&member);
    }
}

impl Receiver {
    /// Has the receives of a member complete in the order in which they are given their messages. Such a
    /// member has no more than one link.
    pub(crate) fn keep_order(&mut self, member: MemberId) {
        self.turns.ordered.insert(member);
    }

    /// A receive was given a message. Where receives of its member have turns it has its own behind them; the
    /// first turn is that of a receive whose message is fetched, at a member that keeps the order.
    pub(super) fn take_turn(&mut self, id: ReceiveId, member: MemberId, is_fetched: bool) {
        let is_behind = self.turns.by_member.contains_key(&member);
        let is_first = is_fetched && self.turns.ordered.contains(&member);
        if !(is_behind || is_first) || self.has_turn(id) {
            return;
        }
        let Some(receive) = self.receives.get_mut(id) else { return };
        let (role, signalled) = (receive.role, receive.signalled);
        (receive.role, receive.signalled) = (Role::InTurn, Signalled::No);
        self.turns.by_receive.insert(id, ReceiveTurn { member, role, signalled, ending: None });
        self.turns.by_member.entry(member).or_default().push_back(id);
        self.look_for_concerns();
    }

    pub(super) fn has_turn(&self, id: ReceiveId) -> bool {
        self.receives.get(id).is_some_and(|receive| receive.role == Role::InTurn)
    }

    /// Whether as many receives of a member have turns as may be outstanding. Then a multi-receive buffer,
    /// which could make any number of them, takes nothing.
    pub(super) fn has_many_turns(&self, member: MemberId) -> bool {
        self.turns.len_of(member) >= self.depth_ops
    }

    /// A receive that has a turn has all of its message, or as much as it has room for.
    pub(super) fn received_in_turn(
        &mut self,
        id: ReceiveId,
        source: PeerId,
        message: &Message,
        effects: &mut impl Effects,
    ) {
        self.turn_ended(id, Ending::Received { source, message: *message }, effects);
    }

    /// The message of a receive that has a turn will never be all there.
    pub(super) fn abandoned_in_turn(
        &mut self,
        id: ReceiveId,
        source: PeerId,
        filling: &Filling<Arriving>,
        error: &OperationError,
        effects: &mut impl Effects,
    ) {
        let abandoned = Abandoned { source, filling: *filling, error: error.clone() };
        self.turn_ended(id, Ending::Abandoned(Box::new(abandoned)), effects);
    }

    /// A receive has ended. It is told of when all before it have ended, and then those behind it are.
    fn turn_ended(&mut self, id: ReceiveId, ending: Ending, effects: &mut impl Effects) {
        let Some(turn) = self.turns.by_receive.get_mut(id) else { return };
        turn.ending = Some(ending);
        let member = turn.member;
        while let Some((id, role, signalled, ending)) = self.turns.next(member) {
            if let Some(receive) = self.receives.get_mut(id) {
                (receive.role, receive.signalled) = (role, signalled);
            }
            match ending {
                Ending::Received { source, message } => {
                    self.received_at(id, source, &message, member, effects);
                }
                Ending::Abandoned(abandoned) => {
                    let Abandoned { source, filling, error } = *abandoned;
                    self.abandon(source, &filling, member, &error, effects);
                }
            }
        }
        self.look_for_concerns();
        if self.keeps_aside() && !self.has_many_turns(member) {
            self.match_kept_aside(member, effects);
        }
    }
}
