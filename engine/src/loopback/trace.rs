//! What has happened on a network, as a list of events.

use std::fmt;
use std::time::Duration;

use crate::address::Address;
use crate::transport::LinkError;

/// Something that has happened on a [`Network`](super::Network).
///
/// Two runs with the same seed and the same calls have the same events. The text of an event is one
/// line, such as `0.001500 127.0.0.1:49152 -> 127.0.0.1:49153 sends 64 bytes`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceEvent {
    /// The time of the network, since its start.
    pub time: Duration,
    /// The address of the endpoint that acts, or from which bytes or the end of a link arrive.
    pub from: Address,
    /// The address of the other endpoint.
    pub to: Address,
    /// What has happened.
    pub what: TraceAction,
}

/// What has happened between two endpoints: see [`TraceEvent`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TraceAction {
    /// `from` asks `to` for a connection.
    Connect,
    /// The request for a connection has arrived, and an endpoint listens.
    Connected,
    /// `from` has given bytes to the network.
    Sent {
        /// The number of bytes: frames, and one hello for each direction of a connection.
        count_bytes: usize,
    },
    /// Bytes from `from` have arrived at `to`, and `to` reads them.
    Arrived {
        /// The number of bytes.
        count_bytes: usize,
    },
    /// `to` has learned that its link to `from` has ended, or that its request was refused.
    Ended(LinkError),
    /// The endpoint has left the network: it was closed, or its process was killed. `from` and `to`
    /// are the same.
    Gone,
}

impl fmt::Display for TraceEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TraceEvent { time, from, to, what } = self;
        write!(f, "{}.{:06} {from}", time.as_secs(), time.subsec_micros())?;
        match what {
            TraceAction::Connect => write!(f, " -> {to} connects"),
            TraceAction::Connected => write!(f, " -> {to} is connected"),
            TraceAction::Sent { count_bytes } => write!(f, " -> {to} sends {count_bytes} bytes"),
            TraceAction::Arrived { count_bytes } => write!(f, " -> {to} receives {count_bytes} bytes"),
            TraceAction::Ended(why) => write!(f, " -> {to} has ended: {why}"),
            TraceAction::Gone => write!(f, " is gone"),
        }
    }
}
