//! What a link's peer is to hear, and waits until the link has room for it.

use std::collections::VecDeque;
use std::mem;

use crate::wire::Header;

/// What this side owes the peer of a link, besides operations of its own. A link takes an acknowledgement first,
/// then the headers in order, then credit, then what the peer reads.
#[derive(Debug, Default)]
pub(crate) struct Debts {
    /// Whether the peer waits to hear how many eager messages have arrived.
    ack: bool,
    /// Whether the peer was granted credit that it does not know of.
    credit: bool,
    /// Whether the peer waits for what it reads.
    reads: bool,
    /// Whether more of that could have been sent, but it was the turn of others.
    has_paused: bool,
    /// Answers, and what this side asks for or reports without an operation of its own.
    headers: VecDeque<Header>,
}

impl Debts {
    /// Whether nothing is owed.
    #[inline(always)]
    pub(crate) fn are_paid(&self) -> bool {
        !(self.ack | self.credit | self.reads) && self.headers.is_empty()
    }

    /// Whether nothing is owed but what the peer reads.
    #[inline]
    pub(crate) fn are_only_reads(&self) -> bool {
        self.reads && !(self.ack | self.credit) && self.headers.is_empty()
    }

    pub(super) fn add_ack(&mut self) {
        self.ack = true;
    }

    pub(super) fn add_credit(&mut self) {
        self.credit = true;
    }

    pub(super) fn add_reads(&mut self) {
        self.reads = true;
    }

    pub(super) fn add_header(&mut self, header: Header) {
        self.headers.push_back(header);
    }

    /// The receiver is gone, which knew how many eager messages have arrived and gave credit.
    pub(crate) fn settle_receiver_debts(&mut self, received: u64) {
        self.credit = false;
        if mem::take(&mut self.ack) {
            self.headers.push_back(Header::Ack { received });
        }
    }

    /// Whether an acknowledgement is owed, which goes before all others.
    #[inline(always)]
    pub(crate) fn has_ack(&self) -> bool {
        self.ack
    }

    /// The link has taken an acknowledgement.
    #[inline(always)]
    pub(crate) fn ack_sent(&mut self) {
        self.ack = false;
    }

    /// Whether the turn of a grant has come. It goes after headers, so that what waits before it is
    /// no more than what the credit before this one allowed.
    #[inline(always)]
    pub(crate) fn has_credit_next(&self) -> bool {
        self.credit && !self.ack && self.headers.is_empty()
    }

    /// The link has taken a grant.
    pub(crate) fn credit_sent(&mut self) {
        self.credit = false;
    }

    /// The header whose turn has come.
    #[inline(always)]
    pub(crate) fn peek_header(&self) -> Option<&Header> {
        self.headers.front()
    }

    /// The link has taken the header whose turn it was, or no header is left.
    #[inline(always)]
    pub(crate) fn header_sent(&mut self) {
        self.headers.pop_front();
    }

    /// The engine gives the link what the peer reads.
    pub(crate) fn begin_reads(&mut self) {
        self.has_paused = false;
    }

    /// More of what the peer reads could be sent, but others have their turn.
    pub(crate) fn pause_reads(&mut self) {
        self.has_paused = true;
    }

    /// The link has taken all that the peer reads.
    pub(crate) fn reads_sent(&mut self) {
        self.reads = false;
    }

    /// Whether there is more of what the peer reads, and the link may have room for it.
    pub(crate) fn has_paused_reads(&self) -> bool {
        self.has_paused
    }

    /// Whether a header such as this is owed.
    pub(crate) fn has_header(&self, is_meant: impl FnMut(&Header) -> bool) -> bool {
        self.headers.iter().any(is_meant)
    }

    #[cfg(test)]
    pub(crate) fn headers_len(&self) -> usize {
        self.headers.len()
    }

    /// The peer is asked for nothing any more.
    pub(crate) fn drop_requests(&mut self) {
        self.headers.retain(|header| !is_request(header));
    }

    /// The headers without payload that are owed, in order.
    pub(crate) fn headers_without_payload(&self) -> impl Iterator<Item = Header> {
        self.headers.iter().filter(|header| header.payload_len_bytes() == 0).copied()
    }
}

/// Whether a header asks the peer for something. No such header is among the last that a link takes.
fn is_request(header: &Header) -> bool {
    match header {
        Header::Request { .. }
        | Header::Clear { .. }
        | Header::Fence { .. }
        | Header::Rma(_)
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
        | Header::Connection(_) => false,
    }
}
