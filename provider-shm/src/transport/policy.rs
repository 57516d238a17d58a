//! Policies and limits that forbid abstract names (AppArmor's rules, Landlock's scopes) or memory files
//! (seccomp, RLIMIT_FSIZE).
//!
//! A policy may refuse the socket, the name of an endpoint, a connect to a name, or the memory of a ring. An
//! endpoint that also has TCP then works without shared memory, and logs this once.

use std::io;

use super::ShmTransport;
use crate::memory_file;
use crate::name::NameKind;
use crate::segment::{DataArea, Segment};

/// Which action of a transport a security policy has refused. The first refusal is logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PolicyRefusal {
    None,
    /// A connect. Others may succeed.
    Connect,
    /// The transport's name, or memory files. Beside TCP, the transport neither listens nor connects.
    AllLinks,
}

impl PolicyRefusal {
    /// Whether no link can be made.
    pub(super) fn forbids_all_links(self) -> bool {
        self == PolicyRefusal::AllLinks
    }
}

/// Whether a security policy has refused a call of `socket(2)`, `bind(2)` or `connect(2)`. For an abstract
/// name, no other cause makes these calls fail with such an error.
pub(super) fn is_refused_by_policy(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::PermissionDenied
}

/// Returns the error of the system if this process may not create the memory file of a ring.
pub(super) fn forbidding_error() -> Option<io::Error> {
    Segment::create(DataArea::LARGE).err().filter(memory_file::is_forbidden)
}

impl ShmTransport {
    /// Records that a security policy has refused the transport's name.
    pub(super) fn note_refused_name(&mut self, error: &io::Error) {
        tracing::warn!(
            address = %self.address, %error,
            "a security policy forbids the abstract name of this endpoint: it shares memory with no peer"
        );
        self.refusal = PolicyRefusal::AllLinks;
    }

    /// Records that this process may not create memory files. Beside TCP, gives up the transport's name, so
    /// that TCP carries all further links.
    pub(super) fn note_forbidden_memory_files(&mut self, error: &io::Error) {
        if self.refusal != PolicyRefusal::AllLinks {
            tracing::warn!(
                address = %self.address, %error,
                "this process may not create memory files for links over shared memory: see RLIMIT_FSIZE \
                 (ulimit -f) and seccomp; the domain auto uses TCP, links of shm fail"
            );
            self.refusal = PolicyRefusal::AllLinks;
        }
        if self.names != NameKind::Alone {
            self.listener = None;
        }
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
