//! What peers read from regions, in pieces that the link takes one by one.

use std::io::IoSlice;

use smallvec::{SmallVec, smallvec};

use super::{Target, TargetEffects};
use crate::flags::{CounterEvents, MrAccess};
use crate::limits::{IOV_LIMIT, READ_COPIED_MAX_BYTES, READ_PIECE_MAX_BYTES};
use crate::protocol_violation::ProtocolViolation;
use crate::reassembly::clamp_to_usize;
use crate::region::Window;
use crate::transport::LinkId;
use crate::wire::{Header, Outcome, Refusal, Rma};

/// What a peer reads from a region.
#[derive(Debug)]
pub(crate) struct OutgoingRead {
    op: u64,
    len_bytes: u64,
    /// How much of it the link has, in whole pieces.
    sent_bytes: u64,
    /// Where it is, or why no more of it is sent. `None` for what an atomic operation has fetched,
    /// which is one piece.
    window: Option<Result<Window, Refusal>>,
    /// The payload of the piece that is being sent, if that is not the region's memory.
    copy: Vec<u8>,
    /// Whether all of it was copied when it was asked for.
    is_copied: bool,
}

impl Target {
    /// A peer asks for what it reads.
    ///
    /// # Errors
    ///
    /// A [`ProtocolViolation`] if too many accesses of the peer are not answered.
    pub(crate) fn read_request_arrived(
        &mut self,
        id: LinkId,
        rma: &Rma,
        effects: &mut impl TargetEffects,
    ) -> Result<(), ProtocolViolation> {
        self.admit_access(id)?;
        let window = Some(self.checked_window(id, rma, MrAccess::REMOTE_READ, effects));
        let Some(link) = self.links.get_mut(id) else { return Ok(()) };
        let Rma { op, len_bytes, .. } = *rma;
        let mut reading =
            OutgoingRead { op, len_bytes, sent_bytes: 0, window, copy: Vec::new(), is_copied: false };
        // Nor may it be read before what comes before it.
        let is_next = link.reads.back().is_none_or(|before| before.is_copied);
        if self.copies_reads && is_next && len_bytes <= READ_COPIED_MAX_BYTES as u64 {
            reading.copy_whole_read();
        }
        link.reads.push_back(reading);
        effects.owe_read(id);
        Ok(())
    }

    /// An atomic operation has fetched something, which is to be sent.
    pub(super) fn queue_atomic_results(
        &mut self,
        id: LinkId,
        op: u64,
        results: Vec<u8>,
        effects: &mut impl TargetEffects,
    ) {
        let Some(link) = self.links.get_mut(id) else { return };
        link.unanswered_bytes += results.len();
        let len_bytes = results.len() as u64;
        link.reads.push_back(OutgoingRead {
            op,
            len_bytes,
            sent_bytes: 0,
            window: None,
            copy: results,
            is_copied: true,
        });
        effects.owe_read(id);
    }

    /// What a link's peer is to be sent first of what it reads.
    pub(crate) fn next_outgoing_read(&mut self, id: LinkId) -> Option<&mut OutgoingRead> {
        self.links.get_mut(id)?.reads.front_mut()
    }

    /// The first of what a link's peer reads has all been sent, or will not be. Returns the event
    /// that it is, if it is one.
    pub(crate) fn end_outgoing_read(&mut self, id: LinkId) -> Option<CounterEvents> {
        let link = self.links.get_mut(id)?;
        let reading = link.reads.pop_front()?;
        link.unanswered_ops -= 1;
        match &reading.window {
            Some(Ok(window)) if self.counts => {
                window.count_access(CounterEvents::REMOTE_READ);
                Some(CounterEvents::REMOTE_READ)
            }
            Some(_) => None,
            None => {
                link.unanswered_bytes -= clamp_to_usize(reading.len_bytes);
                None
            }
        }
    }
}

impl OutgoingRead {
    pub(crate) fn next_piece_bytes(&self) -> u64 {
        (self.len_bytes - self.sent_bytes).min(READ_PIECE_MAX_BYTES as u64)
    }

    /// Checks that the region is still open. Returns whether there is another piece to send.
    pub(crate) fn prepare_next_piece(&mut self) -> bool {
        let is_left = self.sent_bytes < self.len_bytes;
        if is_left {
            self.check_region_open();
        }
        is_left && !matches!(self.window, Some(Err(_)))
    }

    /// Finds out whether the region is still there.
    fn check_region_open(&mut self) {
        if let Some(Ok(window)) = &self.window
            && !window.is_open()
        {
            self.window = Some(Err(Refusal::Key));
        }
    }

    /// Takes all of it, which is no more than a piece.
    fn copy_whole_read(&mut self) {
        self.is_copied = true;
        if let Some(Ok(window)) = &self.window {
            self.copy.resize(clamp_to_usize(self.len_bytes), 0);
            window.copy_out(0, &mut self.copy);
        }
    }

    /// Takes what cannot be sent from where it is, once: the link may have had no room for it.
    pub(crate) fn copy_piece_if_needed(&mut self) {
        if let Some(Ok(window)) = &self.window
            && self.copy.is_empty()
            && !window.is_sliceable()
        {
            self.copy.resize(clamp_to_usize(self.next_piece_bytes()), 0);
            window.copy_out(clamp_to_usize(self.sent_bytes), &mut self.copy);
        }
    }

    /// The rest of the piece that is being sent. If the region is no longer there it is zeros,
    /// which the answer will take back: what was begun has to be ended.
    pub(crate) fn piece_slices(&mut self, taken_bytes: usize) -> SmallVec<[IoSlice<'_>; IOV_LIMIT]> {
        let piece_bytes = clamp_to_usize(self.next_piece_bytes());
        if self.copy.is_empty() {
            self.check_region_open();
        }
        match &self.window {
            Some(Ok(window)) if self.copy.is_empty() => {
                window.slices(clamp_to_usize(self.sent_bytes) + taken_bytes, piece_bytes - taken_bytes)
            }
            _ => {
                self.copy.resize(piece_bytes, 0);
                smallvec![IoSlice::new(&self.copy[taken_bytes..])]
            }
        }
    }

    pub(crate) fn piece_sent(&mut self) {
        self.sent_bytes += self.next_piece_bytes();
        self.copy.clear();
    }

    /// The frame that its next piece goes in.
    pub(crate) fn piece_header(&self) -> Header {
        Header::ReadData { op: self.op, len_bytes: self.next_piece_bytes() }
    }

    /// The answer to it, if it has one beside what was sent.
    pub(crate) fn answer_header(&self) -> Option<Header> {
        let outcome = match self.window.as_ref()? {
            Ok(_) => Outcome::Done,
            Err(refusal) => Outcome::Refused(*refusal),
        };
        Some(Header::Answer { op: self.op, outcome })
    }
}
