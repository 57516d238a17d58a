//! Distributes the effects of a shared receiver to its members.

use super::mailbox::{Count, EndsWork, Reply, Report, source_of, with_source};
use super::mailboxes::Mailboxes;
use crate::completion::{EndedOperation, FailedOperation};
use crate::flags::CounterEvents;
use crate::held_reports::ReportOutcome;
use crate::link_table::LinkTable;
use crate::receiver::{EndedWork, MemberId, ReceiverEffects, UnrecordedEnd};
use crate::transport::LinkId;
use crate::wire::Header;

/// Carries out effects at the calling member. Mails effects at other members.
#[derive(Debug)]
pub(crate) struct Distribution<'a, E> {
    /// The calling member, if a member calls, and its effects. These effects take the member's own
    /// ids of peers and links.
    pub(super) caller: Option<(MemberId, &'a mut E)>,
    pub(super) links: &'a LinkTable<(MemberId, LinkId)>,
    pub(super) mailboxes: &'a mut Mailboxes,
}

impl<E: ReceiverEffects> Distribution<'_, E> {
    /// Returns the effects of the caller, if this member is the caller.
    fn effects_if_caller(&mut self, member: MemberId) -> Option<&mut E> {
        self.caller.as_mut().filter(|(id, _)| *id == member).map(|(_, effects)| &mut **effects)
    }

    /// Makes a report at once if the recipient is the caller, no earlier report has to come before it, and
    /// the recipient has a link to the source and room for the report. Otherwise mails the report to the
    /// recipient. Also mails a failure that the recipient
    /// [watches for](Mailboxes::mails_failures).
    fn report_or_mail(&mut self, outcome: ReportOutcome, to: Option<MemberId>) {
        let recipient = self.mailboxes.recipient_or_oldest(to);
        let source = source_of(&outcome);
        let report = Report { number: 0, outcome, is_common: recipient != to, ends_work: None };
        let Some(member) = recipient else { return self.mailboxes.add_report(None, report) };
        let name = source.map(|source| self.mailboxes.members_id_of_peer(member, source));
        if self.effects_if_caller(member).is_none() || name == Some(None) {
            return self.mailboxes.add_report(recipient, report);
        }
        let is_watched_failure = self.mailboxes.mails_failures(member)
            && report.outcome.as_ref().is_err_and(|failure| failure.is_receive_failed_by_message());
        if is_watched_failure
            || self.mailboxes.has_reports(member)
            || self.mailboxes.must_wait_for_others(member, &report.outcome)
        {
            return self.mailboxes.add_report_without_notification(member, report);
        }
        let Some(effects) = self.effects_if_caller(member) else { return };
        let refused = match with_source(report.outcome, name.flatten()) {
            Ok(completion) => effects.complete(completion, recipient).map_err(Ok),
            Err(failure) => effects.fail(*failure, recipient).map_err(|failure| Err(Box::new(failure))),
        };
        if let Err(refused) = refused {
            self.mailboxes.add_report_without_notification(
                member,
                Report { outcome: with_source(refused, source), ..report },
            );
        }
    }

    fn count_or_mail(&mut self, events: CounterEvents, is_success: bool, to: Option<MemberId>) {
        let recipient = self.mailboxes.recipient_or_oldest(to);
        let called =
            recipient.and_then(|member| self.effects_if_caller(member).map(|effects| (member, effects)));
        match called {
            Some((member, effects)) if is_success => effects.count(events, member),
            Some((member, effects)) => effects.count_error(events, Some(member)),
            None => {
                self.mailboxes.add_count(recipient, Count { events, is_success, is_common: recipient != to });
            }
        }
    }

    fn queue_or_mail(&mut self, link: LinkId, reply: Reply) {
        let Some((member, link)) = self.links.get(link).copied() else { return };
        let Some(effects) = self.effects_if_caller(member) else {
            return self.mailboxes.mail_reply(member, link, reply);
        };
        match reply {
            Reply::Header(header) => effects.queue_header(link, header),
            Reply::Ack => effects.queue_ack(link),
            Reply::Credit => effects.queue_credit_grant(link),
        }
    }
}

impl<E: ReceiverEffects> ReceiverEffects for Distribution<'_, E> {
    fn complete(&mut self, completion: EndedOperation, to: Option<MemberId>) -> Result<(), EndedOperation> {
        self.report_or_mail(Ok(completion), to);
        Ok(())
    }

    fn fail(&mut self, failure: FailedOperation, to: Option<MemberId>) -> Result<(), FailedOperation> {
        self.report_or_mail(Err(Box::new(failure)), to);
        Ok(())
    }

    fn count(&mut self, events: CounterEvents, to: MemberId) {
        self.count_or_mail(events, true, Some(to));
    }

    fn count_error(&mut self, events: CounterEvents, to: Option<MemberId>) {
        self.count_or_mail(events, false, to);
    }

    fn record_work_end(&mut self, end: UnrecordedEnd, at: Option<MemberId>) -> Option<EndedWork> {
        let recipient = self.mailboxes.recipient_or_oldest(at);
        if let Some(effects) = recipient.and_then(|member| self.effects_if_caller(member)) {
            return effects.record_work_end(end, recipient);
        }
        let UnrecordedEnd { outcome, counts_as_receive } = end;
        let ends_work = Some(EndsWork { counts_as_receive });
        let report = Report { number: 0, outcome, is_common: recipient != at, ends_work };
        self.mailboxes.add_report(recipient, report);
        None
    }

    fn queue_header(&mut self, link: LinkId, header: Header) {
        self.queue_or_mail(link, Reply::Header(header));
    }

    fn queue_ack(&mut self, link: LinkId) {
        self.queue_or_mail(link, Reply::Ack);
    }

    fn queue_credit_grant(&mut self, link: LinkId) {
        self.queue_or_mail(link, Reply::Credit);
    }

    fn wants_unsignalled_reports(&self, member: MemberId) -> bool {
        self.mailboxes.wants_unsignalled_reports(member)
    }

    fn has_waiting_reports(&self, member: MemberId) -> bool {
        self.mailboxes.has_reports(member)
    }
}

/// The effects of a call that no member makes. There are none.
#[derive(Debug)]
pub(super) enum NeverMember {}

impl ReceiverEffects for NeverMember {
    fn complete(&mut self, _: EndedOperation, _: Option<MemberId>) -> Result<(), EndedOperation> {
        match *self {}
    }

    fn fail(&mut self, _: FailedOperation, _: Option<MemberId>) -> Result<(), FailedOperation> {
        match *self {}
    }

    fn count(&mut self, _: CounterEvents, _: MemberId) {
        match *self {}
    }

    fn count_error(&mut self, _: CounterEvents, _: Option<MemberId>) {
        match *self {}
    }

    fn record_work_end(&mut self, _: UnrecordedEnd, _: Option<MemberId>) -> Option<EndedWork> {
        match *self {}
    }

    fn queue_header(&mut self, _: LinkId, _: Header) {
        match *self {}
    }

    fn queue_ack(&mut self, _: LinkId) {
        match *self {}
    }

    fn queue_credit_grant(&mut self, _: LinkId) {
        match *self {}
    }
}
