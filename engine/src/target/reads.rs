//! Reads of regions by peers. The target sends the data of a read in pieces.

use std::io::IoSlice;

use smallvec::{SmallVec, smallvec};

use super::{Target, TargetEffects};
use crate::flags::{CounterEvents, MrAccess};
use crate::limits::{IOV_LIMIT, READ_COPIED_MAX_BYTES, READ_PIECE_MAX_BYTES};
use crate::link_fault::{LinkFault, NoMemory};
use crate::mutated;
use crate::reassembly::clamp_to_usize;
use crate::region::Window;
use crate::transport::LinkId;
use crate::wire::{Header, Outcome, Refusal, Rma};

/// The answer to a read whose region has closed before all of its data was read.
const CLOSED: Option<Outcome> = Some(Outcome::Refused(Refusal::Key));

/// A read of a region by a peer, or the results of a peer's atomic operation. Its data is being
/// sent.
#[derive(Debug)]
pub(crate) struct OutgoingRead {
    op: u64,
    len_bytes: u64,
    /// How many bytes the link has taken in whole pieces.
    sent_bytes: u64,
    /// The memory to read. `None` if the read was refused, and for the results of an atomic operation.
    window: Option<Window>,
    /// The answer that follows the data. `None` for the results of an atomic operation.
    outcome: Option<Outcome>,
    /// A copy of the piece that is being sent. Empty if the piece is sent from the region's memory.
    copy: Vec<u8>,
    /// Whether the whole read, at most one piece, was copied when it was requested.
    is_copied: bool,
}

impl Target {
    /// Handles a peer's request to read.
    ///
    /// # Errors
    ///
    /// A [`ProtocolViolation`](crate::protocol_violation::ProtocolViolation) if the peer has too many
    /// accesses without an answer; [`LinkFault::NoMemory`].
    pub(crate) fn read_request_arrived(
        &mut self,
        id: LinkId,
        rma: &Rma,
        effects: &mut impl TargetEffects,
    ) -> Result<(), LinkFault> {
        self.admit_access(id)?;
        let (window, outcome) =
            match self.check_rma_window_and_offer_mapping(id, rma, MrAccess::REMOTE_READ, effects) {
                Ok(window) => (Some(window), Outcome::Done),
                Err(refusal) => (None, Outcome::Refused(refusal)),
            };
        let Some(link) = self.links.get_mut(id) else { return Ok(()) };
        link.reads.try_reserve(1)?;
        let Rma { op, len_bytes, .. } = *rma;
        let (outcome, copy) = (Some(outcome), Vec::new());
        let mut reading =
            OutgoingRead { op, len_bytes, sent_bytes: 0, window, outcome, copy, is_copied: false };
        // Nor must a read be copied before earlier reads are.
        if self.copies_reads && link.uncopied_reads == 0 && len_bytes <= READ_COPIED_MAX_BYTES as u64 {
            reading.is_copied = true;
            reading.copy_piece_if_needed()?;
        }
        link.uncopied_reads += usize::from(!reading.is_copied);
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
            outcome: None,
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
        link.uncopied_reads -= usize::from(!reading.is_copied);
        if reading.outcome.is_none() {
            link.unanswered_bytes -= clamp_to_usize(reading.len_bytes);
        }
        let window =
            reading.window.filter(|_| self.counts_accesses && reading.outcome == Some(Outcome::Done))?;
        window.region().count_access(CounterEvents::REMOTE_READ);
        Some(CounterEvents::REMOTE_READ)
    }
}

impl OutgoingRead {
    pub(crate) fn next_piece_len_bytes(&self) -> u64 {
        (self.len_bytes - self.sent_bytes).min(READ_PIECE_MAX_BYTES as u64)
    }

    /// Returns whether another piece must be sent. If the region has closed, refuses the rest.
    ///
    /// # Errors
    ///
    /// [`NoMemory`]
    pub(crate) fn prepare_piece_if_left(&mut self) -> Result<bool, NoMemory> {
        let is_left = self.sent_bytes < self.len_bytes;
        if is_left {
            self.copy_piece_if_needed()?;
        }
        Ok(is_left && !matches!(self.outcome, Some(Outcome::Refused(_))))
    }

    /// Copies the next piece, unless it can be sent from the region's memory or is already copied. If the
    /// region has closed, refuses the read instead.
    fn copy_piece_if_needed(&mut self) -> Result<(), NoMemory> {
        let piece_bytes = clamp_to_usize(self.next_piece_len_bytes());
        let Some(window) = &mut self.window else { return Ok(()) };
        let reads_nothing = mutated!("fi_rma/reads-return-memory");
        let needs_copy = self.copy.is_empty() && (self.is_copied || !window.is_sliceable() || reads_nothing);
        match window.open() {
            Some(open) if needs_copy => {
                self.copy.try_reserve_exact(piece_bytes)?;
                self.copy.resize(piece_bytes, 0);
                if !reads_nothing {
                    open.copy_out(clamp_to_usize(self.sent_bytes), &mut self.copy);
                }
            }
            Some(_) => {}
            None => self.outcome = CLOSED,
        }
        Ok(())
    }

    /// Returns the unsent rest of the current piece. If the region has closed, the rest is zeros:
    /// the frame must be completed, and the answer then refuses the read.
    ///
    /// # Errors
    ///
    /// [`NoMemory`]
    pub(crate) fn piece_slices(
        &mut self,
        taken_bytes: usize,
    ) -> Result<SmallVec<[IoSlice<'_>; IOV_LIMIT]>, NoMemory> {
        let piece_bytes = clamp_to_usize(self.next_piece_len_bytes());
        if self.copy.is_empty() {
            match self.window.as_mut().and_then(Window::open) {
                Some(open) => {
                    let begin_bytes = clamp_to_usize(self.sent_bytes) + taken_bytes;
                    return Ok(open.slices(begin_bytes, piece_bytes - taken_bytes));
                }
                None => self.outcome = CLOSED,
            }
            self.copy.try_reserve_exact(piece_bytes)?;
            self.copy.resize(piece_bytes, 0);
        }
        Ok(smallvec![IoSlice::new(&self.copy[taken_bytes..])])
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
        Some(Header::Answer { op: self.op, outcome: self.outcome? })
    }
}
