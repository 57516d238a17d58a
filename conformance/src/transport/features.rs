//! The optional features of a backend.

use bitflags::bitflags;
use homespun_engine::transport::{Armed, Provider, Transport};

use crate::transport::exposing::probe_pulls;
use crate::transport::mapping::probe_maps;
use crate::transport::room::probe_splits;
use crate::transport::waking::probe_backlog;
use crate::transport::{Backend, TestEndpoint};

bitflags! {
/// The optional features of a backend. Tests of a feature run only for backends that have it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Features: u32 {
    /// Links [pull](Transport::pull) payload: their caps say so, and a pull is not refused.
    const PULLS = 1;
    /// The provider allocates shareable memory, and links [map](Transport::map_peer_memory) the shareable
    /// memory of their peers.
    const MAPS = 1 << 1;
    /// A link without room for a long frame takes it [in part](homespun_engine::transport::Sent::Partial).
    /// Without this feature, links take a frame whole or not at all.
    const SPLITS = 1 << 2;
    /// Endpoints have a [descriptor](Transport::wake_fd) on which their caller can sleep. Without this
    /// feature, the caller must poll the backend.
    const WAKES = 1 << 3;
    /// If the acceptor makes no call, its backlog is full after at most 32 connects. A further connect waits
    /// for a place in the backlog. No descriptor announces a free place, so the connector's transport asks
    /// for a pass at a [later time](Armed::Asleep).
    const BACKLOG = 1 << 4;
}
}

impl Features {
    /// Finds the features of a backend.
    ///
    /// # Panics
    ///
    /// If a link does not come up in time.
    pub fn probe<P: Provider>(backend: Backend<'_, P>) -> Features {
        [
            (Features::PULLS, probe_pulls(backend)),
            (Features::MAPS, probe_maps(backend)),
            (Features::SPLITS, probe_splits(backend)),
            (Features::WAKES, has_wake_fd(&backend.open_endpoint(11))),
            (Features::BACKLOG, probe_backlog(backend)),
        ]
        .into_iter()
        .filter_map(|(feature, is_there)| is_there.then_some(feature))
        .collect()
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
    if !found.contains(Features::WAKES) {
        let armed = backend.open_endpoint(11).transport.arm();
        assert_eq!(armed, Armed::Ready, "only a descriptor can wake a sleeping caller");
    }
}
