//! The error that ends a link whose peer breaks the protocol.

use std::fmt;

/// How a peer has broken the protocol. The engine then ends the link to the peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ProtocolViolation(pub(crate) &'static str);

impl fmt::Display for ProtocolViolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}
