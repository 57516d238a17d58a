//! Untagged messages of one member that are *kept aside*: no multi-receive buffer may take them
//! yet. The member's reports wait for room, or too many of its receives wait for their turn.
//!
//! A receiver with one endpoint stops matching all untagged messages when its completion queue is
//! full ([`multi_receive`](super::multi_receive)). A shared receiver must not stop its other
//! members, so it keeps aside only the untagged messages of the one member. A receiver that is not
//! shared does the same if too many of its receives wait for their turn. Later untagged messages of
//! the member wait behind those kept aside, so none overtakes an earlier one.

use super::{MemberId, Receiver, ReceiverEffects};
use crate::link_fault::NoMemory;
use crate::operation::UnexpectedId;
use crate::wire::Message;

impl Receiver {
    /// Whether any member keeps messages aside.
    pub(super) fn has_kept_aside(&self) -> bool {
        !self.multi_receives.kept_aside.is_empty()
    }

    pub(super) fn has_kept_aside_for(&self, member: MemberId) -> bool {
        self.multi_receives.kept_aside.contains_key(&member)
    }

    /// From now on, keeps the untagged messages of a member aside.
    pub(super) fn begin_keeping_untagged_aside(&mut self, member: MemberId) {
        self.multi_receives.kept_aside.entry(member).or_default();
        self.update_special_cases();
    }

    /// As [`begin_keeping_untagged_aside`](Self::begin_keeping_untagged_aside), and also keeps aside the
    /// member's untagged messages that have already arrived.
    pub(super) fn keep_all_untagged_aside(&mut self, member: MemberId) {
        self.begin_keeping_untagged_aside(member);
        let is_of_member =
            |id: &UnexpectedId| self.unexpected.get(*id).is_some_and(|found| found.origin.member == member);
        let of_member: Vec<UnexpectedId> = self.untagged.unexpected().filter(is_of_member).collect();
        for id in &of_member {
            let place = self.unexpected.get_mut(*id).and_then(|found| found.place.take());
            if let Some(place) = place {
                self.untagged.remove_unexpected(place, *id);
            }
        }
        // These messages are older than messages of the same source that were kept aside before.
        let aside = self.multi_receives.kept_aside.entry(member).or_default();
        of_member.into_iter().rev().for_each(|id| aside.ids.push_front(id));
    }

    /// Returns whether a message that has just arrived must be [kept aside](Self::push_aside): it is
    /// untagged, and messages of its member are kept aside. If so, there is room for it.
    ///
    /// # Errors
    ///
    /// [`NoMemory`] if there is not.
    pub(super) fn try_reserve_aside(
        &mut self,
        member: MemberId,
        message: &Message,
    ) -> Result<bool, NoMemory> {
        if message.tag.is_some() || !self.has_kept_aside() {
            return Ok(false);
        }
        let Some(aside) = self.multi_receives.kept_aside.get_mut(&member) else { return Ok(false) };
        aside.ids.try_reserve(1)?;
        Ok(true)
    }

    /// Keeps a message aside.
    pub(super) fn push_aside(&mut self, member: MemberId, id: UnexpectedId) {
        if let Some(aside) = self.multi_receives.kept_aside.get_mut(&member) {
            aside.ids.push_back(id);
        }
    }

    /// Records that a message kept aside no longer exists. Its id stays in the list until half of
    /// the ids in the list are stale. So when a link with many such messages ends, the list is not
    /// searched for each message.
    pub(super) fn forget_kept_aside(&mut self, member: MemberId) {
        let Some(aside) = self.multi_receives.kept_aside.get_mut(&member) else { return };
        aside.gone += 1;
        if 2 * aside.gone >= aside.ids.len() {
            aside.ids.retain(|id| self.unexpected.contains_key(*id));
            aside.gone = 0;
        }
    }

    /// Matches the messages of a member that were kept aside. The member's queue has room again, or
    /// fewer of its receives wait for their turn.
    pub(crate) fn match_kept_aside(&mut self, member: MemberId, effects: &mut impl ReceiverEffects) {
        let Some(mut aside) = self.multi_receives.kept_aside.remove(&member) else { return };
        while let Some(id) = aside.ids.pop_front() {
            if self.drop_if_abandoned(id, effects) {
                continue;
            }
            let Some(found) = self.unexpected.get(id) else {
                aside.gone = aside.gone.saturating_sub(1);
                continue;
            };
            let (source, message) = (found.source, found.message);
            match self.take_untagged_match_or_part(source, &message, member, effects) {
                Some(receive) => self.receive_unexpected_into(receive, id, effects),
                None if self.has_kept_aside_for(member) => {
                    aside.ids.push_front(id);
                    self.multi_receives.kept_aside.insert(member, aside);
                    return;
                }
                None => {
                    let place = self.untagged.add_unexpected(source, 0, id);
                    self.set_place(id, place);
                }
            }
        }
        self.update_special_cases();
        self.fail_orphaned_receives(effects);
    }
}
