//! The frame that is arriving on a link, if the engine collects it or if it carries data that this
//! side reads. The payload of other frames goes to the receiver or the target piece by piece.

use smallvec::SmallVec;

use crate::limits::REMOTE_MAX_BYTES;
use crate::link_fault::{NoMemory, TryBox};
use crate::operation::SendId;
use crate::reassembly::{Arrived, Reassembly};
use crate::wire::{Atomic, MappableRegion, Message, Rma};

/// The receiving half of a link.
#[derive(Debug, Default)]
pub(crate) struct LinkRx {
    incoming: Option<Incoming>,
}

/// A frame that has arrived in part.
#[derive(Debug)]
enum Incoming {
    /// A piece of the data that this side reads from the peer's memory.
    Read(Reassembly<SendId>),
    /// A frame that has no effect before it is whole.
    Collected(TryBox<CollectedFrame>),
}

/// A frame that has no effect before it is whole, and what has arrived of it.
#[derive(Debug)]
pub(crate) struct CollectedFrame {
    of: CollectedHeader,
    len_bytes: usize,
    /// The part of the payload that has arrived.
    payload: SmallVec<[u8; REMOTE_MAX_BYTES]>,
}

/// The header of a collected frame.
#[derive(Debug, Clone, Copy)]
pub(crate) enum CollectedHeader {
    /// An offer of a message, and the number of the offer. The payload describes exposed memory.
    /// The message is matched once the frame is whole.
    Message(Message, u64),
    /// An offer of data to write. The payload describes exposed memory.
    Write(Rma),
    /// A region that the peer offers for mapping. The payload describes its memory.
    Region(MappableRegion),
    /// An atomic operation. The payload holds its operands.
    Atomic(Atomic),
}

/// The result of collecting a piece of payload.
#[derive(Debug)]
pub(crate) enum Collected {
    /// No frame is being collected.
    Nothing,
    /// The frame is not complete yet.
    Part,
    /// The frame is complete.
    Whole(TryBox<CollectedFrame>),
}

impl CollectedFrame {
    pub(crate) fn header(&self) -> CollectedHeader {
        self.of
    }

    pub(crate) fn payload(&self) -> &[u8] {
        &self.payload
    }
}

impl LinkRx {
    /// Begins to collect a frame with `len_bytes` of payload.
    ///
    /// # Errors
    ///
    /// [`NoMemory`]
    pub(crate) fn begin_collecting(&mut self, of: CollectedHeader, len_bytes: usize) -> Result<(), NoMemory> {
        let whole = CollectedFrame { of, len_bytes, payload: SmallVec::new() };
        self.incoming = Some(Incoming::Collected(TryBox::try_new(whole)?));
        Ok(())
    }

    /// Adds as many of `bytes` as the collected frame lacks.
    ///
    /// # Errors
    ///
    /// [`NoMemory`]
    pub(crate) fn collect_bytes(&mut self, bytes: &[u8]) -> Result<Collected, NoMemory> {
        let Some(Incoming::Collected(whole)) = &mut self.incoming else { return Ok(Collected::Nothing) };
        let missing_bytes = whole.len_bytes - whole.payload.len();
        let bytes = &bytes[..bytes.len().min(missing_bytes)];
        whole.payload.try_reserve(bytes.len())?;
        whole.payload.extend_from_slice(bytes);
        if whole.payload.len() < whole.len_bytes {
            return Ok(Collected::Part);
        }
        Ok(match self.incoming.take() {
            Some(Incoming::Collected(whole)) => Collected::Whole(whole),
            _ => Collected::Nothing,
        })
    }

    /// Begins a piece of the data that this side reads.
    pub(crate) fn begin_read_piece(&mut self, filling: Reassembly<SendId>) {
        self.incoming = Some(Incoming::Read(filling));
    }

    /// Returns the piece of read data that is arriving.
    pub(crate) fn arriving_read_piece(&self) -> Option<Reassembly<SendId>> {
        match self.incoming {
            Some(Incoming::Read(filling)) => Some(filling),
            _ => None,
        }
    }

    /// Counts bytes of read data that are in place. If the piece is now whole, removes and returns
    /// it.
    pub(crate) fn count_read_bytes(&mut self, count_bytes: usize) -> Option<Reassembly<SendId>> {
        let Some(Incoming::Read(filling)) = &mut self.incoming else { return None };
        let ended = (filling.advance(count_bytes) == Arrived::Whole).then_some(*filling);
        if ended.is_some() {
            self.incoming = None;
        }
        ended
    }

    /// Returns how many bytes have arrived of the payload that is being read.
    pub(crate) fn arrived_bytes(&self) -> u64 {
        match &self.incoming {
            Some(Incoming::Read(filling)) => filling.arrived_bytes,
            Some(Incoming::Collected(whole)) => whole.payload.len() as u64,
            None => 0,
        }
    }
}
