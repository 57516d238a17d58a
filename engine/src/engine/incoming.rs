//! What arrives on a link in parts, and where it goes.

use smallvec::SmallVec;

use super::Engine;
use crate::filling::Filling;
use crate::limits::REMOTE_MAX_BYTES;
use crate::operation::{FetchId, InboundId, SendId};
use crate::transport::LinkId;
use crate::wire::{Atomic, Message, Rma, Shown};

/// The frame of a link that has arrived in part.
#[derive(Debug)]
pub(super) enum Incoming {
    /// A request whose description of the payload is not all there. It is not matched yet.
    Request(PartialRequest),
    /// The payload of a write that this side asked for.
    Data(FetchId),
    /// What is written to a region, or a piece of what this side reads of the peer's memory.
    Access(Filling<Accessed>),
    /// What describes memory, and is not all there: an offer of what is to be written, or a region that is shown.
    Described(Box<PartialDescription>),
    /// An atomic operation whose operands are not all there.
    Atomic(Box<PartialAtomic>),
}

/// Where the payload of an access goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Accessed {
    /// To a region of this side.
    Region(InboundId),
    /// To the memory of this side's read.
    Local(SendId),
}

#[derive(Debug)]
pub(super) struct PartialRequest {
    pub(super) message: Message,
    pub(super) op: u64,
    pub(super) remote_bytes: u8,
    pub(super) remote: SmallVec<[u8; REMOTE_MAX_BYTES]>,
}

#[derive(Debug)]
pub(super) struct PartialDescription {
    pub(super) of: Described,
    pub(super) remote_bytes: u8,
    pub(super) remote: SmallVec<[u8; REMOTE_MAX_BYTES]>,
}

#[derive(Debug)]
pub(super) struct PartialAtomic {
    pub(super) atomic: Atomic,
    /// As much as has arrived of the payload, which has a limit.
    pub(super) payload: Vec<u8>,
}

impl PartialRequest {
    /// Takes as much of `bytes` as is missing. Returns whether that is all of it.
    pub(super) fn complete(&mut self, bytes: &[u8]) -> bool {
        complete(&mut self.remote, self.remote_bytes, bytes)
    }
}

/// What memory is described for.
#[derive(Debug, Clone, Copy)]
pub(super) enum Described {
    Offer(Rma),
    Region(Shown),
}

impl PartialDescription {
    /// Takes as much of `bytes` as is missing. Returns whether that is all of it.
    pub(super) fn complete(&mut self, bytes: &[u8]) -> bool {
        complete(&mut self.remote, self.remote_bytes, bytes)
    }
}

impl PartialAtomic {
    /// Takes as much of `bytes` as is missing. Returns whether that is all of it.
    pub(super) fn complete(&mut self, bytes: &[u8]) -> bool {
        let len_bytes = self.atomic.form.payload_len_bytes();
        let missing_bytes = len_bytes - self.payload.len();
        self.payload.extend_from_slice(&bytes[..bytes.len().min(missing_bytes)]);
        self.payload.len() == len_bytes
    }
}

fn complete(remote: &mut SmallVec<[u8; REMOTE_MAX_BYTES]>, remote_bytes: u8, bytes: &[u8]) -> bool {
    let missing = usize::from(remote_bytes) - remote.len();
    remote.extend_from_slice(&bytes[..bytes.len().min(missing)]);
    remote.len() == usize::from(remote_bytes)
}

impl Engine {
    /// The access that a link's unfinished frame is the payload of, if it is of one.
    pub(super) fn accessing(&mut self, id: LinkId) -> Option<Filling<Accessed>> {
        match self.links.get(id)?.incoming.as_ref()? {
            Incoming::Access(filling) => Some(*filling),
            Incoming::Data(fetch) => self.write_fetches.filling(*fetch).map(|filling| {
                let Filling { len_bytes, arrived_bytes, place } = *filling;
                Filling { len_bytes, arrived_bytes, place: Accessed::Region(place) }
            }),
            Incoming::Request(_) | Incoming::Described(_) | Incoming::Atomic(_) => None,
        }
    }

    /// Bytes of an access are where they belong. Returns whether all of them are.
    pub(super) fn advance_access(&mut self, id: LinkId, count_bytes: usize) -> bool {
        match self.links.of(id).and_then(|link| link.incoming.as_mut()) {
            Some(Incoming::Access(filling)) => filling.advance(count_bytes),
            Some(Incoming::Data(fetch)) => {
                self.write_fetches.filling(*fetch).is_some_and(|filling| filling.advance(count_bytes))
            }
            _ => false,
        }
    }
}
