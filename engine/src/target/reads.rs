//! Reads of regions by peers, sent in pieces that the link takes one by one.

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

/// A peer's read of a region, being sent.
#[derive(Debug)]
pub(crate) struct OutgoingRead {
    op: u64,
    len_bytes: u64,
    /// How many bytes the link has taken, in whole pieces.
    sent_bytes: u64,
    /// The memory, or why no more of it is sent. `None` for the results of an atomic operation,
    /// which are one piece.
    window: Option<Result<Window, Refusal>>,
    /// The payload of the piece being sent, if it is not sent from the region's memory.
    copy: Vec<u8>,
    /// Whether the whole read was copied when it was requested.
    is_copied: bool,
}

impl Target {
    /// Takes a peer's request to read.
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
        // It must not be read before earlier reads, either.
        let is_next = link.reads.back().is_none_or(|before| before.is_copied);
        if self.copies_reads && is_next && len_bytes <= READ_COPIED_MAX_BYTES as u64 {
            reading.copy_whole_read();
        }
        link.reads.push_back(reading);
        effects.owe_read(id);
        Ok(())
    }

    /// Queues the results of an atomic operation for sending.
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

    /// Returns the read that a link's peer is sent next.
    pub(crate) fn next_outgoing_read(&mut self, id: LinkId) -> Option<&mut OutgoingRead> {
        self.links.get_mut(id)?.reads.front_mut()
    }

    /// Ends the first read of a link's peer, once it was sent or will not be. Returns its event, if
    /// it counts as one.
    pub(crate) fn end_outgoing_read(&mut self, id: LinkId) -> Option<CounterEvents> {
        let link = self.links.get_mut(id)?;
        let reading = link.reads.pop_front()?;
        link.unanswered_ops -= 1;
        match &reading.window {
            Some(Ok(window)) if self.counts_accesses => {
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

    /// Refuses the read if its region has closed.
    fn check_region_open(&mut self) {
        if let Some(Ok(window)) = &self.window
            && !window.is_open()
        {
            self.window = Some(Err(Refusal::Key));
        }
    }

    /// Copies the whole read, which is at most one piece.
    fn copy_whole_read(&mut self) {
        self.is_copied = true;
        if let Some(Ok(window)) = &self.window {
            self.copy.resize(clamp_to_usize(self.len_bytes), 0);
            window.copy_out(0, &mut self.copy);
        }
    }

    /// Copies a piece that cannot be sent from its memory, once: the link may have had no room for
    /// it.
    pub(crate) fn copy_piece_if_needed(&mut self) {
        if let Some(Ok(window)) = &self.window
            && self.copy.is_empty()
            && !window.is_sliceable()
        {
            self.copy.resize(clamp_to_usize(self.next_piece_bytes()), 0);
            window.copy_out(clamp_to_usize(self.sent_bytes), &mut self.copy);
        }
    }

    /// Returns the rest of the piece being sent. If the region has closed, it is zeros: a frame
    /// that was begun must be ended, and the answer refuses the read.
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

    /// Returns the header of the next piece's frame.
    pub(crate) fn piece_header(&self) -> Header {
        Header::ReadData { op: self.op, len_bytes: self.next_piece_bytes() }
    }

    /// Returns the answer to the read, if it needs one beside its payload.
    pub(crate) fn answer_header(&self) -> Option<Header> {
        let outcome = match self.window.as_ref()? {
            Ok(_) => Outcome::Done,
            Err(refusal) => Outcome::Refused(*refusal),
        };
        Some(Header::Answer { op: self.op, outcome })
    }
}
