//! Accesses to the peer's memory, from the frame that asks for one until the answer.

use super::order::OpClass;
use super::{BegunAccess, LinkTx, RequestStage};
use crate::flags::Order;
use crate::limits::{ATOMIC_LINK_MAX_BYTES, MESSAGE_COST_BYTES, RMA_LINK_MAX_OPS};
use crate::operation::{Send, SendId};

/// What an access costs on its link.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LinkAccess {
    class: OpClass,
    len_bytes: u64,
    /// The credit that the access spends. Only a write with remote data spends credit, for its
    /// completion at the target.
    cost_bytes: u64,
    /// How many bytes the access fetches, if it is atomic.
    fetched_bytes: usize,
}

impl LinkAccess {
    /// Describes an operation, which must be an access.
    #[inline]
    pub(crate) fn of(send: &Send) -> LinkAccess {
        let class = OpClass::of(send);
        let is_counted = class == OpClass::Write && send.message.data.is_some();
        LinkAccess {
            class,
            len_bytes: send.message.len_bytes,
            cost_bytes: if is_counted { MESSAGE_COST_BYTES } else { 0 },
            fetched_bytes: if class == OpClass::Fetch { send.atomic_fetch_len_bytes() } else { 0 },
        }
    }
}

impl LinkTx {
    /// Whether the link may begin to take an access.
    #[inline]
    pub(crate) fn may_begin_access(&self, access: &LinkAccess) -> bool {
        self.outstanding_ops < RMA_LINK_MAX_OPS
            && self.outstanding_bytes + access.fetched_bytes <= ATOMIC_LINK_MAX_BYTES
            && self.credit_bytes() >= access.cost_bytes
    }

    /// Records that the link has begun to take an access that [`may_begin_access`](Self::may_begin_access)
    /// allowed.
    #[inline]
    pub(crate) fn record_access_begun(
        &mut self,
        send: SendId,
        access: &LinkAccess,
        stage: RequestStage,
        order: Order,
    ) -> BegunAccess {
        self.credit.spend(access.cost_bytes);
        self.taken_frames += 1;
        self.outstanding_ops += 1;
        self.outstanding_bytes += access.fetched_bytes;
        self.requests.add_access(send, stage);
        let is_offered = stage == RequestStage::Offered;
        let is_postponed = self.postponed.is_postponed_by_peer(access.class, is_offered, access.len_bytes);
        if is_postponed {
            self.postponed.add(access.class, order);
        }
        BegunAccess { after: self.message_mark(), is_postponed }
    }

    /// Records that the peer has answered an access.
    #[inline]
    pub(crate) fn record_access_end(
        &mut self,
        send: SendId,
        access: &LinkAccess,
        begun: BegunAccess,
        order: Order,
    ) {
        self.requests.remove_access(send);
        self.outstanding_ops -= 1;
        self.outstanding_bytes -= access.fetched_bytes;
        // The peer has answered the access. So it has all messages that the link took before the
        // access.
        self.arrived.advance_to(begun.after);
        if begun.is_postponed {
            self.postponed.remove(access.class, order);
        }
    }

    /// Whether the peer has answered all accesses.
    #[inline(always)]
    pub(crate) fn has_no_unanswered_accesses(&self) -> bool {
        self.outstanding_ops == 0 && self.counted_writes.unanswered_ops() == 0
    }
}
