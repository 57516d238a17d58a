//! The replies that this side must still send on a link, until the link takes them.

use std::collections::VecDeque;
use std::mem;

use crate::wire::Header;

/// The frames that this side must still send on a link, other than its own operations. Most are
/// replies. A link takes an acknowledgement first, then the headers in order, then the count of
/// counted writes, then a grant of credit, then read data.
#[derive(Debug, Default)]
pub(crate) struct PendingReplies {
    /// Whether this side must tell the peer how many eager messages have arrived.
    ack: bool,
    /// Whether this side must tell the peer how many of its counted writes were carried out.
    written: bool,
    /// Whether this side must tell the peer how much credit it was granted.
    credit: bool,
    /// Whether the peer waits for the data of its reads.
    reads: bool,
    /// Whether read data waits so that other frames go first. Waiting for room does not count.
    has_paused: bool,
    /// Headers for the peer: answers, reports and requests. Headers of this side's own operations
    /// are not among them.
    headers: VecDeque<Header>,
}

impl PendingReplies {
    /// Whether no reply is pending.
    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        !(self.ack | self.written | self.credit | self.reads) && self.headers.is_empty()
    }

    /// Whether read data is pending, and nothing else.
    #[inline]
    pub(crate) fn has_only_read_data(&self) -> bool {
        self.reads && !(self.ack | self.written | self.credit) && self.headers.is_empty()
    }

    pub(super) fn add_ack(&mut self) {
        self.ack = true;
    }

    #[inline(always)]
    pub(super) fn add_written(&mut self) {
        self.written = true;
    }

    pub(super) fn mark_credit_grant_pending(&mut self) {
        self.credit = true;
    }

    pub(super) fn add_read_data(&mut self) {
        self.reads = true;
    }

    pub(super) fn add_header(&mut self, header: Header) {
        self.headers.push_back(header);
    }

    /// Turns a pending acknowledgement into a header with this count, and drops a pending grant of
    /// credit. The engine is about to leave its shared receiver, which knows the count and the
    /// credit.
    pub(crate) fn freeze_ack_and_drop_credit_grant(&mut self, received_count: u64) {
        self.credit = false;
        if mem::take(&mut self.ack) {
            self.headers.push_back(Header::Ack { received: received_count });
        }
    }

    /// Whether an acknowledgement is pending. The link takes it before all other replies.
    #[inline(always)]
    pub(crate) fn is_ack_pending(&self) -> bool {
        self.ack
    }

    /// Records that the link took an acknowledgement.
    #[inline(always)]
    pub(crate) fn record_ack_sent(&mut self) {
        self.ack = false;
    }

    /// Whether the count of counted writes is next. The count waits until the link has taken all
    /// headers: some of them may refuse writes that the count includes.
    #[inline(always)]
    pub(crate) fn is_written_count_next(&self) -> bool {
        self.written && self.headers.is_empty()
    }

    /// Whether the count of counted writes is pending.
    pub(crate) fn is_written_pending(&self) -> bool {
        self.written
    }

    /// Records that the link took the count of counted writes.
    #[inline(always)]
    pub(crate) fn record_written_count_sent(&mut self) {
        self.written = false;
    }

    /// Whether a grant of credit is next. A grant waits until the link has taken all headers. So if
    /// a peer reads no headers, it gets no new credit, and the number of headers stays bounded.
    #[inline(always)]
    pub(crate) fn is_credit_grant_next(&self) -> bool {
        self.credit && !self.ack && self.headers.is_empty()
    }

    /// Records that the link took a grant of credit.
    pub(crate) fn record_credit_sent(&mut self) {
        self.credit = false;
    }

    /// Returns the next header.
    #[inline(always)]
    pub(crate) fn peek_header(&self) -> Option<&Header> {
        self.headers.front()
    }

    /// Removes the next header, if there is one: the link took it, or it need not be sent.
    #[inline(always)]
    pub(crate) fn pop_header(&mut self) {
        self.headers.pop_front();
    }

    /// Ends the pause of read data: the link is about to take some.
    pub(crate) fn unpause_reads(&mut self) {
        self.has_paused = false;
    }

    /// Pauses read data for which the link may have room, so that other frames go first.
    pub(crate) fn pause_reads(&mut self) {
        self.has_paused = true;
    }

    /// Clears the record of read data, since the link took all of it.
    pub(crate) fn clear_read_data(&mut self) {
        self.reads = false;
    }

    /// Whether read data is paused, though the link may have room for it.
    pub(crate) fn has_paused_reads(&self) -> bool {
        self.has_paused
    }

    /// Whether a header that `matches` is pending.
    pub(crate) fn has_header(&self, matches: impl FnMut(&Header) -> bool) -> bool {
        self.headers.iter().any(matches)
    }

    #[cfg(test)]
    pub(crate) fn headers_len(&self) -> usize {
        self.headers.len()
    }

    /// Drops the headers that ask something of the peer.
    pub(crate) fn drop_requests(&mut self) {
        self.headers.retain(|header| !is_request(header));
    }

    /// Returns the pending headers that have no payload, in order.
    pub(crate) fn headers_without_payload(&self) -> impl Iterator<Item = Header> {
        self.headers.iter().filter(|header| header.payload_len_bytes() == 0).copied()
    }
}

/// Whether a header asks something of the peer. A link that is about to end takes no requests.
fn is_request(header: &Header) -> bool {
    match header {
        Header::Request { .. }
        | Header::Clear { .. }
        | Header::Fence { .. }
        | Header::Rma(_)
        | Header::CountedWrite(_)
        | Header::Atomic(_) => true,
        Header::Message(_)
        | Header::Ack { .. }
        | Header::Data { .. }
        | Header::Done { .. }
        | Header::Matched { .. }
        | Header::Credit { .. }
        | Header::Fenced
        | Header::ReadData { .. }
        | Header::MappableRegion(_)
        | Header::Answer { .. }
        | Header::Written { .. }
        | Header::Connection(_) => false,
    }
}
