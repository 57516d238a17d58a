//! The contract of a transport over shared memory.

use homespun_shm::ShmProvider;

homespun_conformance::transport_contract!(ShmProvider::new(), features: [pulls, maps, splits, wakes]);

/// The backlog is short, so connects often have to be repeated.
mod short_backlog {
    use super::*;

    homespun_conformance::transport_contract!(
        ShmProvider::new().with_backlog_connections(1),
        features: [pulls, maps, splits, wakes, backlog],
    );
}
