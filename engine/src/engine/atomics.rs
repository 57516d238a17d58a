//! The initiator's side of atomic operations: `fi_atomic(3)`.
//!
//! ```text
//!  queued --Atomic--> (being taken) --> Sent --Answer--> ended
//!                                         |
//!                                         +--ReadData--> ended
//! ```
//!
//! Atomic operations are queued and sent like other [accesses](super::rma), and share their limit
//! of unanswered accesses. The operands travel in the `Atomic` frame. Fetched elements come back in
//! one `ReadData` frame, which ends the operation. If nothing is fetched, or if the operation
//! fails, an `Answer` ends it. Even an operation on no elements is sent, to keep its place in the
//! order.

use smallvec::SmallVec;

use super::Engine;
use super::rma::whole_or_full;
use super::transmit::Taken;
use crate::completion::Sink;
use crate::link::{FrameKind, LinkAccess, RequestStage, op_number_of};
use crate::operation::{OneSided, SendId};
use crate::transport::{LinkCaps, LinkId, Sent, Transport};
use crate::wire::{Atomic, AtomicForm, Header};

/// Operands up to this length are joined without an allocation.
const SMALL_MAX_BYTES: usize = 64;

impl Engine {
    /// Gives a link the atomic operation that is first in its peer's queue.
    pub(super) fn transmit_atomic(
        &mut self,
        id: LinkId,
        send_id: SendId,
        form: AtomicForm,
        caps: &LinkCaps,
        transport: &mut impl Transport,
    ) -> Taken {
        let (Some(send), Some(link)) = (self.initiator.get(send_id), self.links.get_mut(id)) else {
            return Taken::Nothing;
        };
        let Some(OneSided { key, address, .. }) = send.one_sided.as_deref() else {
            return Taken::Nothing;
        };
        let access = LinkAccess::of(send);
        if !link.tx.may_begin_access(&access) {
            return Taken::Nothing;
        }
        let header = Header::Atomic(Atomic { op: op_number_of(send_id), key: *key, address: *address, form });
        let payload_bytes = form.payload_len_bytes();
        let sent = if payload_bytes > caps.inline_max_bytes {
            transport.send(id, &header, &send.source.slices(0))
        } else if let Some(bytes) = send.source.contiguous().filter(|bytes| bytes.len() == payload_bytes) {
            whole_or_full(transport.send_inline(id, &header, bytes))
        } else {
            let mut bytes = SmallVec::<[u8; SMALL_MAX_BYTES]>::new();
            if payload_bytes > 0 {
                send.source.slices(0).iter().for_each(|slice| bytes.extend_from_slice(slice));
            }
            whole_or_full(transport.send_inline(id, &header, &bytes))
        };
        let stage = match sent {
            Sent::Full => return Taken::Nothing,
            Sent::Partial(taken_bytes) => {
                link.tx.record_partial_frame(FrameKind::Data, send_id, taken_bytes);
                // The peer must not answer before the end of the frame. At this stage the engine
                // accepts no answer.
                RequestStage::Cleared
            }
            Sent::Whole => RequestStage::Sent,
        };
        let begun = link.tx.record_access_begun(send_id, &access, stage, self.config.transmit_order);
        self.initiator.record_access_begun(send_id, stage, begun);
        if sent == Sent::Whole { Taken::Whole } else { Taken::Partly }
    }

    /// Ends an atomic operation whose fetched elements have all arrived.
    pub(super) fn atomic_results_arrived(&mut self, id: LinkId, send_id: SendId, sink: &mut impl Sink) {
        self.record_access_end(id, send_id);
        self.end_with_success(send_id, sink);
    }
}
