//! The optional features of a backend.

use homespun_engine::transport::{Armed, Provider, Transport};

use crate::transport::exposing::pulls;
use crate::transport::mapping::maps;
use crate::transport::room::splits;
use crate::transport::{Backend, TestEndpoint};

/// The optional features of a backend. The contract tests each of them only in backends that have it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Features {
    /// Links [pull](Transport::pull) payload: their caps say so, and a pull is not refused.
    pub pulls: bool,
    /// The provider has shareable memory, and its links [map](Transport::map) that of their peers.
    pub maps: bool,
    /// Links take a long frame [in part](homespun_engine::transport::Sent::Partial) while there is no room
    /// for all of it. The links of a backend without this feature take it whole or not at all.
    pub splits: bool,
    /// Endpoints have a [descriptor](Transport::wake_fd) on which their caller can sleep. A backend without
    /// it has to be polled.
    pub wakes: bool,
}

impl Features {
    /// The features that a backend has.
    ///
    /// # Panics
    ///
    /// If its links do not come up in time.
    pub fn of<P: Provider>(backend: Backend<'_, P>) -> Features {
        Features {
            pulls: pulls(backend),
            maps: maps(backend),
            splits: splits(backend),
            wakes: wakes(&backend.open(11)),
        }
    }
}

fn wakes<T: Transport>(endpoint: &TestEndpoint<T>) -> bool {
    endpoint.transport.wake_fd().is_some()
}

/// Asserts that the backend has the declared features and no others.
///
/// # Panics
///
/// If it has other features. Also, if a transport without a descriptor says that it can be slept on.
pub fn assert_features<P: Provider>(backend: Backend<'_, P>, declared: Features) {
    let found = Features::of(backend);
    assert_eq!(declared, found, "the declared features, on the left, are not those of the backend");
    if !found.wakes {
        assert_eq!(
            backend.open(11).transport.arm(),
            Armed::Ready,
            "only a descriptor can wake a sleeping caller"
        );
    }
}
