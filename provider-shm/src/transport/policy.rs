//! Security policies that forbid abstract names, such as AppArmor's rules or Landlock's scopes.
//!
//! The policy may refuse the socket, the name of an endpoint, or a connect to a name. An endpoint that also
//! has TCP then works without shared memory, and logs this once.

use std::io;

use super::ShmTransport;

/// Which action of a transport a security policy has refused. The first refusal is logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PolicyRefusal {
    None,
    /// A connect. Others may succeed.
    Connect,
    /// The transport's name. The transport neither listens nor connects.
    Name,
}

/// Whether a security policy has refused a call of `socket(2)`, `bind(2)` or `connect(2)`. For an abstract
/// name, no other cause makes these calls fail with such an error.
pub(super) fn is_refused_by_policy(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::PermissionDenied
}

impl ShmTransport {
    /// Records that a security policy has refused the transport's name.
    pub(super) fn note_refused_name(&mut self, error: &io::Error) {
        tracing::warn!(
            address = %self.address, %error,
            "a security policy forbids the abstract name of this endpoint: it shares memory with no peer"
        );
        self.refusal = PolicyRefusal::Name;
    }

    /// Records that a security policy has refused a connect.
    pub(super) fn note_refused_connect(&mut self, error: &io::Error) {
        if self.refusal == PolicyRefusal::None {
            tracing::warn!(
                address = %self.address, %error,
                "a security policy forbids connects to abstract names: TCP carries these links"
            );
            self.refusal = PolicyRefusal::Connect;
        }
    }
}
