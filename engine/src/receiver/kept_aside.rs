//! Messages that a multi-receive buffer does not take yet, because one member's reports wait for
//! room, or because as many of its receives as may be outstanding wait for their turn.
//!
//! A receiver with one endpoint stops matching while its queue is full
//! ([`multi_receive`](super::multi_receive)); that would stop all members of a shared receiver. Here only
//! the untagged messages of the full member stay out of matching, in order, until its queue has room or
//! fewer of its receives wait. Messages of other members go on being matched. So no message overtakes
//! another of its sender.

use super::{MemberId, Receiver, ReceiverEffects};
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

    /// Keeps the untagged messages of a member aside from now on.
    pub(super) fn begin_keeping_aside(&mut self, member: MemberId) {
        self.multi_receives.kept_aside.entry(member).or_default();
        self.update_special_cases();
    }

    /// As [`begin_keeping_aside`](Self::begin_keeping_aside), and keeps the member's earlier
    /// untagged messages aside, too.
    pub(super) fn keep_all_aside(&mut self, member: MemberId) {
        self.begin_keeping_aside(member);
        let is_of_member =
            |id: &UnexpectedId| self.unexpected.get(*id).is_some_and(|found| found.origin.member == member);
        let of_member: Vec<UnexpectedId> = self.untagged.unexpected().filter(is_of_member).collect();
        for id in &of_member {
            self.untagged.remove_unexpected(*id);
        }
        // They are older than the messages of the same source that are already aside.
        let aside = self.multi_receives.kept_aside.entry(member).or_default();
        of_member.into_iter().rev().for_each(|id| aside.push_front(id));
    }

    /// Keeps a message that was just received aside, if its member does so. Returns whether.
    pub(super) fn push_if_kept_aside(
        &mut self,
        member: MemberId,
        message: &Message,
        id: UnexpectedId,
    ) -> bool {
        if message.tag.is_some() || !self.has_kept_aside() {
            return false;
        }
        let aside = self.multi_receives.kept_aside.get_mut(&member);
        aside.map(|aside| aside.push_back(id)).is_some()
    }

    /// Removes a message that is gone, if it was kept aside.
    pub(super) fn remove_kept_aside(&mut self, member: MemberId, id: UnexpectedId) {
        if let Some(aside) = self.multi_receives.kept_aside.get_mut(&member) {
            aside.retain(|kept| *kept != id);
        }
    }

    /// Matches a member's messages kept aside, once its queue has room or fewer receives wait.
    pub(crate) fn match_kept_aside(&mut self, member: MemberId, effects: &mut impl ReceiverEffects) {
        let Some(mut aside) = self.multi_receives.kept_aside.remove(&member) else { return };
        while let Some(id) = aside.pop_front() {
            let Some(found) = self.unexpected.get(id) else { continue };
            let (source, message) = (found.source, found.message);
            match self.take_match_among_buffers(source, &message, member, effects) {
                Some(receive) => self.receive_unexpected_into(receive, id, effects),
                None if self.has_kept_aside_for(member) => {
                    aside.push_front(id);
                    self.multi_receives.kept_aside.insert(member, aside);
                    return;
                }
                None => self.untagged.add_unexpected(source, 0, id),
            }
        }
        self.update_special_cases();
        self.fail_orphaned_receives(effects);
    }
}
