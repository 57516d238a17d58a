//! What arrives on a link in parts, and where it goes.

use smallvec::SmallVec;

use super::Engine;
use crate::limits::REMOTE_MAX_BYTES;
use crate::operation::{FetchId, InboundId, ReceiveId, SendId, UnexpectedId};
use crate::transport::LinkId;
use crate::wire::{Atomic, Message, Rma, Shown};

/// The frame of a link that has arrived in part.
#[derive(Debug)]
pub(super) enum Incoming {
    /// An eager message, and its number among those of the link.
    Message { filling: Filling, number: u64 },
    /// A request whose description of the payload is not all there. It is not matched yet.
    Request(PartialRequest),
    /// The payload that this side asked for.
    Data(FetchId),
    /// What is written to a region.
    Write(Filling),
    /// What describes memory, and is not all there: an offer of what is to be written, or a region that is shown.
    Described(Box<PartialDescription>),
    /// A piece of what this side reads of the peer's memory.
    Read(Filling),
    /// An atomic operation whose operands are not all there.
    Atomic(Box<PartialAtomic>),
}

/// A message on its way into the memory where it belongs.
#[derive(Debug, Clone, Copy)]
pub(super) struct Filling {
    pub(super) message: Message,
    /// How much of it has arrived. Where there is less room than that, the rest was dropped.
    pub(super) arrived_bytes: u64,
    pub(super) place: Place,
}

/// Where the bytes of an arriving message go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    Posted(ReceiveId),
    Unexpected(UnexpectedId),
    /// A region.
    Inbound(InboundId),
    /// The memory of this side's read.
    Read(SendId),
    /// Nowhere: it was thrown away before all of it was there.
    Nowhere,
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

impl Filling {
    pub(super) fn left_bytes(&self) -> u64 {
        self.message.len_bytes - self.arrived_bytes
    }
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
    /// The message that a link's unfinished frame is the payload of.
    pub(super) fn filling(&mut self, id: LinkId) -> Option<&mut Filling> {
        match self.links.of(id)?.incoming.as_mut()? {
            Incoming::Message { filling, .. } | Incoming::Write(filling) | Incoming::Read(filling) => {
                Some(filling)
            }
            Incoming::Data(fetch) => self.fetches.get_mut(*fetch).map(|fetch| &mut fetch.filling),
            Incoming::Request(_) | Incoming::Described(_) | Incoming::Atomic(_) => None,
        }
    }
}
