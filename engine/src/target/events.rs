//! Completions of peers' writes with remote data: `FI_REMOTE_CQ_DATA`, `fi_rma(3)`.
//!
//! The application posts nothing for these completions, so credit limits their number. Until the
//! queue takes the completion of a write, the write costs the peer as much credit as an empty
//! message. If the endpoint has the mode `FI_RX_CQ_DATA`, the receiver gets a notice of the write
//! instead, and the completion is that of a receive.

use super::{Target, TargetEffects};
use crate::buffer::Buffer;
use crate::completion::EndedOperation;
use crate::flags::CompletionFlags;
use crate::limits::MESSAGE_COST_BYTES;
use crate::link_fault::NoMemory;
use crate::mutated;
use crate::peer_id::PeerId;
use crate::receiver::{HeldCredit, WriteNotice};
use crate::transport::LinkId;

/// A completion that the queue had no room for.
#[derive(Debug)]
pub(super) struct HeldEvent {
    completion: EndedOperation,
    /// The credit that this completion holds.
    credit: Option<HeldCredit>,
}

impl HeldEvent {
    /// Returns the peer that has written.
    pub(super) fn source(&self) -> Option<PeerId> {
        self.completion.source
    }
}

impl Target {
    /// From now on, notices of writes with remote data take posted receives.
    pub(crate) fn give_remote_data_to_receives(&mut self) {
        self.gives_remote_data_to_receives = true;
    }

    /// Reports that a peer's write with remote data has ended.
    ///
    /// # Errors
    ///
    /// [`NoMemory`]: nothing is reported.
    pub(super) fn report_write_with_remote_data(
        &mut self,
        id: LinkId,
        data: u64,
        len_bytes: usize,
        effects: &mut impl TargetEffects,
    ) -> Result<(), NoMemory> {
        let data = if mutated!("fi_rma/remote-data-notifies-target") { 0 } else { data };
        if self.gives_remote_data_to_receives {
            return effects.give_to_receive(id, WriteNotice { data, len_bytes });
        }
        let Some(source) = self.links.get(id).map(|link| link.peer) else { return Ok(()) };
        self.events.try_reserve(1)?;
        if mutated!("fi_cq/events-of-endpoints-and-regions") {
            effects.return_credit(id, MESSAGE_COST_BYTES);
            return Ok(());
        }
        let flags = match WriteNotice::FLAGS {
            flags if mutated!("fi_cq/flag-remote-read-write") => flags - CompletionFlags::REMOTE_WRITE,
            flags if mutated!("fi_cq-1.4/remote-write-flag") => {
                flags ^ (CompletionFlags::REMOTE_WRITE | CompletionFlags::REMOTE_READ)
            }
            flags => flags,
        };
        let completion = EndedOperation {
            context: u64::from(mutated!("fi_cq/context-null-for-remote-data")),
            flags,
            len_bytes,
            data,
            tag: 0,
            source: Some(source),
            buffer: Buffer::None,
        };
        let refused =
            if self.events.is_empty() { effects.complete(completion).err() } else { Some(completion) };
        match refused {
            Some(completion) => {
                let credit = effects.hold_credit(id, MESSAGE_COST_BYTES);
                self.events.push_back(HeldEvent { completion, credit });
            }
            None => effects.return_credit(id, MESSAGE_COST_BYTES),
        }
        Ok(())
    }

    /// Whether completions wait for room in the queue.
    #[inline]
    pub(crate) fn has_held_reports(&self) -> bool {
        !self.events.is_empty()
    }

    /// Gives the peers back the credit that waiting completions hold. The completions still wait.
    pub(crate) fn return_all_held_credit(&mut self, effects: &mut impl TargetEffects) {
        for credit in self.events.iter_mut().filter_map(|held| held.credit.take()) {
            effects.return_held_credit(credit);
        }
    }

    /// Reports completions that wait, as far as the queue has room.
    #[cold]
    pub(crate) fn deliver_held_reports(&mut self, effects: &mut impl TargetEffects) {
        while let Some(HeldEvent { completion, credit }) = self.events.pop_front() {
            if let Err(completion) = effects.complete(completion) {
                self.events.push_front(HeldEvent { completion, credit });
                return;
            }
            if let Some(credit) = credit {
                effects.return_held_credit(credit);
            }
        }
    }
}
