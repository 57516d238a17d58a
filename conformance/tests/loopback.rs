//! The contract over the network inside the process, on a good day and on bad ones.

use homespun_engine::loopback::{CAPACITY_MIN_BYTES, Faults, Network};

homespun_conformance::transport_contract!(Network::new(1, Faults::default()));

/// With links that hold little, cut bytes anywhere, are late, and are full at any moment.
mod choppy {
    use super::*;

    homespun_conformance::transport_contract!(Network::new(2, Faults::choppy()));
}

/// With links that hold next to nothing and hand over every byte by itself.
mod tiny {
    use super::*;

    homespun_conformance::transport_contract!(Network::new(
        3,
        Faults { capacity_bytes: CAPACITY_MIN_BYTES, split_per_mille: 1000, ..Faults::default() }
    ));
}

/// With payload that is pulled, and never refused.
mod pulling {
    use super::*;

    fn network() -> Network {
        Network::new(4, Faults { pull_min_bytes: Some(1000), ..Faults::default() })
    }

    homespun_conformance::transport_contract!(network());

    /// Otherwise the contract demands nothing of the kind.
    #[test]
    fn provider_with_pull_enabled_pulls() {
        assert!(homespun_conformance::transport::pulls(&network()));
    }
}
