//! The optional features of a backend.

use homespun_engine::transport::{Armed, Provider, Transport};

use crate::transport::exposing::probe_pulls;
use crate::transport::mapping::probe_maps;
use crate::transport::room::probe_splits;
use crate::transport::waking::probe_backlog;
use crate::transport::{Backend, TestEndpoint};

/// The optional features of a backend. Tests of a feature run only for backends that have it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Features {
    /// Links [pull](Transport::pull) payload: their caps say so, and a pull is not refused.
    pub pulls: bool,
    /// The provider allocates shareable memory, and links [map](Transport::map_peer_memory) the shareable
    /// memory of their peers.
    pub maps: bool,
    /// A link without room for a long frame takes it [in part](homespun_engine::transport::Sent::Partial).
    /// Without this feature, links take a frame whole or not at all.
    pub splits: bool,
    /// Endpoints have a [descriptor](Transport::wake_fd) on which their caller can sleep. Without this
    /// feature, the caller must poll the backend.
    pub wakes: bool,
    /// If the acceptor makes no call, its backlog is full after at most 32 connects. A further connect waits
    /// for a place in the backlog. No descriptor announces a free place, so the connector's transport asks
    /// for a pass at a [later time](Armed::Asleep).
    pub backlog: bool,
}

impl Features {
    /// Finds the features of a backend.
    ///
    /// # Panics
    ///
    /// If a link does not come up in time.
    pub fn probe<P: Provider>(backend: Backend<'_, P>) -> Features {
        Features {
            pulls: probe_pulls(backend),
            maps: probe_maps(backend),
            splits: probe_splits(backend),
            wakes: has_wake_fd(&backend.open_endpoint(11)),
            backlog: probe_backlog(backend),
        }
    }
}

pub(super) fn has_wake_fd<T: Transport>(endpoint: &TestEndpoint<T>) -> bool {
    endpoint.transport.wake_fd().is_some()
}

/// Asserts that the backend has the declared features and no others.
///
/// # Panics
///
/// If the features differ, or if a transport without a descriptor allows its caller to sleep.
pub fn assert_features<P: Provider>(backend: Backend<'_, P>, declared: Features) {
    let found = Features::probe(backend);
    assert_eq!(declared, found, "the declared features, on the left, are not those of the backend");
    if !found.wakes {
        assert_eq!(
            backend.open_endpoint(11).transport.arm(),
            Armed::Ready,
            "only a descriptor can wake a sleeping caller"
        );
    }
}
