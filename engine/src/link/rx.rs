//! What is being read from a link, where neither the receiver nor the target takes it piece by piece.

use smallvec::SmallVec;

use crate::limits::REMOTE_MAX_BYTES;
use crate::operation::SendId;
use crate::reassembly::Reassembly;
use crate::wire::{Atomic, MappableRegion, Message, Rma};

/// The receiving half of a link.
#[derive(Debug, Default)]
pub(crate) struct LinkRx {
    incoming: Option<Incoming>,
}

/// The frame of a link that has arrived in part.
#[derive(Debug)]
enum Incoming {
    /// A piece of what this side reads of the peer's memory.
    Read(Reassembly<SendId>),
    /// A frame that means nothing before all of it is there.
    Collected(Box<WholeFrame>),
}

/// A frame that means nothing before all of it is there.
#[derive(Debug)]
pub(crate) struct WholeFrame {
    of: CollectedHeader,
    len_bytes: usize,
    /// As much as has arrived of the payload, which has a limit.
    payload: SmallVec<[u8; REMOTE_MAX_BYTES]>,
}

/// What such a frame is.
#[derive(Debug, Clone, Copy)]
pub(crate) enum CollectedHeader {
    /// An offer of a message, under this number, with a description of where its payload is. It is
    /// not matched yet.
    Message(Message, u64),
    /// An offer of what is to be written, with such a description.
    Write(Rma),
    /// A region that is shown, with a description of its memory.
    Region(MappableRegion),
    /// An atomic operation, with its operands.
    Atomic(Atomic),
}

/// What a piece of payload completed.
#[derive(Debug)]
pub(crate) enum Collected {
    /// It is not of a frame that is collected.
    Nothing,
    /// More has to come.
    Part,
    /// The frame is there.
    Whole(Box<WholeFrame>),
}

impl WholeFrame {
    pub(crate) fn header(&self) -> CollectedHeader {
        self.of
    }

    pub(crate) fn payload(&self) -> &[u8] {
        &self.payload
    }
}

impl LinkRx {
    /// A frame begins to arrive that means nothing before all of it is there.
    pub(crate) fn begin_collecting(&mut self, of: CollectedHeader, len_bytes: usize) {
        let whole = WholeFrame { of, len_bytes, payload: SmallVec::new() };
        self.incoming = Some(Incoming::Collected(Box::new(whole)));
    }

    /// Takes as much of `bytes` as is missing of a frame that is collected.
    pub(crate) fn collect_bytes(&mut self, bytes: &[u8]) -> Collected {
        let Some(Incoming::Collected(whole)) = &mut self.incoming else { return Collected::Nothing };
        let missing_bytes = whole.len_bytes - whole.payload.len();
        whole.payload.extend_from_slice(&bytes[..bytes.len().min(missing_bytes)]);
        if whole.payload.len() < whole.len_bytes {
            return Collected::Part;
        }
        match self.incoming.take() {
            Some(Incoming::Collected(whole)) => Collected::Whole(whole),
            _ => Collected::Nothing,
        }
    }

    /// A piece of what this side reads begins to arrive.
    pub(crate) fn begin_read_piece(&mut self, filling: Reassembly<SendId>) {
        self.incoming = Some(Incoming::Read(filling));
    }

    /// The piece of what this side reads that is arriving.
    pub(crate) fn arriving_read_piece(&self) -> Option<Reassembly<SendId>> {
        match self.incoming {
            Some(Incoming::Read(filling)) => Some(filling),
            _ => None,
        }
    }

    /// Bytes of the piece that this side reads are where they belong. Returns the piece if all of it is.
    pub(crate) fn read_bytes_placed(&mut self, count_bytes: usize) -> Option<Reassembly<SendId>> {
        let Some(Incoming::Read(filling)) = &mut self.incoming else { return None };
        let ended = filling.advance(count_bytes).then_some(*filling);
        if ended.is_some() {
            self.incoming = None;
        }
        ended
    }

    /// How much has arrived of the frame that is arriving.
    pub(crate) fn arrived_bytes(&self) -> u64 {
        match &self.incoming {
            Some(Incoming::Read(filling)) => filling.arrived_bytes,
            Some(Incoming::Collected(whole)) => whole.payload.len() as u64,
            None => 0,
        }
    }
}
