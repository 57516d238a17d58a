//! One connection: two ends, a pipe in each direction.

use slotmap::new_key_type;

use crate::loopback::pipe::Pipe;
use crate::transport::LinkId;

new_key_type! {
    pub(super) struct EndpointKey;
    pub(super) struct ConnectionKey;
}

/// Which end of a connection.
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

pub(super) struct Connection {
    pub(super) connector: End,
    pub(super) acceptor: End,
    /// Whether the connector may write.
    pub(super) made: bool,
    /// Whether the connection has ended for both sides, in both directions.
    pub(super) severed: bool,
}

pub(super) struct End {
    pub(super) owner: EndpointKey,
    /// The owner's name for it; none until it is accepted.
    pub(super) link: Option<LinkId>,
    pub(super) presence: Presence,
    /// What the other end wrote.
    pub(super) inbound: Pipe,
    /// How much of a frame that was taken in part is still to be written.
    pub(super) resume_left_bytes: usize,
    /// Whether it is in its owner's ready queue.
    pub(super) is_ready: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Presence {
    Open,
    /// Closed by its owner, while the other end has not read everything.
    Draining,
    Gone,
}

impl EndKey {
    pub(super) fn peer(self) -> EndKey {
        let side = match self.side {
            Side::Connector => Side::Acceptor,
            Side::Acceptor => Side::Connector,
        };
        EndKey { side, ..self }
    }
}

impl Connection {
    pub(super) fn end(&self, side: Side) -> &End {
        match side {
            Side::Connector => &self.connector,
            Side::Acceptor => &self.acceptor,
        }
    }

    pub(super) fn end_mut(&mut self, side: Side) -> &mut End {
        match side {
            Side::Connector => &mut self.connector,
            Side::Acceptor => &mut self.acceptor,
        }
    }

    pub(super) fn is_of(&self, key: EndpointKey) -> bool {
        self.connector.owner == key || self.acceptor.owner == key
    }
}

impl End {
    pub(super) fn new(owner: EndpointKey, link: Option<LinkId>, capacity_bytes: usize) -> Self {
        End {
            owner,
            link,
            presence: Presence::Open,
            inbound: Pipe::new(capacity_bytes),
            resume_left_bytes: 0,
            is_ready: false,
        }
    }

    /// The owner reads nothing more here.
    pub(super) fn leave(&mut self, presence: Presence) {
        self.presence = presence;
        self.link = None;
        self.inbound.abandon();
    }
}
