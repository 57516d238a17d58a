//! The contract of a transport over shared memory and TCP.

use homespun_auto::AutoProvider;
use homespun_shm::ShmProvider;
use homespun_suite::Neighbours;
use homespun_tcp::TcpProvider;

/// All peers are near.
mod near {
    use super::*;

    homespun_conformance::transport_contract!(
        AutoProvider::new(ShmProvider::new(), TcpProvider::new()),
        features: [pulls, maps, splits, wakes],
    );
}

/// The backlog of near peers is short, so connects often have to be repeated.
mod short_backlog {
    use super::*;

    homespun_conformance::transport_contract!(
        AutoProvider::new(ShmProvider::new().with_backlog_connections(1), TcpProvider::new()),
        features: [pulls, maps, splits, wakes, backlog],
    );
}

/// Every second endpoint is in the other neighbourhood, so some peers are far and some are near.
mod mixed {
    use super::*;

    homespun_conformance::transport_contract!(Neighbours::new(0), features: [splits, wakes]);
}
