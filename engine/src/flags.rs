//! The flag vocabulary of libfabric: one type for each place where flags appear.
//!
//! Bits have the values of `rdma/fabric.h`, so `from_bits_retain` converts a C caller's word.
//! Libfabric uses some bits twice: bit 59 is both the capability `FI_DIRECTED_RECV` and the
//! operation flag `FI_CLAIM`. Separate types keep these flags apart.
//!
//! With the feature `serde`, text formats hold the names of flags (`"MSG | TAGGED"`), and a
//! hexadecimal number for bits without a name. Binary formats hold the bits.

use bitflags::bitflags;

bitflags! {
    /// The capabilities of an endpoint, domain or provider: `fi_getinfo(3)`, "Capabilities".
    ///
    /// Only the bits that homespun knows have names. If an application asks for any other bit,
    /// `getinfo` fails with ENODATA.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
    #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
    pub struct Caps: u64 {
        /// Untagged messages.
        const MSG = 1 << 1;
        /// One-sided reads and writes.
        const RMA = 1 << 2;
        /// Messages matched by a 64-bit tag.
        const TAGGED = 1 << 3;
        /// One-sided atomic operations.
        const ATOMIC = 1 << 4;
        /// Modifier: initiates reads.
        const READ = 1 << 8;
        /// Modifier: initiates writes.
        const WRITE = 1 << 9;
        /// Modifier: receives messages.
        const RECV = 1 << 10;
        /// Modifier: sends messages.
        const SEND = 1 << 11;
        /// Modifier: is the target of reads.
        const REMOTE_READ = 1 << 12;
        /// Modifier: is the target of writes.
        const REMOTE_WRITE = 1 << 13;
        /// One posted buffer receives many messages.
        const MULTI_RECV = 1 << 16;
        /// Operations may wait for a counter: `fi_trigger(3)`.
        const TRIGGER = 1 << 20;
        /// Operations may be fenced.
        const FENCE = 1 << 21;
        /// Device memory.
        const HMEM = 1 << 47;
        /// A write to persistent memory can complete when its data is durable.
        const RMA_PMEM = 1 << 49;
        /// A message from a source that is not in the address vector is reported as an error with
        /// the source's address.
        const SOURCE_ERR = 1 << 50;
        /// Reaches endpoints of the same host.
        const LOCAL_COMM = 1 << 51;
        /// Reaches endpoints of other hosts.
        const REMOTE_COMM = 1 << 52;
        /// Counters can count the accesses that peers make to this side's memory.
        const RMA_EVENT = 1 << 56;
        /// Completions of receives name their sender.
        const SOURCE = 1 << 57;
        /// A receive may accept messages from one sender only.
        const DIRECTED_RECV = 1 << 59;
    }
}

impl Caps {
    /// The primary capabilities. An application gets only those that it asks for.
    pub const PRIMARY: Caps = Caps::MSG
        .union(Caps::RMA)
        .union(Caps::TAGGED)
        .union(Caps::ATOMIC)
        .union(Caps::DIRECTED_RECV)
        .union(Caps::HMEM);

    /// The primary modifiers. If the application names no modifier, it gets all modifiers that
    /// apply.
    pub const MODIFIERS: Caps = Caps::READ
        .union(Caps::WRITE)
        .union(Caps::RECV)
        .union(Caps::SEND)
        .union(Caps::REMOTE_READ)
        .union(Caps::REMOTE_WRITE);
}

bitflags! {
    /// Flags of one data transfer operation, and an endpoint's default `op_flags`:
    /// `fi_endpoint(3)`, `fi_msg(3)`.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
    #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
    pub struct OpFlags: u64 {
        /// The receive buffer takes many messages.
        const MULTI_RECV = 1 << 16;
        /// The message carries completion data for the receiver.
        const REMOTE_CQ_DATA = 1 << 17;
        /// More operations follow at once, so transmission may wait for them.
        const MORE = 1 << 18;
        /// Look for an unexpected message without receiving it.
        const PEEK = 1 << 19;
        /// Defer until a counter has reached a threshold: `fi_trigger(3)`. The context names the
        /// counter and the threshold.
        const TRIGGER = 1 << 20;
        /// Defer until every earlier operation to the peer has completed.
        const FENCE = 1 << 21;
        /// Report success even if the queue is bound for selective completion.
        const COMPLETION = 1 << 24;
        /// The buffer may be reused as soon as the call returns.
        const INJECT = 1 << 25;
        /// Complete when the source buffer may be reused.
        const INJECT_COMPLETE = 1 << 26;
        /// Complete when the peer's endpoint holds the message.
        const TRANSMIT_COMPLETE = 1 << 27;
        /// Complete when the peer has processed the message.
        const DELIVERY_COMPLETE = 1 << 28;
        /// Complete when the written data is durable.
        const COMMIT_COMPLETE = 1 << 30;
        /// Complete when the peer's application has matched the message.
        const MATCH_COMPLETE = 1 << 31;
        /// Discard a message that a peek finds, or has claimed.
        const DISCARD = 1 << 58;
        /// Receive a message that a peek has claimed.
        const CLAIM = 1 << 59;
    }
}

impl CompletionFlags {
    /// The flags that only transmit operations have.
    pub const TRANSMITTED: CompletionFlags =
        CompletionFlags::SEND.union(CompletionFlags::READ).union(CompletionFlags::WRITE);
}

impl OpFlags {
    /// All completion levels.
    pub const LEVELS: OpFlags = OpFlags::INJECT_COMPLETE
        .union(OpFlags::TRANSMIT_COMPLETE)
        .union(OpFlags::DELIVERY_COMPLETE)
        .union(OpFlags::COMMIT_COMPLETE)
        .union(OpFlags::MATCH_COMPLETE);
}

bitflags! {
    /// The flags of a completion entry: `fi_cq(3)`, "Completion flags".
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
    #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
    pub struct CompletionFlags: u64 {
        /// An untagged message.
        const MSG = 1 << 1;
        /// A one-sided operation.
        const RMA = 1 << 2;
        /// A tagged message.
        const TAGGED = 1 << 3;
        /// An atomic operation.
        const ATOMIC = 1 << 4;
        /// A read that this side has initiated completed.
        const READ = 1 << 8;
        /// A write that this side has initiated completed.
        const WRITE = 1 << 9;
        /// A receive completed.
        const RECV = 1 << 10;
        /// A send completed.
        const SEND = 1 << 11;
        /// A peer read this endpoint's memory.
        const REMOTE_READ = 1 << 12;
        /// A peer wrote this endpoint's memory. With [`Mode::RX_CQ_DATA`], the write has taken a receive.
        const REMOTE_WRITE = 1 << 13;
        /// The multi-receive buffer was released.
        const MULTI_RECV = 1 << 16;
        /// The entry's `data` is remote data that came with the message or the write.
        const REMOTE_CQ_DATA = 1 << 17;
        /// A flush that this side has initiated completed. Its completion also has [`RMA`](Self::RMA) and
        /// [`WRITE`](Self::WRITE), so counters of writes count it. Of homespun's own: the bit is one of
        /// those that libfabric leaves to providers.
        const FLUSH = 1 << 60;
    }
}

impl CompletionFlags {
    /// The flags of a flush's completion.
    pub const OF_FLUSH: CompletionFlags =
        CompletionFlags::of_access(false, false).union(CompletionFlags::FLUSH);

    /// Returns the flags of a send's completion.
    #[inline(always)]
    pub const fn of_send(is_tagged: bool) -> CompletionFlags {
        CompletionFlags::SEND.union(CompletionFlags::tagged_or_msg(is_tagged))
    }

    /// Returns the flags that every receive's completion has. A message may add flags.
    #[inline(always)]
    pub const fn of_receive(is_tagged: bool) -> CompletionFlags {
        CompletionFlags::RECV.union(CompletionFlags::tagged_or_msg(is_tagged))
    }

    /// Returns the flags of an access's completion at the initiator.
    #[inline(always)]
    pub const fn of_access(is_atomic: bool, reads: bool) -> CompletionFlags {
        let interface = if is_atomic { CompletionFlags::ATOMIC } else { CompletionFlags::RMA };
        interface.union(if reads { CompletionFlags::READ } else { CompletionFlags::WRITE })
    }

    #[inline(always)]
    const fn tagged_or_msg(is_tagged: bool) -> CompletionFlags {
        if is_tagged { CompletionFlags::TAGGED } else { CompletionFlags::MSG }
    }
}

bitflags! {
    /// The permitted uses of a memory region: `fi_mr(3)`, "access".
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
    pub struct MrAccess: u64 {
        /// This side's buffer of an RMA read.
        const READ = 1 << 8;
        /// This side's buffer of an RMA write.
        const WRITE = 1 << 9;
        /// The buffer of a receive.
        const RECV = 1 << 10;
        /// The buffer of a send.
        const SEND = 1 << 11;
        /// Peers may read the region.
        const REMOTE_READ = 1 << 12;
        /// Peers may write the region.
        const REMOTE_WRITE = 1 << 13;
    }
}

impl MrAccess {
    /// Whether peers may read or write the region. Only such a region has a key.
    pub fn gives_peers_rights(self) -> bool {
        self.intersects(MrAccess::REMOTE_READ | MrAccess::REMOTE_WRITE)
    }
}

bitflags! {
    /// How a completion queue is bound to an endpoint: `fi_endpoint(3)`, `fi_ep_bind`.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
    #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
    pub struct BindFlags: u64 {
        /// Reports completed receives.
        const RECV = 1 << 10;
        /// Reports completed transmit operations.
        const TRANSMIT = 1 << 11;
        /// A success is reported only if the operation has [`OpFlags::COMPLETION`].
        const SELECTIVE_COMPLETION = 1 << 59;
    }
}

bitflags! {
    /// The events that a counter counts: `fi_ep_bind` of `fi_endpoint(3)`; for a memory region,
    /// `fi_mr_bind` of `fi_mr(3)`.
    ///
    /// An operation that succeeds increments the counter's value. An operation that fails
    /// increments the counter's error value.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
    #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
    pub struct CounterEvents: u64 {
        /// Reads and fetching atomic operations that this side has initiated.
        const READ = 1 << 8;
        /// Writes and atomic operations without fetching that this side has initiated.
        const WRITE = 1 << 9;
        /// Messages that were received, tagged or not.
        const RECV = 1 << 10;
        /// Messages that were sent, tagged or not.
        const SEND = 1 << 11;
        /// Reads and fetching atomic operations by peers.
        const REMOTE_READ = 1 << 12;
        /// Writes by peers. An endpoint also counts atomic operations of peers that do not fetch. A
        /// memory region also counts every atomic operation of peers that may change the region.
        const REMOTE_WRITE = 1 << 13;
    }
}

impl CounterEvents {
    /// The events that a memory region can count.
    pub const OF_REGION: CounterEvents = CounterEvents::REMOTE_READ.union(CounterEvents::REMOTE_WRITE);

    /// Returns the event for the end of an operation with these completion flags.
    #[inline]
    pub const fn of_completion(flags: CompletionFlags) -> CounterEvents {
        CounterEvents::from_bits_truncate(flags.bits())
    }
}

bitflags! {
    /// Flags of a registration of memory: `fi_mr(3)`.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
    #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
    pub struct MrFlags: u64 {
        /// The region will be bound to counters. Peers can access the region only once it is
        /// enabled.
        const RMA_EVENT = 1 << 56;
        /// The memory is persistent: data written to it can be made durable.
        const RMA_PMEM = 1 << 49;
    }
}

bitflags! {
    /// Flags of `fi_getinfo(3)`.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
    #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
    pub struct InfoFlags: u64 {
        /// Return only the provider's attributes; ignore addresses and hints.
        const PROV_ATTR_ONLY = 1 << 54;
        /// The node is a numeric address; no name is looked up.
        const NUMERIC_HOST = 1 << 55;
        /// Node and service name the local (source) address.
        const SOURCE = 1 << 57;
    }
}

bitflags! {
    /// What a provider demands of its application: `fi_getinfo(3)`, "Mode". homespun demands
    /// nothing, and offers [`RX_CQ_DATA`](Self::RX_CQ_DATA).
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
    #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
    pub struct Mode: u64 {
        /// The context points to a wide scratch area.
        const CONTEXT2 = 1 << 52;
        /// Completions need not tell which kind of operation has completed.
        const NOTIFY_FLAGS_ONLY = 1 << 54;
        /// Remote data of a peer's write takes a posted receive, as a message does. The completion
        /// has the receive's context, the flags and the length of the write, and the data. The
        /// receive's buffer is not written to. If no receive is posted, the data waits for one.
        const RX_CQ_DATA = 1 << 56;
        /// The iovec array itself must stay untouched.
        const ASYNC_IOV = 1 << 57;
        /// Buffers leave room for a header.
        const MSG_PREFIX = 1 << 58;
        /// The context points to a scratch area.
        const CONTEXT = 1 << 59;
    }
}

bitflags! {
    /// The pairs of operations that keep posting order: `fi_endpoint(3)`, "Message ordering".
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
    #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
    pub struct Order: u64 {
        /// Read after read.
        const RAR = 1 << 0;
        /// Read after write.
        const RAW = 1 << 1;
        /// Read after send.
        const RAS = 1 << 2;
        /// Write after read.
        const WAR = 1 << 3;
        /// Write after write.
        const WAW = 1 << 4;
        /// Write after send.
        const WAS = 1 << 5;
        /// Send after read.
        const SAR = 1 << 6;
        /// Send after write.
        const SAW = 1 << 7;
        /// Send after send.
        const SAS = 1 << 8;
        /// As [`RAR`](Self::RAR), for reads that are not atomic operations.
        const RMA_RAR = 1 << 32;
        /// As [`RAW`](Self::RAW), for reads and writes that are not atomic operations.
        const RMA_RAW = 1 << 33;
        /// As [`WAR`](Self::WAR), for reads and writes that are not atomic operations.
        const RMA_WAR = 1 << 34;
        /// As [`WAW`](Self::WAW), for writes that are not atomic operations.
        const RMA_WAW = 1 << 35;
        /// As [`RAR`](Self::RAR), for atomic operations only.
        const ATOMIC_RAR = 1 << 36;
        /// As [`RAW`](Self::RAW), for atomic operations only.
        const ATOMIC_RAW = 1 << 37;
        /// As [`WAR`](Self::WAR), for atomic operations only.
        const ATOMIC_WAR = 1 << 38;
        /// As [`WAW`](Self::WAW), for atomic operations only.
        const ATOMIC_WAW = 1 << 39;
    }
}

impl Order {
    /// As a completion order: operations complete in the order of posting (`FI_ORDER_STRICT`). As a
    /// message order: no operation overtakes an earlier one.
    pub const STRICT: Order = Order::RAR
        .union(Order::RAW)
        .union(Order::RAS)
        .union(Order::WAR)
        .union(Order::WAW)
        .union(Order::WAS)
        .union(Order::SAR)
        .union(Order::SAW)
        .union(Order::SAS);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_match_libfabric_headers() {
        assert_eq!(Caps::TAGGED.bits(), 8);
        assert_eq!(Caps::SOURCE.bits(), InfoFlags::SOURCE.bits());
        assert_eq!(OpFlags::CLAIM.bits(), Caps::DIRECTED_RECV.bits());
        assert_eq!(OpFlags::LEVELS.bits(), 0xdc00_0000);
        assert_eq!(Order::STRICT.bits(), 0x1ff);
    }
}
