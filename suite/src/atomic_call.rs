//! Atomic operations on the regions of parties, in this process or in others.

use homespun::atomic::AtomicKind;
use homespun::endpoint::{AtomicMsg, AtomicTarget, CompareAtomicMsg, FetchAtomicMsg};
use homespun::flags::OpFlags;
use homespun::{Bytes, BytesMut, Endpoint, Error};
use serde::{Deserialize, Serialize};

use super::form;
use super::payload::marked_buffer;
use super::raw::RawBuffer;

/// The call that posts an atomic operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum AtomicBy {
    /// `fi_atomic`, `fi_fetch_atomic`, `fi_compare_atomic`.
    Single,
    /// `fi_atomicv`, `fi_fetch_atomicv`, `fi_compare_atomicv`.
    Vector,
    /// `fi_atomicmsg`, `fi_fetch_atomicmsg`, `fi_compare_atomicmsg`.
    Message,
    /// As `Message`, with raw memory.
    Raw,
    /// `fi_inject_atomic`.
    Inject,
}

/// An atomic operation on a region.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct AtomicCall {
    /// The call that posts it.
    pub by: AtomicBy,
    /// Whether the operation fetches, compares or does neither.
    #[serde(with = "form::atomic_kind")]
    pub kind: AtomicKind,
    /// The elements to combine with those of the region.
    pub operands: Vec<Bytes>,
    /// The elements to compare with those of the region.
    pub compares: Vec<Bytes>,
    /// The lengths of the result buffers.
    pub results_bytes: Vec<usize>,
    /// The peer, its memory, the operation and the type of the elements.
    #[serde(with = "form::atomic_target")]
    pub target: AtomicTarget,
    /// The context of the operation's completion.
    pub context: u64,
    /// The flags of the call, if it takes any.
    pub flags: OpFlags,
}

impl AtomicCall {
    /// On how many elements it operates.
    #[cfg(feature = "providers")]
    pub(super) fn element_count(&self) -> usize {
        let operands_bytes: usize = self.operands.iter().map(Bytes::len).sum();
        let bytes = operands_bytes.max(self.results_bytes.iter().sum());
        bytes / self.target.datatype.size_bytes()
    }

    /// Returns the same operation at another address.
    pub fn at_address(mut self, address: u64) -> AtomicCall {
        self.target.memory.address = address;
        self
    }

    /// Posts the operation. Returns the memory of the results if the operation uses raw memory and fetches.
    /// The caller may read that memory after the completion.
    pub(super) fn post(self, endpoint: &Endpoint) -> Result<Option<RawBuffer>, Error> {
        use AtomicBy::{Inject, Message, Raw, Single, Vector};
        use AtomicKind::{Base, Compare, Fetch};
        if self.by == Raw {
            return RawBuffer::post_atomic(endpoint, &self);
        }
        let AtomicCall { by, kind, operands, compares, results_bytes, target, context, flags } = self;
        let results: Vec<_> = results_bytes.into_iter().map(marked_buffer).collect();
        let operand = || Bytes::from(operands.concat());
        let compare = || Bytes::from(compares.concat());
        let result = || marked_buffer(results.iter().map(BytesMut::len).sum());
        match (by, kind) {
            (Inject, _) => endpoint.inject_atomic(&operand(), target)?,
            (Single, Base) => endpoint.atomic(operand(), target, context)?,
            (Vector, Base) => endpoint.atomicv(operands, target, context)?,
            (Message | Raw, Base) => endpoint.atomicmsg(AtomicMsg { operands, target, context, flags })?,
            (Single, Fetch) => endpoint.fetch_atomic(operand(), result(), target, context)?,
            (Vector, Fetch) => endpoint.fetch_atomicv(operands, results, target, context)?,
            (Message | Raw, Fetch) => {
                endpoint.fetch_atomicmsg(FetchAtomicMsg { operands, results, target, context, flags })?;
            }
            (Single, Compare) => endpoint.compare_atomic(operand(), compare(), result(), target, context)?,
            (Vector, Compare) => endpoint.compare_atomicv(operands, compares, results, target, context)?,
            (Message | Raw, Compare) => {
                let atomic = CompareAtomicMsg { operands, compares, results, target, context, flags };
                endpoint.compare_atomicmsg(atomic)?;
            }
        }
        Ok(None)
    }
}
