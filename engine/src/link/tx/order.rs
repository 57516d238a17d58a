//! Message order: `msg_order` of `fi_endpoint(3)`. If both ends have agreed on an order, an
//! operation must not take effect before an earlier one.
//!
//! Frames arrive in the order in which they are sent, and the target handles almost every frame
//! when it arrives: it matches messages and applies small writes. It does two things later: it
//! fetches the data of an [offered](crate::wire::RmaKind::Offer) write when its turn comes, and it
//! answers a read piece by piece. These accesses are *postponed*, and later operations would
//! overtake them. So the initiator holds back an operation that must not overtake them, at the head
//! of its peer's queue, until the peer has answered the postponed accesses in its way. No frame
//! carries anything for this, and an endpoint without these orders pays nothing.
//!
//! An access without a frame (`engine/direct.rs`) overtakes messages that are under way. Where the
//! order forbids that, this side makes it only if the peer is known to have all messages: by
//! acknowledgements, or because it has answered an access that was sent after them. So the first
//! access after a message travels as a frame, and those that follow its answer do not.
//!
//! A short read need not be postponed. A target that has agreed on an order copies the data when the
//! request arrives, unless a postponed read is ahead of it; the initiator relies on that.

use super::LinkTx;
use crate::flags::Order;
use crate::limits::READ_COPIED_MAX_BYTES;
use crate::operation::Send;

/// The effect of an operation at its target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OpClass {
    /// A message is matched.
    Send,
    /// A region is read.
    Read,
    /// A region is written.
    Write,
    /// Elements of a region are changed.
    Update,
    /// The same, and their previous values are read.
    Fetch,
}

/// The operations that a link's peer may do later than operations sent after them.
#[derive(Debug, Default)]
pub(super) struct Postponed {
    /// How many reads.
    read_ops: usize,
    /// How many writes.
    write_ops: usize,
    /// Whether messages have to wait for these. Stored because every message checks it.
    holds_sends: bool,
}

impl OpClass {
    #[inline]
    pub(super) fn of(send: &Send) -> OpClass {
        match &send.one_sided {
            None => OpClass::Send,
            Some(one_sided) if one_sided.atomic.is_some() => {
                if one_sided.read.is_some() {
                    OpClass::Fetch
                } else {
                    OpClass::Update
                }
            }
            Some(one_sided) if one_sided.read.is_some() => OpClass::Read,
            Some(_) => OpClass::Write,
        }
    }

    /// Returns the orders by which the operation waits for postponed reads, and those by which it
    /// waits for postponed writes. The peer answers reads one after the other, so no read overtakes
    /// another; but it carries out a fetching atomic operation when it arrives.
    fn blocking_orders(self) -> [Order; 2] {
        match self {
            OpClass::Send => [Order::SAR, Order::SAW],
            OpClass::Read => [Order::empty(), Order::RAW | Order::RMA_RAW],
            OpClass::Write => [Order::WAR | Order::RMA_WAR, Order::WAW | Order::RMA_WAW],
            OpClass::Update => [Order::WAR, Order::WAW],
            OpClass::Fetch => [Order::WAR | Order::RAR, Order::RAW | Order::WAW],
        }
    }
}

impl Postponed {
    /// Whether messages have to wait.
    #[inline(always)]
    pub(super) fn holds_sends(&self) -> bool {
        self.holds_sends
    }

    /// Whether an operation has to wait.
    pub(super) fn holds(&self, effect: OpClass, order: Order) -> bool {
        let [by_reads, by_writes] = effect.blocking_orders().map(|waits_by| order.intersects(waits_by));
        self.read_ops > 0 && by_reads || self.write_ops > 0 && by_writes
    }

    /// Whether the peer may carry out an access only after operations that were sent later. `false`
    /// if this side knows that it does not.
    pub(super) fn is_postponed_by_peer(&self, effect: OpClass, is_offered: bool, len_bytes: u64) -> bool {
        match effect {
            // An atomic operation is carried out as it arrives.
            OpClass::Send | OpClass::Update | OpClass::Fetch => false,
            // Behind a postponed read, a short read is postponed, too.
            OpClass::Read => self.read_ops > 0 || len_bytes > READ_COPIED_MAX_BYTES as u64,
            OpClass::Write => is_offered,
        }
    }

    /// Counts a sent access that the peer may do later than the operations after it.
    pub(super) fn begin(&mut self, effect: OpClass, order: Order) {
        match effect {
            OpClass::Send | OpClass::Update | OpClass::Fetch => {}
            OpClass::Read => self.read_ops += 1,
            OpClass::Write => self.write_ops += 1,
        }
        self.holds_sends = self.holds(OpClass::Send, order);
    }

    /// Forgets a postponed access that the peer has done.
    pub(super) fn end(&mut self, effect: OpClass, order: Order) {
        match effect {
            OpClass::Send | OpClass::Update | OpClass::Fetch => {}
            OpClass::Read => self.read_ops -= 1,
            OpClass::Write => self.write_ops -= 1,
        }
        self.holds_sends = self.holds(OpClass::Send, order);
    }
}

impl LinkTx {
    /// Whether the next send or access for the link's peer has to wait for the sake of order.
    pub(crate) fn is_held_by_order(&self, send: &Send, order: Order) -> bool {
        self.postponed.holds(OpClass::of(send), order)
    }
}
