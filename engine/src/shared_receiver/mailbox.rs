//! The effects at one member that this member has not carried out yet.

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

/// The mail of a member, and what the receiver must know of the member.
#[derive(Debug, Default)]
pub(super) struct Mailbox {
    /// Whether the member reports successes only if the receive asks for a report.
    pub(super) is_selective: bool,
    /// Whether the member learns by mail of each of its receives that fail by their message.
    pub(super) mails_failures: bool,
    /// Whether the member has mail. The member reads this without the lock.
    pub(super) has_mail: Arc<AtomicBool>,
    /// The queue to which the member reports its receives, if it has one.
    pub(super) receive_queue: Option<u64>,
    /// The reports that wait, in order. Their sources are the receiver's ids.
    reports: VecDeque<Report>,
    mail: Mail,
    /// The peers that the member has links to, by the receiver's ids. Each entry has the member's own id of
    /// the peer.
    names: HashMap<PeerId, Name>,
}

/// The effects, other than reports, that a member carries out together.
#[derive(Debug, Default)]
pub(crate) struct Mail {
    pub(crate) counts: Vec<Count>,
    pub(crate) replies: Vec<(LinkId, Reply)>,
    /// Peers that directed receives name while no member has a link to them.
    pub(crate) sources: HashSet<Address>,
}

/// A member's id of a peer.
#[derive(Debug)]
struct Name {
    peer: PeerId,
    /// How many links the member has to the peer.
    links: usize,
}

/// A report that a member has not made yet.
#[derive(Debug)]
pub(crate) struct Report {
    /// The place of the report among those of all members. The mailbox sets it.
    pub(crate) number: u64,
    pub(crate) outcome: ReportOutcome,
    /// Whether any member may make the report, because it concerns no particular endpoint.
    pub(crate) is_common: bool,
    /// Set if the report ends deferred work and the end is not recorded yet. The report's context is then
    /// the number of the work.
    pub(crate) ends_work: Option<EndsWork>,
}

/// What a member needs to record the end of deferred work, besides the report.
#[derive(Debug)]
pub(crate) struct EndsWork {
    /// See [`UnrecordedEnd`](crate::receiver::UnrecordedEnd).
    pub(crate) counts_as_receive: bool,
}

/// A receive that has ended, and that a member must count.
#[derive(Debug)]
pub(crate) struct Count {
    pub(crate) events: CounterEvents,
    pub(crate) is_success: bool,
    /// Whether any member may count the receive, because it concerns no particular endpoint.
    pub(crate) is_common: bool,
}

/// A reply that a member must send on one of its links.
#[derive(Debug)]
pub(crate) enum Reply {
    Header(Header),
    Ack,
    Credit,
}

impl Mailbox {
    /// Whether a report of another member, with this number, has to wait for a report of this member: an
    /// earlier one to the same queue, or a message of the multi-receive buffer that the other one releases.
    pub(super) fn is_ahead_of(
        &self,
        number: u64,
        receive_queue: Option<u64>,
        released_context: Option<u64>,
    ) -> bool {
        let mut earlier = self.reports.iter().take_while(|report| report.number < number);
        let is_same_queue = receive_queue.is_some() && receive_queue == self.receive_queue;
        earlier
            .any(|report| is_same_queue || released_context == Some(completion_of(&report.outcome).context))
    }

    /// Returns the first report that waits.
    pub(super) fn first_report(&self) -> Option<&Report> {
        self.reports.front()
    }

    /// Returns how many reports wait.
    pub(super) fn unreported_count(&self) -> usize {
        self.reports.len()
    }

    /// Records that the member has one more link to a peer. `members_id` is the member's own id of the peer.
    pub(super) fn add_link_to(&mut self, peer: PeerId, members_id: PeerId) {
        self.names.entry(peer).or_insert(Name { peer: members_id, links: 0 }).links += 1;
    }

    /// Records that the member has one link less to a peer.
    pub(super) fn remove_link_to(&mut self, peer: PeerId) {
        if let Entry::Occupied(mut name) = self.names.entry(peer) {
            name.get_mut().links -= 1;
            if name.get().links == 0 {
                name.remove();
            }
        }
    }

    /// Returns the member's own id of a peer, if the member has a link to the peer.
    pub(super) fn members_id_of_peer(&self, peer: PeerId) -> Option<PeerId> {
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

    pub(super) fn add_reply(&mut self, link: LinkId, reply: Reply) {
        self.mail.replies.push((link, reply));
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

    /// Removes and returns all mail except the reports.
    pub(super) fn take_mail_except_reports(&mut self) -> Mail {
        let taken = mem::take(&mut self.mail);
        self.update_has_mail();
        taken
    }

    /// Passes each report to `record`, and replaces the report by the result. If the result is `None`, drops
    /// the report. Does nothing if no report ends deferred work.
    pub(super) fn record_work_ends(&mut self, record: impl FnMut(Report) -> Option<Report>) {
        if self.reports.iter().any(|report| report.ends_work.is_some()) {
            self.reports = mem::take(&mut self.reports).into_iter().filter_map(record).collect();
            self.update_has_mail();
        }
    }

    /// Drops the replies for a link that has ended. Another link may get the number of this link.
    pub(super) fn drop_replies_on_link(&mut self, link: LinkId) {
        self.mail.replies.retain(|(other, _)| *other != link);
    }

    /// Updates the flag after mail was taken. Some mail may be left.
    fn update_has_mail(&mut self) {
        self.has_mail.store(!self.is_empty(), Ordering::Release);
    }

    pub(super) fn is_empty(&self) -> bool {
        let Mail { counts, replies, sources } = &self.mail;
        self.reports.is_empty() && counts.is_empty() && replies.is_empty() && sources.is_empty()
    }

    /// Returns the mail that other members can take over when this member leaves.
    pub(super) fn into_mail_for_others(self) -> (impl Iterator<Item = Report>, impl Iterator<Item = Count>) {
        let reports = self.reports.into_iter().filter_map(Report::into_reportable_by_others);
        (reports, self.mail.counts.into_iter().filter(|count| count.is_common))
    }
}

impl Report {
    /// Returns what another member can report. A report that ends deferred work stays whole, so that the end
    /// is recorded. If the report releases a multi-receive buffer, the release stays and the last message is
    /// dropped: the buffer serves all endpoints.
    fn into_reportable_by_others(mut self) -> Option<Report> {
        match &mut self.outcome {
            _ if self.is_common || self.ends_work.is_some() => {}
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

/// Returns the completion of the release of a multi-receive buffer, without its last message.
fn buffer_release_completion(context: u64, last: Buffer) -> EndedOperation {
    let buffer = match last {
        Buffer::ReceivedLast(last) => Buffer::Unused(last.unused),
        Buffer::Unused(unused) => Buffer::Unused(unused),
        _ => Buffer::None,
    };
    let flags = CompletionFlags::MULTI_RECV;
    EndedOperation { context, flags, len_bytes: 0, data: 0, tag: 0, source: None, buffer }
}

/// Returns the sender of the message that a report concerns.
pub(super) fn source_of(outcome: &ReportOutcome) -> Option<PeerId> {
    completion_of(outcome).source
}

/// Returns the context of the multi-receive buffer that a report releases.
pub(super) fn released_context_of(outcome: &ReportOutcome) -> Option<u64> {
    let completion = completion_of(outcome);
    completion.flags.contains(CompletionFlags::MULTI_RECV).then_some(completion.context)
}

fn completion_of(outcome: &ReportOutcome) -> &EndedOperation {
    match outcome {
        Ok(completion) => completion,
        Err(failure) => &failure.completion,
    }
}

/// Returns the report with `source` as the id of its source.
pub(super) fn with_source(mut outcome: ReportOutcome, source: Option<PeerId>) -> ReportOutcome {
    match &mut outcome {
        Ok(completion) => completion.source = source,
        Err(failure) => failure.completion.source = source,
    }
    outcome
}
