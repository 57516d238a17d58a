//! Notices of peers' writes with remote data that take posted receives: `FI_RX_CQ_DATA`,
//! `fi_getinfo(3)`.
//!
//! A notice is matched like an untagged message of no bytes: it takes the earliest receive that
//! accepts such a message of its peer, it waits like an unexpected message if there is none, and it
//! costs the same credit. Only the completion differs: it describes the write. See
//! `docs/decisions/rx-cq-data.md`.

use super::unexpected::Payload;
use super::{MemberId, Receiver, ReceiverEffects, WriteNotice};
use crate::flags::CounterEvents;
use crate::limits::MESSAGE_COST_BYTES;
use crate::link_fault::NoMemory;
use crate::operation::{ReceiveId, ReceiveRole, Signalled};
use crate::peer_id::PeerId;
use crate::transport::LinkId;

impl Receiver {
    /// Gives the notice of a write that has ended to the earliest receive that accepts it, or keeps
    /// the notice. The caller has spent the credit of the write, [`MESSAGE_COST_BYTES`].
    ///
    /// # Errors
    ///
    /// [`NoMemory`] to keep the notice.
    #[cold]
    pub(crate) fn write_notice_arrived(
        &mut self,
        id: LinkId,
        notice: WriteNotice,
        effects: &mut impl ReceiverEffects,
    ) -> Result<(), NoMemory> {
        let Some((source, member)) = self.source_and_member_of(id) else { return Ok(()) };
        let message = notice.as_message();
        if let Some(receive) = self.take_match(source, &message, member, effects) {
            self.return_credit(id, MESSAGE_COST_BYTES, effects);
            self.finish_receive_with_notice(receive, source, &notice, member, effects);
        } else if let Some(kept) =
            self.keep_unexpected(id, &message, Payload::new(), 0, MESSAGE_COST_BYTES, effects)?
            && let Some(unexpected) = self.unexpected.get_mut(kept)
        {
            unexpected.notice = Some(notice);
        }
        Ok(())
    }

    /// Ends a receive in the operation table that has taken a notice.
    #[cold]
    pub(super) fn finish_receive_with_notice(
        &mut self,
        id: ReceiveId,
        source: PeerId,
        notice: &WriteNotice,
        member: MemberId,
        effects: &mut impl ReceiverEffects,
    ) {
        if self.has_turn(id) {
            return self.end_ordered_receive_with_notice(id, source, notice, effects);
        }
        if self.receives.get(id).is_some_and(|receive| receive.role == ReceiveRole::Part) {
            effects.count(CounterEvents::RECV, member);
            return self.part_received(id, member, |part| notice.take_completion(part, source), effects);
        }
        let Some(mut receive) = self.receives.remove(id) else { return };
        let completion = notice.take_completion(&mut receive, source);
        if receive.signalled == Signalled::Deferred {
            return self.end_deferred_receive(Ok(completion), Some(member), effects);
        }
        effects.count(CounterEvents::RECV, member);
        if receive.signalled == Signalled::Yes || effects.wants_unsignalled_reports(member) {
            self.report_success(completion, Some(member), effects);
        }
    }
}
