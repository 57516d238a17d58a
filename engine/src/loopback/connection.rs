//! One connection: two ends, and a pipe in each direction.

use std::collections::BTreeMap;
use std::io::IoSliceMut;

use slotmap::new_key_type;

use crate::address::Address;
use crate::loopback::pipe::Pipe;
use crate::transport::LinkId;

new_key_type! {
    pub(super) struct EndpointKey;
    pub(super) struct ConnectionKey;
}

/// Names one of the two ends of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Connector,
    Acceptor,
}

/// One end of one connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct EndKey {
    pub(super) connection: ConnectionKey,
    pub(super) side: Side,
}

pub(super) struct LoopbackConnection {
    pub(super) connector: End,
    pub(super) acceptor: End,
    /// The addresses of the connector and of the acceptor, even after their endpoints are gone.
    pub(super) addresses: [Address; 2],
    /// Whether the connector may write.
    pub(super) made: bool,
    /// Whether the connection has ended for both sides, in both directions.
    pub(super) severed: bool,
    /// The smallest payload that may be pulled, in bytes; `None` if none may be.
    pub(super) pull_min_bytes: Option<u32>,
}

pub(super) struct End {
    pub(super) owner: EndpointKey,
    /// The owner's number for the link; `None` until the owner has accepted it.
    pub(super) link: Option<LinkId>,
    pub(super) state: EndState,
    /// The bytes that the other end has written.
    pub(super) inbound: Pipe,
    /// The payload that the owner has exposed to the other end.
    pub(super) exposed: Exposed,
    /// Whether a pull has shown that the owner cannot pull from the other end.
    pub(super) cannot_pull: bool,
    /// How many bytes of a partly taken frame are still to be written.
    pub(super) resume_left_bytes: usize,
    /// Whether this end is in its owner's ready queue.
    pub(super) is_ready: bool,
    /// Whether the owner was refused a frame, or a part of one, and is to learn when it may write again.
    pub(super) wants_room: bool,
}

/// Copies of the payload that one end has exposed to the other end. The key of a copy is the number
/// in the payload's description.
#[derive(Default)]
pub(super) struct Exposed {
    payloads: BTreeMap<u64, Vec<u8>>,
    /// For each operation that this end has offered, the number of its payload.
    of_ops: BTreeMap<u64, u64>,
}

impl Exposed {
    pub(super) fn insert(&mut self, number: u64, payload: Vec<u8>) {
        self.payloads.insert(number, payload);
    }

    /// Records that this exposed payload belongs to the offered operation `op`.
    pub(super) fn attach_to_op(&mut self, op: u64, number: u64) {
        self.of_ops.insert(op, number);
    }

    /// Drops the payload of an operation, since the other end no longer needs it.
    pub(super) fn release_op(&mut self, op: u64) {
        if let Some(number) = self.of_ops.remove(&op) {
            self.payloads.remove(&number);
        }
    }

    /// Copies a range of the payload with this number. Returns `None` if there is no such payload,
    /// or if the range exceeds it.
    pub(super) fn read_at(&self, number: u64, offset_bytes: u64, into: &mut [IoSliceMut<'_>]) -> Option<()> {
        let payload = self.payloads.get(&number)?;
        let mut rest = payload.get(usize::try_from(offset_bytes).ok()?..)?;
        if rest.len() < into.iter().map(|slice| slice.len()).sum() {
            return None;
        }
        for slice in into {
            let (now, later) = rest.split_at(slice.len());
            slice.copy_from_slice(now);
            rest = later;
        }
        Some(())
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum EndState {
    Open,
    /// The owner has closed this end by [`Close::Drain`](crate::transport::Close::Drain). Since
    /// then, the owner has called neither [`flush`](crate::transport::Transport::flush) nor
    /// [`receive`](crate::transport::Transport::receive).
    Draining,
    /// The owner has closed this end by [`Close::Drain`](crate::transport::Close::Drain), and the
    /// network has all bytes for the other end.
    Delivered,
    Gone,
}

impl EndKey {
    pub(super) fn other_end(self) -> EndKey {
        let side = match self.side {
            Side::Connector => Side::Acceptor,
            Side::Acceptor => Side::Connector,
        };
        EndKey { side, ..self }
    }
}

impl LoopbackConnection {
    pub(super) fn end_at(&self, side: Side) -> &End {
        match side {
            Side::Connector => &self.connector,
            Side::Acceptor => &self.acceptor,
        }
    }

    pub(super) fn address_at(&self, side: Side) -> Address {
        let [connector, acceptor] = self.addresses;
        match side {
            Side::Connector => connector,
            Side::Acceptor => acceptor,
        }
    }

    pub(super) fn end_at_mut(&mut self, side: Side) -> &mut End {
        match side {
            Side::Connector => &mut self.connector,
            Side::Acceptor => &mut self.acceptor,
        }
    }
}

impl End {
    pub(super) fn new(owner: EndpointKey, link: Option<LinkId>, capacity_bytes: usize) -> Self {
        End {
            owner,
            link,
            state: EndState::Open,
            inbound: Pipe::new(capacity_bytes),
            exposed: Exposed::default(),
            cannot_pull: false,
            resume_left_bytes: 0,
            is_ready: false,
            wants_room: false,
        }
    }

    /// Detaches the owner, which then reads nothing more. Drops the payload that the owner has
    /// exposed to the other end.
    pub(super) fn detach_owner(&mut self, state: EndState) {
        self.state = state;
        self.link = None;
        self.exposed = Exposed::default();
        self.inbound.detach_reader();
    }
}
