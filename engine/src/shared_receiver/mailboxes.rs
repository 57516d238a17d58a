//! The mail of all members of a shared receiver.

use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::mailbox::{Count, Mail, Mailbox, Reply, Report, released_context_of};
use crate::address::Address;
use crate::held_reports::ReportOutcome;
use crate::peer_id::PeerId;
use crate::receiver::MemberId;
use crate::transport::LinkId;

/// The effects that members have not carried out yet, and the members to notify of them.
#[derive(Debug, Default)]
pub(super) struct Mailboxes {
    by_member: BTreeMap<MemberId, Mailbox>,
    next_member: u32,
    /// Members with mail that were not notified of it yet.
    unnotified: BTreeSet<MemberId>,
    /// Mail for the next member, while there is no member. The mail concerns no particular endpoint.
    vacant: Mailbox,
    /// How many reports wait in all mailboxes.
    unreported: usize,
    /// The number of the next report.
    next_report: u64,
}

impl Mailboxes {
    /// Adds a member, which takes over the mail for the next member. Returns the member's id, and the flag
    /// that says whether the member has mail.
    pub(super) fn add_member(&mut self, is_selective: bool) -> (MemberId, Arc<AtomicBool>) {
        let id = MemberId(self.next_member);
        self.next_member += 1;
        let mut mailbox = mem::take(&mut self.vacant);
        mailbox.is_selective = is_selective;
        if !mailbox.is_empty() {
            self.mark_unnotified(id);
        }
        let has_mail = mailbox.has_mail.clone();
        self.by_member.insert(id, mailbox);
        (id, has_mail)
    }

    /// Removes a member. Mail that concerns no particular endpoint goes to the oldest other member. If there
    /// is none, the mail waits for the next member.
    pub(super) fn remove_member(&mut self, member: MemberId) {
        let Some(mailbox) = self.by_member.remove(&member) else { return };
        self.unnotified.remove(&member);
        self.unreported -= mailbox.unreported_count();
        let heir = self.recipient_or_oldest(None);
        let (reports, counts) = mailbox.into_mail_for_others();
        reports.for_each(|report| self.add_report(heir, report));
        counts.for_each(|count| self.add_count(heir, count));
        self.notify_members_with_reports();
    }

    /// Returns `member`. If `member` is `None` or has left, returns the oldest member instead.
    pub(super) fn recipient_or_oldest(&self, member: Option<MemberId>) -> Option<MemberId> {
        let member = member.filter(|member| self.by_member.contains_key(member));
        member.or_else(|| self.by_member.keys().next().copied())
    }

    /// Returns how many reports wait.
    pub(super) fn unreported_count(&self) -> usize {
        self.unreported
    }

    /// As [`unreported_count`](Self::unreported_count), but counted anew.
    #[cfg(test)]
    pub(super) fn recount_unreported(&self) -> usize {
        let mailboxes = self.by_member.values().chain([&self.vacant]);
        mailboxes.map(Mailbox::unreported_count).sum()
    }

    /// Whether reports of a member wait.
    pub(super) fn has_reports(&self, member: MemberId) -> bool {
        self.by_member.get(&member).is_some_and(|mailbox| mailbox.unreported_count() > 0)
    }

    /// Whether a member reports the success even of receives that ask for no report.
    pub(super) fn wants_unsignalled_reports(&self, member: MemberId) -> bool {
        self.by_member.get(&member).is_some_and(|mailbox| !mailbox.is_selective)
    }

    pub(super) fn set_selective(&mut self, member: MemberId, is_selective: bool) {
        if let Some(mailbox) = self.by_member.get_mut(&member) {
            mailbox.is_selective = is_selective;
        }
    }

    /// Whether a member must learn by mail of each of its receives that fail by their message, also if the
    /// member itself makes the call in which the receive fails.
    pub(super) fn mails_failures(&self, member: MemberId) -> bool {
        self.by_member.get(&member).is_some_and(|mailbox| mailbox.mails_failures)
    }

    pub(super) fn set_mails_failures(&mut self, member: MemberId, mails_failures: bool) {
        if let Some(mailbox) = self.by_member.get_mut(&member) {
            mailbox.mails_failures = mails_failures;
        }
    }

    /// Returns a member's id of a peer, if the member has a link to the peer.
    pub(super) fn members_id_of_peer(&self, member: MemberId, peer: PeerId) -> Option<PeerId> {
        self.by_member.get(&member)?.members_id_of_peer(peer)
    }

    /// Records that a member has one more link to a peer. `members_id` is the member's own id of the peer.
    pub(super) fn add_link_to(&mut self, member: MemberId, peer: PeerId, members_id: PeerId) {
        if let Some(mailbox) = self.by_member.get_mut(&member) {
            mailbox.add_link_to(peer, members_id);
        }
    }

    /// Returns the sources of waiting reports.
    pub(super) fn report_sources(&self) -> impl Iterator<Item = PeerId> {
        self.by_member.values().chain([&self.vacant]).flat_map(Mailbox::report_sources)
    }

    /// Mails a report to `member`, or to the next member if `member` is `None`. Lists the member for
    /// notification.
    pub(super) fn add_report(&mut self, member: Option<MemberId>, mut report: Report) {
        report.number = self.next_report;
        self.next_report += 1;
        self.mailbox_or_vacant(member).add_report(report);
        self.unreported += 1;
        member.into_iter().for_each(|member| self.mark_unnotified(member));
    }

    /// Mails a report to a member without notification: the member itself checks whether its queue has room.
    pub(super) fn add_report_without_notification(&mut self, member: MemberId, mut report: Report) {
        if let Some(mailbox) = self.by_member.get_mut(&member) {
            report.number = self.next_report;
            self.next_report += 1;
            mailbox.add_report(report);
            self.unreported += 1;
        }
    }

    /// Mails the count of a receive to `member`, or to the next member if `member` is `None`.
    pub(super) fn add_count(&mut self, member: Option<MemberId>, count: Count) {
        self.mailbox_or_vacant(member).add_count(count);
        member.into_iter().for_each(|member| self.mark_unnotified(member));
    }

    /// Mails a reply to a member. The member sends the reply on its link `link`.
    pub(super) fn mail_reply(&mut self, member: MemberId, link: LinkId, reply: Reply) {
        if let Some(mailbox) = self.by_member.get_mut(&member) {
            mailbox.add_reply(link, reply);
            self.mark_unnotified(member);
        }
    }

    /// Mails a peer's address to every member. A receive accepts only this peer's messages, and no member
    /// has a link to the peer. So members that have lost the peer connect to it.
    pub(super) fn mail_source_to_all(&mut self, source: Address) {
        for (member, mailbox) in &mut self.by_member {
            mailbox.add_source(source);
            self.unnotified.insert(*member);
        }
    }

    /// Removes a link of a member. The link leads to the peer `to`.
    pub(super) fn remove_link(&mut self, member: MemberId, link: LinkId, to: Option<PeerId>) {
        if let Some(mailbox) = self.by_member.get_mut(&member) {
            mailbox.drop_replies_on_link(link);
            to.into_iter().for_each(|peer| mailbox.remove_link_to(peer));
        }
    }

    /// Whether a new report of a member has to wait for a report that another member has not made yet: see
    /// [`Mailbox::is_ahead_of`].
    pub(super) fn must_wait_for_others(&self, member: MemberId, outcome: &ReportOutcome) -> bool {
        self.unreported > 0 && self.is_behind_others(member, self.next_report, outcome)
    }

    fn is_behind_others(&self, member: MemberId, number: u64, outcome: &ReportOutcome) -> bool {
        let queue = self.by_member.get(&member).and_then(|mailbox| mailbox.receive_queue);
        let released = released_context_of(outcome);
        let mut others = self.by_member.iter().filter(|(id, _)| **id != member);
        others.any(|(_, other)| other.is_ahead_of(number, queue, released))
    }

    /// Records to which queue a member reports its receives.
    pub(super) fn set_receive_queue(&mut self, member: MemberId, queue: Option<u64>) {
        if let Some(mailbox) = self.by_member.get_mut(&member) {
            mailbox.receive_queue = queue;
        }
    }

    /// Lists all members with reports for notification: a report for which they had to wait was made.
    pub(super) fn notify_members_with_reports(&mut self) {
        let waiting = self.by_member.iter().filter(|(_, mailbox)| mailbox.unreported_count() > 0);
        self.unnotified.extend(waiting.map(|(member, _)| *member));
    }

    /// Removes and returns the next report of a member. The report counts as made, unless the member [puts
    /// it back](Self::put_back_report). Returns `None` if the report has to wait for one of another member.
    pub(super) fn take_report(&mut self, member: MemberId) -> Option<Report> {
        let first = self.by_member.get(&member)?.first_report()?;
        if self.is_behind_others(member, first.number, &first.outcome) {
            return None;
        }
        let report = self.by_member.get_mut(&member)?.take_report()?;
        self.unreported -= 1;
        Some(report)
    }

    /// Puts back the report that was last taken from a member.
    pub(super) fn put_back_report(&mut self, member: MemberId, report: Report) {
        if let Some(mailbox) = self.by_member.get_mut(&member) {
            mailbox.put_back_report(report);
            self.unreported += 1;
        }
    }

    /// Removes and returns the mail of a member, except reports. The member counts as notified.
    pub(super) fn take_mail_except_reports(&mut self, member: MemberId) -> Mail {
        self.unnotified.remove(&member);
        self.by_member.get_mut(&member).map(Mailbox::take_mail_except_reports).unwrap_or_default()
    }

    /// Records the ends of deferred work among a member's reports: see [`Mailbox::record_work_ends`].
    pub(super) fn record_work_ends(
        &mut self,
        member: MemberId,
        record: impl FnMut(Report) -> Option<Report>,
    ) {
        if let Some(mailbox) = self.by_member.get_mut(&member) {
            let before = mailbox.unreported_count();
            mailbox.record_work_ends(record);
            let dropped = before - mailbox.unreported_count();
            self.unreported -= dropped;
            if dropped > 0 {
                self.notify_members_with_reports();
            }
        }
    }

    /// Records that a member has mail and must be notified of it.
    pub(super) fn mark_unnotified(&mut self, member: MemberId) {
        self.unnotified.insert(member);
    }

    /// Whether a member has mail of which it was not notified yet.
    pub(super) fn is_unnotified(&self, member: MemberId) -> bool {
        self.unnotified.contains(&member)
    }

    pub(super) fn has_unnotified_members(&self) -> bool {
        !self.unnotified.is_empty()
    }

    /// Returns the members that were not notified of their mail yet, and counts them as notified.
    pub(super) fn take_unnotified_members(&mut self) -> Vec<MemberId> {
        mem::take(&mut self.unnotified).into_iter().collect()
    }

    fn mailbox_or_vacant(&mut self, member: Option<MemberId>) -> &mut Mailbox {
        member.and_then(|member| self.by_member.get_mut(&member)).unwrap_or(&mut self.vacant)
    }
}
