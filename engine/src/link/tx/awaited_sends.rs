//! The eager messages that the link has taken, and which of them the peer has acknowledged or
//! matched.

use std::collections::{BTreeMap, VecDeque};

use super::{FrameKind, LinkTx};
use crate::operation::SendId;
use crate::protocol_violation::ProtocolViolation;
use crate::wire::AwaitedReply;

/// The eager messages of a link. They are numbered from 1.
#[derive(Debug, Default)]
pub(super) struct AwaitedSends {
    /// How many eager messages the link has begun to take.
    sent_messages: u64,
    /// The largest count that the peer has acknowledged.
    acked_messages: u64,
    /// Sends that end with an acknowledgement, each with the number of its message.
    awaiting_ack: VecDeque<(u64, SendId)>,
    /// Sends that end when a receive of the peer matches their message, by the message's number.
    awaiting_match: BTreeMap<u64, SendId>,
}

impl AwaitedSends {
    #[inline(always)]
    pub(super) fn record_message_begun(&mut self) {
        self.sent_messages += 1;
    }

    #[inline(always)]
    pub(super) fn sent_messages(&self) -> u64 {
        self.sent_messages
    }

    pub(super) fn acked_messages(&self) -> u64 {
        self.acked_messages
    }

    /// Whether no send waits for an acknowledgement or a match.
    pub(super) fn has_no_waiting_sends(&self) -> bool {
        self.awaiting_ack.is_empty() && self.awaiting_match.is_empty()
    }

    pub(super) fn into_sends(self) -> Vec<SendId> {
        let mut sends: Vec<SendId> = self.awaiting_ack.into_iter().map(|(_, send)| send).collect();
        sends.extend(self.awaiting_match.into_values());
        sends
    }
}

impl LinkTx {
    /// Keeps a send until the peer acknowledges or matches its message. The message is the last
    /// that the link has taken.
    pub(crate) fn await_reply(&mut self, send: SendId, awaits: AwaitedReply) {
        let awaited_sends = &mut self.awaited_sends;
        let number = awaited_sends.sent_messages;
        if awaits.wants_match() {
            awaited_sends.awaiting_match.insert(number, send);
        } else {
            awaited_sends.awaiting_ack.push_back((number, send));
        }
    }

    /// Records the peer's acknowledgement: this many messages have arrived.
    /// [`pop_acknowledged`](Self::pop_acknowledged) returns the sends that end with it.
    ///
    /// # Errors
    ///
    /// A [`ProtocolViolation`] if the count exceeds the messages that the link has taken in full,
    /// or is less than the peer has acknowledged before.
    pub(crate) fn record_ack(&mut self, received_count: u64) -> Result<(), ProtocolViolation> {
        // A message that is still being written cannot have arrived.
        let is_mid_message = self.writing.is_some_and(|writing| writing.kind == FrameKind::Message);
        let taken_messages = self.awaited_sends.sent_messages - u64::from(is_mid_message);
        if received_count > taken_messages || received_count < self.awaited_sends.acked_messages {
            return Err(ProtocolViolation("acknowledges what was not sent"));
        }
        self.awaited_sends.acked_messages = received_count;
        Ok(())
    }

    /// Removes and returns the next send that the peer has acknowledged.
    #[inline]
    pub(crate) fn pop_acknowledged(&mut self) -> Option<SendId> {
        let awaited_sends = &mut self.awaited_sends;
        let &(count, send) = awaited_sends.awaiting_ack.front()?;
        if count > awaited_sends.acked_messages {
            return None;
        }
        awaited_sends.awaiting_ack.pop_front();
        Some(send)
    }

    /// Records that a receive of the peer has matched a message. Returns the send of the message,
    /// which has now ended.
    ///
    /// # Errors
    ///
    /// A [`ProtocolViolation`] if no send waits for this match.
    pub(crate) fn take_matched_send(&mut self, number: u64) -> Result<SendId, ProtocolViolation> {
        // A message that is still being written is not in the map. So its match is a violation,
        // too.
        self.awaited_sends
            .awaiting_match
            .remove(&number)
            .ok_or(ProtocolViolation("has matched what does not wait for it"))
    }
}
