//! Message order: `msg_order` of `fi_endpoint(3)`. If both ends have agreed on an order, an
//! operation must not overtake earlier operations that the order names.
//!
//! Frames arrive in the order of sending, and the target carries out most operations on arrival.
//! Three kinds of accesses are *postponed*. The target fetches the data of an
//! [offered](crate::wire::RmaKind::Offer) write later, it answers a read piece by piece, and it carries
//! out a long persistent flush in parts. Later operations could overtake such an access. If the order
//! forbids this, the initiator keeps a later operation at the head of its peer's queue until the peer has
//! answered the access. No frame carries anything for this.
//!
//! A direct access (`engine/direct.rs`) overtakes messages that are under way. If the order forbids
//! this, the initiator makes direct accesses only when it knows that all messages have arrived. It
//! knows this if the peer has acknowledged them, or has answered an access that followed them. So
//! the first access after a message usually travels as a frame. Once the peer has answered that
//! access, later accesses are direct again.
//!
//! A flush waits for postponed writes whatever the order is: it is there to follow them. And whatever the
//! order is, other operations wait for postponed flushes: a write after a flush may say that the flushed
//! bytes are durable. A short flush is not postponed, unless a postponed flush is ahead of it.
//!
//! A short read is not postponed, unless a postponed read is ahead of it. A target that has agreed
//! on an order copies the data of a short read when the request arrives.

use super::LinkTx;
use crate::flags::Order;
use crate::limits::{FLUSH_AT_ONCE_MAX_BYTES, READ_COPIED_MAX_BYTES};
use crate::mutated;
use crate::operation::{AccessKind, FlushKind, Send};

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
    /// Elements of a region are changed, and their previous values are read.
    Fetch,
    /// Earlier writes are made visible, or a range durable.
    Flush(FlushKind),
}

/// The postponed accesses of a link. The peer may carry them out after later operations.
#[derive(Debug, Default)]
pub(super) struct Postponed {
    /// How many reads are postponed.
    read_ops: usize,
    /// How many writes are postponed.
    write_ops: usize,
    /// How many persistent flushes are postponed.
    flush_ops: usize,
    /// Whether messages have to wait for the postponed accesses. Stored because every message
    /// checks it.
    holds_sends: bool,
}

impl OpClass {
    #[inline]
    pub(super) fn of(send: &Send) -> OpClass {
        match send.access_kind() {
            None => OpClass::Send,
            Some(AccessKind::Read(_)) => OpClass::Read,
            Some(AccessKind::Write { .. }) => OpClass::Write,
            Some(AccessKind::Atomic { fetched: None, .. }) => OpClass::Update,
            Some(AccessKind::Atomic { fetched: Some(_), .. }) => OpClass::Fetch,
            Some(AccessKind::Flush(kind)) => OpClass::Flush(*kind),
        }
    }

    /// Returns the orders that make this operation wait for postponed reads, then the orders that
    /// make it wait for postponed writes. A read need not wait for reads: the peer answers reads
    /// one after another. A fetching atomic operation may have to wait for reads: the peer carries
    /// it out on arrival.
    fn blocking_orders(self) -> [Order; 2] {
        match self {
            OpClass::Send if mutated!("fi_cq/order-tells-of-earlier") => [Order::empty(); 2],
            OpClass::Send => [Order::SAR, Order::SAW],
            OpClass::Read => [Order::empty(), Order::RAW | Order::RMA_RAW],
            OpClass::Write => [Order::WAR | Order::RMA_WAR, Order::WAW | Order::RMA_WAW],
            OpClass::Update => [Order::WAR, Order::WAW],
            OpClass::Fetch => [Order::WAR | Order::RAR, Order::RAW | Order::WAW],
            // No order matters: see `Postponed::holds`.
            OpClass::Flush(_) => [Order::empty(); 2],
        }
    }
}

impl Postponed {
    /// Whether messages have to wait for postponed accesses.
    #[inline(always)]
    pub(super) fn holds_sends(&self) -> bool {
        self.holds_sends
    }

    /// Whether an operation has to wait for postponed accesses.
    pub(super) fn holds(&self, effect: OpClass, order: Order) -> bool {
        // Whatever the order: a flush without earlier writes would be useless, and so would a flush that
        // later operations overtake. The peer carries out its persistent flushes one after another.
        let [by_reads, by_writes, by_flushes] = match effect {
            OpClass::Flush(_) => [false, true, false],
            _ => {
                let [by_reads, by_writes] = effect.blocking_orders();
                [order.intersects(by_reads), order.intersects(by_writes), true]
            }
        };
        self.read_ops > 0 && by_reads || self.write_ops > 0 && by_writes || self.flush_ops > 0 && by_flushes
    }

    /// Whether the peer may carry out an access after operations that this side sends later.
    pub(super) fn is_postponed_by_peer(&self, effect: OpClass, is_offered: bool, len_bytes: u64) -> bool {
        match effect {
            // The peer carries these out when they arrive.
            OpClass::Send | OpClass::Update | OpClass::Fetch | OpClass::Flush(FlushKind::Visibility) => false,
            // A short flush behind a postponed flush is postponed, too.
            OpClass::Flush(FlushKind::Persistent) => {
                self.flush_ops > 0 || len_bytes > FLUSH_AT_ONCE_MAX_BYTES as u64
            }
            // A short read behind a postponed read is postponed, too.
            OpClass::Read => self.read_ops > 0 || len_bytes > READ_COPIED_MAX_BYTES as u64,
            OpClass::Write => is_offered,
        }
    }

    /// Counts an access that is postponed.
    pub(super) fn add(&mut self, effect: OpClass, order: Order) {
        match effect {
            OpClass::Send | OpClass::Update | OpClass::Fetch => {}
            OpClass::Read => self.read_ops += 1,
            OpClass::Write => self.write_ops += 1,
            OpClass::Flush(_) => self.flush_ops += 1,
        }
        self.holds_sends = self.holds(OpClass::Send, order);
    }

    /// Removes a postponed access that the peer has carried out.
    pub(super) fn remove(&mut self, effect: OpClass, order: Order) {
        match effect {
            OpClass::Send | OpClass::Update | OpClass::Fetch => {}
            OpClass::Read => self.read_ops -= 1,
            OpClass::Write => self.write_ops -= 1,
            OpClass::Flush(_) => self.flush_ops -= 1,
        }
        self.holds_sends = self.holds(OpClass::Send, order);
    }
}

impl LinkTx {
    /// Whether the next operation for the link's peer has to wait for postponed accesses.
    pub(crate) fn is_held_by_order(&self, send: &Send, order: Order) -> bool {
        self.postponed.holds(OpClass::of(send), order) && !mutated!("fi_endpoint/data-order")
    }
}
