//! What ends a link whose peer misbehaves.

use std::fmt;

/// How a peer has broken the protocol: its link is to be ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ProtocolViolation(pub(crate) &'static str);

impl fmt::Display for ProtocolViolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}
