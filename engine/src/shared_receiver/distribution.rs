//! Distributes the effects of a shared receiver to its members.

use super::mailbox::{Count, Debt, Report, named, source_of};
use super::mailboxes::Mailboxes;
use crate::completion::{Completion, Failure, WorkEnd};
use crate::flags::CounterEvents;
use crate::held_reports::ReportOutcome;
use crate::link_table::LinkTable;
use crate::receiver::{MemberId, ReceiverEffects};
use crate::transport::LinkId;
use crate::wire::Header;

/// Has the calling member do what is its own, and puts the rest into the mail of others.
#[derive(Debug)]
pub(super) struct Distribution<'a, E> {
    /// The member that has called, if one has, and what carries out its effects. It names peers and links as
    /// that member does.
    pub(super) caller: Option<(MemberId, &'a mut E)>,
    pub(super) links: &'a LinkTable<(MemberId, LinkId)>,
    pub(super) mailboxes: &'a mut Mailboxes,
}

impl<E: ReceiverEffects> Distribution<'_, E> {
    /// What carries out the effects of the caller, if it is this member.
    fn caller(&mut self, member: MemberId) -> Option<&mut E> {
        self.caller.as_mut().filter(|(id, _)| *id == member).map(|(_, effects)| &mut **effects)
    }

    /// Reports at once if the caller is meant, has nothing to report before it, and knows the source.
    fn report(&mut self, outcome: ReportOutcome, to: Option<MemberId>) {
        let recipient = self.mailboxes.recipient(to);
        let source = source_of(&outcome);
        let report = Report { outcome, is_common: recipient != to };
        let Some(member) = recipient else { return self.mailboxes.report(None, report) };
        let name = source.map(|source| self.mailboxes.name(member, source));
        if self.caller(member).is_none() || name == Some(None) {
            return self.mailboxes.report(recipient, report);
        }
        if self.mailboxes.has_reports(member) {
            return self.mailboxes.report_later(member, report);
        }
        let Some(effects) = self.caller(member) else { return };
        let refused = match named(report.outcome, name.flatten()) {
            Ok(completion) => effects.complete(completion, recipient).map_err(Ok),
            Err(failure) => effects.fail(*failure, recipient).map_err(|failure| Err(Box::new(failure))),
        };
        if let Err(refused) = refused {
            self.mailboxes.report_later(member, Report { outcome: named(refused, source), ..report });
        }
    }

    fn count_at(&mut self, events: CounterEvents, is_success: bool, to: Option<MemberId>) {
        let recipient = self.mailboxes.recipient(to);
        let called = recipient.and_then(|member| self.caller(member).map(|effects| (member, effects)));
        match called {
            Some((member, effects)) if is_success => effects.count(events, member),
            Some((member, effects)) => effects.count_error(events, Some(member)),
            None => self.mailboxes.count(recipient, Count { events, is_success, is_common: recipient != to }),
        }
    }

    fn owe_at(&mut self, link: LinkId, debt: Debt) {
        let Some((member, link)) = self.links.get(link).copied() else { return };
        let Some(effects) = self.caller(member) else { return self.mailboxes.owe(member, link, debt) };
        match debt {
            Debt::Header(header) => effects.owe(link, header),
            Debt::Ack => effects.owe_ack(link),
            Debt::Credit => effects.owe_credit(link),
        }
    }
}

impl<E: ReceiverEffects> ReceiverEffects for Distribution<'_, E> {
    fn complete(&mut self, completion: Completion, to: Option<MemberId>) -> Result<(), Completion> {
        self.report(Ok(completion), to);
        Ok(())
    }

    fn fail(&mut self, failure: Failure, to: Option<MemberId>) -> Result<(), Failure> {
        self.report(Err(Box::new(failure)), to);
        Ok(())
    }

    fn count(&mut self, events: CounterEvents, to: MemberId) {
        self.count_at(events, true, Some(to));
    }

    fn count_error(&mut self, events: CounterEvents, to: Option<MemberId>) {
        self.count_at(events, false, to);
    }

    /// Deferred receives are refused where a context is shared. One would be reported like any
    /// other.
    fn work_ended(&mut self, number: u64, _: bool) -> WorkEnd {
        WorkEnd { context: number, is_reported: true }
    }

    fn owe(&mut self, link: LinkId, header: Header) {
        self.owe_at(link, Debt::Header(header));
    }

    fn owe_ack(&mut self, link: LinkId) {
        self.owe_at(link, Debt::Ack);
    }

    fn owe_credit(&mut self, link: LinkId) {
        self.owe_at(link, Debt::Credit);
    }

    fn reports_unasked(&self, member: MemberId) -> bool {
        self.mailboxes.reports_unasked(member)
    }

    fn is_full(&self, member: MemberId) -> bool {
        self.mailboxes.has_reports(member)
    }
}

/// The effects of a call that no member makes: there is nothing to carry out at once.
#[derive(Debug)]
pub(super) enum NoMember {}

impl ReceiverEffects for NoMember {
    fn complete(&mut self, _: Completion, _: Option<MemberId>) -> Result<(), Completion> {
        match *self {}
    }

    fn fail(&mut self, _: Failure, _: Option<MemberId>) -> Result<(), Failure> {
        match *self {}
    }

    fn count(&mut self, _: CounterEvents, _: MemberId) {
        match *self {}
    }

    fn count_error(&mut self, _: CounterEvents, _: Option<MemberId>) {
        match *self {}
    }

    fn work_ended(&mut self, _: u64, _: bool) -> WorkEnd {
        match *self {}
    }

    fn owe(&mut self, _: LinkId, _: Header) {
        match *self {}
    }

    fn owe_ack(&mut self, _: LinkId) {
        match *self {}
    }

    fn owe_credit(&mut self, _: LinkId) {
        match *self {}
    }
}
