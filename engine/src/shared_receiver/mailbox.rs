//! The effects that a member has not carried out yet.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet, VecDeque};
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::address::Address;
use crate::buffer::Buffer;
use crate::completion::EndedOperation;
use crate::flags::{CompletionFlags, CounterEvents};
use crate::held_reports::ReportOutcome;
use crate::peer_id::PeerId;
use crate::transport::LinkId;
use crate::wire::Header;

/// The mail of a member, and what other members must know of it.
#[derive(Debug, Default)]
pub(super) struct Mailbox {
    /// Whether the member reports the success of only those receives that ask for it.
    pub(super) is_selective: bool,
    /// Whether there is mail, for the member to read without the lock.
    pub(super) has_mail: Arc<AtomicBool>,
    /// The waiting reports, in order. They use the receiver's peer ids.
    reports: VecDeque<Report>,
    mail: Mail,
    /// The member's ids of the peers that it has links to, by the receiver's ids.
    names: HashMap<PeerId, Name>,
}

/// The effects that a member carries out in one go.
#[derive(Debug, Default)]
pub(crate) struct Mail {
    pub(crate) counts: Vec<Count>,
    pub(crate) debts: Vec<(LinkId, Debt)>,
    /// Peers that directed receives wait for while no member has a link to them.
    pub(crate) sources: HashSet<Address>,
}

/// A member's id of a peer.
#[derive(Debug)]
struct Name {
    peer: PeerId,
    /// The number of the member's links to the peer.
    links: usize,
}

/// A report that waits.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) outcome: ReportOutcome,
    /// Whether it concerns no particular endpoint, so that any member may report it.
    pub(crate) is_common: bool,
    /// Whether it ends deferred work whose end is not recorded yet. Its context is the work's number.
    pub(crate) ends_work: bool,
}

/// A receive that has ended and must be counted.
#[derive(Debug)]
pub(crate) struct Count {
    pub(crate) events: CounterEvents,
    pub(crate) is_success: bool,
    /// Whether it concerns no particular endpoint.
    pub(crate) is_common: bool,
}

/// A header that a member owes the peer of one of its links.
#[derive(Debug)]
pub(crate) enum Debt {
    Header(Header),
    Ack,
    Credit,
}

impl Mailbox {
    /// Returns how many reports wait.
    pub(super) fn unreported_count(&self) -> usize {
        self.reports.len()
    }

    /// Records a link of the member to a peer, and the member's id of that peer.
    pub(super) fn add_link_to(&mut self, peer: PeerId, name: PeerId) {
        self.names.entry(peer).or_insert(Name { peer: name, links: 0 }).links += 1;
    }

    /// Removes a link of the member to a peer.
    pub(super) fn remove_link_to(&mut self, peer: PeerId) {
        if let Entry::Occupied(mut name) = self.names.entry(peer) {
            name.get_mut().links -= 1;
            if name.get().links == 0 {
                name.remove();
            }
        }
    }

    /// Returns the member's id of a peer, if it has a link to it.
    pub(super) fn name_of_peer(&self, peer: PeerId) -> Option<PeerId> {
        self.names.get(&peer).map(|name| name.peer)
    }

    /// Returns the sources of waiting reports.
    pub(super) fn report_sources(&self) -> impl Iterator<Item = PeerId> {
        self.reports.iter().filter_map(|report| source_of(&report.outcome))
    }

    pub(super) fn add_report(&mut self, report: Report) {
        self.reports.push_back(report);
        self.has_mail.store(true, Ordering::Release);
    }

    /// Puts back a report for which there was no room.
    pub(super) fn put_back_report(&mut self, report: Report) {
        self.reports.push_front(report);
        self.has_mail.store(true, Ordering::Release);
    }

    pub(super) fn add_count(&mut self, count: Count) {
        self.mail.counts.push(count);
        self.has_mail.store(true, Ordering::Release);
    }

    pub(super) fn add_debt(&mut self, link: LinkId, debt: Debt) {
        self.mail.debts.push((link, debt));
        self.has_mail.store(true, Ordering::Release);
    }

    pub(super) fn add_source(&mut self, source: Address) {
        self.mail.sources.insert(source);
        self.has_mail.store(true, Ordering::Release);
    }

    pub(super) fn take_report(&mut self) -> Option<Report> {
        let report = self.reports.pop_front();
        self.update_has_mail();
        report
    }

    /// Takes all but the reports.
    pub(super) fn take_mail(&mut self) -> Mail {
        let taken = mem::take(&mut self.mail);
        self.update_has_mail();
        taken
    }

    /// Has each report that ends deferred work recorded by `record`, which returns the report to
    /// make, if any.
    pub(super) fn end_works(&mut self, record: impl FnMut(Report) -> Option<Report>) {
        if self.reports.iter().any(|report| report.ends_work) {
            self.reports = mem::take(&mut self.reports).into_iter().filter_map(record).collect();
            self.update_has_mail();
        }
    }

    /// Drops the headers that wait for a link that has ended: its number may be used again.
    pub(super) fn forget_link(&mut self, link: LinkId) {
        self.mail.debts.retain(|(owing, _)| *owing != link);
    }

    /// Updates the flag after mail was taken: other threads may have added some since.
    fn update_has_mail(&mut self) {
        self.has_mail.store(!self.is_empty(), Ordering::Release);
    }

    pub(super) fn is_empty(&self) -> bool {
        let Mail { counts, debts, sources } = &self.mail;
        self.reports.is_empty() && counts.is_empty() && debts.is_empty() && sources.is_empty()
    }

    /// Returns the mail of a member that leaves which other members can take over.
    pub(super) fn into_mail_for_others(self) -> (impl Iterator<Item = Report>, impl Iterator<Item = Count>) {
        let reports = self.reports.into_iter().filter_map(Report::into_reportable_by_others);
        (reports, self.mail.counts.into_iter().filter(|count| count.is_common))
    }
}

impl Report {
    /// Returns what another member can report of it. Deferred work is counted in any case, and a
    /// multi-receive buffer takes messages of all endpoints, so its release is reported even if its last
    /// message is lost.
    fn into_reportable_by_others(mut self) -> Option<Report> {
        match &mut self.outcome {
            _ if self.is_common || self.ends_work => {}
            Ok(completion) if completion.flags.contains(CompletionFlags::MULTI_RECV) => {
                *completion =
                    buffer_release_completion(completion.context, mem::take(&mut completion.buffer));
            }
            Err(failure) if failure.completion.flags.contains(CompletionFlags::MULTI_RECV) => {}
            _ => return None,
        }
        self.is_common = true;
        Some(self)
    }
}

/// Returns the release of a multi-receive buffer, without its last message.
fn buffer_release_completion(context: u64, last: Buffer) -> EndedOperation {
    let buffer = match last {
        Buffer::ReceivedLast(last) => Buffer::Unused(last.unused),
        Buffer::Unused(unused) => Buffer::Unused(unused),
        _ => Buffer::None,
    };
    let flags = CompletionFlags::MULTI_RECV;
    EndedOperation { context, flags, len_bytes: 0, data: 0, tag: 0, source: None, buffer }
}

/// Returns the sender of the message that a report is about.
pub(super) fn source_of(outcome: &ReportOutcome) -> Option<PeerId> {
    match outcome {
        Ok(completion) => completion.source,
        Err(failure) => failure.completion.source,
    }
}

/// Returns the report with another id for the source.
pub(super) fn with_source(mut outcome: ReportOutcome, name: Option<PeerId>) -> ReportOutcome {
    match &mut outcome {
        Ok(completion) => completion.source = name,
        Err(failure) => failure.completion.source = name,
    }
    outcome
}
