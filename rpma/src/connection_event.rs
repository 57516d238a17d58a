//! Events of connections.

use std::fmt;

use homespun::transport::LinkError;
use homespun::{ConnectionEnd, Errno, EventError};

/// An event of a connection: `enum rpma_conn_event`, as `rpma_conn_next_event(3)` returns it.
///
/// A connection has at most two events: [`Established`](Self::Established), and one that says how it has
/// ended or why there is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ConnectionEvent {
    /// The connection is established: it can send from now on. The private data of the peer is there.
    Established,
    /// The connection has ended: one side has disconnected or dropped it, the peer's process has ended or was
    /// killed, or an operation has failed. All operations that had not ended have completed, with
    /// [`Status::Flushed`](crate::Status::Flushed) or the failure of their own.
    Closed,
    /// The connection has broken: the peer's host does not answer any more, or the peer has violated the
    /// protocol. Or there is none, since the requester has given up before this side accepted.
    Lost,
    /// There is no connection: no endpoint listens at the address, or the peer has rejected the request.
    Rejected,
    /// There is no connection: the peer's host cannot be reached, or the peer has not answered within
    /// [`ConnectionConfig::timeout`](crate::ConnectionConfig::timeout).
    Unreachable,
}

impl ConnectionEvent {
    /// Returns the event for the end of a connection.
    // docs/decisions/rpma-events.md has the reasons.
    pub(crate) fn from_end(end: &ConnectionEnd) -> ConnectionEvent {
        match end {
            ConnectionEnd::Lost(LinkError::Closed) => ConnectionEvent::Closed,
            ConnectionEnd::Lost(LinkError::System(Errno::ECONNRESET | Errno::EPIPE)) => {
                ConnectionEvent::Closed
            }
            ConnectionEnd::Lost(_) => ConnectionEvent::Lost,
            _ => ConnectionEvent::Closed,
        }
    }

    /// Returns the event for an attempt to connect that has failed.
    pub(crate) fn from_failed_attempt(failure: &EventError) -> ConnectionEvent {
        match failure.errno {
            Errno::ECONNREFUSED | Errno::ECONNRESET => ConnectionEvent::Rejected,
            Errno::ETIMEDOUT | Errno::EHOSTUNREACH | Errno::ENETUNREACH => ConnectionEvent::Unreachable,
            _ => ConnectionEvent::Lost,
        }
    }
}

impl fmt::Display for ConnectionEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ConnectionEvent::Established => "the connection is established",
            ConnectionEvent::Closed => "the connection is closed",
            ConnectionEvent::Lost => "the connection is lost",
            ConnectionEvent::Rejected => "the connection was rejected",
            ConnectionEvent::Unreachable => "the peer cannot be reached",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn end_by_the_peers_system_is_an_end_in_order() {
        let of_loss = |error| ConnectionEvent::from_end(&ConnectionEnd::Lost(error));
        assert_eq!(ConnectionEvent::from_end(&ConnectionEnd::Closed), ConnectionEvent::Closed);
        assert_eq!(ConnectionEvent::from_end(&ConnectionEnd::OperationFailed), ConnectionEvent::Closed);
        assert_eq!(of_loss(LinkError::Closed), ConnectionEvent::Closed);
        assert_eq!(of_loss(LinkError::System(Errno::ECONNRESET)), ConnectionEvent::Closed);
        assert_eq!(of_loss(LinkError::System(Errno::ETIMEDOUT)), ConnectionEvent::Lost);
        assert_eq!(of_loss(LinkError::System(Errno::EHOSTUNREACH)), ConnectionEvent::Lost);
        assert_eq!(of_loss(LinkError::Protocol("a bad frame")), ConnectionEvent::Lost);
    }

    #[test]
    fn failed_attempt_is_rejected_or_unreachable_or_lost() {
        let of_failure = |errno: Errno| {
            ConnectionEvent::from_failed_attempt(&EventError {
                object: 0,
                context: 0,
                data: 0,
                errno,
                prov_errno: errno.raw(),
                err_data: Vec::new(),
                peer: None,
            })
        };
        for errno in [Errno::ECONNREFUSED, Errno::ECONNRESET] {
            assert_eq!(of_failure(errno), ConnectionEvent::Rejected);
        }
        for errno in [Errno::ETIMEDOUT, Errno::EHOSTUNREACH, Errno::ENETUNREACH] {
            assert_eq!(of_failure(errno), ConnectionEvent::Unreachable);
        }
        for errno in [Errno::ECONNABORTED, Errno::EPROTO, Errno::EMFILE] {
            assert_eq!(of_failure(errno), ConnectionEvent::Lost);
        }
    }
}
