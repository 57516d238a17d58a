//! What arrives on a link in parts, and where it goes.

use smallvec::SmallVec;

use crate::filling::Filling;
use crate::limits::REMOTE_MAX_BYTES;
use crate::operation::SendId;
use crate::wire::{Atomic, Message, Rma, Shown};

/// The frame of a link that has arrived in part.
#[derive(Debug)]
pub(super) enum Incoming {
    /// A request whose description of the payload is not all there. It is not matched yet.
    Request(PartialRequest),
    /// A piece of what this side reads of the peer's memory.
    Read(Filling<SendId>),
    /// What describes memory, and is not all there: an offer of what is to be written, or a region that is shown.
    Described(Box<PartialDescription>),
    /// An atomic operation whose operands are not all there.
    Atomic(Box<PartialAtomic>),
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

impl Incoming {
    /// The piece of what this side reads that is being read.
    pub(super) fn read(&mut self) -> Option<&mut Filling<SendId>> {
        match self {
            Incoming::Read(filling) => Some(filling),
            Incoming::Request(_) | Incoming::Described(_) | Incoming::Atomic(_) => None,
        }
    }
}

impl PartialDescription {
    /// A description of which nothing has arrived.
    pub(super) fn new(of: Described, remote_bytes: u8) -> Box<PartialDescription> {
        Box::new(PartialDescription { of, remote_bytes, remote: SmallVec::new() })
    }

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
