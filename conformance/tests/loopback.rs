//! The contract over the in-process network, without and with faults.

use homespun_engine::loopback::{CAPACITY_MIN_BYTES, Faults, Network};

homespun_conformance::transport_contract!(Network::new(1, Faults::default()), features: [maps, splits]);

/// Links of small capacity that cut and delay bytes at random, are full at random, and refuse some pulls.
mod choppy {
    use super::*;

    homespun_conformance::transport_contract!(
        Network::new(2, Faults::choppy()),
        features: [pulls, maps, splits],
    );
}

/// Links of the smallest capacity. Every read is cut at a random byte.
mod tiny {
    use super::*;

    homespun_conformance::transport_contract!(
        Network::new(
            3,
            Faults { capacity_bytes: CAPACITY_MIN_BYTES, split_per_mille: 1000, ..Faults::default() }
        ),
        features: [maps, splits],
    );
}

/// Links that pull payload and never refuse a pull.
mod pulling {
    use super::*;

    homespun_conformance::transport_contract!(
        Network::new(4, Faults { pull_min_bytes: Some(1000), ..Faults::default() }),
        features: [pulls, maps, splits],
    );
}
