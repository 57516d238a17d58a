//! The frame that is being written to a link, and the operations that the peer has not answered.

mod access;
mod awaited_sends;
mod begun_access;
mod counted_writes;
mod fence;
mod mapped_regions;
mod message_mark;
mod order;
mod requests;
mod send_credit;

pub(crate) use self::access::LinkAccess;
use self::awaited_sends::AwaitedSends;
pub(crate) use self::begun_access::BegunAccess;
use self::counted_writes::CountedWrites;
use self::fence::Fence;
pub(crate) use self::mapped_regions::MappedRegion;
use self::mapped_regions::MappedRegions;
use self::message_mark::MessageMark;
use self::order::Postponed;
use self::requests::Requests;
pub(crate) use self::requests::{RequestStage, SendEnd, SendProtocol, op_number_of};
use self::send_credit::SendCredit;
use super::PendingReplies;
use crate::operation::SendId;
use crate::protocol_violation::ProtocolViolation;

/// The sending half of a link.
#[derive(Debug, Default)]
pub(crate) struct LinkTx {
    /// The frame that the link has taken in part.
    writing: Option<PartialFrame>,
    /// How many messages and accesses the link has begun to take, offers included.
    taken_frames: u64,
    /// The credit that the peer has granted for messages.
    credit: SendCredit,
    /// The eager messages, and which of them the peer has acknowledged or matched.
    awaited_sends: AwaitedSends,
    /// How many requested payloads the link has taken. Payloads that the peer answers do not count.
    unanswered_payloads: u64,
    /// The messages that have certainly arrived: the peer has answered an access that followed
    /// them.
    arrived: MessageMark,
    /// Whether the messages before a fence have reached its level.
    fence: Fence,
    /// Messages that were offered, and accesses to the peer's memory.
    requests: Requests,
    /// Short writes that the peer answers by count.
    counted_writes: CountedWrites,
    /// How many other accesses the peer has not answered.
    outstanding_ops: usize,
    /// How many bytes the unanswered atomic operations fetch.
    outstanding_bytes: usize,
    /// Accesses that the peer may carry out later than operations sent after them.
    postponed: Postponed,
    /// Regions of the peer that this side accesses without frames.
    mapped: MappedRegions,
    /// The replies that this side must still send.
    pending_replies: PendingReplies,
}

/// A frame that a link has taken in part.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PartialFrame {
    pub(crate) kind: FrameKind,
    /// The operation of the frame; the null key if the frame belongs to none.
    pub(crate) send: SendId,
    pub(crate) taken_bytes: usize,
}

/// The kind of a frame with payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FrameKind {
    /// An eager message.
    Message,
    /// Payload that the peer has requested, or the data of a write or an atomic operation.
    Data,
    /// Data that the peer reads from this side's memory. It belongs to no send.
    ReadData,
}

/// The unfinished operations of an ended link.
#[derive(Debug)]
pub(crate) struct PendingSends {
    /// Operations whose payload the peer can no longer read.
    pub(crate) sends: Vec<SendId>,
    /// All offers and accesses that have not ended. The peer may still be reading the exposed
    /// payload of some.
    pub(crate) exposed: Vec<SendId>,
    /// How many counted writes have no answer.
    pub(crate) counted_writes: u64,
}

impl LinkTx {
    /// Returns the replies that this side must still send.
    #[inline(always)]
    pub(crate) fn pending_replies(&self) -> &PendingReplies {
        &self.pending_replies
    }

    /// As [`pending_replies`](Self::pending_replies), but mutable.
    #[inline(always)]
    pub(crate) fn pending_replies_mut(&mut self) -> &mut PendingReplies {
        &mut self.pending_replies
    }

    /// Whether the link is between two frames.
    #[inline(always)]
    pub(crate) fn is_between_frames(&self) -> bool {
        self.writing.is_none()
    }

    /// Returns the frame that the link has taken in part.
    #[inline(always)]
    pub(crate) fn partial_frame(&self) -> Option<PartialFrame> {
        self.writing
    }

    /// Records that the link took the beginning of a frame.
    pub(crate) fn record_partial_frame(&mut self, kind: FrameKind, send: SendId, taken_bytes: usize) {
        self.writing = Some(PartialFrame { kind, send, taken_bytes });
    }

    /// Records that the link took more of a frame that it had taken in part.
    pub(crate) fn advance_partial_frame(&mut self, more_bytes: usize) {
        if let Some(writing) = &mut self.writing {
            writing.taken_bytes += more_bytes;
        }
    }

    /// Records that the link took the rest of a frame that it had taken in part.
    pub(crate) fn end_partial_frame(&mut self) {
        self.writing = None;
    }

    /// Whether the link has begun to take any message, access or offer.
    pub(crate) fn has_taken_frames(&self) -> bool {
        self.taken_frames > 0
    }

    /// Returns how much credit is left.
    #[inline(always)]
    pub(crate) fn credit_bytes(&self) -> u64 {
        self.credit.left_bytes()
    }

    /// Raises the total of credit that the peer has granted.
    ///
    /// # Errors
    ///
    /// A [`ProtocolViolation`] if the total is less than before.
    pub(crate) fn record_credit_grant(&mut self, granted_bytes: u64) -> Result<(), ProtocolViolation> {
        if self.credit.try_raise(granted_bytes) {
            Ok(())
        } else {
            Err(ProtocolViolation("takes credit back"))
        }
    }

    /// Whether the link can begin a message now, if there is credit. The link must be between two
    /// frames, and no postponed access may hold messages back.
    #[inline(always)]
    pub(crate) fn may_begin_message_given_credit(&self) -> bool {
        self.writing.is_none() && !self.postponed.holds_sends()
    }

    /// Records that the link has begun to take an eager message.
    #[inline(always)]
    pub(crate) fn record_message_begun(&mut self, cost_bytes: u64) {
        self.awaited_sends.record_message_begun();
        self.taken_frames += 1;
        self.credit.spend(cost_bytes);
    }

    /// Whether this side knows that all messages on the link have arrived in full. If not, a direct
    /// access could overtake a message.
    pub(crate) fn all_messages_have_arrived(&self) -> bool {
        let have_eager = self.arrived.messages.max(self.awaited_sends.acked_messages())
            == self.awaited_sends.sent_messages();
        have_eager && self.arrived.payloads == self.unanswered_payloads && self.requests.is_empty()
    }

    /// Returns the mark of the messages that the link has taken. The link must not be in the middle
    /// of a message.
    fn message_mark(&self) -> MessageMark {
        MessageMark { messages: self.awaited_sends.sent_messages(), payloads: self.unanswered_payloads }
    }

    /// Returns the regions of the peer that this side accesses without frames.
    #[inline(always)]
    pub(crate) fn mapped_regions(&self) -> &MappedRegions {
        &self.mapped
    }

    /// As [`mapped_regions`](Self::mapped_regions), but mutable.
    pub(crate) fn mapped_regions_mut(&mut self) -> &mut MappedRegions {
        &mut self.mapped
    }

    /// Returns the unfinished operations of an ended link.
    pub(crate) fn into_pending_sends(self) -> PendingSends {
        // Every field is named, so that a new field with operations is not forgotten.
        let LinkTx {
            writing,
            awaited_sends,
            requests,
            taken_frames: _,
            credit: _,
            unanswered_payloads: _,
            arrived: _,
            fence: _,
            counted_writes,
            outstanding_ops: _,
            outstanding_bytes: _,
            postponed: _,
            mapped: _,
            pending_replies: _,
        } = self;
        let mut sends = awaited_sends.into_sends();
        // An operation whose frame has the kind `Data` is among the requests already.
        let mid_message = writing.filter(|writing| writing.kind == FrameKind::Message);
        sends.extend(mid_message.map(|writing| writing.send));
        let counted_writes = counted_writes.unanswered_ops();
        PendingSends { sends, exposed: requests.into_sends(), counted_writes }
    }
}
