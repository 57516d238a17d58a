//! The effects that a receiver asks its caller for.

use crate::completion::{EndedOperation, FailedOperation, Received, WorkEnd};
use crate::flags::CounterEvents;
use crate::held_reports::ReportOutcome;
use crate::transport::LinkId;
use crate::wire::Header;

/// The effects that a receiver asks its caller for.
///
/// The caller must not call the receiver while it carries out an effect.
pub(crate) trait ReceiverEffects {
    /// Reports the success of a receive or a peek to the member at which the message arrived.
    ///
    /// # Errors
    ///
    /// Returns the completion if there is no room.
    fn complete(&mut self, completion: EndedOperation, to: Option<MemberId>) -> Result<(), EndedOperation>;

    /// As [`complete`](Self::complete), for a receive that hands no buffer back, if there is a shorter way.
    /// Returns whether it was reported.
    #[inline(always)]
    fn complete_receive(&mut self, received: Received) -> bool {
        let _ = received;
        false
    }

    /// Reports the failure of a receive or a peek to the member at which it failed, if there is
    /// one.
    ///
    /// # Errors
    ///
    /// Returns the failure if there is no room.
    fn fail(&mut self, failure: FailedOperation, to: Option<MemberId>) -> Result<(), FailedOperation>;

    /// Counts a receive that has succeeded.
    fn count(&mut self, events: CounterEvents, to: MemberId);

    /// Counts a receive that has failed.
    fn count_error(&mut self, events: CounterEvents, to: Option<MemberId>);

    /// Records the end of deferred work. `at` is the member at which the work ended, if there is
    /// one. Returns the report that the receiver must make, or `None` if another member makes the
    /// report.
    fn record_work_end(&mut self, end: UnrecordedEnd, at: Option<MemberId>) -> Option<EndedWork>;

    /// Queues a header for the peer of a link, after earlier headers.
    fn queue_header(&mut self, link: LinkId, header: Header);

    /// Queues an acknowledgement of the messages that [have
    /// arrived](super::Receiver::arrived_eager_count) on a link.
    fn queue_ack(&mut self, link: LinkId);

    /// Queues a grant of the credit that a link's peer [was given](super::Receiver::granted_bytes).
    fn queue_credit_grant(&mut self, link: LinkId);

    /// Whether a member reports every successful receive, even if the receive did not ask for a
    /// report.
    #[inline(always)]
    fn wants_unsignalled_reports(&self, _: MemberId) -> bool {
        false
    }

    /// Whether reports that [`complete`](Self::complete) took for a member still wait for room.
    #[inline(always)]
    fn has_waiting_reports(&self, _: MemberId) -> bool {
        false
    }
}

/// The end of deferred work that is not recorded yet.
#[derive(Debug)]
pub(crate) struct UnrecordedEnd {
    /// How the operation has ended. Its context is the number of the work.
    pub(crate) outcome: ReportOutcome,
    /// Whether an endpoint that reports the end also counts it as the end of a receive.
    pub(crate) counts_as_receive: bool,
}

/// A receive or a peek that was deferred work and whose end was recorded.
#[derive(Debug)]
pub(crate) struct EndedWork {
    /// How the operation has ended, with the application's context.
    pub(crate) outcome: ReportOutcome,
    /// Whether the endpoint reports the operation if it has succeeded.
    pub(crate) is_reported: bool,
    /// Whether the endpoint counts the operation.
    pub(crate) is_counted: bool,
}

impl EndedWork {
    /// Records the end of deferred work. `record` gets the number of the work and whether the work
    /// has succeeded, and returns how to report the end.
    pub(crate) fn record(end: UnrecordedEnd, record: impl FnOnce(u64, bool) -> WorkEnd) -> EndedWork {
        let UnrecordedEnd { mut outcome, counts_as_receive } = end;
        let has_succeeded = outcome.is_ok();
        let context = match &mut outcome {
            Ok(completion) => &mut completion.context,
            Err(failure) => &mut failure.completion.context,
        };
        let WorkEnd { context: application_context, is_reported } = record(*context, has_succeeded);
        *context = application_context;
        EndedWork { outcome, is_reported, is_counted: is_reported && counts_as_receive }
    }
}

/// Passes effects on, but refuses every report. So the receiver holds the reports until the next
/// pass.
pub(super) struct ReportLater<'a, E>(pub(super) &'a mut E);

impl<E: ReceiverEffects> ReceiverEffects for ReportLater<'_, E> {
    fn complete(&mut self, completion: EndedOperation, _: Option<MemberId>) -> Result<(), EndedOperation> {
        Err(completion)
    }

    fn fail(&mut self, failure: FailedOperation, _: Option<MemberId>) -> Result<(), FailedOperation> {
        Err(failure)
    }

    fn count(&mut self, events: CounterEvents, to: MemberId) {
        self.0.count(events, to);
    }

    fn count_error(&mut self, events: CounterEvents, to: Option<MemberId>) {
        self.0.count_error(events, to);
    }

    fn record_work_end(&mut self, end: UnrecordedEnd, at: Option<MemberId>) -> Option<EndedWork> {
        self.0.record_work_end(end, at)
    }

    fn queue_header(&mut self, link: LinkId, header: Header) {
        self.0.queue_header(link, header);
    }

    fn queue_ack(&mut self, link: LinkId) {
        self.0.queue_ack(link);
    }

    fn queue_credit_grant(&mut self, link: LinkId) {
        self.0.queue_credit_grant(link);
    }

    fn wants_unsignalled_reports(&self, member: MemberId) -> bool {
        self.0.wants_unsignalled_reports(member)
    }

    fn has_waiting_reports(&self, member: MemberId) -> bool {
        self.0.has_waiting_reports(member)
    }
}

/// An endpoint that uses a receiver. A receiver that is not shared has one member.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct MemberId(pub(crate) u32);

impl MemberId {
    /// The member of a receiver that is not shared.
    pub(crate) const ONLY: MemberId = MemberId(0);
}
