//! Message order: `msg_order` of `fi_endpoint(3)`. What was posted later must not take effect
//! earlier, where both ends have agreed to that.
//!
//! Frames arrive in the order in which they are sent, and almost everything is done as it arrives:
//! messages are matched, small writes are written. Two things are done later: a write that is
//! [offered](crate::wire::RmaKind::Offer) is fetched when its target comes to it, and a read is
//! answered piece by piece. These are *deferred*, and what follows would overtake them. So the
//! initiator holds back what must not, at the head of its peer's queue, until nothing deferred is
//! in its way that has not been answered. No frame carries anything for it, and an endpoint without
//! these orders pays nothing.
//!
//! What is done without frames (`engine/direct.rs`) overtakes messages that are under way. Where it
//! must not, it is done so only if the peer is known to have them all: by acknowledgements, or
//! since it has answered an access that was sent after them. So the first access after a message
//! travels as a frame, and those that follow its answer do not.
//!
//! A short read need not be deferred. A target that has agreed to an order copies it as it arrives,
//! if nothing deferred is to be read before it; and an initiator relies on that.

use super::LinkTx;
use crate::flags::Order;
use crate::limits::READ_COPIED_MAX_BYTES;
use crate::operation::Send;

/// What an operation does at its target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OpClass {
    /// A message is matched.
    Send,
    /// A region is read.
    Read,
    /// A region is written.
    Write,
    /// Elements of a region are changed.
    Update,
    /// The same, and what they were before is read.
    Fetch,
}

/// The operations that a link's peer may do later than operations sent after them.
#[derive(Debug, Default)]
pub(super) struct Deferred {
    /// How many reads.
    read_ops: usize,
    /// How many writes.
    write_ops: usize,
    /// Whether messages have to wait for these. Every message looks at it.
    holds_sends: bool,
}

impl OpClass {
    pub(crate) fn of(send: &Send) -> OpClass {
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

    /// The orders by which it waits for deferred reads, and those by which it waits for deferred
    /// writes. Reads are answered one after the other, so no read overtakes another; but an atomic
    /// operation that fetches is carried out as it arrives.
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

impl Deferred {
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

    /// Whether the peer will do an access later than what comes after it, as far as can be known.
    pub(super) fn is_deferred_by_peer(&self, effect: OpClass, is_offered: bool, len_bytes: u64) -> bool {
        match effect {
            // An atomic operation is carried out as it arrives.
            OpClass::Send | OpClass::Update | OpClass::Fetch => false,
            // Behind a read that is deferred, also a short one is.
            OpClass::Read => self.read_ops > 0 || len_bytes > READ_COPIED_MAX_BYTES as u64,
            OpClass::Write => is_offered,
        }
    }

    /// An access was sent that the peer may do later than what follows it.
    pub(super) fn begin(&mut self, effect: OpClass, order: Order) {
        match effect {
            OpClass::Send | OpClass::Update | OpClass::Fetch => {}
            OpClass::Read => self.read_ops += 1,
            OpClass::Write => self.write_ops += 1,
        }
        self.holds_sends = self.holds(OpClass::Send, order);
    }

    /// It has done it.
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
    /// Whether a send or an access that is the next for the link's peer has to wait, for the sake of order.
    pub(crate) fn is_held_by_order(&self, send: &Send, order: Order) -> bool {
        self.deferred.holds(OpClass::of(send), order)
    }

    /// An access was sent. Returns whether the peer may do it later than what follows it.
    pub(crate) fn record_if_deferred(
        &mut self,
        effect: OpClass,
        is_offered: bool,
        len_bytes: u64,
        order: Order,
    ) -> bool {
        let is_deferred = self.deferred.is_deferred_by_peer(effect, is_offered, len_bytes);
        if is_deferred {
            self.deferred.begin(effect, order);
        }
        is_deferred
    }

    /// The peer has done an access that it was to do later.
    pub(crate) fn deferred_ended(&mut self, effect: OpClass, order: Order) {
        self.deferred.end(effect, order);
    }
}
