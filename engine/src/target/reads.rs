//! Reads of regions by peers. The target sends the data of a read in pieces.

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

/// A read of a region by a peer, or the results of a peer's atomic operation. Its data is being
/// sent.
#[derive(Debug)]
pub(crate) struct OutgoingRead {
    op: u64,
    len_bytes: u64,
    /// How many bytes the link has taken in whole pieces.
    sent_bytes: u64,
    /// The memory to read, or why the rest is not sent. `None` for the results of an atomic
    /// operation.
    window: Option<Result<Window, Refusal>>,
    /// A copy of the piece that is being sent. Empty if the piece is sent from the region's memory.
    copy: Vec<u8>,
    /// Whether the whole read was copied when it was requested.
    is_copied: bool,
}

impl Target {
    /// Handles a peer's request to read.
    ///
    /// # Errors
    ///
    /// A [`ProtocolViolation`] if the peer has too many accesses without an answer.
    pub(crate) fn read_request_arrived(
        &mut self,
        id: LinkId,
        rma: &Rma,
        effects: &mut impl TargetEffects,
    ) -> Result<(), ProtocolViolation> {
        self.admit_access(id)?;
        let window = Some(self.check_rma_window_and_offer_mapping(id, rma, MrAccess::REMOTE_READ, effects));
        let Some(link) = self.links.get_mut(id) else { return Ok(()) };
        let Rma { op, len_bytes, .. } = *rma;
        let mut reading =
            OutgoingRead { op, len_bytes, sent_bytes: 0, window, copy: Vec::new(), is_copied: false };
        // Nor must a read be copied before earlier reads are.
        let is_next = link.reads.back().is_none_or(|before| before.is_copied);
        if self.copies_reads && is_next && len_bytes <= READ_COPIED_MAX_BYTES as u64 {
            reading.copy_whole_read();
        }
        link.reads.push_back(reading);
        effects.queue_read_data(id);
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
        effects.queue_read_data(id);
    }

    /// Returns the read whose data a link's peer gets next.
    pub(crate) fn next_outgoing_read(&mut self, id: LinkId) -> Option<&mut OutgoingRead> {
        self.links.get_mut(id)?.reads.front_mut()
    }

    /// Ends the first read of the link's peer: its data was sent, or the read was refused. Returns
    /// the event that the endpoint counts, if any.
    pub(crate) fn end_outgoing_read(&mut self, id: LinkId) -> Option<CounterEvents> {
        let link = self.links.get_mut(id)?;
        let reading = link.reads.pop_front()?;
        link.unanswered_ops -= 1;
        match &reading.window {
            Some(Ok(window)) if self.counts_accesses => {
                window.region().count_access(CounterEvents::REMOTE_READ);
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
    pub(crate) fn next_piece_len_bytes(&self) -> u64 {
        (self.len_bytes - self.sent_bytes).min(READ_PIECE_MAX_BYTES as u64)
    }

    /// Returns whether another piece must be sent. If the region has closed, refuses the rest.
    pub(crate) fn prepare_piece_if_left(&mut self) -> bool {
        let is_left = self.sent_bytes < self.len_bytes;
        if is_left {
            self.refuse_if_region_closed();
        }
        is_left && !matches!(self.window, Some(Err(_)))
    }

    /// Refuses the read if the region has closed.
    fn refuse_if_region_closed(&mut self) {
        if let Some(Ok(window)) = &self.window
            && !window.is_open()
        {
            self.window = Some(Err(Refusal::Key));
        }
    }

    /// Copies the data of the whole read, which must be no longer than a piece.
    fn copy_whole_read(&mut self) {
        self.is_copied = true;
        if let Some(Ok(window)) = &self.window {
            self.copy.resize(clamp_to_usize(self.len_bytes), 0);
            window.copy_out_if_open(0, &mut self.copy);
        }
    }

    /// Copies the next piece of a read, unless the piece can be sent from the region's memory or is
    /// already copied.
    pub(crate) fn copy_piece_if_needed(&mut self) {
        if let Some(Ok(window)) = &self.window
            && self.copy.is_empty()
            && !window.is_sliceable()
        {
            self.copy.resize(clamp_to_usize(self.next_piece_len_bytes()), 0);
            window.copy_out_if_open(clamp_to_usize(self.sent_bytes), &mut self.copy);
        }
    }

    /// Returns the unsent rest of the current piece. If the region has closed, the rest is zeros:
    /// the frame must be completed, and the answer then refuses the read.
    pub(crate) fn piece_slices(&mut self, taken_bytes: usize) -> SmallVec<[IoSlice<'_>; IOV_LIMIT]> {
        let piece_bytes = clamp_to_usize(self.next_piece_len_bytes());
        if self.copy.is_empty() {
            self.refuse_if_region_closed();
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

    /// Records that the link has taken the whole piece.
    pub(crate) fn record_piece_sent(&mut self) {
        self.sent_bytes += self.next_piece_len_bytes();
        self.copy.clear();
    }

    /// Returns the header of the next piece's frame.
    pub(crate) fn piece_header(&self) -> Header {
        Header::ReadData { op: self.op, len_bytes: self.next_piece_len_bytes() }
    }

    /// Returns the answer that follows the data of the read; `None` for the results of an atomic
    /// operation.
    pub(crate) fn answer_header(&self) -> Option<Header> {
        let outcome = match self.window.as_ref()? {
            Ok(_) => Outcome::Done,
            Err(refusal) => Outcome::Refused(*refusal),
        };
        Some(Header::Answer { op: self.op, outcome })
    }
}
